"""Conversion of users' labels to one form: sparse int8, 1 = positive, -1 = unknown.

A matrix of numbers holds 1, 0 and -1. A single column, and every column of a table of text, may hold classes instead:
two classes become one label; with more, each class becomes a label.
"""

from __future__ import annotations

import math
import numbers
import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels, as_targets
from mlfs_dask.errors import DataError
from mlfs_dask.selection.containers import is_absent, table_columns
from mlfs_dask.typing import Array

#: Entries of a label matrix written as text.
_WRITTEN_ENTRIES = {"1": 1, "1.0": 1, "True": 1, "0": 0, "0.0": 0, "False": 0, "-1": -1, "-1.0": -1}


def label_matrix(y: Any) -> sp.csr_array:
    """Convert `y` to a canonical csr_array of int8, shape (n, q).

    Parameters
    ----------
    y : array-like, shape (n, q) or (n,)
        Entries 1, 0 or -1 (unknown). A dense `y` of only 1 and -1 has -1 for negative. A single column, of shape (n,)
        or (n, 1), may hold classes, where the number -1 is unknown, as in `sklearn.semi_supervised`; so may every
        column of a table with text, and all columns of whole numbers if none of them holds only 1, 0 and -1. None and
        NaN are unknown. Two classes become one label, positive for the second class in sorted order; one class, or more
        than two, become a label each. A one-dimensional Dask array is computed.

    Raises
    ------
    DataError
        If an entry is neither 1, 0 nor -1, or a class is invalid.

    Examples
    --------
    >>> label_matrix([[1, 0], [0, -1]]).toarray()
    array([[ 1,  0],
           [ 0, -1]], dtype=int8)
    >>> label_matrix(["cat", "dog", "cat"]).toarray().ravel()
    array([0, 1, 0], dtype=int8)
    >>> label_matrix([2, 5, 3, -1]).toarray()
    array([[ 1,  0,  0],
           [ 0,  0,  1],
           [ 0,  1,  0],
           [-1, -1, -1]], dtype=int8)
    """
    return labels_and_names(y)[0]


def labels_and_names(y: Any) -> tuple[sp.csr_array, list[str] | None]:
    """Return the `label_matrix`, and the names of the labels if columns or classes have names.

    A label from a class is named after its column and the class.

    Examples
    --------
    >>> labels_and_names(["cat", "dog", "cat"])[1]
    ['dog']
    """
    if sp.issparse(y) or type(y).__module__.partition(".")[0] == "sparse":
        return as_labels(y), None
    names = table_columns(y)
    if names is None and getattr(y, "name", None) is not None and getattr(y, "ndim", 1) == 1:  # a series
        names = [y.name]
    array = _as_array(y)
    if array.ndim not in (1, 2):
        raise DataError(
            f"Y must be two-dimensional, (rows, labels), or one-dimensional with classes; got shape {array.shape}",
            cure="reshape it to (rows, labels)",
        )
    if array.dtype.kind == "c":
        raise DataError("Complex data not supported", cure="give classes")
    if array.ndim == 1:
        _warn_three_values(array)
    if array.ndim == 1 or array.shape[1] == 1:
        labels, classes = _column_labels(array.ravel(), "one-dimensional y")
        return labels, _label_names(names and names[0], classes)
    matrix = _numbers(array)
    if matrix is not None and not _holds_classes(matrix):
        absent = np.isnan(matrix) if matrix.dtype.kind == "f" else None
        matrix = matrix if absent is None else np.where(absent, 1, matrix)
        _check_entries(matrix, names)
        entries = _signs_to_labels(matrix)
        labels = as_labels(entries if absent is None else np.where(absent, -1, entries))
        return labels, None if names is None else [str(name) for name in names]
    columns = [_column_labels(array[:, i], _column_name(i, names)) for i in range(array.shape[1])]
    column_names = [
        _label_names(f"y{i}" if names is None else names[i], classes) for i, (_, classes) in enumerate(columns)
    ]
    label_names = [name for names_of_column in column_names for name in names_of_column or ()]
    return sp.csr_array(sp.hstack([labels for labels, _ in columns], format="csr")), label_names


