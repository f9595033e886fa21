"""Search of the k nearest rows for a group of rows, one block of candidates at a time.

A matrix product in single precision gives |c|² − 2q·c for all pairs of two tiles, minus a bound of its rounding errors:
it only excludes pairs. The distances of the remaining pairs are summed feature by feature, so that the result does not
depend on blocks. Candidates are sorted by |q|² + d² to 42 binary digits, then by index, so that equal distances tie.
Callers centre the rows, so that |q|² is comparable to d². For many sparse rows (`compiled`), products of a row are
summed feature by feature over the candidates with the feature.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.typing import Array, Matrix

#: Range of the largest row norm of a tile for products in single precision.
SINGLE_PRECISION = (1e-10, 1e12)

#: Number of a group's first row if the group is not among the candidates.
_NOT_CANDIDATES = -(2**60)

_DIGITS = 42

#: Relative margin within which rounding may still put a pair before the k-th: a quarter of a step.
_SLACK = 2.0 ** -(_DIGITS + 3)


def scratch_bytes(columns: int) -> int:
    """Return the bytes that `NearestRows.add` allocates at most, besides its state, for rows of `columns` values."""
    return 8 * (2 * gates.QUERY_ROWS * gates.CANDIDATE_ROWS + 6 * max(gates.VALUES_AT_ONCE, 64 * columns))


class Neighbours(NamedTuple):
    """Nearest neighbours of every row.

    Attributes
    ----------
    indices : int64 array, shape (n, k)
        Nearest first, ties by lower index, without the row itself.
    distances : float64 array, shape (n, k)
        Squared Euclidean distances, or isolation masses as fractions of the rows.
    """

    indices: NDArray[np.int64]
    distances: Array

    def to_csr(self, values: Array | None = None) -> sp.csr_array:
        """Return the graph with an entry for each neighbour, shape (n, n); zeros are stored.

        Parameters
        ----------
        values : float64 array, shape (n, k), optional
            Entries in the order of `indices`; default: the distances.

        Examples
        --------
        >>> Neighbours(np.array([[1], [0]]), np.array([[4.0], [4.0]])).to_csr().toarray()
        array([[0., 4.],
               [4., 0.]])
        """
        n, k = self.indices.shape
        order = np.argsort(self.indices, axis=1)
        columns = np.take_along_axis(self.indices, order, axis=1).ravel()
        data = np.take_along_axis(self.distances if values is None else values, order, axis=1).ravel()
        return sp.csr_array((data, columns, k * np.arange(n + 1)), shape=(n, n))


def compiles_search(pairs: int, *, sparse: bool) -> bool:
    """Return True if a search of so many pairs of rows uses the compiled loops."""
    return sparse and pairs > gates.COMPILED_PAIRS


class NearestRows:
    """Search for the k nearest candidates of each row of a group.

    Parameters
    ----------
    Q : float64 ndarray or csr_array, shape (rows, d)
        Rows of the group; not copied.
    first : int or None
        Index of the group's first row if the group is among the candidates, as a row is not its own neighbour.
    k : int
        Number of neighbours.
    compiled : bool
        Search sparse rows with compiled loops, worth it for many rows; the result is the same.

    Notes
    -----
    Holds 16 k bytes per row. Candidates must come in ascending order of their index.

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

    def __init__(self, Q: Matrix, first: int | None, k: int, *, compiled: bool = False) -> None:
        rows = Q.shape[0]
        self.Q = Q
        self.first = _NOT_CANDIDATES if first is None else first
        self.k = k
        self.indices = np.full((rows, k), -1, dtype=np.int64)
        self.distances = np.full((rows, k), np.inf)
        self._squares = _squares(Q)
        self._compiled = compiled and sp.issparse(Q)

    def add(self, C: Matrix, start: int) -> None:
        """Process rows `start` and following as candidates.

        Parameters
        ----------
        C : ndarray or csr_array, shape (rows, d)
            float64, centred and scaled like Q.
        start : int
            Greater than the index of every earlier candidate.
        """
        if self._compiled:
            for low in range(0, C.shape[0], gates.SPARSE_ROWS):
                self._add_sparse(C[low : low + gates.SPARSE_ROWS], start + low)
            return
        width = max(64, min(gates.CANDIDATE_ROWS, gates.VALUES_AT_ONCE // max(_values_per_row(C), 1)))
        for low in range(0, C.shape[0], width):
            tile = C[low : low + width]
            right = _Right(tile, _squares(tile))
            for row in range(0, self.Q.shape[0], gates.QUERY_ROWS):
                self._add_tile(slice(row, min(row + gates.QUERY_ROWS, self.Q.shape[0])), right, start + low)

    def _add_tile(self, part: slice, right: _Right, start: int) -> None:
        Q, norms = self.Q[part], self._squares[part]
        near, slack = right.products(Q, norms)  # |c|² − 2q·c, or up to `slack` less
        width = near.shape[1]
        low, high = max(self.first + part.start, start), min(self.first + part.stop, start + width)
        own = np.arange(low, high)
        near[own - self.first - part.start, own - start] = np.inf
        limits = self._limits(part)
        if np.isinf(limits).any() and width > self.k:
            kth = np.partition(near, self.k - 1, axis=1)[:, self.k - 1].astype(np.float64) + slack + 2 * norms
            limits = np.minimum(limits, kth * (1 + 8 * _SLACK) - 2 * norms)
        # Rounded up to the precision of the products; single precision may lose 1e-30 by underflow.
        lost = 1e-30 if near.dtype == np.float32 else 0.0
        bound = np.nextafter((limits + lost).astype(near.dtype), near.dtype.type(np.inf))
        bound = np.minimum(bound, np.finfo(near.dtype).max)
        r, c = np.divmod(np.flatnonzero(near <= bound[:, np.newaxis]), width)
        self._keep(part, r, c, right.tile, start)

    def _add_sparse(self, tile: Matrix, start: int) -> None:
        from mlfs_dask.blocks import neighbours_compiled

        Q, rows = self.Q, self.Q.shape[0]
        columns = tile.tocsc()
        queries, candidates = (Q.indptr, Q.indices, Q.data), (columns.indptr, columns.indices, columns.data)
        # Bound of the relative error of such a product, as a share of |q|² + |c|².
        share = 4 * (_most_values(Q) + 1) * float(np.finfo(np.float64).eps)
        limits = self._limits(slice(0, rows)) + share * self._squares
        lowered = _squares(tile) * (1 - share)
        r, c = np.empty(gates.SPARSE_PAIRS, np.int32), np.empty(gates.SPARSE_PAIRS, np.int32)
        sums, best = np.zeros(tile.shape[0]), np.empty(self.k)
        row = 0
        while row < rows:
            after, count = neighbours_compiled.screen(
                queries,
                self._squares,
                limits,
                self.first - start,
                row,
                candidates,
                lowered,
                4 * share,
                r,
                c,
                sums,
                best,
            )
            rows_found, columns_found = r[:count], c[:count]
            exact = pair_distances(Q, tile, rows_found, columns_found, compiled=True)
            keys = _rounded(self._squares[rows_found] + exact)
            batch = slice(row, after)
            distances = self.distances[batch]
            order = _rounded(self._squares[batch, np.newaxis] + distances)
            neighbours_compiled.keep(
                rows_found - row, columns_found, start, exact, keys, self.indices[batch], distances, order
            )
            row = after

    def _limits(self, part: slice) -> Array:
        """Return the largest |c|² − 2q·c with which a candidate may still be among the k nearest of a row."""
        norms = self._squares[part]
        # The k-th neighbour has the key |q|² + d². Later candidates lose ties.
        worst = _rounded(norms + self.distances[part, -1])
        return worst * (1 - _SLACK) - 2 * norms

    def _keep(self, part: slice, r: NDArray[Any], c: NDArray[Any], tile: Matrix, start: int) -> None:
        """Merge pairs of rows r of a part and candidates c of a tile into the k nearest."""
        if len(r) == 0:
            return
        Q, norms = self.Q[part], self._squares[part]
        distances, indices = self.distances[part], self.indices[part]
        exact = pair_distances(Q, tile, r, c)
        # New candidates after the present k: both in index order for equal keys.
        counts = np.bincount(r, minlength=len(norms))
        touched = np.flatnonzero(counts)
        most = int(counts.max())
        place = np.arange(len(r)) - np.repeat(np.cumsum(counts) - counts, counts)
        compact = np.cumsum(counts > 0) - 1
        candidates = np.full((len(touched), self.k + most), np.inf)
        which = np.full((len(touched), self.k + most), -1, dtype=np.int64)
        candidates[:, : self.k], which[:, : self.k] = distances[touched], indices[touched]
        candidates[compact[r], self.k + place], which[compact[r], self.k + place] = exact, start + c
        order = np.argsort(_rounded(norms[touched][:, np.newaxis] + candidates), axis=1, kind="stable")[:, : self.k]
        distances[touched] = np.take_along_axis(candidates, order, axis=1)
        indices[touched] = np.take_along_axis(which, order, axis=1)


class _Right:
    """Tile of candidates, prepared for products with many tiles of queries."""

    def __init__(self, tile: Matrix, squares: Array) -> None:
        self.tile = tile
        self._squares = squares
        self._lengths = np.sqrt(squares)
        self._largest = float(self._lengths.max(initial=0.0))
        self._ready: dict[type, tuple[Any, NDArray[Any], NDArray[Any]]] = {}

    def products(self, Q: Matrix, norms: Array) -> tuple[NDArray[Any], Array]:
        """Return lower bounds of |c|² − 2q·c, shape (rows of Q, candidates), and their largest error for each row of Q.

        The next call overwrites the result. A product of d terms has an error of at most d units of rounding times
        |q||c|, in any order of summation, plus the rounding of its factors. An additional feature subtracts this bound.
        """
        lengths = np.sqrt(norms)
        low, high = SINGLE_PRECISION
        longest = float(lengths.max(initial=0.0))
        single = not sp.issparse(Q) and low < longest < high and low < self._largest < high
        kind: type = np.float32 if single else np.float64
        share = (_most_values(Q) + 16) * float(np.finfo(kind).eps)
        columns, squares, space = self._columns(kind, share)
        near = space[: Q.shape[0]]
        if sp.issparse(Q):
            product = sp.csr_array(Q @ columns)
            near[...] = squares
            near -= share * lengths[:, np.newaxis] * self._lengths
            rows = np.repeat(np.arange(Q.shape[0]), np.diff(product.indptr))
            near[rows, product.indices] += product.data
        else:
            wide = np.empty((Q.shape[0], Q.shape[1] + 1), kind)
            wide[:, :-1], wide[:, -1] = Q, lengths
            np.matmul(wide, columns, out=near)
            near += squares
        return near, 4 * share * self._largest * (lengths + self._largest)

    def _columns(self, kind: type, share: float) -> tuple[Any, NDArray[Any], NDArray[Any]]:
        if kind not in self._ready:
            columns: Any
            if sp.issparse(self.tile):
                columns = -2.0 * sp.csr_array(self.tile.T)
            else:
                columns = np.empty((self.tile.shape[1] + 1, self.tile.shape[0]), kind)
                columns[:-1], columns[-1] = self.tile.T, share * self._lengths
                columns[:-1] *= -2.0
                columns[-1] *= -1.0
            lowered: NDArray[Any] = (self._squares * (1 - 4 * float(np.finfo(kind).eps))).astype(kind)
            self._ready[kind] = columns, lowered, np.empty((gates.QUERY_ROWS, self.tile.shape[0]), kind)
        return self._ready[kind]


def _values_per_row(X: Matrix) -> int:
    """Return the average number of values per row."""
    return X.nnz // max(X.shape[0], 1) + 1 if sp.issparse(X) else int(X.shape[1])


def _most_values(X: Matrix) -> int:
    """Return the largest number of values in a row."""
    return int(np.diff(X.indptr).max(initial=0)) if sp.issparse(X) else int(X.shape[1])


def _squares(X: Matrix) -> Array:
    """Return |x|² of every row, summed in an order that depends only on the row."""
    if sp.issparse(X):
        return np.asarray(X.power(2).sum(axis=1), dtype=np.float64).ravel()
    squares: Array = np.empty(X.shape[0])
    step = max(1, gates.VALUES_AT_ONCE // max(X.shape[1], 1))
    for low in range(0, X.shape[0], step):
        part = X[low : low + step]
        squares[low : low + step] = (part * part).sum(axis=1)
    return squares


def pair_distances(Q: Matrix, C: Matrix, r: NDArray[Any], c: NDArray[Any], *, compiled: bool = False) -> Array:
    """Return squared distances between rows r of Q and rows c of C, summed feature by feature."""
    distances = np.empty(len(r))
    sparse = sp.issparse(Q)
    if sparse and compiled:
        from mlfs_dask.blocks import neighbours_compiled

        Q, C = (X if X.has_sorted_indices else X.sorted_indices() for X in (Q, C))
        neighbours_compiled.pair_distances(Q.indptr, Q.indices, Q.data, C.indptr, C.indices, C.data, r, c, distances)
        return distances
    ones = np.ones(Q.shape[1]) if sparse else None
    step = max(1, gates.VALUES_AT_ONCE // max(_values_per_row(Q), 1))
    for low in range(0, len(r), step):
        part = slice(low, low + step)
        difference = Q[r[part]] - C[c[part]]
        if sparse:
            # A product adds in the order of features, like the compiled loop; `sum` adds pairwise.
            distances[part] = difference.power(2) @ ones
        else:
            difference *= difference
            distances[part] = difference.sum(axis=1)
    return distances


def _rounded(values: Array) -> Array:
    """Round non-negative values to `_DIGITS` binary digits, halves up."""
    drop = 52 - _DIGITS
    bits = np.ascontiguousarray(values).view(np.int64)
    rounded = (bits + (1 << (drop - 1))) >> drop << drop
    return np.where(np.isinf(values), np.inf, rounded.view(np.float64))
