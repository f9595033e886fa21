"""From source files to a finished store, with bounded memory, in parallel, resumable.

Stage: every part of the source becomes raw arrays in a working directory beside the destination
(`spool.py`). Infer: statistics merged over all parts choose storage, type, kinds and partitions. Write:
every shard is written by itself (`writer.py`). Finish: metadata, digests, and one rename to the destination.

The source is parsed once, and read beside that for its SHA-256; the disk holds the staged rows and the store at
the same time. Bad data leaves nothing behind. An interruption leaves the working directory, from which
`resume=True` goes on.
"""

from __future__ import annotations

import contextlib
import ctypes
import datetime as dt
import fcntl
import hashlib
import importlib
import itertools
import json
import logging
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, as_completed, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import asdict, dataclass, field
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, NamedTuple, get_args

import numpy as np

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.errors import (
    DISK_FULL,
    DataError,
    DoesNotFitError,
    MlfsError,
    StoreAccessError,
    StoreUnavailableError,
    UsageError,
)
from mlfs_dask.redaction import redact
from mlfs_dask.storage.chunking import (
    MAX_BATCH,
    MIN_BATCH,
    OFFSET_BYTES,
    PARTITION_BYTES,
    ConversionPlan,
    MatrixChunking,
    StoreChunking,
    chunk_store,
    narrowest_dtype,
    plan_conversion,
    plan_workers,
)
from mlfs_dask.storage.digest import ROOT_KEY, Checksum, content_digest, join
from mlfs_dask.storage.extension import ExtendedRows, OldEntries, StoreExtension
from mlfs_dask.storage.object_store import (
    LocalObjects,
    RemoteObjects,
    is_url,
    local_path,
    read_schema,
    require_writable,
)
from mlfs_dask.storage.readers.base import LabelSpec, MinusOne, Part, Reader, ReadOptions
from mlfs_dask.storage.schema import COMPRESSORS, DTYPES, KINDS, STORAGES, Partitions, StoreSchema
from mlfs_dask.storage.sources import Source, examine, require_unchanged, sha256
from mlfs_dask.storage.spool import SpooledRows, data_path, spool_part, statistics_path
from mlfs_dask.storage.statistics import Statistics
from mlfs_dask.storage.verify import verify
from mlfs_dask.storage.writer import (
    LABELS_NAME,
    X_NAME,
    Names,
    ShardRecord,
    array_specs,
    write_atomically,
    write_metadata,
    write_one_shard,
    write_root,
)
from mlfs_dask.storage.zarr_format import ArraySpec

logger = logging.getLogger(__name__)

_STAGING_VERSION = 3
_WHOLE = 1 << 62
"""Bytes of a part that is never cut."""


@dataclass(frozen=True)
class Conversion:
    """What a conversion did.

    Attributes
    ----------
    store : str
    schema : StoreSchema
    warnings : tuple of str
        What the user should know; each was logged too.
    seconds : float
    workers, batch_bytes, projected_bytes : int
        Reading threads or processes, bytes of one batch, and the projected peak of the whole process tree.
    """

    store: str
    schema: StoreSchema
    warnings: tuple[str, ...]
    seconds: float
    workers: int
    batch_bytes: int
    projected_bytes: int


@dataclass(frozen=True)
class Options:
    """Options of a conversion that shape its result; a resumed one must have the same."""

    labels: LabelSpec = field(default_factory=LabelSpec)
    minus_one: MinusOne | None = None
    format: str | None = None
    keys: Mapping[str, str] = field(default_factory=dict)
    dtype: str | None = None
    storage: str = "auto"
    compressor: str = "none"
    partition_bytes: int = PARTITION_BYTES
    drop: tuple[str, ...] = ()

    def check(self) -> None:
        """Raise UsageError for a value that cannot be."""
        for name, value, known in (
            ("storage", self.storage, ("auto", *STORAGES)),
            ("compressor", self.compressor, COMPRESSORS),
            ("dtype", self.dtype, (None, *DTYPES)),
            ("minus_one", self.minus_one, (None, *get_args(MinusOne))),
        ):
            if value not in known:
                choices = ", ".join(str(choice) for choice in known if choice)
                raise UsageError(f"{name} must be one of {choices}, not {value!r}")
        if self.partition_bytes < 1:
            raise UsageError(f"partition_bytes must be positive, not {self.partition_bytes}")


