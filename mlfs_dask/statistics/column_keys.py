"""Features that are equal in every row, for data of any size."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.column_keys import column_keys_block
from mlfs_dask.blocks.linear import tile_rows
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile


@dataclass(frozen=True)
class ColumnKeys(Statistic):
    """Statistic: keys of features, uint64 of shape (d,); those that are equal in every row have the same key.

    A key is a sum over the rows, modulo 2⁶⁴, of what mixes a value with the index of its row: blocks may come in any
    order, and features that differ have different keys but for one pair in 2⁶⁴.

    Parameters
    ----------
    n_features : int

    Examples
    --------
    >>> from scipy import sparse as sp
    >>> keys = ColumnKeys(3)
    >>> state = keys.zero()
    >>> keys.add(state, Block(0, np.array([[1.0, 0.0, 1.0], [0.0, 1.0, 0.0]]), sp.csr_array((2, 1), dtype=np.int8)))
    >>> np.unique(keys.finalize(state), return_counts=True)[1].tolist()
    [1, 2]
    """

    n_features: int

    kind = "column-keys"
    state_names = ("keys",)

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return ((self.n_features,),)

    def scratch_bytes(self, profile: Profile) -> int:
        # Numbers, their sums with keys, and three of the mixing, of the stored values or of a tile of dense rows.
        mixed = profile.block_values if profile.sparse else min(profile.block_rows, tile_rows(profile.d)) * profile.d
        return 56 * mixed + 24 * (profile.block_rows + profile.d)

    def zero(self) -> State:
        return (np.zeros(self.n_features, np.uint64),)

    def add(self, state: State, block: Block) -> None:
        np.add(state[0], column_keys_block(block.X, block.start), out=state[0])

    def finalize(self, state: State) -> NDArray[np.uint64]:
        keys: NDArray[np.uint64] = state[0]
        return keys
