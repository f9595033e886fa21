"""The state of a long loop on disk, so that a job that was killed goes on where it was.

A loop asks for the checkpoint of the job that is running (`current`), begins from the state it finds there, and leaves
its state after an iteration when enough time has passed. A state is arrays and plain facts in one file, no pickle; it
appears whole or not at all, and is taken up only by the same method and parameters, on the same data, with the same
code. Arrays with a row for every row of the data are never held for it: they are written block by block, and mapped
when they come back. What a loop makes once, such as a graph, is no part of its state but of the cache
(`mlfs_dask.caching`). Where nobody keeps checkpoints, or the data has no digest, all of this does nothing.
"""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import shutil
import struct
import tempfile
import time
import tokenize
import uuid
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.array_files import map_file, read_header, scratch_folder, write_array
from mlfs_dask.errors import MlfsError
from mlfs_dask.fingerprints import code_digest, digest_of

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]

#: Seconds between two states, unless told otherwise.
EVERY_SECONDS = 60.0

#: Times as long as writing a state took, no other one is written: however large states are, a tenth of the time goes
#: into them at most.
REST = 10.0

#: Bytes that are written or read at a time.
_BLOCK = 2**20

_STATE = "state.npz"
_FACTS = "facts"
_PREFIX = "array/"


class State(NamedTuple):
    """What a loop left: arrays by name, and facts that JSON can hold."""

    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]


