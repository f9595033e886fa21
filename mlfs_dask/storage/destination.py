"""Destination of a store: its working directory, its lock, and the single step that publishes the whole store."""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
import os
import stat
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any

from mlfs_dask.errors import (
    DISK_FULL,
    DataError,
    MlfsError,
    StoreAccessError,
    StoreUnavailableError,
    UsageError,
)
from mlfs_dask.files.limits import full_disk
from mlfs_dask.files.object_store import ROOT_KEY, LocalObjects, RemoteObjects, is_url, local_path, require_writable
from mlfs_dask.files.publish import behind_links, locked, put, put_back, remove
from mlfs_dask.files.sources import Source, sha256
from mlfs_dask.storage.extension import StoreExtension
from mlfs_dask.storage.schema import StoreSchema, read_schema
from mlfs_dask.storage.writer import write_atomically

logger = logging.getLogger(__name__)


class Destination:
    """The destination of a conversion and the working directory beside it.

    Parameters
    ----------
    store : str or Path
        As the user gave it.
    storage_options : mapping or None

    Attributes
    ----------
    final : Path or None
        Local destination; None for a URL.
    remote : RemoteObjects or None
    wip : Path
        Working directory; on the destination's file system, so that the store moves in one step.

    Raises
    ------
    UsageError
        Nothing may be written there, or somebody else has made the working directory.
    """

    def __init__(self, store: str | Path, storage_options: Mapping[str, Any] | None) -> None:
        require_writable(str(store), storage_options)
        self.store = str(store)
        self.final: Path | None = None
        self.remote: RemoteObjects | None = None
        if is_url(store):
            self.remote = RemoteObjects(self.store, storage_options)
            mark = hashlib.sha256(self.store.encode()).hexdigest()[:16]
            self.wip = Path(tempfile.gettempdir()) / f"mlfs-{os.geteuid()}-{mark}.wip"
        else:
            final = Path.cwd() / local_path(store)
            if not self.store or not final.name:
                raise UsageError(f"{self.store!r} is not a path for a store\n  cure: give the path of a new folder")
            self.final = behind_links(final) if final.exists() else final
            self.wip = self.final.with_name(f".{self.final.name}.wip")
        require_own(self.wip, private=self.remote is not None)

    def check_free(self, *, force: bool, resume: bool = False) -> None:
        """Raise unless the destination is free, a store that may be replaced, or what an upload left that goes on."""
        if self.remote is not None:
            left = resume and self.wip.exists() and not self.remote.exists(ROOT_KEY)
            if not force and not left and self.remote.sizes():
                raise UsageError(f"{self.store} exists\n  cure: choose another name, or pass --force")
            return
        final = self.final
        assert final is not None
        if not final.parent.is_dir():
            raise UsageError(f"{final.parent} is not a folder\n  cure: make it first")
        if not os.path.lexists(final):
            return
        if not force:
            raise UsageError(f"{self.store} exists\n  cure: choose another name, or pass --force")
        if not final.is_dir() or not ((final / ROOT_KEY).is_file() or not any(final.iterdir())):
            raise UsageError(
                f"{self.store} exists and is not a store, so --force does not replace it"
                "\n  cure: choose another name, or remove it yourself"
            )

    @contextlib.contextmanager
    def locked(self, job: dict[str, Any], sources: Sequence[Source], *, force: bool, resume: bool) -> Iterator[Path]:
        """The working directory, held by this process alone; kept afterwards only if going on makes sense."""
        try:
            if self.wip.exists():
                self._admit(job, sources, force=force, resume=resume)
            private = self.remote is not None
            self.wip.mkdir(exist_ok=True, mode=0o700 if private else 0o777)
            require_own(self.wip, private=private)  # what somebody put there since it was looked for
            with self._lock():
                write_atomically(self.wip / "job.json", json.dumps(job).encode())
                try:
                    yield self.wip
                except BaseException as error:
                    if _is_interruption(error):
                        logger.info("%s keeps what is done, for --resume", self.wip)
                    else:
                        self.discard()
                    raise
        except BrokenProcessPool as error:
            raise MlfsError(
                "a worker process died while converting (out of memory? a script without "
                f'`if __name__ == "__main__":`?)\n  cure: pass --resume, with fewer --workers: {error}'
            ) from error
        except PermissionError as error:
            raise MlfsError(
                f"{error.filename or self.wip}: no permission to write there"
                "\n  cure: check owner and mode of the folder, or give another place"
            ) from error
        except OSError as error:
            if not self.wip.exists():
                raise
            if error.errno not in DISK_FULL:
                raise MlfsError(
                    f"{self.store}: {error.strerror or error}"
                    f"\n  cure: remove the cause and pass --resume ({self.wip} keeps the finished part)"
                ) from error
            raise full_disk(
                f"{self.wip}: the disk is full, and more has to be written",
                self.wip,
                _missing_bytes(self.wip),
                cure=f"make room and pass --resume, or remove {self.wip}",
            ) from error

    def _lock(self) -> contextlib.AbstractContextManager[None]:
        return locked(self.wip / "lock", f"another process is converting to {self.store}\n  cure: wait for it")

    def _admit(self, job: dict[str, Any], sources: Sequence[Source], *, force: bool, resume: bool) -> None:
        with contextlib.ExitStack() as stack:
            with contextlib.suppress(FileNotFoundError):
                stack.enter_context(self._lock())
            if self._holds_nothing():
                pass
            elif resume:
                differences = self._differences(job, sources)
                if not differences:
                    return
                if not force:
                    raise UsageError(
                        f"cannot resume the interrupted conversion in {self.wip}: "
                        + "; ".join(differences)
                        + "\n  cure: pass --force to start again"
                    )
            elif not force:
                raise UsageError(
                    f"an interrupted conversion to {self.store} is in {self.wip}"
                    "\n  cure: pass --resume to continue it, or --force to start again"
                )
        self.discard()

    def _holds_nothing(self) -> bool:
        """Return True if a process ended, or failed to write, before its first step or after its last step."""
        if not (self.wip / "job.json").exists():
            return True
        published = read_json(self.wip / "published.json")
        if published is None:
            return False
        try:
            # In its place the new store has left the one that it was exchanged with, or none.
            digest: str = read_schema(LocalObjects(self.wip / "store"))[0].root_digest
        except DataError:
            return True
        return bool(digest != published["root_digest"])

    def discard(self) -> None:
        """Remove the working directory; a store that was just being replaced goes back to its place first."""
        if self.final is not None:
            put_back(self.wip / "store", self.final)
        remove(self.wip)

    def _differences(self, job: dict[str, Any], sources: Sequence[Source]) -> list[str]:
        try:
            before = json.loads((self.wip / "job.json").read_bytes())
        except (OSError, ValueError):
            return ["its description is missing or damaged"]
        differences = [
            f"{name} was {before.get(name)!r} and is {job[name]!r}"
            for name in ("version", "staging")
            if before.get(name) != job[name]
        ]
        differences += [
            f"option {name} was {before['options'].get(name)!r} and is {job['options'].get(name)!r}"
            for name in {**before["options"], **job["options"]}
            if before["options"].get(name) != job["options"].get(name)
        ]
        if before.get("appended_to") != job["appended_to"]:
            differences.append("the store that rows are appended to was changed, or there was none")
        if before.get("header") != job["header"]:
            differences.append("names of features or labels, or their declared values, were changed")
        old, new = before["sources"], job["sources"]
        if [source["path"] for source in old] != [source["path"] for source in new]:
            return [*differences, "the sources are other files"]
        hashes = read_json(self.wip / "sha256.json") or {}
        for earlier, now, source in zip(old, new, sources, strict=True):
            if earlier["bytes"] != now["bytes"]:
                differences.append(f"{now['path']} had {earlier['bytes']:,} bytes and has {now['bytes']:,}")
            elif earlier["modified"] != now["modified"]:
                # Copied or touched: the same bytes are the same source.
                known = hashes.get(now["path"])
                if known is None or known != sha256(source):
                    differences.append(f"{now['path']} was changed")
        return differences

    def publish(self, schema: StoreSchema, *, force: bool, extension: StoreExtension | None = None) -> None:
        """Move the finished store to its place and remove the working directory.

        Parameters
        ----------
        schema : StoreSchema
            Of the finished store.
        force : bool
            Replace a store that is there.
        extension : StoreExtension, optional
            The store that is there, of which the finished one holds all rows.
        """
        built = self.wip / "store"
        if self.remote is not None:
            try:
                self._upload(built, schema.digests, None if extension is None else extension.schema.digests)
            except StoreAccessError as error:
                raise OSError(f"it was not uploaded: {error.problem}") from error
            except Exception as error:  # every file system has errors of its own
                raise OSError(f"it was not uploaded ({type(error).__name__}: {error})") from error
        else:
            assert self.final is not None
            self.check_free(force=force or extension is not None)
            mark = {"root_digest": read_schema(LocalObjects(built))[0].root_digest}
            write_atomically(self.wip / "published.json", json.dumps(mark).encode())
            put(built, self.final)
        remove(self.wip)

    def _upload(self, built: Path, new: Mapping[str, str], old: Mapping[str, str] | None) -> None:
        """Upload what differs from the store that is there: new objects first, and last the root, which names them.

        Parameters
        ----------
        built : Path
        new, old : mapping of str to str
            Key -> digest of the objects of both stores, the root apart; `old` is None where a store is replaced.
        """
        assert self.remote is not None
        if old is None:
            old, there = {}, self.remote.sizes()
            # Without its root metadata the old store is none, so nobody reads a mixture.
            self.remote.remove(*(key for key in there if key == ROOT_KEY))
            self.remote.remove(*(key for key in there if key != ROOT_KEY))
        changed = [key for key, digest in new.items() if old.get(key) != digest]
        self.remote.upload(built, [key for key in changed if key not in old])
        self.remote.upload(built, [key for key in changed if key in old])
        self.remote.upload(built, [ROOT_KEY])
        self.remote.remove(*(old.keys() - new.keys()))

    def finish_append(self) -> bool:
        """Return True if a killed append had already changed the store; remove its working directory then."""
        appended_to = (read_json(self.wip / "job.json") or {}).get("appended_to")
        if appended_to is None:
            return False
        if self.final is not None and not self.final.exists():
            self.discard()  # killed between two renames: the old store goes back to its place
            return False
        now = read_schema(self.remote or LocalObjects(str(self.final)))[0].root_digest
        for folder in (self.wip / "store", self.wip / "store.old"):
            with contextlib.suppress(DataError):
                # Exchanged, the working directory has the old store; of a URL, a copy of the new one.
                if read_schema(LocalObjects(folder))[0].root_digest in {appended_to, now}:
                    remove(self.wip)
                    return True
        return False


