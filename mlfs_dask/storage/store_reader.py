"""Rows of a store, streamed: the source that passes read from.

A run of partitions is read block by block into two buffers that are filled in turn: while the kernels work on one,
a thread of its own fills the other. Shards are read at the offsets their index gives: uncompressed ones of a local
store straight into the buffer, those of a remote one by requests for neighbouring chunks that come some time later
(`read_ahead`). Of a shard of a local store the system is told as it is opened, unless it lies in the page cache: then
an uncompressed chunk of a dense X takes the place of a buffer (`files.page_cache`), for as long: mapped pages count
against a worker's limit. Nothing is kept between runs.

What a store declares is checked before anything is allocated for it, and a chunk is unpacked into a buffer of the size
that it has to have, never into whatever its compressed bytes say (as zarr-python does). No kernel sees what was not
checked: every chunk by its CRC-32C (where the store has them), offsets and column indices by their order and range. At
the end of a run the store's root is looked at again.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import socket
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import indices_fault, offsets_fault
from mlfs_dask.errors import DataError, StoreAccessError, StoreNotAllowedError, StoreUnavailableError
from mlfs_dask.files.access import access_error, fault_of
from mlfs_dask.files.chunk_codecs import decode
from mlfs_dask.files.object_store import ROOT_KEY, LocalFile, LocalObjects, is_url, local_path, open_objects
from mlfs_dask.files.page_cache import is_cut, map_cached, request_pages
from mlfs_dask.redaction import redact
from mlfs_dask.rows.contract import Block, FeatureInfo, Profile, RowSource
from mlfs_dask.rows.covariates import RowColumn
from mlfs_dask.storage.array_layout import CHECKSUM_BYTES, CHUNK_BYTES, ArrayLayout
from mlfs_dask.storage.digest import crc32c, root_is_intact
from mlfs_dask.storage.read_ahead import Chunk, ChunksAhead, Window
from mlfs_dask.storage.zarr_format import ABSENT

#: Bytes of X in one block, of dense X at most `CHUNK_BYTES`. Two blocks are held at a time.
BLOCK_BYTES = 16 * 2**20

#: Bytes of a chunk from which it is mapped: smaller ones are copied in less time.
MAPPED_BYTES = 2**20

#: Bytes of X that are requested from a remote store before they are needed, or two chunks if they have more: what a
#: connection of 1 GB/s carries in 50 ms (`benchmarks/latency.py`).
AHEAD_BYTES = 3 * BLOCK_BYTES

#: Requests that they are divided into, so that some are on the way while one is read from; where shards are short, and
#: requests with them, there are more.
REQUESTS, MAX_REQUESTS = 6, 16

_Range = tuple[int, int]
"""The first row or entry, and the one after the last."""

#: Of an array that is read as such: each request for one chunk.
ONE_BY_ONE = Window(MAX_REQUESTS)


class StoreLocation(NamedTuple):
    """Location of a store: a local path, or a URL with options; and the digest of its root when it was opened.

    `root_digest` is that of the root metadata as the store was opened; "" where none is known.
    """

    path: str
    options: dict[str, Any]
    root_digest: str = ""

    def __repr__(self) -> str:
        """Without secrets: workers log what a task that failed was given."""
        return f"StoreLocation({redact(self.path)!r})"

    @property
    def local(self) -> Path | None:
        """The local folder, or None for a URL of another file system."""
        return None if is_url(self.path) else local_path(self.path)

    @contextlib.contextmanager
    def reading(self) -> Iterator[None]:
        """A pass over the store, which has to be the same one at the end of it.

        Raises
        ------
        DataError
            Another one is there, which also explains what looked like damage while it was read, or none.
        """
        try:
            yield
        except DataError:
            self.require_unchanged()
            raise
        self.require_unchanged()

    def require_unchanged(self) -> None:
        """Raise DataError unless the store that was opened is still there."""
        if not self.root_digest:
            return
        root = self._root()
        if not root_is_intact(root or b"", self.root_digest):
            raise DataError(
                f"the store was {'removed' if root is None else 'replaced'} while it was read",
                file=self.path,
                cure="run the same command again, once nothing writes to the store",
            )

    def require_visible(self) -> None:
        """Raise DataError unless this process sees the store that was opened, at the same path."""
        root = self._root()
        if root is None or (self.root_digest and not root_is_intact(root, self.root_digest)):
            raise DataError(
                "there is no such store" if root is None else "another store is there",
                file=self.path,
                cure="workers read the store themselves: they need it at the same path or URL",
            )

    def _root(self) -> bytes | None:
        """Return the root metadata as they are now; None where there are none."""
        try:
            return open_objects(self.path, self.options).read(ROOT_KEY)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise access_error(self.path, error) from error

    @contextlib.contextmanager
    def partition(self, number: int, rows: tuple[int, int]) -> Iterator[None]:
        """The pass of one partition, whose number a damaged array is reported with.

        Parameters
        ----------
        number : int
        rows : (int, int)
            First row, and the row after the last.

        Raises
        ------
        DataError, StoreAccessError
        """
        where = f"in partition {number} (rows {rows[0]:,} to {rows[1] - 1:,}, counted from 0)"
        if runtime.current_worker() is not None:
            where += f", read on {socket.gethostname()}"
        try:
            yield
        except StoreAccessError as error:
            raise error.with_detail(where) from error.__cause__
        except _Damage as damage:
            raise DataError(
                f"the store is damaged: {damage}, {where}",
                file=f"{self.path}/{damage.key}",
                cure="restore a copy, or convert the sources again; `mlfs inspect --verify` lists all damage",
            ) from damage.__cause__


class _Damage(Exception):
    """Damage of an array; `StoreLocation.partition` adds the place."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(problem)
        self.key = key


