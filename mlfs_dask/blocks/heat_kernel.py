"""Graphs whose edges weigh less the further two rows lie apart: the heat kernel on nearest neighbours."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp


def heat_kernel_graph(distances: sp.csr_array, width: float, *, backward: sp.csr_array | None = None) -> sp.csr_array:
    """exp(−d²/width) between two rows of which either is a neighbour of the other.

    Parameters
    ----------
    distances : csr_array, shape (rows, n)
        Squared distance of some or all rows from each of their neighbours; zeros are stored.
    width : float
        In the unit of `distances`. 0 gives every edge the weight 1.
    backward : csr_array, shape (rows, n)
        The same distances from those whose neighbours they are; needed where rows are not all.

    Returns
    -------
    csr_array, shape (rows, n)
        Of all rows it is symmetric.

    Examples
    --------
    >>> heat_kernel_graph(sp.csr_array(np.array([[0, 2.0, 0], [0, 0, 1.0], [0, 1.0, 0]])), 1.0).toarray().round(3)
    array([[0.   , 0.135, 0.   ],
           [0.135, 0.   , 0.368],
           [0.   , 0.368, 0.   ]])
    """
    if backward is None:
        backward = sp.csr_array(distances.T.tocsr())
    return sp.csr_array(_weights(distances, width).maximum(_weights(backward, width)))


def _weights(distances: sp.csr_array, width: float) -> sp.csr_array:
    weights = np.exp(distances.data / -width) if width > 0 else np.ones(distances.nnz)
    return sp.csr_array((weights, distances.indices, distances.indptr), shape=distances.shape)


def degrees(graph: sp.csr_array) -> NDArray[np.float64]:
    """Sum of the weights of every row's edges, shape (n,)."""
    total: Any = graph.sum(axis=1)
    return np.asarray(total, dtype=np.float64).ravel()


def mean_degree(points: Any, k: int, width: float) -> float:
    """Mean degree of the heat-kernel graph of some rows and their k nearest, either way.

    Parameters
    ----------
    points : float64 array or csr_array, shape (rows, d)
    k : int
    width : float
        As in `heat_kernel_graph`.
    """
    from sklearn.neighbors import NearestNeighbors

    k = min(k, points.shape[0] - 1)
    if k < 1:
        return 0.0
    search = NearestNeighbors(n_neighbors=k, algorithm="brute", n_jobs=1).fit(points)
    distances = sp.csr_array(search.kneighbors_graph(mode="distance"))
    distances.data **= 2
    return float(degrees(heat_kernel_graph(distances, width)).mean())
