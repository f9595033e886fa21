"""The workers of a cluster while a reading runs: which of them do not answer, and what is known of those that died.

A worker sends a heartbeat several times a second while the cluster is small. One that is silent (frozen, or cut off) is
named, then given up, so that its work goes to others; the scheduler's own limit (`worker-ttl`) may be minutes.
"""

from __future__ import annotations

import contextlib
import logging
import re
import signal
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlfs_dask.cluster.admission import process_of, scheduler_facts
from mlfs_dask.errors import number_of

if TYPE_CHECKING:
    from distributed import Client

logger = logging.getLogger(__name__)

#: Seconds of silence after which a worker is named, and after which it is given up.
NAMED_SECONDS, GIVEN_UP_SECONDS = 10.0, 60.0

#: Heartbeats that have to be missed as well: in large clusters there is one in many seconds.
NAMED_HEARTBEATS, GIVEN_UP_HEARTBEATS = 4, 10

#: Seconds between two looks.
LOOK_SECONDS = 5.0

_READ_KEY = re.compile(r"mlfs-read-(\d+)-(\d+)-")

#: Seconds in which a nanny has to tell how its worker died.
DEATH_SECONDS = 5.0

_DEATH = re.compile(r"was killed by|exited with status|exceeded \d+% memory budget")


def read_key(first: int, last: int, token: str) -> str:
    """Name of the task that reads partitions first..last-1."""
    return f"mlfs-read-{first}-{last}-{token}"


def partitions_of(key: object) -> tuple[int, int] | None:
    """First partition of a task, and the one after its last; None for tasks that read none."""
    match = _READ_KEY.match(str(key))
    return None if match is None else (int(match[1]), int(match[2]))


@dataclass
class _Heartbeat:
    """The last sign of life of a worker.

    Attributes
    ----------
    seen : float
        Its time, by the scheduler's clock.
    noticed : float
        When this process first saw that time, by its own clock.
    memory : int
        Bytes that the worker held.
    """

    seen: float
    noticed: float
    memory: int


@dataclass
class WorkerWatch:
    """The workers of one client during one reading.

    Parameters
    ----------
    client : Client
    """

    _client: Client
    _heartbeats: dict[str, _Heartbeat] = field(default_factory=dict)  # by process
    _named: set[str] = field(default_factory=set)

    def look(self) -> set[str]:
        """Name workers that are silent and give up those that have been for long; addresses of all that are there."""
        from distributed.scheduler import heartbeat_interval

        workers = scheduler_facts(self._client)["workers"]
        now, interval = time.monotonic(), heartbeat_interval(len(workers))
        named_after = max(NAMED_SECONDS, NAMED_HEARTBEATS * interval)
        given_up_after = max(GIVEN_UP_SECONDS, GIVEN_UP_HEARTBEATS * interval)
        for address, facts in workers.items():
            process, silent = process_of(facts), self._silence(facts, now)
            if silent < named_after:
                self._named.discard(process)
            elif silent >= given_up_after:
                self._give_up(address, facts, silent)
            elif process not in self._named:
                self._named.add(process)
                logger.warning(
                    "worker %s on %s has not answered for %.0f s; its %s to others after %.0f s",
                    address,
                    facts.get("host"),
                    silent,
                    self._work(address),
                    given_up_after,
                )
        return set(workers)

    def _silence(self, facts: Mapping[str, Any], now: float) -> float:
        """Seconds since the last heartbeat of a worker, as far as this process saw; clocks of hosts may differ."""
        last_seen = float(facts["last_seen"])
        before = self._heartbeats.get(process_of(facts))
        if before is None or before.seen != last_seen:
            memory = int(facts.get("metrics", {}).get("memory", 0))
            self._heartbeats[process_of(facts)] = _Heartbeat(last_seen, now, memory)
            return 0.0
        return now - before.noticed

    def _work(self, address: str) -> str:
        """What a worker has to read, and the verb."""
        keys: Iterable[object] = self._client.processing([address]).get(address, ())
        runs = [run for run in map(partitions_of, keys) if run is not None]
        count = sum(last - first for first, last in runs)
        return f"{number_of(count, 'partition')} {'goes' if count == 1 else 'go'}" if count else "work goes"

    def _give_up(self, address: str, facts: Mapping[str, Any], silent: float) -> None:
        logger.warning(
            "worker %s on %s is given up: it has not answered for %.0f s; its work goes to others",
            address,
            facts.get("host"),
            silent,
        )
        del self._heartbeats[process_of(facts)]  # it is given that time again, should the scheduler not remove it
        scheduler: Any = self._client.scheduler
        with contextlib.suppress(OSError, TimeoutError):
            # What the scheduler does itself after its `worker-ttl`: a nanny, which takes five seconds to end a process
            # that does not listen, starts another one.
            self._client.sync(
                scheduler.restart_workers,
                workers=[address],
                timeout=10,
                wait_for_workers=False,
                on_error="return",
                stimulus_id=f"mlfs-given-up-{time.time()}",
            )

    def last_memory(self, process: str) -> int:
        """Bytes that a process held when it was last looked at; 0 where that is not known."""
        heartbeat = self._heartbeats.get(process)
        return 0 if heartbeat is None else heartbeat.memory


def death_of(client: Client, host: str, pid: int) -> str | None:
    """What a nanny has logged of the end of a worker's process; None where there is no nanny, or none answers."""
    from distributed.comm.addressing import get_address_host

    deadline = time.monotonic() + DEATH_SECONDS
    scheduler: Any = client.scheduler
    while time.monotonic() < deadline:
        try:
            # A nanny can be asked as soon as its next worker is there.
            logs = client.sync(scheduler.worker_logs, workers=None, nanny=True, callback_timeout=DEATH_SECONDS)
        except Exception:  # of a cluster that is falling apart, or without nannies
            logs = {}
        for address, lines in logs.items():
            for line in lines if get_address_host(address) == host else ():  # the newest first
                text = str(line[1]).rpartition(" - ")[2]
                if re.search(rf"\b{pid}\b", text) and _DEATH.search(text):
                    return name_signal(text)
        time.sleep(0.2)
    return None


def name_signal(text: str) -> str:
    """A message of a nanny, with the name of the signal.

    >>> name_signal("Worker process 12 was killed by signal 9")
    'Worker process 12 was killed by signal 9 (SIGKILL)'
    """
    match = re.search(r"signal (\d+)$", text)
    return text if match is None else f"{text} ({signal.Signals(int(match[1])).name})"
