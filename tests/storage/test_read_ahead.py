"""Chunks are requested before they are needed, some at a time, in the order in which they are taken."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future

import numpy as np
import pytest

from mlfs_dask.storage.read_ahead import Chunk, ChunksAhead, Window

Make = Callable[..., ChunksAhead[int]]

#: Seconds after which what should happen at the same time does not.
NEVER = 20


@pytest.fixture
def ahead() -> Iterator[Make]:
    """Shards of 4 chunks; the index of a shard is its number."""
    made: list[ChunksAhead[int]] = []

    def make(
        read_chunks: Callable[[Future[int], int, int, int], list[Chunk]],
        requests: int,
        chunks: int = 1,
        read_index: Callable[[int], int] = lambda shard: shard,
    ) -> ChunksAhead[int]:
        made.append(ChunksAhead(4, read_index, read_chunks, Window(requests, chunks)))
        return made[-1]

    yield make
    for each in made:
        each.close()


def numbers_of(index: Future[int], shard: int, first: int, last: int) -> list[Chunk]:
    return [np.array([index.result() * 4 + chunk]) for chunk in range(first, last)]


@pytest.mark.parametrize("together", [1, 3])
def test_chunks_come_in_their_order(ahead: Make, together: int) -> None:
    chunks = ahead(numbers_of, 3, together)
    assert chunks.coming == -1
    chunks.expect(2, 11)
    for number in range(2, 11):
        assert chunks.coming == number
        assert chunks.take() == [number]
    assert chunks.coming == -1
    chunks.expect(9, 11)
    assert chunks.take() == [9]
    chunks.expect(1, 3)  # another place, with a chunk still on its way
    assert [chunks.take(), chunks.take()] == [[1], [2]]


def test_requests_overlap_and_are_bounded(ahead: Make) -> None:
    together = threading.Barrier(3)
    requested = []

    def read(index: Future[int], shard: int, first: int, last: int) -> list[Chunk]:
        requested.append((shard, first))
        together.wait(NEVER)
        return numbers_of(index, shard, first, last)

    chunks = ahead(read, 3)
    chunks.expect(0, 9)
    assert chunks._ahead[-1].result(NEVER) == [[2]]
    assert sorted(requested) == [(0, 0), (0, 1), (0, 2)], "no more than that until one is taken"
    for number in range(9):
        assert chunks.take() == [number]
    assert len(requested) == 9


def test_a_request_that_fails_fails_where_its_chunk_is_taken(ahead: Make) -> None:
    def read(index: Future[int], shard: int, first: int, last: int) -> list[Chunk]:
        if first == 2:
            raise OSError("no answer")
        return [np.array([first]), ValueError("it is damaged")]

    chunks = ahead(read, 3, 2)
    chunks.expect(0, 4)
    assert chunks.take() == [0]
    with pytest.raises(ValueError, match="it is damaged"):
        chunks.take()
    with pytest.raises(OSError, match="no answer"):
        chunks.take()