def require_own(folder: Path, *, private: bool = False) -> None:
    """Refuse a working directory that somebody else has made, or that is a symbolic link.

    Parameters
    ----------
    folder : Path
        That there may be.
    private : bool
        Nobody else may enter it: it lies in a folder that all users of the machine write to.

    Raises
    ------
    UsageError
    """
    try:
        state = folder.lstat()
    except (FileNotFoundError, NotADirectoryError):
        return
    problem = ""
    if not stat.S_ISDIR(state.st_mode):
        problem = "it is no folder" if not stat.S_ISLNK(state.st_mode) else "it is a symbolic link"
    elif state.st_uid != _owner_of_new_files(folder.parent):
        problem = f"it belongs to another user (number {state.st_uid})"
    elif private and state.st_mode & 0o077:
        problem = f"its mode {stat.S_IMODE(state.st_mode):o} lets other users in"
    if problem:
        raise UsageError(
            f"{folder} is the working directory of the conversion, and {problem}, so others may have put something in"
            "\n  cure: look at it and remove it" + (", or set the variable TMPDIR to another folder" * private)
        )


def _owner_of_new_files(folder: Path) -> int:
    """Return the owner that this process's files have in a folder: not always its user, where a server maps users."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            return os.fstat(file.fileno()).st_uid
    except OSError:  # none can be made, as will be told where the first one is
        return os.geteuid()


def _is_interruption(error: BaseException) -> bool:
    """Return True if `--resume` can continue later: the data was not at fault."""
    if isinstance(error, PermissionError):
        return False
    interruptions = KeyboardInterrupt | SystemExit | OSError | StoreUnavailableError | BrokenProcessPool | MemoryError
    return isinstance(error, interruptions)


def _missing_bytes(wip: Path) -> int:
    """Return bytes that a conversion still has to write; at least these, while rows are staged."""
    facts = read_json(wip / "projected.json")
    if facts is None:
        return sum(path.stat().st_size for path in (wip / "stage").glob("*.bin"))
    written = sum(path.stat().st_size for path in (wip / "store").rglob("*") if path.is_file())
    return max(int(facts["bytes"]) - written, 0)


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the object in a file, or None where there is none that is whole."""
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None
