"""A store's objects by key, on a local disk or at a URL, and its root metadata.

Everything here is bytes; nothing needs Zarr. Opening a store reads the one root object.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import io
import os
import re
import stat
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, Literal, TypeVar, cast

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, StoreNotAllowedError, UsageError
from mlfs_dask.files import remote_store
from mlfs_dask.files.access import answer, fault_of, http_status
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.files.limits import require_memory
from mlfs_dask.files.remote_store import WEB, open_store
from mlfs_dask.files.result_folders import COMPARISON, EVALUATION, RUN

#: Part of a remote file that is asked for at a time, and such parts that are kept for whoever reads them again: the
#: head and the end of a file are read by every opening, and columns of a table not in their order.
_BLOCK_BYTES, _KEPT_BLOCKS = 4 << 20, 4
_REQUESTS = 64  # that ask for little
#: Times that a text is held: as bytes, as text, in lines, in values.
_TEXT_COPIES = 6
#: Bytes of the name of an object and of what is said of it.
_HEAD_BYTES = 700
#: Bytes of a part of an upload, and parts that are sent at a time, of an object and of all: 80 MB are held.
_PART_BYTES, _PARTS, _ALL_PARTS = 5 << 20, 4, 16
#: Key of the metadata of a group, and of those of a store.
ROOT_KEY = "zarr.json"
#: What a Zarr array or group of version 3 or 2 has at its root, one of them.
ZARR_ROOTS = (ROOT_KEY, ".zgroup", ".zarray")
#: What the features of a Zarr group of others are called.
X_KEYS = ("X", "x", "data", "features")
#: What its labels are called.
Y_KEYS = ("Y", "y", "labels", "target", "targets")
#: Answers to HEAD of web servers that answer to GET: a signed address allows that alone.
_NO_HEADS = (403, 405, 501)
AGAIN = "run the same command again, once nothing writes to it"

_Item = TypeVar("_Item")
_Answer = TypeVar("_Answer")


def at_once(request: Callable[[_Item], _Answer], items: Iterable[_Item], most: int = _REQUESTS) -> list[_Answer]:
    """Return answers to the requests for all items, in their order, of which so many are made at the same time."""
    if most == 1:
        return [request(item) for item in items]
    with runtime.TaskThreads(most, "mlfs-requests") as pool:
        return [runtime.result_of(answer) for answer in [pool.submit(request, item) for item in items]]


def open_file(path: str | Path) -> int:
    """Return a descriptor of a file to read from.

    Raises
    ------
    OSError
    DataError
        It is a pipe or a device: opening or reading one could wait for ever.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        require_regular(os.fstat(descriptor).st_mode, path)
    except (OSError, DataError):
        os.close(descriptor)
        raise
    return descriptor


