"""Wrapper of statistics: labelled rows only, or unknown labels at their mean."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.unknown import at_shares
from mlfs_dask.engine.statistic import Arrays, PartStatistic, State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.typing import Array


def labelled_rows(Y: sp.csr_array, *, partly: bool = False) -> NDArray[np.bool_]:
    """Return a mask of rows without an unknown label, or, if `partly`, with a known one; shape (rows,).

    >>> Y = sp.csr_array(np.array([[1, 0], [0, -1], [-1, -1]], np.int8))
    >>> labelled_rows(Y).tolist(), labelled_rows(Y, partly=True).tolist()
    ([True, False, False], [True, True, False])
    """
    if isinstance(Y, np.ndarray):
        absent = np.isnan(Y)
        return np.asarray(~(absent.all(axis=1) if partly else absent.any(axis=1)))
    n, q = Y.shape
    rows = np.searchsorted(Y.indptr, np.flatnonzero(Y.data < 0), side="right") - 1
    unknown = np.bincount(rows, minlength=n)
    return np.asarray(unknown < q if partly else unknown == 0)


@dataclass(frozen=True)
class OfLabelled(PartStatistic):
    """Statistic: another one, of the rows without an unknown label, or of those with a known one.

    Parameters
    ----------
    statistic : Statistic
    partly : bool
        Whether rows of which some labels are known count.

    Examples
    --------
    >>> from scipy import sparse as sp
    >>> from mlfs_dask.statistics.moments import Moments
    >>> moments = OfLabelled(Moments(1))
    >>> state = moments.zero()
    >>> moments.add(state, Block(0, np.array([[1.0], [9.0]]), sp.csr_array(np.array([[1, 0], [0, -1]], np.int8))))
    >>> moments.finalize(state).mean
    array([1.])
    """

    statistic: Statistic
    partly: bool = False

    def scratch_bytes(self, profile: Profile) -> int:
        return profile.block_bytes + 16 * profile.block_rows + self.statistic.scratch_bytes(profile)

    def part_of(self, block: Block) -> Block:
        labelled = labelled_rows(block.Y, partly=self.partly)
        if labelled.all():
            return block
        return block.select_rows(np.flatnonzero(labelled))

    # The cache keeps the state of the other one, under a name of its own.

    @property
    def kind(self) -> str:  # type: ignore[override]
        return f"{'partly-' * self.partly}labelled-{self.statistic.kind}" if self.statistic.keeps == "state" else ""

    @property
    def parameters(self) -> Mapping[str, Any]:
        return self.statistic.parameters

    @property
    def result_parameters(self) -> Mapping[str, Any]:
        return self.statistic.result_parameters

    @property
    def copied_bytes(self) -> int:
        return self.statistic.copied_bytes

    def state_arrays(self, state: State) -> Arrays:
        return self.statistic.state_arrays(state)

    def state_of(self, arrays: Arrays) -> State:
        return self.statistic.state_of(arrays)

    def extend_state(self, kept: State, added: State) -> State:
        return self.statistic.extend_state(kept, added)


@dataclass(frozen=True)
class AtShares(PartStatistic):
    """Statistic: another one, of the rows with a share of its label in the place of every unknown entry.

    Parameters
    ----------
    statistic : Statistic
        One that takes Y as numbers: of a block without unknown entries they are int8, else float64.
    shares : float64 array, shape (q,)
    """

    statistic: Statistic
    shares: Array

    def scratch_bytes(self, profile: Profile) -> int:
        return 24 * profile.labels_of_row * profile.block_rows + self.statistic.scratch_bytes(profile)

    def part_of(self, block: Block) -> Block:
        return block._replace(Y=at_shares(block.Y, self.shares))
