"""What a job runs on: workers and their memory, peak memory as measured, and where progress goes.

Imports nothing of ours but the shared names, and `distributed` only when somebody else already has: a process
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

#: Bytes of a worker process that has imported what a reading needs and has done nothing yet; part of every
#: projection. A process that holds more already counts with what it holds (`Resources.process_bytes`).
PROCESS_BYTES = 90 * 2**20

#: Bytes that a process adds in its first job beside what the job plans: modules that are imported by then, pages of
#: libraries that run for the first time, and messages. 5 MiB measured in a worker, 2 to 9 MiB in the client's process.
FIRST_JOB_BYTES = 12 * 2**20

#: Bytes that the compiled kernels add to a process: Numba, LLVM, and the loaded code. 100 to 115 MiB measured, and 135
#: where its libraries have just been installed and the page cache holds them whole.
COMPILED_BYTES = 135 * 2**20

#: Bytes that compiling them adds, in the first process that runs them after an installation.
COMPILING_BYTES = 45 * 2**20

#: Bytes that loading scikit-learn adds to a process, its trees among them: 142 MiB measured, and 186 where its
#: libraries have just been installed and the page cache holds them whole.
SKLEARN_BYTES = 190 * 2**20

#: Bytes that libraries ask for and do not touch. The allocator of Arrow asks for 1 GiB at a time.
UNTOUCHED_BYTES = 2**30

#: Bytes of a thread's stack and of its buffers in BLAS, of which few are touched.
THREAD_BYTES = 2**25

#: Where Numba keeps the machine code of kernels if nothing tells it another place.
INSTALLED_KERNELS = Path(__file__).parent / "blocks" / "__pycache__"

#: Seconds between two looks for signals while a thread of this process works.
LOOK_SECONDS = 0.2

#: Seconds between two warnings of tasks.
WARNING_SECONDS = 10.0

#: Seconds between two lines of the log that say how far a reading is.
LOG_SECONDS = 10.0
#: Topic on which workers report progress to the client.
PROGRESS_TOPIC = "mlfs-progress"


@dataclass(frozen=True)
class Resources:
    """What a reading may use.

    Attributes
    ----------
    workers : int
        Processes that run tasks (1 when in process).
    threads_per_worker : int
        Tasks that run at the same time in one process.
    memory_limit : int
        Bytes that one worker process may hold.
    driver_limit : int
        Bytes that the process with the selector's loop may hold.
    client : distributed.Client or None
        None: in process.
    process_bytes : int
        Resident bytes of the largest worker process before the job, without what it has freed. Workers started by a
        script have imported whatever it imports at its top.
    compiled_bytes : int
        What loading compiled kernels adds to a process: 0 where they are loaded.
    sklearn_bytes : int
        What loading scikit-learn adds to the process with the selector's loop, which alone uses it.
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
        """Tasks that run at the same time."""
        return self.workers * self.threads_per_worker


def current_resources(*, threads: int | None = None) -> Resources:
    """Resources of the default `distributed` client, or of this process if there is none.

    Parameters
    ----------
    threads : int, optional
        Threads to use in process (default: `available_cores`). Ignored with a client.
    """
    driver_limit = available_memory()
    client = default_client()
    if client is None:
        limits_here = _process_limits.get()
        driver_limit = limits_here.memory_limit or driver_limit
        count = threads or limits_here.threads or available_cores()
        held_here, compiled = driver_bytes(), driver_compiled_bytes()
        return Resources(1, count, driver_limit, driver_limit, None, held_here, compiled, _sklearn_bytes())
    from mlfs_dask.cluster.workers import cluster_of  # loads the code digest, which a job of one process never needs

    cluster = cluster_of(client)
    admitted = cluster.workers()
    # A job that begins while all are started again is planned for such workers as there were.
    workers = list(admitted.values()) or cluster.last_seen
    if not workers:
        return Resources(1, 1, driver_limit, driver_limit, client)
    limits = [int(w["memory_limit"]) or driver_limit for w in workers]
    answers = [each for each in cluster.ask(settle, workers=admitted).values() if isinstance(each, tuple)]
    resident = [size for size, _ in answers]
    everywhere = len(answers) == len(admitted) > 0  # what is loaded on some is still to be loaded
    loaded = frozenset.intersection(*(names for _, names in answers)) if everywhere else frozenset()
    if not resident:  # busy leaving
        resident = [int(w.get("metrics", {}).get("memory", 0)) for w in workers]
    return Resources(
        len(limits),
        min(int(w["nthreads"]) for w in workers),
        min(limits),
        driver_limit,
        client,
        max(PROCESS_BYTES, max(resident) + FIRST_JOB_BYTES),
        _kernels_to_load(loaded),
        _sklearn_bytes(),
    )


