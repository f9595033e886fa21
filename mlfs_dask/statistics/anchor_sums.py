"""Z'X and Z'1 of an anchor graph in one reading, from which X'SX = (Z'X)'Λ⁻¹Z'X follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.anchors import Anchors, weigh_scratch_bytes
from mlfs_dask.blocks.linear import group_scratch_bytes, group_values, grouped_block, row_groups
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile

Array = NDArray[np.float64]


class AnchorTotals(NamedTuple):
    """Sums over all rows, Z holding their weights of anchors.

    Attributes
    ----------
    ZX : float64 array, shape (m, d)
        Z'(X − centre).
    masses : float64 array, shape (m,)
        λ = Z'1.
    """

    ZX: Array
    masses: Array


@dataclass(frozen=True)
class AnchorSums(Statistic):
    """Statistic: `AnchorTotals`.

    Parameters
    ----------
    anchors : Anchors
    centre : float64 array, shape (d,)
    """

    anchors: Anchors
    centre: Array

    compiled = True

    @property
    def state_bytes(self) -> int:
        m, d = self.anchors.centres.shape
        return int(8 * m * (d + 1))

    @property
    def parameter_bytes(self) -> int:
        return int(self.anchors.nbytes + self.centre.nbytes)

    def scratch_bytes(self, profile: Profile) -> int:
        m, d = self.anchors.centres.shape
        # Products with a block are matrices of their own before they are added.
        own: int = 8 * m * d + (12 * min(m * d, 3 * group_values(profile)) if profile.sparse else 0)
        return group_scratch_bytes(profile, 1) + weigh_scratch_bytes(profile, d, m, self.anchors.neighbors) + own

    def zero(self) -> State:
        m, d = self.anchors.centres.shape
        return np.zeros((m, d)), np.zeros(m)

    def add(self, state: State, block: Block) -> None:
        sums = AnchorTotals(*state)
        for part in row_groups(block.X.shape[0]):
            X = block.X[part]
            Z = self.anchors.weigh(X)
            grouped_block(X, Z, self.centre, sums.ZX)
            sums.masses[...] += np.asarray(Z.sum(axis=0)).ravel()

    def finalize(self, state: State) -> AnchorTotals:
        return AnchorTotals(*state)
