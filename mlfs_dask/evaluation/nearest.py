"""The k nearest training rows of each query, exactly: products of matrices rule pairs out, differences decide.

Equal distances are common where few features are kept, and ML-kNN's scores depend on which of such rows come first.
Here the lower index does, for any cut into blocks and any number of threads, and rows may lie in a file. Brute-force
searches of scikit-learn and faiss do not promise this: they take distances from |q|² − 2q·c + |c|² alone, whose last
digits depend on the product, order equal ones as their heaps happen to hold them, and need all rows in memory.

A product gives |c|² − 2q·c for all pairs of a tile. It only rules out pairs that are farther than the k-th by more than
its rounding. The distance of the others is summed feature by feature, and they are ordered by |q|² + d² to 42 binary
digits: distances that differ by the rounding of scaled values alone count as equal.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.evaluation.column_subset import BLOCK_ROWS, BLOCK_VALUES, ColumnSubset, Scaling
from mlfs_dask.typing import Matrix

#: Bytes of the queries, as float64, that a thread holds while all training rows pass by.
GROUP_BYTES = 64 * 2**20

#: Queries of a group, at least, where there are several threads.
MIN_GROUP_ROWS = 512

#: Rows of a tile of queries and of one of training rows: their products stay in the second-level cache.
QUERY_ROWS = 256
TILE_ROWS = 1024

#: Values of a tile of training rows, and differences that are held at a time.
TILE_VALUES = 2**20

#: Binary digits of |q|² + d² that are compared, of 52.
_DIGITS = 42


def nearest_rows(
    train: ColumnSubset, k: int, scaling: Scaling, *, queries: ColumnSubset | None = None, threads: int = 1
) -> NDArray[np.int64]:
    """Indices of the nearest training rows by Euclidean distance, nearest first, equal ones by lower index.

    Parameters
    ----------
    train : ColumnSubset
        Of length n.
    k : int
        At most n neighbours are found; n − 1 without `queries`, since no row is a neighbour of itself.
    scaling : Scaling
        Distances are between centred and scaled rows.
    queries : ColumnSubset, optional
        Rows whose neighbours are looked for; sparse if `train` is (default: the training rows).
    threads : int
        Groups of queries that are searched at the same time.

    Returns
    -------
    int64 array, shape (queries, min(k, n)) or (n, min(k, n − 1))

    Notes
    -----
    `search_bytes` is what the search allocates.

    Examples
    --------
    >>> train = ColumnSubset(np.array([[0.0], [1.0], [3.0]]))
    >>> scaling = Scaling(np.zeros(1), np.ones(1))
    >>> nearest_rows(train, 1, scaling).ravel()
    array([1, 0, 1])
    >>> nearest_rows(train, 2, scaling, queries=ColumnSubset(np.array([[2.5]])))
    array([[2, 1]])
    """
    asked = train if queries is None else queries
    rows = len(asked)
    k = min(k, len(train) - (queries is None))
    indices = np.empty((rows, max(k, 0)), np.int64)
    if indices.size == 0:
        return indices
    height = max(1, GROUP_BYTES // (8 * asked.values_per_row))
    groups = max(-(-rows // height), min(threads, rows // MIN_GROUP_ROWS), 1)
    bounds = np.linspace(0, rows, groups + 1).astype(int).tolist()

    def search(low: int, high: int) -> None:
        Q = scaling.apply(asked.read(low, high))
        group = _Group(Q, k, first=low if queries is None else None)
        for start, X in train.blocks():
            group.add(scaling.apply(X), start)
        indices[low:high] = group.indices

    with (
        runtime.stage("neighbours", groups, unit="groups") as done,
        runtime.one_blas_thread(),
        runtime.TaskThreads(threads, "mlfs-search") as pool,
    ):
        for _ in pool.map(search, bounds[:-1], bounds[1:]):
            done()
    return indices


def search_bytes(columns: int, k: int, queries: int, *, threads: int) -> int:
    """Bytes that `nearest_rows` allocates for dense rows, its result included."""
    group = min(GROUP_BYTES, 8 * queries * columns)
    # A group as read and as scaled, with its neighbours; a block as read and as scaled; tiles, their products and the
    # differences of the pairs that are left.
    rows = group // (8 * max(columns, 1)) + 1
    block = 8 * max(BLOCK_VALUES, BLOCK_ROWS * columns)
    tiles = 8 * (2 * max(TILE_VALUES, 64 * columns) + 4 * QUERY_ROWS * TILE_ROWS + 3 * TILE_VALUES)
    return 8 * k * queries + threads * (2 * group + 16 * k * rows + 2 * block + tiles)


class _Group:
    """The k nearest of the training rows met so far, for each of a group of queries.

    Parameters
    ----------
    Q : float64 ndarray or csr_array, shape (rows, columns)
    k : int
    first : int, optional
        Index of the first query among the training rows, where the queries are training rows.
    """

    def __init__(self, Q: Matrix, k: int, *, first: int | None) -> None:
        self.Q = Q
        self.k = k
        self._first = first
        self._norms = _squares(Q)
        self.indices: NDArray[np.int64] = np.full((Q.shape[0], k), -1, np.int64)
        self._distances = np.full((Q.shape[0], k), np.inf)

    def add(self, X: Matrix, start: int) -> None:
        """Consider training rows `start` and following; blocks come in rising order."""
        width = TILE_ROWS if sp.issparse(X) else max(64, min(TILE_ROWS, TILE_VALUES // max(X.shape[1], 1)))
        for low in range(0, X.shape[0], width):
            tile = X[low : low + width]
            columns = sp.csr_array(-2.0 * tile.T) if sp.issparse(tile) else np.multiply(tile.T, -2.0, order="C")
            squares = _squares(tile)
            for row in range(0, self.Q.shape[0], QUERY_ROWS):
                self._add_tile(slice(row, row + QUERY_ROWS), tile, columns, squares, start + low)

    def _add_tile(self, part: slice, tile: Matrix, columns: Matrix, squares: NDArray[np.float64], start: int) -> None:
        Q, norms, furthest = self.Q[part], self._norms[part], self._distances[part, -1]
        near = (Q @ columns).toarray() if sp.issparse(Q) else Q @ columns
        near += squares  # |c|² − 2q·c
        if self._first is not None:
            own = np.arange(len(norms)) + (self._first + part.start - start)
            inside = np.flatnonzero((own >= 0) & (own < len(squares)))
            near[inside, own[inside]] = np.inf
        # Sums of so many terms, of the product and of the norms, are off by no more than this.
        rounding = 8 * (_max_values(Q) + _max_values(tile) + 16) * np.finfo(float).eps * (norms + squares.max())
        # The k-th so far has the key |q|² + d², rounded. A later row with the same key loses.
        limit = _rounded(norms + furthest) * (1 - 2.0 ** -(_DIGITS + 3)) - 2 * norms
        if len(squares) > self.k and np.isinf(furthest).any():
            kth = np.partition(near, self.k - 1, axis=1)[:, self.k - 1]
            limit = np.minimum(limit, kth + rounding + 2.0**-_DIGITS * np.abs(kth + 2 * norms))
        limit = np.minimum(limit + rounding, np.finfo(float).max)
        query, row = np.divmod(np.flatnonzero(near <= limit[:, np.newaxis]), len(squares))
        if len(query):
            self._insert(part, query, row, tile, start)

    def _insert(self, part: slice, query: NDArray[np.intp], row: NDArray[np.intp], tile: Matrix, start: int) -> None:
        """Let pairs of a query and a row of the tile, in rising order, be among the k nearest if they are."""
        distances, indices = self._distances[part], self.indices[part]
        touched, place = np.unique(query, return_inverse=True)
        # The k nearest of before have lower indices and come first: a stable sort lets them win where keys are equal.
        which = np.concatenate([np.repeat(np.arange(len(touched)), self.k), place])
        found = np.concatenate([distances[touched].ravel(), _pair_distances(self.Q[part], tile, query, row)])
        index = np.concatenate([indices[touched].ravel(), start + row])
        order = np.lexsort((_rounded(self._norms[part][touched][which] + found), which))
        counts = np.bincount(which)
        best = order[(np.cumsum(counts) - counts)[:, np.newaxis] + np.arange(self.k)]
        distances[touched], indices[touched] = found[best], index[best]


def _max_values(X: Matrix) -> int:
    """Values that a row holds at most."""
    return int(np.diff(X.indptr).max(initial=0)) if sp.issparse(X) else int(X.shape[1])


def _squares(X: Matrix) -> NDArray[np.float64]:
    """|x|² of every row; the order of summation depends on the row alone."""
    if sp.issparse(X):
        return np.asarray(X.power(2).sum(axis=1), np.float64).ravel()
    squares = np.empty(X.shape[0])
    step = max(1, TILE_VALUES // max(X.shape[1], 1))
    for low in range(0, X.shape[0], step):
        squares[low : low + step] = (X[low : low + step] ** 2).sum(axis=1)
    return squares


def _pair_distances(Q: Matrix, C: Matrix, q: NDArray[np.intp], c: NDArray[np.intp]) -> NDArray[np.float64]:
    """Squared distance of rows q of Q from rows c of C, feature by feature."""
    distances = np.empty(len(q))
    step = max(1, TILE_VALUES // max(_max_values(Q), _max_values(C), 1))
    for low in range(0, len(q), step):
        part = slice(low, low + step)
        difference = Q[q[part]] - C[c[part]]
        if sp.issparse(difference):
            distances[part] = difference.power(2) @ np.ones(Q.shape[1])
        else:
            difference *= difference
            distances[part] = difference.sum(axis=1)
    return distances


def _rounded(values: NDArray[np.float64]) -> NDArray[np.float64]:
    """Non-negative values, or infinity, to `_DIGITS` binary digits."""
    drop = 52 - _DIGITS
    bits = np.ascontiguousarray(values).view(np.int64)
    return ((bits + (1 << (drop - 1))) >> drop << drop).view(np.float64)
