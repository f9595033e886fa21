"""One reading of X and Y that feeds any number of statistics: the one function through which rows are read.

A task streams a run of partitions into one state per statistic; states are merged in a tree and turned into the small
result where the last merge ran. No block crosses a task boundary, and nothing is computed until `run_pass`. On a
cluster a pass is one graph; without one it runs in threads of this process, without Dask.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
import functools
import logging
import os
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.cluster import watch as worker_watch
from mlfs_dask.cluster.admission import CURE_CODE, WorkerAdmission, admission, code_here
from mlfs_dask.cluster.watch import WorkerWatch, death_of, partitions_of, read_key
from mlfs_dask.engine import cache as caching
from mlfs_dask.engine.cache import CacheEntry
from mlfs_dask.engine.plan import PARAMETER_COPIES, PassPlan, PassSizes, memory_cure, plan_pass
from mlfs_dask.errors import ClusterLostError, DataError, MlfsError, StoreAccessError, is_load_failure
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Profile, RowSource, profile_of

if TYPE_CHECKING:
    from dask.delayed import Delayed
    from distributed.scheduler import KilledWorker

State: TypeAlias = Any

_P = ParamSpec("_P")
_T = TypeVar("_T")

logger = logging.getLogger(__name__)

#: Seconds in which a scheduler that is started again is found, for the message that says so.
RECONNECT_SECONDS = 5.0

#: Times that a pass is repeated without a worker less than before.
FUTILE_REPEATS = 3

#: Seconds between two reports of progress from one task.
PROGRESS_SECONDS = 0.3


class Statistic(ABC):
    """A reduction over rows in four functions: identity, chunk, combine, finalize.

    Plain and picklable: it holds parameters, never data.
    """

    #: Whether a kernel is compiled, so that every process loads the compiler's runtime.
    compiled: bool = False

    @property
    def can_split(self) -> bool:
        """Whether its states can be cut (`SplittableStatistic`)."""
        return False

    @property
    @abstractmethod
    def state_bytes(self) -> int:
        """Bytes of one state."""

    @property
    def result_bytes(self) -> int:
        """Bytes of what `finalize` returns: by default as many as a state has."""
        return self.state_bytes

    @property
    def parameter_bytes(self) -> int:
        """Bytes of the parameters that every process holds while the pass runs, where they are large."""
        return 0

    @abstractmethod
    def scratch_bytes(self, profile: Profile) -> int:
        """Bytes that `add` allocates besides the state on the largest block."""

    def finishing_bytes(self, profile: Profile) -> int:
        """Temporaries of `finalize`: by default as many as the kernels have."""
        return self.scratch_bytes(profile)

    @abstractmethod
    def zero(self) -> State:
        """The identity: a state of no rows."""

    @abstractmethod
    def add(self, state: State, block: Block) -> None:
        """Add one block to `state`, in place."""

    def merge(self, into: State, other: State) -> None:
        """Add `other` to `into`, in place; `other` stays as it is. By default states are tuples of arrays to sum."""
        for mine, theirs in zip(into, other, strict=True):
            np.add(mine, theirs, out=mine)

    @abstractmethod
    def finalize(self, state: State) -> Any:
        """The result; runs where the last merge ran. `state` stays as it is."""


class CachedStatistic(Statistic):
    """A statistic of which something is kept for other jobs (`mlfs_dask.engine.cache`)."""

    #: What the cache calls it.
    kind: ClassVar[str]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Plain values and arrays that the result depends on, beside the data."""
        return {}


