"""ReliefF for rows in memory with classes, and classes from label sets.

Near rows of other classes should differ in a feature, near rows of the same class should not. I. Kononenko,
"Estimating attributes: analysis and extensions of RELIEF", ECML 1994, 171-182, doi:10.1007/3-540-57868-4_57; J. Read,
"A pruned problem transformation method for multi-label classification", New Zealand Computer Science Research Student
Conference 2008, 143-150.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from scipy.spatial.distance import cdist

from mlfs_dask.blocks import gates
from mlfs_dask.typing import Array, Matrix

#: Decimal places of distances: rows at equal distances tie and share the remaining neighbour slots.
DIGITS = 9


def label_set_classes(Y: sp.csr_array, min_rows: int) -> NDArray[np.int64]:
    """Return the class of every row, one for each label set; -1 for a label set of fewer than `min_rows` rows.

    Parameters
    ----------
    Y : csr_array of int8, shape (n, q)
        Positive entries only.
    min_rows : int

    Examples
    --------
    >>> label_set_classes(sp.csr_array(np.array([[1, 1], [0, 1], [1, 1], [1, 0], [1, 0]], dtype=np.int8)), 2)
    array([ 1, -1,  1,  0,  0])
    """
    _, sets, counts = np.unique(Y.toarray(), axis=0, return_inverse=True, return_counts=True)
    is_frequent = counts >= min_rows
    numbers = np.where(is_frequent, np.cumsum(is_frequent) - 1, -1)
    return numbers[sets.ravel()]


def relief_scores(
    X: Matrix, classes: NDArray[np.int64], n_neighbors: int, queries: NDArray[np.intp] | None = None
) -> Array:
    """Return the ReliefF weight of every feature, with each row drawn once.

    Parameters
    ----------
    X : float64 ndarray or csr_array, shape (n, d)
        Scaled so that differences of a feature are at most 1.
    classes : int64 array, shape (n,)
        0, 1, ..., each with at least one row.
    n_neighbors : int
        Number of neighbours of a row in each class; a smaller class contributes all its rows.
    queries : int array, optional
        Rows whose contribution to the weights to return, instead of all.

    Returns
    -------
    float64 array, shape (d,)

    Notes
    -----
    Neighbours are nearest by Manhattan distance; rows that tie with the last one share the rest of `n_neighbors`.
    Allocates `scratch_bytes`.

    Examples
    --------
    >>> X = np.array([[0.0, 0.2], [0.1, 0.9], [1.0, 0.1], [0.9, 0.8]])
    >>> relief_scores(X, np.array([0, 0, 1, 1]), 1).round(2)
    array([ 0.8, -0.6])
    """
    n, d = X.shape
    members = [np.flatnonzero(classes == c) for c in range(int(classes.max(initial=-1)) + 1)]
    priors = np.array([len(inside) for inside in members]) / n
    scores = np.zeros(d)
    queries = np.arange(n) if queries is None else queries
    for low in range(0, len(queries), gates.QUERY_ROWS):
        rows = queries[low : low + gates.QUERY_ROWS]
        distances = _manhattan(X[rows], X).round(DIGITS)
        distances[np.arange(len(rows)), rows] = np.inf  # a row is not its own neighbour
        own_class = classes[rows]
        for c, inside in enumerate(members):
            of_class = distances[:, inside]
            shares = nearest_shares(of_class, n_neighbors)
            weights = np.where(own_class == c, -1.0, priors[c] / np.maximum(1.0 - priors[own_class], 1.0 / n))
            weights /= n * np.maximum(np.minimum(np.isfinite(of_class).sum(axis=1), n_neighbors), 1)
            query, place = np.nonzero(shares)
            _add_differences(X, rows[query], inside[place], weights[query] * shares[query, place], scores)
    return scores


def nearest_shares(distances: Array, k: int) -> Array:
    """Return each row's weight among the k nearest: 1, a share for ties in the last places, or 0.

    >>> nearest_shares(np.array([[2.0, 1.0, 2.0, 3.0, np.inf]]), 2)
    array([[0.5, 1. , 0.5, 0. , 0. ]])
    """
    k = min(k, distances.shape[1])
    last = np.partition(distances, k - 1, axis=1)[:, [k - 1]]
    nearer, ties = distances < last, (distances == last) & np.isfinite(last)
    tie_share = (k - nearer.sum(axis=1, keepdims=True)) / np.maximum(ties.sum(axis=1, keepdims=True), 1)
    shares: Array = nearer + ties * tie_share
    return shares


def scratch_bytes(n: int) -> int:
    """Return the bytes that `relief_scores` allocates besides its result."""
    # Distances, rounded distances, those of a class, their order and shares; pairs with a class if all rows tie.
    return 8 * gates.QUERY_ROWS * 12 * n + 4 * 8 * gates.VALUES_AT_ONCE


def _manhattan(Q: Matrix, X: Matrix) -> Array:
    """Return the Manhattan distances of rows of Q to rows of X."""
    if not sp.issparse(X):
        distances: Array = cdist(Q, X, "cityblock")
        return distances
    from sklearn.metrics.pairwise import manhattan_distances

    of_sparse: Array = manhattan_distances(sp.csr_matrix(Q), sp.csr_matrix(X))
    return of_sparse


def _add_differences(
    X: Matrix, first: NDArray[np.int64], second: NDArray[np.int64], weights: Array, into: Array
) -> None:
    """Add the weighted differences |x − z| of pairs of rows to `into`, shape (d,), in place."""
    for part in _pair_tiles(X, len(first)):
        difference = X[first[part]] - X[second[part]]
        into += weights[part] @ np.abs(difference)


def _pair_tiles(X: Matrix, pairs: int) -> Iterator[slice]:
    values = 2 * X.nnz // max(X.shape[0], 1) if sp.issparse(X) else X.shape[1]
    step = max(1, gates.VALUES_AT_ONCE // max(values, 1))
    for low in range(0, pairs, step):
        yield slice(low, low + step)
