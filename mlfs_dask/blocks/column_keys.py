"""Keys of columns that depend on their values alone, for draws that do not depend on the order of the columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.linear import tile_rows
from mlfs_dask.blocks.row_draws import mix_bits, row_bits
from mlfs_dask.typing import Array, Matrix


def column_keys(X: Matrix) -> NDArray[np.uint64]:
    """A key of every column, equal for equal columns; the order of rows and of columns has no part in it.

    A key is a sum over the rows of what mixes a value with the key of its row, and that is made in the same way from
    first keys of the columns, which are sums over their values alone (two rounds of the colour refinement of Weisfeiler
    & Leman). Columns that differ have different keys unless rows and columns can be put in an order in which
    these rounds do not tell them apart.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
        Dense and sparse rows of the same values have the same keys.

    Returns
    -------
    uint64 array, shape (d,)
        0 for a column that does not vary; it has no part in the keys of rows.

    Examples
    --------
    >>> X = np.array([[1.0, 0.0, 1.0], [0.0, 2.0, 0.0]])
    >>> keys = column_keys(X)
    >>> bool(keys[0] == keys[2]), bool(keys[0] == keys[1]), bool((keys == column_keys(sp.csr_array(X))).all())
    (True, False, True)
    """
    low, high = column_ranges(X)
    varying = np.flatnonzero(low < high)
    keys = np.zeros(X.shape[1], np.uint64)
    X = X[:, varying]
    n, d = X.shape
    of_columns = _sums(X, np.zeros(n, np.uint64), np.zeros(d, np.uint64))[1]
    of_rows = _sums(X, np.zeros(n, np.uint64), of_columns)[0]
    keys[varying] = _sums(X, of_rows, np.zeros(d, np.uint64))[1]
    return keys


def column_keys_block(X: Matrix, start: int) -> NDArray[np.uint64]:
    """Sums of one block for keys of columns that rows have a part in by their index, uint64 of shape (d,).

    Parameters
    ----------
    X : ndarray or csr_array, shape (rows, d)
    start : int
        Index of the first of these rows.
    """
    n, d = X.shape
    return _sums(X, row_bits(start, n), np.zeros(d, np.uint64))[1]


def column_ranges(X: Matrix) -> tuple[Array, Array]:
    """Minimum and maximum of every column of a matrix with rows, each of shape (d,)."""
    bounds = X.min(axis=0), X.max(axis=0)
    low, high = (np.asarray(m.toarray() if sp.issparse(m) else m, np.float64).ravel() for m in bounds)
    return low, high


def _sums(
    X: Matrix, of_rows: NDArray[np.uint64], of_columns: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Sums over columns, (n,), and over rows, (d,), of values mixed with the keys of their rows and columns."""
    n, d = X.shape
    sums = np.zeros(n, np.uint64), np.zeros(d, np.uint64)
    if sp.issparse(X):
        rows = np.repeat(np.arange(n), np.diff(X.indptr))
        mixed = _mixed(X.data, of_rows[rows] + of_columns[X.indices])
        np.add.at(sums[0], rows, mixed)
        np.add.at(sums[1], X.indices, mixed)
        return sums
    step = tile_rows(d)
    for first in range(0, n, step):
        tile = slice(first, first + step)
        mixed = _mixed(X[tile], of_rows[tile, np.newaxis] + of_columns)
        sums[0][tile] = mixed.sum(axis=1, dtype=np.uint64)
        sums[1][...] += mixed.sum(axis=0, dtype=np.uint64)
    return sums


def _mixed(values: NDArray[np.generic], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Values mixed with keys; 0 for a zero, which sparse rows do not store."""
    numbers = np.ascontiguousarray(values, dtype=np.float64)
    return np.where(numbers == 0, np.uint64(0), mix_bits(numbers.view(np.uint64) + keys))


def key_places(X: Matrix, varies: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Place of every column in the order of keys, for draws: equal columns share one, and so do those that do not vary.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
    varies : bool array, shape (d,)

    Returns
    -------
    int array, shape (d,)
        Columns that do not vary have the last place, whatever their values.
    """
    keys = np.where(varies, column_keys(X), np.iinfo(np.uint64).max)
    return np.unique(keys, return_inverse=True)[1]


def mean_of_copies(scores: Array, keys: NDArray[Any]) -> Array:
    """Scores in which features of one key have their mean: a solver leaves copies as near as its tolerance.

    Examples
    --------
    >>> mean_of_copies(np.array([0.5, 0.2, 0.7]), np.array([0, 1, 0])).tolist()
    [0.6, 0.2, 0.6]
    """
    places = np.unique(keys, return_inverse=True)[1]
    return (np.bincount(places, scores) / np.bincount(places))[places]


def copies_of(A: Array, tol: float = 1e-10) -> NDArray[np.intp]:
    """The first of the columns that each column equals but for rounding.

    Parameters
    ----------
    A : float64 array, shape (m, d)
    tol : float
        Largest difference of two entries, as a share of the largest entry of all.

    Examples
    --------
    >>> copies_of(np.array([[0.3, 1.0, 0.1 + 0.2, 1.0], [2.0, 0.0, 2.0, 1.0]])).tolist()
    [0, 1, 0, 3]
    """
    d = A.shape[1]
    scale = tol * np.abs(A).max(initial=0.0)
    # Equal columns are neighbours in the order of any sum of their entries.
    order = np.argsort(np.cos(np.arange(len(A))) @ A, kind="stable")
    first = np.arange(d)
    alike = (np.abs(A[:, order[1:]] - A[:, order[:-1]]) <= scale).all(axis=0)
    runs = np.concatenate([[0], np.cumsum(~alike)]) if d else np.empty(0, np.intp)
    least = np.full(d, d)
    np.minimum.at(least, runs, order)
    first[order] = least[runs]
    return first
