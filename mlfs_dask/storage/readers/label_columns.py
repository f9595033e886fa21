"""Which columns are labels, and what a label may hold: the rules that all table and matrix readers share."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError, number_of
from mlfs_dask.storage.readers.base import LabelSpec

LABEL_OPTIONS = (
    "say which columns are labels: --labels FILE.xml, --label-columns NAMES, or --n-labels K "
    "(with --labels-first when they come first)"
)
LABEL_CURE = "labels are 1, 0, and -1, ? or an empty field where unknown; binarise the column"


def split_columns(
    names: Sequence[str], labels: LabelSpec, *, drop: Sequence[str] = (), file: str
) -> tuple[list[int], list[int]]:
    """Column indices of the features and of the labels, both in the order of the file.

    Parameters
    ----------
    names : sequence of str
        All columns of the file, in order.
    labels : LabelSpec
        `columns` holds names, or numbers counted from 1 where no column has that name.
    drop : sequence of str
        Columns that are neither, named as labels are. A count of labels counts them too.
    file : str
        For messages.

    Returns
    -------
    features, labels : list of int

    Raises
    ------
    UsageError
        The labels were not specified.
    DataError
        A named column does not exist, or nothing is left on one side.

    Examples
    --------
    >>> split_columns(["id", "a", "sky"], LabelSpec(columns=("sky",)), drop=["1"], file="t.csv")
    ([1], [2])
    """
    width = len(names)
    if labels.columns is not None:
        chosen = {find_column(names, column, "label", file=file) for column in labels.columns}
    elif labels.count is not None:
        if not 0 < labels.count < width:
            raise DataError(
                f"{number_of(labels.count, 'label')} asked for; the file has {number_of(width, 'column')}, and at "
                "least one must be a label and one a feature",
                file=file,
                cure=LABEL_OPTIONS if width > 1 else "check the delimiter: it is read as one column",
            )
        start = 0 if labels.first else width - labels.count
        chosen = set(range(start, start + labels.count))
    else:
        raise UsageError(f"{file}: nothing tells which columns are labels\n  cure: {LABEL_OPTIONS}")
    dropped = {find_column(names, column, "column to leave out,", file=file) for column in drop}
    features = [index for index in range(width) if index not in chosen | dropped]
    chosen -= dropped
    if not chosen or not features:
        raise DataError(
            f"{number_of(len(features), 'feature')} and {number_of(len(chosen), 'label')} are left; at least one of "
            "each is needed",
            file=file,
            cure="leave fewer out with --drop" if drop else LABEL_OPTIONS,
        )
    return features, sorted(chosen)


def find_column(names: Sequence[str], column: str, what: str, *, file: str) -> int:
    """Index of a column given by name or by its number from 1; `what` says what it was to be."""
    if column in names:
        return list(names).index(column)
    if column.isdecimal() and 1 <= int(column) <= len(names):
        return int(column) - 1
    closest = difflib.get_close_matches(column, names, n=3, cutoff=0.5)
    them = f"not the only column, {names[0]!r}" if len(names) == 1 else f"none of the {len(names):,} columns"
    raise DataError(
        f"the {what} {column!r} is {them}",
        file=file,
        value=column,
        cure="the closest names are " + ", ".join(map(repr, closest))
        if closest
        else "give names of columns, or their numbers counted from 1",
    )


def unique_names(names: Sequence[str], *, file: str, line: int | None = None) -> None:
    """Raise DataError naming the first name that occurs twice."""
    if len(set(names)) == len(names):
        return
    seen: dict[str, int] = {}
    for number, name in enumerate(names, start=1):
        if name in seen:
            raise DataError(
                f"columns {seen[name]} and {number} have the same name",
                file=file,
                line=line,
                column=name,
                cure="give every column a name of its own",
            )
        seen[name] = number


def label_block(
    values: NDArray[Any],
    *,
    names: Sequence[str] | None,
    file: str,
    place: Callable[[int], dict[str, Any]],
) -> csr_array:
    """Labels of some rows as the int8 matrix that readers give.

    Parameters
    ----------
    values : ndarray, shape (rows, q)
        1, 0, -1 or NaN (unknown).
    names : sequence of str or None
        Label names, for messages.
    file : str
        For messages.
    place : callable
        From the row within `values` to what DataError should say of it: ``{"line": 7}`` or ``{"row": 7}``.

    Returns
    -------
    csr_array of int8, shape (rows, q)
        1 and -1 entries.

    Raises
    ------
    DataError
        Another value, with its row or line and its label.
    """
    if values.dtype.kind not in "bui" and np.isnan(values).any():
        values = np.where(np.isnan(values), -1.0, values)
    with np.errstate(invalid="ignore"):
        labels = values.astype(np.int8)
    if not np.array_equal(labels, values) or labels.min(initial=0) < -1 or labels.max(initial=0) > 1:
        row, column = map(int, np.argwhere((values != 0) & (values != 1) & (values != -1))[0])
        bad_label(values[row, column], column, names=names, file=file, **place(row))
    entries = np.flatnonzero(labels != 0)
    rows = entries // labels.shape[1]
    matrix = _label_csr(labels.reshape(-1)[entries], entries - rows * labels.shape[1], rows, labels.shape)
    matrix.has_canonical_format = True  # entries were met in order
    return matrix


def sparse_label_block(
    values: csr_array,
    *,
    names: Sequence[str] | None,
    file: str,
    place: Callable[[int], dict[str, Any]],
) -> csr_array:
    """`label_block` for labels that are sparse already: absent entries are 0."""
    data = values.data
    if data.dtype.kind not in "bui":
        data = np.where(np.isnan(data), -1.0, data)
    rows = np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))
    if data.dtype.kind != "b":
        allowed = (data == 0) | (data == 1) | (data == -1)
        if not allowed.all():
            first = int(np.argmin(allowed))
            row, column = int(rows[first]), int(values.indices[first])
            bad_label(data[first], column, names=names, file=file, **place(row))
    keep = data != 0
    labels = np.where(data[keep] == 1, np.int8(1), np.int8(-1))
    matrix = _label_csr(labels, values.indices[keep], rows[keep], values.shape)
    matrix.sort_indices()
    return matrix


def _label_csr(data: NDArray[np.int8], columns: NDArray[Any], rows: NDArray[Any], shape: tuple[int, ...]) -> csr_array:
    indptr = np.zeros(shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
    return csr_array((data, columns.astype(np.int32, copy=False), indptr), shape=shape)


def bad_label(
    value: object,
    column: int,
    *,
    names: Sequence[str] | None,
    file: str,
    line: int | None = None,
    row: int | None = None,
) -> None:
    """Raise DataError for a label that is not 0, 1 or unknown; `row` counts from 1."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    where = f"row {row}: " if row is not None else ""
    raise DataError(
        f"{where}a label must be 0 or 1 (-1 = unknown)",
        file=file,
        line=line,
        column=names[column] if names is not None else column + 1,
        value=value,
        cure=LABEL_CURE,
    )
