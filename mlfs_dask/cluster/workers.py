"""The workers of a cluster: admission, silence, and the causes of their deaths.

A worker is a process, identified by a name of its own; an address may be reused by its successor. Each worker is asked
once, before its first task. A worker with other source or libraries, with a failing import, or without an answer is
excluded and named in a warning, for a ranking from two versions of the source would belong to neither. A worker that
falls silent during a pass is named, then dropped, and its tasks go to others. `Cluster` holds this state per client.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib
import logging
import pkgutil
import re
import signal
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import CancelledError
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, proxy

from mlfs_dask.cluster.block_sizes import register_sizes
from mlfs_dask.errors import ClusterLostError, DataError, MlfsError, installed_versions
from mlfs_dask.files.fingerprints import code_digest, digest_of

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger(__name__)

#: Key of the source digest among the versions.
CODE = "code of mlfs-dask"

#: Entries that must be equal in all processes: the source, and libraries whose version may change the last digits of a
#: result. For the others, a difference is only logged.
REQUIRED = (CODE, "mlfs-dask", "numpy", "scipy", "numba")
COMPARED = (*REQUIRED[1:], "dask", "distributed", "zarr", "msgpack")

#: Seconds to wait for a cluster, and for a new worker once a cluster has lost all workers.
WORKER_WAIT = 60.0

#: Seconds within which workers must answer. Loading the package from a shared file system can take most of them.
ANSWER_SECONDS = 30.0

#: Workers that are asked at the same time. Each has a connection of the scheduler and a message of its own.
ASKED_AT_ONCE = 64

#: Seconds between two checks of the workers during a pass.
LOOK_SECONDS = 5.0

#: Seconds of silence, and missed heartbeats, after which a worker is named in a warning, and after which it is dropped.
#: A worker sends several heartbeats a second in a small cluster, and one in many seconds in a large one.
NAMED_SECONDS, NAMED_HEARTBEATS = 10.0, 4
GIVEN_UP_SECONDS, GIVEN_UP_HEARTBEATS = 60.0, 10

#: Seconds to wait for a restarted scheduler, and for a nanny's report of its worker's death.
TOLD_SECONDS = 5.0

#: Cures for excluded workers.
CURE_CODE = (
    "install the same mlfs-dask and the same libraries on every worker as here (`mlfs doctor` compares them), in an "
    "environment in which they load"
)
CURE_SILENCE = (
    "look whether its process and its host run (one that is stopped, swaps or is cut off does not answer), and start it"
    " again"
)
CURE_DATA = "give every worker the data at the same path"


@dataclass(frozen=True)
class RefusedWorker:
    """Excluded worker: address, host, cause and cure."""

    worker: str
    host: str
    cause: str
    cure: str

    def __str__(self) -> str:
        return f"worker {self.worker} on {self.host} {self.cause}"


@functools.cache
def identify() -> dict[str, str]:
    """Return the versions of Python and of packages in this process; under `CODE`, the package's source digest."""
    versions = installed_versions(COMPARED)
    return {**{name: version or "absent" for name, version in versions.items()}, CODE: code_digest()}


def code_here() -> str:
    """Return the digest of the entries that must agree in all processes whose tasks contribute to a result."""
    here = identify()
    return digest_of({name: here[name] for name in REQUIRED})


def describe_mismatches(here: dict[str, str], there: dict[str, dict[str, str]]) -> list[str]:
    """Return a line for each package whose version on a worker differs from this process.

    Examples
    --------
    >>> describe_mismatches({"zarr": "3.1.6"}, {"tcp://a": {"zarr": "3.1.6"}, "tcp://b": {"zarr": "3.0"}})
    ['zarr is 3.1.6 here, 3.0 on 1 of 2 workers (tcp://b); install the same versions on every host']
    """
    lines = []
    for name, version in here.items():
        differing = {worker: versions[name] for worker, versions in there.items() if versions[name] != version}
        if differing:
            lines.append(
                f"{name} is {version} here, {', '.join(sorted(set(differing.values())))} on {len(differing)} of"
                f" {len(there)} workers ({min(differing)}); install the same versions on every host"
            )
    return lines


def _prepare() -> dict[str, str] | str:
    """Prepare a worker, and return its versions, or the error of a failed import.

    Imports all modules that tasks need, except compiled kernels, which take memory and which only part of the passes
    use. An OSError, as from a missing library, would otherwise look like a lost connection.
    """
    try:
        import zarr

        from mlfs_dask import rows, statistics

        for package in (rows, statistics):
            for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
        register_sizes()
        # Threads of a worker already read in parallel.
        zarr.config.set({"async.concurrency": 2})
        return identify()
    except Exception as error:
        return repr(error)


