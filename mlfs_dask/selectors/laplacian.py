"""Laplacian score of every feature on a graph of the rows (He, Cai & Niyogi 2005), which needs no labels.

The paper's graph takes all rows in memory (`mlfs_dask.exact.laplacian`). The one for more rows is S = ZΛ⁻¹Z' of a few
hundred anchors (`mlfs_dask.blocks.anchors`): its rows sum to 1, so that the score of a feature follows from its
variance and from Z'X, in two readings, and nothing grows with the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.anchors import Anchors, count_anchors
from mlfs_dask.blocks.neighbours import compiles_search
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.exact import laplacian as exact_form
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import Method, method
from mlfs_dask.selectors.costs import Asked, Cost, Reading, Readings
from mlfs_dask.selectors.in_memory import anchors_instead, sizes_in_memory
from mlfs_dask.selectors.iterative import (
    GraphKind,
    anchor_sample,
    anchors_of_points,
    point_bytes,
    standardised_points,
    uses_anchors,
)
from mlfs_dask.selectors.loop import placeholder
from mlfs_dask.selectors.parameters import Missing, Param
from mlfs_dask.selectors.scores import Scores, uninformative_warning
from mlfs_dask.statistics.anchor_sums import AnchorSums
from mlfs_dask.statistics.moments import FeatureMoments, Moments
from mlfs_dask.statistics.rows_in_memory import read_rows
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Seed, join_terms, numbers

#: What the readings are called.
FIRST, ROWS = "moments and sample", "rows of anchors"


@method("laplacian", "Laplacian score", paper="He, Cai & Niyogi 2005, NIPS 18, 507", doi="10.5555/2976248.2976312")
class LaplacianScore(Method):
    """Laplacian score (He, Cai & Niyogi 2005).

    The Laplacian score of a feature is L(f) = f'(D - S)f / f'Df, f being centred with the degrees D as weights: small
    where rows that are near each other have similar values. `scores_` holds 1 - L(f), at most 1, so that larger is
    better; a constant feature has 0. Labels are not used and may be unknown.

    Notes
    -----
    Features are standardised for the distances, so that their units do not matter; the paper takes them as they are.

    The exact graph joins two rows with weight exp(−d²/λ²) where either is among the nearest of the other. Rows that tie
    for the last places share them: where k − a places are left for b rows that are equally far, their edges weigh
    (k − a)/b of that. Scores then do not depend on the order of the rows. One reading of X; this process holds X twice,
    and compares all pairs of rows twice. Scores below 0 are those of features that differ more between neighbours than
    at random.

    With anchors two rows are near that share anchors (Liu, He & Chang 2010), and every row has degree 1; scores are
    from 0 to 1. Two readings of X.

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
            'Graph of near rows. "anchors": rows are near that belong to the same anchors; memory does not '
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

    def _count_anchors(self, profile: Profile) -> int:
        return count_anchors(self.n_anchors, profile.n, profile.d)

    def _first_statistics(self, profile: Profile) -> list[Any]:
        return [Moments(profile.d), anchor_sample(profile, self._count_anchors(profile), self.seed)]

    def first_reading(self, source: RowSource, resources: Resources, asked: Asked) -> Sequence[Statistic]:
        profile = source.profile
        return self._first_statistics(profile) if uses_anchors(self.graph, profile.n) else []

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        profile = profile_of(source)
        if not uses_anchors(self.graph, profile.n):
            return self._exact_cost(profile)
        m, d = self._count_anchors(profile), profile.d
        first = self._first_statistics(profile)
        sample = first[1].result_bytes + 2 * len(first[1].chosen) * point_bytes(
            profile
        )  # standardised copies of it, too
        anchors = Anchors(placeholder(m, d), placeholder(d), placeholder(d), self.anchor_neighbors)
        return Cost(
            steps=[
                Reading(FIRST, tuple(first)),
                "sample + 6 m d + 8 d",  # anchors, and k-means
                Reading(ROWS, (AnchorSums(anchors, placeholder(d)),), workspace="2 m d + 8 d"),
                "4 m d + 8 d",
            ],
            sizes={"m": m, "d": d, "sample": numbers(sample)},
            loads_sklearn=True,
            notes=[f"{m} anchors"],
        )

    def _exact_cost(self, profile: Profile) -> Cost:
        pairs, k = profile.n**2, min(self.n_neighbors, profile.n - 1) + 1
        return Cost(
            steps=(
                Reading("rows", (), workspace="rows"),
                join_terms("rows", exact_form.workspace(sparse=profile.sparse)),
            ),
            sizes={**sizes_in_memory(profile), "k": k},
            compiled=compiles_search(pairs, sparse=profile.sparse),
            notes=("exact graph: X is in the memory of this process; with --graph anchors it is not",),
        )

    def cure(self, profile: Profile) -> str:
        return "" if uses_anchors(self.graph, profile.n) else anchors_instead()

    def score(self, readings: Readings) -> Scores:
        if uses_anchors(self.graph, readings.source.profile.n):
            return self._score_with_anchors(readings)
        X, Y, record = read_rows(readings.source, readings.resources)
        readings.records.append(record)
        (moments,), _ = run_reading(ArrayRows(X, Y), [Moments(X.shape[1])], readings.resources, label="moments")
        self._examine(readings, moments)
        scores = exact_form.laplacian_scores(X, moments=moments, n_neighbors=self.n_neighbors, lambda_=self.lambda_)
        return self._result(scores, moments, {"graph": {"kind": "exact"}})

    def _score_with_anchors(self, readings: Readings) -> Scores:
        profile = readings.source.profile
        moments, sample = readings.run(FIRST, *self._first_statistics(profile))
        self._examine(readings, moments)
        scaling = standard_scaling(moments)
        points = standardised_points(sample.X, scaling)
        m = self._count_anchors(profile)
        anchors = anchors_of_points(points, m, scaling, self.anchor_neighbors, self.seed)
        del sample, points
        (sums,) = readings.run(ROWS, AnchorSums(anchors, moments.mean))
        # f'Sf = Σ_a (Z'f)_a² / λ_a, and the degrees of S are 1.
        smooth = np.einsum("ad,a,ad->d", sums.ZX, sums.inverse_masses, sums.ZX)
        scores = np.divide(smooth, moments.m2, out=np.zeros_like(smooth), where=moments.m2 > 0)
        facts = {"kind": "anchors", "anchors": anchors.count, "anchor_neighbors": anchors.neighbors}
        return self._result(scores, moments, {"graph": facts})

    def _examine(self, readings: Readings, moments: FeatureMoments) -> None:
        self.examine_moments(readings, moments.mean, moments.m2)

    def _result(self, scores: Array, moments: FeatureMoments, extra: dict[str, Any]) -> Scores:
        constant, d = int(np.count_nonzero(moments.m2 == 0)), len(scores)
        warnings = (
            [uninformative_warning(self.method, constant=d, d=d, constant_labels=-1, q=0)] if constant == d else []
        )
        return Scores(scores, extra=extra, warnings=warnings)
