"""Conversion of source files to a store, with bounded memory, in parallel, resumable.

Stage: every part of the source becomes raw arrays in a working directory beside the destination
(`spool.py`). Infer: statistics merged over all parts choose storage, type, kinds and partitions. Write:
every shard is written by itself (`writer.py`). Finish: metadata, digests, and one rename to the destination.

The source is parsed once, and read beside that for its SHA-256; the disk holds the staged rows and the store at
the same time. Bad data leaves nothing behind. An interruption leaves the working directory, from which
`resume=True` goes on.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import importlib
import itertools
import json
import logging
import os
import shutil
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask._version import __version__
from mlfs_dask.blocks.codes import (
    CROWDED_SHARE,
    TABLE_SHARES,
    default_quantiles,
    edge_rows_of,
    is_mostly_zero,
    is_numeric,
    zero_share,
)
from mlfs_dask.errors import DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.files.object_store import ROOT_KEY, LocalObjects, is_url, local_path, open_objects
from mlfs_dask.files.publish import remove, remove_leftovers, sync
from mlfs_dask.files.sources import Source, examine, require_unchanged, sha256
from mlfs_dask.readers.base import FileSpec, LabelSpec, Part, Reader
from mlfs_dask.readers.label_values import MinusOne
from mlfs_dask.readers.obs import ObsColumns
from mlfs_dask.redaction import redact
from mlfs_dask.rows.contract import FeatureInfo
from mlfs_dask.storage.array_layout import ArrayLayout
from mlfs_dask.storage.chunking import (
    MAX_BATCH,
    MAX_QUANTILE_FEATURES,
    MIN_BATCH,
    OFFSET_BYTES,
    PARTITION_BYTES,
    ConversionPlan,
    plan_conversion,
    plan_workers,
)
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.destination import Destination, read_json
from mlfs_dask.storage.digest import Checksum, content_digest, join
from mlfs_dask.storage.extension import ExtendedRows, StoreExtension
from mlfs_dask.storage.inference import InferredSchema, infer_schema
from mlfs_dask.storage.obs import ObsWriter, stored_columns
from mlfs_dask.storage.schema import KINDS, LABELS_NAME, X_NAME, Partitions, StoreSchema, read_schema
from mlfs_dask.storage.spool import SpooledRows, data_path, spool_part, statistics_path
from mlfs_dask.storage.statistics import Statistics
from mlfs_dask.storage.store_reader import StoreRows
from mlfs_dask.storage.verify import verify
from mlfs_dask.storage.worker_pool import WorkerPool, check_stop
from mlfs_dask.storage.writer import (
    ShardRecord,
    write_atomically,
    write_metadata,
    write_one_shard,
    write_root,
)
from mlfs_dask.typing import Matrix

logger = logging.getLogger(__name__)

#: Most values of the drawn rows of which a store keeps a table of quantiles.
MAX_QUANTILE_VALUES = 2**28

#: Rows between two drawn ones that are read along with them.
MAX_GAP = 8

_STAGING_VERSION = 5


@dataclass(frozen=True)
class Conversion:
    """Result of a conversion.

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


