"""The k nearest rows of a group of rows, block of candidates by block: matrix products sort out, differences decide.

A matrix product gives |c|² − 2q·c for all pairs of two tiles, with rounding that depends on how the tiles were cut. It
only rules pairs out. Of the few that stay the distance is summed feature by feature, so that the result is the same for
any cut: rows are ordered by |q|² + d² to 42 binary digits, and then by index, so that equal distances tie. Rows should
therefore lie around zero, and the callers see to that.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.typing import Matrix

#: Most rows of a tile of queries, and of one of candidates: their products stay in the second-level cache.
QUERY_ROWS = 128
TILE_ROWS = 1024

#: Values of a tile of candidates, and of the differences that are held at a time.
TILE_VALUES = 2**20

#: Bytes that `NearestRows.add` allocates besides the state, at most.
SCRATCH_BYTES = 8 * (4 * QUERY_ROWS * TILE_ROWS + 4 * TILE_VALUES)

_DIGITS = 42

#: Relative width within which a pair might still come before the k-th after rounding: a quarter of a step.
_SLACK = 2.0 ** -(_DIGITS + 3)


class NearestRows:
    """The k nearest of the candidates met so far, for each row of a group.

    Parameters
    ----------
    Q : float64 ndarray or csr_array, shape (rows, d)
        The group. Kept, not copied.
    first : int
        Index of its first row in the whole matrix; a row is not its own neighbour.
    k : int
        Neighbours of a row.

    Notes
    -----
    Holds 16 k bytes a row. Candidates have to come in rising order of their index.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [1.0], [5.0]])
    >>> nearest = NearestRows(rows, 0, 2)
    >>> nearest.add(rows, 0)
    >>> nearest.indices
    array([[1, 2],
           [2, 0],
           [1, 0],
           [1, 2]])
    >>> nearest.distances[3]
    array([16., 16.])
    """

    def __init__(self, Q: Matrix, first: int, k: int) -> None:
        rows = Q.shape[0]
        self.Q = Q
        self.first = first
        self.k = k
        self.indices = np.full((rows, k), -1, dtype=np.int64)
        self.distances = np.full((rows, k), np.inf)
        self._squares = _squares(Q)

    def nearest(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Indices and squared distances of what was found, nearest first."""
        return self.indices, self.distances

    def copy(self) -> NearestRows:
        """The same search, to go on with apart from this one."""
        other = copy.copy(self)
        other.indices, other.distances = self.indices.copy(), self.distances.copy()
        return other

    def add(self, C: Matrix, start: int) -> None:
        """Consider rows `start` and following as neighbours.

        Parameters
        ----------
        C : ndarray or csr_array, shape (rows, d)
            float64, and centred and scaled as Q is.
        start : int
            Above every index that was considered before.
        """
        width = max(64, min(TILE_ROWS, TILE_VALUES // max(_values_per_row(C), 1)))
        for low in range(0, C.shape[0], width):
            tile = C[low : low + width]
            squares = _squares(tile)
            right = _Right(tile, squares)
            for row in range(0, self.Q.shape[0], QUERY_ROWS):
                self._add_tile(slice(row, min(row + QUERY_ROWS, self.Q.shape[0])), right, start + low)

    def _add_tile(self, part: slice, right: _Right, start: int) -> None:
        Q, norms = self.Q[part], self._squares[part]
        near = right.products(Q)  # |c|² − 2q·c
        rows, width = near.shape
        low, high = max(self.first + part.start, start), min(self.first + part.stop, start + width)
        own = np.arange(low, high)
        near[own - self.first - part.start, own - start] = np.inf
        distances, indices = self.distances[part], self.indices[part]
        # The k-th so far has the key |q|² + d², and `near` is the key less 2|q|². What comes later and ties loses.
        worst = _rounded(norms + distances[:, -1])
        bound = worst * (1 - _SLACK)
        if np.isinf(worst).any() and width > self.k:
            kth = np.partition(near, self.k - 1, axis=1)[:, self.k - 1] + 2 * norms
            bound = np.minimum(bound, kth * (1 + 8 * _SLACK))
        elif np.isinf(worst).any():
            bound = np.minimum(bound, np.finfo(np.float64).max)
        r, c = np.nonzero(near <= (bound - 2 * norms)[:, np.newaxis])
        if len(r) == 0:
            return
        exact = _pair_distances(Q, right.tile, r, c)
        # Those that stay, beside the k of before: both in order of their index where their keys are equal.
        counts = np.bincount(r, minlength=rows)
        touched = np.flatnonzero(counts)
        most = int(counts.max())
        place = np.arange(len(r)) - np.repeat(np.cumsum(counts) - counts, counts)
        compact = np.cumsum(counts > 0) - 1
        found = np.full((len(touched), self.k + most), np.inf)
        which = np.full((len(touched), self.k + most), -1, dtype=np.int64)
        found[:, : self.k], which[:, : self.k] = distances[touched], indices[touched]
        found[compact[r], self.k + place], which[compact[r], self.k + place] = exact, start + c
        order = np.argsort(_rounded(norms[touched][:, np.newaxis] + found), axis=1, kind="stable")[:, : self.k]
        distances[touched] = np.take_along_axis(found, order, axis=1)
        indices[touched] = np.take_along_axis(which, order, axis=1)


class RankedRows:
    """The k nearest among given candidates, for each row of a group: what an approximate search proposes is ranked.

    Parameters
    ----------
    Q : float64 ndarray or csr_array, shape (rows, d)
        The group. Kept, not copied.
    candidates : int array, shape (rows, c)
        Indices of rows of the whole matrix, at least k different ones a row.
    k : int
        Neighbours of a row.

    Notes
    -----
    Holds 24 c bytes a row. Distances and the order of ties are those of `NearestRows`.

    Examples
    --------
    >>> rows = np.array([[0.0], [1.0], [1.0], [5.0]])
    >>> ranked = RankedRows(rows, np.array([[3, 2], [0, 3], [3, 0], [0, 1]]), 1)
    >>> ranked.add(rows, 0)
    >>> ranked.nearest()
    (array([[2],
           [0],
           [0],
           [1]]), array([[ 1.],
           [ 1.],
           [ 1.],
           [16.]]))
    """

    def __init__(self, Q: Matrix, candidates: NDArray[Any], k: int) -> None:
        self.Q = Q
        self.k = k
        self._candidates = np.sort(candidates, axis=1)
        self._order = np.argsort(self._candidates, axis=None, kind="stable")
        self._sorted = self._candidates.ravel()[self._order]
        self._distances = np.full(candidates.size, np.inf)

    def copy(self) -> RankedRows:
        """The same ranking, to go on with apart from this one."""
        other = copy.copy(self)
        other._distances = self._distances.copy()
        return other

    def add(self, C: Matrix, start: int) -> None:
        """Take the distances from rows `start` and following.

        Parameters
        ----------
        C : ndarray or csr_array, shape (rows, d)
            float64, and centred and scaled as Q is.
        start : int
        """
        low, high = np.searchsorted(self._sorted, (start, start + C.shape[0]))
        pairs = self._order[low:high]
        columns = self._sorted[low:high].astype(np.int64) - start
        self._distances[pairs] = _pair_distances(self.Q, C, pairs // self._candidates.shape[1], columns)

    def nearest(self) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        """Indices and squared distances of the k nearest, nearest first."""
        distances = self._distances.reshape(self._candidates.shape)
        keys = _rounded(_squares(self.Q)[:, np.newaxis] + distances)
        order = np.argsort(keys, axis=1, kind="stable")[:, : self.k]
        indices = np.take_along_axis(self._candidates, order, axis=1).astype(np.int64)
        return indices, np.take_along_axis(distances, order, axis=1)


def merge_nearest(
    Q: Matrix, parts: Sequence[tuple[NDArray[np.int64], NDArray[np.float64]]], k: int
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """The k nearest of what searches among different rows have found for the same rows Q.

    Parameters
    ----------
    Q : float64 ndarray or csr_array, shape (rows, d)
    parts : sequence of (indices, distances)
        As `NearestRows.nearest` gives them; −1 and infinity where fewer were found.
    k : int
    """
    indices, distances = (np.concatenate(arrays, axis=1) for arrays in zip(*parts, strict=True))
    by_index = np.argsort(indices, axis=1, kind="stable")
    indices, distances = np.take_along_axis(indices, by_index, 1), np.take_along_axis(distances, by_index, 1)
    keys = _rounded(_squares(Q)[:, np.newaxis] + distances)
    order = np.argsort(keys, axis=1, kind="stable")[:, :k]
    return np.take_along_axis(indices, order, axis=1), np.take_along_axis(distances, order, axis=1)


def recall(found: NDArray[np.float64], exact: NDArray[np.float64], *, slack: float = 2.0**-40) -> float:
    """Share of neighbours that are as near as the true ones, so that rows of equal distance stand for one another.

    Parameters
    ----------
    found, exact : float64 array, shape (rows, k)
        Distances of the rows found, and of the true neighbours; rising.
    slack : float
        Relative rounding.

    Examples
    --------
    >>> recall(np.array([[1.0, 2.0], [1.0, 3.0]]), np.array([[1.0, 2.0], [1.0, 2.0]]))
    0.75
    """
    if exact.size == 0:
        return 1.0
    return float((found <= exact[:, -1:] * (1 + slack)).mean())


class _Right:
    """A tile of candidates, ready to be multiplied with many tiles of queries."""

    def __init__(self, tile: Matrix, squares: NDArray[np.float64]) -> None:
        self.tile = tile
        self._squares = squares
        self._columns = -2.0 * (sp.csr_array(tile.T) if sp.issparse(tile) else tile.T)
        self._space = np.empty((QUERY_ROWS, tile.shape[0]))

    def products(self, Q: Matrix) -> NDArray[np.float64]:
        """|c|² − 2q·c, shape (rows of Q, candidates), in space that the next call uses again."""
        near: NDArray[np.float64] = self._space[: Q.shape[0]]
        if sp.issparse(Q):
            product = sp.csr_array(Q @ self._columns)
            near[...] = self._squares
            rows = np.repeat(np.arange(Q.shape[0]), np.diff(product.indptr))
            near[rows, product.indices] += product.data
        else:
            np.matmul(Q, self._columns, out=near)
            near += self._squares
        return near


def _values_per_row(X: Matrix) -> int:
    """Values that a row holds, of a sparse one on average."""
    return X.nnz // max(X.shape[0], 1) + 1 if sp.issparse(X) else int(X.shape[1])


def _squares(X: Matrix) -> NDArray[np.float64]:
    """|x|² of every row, in an order of summation that depends on nothing but the row."""
    squares: NDArray[np.float64]
    if sp.issparse(X):
        squares = np.asarray(X.power(2).sum(axis=1)).ravel()
        return squares
    squares = np.empty(X.shape[0])
    step = max(1, TILE_VALUES // max(X.shape[1], 1))
    for low in range(0, X.shape[0], step):
        part = X[low : low + step]
        squares[low : low + step] = (part * part).sum(axis=1)
    return squares


def _pair_distances(Q: Matrix, C: Matrix, r: NDArray[Any], c: NDArray[Any]) -> NDArray[np.float64]:
    """Squared distance of rows r of Q from rows c of C, feature by feature."""
    distances = np.empty(len(r))
    sparse = sp.issparse(Q)
    step = max(1, TILE_VALUES // max(_values_per_row(Q), 1))
    for low in range(0, len(r), step):
        part = slice(low, low + step)
        difference = Q[r[part]] - C[c[part]]
        if sparse:
            distances[part] = np.asarray(difference.power(2).sum(axis=1)).ravel()
        else:
            difference *= difference
            distances[part] = difference.sum(axis=1)
    return distances


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Non-negative values to `_DIGITS` binary digits, halves upward."""
    drop = 52 - _DIGITS
    bits = np.ascontiguousarray(values).view(np.int64)
    rounded = (bits + (1 << (drop - 1))) >> drop << drop
    return np.where(np.isinf(values), np.inf, rounded.view(np.float64))
