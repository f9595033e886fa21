"""Where work is done: in threads of this process, or on a Dask cluster, a running one or local workers.

Without a cluster nothing of Dask is loaded and nothing listens.

A reading bounds its own memory, so workers neither spill nor return freed buffers to the system between blocks;
every wait for a cluster has an end, and what ends it says what to do.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import time
import warnings
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlfs_dask import runtime
from mlfs_dask.cluster.block_sizes import register_sizes
from mlfs_dask.cluster.dashboard import dashboard_link
from mlfs_dask.cluster.workers import WORKER_WAIT, cluster_of, root_of
from mlfs_dask.errors import ClusterLostError, DoesNotFitError, UsageError, number_of, parameter
from mlfs_dask.files.interruption import SAFE_PATH, deferred_signals, restore_environment
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.runtime import Resources

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

logger = logging.getLogger(__name__)

#: Above the level of everything that is logged.
LOGS_NOTHING = logging.CRITICAL + 1

ASK_AGAIN_SECONDS = 2.0
"""Seconds after which workers that have not answered are asked again."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Options that say where work is done, which contradict one another in no way.

    Parameters
    ----------
    scheduler : str, optional
        Address of a running scheduler, as ``tcp://host:8786`` or ``tls://host:8786``.
    scheduler_file : str, optional
        File in which a running scheduler has written its address.
    workers : int, optional
        Number of local worker processes to start; they listen on the loopback interface alone, by TLS with a
        certificate that is made for this run.
    threads_per_worker : int, optional
        Threads of a local worker (default 1).
    memory_limit : int, optional
        Bytes that each local worker, or this process when there is none, may use. Default: what is available to
        this process, of which local workers have equal shares.
    tls_ca_file, tls_cert, tls_key : str, optional
        Files for a scheduler that speaks TLS: all three or none.
    min_workers : int, optional
        Workers of a running scheduler that are waited for before anything runs (default 1). Work is planned for the
        memory of those that are there; others that join later get their share of it.
    wait : float
        Seconds to wait for the scheduler and for its workers; also how long a cluster that has lost
        every worker is given to get one back.
    insecure : bool
        Allow a scheduler without TLS that is not on this machine's loopback interface. Whoever reaches it can run code
        as whoever runs its workers.
    in_process : bool
        Compute in this process, one task after the other, in one thread.

    Raises
    ------
    UsageError
        If options contradict one another, or name what does not exist.
    """

    scheduler: str | None = None
    scheduler_file: str | None = None
    workers: int | None = None
    threads_per_worker: int | None = None
    memory_limit: int | None = None
    tls_ca_file: str | None = None
    tls_cert: str | None = None
    tls_key: str | None = None
    min_workers: int | None = None
    wait: float = WORKER_WAIT
    insecure: bool = False
    in_process: bool = False

    def __post_init__(self) -> None:
        if problem := next(self._problems(), None):
            raise UsageError(problem)

    @property
    def remote(self) -> bool:
        """Whether a running scheduler is named."""
        return self.scheduler is not None or self.scheduler_file is not None

    @property
    def tls(self) -> tuple[str | None, str | None, str | None]:
        """Files of TLS."""
        return self.tls_ca_file, self.tls_cert, self.tls_key

    @property
    def share_of_memory(self) -> int:
        """Bytes that a local worker may use."""
        return self.memory_limit or runtime.available_memory() // (self.workers or 1)

    def _problems(self) -> Iterator[str]:
        """What is wrong with the options, with what to do."""
        named = [name for name in ("scheduler", "scheduler_file", "workers") if getattr(self, name) is not None]
        named += ["in_process"] if self.in_process else []
        if len(named) > 1:
            yield f"{' and '.join(map(parameter, named))} name different places to compute; give one."
        for name in ("memory_limit", "threads_per_worker"):
            if self.remote and getattr(self, name) is not None:
                yield (
                    f"{parameter(name)} is for local workers; those of a running cluster have theirs already."
                    "\n  cure: give it to `dask worker` where the workers are started."
                )
        if self.threads_per_worker is not None and self.in_process:
            yield f"{parameter('threads_per_worker')} has no meaning with {parameter('in_process')}."
        if self.threads_per_worker is not None and self.workers is None:
            yield (
                f"{parameter('threads_per_worker')} is for local workers, and none are asked for."
                f"\n  cure: give {parameter('workers')} as well, or leave it out: this process has a thread a core."
            )
        for name in ("workers", "threads_per_worker", "min_workers"):
            number = getattr(self, name)
            if number is not None and number < 1:
                yield f"{parameter(name)} must be at least 1; it is {number}."
        for name in ("insecure", "min_workers"):
            if getattr(self, name) and not self.remote:
                yield f"{parameter(name)} goes with {parameter('scheduler')} or {parameter('scheduler_file')}."
        if self.wait <= 0:
            yield f"{parameter('wait')} must be a positive number of seconds; it is {self.wait:g}."
        yield from self._problems_of_tls()

    def _problems_of_tls(self) -> Iterator[str]:
        names = [parameter(name) for name in ("tls_ca_file", "tls_cert", "tls_key")]
        missing = [name for name, path in zip(names, self.tls, strict=True) if not path]
        scheduler = self.scheduler or ""
        if len(missing) == len(names):
            if scheduler.startswith("tls://"):
                import dask

                if not dask.config.get("distributed.comm.tls.ca-file", None):
                    yield f"the address {scheduler} needs {names[0]}, {names[1]} and {names[2]}."
            return
        if missing:
            yield f"TLS needs all three of {', '.join(names)}; missing: {', '.join(missing)}."
        if not self.remote:
            yield (
                f"TLS options go with {parameter('scheduler')} or {parameter('scheduler_file')}; local workers need"
                " none."
            )
        for path in self.tls:
            if path is not None and not Path(path).is_file():
                yield f"no such file: {path} (a TLS option names it)."
        if "://" in scheduler and not scheduler.startswith("tls://"):
            yield f"TLS options were given, but the address {scheduler} is not of the form tls://host:port."


@contextmanager
def connect(**options: Any) -> Iterator[Client | None]:
    """Make a cluster current for the time of a `with` block.

    With neither a scheduler nor a number of workers there is none: the work is done by threads of this process, one a
    core.

    Parameters
    ----------
    **options
        Those of `ClusterOptions`.

    Yields
    ------
    distributed.Client or None
        The client, set as the default one; None when the work is done in this process.

    Raises
    ------
    UsageError
        If options contradict one another, or name what does not exist.
    DoesNotFitError
        If a local worker needs more than the memory limit before it has any work.
    ClusterLostError
        If the scheduler or its workers cannot be reached in time, or go away during the block.
    """
    place = ClusterOptions(**options)
    if place.remote:
        with _remote_client(place) as client, _current(client, place.wait):
            if link := dashboard_link(client):
                logger.info("its dashboard is at %s", link)
            yield client
    elif place.workers is not None:
        memory_limit, threads = place.share_of_memory, place.threads_per_worker or 1
        if memory_limit < runtime.PROCESS_BYTES:  # its nanny would end it while it starts
            raise DoesNotFitError(
                "a local worker before it has any work",
                projected=runtime.PROCESS_BYTES,
                available=memory_limit,
                cure=f"give each worker more memory ({parameter('memory_limit')}), or start fewer "
                f"({parameter('workers')})",
            )
        logger.info(
            "starting %s with %.1f GiB and %s each",
            *(number_of(place.workers, "local worker"), memory_limit / 2**30, number_of(threads, "thread")),
        )
        with _local_client(place.workers, threads, memory_limit, place.wait) as client, _current(client, place.wait):
            yield client
    else:
        with _in_process(place.memory_limit, 1 if place.in_process else None):
            yield None


@contextmanager
def _current(client: Client, wait: float) -> Iterator[None]:
    """Make a client the default one, and its workers ready."""
    from concurrent.futures import CancelledError

    from distributed.comm.core import CommClosedError

    # Of exceptions that nobody has asked for, which it would print as late as at the end of the process.
    loop: Any = client.loop
    loop.asyncio_loop.set_exception_handler(_log_exception_of_loop)
    register_sizes()
    cluster = cluster_of(client)
    cluster.wait = wait
    with client.as_current():
        try:
            cluster.workers()
            yield
        except (CancelledError, CommClosedError) as error:
            raise cluster.loss(error) from error


def planned_resources(**options: Any) -> Resources:
    """What `connect` with the same options would give.

    Of local workers one is started, whatever their number, and stopped again: what it holds before it gets a task, and
    what this process loads and runs beside it, are measured. Both depend on the machine and on versions of libraries.

    Parameters
    ----------
    **options
        Those of `ClusterOptions`.

    Returns
    -------
    Resources
        Of a running cluster, as it is; of local workers, as they would be (`client` is then a placeholder).
    """
    place = ClusterOptions(**options)
    if place.workers is None:
        with connect(**options):
            return runtime.current_resources()
    logger.info("starting a local worker, to measure what it holds")
    # Not with the limit to plan for: where that is too small, it would end this worker before it is asked anything.
    with (
        _local_client(1, place.threads_per_worker or 1, 2**30, place.wait) as client,
        _current(client, place.wait),
    ):
        measured = runtime.current_resources()
    return replace(measured, workers=place.workers, memory_limit=place.share_of_memory, client=PLANNED)


PLANNED = "local workers that were stopped again"
"""Stands for the client in resources that are only planned with."""


# The three places to compute


@contextmanager
def _in_process(memory_limit: int | None, threads: int | None) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(runtime.process_limits(memory_limit=memory_limit, threads=threads))
        if threads == 1:
            import dask  # the default loads nothing of it

            stack.enter_context(dask.config.set(scheduler="synchronous"))
        yield


@contextmanager
def _remote_client(place: ClusterOptions) -> Iterator[Client]:
    with deferred_signals():
        from distributed.security import Security
        from distributed.versions import VersionMismatchWarning

    wait, deadline = place.wait, time.monotonic() + place.wait
    scheduler = place.scheduler or _address_from_file(str(place.scheduler_file), deadline, wait)
    logger.info("connecting to the scheduler at %s, for up to %g s", scheduler, wait)
    security = None
    if place.tls_ca_file is not None:
        files = {"tls_ca_file": place.tls_ca_file, "tls_client_cert": place.tls_cert, "tls_client_key": place.tls_key}
        security = Security(**files, require_encryption=True)
        scheduler = scheduler if "://" in scheduler else f"tls://{scheduler}"
    if not place.insecure:
        _require_protection(scheduler)
    _wait_for_listener(scheduler, deadline, wait)
    with warnings.catch_warnings(), _without_logs_of_dask("distributed", "distributed.client"), ExitStack() as stack:
        # `Cluster` compares the versions and says it in one line.
        warnings.simplefilter("ignore", VersionMismatchWarning)
        try:
            client = _new_client(
                scheduler,
                security=security,
                timeout=max(deadline - time.monotonic(), 1.0),
                # Not yet: a client that fails to connect would stay the default one.
                set_as_default=False,
            )
        except ValueError as error:
            raise _no_address(scheduler, error) from error
        except (OSError, TimeoutError, RuntimeError) as error:
            raise _no_answer(scheduler, wait, error) from error
        stack.enter_context(client)
        _wait_for_workers(client, place.min_workers or 1, deadline, wait)
        yield client


def _wait_for_workers(client: Client, count: int, deadline: float, wait: float) -> None:
    """Return when `count` workers are there that may take part.

    Those that could not be reached when they were asked, or came back at an address of before, are asked again.
    """
    while True:
        there = len(client.nthreads())
        if there >= count and len(cluster_of(client).workers()) >= count:
            return
        left = deadline - time.monotonic()
        if left <= 0:
            arrived = number_of(there, "worker") if there else "no worker"
            asked = "" if count == 1 else f"; {parameter('min_workers')} asks for {count}"
            address = cluster_of(client).address
            raise ClusterLostError(
                f"the scheduler at {address} has {arrived} after {wait:g} s{asked}."
                f"\n  cure: start workers with `dask worker {address}`, look into their logs if they were"
                " started, or wait longer with --wait SECONDS."
            )
        with suppress(TimeoutError):
            client.wait_for_workers(there + 1, timeout=min(left, ASK_AGAIN_SECONDS))


@contextmanager
def _without_logs_of_dask(*names: str) -> Iterator[None]:
    """Of a lost connection Dask logs tracebacks; our own message says it. With -vv they are shown."""
    loggers = [logging.getLogger(name) for name in (*names, "tornado.application")]
    before = [known.level for known in loggers]
    if not _shows_logs_of_dask():
        for known in loggers:
            known.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for known, level in zip(loggers, before, strict=True):
            known.setLevel(level)


def _log_exception_of_loop(loop: object, context: dict[str, Any]) -> None:
    logger.debug("Dask: %s", context.get("message"), exc_info=context.get("exception"))


def _shows_logs_of_dask() -> bool:
    return logger.isEnabledFor(logging.DEBUG)


def _new_client(*args: Any, **options: Any) -> Client:
    """`Client(...)` that can be interrupted: a half-made client waits for itself when it is collected."""
    from distributed import Client

    client = Client.__new__(Client)
    try:
        client.__init__(*args, **options)  # type: ignore[misc]
    except KeyboardInterrupt:
        client.status = "closed"  # then closing does nothing
        raise
    return client


def _wait_for_listener(address: str, deadline: float, wait: float) -> None:
    """Return when somebody listens at the address; what it is, the client finds out.

    The client could wait as well, but it cannot be interrupted while it does.
    """
    from distributed.comm.addressing import parse_address, parse_host_port

    try:
        protocol, location = parse_address(address)
        host, port = parse_host_port(location)
    except ValueError as error:
        raise _no_address(address, error) from error
    if protocol not in ("tcp", "tls"):
        return
    while True:
        try:
            remaining = max(deadline - time.monotonic(), 0.1)
            socket.create_connection((host, port), timeout=min(remaining, 3.0)).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                raise _no_answer(address, wait, error) from error
            time.sleep(min(0.2, max(deadline - time.monotonic(), 0.01)))
        else:
            return


def _require_protection(address: str) -> None:
    """Refuse a scheduler that anybody on the network can use.

    Raises
    ------
    UsageError
    """
    if not is_protected(address):
        raise UsageError(
            f"{address} is not encrypted, and whoever reaches such a scheduler can run code on its workers."
            f"\n  cure: start the cluster with TLS (deploy/ shows how) and give {parameter('tls_ca_file')}, "
            f"{parameter('tls_cert')} and {parameter('tls_key')}; or give {parameter('insecure')} where only you "
            "can reach its network."
        )


def is_protected(address: str) -> bool:
    """Whether what speaks at an address does so by TLS, or cannot be reached from other machines.

    >>> is_protected("tls://10.0.0.1:8786"), is_protected("tcp://127.0.0.1:8786"), is_protected("tcp://10.0.0.1:8786")
    (True, True, False)

    Raises
    ------
    UsageError
        If it is no address.
    """
    from distributed.comm.addressing import parse_address, parse_host_port

    try:
        protocol, location = parse_address(address)
        return protocol not in ("tcp", "ws", "ucx") or _is_loopback(parse_host_port(location)[0])
    except ValueError as error:
        raise _no_address(address, error) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _no_address(address: str, error: Exception) -> UsageError:
    return UsageError(
        f"{address!r} is no scheduler address ({error}); expected host:port, tcp://host:port or tls://host:port."
    )


def _no_answer(address: str, wait: float, error: Exception) -> ClusterLostError:
    return ClusterLostError(
        f"no scheduler answered at {address} within {wait:g} s ({root_of(error)})."
        "\n  cure: check that `dask scheduler` runs, that the address and port are its own (it prints them) and"
        " can be reached from here, and that both sides use TLS or neither; --wait SECONDS waits longer."
    )


def _address_from_file(scheduler_file: str, deadline: float, wait: float) -> str:
    path = Path(scheduler_file)
    problem = "there is no such file"
    while True:
        try:
            return str(parse_json(path.read_text())["address"])
        except FileNotFoundError:
            problem = "there is no such file"
        except (ValueError, KeyError, TypeError):
            # Also what a file looks like while the scheduler is writing it.
            problem = "it does not hold a scheduler's address"
        except OSError as error:
            problem = str(error.strerror)
        if time.monotonic() >= deadline:
            raise ClusterLostError(
                f"--scheduler-file {scheduler_file}: {problem} after {wait:g} s."
                f"\n  cure: start the scheduler with `dask scheduler --scheduler-file {scheduler_file}` on a"
                " file system that this host shares, or wait longer with --wait SECONDS."
            )
        time.sleep(min(0.1, max(deadline - time.monotonic(), 0.01)))


@contextmanager
def _local_client(workers: int, threads_per_worker: int, memory_limit: int, wait: float) -> Iterator[Client]:
    with deferred_signals():
        import dask
        from distributed import LocalCluster
        from distributed.security import Security

    settings = local_settings(memory_limit, wait)
    with (
        dask.config.set(settings),
        _restored_environment(settings[_ENVIRON]),
        _without_logs_of_dask(),
        ExitStack() as stack,
    ):
        try:
            with deferred_signals():
                cluster = LocalCluster(
                    n_workers=workers,
                    threads_per_worker=threads_per_worker,
                    processes=True,
                    memory_limit=memory_limit,
                    host="127.0.0.1",
                    # Any user of this machine can reach the loopback interface.
                    protocol="tls",
                    security=Security.temporary(),
                    dashboard_address=None,
                    worker_dashboard_address=None,
                    # Without a dashboard there is a server without pages all the same, and 8787 may be taken.
                    scheduler_kwargs={"dashboard_address": "127.0.0.1:0"},
                    # Of what is printed alone: what nannies log of their workers' end is read (`Cluster.death_of`).
                    silence_logs=logging.ERROR if _shows_logs_of_dask() else LOGS_NOTHING,
                )
                stack.enter_context(_closed_in_peace(cluster))
        except (OSError, TimeoutError, RuntimeError) as error:
            raise ClusterLostError(
                f"{workers} local workers did not start ({root_of(error)})."
                "\n  cure: ask for fewer with --workers N, or leave --workers out: threads of this process need none."
            ) from error
        client = stack.enter_context(_new_client(cluster, set_as_default=False))
        try:
            client.wait_for_workers(workers, timeout=wait)
        except TimeoutError as error:
            raise ClusterLostError(
                f"of {workers} local workers {len(client.nthreads())} started within {wait:g} s."
                "\n  cure: ask for fewer with --workers N, or wait longer with --wait SECONDS."
            ) from error
        yield client


@contextmanager
def _closed_in_peace(cluster: LocalCluster) -> Iterator[None]:
    """Close a cluster behind the with-block, whatever signals come meanwhile: half closed, it leaves workers behind."""
    try:
        yield
    finally:
        with deferred_signals():
            cluster.close()


_ENVIRON = "distributed.nanny.pre-spawn-environ"


@contextmanager
def _restored_environment(names: Iterable[str]) -> Iterator[None]:
    """Undo what nannies, which run in this process, do to its environment; the next cluster would inherit it."""
    before = {name: os.environ.get(name) for name in names}
    try:
        yield
    finally:
        restore_environment(before)


def local_settings(memory_limit: int, wait: float) -> dict[str, Any]:
    """Settings of Dask under which local workers are started.

    Parameters
    ----------
    memory_limit : int
        Bytes of each worker.
    wait : float
        Seconds that tasks may wait for a worker.
    """
    # Fresh buffers cost more than the reading: a page fault for every 4 KiB. glibc keeps freed memory for
    # the next block when the thresholds are high and the worker's threads share one heap. What it keeps
    # counts as used, so it may not be much of the limit.
    trim_threshold = min(2**30, memory_limit // 4)
    return {
        _ENVIRON: {
            "MALLOC_ARENA_MAX": 1,
            "MALLOC_MMAP_THRESHOLD_": 2**30,
            "MALLOC_TRIM_THRESHOLD_": trim_threshold,
            "OMP_NUM_THREADS": 1,
            "MKL_NUM_THREADS": 1,
            "OPENBLAS_NUM_THREADS": 1,
            "NUMBA_NUM_THREADS": 1,
            **SAFE_PATH,
        },
        "distributed.worker.multiprocessing-method": "spawn",
        # A reading is planned to fit; spilling its small partials would only cost time.
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": 0.9,
        "distributed.worker.memory.terminate": 0.97,
        "distributed.worker.profile.enabled": False,
        "distributed.worker.http.routes": [],
        "distributed.scheduler.http.routes": [],
        # A frozen worker is given up after this time, and its tasks go to others.
        "distributed.scheduler.worker-ttl": "60 s",
        "distributed.scheduler.no-workers-timeout": f"{wait} s",
        # On a busy machine a worker that died takes longer than the default 15 s to be there again.
        "distributed.deploy.lost-worker-timeout": f"{wait} s",
        # Logs of the last messages hold what these carried: the parameters of hundreds of passes.
        "distributed.admin.low-level-log-length": 20,
    }