def targets_and_names(y: Any) -> tuple[Array, list[str] | None]:
    """Return numeric targets as float64, shape (n, q), NaN for unknown, and their names if columns have names.

    Raises
    ------
    DataError
        If y holds text or infinity.

    Examples
    --------
    >>> targets_and_names([0.5, None, 2])[0].ravel()
    array([0.5, nan, 2. ])
    """
    names = table_columns(y)
    if names is None and getattr(y, "name", None) is not None:  # a series
        names = [y.name]
    array = y.toarray() if sp.issparse(y) else _as_array(y)
    if array.dtype.kind not in "biuf":
        try:
            array = np.where(np.vectorize(is_absent, otypes=[bool])(array), np.nan, array).astype(np.float64)
        except (TypeError, ValueError):
            raise DataError("numeric targets must be numbers, and Y holds text", cure="leave that column out") from None
    targets = as_targets(array.reshape(len(array), -1) if array.ndim == 1 else array)
    return targets, None if names is None else [str(name) for name in names]


def _label_names(column: Any, classes: list[Any] | None) -> list[str] | None:
    """Return the names of a column's labels: one for each class, if any; None for an unnamed column of entries."""
    if classes is None:
        return None if column is None else [str(column)]
    return [str(value) if column is None else f"{column}={value}" for value in classes]


def _as_array(y: Any) -> NDArray[Any]:
    """Convert `y` to an array of classes or entries.

    Raises
    ------
    DataError
        If the rows are lists of labels, or the values are dates.
    """
    try:
        array = np.asarray(y)
    except ValueError:  # rows of several lengths
        array = np.empty(len(y), dtype=object)
        array[:] = [list(row) if isinstance(row, list | tuple) else row for row in y]
    if array.dtype.kind == "O" and array.ndim:
        for row, value in enumerate(array.ravel()):
            if isinstance(value, list | tuple | set | frozenset | dict | np.ndarray):
                raise DataError(
                    f"Y holds a collection of labels, {value!r:.80} (row {row // math.prod(array.shape[1:])}; counted "
                    "from 0), and a table with a column for each label was expected",
                    cure="sklearn.preprocessing.MultiLabelBinarizer().fit_transform(Y) makes one",
                )
    if array.dtype.kind in "mM":
        raise DataError(
            f"Y must hold labels or classes, and it holds {'dates' if array.dtype.kind == 'M' else 'spans of time'}",
            cure="give classes, for example the year of each, or 0/1 labels",
        )
    if array.dtype.names:
        raise DataError("Y is a structured array", cure="pandas.DataFrame(Y)")
    return array


def _holds_classes(matrix: NDArray[Any]) -> bool:
    """Return True if every column holds whole numbers other than 1, 0 and -1, which are classes.

    If only part of the columns does, the columns are labels with invalid entries.
    """
    absent = np.isnan(matrix) if matrix.dtype.kind == "f" else np.zeros(matrix.shape, dtype=bool)
    whole = absent | (np.isfinite(matrix) & (matrix == np.floor(matrix)))
    return bool(matrix.size and whole.all() and (~absent & ~_is_entry(matrix)).any(axis=0).all())


def _column_name(column: int, names: Any) -> str:
    return f"column {column}" if names is None else f"column {str(names[column])!r}"


def _numbers(array: NDArray[Any]) -> NDArray[Any] | None:
    """Return `array` as numbers, or None for other values; entries of a label matrix may be text."""
    if array.dtype.kind in "biuf":
        return array
    if array.dtype.kind not in "OU":
        return None
    values = array.ravel().tolist()
    kinds = {type(value) for value in values}
    if all(issubclass(kind, (numbers.Real, np.bool_)) for kind in kinds):
        return array.astype(np.float64)
    if kinds <= {str, np.str_} and set(values) <= _WRITTEN_ENTRIES.keys():
        return np.array([_WRITTEN_ENTRIES[value] for value in values], dtype=np.int8).reshape(array.shape)
    return None


def _is_entry(values: NDArray[Any]) -> NDArray[np.bool_]:
    """Return a mask of the values 1, 0 and -1."""
    is_entry: NDArray[np.bool_] = (values == 0) | (values == 1) | (values == -1)
    return is_entry