def own_resources(resources: Resources) -> Resources:
    """This process alone, whose threads read while the workers of a cluster wait."""
    return replace(
        resources,
        workers=1,
        threads_per_worker=available_cores() if resources.client is not None else resources.threads_per_worker,
        memory_limit=resources.driver_limit,
        client=None,
        process_bytes=driver_bytes(),
    )


def driver_compiled_bytes() -> int:
    """What loading compiled kernels would add to this process."""
    return _kernels_to_load(_loaded())


@functools.cache
def compiles_kernels() -> bool:
    """Whether this process compiles the kernels when it runs the first: that of the first after an installation."""
    return "machine code" not in _loaded()


def _kernels_to_load(loaded: frozenset[str]) -> int:
    compiled = COMPILED_BYTES + (0 if "machine code" in loaded else COMPILING_BYTES)
    return 0 if "kernels" in loaded else compiled


def _sklearn_bytes() -> int:
    return 0 if "sklearn" in sys.modules else SKLEARN_BYTES


def _loaded() -> frozenset[str]:
    """Whether this process has "kernels", and "machine code" if Numba's cache has them."""
    modules: set[str] = set()
    # Numba itself would have to be loaded to ask it. Where it keeps its cache elsewhere, they count as not compiled.
    cache = machine_code_folder()
    if cache is not None and any(cache.rglob("*_compiled.*.nbi")):
        modules.add("machine code")
    if any(name.startswith("mlfs_dask.") and name.endswith("_compiled") for name in sys.modules):
        modules.add("kernels")
    return frozenset(modules)


def machine_code_folder() -> Path | None:
    """Where kernels are kept once they are compiled: a folder to which nobody else writes; None where there is none.

    `NUMBA_CACHE_DIR` names it, or it is the installation's, or, where that may not be written to, the user's cache.
    """
    if named := os.environ.get("NUMBA_CACHE_DIR"):
        return Path(named)
    if os.access(INSTALLED_KERNELS if INSTALLED_KERNELS.exists() else INSTALLED_KERNELS.parent, os.W_OK):
        return INSTALLED_KERNELS
    folder = Path(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "mlfs-dask")  # noqa: PTH111
    if not folder.is_absolute():  # of a user without a home it begins with "~", in the working folder
        return None
    try:
        folder.mkdir(0o700, parents=True, exist_ok=True)
        facts = folder.stat()
    except OSError:
        return None
    private = facts.st_uid == os.geteuid() and not facts.st_mode & 0o022
    return folder if private and os.access(folder, os.W_OK) else None


def give_back_freed_memory() -> None:
    """Give memory that is freed but kept for the next block back to the system."""
    gc.collect()
    with contextlib.suppress(OSError, AttributeError):  # glibc's alone
        ctypes.CDLL(None).malloc_trim(0)


def settle() -> tuple[int, frozenset[str]]:
    """Give freed memory back to the system; then resident bytes, and whether compiled kernels are loaded.

    A worker keeps what earlier work has freed for its next blocks. A job fills that again: who counts it to the process
    and to the job counts it twice.
    """
    give_back_freed_memory()
    return current_rss(), _loaded()


def prepare_for_kernels() -> None:
    """Give freed memory back where compiled kernels are still to be loaded.

    Loading them scatters small objects over the memory that earlier readings have freed, and the next block no longer
    fits where the last one was.
    """
    if "kernels" not in _loaded():
        give_back_freed_memory()


@dataclass(frozen=True)
class _Limits:
    memory_limit: int | None = None
    threads: int | None = None


_process_limits = contextvars.ContextVar("process_limits", default=_Limits())  # noqa: B039 - frozen


@contextlib.contextmanager
def process_limits(*, memory_limit: int | None = None, threads: int | None = None) -> Iterator[None]:
    """Limits for work in this process, inside the with-block, where there is no cluster.

    Parameters
    ----------
    memory_limit : int, optional
        Bytes that this process may hold (default: what is available).
    threads : int, optional
        Threads to use (default: `available_cores`).
    """
    given = {"memory_limit": memory_limit, "threads": threads}
    limits = replace(_process_limits.get(), **{name: value for name, value in given.items() if value is not None})
    with assigned(_process_limits, limits):
        yield


