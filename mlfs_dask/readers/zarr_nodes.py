"""Zarr arrays and groups of others, on disk or at a URL, for reading.

What lies at a URL is requested as everything else is: time-outs, repeated requests and messages are those of
`mlfs_dask.files.access`.
"""

from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

import zarr
from zarr.abc.store import OffsetByteRequest, RangeByteRequest, Store, SuffixByteRequest
from zarr.storage import LocalStore

from mlfs_dask.errors import DataError
from mlfs_dask.files.access import access_error
from mlfs_dask.files.object_store import LocalObjects, RemoteObjects, is_url, local_path
from mlfs_dask.readers.base import FileSpec
from mlfs_dask.readers.matrix import DAMAGE
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
