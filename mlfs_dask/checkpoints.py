"""The state of a long loop on disk, so that a job that was killed goes on where it was.

A loop asks for the checkpoint of the job that is running (`current`), begins from the state it finds there, and leaves
its state after an iteration when enough time has passed. A state is arrays and plain facts in one file, no pickle; it
appears whole or not at all, and is taken up only by the same method and parameters, on the same data, with the same
code. Where nobody keeps checkpoints, or the data has no digest, all of this does nothing.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import time
import uuid
import zipfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask._version import __version__
from mlfs_dask.fingerprints import code_digest, digest_of

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]

#: Seconds between two states, unless told otherwise.
EVERY_SECONDS = 60.0

_STATE = "state.npz"
_FACTS = "facts"
_PREFIX = "array/"


class State(NamedTuple):
    """What a loop left: arrays by name, and facts that JSON can hold."""

    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]


class Checkpoint:
    """Keeps nothing: the checkpoint of a job for which nobody asked for any."""

    def load(self) -> State | None:
        """The state to go on from, if there is one."""
        return None

    def due(self) -> bool:
        """Whether it is time to leave a state."""
        return False

    def save(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Leave a state, which takes the place of the last one."""

    def part(self, name: str, compute: Callable[[], Arrays]) -> dict[str, NDArray[Any]]:
        """Arrays that are made once: from disk where they are there, else computed, and left there."""
        return dict(compute())


@dataclass
class _Kept(Checkpoint):
    """States in a folder."""

    folder: Folder
    key: str
    every: float
    resume: bool
    _last: float = field(default_factory=lambda: time.monotonic())

    def load(self) -> State | None:
        if not self.resume:
            return None
        state = self.folder.read(_STATE, self.key)
        if state is not None:
            logger.info("going on from a checkpoint: %s", self.folder)
        return state

    def due(self) -> bool:
        return time.monotonic() - self._last >= self.every

    def save(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        started = time.monotonic()
        self._write(_STATE, arrays, facts)
        self._last = time.monotonic()
        logger.info("checkpoint: %.1f s", self._last - started)

    def _write(self, file: str, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        try:
            self.folder.write(file, self.key, arrays, facts)
        except OSError as error:  # the job itself can go on
            logger.warning("no checkpoint could be written to %s: %s", self.folder, error)

    def part(self, name: str, compute: Callable[[], Arrays]) -> dict[str, NDArray[Any]]:
        file = f"part-{name}.npz"
        state = self.folder.read(file, self.key) if self.resume else None
        if state is not None:
            return state.arrays
        arrays = dict(compute())
        self._write(file, arrays, {})
        return arrays


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
        self.place = place.rstrip("/")
        self._options = dict(storage_options or {})

    def __str__(self) -> str:
        return self.place

    def write(self, file: str, key: str, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Write one file, whole or not at all."""
        header = json.dumps({"key": key, "facts": dict(facts)}, default=lambda value: value.item()).encode()
        content = {_FACTS: np.frombuffer(header, dtype=np.uint8)}
        content |= {_PREFIX + name: np.asarray(array) for name, array in arrays.items()}
        if "://" in self.place:
            files, root = self._files()
            files.makedirs(root, exist_ok=True)
            # An object of a store appears when its upload is complete.
            with files.open(f"{root}/{file}", "wb") as stream:
                np.savez(stream, allow_pickle=False, **content)
            return
        folder = Path(self.place)
        folder.mkdir(parents=True, exist_ok=True)
        aside = folder / f".{file}.{uuid.uuid4().hex[:8]}"
        try:
            with aside.open("wb") as stream:
                np.savez(stream, allow_pickle=False, **content)
                stream.flush()
                os.fsync(stream.fileno())
            aside.replace(folder / file)
        finally:
            aside.unlink(missing_ok=True)

    def read(self, file: str, key: str) -> State | None:
        """What a file holds; None if it is not there, is damaged, or belongs to another job."""
        try:
            if "://" in self.place:
                files, root = self._files()
                content = io.BytesIO(files.cat_file(f"{root}/{file}"))
                return self._parse(content, key)
            with (Path(self.place) / file).open("rb") as stream:
                return self._parse(stream, key)
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, zipfile.BadZipFile, EOFError) as error:
            logger.warning("the checkpoint %s/%s is damaged and left aside: %s", self.place, file, error)
            return None

    def _parse(self, stream: Any, key: str) -> State | None:
        with np.load(stream, allow_pickle=False) as archive:
            header = json.loads(archive[_FACTS].tobytes())
            if header["key"] != key:
                logger.warning(
                    "the checkpoint in %s was left by another method, data, parameters or version; it is left aside",
                    self.place,
                )
                return None
            names = [name for name in archive.files if name.startswith(_PREFIX)]
            return State({name.removeprefix(_PREFIX): archive[name] for name in names}, header["facts"])

    def remove(self) -> None:
        """Remove all files and the folder."""
        if "://" in self.place:
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


@dataclass(frozen=True)
class _Keeping:
    folder: Folder
    every: float
    resume: bool


_keeping: list[_Keeping] = []
_current: list[Checkpoint] = []


@contextlib.contextmanager
def keep_checkpoints(folder: Folder, *, every: float = EVERY_SECONDS, resume: bool = False) -> Iterator[None]:
    """Keep checkpoints of the jobs in the with-block.

    Parameters
    ----------
    folder : Folder
    every : float
        Seconds between two states; 0 for one after every iteration.
    resume : bool
        Begin from the state that is there. Otherwise it is overwritten in time.
    """
    _keeping.append(_Keeping(folder, every, resume))
    try:
        yield
    finally:
        _keeping.pop()


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
    if _keeping and digest is not None:
        keeping = _keeping[-1]
        identity = {"method": method, "params": dict(params), "data": digest, "code": [__version__, code_digest()]}
        checkpoint = _Kept(keeping.folder, digest_of(identity), keeping.every, keeping.resume)
    _current.append(checkpoint)
    try:
        yield checkpoint
    finally:
        _current.pop()


def current() -> Checkpoint:
    """The checkpoint of the job that is running."""
    return _current[-1] if _current else Checkpoint()


def checkpoint_place(run: str) -> str:
    """Where the checkpoints of a run are kept: beside it.

    >>> checkpoint_place("results/run"), checkpoint_place("s3://bucket/run/")
    ('results/.run.checkpoint', 's3://bucket/run.checkpoint')
    """
    if "://" in run:
        return run.rstrip("/") + ".checkpoint"
    path = Path(run)
    return str(path.with_name(f".{path.name}.checkpoint"))
