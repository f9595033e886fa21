"""Resources of a job: workers, memory limits, measured memory, threads and progress events.

Imports no other module of the package but `context`, and `distributed` only if the process has loaded it: a process
without a cluster never pays for it.
"""

from __future__ import annotations

import contextlib
import contextvars
import ctypes
import functools
import gc
import logging
import math
import os
import resource
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from mlfs_dask.context import assigned

_P = ParamSpec("_P")
_T = TypeVar("_T")

logger = logging.getLogger(__name__)

#: Resident bytes of a worker process that has imported the modules of a pass and has run no task; part of every
#: projection. For a process that is larger, its resident size counts (`Resources.process_bytes`).
PROCESS_BYTES = 90 * 2**20

#: Bytes that the first job adds to a process beside the job's plan: late imports, first-touched pages of libraries,
#: and messages. 5 MiB measured in a worker, 2 to 9 MiB in the client's process.
FIRST_JOB_BYTES = 12 * 2**20

#: Bytes that the compiled kernels add to a process: Numba, LLVM, and the machine code. 100 to 115 MiB measured, and
#: 135 directly after an installation, when the page cache holds the libraries whole.
COMPILED_BYTES = 135 * 2**20

#: Bytes that compilation of the kernels adds, in the first process that runs them after an installation.
COMPILING_BYTES = 45 * 2**20

#: Bytes that loading scikit-learn with its trees adds to a process: 142 MiB measured, and 186 directly after an
#: installation, when the page cache holds the libraries whole.
SKLEARN_BYTES = 190 * 2**20

#: Bytes that libraries reserve and do not touch. The allocator of Arrow reserves 1 GiB at a time.
UNTOUCHED_BYTES = 2**30

#: Bytes reserved for a thread's stack and its BLAS buffers, mostly untouched.
THREAD_BYTES = 2**25

#: Default folder of Numba's cache of compiled kernels.
INSTALLED_KERNELS = Path(__file__).parent / "blocks" / "__pycache__"

#: Seconds between two checks for signals while a thread of this process works.
LOOK_SECONDS = 0.2

#: Least number of seconds between two warnings from tasks.
WARNING_SECONDS = 10.0

#: Seconds between two lines of the log about the progress of a pass.
LOG_SECONDS = 10.0
#: Dask topic on which workers report progress to the client.
PROGRESS_TOPIC = "mlfs-progress"


@dataclass(frozen=True)
class Resources:
    """Workers, threads and memory available to a pass over the data.

    Attributes
    ----------
    workers : int
        Processes that run tasks (1 without a cluster).
    threads_per_worker : int
        Concurrent tasks in one process.
    memory_limit : int
        Memory limit of one worker process, in bytes.
    driver_limit : int
        Memory limit of the process that runs the selector's loop, in bytes.
    client : distributed.Client or None
        None without a cluster.
    process_bytes : int
        Resident bytes of the largest worker process before the job, after freed memory was returned to the system.
        Workers started by a script include the script's own imports.
    compiled_bytes : int
        Bytes that loading compiled kernels adds to a process; 0 if they are loaded.
    sklearn_bytes : int
        Bytes that loading scikit-learn adds to the process of the selector's loop, its only user; 0 if it is loaded.
    """

    workers: int
    threads_per_worker: int
    memory_limit: int
    driver_limit: int
    client: Any = None
    process_bytes: int = PROCESS_BYTES
    compiled_bytes: int = COMPILED_BYTES
    sklearn_bytes: int = SKLEARN_BYTES

    @property
    def slots(self) -> int:
        """Concurrent tasks in all workers."""
        return self.workers * self.threads_per_worker


def process_resources(threads: int | None = None) -> Resources:
    """Return the resources of this process alone; `threads` instead of `available_cores`."""
    driver_limit = memory_limit()
    count = threads or _process_limits.get().get("threads") or available_cores()
    resident_here, compiled = driver_bytes(), driver_compiled_bytes()
    return Resources(1, count, driver_limit, driver_limit, None, resident_here, compiled, sklearn_bytes())