class Checkpoint:
    """Keeps nothing: the checkpoint of a job for which nobody asked for any."""

    def load(self, *, rows: Sequence[str] = ()) -> State | None:
        """The state to go on from, if there is one.

        Parameters
        ----------
        rows : sequence of str
            Arrays with a row for every row of the data: they are mapped, to be read from and not written to.
        """
        return None

    def due(self) -> bool:
        """Whether it is time to leave a state."""
        return False

    def save(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Leave a state, which takes the place of the last one."""


@dataclass
class _Kept(Checkpoint):
    """States in a folder."""

    folder: Folder
    key: str
    every: float
    resume: bool
    _last: float = field(default_factory=lambda: time.monotonic())
    _took: float = 0.0

    def load(self, *, rows: Sequence[str] = ()) -> State | None:
        if not self.resume:
            return None
        state = self.folder.read(_STATE, self.key, rows=rows)
        if state is not None:
            logger.info("going on from a checkpoint: %s", self.folder)
        return state

    def due(self) -> bool:
        rest = REST * self._took if self.every > 0 else 0.0
        return time.monotonic() - self._last >= max(self.every, rest)

    def save(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        started = time.monotonic()
        try:
            with runtime.stage("checkpoint"):
                self.folder.write(_STATE, self.key, arrays, facts)
        except Exception as error:  # a full disk, or whatever a client of object stores raises: the job can go on
            if not isinstance(error, OSError) and not self.folder.is_remote:
                raise
            logger.warning("no checkpoint could be written to %s: %s", self.folder, error)
        self._last = time.monotonic()
        self._took = self._last - started
        logger.info("checkpoint: %.1f s", self._took)


class Folder:
    """Files of arrays and facts in a local folder or at a URL.

    Parameters
    ----------
    place : str
        The folder is made when the first file is written.
    storage_options : mapping, optional
        For fsspec.
    """

    def __init__(self, place: str, *, storage_options: Mapping[str, Any] | None = None) -> None:
        self.place = place.removeprefix("file://").rstrip("/")
        self._options = dict(storage_options or {})

    def __str__(self) -> str:
        return self.place

    @property
    def is_remote(self) -> bool:
        """Whether the place is a URL."""
        return "://" in self.place

    @property
    def holds_state(self) -> bool:
        """Whether a loop has left a state here, of whatever job."""
        if self.is_remote:
            files, root = self._files()
            return bool(files.exists(f"{root}/{_STATE}"))
        return (Path(self.place) / _STATE).is_file()

    def write(self, file: str, key: str, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Write one file, whole or not at all, with a block of memory beside the arrays."""
        header = {"key": key, "arrays": list(arrays), "facts": dict(facts)}
        text = json.dumps(header, default=lambda value: value.item()).encode()
        content = {_FACTS: np.frombuffer(text, dtype=np.uint8)}
        content |= {_PREFIX + name: np.asarray(array) for name, array in arrays.items()}
        if self.is_remote:
            files, root = self._files()
            files.makedirs(root, exist_ok=True)
            # An upload that breaks off would end as a torn object in the place of the last one: it begins when the
            # file is complete.
            with tempfile.TemporaryDirectory(prefix="mlfs-checkpoint-") as here:
                complete = Path(here) / file
                _write_archive(complete, content)
                files.put_file(str(complete), f"{root}/{file}")
            return
        folder = Path(self.place)
        folder.mkdir(parents=True, exist_ok=True)
        for left in folder.glob(f".{file}.*"):  # of a process that was killed while it wrote
            left.unlink(missing_ok=True)
        aside = folder / f".{file}.{uuid.uuid4().hex[:8]}"
        try:
            _write_archive(aside, content)
            aside.replace(folder / file)
        finally:
            aside.unlink(missing_ok=True)

    def read(self, file: str, key: str, *, rows: Sequence[str] = ()) -> State | None:
        """What a file holds; None if it is not there, is damaged, or belongs to another job.

        Parameters
        ----------
        file, key : str
        rows : sequence of str
            Arrays that are mapped, not read into memory; those of a URL in a copy in the scratch folder.

        Raises
        ------
        MlfsError
            It is there and cannot be read: to begin anew would overwrite it.
        """
        try:
            if self.is_remote:
                files, root = self._files()
                with tempfile.TemporaryFile(dir=scratch_folder(), prefix="mlfs-checkpoint-") as here:
                    with files.open(f"{root}/{file}", "rb") as stream:
                        shutil.copyfileobj(stream, here, _BLOCK)
                    return self._parse(here, key, rows)
            with (Path(self.place) / file).open("rb") as stream:
                return self._parse(stream, key, rows)
        except FileNotFoundError:
            return None
        except _DAMAGE as error:
            self._tell_damage(file, error)
            return None
        except Exception as error:  # of the disk, or whatever a client of object stores raises
            if isinstance(error, OSError) and error.errno == errno.EINVAL:  # a place before the beginning of the file
                self._tell_damage(file, error)
                return None
            raise MlfsError(
                f"the checkpoint {self.place}/{file} cannot be read: {error}\n  cure: try again when it can; without "
                "--resume (resume=False) the job begins anew and overwrites it"
            ) from error

    def _tell_damage(self, file: str, error: Exception) -> None:
        logger.warning("the checkpoint %s/%s is damaged and left aside: %s", self.place, file, error)

    def _parse(self, stream: Any, key: str, rows: Sequence[str]) -> State | None:
        stream.seek(0)
        with np.load(stream, allow_pickle=False) as archive:
            header = json.loads(archive[_FACTS].tobytes())
            if header["key"] != key:
                logger.warning(
                    "the checkpoint in %s was left by another method, data, parameters or version; it is left aside",
                    self.place,
                )
                return None
            arrays = {
                name: _mapped_array(archive.zip, stream, _PREFIX + name) if name in rows else archive[_PREFIX + name]
                for name in header["arrays"]
            }
            return State(arrays, header["facts"])

    def remove(self) -> None:
        """Remove all files and the folder."""
        if self.is_remote:
            files, root = self._files()
            if files.exists(root):
                files.rm(root, recursive=True)
            return
        folder = Path(self.place)
        if folder.is_dir():
            for file in [*folder.glob("*.npz"), *folder.glob(".*.npz.*")]:
                file.unlink()
            with contextlib.suppress(OSError):  # somebody else's files are in it
                folder.rmdir()

    def _files(self) -> tuple[Any, str]:
        from fsspec.core import url_to_fs

        files, root = url_to_fs(self.place, **self._options)
        return files, root.rstrip("/")


#: What reading a file raises that is not what was written. (Of zipfile: wrong sums, and flags and methods it knows of.)
_DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    RuntimeError,
    zipfile.BadZipFile,
    zlib.error,
    struct.error,
    tokenize.TokenError,
)