def _signs_to_labels(entries: NDArray[Any]) -> NDArray[Any]:
    """Return entries 1, 0 and -1; if there are only 1 and -1, -1 becomes negative."""
    if (entries == -1).any() and (entries == 1).any() and not (entries == 0).any():
        if entries.ndim == 2 and entries.shape[1] > 1:  # no warning for a single column, which has two classes
            warnings.warn(
                "the labels are 1 and -1 and never 0, so -1 is taken as negative; where it means unknown, pass them as "
                "a sparse matrix, in which it always does",
                stacklevel=2,
            )
        return np.asarray(entries == 1)
    return entries


def _warn_three_values(y: NDArray[Any]) -> None:
    """Warn if a one-dimensional y holds -1, 0 and 1, which may be three classes, such as a sentiment."""
    numbers = _numbers(y)
    if numbers is None or not all((numbers == value).any() for value in (-1, 0, 1)) or not _is_entry(numbers).all():
        return
    warnings.warn(
        "y holds -1, 0 and 1, of which -1 is taken as unknown. If these are three classes, pass them as text: "
        "np.array(['neg', 'none', 'pos'])[y + 1]; if -1 is negative and 0 unknown, mlfs_dask.label_matrix(y, "
        "negative=-1, unknown=0); if it is as it should be, y.reshape(-1, 1)",
        stacklevel=3,
    )


def _check_entries(matrix: NDArray[Any], names: Any) -> None:
    """Refuse entries other than 1, 0 and -1, naming column, value and cure."""
    valid = _is_entry(matrix)
    if valid.all():
        return
    row, column = (int(i) for i in np.argwhere(~valid)[0])
    value = matrix[row, column]
    cure = "binarise it, for example with Y > threshold; write unknown labels as -1"
    if np.isfinite(value):
        if value == np.floor(value):
            cure += "; if the columns hold classes, pass them as text (Y.astype(str))"
        cure += "; for numeric targets give target_type='continuous'"
        cure += "; or say what the values mean: mlfs_dask.label_matrix(Y, positive=..., negative=..., unknown=...)"
    raise DataError(
        f"Y must be 0/1; {_column_name(column, names)} holds {value} (row {row}; counted from 0)", cure=cure
    )


def _column_labels(values: NDArray[Any], name: str) -> tuple[sp.csr_array, list[Any] | None]:
    """Return the labels of one column, shape (n, labels), and their classes; None for a column of entries."""
    n = len(values)
    unknown = np.zeros(n, dtype=bool)
    if values.dtype.kind == "O":
        unknown[:] = [is_absent(value) for value in values.tolist()]
    elif values.dtype.kind == "f":
        unknown = np.isnan(values)
    classes = values[~unknown]
    numbers = _numbers(classes)
    if numbers is not None:
        if _is_entry(numbers).all():
            entries = np.full((n, 1), -1, dtype=np.int8)
            entries[~unknown, 0] = _signs_to_labels(numbers)
            return as_labels(entries), None
        continuous = ~np.isfinite(numbers) | (numbers != np.floor(numbers))
        if continuous.any():
            value = numbers[int(np.flatnonzero(continuous)[0])]
            raise DataError(
                f"{name} must hold classes; Unknown label type: continuous, for example {value}",
                cure="write unknown labels as -1: mlfs_dask.label_matrix(y) does it for NaN"
                if np.isnan(value)
                else "give classes, 0/1 labels of shape (rows, labels), or target_type='continuous' for numbers",
            )
        unknown[~unknown] = numbers == -1
        classes = numbers[numbers != -1]
    try:
        names, codes = np.unique(classes, return_inverse=True)
    except TypeError:
        raise DataError(f"{name} mixes types that cannot be put in order", cure="give classes of one type") from None
    rows = np.flatnonzero(~unknown)
    if len(names) == 2:
        rows, codes, names = rows[codes == 1], codes[codes == 1] - 1, names[1:]
    q = len(names)
    absent = np.flatnonzero(unknown)
    row = np.concatenate([rows, np.repeat(absent, q)])
    column = np.concatenate([codes, np.tile(np.arange(q), len(absent))]).astype(np.int32)
    entries = np.concatenate([np.ones(len(rows), np.int8), np.full(q * len(absent), -1, np.int8)])
    return as_labels(sp.coo_array((entries, (row, column)), shape=(n, q))), names.tolist()