def own_resources(resources: Resources) -> Resources:
    """Return the resources of this process alone, for work that its threads do while the workers of a cluster wait."""
    return replace(
        resources,
        workers=1,
        threads_per_worker=available_cores() if resources.client is not None else resources.threads_per_worker,
        memory_limit=resources.driver_limit,
        client=None,
        process_bytes=driver_bytes(),
    )


def driver_compiled_bytes() -> int:
    """Return the bytes that loading compiled kernels would add to this process."""
    return kernels_to_load(_loaded())


@functools.cache
def compiles_kernels() -> bool:
    """Return True if this process must compile the kernels, as the first process after an installation does."""
    return "machine code" not in _loaded()


def kernels_to_load(loaded: frozenset[str]) -> int:
    compiled = COMPILED_BYTES + (0 if "machine code" in loaded else COMPILING_BYTES)
    return 0 if "kernels" in loaded else compiled


def sklearn_bytes() -> int:
    return 0 if "sklearn" in sys.modules else SKLEARN_BYTES


def _loaded() -> frozenset[str]:
    """Return "kernels" if this process has loaded them, and "machine code" if Numba's cache holds it."""
    modules: set[str] = set()
    # Asking Numba would load it. With a cache in an unknown folder, kernels count as not compiled.
    cache = machine_code_folder()
    if cache is not None and any(cache.rglob("*_compiled.*.nbi")):
        modules.add("machine code")
    if any(name.startswith("mlfs_dask.") and name.endswith("_compiled") for name in sys.modules):
        modules.add("kernels")
    return frozenset(modules)


def machine_code_folder() -> Path | None:
    """Return the cache folder of compiled kernels, writable by this user alone; None if there is no such folder.

    `NUMBA_CACHE_DIR`, or else the installation's own cache, or, if that is read-only, the user's cache folder.
    """
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named)
    if os.access(INSTALLED_KERNELS if INSTALLED_KERNELS.exists() else INSTALLED_KERNELS.parent, os.W_OK):
        return INSTALLED_KERNELS
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mlfs-dask")  # noqa: PTH111
    if not folder.is_absolute():  # without a home directory the path begins with "~", in the working folder
        return None
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        status = folder.stat()
    except OSError:
        return None
    private = status.st_uid == os.geteuid() and not status.st_mode & 0o022
    return folder if private and os.access(folder, os.W_OK) else None


