"""Rows of a store, streamed: the source that passes read from.

A run of partitions is read block by block into two buffers that are filled in turn: while the kernels work on one,
a thread of its own fills the other. Uncompressed shards of a local store are read with positioned reads straight
into the buffer, at the offsets their index gives; anything else goes through zarr-python. Nothing is kept between
runs, and nothing is mapped: mapped pages would count against a worker's limit.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.errors import DataError
from mlfs_dask.storage.object_store import not_readable
from mlfs_dask.typing import Block, FeatureInfo, Profile, RowSource

#: Bytes of X in one block. Two blocks are held at a time.
BLOCK_BYTES = 16 * 2**20

_ABSENT = 2**64 - 1  # offset and length of a chunk that a shard does not hold


@dataclass(frozen=True)
class ArrayLayout:
    """Where the rows of one array lie in its shards.

    Attributes
    ----------
    key : str
        Path of the array inside the store.
    shape : tuple of int
    dtype : str
        NumPy's name with byte order.
    shard_rows, chunk_rows : int
        Rows (first axis) of a shard and of an inner chunk.
    raw : bool
        Whether chunks are plain little-endian bytes, so that positioned reads give values.
    sharded : bool
        False: every chunk is a file of its own and has no index.
    fill_value : float
        Value of chunks that are not stored.
    """

    key: str
    shape: tuple[int, ...]
    dtype: str
    shard_rows: int
    chunk_rows: int
    raw: bool
    sharded: bool
    fill_value: float

    @property
    def row_items(self) -> int:
        """Values in one row."""
        return int(np.prod(self.shape[1:], dtype=np.int64))

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return self.row_items * np.dtype(self.dtype).itemsize

    @classmethod
    def of(cls, array: Any, key: str) -> ArrayLayout:
        """The layout of a `zarr.Array` whose chunks cover whole rows."""
        metadata = array.metadata
        raw, sharded = False, False
        chunk = metadata.chunk_grid.chunk_shape
        shard = chunk
        if metadata.zarr_format == 3:
            codecs = [c.to_dict() for c in metadata.codecs]
            if len(codecs) == 1 and codecs[0]["name"] == "sharding_indexed":
                inner = codecs[0]["configuration"]
                sharded = True
                chunk = tuple(inner["chunk_shape"])
                raw = (
                    _is_plain(inner["codecs"])
                    and inner.get("index_location", "end") == "end"
                    and [c["name"] for c in inner["index_codecs"]] == ["bytes", "crc32c"]
                )
            else:
                raw = _is_plain(codecs)
            raw = raw and metadata.chunk_key_encoding.to_dict() == {
                "name": "default",
                "configuration": {"separator": "/"},
            }
        whole = all(c >= s for c, s in zip(chunk[1:], array.shape[1:], strict=True))
        return cls(
            key,
            tuple(array.shape),
            array.dtype.newbyteorder("<").str,
            int(shard[0]),
            int(chunk[0]),
            raw and whole,
            sharded,
            float(array.fill_value or 0),
        )


def _is_plain(codecs: list[dict[str, Any]]) -> bool:
    if len(codecs) != 1 or codecs[0]["name"] != "bytes":
        return False
    return bool(codecs[0].get("configuration", {}).get("endian", "little") == "little")


class StoreLocation(NamedTuple):
    """Where a store is: a local path, or a URL with the options of its file system."""

    path: str
    options: dict[str, Any]

    @property
    def local(self) -> Path | None:
        """The local folder, or None for a URL of another file system."""
        if self.path.startswith("file://"):
            return Path(self.path[7:])
        return None if "://" in self.path else Path(self.path)

    def open_array(self, key: str) -> Any:
        """The `zarr.Array` under `key`."""
        import zarr

        options = self.options if self.local is None else None
        return zarr.open_array(f"{self.path.rstrip('/')}/{key}", mode="r", storage_options=options)

    def exists(self, key: str) -> bool:
        """Whether the store holds an object of that name."""
        if self.local is not None:
            return (self.local / key).exists()
        import fsspec

        files, root = fsspec.core.url_to_fs(self.path, **self.options)
        return bool(files.exists(f"{root.rstrip('/')}/{key}"))


class ArrayReader:
    """Reads rows of one array into buffers. Open files are kept until `close`."""

    def __init__(self, location: StoreLocation, layout: ArrayLayout) -> None:
        self._location = location
        self.layout = layout
        self._folder = location.local
        self._direct = layout.raw and self._folder is not None
        self._file: tuple[int, int] | None = None  # shard number, descriptor
        self._index: NDArray[np.uint64] | None = None
        self._array: Any = None
        self._present = -1  # shard that is known to be there, when zarr-python reads

    def read(self, start: int, stop: int, out: NDArray[Any]) -> None:
        """Fill `out` (stop - start rows, contiguous) with rows start..stop-1."""
        if stop <= start:
            return
        if not self._direct:
            if self._array is None:
                self._array = self._location.open_array(self.layout.key)
            for shard in range(start // self.layout.shard_rows, -(-stop // self.layout.shard_rows)):
                if shard != self._present and not self._location.exists(self._key(shard)):
                    raise self._damaged(f"{self._key(shard)} is missing")
                self._present = shard
            try:
                out[...] = self._array[start:stop]
            except PermissionError as error:
                raise not_readable(self._location.path, error) from error
            except (OSError, ValueError, RuntimeError) as error:
                raise self._damaged(str(error)) from error
            return
        layout = self.layout
        view = out.reshape(-1).view(np.uint8).data
        done = 0
        while start < stop:
            # The longest run of rows that lies in one piece on disk.
            offset, rows = self._locate(start, stop)
            size = rows * layout.row_bytes
            piece = view[done : done + size]
            if offset < 0:
                np.frombuffer(piece, dtype=layout.dtype)[...] = layout.fill_value
            else:
                self._read_at(offset, piece)
            done += size
            start += rows

    def _locate(self, start: int, stop: int) -> tuple[int, int]:
        """(byte offset in the open shard file or -1, rows) of the piece that begins at row `start`."""
        layout = self.layout
        shard, within = divmod(start, layout.shard_rows)
        self._open(shard)
        last = min(stop - start + within, layout.shard_rows)
        if self._index is None:
            return within * layout.row_bytes, last - within
        chunk, inside = divmod(within, layout.chunk_rows)
        offset, size = (int(i) for i in self._index[chunk])
        rows = min(layout.chunk_rows - inside, last - within)
        if offset == _ABSENT:
            return -1, rows
        chunk_bytes = layout.chunk_rows * layout.row_bytes
        if size != chunk_bytes:
            raise self._damaged(f"chunk {chunk} of shard {shard} has {size} bytes, not {chunk_bytes}")
        at = offset + inside * layout.row_bytes
        while within + rows < last:
            chunk += 1
            following = int(self._index[chunk, 0])
            if following != offset + chunk_bytes:
                break
            offset = following
            rows += min(layout.chunk_rows, last - within - rows)
        return at, rows

    def _open(self, shard: int) -> None:
        if self._file is not None and self._file[0] == shard:
            return
        self.close()
        assert self._folder is not None
        try:
            descriptor = os.open(self._folder / self._key(shard), os.O_RDONLY)
        except PermissionError as error:
            raise not_readable(self._location.path, error) from error
        except OSError as error:
            raise self._damaged(str(error)) from error
        self._file = (shard, descriptor)
        self._index = None
        if self.layout.sharded:
            chunks = self.layout.shard_rows // self.layout.chunk_rows
            size = os.fstat(descriptor).st_size
            footer = 16 * chunks + 4
            if size < footer:
                raise self._damaged(f"shard {shard} ends before its index")
            table = os.pread(descriptor, 16 * chunks, size - footer)
            self._index = np.frombuffer(table, dtype="<u8").reshape(chunks, 2)

    def _key(self, shard: int) -> str:
        """Name of a shard. Zarr takes an absent one for zeros; a store of ours has them all."""
        return "/".join([self.layout.key, "c", str(shard)] + ["0"] * (len(self.layout.shape) - 1))

    def _read_at(self, offset: int, piece: memoryview) -> None:
        assert self._file is not None
        done = 0
        while done < len(piece):
            count = os.preadv(self._file[1], [piece[done:]], offset + done)
            if count == 0:
                raise self._damaged(f"shard {self._file[0]} ends early")
            done += count

    def _damaged(self, problem: str) -> DataError:
        return DataError(
            f"the store is damaged: {problem}",
            file=f"{self._location.path}/{self.layout.key}",
            cure="run `mlfs inspect --verify` and convert the sources again",
        )

    def close(self) -> None:
        """Close the open shard."""
        if self._file is not None:
            os.close(self._file[1])
        self._file = None


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


@dataclass(frozen=True)
class StoreRows(RowSource):
    """Rows of a store as a `RowSource`. Picklable: it holds a place and sizes, never data.

    Parameters
    ----------
    location : StoreLocation
    X, Y : MatrixLayout
    partition_rows : int64 array, shape (partitions + 1,)
        `row_offsets`.
    nonzero_offsets, label_offsets : int64 array, shape (partitions + 1,)
        Stored values of X and of Y before each partition.
    driver_features : FeatureInfo
        Not sent to workers.
    driver_label_counts : int64 array, shape (3, q)
    block_bytes : int
    content_digest : str, optional
        `digest`.
    """

    location: StoreLocation
    X: MatrixLayout
    Y: MatrixLayout
    partition_rows: NDArray[np.int64]
    nonzero_offsets: NDArray[np.int64]
    label_offsets: NDArray[np.int64]
    driver_features: FeatureInfo
    driver_label_counts: NDArray[np.int64]
    block_bytes: int = BLOCK_BYTES
    content_digest: str | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return (
            StoreRows,
            (
                self.location,
                self.X,
                self.Y,
                self.partition_rows,
                self.nonzero_offsets,
                self.label_offsets,
                FeatureInfo(),
                np.zeros((3, 0), dtype=np.int64),
                self.block_bytes,
            ),
        )

    @property
    def row_offsets(self) -> NDArray[np.int64]:
        return self.partition_rows

    @property
    def place(self) -> str:
        return self.location.path

    @property
    def digest(self) -> str | None:
        return self.content_digest

    @property
    def features(self) -> FeatureInfo:
        return self.driver_features

    @property
    def label_counts(self) -> NDArray[np.int64]:
        return self.driver_label_counts

    @property
    def profile(self) -> Profile:
        return self._profile

    @cached_property
    def _profile(self) -> Profile:
        n, d = self.X.shape
        nonzeros, label_nonzeros = int(self.nonzero_offsets[-1]), int(self.label_offsets[-1])
        partition_rows = int(np.diff(self.row_offsets).max(initial=1))
        if self.X.dense is not None:
            itemsize = np.dtype(self.X.dense.dtype).itemsize
            rows = min(self._dense_block_rows(self.X.dense), max(partition_rows, 1))
            x_bytes = rows * self.X.dense.row_bytes
            read = n * self.X.dense.row_bytes
        else:
            assert self.X.data is not None
            itemsize = np.dtype(self.X.data.dtype).itemsize
            x_bytes = min(self.block_bytes, nonzeros * (itemsize + 4) + 8)
            mean_row = max(1.0, nonzeros * (itemsize + 4) / max(n, 1))
            rows = max(1, min(partition_rows, int(x_bytes / mean_row)))
            read = nonzeros * (itemsize + 4) + 8 * n
        y_bytes = 5 * label_nonzeros // max(n, 1) * rows + 8 * rows
        # Of labels and row pointers a whole partition is held, X in two buffers; labels of two blocks are copies.
        partition_bytes = 5 * int(np.diff(self.label_offsets).max(initial=0)) + 24 * partition_rows
        if self.Y.dense is not None:
            partition_bytes += partition_rows * self.Y.shape[1]
            y_read = n * self.Y.shape[1]
        else:
            y_read = 5 * label_nonzeros + 8 * n
        return Profile(
            n=n,
            d=d,
            q=self.Y.shape[1],
            sparse=self.X.dense is None,
            itemsize=itemsize,
            nonzeros=nonzeros,
            label_nonzeros=label_nonzeros,
            partitions=len(self.row_offsets) - 1,
            block_rows=rows,
            block_bytes=x_bytes,
            buffer_bytes=2 * (x_bytes + y_bytes) + partition_bytes,
            read_bytes=read + y_read,
        )

    def _dense_block_rows(self, layout: ArrayLayout) -> int:
        """Rows of a block: whole inner chunks where several fit, so that zarr-python decodes none twice."""
        rows = max(1, self.block_bytes // max(layout.row_bytes, 1))
        if rows >= layout.chunk_rows:
            return rows // layout.chunk_rows * layout.chunk_rows
        return rows if layout.raw else layout.chunk_rows

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Blocks of partitions first..last-1 in row order, each valid until the next one is asked for."""
        reader = _DenseRun(self) if self.X.dense is not None else _SparseRun(self)
        tasks = reader.blocks(first, last)
        with runtime.ThreadPool(1, thread_name_prefix="mlfs-read") as pool:
            try:
                ahead: Future[Block | None] = pool.submit(next, tasks, None)
                while (block := ahead.result()) is not None:
                    runtime.check_stopped()
                    ahead = pool.submit(next, tasks, None)
                    yield block
            finally:
                pool.shutdown(wait=True, cancel_futures=True)
                reader.close()

    def all_labels(self) -> sp.csr_array:
        """Y of all rows, as int8, read without X."""
        labels = _Labels(self)
        try:
            parts = [labels.partition(i) for i in range(len(self.row_offsets) - 1)]
        finally:
            labels.close()
        return sp.csr_array(sp.vstack(parts, format="csr"))