def convert(
    sources: str | Path | Sequence[str | Path],
    store: str | Path,
    *,
    labels: LabelSpec | Sequence[str] | None = None,
    format: str | None = None,
    keys: Mapping[str, str] | None = None,
    workers: int | None = None,
    memory_limit: int | None = None,
    dtype: str | None = None,
    storage: str = "auto",
    compressor: str = "none",
    partition_bytes: int = PARTITION_BYTES,
    drop: Sequence[str] = (),
    transpose: bool = False,
    obs: Sequence[str] = (),
    targets: Sequence[str] = (),
    force: bool = False,
    resume: bool = False,
    storage_options: Mapping[str, Any] | None = None,
    command: str | None = None,
) -> Conversion:
    """Convert multi-label files to a store.

    Parameters
    ----------
    sources : path, URL or sequence of them
        Files to convert; several are concatenated in their order.
    store : path or URL
        Path of the store. It appears once it is complete.
    labels : LabelSpec or sequence of str, optional
        Label columns, if the format does not mark them, and the meaning of their values. By default -1 is unknown
        if labels are also 0, else negative.
    format : str, optional
        Format of the sources (default: by name and content).
    keys : mapping of str to str, optional
        Names of X and Y in files that hold several arrays.
    workers : int, optional
        Number of reading and writing threads, or processes if the format reads faster with them (default: cores).
        The calling thread reads small sources.
    memory_limit : int, optional
        Bytes for all processes together, the calling one included (default: 512 MiB a worker, at most half
        of the available memory).
    dtype : str, optional
        Type of X. By default the narrowest type that loses no digit.
    storage : {"auto", "dense", "sparse"}
        Storage of X. "auto": sparse if that takes at most half the bytes.
    compressor : {"none", "zstd", "lz4"}
        Compression of chunks; "none" is fastest to read.
    partition_bytes : int
        Bytes of X and Y that one task of a pass reads.
    drop : sequence of str
        Feature names to leave out.
    transpose : bool
        Rows of a table are features and its columns samples, whose labels are in the table `labels.xml`.
    obs : sequence of str
        Columns of a table, or of the `obs` of AnnData, that are not features and are kept in the store's `obs` as
        covariates, strata, clusters or weights. Numbers become float64, texts categories. They take a second pass
        over the source.
    targets : sequence of str
        Columns of the rows that are numeric targets, the Y of the store; NaN or empty if unknown. Some may be 0/1.
    force : bool
        Replace an existing store, once the new one is complete; discard an interrupted conversion.
    resume : bool
        Continue an interrupted conversion.
    storage_options : mapping, optional
        Options of obstore (s3:, gs:, az:, https:) or of the file system of fsspec.
    command : str, optional
        Command line to record in the store.

    Returns
    -------
    Conversion

    Raises
    ------
    DataError
        If the data is invalid; nothing is left behind.
    UsageError
        If the store exists (without `force`), or an interrupted conversion exists (without `resume`).
    DoesNotFitError
        If memory or disk space is projected not to suffice.

    Notes
    -----
    For .mat and .h5ad files, whose library reads for one thread at a time, worker processes are started with "spawn":
    a script that converts large ones needs `if __name__ == "__main__":`.
    """
    if not isinstance(labels, LabelSpec):
        labels = LabelSpec(columns=None if labels is None else tuple(labels))
    spec = FileSpec.of(
        labels=labels,
        format=format,
        keys=keys,
        drop=drop,
        transpose=transpose,
        obs=obs,
        targets=targets,
        storage_options=storage_options,
    )
    paths = paths_of(sources)
    return convert_files(
        paths,
        store,
        options=Options(spec, dtype, storage, compressor, partition_bytes),
        workers=workers,
        memory_limit=memory_limit,
        force=force,
        resume=resume,
        command=command or f"convert {' '.join(paths)} {store}",
    )


def paths_of(sources: str | Path | Sequence[str | Path]) -> list[str]:
    """Return one path or several, as a list of text."""
    given: Any = [sources] if isinstance(sources, str | os.PathLike) or hasattr(sources, "shape") else list(sources)
    data = next((source for source in given if not isinstance(source, str | os.PathLike)), None)
    if data is not None:
        raise UsageError(
            f"sources are paths and URLs of files; got {type(data).__name__}\n  cure: write it to a file first "
            "(to_parquet, write_h5ad), or pass it to a selector directly"
        )
    paths = [str(source) for source in given]
    if "" in paths:  # as a path it is the working folder
        raise UsageError("a source is the empty text\n  cure: leave it out, or give the path of a file")
    return paths


def convert_files(paths: Sequence[str], store: str | Path, *, options: Options, **how: Any) -> Conversion:
    """Convert files, or append their rows, with the options of a conversion.

    Parameters
    ----------
    paths : sequence of str
    store : path or URL
    options : Options
    **how
        As of `convert_reader`.

    Raises
    ------
    DataError, UsageError, DoesNotFitError
    """
    from mlfs_dask.formats.detect import read_obs
    from mlfs_dask.storage.store_source import open_sources

    options.check()
    for path in paths:
        if _same_place(path, store):
            raise UsageError(f"{path} is both read and written\n  cure: write to another path")
    spec = options.file
    return convert_reader(
        lambda: open_sources(paths, spec),
        store,
        sources=examine([*paths, *spec.label_files], spec.storage_options),
        open_obs=(lambda: read_obs(paths, spec)) if spec.obs else None,
        options=options,
        **how,
    )


