"""Rows that are found block by block and written by the process that has them: nothing of them reaches the driver."""

from __future__ import annotations

from typing import Protocol

import numpy as np
from scipy import sparse as sp

from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.errors import DataError
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.typing import Array


class BlockLabels(Protocol):
    """Labels of the rows of a block, from parameters that were learnt."""

    @property
    def compiled(self) -> bool | None: ...

    @property
    def parameter_bytes(self) -> int: ...

    def scratch_bytes(self, profile: Profile) -> int: ...

    def labels(self, block: Block) -> Array:
        """Return shape (rows, q)."""


class RowSink(Protocol):
    """Destination of rows: a store of labels (`mlfs_dask.storage.labels_store`), or an array."""

    @property
    def shape(self) -> tuple[int, int]: ...

    @property
    def chunk_rows(self) -> int:
        """Rows of a chunk, which is written whole by one process."""

    def write(self, start: int, values: Array) -> None:
        """Write whole chunks that begin with row `start`."""


class WriteLabels(Statistic):
    """Statistic without a result: labels of all rows, written chunk by chunk.

    A state holds, by chunk, the rows of chunks of which others have the rest: two at most after a run of partitions.

    Parameters
    ----------
    rule : BlockLabels
    sink : RowSink
    """

    result_bytes = 0

    def __init__(self, rule: BlockLabels, sink: RowSink) -> None:
        self.rule = rule
        self.sink = sink
        self.compiled = rule.compiled

    @property
    def state_bytes(self) -> int:
        return 3 * 8 * self.sink.chunk_rows * self.sink.shape[1]

    def scratch_bytes(self, profile: Profile) -> int:
        return self.rule.scratch_bytes(profile) + 24 * profile.block_rows * self.sink.shape[1]

    def zero(self) -> State:
        return {}

    def add(self, state: State, block: Block) -> None:
        if not np.isfinite(block.X.data if sp.issparse(block.X) else block.X).all():
            raise DataError(
                f"X contains NaN or infinity in rows {block.start} to {block.start + block.X.shape[0] - 1}, counted "
                "from 0, of which labels are to be recovered",
                cure="fill missing values before, or leave such rows out",
            )
        values, size = self.rule.labels(block), self.sink.chunk_rows
        start, stop = block.start, block.start + len(values)
        # Whole chunks from row `first` up to row `last`; what lies before and behind belongs to one chunk each.
        first, last = -(-start // size) * size, stop // size * size
        if start == stop:
            return
        if first > last:  # the block lies inside one chunk
            self._keep(state, start, values)
            return
        if first < last:
            self.sink.write(first, values[first - start : last - start])
        if start < first:
            self._keep(state, start, values[: first - start])
        if last < stop:
            self._keep(state, last, values[last - start :])

    def _keep(self, state: State, start: int, values: Array) -> None:
        """Add rows of one chunk to a state; write the chunk if they were the last that it waited for."""
        size, n = self.sink.chunk_rows, self.sink.shape[0]
        chunk = start // size
        pieces = state.setdefault(chunk, {})
        pieces[start] = values.copy()
        low = chunk * size
        if sum(map(len, pieces.values())) == min(size, n - low):
            self.sink.write(low, np.concatenate([pieces[begin] for begin in sorted(pieces)]))
            del state[chunk]

    def merge(self, into: State, other: State) -> None:
        for pieces in other.values():
            for start, values in pieces.items():
                self._keep(into, start, values)

    def finalize(self, state: State) -> None:
        assert not state, "rows of chunks are missing"


class UnwrittenRows:
    """Rows that go nowhere: of a plan, in which sizes alone matter.

    Parameters
    ----------
    shape : (int, int)
    chunk_rows : int
    """

    def __init__(self, shape: tuple[int, int], chunk_rows: int) -> None:
        self.shape = shape
        self.chunk_rows = chunk_rows

    def write(self, start: int, values: Array) -> None:
        """Discard rows."""


class ArraySink:
    """An array of this process.

    Parameters
    ----------
    n, q : int

    Attributes
    ----------
    values : float64 array, shape (n, q)
    """

    chunk_rows = 1

    def __init__(self, n: int, q: int) -> None:
        self.shape = n, q
        self.values: Array = np.empty((n, q))

    def write(self, start: int, values: Array) -> None:
        """Copy rows."""
        self.values[start : start + len(values)] = values
