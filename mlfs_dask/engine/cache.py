"""Cache of statistics of whole stores: a second selection with another λ or k reads nothing.

An entry is a folder `KIND-KEY` with an `.npy` file for every array, and `entry.json`, which describes it. The key is a
digest of the kind, of the store's content, of the statistic's parameters, and of the code that computes it: if one of
these changes, the key does too, so no entry is ever out of date. An entry appears whole, by a rename. Its digests are
verified whenever it is read. It may be deleted at any time; a missing statistic is computed again.

Primitives ask for the `entry` of a statistic before they compute it. Without `cache`, or for data without a digest, an
entry is empty and nothing is saved.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import stat
import threading
import tokenize
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.context import assigned
from mlfs_dask.errors import DISK_FULL, MlfsError, UsageError
from mlfs_dask.files.fingerprints import code_digest, digest_of
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.files.publish import appearing, remove, remove_leftovers
from mlfs_dask.rows.contract import Profile, RowSource

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]

#: Default of the bytes that a cache may hold.
SIZE = 4 * 2**30

#: Place of a cache that is beside its store.
BESIDE = "auto"

#: Bytes of an array from which on it is mapped and not read: what is not used of it takes no memory.
MMAP_BYTES = 2**20

#: Kind of the entries of `RowFiles`.
ROW_ARRAYS = "row-weights"

_FORMAT = 1
_DIGEST_BYTES = 16
_RECORD = "entry.json"
_ENTRY = re.compile(r"[a-z][a-z-]*-[0-9a-f]{32}")
_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# Statistics that mlfs has computed and would otherwise compute again. Safe to delete at any time.
"""


# Of the context, so that threads of a user do not get each other's (`runtime.in_context`). Place and bytes.
_setting: ContextVar[tuple[str | None, int]] = ContextVar("setting", default=(None, SIZE))
_hits: ContextVar[tuple[list[str], ...]] = ContextVar("hits", default=())
_assumed: ContextVar[tuple[set[Path], ...]] = ContextVar("assumed", default=())


@contextlib.contextmanager
def cache(place: str | os.PathLike[str] | None = BESIDE, *, size: int = SIZE) -> Iterator[None]:
    """Cache the statistics of stores in the with-block.

    The cache belongs to the thread of the with-block; other threads have their own cache, or none.

    Parameters
    ----------
    place : path, "auto" or None
        Folder of the cache. "auto": beside each store, `STORE.cache`; of a store at a URL in the user's cache folder
        (`$XDG_CACHE_HOME/mlfs`). None: nothing is cached in the with-block.
    size : int
        Bytes that one folder may hold; the least recently used entries are removed first.

    Raises
    ------
    UsageError
        The folder is a URL or a file, or lies in a store or a folder of results.

    Examples
    --------
    >>> import mlfs_dask as mlfs
    >>> with mlfs.cache(None):
    ...     pass
    """
    chosen = None if place is None else os.fspath(place)
    if chosen is not None and chosen != BESIDE:
        if "://" in chosen:
            raise UsageError(f"the cache must be a local folder, since its arrays are mapped into memory; got {chosen}")
        if Path(chosen).exists() and not Path(chosen).is_dir():
            raise UsageError(f"the cache must be a folder; {chosen} is a file")
        from mlfs_dask.files.object_store import require_writable  # a cache beside its store needs no check

        require_writable(chosen, takes_files=True)
    if size <= 0:
        raise UsageError(f"the size of the cache must be positive; got {size}")
    with assigned(_setting, (chosen, size)):
        yield


def is_on(source: RowSource | Profile) -> bool:
    """Return True if statistics of these rows are cached; False for a profile, which has no content."""
    return isinstance(source, RowSource) and _folder_of(source) is not None


@contextlib.contextmanager
def record_hits() -> Iterator[list[str]]:
    """Record the kinds of statistics loaded from the cache in the with-block, in order, each once."""
    kinds: list[str] = []
    with assigned(_hits, (*_hits.get(), kinds)):
        yield kinds


@contextlib.contextmanager
def assume_cached() -> Iterator[None]:
    """Plan in the with-block as if the entries of `CacheEntry.assume_filled` were in the cache."""
    with assigned(_assumed, (*_assumed.get(), set())):
        yield


def cache_of(store: str) -> Path:
    """Return the cache folder of a store under `cache("auto")`.

    >>> str(cache_of("data/enron.zarr"))
    'data/enron.zarr.cache'
    """
    if store.startswith("file://"):
        store = store[7:]
    if "://" in store:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlfs"
    path = Path(store)
    return path.with_name(path.name + ".cache")


def _folder_of(source: RowSource) -> Path | None:
    place, _ = _setting.get()
    if place is None or source.digest is None:
        return None
    if place != BESIDE:
        return Path(place)
    return None if source.place is None else cache_of(source.place)


