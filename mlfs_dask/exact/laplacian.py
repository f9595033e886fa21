"""Laplacian score on rows in memory (He, Cai & Niyogi 2005), with the paper's graph of nearest rows.

X. He, D. Cai, P. Niyogi, "Laplacian score for feature selection", Advances in Neural Information Processing Systems 18
(2005) 507-514.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.rounding import NEGLIGIBLE
from mlfs_dask.exact import graphs
from mlfs_dask.exact.graphs import PairDistances, nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.typing import Array, Matrix, join_terms

if TYPE_CHECKING:
    from mlfs_dask.statistics.moments import FeatureMoments

#: Difference of |x|² + d², relative to it, within which two rows are equally far from row x; rounding is far below.
TIE_TOL = 1e-10


def laplacian_scores(X: Matrix, *, moments: FeatureMoments, n_neighbors: int, lambda_: float | None) -> Array:
    """Laplacian score of every feature, turned so that larger is better: 1 − L, shape (d,); 0 for a constant one.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
        As read, finite.
    moments : FeatureMoments
        Of X.
    n_neighbors, lambda_
        As of `LaplacianScore`.

    Notes
    -----
    Rows that tie for the last places among the neighbours of a row share these places: the graph does not depend on
    the order of the rows. All pairs may tie (one-hot rows do), so that the graph is not held; once the distance of the
    last neighbours is known, pairs are compared again, tile by tile.
    """
    n, d = X.shape
    k = min(n_neighbors, n - 1)
    features = ScaledMatrix(X, moments)
    varying = features.factor > 0
    scores: Array = np.zeros(d)
    if k < 1 or not varying.any():
        return scores
    Z = features.rows
    pairs = PairDistances(Z)
    near = _neighbourhoods(pairs, k)
    # The mean squared distance over all pairs is 2 Σ var_f, and a standardised feature has variance 1.
    width = 2.0 * float(varying.sum()) if lambda_ is None else float(lambda_) ** 2
    degrees, smooth = np.zeros(n), np.zeros(d)
    for rows, distances in pairs.tiles("weighing edges", np.arange(n)):
        low = int(rows[0])
        S = _edges(near, rows, distances[:, low:], width)
        degrees[rows] += np.asarray(S.sum(axis=1)).ravel()
        degrees[low:] += np.asarray(S.sum(axis=0)).ravel()
        smooth += 2.0 * _column_products(Z[rows], S @ Z[low:])
    volume = float(degrees.sum())
    if volume == 0.0:  # λ is so small that every weight is 0
        return scores
    total = np.asarray(degrees @ Z.power(2)) if sp.issparse(Z) else np.einsum("i,if,if->f", degrees, Z, Z)
    variance = total - np.asarray(degrees @ Z) ** 2 / volume  # f'Df, f centred with the degrees as weights
    varying &= variance > NEGLIGIBLE * total
    scores[varying] = 1.0 - (total - smooth)[varying] / variance[varying]
    return scores


def workspace(*, sparse: bool) -> str:
    """What `laplacian_scores` holds besides X: X scaled and transposed, keys of neighbours, tiles of pairs."""
    return join_terms("5.5 v" if sparse else "n d", graphs.workspace(), f"4 n k + {8 * gates.VALUES_AT_ONCE}")


class _Neighbourhoods(NamedTuple):
    """How far the k nearest rows of every row reach.

    Attributes
    ----------
    squares : float64 array, shape (n,)
        |x|² of every row x.
    last : float64 array, shape (n,)
        |x|² + d² of the k-th neighbour.
    share : float64 array, shape (n,)
        Places left for the rows that are as far as the k-th, divided by their number.
    """

    squares: Array
    last: Array
    share: Array

    def membership(self, x: NDArray[np.intp], distances: Array) -> Array:
        """1 for a neighbour of row x, its share of a place for one of those that tie, 0 for others."""
        key, last = self.squares[x] + distances, self.last[x]
        tied = np.where(key <= last * (1 + TIE_TOL), self.share[x], 0.0)
        return np.where(key < last * (1 - TIE_TOL), 1.0, tied)


def _neighbourhoods(pairs: PairDistances, k: int) -> _Neighbourhoods:
    squares = pairs.squares
    keys = squares[:, np.newaxis] + nearest_rows(pairs.Z, k + 1).distances
    last = keys[:, k - 1].copy()
    nearer = (keys < (last * (1 - TIE_TOL))[:, np.newaxis]).sum(axis=1)
    as_far = (keys <= (last * (1 + TIE_TOL))[:, np.newaxis]).sum(axis=1) - nearer
    # Where the row after the k-th ties with it more rows may than were searched for.
    open_ended = np.flatnonzero(nearer + as_far > k)
    for rows, distances in pairs.tiles("counting ties", open_ended):
        distances += squares[rows, np.newaxis]
        far = last[rows, np.newaxis]
        distances[np.arange(len(rows)), rows] = np.inf  # a row is not its own neighbour
        as_far[rows] = (distances <= far * (1 + TIE_TOL)).sum(axis=1) - (distances < far * (1 - TIE_TOL)).sum(axis=1)
    return _Neighbourhoods(squares, last, (k - nearer) / as_far)


def _edges(near: _Neighbourhoods, rows: NDArray[np.intp], distances: Array, width: float) -> sp.csr_array:
    """Weights of the edges of some rows with all rows from the first of them on, those between them once.

    The weight is exp(−d²/width) where either row is a neighbour of the other.
    """
    later = np.arange(rows[0], rows[0] + distances.shape[1])
    reach = near.last * (1 + TIE_TOL) - near.squares
    joined = distances <= np.maximum(reach[rows, np.newaxis], reach[later])
    joined[:, : len(rows)] = np.triu(joined[:, : len(rows)], 1)
    i, j = np.nonzero(joined)
    d2 = distances[i, j]
    weights = np.maximum(near.membership(rows[i], d2), near.membership(later[j], d2))
    weights *= np.exp(d2 / -width) if width > 0 else 1.0
    return sp.csr_array((weights, (i, j)), shape=distances.shape)


def _column_products(A: Matrix, B: Matrix) -> Array:
    """Sum of a·b over the rows, for every column of A and B."""
    if sp.issparse(A):
        return np.asarray(A.multiply(B).sum(axis=0)).ravel()
    sums: Array = np.einsum("if,if->f", A, B)
    return sums
