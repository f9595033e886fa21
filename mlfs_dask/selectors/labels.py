"""Labels as users give them, checked and turned into one form: sparse int8, 1 = positive, -1 = unknown."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.errors import DataError


def label_matrix(y: Any) -> sp.csr_array:
    """`y` as a canonical csr_array of int8, shape (n, q).

    Parameters
    ----------
    y : array-like, shape (n, q) or (n,)
        Two-dimensional: entries 1, 0 or -1 (unknown). One-dimensional: classes of any type; every class
        becomes a 0/1 label, in sorted order. A one-dimensional Dask array is computed.

    Raises
    ------
    DataError
        An entry is neither 1, 0 nor -1, or a class is not a class.

    Examples
    --------
    >>> label_matrix([[1, 0], [0, -1]]).toarray()
    array([[ 1,  0],
           [ 0, -1]], dtype=int8)
    >>> label_matrix(["cat", "dog", "cat"]).toarray()
    array([[1, 0],
           [0, 1],
           [1, 0]], dtype=int8)
    """
    if sp.issparse(y) or type(y).__module__.partition(".")[0] == "sparse":
        return as_labels(y)
    names = getattr(y, "columns", None)
    array = np.asarray(y)
    if array.ndim == 1:
        return _indicators(array)
    if array.ndim != 2:
        raise DataError(
            f"Y must be two-dimensional, (rows, labels), or one-dimensional with classes; got shape {array.shape}",
            cure="reshape it to (rows, labels)",
        )
    matrix = as_matrix(array)
    _check_entries(matrix, names)
    return as_labels(matrix)


def _check_entries(matrix: NDArray[Any], names: Any) -> None:
    """Refuse anything but 1, 0, -1, naming the column, the value and the cure."""
    good = (matrix == 0) | (matrix == 1) | (matrix == -1)
    if good.all():
        return
    row, column = (int(i) for i in np.argwhere(~good)[0])
    name = f"column {str(names[column])!r}" if names is not None else f"column {column}"
    value = matrix[row, column]
    if matrix.shape[1] == 1:
        cure = "pass classes as a one-dimensional array, y.ravel()"
    elif np.isnan(value):
        cure = "write unknown labels as -1"
    else:
        cure = "binarise it, for example with Y > threshold; write unknown labels as -1"
    raise DataError(f"Y must be 0/1; {name} holds {value} (row {row}; counted from 0)", cure=cure)


def _indicators(classes: NDArray[Any]) -> sp.csr_array:
    """One 0/1 column per class."""
    if classes.dtype.kind == "c":
        raise DataError("Complex data not supported", cure="give classes")
    if classes.dtype.kind == "f":
        real = ~np.isfinite(classes) | (classes != np.floor(classes))
        if real.any():
            value = classes[int(np.flatnonzero(real)[0])]
            raise DataError(
                f"one-dimensional y must hold classes; Unknown label type: continuous, for example {value}",
                cure="give classes, or 0/1 labels of shape (rows, labels)",
            )
    try:
        found, codes = np.unique(classes, return_inverse=True)
    except TypeError:
        raise DataError(
            "one-dimensional y mixes types that cannot be put in order", cure="give classes of one type"
        ) from None
    n = len(classes)
    return sp.csr_array(
        (np.ones(n, dtype=np.int8), codes.astype(np.int32), np.arange(n + 1, dtype=np.int64)),
        shape=(n, len(found)),
    )
