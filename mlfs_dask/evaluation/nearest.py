"""The k nearest training rows of each query, exactly: products of matrices rule pairs out, differences decide.

Equal distances are common where few features are kept, and ML-kNN's scores depend on which of such rows come first.
Here the lower index does, for any cut into blocks and any number of threads, and rows may lie in a file. Brute-force
searches of scikit-learn and faiss do not promise this: they take distances from |q|² − 2q·c + |c|² alone, whose last
digits depend on the product, order equal ones as their heaps happen to hold them, and need all rows in memory. The
search of a group of queries is `blocks.neighbours`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.neighbours import NearestRows, compiles_search, scratch_bytes
from mlfs_dask.evaluation.column_subset import BLOCK_ROWS, BLOCK_VALUES, ColumnSubset
from mlfs_dask.statistics.scaling import Scaling

#: Bytes of the queries, as float64, that a thread holds while all training rows pass by.
GROUP_BYTES = 64 * 2**20

#: Queries of a group, at least, where there are several threads.
MIN_GROUP_ROWS = 512


def nearest_rows(
    train: ColumnSubset, k: int, scaling: Scaling, *, queries: ColumnSubset | None = None, threads: int = 1
) -> NDArray[np.int64]:
    """Return the indices of the nearest training rows by Euclidean distance, nearest first, equal ones by lower index.

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
        compiled = compiles_search(rows * len(train), sparse=sp.issparse(Q))
        group = NearestRows(Q, low if queries is None else None, k, compiled=compiled)
        for start, X in train.blocks():
            group.add(scaling.apply(X), start)
        indices[low:high] = group.indices

    with (
        runtime.stage("searching neighbours", groups, unit="groups") as done,
        runtime.one_blas_thread(),
        runtime.TaskThreads(threads, "mlfs-search") as pool,
    ):
        for _ in pool.map(search, bounds[:-1], bounds[1:]):
            done()
    return indices


def count_near(indices: NDArray[np.int64], positive: sp.csr_array) -> NDArray[Any]:
    """Count the neighbours of each row that have each label, shape (rows, q); sum labels of float64.

    >>> count_near(np.array([[0, 1]]), sp.csr_array(np.array([[1, 0], [1, 1]], np.int8)))
    array([[2, 1]], dtype=int16)
    """
    (rows, k), counted = indices.shape, np.float64 if positive.dtype.kind == "f" else np.int16
    votes = sp.csr_array(
        (np.ones(rows * k, counted), indices.ravel(), np.arange(0, rows * k + 1, k) if k else np.zeros(rows + 1, int)),
        shape=(rows, positive.shape[0]),
    )
    counts: NDArray[Any] = (votes @ positive.astype(counted)).toarray()
    return counts


def search_bytes(columns: int, k: int, queries: int, *, threads: int) -> int:
    """Return bytes that `nearest_rows` allocates for dense rows, its result included."""
    group = min(GROUP_BYTES, 8 * queries * columns)
    # A group as read and as scaled, with its neighbours; a block as read and as scaled; what the search holds besides.
    rows = group // (8 * max(columns, 1)) + 1
    block = 8 * max(BLOCK_VALUES, BLOCK_ROWS * columns)
    tiles = scratch_bytes(columns)
    return 8 * k * queries + threads * (2 * group + 16 * k * rows + 2 * block + tiles)