class ArrayReader:
    """Reads rows of one array into buffers. An open file is kept until `close`.

    Parameters
    ----------
    location : StoreLocation
    layout : ArrayLayout
    window : Window
        What is requested of a remote store before it is needed.
    """

    def __init__(self, location: StoreLocation, layout: ArrayLayout, window: Window = ONE_BY_ONE) -> None:
        self._location = location
        self.layout = layout
        self._objects = open_objects(location.path, location.options)
        self._file: tuple[int, LocalFile] | None = None  # shard number, and its file
        self._coming = False  # whether its pages are on their way from the disk
        self._index: NDArray[np.uint64] = np.empty((0, 2), np.uint64)
        self._chunk: NDArray[np.uint8] | None = None
        self._stored: NDArray[np.uint8] | None = None
        self._in_chunk: tuple[int, int] | None = None  # shard, and the chunk of it that `_chunk` holds
        self._ahead: ChunksAhead[NDArray[np.uint64]] | None = None
        self._number = -1  # of the chunk that `_content` has
        self._content: NDArray[np.uint8] | None = None
        if not isinstance(self._objects, LocalObjects):
            chunks = layout.shard_rows // layout.chunk_rows
            self._ahead = ChunksAhead(chunks, self._request_index, self._request_chunks, window)

    def expect(self, start: int, stop: int) -> None:
        """Announce that rows start..stop-1 are read next, in this order; a remote store requests them."""
        if self._ahead is not None:
            self._ahead.expect(start // self.layout.chunk_rows, -(-stop // self.layout.chunk_rows))

    def read(self, start: int, stop: int, out: NDArray[Any]) -> None:
        """Fill `out` (stop - start rows, contiguous) with rows start..stop-1, every chunk checked by its checksum."""
        if stop <= start:
            return
        if not 0 <= start < stop <= self.layout.shape[0]:
            raise self.damage(f"entries {start} to {stop - 1} are referred to, of {self.layout.shape[0]}")
        with self._system_errors():
            view = out.reshape(-1).view(np.uint8)
            if self._ahead is not None:
                self._read_ahead(self._ahead, start, stop, view)
            else:
                self._read_direct(start, stop, view)

    @contextlib.contextmanager
    def _system_errors(self) -> Iterator[None]:
        """Tell damage from what the system or a server refuses: permission, too many open files or requests."""
        try:
            yield
        except (_Damage, StoreAccessError):
            raise
        except Exception as error:  # every file system has errors of its own
            fault = fault_of(error)
            if fault == "absent" or (fault is None and isinstance(error, OSError) and error.errno in (None, errno.EIO)):
                raise self.damage(str(error)) from error
            if fault is None and not isinstance(error, OSError):
                raise
            raise access_error(self._location.path, error) from error

    # ------------------------------------------------------------------ a local store

    def _read_direct(self, start: int, stop: int, view: NDArray[np.uint8]) -> None:
        layout = self.layout
        while start < stop:
            shard, within = divmod(start, layout.shard_rows)
            chunk, inside = divmod(within, layout.chunk_rows)
            rows = min(layout.chunk_rows - inside, stop - start)
            size = rows * layout.row_bytes
            self._open(shard)
            self._read_part(shard, chunk, inside * layout.row_bytes, view[:size])
            view = view[size:]
            start += rows

    def mapped(self, start: int, stop: int) -> NDArray[Any] | None:
        """Return rows start..stop-1 as they lie in the page cache, checked as by `read`; None where they have to be
        read.
        """
        layout = self.layout
        shard, within = divmod(start, layout.shard_rows)
        chunk, inside = divmod(within, layout.chunk_rows)
        plain = self._ahead is None and layout.compressor == "none" and layout.chunk_bytes >= MAPPED_BYTES
        if not plain or inside + stop - start > layout.chunk_rows:
            return None
        with self._system_errors():
            self._open(shard)
            place = self._place(self._index, shard, chunk)
            assert self._file is not None
            if place is None or self._coming or place[0] % layout.itemsize:
                return None
            content = map_cached(self._file[1].descriptor, place[0], place[1] + layout.checksum_bytes)
            if content is None:
                return None
            values = content[: place[1]]
            if layout.checksums and crc32c(values.data) != content[place[1] :].view("<u4")[0]:
                raise self._differs(shard, chunk)
            rows = values.view(layout.dtype).reshape(layout.chunk_rows, -1)
            return rows[inside : inside + stop - start]

    def require_whole(self, rows: NDArray[Any], start: int) -> None:
        """Raise damage if mapped rows, of which the first is `start`, were not all there."""
        if is_cut(rows):
            raise self._cut(start // self.layout.shard_rows)

    def _read_part(self, shard: int, chunk: int, begin: int, part: NDArray[np.uint8]) -> None:
        """Fill `part` with bytes of a chunk of the open shard, from byte `begin` of it on."""
        layout = self.layout
        place = self._place(self._index, shard, chunk)
        if place is None:
            part[:] = 0
        elif len(part) == layout.chunk_bytes:
            self._read_chunk(shard, chunk, place, part)
        else:
            # Blocks end within chunks; the next one takes the rest.
            if self._in_chunk != (shard, chunk):
                self._in_chunk = None
                if self._chunk is None:
                    self._chunk = _buffer(layout.chunk_bytes, "u1")
                self._read_chunk(shard, chunk, place, self._chunk)
                self._in_chunk = (shard, chunk)
            assert self._chunk is not None
            part[:] = self._chunk[begin : begin + len(part)]

    def _read_chunk(self, shard: int, chunk: int, place: tuple[int, int], out: NDArray[np.uint8]) -> None:
        """Fill `out` with a whole chunk, whose stored bytes are compared with the checksum that follows them."""
        offset, size = place
        stored = out
        if self.layout.compressor != "none":
            if self._stored is None:
                self._stored = _buffer(self.layout.max_stored_bytes, "u1")
            stored = self._stored[:size]
        # Not in pieces that stay in the processor's cache: alone that is faster, but every piece waits for the
        # interpreter's lock, and the pass takes longer.
        self._read_at(offset, stored)
        if self.layout.checksums:
            expected = np.empty(1, "<u4")
            self._read_at(offset + size, expected.view(np.uint8))
            if crc32c(stored.data) != expected[0]:
                raise self._differs(shard, chunk)
        if self.layout.compressor != "none":
            self._unpack(shard, chunk, stored, out)

    def _open(self, shard: int) -> None:
        if self._file is not None and self._file[0] == shard:
            return
        self._close_file()
        assert isinstance(self._objects, LocalObjects)
        file = self._objects.open(self.layout.shard_key(shard))
        self._file = (shard, file)
        self._coming = request_pages(file.descriptor)
        self._index = self._parse_index(shard, file.read_end(self.layout.index_bytes))

    def _read_at(self, offset: int, out: NDArray[np.uint8]) -> None:
        """Fill `out` with bytes of the open shard."""
        assert self._file is not None
        shard, file = self._file
        if not file.fill(offset, out.data):
            raise self._cut(shard)

    def _close_file(self) -> None:
        if self._file is not None:
            self._file[1].close()
        self._file = None

    # ------------------------------------------------------------------ a remote store

    def _read_ahead(
        self, ahead: ChunksAhead[NDArray[np.uint64]], start: int, stop: int, view: NDArray[np.uint8]
    ) -> None:
        layout = self.layout
        last = -(-stop // layout.chunk_rows)
        while start < stop:
            number, inside = divmod(start, layout.chunk_rows)
            rows = min(layout.chunk_rows - inside, stop - start)
            size = rows * layout.row_bytes
            # Blocks end within chunks; the next one takes the rest.
            if number != self._number:
                self._number, self._content = -1, None
                if ahead.coming != number:
                    ahead.expect(number, last)
                self._content = ahead.take()
                self._number = number
            if self._content is None:
                view[:size] = 0
            else:
                begin = inside * layout.row_bytes
                view[:size] = self._content[begin : begin + size]
            view = view[size:]
            start += rows

    def _request_index(self, shard: int) -> NDArray[np.uint64]:
        return self._parse_index(shard, bytes(self._request(shard, -self.layout.index_bytes)))

    def _request_chunks(self, index: Future[NDArray[np.uint64]], shard: int, first: int, last: int) -> list[Chunk]:
        """Return chunks first..last-1 of a shard, each compared with its checksum; what is wrong comes in its place."""
        layout = self.layout
        begin, content = first * layout.stride, memoryview(b"")
        if not index.done() and layout.compressor == "none":
            # Chunks lie one after the other in what we write. What fails now is tried again where the index says.
            try:
                content = self._request(shard, begin, last * layout.stride)
            except (StoreNotAllowedError, StoreUnavailableError):
                raise
            except Exception:
                content = memoryview(b"")
        table = index.result()
        chunks: list[Chunk] = []
        for chunk in range(first, last):
            try:
                place = self._place(table, shard, chunk)
                if place is None:
                    chunks.append(None)
                    continue
                offset, stop = place[0], sum(place) + layout.checksum_bytes
                if not begin <= offset < stop <= begin + len(content):
                    begin, content = offset, self._request(shard, offset, self._end(table, shard, chunk, last))
                chunks.append(self._values(shard, chunk, place[1], content[offset - begin : stop - begin]))
            except _Damage as damage:
                chunks.append(damage)
        return chunks

    def _end(self, index: NDArray[np.uint64], shard: int, chunk: int, last: int) -> int:
        """Return the end offset of the contiguous run of chunks that starts at `chunk`, up to `last`."""
        end = int(index[chunk][0])
        with contextlib.suppress(_Damage):  # raised again where that chunk is taken
            for number in range(chunk, last):
                place = self._place(index, shard, number)
                if place is None or place[0] != end:
                    break
                end += place[1] + self.layout.checksum_bytes
        return end

    def _values(self, shard: int, chunk: int, size: int, content: memoryview) -> NDArray[np.uint8]:
        """Return a chunk, of whose stored bytes `content` has `size`, and the checksum that follows them."""
        layout = self.layout
        if len(content) < size + layout.checksum_bytes:
            raise self._cut(shard)
        everything = np.frombuffer(content, np.uint8)
        stored = everything[:size]
        if layout.checksums and struct.pack("<I", crc32c(stored.data)) != everything[size:].tobytes():
            raise self._differs(shard, chunk)
        if layout.compressor == "none":
            return stored
        values = np.empty(layout.chunk_bytes, np.uint8)
        self._unpack(shard, chunk, stored, values)
        return values

    def _request(self, shard: int, start: int, stop: int | None = None) -> memoryview:
        assert not isinstance(self._objects, LocalObjects)
        key = self.layout.shard_key(shard)  # Zarr takes an absent one for zeros; a store of ours has them all
        try:
            return memoryview(self._objects.read_range(key, start, stop))
        except FileNotFoundError:
            raise self.damage(f"{key} is missing") from None

    # ------------------------------------------------------------------ either

    def _parse_index(self, shard: int, footer: bytes) -> NDArray[np.uint64]:
        """Return the offset and length of every chunk of a shard, from the index at its end."""
        if len(footer) != self.layout.index_bytes:
            raise self.damage(f"shard {shard} ends before its index")
        table = footer[:-CHECKSUM_BYTES]
        if struct.pack("<I", crc32c(table)) != footer[-CHECKSUM_BYTES:]:
            raise self.damage(f"the index of shard {shard} differs from its checksum")
        return np.frombuffer(table, dtype="<u8").reshape(-1, 2)

    def _place(self, index: NDArray[np.uint64], shard: int, chunk: int) -> tuple[int, int] | None:
        """Return the offset and the length of a chunk in its shard; None if the chunk is not stored."""
        layout = self.layout
        offset, size = (int(number) for number in index[chunk])
        if offset == ABSENT:
            return None
        checksum_bytes = layout.checksum_bytes
        least, most = (1, layout.max_stored_bytes) if layout.compressor != "none" else (layout.chunk_bytes,) * 2
        if not least <= size - checksum_bytes <= most:
            expected = str(most + checksum_bytes) if least == most else f"at most {most + checksum_bytes}"
            raise self.damage(f"chunk {chunk} of shard {shard} has {size} bytes, not {expected}")
        if offset + size > np.iinfo(np.int64).max:  # which no system seeks to
            raise self.damage(f"chunk {chunk} of shard {shard} begins at byte {offset}, after the end of it")
        return offset, size - checksum_bytes

    def _differs(self, shard: int, chunk: int) -> Exception:
        return self.damage(f"chunk {chunk} of shard {shard} differs from its checksum")

    def _unpack(self, shard: int, chunk: int, stored: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
        try:
            decode(self.layout.compressor, stored, out)
        except (ValueError, RuntimeError) as error:
            raise self.damage(f"chunk {chunk} of shard {shard} cannot be unpacked: {error}") from error

    def _cut(self, shard: int) -> Exception:
        return self.damage(f"shard {shard} ends early")

    def damage(self, problem: str) -> Exception:
        """Return the exception for damage of the array, to raise within `StoreLocation.partition`."""
        return _Damage(self.layout.key, problem)

    def close(self) -> None:
        """Close the open shard, and request nothing more."""
        self._close_file()
        if self._ahead is not None:
            self._ahead.close()


@dataclass(frozen=True)
class MatrixLayout:
    """One matrix of a store: a dense array, or the three arrays of a CSR matrix.

    Attributes
    ----------
    shape : (int, int)
    dense : ArrayLayout or None
    data, indices, indptr : ArrayLayout or None
    """

    shape: tuple[int, int]
    dense: ArrayLayout | None = None
    data: ArrayLayout | None = None
    indices: ArrayLayout | None = None
    indptr: ArrayLayout | None = None

    @property
    def arrays(self) -> tuple[ArrayLayout, ...]:
        """The arrays that there are."""
        return tuple(each for each in (self.dense, self.data, self.indices, self.indptr) if each is not None)


@dataclass(frozen=True)
class StoreRows(RowSource):
    """Rows of a store as a `RowSource`. Picklable: it holds a place and sizes, never data.

    Parameters
    ----------
    location : StoreLocation
    X, Y : MatrixLayout
    row_offsets : int64 array, shape (partitions + 1,)
    nonzero_offsets, label_offsets : int64 array, shape (partitions + 1,)
        Stored values of X and of Y before each partition.
    features : FeatureInfo
        Not sent to workers.
    label_counts : int64 array, shape (3, q), or None
        Not sent to workers.
    block_bytes : int
    digest : str, optional
        Not sent to workers.
    earlier : tuple of (str, int)
        Not sent to workers.
    read_quantiles, read_columns, read_feature_names : callable, optional
        Give `quantiles`, `columns` and `feature_names`. Not sent to workers.
    """

    location: StoreLocation
    X: MatrixLayout
    Y: MatrixLayout
    # A field hides the property of the same name, which would be its default.
    row_offsets: NDArray[np.int64] = field()
    nonzero_offsets: NDArray[np.int64]
    label_offsets: NDArray[np.int64]
    features: FeatureInfo = field()
    label_counts: NDArray[np.int64] | None = field()
    block_bytes: int = BLOCK_BYTES
    digest: str | None = None
    earlier: tuple[tuple[str, int], ...] = ()
    read_quantiles: Callable[[], NDArray[np.float64] | None] = lambda: None
    read_columns: Callable[[], Mapping[str, RowColumn]] = dict
    read_feature_names: Callable[[], Sequence[str] | None] = lambda: None

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.location, self.X, self.Y, self.row_offsets, self.nonzero_offsets, self.label_offsets)
        return StoreRows, (*parts, FeatureInfo(), None, self.block_bytes)

    @cached_property
    def place(self) -> str:
        return self.location.path

    def tail(self, first: int) -> StoreRows:
        return replace(
            self,
            row_offsets=self.row_offsets[first:],
            nonzero_offsets=self.nonzero_offsets[first:],
            label_offsets=self.label_offsets[first:],
            features=FeatureInfo(),
            read_quantiles=lambda: None,
            digest=None,
            earlier=(),
        )

    @property
    def quantiles(self) -> NDArray[np.float64] | None:
        return self.read_quantiles()

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        return self.read_columns()

    @property
    def feature_names(self) -> Sequence[str] | None:
        return self.read_feature_names()

    @cached_property
    def profile(self) -> Profile:
        n, nonzeros, label_nonzeros = (
            int(offsets[-1] - offsets[0]) for offsets in (self.row_offsets, self.nonzero_offsets, self.label_offsets)
        )
        d = self.X.shape[1]
        partition_rows = int(np.diff(self.row_offsets).max(initial=1))
        if self.X.dense is not None:
            dtype = np.dtype(self.X.dense.dtype)
            rows = min(self._dense_block_rows(self.X.dense), max(partition_rows, 1))
            x_bytes = rows * self.X.dense.row_bytes
            read = n * self.X.dense.row_bytes
        else:
            assert self.X.data is not None
            dtype = np.dtype(self.X.data.dtype)
            x_bytes = min(self.block_bytes, nonzeros * (dtype.itemsize + 4) + 8)
            mean_row = max(1.0, nonzeros * (dtype.itemsize + 4) / max(n, 1))
            rows = max(1, min(partition_rows, int(x_bytes / mean_row)))
            read = nonzeros * (dtype.itemsize + 4) + 8 * n
        y_bytes = 5 * label_nonzeros // max(n, 1) * rows + 8 * rows
        # Of labels and row pointers a whole partition is held, X in two buffers, of each array a chunk; labels of two
        # blocks are copies.
        partition_bytes = 5 * int(np.diff(self.label_offsets).max(initial=0)) + 24 * partition_rows
        if self.Y.dense is not None:
            partition_bytes += partition_rows * self.Y.shape[1]
        remote = self.location.local is None
        for array in (*self.X.arrays, *self.Y.arrays):
            partition_bytes += self._ahead_bytes(array) if remote else array.buffer_bytes
        return Profile(
            n=n,
            d=d,
            q=self.Y.shape[1],
            sparse=self.X.dense is None,
            dtype=dtype,
            nonzeros=nonzeros,
            label_nonzeros=label_nonzeros,
            partitions=len(self.row_offsets) - 1,
            block_rows=rows,
            block_bytes=x_bytes,
            buffer_bytes=2 * (x_bytes + y_bytes) + partition_bytes,
            read_bytes=read + self.label_bytes,
            remote=remote,
        )

    @property
    def label_bytes(self) -> int:
        """Bytes read from storage by one pass over Y."""
        n, stored = (int(offsets[-1] - offsets[0]) for offsets in (self.row_offsets, self.label_offsets))
        return n * self.Y.shape[1] if self.Y.dense is not None else 5 * stored + 8 * n

    def bounds(self, first: int, last: int) -> tuple[_Range, _Range, _Range]:
        """Return the bounds of partitions first..last-1: in rows, in stored values of X, in stored values of Y."""
        rows, nonzeros, labels = (
            (int(offsets[first]), int(offsets[last]))
            for offsets in (self.row_offsets, self.nonzero_offsets, self.label_offsets)
        )
        return rows, nonzeros, labels

    def window(self, layout: ArrayLayout) -> Window:
        """Return the read-ahead window of one array of a remote store."""
        values = [array for array in (self.X.dense, self.X.data, self.X.indices) if array is not None]
        if layout not in values:
            return Window(2)  # of labels and row offsets a chunk lasts for many blocks of X
        share = AHEAD_BYTES * layout.chunk_bytes // max(sum(array.chunk_bytes for array in values), 1)
        chunks = max(1, min(share // max(REQUESTS * layout.chunk_bytes, 1), layout.shard_rows // layout.chunk_rows))
        return Window(max(2, min(share // max(chunks * layout.chunk_bytes, 1), MAX_REQUESTS)), chunks)

    def _ahead_bytes(self, layout: ArrayLayout) -> int:
        """Return bytes that the reader of one array of a remote store holds."""
        window, chunks = self.window(layout), -(-layout.shape[0] // layout.chunk_rows)
        # One request is read from; another one has come in pieces, which are there until they are joined.
        ahead = min((window.requests + 2) * window.chunks, chunks + window.chunks) * layout.chunk_bytes
        return ahead * (1 if layout.compressor == "none" else 2) + layout.index_bytes

    def _dense_block_rows(self, layout: ArrayLayout) -> int:
        """Return the rows of a block: whole inner chunks, so that none is decoded or checked
        twice.
        """
        rows = max(1, min(self.block_bytes, CHUNK_BYTES) // max(layout.row_bytes, 1))
        return max(1, rows // layout.chunk_rows) * layout.chunk_rows

    def require_visible(self) -> None:
        self.location.require_visible()

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Yield blocks of partitions first..last-1 in row order, each valid until the next one is asked for."""
        reader = _Run(self)
        tasks = self._unchanged(reader.blocks(first, last))
        with runtime.TaskThreads(1, "mlfs-read") as pool:
            try:
                ahead: Future[Block | None] = pool.submit(next, tasks, None)
                while (block := ahead.result()) is not None:
                    runtime.check_stopped()
                    ahead = pool.submit(next, tasks, None)
                    yield block
                    reader.require_whole(block)
            finally:
                pool.stop()
                reader.close()

    def _unchanged(self, blocks: Iterator[Block]) -> Iterator[Block]:
        """Yield the blocks, and check that the store did not change; this runs while the last block is processed."""
        with self.location.reading():
            yield from blocks

    def labels_only(self) -> RowSource:
        return LabelRows(self)


class LabelRows(RowSource):
    """The labels of a store's rows; X is not read and has no column.

    Parameters
    ----------
    rows : StoreRows
    """

    def __init__(self, rows: StoreRows) -> None:
        self.rows = rows
        self.profile = replace(rows.profile.labels_only(), read_bytes=rows.label_bytes)
        self.row_offsets, self.place, self.digest = rows.row_offsets, rows.place, rows.digest

    def require_visible(self) -> None:
        self.rows.require_visible()

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Yield a block for each of the partitions first..last-1."""
        with self.rows.location.reading(), contextlib.closing(_LabelReader(self.rows, self.rows.Y)) as labels:
            labels.expect_partitions(first, last)
            for i in range(first, last):
                Y = labels.partition(i)
                yield Block(int(self.row_offsets[i]), sp.csr_array((Y.shape[0], 0)), Y)


class _MatrixReader:
    """Reads rows of one matrix of a store.

    Parameters
    ----------
    rows : StoreRows
    matrix : MatrixLayout
        X or Y.
    """

    def __init__(self, rows: StoreRows, matrix: MatrixLayout) -> None:
        self._rows = rows
        self.dense, self.width = matrix.dense is not None, matrix.shape[1]
        self.arrays = [ArrayReader(rows.location, layout, rows.window(layout)) for layout in matrix.arrays]

    def expect(self, rows: _Range, stored: _Range) -> None:
        """Announce that some rows, whose stored values lie in `stored`, are read next."""
        ranges = [rows] if self.dense else [stored, stored, (rows[0], rows[1] + 1)]
        for array, (start, stop) in zip(self.arrays, ranges, strict=True):
            array.expect(start, stop)

    def offsets(self, rows: _Range, stored: _Range) -> NDArray[np.int64]:
        """Return the offsets of rows[0] up to rows[1] of a sparse matrix, counted from the first; their values lie
        in `stored`.
        """
        indptr = np.empty(rows[1] - rows[0] + 1, dtype=np.int64)
        self.arrays[2].read(rows[0], rows[1] + 1, indptr)
        fault = offsets_fault(indptr, *stored, first_row=rows[0])
        if fault is not None:
            raise self.arrays[2].damage(fault)
        indptr -= stored[0]
        return indptr

    def fill(
        self, start: int, indptr: NDArray[np.int64], data: NDArray[Any], indices: NDArray[Any], *, first_row: int
    ) -> None:
        """Fill `data` and `indices` with those of some rows of a sparse matrix, whose values begin at `start`."""
        self.arrays[0].read(start, start + len(data), data)
        self.arrays[1].read(start, start + len(indices), indices)
        fault = indices_fault(indptr, indices, self.width, first_row=first_row)
        if fault is not None:
            raise self.arrays[1].damage(fault)

    def close(self) -> None:
        for array in self.arrays:
            array.close()


class _LabelReader(_MatrixReader):
    """Reads Y of a store, a partition at a time."""

    def expect_partitions(self, first: int, last: int) -> None:
        """Announce that partitions first..last-1 are read next."""
        rows, _, stored = self._rows.bounds(first, last)
        self.expect(rows, stored)

    def partition(self, i: int) -> sp.csr_array:
        rows, _, stored = self._rows.bounds(i, i + 1)
        with self._rows.location.partition(i, rows):
            n = rows[1] - rows[0]
            values: NDArray[Any] = np.empty((n, self.width) if self.dense else stored[1] - stored[0], np.int8)
            if self.dense:
                self.arrays[0].read(*rows, values)
            else:
                indices = np.empty(len(values), np.int32)
                indptr = self.offsets(rows, stored)
                self.fill(stored[0], indptr, values, indices, first_row=rows[0])
            low, high = values.min(initial=0), values.max(initial=0)
            if low < -1 or high > 1:
                label = low if low < -1 else high
                raise self.arrays[0].damage(f"it holds the label {label}, which can be 1, 0 or -1")
            return _labels_to_csr(values) if self.dense else _csr(values, indices, indptr, (n, self.width))


def _labels_to_csr(values: NDArray[Any]) -> sp.csr_array:
    """Return dense labels as CSR, some rows at a time: all entries numbered at once would take 8 bytes each."""
    n, q = values.shape
    per_row = np.count_nonzero(values, axis=1)
    offsets = np.concatenate([[0], np.cumsum(per_row)])
    data, indices = np.empty(offsets[-1], np.int8), np.empty(offsets[-1], np.int32)
    rows = max(1, 2**18 // max(q, 1))
    for low in range(0, n, rows):
        high = min(low + rows, n)
        flat, at = values[low:high].ravel(), slice(offsets[low], offsets[high])
        entries = np.flatnonzero(flat != 0)  # of a mask, ten times as fast as of numbers
        data[at] = flat[entries]
        indices[at] = entries - np.repeat(q * np.arange(high - low), per_row[low:high])
    return _csr(data, indices, offsets, values.shape)


def _csr(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[np.int64], shape: tuple[int, int]) -> sp.csr_array:
    """Return a canonical CSR matrix of the arrays as they are."""
    matrix = sp.csr_array((data, indices, indptr.astype(np.int32)), shape=shape)
    # `_MatrixReader.fill` has looked: SciPy need not.
    matrix.has_canonical_format = True
    return matrix


def _buffer(items: int, dtype: str) -> NDArray[Any]:
    """Return a buffer whose memory goes back to the system when it is dropped.

    Taken from malloc, a buffer belongs to the arena of whichever thread asked; with the trim threshold that keeps
    page faults low, every run's reader thread would leave its buffers behind in another arena.
    """
    size = max(items, 1) * np.dtype(dtype).itemsize
    try:
        space = mmap.mmap(-1, size)
    except OSError as error:
        raise MemoryError(f"{size:,} bytes for rows that are read") from error
    # Of its own type from the start: SciPy copies what has under half as many items as the array that it is a view of.
    return np.frombuffer(space, dtype=dtype)[:items]


class _Run:
    """Blocks of a run of partitions, in two buffers: one is with the kernels while the other is filled."""

    def __init__(self, rows: StoreRows) -> None:
        self._rows = rows
        self._X = _MatrixReader(rows, rows.X)
        self._labels = _LabelReader(rows, rows.Y)

    def blocks(self, first: int, last: int) -> Iterator[Block]:
        rows, nonzeros, _ = self._rows.bounds(first, last)
        self._labels.expect_partitions(first, last)
        self._X.expect(rows, nonzeros)
        yield from self._dense(first, last) if self._X.dense else self._sparse(first, last)

    def _dense(self, first: int, last: int) -> Iterator[Block]:
        (array,), height, width = self._X.arrays, self._rows.profile.block_rows, self._X.width
        buffers: deque[NDArray[Any] | None] = deque([None, None])
        for i in range(first, last):
            (start, stop), _, _ = self._rows.bounds(i, i + 1)
            Y = self._labels.partition(i)
            for low in range(start, stop, height):
                high = min(low + height, stop)
                buffer = buffers.popleft()
                with self._rows.location.partition(i, (start, stop)):
                    out = array.mapped(low, high)
                    if out is None:
                        if buffer is None:
                            buffer = _buffer(height * width, array.layout.dtype).reshape(height, width)
                        out = buffer[: high - low]
                        array.read(low, high, out)
                    else:
                        buffer = None  # whose memory the pages take
                buffers.append(buffer)
                yield Block(low, out, Y[low - start : high - start])

    def _sparse(self, first: int, last: int) -> Iterator[Block]:
        rows, dtype = self._rows, self._X.arrays[0].layout.dtype
        capacity = max(1, rows.block_bytes // (np.dtype(dtype).itemsize + 4))
        capacity = min(capacity, max(1, int(np.diff(rows.nonzero_offsets).max(initial=1))))
        buffers = itertools.cycle([_SparseBuffer(capacity, dtype) for _ in range(2)])
        for i in range(first, last):
            (start, stop), stored, _ = rows.bounds(i, i + 1)
            if stop == start:
                continue
            with rows.location.partition(i, (start, stop)):
                indptr = self._X.offsets((start, stop), stored)
            Y = self._labels.partition(i)
            low = 0
            while low < stop - start:
                high = int(np.searchsorted(indptr, indptr[low] + capacity, side="right")) - 1
                high = min(max(high, low + 1), stop - start)
                a, b = int(indptr[low]), int(indptr[high])
                data, indices = next(buffers).take(b - a)
                offsets = indptr[low : high + 1] - a
                with rows.location.partition(i, (start, stop)):
                    self._X.fill(stored[0] + a, offsets, data, indices, first_row=start + low)
                yield Block(start + low, _csr(data, indices, offsets, (high - low, self._X.width)), Y[low:high])
                low = high

    def require_whole(self, block: Block) -> None:
        """Raise DataError if a block that the kernels worked on was cut short meanwhile."""
        if self._X.dense:
            i = int(np.searchsorted(self._rows.row_offsets, block.start, side="right")) - 1
            with self._rows.location.partition(i, self._rows.bounds(i, i + 1)[0]):
                self._X.arrays[0].require_whole(block.X, block.start)

    def close(self) -> None:
        self._X.close()
        self._labels.close()


class _SparseBuffer:
    """Space for the values of one block; grows for a single row that is longer than a block."""

    def __init__(self, capacity: int, dtype: str) -> None:
        self._dtype = dtype
        self._data = _buffer(capacity, dtype)
        self._indices = _buffer(capacity, "i4")

    def take(self, count: int) -> tuple[NDArray[Any], NDArray[np.int32]]:
        if count > len(self._data):
            self._data = _buffer(count, self._dtype)
            self._indices = _buffer(count, "i4")
        return self._data[:count], self._indices[:count]


def read_entries(location: StoreLocation, layout: ArrayLayout, start: int, stop: int) -> NDArray[Any]:
    """Return entries start..stop-1 of one array along its first axis.

    Raises
    ------
    DataError
    """
    out = np.empty((stop - start, *layout.shape[1:]), layout.dtype)
    try:
        with contextlib.closing(ArrayReader(location, layout)) as reader:
            reader.read(start, stop, out)
    except _Damage as damage:
        raise DataError(
            f"the store is damaged: {damage}",
            file=f"{location.path}/{damage.key}",
            cure="restore a copy, or convert the sources again; `mlfs inspect --verify` tells all that is damaged",
        ) from damage.__cause__
    return out
