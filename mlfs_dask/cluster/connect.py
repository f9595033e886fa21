"""Connection to the place of computation: threads of this process, a running Dask cluster, or local workers.

Without a cluster, Dask is not loaded and no port is opened.

A pass bounds its own memory, so workers neither spill nor return freed buffers to the system between blocks. Every wait
for a cluster has a time limit, and its error names a cure.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import socket
import time
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlfs_dask import runtime
from mlfs_dask.cluster.block_sizes import register_sizes
from mlfs_dask.cluster.dashboard import dashboard_link
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.cluster.workers import WORKER_WAIT, cluster_of, root_of
from mlfs_dask.errors import ClusterLostError, DoesNotFitError, UsageError, number_of, parameter, require_extra
from mlfs_dask.files.interruption import SAFE_PATH, deferred_signals, restore_environment
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.runtime import Resources

if TYPE_CHECKING:
    from distributed import Client, LocalCluster

logger = logging.getLogger(__name__)

#: Log level above all levels in use.
LOGS_NOTHING = logging.CRITICAL + 1

ASK_AGAIN_SECONDS = 2.0
"""Seconds after which workers that have not answered are asked again."""


@dataclass(frozen=True, kw_only=True)
class ClusterOptions:
    """Options that select where tasks run, checked for contradictions.

    Parameters
    ----------
    scheduler : str, optional
        Address of a running scheduler, as ``tcp://host:8786`` or ``tls://host:8786``.
    scheduler_file : str, optional
        File with the address of a running scheduler.
    workers : int, optional
        Number of local worker processes to start. They listen only on the loopback interface, with TLS and a
        certificate generated for this cluster.
    threads_per_worker : int, optional
        Threads of a local worker (default 1).
    memory_limit : int, optional
        Memory limit of each local worker, or of this process without workers, in bytes. Default: the available memory,
        divided equally among local workers.
    tls_ca_file, tls_cert, tls_key : str, optional
        TLS files for a ``tls://`` scheduler: all three or none.
    min_workers : int, optional
        Number of workers of a running scheduler to wait for (default 1). The plan follows the memory of the workers
        present at that time; workers that join later take part in the work.
    wait : float
        Seconds to wait for the scheduler and its workers, and for a new worker once a cluster has lost all workers.
    insecure : bool
        Allow a scheduler without TLS outside the loopback interface. Anyone who can connect to it can run code with the
        workers' permissions.
    in_process : bool
        Run tasks in this process, one after the other, in one thread.

    Raises
    ------
    UsageError
        If options contradict one another, or name a file that does not exist.
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
        """True if the options name a running scheduler."""
        return self.scheduler is not None or self.scheduler_file is not None

    @property
    def tls(self) -> tuple[str | None, str | None, str | None]:
        """Paths of the TLS files."""
        return self.tls_ca_file, self.tls_cert, self.tls_key

    @property
    def share_of_memory(self) -> int:
        """Memory limit of a local worker in bytes."""
        return self.memory_limit or runtime.available_memory() // (self.workers or 1)

    def _problems(self) -> Iterator[str]:
        """Yield the problems of the options, each with a cure."""
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
    """Make a cluster the current one inside the with-block.

    Without a scheduler and a number of workers there is no cluster: the threads of this process, one per core, run the
    tasks.

    Parameters
    ----------
    **options
        Parameters of `ClusterOptions`.

    Yields
    ------
    distributed.Client or None
        The client, set as the default client; None without a cluster.

    Raises
    ------
    UsageError
        If options contradict one another, or name a file that does not exist.
    DoesNotFitError
        If the memory limit of a local worker is below its size without any task.
    ClusterLostError
        If the scheduler or its workers are not reachable in time, or go away during the block.
    """
    target = ClusterOptions(**options)
    if target.remote:
        with runtime.freed_memory_kept(), _remote_client(target) as client, _current_client(client, target.wait):
            if link := dashboard_link(client):
                logger.info("its dashboard is at %s", link)
            yield client
    elif target.workers is not None:
        workers, wait, memory_limit = target.workers, target.wait, target.share_of_memory
        threads_each = target.threads_per_worker or 1
        if memory_limit < runtime.PROCESS_BYTES:  # the nanny would kill the worker during its start
            raise DoesNotFitError(
                "a local worker before it has any work",
                projected=runtime.PROCESS_BYTES,
                available=memory_limit,
                cure=f"give each worker more memory ({parameter('memory_limit')}), or start fewer "
                f"({parameter('workers')})",
            )
        logger.info(
            "starting %s with %.1f GiB and %s each",
            *(number_of(workers, "local worker"), memory_limit / 2**30, number_of(threads_each, "thread")),
        )
        with _local_client(workers, threads_each, memory_limit, wait) as client, _current_client(client, wait):
            yield client
    else:
        with ExitStack() as stack:
            threads = 1 if target.in_process else None
            stack.enter_context(runtime.process_limits(memory_limit=target.memory_limit, threads=threads))
            if target.in_process:
                import dask  # the default scheduler works without it

                stack.enter_context(dask.config.set(scheduler="synchronous"))
            yield None