def _same_place(a: str | Path, b: str | Path) -> bool:
    """Return True if two paths lead to the same file or folder."""
    if is_url(a) or is_url(b):
        return str(a).rstrip("/") == str(b).rstrip("/")
    return local_path(a).resolve() == local_path(b).resolve()


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
    command: str = "",
    extension: StoreExtension | None = None,
    open_obs: Callable[[], ObsColumns] | None = None,
) -> Conversion:
    """Write whatever a reader yields as a store; `convert` for readers that are not files.

    Parameters are those of `convert`, but for `open_reader`, which is called once the destination is known to
    be free; `sources`, which are recorded and compared on resuming; `extension`, the store at the destination to
    which the rows are appended (`append`); and `open_obs`, which gives the columns of the rows.
    """
    options = options or Options()
    options.check()
    storage_options = options.file.storage_options
    started = time.monotonic()
    destination = Destination(store, storage_options)
    remove_leftovers(destination.wip)
    if resume and not force and (extension is None or not destination.wip.exists()):
        done = _done_already(store, sources, command, storage_options, append=extension is not None)
        if done is not None:
            remove(destination.wip)  # of a process that was killed, or failed, between its last two steps
            logger.info("%s is complete already; nothing was read again", redact(str(store)))
            return Conversion(str(store), done, (), time.monotonic() - started, 0, 0, 0)
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
        obs = None if open_obs is None else open_obs()
        if obs is None and extension is None:
            obs, targets = _columns_of_store(reader)
            options = replace(options, file=replace(options.file, targets=targets or options.file.targets))
        if obs is not None and extension is not None:
            obs = extension.joined_obs(obs, reader.path)
        plan = _plan(reader, memory_limit, workers, source_bytes)
        job = _describe_job(sources, options, reader, extension)
        pool = WorkerPool(plan.workers, threads=reader.in_threads)
        with destination.locked(job, sources, force=force, resume=resume) as wip, pool:
            if extension is not None:
                extension.require_unchanged()
            recording = aside.submit(_record_hashes, hashing, wip)
            try:
                run = _Run(reader, wip, plan, pool, options, sources, command, extension, obs)
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


def _columns_of_store(reader: Reader) -> tuple[ObsColumns | None, tuple[str, ...]]:
    """Return the columns of the rows of a store that is converted, None without any, and the targets among them."""
    from mlfs_dask.storage.store_source import StoreReader  # which files of others do not need

    if not isinstance(reader, StoreReader) or not reader.dataset.obs:
        return None, ()
    return stored_columns(reader.dataset), reader.dataset.schema.targets


def _done_already(
    store: str | Path,
    sources: Sequence[Source],
    command: str,
    storage_options: Mapping[str, Any] | None,
    *,
    append: bool,
) -> StoreSchema | None:
    """Return the store that this command has made from these sources, or appended their rows to last; None if it has
    not.

    Local sources are read for their SHA-256 if all else agrees.

    Raises
    ------
    UsageError
        The rows of these sources were appended last, as far as is known, and it may not have been by this command.
    """
    try:
        schema, _ = read_schema(open_objects(store, storage_options))
    except MlfsError:
        return None
    words, recorded, theirs = _words(redact(command)), schema.sources, _words(schema.command)
    if append:
        words, recorded, theirs = ["&&", *words], recorded[-len(sources) :], theirs[-len(words) - 1 :]
    facts = [(source["path"], source["bytes"]) for source in recorded]
    if not sources or facts != [(redact(source.path), source.bytes) for source in sources]:
        return None
    hashes = [source["sha256"] for source in recorded]
    if any(known not in (None, sha256(source)) for known, source in zip(hashes, sources, strict=True)):
        return None
    if None not in hashes and words == theirs:
        return schema
    if append and schema.earlier:
        why = (
            "it lies at a URL, and is not compared" if None in hashes else "it is the same, but the command is another"
        )
        raise UsageError(
            f"the last rows of {store} came from sources of the same names and sizes; as to their content, {why}"
            "\n  cure: leave --resume out to append them again"
        )
    return None


