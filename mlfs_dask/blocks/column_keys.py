"""Keys of columns that depend only on their values, for draws that do not depend on the order of columns."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.linear import tile_rows
from mlfs_dask.blocks.row_draws import mix_bits, row_bits
from mlfs_dask.typing import Array, Matrix


def column_keys(X: Matrix) -> NDArray[np.uint64]:
    """Return a key of every column, equal for equal columns, independent of the order of rows and columns.

    A key is a sum over the rows of hashes of a value and its row's key. The row keys are made in the same way from
    initial column keys, which are sums over the values alone (two rounds of the colour refinement of Weisfeiler &
    Leman). Different columns get different keys, unless rows and columns can be permuted so that these rounds cannot
    distinguish them.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
        Dense and sparse rows with the same values give the same keys.

    Returns
    -------
    uint64 array, shape (d,)
        0 for a constant column, which does not influence the row keys.

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
    """Return the sums of one block for column keys that use row numbers, uint64 of shape (d,).

    Parameters
    ----------
    X : ndarray or csr_array, shape (rows, d)
    start : int
        Number of the block's first row.
    """
    n, d = X.shape
    return _sums(X, row_bits(start, n), np.zeros(d, np.uint64))[1]


def column_ranges(X: Matrix) -> tuple[Array, Array]:
    """Return the minimum and maximum of every column, each of shape (d,)."""
    bounds = X.min(axis=0), X.max(axis=0)
    low, high = (np.asarray(m.toarray() if sp.issparse(m) else m, np.float64).ravel() for m in bounds)
    return low, high


def _sums(
    X: Matrix, of_rows: NDArray[np.uint64], of_columns: NDArray[np.uint64]
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return sums over columns, (n,), and over rows, (d,), of values hashed with the keys of their rows and columns."""
    n, d = X.shape
    sums = np.zeros(n, np.uint64), np.zeros(d, np.uint64)
    if sp.issparse(X):
        rows = np.repeat(np.arange(n), np.diff(X.indptr))
        mixed = _hashed(X.data, of_rows[rows] + of_columns[X.indices])
        np.add.at(sums[0], rows, mixed)
        np.add.at(sums[1], X.indices, mixed)
        return sums
    step = tile_rows(d)
    for first in range(0, n, step):
        tile = slice(first, first + step)
        mixed = _hashed(X[tile], of_rows[tile, np.newaxis] + of_columns)
        sums[0][tile] = mixed.sum(axis=1, dtype=np.uint64)
        sums[1][...] += mixed.sum(axis=0, dtype=np.uint64)
    return sums


def _hashed(values: NDArray[np.generic], keys: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Hash values with keys; 0 for a zero, which sparse rows do not store."""
    numbers = np.ascontiguousarray(values, dtype=np.float64)
    return np.where(numbers == 0, np.uint64(0), mix_bits(numbers.view(np.uint64) + keys))


def key_places(X: Matrix, varies: NDArray[np.bool_]) -> NDArray[np.intp]:
    """Return the rank of every column by key, for draws: equal columns share a rank, and so do all constant ones.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
    varies : bool array, shape (d,)

    Returns
    -------
    int array, shape (d,)
        Constant columns have the last rank, whatever their values.
    """
    keys = np.where(varies, column_keys(X), np.iinfo(np.uint64).max)
    return np.unique(keys, return_inverse=True)[1]


def mean_of_copies(scores: Array, keys: NDArray[Any]) -> Array:
    """Replace scores by the mean over features with equal keys; a solver distinguishes copies within its tolerance.

    Examples
    --------
    >>> mean_of_copies(np.array([0.5, 0.2, 0.7]), np.array([0, 1, 0])).tolist()
    [0.6, 0.2, 0.6]
    """
    places = np.unique(keys, return_inverse=True)[1]
    return (np.bincount(places, scores) / np.bincount(places))[places]


def copies_of(A: Array, tol: float = 1e-10) -> NDArray[np.intp]:
    """Return, for each column, the first column equal to it up to rounding.

    Parameters
    ----------
    A : float64 array, shape (m, d)
    tol : float
        Largest difference of two entries, relative to the largest entry of A.

    Examples
    --------
    >>> copies_of(np.array([[0.3, 1.0, 0.1 + 0.2, 1.0], [2.0, 0.0, 2.0, 1.0]])).tolist()
    [0, 1, 0, 3]
    """
    d = A.shape[1]
    scale = tol * np.abs(A).max(initial=0.0)
    # Equal columns are adjacent in the order of any sum of their entries.
    order = np.argsort(np.cos(np.arange(len(A))) @ A, kind="stable")
    first = np.arange(d)
    alike = (np.abs(A[:, order[1:]] - A[:, order[:-1]]) <= scale).all(axis=0)
    runs = np.concatenate([[0], np.cumsum(~alike)]) if d else np.empty(0, np.intp)
    least = np.full(d, d)
    np.minimum.at(least, runs, order)
    first[order] = least[runs]
    return first
