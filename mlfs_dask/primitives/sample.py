"""A uniform sample of rows, drawn by row index: the sketch from which quantile edges come.

Which rows are drawn is settled before the pass from the seed and n alone, so the sketch, and every edge made from
it, is the same for any chunking and any number of workers. Sketches of disjoint rows merge by addition.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.primitives.passes import State
from mlfs_dask.typing import Block, Profile

#: Rows of a sample: the share of rows below an edge is then right within 0.4 % (one standard error).
SAMPLE_ROWS = 16384

#: Bytes of a sample; fewer rows are drawn when features are many.
SAMPLE_BYTES = 256 * 2**20

#: Never fewer rows than this.
FEWEST_ROWS = 256


def draw_rows(n: int, d: int, seed: int | None) -> NDArray[np.int64]:
    """Ascending indices of the sampled rows; all of them when n is small.

    >>> draw_rows(3, 1, 0)
    array([0, 1, 2])
    """
    m = max(FEWEST_ROWS, min(SAMPLE_ROWS, SAMPLE_BYTES // (8 * max(d, 1))))
    if n <= m:
        return np.arange(n)
    chosen = np.random.default_rng(seed).choice(n, size=m, replace=False)
    return np.sort(chosen).astype(np.int64)


@dataclass(frozen=True)
class RowSample:
    """The values of chosen rows.

    Parameters
    ----------
    chosen : int64 array, shape (m,)
        Ascending row indices.
    d : int
    """

    chosen: NDArray[np.int64]
    d: int

    @property
    def state_bytes(self) -> int:
        return 8 * len(self.chosen) * self.d

    @property
    def result_bytes(self) -> int:
        return self.state_bytes

    def scratch_bytes(self, profile: Profile) -> int:
        share = len(self.chosen) / max(profile.n, 1)
        return 8 * self.d * (1 + int(2 * share * profile.block_rows))

    def zero(self) -> State:
        return (np.zeros((len(self.chosen), self.d)),)

    def add(self, state: State, block: Block) -> None:
        low, high = np.searchsorted(self.chosen, (block.start, block.start + block.X.shape[0]))
        picked = block.X[self.chosen[low:high] - block.start]
        state[0][low:high] = picked.toarray() if sp.issparse(picked) else picked

    def merge(self, into: State, other: State) -> None:
        np.add(into[0], other[0], out=into[0])

    def finalize(self, state: State) -> NDArray[np.float64]:
        """(m, d) values of the chosen rows."""
        return state[0]