@contextmanager
def _current_client(client: Client, wait: float) -> Iterator[None]:
    """Make a client the default one, and prepare its workers."""
    from concurrent.futures import CancelledError

    from distributed.comm.core import CommClosedError

    # By default, asyncio prints exceptions that nobody retrieves, as late as at the end of the process.
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
    """Return the resources that `connect` would give with the same options.

    Of any number of local workers, only one is started and stopped again, to measure its memory before any task and the
    memory of this process beside it. Both depend on the machine and on library versions.

    Parameters
    ----------
    **options
        Parameters of `ClusterOptions`.

    Returns
    -------
    Resources
        Resources of the running cluster, or of the planned local workers (`client` is then a placeholder).
    """
    target = ClusterOptions(**options)
    if target.workers is None:
        with connect(**options):
            return current_resources()
    logger.info("starting a local worker to measure its memory")
    # Without the planned memory limit: a limit that is too small would kill this worker before it is measured.
    with (
        _local_client(1, target.threads_per_worker or 1, 2**30, target.wait) as client,
        _current_client(client, target.wait),
    ):
        measured = current_resources()
    return replace(measured, workers=target.workers, memory_limit=target.share_of_memory, client=PLANNED)


PLANNED = "local workers that were stopped again"
"""Placeholder for the client in resources of a plan."""


# The two kinds of clusters


@contextmanager
def _remote_client(target: ClusterOptions) -> Iterator[Client]:
    with deferred_signals():
        from distributed.security import Security
        from distributed.versions import VersionMismatchWarning

    wait, deadline = target.wait, time.monotonic() + target.wait
    scheduler = target.scheduler or _address_from_file(str(target.scheduler_file), deadline, wait)
    logger.info("connecting to the scheduler at %s, for up to %g s", scheduler, wait)
    security = None
    if target.tls_ca_file is not None:
        files = {
            "tls_ca_file": target.tls_ca_file,
            "tls_client_cert": target.tls_cert,
            "tls_client_key": target.tls_key,
        }
        security = Security(**files, require_encryption=True)
        scheduler = scheduler if "://" in scheduler else f"tls://{scheduler}"
    if not target.insecure:
        _require_protection(scheduler)
    _wait_for_listener(scheduler, deadline, wait)
    with warnings.catch_warnings(), _without_logs_of_dask("distributed", "distributed.client"), ExitStack() as stack:
        # `Cluster` compares the versions, and reports differences in one line.
        warnings.simplefilter("ignore", VersionMismatchWarning)
        try:
            client = _new_client(
                scheduler,
                security=security,
                timeout=max(deadline - time.monotonic(), 1.0),
                # A client that fails to connect would stay the default one, so `_current` sets the default.
                set_as_default=False,
            )
        except ValueError as error:
            raise _invalid_address(scheduler, error) from error
        except (OSError, TimeoutError, RuntimeError) as error:
            raise _unreachable(scheduler, wait, error) from error
        stack.enter_context(client)
        _wait_for_workers(client, target.min_workers or 1, deadline, wait)
        yield client