def entry(source: RowSource, kind: str, parameters: Mapping[str, Any], *, digest: str | None = None) -> CacheEntry:
    """Return the cache entry of one statistic.

    Parameters
    ----------
    source : RowSource
        Without a `digest` nothing of it is kept.
    kind : str
        Lower-case words joined by hyphens.
    parameters : mapping
        Plain values and arrays on which the statistic depends, beside the data.
    digest : str, optional
        Of the content that is meant, where it is an earlier one of the source (`RowSource.earlier`).
    """
    folder = _folder_of(source)
    if folder is None:
        return CacheEntry()
    identity = {
        "format": _FORMAT,
        "kind": kind,
        "store": digest or source.digest,
        "parameters": digest_of(parameters),
        "code": [__version__, code_digest()],
    }
    return CacheEntry(folder / f"{kind}-{digest_of(identity)}", kind, identity, _setting.get()[1])


@dataclass(frozen=True)
class RowFiles:
    """Files with arrays of the rows of a store, one for each block, in an entry of its cache.

    Processes that read a block write and read them; an array that is missing or damaged is computed again.

    Attributes
    ----------
    folder : Path
        Of the cache.
    identity : mapping
        What the key of an entry is a digest of, beside its name.
    n : int
        Rows of the store.
    size : int
        Bytes that the cache may hold.
    """

    folder: Path
    identity: Mapping[str, Any]
    n: int
    size: int

    def _file(self, name: str, start: int, rows: int) -> Path:
        return self.folder / f"{ROW_ARRAYS}-{digest_of({**self.identity, 'name': name})}" / f"{start}-{rows}"

    def load(self, name: str, start: int, rows: int, row_bytes: int) -> NDArray[np.uint8] | None:
        """Return the bytes of an array of some rows; None if it is missing or damaged."""
        file = self._file(name, start, rows)
        content = np.empty(rows * row_bytes + _DIGEST_BYTES, np.uint8)
        try:
            with file.open("rb", buffering=0) as stream:
                if os.fstat(stream.fileno()).st_size != len(content) or stream.readinto(content.data) != len(content):
                    return None
            os.utime(file.with_name(_RECORD))  # used now
        except OSError:
            return None
        array, digest = content[:-_DIGEST_BYTES], content[-_DIGEST_BYTES:]
        return array if _digest_of_bytes(array) == digest.tobytes() else None

    def save(self, name: str, start: int, rows: int, array: NDArray[np.uint8]) -> None:
        """Write the bytes of an array of some rows. If all rows take more than the cache may hold, or a file cannot
        be written, nothing is kept.
        """
        file, total = self._file(name, start, rows), len(array) // max(rows, 1) * self.n
        if total > self.size:
            return
        aside = file.with_name(f"{file.name}.{os.getpid()}-{threading.get_ident()}")
        try:
            if not file.parent.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                _write_tag(self.folder)
                file.with_name(_RECORD).write_text(json.dumps({**self.identity, "name": name}), encoding="utf-8")
                _make_room(self.folder, self.size - total)
            with aside.open("wb", buffering=0) as stream:
                stream.write(array.data)
                stream.write(_digest_of_bytes(array))
            aside.replace(file)
        except OSError as error:
            logger.info("%s: not kept: %s", file, error)
            with contextlib.suppress(OSError):
                aside.unlink(missing_ok=True)


def row_files(source: RowSource) -> RowFiles | None:
    """Return the files for arrays of the rows of a source; None without a cache."""
    identity = entry(source, ROW_ARRAYS, {}).identity
    folder = _folder_of(source)
    return None if folder is None else RowFiles(folder, identity, source.profile.n, _setting.get()[1])


