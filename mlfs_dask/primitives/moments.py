"""Mean and variance of every feature in one pass."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.moments import ColumnMoments, add_zeros, merge_moments, moments_block
from mlfs_dask.typing import Block, Profile

_State = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]


@dataclass(frozen=True)
class FeatureMoments:
    """Moments of every feature over all rows.

    Attributes
    ----------
    n : int
        Rows.
    mean : float64 array, shape (d,)
    m2 : float64 array, shape (d,)
        Sum of squared deviations; exactly 0 for a constant feature, NaN where a value is NaN or infinite.
    """

    n: int
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]

    @property
    def std(self) -> NDArray[np.float64]:
        """Population standard deviation, shape (d,)."""
        return np.sqrt(self.m2 / max(self.n, 1))


class Moments:
    """Statistic: `FeatureMoments` of X.

    Parameters
    ----------
    n_features : int
    """

    def __init__(self, n_features: int) -> None:
        self.n_features = n_features

    @property
    def state_bytes(self) -> int:
        return 8 + 24 * self.n_features

    @property
    def result_bytes(self) -> int:
        return 24 * self.n_features

    def scratch_bytes(self, profile: Profile) -> int:
        return moments_scratch_bytes(profile)

    def zero(self) -> _State:
        d = self.n_features
        return np.zeros(1, np.int64), np.zeros(d, np.int64), np.zeros(d), np.zeros(d)

    def add(self, state: _State, block: Block) -> None:
        state[0][0] += block.X.shape[0]
        merge_moments(ColumnMoments(*state[1:]), moments_block(block.X))

    def merge(self, into: _State, other: _State) -> None:
        into[0][0] += other[0][0]
        merge_moments(ColumnMoments(*into[1:]), ColumnMoments(*other[1:]))

    def finalize(self, state: _State) -> FeatureMoments:
        n = int(state[0][0])
        _, mean, m2 = add_zeros(ColumnMoments(*state[1:]), n)
        return FeatureMoments(n, mean, m2)


def moments_scratch_bytes(profile: Profile) -> int:
    """Bytes of temporaries of `moments_block` on the largest block, merging included."""
    if profile.sparse:
        # Deviations and their squares of the stored values, and indices as bincount takes them (int64).
        stored = min(profile.block_bytes // profile.itemsize, profile.nonzeros)
        return 32 * stored + 64 * profile.d
    return 8 * profile.block_rows * profile.d + 64 * profile.d