def _wait_for_workers(client: Client, count: int, deadline: float, wait: float) -> None:
    """Wait until `count` admitted workers are present.

    Workers that were unreachable at first, or reuse an earlier address, are asked again.
    """
    while True:
        present = len(client.nthreads())
        if present >= count and len(cluster_of(client).workers()) >= count:
            return
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            arrived = number_of(present, "worker") if present else "no worker"
            asked = "" if count == 1 else f"; {parameter('min_workers')} asks for {count}"
            address = cluster_of(client).address
            raise ClusterLostError(
                f"the scheduler at {address} has {arrived} after {wait:g} s{asked}."
                f"\n  cure: start workers with `dask worker {address}`, look into their logs if they were"
                " started, or wait longer with --wait SECONDS."
            )
        with suppress(TimeoutError):
            client.wait_for_workers(present + 1, timeout=min(remaining, ASK_AGAIN_SECONDS))


@contextmanager
def _without_logs_of_dask(*names: str) -> Iterator[None]:
    """Silence Dask's tracebacks of a lost connection, which the package's own message replaces; -vv shows them."""
    loggers = [logging.getLogger(name) for name in (*names, "tornado.application")]
    before = [dask_logger.level for dask_logger in loggers]
    if not logger.isEnabledFor(logging.DEBUG):
        for dask_logger in loggers:
            dask_logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        for dask_logger, level in zip(loggers, before, strict=True):
            dask_logger.setLevel(level)


def _log_exception_of_loop(loop: object, context: dict[str, Any]) -> None:
    logger.debug("Dask: %s", context.get("message"), exc_info=context.get("exception"))


def _new_client(*args: Any, **options: Any) -> Client:
    """Create a `Client` that can be interrupted: a half-made client waits for itself when it is collected."""
    from distributed import Client

    client = Client.__new__(Client)
    try:
        client.__init__(*args, **options)  # type: ignore[misc]
    except KeyboardInterrupt:
        client.status = "closed"  # then closing does nothing
        raise
    return client


def _wait_for_listener(address: str, deadline: float, wait: float) -> None:
    """Wait until a server listens at the address; the client checks later that it is a scheduler.

    The client could wait as well, but Ctrl-C does not interrupt its wait.
    """
    from distributed.comm.addressing import parse_address, parse_host_port

    try:
        protocol, location = parse_address(address)
        host, port = parse_host_port(location)
    except ValueError as error:
        raise _invalid_address(address, error) from error
    if protocol not in ("tcp", "tls"):
        return
    while True:
        try:
            remaining = max(deadline - time.monotonic(), 0.1)
            socket.create_connection((host, port), timeout=min(remaining, 3.0)).close()
        except OSError as error:
            if time.monotonic() >= deadline:
                raise _unreachable(address, wait, error) from error
            time.sleep(min(0.2, max(deadline - time.monotonic(), 0.01)))
        else:
            return