class _Labels:
    """Rows of Y, a partition at a time."""

    def __init__(self, rows: StoreRows) -> None:
        self._rows = rows
        layouts = (rows.Y.dense, rows.Y.data, rows.Y.indices, rows.Y.indptr)
        self._dense, self._data, self._indices, self._indptr = (
            None if layout is None else ArrayReader(rows.location, layout) for layout in layouts
        )

    def partition(self, i: int) -> sp.csr_array:
        start, stop = (int(r) for r in self._rows.row_offsets[i : i + 2])
        shape = (stop - start, self._rows.Y.shape[1])
        if self._dense is not None:
            values = np.empty(shape, dtype=self._dense.layout.dtype)
            self._dense.read(start, stop, values)
            return _labels_to_csr(values)
        assert self._data is not None
        assert self._indices is not None
        assert self._indptr is not None
        indptr, low, high = _read_indptr(self._indptr, start, stop)
        data = np.empty(high - low, dtype=self._data.layout.dtype)
        indices = np.empty(high - low, dtype=self._indices.layout.dtype)
        self._data.read(low, high, data)
        self._indices.read(low, high, indices)
        return _csr(data, indices, indptr, shape)

    def close(self) -> None:
        for reader in (self._dense, self._data, self._indices, self._indptr):
            if reader is not None:
                reader.close()


