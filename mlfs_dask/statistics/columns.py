"""Statistics of chosen features, for methods that form d × d terms for the best of many features."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.sparse import columns_of_block
from mlfs_dask.engine.statistic import PartStatistic, Statistic
from mlfs_dask.rows.contract import Block, Profile


@dataclass(frozen=True)
class OfFeatures(PartStatistic):
    """Statistic: another one, of some features.

    Parameters
    ----------
    statistic : Statistic
        Of as many features as there are columns.
    columns : int array, shape (m,)
        Rising.

    Examples
    --------
    >>> from scipy import sparse as sp
    >>> from mlfs_dask.statistics.moments import Moments
    >>> moments = OfFeatures(Moments(1), np.array([1]))
    >>> state = moments.zero()
    >>> moments.add(state, Block(0, np.array([[9.0, 1.0], [9.0, 3.0]]), sp.csr_array((2, 1), dtype=np.int8)))
    >>> moments.finalize(state).mean
    array([2.])
    """

    statistic: Statistic
    columns: NDArray[np.intp]

    def finishing_bytes(self, profile: Profile) -> int:
        return self.statistic.finishing_bytes(replace(profile, d=len(self.columns)))

    def scratch_bytes(self, profile: Profile) -> int:
        m = len(self.columns)
        share = 1.0 if profile.sparse else m / max(profile.d, 1)  # a few columns may hold all that is stored
        own = replace(
            profile,
            d=m,
            nonzeros=int(profile.nonzeros * share),
            block_bytes=int(profile.block_bytes * share),
        )
        return own.block_bytes + self.statistic.scratch_bytes(own)

    def part_of(self, block: Block) -> Block:
        return block._replace(X=columns_of_block(block.X, self.columns))