def convert(
    sources: str | Path | Sequence[str | Path],
    store: str | Path,
    *,
    labels: LabelSpec | None = None,
    minus_one: MinusOne | None = None,
    format: str | None = None,
    keys: Mapping[str, str] | None = None,
    workers: int | None = None,
    memory_limit: int | None = None,
    dtype: str | None = None,
    storage: str = "auto",
    compressor: str = "none",
    partition_bytes: int = PARTITION_BYTES,
    drop: Sequence[str] = (),
    force: bool = False,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> Conversion:
    """Convert multi-label files to a store.

    Parameters
    ----------
    sources : path, URL or sequence of them
        Several files are concatenated in their order.
    store : path or URL
        Appears whole or not at all.
    labels : LabelSpec, optional
        Which columns are labels, where the format does not say.
    minus_one : {"unknown", "negative"}, optional
        What a label -1 means. By default it is unknown beside 0 and 1, and negative where no label is 0.
    format : str, optional
        Of the sources (default: by name and content).
    keys : mapping of str to str, optional
        Names of X and Y in files that hold several arrays.
    workers : int, optional
        Reading and writing threads or processes, whichever the format reads faster with (default: cores). Small
        sources are read by the calling thread.
    memory_limit : int, optional
        Bytes for all processes together, the calling one included (default: 512 MiB a worker, at most half
        of what is available).
    dtype : str, optional
        Of X. By default the narrowest type that loses no digit.
    storage : {"auto", "dense", "sparse"}
        Of X. "auto": sparse where that takes at most half the bytes.
    compressor : {"none", "zstd", "lz4"}
        "none" reads fastest.
    partition_bytes : int
        Bytes of X and Y that one task of a pass reads.
    drop : sequence of str
        Feature names to leave out.
    force : bool
        Replace an existing store, once the new one is complete; forget an interrupted conversion.
    resume : bool
        Go on with an interrupted conversion.
    storage_options : mapping, optional
        For fsspec.
    command : str, optional
        What to record as the command.

    Returns
    -------
    Conversion

    Raises
    ------
    DataError
        If the data is invalid; nothing is left behind.
    UsageError
        If the store exists (without `force`), or an interrupted conversion lies there (without `resume`).
    DoesNotFitError
        If memory or disk will not suffice.

    Notes
    -----
    For .mat and .h5ad files, whose library reads for one thread at a time, worker processes are started with "spawn":
    a script that converts large ones needs `if __name__ == "__main__":`.
    """
    options = Options(
        labels=labels or LabelSpec(),
        minus_one=minus_one,
        format=format,
        keys=dict(keys or {}),
        dtype=dtype,
        storage=storage,
        compressor=compressor,
        partition_bytes=partition_bytes,
        drop=tuple(drop),
    )
    paths = paths_of(sources)
    return convert_files(
        paths,
        store,
        options=options,
        workers=workers,
        memory_limit=memory_limit,
        force=force,
        resume=resume,
        storage_options=storage_options,
        command=command or f"convert {' '.join(paths)} {store}",
    )


def paths_of(sources: str | Path | Sequence[str | Path]) -> list[str]:
    """One path or several, as a list of text."""
    return [str(source) for source in ([sources] if isinstance(sources, str | Path) else sources)]


def convert_files(
    paths: Sequence[str],
    store: str | Path,
    *,
    options: Options,
    storage_options: Mapping[str, Any] | None,
    **how: Any,
) -> Conversion:
    """Convert files, or append their rows, with the options of a conversion.

    Parameters
    ----------
    paths : sequence of str
    store : path or URL
    options : Options
    storage_options : mapping or None
    **how
        As of `convert_reader`.

    Raises
    ------
    DataError, UsageError, DoesNotFitError
    """
    from mlfs_dask.storage.readers.detect import open_source

    options.check()
    read = ReadOptions(
        labels=options.labels,
        storage_options=dict(storage_options or {}),
        keys=dict(options.keys),
        drop=options.drop,
    )
    beside = (options.labels.xml, options.keys.get("labels"))
    files = [*paths, *(path for path in beside if path)]
    return convert_reader(
        lambda: open_source(list(paths), options=read, format=options.format),
        store,
        sources=examine(files, storage_options),
        options=options,
        storage_options=storage_options,
        **how,
    )


def convert_reader(
    open_reader: Callable[[], Reader],
    store: str | Path,
    *,
    sources: Sequence[Source] = (),
    options: Options | None = None,
    workers: int | None = None,
    memory_limit: int | None = None,
    force: bool = False,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str = "",
    extension: StoreExtension | None = None,
) -> Conversion:
    """Write whatever a reader yields as a store; `convert` for readers that are not files.

    Parameters are those of `convert`, but for `open_reader`, which is called once the destination is known to
    be free; `sources`, which are recorded and compared on resuming; and `extension`, the store at the destination to
    which the rows are appended (`append`).
    """
    options = options or Options()
    options.check()
    started = time.monotonic()
    destination = Destination.of(store, storage_options)
    destination.check_free(force=force or extension is not None, resume=resume)
    workers = workers or runtime.available_cores()
    memory_limit = memory_limit or default_memory_limit(workers)
    source_bytes = sum(source.bytes for source in sources) if sources else None
    enough = threading.Event()
    with runtime.ThreadPool(3, "convert-aside") as aside, contextlib.ExitStack() as stack:
        stack.callback(enough.set)  # a failure does not wait for the digest of a large source
        stack.enter_context(runtime.process_limits(memory_limit=memory_limit))
        hashing = aside.submit(_hash_sources, sources, enough)
        reader = open_reader() if extension is None else extension.match(open_reader())
        plan = _plan(reader, memory_limit, workers, source_bytes)
        job = _describe_job(sources, options, reader, extension)
        pool = WorkerPool(plan.workers, threads=reader.in_threads)
        with destination.locked(job, sources, force=force, resume=resume) as wip, pool:
            if extension is not None:
                extension.require_unchanged()
            recording = aside.submit(_record_hashes, hashing, wip)
            try:
                run = _Run(reader, wip, plan, pool, options, sources, command, extension)
                schema, warnings = run.run(aside, recording)
            finally:
                enough.set()
                wait([recording])  # nothing is written there once it is left to others
            require_unchanged(sources, storage_options)
            destination.publish(schema, force=force, extension=extension)
    for warning in warnings:
        logger.warning(warning)
    return Conversion(
        store=str(store),
        schema=schema,
        warnings=tuple(warnings),
        seconds=time.monotonic() - started,
        workers=plan.workers,
        batch_bytes=plan.batch_bytes,
        projected_bytes=plan.total_bytes,
    )


def _hash_sources(sources: Sequence[Source], enough: threading.Event) -> dict[str, str | None]:
    return {redact(source.path): sha256(source, enough) for source in sources}


def _record_hashes(hashing: Future[dict[str, str | None]], wip: Path) -> dict[str, str | None]:
    hashes = hashing.result()
    write_atomically(wip / "sha256.json", json.dumps(hashes).encode())
    return hashes


def _plan(reader: Reader, memory_limit: int, workers: int, source_bytes: int | None) -> ConversionPlan:
    n_features = reader.header.n_features or 0
    facts: dict[str, Any] = {"memory_limit": memory_limit, "threads": reader.in_threads}
    workers = plan_workers(
        workers=workers, source_bytes=source_bytes, base_bytes=runtime.current_rss(), n_features=n_features, **facts
    )
    if workers == 1 or reader.in_threads:
        # One small batch brings in what the reader needs, which then is measured instead of guessed.
        for part in reader.parts(_WHOLE)[:1]:
            for batch in itertools.islice(reader.read(part, batch_bytes=MIN_BATCH), 1):
                n_features = max(n_features, batch.X.shape[1])
    return plan_conversion(workers=workers, base_bytes=runtime.current_rss(), n_features=n_features, **facts)


def default_memory_limit(workers: int) -> int:
    """Bytes for a conversion with so many workers, all processes together."""
    # What a process has loaded before, a notebook for example, is not the conversion's.
    held = max(runtime.current_rss() - runtime.PROCESS_BYTES, 0)
    wanted = max(workers * (512 << 20), 1 << 30)
    return held + max(min(wanted, (runtime.available_memory() - held) // 2), 256 << 20)


def _describe_job(
    sources: Sequence[Source], options: Options, reader: Reader, extension: StoreExtension | None
) -> dict[str, Any]:
    """What a resumed conversion must have in common with the interrupted one."""
    document = {
        "staging": _STAGING_VERSION,
        "version": __version__,
        "sources": [{**asdict(source), "path": redact(source.path)} for source in sources],
        "options": {**asdict(options), "keys": {key: redact(value) for key, value in options.keys.items()}},
        # Names and kinds may come from files beside the sources, such as an XML file of labels.
        "header": content_digest(json.loads(json.dumps(asdict(reader.header)))),
        "appended_to": None if extension is None else extension.schema.root_digest,
    }
    normal: dict[str, Any] = json.loads(json.dumps(document))
    return normal


# ---------------------------------------------------------------------------------------------------------
# The destination, and how the store appears there


class Destination:
    """The destination of a conversion and the working directory beside it.

    Parameters
    ----------
    store : str
        As the user gave it.
    final : Path or None
        Local destination; None for a URL.
    remote : RemoteObjects or None
    wip : Path
        Working directory; on the destination's file system, so that the store moves in one step.
    """

    def __init__(self, store: str, final: Path | None, remote: RemoteObjects | None, wip: Path) -> None:
        self.store = store
        self.final = final
        self.remote = remote
        self.wip = wip

    @classmethod
    def of(cls, store: str | Path, storage_options: Mapping[str, Any] | None) -> Destination:
        require_writable(str(store), storage_options)
        if is_url(store):
            remote = RemoteObjects(str(store), storage_options)
            mark = hashlib.sha256(str(store).encode()).hexdigest()[:16]
            return cls(str(store), None, remote, Path(tempfile.gettempdir()) / f"mlfs-{mark}.wip")
        final = Path.cwd() / local_path(store)
        if final.is_symlink() and final.exists():
            final = final.resolve()  # the link stays, and the store that it points to is replaced
        return cls(str(store), final, None, final.with_name(f".{final.name}.wip"))

    def check_free(self, *, force: bool, resume: bool = False) -> None:
        """Raise unless the destination is free, a store that may be replaced, or what an upload left that goes on."""
        if self.remote is not None:
            left = resume and self.wip.exists() and not self.remote.exists(ROOT_KEY)
            if not force and not left and self.remote.exists() and self.remote.sizes():
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
            self.wip.mkdir(exist_ok=True)
            with (self.wip / "lock").open("wb") as lock:
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise UsageError(f"another process is converting to {self.store}\n  cure: wait for it") from None
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
                    f"\n  cure: put that right and pass --resume ({self.wip} keeps what is done)"
                ) from error
            raise DoesNotFitError(
                f"{self.wip}: the disk is full, and more has to be written",
                projected=_missing_bytes(self.wip),
                available=shutil.disk_usage(self.wip).free,
                cure=f"make room and pass --resume, or remove {self.wip}",
            ) from error

    def _admit(self, job: dict[str, Any], sources: Sequence[Source], *, force: bool, resume: bool) -> None:
        with contextlib.ExitStack() as stack:
            try:
                lock = stack.enter_context((self.wip / "lock").open("ab"))
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except FileNotFoundError:
                pass
            except BlockingIOError:
                raise UsageError(f"another process is converting to {self.store}\n  cure: wait for it") from None
            if resume:
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
                    f"an interrupted conversion to {self.store} lies in {self.wip}"
                    "\n  cure: pass --resume to go on with it, or --force to start again"
                )
        self.discard()

    def discard(self) -> None:
        """Remove the working directory; a store that was just being replaced goes back to its place first."""
        old = self.wip / "old"
        if self.final is not None and old.exists() and not self.final.exists():
            old.rename(self.final)
        remove(self.wip)

    def _differences(self, job: dict[str, Any], sources: Sequence[Source]) -> list[str]:
        try:
            before = json.loads((self.wip / "job.json").read_bytes())
        except (OSError, ValueError):
            return ["its description is missing or damaged"]
        found = [
            f"{name} was {before.get(name)!r} and is {job[name]!r}"
            for name in ("version", "staging")
            if before.get(name) != job[name]
        ]
        found += [
            f"option {name} was {before['options'].get(name)!r} and is {value!r}"
            for name, value in job["options"].items()
            if before["options"].get(name) != value
        ]
        if before.get("appended_to") != job["appended_to"]:
            found.append("the store that rows are appended to was changed, or there was none")
        if before.get("header") != job["header"]:
            found.append("names of features or labels, or their declared values, were changed")
        old, new = before["sources"], job["sources"]
        if [source["path"] for source in old] != [source["path"] for source in new]:
            return [*found, "the sources are other files"]
        hashes = _read_json(self.wip / "sha256.json") or {}
        for earlier, now, source in zip(old, new, sources, strict=True):
            if earlier["bytes"] != now["bytes"]:
                found.append(f"{now['path']} had {earlier['bytes']:,} bytes and has {now['bytes']:,}")
            elif earlier["modified"] != now["modified"]:
                # Copied or touched: the same bytes are the same source.
                known = hashes.get(now["path"])
                if known is None or known != sha256(source):
                    found.append(f"{now['path']} was changed")
        return found

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
                if extension is None:
                    self._upload(built)
                else:
                    self._upload_changed(built, schema, extension.schema)
            except StoreAccessError as error:
                raise OSError(f"it was not uploaded: {error.problem}") from error
            except Exception as error:  # every file system has errors of its own
                raise OSError(f"it was not uploaded ({type(error).__name__}: {error})") from error
        else:
            assert self.final is not None
            self.check_free(force=force or extension is not None)
            _sync(built)
            if not _exchange(built, self.final):
                old = self.wip / "old"
                if self.final.exists():
                    self.final.rename(old)
                try:
                    built.rename(self.final)
                except OSError:
                    if old.exists():
                        old.rename(self.final)
                    raise
            _sync_file(self.final.parent)
        remove(self.wip)

    def _upload(self, built: Path) -> None:
        assert self.remote is not None
        if self.remote.exists():
            # Without its root metadata the old store is none, so nobody reads a mixture.
            for key in sorted(self.remote.sizes(), key=lambda key: key != ROOT_KEY):
                self.remote.remove(key)
        files = [path.relative_to(built).as_posix() for path in built.rglob("*") if path.is_file()]
        self.remote.upload(built, [key for key in files if key != ROOT_KEY])
        self.remote.upload(built, [ROOT_KEY])

    def _upload_changed(self, built: Path, schema: StoreSchema, old: StoreSchema) -> None:
        """Upload what differs from the store that is there: new objects first, and last the root, which names them."""
        assert self.remote is not None
        changed = [key for key, digest in schema.digests.items() if old.digests.get(key) != digest]
        self.remote.upload(built, [key for key in changed if key not in old.digests])
        self.remote.upload(built, [key for key in changed if key in old.digests])
        self.remote.upload(built, [ROOT_KEY])
        for key in old.digests.keys() - schema.digests.keys():
            self.remote.remove(key)

    def finish_append(self) -> bool:
        """Whether an append was killed when it had changed the store; its working directory is removed then."""
        appended_to = (_read_json(self.wip / "job.json") or {}).get("appended_to")
        if appended_to is None:
            return False
        if self.final is not None and not self.final.exists():
            self.discard()  # killed between two renames: the old store goes back to its place
            return False
        now = read_schema(self.remote or LocalObjects(str(self.final)))[0].root_digest
        for folder in (self.wip / "store", self.wip / "old"):
            with contextlib.suppress(DataError):
                # Exchanged, the working directory has the old store; of a URL, a copy of the new one.
                if read_schema(LocalObjects(folder))[0].root_digest in {appended_to, now}:
                    remove(self.wip)
                    return True
        return False


def _exchange(built: Path, final: Path) -> bool:
    """Exchange two folders in one step, so that there is a store at every moment; False where the system cannot."""
    renameat2 = getattr(ctypes.CDLL(None), "renameat2", None)
    if renameat2 is None:
        return False
    here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of Linux
    return bool(renameat2(here, os.fsencode(built), here, os.fsencode(final), exchange) == 0)


def remove(folder: Path) -> None:
    """Delete a folder; renamed first, so that half of it is never met under its name."""
    trash = folder.with_name(f"{folder.name}.trash-{os.getpid()}")
    with contextlib.suppress(FileNotFoundError):
        folder.rename(trash)
        shutil.rmtree(trash, ignore_errors=True)


def _is_interruption(error: BaseException) -> bool:
    """Whether going on later makes sense: the data was not at fault."""
    if isinstance(error, PermissionError):
        return False
    interruptions = KeyboardInterrupt | SystemExit | OSError | StoreUnavailableError | BrokenProcessPool | MemoryError
    return isinstance(error, interruptions)


def _missing_bytes(wip: Path) -> int:
    """Bytes that a conversion still has to write; at least these, while rows are staged."""
    facts = _read_json(wip / "projected.json")
    if facts is None:
        return sum(path.stat().st_size for path in (wip / "stage").glob("*.bin"))
    written = sum(path.stat().st_size for path in (wip / "store").rglob("*") if path.is_file())
    return max(int(facts["bytes"]) - written, 0)


def _read_json(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return None
    return document if isinstance(document, dict) else None


def _sync(folder: Path) -> None:
    """Have every file on the disk before the rename that makes it visible."""
    for path in folder.rglob("*"):
        if path.is_file():
            _sync_file(path)


def _sync_file(path: Path) -> None:
    """Have a file or the names in a folder on the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# ---------------------------------------------------------------------------------------------------------
# Workers


class WorkerPool:
    """Runs independent tasks: in threads of this process, in spawned processes, or in the calling thread.

    Worker processes do not hear the interrupt key and end with the parent, even if that is killed. Workers of both
    kinds are asked to stop between batches.

    Parameters
    ----------
    workers : int
        1: the calling thread does everything.
    threads : bool
        Threads, for readers that spend their time without the interpreter's lock: nothing has to be started.
    """

    def __init__(self, workers: int, *, threads: bool) -> None:
        self.workers = workers
        self.threads = threads
        self._pool: ProcessPoolExecutor | runtime.ThreadPool | None = None
        self._stop: Event | threading.Event | None = None

    def __enter__(self) -> WorkerPool:
        if self.workers == 1:
            return self
        if self.threads:
            self._stop = threading.Event()
            self._pool = runtime.ThreadPool(self.workers, "convert", _hear, (self._stop,))
            return self
        context = multiprocessing.get_context("spawn")
        self._stop = context.Event()
        self._pool = ProcessPoolExecutor(
            self.workers, mp_context=context, initializer=_start_worker, initargs=(self._stop,)
        )
        # Workers inherit the blocked interrupt; the parent gets one that came meanwhile on unblocking.
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            for _ in range(self.workers):  # a process is started for each task that finds none idle
                self._pool.submit(int)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None and self._stop is not None:
            self._stop.set()
            self._pool.shutdown(wait=True, cancel_futures=True)

    def run(self, task: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> Iterator[Any]:
        """Results in the order in which they come."""
        if self._pool is None:
            for each in arguments:
                yield task(*each)
            return
        futures: list[Future[Any]] = [self._pool.submit(task, *each) for each in arguments]
        for future in as_completed(futures):
            yield future.result()


class _Stopped(Exception):
    """Whoever started this worker asked it to stop."""


_heard = threading.local()
"""`stop`: the event that the worker in this thread looks at between batches."""


def _hear(stop: Event | threading.Event) -> None:
    _heard.stop = stop


def _start_worker(stop: Event) -> None:
    _hear(stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    # Siblings hold the pipes open, so a worker would wait for a killed parent's tasks for ever.
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _check_stop() -> None:
    stop = getattr(_heard, "stop", None)
    if stop is not None and stop.is_set():
        raise _Stopped


def _stage_task(reader: Reader, part: Part, directory: Path, batch_bytes: int) -> int:
    """Stage a part; returns its index."""

    def on_batch(rows: int) -> None:
        _check_stop()
        runtime.emit("convert", stage="read", rows=rows)

    spool_part(reader, part, directory, batch_bytes=batch_bytes, on_batch=on_batch)
    return part.index


_staged: dict[Path, SpooledRows] = {}
"""Opened staged rows of this process: the index of all batches is read once."""
_staged_lock = threading.Lock()


def _write_task(
    wip: Path, parts: int, minus_one: MinusOne, old: OldEntries | None, spec: ArraySpec, shard: int
) -> ShardRecord:
    _check_stop()
    directory = wip / "stage"
    with _staged_lock:
        if directory not in _staged:
            _staged[directory] = SpooledRows(directory, parts, minus_one=minus_one)
    rows = _staged[directory]
    return write_one_shard(rows if old is None else ExtendedRows(old, rows), spec, shard, wip)


def _close_staged(directory: Path) -> None:
    rows = _staged.pop(directory, None)
    if rows is not None:
        rows.close()


# ---------------------------------------------------------------------------------------------------------
# The steps


class _Run:
    """One conversion, step after step; everything it knows lies in the working directory."""

    def __init__(
        self,
        reader: Reader,
        wip: Path,
        plan: ConversionPlan,
        pool: WorkerPool,
        options: Options,
        sources: Sequence[Source],
        command: str,
        extension: StoreExtension | None = None,
    ) -> None:
        self.extension = extension
        self.reader = reader
        self.wip = wip
        self.plan = plan
        self.pool = pool
        self.options = options
        self.sources = sources
        self.command = command
        self.stage_directory = wip / "stage"

    def run(self, aside: runtime.ThreadPool, hashing: Future[dict[str, str | None]]) -> tuple[StoreSchema, list[str]]:
        """All steps; `aside` does what the pool need not wait for, `hashing` of the sources is under way there."""
        finished = self._finished()
        if finished is not None:
            return finished, []
        aside.submit(importlib.import_module, "numcodecs")  # wanted at the end; parsers leave the lock free
        parts = self._stage()
        statistics = self._merge(parts)
        inferred = infer_schema(statistics, self.reader, self.options, self.extension)
        with SpooledRows(self.stage_directory, parts, minus_one=inferred.minus_one) as rows:
            partitions = _partitions(rows, inferred)
        if self.extension is not None:
            partitions = self.extension.partitions(partitions)
        records = self._write(parts, inferred, aside)
        return self._finish(inferred, partitions, records, hashing.result()), inferred.warnings

    def _finished(self) -> StoreSchema | None:
        """The complete store of a conversion that was killed before the move, if it is intact."""
        root = self.wip / "store"
        if not (root / ROOT_KEY).exists():
            return None
        with contextlib.suppress(DataError):
            if verify(root).intact:
                return read_schema(LocalObjects(root))[0]
        (root / ROOT_KEY).unlink()
        return None

    def _stage(self) -> int:
        self.stage_directory.mkdir(exist_ok=True)
        # At least, a row takes an offset; files can declare any number of rows that are nowhere stored.
        self._require_room(OFFSET_BYTES * (self.reader.header.n_rows or 0))
        parts = self._parts()
        runtime.emit("convert", stage="read", parts=len(parts))
        arguments = [(self.reader, part, self.stage_directory, self.plan.batch_bytes) for part in parts]
        done: list[int] = []
        for part in self.pool.run(_stage_task, arguments):
            done.append(part)
            runtime.emit("convert", stage="read", parts_done=len(done), parts=len(parts))
            self._check_disk_while_reading(done, len(parts))
        return len(parts)

    def _parts(self) -> list[Part]:
        recorded = _read_json(self.wip / "parts.json")
        if recorded is not None:
            return [Part(*part) for part in recorded["parts"]]
        total = sum(source.bytes for source in self.sources)
        # A few parts a process even out their lengths; a part is the least that is read again after a kill.
        part_bytes = min(max(total // (4 * self.plan.workers), MAX_BATCH), 16 * MAX_BATCH)
        parts = self.reader.parts(part_bytes)
        write_atomically(self.wip / "parts.json", json.dumps({"parts": parts}).encode())
        return parts

    def _check_disk_while_reading(self, done: Sequence[int], parts: int) -> None:
        # Finished parts tell how long one is; the others have begun, too.
        finished = sum(data_path(self.stage_directory, part).stat().st_size for part in done)
        self._require_room(finished * parts // len(done))

    def _require_room(self, total: int) -> None:
        """Raise DoesNotFitError if so many bytes of staged rows find no room, those that are there among them."""
        projected = max(total - sum(path.stat().st_size for path in self.stage_directory.glob("*.bin")), 0)
        free = shutil.disk_usage(self.wip).free
        if projected > free:
            raise DoesNotFitError(
                f"staging rows in {self.wip}",
                projected=projected,
                available=free,
                cure="make room on that disk and pass --resume",
            )

    def _merge(self, parts: int) -> Statistics:
        merged = Statistics()
        for part in range(parts):
            statistics = Statistics.load(statistics_path(self.stage_directory, part))
            if not merged.seen:
                merged.seen = {key: np.zeros_like(codes) for key, codes in statistics.seen.items()}
            merged.merge(statistics)
        return merged

    def _write(self, parts: int, inferred: InferredSchema, aside: runtime.ThreadPool) -> dict[str, ShardRecord]:
        specs, kept = inferred.specs, self._kept(inferred)
        old = self.extension.schema.sizes if self.extension is not None else {}
        total = inferred.chunking.bytes - sum(old[key] for key in kept)
        existing = sum(path.stat().st_size for path in (self.wip / "store").rglob("*") if path.is_file())
        projected = max(total - existing, 0)
        write_atomically(self.wip / "projected.json", json.dumps({"bytes": total}).encode())
        free = shutil.disk_usage(self.wip).free
        if projected > free and self.options.compressor == "none":
            raise DoesNotFitError(
                f"writing the store beside its staged rows in {self.wip}",
                projected=projected,
                available=free,
                cure="make room on that disk and pass --resume",
            )
        entries = None if self.extension is None else self.extension.entries
        arguments = [
            (self.wip, parts, inferred.minus_one, entries, spec, shard)
            for spec in specs
            for shard in range(spec.plan.shards)
            if spec.shard_key(shard) not in kept
        ]
        records: dict[str, ShardRecord] = {}
        try:
            for record in self.pool.run(_write_task, arguments):
                records[record.key] = record
                # On its way to the disk while the next ones are made; `publish` waits for all.
                aside.submit(_sync_file, self.wip / "store" / record.key)
                runtime.emit("convert", stage="write", parts_done=len(records), parts=len(arguments))
        finally:
            _close_staged(self.stage_directory)
        return records

    def _kept(self, inferred: InferredSchema) -> dict[str, Checksum]:
        """Key -> checksum of the shards that are not written, because the store that becomes longer has them."""
        return {} if self.extension is None else self.extension.kept_objects(inferred.specs)

    def _finish(
        self,
        inferred: InferredSchema,
        partitions: Partitions,
        records: dict[str, ShardRecord],
        hashes: Mapping[str, str | None],
    ) -> StoreSchema:
        kept = self._kept(inferred)
        missing = [
            spec.shard_key(shard)
            for spec in inferred.specs
            for shard in range(spec.plan.shards)
            if spec.shard_key(shard) not in kept and not (self.wip / "store" / spec.shard_key(shard)).is_file()
        ]
        if missing:
            raise MlfsError(f"shards are missing: {', '.join(missing[:20])}\n  cure: pass --resume to write them")
        root = self.wip / "store"
        for path in list(root.rglob("*")):  # a killed finish may have left some of them
            if path.is_file() and path.relative_to(root).as_posix() not in records:
                path.unlink()
        objects = {key: (record.size, record.digest) for key, record in records.items()}
        objects |= write_metadata(root, inferred.specs, inferred.names, n=inferred.n, d=inferred.d, q=inferred.q)
        old = None if self.extension is None else self.extension.schema
        checksums = kept | {key: record.checksum for key, record in records.items()}
        if old is not None:
            objects |= {key: (old.sizes[key], old.digests[key]) for key in kept}
            self._link(objects)
        content = _content(inferred, checksums)
        schema = StoreSchema(
            n=inferred.n,
            d=inferred.d,
            q=inferred.q,
            nonzeros=inferred.statistics.nonzeros,
            label_nonzeros=inferred.statistics.label_nonzeros,
            storage="sparse" if inferred.chunking.X.sparse else "dense",
            labels_storage="sparse" if inferred.chunking.Y.sparse else "dense",
            dtype=inferred.dtype,
            compressor=self.options.compressor,
            partitions=partitions,
            unknown=tuple(inferred.statistics.unknown.tolist()),
            positive=tuple(inferred.statistics.positive.tolist()),
            constant_features=inferred.constant_features,
            kinds={kind: int((inferred.names.kinds == code).sum()) for code, kind in enumerate(KINDS)},
            version=__version__,
            created=dt.datetime.now(dt.UTC).isoformat(timespec="seconds"),
            command=redact(self.command if old is None else f"{old.command} && {self.command}"),
            sources=(() if old is None else old.sources)
            + tuple(
                {"path": path, "bytes": source.bytes, "sha256": hashes.get(path)}
                for source, path in ((source, redact(source.path)) for source in self.sources)
            ),
            content=content,
            digest=content_digest(content),
            digests={key: objects[key][1] for key in sorted(objects)},
            sizes={key: objects[key][0] for key in sorted(objects)},
            checksums={key: checksums[key].to_json() for key in sorted(checksums)},
            earlier=() if old is None else (*old.earlier, {"digest": old.digest, "partitions": old.partitions.count}),
        )
        document = json.loads(write_root(root, schema))
        return StoreSchema.from_json(document["attributes"]["mlfs"])

    def _link(self, objects: Mapping[str, tuple[int, str]]) -> None:
        """Put what stays of a local store beside what was written, as further names of the same files."""
        assert self.extension is not None
        folder, old = self.extension.dataset.store_rows.location.local, self.extension.schema
        if folder is None:
            return
        root = self.wip / "store"
        for path in folder.rglob("*"):
            key = path.relative_to(folder).as_posix()
            target = root / key
            # What somebody else has put there stays, too.
            if path.is_dir() or target.exists() or (key in old.sizes and key not in objects) or key == ROOT_KEY:
                continue
            target.parent.mkdir(parents=True, exist_ok=True)
            try:
                target.hardlink_to(path)
            except OSError:  # a file system without hard links
                shutil.copy2(path, target)


class NewRows(NamedTuple):
    """How many rows the sources have, and how these are cut where they are not all rows of the store."""

    n: int
    chunking: StoreChunking | None


@dataclass(frozen=True)
class InferredSchema:
    """What `infer_schema` gives: the shape, the type, the chunks and the names of the store, and what -1 means."""

    n: int
    d: int
    q: int
    dtype: str
    minus_one: MinusOne
    chunking: StoreChunking
    new_rows: NewRows
    specs: list[ArraySpec]
    names: Names
    statistics: Statistics
    constant_features: int
    warnings: list[str]


def _feature_names(reader: Reader, d: int) -> list[str]:
    if reader.header.feature_names is not None:
        names = list(reader.header.feature_names)
        if len(names) != d:
            raise DataError(
                f"rows have {d} features but there are {len(names)} feature names",
                file=reader.path,
                cure="give one name for each feature",
            )
        return names
    return [f"x{i}" for i in range(d)]


def _check_unique(names: Sequence[str], what: str, path: str) -> None:
    if len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    for number, name in enumerate(names, 1):
        if name in first:
            raise DataError(
                f"two {what}s have the same name (the {what}s number {first[name]} and {number})",
                file=path,
                column=name,
                cure="rename one of them",
            )
        first[name] = number


def infer_schema(
    statistics: Statistics, reader: Reader, options: Options, extension: StoreExtension | None = None
) -> InferredSchema:
    """Storage, type, names, kinds and chunks of the store, from the statistics of all rows.

    Of a store that becomes longer, `extension`, storage, type and chunks stay; what it records of its rows is added to
    the statistics of the new ones.

    Raises
    ------
    DataError
        There are no rows, features or labels, or the names do not fit.
    """
    header = reader.header
    statistics.grow(header.n_features or 0, header.n_labels or 0)
    if extension is not None:
        extension.check_widths(statistics, reader.path)
    n, d, q = statistics.rows, statistics.n_features, statistics.n_labels
    for count, what, cure in (
        (n, "rows", "check that the file is whole"),
        (d, "features", "check which columns are labels"),
        (q, "labels", "say which columns are labels: --labels, --label-columns or --n-labels"),
    ):
        if count == 0:
            raise DataError(f"there are no {what}", file=reader.path, cure=cure)
    feature_names = _feature_names(reader, d)
    label_names = list(header.label_names or (f"y{i}" for i in range(q)))
    if len(label_names) != q:
        raise DataError(
            f"rows have {q} labels but there are {len(label_names)} label names",
            file=reader.path,
            cure="give one name for each label",
        )
    _check_unique(feature_names, "feature", reader.path)
    _check_unique(label_names, "label", reader.path)
    warnings = []
    minus_ones = int(statistics.minus_ones.sum())
    told = options.minus_one or header.minus_one
    minus_one = statistics.settle_minus_one(told)
    if minus_ones and told is None:
        warnings.append(
            "labels are -1 and 1 and never 0, so -1 is taken as negative; say --labels-unknown -1 if it means unknown"
            if minus_one == "negative"
            else f"labels are -1 beside 0 and 1, so -1 is taken as unknown ({minus_ones:,} entries); "
            "say --labels-negative -1 if it means negative"
        )
    new_rows = NewRows(n, None)
    if extension is not None:
        extension.check_values(statistics, reader.path, dtype=options.dtype)
        new_rows = NewRows(n, extension.chunk(statistics, options.partition_bytes))
        statistics.merge(extension.statistics())
        n = statistics.rows
    minimum, maximum = statistics.ranges()
    missing = bool(statistics.missing.any())
    integers = bool(statistics.integers.all())
    low, high = float(np.nanmin(minimum, initial=0)), float(np.nanmax(maximum, initial=0))
    lossless = narrowest_dtype(
        minimum=low,
        maximum=high,
        integers=integers,
        missing=missing,
        fits_float32=statistics.fits_float32,
    )
    dtype = options.dtype or lossless
    if extension is not None:
        dtype = extension.schema.dtype
        chunking = extension.extended(statistics, options.partition_bytes)
    else:
        _check_dtype(dtype, low, high, integers=integers, missing=missing)
        warnings += _rounded_integers(statistics, feature_names, minimum, maximum, dtype)
        chunking = chunk_store(
            n=n,
            d=d,
            q=q,
            nonzeros=statistics.nonzeros,
            label_nonzeros=statistics.label_nonzeros,
            itemsize=np.dtype(dtype).itemsize,
            longest_row=statistics.longest_row,
            storage=options.storage,
            partition_bytes=options.partition_bytes,
        )
    kinds, n_categories, categories = _kinds(statistics, reader, minimum, maximum)
    with np.errstate(invalid="ignore"):
        constant = int(((minimum == maximum) | np.isnan(minimum)).sum())
    return InferredSchema(
        n=n,
        d=d,
        q=q,
        dtype=dtype,
        minus_one=minus_one,
        chunking=chunking,
        new_rows=new_rows,
        specs=array_specs(chunking, d=d, q=q, dtype=dtype, compressor=options.compressor),
        names=Names(
            features=feature_names,
            labels=label_names,
            kinds=kinds,
            minimum=minimum,
            maximum=maximum,
            n_categories=n_categories,
            n_missing=statistics.missing,
            categories=categories,
        ),
        statistics=statistics,
        constant_features=constant,
        warnings=warnings
        + [
            f"feature {feature_names[feature]!r} has a different value in each of the {n} rows: it seems to "
            f"identify rows, and says nothing about new ones; leave it out with --drop {feature_names[feature]}"
            for feature, seen in sorted(statistics.seen.items())
            if n > 1 and seen.sum() == n and kinds[feature] == KINDS.index("categorical")
        ],
    )


def _rounded_integers(
    statistics: Statistics,
    names: Sequence[str],
    minimum: np.ndarray[Any, Any],
    maximum: np.ndarray[Any, Any],
    dtype: str,
) -> list[str]:
    """A line for features of whole numbers that are too large to be told apart in the type of X."""
    if np.dtype(dtype).kind != "f" or (dtype == "float32" and statistics.fits_float32):
        return []
    digits = np.finfo(dtype).nmant + 1
    with np.errstate(invalid="ignore"):
        large = statistics.integers & (np.maximum(-minimum, maximum) > 2.0**digits)
    first = np.flatnonzero(large)[:3].tolist()
    if not first:
        return []
    shown = ", ".join(repr(names[feature]) for feature in first) + (", ..." if large.sum() > len(first) else "")
    return [
        f"{large.sum()} of the features ({shown}) hold whole numbers beyond 2^{digits}, which {dtype} rounds; "
        + ("leave --dtype out to keep them" if dtype == "float32" else "leave identifiers out with --drop")
    ]


def _check_dtype(dtype: str, low: float, high: float, *, integers: bool, missing: bool) -> None:
    wanted = np.dtype(dtype)
    cure = "leave --dtype out: the narrowest type that loses no digit is chosen"
    if wanted.kind == "f":
        limit = float(np.finfo(wanted).max)
        if max(abs(low), abs(high)) > limit:
            raise DataError(f"values run from {low:g} to {high:g}, beyond {dtype}", cure=cure)
        return
    limits = np.iinfo(wanted)
    if missing:
        raise DataError(f"{dtype} cannot hold missing values, and there are some", cure=cure)
    if not integers:
        raise DataError(f"{dtype} cannot hold fractions, and there are some", cure=cure)
    if low < limits.min or high > limits.max:
        raise DataError(f"values run from {low:g} to {high:g}, beyond {dtype}", cure=cure)


def _kinds(
    statistics: Statistics,
    reader: Reader,
    minimum: np.ndarray[Any, Any],
    maximum: np.ndarray[Any, Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[int, tuple[str, ...]]]:
    with np.errstate(invalid="ignore"):
        empty = np.isnan(minimum)
        binary = statistics.integers & (minimum >= 0) & (maximum <= 1)
    kinds = np.where(
        binary, KINDS.index("binary"), np.where(statistics.integers & ~empty, KINDS.index("integer"), 0)
    ).astype(np.int8)
    n_categories = np.where(binary, 2, 0).astype(np.int64)
    for feature, values in reader.header.categories.items():
        if len(values) > 2:
            kinds[feature] = KINDS.index("categorical")
            n_categories[feature] = len(values)
    return kinds, n_categories, reader.header.recorded_categories


def _partitions(rows: SpooledRows, inferred: InferredSchema) -> Partitions:
    """Row boundaries: multiples of the shard's rows, or the rows that start within each shard of nonzeros."""
    n, chunking = inferred.new_rows.n, inferred.new_rows.chunking or inferred.chunking
    cut = chunking.X.values
    starts = range(cut.shard, cut.length, cut.shard)
    inner = rows.rows_of_nonzeros(list(starts)) if chunking.X.sparse else list(starts)
    boundaries = sorted({0, *(row for row in inner if row < n), n})
    # Long runs of empty rows must not pile up in one partition: their labels cost memory too.
    most = 4 * -(-n // (len(boundaries) - 1))
    split = [0]
    for start, stop in itertools.pairwise(boundaries):
        pieces = -(-(stop - start) // most)
        split += [start + (stop - start) * piece // pieces for piece in range(1, pieces + 1)]

    def stored(matrix: MatrixChunking, columns: int, *, labels: bool) -> tuple[int, ...]:
        if matrix.sparse:
            return tuple(rows.offsets_at(split, labels=labels))
        return tuple(row * columns for row in split)

    return Partitions(
        rows=tuple(split),
        nonzeros=stored(chunking.X, inferred.d, labels=False),
        label_nonzeros=stored(chunking.Y, inferred.q, labels=True),
    )


def _content(inferred: InferredSchema, checksums: Mapping[str, Checksum]) -> dict[str, str]:
    """Digests of X, labels, names and kinds, each independent of how the content was cut and stored."""

    def matrix(name: str, columns: int, dtype: str) -> str:
        facts: dict[str, Any] = {"shape": [inferred.n, columns], "dtype": dtype}
        for spec in inferred.specs:
            if spec.name == name or spec.name.startswith(name + "/"):
                pieces = (checksums[spec.shard_key(s)] for s in range(spec.plan.shards))
                facts[spec.name] = str(join(pieces))
        return content_digest(facts)

    names = inferred.names
    categorical = KINDS.index("categorical")
    return {
        "X": matrix(X_NAME, inferred.d, inferred.dtype),
        "labels": matrix(LABELS_NAME, inferred.q, "int8"),
        "names": content_digest({"features": list(names.features), "labels": list(names.labels)}),
        "kinds": content_digest(
            {
                "kinds": names.kinds.tolist(),
                "n_categories": names.n_categories.tolist(),
                "categories": {
                    str(feature): list(values)
                    for feature, values in names.categories.items()
                    if names.kinds[feature] == categorical
                },
            }
        ),
    }
