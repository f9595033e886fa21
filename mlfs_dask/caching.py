"""Statistics of whole stores, kept between jobs, so that a second selection with another λ or k reads nothing.

An entry is a folder `KIND-KEY` with an `.npy` file for every array and `entry.json`, which says what it is. The key is
a digest of the kind, of the store's content, of the statistic's parameters, and of the code that computes it: whatever
changes, another entry is meant, and nothing ever has to be declared stale. An entry appears whole, by a rename; it is
checked against its digests whenever it is read; it may be deleted at any time, since what is missing is computed again.

Primitives ask for the `slot` of what they are about to compute. Without `cache` around them, or on data without a
digest, a slot is empty and stays so.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import re
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.array_files import map_file, read_header, write_array
from mlfs_dask.errors import UsageError
from mlfs_dask.fingerprints import code_digest, digest_of

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]

#: Bytes that a cache may hold, unless told otherwise.
SIZE = 4 * 2**30

#: Where the caches of stores are: beside each of them.
BESIDE = "auto"

#: Arrays from this size on are mapped and not read: what is not used of them takes no memory.
MAPPED_FROM = 2**20

#: Seconds after which a folder that a killed process left half-written is removed.
_ABANDONED = 3600.0

#: Tries to put an entry in its place while other processes put theirs there, or remove them.
_TRIES = 5

_FORMAT = 1
_RECORD = "entry.json"
_ENTRY = re.compile(r"[a-z][a-z-]*-[0-9a-f]{32}")
_ASIDE = re.compile(r"\.[a-z][a-z-]*-[0-9a-f]{32}\.[0-9a-f]{8}")
_TAG = """Signature: 8a477f597d28d172789f06886806bc55
# Statistics that mlfs has computed and would otherwise compute again. Safe to delete at any time.
"""

#: Folders of the package whose code decides what a statistic is.
_CODE = ("blocks", "primitives")


@dataclass(frozen=True)
class _Setting:
    place: str | None
    size: int


# Of the context, so that threads of a user do not get each other's (`runtime.in_context`).
_setting: ContextVar[_Setting | None] = ContextVar("setting", default=None)
_notes: ContextVar[tuple[list[str], ...]] = ContextVar("notes", default=())
_presumed: ContextVar[tuple[set[Path], ...]] = ContextVar("presumed", default=())


@contextlib.contextmanager
def cache(place: str | os.PathLike[str] | None = BESIDE, *, size: int = SIZE) -> Iterator[None]:
    """Keep the statistics of stores, and use those that are kept, in the with-block.

    This holds for the thread of the with-block alone; another thread of a program has a cache of its own, or none.

    Parameters
    ----------
    place : path, "auto" or None
        Folder of the cache. "auto": beside each store, `STORE.cache`; of a store at a URL in the user's cache folder
        (`$XDG_CACHE_HOME/mlfs`). None: nothing is kept in the with-block.
    size : int
        Bytes that one folder may hold; entries that were not used for longest leave first.

    Raises
    ------
    UsageError
        The place is a URL, or is no folder.

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
    if size <= 0:
        raise UsageError(f"the size of the cache must be positive; got {size}")
    token = _setting.set(_Setting(chosen, size))
    try:
        yield
    finally:
        _setting.reset(token)


def is_on(source: Any) -> bool:
    """Whether statistics of a row source are kept."""
    return _folder_of(source) is not None


@contextlib.contextmanager
def noting() -> Iterator[list[str]]:
    """The kinds of statistics that came from the cache in the with-block, in their order."""
    taken: list[str] = []
    token = _notes.set((*_notes.get(), taken))
    try:
        yield taken
    finally:
        _notes.reset(token)


@contextlib.contextmanager
def presuming() -> Iterator[None]:
    """Plan as if everything that is told by `Slot.presume` in the with-block were in the cache."""
    token = _presumed.set((*_presumed.get(), set()))
    try:
        yield
    finally:
        _presumed.reset(token)