#: What changes nothing in a store.
_OUTPUT_WORDS = frozenset({"--resume", "--json", "--quiet", "-q", "-v", "-vv"})


def _words(command: str) -> list[str]:
    return [word for word in command.split() if word not in _OUTPUT_WORDS]


def _appended_again(schema: StoreSchema, n_new: int, label_files: Sequence[str]) -> list[str]:
    """Return a line for each of the last sources, but for files of labels, whose content the store had already."""
    before, new = schema.sources[: len(schema.sources) - n_new], schema.sources[len(schema.sources) - n_new :]
    paths = {source["sha256"]: source["path"] for source in before if source["sha256"] is not None}
    return [
        f"{source['path']} has the content of {paths[source['sha256']]}, whose rows were in the store: it has them "
        "twice now"
        for source in new
        if source["sha256"] in paths and source["path"] not in map(redact, label_files)
    ]


def _hash_sources(sources: Sequence[Source], enough: threading.Event) -> dict[str, str | None]:
    return {redact(source.path): sha256(source, enough) for source in sources}


def _record_hashes(hashing: Future[dict[str, str | None]], wip: Path) -> dict[str, str | None]:
    hashes = hashing.result()
    write_atomically(wip / "sha256.json", json.dumps(hashes).encode())
    return hashes


def _plan(reader: Reader, memory_limit: int, workers: int, source_bytes: int | None) -> ConversionPlan:
    n_features = reader.header.n_features or 0
    facts: dict[str, Any] = {"memory_limit": memory_limit, "threads": reader.in_threads}
    facts["reader_bytes"] = reader.opened_bytes
    workers = plan_workers(
        workers=workers, source_bytes=source_bytes, base_bytes=runtime.current_rss(), n_features=n_features, **facts
    )
    # A matrix that is held whole would be read twice, and its size is known.
    if (workers == 1 or reader.in_threads) and reader.opened_bytes <= MAX_BATCH:
        # One small batch brings in what the reader needs, which then is measured instead of guessed.
        for part in reader.parts(sys.maxsize)[:1]:
            for batch in itertools.islice(reader.read(part, batch_bytes=MIN_BATCH), 1):
                n_features = max(n_features, batch.X.shape[1])
    return plan_conversion(workers=workers, base_bytes=runtime.current_rss(), n_features=n_features, **facts)


