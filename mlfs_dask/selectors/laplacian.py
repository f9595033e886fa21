"""Laplacian score of every feature on an anchor graph of the rows (He, Cai & Niyogi 2005), which needs no labels.

The graph is S = ZΛ⁻¹Z' of a few hundred anchors (`mlfs_dask.blocks.anchors`). Its rows sum to 1, so that the score of a
feature follows from its variance and from Z'X: two passes, and nothing that grows with the number of rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np

from mlfs_dask.blocks.anchors import ANCHOR_NEIGHBORS, N_ANCHORS, ROWS_PER_ANCHOR, Anchors, count_anchors
from mlfs_dask.primitives.anchor_sums import AnchorSums
from mlfs_dask.primitives.moments import Moments
from mlfs_dask.primitives.passes import CachedStatistic
from mlfs_dask.primitives.sample import RowSample, draw_rows
from mlfs_dask.primitives.scaling import standard_scaling
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.base import BaseSelector, Scores, uninformative_warning
from mlfs_dask.selectors.costs import Cost, PassRunner, Reading
from mlfs_dask.selectors.iterative import (
    SAMPLE_BYTES,
    anchor_work,
    anchors_of_points,
    placeholder,
    point_bytes,
    standardised_points,
)
from mlfs_dask.selectors.options import check_parameters
from mlfs_dask.typing import HeldArray, Profile, RowSource, Seed, profile_of

#: What the readings are called.
FIRST, ROWS = "moments and sample", "rows of anchors"


class LaplacianScore(BaseSelector):
    """Laplacian score on an anchor graph (He, Cai & Niyogi 2005).

    The Laplacian score of a feature is L(f) = f'(I - S)f / f'f for the centred feature f: small where rows that are
    near each other have similar values. `scores_` holds 1 - L(f), from 0 to 1, so that larger is better; a constant
    feature has 0. Labels are not looked at and may be unknown.

    Parameters
    ----------
    n_features_to_select : int, float or None
        Number of features to keep, or a fraction of them; half by default.
    n_anchors : int
        Anchors, placed by k-means on a sample of the rows; at most a quarter of the rows.
    anchor_neighbors : int
        Nearest anchors that a row belongs to.
    missing : {"error", "mean", "median"}
        Missing feature values are an error, or are filled with the feature's mean or its median, which is that of
        16 384 rows drawn at random where there are more.
    random_state : int, Generator or RandomState, optional
        Seed of the sample and of k-means.

    Notes
    -----
    Two passes over X. The paper's graph joins nearest rows by a heat kernel; here two rows are near that share anchors
    (Liu, He & Chang 2010), and every row has degree 1. Features are standardised for the distances. A worker and the
    driver hold m * d numbers of 8 bytes for m anchors, a few times.

    References
    ----------
    X. He, D. Cai, P. Niyogi, "Laplacian score for feature selection", Advances in Neural Information Processing Systems
    18 (2005) 507-514. W. Liu, J. He, S.-F. Chang, "Large graph construction for scalable semi-supervised learning",
    International Conference on Machine Learning (2010) 679-686, for the graph.

    Examples
    --------
    >>> import numpy as np
    >>> groups = np.repeat([0.0, 1.0], 20)
    >>> X = np.stack([groups, np.tile([0.0, 1.0], 20), groups], axis=1)
    >>> LaplacianScore(n_features_to_select=2).fit(X, np.zeros(40)).ranking_
    array([0, 2, 1])
    """

    method = "laplacian"
    title = "Laplacian score on an anchor graph"
    paper = "He, Cai & Niyogi 2005, NIPS 18, 507"
    doi = "10.5555/2976248.2976312"
    supervision = "unsupervised"
    passes = "2"
    memory = "worker: 8 bytes * 4 * m * d for m anchors; driver: 8 bytes * 6 * m * d"
    accepts_unknown_labels = True

    def __init__(
        self,
        n_features_to_select: int | float | None = None,
        *,
        n_anchors: int = N_ANCHORS,
        anchor_neighbors: int = ANCHOR_NEIGHBORS,
        missing: Literal["error", "mean", "median"] = "error",
        random_state: Seed = None,
    ) -> None:
        self.n_features_to_select = n_features_to_select
        self.n_anchors = n_anchors
        self.anchor_neighbors = anchor_neighbors
        self.missing = missing
        self.random_state = random_state

    def _check_parameters(self) -> None:
        check_parameters(self, minimums={"random_state": 0})

    def _count_anchors(self, profile: Profile) -> int:
        return count_anchors(self.n_anchors, profile.n, profile.d)

    def _first_statistics(self, profile: Profile) -> list[Any]:
        n_rows = ROWS_PER_ANCHOR * self._count_anchors(profile)
        return [Moments(profile.d), RowSample(draw_rows(profile, n_rows, self._seed, max_bytes=SAMPLE_BYTES), profile)]

    def _first_reading(self, source: RowSource, resources: Resources) -> Sequence[CachedStatistic]:
        return self._first_statistics(source.profile)

    def cost(self, source: Profile | RowSource, resources: Resources) -> Cost:
        profile = profile_of(source)
        m, d = self._count_anchors(profile), profile.d
        first = self._first_statistics(profile)
        anchors = Anchors(placeholder(m, d), placeholder(d), placeholder(d), self.anchor_neighbors)
        return Cost(
            steps=[
                Reading(FIRST, tuple(first)),
                anchor_work(profile, m),
                Reading(ROWS, (AnchorSums(anchors, placeholder(d)),)),
                "scores",
            ],
            sizes={"m": m, "d": d, "sample": first[1].result_bytes + 2 * len(first[1].chosen) * point_bytes(profile)},
            arrays=[
                HeldArray("anchors", "2 m d", first="anchors"),
                HeldArray("sample and standardised copies of it", "sample", "V1", first="anchors", last="anchors"),
                HeldArray("k-means", "4 m d", first="anchors", last="anchors"),
                HeldArray("sums of anchors", "2 m d", first="scores"),
                HeldArray("moments and scores", "8 d", first="anchors"),
            ],
            loads_sklearn=True,
            notes=[f"{m} anchors"],
        )

    def _score(self, passes: PassRunner, k: int) -> Scores:
        profile = passes.source.profile
        moments, sample = passes.run(FIRST, *self._first_statistics(profile))
        self._refuse_broken_features(moments.mean, moments.m2)
        self._refuse_lost_digits(profile, moments.mean, moments.m2)
        scaling = standard_scaling(moments)
        points = standardised_points(sample.X, scaling)
        m = self._count_anchors(profile)
        anchors = anchors_of_points(points, m, scaling, self.anchor_neighbors, self._seed)
        del sample, points
        (sums,) = passes.run(ROWS, AnchorSums(anchors, moments.mean))
        # f'Sf = Σ_a (Z'f)_a² / λ_a, and the degrees of S are 1.
        near = np.divide(1.0, sums.masses, out=np.zeros_like(sums.masses), where=sums.masses > 0)
        smooth = np.einsum("ad,a,ad->d", sums.ZX, near, sums.ZX)
        scores = np.divide(smooth, moments.m2, out=np.zeros_like(smooth), where=moments.m2 > 0)
        constant, d = int(np.count_nonzero(moments.m2 == 0)), profile.d
        warnings = (
            [uninformative_warning(self.method, constant=d, d=d, constant_labels=-1, q=0)] if constant == d else []
        )
        return Scores(scores, extra={"anchors": anchors.count, "constant_features": constant}, warnings=warnings)
