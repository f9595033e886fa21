"""Adaptive graphs: weights of nearest neighbours as the closest point of the simplex (Access-MFS, Eqs. 18-25).

A row's weights minimise Σ_j m_ij s_ij + α_i ‖s_i‖² over the simplex, with the α_i for which exactly k weights are
positive. They fall linearly with the distance and reach zero at the (k+1)-th neighbour, so that a neighbour has no
weight at the moment when another one replaces it.
"""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.rounding import NEGLIGIBLE
from mlfs_dask.typing import Array


def neighbours_used(k: int, m: int) -> int:
    """Return the number of neighbours with a weight, for k requested of m − 1: one more is needed as the zero point.

    >>> [neighbours_used(5, m) for m in (1, 2, 3, 6, 7)]
    [0, 1, 1, 4, 5]
    """
    return min(k, max(m - 2, min(m - 1, 1)))


def simplex_weights(distances: Array, k: int, squares: Array, *, slack: float = 0.0) -> tuple[Array, Array]:
    """Return the weights of the k nearest neighbours, and the α that yields them (Eq. 21; the printed + is a minus).

    Parameters
    ----------
    distances : float64 array, shape (n, k + 1) or (n, k)
        Ascending in every row. Without a (k+1)-th column all k weights are equal.
    k : int
    squares : float64 array, shape (n,)
        Squared distance of every row from the origin: distances that differ only by rounding relative to it give equal
        weights.
    slack : float
        Addend of the sum by which weights are divided; 0.01 in the authors' code.

    Returns
    -------
    weights : float64 array, shape (n, k)
        Rows sum to 1 if `slack` is 0.
    alpha : float64 array, shape (n,)
        In the unit of `distances`.

    Examples
    --------
    >>> simplex_weights(np.array([[1.0, 2.0, 4.0], [3.0, 3.0, 3.0]]), 2, np.array([9.0, 9.0]))
    (array([[0.6, 0.4],
           [0.5, 0.5]]), array([2.5, 0. ]))
    """
    n = len(distances)
    weights = np.full((n, k), 1.0 / max(k, 1))
    alpha = np.zeros(n)
    if distances.shape[1] <= k or k == 0:
        return weights, alpha
    gaps = distances[:, k : k + 1] - distances[:, :k]
    total = gaps.sum(axis=1)
    apart = total > NEGLIGIBLE * k * (squares + distances[:, k])
    weights[apart] = gaps[apart] / (total[apart, np.newaxis] + slack)
    alpha[apart] = total[apart] / 2
    return weights, alpha


def column_graph(products: Array, k: int) -> tuple[Array, Array, Array]:
    """Return the adaptive graph of the columns of F (Eqs. 22-25), from half their squared distances.

    Parameters
    ----------
    products : float64 array, shape (q, q)
        F'F.
    k : int
        Neighbours of a column. Further columns at the same distance as all k nearest ones are neighbours, too, with
        equal weights: of the equally good solutions, the one of least norm.

    Returns
    -------
    graph : float64 array, shape (q, q)
        (P + P')/2. Permuting the columns permutes the graph, even with ties.
    beta : float64 array, shape (q,)
        β_i of Eq. 22 for exactly k neighbours.
    squares : float64 array, shape (q,)
        ‖p_i‖².

    Examples
    --------
    >>> graph, _, _ = column_graph(np.outer([0.0, 1.0, 3.0], [0.0, 1.0, 3.0]), 1)
    >>> graph
    array([[0. , 1. , 0. ],
           [1. , 0. , 0.5],
           [0. , 0.5, 0. ]])
    """
    q = len(products)
    k = neighbours_used(k, q)
    P = np.zeros((q, q))
    if k == 0:
        return P, np.zeros(q), np.zeros(q)
    squares = np.diag(products).copy()
    G = 0.5 * np.maximum(squares[:, np.newaxis] + squares - 2.0 * products, 0.0)
    # Distances that differ by less than the rounding of the products count as equal.
    step = NEGLIGIBLE * max(squares.max(), np.finfo(np.float64).tiny)
    G = np.rint(G / step) * step
    np.fill_diagonal(G, np.inf)
    order = np.argsort(G, axis=1, kind="stable")[:, : min(k + 1, q - 1)]
    distances = np.take_along_axis(G, order, axis=1)
    weights, beta = simplex_weights(distances, k, squares)
    np.put_along_axis(P, order[:, :k], weights, axis=1)
    for i in np.flatnonzero(beta == 0):
        tied = G[i] <= distances[i, -1]
        P[i] = tied / tied.sum()
    return (P + P.T) / 2, beta, np.einsum("ij,ij->i", P, P)