def _thread_pools() -> Any:
    return _thread_pools_of("scipy.linalg" in sys.modules)


@functools.cache
def _thread_pools_of(with_scipy: bool) -> Any:
    """The libraries that are loaded now: NumPy's BLAS, and SciPy's, which is another, where that is."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


class _BlasLimit:
    """One thread of BLAS, which is a setting of the whole process, as long as any of its threads asks for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limits: list[tuple[Any, Any]] = []  # libraries, and what restores their numbers

    def acquire(self) -> None:
        pools = _thread_pools()
        with self._lock:
            self._users += 1
            if not self._limits or self._limits[-1][0] is not pools:
                with _any_thread_may_set():
                    self._limits.append((pools, pools.limit(limits=1, user_api="blas")))

    def release(self) -> None:
        with self._lock:
            self._users -= 1
            if self._users == 0:
                with _any_thread_may_set():
                    while self._limits:
                        self._limits.pop()[1].restore_original_limits()


@contextlib.contextmanager
def _any_thread_may_set() -> Iterator[None]:
    """Numbers that one thread has set may be restored by another, which threadpoolctl ignores from version 3.8 on."""
    from threadpoolctl import OpenBLASController

    clear = getattr(OpenBLASController, "clear_controlling_thread", lambda *, force: None)
    clear(force=True)
    yield
    clear(force=True)


_blas_limit = _BlasLimit()


@contextlib.contextmanager
def one_blas_thread() -> Iterator[None]:
    """Keep BLAS to one thread inside the with-block.

    Where tasks or threads of ours take the cores already, threads of BLAS only wait for one another: ten times slower
    was seen on two busy cores. Costs microseconds, where `threadpool_limits` looks for libraries for milliseconds.
    """
    _blas_limit.acquire()
    try:
        yield
    finally:
        _blas_limit.release()


def finishing_threads() -> int:
    """Threads that may make the result of a reading: 1 with a cluster, whose workers have other tasks to do."""
    if current_worker() is not None or default_client() is not None:
        return 1
    return _process_limits.get().threads or available_cores()


def blas_threads() -> int:
    """Threads that a product of BLAS takes in this process, outside of `one_blas_thread`."""
    return max((int(pool["num_threads"]) for pool in _thread_pools().info() if pool["user_api"] == "blas"), default=1)


def driver_bytes() -> int:
    """Resident bytes of this process, with what a first job adds to them unplanned."""
    return max(PROCESS_BYTES, current_rss() + FIRST_JOB_BYTES)


def default_client() -> Any | None:
    """The default `distributed.Client` of this process, or None."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.default_client()
    except ValueError:
        return None


def control_groups(controller: str, root: str = "/") -> list[Path]:
    """Folders of the control groups (version 1 or 2) that this process is in, outermost first.

    A limit may sit on any of them: on the root in a container, further in inside a job of a batch system. Folders that
    a container does not show are among them. psutil knows no control groups, and `dask.system` the innermost alone; its
    import takes 0.12 s, a third of a small selection.

    Parameters
    ----------
    controller : {"cpu", "memory"}
    root : str
        Where /proc and /sys are found.
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
    """Cores that this process may keep busy: those it may run on, or its share of time (control groups) if less.

    Parameters
    ----------
    root : str
        Where /proc and /sys are found.
    """
    cores = len(os.sched_getaffinity(0))
    for group in control_groups("cpu", root):
        for quota, period in (_cpu_quota_v2(group), _cpu_quota_v1(group)):
            if quota > 0 and period > 0:
                cores = min(cores, math.ceil(quota / period))
    return cores


def _cpu_quota_v2(group: Path) -> tuple[int, int]:
    """Microseconds that may be used in a period of so many; zeros where there is no limit."""
    with contextlib.suppress(OSError, ValueError):  # "max" is no number
        quota, period = (group / "cpu.max").read_text().split()
        return int(quota), int(period)
    return 0, 0


