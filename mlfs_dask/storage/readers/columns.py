"""Which columns are labels, and what a label may hold: the rules that all table and matrix readers share."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.storage.readers.base import LabelSpec

LABEL_OPTIONS = (
    "say which columns are labels: --labels FILE.xml, --label-columns NAMES, or --n-labels K "
    "(with --labels-first when they come first)"
)
LABEL_CURE = "labels are 1, 0, and -1, ? or an empty field where unknown; binarise the column"


def split_columns(names: Sequence[str], labels: LabelSpec, *, file: str) -> tuple[list[int], list[int]]:
    """Column indices of the features and of the labels.

    Parameters
    ----------
    names : sequence of str
        All columns of the file, in order.
    labels : LabelSpec
        `columns` holds names, or numbers counted from 1 where no column has that name. Labels keep the order
        in which they were named; by count they keep the file's.
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
        A named column does not exist, is named twice, or nothing is left on one side.

    Examples
    --------
    >>> split_columns(["a", "b", "sky"], LabelSpec(columns=("sky",)), file="t.csv")
    ([0, 1], [2])
    """
    width = len(names)
    if labels.columns is not None:
        chosen = [_find_column(names, column, file=file) for column in labels.columns]
        for position, index in enumerate(chosen):
            if index in chosen[:position]:
                raise DataError(
                    "the column is given twice as a label",
                    file=file,
                    column=names[index],
                    cure="name each label once",
                )
    elif labels.count is not None:
        if not 0 < labels.count < width:
            raise DataError(
                f"{labels.count} labels were asked for, but the file has {width} columns and at least one "
                "must be a feature",
                file=file,
                cure=f"give a number of labels from 1 to {width - 1}" if width > 1 else "check the delimiter",
            )
        start = 0 if labels.first else width - labels.count
        chosen = list(range(start, start + labels.count))
    else:
        raise UsageError(f"{file}: the format does not mark its labels\n  cure: {LABEL_OPTIONS}")
    taken = set(chosen)
    features = [index for index in range(width) if index not in taken]
    if not chosen or not features:
        raise DataError(
            f"{len(chosen)} labels and {len(features)} features: at least one of each is needed",
            file=file,
            cure=LABEL_OPTIONS,
        )
    return features, chosen


def _find_column(names: Sequence[str], column: str, *, file: str) -> int:
    if column in names:
        return list(names).index(column)
    if column.isdecimal() and 1 <= int(column) <= len(names):
        return int(column) - 1
    close = difflib.get_close_matches(column, names, n=3, cutoff=0.5)
    nearest = f"; closest: {', '.join(map(repr, close))}" if close else ""
    raise DataError(
        f"no such label column among {len(names)} columns{nearest}",
        file=file,
        column=column,
        cure="give names from the header, or numbers counted from 1",
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
    if values.dtype.kind not in "bui":
        values = np.where(np.isnan(values), -1.0, values)
    if values.dtype.kind != "b":
        allowed = (values == 0) | (values == 1) | (values == -1)
        if not allowed.all():
            row, column = map(int, np.argwhere(~allowed)[0])
            bad_label(values[row, column], column, names=names, file=file, **place(row))
    rows, columns = np.nonzero(values)
    data = np.where(values[rows, columns] == 1, np.int8(1), np.int8(-1))
    return _label_csr(data, columns, rows, values.shape)


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
    return _label_csr(labels, values.indices[keep], rows[keep], values.shape)


def _label_csr(
    data: NDArray[np.int8], columns: NDArray[Any], rows: NDArray[Any], shape: tuple[int, ...]
) -> csr_array:
    indptr = np.zeros(shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
    matrix = csr_array((data, columns.astype(np.int32, copy=False), indptr), shape=shape)
    matrix.sort_indices()
    return matrix


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


def need(module: str, *, file: str, what: str) -> Any:
    """Import an optional library, or say how to get it.

    Raises
    ------
    UsageError
        It is not installed.
    """
    import importlib

    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise UsageError(
            f"{file}: reading {what} needs {module.partition('.')[0]}, which is not installed\n"
            '  cure: pip install "mlfs-dask[formats]"'
        ) from error
