"""Checks of an installation, a cluster and its view of a store, and a tiny job.

Each check gives ok, warn or fail, with a cure. Writes only to a temporary folder.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import resource
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlfs_dask import runtime
from mlfs_dask.cluster.connect import connect, is_protected
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.cluster.workers import ANSWER_SECONDS, CODE, cluster_of, describe_mismatches, identify
from mlfs_dask.errors import ClusterLostError, MlfsError, UsageError, number_of
from mlfs_dask.files.object_store import is_url, local_path
from mlfs_dask.storage.schema import NOT_A_STORE

if TYPE_CHECKING:
    from distributed import Client

LITTLE = 2**30
"""Bytes of worker memory below which only small data fits, and of scratch space below which the staging files of a
conversion may not fit."""

FEW_FILES = 4096
"""Limit of open files below which a scheduler with many workers, or a store with many shards, runs short."""

SLOW_SHARE = 0.25
"""Share of the median read speed below which a worker is slow."""


@dataclass(frozen=True)
class Check:
    """Result of one check.

    Attributes
    ----------
    name : str
    status : {"ok", "warn", "fail"}
    detail : str
        Finding.
    cure : str
        Action for the user; empty when ok.
    """

    name: str
    status: str
    detail: str
    cure: str = ""


@dataclass(frozen=True)
class StoreReading:
    """Result of reading one partition of a store in one process.

    Attributes
    ----------
    digest : str
        Content digest of the store; empty if the store could not be opened.
    bytes : int
        Bytes of X in the partition.
    seconds : float
    problem, cure : str
        Reason of a failure, and its cure; empty after success.
    """

    digest: str = ""
    bytes: int = 0
    seconds: float = 0.0
    problem: str = ""
    cure: str = ""

    @property
    def speed(self) -> float:
        """Bytes per second."""
        return self.bytes / max(self.seconds, 1e-9)


@dataclass(frozen=True)
class Facts:
    """Resources of one process, here or on a worker.

    Attributes
    ----------
    host : str
    versions : dict of str
    memory_limit : int or None
        Memory limit of the Dask worker in bytes; None without a limit.
    memory_available : int
        Available bytes: free memory within control groups.
    memory_total : int
        Total bytes of the machine or of the control group.
    open_files : int
        Limit of open files.
    scratch : str
        Folder for temporary files.
    scratch_free : int
        Free bytes in the scratch folder; -1 if it is not writable.
    keeps_memory : bool
        True if malloc keeps freed buffers in the process.
    threads : int
        Concurrent tasks.
    blas_threads : int
        Threads of BLAS in each task.
    cores : int
        Cores available to the process.
    reading : StoreReading or None
    """

    host: str
    versions: dict[str, str]
    memory_limit: int | None
    memory_available: int
    memory_total: int
    open_files: int
    scratch: str
    scratch_free: int
    keeps_memory: bool
    threads: int = 1
    blas_threads: int = 1
    cores: int = 1
    reading: StoreReading | None = None


def examine(store: str | None = None, *, directory: str | None = None, **cluster: Any) -> Iterator[Check]:
    """Run all checks, one after the other.

    Parameters
    ----------
    store : str, optional
        Path or URL of a store; this process and every worker read one partition of it.
    directory : str, optional
        Folder for the files of the tiny job, visible to all workers. Default: the system's temporary folder.
    **cluster
        Options of `mlfs_dask.cluster.connect.connect`.

    Yields
    ------
    Check

    Raises
    ------
    UsageError
        If the cluster options contradict one another.
    """
    if store is not None and not is_url(store):
        store = str(local_path(store).absolute())  # workers have other working folders
    here = gather_facts(store=store)
    yield from check_client(here)
    try:
        with connect(**cluster) as client:
            yield from _check_cluster(client, here, store)
            yield check_job(directory, client)
    except UsageError:
        raise
    except ClusterLostError as error:
        yield _failed("cluster", error)


def gather_facts(
    store: str | None = None, partitions: Mapping[str, int] | None = None, dask_worker: Any = None
) -> Facts:
    """Collect the facts of this process, its machine, and one partition of a store.

    Parameters
    ----------
    store : str, optional
    partitions : mapping, optional
        Partition that each worker reads, by worker address; default: the first one.
    dask_worker : distributed.Worker, optional
        The worker of this process; Dask passes it.
    """
    import socket

    scratch, limit, threads = tempfile.gettempdir(), None, 1
    if dask_worker is not None:
        scratch, limit = dask_worker.local_directory, dask_worker.memory_manager.memory_limit
        threads = dask_worker.state.nthreads
        importlib.import_module("numba")  # a worker otherwise loads it with its first compiled kernels
    trim = os.environ.get("MALLOC_TRIM_THRESHOLD_", "")
    number = 0 if partitions is None else partitions[dask_worker.address]
    return Facts(
        host=socket.gethostname(),
        versions=identify(),
        memory_limit=limit,
        memory_available=runtime.available_memory(),
        memory_total=total_memory(),
        open_files=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        scratch=scratch,
        scratch_free=_free_space(scratch),
        keeps_memory=trim.isdigit() and int(trim) >= 2**24,
        threads=threads,
        blas_threads=runtime.blas_threads(),
        cores=runtime.available_cores(),
        reading=None if store is None else _read_partition(store, number),
    )


def _read_partition(store: str, number: int) -> StoreReading:
    from mlfs_dask.storage.dataset import open_store

    try:
        dataset = open_store(store)
        rows = dataset.store_rows
        first = number % rows.profile.partitions
        started, count = time.perf_counter(), 0
        for block in rows.stream(first, first + 1):
            arrays = (block.X,) if not rows.profile.sparse else (block.X.data, block.X.indices)
            count += sum(array.nbytes for array in arrays)
        return StoreReading(dataset.digest, count, time.perf_counter() - started)
    except Exception as error:  # file systems and their libraries raise errors of any type
        problem, _, cure = str(error).partition("\n  cure: ")
        return StoreReading(problem=problem or type(error).__name__, cure=cure)


def total_memory(root: str = "/") -> int:
    """Return the total memory in bytes: of the machine, or of the control group (version 1 or 2) if less.

    Parameters
    ----------
    root : str
        Root directory of /proc and /sys.
    """
    amounts = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for group in runtime.control_groups("memory", root):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with contextlib.suppress(OSError, ValueError):
                amounts.append(int((group / name).read_text()))
    return min(amounts)


def _free_space(folder: str) -> int:
    try:
        with tempfile.TemporaryFile(dir=folder):
            return shutil.disk_usage(folder).free
    except OSError:
        return -1


# The checks


def check_client(facts: Facts) -> Iterator[Check]:
    """Check the process that runs the command."""
    versions = (f"{name} {version[:12] if name == CODE else version}" for name, version in facts.versions.items())
    yield Check("versions", "ok", ", ".join(versions))
    yield from (check(facts) for check in (_check_memory, _check_files, _check_scratch))
    if facts.reading is not None:
        yield _check_reading(facts)


def _check_cluster(client: Client | None, here: Facts, store: str | None) -> Iterator[Check]:
    if client is None:
        threads = number_of(current_resources().threads_per_worker, "thread")
        yield Check("cluster", "ok", f"none: the work is done by {threads} of this process")
        return
    cluster = cluster_of(client)
    workers = cluster.workers()
    yield Check("cluster", "ok", f"{len(workers)} workers at {cluster.address}")
    yield from (Check("left out", "fail", str(refused), f"{refused.cure}.") for refused in cluster.refused)
    facts = {}
    partitions = {address: number for number, address in enumerate(sorted(workers))}
    for address, answer in cluster.ask(gather_facts, store, partitions, workers=partitions).items():
        if isinstance(answer, Facts):
            facts[address] = answer
            continue
        problem = f"no answer within {ANSWER_SECONDS:g} s" if answer is None else str(answer).partition("\n")[0]
        detail = f"{address} on {workers[address].get('host', 'an unknown host')}: {problem}"
        yield Check("worker", "fail", detail, "look into its log, and start it again.")
    if facts:
        yield check_connection(cluster.address)
        yield from check_workers(facts, here)


def check_connection(address: str) -> Check:
    """Warn if other users of the network could read the traffic or run code on the workers."""
    if is_protected(address):
        detail = "TLS" if address.startswith("tls://") else f"{address}, which this machine alone can reach"
        return Check("connection", "ok", detail)
    detail = f"{address} is not encrypted, and whoever reaches it can run code on the workers"
    return Check("connection", "warn", detail, "start the cluster with TLS; deploy/ shows how.")


def check_workers(facts: dict[str, Facts], here: Facts) -> Iterator[Check]:
    """Check all workers: one result for each check, of the worst worker."""
    lines = describe_mismatches(here.versions, {address: of_worker.versions for address, of_worker in facts.items()})
    if lines:
        yield Check("worker versions", "warn", "; ".join(lines), "install the same versions on every host")
    else:
        yield Check("worker versions", "ok", "the same as here, and the same code")
    yield _check_hosts(facts)
    for check in (_check_memory, _check_files, _check_scratch, _check_allocator, _check_threads):
        yield _worst(check, facts)
    if here.reading is not None:
        yield _check_readings(facts, here.reading)


def _worst(check: Callable[[Facts], Check], facts: dict[str, Facts]) -> Check:
    checks = [(of_worker.host, check(of_worker)) for _, of_worker in sorted(facts.items())]
    name = f"worker {checks[0][1].name}"
    failing = [(host, result) for host, result in checks if result.status != "ok"]
    if not failing:
        return replace(checks[0][1], name=name)
    host, worst = max(failing, key=lambda pair: pair[1].status == "fail")
    where = f" (on {len(failing)} of {len(checks)} workers, the first on {host})"
    return replace(worst, name=name, detail=worst.detail + where)


def _check_memory(facts: Facts) -> Check:
    limit, total = facts.memory_limit, facts.memory_total
    usable = min(limit or facts.memory_available, total)
    detail = f"{_gib(usable)} to use, {_gib(total)} in all"
    if limit is not None and limit > total:
        detail = (
            f"Dask lets the worker have {_gib(limit)}, its machine or control group {_gib(total)}: it would be killed"
            " without a word"
        )
        cure = "start the workers with a --memory-limit below that, divided by the workers of the host."
        return Check("memory", "fail", detail, cure)
    if usable < LITTLE:
        return Check("memory", "warn", detail, "give 1 GiB or more, or ask `mlfs plan` before every selection.")
    return Check("memory", "ok", detail)


def _check_files(facts: Facts) -> Check:
    if facts.open_files in (-1, resource.RLIM_INFINITY):
        return Check("open files", "ok", "no limit")
    detail = f"{facts.open_files:,} at once"
    if facts.open_files < FEW_FILES:
        return Check("open files", "warn", detail, f"raise the limit: ulimit -n {FEW_FILES}")
    return Check("open files", "ok", detail)


def _check_scratch(facts: Facts) -> Check:
    if facts.scratch_free < 0:
        cure = "point TMPDIR (or `dask worker --local-directory`) to a folder that can be."
        return Check("scratch space", "fail", f"{facts.scratch} cannot be written", cure)
    detail = f"{_gib(facts.scratch_free)} free in {facts.scratch}"
    if facts.scratch_free < LITTLE:
        cure = "make room, or point TMPDIR (`dask worker --local-directory`) elsewhere."
        return Check("scratch space", "warn", detail, cure)
    return Check("scratch space", "ok", detail)


def _check_allocator(facts: Facts) -> Check:
    if facts.keeps_memory:
        return Check("allocator", "ok", "freed buffers are kept for the next block")
    detail = "freed buffers go back to the system after every block, which slows reading down"
    cure = "start the workers with DASK_CONFIG=deploy/dask.yaml (see deploy/README.md)."
    return Check("allocator", "warn", detail, cure)


def _check_threads(facts: Facts) -> Check:
    detail = (
        f"{number_of(facts.threads, 'task')} at a time with {number_of(facts.blas_threads, 'thread')} of BLAS,"
        f" {number_of(facts.cores, 'core')}"
    )
    if facts.blas_threads > 1 and facts.threads * facts.blas_threads > facts.cores:
        cure = "start the workers with OMP_NUM_THREADS=1 and OPENBLAS_NUM_THREADS=1."
        return Check("threads", "warn", f"{detail}: they wait for one another", cure)
    if facts.threads > facts.cores:
        return Check("threads", "warn", detail, "start the workers with --nthreads no larger than their cores.")
    return Check("threads", "ok", detail)


def _check_hosts(facts: dict[str, Facts]) -> Check:
    """Fail if the workers of a host may together use more memory than the host has."""
    hosts: dict[str, list[Facts]] = {}
    for of_worker in facts.values():
        hosts.setdefault(of_worker.host, []).append(of_worker)
    for host, workers in sorted(hosts.items()):
        limits = sum(of_worker.memory_limit or 0 for of_worker in workers)
        total = min(of_worker.memory_total for of_worker in workers)
        if len(workers) > 1 and limits > total:
            detail = (
                f"Dask lets {number_of(len(workers), 'worker')} of {host} have {_gib(limits)}, the machine or control "
                f"group has {_gib(total)}: one would be killed without a word"
            )
            cure = f"start each with --memory-limit {total // len(workers) // 2**20}MiB or less."
            return Check("host memory", "fail", detail, cure)
    return Check("host memory", "ok", f"enough for all workers of {number_of(len(hosts), 'host')}")


def _check_reading(facts: Facts) -> Check:
    reading = facts.reading
    assert reading is not None
    if reading.problem:
        return Check("store", "fail", reading.problem, reading.cure)
    return Check("store", "ok", f"{reading.digest[:12]}, {reading.speed / 1e6:,.0f} MB/s")


def _check_readings(facts: dict[str, Facts], here: StoreReading) -> Check:
    """Fail if a worker reads another store than this process; warn if a worker is much slower than the median."""
    name = "worker store"
    worst = _worst(_check_reading, facts)
    if worst.status != "ok":
        # This process opened the store, so the cure "make a store" would mislead on the worker.
        if worst.cure and not (here.digest and worst.cure == NOT_A_STORE):
            return worst
        cure = "workers read the store themselves: the same file system at the same path, or a URL, and credentials"
        return replace(worst, cure=cure)
    readings = [(of_worker.reading, of_worker.host) for of_worker in facts.values() if of_worker.reading is not None]
    others = sorted({host for reading, host in readings if reading.digest != here.digest})
    if others:
        cure = "give all hosts the same file system, or the URL of one copy."
        return Check(name, "fail", f"another store than here is at that place on {', '.join(others)}", cure)
    slowest, host = min(readings, key=lambda pair: pair[0].speed)
    median = statistics.median(reading.speed for reading, _ in readings)
    detail = f"{slowest.speed / 1e6:,.0f} MB/s on the slowest of {number_of(len(readings), 'worker')}"
    if slowest.speed < SLOW_SHARE * median:
        cure = f"look at the network and the disk of {host}, or leave it out."
        return Check(name, "warn", f"{detail} ({host}), {median / 1e6:,.0f} MB/s on the middle one", cure)
    return Check(name, "ok", detail)


def check_job(directory: str | None, client: Client | None) -> Check:
    """Convert a small file, select from it, and check that the planted feature ranks first."""
    name = "a tiny job"
    try:
        with tempfile.TemporaryDirectory(prefix="mlfs-doctor-", dir=directory) as folder:
            best, seconds = run_tiny_job(Path(folder))
    except (MlfsError, OSError) as error:
        check = _failed(name, error)
        if check.cure or client is None or isinstance(error, ClusterLostError):
            return check
        return replace(check, cure="give --directory, a folder on a file system that this host and all workers share.")
    if best != PLANTED:
        return Check(name, "fail", f"{best!r} came first, and {PLANTED!r} was planted", "report this.")
    return Check(name, "ok", f"converted and selected in {seconds:.1f} s, with the right result")


PLANTED = "planted"


def run_tiny_job(folder: Path) -> tuple[str, float]:
    """Return the name of the best feature, and the seconds taken."""
    from mlfs_dask.readers.base import LabelSpec
    from mlfs_dask.selection.fit import fit
    from mlfs_dask.selection.question import ask
    from mlfs_dask.storage.convert import convert
    from mlfs_dask.storage.dataset import open_store

    started = time.perf_counter()
    rows = ["@relation tiny", *(f"@attribute {name} numeric" for name in ("noise", PLANTED, "label")), "@data"]
    rows += [f"{row * 37 % 64},{row % 2},{row % 2}" for row in range(64)]
    source = folder / "tiny.arff"
    source.write_text("\n".join(rows) + "\n")
    store = folder / "tiny.zarr"
    convert(source, store, labels=LabelSpec(columns=("label",)))
    dataset = open_store(str(store))
    fitted = fit(ask("label-entropy", 1), dataset)
    return str(dataset.feature_names[fitted.ranking[0]]), time.perf_counter() - started


def _failed(name: str, error: Exception) -> Check:
    detail, _, cure = str(error).partition("\n  cure: ")
    return Check(name, "fail", detail, cure)


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
