"""Laplacian score of every feature on a graph of the rows (He, Cai & Niyogi 2005), which needs no labels.

The paper's graph takes all rows in memory (`laplacian_scores`). The one for more rows is S = ZΛ⁻¹Z' of a few
hundred anchors (`mlfs_dask.blocks.anchors`): its rows sum to 1, so that the score of a feature follows from its
variance and from Z'X, in two passes, and nothing grows with the number of rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.rounding import NEGLIGIBLE
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.exact import graphs
from mlfs_dask.exact.fit import ExactFit
from mlfs_dask.exact.graphs import PairDistances, nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.anchor_graph import AnchorGraph
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Asked, Cost, Readings
from mlfs_dask.selectors.in_memory import GraphKind, InMemory
from mlfs_dask.selectors.one_reading import OneReading, Passes
from mlfs_dask.selectors.parameters import Missing, Param
from mlfs_dask.selectors.scores import Scores, uninformative_warning
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.anchor_sums import AnchorSums, AnchorTotals
from mlfs_dask.statistics.moments import FeatureMoments, Moments
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Matrix, Seed, join_terms

#: Difference of |x|² + d², relative to it, within which two rows are equally far from row x; rounding is far below.
TIE_TOL = 1e-10

#: Name of the second pass.
ROWS = "rows of anchors"


@method("laplacian", "Laplacian score", paper="He, Cai & Niyogi 2005, NIPS 18, 507", doi="10.5555/2976248.2976312")
class LaplacianScore(InMemory, OneReading):
    """Laplacian score (He, Cai & Niyogi 2005).

    The Laplacian score of a feature is L(f) = f'(D - S)f / f'Df, f being centred with the degrees D as weights: small
    where rows that are near each other have similar values. `scores_` holds 1 - L(f), at most 1, so that larger is
    better; a constant feature has 0. Labels are not used and may be unknown.

    Notes
    -----
    Features are standardised for the distances, so their units do not matter; the paper does not standardise.

    The exact graph connects two rows with weight exp(−d²/λ²) if either is among the nearest rows of the other. Rows
    that tie as last neighbours share the weight: if k − a neighbours are left among b equally far rows, their edges
    get (k − a)/b of the weight. Scores then do not depend on the order of the rows. One pass over X; this process
    holds X twice, and compares all pairs of rows twice. Features that differ more between neighbours than between
    random rows have scores below 0.

    With anchors two rows are near if they share anchors (Liu, He & Chang 2010), and every row has degree 1; scores
    are from 0 to 1. Two passes over X.

    References
    ----------
    X. He, D. Cai, P. Niyogi, "Laplacian score for feature selection", Advances in Neural Information Processing Systems
    18 (2005) 507-514. W. Liu, J. He, S.-F. Chang, "Large graph construction for scalable semi-supervised learning",
    International Conference on Machine Learning (2010) 679-686, for the graph.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> t = np.linspace(0.0, 1.0, 40)
    >>> X = np.stack([np.tile([0.0, 0.5, 1.0, 0.2, 0.7], 8), t, t**2], axis=1)
    >>> mlfs.LaplacianScore(n_features_to_select=2).fit(X, np.zeros(40)).scores_.round(2)
    array([0.82, 0.9 , 0.92])
    """

    graph: Annotated[
        GraphKind,
        Param(
            'Graph of near rows. "anchors": rows that belong to the same anchors are near; memory does not '
            'grow with the number of rows. "exact": the paper\'s graph of nearest rows, with X in the memory '
            'of this process. "auto": "exact" up to 20 000 rows.'
        ),
    ] = "auto"
    n_neighbors: Annotated[int, Param("Number of neighbours of a row in the exact graph, at most n − 1.")] = 5
    lambda_: Annotated[
        float | None,
        Param(
            "Width λ of the heat kernel exp(−d²/λ²) of the exact graph, on standardised features; by default its "
            "square is the mean squared distance over all pairs of rows.",
            above=0,
        ),
    ] = None
    n_anchors: Annotated[
        int, Param("Number of anchors, placed by k-means on a sample of the rows; at most a quarter of the rows.")
    ] = 300
    anchor_neighbors: Annotated[int, Param("Number of nearest anchors to which a row belongs.")] = 3
    missing: Missing = "error"
    random_state: Annotated[
        Seed, Param("Seed of the sample and of k-means. The exact graph draws nothing.", least=0)
    ] = None

    supervision = "unsupervised"
    unknown_entry = "plays no part: labels are not looked at"
    passes = "1; with anchors 2"
    memory = "driver: X twice; with anchors worker: 8 bytes * 4 * m * d for m anchors, driver: 8 bytes * 6 * m * d"

    always_draws = True
    takes_weights = False
    resamples_rows = False
    reading = "moments and sample"
    workspace = "p + 6 m d"  # k-means, and scaled anchors

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        profile = profile_of(source)
        return {"moments": Moments(profile.d), "sample": AnchorGraph.of(self, profile).sample}

    def later(self, source: Profile | RowSource, found: Mapping[str, Any]) -> Passes:
        yield ROWS, {"sums": AnchorSums(found.get("anchors") or AnchorGraph.of(self, profile_of(source)).placeholder)}

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        graph = AnchorGraph.of(self, profile_of(source))
        return {"m": graph.count, "p": graph.point_numbers}

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        return replace(super().cost(source, resources, asked), loads_sklearn=not self._holds_rows(profile_of(source).n))

    def notes(self, profile: Profile) -> list[str]:
        return [AnchorGraph.of(self, profile).note]

    def prepare(self, job: Readings, results: dict[str, Any]) -> dict[str, Any]:
        moments = results["moments"]
        self.examine_moments(job, moments.mean, moments.m2)
        anchors = AnchorGraph.of(self, job.source.profile).place(results["sample"].X, standard_scaling(moments))
        return {"moments": moments, "anchors": anchors}

    def scores(self, *, k: int, sums: AnchorTotals, moments: FeatureMoments, anchors: Anchors) -> Scores:
        # f'Sf = Σ_a (Z'f)_a² / λ_a, and the degrees of S are 1.
        smooth = np.einsum("ad,a,ad->d", sums.ZX, sums.inverse_masses, sums.ZX)
        scores = np.divide(smooth, moments.m2, out=np.zeros_like(smooth), where=moments.m2 > 0)
        facts = {"kind": "anchors", "anchors": anchors.count, "anchor_neighbors": anchors.neighbors}
        return Scores(scores, extra={"graph": facts})

    def warnings(self, job: Readings, outcome: Scores, results: Mapping[str, Any]) -> list[Warning]:
        if job.varies.any():
            return []
        d = len(job.varies)
        return [uninformative_warning(self.method, constant=d, d=d, constant_labels=-1, q=0)]

    # ------------------------------------------------------------------ the exact graph

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        """Return the memory besides X: X scaled and transposed, keys of neighbours, tiles of pairs."""
        own = "5.5 v" if profile.sparse else "n d", graphs.workspace(), f"4 n k + {8 * gates.VALUES_AT_ONCE}"
        return join_terms(*own), {"k": min(self.n_neighbors, profile.n - 1) + 1}

    def _fit_exactly(self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
        scores = laplacian_scores(X, moments=moments, n_neighbors=self.n_neighbors, lambda_=self.lambda_)
        return ExactFit(scores, LoopTrace(), {})

    def _result(
        self, job: Readings, scores: Array, trace: LoopTrace, extra: dict[str, Any], positives: NDArray[np.int64]
    ) -> Scores:
        outcome = Scores(scores, extra=extra)
        return replace(outcome, warnings=self.warnings(job, outcome, {}))


# ---------------------------------------------------------------------- with all rows in memory


def laplacian_scores(X: Matrix, *, moments: FeatureMoments, n_neighbors: int, lambda_: float | None) -> Array:
    """Return the laplacian score of every feature, turned so that larger is better: 1 − L, shape (d,); 0 for a
    constant one.

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


class _Neighbourhoods(NamedTuple):
    """Distances of every row to its k nearest rows.

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
        """Return 1 for a neighbour of row x, its share of a place for one of those that tie, 0 for others."""
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
    """Return weights of the edges of some rows with all rows from the first of them on, those between them once.

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
    """Return the sum of a·b over the rows, for every column of A and B."""
    if sp.issparse(A):
        return np.asarray(A.multiply(B).sum(axis=0)).ravel()
    sums: Array = np.einsum("if,if->f", A, B)
    return sums