def _error_of(check: Callable[[], None]) -> MlfsError | str:
    """Return the error that `check` raises, or "" (None means no answer)."""
    try:
        check()
    except MlfsError as error:
        error.__cause__ = error.__context__ = None  # either may be impossible to pickle
        return error
    return ""


def _process_of(facts: Mapping[str, Any]) -> str:
    """Return the name of a worker's process: its scratch folder, the only client-visible value unique to it."""
    return str(facts["local_directory"])


@dataclass
class _Worker:
    """Worker process of the cluster: address, admission, and last sign of life.

    `heartbeat` is the time of the last heartbeat by the scheduler's clock; `noticed` is when this process first saw it,
    by its own clock.
    """

    address: str
    host: str
    asked: bool = False
    refused: RefusedWorker | None = None
    heartbeat: float = -1.0
    noticed: float = 0.0
    memory: int = 0
    named: bool = False


class Cluster:
    """Workers of a client; `cluster_of` returns the same object for every call.

    Attributes
    ----------
    wait : float
        Seconds that a pass waits for a new worker once the cluster has lost all workers.
    last_seen : list of mapping
        The scheduler's facts about the workers last present. All may be restarting.
    """

    def __init__(self, client: Client) -> None:
        self._client: Client = proxy(client)
        self._workers: dict[str, _Worker] = {}  # by process
        self._scheduler = ""
        self.wait = WORKER_WAIT
        self.last_seen: list[Mapping[str, Any]] = []

    @property
    def address(self) -> str:
        """Address of the scheduler for workers; the client of local workers has another one."""
        if self._client.cluster is not None:
            return str(self._client.cluster.scheduler_address)
        scheduler = self._client.scheduler
        return "ADDRESS" if scheduler is None else str(scheduler.address)

    @property
    def refused(self) -> list[RefusedWorker]:
        """Excluded workers."""
        return [worker.refused for worker in self._workers.values() if worker.refused is not None]

    # Admission

    def workers(self) -> dict[str, Mapping[str, Any]]:
        """Return the scheduler's facts about each admitted worker, by address; new workers are asked first.

        Raises
        ------
        ClusterLostError
            The scheduler is gone, or all present workers are excluded.
        """
        present = self._present(starting=True)
        self._ask_new(present)
        refused = {address: self._workers[_process_of(facts)].refused for address, facts in present.items()}
        admitted = {
            address: facts
            for address, facts in present.items()
            if refused[address] is None and self._workers[_process_of(facts)].asked
        }
        excluded = [worker for worker in refused.values() if worker is not None]
        if excluded and not admitted:
            alike: dict[str, list[str]] = {}
            for worker in excluded:
                alike.setdefault(worker.cause, []).append(str(worker))
            causes = (each[0] + f" (as {len(each) - 1} more)" * (len(each) > 1) for each in alike.values())
            raise ClusterLostError(
                f"no worker of the cluster can take part: {'; '.join(causes)}."
                f"\n  cure: {'; '.join(dict.fromkeys(worker.cure for worker in excluded))}"
            )
        return admitted

    def restriction(self) -> dict[str, Any]:
        """Return keywords of `Client.compute` that keep tasks off excluded workers; empty if all are admitted."""
        admitted = self.workers()
        return {"workers": list(admitted), "allow_other_workers": False} if self.refused else {}

    def refuse(self, process: str, cause: str, cure: str = CURE_CODE) -> None:
        """Exclude a worker, if it was asked and is not excluded yet."""
        worker = self._workers.get(process)
        if worker is not None and worker.asked and worker.refused is None:
            worker.refused = RefusedWorker(worker.address, worker.host, cause, cure)
            logger.warning("%s; it is left out", worker.refused)

    def refuse_blind(self, check: Callable[[], None]) -> None:
        """Exclude workers on which `check` raises, if it succeeds on others.

        Parameters
        ----------
        check : callable
            Raises DataError or StoreAccessError in a process without access to the data. Sent to the workers by pickle.

        Raises
        ------
        DataError, StoreAccessError
            This process can access the data, and no worker can.
        """
        workers = self.workers()
        answers = self.ask(_error_of, check, workers=workers)
        blind = {address: error for address, error in answers.items() if isinstance(error, MlfsError)}
        if len(blind) < len(workers):
            for address, error in blind.items():
                problem = str(error).partition("\n")[0]
                self.refuse(_process_of(workers[address]), f"does not see the data: {problem}", CURE_DATA)
        elif blind and not _error_of(check):
            hosts = ", ".join(sorted({str(facts.get("host")) for facts in workers.values()}))
            error = next(iter(blind.values()))
            if not isinstance(error, DataError):
                raise error
            raise DataError(f"{error.problem} on the hosts of the workers ({hosts})", file=error.file, cure=error.cure)

    def ask(self, function: Callable[..., Any], *arguments: Any, workers: Iterable[str]) -> dict[str, Any]:
        """Return the result of `function` on each worker; an exception in place of a failed call, None after a timeout.

        Unlike a task, a call that a worker cannot unpickle does not end the worker, and a frozen worker delays at most
        those whose turn comes after it. The time of a worker runs from its own turn: a scheduler that is asked for a
        thousand at once needs longer than that for the last of them (`benchmarks/scheduler.py`).
        """
        turns = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(worker: str) -> Any:
            async with turns:
                try:
                    answer = self._client.run(function, *arguments, workers=[worker], on_error="return")
                    return (await asyncio.wait_for(answer, ANSWER_SECONDS)).get(worker)
                except TimeoutError:
                    return None
                except Exception as error:  # also an answer that this process cannot unpickle
                    return error

        async def ask_all() -> list[Any]:
            return await asyncio.gather(*map(ask, addresses))

        addresses = list(workers)
        return dict(zip(addresses, self._client.sync(ask_all), strict=True))

    def _ask_new(self, present: Mapping[str, Mapping[str, Any]]) -> None:
        processes = {address: _process_of(facts) for address, facts in present.items()}
        new = {address: process for address, process in processes.items() if not self._workers[process].asked}
        here, versions = identify(), {}
        for address, answer in self.ask(_prepare, workers=new).items():
            if isinstance(answer, OSError):  # the worker has left
                continue
            self._workers[new[address]].asked = True
            if answer is None:
                self.refuse(new[address], f"did not answer within {ANSWER_SECONDS:g} s", CURE_SILENCE)
            elif not isinstance(answer, dict):
                self.refuse(new[address], f"cannot load what it needs: {answer}")
            elif differing := [name for name in REQUIRED if answer.get(name) != here[name]]:
                they_have = (f"{name} {answer.get(name, 'absent')[:12]} (here {here[name][:12]})" for name in differing)
                self.refuse(new[address], f"has {', '.join(they_have)}")
            else:
                versions[address] = answer
        for line in describe_mismatches(here, versions):
            logger.warning("%s", line)

    def _present(self, *, starting: bool) -> Mapping[str, Mapping[str, Any]]:
        """Return the scheduler's facts about its workers, by address, and note their last signs of life.

        The client reconnects to a restarted scheduler by itself, but that scheduler knows nothing of earlier tasks:
        during a pass, it counts as lost.
        """
        facts: Mapping[str, Any] = self._client.scheduler_info(n_workers=-1)
        if "workers" not in facts:  # the connection was closed
            raise self.loss()
        if starting:
            self._scheduler = facts["id"]
        elif facts["id"] != self._scheduler:
            raise self.loss()
        present: Mapping[str, Mapping[str, Any]] = facts["workers"]
        for address, info in present.items():
            new_worker = _Worker(address, str(info.get("host", "an unknown host")))
            worker = self._workers.setdefault(_process_of(info), new_worker)
            if worker.heartbeat != float(info["last_seen"]):
                worker.heartbeat, worker.noticed = float(info["last_seen"]), time.monotonic()
                worker.memory = int(info.get("metrics", {}).get("memory", 0))
        self.last_seen = list(present.values()) or self.last_seen
        return present

    # Workers during a pass

    def check_silent_workers(self, describe_work: Callable[[Iterable[object]], str]) -> set[str]:
        """Name silent workers in a warning, drop workers silent for long, and return the addresses of all workers.

        Parameters
        ----------
        describe_work : callable
            Returns a phrase for the tasks with the given keys: "3 partitions go".

        Raises
        ------
        ClusterLostError
            The scheduler is gone, or was restarted.
        """
        from distributed.scheduler import heartbeat_interval

        present = self._present(starting=False)
        interval = heartbeat_interval(len(present))
        given_up_after = max(GIVEN_UP_SECONDS, GIVEN_UP_HEARTBEATS * interval)
        for address, facts in present.items():
            worker = self._workers[_process_of(facts)]
            silent = time.monotonic() - worker.noticed
            if silent < max(NAMED_SECONDS, NAMED_HEARTBEATS * interval):
                worker.named = False
            elif silent >= given_up_after:
                logger.warning(
                    "worker %s on %s has not answered for %.0f s and is given up; other workers take over its work",
                    *(address, worker.host, silent),
                )
                worker.noticed = time.monotonic()  # restarts the period, should the scheduler not remove the worker
                self._restart(address)
            elif not worker.named:
                worker.named = True
                logger.warning(
                    "worker %s on %s has not answered for %.0f s; its %s to others after %.0f s",
                    *(address, worker.host, silent),
                    *(describe_work(self._client.processing([address]).get(address, ())), given_up_after),
                )
        return set(present)

    def _restart(self, address: str) -> None:
        """Restart a worker at once, as the scheduler itself would after its `worker-ttl`, which may be minutes.

        The nanny takes five seconds to kill a process that does not react, and starts another one.
        """
        scheduler: Any = self._client.scheduler
        with contextlib.suppress(OSError, TimeoutError):
            self._client.sync(
                scheduler.restart_workers,
                workers=[address],
                timeout=10,
                wait_for_workers=False,
                on_error="return",
                stimulus_id=f"mlfs-given-up-{time.time()}",
            )

    def memory_of(self, process: str) -> int:
        """Return the bytes of memory that a worker last reported; 0 if unknown."""
        return self._workers[process].memory if process in self._workers else 0

    def death_of(self, host: str, pid: int) -> str | None:
        """Return a nanny's log line about the death of a worker's process; None if no nanny answers."""
        from distributed.comm.addressing import get_address_host

        deadline, scheduler = time.monotonic() + TOLD_SECONDS, self._client.scheduler
        while time.monotonic() < deadline:
            try:
                # A nanny answers as soon as its next worker runs.
                logs = self._client.sync(
                    scheduler.worker_logs,  # type: ignore[union-attr]
                    workers=None,
                    nanny=True,
                    callback_timeout=TOLD_SECONDS,
                )
            except Exception:  # the cluster is falling apart, or has no nannies
                logs = {}
            for address, lines in logs.items():
                for line in lines if get_address_host(address) == host else ():  # the newest first
                    text = str(line[1]).rpartition(" - ")[2]
                    if re.search(rf"\b{pid}\b", text) and _DEATH.search(text):
                        return name_signal(text)
            time.sleep(0.2)
        return None

    def loss(self, error: BaseException | None = None) -> ClusterLostError:
        """Return the error for a lost or replaced scheduler."""
        client, cause = self._client, "" if isinstance(error, CancelledError | None) else f" ({root_of(error)})"
        deadline = time.monotonic() + TOLD_SECONDS
        while client.status == "connecting" and time.monotonic() < deadline:
            time.sleep(0.1)
        what = f"the connection to the scheduler at {self.address} was lost{cause}"
        with contextlib.suppress(OSError, RuntimeError):  # the client is closed
            scheduler = client.scheduler_info(n_workers=-1).get("id") if client.status == "running" else None
            if scheduler not in (None, self._scheduler):
                what = f"the scheduler at {self.address} was restarted"
        return ClusterLostError(
            f"{what} during the work.\n  cure: see the scheduler's log, start the cluster again, and run the same"
            " command with --resume; finished work is kept where the method keeps checkpoints"
        )


_clusters: WeakKeyDictionary[Client, Cluster] = WeakKeyDictionary()


def cluster_of(client: Client) -> Cluster:
    """Return the `Cluster` of a client, the same object for every call."""
    if client not in _clusters:
        _clusters[client] = Cluster(client)
    return _clusters[client]


def refused_workers(client: Client | None) -> list[dict[str, str]]:
    """Return the excluded workers as plain data for a record."""
    return [] if client is None else [asdict(refused) for refused in cluster_of(client).refused]


def root_of(error: BaseException) -> str:
    """Return the message of the first cause of a Dask error."""
    while error.__cause__ is not None:
        error = error.__cause__
    return str(error).strip() or type(error).__name__


#: Log lines of nannies about the death of a worker's process.
_DEATH = re.compile(r"was killed by|exited with status|exceeded \d+% memory budget")


def name_signal(text: str) -> str:
    """Append the signal's name to a nanny's message.

    >>> name_signal("Worker process 12 was killed by signal 9")
    'Worker process 12 was killed by signal 9 (SIGKILL)'
    """
    match = re.search(r"signal (\d+)$", text)
    return text if match is None else f"{text} ({signal.Signals(int(match[1])).name})"