def require_regular(mode: int, path: str | Path) -> None:
    """Raise IsADirectoryError or DataError for what is no file, by its mode."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    if not stat.S_ISREG(mode):
        raise DataError(
            "it is a pipe, a socket or a device, a file was expected",
            file=str(path),
            cure="give a file; `mlfs convert` reads standard input as -",
        )


@contextlib.contextmanager
def _read_from(path: str | Path) -> Iterator[BinaryIO]:
    """An open file; an error of reading names it, which the system does for one of opening alone."""
    with os.fdopen(open_file(path), "rb", buffering=0) as file:
        try:
            yield cast(BinaryIO, file)
        except OSError as error:
            error.filename = error.filename or str(path)
            raise


def read_file(path: str | Path, *, times: int = 1) -> bytes:
    """Return the content of a file, of which so many times as much will be held.

    Raises
    ------
    OSError
    DataError
        As `open_file`.
    DoesNotFitError
        It is too large.
    """
    with _read_from(path) as file:
        require_memory(f"the content of {path}", times * os.fstat(file.fileno()).st_size)
        return file.read()


def read_text_file(path: str | Path) -> str:
    """Return the content of a text file in UTF-8. Raises UnicodeDecodeError, and what `read_file` does."""
    return read_file(path, times=_TEXT_COPIES).decode("utf-8-sig")


class LocalFile:
    """An open object of a local store."""

    def __init__(self, path: Path) -> None:
        self.descriptor = open_file(path)

    def read_end(self, count: int) -> bytes:
        """Return the last bytes, fewer where there are not so many."""
        size = os.fstat(self.descriptor).st_size
        return os.pread(self.descriptor, min(count, size), max(size - count, 0))

    def fill(self, offset: int, out: memoryview) -> bool:
        """Fill `out` with bytes from `offset` on; False where the object ends before."""
        while len(out):
            count = os.preadv(self.descriptor, [out], offset)
            if count == 0:
                return False
            offset += count
            out = out[count:]
        return True

    def close(self) -> None:
        os.close(self.descriptor)


class LocalObjects:
    """Files below a directory. Methods that `RemoteObjects` have, too, are described there."""

    def __init__(self, path: str | Path) -> None:
        self.path = str(path)
        self._root = Path(path)

    @cached_property
    def _real_root(self) -> str:
        return os.path.realpath(self._root)

    def _file(self, key: str) -> Path:
        """Return the file of an object. A link in the folder of a stranger may lead to any file: one out of it is
        refused.
        """
        path = self._root / key
        if not os.path.realpath(path).startswith(f"{self._real_root}/"):
            cure = "put a copy of the file in the place of the link (cp -rL)"
            raise DataError(f"{key} is a link to a file outside the folder", file=self.path, cure=cure)
        return path

    def exists(self, key: str = "") -> bool:
        return (self._root / key).exists() if key else self._root.is_dir()

    def open(self, key: str) -> LocalFile:
        """Return an object, for reading parts of it. Raises FileNotFoundError."""
        return LocalFile(self._file(key))

    def read(self, key: str) -> bytes:
        return read_file(self._file(key))

    def require_plain(self, key: str) -> None:
        """Raise what `read` does of an object that may not be read; nothing where it is absent."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError, IsADirectoryError):
            path = self._file(key)
            facts = path.stat()
            require_regular(facts.st_mode, path)
            require_memory(f"the content of {path}", facts.st_size)

    def write(self, key: str, content: bytes) -> None:
        """Write an object, and the folders above it."""
        path = self._root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)

    def sizes(self, expected: Iterable[str] = ()) -> dict[str, int | None]:
        found: dict[str, int | None] = {}
        for folder, _, names in os.walk(self._root, onerror=_raise):
            for name in names:
                file = Path(folder) / name
                found[file.relative_to(self._root).as_posix()] = file.stat().st_size
        return found


def _raise(error: OSError) -> None:
    """Raise for a folder that cannot be listed; a missing folder counts as empty."""
    if isinstance(error, PermissionError):
        raise error


