"""Chunks of an array at a URL, requested before they are needed.

An object store takes tens of milliseconds to answer, however few bytes are asked for, and answers many requests at a
time. So several chunks are on the way while earlier ones are worked on, and the index of a shard while the one before
it is read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime

_Index = TypeVar("_Index")


class ChunksAhead(Generic[_Index]):
    """Chunks of one array in the order in which they are read.

    Parameters
    ----------
    chunks_per_shard : int
    read_index : callable
        Shard -> its index, by a request.
    read_chunk : callable
        (index, shard, chunk) -> the bytes of a chunk, by a request; None where it is not stored. The index may still be
        on its way.
    requests : int
        Chunks that are on the way or waiting at a time.
    """

    def __init__(
        self,
        chunks_per_shard: int,
        read_index: Callable[[int], _Index],
        read_chunk: Callable[[Future[_Index], int, int], NDArray[np.uint8] | None],
        requests: int,
    ) -> None:
        self._per_shard = chunks_per_shard
        self._read_index = read_index
        self._read_chunk = read_chunk
        self._requests = requests
        # One more for the index of the next shard. Threads are started as they are needed.
        self._pool = runtime.ThreadPool(requests + 1, thread_name_prefix="mlfs-ahead")
        self._indexes: dict[int, Future[_Index]] = {}
        self._ahead: deque[Future[NDArray[np.uint8] | None]] = deque()
        self._next = self._last = 0

    @property
    def coming(self) -> int:
        """Number of the chunk that `take` gives, counted over all shards; -1 where none is expected."""
        return self._next - len(self._ahead) if self._ahead else -1

    def expect(self, first: int, last: int) -> None:
        """Chunks first..last-1 will be taken in this order."""
        for future in self._ahead:
            future.cancel()
        self._ahead.clear()
        self._next, self._last = first, last
        self._request()

    def take(self) -> NDArray[np.uint8] | None:
        """The next chunk; one more is requested in its place."""
        content = self._ahead.popleft().result()
        self._request()
        return content

    def close(self) -> None:
        """Request nothing more, and wait for what is on the way."""
        self._pool.shutdown(wait=True, cancel_futures=True)

    def _request(self) -> None:
        while len(self._ahead) < self._requests and self._next < self._last:
            shard, chunk = divmod(self._next, self._per_shard)
            # Handed out before the chunks that wait for it, so that a thread has it.
            index = self._index(shard)
            self._ahead.append(self._pool.submit(self._read_chunk, index, shard, chunk))
            if (shard + 1) * self._per_shard < self._last:
                self._index(shard + 1)
            self._next += 1

    def _index(self, shard: int) -> Future[_Index]:
        if shard not in self._indexes:
            self._indexes = {known: index for known, index in self._indexes.items() if known == shard - 1}
            self._indexes[shard] = self._pool.submit(self._read_index, shard)
        return self._indexes[shard]