def _require_protection(address: str) -> None:
    """Refuse an unencrypted scheduler that other machines can reach.

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
    """Return True if connections to an address use TLS, or other machines cannot reach it.

    >>> is_protected("tls://10.0.0.1:8786"), is_protected("tcp://127.0.0.1:8786"), is_protected("tcp://10.0.0.1:8786")
    (True, True, False)

    Raises
    ------
    UsageError
        If `address` is not a valid address.
    """
    from distributed.comm.addressing import parse_address, parse_host_port

    try:
        protocol, location = parse_address(address)
        return protocol not in ("tcp", "ws", "ucx") or _is_loopback(parse_host_port(location)[0])
    except ValueError as error:
        raise _invalid_address(address, error) from error


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    with suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def _invalid_address(address: str, error: Exception) -> UsageError:
    return UsageError(
        f"{address!r} is no scheduler address ({error}); expected host:port, tcp://host:port or tls://host:port."
    )


def _unreachable(address: str, wait: float, error: Exception) -> ClusterLostError:
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
            # Also the content of the file while the scheduler writes it.
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
    require_extra("cryptography", parameter("workers"))
    with deferred_signals():
        import dask
        from distributed import LocalCluster
        from distributed.security import Security

    settings = local_settings(memory_limit, wait)
    with (
        dask.config.set(settings),
        _without_logs_of_dask(),
        runtime.freed_memory_kept(),
        ExitStack() as stack,
    ):
        # The nannies change the environment of this process, which the next cluster would inherit.
        stack.callback(restore_environment, {name: os.environ.get(name) for name in settings[_ENVIRON]})
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
                    scheduler_kwargs={
                        # Without a dashboard, the scheduler still opens an HTTP port, and 8787 may be in use.
                        "dashboard_address": "127.0.0.1:0",
                        # This process, where the scheduler is, needs no connection: parameters and results of a pass
                        # are encrypted once, on their way to a worker and back.
                        "protocol": ["tls://", "inproc://"],
                        "host": ["127.0.0.1", None],
                        "port": [0, 0],
                    },
                    # Silences printing only: `Cluster.death_of` reads the nannies' logs of dead workers.
                    silence_logs=logging.ERROR if logger.isEnabledFor(logging.DEBUG) else LOGS_NOTHING,
                )
                stack.callback(_close_without_interruption, cluster)
        except (OSError, TimeoutError, RuntimeError) as error:
            raise ClusterLostError(
                f"{workers} local workers did not start ({root_of(error)})."
                "\n  cure: ask for fewer with --workers N, or leave --workers out: threads of this process need none."
            ) from error
        assert cluster.scheduler is not None
        address = cluster.scheduler.listeners[1].contact_address
        # Results come from the workers themselves: this scheduler passes what a worker cuts into frames of 64 MiB on to
        # a client of its process without joining it.
        how = {"security": cluster.security, "loop": cluster.loop, "direct_to_workers": True}
        client = stack.enter_context(_new_client(address, set_as_default=False, **how))
        client.cluster = cluster
        try:
            client.wait_for_workers(workers, timeout=wait)
        except TimeoutError as error:
            raise ClusterLostError(
                f"of {workers} local workers {len(client.nthreads())} started within {wait:g} s."
                "\n  cure: ask for fewer with --workers N, or wait longer with --wait SECONDS."
            ) from error
        yield client


def _close_without_interruption(cluster: LocalCluster) -> None:
    """Close a cluster undisturbed by signals: a half-closed cluster leaves workers behind."""
    with deferred_signals():
        cluster.close()


_ENVIRON = "distributed.nanny.pre-spawn-environ"


def local_settings(memory_limit: int, wait: float) -> dict[str, Any]:
    """Return the Dask settings for local workers.

    Parameters
    ----------
    memory_limit : int
        Memory limit of each worker.
    wait : float
        Seconds that tasks may wait for a worker.
    """
    return {
        _ENVIRON: {
            **runtime.allocator_settings(memory_limit),
            "OMP_NUM_THREADS": 1,
            "MKL_NUM_THREADS": 1,
            "OPENBLAS_NUM_THREADS": 1,
            "NUMBA_NUM_THREADS": 1,
            **SAFE_PATH,
        },
        "distributed.worker.multiprocessing-method": "spawn",
        # A pass is planned to fit; spilling its small partial results would only cost time.
        "distributed.worker.memory.target": False,
        "distributed.worker.memory.spill": False,
        "distributed.worker.memory.pause": 0.9,
        "distributed.worker.memory.terminate": 0.97,
        "distributed.worker.profile.enabled": False,
        "distributed.worker.http.routes": [],
        "distributed.scheduler.http.routes": [],
        # After this time without a sign of life a worker is dropped, and its tasks go to other workers.
        "distributed.scheduler.worker-ttl": "60 s",
        "distributed.scheduler.no-workers-timeout": f"{wait} s",
        # On a busy machine a restarted worker takes longer than the default 15 s.
        "distributed.deploy.lost-worker-timeout": f"{wait} s",
        # Logs of recent messages would keep their content in memory: the parameters of hundreds of passes.
        "distributed.admin.low-level-log-length": 20,
    }
