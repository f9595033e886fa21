"""Rows that are written where they are found: whole chunks, each once, for any cut of the rows and order of merges."""

from __future__ import annotations

import copy
import itertools
from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.rows.contract import Block
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.write_rows import ArraySink, WriteLabels

HERE = Resources(1, 1, 2**33, 2**33)


@dataclass(frozen=True)
class LikeX:
    """The labels of a row are its features, in the very buffer that the next block overwrites."""

    compiled = False
    parameter_bytes = 5

    def scratch_bytes(self, profile):
        return 7

    def labels(self, block):
        return block.X


class ChunkSink(ArraySink):
    """An array that takes whole chunks alone, and counts how often each is written."""

    def __init__(self, n, q, chunk_rows):
        super().__init__(n, q)
        self.chunk_rows = chunk_rows
        self.values[:] = np.nan
        self.times = np.zeros(-(-n // chunk_rows), int)

    def write(self, start, values):
        stop = start + len(values)
        assert start % self.chunk_rows == 0
        assert start < stop
        assert stop % self.chunk_rows == 0 or stop == self.shape[0]
        super().write(start, values)
        self.times[start // self.chunk_rows : -(-stop // self.chunk_rows)] += 1


def cuts_of(data, low, high, most):
    """Ascending bounds of parts from `low` to `high`, of which some may be empty."""
    return [low, *sorted(data.draw(st.lists(st.integers(low, high), max_size=most))), high]


@settings(max_examples=120)
@given(st.data())
def test_each_chunk_is_written_once_for_any_cut_and_order_of_merges(data):
    n, q = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    X = np.arange(n * q, dtype=float).reshape(n, q)
    sink = ChunkSink(n, q, data.draw(st.integers(1, 50)))
    statistic = WriteLabels(LikeX(), sink)

    def run(low, high):
        state = statistic.zero()
        bounds = cuts_of(data, low, high, 5)
        for start, stop in itertools.pairwise(bounds):
            buffer = X[start:stop].copy()
            statistic.add(state, Block(start, buffer, as_labels(np.zeros((stop - start, q), np.int8))))
            buffer[:] = np.nan  # the next block overwrites it
        return state

    bounds = cuts_of(data, 0, n, 6)
    states, again = [], False
    for low, high in itertools.pairwise(bounds):
        states.append(run(low, high))
        if data.draw(st.integers(0, 9)) == 0:  # the worker was lost with what it held, and another one starts anew
            states[-1], again = run(low, high), True
    while len(states) > 1:
        into = copy.deepcopy(states.pop(data.draw(st.integers(0, len(states) - 1))))
        other = states.pop(data.draw(st.integers(0, len(states) - 1)))
        before = copy.deepcopy(other)
        statistic.merge(into, other)
        np.testing.assert_equal(other, before)
        states.append(into)
    assert statistic.finalize(states[0]) is None
    assert np.array_equal(sink.values, X)
    assert (sink.times == 1).all() or (again and (sink.times >= 1).all())


def test_a_row_that_is_missing_is_no_success():
    sink = ChunkSink(10, 1, 4)
    statistic, state = WriteLabels(LikeX(), sink), {}
    for start, stop in ((0, 5), (6, 10)):
        statistic.add(state, Block(start, np.ones((stop - start, 1)), sp.csr_array((stop - start, 1), dtype=np.int8)))
    assert sink.times.tolist() == [1, 0, 1]
    with pytest.raises(AssertionError, match="rows of chunks are missing"):
        statistic.finalize(state)


def test_what_is_held_is_planned():
    """Rows before the first whole chunk of a run and behind its last one: less than two chunks, and one as written."""
    sink = ChunkSink(1000, 4, 50)
    statistic, state = WriteLabels(LikeX(), sink), {}
    profile = ArrayRows(np.ones((1000, 4)), as_labels(np.zeros((1000, 4), np.int8))).profile
    for start in range(130, 870, 20):
        statistic.add(state, Block(start, np.ones((20, 4)), sp.csr_array((20, 4), dtype=np.int8)))
        held = sum(values.nbytes for pieces in state.values() for values in pieces.values())
        assert held <= statistic.state_bytes == 3 * 8 * 50 * 4
    assert sorted(state) == [2, 17]
    assert statistic.result_bytes == 0
    assert statistic.parameter_bytes == 5
    assert statistic.scratch_bytes(profile) == 7 + 24 * profile.block_rows * 4