class CacheableStatistic(CachedStatistic):
    """A statistic whose result is kept."""

    @property
    def superset(self) -> CacheableStatistic | None:
        """A statistic whose result contains this one's; None if there is none."""
        return None

    def covers(self, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Whether the arrays of a cached entry are enough."""
        return True

    @abstractmethod
    def to_arrays(self, result: Any) -> Mapping[str, NDArray[Any]]:
        """The result as arrays."""

    @abstractmethod
    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """The result that `to_arrays` was given, or the part of it that is asked for of the arrays of `superset`."""


class MergeableStatistic(CachedStatistic):
    """A statistic whose state is kept, a tuple of arrays: of data that grows, what was appended is read alone."""

    #: Names of the arrays of a state, in their order.
    state_names: ClassVar[Sequence[str]]

    @property
    def state_kind(self) -> str:
        """What the cache calls the state."""
        return self.kind

    @property
    def state_parameters(self) -> Mapping[str, Any]:
        """Plain values and arrays that the state depends on, beside the data."""
        return self.parameters

    @property
    def keeps_state(self) -> bool:
        """Whether the state is small enough to be kept."""
        return True

    def state_to_arrays(self, state: State) -> Mapping[str, NDArray[Any]]:
        """A state as named arrays."""
        return dict(zip(self.state_names, state, strict=True))

    def state_from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        """The state that `state_to_arrays` was given."""
        return tuple(arrays[name] for name in self.state_names)

    @property
    def copied_bytes(self) -> int:
        """Bytes that `state_to_arrays` allocates."""
        return 0

    def continue_state(self, cached: State, added: State) -> State:
        """A kept state with that of further rows added to it; `added` stays as it is."""
        # Counts of many rows may have a wider type than those of the first.
        state = tuple(old.astype(new.dtype, copy=False) for old, new in zip(cached, added, strict=True))
        self.merge(state, added)
        return state


class StateOf(Statistic):
    """Statistic: the state of another one, as the process that reads it merges it."""

    def __init__(self, statistic: MergeableStatistic, resources: Resources, *, continued: bool) -> None:
        self.statistic = statistic
        self.compiled = statistic.compiled
        # In process the result, a state that is continued, and copies to keep are held beside the state that was read.
        self._result_bytes = statistic.state_bytes
        if resources.client is None:
            own = statistic.state_bytes * continued + statistic.copied_bytes
            self._result_bytes = statistic.result_bytes + own

    @property
    def state_bytes(self) -> int:
        return self.statistic.state_bytes

    @property
    def result_bytes(self) -> int:
        return self._result_bytes

    @property
    def parameter_bytes(self) -> int:
        return self.statistic.parameter_bytes

    def scratch_bytes(self, profile: Profile) -> int:
        return self.statistic.scratch_bytes(profile)

    def zero(self) -> State:
        return self.statistic.zero()

    def add(self, state: State, block: Block) -> None:
        self.statistic.add(state, block)

    def merge(self, into: State, other: State) -> None:
        self.statistic.merge(into, other)

    def finalize(self, state: State) -> State:
        return state


class StatisticGroup(MergeableStatistic):
    """Statistic: the results of several, in a list.

    Parameters
    ----------
    statistics : sequence of MergeableStatistic
    """

    kind = "group"

    def __init__(self, statistics: Sequence[MergeableStatistic]) -> None:
        self.statistics = statistics
        self.compiled = any(statistic.compiled for statistic in statistics)

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"of": [[statistic.state_kind, statistic.state_parameters] for statistic in self.statistics]}

    @property
    def keeps_state(self) -> bool:
        return all(statistic.keeps_state for statistic in self.statistics)

    @property
    def copied_bytes(self) -> int:
        return sum(statistic.copied_bytes for statistic in self.statistics)

    def state_to_arrays(self, state: State) -> Mapping[str, NDArray[Any]]:
        parts = enumerate(zip(self.statistics, state, strict=True))
        return {f"{name}-{i}": a for i, (each, own) in parts for name, a in each.state_to_arrays(own).items()}

    def state_from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        named = [
            {name.rpartition("-")[0]: array for name, array in arrays.items() if name.endswith(f"-{i}")}
            for i in range(len(self.statistics))
        ]
        return [each.state_from_arrays(own) for each, own in zip(self.statistics, named, strict=True)]

    def continue_state(self, cached: State, added: State) -> State:
        states = zip(self.statistics, cached, added, strict=True)
        return [statistic.continue_state(old, new) for statistic, old, new in states]

    @property
    def state_bytes(self) -> int:
        return sum(statistic.state_bytes for statistic in self.statistics)

    @property
    def result_bytes(self) -> int:
        return sum(statistic.result_bytes for statistic in self.statistics)

    @property
    def parameter_bytes(self) -> int:
        return sum(statistic.parameter_bytes for statistic in self.statistics)

    def scratch_bytes(self, profile: Profile) -> int:
        return max(statistic.scratch_bytes(profile) for statistic in self.statistics)

    def zero(self) -> State:
        return [statistic.zero() for statistic in self.statistics]

    def add(self, state: State, block: Block) -> None:
        for statistic, own in zip(self.statistics, state, strict=True):
            statistic.add(own, block)

    def merge(self, into: State, other: State) -> None:
        for statistic, mine, theirs in zip(self.statistics, into, other, strict=True):
            statistic.merge(mine, theirs)

    def finalize(self, state: State) -> list[Any]:
        return [statistic.finalize(own) for statistic, own in zip(self.statistics, state, strict=True)]


class SharedState(MergeableStatistic):
    """Statistic: the results, in a list, of several whose state is the same, and is made once.

    Parameters
    ----------
    statistics : sequence of MergeableStatistic
        With equal `state_key`.
    """

    def __init__(self, statistics: Sequence[MergeableStatistic]) -> None:
        self.statistics = statistics
        self._first = statistics[0]
        self.compiled = self._first.compiled

    @property
    def state_kind(self) -> str:
        return self._first.state_kind

    @property
    def state_parameters(self) -> Mapping[str, Any]:
        return self._first.state_parameters

    @property
    def keeps_state(self) -> bool:
        return self._first.keeps_state

    @property
    def state_bytes(self) -> int:
        return self._first.state_bytes

    @property
    def result_bytes(self) -> int:
        return sum(statistic.result_bytes for statistic in self.statistics)

    @property
    def parameter_bytes(self) -> int:
        return sum(statistic.parameter_bytes for statistic in self.statistics)

    def scratch_bytes(self, profile: Profile) -> int:
        # A statistic may have the same numbers in an order of its own.
        return max(statistic.scratch_bytes(profile) for statistic in self.statistics) + self.state_bytes

    def zero(self) -> State:
        return self._first.zero()

    def add(self, state: State, block: Block) -> None:
        self._first.add(state, block)

    def merge(self, into: State, other: State) -> None:
        self._first.merge(into, other)

    def state_to_arrays(self, state: State) -> Mapping[str, NDArray[Any]]:
        return self._first.state_to_arrays(state)

    def state_from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> State:
        return self._first.state_from_arrays(arrays)

    def finalize(self, state: State) -> list[Any]:
        arrays = self._first.state_to_arrays(state)
        return [statistic.finalize(statistic.state_from_arrays(arrays)) for statistic in self.statistics]


class SplittableStatistic(Statistic):
    """A statistic whose large states can be cut into pieces that are merged and finished apart, where it is alone."""

    @property
    def can_split(self) -> bool:
        return True

    @abstractmethod
    def split(self, state: State, pieces: int) -> list[State]:
        """The pieces of a state, copied."""

    @abstractmethod
    def finalize_piece(self, state: State, piece: int, pieces: int) -> Any:
        """`finalize` of one piece."""

    @abstractmethod
    def join(self, results: list[Any]) -> Any:
        """The result of all pieces, in their order."""


def result_key(statistic: CachedStatistic) -> str:
    """Equal for statistics that share a cache entry: equal ones, and information with other subsets of the labels."""
    return f"{statistic.kind}-{digest_of(statistic.parameters)}"


def state_key(statistic: MergeableStatistic) -> str:
    """Equal for statistics that have the same state, such as scores from the same counts."""
    return f"{statistic.state_kind}-{digest_of(statistic.state_parameters)}"


def cache_entry(source: RowSource, statistic: Statistic) -> CacheEntry:
    """Cache entry of the result of a statistic, or of its state if that is what is kept of it."""
    if isinstance(statistic, CacheableStatistic):
        if statistic.superset is not None and (entry := cache_entry(source, statistic.superset)).is_filled:
            return entry
        return caching.entry(source, statistic.kind, statistic.parameters, covers=statistic.covers)
    return _state_entry(source, statistic)


def _state_entry(source: RowSource, statistic: Statistic, digest: str | None = None) -> CacheEntry:
    """Cache entry of the state of a statistic, of the source or of an earlier one."""
    if not isinstance(statistic, MergeableStatistic) or not statistic.keeps_state:
        return CacheEntry()
    return caching.entry(source, statistic.state_kind, statistic.state_parameters, digest=digest)


def is_cached(source: RowSource | Profile, statistic: Statistic) -> bool:
    """Whether the result of a statistic is in the cache."""
    if not isinstance(source, RowSource):
        return False
    return cache_entry(source, statistic).is_filled or _state_entry(source, statistic).is_filled


def returned_bytes(source: RowSource | Profile, statistic: Statistic) -> int:
    """Bytes of what a reading returns of a statistic: its result, or its state if that is kept."""
    return (
        max(statistic.result_bytes, statistic.state_bytes) if keeps_state(source, statistic) else statistic.result_bytes
    )


def keeps_state(source: RowSource | Profile, statistic: Statistic) -> bool:
    """Whether a reading returns the state of a statistic, for the cache; the driver then makes the result of it."""
    return isinstance(statistic, MergeableStatistic) and statistic.keeps_state and caching.is_on(source)


class _UncachedReading(NamedTuple):
    """What is read for statistics that are not in the cache.

    Attributes
    ----------
    source : RowSource
        The whole, or what was appended since states were kept.
    statistics : list of Statistic
        Those asked for, or their states.
    states : list of CacheEntry
        The kept states that are continued; empty if the whole is read.
    """

    source: RowSource
    statistics: list[Statistic]
    states: list[CacheEntry]


def _uncached_reading(source: RowSource, statistics: Sequence[Statistic], resources: Resources) -> _UncachedReading:
    """The least that has to be read."""
    states: list[CacheEntry] = []
    rows = source
    # A reading without statistics is of all rows.
    for digest, partitions in reversed(source.earlier if statistics else ()):
        entries = [_state_entry(source, statistic, digest) for statistic in statistics]
        if all(entry.is_filled for entry in entries):
            states, rows = entries, source.tail(partitions)
            break
    uses_cache = caching.is_on(source)
    forms = [
        StateOf(statistic, resources, continued=bool(states))
        if uses_cache and isinstance(statistic, MergeableStatistic) and statistic.keeps_state
        else statistic
        for statistic in statistics
    ]
    return _UncachedReading(rows, forms, states)


@dataclass(frozen=True)
class PassRecord:
    """What a pass took. One without tasks was no pass: what it would have given came from the cache.

    Attributes
    ----------
    tasks, bytes_read : int
    seconds : float
    peak_worker_bytes : int
        Largest resident bytes of any process that ran one of its tasks, while the pass ran; with a cluster of any of
        its workers, and 0 where the pass was made without them.
    """

    tasks: int
    bytes_read: int
    seconds: float
    peak_worker_bytes: int


#: Of a result that came from the cache.
NOT_READ = PassRecord(0, 0, 0.0, 0)


def count_passes(records: Iterable[PassRecord]) -> int:
    """Readings of the data among records."""
    return sum(record.tasks > 0 for record in records)


def records_to_facts(records: Sequence[PassRecord]) -> list[list[float]]:
    """Records as JSON can hold them, for a checkpoint.

    >>> records_from_facts(records_to_facts([PassRecord(1, 2, 0.5, 3)]))
    [PassRecord(tasks=1, bytes_read=2, seconds=0.5, peak_worker_bytes=3)]
    """
    return [[r.tasks, r.bytes_read, r.seconds, r.peak_worker_bytes] for r in records]


def records_from_facts(facts: Sequence[Sequence[float]]) -> list[PassRecord]:
    """The records of `records_to_facts`."""
    return [PassRecord(int(t), int(b), float(s), int(p)) for t, b, s, p in facts]


def run_pass(
    source: RowSource,
    statistics: Sequence[Statistic],
    resources: Resources,
    *,
    label: str = "pass",
    plan: PassPlan | None = None,
) -> tuple[list[Any], PassRecord]:
    """Read every row once and return the result of every statistic.

    Parameters
    ----------
    source : RowSource
    statistics : sequence of Statistic
    resources : Resources
    label : str
        What the progress line calls this pass.
    plan : PassPlan, optional
        As made by `plan_statistics`, which is asked otherwise.

    Returns
    -------
    results : list
        In the order of `statistics`.
    record : PassRecord
        Without tasks if all of them came from the cache. Only the others are read for.

    Raises
    ------
    DoesNotFitError
        Before anything runs.
    ClusterLostError
        The scheduler or all workers went away, or a worker was killed again and again.
    """
    with runtime.finishing_with(1 if resources.client is not None else resources.threads_per_worker):
        results = [_load(source, statistic) for statistic in statistics]
        missing = [i for i, result in enumerate(results) if result is None]
        if statistics and not missing:
            return results, NOT_READ
        uncached = [statistics[i] for i in missing]
        reading = _uncached_reading(source, uncached, resources)
        states = [_load_state(entry, statistic) for entry, statistic in zip(reading.states, uncached, strict=False)]
        if any(state is None for state in states):  # a damaged entry, which loading has removed
            return run_pass(source, statistics, resources, label=label)
        if plan is None or not plan.runs or len(missing) < len(statistics) or not _is_for(plan, reading.source):
            plan = _plan_reading(reading.source, reading.statistics, resources)
        computed, record = _read(reading.source, reading.statistics, resources, label, plan)
        for number, i in enumerate(missing):
            results[i] = _result(source, reading, number, states, computed[number])
            statistic = statistics[i]
            if isinstance(statistic, CacheableStatistic):
                cache_entry(source, statistic).save(statistic.to_arrays(results[i]))
        return results, record


def _is_for(plan: PassPlan, source: RowSource) -> bool:
    return plan.runs[-1][1] == source.profile.partitions


def _load(source: RowSource, statistic: Statistic) -> Any:
    """The result of a statistic from the cache, or None."""
    if isinstance(statistic, CacheableStatistic):
        arrays = cache_entry(source, statistic).load()
        if arrays is not None:
            return statistic.from_arrays(arrays)
    state = _load_state(_state_entry(source, statistic), statistic)
    return None if state is None else statistic.finalize(state)


def _load_state(entry: CacheEntry, statistic: Statistic) -> State | None:
    arrays = entry.load()
    if arrays is None or not isinstance(statistic, MergeableStatistic):
        return None
    return statistic.state_from_arrays(arrays)


def _result(source: RowSource, reading: _UncachedReading, number: int, states: Sequence[State], computed: Any) -> Any:
    """The result of one statistic of a reading; its state is merged with the one that is continued, and kept."""
    form = reading.statistics[number]
    if not isinstance(form, StateOf):
        return computed
    statistic, state = form.statistic, computed
    if states:
        state = statistic.continue_state(states[number], computed)
    _state_entry(source, statistic).save(statistic.state_to_arrays(state))
    return statistic.finalize(state)


def _read(
    source: RowSource, statistics: Sequence[Statistic], resources: Resources, label: str, plan: PassPlan
) -> tuple[list[Any], PassRecord]:
    started = time.perf_counter()
    runtime.emit("pass", label=label, partitions=plan.runs[-1][1] if plan.runs else 0)
    if source.residence == "graph" or (resources.client is not None and source.residence == "storage"):
        results, peaks = _compute(source, lambda: build_pass(source, statistics, plan), plan, resources)
    else:
        results, peaks = _run_here(source, statistics, plan)
        if resources.client is not None:  # of which no worker had a part
            peaks = {}
    seconds = time.perf_counter() - started
    runtime.emit("pass-done", label=label, seconds=seconds)
    logger.info("%s: %d tasks, %.3f s", label, plan.tasks, seconds)
    return results, PassRecord(plan.tasks, plan.bytes_read, seconds, max(peaks.values(), default=0))


def plan_statistics(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> PassPlan:
    """The plan of one pass that feeds `statistics`: one without tasks if all of them are in the cache.

    Raises
    ------
    DoesNotFitError
    """
    uncached = [statistic for statistic in statistics if not is_cached(source, statistic)]
    if statistics and not uncached:
        return PassPlan((), 1, 1, 0, 0, resources.process_bytes)
    if isinstance(source, RowSource):
        source, uncached, _ = _uncached_reading(source, uncached, resources)
    return _plan_reading(source, uncached, resources)


def _plan_reading(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> PassPlan:
    profile = profile_of(source)
    return plan_pass(profile, resources, pass_sizes(source, statistics, resources))


def pass_sizes(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> PassSizes:
    """What the statistics of one pass take, as `plan_pass` needs it."""
    profile = profile_of(source)
    return PassSizes(
        state_bytes=sum(s.state_bytes for s in statistics),
        # Statistics are fed one after another: the temporaries of one are gone when the next begins.
        scratch_bytes=max((s.scratch_bytes(profile) for s in statistics), default=0),
        finishing_bytes=max((s.finishing_bytes(profile) for s in statistics), default=0),
        result_bytes=sum(s.result_bytes for s in statistics),
        parameter_bytes=sum(s.parameter_bytes for s in statistics)
        * (1 if resources.client is None else PARAMETER_COPIES),
        can_split=len(statistics) == 1 and statistics[0].can_split,
        compiled=any(s.compiled for s in statistics),
        one_run_per_partition=isinstance(source, RowSource) and source.residence == "graph",
    )


def build_pass(source: RowSource, statistics: Sequence[Statistic], plan: PassPlan) -> Delayed:
    """The lazy graph of one pass; computing it gives (results, peak bytes by process)."""
    from dask.delayed import delayed

    shared = delayed(tuple(statistics), name=f"mlfs-statistics-{os.urandom(8).hex()}", traverse=False)
    if source.residence == "graph":
        sources = [source.delayed_partition(first) for first, _ in plan.runs]
    else:
        sources = [delayed(source, name=f"mlfs-source-{os.urandom(8).hex()}", traverse=False)] * len(plan.runs)
    run = delayed(_run, pure=False, nout=plan.pieces if plan.pieces > 1 else None)
    token = os.urandom(8).hex()
    partials = [
        run(shared, rows, first, last, plan.pieces, dask_key_name=read_key(first, last, token))
        for rows, (first, last) in zip(sources, plan.runs, strict=True)
    ]
    if plan.pieces == 1:
        return _merge_tree(shared, partials, plan.fan_in)
    finished = [
        _merge_tree(shared, [partial[piece] for partial in partials], plan.fan_in, piece, plan.pieces)
        for piece in range(plan.pieces)
    ]
    joined: Delayed = delayed(_join, pure=False)(shared, finished)
    return joined


def _merge_tree(statistics: Delayed, partials: list[Delayed], fan_in: int, piece: int = 0, pieces: int = 1) -> Delayed:
    """The lazy end of a pass: partials are merged `fan_in` at a time, in their order, and the last one is finished."""
    from dask.delayed import delayed

    merge = delayed(_merge, pure=False)
    while len(partials) > 1:
        groups = [partials[i : i + fan_in] for i in range(0, len(partials), fan_in)]
        partials = [merge(statistics, group) if len(group) > 1 else group[0] for group in groups]
    finished: Delayed = delayed(_finalize, pure=False)(statistics, partials[0], piece, pieces)
    return finished


class _TaskSystemError(Exception):
    """An OSError that a task raised. A plain OSError at the client says that the connection failed."""

    def __init__(self, number: int | None, text: str, file: str | None) -> None:
        super().__init__(number, text, file)  # as it is pickled

    @property
    def error(self) -> OSError:
        """The error of the task."""
        number, text, file = self.args
        return OSError(text) if number is None else OSError(number, text, file)


class _LoadError(Exception):
    """A library that did not load in a task.

    Attributes
    ----------
    process, cause : str
        The process that could not load it, and why.
    """

    def __init__(self, process: str, cause: str) -> None:
        super().__init__(process, cause)  # as it is pickled
        self.process, self.cause = process, cause


def _task_of_pass(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a task of a cluster raise what the client can judge: `_LoadError`, and `_TaskSystemError` for an OSError."""

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            worker = runtime.current_worker()
            if worker is None:
                raise
            if is_load_failure(error):
                raise _LoadError(worker.local_directory, repr(error)) from None
            if not isinstance(error, OSError):
                raise
            file = None if error.filename is None else str(error.filename)
            raise _TaskSystemError(error.errno, error.strerror or str(error), file) from None

    return run


@_task_of_pass
def _run(
    statistics: Sequence[Statistic],
    source: RowSource,
    first: int,
    last: int,
    pieces: int = 1,
) -> Any:
    """Stream partitions first..last-1 into new states; a list of them, cut, if there are several pieces."""
    if runtime.current_worker() is not None:
        if any(statistic.compiled for statistic in statistics):
            runtime.prepare_for_kernels()
        runtime.reset_peak_rss()  # of earlier jobs; in the driver's process its own peak counts, too
    states = [s.zero() for s in statistics]
    # Every core already has a task or a thread of ours: BLAS must not bring its own.
    with runtime.one_blas_thread():
        try:
            for block in _report_partitions(source, first, last):
                for statistic, state in zip(statistics, states, strict=True):
                    statistic.add(state, block)
        except MlfsError as error:
            if runtime.current_worker() is not None:
                # Errors of web clients, which stand behind it, cannot be pickled.
                error.__cause__ = error.__context__ = None
            raise
    if pieces == 1:
        return states, _peak_here()
    (statistic,) = statistics
    assert isinstance(statistic, SplittableStatistic)
    parts = statistic.split(states[0], pieces)
    del states
    peaks = _peak_here()
    return [([part], peaks) for part in parts]


def _report_partitions(source: RowSource, first: int, last: int) -> Iterator[Block]:
    """The blocks of partitions first..last-1; from time to time a progress event says how many are done."""
    offsets = source.row_offsets
    so_far, reported_at = 0, time.monotonic()
    for block in source.stream(first, last):
        runtime.check_stopped()
        yield block
        if time.monotonic() - reported_at > PROGRESS_SECONDS:
            row = block.start + block.X.shape[0]
            done = int(np.searchsorted(offsets, row, side="right")) - 1 - first
            if first + done < last and done > so_far:
                runtime.emit_from_task("partitions", done=done - so_far)
                so_far, reported_at = done, time.monotonic()
    runtime.emit_from_task("partitions", done=last - first - so_far)


@_task_of_pass
def _merge(
    statistics: Sequence[Statistic], partials: Sequence[tuple[list[State], dict[str, int]]]
) -> tuple[list[State], dict[str, int]]:
    """Merge partials into a copy of the first: a task's inputs belong to Dask and may be read again."""
    # A copy, not the identity: pieces of states are smaller than whole ones.
    states, peaks = copy.deepcopy(partials[0])
    for others, other_peaks in partials[1:]:
        for statistic, state, part in zip(statistics, states, others, strict=True):
            statistic.merge(state, part)
        _keep_largest(peaks, other_peaks)
    _keep_largest(peaks, _peak_here())
    return states, peaks


@_task_of_pass
def _finalize(
    statistics: Sequence[Statistic],
    partial: tuple[list[State], dict[str, int]],
    piece: int = 0,
    pieces: int = 1,
) -> tuple[list[Any], dict[str, int]]:
    states, peaks = partial
    if pieces > 1:
        (statistic,) = statistics
        assert isinstance(statistic, SplittableStatistic)
        results = [statistic.finalize_piece(states[0], piece, pieces)]
    else:
        results = [s.finalize(state) for s, state in zip(statistics, states, strict=True)]
    peaks = dict(peaks)
    _keep_largest(peaks, _peak_here())
    return results, peaks


def _join(
    statistics: Sequence[Statistic], finished: Sequence[tuple[list[Any], dict[str, int]]]
) -> tuple[list[Any], dict[str, int]]:
    """Put the results of all pieces together, in their order."""
    peaks: dict[str, int] = {}
    for _, piece_peaks in finished:
        _keep_largest(peaks, piece_peaks)
    (statistic,) = statistics
    assert isinstance(statistic, SplittableStatistic)
    return [statistic.join([results[0] for results, _ in finished])], peaks


def _peak_here() -> dict[str, int]:
    """Largest resident bytes of this process, by the code that it runs; all code is one without a cluster."""
    return {"" if runtime.current_worker() is None else code_here(): runtime.peak_rss()}


def _keep_largest(into: dict[str, int], other: dict[str, int]) -> None:
    for name, peak in other.items():
        into[name] = max(peak, into.get(name, 0))


def _run_here(source: RowSource, statistics: Sequence[Statistic], plan: PassPlan) -> tuple[list[Any], dict[str, int]]:
    """The same pass in threads of this process, merged in order as runs finish."""
    threads = min(plan.threads, len(plan.runs))
    if threads <= 1:
        return _finalize(statistics, _run(statistics, source, 0, source.profile.partitions))
    with runtime.TaskThreads(threads, "mlfs-pass") as pool:
        # No more runs are handed out than threads: finished partials must not pile up.
        waiting = list(plan.runs)

        def submit() -> Any:
            first, last = waiting.pop(0)
            return pool.submit(_run, statistics, source, first, last)

        pending = [submit() for _ in range(threads)]
        merged: tuple[list[State], dict[str, int]] | None = None
        while pending:
            partial = runtime.result_of(pending.pop(0))
            if waiting:
                pending.append(submit())
            if merged is None:
                merged = partial
                continue
            for statistic, state, part in zip(statistics, merged[0], partial[0], strict=True):
                statistic.merge(state, part)
            _keep_largest(merged[1], partial[1])
    assert merged is not None
    return _finalize(statistics, merged)


def _compute(source: RowSource, build: Callable[[], Delayed], plan: PassPlan, resources: Resources) -> Any:
    """Compute the graph of a pass, made by `build`, and bring its result to this process.

    Raises
    ------
    ClusterLostError
    """
    client = resources.client
    if client is None:
        from dask.base import compute

        with runtime.TaskThreads(plan.threads, "mlfs-pass") as pool:
            return compute(build(), scheduler="threads", pool=pool)[0]
    workers, futile = admission(client), 0
    while futile <= FUTILE_REPEATS:
        restriction = workers.restriction()
        left_out = {worker.worker for worker in workers.refused}
        try:
            result, peaks = _compute_on_cluster(build(), plan, resources, restriction)
            if peaks.keys() <= {code_here()}:
                return result, peaks
            workers.workers()  # asks those that ran other code, if they are still there
        except Exception as error:
            if client.status != "running" or not _may_end_otherwise(error, source, workers, restriction):
                raise
        futile += left_out == {worker.worker for worker in workers.refused}
        logger.warning("the pass is repeated without the workers that are left out")
    again = [str(worker) for worker in workers.refused[-1:]] or [
        "a worker with other code went away before it was asked"
    ]
    raise ClusterLostError(
        f"a pass was begun {futile} times, and each time a worker took part that has to be left out: {again[0]}."
        f"\n  cure: stop what starts such workers again and again, or {CURE_CODE}"
    )


def _may_end_otherwise(
    error: Exception, source: RowSource, workers: WorkerAdmission, restriction: Mapping[str, Any]
) -> bool:
    """Whether a pass that failed may succeed with other workers; those that made it fail are left out."""
    if isinstance(error, _LoadError):
        workers.workers()  # it may have joined meanwhile
        workers.refuse(error.process, f"cannot load what tasks need: {error.cause}")
        return True
    if isinstance(error, DataError | StoreAccessError) and workers.finds_blind(source.require_visible):
        return True
    try:
        if workers.finds_strangers():
            return True
    except (
        ClusterLostError
    ):  # where none answers, and `error` says already that the cluster is lost: it knows the cause
        if isinstance(error, ClusterLostError):
            return False
        raise
    # Of those that the tasks were kept to none came back, and others are there.
    return isinstance(error, _NoWorkersError) and bool(restriction) and bool(workers.workers())


def _compute_on_cluster(graph: Delayed, plan: PassPlan, resources: Resources, restriction: Mapping[str, Any]) -> Any:
    client = resources.client
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError, NoWorkerError

    emit = runtime.in_context(runtime.emit)  # events come in a thread of the client

    def on_event(event: tuple[Any, Any]) -> None:
        message = dict(event[1])
        kind = message.pop("kind")
        if kind == "warning":
            runtime.warn_from_task(message["text"])
        else:
            emit(kind, **message)

    client.subscribe_topic(runtime.PROGRESS_TOPIC, on_event)
    watch = WorkerWatch(client)
    future = None
    try:
        with warnings.catch_warnings():
            # Parameters of a statistic, such as the weights of a million features, are some megabytes, and travel once.
            warnings.filterwarnings("ignore", message="Sending large graph")
            future = client.compute(graph, optimize_graph=False, **restriction)
        return _wait(future, resources, watch, restriction)
    except _TaskSystemError as error:
        raise error.error from None
    except KilledWorker as error:
        raise _killed(error, plan, resources, watch) from error
    except (NoValidWorkerError, NoWorkerError) as error:
        # A scheduler may have a shorter limit of its own (distributed.scheduler.no-workers-timeout).
        raise _no_workers(resources) from error
    except (CancelledError, CommClosedError, OSError) as error:
        raise _connection_lost(error, resources) from error
    finally:
        if future is not None:
            # Waiting with a timeout leaves the future in a cycle of frames and errors. Until Python collects that,
            # workers would keep the parameters and results of every pass of a loop.
            future.release()
        if client.status == "running":
            client.unsubscribe_topic(runtime.PROGRESS_TOPIC)


def _wait(future: Any, resources: Resources, watch: WorkerWatch, restriction: Mapping[str, Any]) -> Any:
    """Result of `future`, waited for no longer than `worker_wait` on a cluster without workers that may take part."""
    client, workers = resources.client, admission(resources.client)
    empty_since: float | None = None
    # future.result(timeout=...) cancels a transfer that has begun when the time is over. A client whose transfer was
    # cancelled before its turn came joins later ones to it, and none of them ever ends well.
    transfer = client.gather(future, asynchronous=True)
    result = asyncio.run_coroutine_threadsafe(transfer, client.loop.asyncio_loop)
    try:
        while wait([result], timeout=min(worker_watch.LOOK_SECONDS, resources.worker_wait / 2)).not_done:
            if client.status != "running":
                raise OSError(f"the connection to the scheduler is {client.status}")
            if workers.is_of_another_scheduler:
                raise _connection_lost(None, resources)
            there = watch.look()
            if there.intersection(restriction.get("workers", there)):
                empty_since = None
            elif empty_since is None:
                empty_since = time.monotonic()
            elif time.monotonic() - empty_since >= resources.worker_wait:
                raise _no_workers(resources)
        return result.result()
    finally:
        result.cancel()


def _killed(error: KilledWorker, plan: PassPlan, resources: Resources, watch: WorkerWatch) -> ClusterLostError:
    """What is known of workers that died one after the other on the same task."""
    worker, run = error.last_worker, partitions_of(error.task)
    if run is None:
        work = "partial results were merged"
    elif run[1] - run[0] == 1:
        work = f"partition {run[0]} was read"
    else:
        work = f"partitions {run[0]} to {run[1] - 1} were read"
    death = death_of(resources.client, worker.host, worker.pid)
    memory = watch.last_memory(worker.local_directory)
    known = [
        death or "nothing is known of the cause",
        *([f"it held {memory / 2**20:,.0f} MiB when it was last looked at"] if memory else []),
        f"projected peak {plan.peak_worker_bytes / 2**20:,.0f} MiB of the "
        f"{resources.memory_limit / 2**20:,.0f} MiB that a worker has",
    ]
    cure = "look into the worker's log, and into the system's for processes that it has killed"
    if death is None or "SIGKILL" in death or "memory" in death:
        cure += f". Where memory ended, {memory_cure(resources)}"
    return ClusterLostError(
        f"{error.allowed_failures + 1} workers died while {work}, the last one {worker.address} on {worker.host}: "
        f"{'; '.join(known)}.\n  cure: {cure}"
    )


def _connection_lost(error: BaseException | None, resources: Resources) -> ClusterLostError:
    """A scheduler that went away, or another one in its place, which the client reaches by itself."""
    client = resources.client
    deadline = time.monotonic() + RECONNECT_SECONDS
    while client.status == "connecting" and time.monotonic() < deadline:
        time.sleep(0.1)
    what = "the connection to the scheduler was lost while a pass was running"
    if not isinstance(error, CancelledError | None):
        what = f"the cluster was lost while a pass was running: {error or type(error).__name__}"
    with contextlib.suppress(OSError, RuntimeError):  # of a client that is closed
        if client.status == "running" and admission(client).is_of_another_scheduler:
            what = f"the scheduler at {client.scheduler.address} was restarted while a pass was running"
    return ClusterLostError(
        f"{what}\n  cure: start the cluster again and run the same command with --resume; finished work is kept where "
        "the method keeps checkpoints"
    )


class _NoWorkersError(ClusterLostError):
    """Every worker that tasks may run on went away, and none came back in time."""


def _no_workers(resources: Resources) -> _NoWorkersError:
    scheduler = resources.client.scheduler
    address = scheduler.address if scheduler is not None else "ADDRESS"
    what = "every worker went away while a pass was running, and none came back"
    if admission(resources.client).was_restarted:
        what = f"the scheduler at {address} was restarted, and no worker came to it"
    return _NoWorkersError(
        f"{what} within {resources.worker_wait:g} s."
        f"\n  cure: look into the workers' logs (out of memory, end of the job's time), start workers again with "
        f"`dask worker {address}`, and wait longer with --wait SECONDS where they come late"
    )
