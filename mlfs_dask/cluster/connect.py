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
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlfs_dask import runtime
from mlfs_dask.cluster.admission import admission
from mlfs_dask.cluster.dashboard import dashboard_link
from mlfs_dask.engine.block_sizes import register_sizes
from mlfs_dask.errors import ClusterLostError, DoesNotFitError, UsageError, number_of, parameter
from mlfs_dask.files.interruption import deferred_signals
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.runtime import Resources

if TYPE_CHECKING:
    from distributed import Client, LocalCluster
    from distributed.security import Security

logger = logging.getLogger(__name__)

#: Above the level of everything that is logged.
LOGS_NOTHING = logging.CRITICAL + 1

DEFAULT_WAIT = runtime.WORKER_WAIT
"""Seconds that a missing scheduler or missing workers are waited for."""

ASK_AGAIN_SECONDS = 2.0
"""Seconds after which workers that have not answered are asked again."""


@contextmanager
def connect(
    *,
    scheduler: str | None = None,
    scheduler_file: str | None = None,
    workers: int | None = None,
    threads_per_worker: int | None = None,
    memory_limit: int | None = None,
    tls_ca_file: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    min_workers: int | None = None,
    wait: float = DEFAULT_WAIT,
    insecure: bool = False,
    in_process: bool = False,
) -> Iterator[Client | None]:
    """Make a cluster current for the time of a `with` block.

    With neither a scheduler nor a number of workers there is none: the work is done by threads of this process, one a
    core.

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
    _check_options(
        scheduler=scheduler,
        scheduler_file=scheduler_file,
        workers=workers,
        threads_per_worker=threads_per_worker,
        memory_limit=memory_limit,
        tls_ca_file=tls_ca_file,
        tls_cert=tls_cert,
        tls_key=tls_key,
        min_workers=min_workers,
        wait=wait,
        insecure=insecure,
        in_process=in_process,
    )
    remote = scheduler is not None or scheduler_file is not None
    if workers is None and not remote:
        with _in_process(memory_limit, 1 if in_process else None):
            yield None
        return

    with ExitStack() as stack:
        if remote:
            client = stack.enter_context(
                _remote_client(
                    scheduler,
                    scheduler_file,
                    _security(tls_ca_file, tls_cert, tls_key),
                    wait,
                    min_workers=min_workers or 1,
                    insecure=insecure,
                )
            )
            link = dashboard_link(client)
            if link is not None:
                logger.info("its dashboard is at %s", link)
        else:
            assert workers is not None  # local, or it had been done in process
            memory_limit = memory_limit or _share_of_memory(workers)
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
                number_of(workers, "local worker"),
                memory_limit / 2**30,
                number_of(threads_per_worker or 1, "thread"),
            )
            client = stack.enter_context(_local_client(workers, threads_per_worker or 1, memory_limit, wait))
        stack.enter_context(_current(client, wait))
        yield client


@contextmanager
def _current(client: Client, wait: float) -> Iterator[None]:
    """Make a client the default one, and its workers ready."""
    # Of exceptions that nobody has asked for, which it would print as late as at the end of the process.
    loop: Any = client.loop
    loop.asyncio_loop.set_exception_handler(_log_exception_of_loop)
    register_sizes()
    with client.as_current(), runtime.waiting_for_workers(wait), _translate_loss(client):
        admission(client).workers()
        yield


def planned_resources(**options: Any) -> Resources:
    """What `connect` with the same options would give.

    Of local workers one is started, whatever their number, and stopped again: what it holds before it gets a task, and
    what this process loads and runs beside it, are measured. Both depend on the machine and on versions of libraries.

    Parameters
    ----------
    **options
        Those of `connect`.

    Returns
    -------
    Resources
        Of a running cluster, as it is; of local workers, as they would be (`client` is then a placeholder).
    """
    workers = options.get("workers")
    if workers is None:
        with connect(**options):
            return runtime.current_resources()
    _check_options(**options)
    threads, wait = options.get("threads_per_worker") or 1, options.get("wait", DEFAULT_WAIT)
    logger.info("starting a local worker, to measure what it holds")
    # Not with the limit to plan for: where that is too small, it would end this worker before it is asked anything.
    with _local_client(1, threads, 2**30, wait) as client, _current(client, wait):
        measured = runtime.current_resources()
    limit = options.get("memory_limit") or _share_of_memory(workers)
    return replace(measured, workers=workers, memory_limit=limit, client=PLANNED)


PLANNED = "local workers that were stopped again"
"""Stands for the client in resources that are only planned with."""


def _share_of_memory(workers: int) -> int:
    return runtime.available_memory() // workers


# Checking options


def _check_options(
    *,
    scheduler: str | None = None,
    scheduler_file: str | None = None,
    workers: int | None = None,
    threads_per_worker: int | None = None,
    memory_limit: int | None = None,
    tls_ca_file: str | None = None,
    tls_cert: str | None = None,
    tls_key: str | None = None,
    min_workers: int | None = None,
    wait: float = DEFAULT_WAIT,
    insecure: bool = False,
    in_process: bool = False,
) -> None:
    tls = (tls_ca_file, tls_cert, tls_key)
    tls_options = [parameter(name) for name in ("tls_ca_file", "tls_cert", "tls_key")]
    places = {
        parameter("scheduler"): scheduler is not None,
        parameter("scheduler_file"): scheduler_file is not None,
        parameter("workers"): workers is not None,
        parameter("in_process"): in_process,
    }
    named = [name for name, given in places.items() if given]
    if len(named) > 1:
        raise UsageError(f"{' and '.join(named)} name different places to compute; give one.")
    remote = scheduler is not None or scheduler_file is not None
    if remote and (threads_per_worker is not None or memory_limit is not None):
        option = parameter("memory_limit" if memory_limit is not None else "threads_per_worker")
        raise UsageError(
            f"{option} is for local workers; those of a running cluster have theirs already."
            "\n  cure: give it to `dask worker` where the workers are started."
        )
    if in_process and threads_per_worker is not None:
        raise UsageError(f"{parameter('threads_per_worker')} has no meaning with {parameter('in_process')}.")
    if threads_per_worker is not None and workers is None:
        raise UsageError(
            f"{parameter('threads_per_worker')} is for local workers, and none are asked for."
            f"\n  cure: give {parameter('workers')} as well, or leave it out: this process has a thread a core."
        )
    counts = {"workers": workers, "threads_per_worker": threads_per_worker, "min_workers": min_workers}
    for option, number in ((parameter(name), count) for name, count in counts.items()):
        if number is not None and number < 1:
            raise UsageError(f"{option} must be at least 1; it is {number}.")
    for name, given in (("insecure", insecure), ("min_workers", min_workers is not None)):
        if given and not remote:
            raise UsageError(f"{parameter(name)} goes with {parameter('scheduler')} or {parameter('scheduler_file')}.")
    if wait <= 0:
        raise UsageError(f"{parameter('wait')} must be a positive number of seconds; it is {wait:g}.")
    if any(tls) and not all(tls):
        missing = [name for name, value in zip(tls_options, tls, strict=True) if not value]
        raise UsageError(f"TLS needs all three of {', '.join(tls_options)}; missing: {', '.join(missing)}.")
    if any(tls) and not remote:
        raise UsageError(
            f"TLS options go with {parameter('scheduler')} or {parameter('scheduler_file')}; local workers need none."
        )
    for path in tls:
        if path is not None and not Path(path).is_file():
            raise UsageError(f"no such file: {path} (a TLS option names it).")
    if scheduler is not None and any(tls) and "://" in scheduler and not scheduler.startswith("tls://"):
        raise UsageError(f"TLS options were given, but the address {scheduler} is not of the form tls://host:port.")
    if scheduler is not None and not any(tls) and scheduler.startswith("tls://"):
        import dask

        if not dask.config.get("distributed.comm.tls.ca-file", None):
            raise UsageError(f"the address {scheduler} needs {', '.join(tls_options[:2])} and {tls_options[2]}.")


# The three places to compute


@contextmanager
def _in_process(memory_limit: int | None, threads: int | None) -> Iterator[None]:
    with ExitStack() as stack:
        stack.enter_context(runtime.process_limits(memory_limit=memory_limit, threads=threads))
        if threads == 1:
            import dask  # the default loads nothing of it

            stack.enter_context(dask.config.set(scheduler="synchronous"))
        yield


def _security(ca_file: str | None, cert: str | None, key: str | None) -> Security | None:
    if ca_file is None:
        return None
    from distributed.security import Security

    return Security(tls_ca_file=ca_file, tls_client_cert=cert, tls_client_key=key, require_encryption=True)


@contextmanager
def _remote_client(
    scheduler: str | None,
    scheduler_file: str | None,
    security: Security | None,
    wait: float,
    *,
    min_workers: int,
    insecure: bool,
) -> Iterator[Client]:
    with deferred_signals():
        from distributed.versions import VersionMismatchWarning

    deadline = time.monotonic() + wait
    if scheduler_file is not None:
        scheduler = _address_from_file(scheduler_file, deadline, wait)
    assert scheduler is not None
    logger.info("connecting to the scheduler at %s, for up to %g s", scheduler, wait)
    if security is not None and "://" not in scheduler:
        scheduler = f"tls://{scheduler}"
    if not insecure:
        _require_protection(scheduler)
    _wait_for_listener(scheduler, deadline, wait)
    with warnings.catch_warnings(), _without_logs_of_dask("distributed", "distributed.client"), ExitStack() as stack:
        # `admission` compares the versions and says it in one line.
        warnings.simplefilter("ignore", VersionMismatchWarning)
        try:
            client = _new_client(
                scheduler,
                security=security,
                timeout=max(deadline - time.monotonic(), 1.0),
                # Not yet: a client that fails to connect would stay the default one.
                set_as_default=False,
            )
        except (OSError, TimeoutError, ValueError, RuntimeError) as error:
            if isinstance(error, ValueError):
                raise _no_address(scheduler, error) from error
            raise _no_answer(scheduler, wait, error) from error
        stack.enter_context(client)
        _wait_for_workers(client, min_workers, deadline, wait)
        yield client


def _wait_for_workers(client: Client, count: int, deadline: float, wait: float) -> None:
    """Return when `count` workers are there that may take part.

    Those that could not be reached when they were asked, or came back at an address of before, are asked again.
    """
    while True:
        there = len(client.nthreads())
        if there >= count and len(admission(client).workers()) >= count:
            return
        left = deadline - time.monotonic()
        if left <= 0:
            arrived = number_of(there, "worker") if there else "no worker"
            asked = "" if count == 1 else f"; {parameter('min_workers')} asks for {count}"
            raise ClusterLostError(
                f"the scheduler at {_address(client)} has {arrived} after {wait:g} s{asked}."
                f"\n  cure: start workers with `dask worker {_address(client)}`, look into their logs if they were"
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
        f"no scheduler answered at {address} within {wait:g} s ({_last_cause(error)})."
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


def _last_cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip() or type(error).__name__


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
                    # Of what is printed alone: what nannies log of their workers' end is read (`death_of`).
                    silence_logs=logging.ERROR if _shows_logs_of_dask() else LOGS_NOTHING,
                )
                stack.enter_context(_closed_in_peace(cluster))
        except (OSError, TimeoutError, RuntimeError) as error:
            raise ClusterLostError(
                f"{workers} local workers did not start ({_last_cause(error)})."
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
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


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


# When the cluster goes away


@contextmanager
def _translate_loss(client: Client) -> Iterator[None]:
    """What escapes the passes' own watch (they name the task and the memory)."""
    from concurrent.futures import CancelledError

    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    try:
        yield
    except KilledWorker as error:
        raise ClusterLostError(
            f"a task was given up after the workers that ran it died ({error.last_worker} was the last)."
            "\n  cure: look into that worker's log; if it ran out of memory, give each worker more"
            " (--memory-limit, fewer --workers, or more at `dask worker`)."
        ) from error
    except (NoValidWorkerError, NoWorkerError) as error:
        raise ClusterLostError(
            f"every worker of {_address(client)} went away."
            "\n  cure: look into the workers' logs (out of memory, end of the job's time), and start workers"
            " again."
        ) from error
    except (CancelledError, CommClosedError) as error:
        raise ClusterLostError(
            f"the scheduler at {_address(client)} went away ({_last_cause(error)})."
            "\n  cure: look into the scheduler's log, and start the cluster again."
        ) from error


def _address(client: Client) -> str:
    scheduler = client.scheduler
    return str(scheduler.address) if scheduler is not None else "the cluster"
