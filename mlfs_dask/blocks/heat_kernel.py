"""Heat-kernel graphs of nearest neighbours: edge weights decrease with the distance of two rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.neighbours import NearestRows, Neighbours, compiles_search, pair_distances
from mlfs_dask.blocks.rounding import ROUNDING
from mlfs_dask.typing import Array


def heat_kernel_graph(distances: sp.csr_array, width: float) -> sp.csr_array:
    """Return exp(−d²/width) for two rows if either is a neighbour of the other.

    Parameters
    ----------
    distances : csr_array, shape (n, n)
        Squared distance of every row to each of its neighbours; zeros are stored.
    width : float
        In the unit of `distances`. 0 gives every edge the weight 1.

    Returns
    -------
    csr_array, shape (n, n)
        Symmetric.

    Examples
    --------
    >>> heat_kernel_graph(sp.csr_array(np.array([[0, 2.0, 0], [0, 0, 1.0], [0, 1.0, 0]])), 1.0).toarray().round(3)
    array([[0.   , 0.135, 0.   ],
           [0.135, 0.   , 0.368],
           [0.   , 0.368, 0.   ]])
    """
    data = np.exp(distances.data / -width) if width > 0 else np.ones(distances.nnz)
    weights = sp.csr_array((data, distances.indices, distances.indptr), shape=distances.shape)
    return sp.csr_array(weights.maximum(weights.T.tocsr()))


def degrees(graph: sp.csr_array) -> Array:
    """Return the sum of edge weights of every row, shape (n,)."""
    total: Any = graph.sum(axis=1)
    return np.asarray(total, dtype=np.float64).ravel()


def mean_degree(points: Any, k: int, width: float) -> float:
    """Return the mean degree of the heat-kernel graph of the k nearest neighbours of each row.

    Parameters
    ----------
    points : float64 array or csr_array, shape (rows, d)
    k : int
    width : float
        As in `heat_kernel_graph`.
    """
    n = points.shape[0]
    k = min(k, n - 1)
    if k < 1:
        return 0.0
    # Partitions change the last digits of the points. Rounding to float32 removes them, so that ties are exact and go
    # to the lower index.
    indices = _nearest(points.astype(np.float32).astype(np.float64), k)
    exact = np.empty((n, k))
    for low in range(0, n, gates.QUERY_ROWS):
        tile = indices[low : low + gates.QUERY_ROWS]
        rows = np.repeat(np.arange(low, low + len(tile)), k)
        exact[low : low + gates.QUERY_ROWS] = pair_distances(points, points, rows, tile.ravel()).reshape(tile.shape)
    distances = Neighbours(indices, exact).to_csr()
    return float(degrees(heat_kernel_graph(distances, width)).mean())


def column_graph(gram: Array, k: int) -> Array:
    """Return the heat-kernel graph of the columns of X and their k nearest neighbours, from X'X; shape (d, d).

    Columns as near as the k-th neighbour are neighbours, too: copies of a column then have equal edges. The width is
    the mean squared distance to the neighbours. Columns of zeros have no edges.

    Parameters
    ----------
    gram : float64 array, shape (d, d)
    k : int

    Examples
    --------
    >>> column_graph(np.array([[4.0, 4.0, 0.0], [4.0, 5.0, 0.0], [0.0, 0.0, 0.0]]), 1).round(3)
    array([[0.   , 0.368, 0.   ],
           [0.368, 0.   , 0.   ],
           [0.   , 0.   , 0.   ]])
    """
    squares = np.diag(gram)
    used = squares > 0
    graph, is_neighbour = np.zeros_like(gram), np.zeros(gram.shape, dtype=bool)
    k = min(k, int(used.sum()) - 1)
    if k < 1:
        return graph
    total, edges = 0.0, 0
    for low in range(0, len(gram), gates.GRAM_ROWS):
        part = slice(low, low + gates.GRAM_ROWS)
        sums = squares[part, np.newaxis] + squares
        distances = sums - 2.0 * gram[part]
        distances[distances <= ROUNDING * sums] = 0.0
        graph[part] = distances
        distances[:, ~used] = np.inf
        distances[np.arange(len(distances)), np.arange(low, low + len(distances))] = np.inf
        # Rounded as in `mean_degree`.
        rounded = distances.astype(np.float32)
        is_neighbour[part] = rounded <= np.partition(rounded, k - 1, axis=1)[:, k - 1 : k]
        is_neighbour[part] &= used[part, np.newaxis]
        total += float(distances[is_neighbour[part]].sum())
        edges += int(is_neighbour[part].sum())
    if total > 0:
        graph *= -edges / total
    np.exp(graph, out=graph)
    graph[~(is_neighbour | is_neighbour.T)] = 0.0
    return graph


def _nearest(points: Any, k: int) -> NDArray[np.int64]:
    n = points.shape[0]
    search = NearestRows(points, 0, k, compiled=compiles_search(n * n, sparse=sp.issparse(points)))
    search.add(points, 0)
    return search.indices
