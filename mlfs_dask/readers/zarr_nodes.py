"""Zarr arrays and groups of others, on disk or at a URL, for reading.

What lies at a URL is requested as everything else is: time-outs, repeated requests and messages are those of
`mlfs_dask.files.access`.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import math
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.storage import LocalStore

from mlfs_dask.errors import DataError
from mlfs_dask.files.access import access_error
from mlfs_dask.files.chunk_codecs import decode
from mlfs_dask.files.compressed_io import DAMAGE
from mlfs_dask.files.object_store import LocalObjects, RemoteObjects, is_url, local_path
from mlfs_dask.readers.base import FileSpec
from mlfs_dask.runtime import in_context

if TYPE_CHECKING:
    from zarr.abc.store import ByteRequest
    from zarr.core.buffer import Buffer, BufferPrototype

_T = TypeVar("_T")


def open_node(path: str, spec: FileSpec) -> Any:
    """Return the Zarr array or group at a path.

    Raises
    ------
    DataError
        There is none.
    StoreAccessError
        A server does not answer, or it is not allowed to read it.
    """
    source: Any = path
    if is_url(path):
        source = RemoteStore(RemoteObjects(path, spec.storage_options))
    elif local_path(path).is_dir():
        source = LocalFolder(local_path(path), read_only=True)
    try:
        return zarr.open(source, mode="r")
    except PermissionError as error:
        raise access_error(path, error) from error
    except DAMAGE as error:
        raise DataError(f"there is no Zarr array or group: {error}", file=path, cure="check the path") from error


class LocalFolder(LocalStore):
    """Zarr's view of a local folder, in which each object is looked at before it is read."""

    async def get(
        self, key: str, prototype: BufferPrototype | None = None, byte_range: ByteRequest | None = None
    ) -> Buffer | None:
        LocalObjects(self.root).require_plain(key)
        return await super().get(key, prototype, byte_range)

    def get_sync(self, key: str, **how: Any) -> Buffer | None:
        LocalObjects(self.root).require_plain(key)
        return super().get_sync(key, **how)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return [await self.get(key, prototype, part) for key, part in key_ranges]