class RemoteObjects:
    """Objects below a URL. A server that refuses for a while is asked again.

    Methods raise StoreAccessError where a server refuses for good.
    """

    def __init__(self, url: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.path = url
        self._store, self._root = open_store(url, storage_options)

    def _place(self, key: str) -> str:
        return f"{self._root}/{key}".rstrip("/") if self._root else key

    def head(self, key: str = "") -> dict[str, Any] | None:
        """Return the metadata of an object, `size` and `e_tag` or `last_modified`; None if there is no object."""
        place = self._place(key)

        def request() -> Any:
            try:
                return self._store.head(place)
            except Exception as error:
                if not is_web(self.path) or http_status(error) not in _NO_HEADS:
                    raise
                return self._store.get(place, options={"range": (0, 1)}).meta

        try:
            found: dict[str, Any] = self._request(request)
        except FileNotFoundError:
            return None
        return found

    def exists(self, key: str = "") -> bool:
        """Return True if there is an object, or any object below the root."""
        try:
            found: Any = self.head(key)
            if found is None and not key and not is_web(self.path):
                found = self._request(lambda: next(self._pages(), None))
            return bool(found)
        except FileNotFoundError:  # servers that list no folder that is empty
            return False
        except StoreNotAllowedError:
            return True

    def heads(self) -> dict[str, dict[str, Any]]:
        """Return the objects below the root; a web server does not list them."""
        if is_web(self.path):
            return {}
        start = f"{self._root}/" if self._root else ""
        try:
            listed: dict[str, Any] = self._request(self._listed)
        except FileNotFoundError:  # there is no such folder
            return {}
        return {path[len(start) :]: head for path, head in listed.items() if path.startswith(start)}

    def _listed(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for heads in self._pages():
            count = len(found) + len(heads)
            require_memory(f"{self.path}: a list of {count:,} objects", count * _HEAD_BYTES)
            found |= {head["path"]: head for head in heads}
            if len(found) < count:
                raise self._endless("names an object twice")
        return found

    def _pages(self) -> Iterator[list[dict[str, Any]]]:
        """Yield pages of the server's list of objects below the root."""
        pages = aiter(self._store.list(self._root or None))

        async def next_page() -> list[dict[str, Any]] | None:
            page = asyncio.ensure_future(anext(pages, None))
            end = time.monotonic() + 2 * remote_store.READ_SECONDS
            while time.monotonic() < end:  # obstore asks on and on for pages without objects, and hears no signal
                if (await asyncio.wait({page}, timeout=runtime.LOOK_SECONDS))[0]:
                    return page.result()
                runtime.check_stopped()
            page.cancel()
            raise self._endless("goes on without objects")

        with runtime.TaskThreads(1, "mlfs-list") as thread:
            while (heads := runtime.result_of(thread.submit(asyncio.run, next_page()))) is not None:
                yield heads

    def _endless(self, problem: str) -> DataError:
        cure = "check the server: a list of objects that has no end was stopped"
        return DataError(f"the server's list of objects {problem}", file=self.path, cure=cure)

    def read(self, key: str) -> bytes:
        """Return the content of an object. Raises FileNotFoundError."""

        def request() -> bytes:
            found = self._store.get(self._place(key))
            require_memory(f"{self.path}/{key}", found.meta.get("size") or 0)
            return bytes(found.bytes())

        return bytes(self._request(request))

    def read_range(self, key: str, start: int, stop: int | None = None) -> memoryview:
        """Return bytes start..stop-1 of an object, or as many as a negative `start` says from its end.

        Fewer where it is shorter, none where it ends before. Raises FileNotFoundError.
        """
        place, store = self._place(key), self._store

        def request() -> memoryview:
            try:
                if stop is not None:
                    return memoryview(store.get_range(place, start=start, end=stop))
                first = start
                if start < 0 and type(store).__name__ == "AzureStore":  # whose servers know no last bytes
                    first = max(0, store.head(place)["size"] + start)
                part = {"suffix": -first} if first < 0 else {"offset": first}
                return memoryview(store.get(place, options={"range": part}).bytes())
            except Exception as error:  # every client has errors of its own
                if fault_of(error) == "shorter":
                    return memoryview(b"")
                raise

        found: memoryview = self._request(request)
        return found

    def read_part(self, key: str, start: int, stop: int, tag: str | None) -> bytes:
        """Return bytes start..stop-1 of the object that had a tag when it was looked up; DataError of another."""

        def request() -> tuple[str | None, bytes]:
            found = self._store.get(self._place(key), options={"range": (start, stop)})
            return found.meta.get("e_tag"), bytes(found.bytes())

        came, content = self._request(request)
        if came and tag and came != tag:
            raise DataError("it was changed or replaced while it was read", file=self.path, cure=AGAIN)
        return bytes(content)

    def write(self, key: str, content: bytes | Path) -> None:
        """Write an object, from a file where `content` is its path, some parts of it at a time."""
        size = content.stat().st_size if isinstance(content, Path) else len(content)
        part_bytes = max(_PART_BYTES, size // 5000)  # an object has 10 000 parts at most
        self._request(
            lambda: self._store.put(self._place(key), content, chunk_size=part_bytes, max_concurrency=_PARTS),
            verb="write",
        )

    def sizes(self, expected: Iterable[str] = ()) -> dict[str, int | None]:
        """Return the key -> bytes of every object that is there, None where nobody tells.

        Where a place cannot be listed, `expected` keys alone are looked for.
        """
        if is_web(self.path):
            keys = list(expected)
            found = dict(zip(keys, at_once(self.head, keys), strict=True))
        else:
            found = dict(self.heads())
        return {key: head["size"] for key, head in found.items() if head is not None}

    def names(self, key: str = "") -> list[str]:
        """Return names in a folder; none where the server does not list them."""
        if is_web(self.path):
            return []
        try:
            found = self._request(lambda: self._store.list_with_delimiter(self._place(key) or None))
        except (FileNotFoundError, StoreNotAllowedError):
            return []
        paths = [*found["common_prefixes"], *(each["path"] for each in found["objects"])]
        return [PurePosixPath(path).name for path in paths]

    def look(self, expected: Iterable[str], wanted: Collection[str]) -> tuple[dict[str, int | None], dict[str, bytes]]:
        """Return the sizes and contents that opening a store needs, all requested at the same time.

        Parameters
        ----------
        expected : iterable of str
            For `sizes`.
        wanted : collection of str
            Keys of small objects, among those expected.

        Returns
        -------
        sizes : dict of str to int or None
        contents : dict of str to bytes
            Of those of `wanted` that are there.

        Raises
        ------
        DataError
            It is a web server that cannot answer with a part of a file.
        StoreAccessError
        """
        contents: dict[str, bytes] = {}
        present: dict[str, int | None] = {}

        def read(key: str) -> None:
            with contextlib.suppress(FileNotFoundError):
                contents[key] = self.read(key)

        others = [key for key in expected if key not in wanted]
        looks: list[Callable[[], object]] = [partial(read, key) for key in wanted]
        looks.append(lambda: present.update(self.sizes(others)))
        if is_web(self.path):
            looks.append(partial(self.read_range, ROOT_KEY, 0, 2))
        at_once(lambda look: look(), looks)
        return present | {key: len(content) for key, content in contents.items()}, contents

    def upload(self, folder: Path, keys: Iterable[str]) -> None:
        """Write objects from the files of a folder, some at a time: many small ones, or few of several parts."""
        large = {key: (folder / key).stat().st_size > _PART_BYTES for key in keys}
        for most, chosen in ((_ALL_PARTS, False), (_ALL_PARTS // _PARTS, True)):
            at_once(lambda key: self.write(key, folder / key), [key for key in large if large[key] == chosen], most)

    def remove(self, *keys: str) -> None:
        """Remove objects that are there."""
        try:
            if keys:
                self._request(lambda: self._store.delete([self._place(key) for key in keys]), verb="write")
        except FileNotFoundError:
            if len(keys) > 1:  # Google and Azure stop at one that is not there
                at_once(self.remove, keys)

    def _request(self, request: Callable[[], Any], *, verb: Literal["read", "write"] = "read") -> Any:
        return answer(request, self.path, verb=verb)


Objects = LocalObjects | RemoteObjects


class RemoteFile(io.RawIOBase):
    """An object as a file that is read in any order. Each of its reads is repeated while the server is unavailable.

    All of them are of the object that was there at first.

    Parameters
    ----------
    objects : RemoteObjects
        At the URL of the object.

    Raises
    ------
    FileNotFoundError
    StoreAccessError
    """

    def __init__(self, objects: RemoteObjects) -> None:
        head = objects.head("")
        if head is None:
            raise FileNotFoundError(errno.ENOENT, "no such object", objects.path)
        self._objects, self._size, self._offset = objects, head["size"] or 0, 0
        self._tag = head["e_tag"]
        self._number, self._block = -1, b""
        #: Without a tag another object of this place cannot be told from it.
        self._kept: dict[tuple[str, str | None, int], bytes] = _blocks if self._tag else {}

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        self._offset = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._offset, io.SEEK_END: self._size}[whence]
        return self._offset

    def tell(self) -> int:
        return self._offset

    def readinto(self, buffer: Any, /) -> int:
        stop = min(self._offset + len(buffer), self._size)
        if stop <= self._offset:
            return 0
        if stop - self._offset >= _BLOCK_BYTES:
            content: Any = self._objects.read_part("", self._offset, stop, self._tag)
        else:
            number, within = divmod(self._offset, _BLOCK_BYTES)
            if number != self._number:
                self._number, self._block = number, self._read_block(number)
            content = memoryview(self._block)[within : within + stop - self._offset]
        buffer[: len(content)] = content
        self._offset += len(content)
        return len(content)

    def _read_block(self, number: int) -> bytes:
        """Return a block of an object, from the last blocks or by a request."""
        place = (self._objects.path, self._tag, number)
        with _blocks_lock:
            block = self._kept.pop(place, None)
        if block is None:
            start = number * _BLOCK_BYTES
            block = self._objects.read_part("", start, min(start + _BLOCK_BYTES, self._size), self._tag)
        with _blocks_lock:
            self._kept[place] = block
            while len(self._kept) > _KEPT_BLOCKS:
                del self._kept[next(iter(self._kept))]
        return block


#: The last blocks that files of this process have read, the last one at the end.
_blocks: dict[tuple[str, str | None, int], bytes] = {}
_blocks_lock = threading.Lock()


def open_binary(path: str | Path, options: Mapping[str, Any] | None = None) -> BinaryIO:
    """Return a file, local or at a URL, for reading in any order. Errors as those of `open_file` and `RemoteFile`."""
    if is_url(path):
        return io.BufferedReader(RemoteFile(RemoteObjects(str(path), options)), 1 << 16)
    return os.fdopen(open_file(local_path(path)), "rb")


def expand(pattern: str, options: Mapping[str, Any] | None = None) -> list[str]:
    """Return files or objects that a pattern stands for, in which a `*` is some characters of a name, and `**` any
    folders.

    Raises
    ------
    UsageError
        It is the address of a web server, which does not tell what it has.
    StoreAccessError
    """
    if not is_url(pattern):
        path = local_path(pattern)
        return sorted(str(each) for each in Path(path.anchor).glob(str(path.relative_to(path.anchor))))
    if is_web(pattern):
        raise UsageError(f"{pattern}: a web server does not list its files\n  cure: name every file")
    folder = pattern[: pattern.index("*")].rpartition("/")[0]
    wanted = re.escape(pattern[len(folder) + 1 :]).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
    return sorted(f"{folder}/{key}" for key in RemoteObjects(folder, options).heads() if re.fullmatch(wanted, key))


@contextlib.contextmanager
def local_file(place: str) -> Iterator[str]:
    """A path for a new file: its place, or where that is a URL a temporary one, uploaded when the with-block ends."""
    if not is_url(place):
        yield str(local_path(place))
        return
    with tempfile.TemporaryDirectory(prefix="mlfs-") as folder:
        file = Path(folder, PurePosixPath(place).name)
        yield str(file)
        RemoteObjects(place).write("", file)


def is_url(path: str | Path) -> bool:
    """Return True for a URL; `file://` is a local path."""
    return "://" in str(path) and not str(path).startswith("file://")


def is_web(path: str | Path) -> bool:
    """Return True for the address of a web server, which is read-only."""
    return str(path).partition("://")[0] in WEB


def require_writable(path: str, storage_options: Mapping[str, Any] | None = None, *, takes_files: bool = False) -> None:
    """Raise UsageError for a place where nothing may be written, before any work is done for it.

    That is a web address, a place inside a store, which never changes, and one inside a local folder of results, which
    is deleted with all that is in it when the folder is replaced.

    Parameters
    ----------
    path : str
    storage_options : mapping, optional
        Of obstore (s3:, gs:, az:, https:) or of the file system of fsspec.
    takes_files : bool
        Files are put into `path`, which may be there already, so that it must be no such folder itself.
    """
    if is_web(path):
        raise UsageError(
            f"{path}: nothing can be written at a web address, only read"
            "\n  cure: give a local path, or the URL of an object store (s3://, gs://)"
        )
    if is_url(path):
        protocol, _, folder = path.partition("://")
        folders = [f"{protocol}://{parent}" for parent in PurePosixPath(folder).parents if parent.name]
    else:
        place = local_path(path)
        place = (place if takes_files else place.parent).resolve()
        folders = [str(parent) for parent in (place, *place.parents)]
        for parent in folders:
            for kind in (RUN, EVALUATION, COMPARISON):  # which are replaced whole
                if (Path(parent) / kind.record).is_file() and (Path(parent) / kind.table).is_file():
                    raise UsageError(
                        f"{path}: {parent} is {kind.what} itself, and replacing that would delete what is in it."
                        "\n  cure: give another place"
                    )
    found = at_once(lambda folder: _is_ours(folder, storage_options), folders, _REQUESTS if is_url(path) else 1)
    for parent, inside in zip(folders, found, strict=True):
        if inside:
            raise UsageError(f"{path} is inside the store {parent}, which must not change\n  cure: give another place")


def _is_ours(folder: str, storage_options: Mapping[str, Any] | None) -> bool:
    """Return True if a folder is a store of this package; False if it cannot be read."""
    objects = open_objects(folder, storage_options)
    try:
        return "mlfs" in attributes_of(parse_json(objects.read(ROOT_KEY)))
    except (OSError, ValueError, StoreNotAllowedError):
        return False


def local_path(path: str | Path) -> Path:
    """Return a local path, also from a `file://` URL."""
    return Path(str(path).removeprefix("file://"))


def open_objects(store: str | Path, storage_options: Mapping[str, Any] | None = None) -> Objects:
    """Return access to a store's objects; reads nothing yet."""
    if is_url(store):
        return RemoteObjects(str(store), storage_options)
    return LocalObjects(local_path(store))


def attributes_of(document: Any) -> Mapping[str, Any]:
    """Return the attributes in the metadata of a Zarr group; none where they are no mapping."""
    attributes = document.get("attributes") if isinstance(document, dict) else None
    return attributes if isinstance(attributes, dict) else {}