def cache_of(store: str) -> Path:
    """Where the cache of a store is, unless told otherwise.

    >>> str(cache_of("data/enron.zarr"))
    'data/enron.zarr.cache'
    """
    if store.startswith("file://"):
        store = store[7:]
    if "://" in store:
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mlfs"
    path = Path(store)
    return path.with_name(path.name + ".cache")


def _folder_of(source: Any) -> Path | None:
    setting = _setting.get()
    if setting is None or setting.place is None:
        return None
    digest, store = getattr(source, "digest", None), getattr(source, "place", None)
    if digest is None or (store is None and setting.place == BESIDE):
        return None
    return cache_of(str(store)) if setting.place == BESIDE else Path(setting.place)


def slot(
    source: Any,
    kind: str,
    parameters: Mapping[str, Any],
    *,
    covers: Callable[[Arrays], bool] | None = None,
) -> Slot:
    """The place of one statistic.

    Parameters
    ----------
    source : RowSource
        With `digest`, of its content, and `place`, the path or URL of its store.
    kind : str
        Lower-case words joined by hyphens.
    parameters : mapping
        Plain values and arrays on which the statistic depends, beside the data.
    covers : function, optional
        Says whether the arrays that are kept are enough. An entry that is not enough is replaced.
    """
    setting, folder = _setting.get(), _folder_of(source)
    if setting is None or folder is None:
        return Slot()
    identity = {
        "format": _FORMAT,
        "kind": kind,
        "store": source.digest,
        "parameters": digest_of(parameters),
        "code": [__version__, code_digest(_CODE)],
    }
    return _Kept(folder, kind, identity, setting.size, covers)


class Slot:
    """Holds nothing and keeps nothing: the slot of a statistic for which there is no cache."""

    @property
    def is_filled(self) -> bool:
        """Whether an entry is there; it is not verified."""
        return False

    def presume(self) -> None:
        """Take the slot for filled, in plans: an earlier job will have filled it (`presuming`)."""

    def load(self, *, rows: Sequence[str] = ()) -> dict[str, NDArray[Any]] | None:
        """The arrays kept, if they are there and are what was written. Writing to them changes no file.

        Parameters
        ----------
        rows : sequence of str
            Arrays with a row for every row of the data: their pages are given back (`row_arrays.give_back`), and they
            cannot be written to.
        """
        return None

    def save(self, arrays: Arrays) -> None:
        """Keep arrays. What cannot be kept is only told: the job itself can go on."""


