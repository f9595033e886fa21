"""The state of a long loop on disk, so that a job that was killed resumes from its last saved iteration.

A loop asks for the checkpoint of the running job (`current`), starts from the state that it holds, and saves its state
after an iteration when enough time has passed. A state is a few small arrays and plain facts in one .npz file, without
pickle. The file is written whole or not at all. A state is used only by the same method, parameters, data and code.
Results that a loop computes once belong to the cache (`mlfs_dask.engine.cache`), not to its state. Without
`keep_checkpoints`, or for data without a digest, nothing is saved.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.context import assigned
from mlfs_dask.errors import MlfsError, StoreAccessError
from mlfs_dask.files.access import access_error
from mlfs_dask.files.compressed_io import DAMAGE
from mlfs_dask.files.fingerprints import code_digest, digest_of
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.files.object_store import RemoteObjects, is_url, open_objects
from mlfs_dask.files.publish import appearing, remove_leftovers
from mlfs_dask.redaction import redact

logger = logging.getLogger(__name__)

Arrays = Mapping[str, NDArray[Any]]

#: Default of the seconds between two states.
EVERY_SECONDS = 60.0

#: Fraction of the running time that saving states may take: on slow storage states are saved less often.
MAX_SAVING_FRACTION = 0.1

_STATE = "state.npz"
_FACTS = "facts"
_PREFIX = "array/"


class State(NamedTuple):
    """State of a loop: arrays by name, and facts that JSON can represent."""

    arrays: dict[str, NDArray[Any]]
    facts: dict[str, Any]


@dataclass
class Checkpoint:
    """Checkpoint of one job in a folder; without one nothing is saved.

    Attributes
    ----------
    folder : Folder, or None
    key : str
        Digest of the job.
    every : float
        Seconds between two states.
    resume : bool
        Whether a state in the folder is gone on from.
    keeps_end : bool
        Whether the state in which the loop ends is to be saved, too.
    """

    folder: Folder | None = None
    key: str = ""
    every: float = EVERY_SECONDS
    resume: bool = False
    keeps_end: bool = False
    _saved_at: float = field(default_factory=lambda: time.monotonic())
    _saving_seconds: float = 0.0
    _stopping: bool = False

    def load(self) -> State | None:
        """Return the state to resume from; None if there is none."""
        if self.folder is None or not self.resume:
            return None
        state = self.folder.read(_STATE, self.key)
        if state is not None:
            logger.info("continuing from a checkpoint: %s", self.folder)
        return state

    def stop(self) -> bool:
        """End the loop with KeyboardInterrupt after its next saved state. Return True if it will end."""
        self._stopping = self.folder is not None
        return self._stopping

    def due(self) -> bool:
        """Return True if it is time to save a state."""
        if self.folder is None or self._stopping:
            return self._stopping
        pause = self._saving_seconds / MAX_SAVING_FRACTION if self.every > 0 else 0.0
        return time.monotonic() - self._saved_at >= max(self.every, pause)

    def save(self, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Save a state, which replaces the last one."""
        if self.folder is None:
            return
        started = time.monotonic()
        try:
            with runtime.stage("saving a checkpoint"):
                self.folder.write(_STATE, self.key, arrays, facts)
        except (OSError, MlfsError) as error:  # a full disk, a server that refuses: the job can continue
            logger.warning("no checkpoint could be written to %s", str(error).splitlines()[0])
        self._saved_at = time.monotonic()
        self._saving_seconds = self._saved_at - started
        logger.info("checkpoint: %.1f s", self._saving_seconds)
        if self._stopping:
            raise KeyboardInterrupt