def _write_archive(path: Path, content: Arrays) -> None:
    """Arrays as an .npz file, no pickle, on the disk when this returns."""
    with path.open("wb") as stream:
        with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
            for name, array in content.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    write_array(member, array)
        stream.flush()
        os.fsync(stream.fileno())


def _mapped_array(archive: zipfile.ZipFile, stream: Any, name: str) -> NDArray[Any]:
    """A member of an archive, as it lies in the file; read once, for its check sum."""
    member = archive.getinfo(f"{name}.npy")
    if member.compress_type != zipfile.ZIP_STORED:
        raise ValueError(f"{name} is compressed")
    with archive.open(member) as content:
        shape, fortran, dtype = read_header(content)
        begin, size = content.tell(), int(np.prod(shape)) * dtype.itemsize
        while content.read(_BLOCK):
            pass
    if dtype.hasobject or begin + size != member.file_size:
        raise ValueError(f"{name} does not have the length that its header says")
    # A member begins behind a header of its own, which has two lengths at its end.
    stream.seek(member.header_offset)
    lengths = struct.unpack("<HH", stream.read(30)[26:])
    return map_file(stream, member.header_offset + 30 + sum(lengths) + begin, shape, fortran, dtype)


@dataclass(frozen=True)
class _Keeping:
    folder: Folder
    every: float
    resume: bool


# Of the context, so that threads of a user do not get each other's (`runtime.in_context`).
_keeping: ContextVar[_Keeping | None] = ContextVar("keeping", default=None)
_current: ContextVar[Checkpoint | None] = ContextVar("current", default=None)


@contextlib.contextmanager
def keep_checkpoints(folder: Folder, *, every: float = EVERY_SECONDS, resume: bool = False) -> Iterator[None]:
    """Keep checkpoints of the jobs in the with-block, of this thread alone.

    Parameters
    ----------
    folder : Folder
    every : float
        Seconds between two states; 0 for one after every iteration.
    resume : bool
        Begin from the state that is there. Otherwise it is overwritten in time.
    """
    token = _keeping.set(_Keeping(folder, every, resume))
    try:
        yield
    finally:
        _keeping.reset(token)


@contextlib.contextmanager
def job(*, method: str, params: Mapping[str, Any], digest: str | None) -> Iterator[Checkpoint]:
    """The checkpoint of one job; `current` gives it inside the with-block.

    Parameters
    ----------
    method : str
    params : mapping
        All parameters, as plain data.
    digest : str or None
        Content digest of the data; without one no checkpoint is kept.
    """
    checkpoint = Checkpoint()
    keeping = _keeping.get()
    if keeping is not None and digest is not None:
        identity = {"method": method, "params": dict(params), "data": digest, "code": [__version__, code_digest()]}
        checkpoint = _Kept(keeping.folder, digest_of(identity), keeping.every, keeping.resume)
    token = _current.set(checkpoint)
    try:
        yield checkpoint
    finally:
        _current.reset(token)


def current() -> Checkpoint:
    """The checkpoint of the job that is running."""
    return _current.get() or Checkpoint()


def checkpoint_place(run: str) -> str:
    """Where the checkpoints of a run are kept: beside it.

    >>> checkpoint_place("results/run"), checkpoint_place("s3://bucket/run/")
    ('results/.run.checkpoint', 's3://bucket/run.checkpoint')
    """
    if "://" in run:
        return run.rstrip("/") + ".checkpoint"
    path = Path(run)
    return str(path.with_name(f".{path.name}.checkpoint"))
