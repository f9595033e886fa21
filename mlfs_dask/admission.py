"""Which workers of a cluster may take part: those that run the same code as the client, on the same libraries.

A ranking from two versions of the code would be of neither. Every worker is asked once, before it gets a task; a worker
that has other code, cannot load what it needs, or does not answer is left out and named.
"""

from __future__ import annotations

import logging
import os
import platform
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib import metadata
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import WeakKeyDictionary, proxy

from mlfs_dask.block_sizes import register_sizes
from mlfs_dask.errors import ClusterLostError, DataError, MlfsError, StoreAccessError
from mlfs_dask.fingerprints import code_digest

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

CURE = (
    "install the same mlfs-dask and the same libraries on every worker as here (`mlfs doctor` compares them), and give "
    "every worker the data at the same path"
)


class Identity(NamedTuple):
    """What a process runs.

    Attributes
    ----------
    process : str
        As `process_name` gives it.
    versions : dict of str
        Of Python and packages; that of `CODE` is a digest of all modules of this one.
    """

    process: str
    versions: dict[str, str]


@dataclass(frozen=True)
class RefusedWorker:
    """A worker that is left out.

    Attributes
    ----------
    worker, host, cause : str
    """

    worker: str
    host: str
    cause: str

    def __str__(self) -> str:
        return f"worker {self.worker} on {self.host} {self.cause}"


def process_name() -> str:
    """Host and process id, the same for every task of a process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def versions() -> dict[str, str]:
    """Versions of Python and of the packages that client and workers should share."""
    installed = {"python": platform.python_version()}
    for name in COMPARED_PACKAGES:
        try:
            installed[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            installed[name] = "absent"
    return installed


def identify() -> Identity:
    """What this process runs."""
    return Identity(process_name(), {**versions(), CODE: code_digest(("",))})


def _answer() -> Identity | str:
    """Identity of a worker, which is made ready too, or what it cannot load.

    An OSError, as of a library that is missing, would be taken for a connection that was lost.
    """
    try:
        import zarr

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
    _processes: set[str] = field(default_factory=set)
    _admitted: set[str] = field(default_factory=set)
    _refused: dict[str, RefusedWorker] = field(default_factory=dict)
    _schedulers: list[str] = field(default_factory=list)

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
        if facts["id"] not in self._schedulers[-1:]:
            self._schedulers.append(facts["id"])
        self._ask({key: info for key, info in present.items() if key not in self._admitted | self._refused.keys()})
        admitted = {key: info for key, info in present.items() if key in self._admitted}
        if present and not admitted:
            causes = "; ".join(str(refused) for key, refused in self._refused.items() if key in present)
            raise ClusterLostError(f"no worker of the cluster can take part: {causes}.\n  cure: {CURE}")
        return admitted

    def restriction(self) -> dict[str, Any]:
        """Keywords of `Client.compute` that keep tasks from refused workers; none where all are admitted."""
        admitted = self.workers()
        return {"workers": list(admitted), "allow_other_workers": False} if self._refused else {}

    def know(self, processes: Iterable[str]) -> bool:
        """Whether all of these processes are of admitted workers; new workers are asked first."""
        if not self._processes.issuperset(processes):
            self.workers()
        return self._processes.issuperset(processes)

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
        answers = dict(zip(workers, self.ask(_error_of, check, workers=list(workers)), strict=True))
        blind = {key: each[0] for key, each in answers.items() if isinstance(each, tuple) and each[0] is not None}
        if len(blind) < len(workers):
            for key, error in blind.items():
                self._refuse(key, workers, f"does not see the data: {str(error).partition(chr(10))[0]}")
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
        here, answers = identify().versions, {}
        for key, answer in zip(workers, self.ask(_answer, workers=list(workers)), strict=True):
            if isinstance(answer, Identity):
                answers[key] = self._judge(key, workers, answer, here)
            elif answer is None:
                self._refuse(key, workers, f"did not answer within {ANSWER_SECONDS:g} s")
            elif not isinstance(answer, OSError):  # a worker that left
                self._refuse(key, workers, f"cannot load what it needs: {answer}")
        for line in describe_mismatches(here, {key: answers[key] for key in answers.keys() & self._admitted}):
            logger.warning("%s", line)

    async def _answers(
        self, function: Callable[..., Any], arguments: Sequence[Any], workers: Sequence[str]
    ) -> list[Any]:
        import asyncio  # takes a tenth of a short command's time, which has no workers

        async def ask(worker: str) -> Any:
            try:
                asked = self._client.run(function, *arguments, workers=[worker], on_error="return")
                return (await asyncio.wait_for(asked, ANSWER_SECONDS)).get(worker)
            except (TimeoutError, OSError) as error:
                return None if isinstance(error, TimeoutError) else error

        return await asyncio.gather(*map(ask, workers))

    def _judge(
        self, key: str, workers: Mapping[str, Mapping[str, Any]], answer: Identity, here: Mapping[str, str]
    ) -> dict[str, str]:
        differing = [
            f"{name} {answer.versions.get(name, 'absent')[:12]} (here {here[name][:12]})"
            for name in REQUIRED
            if answer.versions.get(name) != here[name]
        ]
        if differing:
            self._refuse(key, workers, f"has {', '.join(differing)}")
        else:
            self._admitted.add(key)
            self._processes.add(answer.process)
        return answer.versions

    def _refuse(self, key: str, workers: Mapping[str, Mapping[str, Any]], cause: str) -> None:
        self._refused[key] = RefusedWorker(key, str(workers[key].get("host", "an unknown host")), cause)
        self._admitted.discard(key)
        logger.warning("%s; it is left out", self._refused[key])


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