@dataclass(frozen=True)
class CacheEntry:
    """Entry of one statistic in a cache; without a path it is of a statistic for which there is none, and stays empty.

    Attributes
    ----------
    path : Path, or None
        Its folder, within that of the cache.
    kind : str
    identity : mapping
        What the key is a digest of.
    size : int
        Bytes that the cache may hold.
    """

    path: Path | None = None
    kind: str = ""
    identity: Mapping[str, Any] = field(default_factory=dict)
    size: int = SIZE

    def assume_filled(self) -> None:
        """Assume in plans that an earlier job has filled this entry (`assume_cached`)."""
        if self.path is not None:
            for paths in _assumed.get()[-1:]:
                paths.add(self.path)

    @property
    def is_filled(self) -> bool:
        """True if the statistic is cached; its digests are not verified."""
        if self.path is None:
            return False
        if any(self.path in paths for paths in _assumed.get()):
            return True
        try:
            record = _read_record(self.path)
            for name, each in record["arrays"].items():
                _open_array(self.path / f"{name}.npy", each)
        except (OSError, ValueError):
            return False
        return True

    def load(self) -> dict[str, NDArray[Any]] | None:
        """Return the cached arrays, verified; None if there are none. Writing to them changes no file."""
        if self.path is None:
            return None
        try:
            record = _read_record(self.path)
            for name, each in record["arrays"].items():
                _verify(self.path / f"{name}.npy", each)
            arrays = {name: _open_array(self.path / f"{name}.npy", each) for name, each in record["arrays"].items()}
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s is damaged and is computed again: %s", self.path, error)
            remove(self.path)
            return None
        with contextlib.suppress(OSError):
            os.utime(self.path / _RECORD)  # used now
        logger.info("%s: from the cache", self.kind)
        for kinds in _hits.get():
            if self.kind not in kinds:
                kinds.append(self.kind)
        return arrays

    def save(self, arrays: Arrays) -> None:
        """Cache arrays. If they cannot be written this is logged, and the job continues."""
        if self.path is None:
            return
        folder, total = self.path.parent, sum(array.nbytes for array in arrays.values())
        if total > self.size:
            logger.info("%s: %d bytes are more than the cache may hold", self.kind, total)
            return
        try:
            folder.mkdir(parents=True, exist_ok=True)
            _write_tag(folder)
            with runtime.stage("saving statistics to the cache"), appearing(self.path, durable=False) as aside:
                aside.mkdir()
                self._write(aside, arrays)
            _make_room(folder, self.size)
        except (OSError, MlfsError) as error:
            cause = error.__cause__ or error
            full = isinstance(cause, OSError) and cause.errno in DISK_FULL
            logger.warning("%s: not kept in %s: %s", self.kind, folder, "the disk is full" if full else cause)
        finally:
            with contextlib.suppress(OSError):  # a folder that holds nothing is not left
                folder.rmdir()

    def _write(self, aside: Path, arrays: Arrays) -> None:
        table = {}
        for name, array in arrays.items():
            file = aside / f"{name}.npy"
            with file.open("wb") as stream:
                try:
                    np.save(stream, array, allow_pickle=False)
                except OSError as error:
                    if error.errno is None:  # NumPy tells how much was written, and not why no more
                        os.write(stream.fileno(), bytes(2**16))
                    raise
            table[name] = {"bytes": file.stat().st_size, "digest": _digest_of_file(file)}
        record = {**self.identity, "arrays": table}
        record["digest"] = digest_of(record)
        (aside / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _read_record(path: Path) -> dict[str, Any]:
    """`entry.json`; ValueError if it is not what was written."""
    record = parse_json((path / _RECORD).read_bytes())
    if not isinstance(record, dict) or record.pop("digest", None) != digest_of(record):
        raise ValueError(f"{_RECORD} does not have its digest")
    return record


def _verify(file: Path, expected: Mapping[str, Any]) -> None:
    if not _has_size(file, expected) or _digest_of_file(file) != expected["digest"]:
        raise ValueError(f"{file.name} does not have its digest")


def _has_size(file: Path, expected: Mapping[str, Any]) -> bool:
    """Return True for a regular file (not a pipe, which would block) of the recorded size."""
    facts = file.lstat()
    return stat.S_ISREG(facts.st_mode) and facts.st_size == int(expected["bytes"])


def _open_array(file: Path, expected: Mapping[str, Any]) -> NDArray[Any]:
    if not _has_size(file, expected):
        raise ValueError(f"{file.name} does not have its size")
    # Copy-on-write: who computes in place changes memory of this process and no file.
    how: Literal["c"] | None = None if expected["bytes"] < MMAP_BYTES else "c"
    try:
        return np.asarray(np.load(file, mmap_mode=how, allow_pickle=False))
    except (EOFError, SyntaxError, tokenize.TokenError, MemoryError) as error:  # of a header that is no header
        raise ValueError(f"{file.name} is no array: {error}") from error


def _digest_of_bytes(array: NDArray[np.uint8]) -> bytes:
    return hashlib.blake2b(array.data, digest_size=_DIGEST_BYTES).digest()


def _digest_of_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _write_tag(folder: Path) -> None:
    """Mark the folder as a cache for backup programs (https://bford.info/cachedir/)."""
    with contextlib.suppress(FileExistsError), (folder / "CACHEDIR.TAG").open("x", encoding="ascii") as stream:
        stream.write(_TAG)


def _make_room(folder: Path, size: int) -> None:
    """Remove the least recently used entries until the cache fits its limit."""
    remove_leftovers(folder / "entry", "*")
    entries = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # somebody else has removed it
            if _ENTRY.fullmatch(path.name):
                record = path / _RECORD
                used = record.stat().st_mtime_ns if record.exists() else 0
                entries.append((used, sum(file.stat().st_size for file in path.iterdir()), path))
    total = sum(held for _, held, _ in entries)
    for _, held, path in sorted(entries):
        if total <= size:
            break
        logger.info("%s leaves the cache", path.name)
        remove(path)
        total -= held