def _labels_to_csr(values: NDArray[Any]) -> sp.csr_array:
    """Dense labels as CSR, some rows at a time: SciPy would number all entries at once, 16 bytes for each of them."""
    rows = max(1, 2**18 // max(values.shape[1], 1))
    parts = [sp.csr_array(values[low : low + rows].astype(np.int8)) for low in range(0, len(values), rows)]
    return parts[0] if len(parts) == 1 else sp.csr_array(sp.vstack(parts, format="csr"))


def _read_indptr(reader: ArrayReader, start: int, stop: int) -> tuple[NDArray[np.int64], int, int]:
    """Row pointers of rows start..stop-1 from 0, and where their values begin and end."""
    indptr = np.empty(stop - start + 1, dtype=np.int64)
    reader.read(start, stop + 1, indptr)
    low, high = int(indptr[0]), int(indptr[-1])
    indptr -= low
    return indptr, low, high


def _csr(data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[np.int64], shape: tuple[int, int]) -> sp.csr_array:
    """A canonical CSR matrix of the arrays as they are."""
    matrix = sp.csr_array((data, indices, indptr.astype(np.int32)), shape=shape)
    # The store is written sorted and without repeats: SciPy need not look.
    matrix.has_canonical_format = True
    return matrix


def _buffer(items: int, dtype: str) -> NDArray[Any]:
    """Space that goes back to the system when it is dropped.

    Taken from malloc, a buffer belongs to the arena of whichever thread asked; with the trim threshold that keeps
    page faults low, every run's reader thread would leave its buffers behind in another arena.
    """
    size = max(items, 1) * np.dtype(dtype).itemsize
    # Of its own type from the start: SciPy copies what has under half as many items as the array that it is a view of.
    return np.frombuffer(mmap.mmap(-1, size), dtype=dtype)[:items]


class _DenseRun:
    def __init__(self, rows: StoreRows) -> None:
        assert rows.X.dense is not None
        self._rows = rows
        self._reader = ArrayReader(rows.location, rows.X.dense)
        self._labels = _Labels(rows)

    def blocks(self, first: int, last: int) -> Iterator[Block]:
        layout = self._reader.layout
        height = self._rows.profile.block_rows
        # Two buffers: one with the kernels, one being filled.
        buffers = [_buffer(height * layout.row_items, layout.dtype).reshape(height, layout.row_items) for _ in range(2)]
        turn = 0
        for i in range(first, last):
            start, stop = (int(r) for r in self._rows.row_offsets[i : i + 2])
            Y = self._labels.partition(i)
            for low in range(start, stop, height):
                high = min(low + height, stop)
                out = buffers[turn][: high - low]
                turn = 1 - turn
                self._reader.read(low, high, out)
                yield Block(low, out, Y[low - start : high - start])

    def close(self) -> None:
        self._reader.close()
        self._labels.close()


class _SparseRun:
    def __init__(self, rows: StoreRows) -> None:
        assert rows.X.data is not None
        assert rows.X.indices is not None
        assert rows.X.indptr is not None
        self._rows = rows
        self._data = ArrayReader(rows.location, rows.X.data)
        self._indices = ArrayReader(rows.location, rows.X.indices)
        self._indptr = ArrayReader(rows.location, rows.X.indptr)
        self._labels = _Labels(rows)

    def blocks(self, first: int, last: int) -> Iterator[Block]:
        rows = self._rows
        value_bytes = np.dtype(self._data.layout.dtype).itemsize + 4
        capacity = max(1, rows.block_bytes // value_bytes)
        capacity = min(capacity, max(1, int(np.diff(rows.nonzero_offsets).max(initial=1))))
        buffers = [_SparseBuffer(capacity, self._data.layout.dtype) for _ in range(2)]
        turn = 0
        for i in range(first, last):
            start, stop = (int(r) for r in rows.row_offsets[i : i + 2])
            if stop == start:
                continue
            indptr, begin, _ = _read_indptr(self._indptr, start, stop)
            Y = self._labels.partition(i)
            low = 0
            while low < stop - start:
                high = int(np.searchsorted(indptr, indptr[low] + capacity, side="right")) - 1
                high = min(max(high, low + 1), stop - start)
                a, b = int(indptr[low]), int(indptr[high])
                data, indices = buffers[turn].take(b - a)
                turn = 1 - turn
                self._data.read(begin + a, begin + b, data)
                self._indices.read(begin + a, begin + b, indices)
                X = _csr(data, indices, indptr[low : high + 1] - a, (high - low, rows.X.shape[1]))
                yield Block(start + low, X, Y[low:high])
                low = high

    def close(self) -> None:
        for reader in (self._data, self._indices, self._indptr):
            reader.close()
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


def read_block(location: StoreLocation, matrix: MatrixLayout, rows: tuple[int, int], stored: tuple[int, int]) -> Any:
    """Some rows of a matrix, in one piece.

    Parameters
    ----------
    location : StoreLocation
    matrix : MatrixLayout
    rows : (int, int)
        First row, and the row after the last.
    stored : (int, int)
        Where their stored entries begin and end; used when sparse.

    Returns
    -------
    ndarray or tuple (data, indices, indptr)
        Row offsets count from 0.
    """
    if matrix.dense is not None:
        return _read_rows(location, matrix.dense, *rows)
    assert matrix.data is not None
    assert matrix.indices is not None
    assert matrix.indptr is not None
    indptr = _read_rows(location, matrix.indptr, rows[0], rows[1] + 1) - stored[0]
    data = _read_rows(location, matrix.data, *stored)
    indices = _read_rows(location, matrix.indices, *stored)
    return data, indices, indptr


def _read_rows(location: StoreLocation, layout: ArrayLayout, start: int, stop: int) -> NDArray[Any]:
    out = np.empty((stop - start, *layout.shape[1:]), layout.dtype)
    reader = ArrayReader(location, layout)
    try:
        reader.read(start, stop, out)
    finally:
        reader.close()
    return out
