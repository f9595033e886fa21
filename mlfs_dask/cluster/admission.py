"""Which workers of a cluster may take part: those that run the same code as the client, on the same libraries.

A ranking from two versions of the code would be of neither. Every process is asked once, before it gets a task; one
that has other code, cannot load what tasks load, or does not answer is left out and named. A process is known by a name
of its own, never by its address: a worker that is started again may have that of the one before. Every task tells the
code that it ran (`code_here`), so that nobody has to be asked afterwards.
"""

from __future__ import annotations

import functools
import importlib
import logging
import pkgutil
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary, proxy

from mlfs_dask.engine.block_sizes import register_sizes
from mlfs_dask.errors import ClusterLostError, DataError, MlfsError, StoreAccessError
from mlfs_dask.files.fingerprints import code_digest, digest_of

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger(__name__)

#: Packages that client and workers should have in the same version.
COMPARED_PACKAGES = ("mlfs-dask", "dask", "distributed", "numpy", "scipy", "zarr", "numba", "msgpack")

#: What has to be the same: the code, and the libraries whose version may decide the last digits of a result.
CODE = "code of mlfs-dask"
REQUIRED = (CODE, "mlfs-dask", "numpy", "scipy", "numba")

#: Seconds that workers have to answer. Loading the package from a shared file system can take most of them.
ANSWER_SECONDS = 30.0

#: What to do about a worker that is left out.
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
    """A worker that is left out.

    Attributes
    ----------
    worker : str
        Its address.
    host, cause, cure : str
    """

    worker: str
    host: str
    cause: str
    cure: str

    def __str__(self) -> str:
        return f"worker {self.worker} on {self.host} {self.cause}"


