"""A uniform sample of rows, drawn by row index: the sketch from which quantile edges, anchors and forests come.

Which rows are drawn is settled before the pass from the seed and n alone, so the sketch is the same for any chunking
and any number of workers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.row_draws import SAMPLE_BYTES, draw_row_numbers
from mlfs_dask.engine.statistic import Arrays, State, Statistic
from mlfs_dask.rows.contract import Block, Profile, stack_labels
from mlfs_dask.typing import Matrix


def row_bytes(profile: Profile) -> int:
    """Return bytes of a sampled row of X, on average."""
    if profile.sparse:
        return (profile.itemsize + 4) * -(-profile.nonzeros // max(profile.n, 1)) + 8
    return profile.itemsize * profile.d


def draw_rows(profile: Profile, n_rows: int, seed: int | None, *, max_bytes: int = SAMPLE_BYTES) -> NDArray[np.int64]:
    """Return ascending indices of the sampled rows; all of them when n is small.

    Parameters
    ----------
    profile : Profile
    n_rows : int
        Rows of the sample, where `max_bytes` hold as many; never fewer than `FEWEST_ROWS`.
    seed : int or None
    max_bytes : int
    """
    return draw_row_numbers(profile.n, n_rows, seed, row_bytes=row_bytes(profile), max_bytes=max_bytes)


class SampledRows(NamedTuple):
    """Rows of a sample, in the order of their indices: X (m, d), as the source has it, and Y (m, q) as in blocks."""

    X: Matrix
    Y: Any


@dataclass(frozen=True)
class RowSample(Statistic):
    """Statistic: `SampledRows` of chosen rows.

    Its states are lists of pieces, which a merge puts together.

    Parameters
    ----------
    chosen : int64 array, shape (m,)
        Ascending row indices.
    profile : Profile
    """

    chosen: NDArray[np.int64]
    profile: Profile

    kind = "rows"

    @property
    def state_bytes(self) -> int:
        return len(self.chosen) * (row_bytes(self.profile) + 16)

    def scratch_bytes(self, profile: Profile) -> int:
        return 0

    def zero(self) -> State:
        return []

    def add(self, state: State, block: Block) -> None:
        low, high = np.searchsorted(self.chosen, (block.start, block.start + block.X.shape[0]))
        if high > low:
            inside = self.chosen[low:high] - block.start
            # Indexed by an array, rows are copied: a block is a view of a buffer that the next one overwrites.
            state.append((int(low), block.X[inside], block.Y[inside]))

    def merge(self, into: State, other: State) -> None:
        into.extend(other)

    def finalize(self, state: State) -> SampledRows:
        pieces = sorted(state, key=lambda piece: int(piece[0]))
        if len(pieces) == 1:
            return SampledRows(*pieces[0][1:])
        Y = stack_labels([Y for _, _, Y in pieces], self.profile.q, numeric=self.profile.numeric)
        rows = [X for _, X, _ in pieces]
        if any(sp.issparse(X) for X in rows):
            joined = sp.csr_array(sp.vstack(rows, format="csr"))
            joined.sort_indices()
            return SampledRows(joined, Y)
        return SampledRows(np.concatenate(rows), Y)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"chosen": self.chosen, "features": self.profile.d}

    @property
    def copied_bytes(self) -> int:
        return self.state_bytes

    def state_arrays(self, state: State) -> Arrays:
        result = self.finalize(state)
        arrays = _matrix_to_arrays("X", result.X) | _matrix_to_arrays("Y", result.Y)
        return {name: np.asarray(array) for name, array in arrays.items()}

    def state_of(self, arrays: Arrays) -> State:
        m, profile = len(self.chosen), self.profile
        X, Y = (_matrix_of(name, arrays, (m, size)) for name, size in (("X", profile.d), ("Y", profile.q)))
        return [(0, X, Y)]


def _matrix_to_arrays(name: str, matrix: Matrix) -> dict[str, NDArray[Any]]:
    if isinstance(matrix, np.ndarray):
        return {name: matrix}
    return {f"{name}-data": matrix.data, f"{name}-indices": matrix.indices, f"{name}-indptr": matrix.indptr}


def _matrix_of(name: str, arrays: Arrays, shape: tuple[int, int]) -> Matrix:
    if name in arrays:
        return arrays[name]
    return sp.csr_array(tuple(arrays[f"{name}-{part}"] for part in ("data", "indices", "indptr")), shape=shape)