class LocalChunks:
    """Rows of an array in a local folder, whose chunks are unpacked to where they belong, without an event loop.

    The last chunk of which a part was asked for is kept: the next rows begin in it. zarr-python reads any chunk that is
    absent or damaged.

    Parameters
    ----------
    array : zarr.Array
    compressor : str
        As of `decode`.
    """

    def __init__(self, array: Any, compressor: str) -> None:
        self._array, self._compressor, self._chunks = array, compressor, array.chunks
        self._objects = LocalObjects(array.store.root)
        self.shape, self.dtype = array.shape, array.dtype
        self._chunk: NDArray[Any] = np.empty(self._chunks, self.dtype)
        self._place: tuple[int, ...] = ()  # of the chunk that `_chunk` holds
        self.held_bytes = 2 * math.prod(self._chunks) * self.dtype.itemsize  # as it is stored, too

    def __getitem__(self, rows: slice, /) -> NDArray[Any]:
        start, stop, _ = rows.indices(self.shape[0])
        out = np.empty((stop - start, *self.shape[1:]), self.dtype)
        height, *widths = self._chunks
        across = [range(-(-size // width)) for size, width in zip(self.shape[1:], widths, strict=True)]
        for place in itertools.product(range(start // height, -(-stop // height)), *across):
            first = place[0] * height
            low, high = max(start, first), min(stop, first + height)
            columns = tuple(slice(i * width, (i + 1) * width) for i, width in zip(place[1:], widths, strict=True))
            part = out[(slice(low - start, high - start), *columns)]
            if part.shape == self._chunks and part.flags.c_contiguous:
                found = self._unpack(place, part)
            elif found := place == self._place or self._unpack(place, self._chunk):
                self._place = place
                part[...] = self._chunk[(slice(low - first, high - first), *map(slice, part.shape[1:]))]
            else:
                self._place = ()
            if not found:
                part[...] = self._array[(slice(low, high), *columns)]
        return out

    def _unpack(self, place: tuple[int, ...], out: NDArray[Any]) -> bool:
        """Fill `out` with a chunk; False where zarr-python has to read it."""
        values = out.reshape(-1).view(np.uint8)
        key = f"{self._array.path}/{self._array.metadata.encode_chunk_key(place)}".lstrip("/")
        try:
            with contextlib.closing(self._objects.open(key)) as file:
                stored = file.read_end(2 * len(values) + 64)
            decode(self._compressor, np.frombuffer(stored, np.uint8), values)
        except (FileNotFoundError, ValueError, RuntimeError):
            return False
        return True


def direct_chunks(array: Any) -> Any:
    """Return `LocalChunks` of a local array whose chunks are plain or packed by one codec; any other as it is."""
    codecs, order = getattr(array, "compressors", ()), getattr(getattr(array, "serializer", None), "endian", None)
    names = [getattr(codec, "codec_id", None) or codec.to_dict()["name"] for codec in codecs]
    plain = array.dtype.kind in "biuf" and array.dtype.isnative and getattr(order, "value", "little") == "little"
    known = isinstance(getattr(array, "store", None), LocalFolder) and names in ([], ["zstd"], ["blosc"])
    if not (plain and known) or array.filters or array.shards or array.order != "C":
        return array
    return LocalChunks(array, *names or ["none"])


class RemoteStore(Store):
    """Zarr's view of objects at a URL. Requests are made in threads: one that is repeated keeps no other waiting."""

    supports_writes = False
    supports_deletes = False
    supports_listing = True

    def __init__(self, objects: RemoteObjects) -> None:
        super().__init__(read_only=True)
        self._objects = objects

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RemoteStore) and self._objects.path == other._objects.path

    async def get(self, key: str, prototype: BufferPrototype, byte_range: ByteRequest | None = None) -> Buffer | None:
        try:
            content = await _in_thread(self._request(key, byte_range))
        except (FileNotFoundError, IsADirectoryError):
            return None
        return prototype.buffer.from_bytes(bytes(content))

    def _request(self, key: str, byte_range: ByteRequest | None) -> Callable[[], bytes | memoryview]:
        match byte_range:
            case RangeByteRequest(start, stop):
                return functools.partial(self._objects.read_range, key, start, stop)
            case OffsetByteRequest(start):
                return functools.partial(self._objects.read_range, key, start)
            case SuffixByteRequest(count):
                return functools.partial(self._objects.read_range, key, -count)
        return functools.partial(self._objects.read, key)

    async def get_partial_values(
        self, prototype: BufferPrototype, key_ranges: Iterable[tuple[str, ByteRequest | None]]
    ) -> list[Buffer | None]:
        return list(await asyncio.gather(*(self.get(key, prototype, part) for key, part in key_ranges)))

    async def exists(self, key: str) -> bool:
        return await _in_thread(self._objects.exists, key)

    async def list_dir(self, prefix: str) -> AsyncIterator[str]:
        for name in await _in_thread(self._objects.names, prefix):
            yield name

    def list(self) -> NoReturn:
        raise NotImplementedError  # nor does Zarr need it for reading

    def list_prefix(self, prefix: str) -> NoReturn:
        raise NotImplementedError

    async def set(self, key: str, value: Buffer) -> NoReturn:
        raise NotImplementedError

    async def delete(self, key: str) -> NoReturn:
        raise NotImplementedError


async def _in_thread(function: Callable[..., _T], *arguments: Any) -> _T:
    """Return the result of a function, called in a thread that nobody waits for: Ctrl-C is not answered after the
    last request.
    """
    answer: Future[_T] = Future()
    answer.set_running_or_notify_cancel()  # its result may come after nobody waits for it any more

    def call() -> None:
        try:
            answer.set_result(function(*arguments))
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=in_context(call), name="mlfs-zarr", daemon=True).start()
    return await asyncio.wrap_future(answer)