def process_of(facts: Mapping[str, Any]) -> str:
    """Name of a worker's process, from what the scheduler knows of it.

    It is the folder for scratch files that every worker process makes, with a name that is drawn at random. Dask tells
    clients nothing else that changes with the process.
    """
    return str(facts["local_directory"])


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that client and workers should share."""
    installed = {"python": platform.python_version()}
    for name in COMPARED_PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "absent"
    return installed


def identify() -> dict[str, str]:
    """Versions of Python and of packages in this process; that of `CODE` is a digest of all modules of this one."""
    return {**versions(), CODE: code_digest()}


@functools.cache
def code_here() -> str:
    """Digest of what has to be the same in every process whose tasks make a result together."""
    here = identify()
    return digest_of({name: here[name] for name in REQUIRED})


def _answer() -> dict[str, str] | str:
    """What a worker runs, which is made ready too, or what it cannot load.

    Whatever tasks import is imported here, but for compiled kernels, which take memory and which not every reading
    needs. An OSError, as of a library that is missing, would be taken for a connection that was lost.
    """
    try:
        import zarr

        from mlfs_dask import rows, statistics

        for package in (rows, statistics):
            for module in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
                importlib.import_module(module.name)
        register_sizes()
        # Worker threads already read side by side.
        zarr.config.set({"async.concurrency": 2})
        return identify()
    except Exception as error:
        return repr(error)


def scheduler_facts(client: Client) -> Mapping[str, Any]:
    """What a scheduler says of itself and its workers.

    Raises
    ------
    CommClosedError
        There is no connection to it.
    """
    from distributed.comm.core import CommClosedError

    facts: Mapping[str, Any] = client.scheduler_info(n_workers=-1)
    if "workers" not in facts:  # it closed while it was asked
        raise CommClosedError(f"the connection to the scheduler is {client.status}")
    return facts


def _error_of(check: Callable[[], None]) -> tuple[MlfsError | None]:
    """What `check` raises, or None; in a tuple, since None alone is no answer."""
    try:
        check()
    except MlfsError as error:
        error.__cause__ = error.__context__ = None  # which may be what cannot be pickled
        return (error,)
    return (None,)


@dataclass
class WorkerAdmission:
    """The workers of one client, as far as they were asked.

    Parameters
    ----------
    client : Client
    """

    _client: Client
    _known: dict[str, tuple[str, str]] = field(default_factory=dict)  # address and host by process
    _refused: dict[str, RefusedWorker] = field(default_factory=dict)  # by process
    _schedulers: list[str] = field(default_factory=list)

    #: What the scheduler last knew of workers while there were any, by address. All may be leaving, and come again.
    last_seen: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    @property
    def is_of_another_scheduler(self) -> bool:
        """Whether the client has since reached another scheduler than that of which `workers` has told.

        It connects again by itself, at the same address. A scheduler that was started again knows nothing of its work.
        """
        return bool(self._schedulers) and scheduler_facts(self._client)["id"] != self._schedulers[-1]

    @property
    def was_restarted(self) -> bool:
        """Whether `workers` has told of more than one scheduler."""
        return len(self._schedulers) > 1

    @property
    def refused(self) -> list[RefusedWorker]:
        """Workers that were left out."""
        return list(self._refused.values())

    def workers(self) -> dict[str, Mapping[str, Any]]:
        """What the scheduler knows of each admitted worker, by address; new ones are asked first.

        Raises
        ------
        ClusterLostError
            There are workers, and none may take part.
        """
        facts = scheduler_facts(self._client)
        present = facts["workers"]
        self.last_seen = present or self.last_seen
        if facts["id"] not in self._schedulers[-1:]:
            self._schedulers.append(facts["id"])
        self._ask({address: info for address, info in present.items() if process_of(info) not in self._known})
        may_work = self._known.keys() - self._refused.keys()
        admitted = {address: info for address, info in present.items() if process_of(info) in may_work}
        left_out = [self._refused[process] for process in map(process_of, present.values()) if process in self._refused]
        if left_out and not admitted:
            raise ClusterLostError(
                f"no worker of the cluster can take part: {'; '.join(map(str, left_out))}."
                f"\n  cure: {'; '.join(dict.fromkeys(worker.cure for worker in left_out))}"
            )
        return admitted

    def restriction(self) -> dict[str, Any]:
        """Keywords of `Client.compute` that keep tasks from refused workers; none where all are admitted."""
        admitted = self.workers()
        return {"workers": list(admitted), "allow_other_workers": False} if self._refused else {}

    def refuse(self, process: str, cause: str, cure: str = CURE_CODE) -> bool:
        """Leave out the worker that this process is, if it is known and not left out yet; whether it was."""
        if process not in self._known or process in self._refused:
            return False
        self._refused[process] = RefusedWorker(*self._known[process], cause, cure)
        logger.warning("%s; it is left out", self._refused[process])
        return True

    def finds_strangers(self) -> bool:
        """Whether workers that joined meanwhile have to be left out."""
        before = len(self._refused)
        self.workers()
        return len(self._refused) > before

    def finds_blind(self, check: Callable[[], None]) -> bool:
        """Whether workers on which `check` raises have to be left out, since there are others on which it does not.

        Parameters
        ----------
        check : callable
            Raises DataError or StoreAccessError in a process that does not see the data. It travels to the workers.

        Raises
        ------
        DataError, StoreAccessError
            This process sees the data, and no worker does. Where none sees them, what went wrong first says why.
        """
        workers = self.workers()
        answers = zip(workers, self.ask(_error_of, check, workers=list(workers)), strict=True)
        blind = {address: each[0] for address, each in answers if isinstance(each, tuple) and each[0] is not None}
        if not blind or len(blind) < len(workers):
            for address, error in blind.items():
                problem = str(error).partition("\n")[0]
                self.refuse(process_of(workers[address]), f"does not see the data: {problem}", CURE_DATA)
            return bool(blind)
        try:
            check()
        except (DataError, StoreAccessError):
            return False
        hosts = ", ".join(sorted({str(facts.get("host")) for facts in workers.values()}))
        error = next(iter(blind.values()))
        if isinstance(error, DataError):
            raise DataError(f"{error.problem} on the hosts of the workers ({hosts})", file=error.file, cure=error.cure)
        raise error

    def ask(self, function: Callable[..., Any], *arguments: Any, workers: Sequence[str]) -> list[Any]:
        """Of every worker what `function` returns there, the exception in its place, or None where none came in time.

        Unlike a task, what a worker cannot unpickle does not end it; and a frozen worker does not hold up the others.
        """
        return list(self._client.sync(self._answers, function, arguments, workers))

    def _ask(self, workers: Mapping[str, Mapping[str, Any]]) -> None:
        here, versions = identify(), {}
        for (address, facts), answer in zip(workers.items(), self.ask(_answer, workers=list(workers)), strict=True):
            process = process_of(facts)
            if isinstance(answer, OSError):  # a worker that left
                continue
            self._known[process] = (address, str(facts.get("host", "an unknown host")))
            if answer is None:
                self.refuse(process, f"did not answer within {ANSWER_SECONDS:g} s", CURE_SILENCE)
            elif not isinstance(answer, dict):
                self.refuse(process, f"cannot load what it needs: {answer}")
            elif differing := [name for name in REQUIRED if answer.get(name) != here[name]]:
                they_have = (f"{name} {answer.get(name, 'absent')[:12]} (here {here[name][:12]})" for name in differing)
                self.refuse(process, f"has {', '.join(they_have)}")
            else:
                versions[address] = answer
        for line in describe_mismatches(here, versions):
            logger.warning("%s", line)

    async def _answers(
        self, function: Callable[..., Any], arguments: Sequence[Any], workers: Sequence[str]
    ) -> list[Any]:
        import asyncio  # takes a tenth of a short command's time, which has no workers

        async def ask(worker: str) -> Any:
            try:
                asked = self._client.run(function, *arguments, workers=[worker], on_error="return")
                return (await asyncio.wait_for(asked, ANSWER_SECONDS)).get(worker)
            except TimeoutError:
                return None
            except Exception as error:  # also of an answer that this process cannot unpickle
                return error

        return await asyncio.gather(*map(ask, workers))


_of_client: WeakKeyDictionary[Client, WorkerAdmission] = WeakKeyDictionary()


def admission(client: Client) -> WorkerAdmission:
    """The admission of the workers of a client; the same one for every call."""
    if client not in _of_client:
        _of_client[client] = WorkerAdmission(proxy(client))
    return _of_client[client]


def refused_workers(client: Client | None) -> list[dict[str, str]]:
    """Workers that were left out, as plain data for a record."""
    return [] if client is None else [asdict(refused) for refused in admission(client).refused]


def describe_mismatches(here: dict[str, str], there: dict[str, dict[str, str]]) -> list[str]:
    """One line for each package whose version differs between this process and some worker.

    Examples
    --------
    >>> describe_mismatches({"zarr": "3.1.6"}, {"tcp://a": {"zarr": "3.1.6"}, "tcp://b": {"zarr": "3.0"}})
    ['zarr is 3.1.6 here, 3.0 on 1 of 2 workers (tcp://b); install the same versions on every host']
    """
    lines = []
    for name, version in here.items():
        differing = {worker: theirs[name] for worker, theirs in there.items() if theirs[name] != version}
        if differing:
            others = ", ".join(sorted(set(differing.values())))
            lines.append(
                f"{name} is {version} here, {others} on {len(differing)} of {len(there)} workers"
                f" ({min(differing)}); install the same versions on every host"
            )
    return lines