def allocator_settings(memory: int) -> dict[str, int]:
    """Return the variables by which glibc keeps freed memory for later arrays, at most a quarter of so many bytes.

    Fresh buffers cost more time than reading: the system clears each page, and every 4 KiB are a fault. With high
    thresholds and one heap for all threads of a process freed memory serves the next block. It counts as used, so it
    may only be a fraction of a limit.
    """
    return {
        "MALLOC_ARENA_MAX": 1,
        "MALLOC_MMAP_THRESHOLD_": 2**30,
        "MALLOC_TRIM_THRESHOLD_": min(2**30, memory // 4),
    }


@contextlib.contextmanager
def freed_memory_kept() -> Iterator[None]:
    """Have this process keep freed memory as `allocator_settings` say inside the with-block.

    In loops with wide data clearing pages was a third of the driver's CPU seconds. Threads that start in the block
    share one heap with all others.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", lambda option, value: None)  # in glibc only
    arenas, mmap_threshold, trim_threshold = -8, -3, -1  # of malloc.h
    values = allocator_settings(available_memory()).values()
    for option, value in zip((arenas, mmap_threshold, trim_threshold), values, strict=True):
        mallopt(option, value)
    try:
        yield
    finally:
        mallopt(mmap_threshold, 2**25)  # as far as glibc goes by itself
        mallopt(trim_threshold, 2**26)
        give_back_freed_memory()


def give_back_freed_memory() -> None:
    """Return freed memory, which the allocator keeps for the next block, to the system."""
    gc.collect()
    _trim()


def _trim() -> None:
    with contextlib.suppress(OSError, AttributeError):  # malloc_trim exists in glibc only
        ctypes.CDLL(None).malloc_trim(0)


def measure_memory() -> tuple[int, frozenset[str]]:
    """Return freed memory to the system; return the resident bytes and the loaded libraries (`_loaded`).

    A worker keeps freed memory for its next blocks. The job fills that memory again, so counting it for the process and
    for the job would count it twice.
    """
    give_back_freed_memory()
    return current_rss(), _loaded()


def prepare_for_kernels() -> None:
    """Return freed memory to the system if compiled kernels are still to be loaded.

    Loading scatters small objects over memory that earlier passes have freed, and the next block no longer fits into
    the space of the last one.
    """
    if "kernels" not in _loaded():
        give_back_freed_memory()


_process_limits: contextvars.ContextVar[dict[str, int]] = contextvars.ContextVar("process_limits", default={})  # noqa: B039


@contextlib.contextmanager
def process_limits(*, memory_limit: int | None = None, threads: int | None = None) -> Iterator[None]:
    """Set the limits of this process, used without a cluster, inside the with-block.

    Parameters
    ----------
    memory_limit : int, optional
        Memory limit in bytes (default: available memory).
    threads : int, optional
        Number of threads (default: `available_cores`).
    """
    changes = {"memory_limit": memory_limit, "threads": threads}
    limits = {name: value for name, value in changes.items() if value is not None}
    with assigned(_process_limits, _process_limits.get() | limits):
        yield


def _thread_pools() -> Any:
    return _thread_pools_of("scipy.linalg" in sys.modules)


@functools.cache
def _thread_pools_of(with_scipy: bool) -> Any:
    """Return the BLAS thread pools loaded now: NumPy's, and SciPy's separate one once it is loaded."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


@contextlib.contextmanager
def _any_thread_may_set() -> Iterator[None]:
    """Allow one thread to restore limits set by another, which threadpoolctl ignores from version 3.8 on."""
    from threadpoolctl import OpenBLASController

    clear = getattr(OpenBLASController, "clear_controlling_thread", lambda *, force: None)
    clear(force=True)
    yield
    clear(force=True)


_blas_lock = threading.Lock()
_blas_users = 0
#: Thread pools that are limited while there are users, each with the object that restores its limit.
_blas_limits: list[tuple[Any, Any]] = []


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Limit BLAS to one thread inside the with-block, in the whole process, while any of its threads is in one.

    While tasks or threads of the package occupy the cores, BLAS threads only wait for one another: ten times slower on
    two busy cores. Costs microseconds; `threadpool_limits` searches for libraries for milliseconds.
    """
    global _blas_users
    pools = _thread_pools()
    with _blas_lock:
        _blas_users += 1
        if not _blas_limits or _blas_limits[-1][0] is not pools:
            with _any_thread_may_set():
                _blas_limits.append((pools, pools.limit(limits=1, user_api="blas")))
    try:
        yield
    finally:
        with _blas_lock:
            _blas_users -= 1
            if _blas_users == 0:
                with _any_thread_may_set():
                    while _blas_limits:
                        _blas_limits.pop()[1].restore_original_limits()


def finishing_threads() -> int:
    """Return the number of threads that finalise a pass: 1 with a cluster, whose workers have other tasks."""
    if current_worker() is not None or default_client() is not None:
        return 1
    return _process_limits.get().get("threads") or available_cores()


def blas_threads() -> int:
    """Return the number of threads of a BLAS product in this process, outside of `one_blas_thread`."""
    return max((int(pool["num_threads"]) for pool in _thread_pools().info() if pool["user_api"] == "blas"), default=1)


def driver_bytes() -> int:
    """Return the resident bytes of this process, with the unplanned bytes of a first job.

    Freed memory goes back to the system: a job fills it again, and would count it twice.
    """
    _trim()
    return max(PROCESS_BYTES, current_rss() + FIRST_JOB_BYTES)


def default_client() -> Any | None:
    """Return the default `distributed.Client` of this process, or None."""
    return _of_distributed("default_client")


def current_worker() -> Any | None:
    """Return the Dask worker that runs this task; None in any other process."""
    return _of_distributed("get_worker")


def _of_distributed(function: str) -> Any | None:
    """Call a function of `distributed`; None if this process has not loaded it, or it finds nothing."""
    distributed = sys.modules.get("distributed")
    with contextlib.suppress(ValueError):
        return None if distributed is None else getattr(distributed, function)()
    return None


def control_groups(controller: str, root: str = "/") -> list[Path]:
    """Return the folders of the control groups (version 1 or 2) of this process, outermost first.

    Any of them may set a limit: the root in a container, an inner one in a job of a batch system. The list includes
    folders that a container does not show. psutil reads no control groups, and `dask.system` only the innermost; its
    import takes 0.12 s, a third of a small selection.

    Parameters
    ----------
    controller : {"cpu", "memory"}
    root : str
        Root directory of /proc and /sys.
    """
    base = Path(root, "sys/fs/cgroup")
    folders = [base, base / controller]
    with contextlib.suppress(OSError):
        for line in Path(root, "proc/self/cgroup").read_text().splitlines():
            _, controllers, group = line.split(":", 2)
            if controllers == "":
                top = base
            elif controller in controllers.split(","):
                top = base / controller
            else:
                continue
            parts = [part for part in group.split("/") if part]
            if ".." not in parts:  # a group above what this namespace shows
                folders += [top.joinpath(*parts[:depth]) for depth in range(1, len(parts) + 1)]
    return folders


def available_cores(root: str = "/") -> int:
    """Return the number of cores of this process: its CPU affinity, or its share by control groups if less.

    Parameters
    ----------
    root : str
        Root directory of /proc and /sys.
    """
    cores = len(os.sched_getaffinity(0))
    for group in control_groups("cpu", root):
        for files in (("cpu.max",), ("cpu.cfs_quota_us", "cpu.cfs_period_us")):
            with contextlib.suppress(OSError, ValueError):  # "max" is no number, and -1 no quota
                quota, period = map(int, " ".join((group / name).read_text() for name in files).split())
                if quota > 0 and period > 0:
                    cores = min(cores, math.ceil(quota / period))
    return cores


def memory_limit() -> int:
    """Return the memory limit of this process in bytes: from `process_limits`, or the available memory."""
    return _process_limits.get().get("memory_limit") or available_memory()


@contextlib.contextmanager
def bounded_memory(size: int) -> Iterator[None]:
    """Limit the data segment of this process and its child processes inside the with-block.

    For libraries that decompress untrusted files and allocate whatever the file declares. The limit holds for all
    threads, so only commands use it, never functions that users call.


    Parameters
    ----------
    size : int
        Bytes for the job, beside the process itself, `UNTOUCHED_BYTES`, and `THREAD_BYTES` for every core.
    """
    data_bytes = _status("VmData")
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bound = (data_bytes or 0) + size + UNTOUCHED_BYTES + available_cores() * THREAD_BYTES
    if data_bytes is None or (soft != resource.RLIM_INFINITY and soft <= bound):
        yield
        return
    resource.setrlimit(resource.RLIMIT_DATA, (bound, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def available_memory(root: str = "/") -> int:
    """Return the bytes this process could use: free memory of the machine, or the remainder of a control group if less.

    Parameters
    ----------
    root : str
        Root directory of /proc and /sys.
    """
    import psutil

    amounts = [int(psutil.virtual_memory().available) + current_rss()]
    for group in control_groups("memory", root):
        for limit, usage, cached in (
            ("memory.max", "memory.current", "inactive_file"),
            ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
        ):
            with contextlib.suppress(OSError, ValueError):
                total = int((group / limit).read_text())
                if total < 2**60:
                    # Cached files count as used, and the system drops them first.
                    used = int((group / usage).read_text()) - (_field(group / "memory.stat", cached) or 0)
                    amounts.append(total - used + current_rss())
    return max(min(amounts), 0)


def require_address_space(size: int) -> None:
    """Raise MemoryError under a limit of address space (`ulimit -v`) too small for the libraries.

    OpenBLAS does not fail if an allocation fails while it loads: it retries for ever, and ignores signals.

    Parameters
    ----------
    size : int
        Bytes of address space that the libraries need.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < size:
        raise MemoryError(
            f"the address space is limited to {limit >> 20} MiB, and the libraries of this command take "
            f"{size >> 20} MiB"
        )


def current_rss() -> int:
    """Return the resident bytes of this process."""
    import psutil  # takes 17 ms, which commands that compute nothing need not wait for

    return int(psutil.Process().memory_info().rss)


def peak_rss() -> int:
    """Return the peak resident bytes since `reset_peak_rss`, or since the process started; psutil has no such value."""
    peak = _status("VmHWM")
    return peak if peak is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(field: str) -> int | None:
    """Return a field of /proc/self/status in bytes; None on systems other than Linux."""
    kibibytes = _field(Path("/proc/self/status"), f"{field}:")
    return None if kibibytes is None else kibibytes * 1024


def _field(file: Path, name: str) -> int | None:
    """Return the number behind a name in a file of the system with a name and a number a line; None without it."""
    with contextlib.suppress(OSError):
        for line in file.read_text().splitlines():
            if line.split()[:1] == [name]:
                return int(line.split()[1])
    return None


def reset_peak_rss() -> None:
    """Reset the measurement of `peak_rss`, where the system allows it (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


# ---------------------------------------------------------------------------------------------------------
# Threads


def in_context(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Bind a function to the current context, for calls from any thread.

    The cache, checkpoints, limits and receivers of progress belong to a context (`contextvars`), so that threads of a
    user do not share them; a thread that the package starts works for the caller that started it.
    """
    context = contextvars.copy_context()

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return context.copy().run(function, *args, **kwargs)  # a context can be entered by one thread at a time

    return run


class ThreadPool(ThreadPoolExecutor):
    """Thread pool whose tasks run in the context of the caller of `submit` (`in_context`)."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        return super().submit(in_context(fn), *args, **kwargs)


class StoppedError(Exception):
    """Raised in the thread of a task whose result nobody waits for any more."""


class TaskThreads(ThreadPool):
    """Thread pool for the tasks of a pass or a search; tasks end soon after an exception in the with-block.

    A plain executor waits for all running tasks: Ctrl-C would take effect at the end of a task, which may take minutes.
    Tasks call `check_stopped` at every block.

    Parameters
    ----------
    threads : int
    name : str
        Prefix of the threads' names.
    """

    def __init__(self, threads: int, name: str) -> None:
        self._stopped = threading.Event()
        super().__init__(threads, name)

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
            _stops.set((*_stops.get(), self._stopped))
            return fn(*args, **kwargs)

        return super().submit(run, *args, **kwargs)

    def stop(self) -> None:
        """Stop the tasks, and wait until they have ended."""
        self._stopped.set()
        self.shutdown(wait=True, cancel_futures=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is not None:
            self._stopped.set()
            self.shutdown(wait=False, cancel_futures=True)
        super().__exit__(kind, error, trace)


def result_of(future: Future[_T]) -> _T:
    """Return the result of a task. Waits in short steps: a signal just before a wait would be seen only after it."""
    while not future.done():
        wait([future], timeout=LOOK_SECONDS)
    return future.result()


#: Stop events of the current task: one of its own pool, and one of each pool further up (`in_context`).
_stops: contextvars.ContextVar[tuple[threading.Event, ...]] = contextvars.ContextVar("stops", default=())


def check_stopped() -> None:
    """Raise StoppedError in a task of `TaskThreads` that should stop; do nothing elsewhere."""
    if any(stopped.is_set() for stopped in _stops.get()):
        raise StoppedError


def pause(seconds: float) -> None:
    """Sleep; a task that should stop (`check_stopped`) raises StoppedError meanwhile."""
    end = time.monotonic() + seconds
    while True:
        check_stopped()
        remaining = end - time.monotonic()
        if remaining <= 0:
            return
        time.sleep(min(remaining, LOOK_SECONDS))


# ---------------------------------------------------------------------------------------------------------
# Progress

ProgressSink = Callable[[dict[str, Any]], None]

_sinks: contextvars.ContextVar[tuple[ProgressSink, ...]] = contextvars.ContextVar("sinks", default=())
_lock = threading.Lock()


@contextlib.contextmanager
def progress_to(sink: ProgressSink) -> Iterator[None]:
    """Send progress events of this thread, and of threads that it starts, to `sink` inside the with-block.

    An event is a dict with "kind":

    - "job" (one of several selections or evaluations begins: number from 1, total, name);
    - "ranking" (an evaluation begins to fit and score one ranking: number from 1, total, candidate, repeat, fold);
    - "fit" (a selector begins: method, readings, max_iterations, typical_iterations);
    - "step" (an iteration of its loop has ended: number, objective...);
    - "pass" (a pass over the data begins: label, partitions), "partitions" (`done` more are finished), "pass-done";
    - "stage" (other long work begins: label, parts, unit), "parts" (`done` more are finished), "stage-done";
    - "convert" (stage "read" or "write": parts_done of parts).
    """
    with assigned(_sinks, (*_sinks.get(), sink)):
        yield


@contextlib.contextmanager
def without_progress() -> Iterator[None]:
    """Suppress progress events inside the with-block, whose work counts as a part of other work."""
    with assigned(_sinks, ()):
        yield


def emit(kind: str, **fields: Any) -> None:
    """Send a progress event to every sink of this context. A task that should stop raises StoppedError."""
    check_stopped()
    event = {"kind": kind, **fields}
    with _lock:
        for sink in _sinks.get() or (_log_progress,):
            sink(event)


_progress: dict[str, Any] = {"label": "", "partitions": 0, "done": 0, "logged_at": 0.0}


def _log_progress(event: dict[str, Any]) -> None:
    """Log the progress of a pass every `LOG_SECONDS`, if no sink shows it, as in a fit from Python."""
    if event["kind"] == "pass":
        _progress.update(event, done=0, logged_at=time.monotonic())
    elif event["kind"] == "partitions":
        _progress["done"] += event["done"]
        if time.monotonic() - _progress["logged_at"] >= LOG_SECONDS:
            _progress["logged_at"] = time.monotonic()
            logger.info("%s: %d of %d partitions", _progress["label"], _progress["done"], _progress["partitions"])


@contextlib.contextmanager
def stage(label: str, parts: int | None = None, *, unit: str = "parts") -> Iterator[Callable[[], None]]:
    """Report long work inside the with-block that is no pass over the data: a search, a solve, writing a checkpoint.

    Parameters
    ----------
    label : str
        Work as a progress line names it: "growing a forest".
        parts : int, optional
            Number of parts; None if unknown.
        unit : str
            Plural noun for the parts.

        Yields
        ------
        callable
            Function to call, from any thread, after each finished part.
    """
    started = time.perf_counter()
    emit("stage", label=label, parts=parts, unit=unit)
    yield functools.partial(emit, "parts", done=1)
    emit("stage-done", label=label, seconds=time.perf_counter() - started)


_warned_at = -math.inf


def warn_from_task(text: str) -> None:
    """Log a warning for the user from inside a task, at most one in `WARNING_SECONDS`.

    For conditions that every task meets at the same time, such as an overloaded server.
    """
    global _warned_at
    now = time.monotonic()
    with _lock:
        if now - _warned_at < WARNING_SECONDS:
            return
        _warned_at = now
    worker = current_worker()
    if worker is None:
        logger.warning("%s", text)
    else:
        worker.log_event(PROGRESS_TOPIC, {"kind": "warning", "text": f"host {socket.gethostname()}: {text}"})


def emit_from_task(kind: str, **fields: Any) -> None:
    """Send a progress event from inside a task to the client."""
    worker = current_worker()
    if worker is None:
        emit(kind, **fields)
    else:
        worker.log_event(PROGRESS_TOPIC, {"kind": kind, **fields})