class _Kept(Slot):
    def __init__(
        self,
        folder: Path,
        kind: str,
        identity: Mapping[str, Any],
        size: int,
        covers: Callable[[Arrays], bool] | None,
    ) -> None:
        self._folder = folder
        self._kind = kind
        self._identity = dict(identity)
        self._size = size
        self._covers = covers
        self._entry = folder / f"{kind}-{digest_of(identity)}"

    def presume(self) -> None:
        for entries in _presumed.get()[-1:]:
            entries.add(self._entry)

    @property
    def is_filled(self) -> bool:
        return any(self._entry in entries for entries in _presumed.get()) or self._is_there()

    def _is_there(self) -> bool:
        try:
            record = _read_record(self._entry)
            arrays = {name: _open_array(self._entry / f"{name}.npy", each) for name, each in record["arrays"].items()}
        except (OSError, ValueError):
            return False
        return self._covers is None or self._covers(arrays)

    def load(self, *, rows: Sequence[str] = ()) -> dict[str, NDArray[Any]] | None:
        try:
            record = _read_record(self._entry)
            for name, each in record["arrays"].items():
                _verify(self._entry / f"{name}.npy", each)
            arrays = {
                name: _open_array(self._entry / f"{name}.npy", each, to_be_read=name in rows)
                for name, each in record["arrays"].items()
            }
        except (FileNotFoundError, NotADirectoryError):
            return None
        except (OSError, ValueError) as error:
            logger.warning("%s is damaged and is computed again: %s", self._entry, error)
            _remove(self._entry)
            return None
        if self._covers is not None and not self._covers(arrays):
            return None
        with contextlib.suppress(OSError):
            os.utime(self._entry / _RECORD)  # used now
        logger.info("%s: from the cache", self._kind)
        for taken in _notes.get():
            taken.append(self._kind)
        return arrays

    def save(self, arrays: Arrays) -> None:
        total = sum(array.nbytes for array in arrays.values())
        if total > self._size:
            logger.info("%s: %d bytes are more than the cache may hold", self._kind, total)
            return
        aside = self._folder / f".{self._entry.name}.{uuid.uuid4().hex[:8]}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            _write_tag(self._folder)
            aside.mkdir()
            with runtime.stage(f"cache: {self._kind}"):
                self._write(aside, arrays)
            for left in reversed(range(_TRIES)):
                if self._entry.exists() and not self._is_there():
                    _remove(self._entry)  # damaged, or too little
                try:
                    aside.rename(self._entry)
                    break
                except OSError:
                    if self._is_there():  # another process was faster, with the same content
                        break
                    if not left:
                        raise
            _make_room(self._folder, self._size)
        except OSError as error:
            logger.warning("%s: not kept in %s: %s", self._kind, self._folder, error)
        finally:
            shutil.rmtree(aside, ignore_errors=True)

    def _write(self, aside: Path, arrays: Arrays) -> None:
        table = {}
        for name, array in arrays.items():
            file = aside / f"{name}.npy"
            with file.open("wb") as stream:
                write_array(stream, array)
            table[name] = {"bytes": file.stat().st_size, "digest": _digest_of_file(file)}
        record = {**self._identity, "arrays": table}
        record["digest"] = digest_of(record)
        (aside / _RECORD).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def _read_record(entry: Path) -> dict[str, Any]:
    """`entry.json`; ValueError if it is not what was written."""
    record = json.loads((entry / _RECORD).read_bytes())
    if not isinstance(record, dict) or record.pop("digest", None) != digest_of(record):
        raise ValueError(f"{_RECORD} does not have its digest")
    return record


def _verify(file: Path, expected: Mapping[str, Any]) -> None:
    if file.stat().st_size != expected["bytes"] or _digest_of_file(file) != expected["digest"]:
        raise ValueError(f"{file.name} does not have its digest")


def _open_array(file: Path, expected: Mapping[str, Any], *, to_be_read: bool = False) -> NDArray[Any]:
    if to_be_read:
        with file.open("rb") as stream:
            shape, fortran, dtype = read_header(stream)
            return map_file(stream, stream.tell(), shape, fortran, dtype)
    if expected["bytes"] < MAPPED_FROM:
        array: NDArray[Any] = np.load(file, allow_pickle=False)
        return array
    # Copy-on-write: who computes in place changes memory of this process and no file.
    return np.asarray(np.load(file, mmap_mode="c", allow_pickle=False))


def _digest_of_file(file: Path) -> str:
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


def _write_tag(folder: Path) -> None:
    """Mark the folder, as backup programs know it (https://bford.info/cachedir/)."""
    with contextlib.suppress(FileExistsError), (folder / "CACHEDIR.TAG").open("x", encoding="ascii") as stream:
        stream.write(_TAG)


def _remove(entry: Path) -> None:
    """Remove an entry at once for everybody: who has mapped its arrays keeps them, nobody meets half of it."""
    aside = entry.with_name(f".{entry.name}.{uuid.uuid4().hex[:8]}")
    with contextlib.suppress(OSError):
        entry.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)


def _make_room(folder: Path, size: int) -> None:
    """Remove the entries that were not used for longest, until the others fit."""
    found = []
    for path in folder.iterdir():
        with contextlib.suppress(OSError):  # somebody else has removed it
            if _ASIDE.fullmatch(path.name) and time.time() - path.stat().st_mtime > _ABANDONED:
                shutil.rmtree(path, ignore_errors=True)
            elif _ENTRY.fullmatch(path.name):
                record = path / _RECORD
                used = record.stat().st_mtime_ns if record.exists() else 0
                found.append((used, sum(file.stat().st_size for file in path.iterdir()), path))
    total = sum(held for _, held, _ in found)
    for _, held, path in sorted(found):
        if total <= size:
            break
        logger.info("%s leaves the cache", path.name)
        _remove(path)
        total -= held