def _cpu_quota_v1(group: Path) -> tuple[int, int]:
    with contextlib.suppress(OSError, ValueError):
        quota, period = ((group / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
        return int(quota), int(period)  # -1 where there is no limit
    return 0, 0


def memory_limit() -> int:
    """Bytes that this process may hold: as `process_limits` says, or what is available."""
    return _process_limits.get().memory_limit or available_memory()


@contextlib.contextmanager
def bounded_memory(size: int) -> Iterator[None]:
    """Have the system refuse this process, and each that it starts, much more memory inside the with-block.

    For libraries that unpack what others wrote, and take what that asks for. All threads of the process are bounded: a
    command is, a function that others call is not.

    Parameters
    ----------
    size : int
        Bytes that the job may hold, beside what the process has, `UNTOUCHED_BYTES`, and `THREAD_BYTES` a core.
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
    """Bytes this process could use: the least of what the machine has free and the control groups' remainders.

    Parameters
    ----------
    root : str
        Where /proc/self/cgroup and /sys are found.
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
                    used = int((group / usage).read_text()) - _reclaimable(group, cached)
                    amounts.append(total - used + current_rss())
    return max(min(amounts), 0)


def _reclaimable(group: Path, name: str) -> int:
    """Bytes of files that were read and that the system drops first: they count as used, and are free."""
    with contextlib.suppress(OSError):
        for line in (group / "memory.stat").read_text().splitlines():
            if line.startswith(f"{name} "):
                return int(line.split()[1])
    return 0


def require_address_space(size: int) -> None:
    """Raise MemoryError under a limit of address space (`ulimit -v`) in which libraries cannot be loaded.

    OpenBLAS does not fail where it gets no memory as it is loaded: it tries again for ever, and hears no signal.

    Parameters
    ----------
    size : int
        Bytes that the libraries take.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_AS)
    if limit != resource.RLIM_INFINITY and limit < size:
        raise MemoryError(
            f"the address space is limited to {limit >> 20} MiB, and the libraries of this command take "
            f"{size >> 20} MiB"
        )


def current_rss() -> int:
    """Resident bytes of this process."""
    import psutil  # 17 ms, which commands that compute nothing need not wait for

    return int(psutil.Process().memory_info().rss)


def peak_rss() -> int:
    """Largest resident bytes of this process since `reset_peak_rss`, or since it started; psutil cannot tell it."""
    peak = _status("VmHWM")
    return peak if peak is not None else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _status(field: str) -> int | None:
    """Bytes of a field of /proc/self/status; None where the system has none (other than Linux)."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) * 1024
    return None


def reset_peak_rss() -> None:
    """Start a new measurement of `peak_rss`, where the system lets a process do that (Linux)."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


# ---------------------------------------------------------------------------------------------------------
# Threads


def in_context(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """A function that runs in the context of now, whatever thread calls it.

    The cache, the checkpoints, the limits and the receivers of progress belong to a context (`contextvars`), so that
    threads of a user do not get each other's; a thread that is started by us works for whoever started it.
    """
    context = contextvars.copy_context()

    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        return context.copy().run(function, *args, **kwargs)  # two threads cannot be in one context at a time

    return run


class ThreadPool(ThreadPoolExecutor):
    """Threads whose tasks run in the context of whoever hands them out (`in_context`)."""

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        return super().submit(in_context(fn), *args, **kwargs)


class StoppedError(Exception):
    """Raised in a task's thread whose result nobody waits for any more."""


class TaskThreads(ThreadPool):
    """Threads for the tasks of a reading or a search, whose work ends soon when the with-block is left by an exception.

    A plain executor waits there until every task that runs has ended: Ctrl-C would be answered at the end of a task,
    which may be minutes away. Tasks look whether they should stop with `check_stopped`, at every block.

    Parameters
    ----------
    threads : int
    name : str
        What the threads' names begin with.
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
        """Have the tasks end soon, and wait until they have."""
        self._stopped.set()
        self.shutdown(wait=True, cancel_futures=True)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: Any) -> None:
        if kind is not None:
            self._stopped.set()
            self.shutdown(wait=False, cancel_futures=True)
        super().__exit__(kind, error, trace)


def result_of(future: Future[_T]) -> _T:
    """The result of a task. It is waited for with pauses: a signal just before a wait is not seen before its end."""
    while not future.done():
        wait([future], timeout=LOOK_SECONDS)
    return future.result()


#: What is set where a task should end: of the threads that it runs in, and of those that started these (`in_context`).
_stops: contextvars.ContextVar[tuple[threading.Event, ...]] = contextvars.ContextVar("stops", default=())


def check_stopped() -> None:
    """Raise StoppedError in a task of `TaskThreads` that should end; do nothing anywhere else."""
    if any(stopped.is_set() for stopped in _stops.get()):
        raise StoppedError


def pause(seconds: float) -> None:
    """Sleep; a task that should end (`check_stopped`) does so meanwhile."""
    end = time.monotonic() + seconds
    while True:
        check_stopped()
        left = end - time.monotonic()
        if left <= 0:
            return
        time.sleep(min(left, LOOK_SECONDS))


# ---------------------------------------------------------------------------------------------------------
# Progress

ProgressSink = Callable[[dict[str, Any]], None]

_sinks: contextvars.ContextVar[tuple[ProgressSink, ...]] = contextvars.ContextVar("sinks", default=())
_lock = threading.Lock()


@contextlib.contextmanager
def progress_to(sink: ProgressSink) -> Iterator[None]:
    """Send progress events of this thread, and of those that it starts here, to `sink` inside the with-block.

    An event is a dict with "kind":

    - "job" (one of several selections or evaluations begins: number from 1, total, name);
    - "ranking" (an evaluation begins to learn and score one: number from 1, total, candidate, repeat, fold);
    - "fit" (a selector begins: method, readings, max_iterations, typical_iterations);
    - "step" (an iteration of its loop has ended: number, objective...);
    - "pass" (a reading of the data begins: label, partitions), "partitions" (`done` more are finished), "pass-done";
    - "stage" (other work that may take long begins: label, parts, unit), "parts", "stage-done";
    - "convert" (stage "read" or "write": parts_done of parts).
    """
    with assigned(_sinks, (*_sinks.get(), sink)):
        yield


@contextlib.contextmanager
def without_progress() -> Iterator[None]:
    """Send no progress events inside the with-block: what runs there is counted as a part of something else."""
    with assigned(_sinks, ()):
        yield


def emit(kind: str, **fields: Any) -> None:
    """Hand one progress event to every sink of this context. A task that should stop stops here, too."""
    check_stopped()
    event = {"kind": kind, **fields}
    with _lock:
        for sink in _sinks.get() or (_log_progress,):
            sink(event)


_reading: dict[str, Any] = {"label": "", "partitions": 0, "done": 0, "told": 0.0}


def _log_progress(event: dict[str, Any]) -> None:
    """Log how far a reading is, every `LOG_SECONDS`, where nothing else shows it, as of a fit in Python."""
    if event["kind"] == "pass":
        _reading.update(event, done=0, told=time.monotonic())
    elif event["kind"] == "partitions":
        _reading["done"] += event["done"]
        if time.monotonic() - _reading["told"] >= LOG_SECONDS:
            _reading["told"] = time.monotonic()
            logger.info("%s: %d of %d partitions", _reading["label"], _reading["done"], _reading["partitions"])


@contextlib.contextmanager
def stage(label: str, parts: int | None = None, *, unit: str = "parts") -> Iterator[Callable[[], None]]:
    """Tell of work inside the with-block that is no reading and may take long: a search, a solve, the writing of state.

    Parameters
    ----------
    label : str
        What is done, as a progress line says it: "growing a forest".
    parts : int, optional
        How many there are to do; None where nobody knows.
    unit : str
        What they are called.

    Yields
    ------
    callable
        To be called, from any thread, when one more is done.
    """
    started = time.perf_counter()
    emit("stage", label=label, parts=parts, unit=unit)
    yield functools.partial(emit, "parts", done=1)
    emit("stage-done", label=label, seconds=time.perf_counter() - started)


def current_worker() -> Any | None:
    """The worker of a cluster whose task this is, or None in any other process."""
    distributed = sys.modules.get("distributed")
    if distributed is None:
        return None
    try:
        return distributed.get_worker()
    except ValueError:
        return None


_warned_at = -math.inf


def warn_from_task(text: str) -> None:
    """Log a warning for the user, from inside a task wherever that runs; one in `WARNING_SECONDS`, of many the first.

    For what every task meets at the same time, such as a server that has too much to do.
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
    """Hand one progress event to the client, from inside a task, wherever that runs."""
    worker = current_worker()
    if worker is None:
        emit(kind, **fields)
    else:
        worker.log_event(PROGRESS_TOPIC, {"kind": kind, **fields})
