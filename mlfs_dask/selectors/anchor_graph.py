"""Anchors of a method: among which rows they are placed, how many, and what that takes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.anchors import ROWS_PER_ANCHOR, Anchors, count_anchors, place_anchors
from mlfs_dask.blocks.forest import SAMPLE_BYTES
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.loop import placeholder
from mlfs_dask.statistics.sample import RowSample, draw_rows
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Matrix, numbers


@dataclass(frozen=True)
class AnchorGraph:
    """Anchors by k-means among standardised rows of a sample, before any row is read.

    Parameters
    ----------
    profile : Profile
        Of the rows.
    count : int
        Anchors for which the sample is drawn; at most as many are placed.
    neighbors : int
        Nearest anchors that a row belongs to.
    seed : int
    combined : bool
        As of `Anchors`.
    """

    profile: Profile
    count: int
    neighbors: int
    seed: int
    combined: bool = False

    @classmethod
    def of(cls, method: Any, profile: Profile, *, combined: bool = False) -> AnchorGraph:
        """Return the anchors of a method with `n_anchors`, `anchor_neighbors` and `random_state`."""
        count = count_anchors(method.n_anchors, profile.n, profile.d)
        return cls(profile, count, method.anchor_neighbors, method.seed, combined)

    @cached_property
    def sample(self) -> RowSample:
        """Statistic: the rows among which anchors are placed."""
        chosen = draw_rows(self.profile, ROWS_PER_ANCHOR * self.count, self.seed, max_bytes=SAMPLE_BYTES)
        return RowSample(chosen, self.profile)

    @property
    def point_numbers(self) -> int:
        """Numbers of 8 bytes of the standardised rows of the sample, and of k-means' copy of them."""
        return numbers(2 * len(self.sample.chosen) * point_bytes(self.profile))

    @property
    def sample_numbers(self) -> int:
        """Numbers of 8 bytes of the sample, and of `point_numbers`."""
        return numbers(self.sample.result_bytes) + self.point_numbers

    @property
    def note(self) -> str:
        """Note about the anchors in a plan."""
        return f"{self.count} anchors"

    @property
    def placeholder(self) -> Anchors:
        """Anchors for a plan, which take no memory."""
        d = placeholder(self.profile.d)
        return Anchors(placeholder(self.count, self.profile.d), d, d, self.neighbors, combined=self.combined)

    def place(self, X: Matrix, scaling: Scaling, count: int | None = None) -> Anchors:
        """Return at most `count` anchors, by default all, among rows of the sample, shape (rows, d), as they were
        read.
        """
        points = standardised_points(X, scaling)
        with runtime.stage("placing anchors"):
            centres = place_anchors(points, min(count or self.count, points.shape[0]), self.seed)
        if sp.issparse(points):
            centres -= scaling.centre * scaling.factor
        return Anchors(centres, scaling.centre, scaling.factor, self.neighbors, combined=self.combined)


def standardised_points(X: Matrix, scaling: Scaling) -> Matrix:
    """Return the rows of a sample as `scaling` gives them: sparse where fewer than half of the values are not 0,
    else dense.

    Sparse rows are not centred. Anchors are placed in single precision, where centring changes the rounding and with it
    ties. Whether rows are sparse here depends on their values and not on how X is stored, so that dense and sparse X
    have the same anchors.
    """
    values = np.count_nonzero(X.data if sp.issparse(X) else X)
    if 2 * values < X.shape[0] * X.shape[1]:
        return scaling.apply(sp.csr_array(X))
    return scaling.apply(X.toarray() if sp.issparse(X) else X)


def point_bytes(profile: Profile) -> int:
    """Return bytes of a row of `standardised_points`, on average."""
    if not profile.sparse:
        return 8 * profile.d
    values = -(-profile.nonzeros // max(profile.n, 1))
    # A sample may have some more values a row than all rows have.
    return max(12 * values, 8 * profile.d) if 5 * values >= 2 * profile.d else 12 * values