def default_memory_limit(workers: int) -> int:
    """Return bytes for a conversion with so many workers, all processes together."""
    # What a process has loaded before, a notebook for example, is not the conversion's.
    loaded_bytes = max(runtime.current_rss() - runtime.PROCESS_BYTES, 0)
    wanted = max(workers * (512 << 20), 1 << 30)
    return loaded_bytes + max(min(wanted, (runtime.available_memory() - loaded_bytes) // 2), 256 << 20)


def _describe_job(
    sources: Sequence[Source], options: Options, reader: Reader, extension: StoreExtension | None
) -> dict[str, Any]:
    """Return the facts that a resumed conversion must share with the interrupted one."""
    document = {
        "staging": _STAGING_VERSION,
        "version": __version__,
        "sources": [{**asdict(source), "path": redact(source.path)} for source in sources],
        "options": options.record,
        # Names and kinds may come from files beside the sources, such as an XML file of labels.
        "header": content_digest(json.loads(json.dumps(asdict(reader.header)))),
        "appended_to": None if extension is None else extension.schema.root_digest,
    }
    normal: dict[str, Any] = json.loads(json.dumps(document))
    return normal


def _stage_task(reader: Reader, part: Part, directory: Path, batch_bytes: int) -> int:
    """Stage a part; returns its index."""

    def on_batch(rows: int) -> None:
        check_stop()
        runtime.emit("convert", stage="read", rows=rows)

    spool_part(reader, part, directory, batch_bytes=batch_bytes, on_batch=on_batch)
    return part.index


_staged: dict[Path, SpooledRows] = {}
"""Opened staged rows of this process: the index of all batches is read once."""
_staged_lock = threading.Lock()


def _write_task(
    wip: Path, parts: int, minus_one: MinusOne, old: StoreRows | None, layout: ArrayLayout, shard: int
) -> ShardRecord:
    check_stop()
    directory = wip / "stage"
    with _staged_lock:
        if directory not in _staged:
            _staged[directory] = SpooledRows(directory, parts, minus_one=minus_one)
    rows = _staged[directory]
    return write_one_shard(rows if old is None else ExtendedRows(old, rows), layout, shard, wip)


@dataclass
class _Run:
    """One conversion, step after step; everything it knows lies in the working directory."""

    reader: Reader
    wip: Path
    plan: ConversionPlan
    pool: WorkerPool
    options: Options
    sources: Sequence[Source]
    command: str
    extension: StoreExtension | None
    obs: ObsColumns | None

    @property
    def stage_directory(self) -> Path:
        return self.wip / "stage"

    def run(self, aside: runtime.ThreadPool, hashing: Future[dict[str, str | None]]) -> tuple[StoreSchema, list[str]]:
        """Return all steps; `aside` does what the pool need not wait for, `hashing` of the sources is under way
        there.
        """
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
        if self.extension is None:  # the drawn rows of a longer store are others, old ones among them
            with SpooledRows(self.stage_directory, parts, minus_one=inferred.minus_one) as rows:
                names = replace(inferred.names, quantiles=_quantiles(rows, inferred, self.plan.batch_bytes))
            inferred = replace(inferred, names=names)
        schema = self._finish(inferred, partitions, records, hashing.result())
        return schema, inferred.warnings + _appended_again(schema, len(self.sources), self.options.file.label_files)

    def _finished(self) -> StoreSchema | None:
        """Return the finished store of a conversion that was killed before the move, if it is intact."""
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
            # Finished parts tell how long one is; the others have begun, too.
            finished = sum(data_path(self.stage_directory, each).stat().st_size for each in done)
            self._require_room(finished * len(parts) // len(done))
        return len(parts)

    def _parts(self) -> list[Part]:
        recorded = read_json(self.wip / "parts.json")
        if recorded is not None:
            return [Part(*part) for part in recorded["parts"]]
        total = sum(source.bytes for source in self.sources)
        # A few parts a process even out their lengths; a part is the least that is read again after a kill.
        part_bytes = min(max(total // (4 * self.plan.workers), MAX_BATCH), 16 * MAX_BATCH)
        parts = self.reader.parts(part_bytes)
        write_atomically(self.wip / "parts.json", json.dumps({"parts": parts}).encode())
        return parts

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
        merged = Statistics.load(statistics_path(self.stage_directory, 0)) if parts else Statistics()
        for part in range(1, parts):
            merged.merge(Statistics.load(statistics_path(self.stage_directory, part)))
        return merged

    def _write(self, parts: int, inferred: InferredSchema, aside: runtime.ThreadPool) -> dict[str, ShardRecord]:
        layouts, kept = inferred.layouts, self._kept(inferred)
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
        entries = None if self.extension is None else self.extension.dataset.store_rows
        arguments = [
            (self.wip, parts, inferred.minus_one, entries, layout, shard)
            for layout in layouts
            for shard in range(layout.shards)
            if layout.shard_key(shard) not in kept
        ]
        records: dict[str, ShardRecord] = {}
        try:
            for record in self.pool.run(_write_task, arguments):
                records[record.key] = record
                # On its way to the disk while the next ones are made; `publish` waits for all.
                aside.submit(sync, self.wip / "store" / record.key)
                runtime.emit("convert", stage="write", parts_done=len(records), parts=len(arguments))
        except DataError as error:
            if not isinstance(error.column, int):
                raise
            name = inferred.names.features[error.column]
            raise DataError(
                error.problem, file=self.reader.path, column=name, value=error.value, cure=error.cure
            ) from error
        finally:
            rows = _staged.pop(self.stage_directory, None)
            if rows is not None:
                rows.close()
        return records

    def _kept(self, inferred: InferredSchema) -> dict[str, Checksum]:
        """Return the key -> checksum of the shards that are not written, because the store that becomes longer has
        them.
        """
        return {} if self.extension is None else self.extension.kept_objects(inferred.layouts)

    def _finish(
        self,
        inferred: InferredSchema,
        partitions: Partitions,
        records: dict[str, ShardRecord],
        hashes: Mapping[str, str | None],
    ) -> StoreSchema:
        kept = self._kept(inferred)
        missing = [
            key
            for layout in inferred.layouts
            for key in map(layout.shard_key, range(layout.shards))
            if key not in kept and not (self.wip / "store" / key).is_file()
        ]
        if missing:
            raise MlfsError(f"shards are missing: {', '.join(missing[:20])}\n  cure: pass --resume to write them")
        root = self.wip / "store"
        for path in list(root.rglob("*")):  # a killed finish may have left some of them
            if path.is_file() and path.relative_to(root).as_posix() not in records:
                path.unlink()
        objects = {key: (record.size, record.digest) for key, record in records.items()}
        obs = None if self.obs is None else ObsWriter(self.obs, inferred.n)
        sizes = {"n": inferred.n, "d": inferred.d, "q": inferred.q}
        objects |= write_metadata(root, inferred.layouts, inferred.names, **sizes, obs=obs)
        old = None if self.extension is None else self.extension.schema
        checksums = kept | {key: record.checksum for key, record in records.items()}
        if old is not None:
            objects |= {key: (old.sizes[key], old.digests[key]) for key in kept}
            self._link(objects)
        content = _content(inferred, checksums) | ({} if obs is None else {"obs": obs.digest})
        schema = StoreSchema(
            n=inferred.n,
            d=inferred.d,
            q=inferred.q,
            nonzeros=inferred.statistics.nonzeros,
            label_nonzeros=inferred.statistics.label_nonzeros,
            storage="sparse" if inferred.chunking.is_sparse(X_NAME) else "dense",
            labels_storage="sparse" if inferred.chunking.is_sparse(LABELS_NAME) else "dense",
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
            minus_one=(old.minus_one if old is not None else "") or inferred.minus_one_of_sources,
            label_values=old.label_values if old is not None else _said(self.options.file.labels),
            targets=self.options.file.targets if old is None else old.targets,
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


def _said(labels: LabelSpec) -> dict[str, list[str]]:
    """Return the given meanings of label values, which later appends use."""
    said = {name: list(getattr(labels, name)) for name in ("positive", "negative", "unknown")}
    return {name: values for name, values in said.items() if values}


def _partitions(rows: SpooledRows, inferred: InferredSchema) -> Partitions:
    """Return row boundaries: multiples of the shard's rows, or the rows that start within each shard of nonzeros."""
    n, chunking = rows.n, inferred.new_chunking
    cut = chunking.values(X_NAME)
    starts = range(cut.shard_rows, cut.shape[0], cut.shard_rows)
    inner = rows.rows_of_nonzeros(list(starts)) if chunking.is_sparse(X_NAME) else list(starts)
    boundaries = sorted({0, *(row for row in inner if row < n), n})
    # Long runs of empty rows must not pile up in one partition: their labels cost memory too.
    most = 4 * -(-n // (len(boundaries) - 1))
    split = [0]
    for start, stop in itertools.pairwise(boundaries):
        pieces = -(-(stop - start) // most)
        split += [start + (stop - start) * piece // pieces for piece in range(1, pieces + 1)]

    def stored(name: str, columns: int) -> tuple[int, ...]:
        if chunking.is_sparse(name):
            return tuple(rows.offsets_at(split, name))
        return tuple(row * columns for row in split)

    return Partitions(
        rows=tuple(split),
        nonzeros=stored(X_NAME, inferred.d),
        label_nonzeros=stored(LABELS_NAME, inferred.q),
    )


def _quantiles(rows: SpooledRows, inferred: InferredSchema, batch_bytes: int) -> NDArray[np.float64] | None:
    """Return the table of quantiles of a store, from its staged rows; None where no feature asks for one, or all are
    too many.

    Drawn rows are read once for all features that fit in a few batches together.
    """
    names, n, d, sparse = inferred.names, inferred.n, inferred.d, inferred.chunking.is_sparse(X_NAME)
    assert names.n_nonzero is not None
    share = zero_share(n - names.n_missing, names.n_nonzero)
    features = FeatureInfo(names.minimum, names.maximum, names.n_categories, names.n_missing, share)
    mostly_zero, wanted = is_mostly_zero(features), is_numeric(features)
    if sparse:
        wanted &= share < float(CROWDED_SHARE)  # of words that few rows have, the default asks no quantile
    asks = np.flatnonzero(wanted)
    chosen = edge_rows_of(n, d, inferred.statistics.nonzeros if sparse else None)
    if not len(asks) or d > MAX_QUANTILE_FEATURES or len(chosen) * d > MAX_QUANTILE_VALUES:
        return None
    # Sparse values have indices, and are held four times as often until they are in order.
    stored = 48 * (names.n_nonzero + names.n_missing) if sparse else np.full(d, n * np.dtype(inferred.dtype).itemsize)
    together = np.cumsum(stored[asks] * (len(chosen) / n)) // (4 * batch_bytes)
    table = np.full((d, len(TABLE_SHARES)), np.nan)
    for some in np.split(asks, np.flatnonzero(np.diff(together)) + 1):
        sample = _drawn_features(rows, inferred, chosen, some, batch_bytes)
        table[some] = default_quantiles(sample, mostly_zero[some])
    return table


def _drawn_features(
    rows: SpooledRows,
    inferred: InferredSchema,
    chosen: NDArray[np.int64],
    features: NDArray[np.intp],
    batch_bytes: int,
) -> Matrix:
    """Return some features of drawn rows, shape (len(chosen), len(features)); a few rows between two are read, too."""
    n, d, sparse = inferred.n, inferred.d, inferred.chunking.is_sparse(X_NAME)
    most = max(1, batch_bytes // (12 * -(-inferred.statistics.nonzeros // n) + 8 if sparse else 8 * d))
    dense = np.empty((0 if sparse else len(chosen), len(features)), inferred.dtype)
    pieces: list[sp.csr_array] = []
    ends = np.append(np.flatnonzero(np.diff(chosen) > MAX_GAP) + 1, len(chosen))
    first = 0
    while first < len(chosen):
        check_stop()
        start = int(chosen[first])
        end = min(ends[np.searchsorted(ends, first, side="right")], np.searchsorted(chosen, start + most))
        drawn = chosen[first:end] - start
        count = int(drawn[-1]) + 1
        if sparse:
            pieces.append(rows.sparse(start, count, d, inferred.dtype)[drawn][:, features])
        else:
            block = np.empty((count, d), inferred.dtype)
            rows.fill(X_NAME, start, block)
            dense[first:end] = block[np.ix_(drawn, features)]
        first = int(end)
    return sp.vstack(pieces, format="csr") if sparse else dense


def _content(inferred: InferredSchema, checksums: Mapping[str, Checksum]) -> dict[str, str]:
    """Return the digests of X, labels, names and kinds, each independent of how the content was cut and stored."""

    def matrix(name: str, columns: int, dtype: str) -> str:
        facts: dict[str, Any] = {"shape": [inferred.n, columns], "dtype": dtype}
        for layout in inferred.layouts:
            if layout.key == name or layout.key.startswith(name + "/"):
                pieces = (checksums[layout.shard_key(shard)] for shard in range(layout.shards))
                facts[layout.key] = str(join(pieces))
        return content_digest(facts)

    names = inferred.names
    categorical = KINDS.index("categorical")
    return {
        "X": matrix(X_NAME, inferred.d, inferred.dtype),
        "labels": matrix(LABELS_NAME, inferred.q, "int8"),
        "names": content_digest({"features": names.features, "labels": names.labels}),
        "kinds": content_digest(
            {
                "kinds": names.kinds,
                "n_categories": names.n_categories,
                "categories": {
                    str(feature): list(values)
                    for feature, values in names.categories.items()
                    if names.kinds[feature] == categorical
                },
            }
        ),
    }