class Folder:
    """Files of arrays and facts in a local folder or at a URL.

    Parameters
    ----------
    place : str
        The folder is made when the first file is written.
    """

    def __init__(self, place: str) -> None:
        self.place = place.removeprefix("file://").rstrip("/")

    def __str__(self) -> str:
        return redact(self.place)

    @property
    def is_remote(self) -> bool:
        """True if the folder is at a URL."""
        return is_url(self.place)

    @property
    def holds_state(self) -> bool:
        """True if the folder holds a state, of any job."""
        return open_objects(self.place).exists(_STATE)

    def write(self, file: str, key: str, arrays: Arrays, facts: Mapping[str, Any]) -> None:
        """Write one file, whole or not at all.

        Raises
        ------
        ValueError
            An array holds objects, which would be pickled.
        """
        header = {"key": key, "arrays": list(arrays), "facts": dict(facts)}
        text = json.dumps(header, default=lambda value: value.item()).encode()
        content = {_FACTS: np.frombuffer(text, dtype=np.uint8)}
        content |= {_PREFIX + name: np.asarray(array) for name, array in arrays.items()}
        if self.is_remote:
            # The upload starts when the archive is complete: an upload that breaks off while arrays are being written
            # would replace the last state by half of one.
            archive = io.BytesIO()
            _write_npz(archive, content)
            open_objects(self.place).write(file, archive.getvalue())
            return
        with appearing(Path(self.place) / file) as aside, aside.open("wb") as stream:
            _write_npz(stream, content)

    def read(self, file: str, key: str) -> State | None:
        """Return the content of a file; None if it does not exist, is damaged, or belongs to another job.

        Raises
        ------
        StoreAccessError
            The file exists and cannot be read now. To start from the beginning would overwrite it.
        """
        try:
            content = open_objects(self.place).read(file)
        except FileNotFoundError:
            return None
        except (OSError, StoreAccessError) as refusal:
            error = refusal if isinstance(refusal, StoreAccessError) else access_error(f"{self.place}/{file}", refusal)
            cure = f"{error.cure}; without --resume (resume=False) the job begins anew and overwrites the checkpoint"
            raise type(error)(error.store, error.problem, cure) from error
        try:
            return self._parse(content, key)
        except (MemoryError, *DAMAGE) as error:  # memory for a shape that it does not have: the content is held already
            logger.warning("the checkpoint %s/%s is damaged and ignored: %s", self, file, error)
            return None

    def _parse(self, content: bytes, key: str) -> State | None:
        with np.load(io.BytesIO(content), allow_pickle=False) as archive:
            # NumPy verifies the check sum of an array only if the length in its header is right.
            damaged = archive.zip.testzip()
            if damaged is not None:
                raise ValueError(f"wrong check sum of {damaged}")
            header = parse_json(archive[_FACTS].tobytes())
            if header["key"] != key:
                logger.warning(
                    "the checkpoint in %s belongs to another method, data, parameters or version; it is left aside",
                    self.place,
                )
                return None
            return State({name: archive[_PREFIX + name] for name in header["arrays"]}, header["facts"])

    def remove(self) -> None:
        """Remove all files and the folder."""
        if self.is_remote:
            objects = RemoteObjects(self.place)
            objects.remove(*objects.sizes())
            return
        folder = Path(self.place)
        if folder.is_dir():
            remove_leftovers(folder / _STATE, "*")
            # A write of mlfs 0.1 that was killed has left a file of such a name.
            for file in (*folder.glob("*.npz"), *(file for file in folder.glob(f".{_STATE}.*") if file.is_file())):
                file.unlink()
            with contextlib.suppress(OSError):  # somebody else's files are in it
                folder.rmdir()


def _write_npz(stream: BinaryIO, content: Arrays) -> None:
    """Write an .npz file. Unlike `numpy.savez` this refuses objects, and takes any name of an array."""
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_STORED) as archive:
        for name, array in content.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)


# Of the context, so that threads of a user do not get each other's (`runtime.in_context`). The first makes the
# checkpoint of a job with a key.
_make: ContextVar[Callable[[str], Checkpoint] | None] = ContextVar("make", default=None)
_current: ContextVar[Checkpoint | None] = ContextVar("current", default=None)


@contextlib.contextmanager
def keep_checkpoints(
    folder: Folder, *, every: float = EVERY_SECONDS, resume: bool = False, keep_end: bool = False
) -> Iterator[None]:
    """Keep checkpoints of the jobs that this thread runs in the with-block.

    Parameters
    ----------
    folder : Folder
    every : float
        Seconds between two states; 0 to save one after every iteration.
    resume : bool
        Start from the state in the folder. Otherwise the first state that is saved replaces it.
    keep_end : bool
        Save the state in which a loop ends, too, so that what comes after it can be done again without the loop.
    """
    with assigned(_make, lambda key: Checkpoint(folder, key, every, resume, keep_end)):
        yield


@contextlib.contextmanager
def job(*, method: str, params: Mapping[str, Any], digest: str | None) -> Iterator[Checkpoint]:
    """Make the checkpoint of one job, which `current` returns inside the with-block.

    Parameters
    ----------
    method : str
    params : mapping
        All parameters, as plain data.
    digest : str or None
        Content digest of the data; None if it has none, and then no checkpoint is kept.
    """
    checkpoint, make = Checkpoint(), _make.get()
    if make is not None and digest is not None:
        identity = {"method": method, "params": dict(params), "data": digest, "code": [__version__, code_digest()]}
        checkpoint = make(digest_of(identity))
    with assigned(_current, checkpoint):
        yield checkpoint


def current() -> Checkpoint:
    """Return the checkpoint of the running job."""
    return _current.get() or Checkpoint()


def checkpoint_place(run: str) -> str:
    """Return the folder of a run's checkpoints, beside the run.

    >>> checkpoint_place("results/run"), checkpoint_place("s3://bucket/run/")
    ('results/.run.checkpoint', 's3://bucket/run.checkpoint')
    """
    if is_url(run):
        return run.rstrip("/") + ".checkpoint"
    path = Path(run)
    return str(path.with_name(f".{path.name}.checkpoint"))
