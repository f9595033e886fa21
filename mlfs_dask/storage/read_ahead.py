"""Chunks of an array at a URL, requested before they are needed.

An object store takes tens of milliseconds to answer, however few bytes are asked for, and answers many requests at a
time. So several requests, each for neighbouring chunks, are on the way while earlier chunks are worked on, and the
index of a shard is while the one before it is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime

_Index = TypeVar("_Index")

#: The bytes of a chunk, None where it is not stored, or what is wrong with it.
Chunk = NDArray[np.uint8] | Exception | None


class Window(NamedTuple):
    """Amount of an array that is requested ahead.

    Attributes
    ----------
    requests : int
    chunks : int
        Of one request, at most: it covers chunks of one shard.
    """

    requests: int
    chunks: int = 1


class ChunksAhead(Generic[_Index]):
    """Chunks of one array in the order in which they are read.

    Parameters
    ----------
    chunks_per_shard : int
    read_index : callable
        Shard -> its index, by a request.
    read_chunks : callable
        (index, shard, first, last) -> chunks first..last-1 of a shard, by a request. The index may still be on its way.
    window : Window
    """

    def __init__(
        self,
        chunks_per_shard: int,
        read_index: Callable[[int], _Index],
        read_chunks: Callable[[Future[_Index], int, int, int], list[Chunk]],
        window: Window,
    ) -> None:
        self._per_shard = chunks_per_shard
        self._read_index = read_index
        self._read_chunks = read_chunks
        self._window = window
        # One more for the index of the next shard. Threads are started as they are needed.
        self._pool = runtime.TaskThreads(window.requests + 1, "mlfs-ahead")
        self._indexes: dict[int, Future[_Index]] = {}
        self._ahead: deque[Future[list[Chunk]]] = deque()
        self._here: deque[Chunk] = deque()
        self._coming = self._next = self._last = 0

    @property
    def coming(self) -> int:
        """Number of the chunk that `take` gives, counted over all shards; -1 where none is expected."""
        return self._coming if self._coming < self._last else -1

    def expect(self, first: int, last: int) -> None:
        """Announce that chunks first..last-1 will be taken in this order."""
        for future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self._here.clear()
        self._coming, self._next, self._last = first, first, last
        self._request()

    def take(self) -> NDArray[np.uint8] | None:
        """Return the next chunk, None where it is not stored; for those that have come, others are requested.

        Raises
        ------
        Exception
            What is wrong with this chunk, or with the request for it.
        """
        if not self._here:
            self._here.extend(self._ahead.popleft().result())
            self._request()
        self._coming += 1
        chunk = self._here.popleft()
        if isinstance(chunk, Exception):
            raise chunk
        return chunk

    def close(self) -> None:
        """Request nothing more, also nothing again, and wait for what is on the way."""
        self._pool.stop()

    def _request(self) -> None:
        while len(self._ahead) < self._window.requests and self._next < self._last:
            shard, first = divmod(self._next, self._per_shard)
            last = min(first + self._window.chunks, self._per_shard, first + self._last - self._next)
            # Handed out before the chunks that wait for it, so that a thread has it.
            index = self._index(shard)
            self._ahead.append(self._pool.submit(self._read_chunks, index, shard, first, last))
            if (shard + 1) * self._per_shard < self._last:
                self._index(shard + 1)
            self._next += last - first

    def _index(self, shard: int) -> Future[_Index]:
        if shard not in self._indexes:
            self._indexes = {known: index for known, index in self._indexes.items() if known == shard - 1}
            self._indexes[shard] = self._pool.submit(self._read_index, shard)
        return self._indexes[shard]
