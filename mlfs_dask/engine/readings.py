"""One pass over X and Y that feeds any number of statistics: the one function through which rows are read.

What the cache keeps of a statistic is not read for; of rows that were appended since, only these are read. Statistics
with one state share it. A pass runs in threads of this process, without Dask, or on a cluster, as one graph.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from mlfs_dask import runtime
from mlfs_dask.engine import cache as caching
from mlfs_dask.engine.cache import CacheEntry
from mlfs_dask.engine.graph import build_reading, compute_graph
from mlfs_dask.engine.plan import PARAMETER_COPIES, ReadingPlan, ReadingSizes, plan_reading
from mlfs_dask.engine.statistic import SharedState, State, Statistic, loads_kernels
from mlfs_dask.engine.tasks import run_in_threads
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources

logger = logging.getLogger(__name__)


def cache_entry(source: RowSource, statistic: Statistic, digest: str | None = None) -> CacheEntry:
    """Cache entry of what is kept of a statistic, of the source or of an earlier content with that digest."""
    if not statistic.keeps:
        return CacheEntry()
    return caching.entry(source, statistic.kind, statistic.kept_parameters(statistic.keeps), digest=digest)


def is_cached(source: RowSource | Profile, statistic: Statistic) -> bool:
    """Return True if the result of a statistic follows from the cache."""
    return isinstance(source, RowSource) and cache_entry(source, statistic).is_filled


def returned_bytes(source: RowSource | Profile, statistic: Statistic) -> int:
    """Return the bytes that a pass returns for a statistic: its result, or its state if that is cached."""
    result: int = statistic.result_bytes
    return max(result, statistic.state_bytes) if keeps_state(source, statistic) else result


def keeps_state(source: RowSource | Profile, statistic: Statistic) -> bool:
    """Return True if a pass returns the state of a statistic, to be cached; the driver then finalises the state."""
    return statistic.keeps == "state" and caching.is_on(source)


def _uncached(
    source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources
) -> tuple[Any, list[SharedState], list[CacheEntry]]:
    """Return the least that has to be read for statistics that are not in the cache.

    Returns
    -------
    source : RowSource or Profile
        The whole, or what was appended since states were kept.
    shares : list of SharedState
        Of the statistics, in the order in which their keys first come.
    kept : list of CacheEntry
        The kept states that are continued; empty if the whole is read.
    """
    groups: dict[str, list[Statistic]] = {}
    for statistic in statistics:
        groups.setdefault(statistic.key, []).append(statistic)
    kept: list[CacheEntry] = []
    rows: RowSource | Profile = source
    # A pass without statistics is of all rows.
    if isinstance(source, RowSource) and statistics:
        for digest, partitions in reversed(source.earlier):
            entries = [cache_entry(source, group[0], digest) for group in groups.values() if group[0].keeps == "state"]
            if len(entries) == len(groups) and all(entry.is_filled for entry in entries):
                kept, rows = entries, source.tail(partitions)
                break
    return rows, [_share(source, group, resources, bool(kept)) for group in groups.values()], kept


def _share(
    source: RowSource | Profile, group: Sequence[Statistic], resources: Resources, continues: bool
) -> SharedState:
    if not keeps_state(source, group[0]):
        return SharedState(group, files=caching.row_files(source) if isinstance(source, RowSource) else None)
    held = group[0].state_bytes
    if resources.client is None:
        # Beside the state that was read: one that is continued, and copies to keep, which are gone before the results.
        held = held * continues + max(group[0].copied_bytes, sum(statistic.result_bytes for statistic in group))
    return SharedState(group, keeps_state=True, held_bytes=held)


@dataclass(frozen=True)
class ReadingRecord:
    """Cost of one pass. A record without tasks was no pass: its results came from the cache.

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
NOT_READ = ReadingRecord(0, 0, 0.0, 0)


def count_readings(records: Iterable[ReadingRecord]) -> int:
    """Return the number of passes over the data among records."""
    return sum(record.tasks > 0 for record in records)


def records_to_facts(records: Sequence[ReadingRecord]) -> list[list[float]]:
    """Convert records to JSON data, for a checkpoint.

    >>> records_from_facts(records_to_facts([ReadingRecord(1, 2, 0.5, 3)]))
    [ReadingRecord(tasks=1, bytes_read=2, seconds=0.5, peak_worker_bytes=3)]
    """
    return [list(astuple(record)) for record in records]


def records_from_facts(facts: Sequence[Sequence[float]]) -> list[ReadingRecord]:
    """Restore records from the data of `records_to_facts`."""
    return [ReadingRecord(int(t), int(b), float(s), int(p)) for t, b, s, p in facts]


def run_reading(
    source: RowSource,
    statistics: Sequence[Statistic],
    resources: Resources,
    *,
    label: str = "reading",
    plan: ReadingPlan | None = None,
) -> tuple[list[Any], ReadingRecord]:
    """Read every row once and return the result of every statistic.

    Parameters
    ----------
    source : RowSource
    statistics : sequence of Statistic
    resources : Resources
    label : str
        What the progress line calls this pass.
    plan : ReadingPlan, optional
        As made by `plan_statistics`, which is asked otherwise.

    Returns
    -------
    results : list
        In the order of `statistics`.
    record : ReadingRecord
        Without tasks if all of them came from the cache. Only the others are read for.

    Raises
    ------
    DoesNotFitError
        Before anything runs.
    ClusterLostError
        The scheduler or all workers went away, or a worker was killed again and again.
    """
    results = _load(source, statistics)
    uncached = [statistic for statistic, result in zip(statistics, results, strict=True) if result is None]
    if statistics and not uncached:
        return results, NOT_READ
    rows, shares, entries = _uncached(source, uncached, resources)
    kept = [_load_state(entry, share.statistic) for entry, share in zip(entries, shares, strict=False)]
    if any(state is None for state in kept):  # a damaged entry, which loading has removed
        return run_reading(source, statistics, resources, label=label)
    if plan is None or not plan.runs or len(uncached) < len(statistics) or plan.runs[-1][1] != rows.profile.partitions:
        plan = _plan_reading(rows, shares, resources)
    computed, record = _read(rows, shares, resources, label, plan)
    made: dict[int, Any] = {}
    for number, share in enumerate(shares):
        of_share = _results(source, share, kept[number] if kept else None, computed[number])
        made |= {id(statistic): result for statistic, result in zip(share.statistics, of_share, strict=True)}
    for i, statistic in enumerate(statistics):
        results[i] = made.get(id(statistic), results[i])
    return results, record


def read_views(
    views: Sequence[tuple[RowView, Sequence[Statistic]]], resources: Resources, *, label: str
) -> tuple[list[list[Any]], list[ReadingRecord]]:
    """Read statistics of several views of one source, in one pass over the source if that reads less.

    Parameters
    ----------
    views : sequence of (RowView, sequence of Statistic)
        Views of the same `RowView.base`.
    resources : Resources
    label : str

    Returns
    -------
    results : list of list
        Of each view, in the order of its statistics.
    records : list of ReadingRecord

    Raises
    ------
    DoesNotFitError
        The states of all views do not fit; nothing has been read.
    ClusterLostError
    """
    base, separately = views[0][0].base, [view.profile.read_bytes for view, statistics in views if statistics]
    if len(separately) < 2 or sum(separately) < base.profile.read_bytes:
        passes = [run_reading(*of, resources, label=label) if of[1] else ([], NOT_READ) for of in views]
        return [found for found, _ in passes], [record for _, record in passes]
    results, shares = list[list[Any]](), list[SharedState]()
    for view, statistics in views:
        results.append(_load(view, statistics))
        pairs = zip(statistics, results[-1], strict=True)
        own = _uncached(view, [statistic for statistic, result in pairs if result is None], resources)[1]
        for number, share in enumerate(own):
            share.view, share.view_bytes = view, view.profile.array_bytes * (number == 0)
        shares += own
    if not shares:
        return results, []
    computed, record = _read(base, shares, resources, label, _plan_reading(base, shares, resources))
    made: dict[int, Any] = {}
    for share, of_share in zip(shares, computed, strict=True):
        assert share.view is not None
        made |= zip(map(id, share.statistics), _results(share.view, share, None, of_share), strict=True)
    for (_, statistics), found in zip(views, results, strict=True):
        found[:] = [made.get(id(statistic), result) for statistic, result in zip(statistics, found, strict=True)]
    return results, [record]


def _load(source: RowSource, statistics: Sequence[Statistic]) -> list[Any]:
    """Return results from the cache, None for missing ones. State that several results share is loaded once, for all of
    them.
    """
    results: list[Any] = [None] * len(statistics)
    if not caching.is_on(source):
        return results
    sharing: dict[str, list[int]] = {}
    for i, statistic in enumerate(statistics):
        if statistic.keeps:
            sharing.setdefault(statistic.key if statistic.keeps == "state" else statistic.result_key, []).append(i)
    for places in sharing.values():
        arrays = cache_entry(source, statistics[places[0]]).load()
        if arrays is None:
            continue
        for i in places:
            if statistics[i].keeps == "result":
                results[i] = statistics[i].result_of(arrays)
            else:
                results[i] = statistics[i].finalize(statistics[i].state_of(arrays))
    return results


def _load_state(entry: CacheEntry, statistic: Statistic) -> State | None:
    arrays = entry.load()
    return None if arrays is None else statistic.state_of(arrays)


def _results(source: RowSource, share: SharedState, kept: State | None, computed: Any) -> list[Any]:
    """Finalise a shared state; merge it into the cached one first, and cache the state or the results."""
    if not share.keeps_state:
        for statistic, result in zip(share.statistics, computed, strict=True):
            if statistic.keeps == "result" and caching.is_on(source):
                cache_entry(source, statistic).save(statistic.result_arrays(result))
        results: list[Any] = computed
        return results
    first = share.statistic
    state = computed if kept is None else first.extend_state(kept, computed)
    cache_entry(source, first).save(first.state_arrays(state))
    return share.results(state)


def _read(
    source: RowSource, shares: Sequence[SharedState], resources: Resources, label: str, plan: ReadingPlan
) -> tuple[list[Any], ReadingRecord]:
    started = time.perf_counter()
    # Workers have the kernels that this process has, of one installation, or compile theirs at the same time.
    compiles = loads_kernels(shares, source.profile.n) and runtime.compiles_kernels()
    partitions = plan.runs[-1][1] if plan.runs else 0
    runtime.emit("pass", label=label, partitions=partitions, **({"compiling": True} if compiles else {}))
    if source.residence == "graph" or (resources.client is not None and source.residence == "storage"):
        results, peaks = compute_graph(source, lambda: build_reading(source, shares, plan), plan, resources)
    else:
        results, peaks = run_in_threads(source, shares, plan)
        if resources.client is not None:  # of which no worker had a part
            peaks = {}
    seconds = time.perf_counter() - started
    runtime.emit("pass-done", label=label, seconds=seconds)
    logger.info("%s: %d tasks, %.3f s", label, plan.tasks, seconds)
    return results, ReadingRecord(plan.tasks, plan.bytes_read, seconds, max(peaks.values(), default=0))


def plan_statistics(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> ReadingPlan:
    """Return the plan of one pass that feeds `statistics`: one without tasks if all of them are in the cache.

    Raises
    ------
    DoesNotFitError
    """
    uncached = [statistic for statistic in statistics if not is_cached(source, statistic)]
    if statistics and not uncached:
        return ReadingPlan((), 1, 1, 0, 0, resources.process_bytes + _loaded_bytes(source, statistics, resources))
    rows, shares, _ = _uncached(source, uncached, resources)
    return _plan_reading(rows, shares, resources)


def _loaded_bytes(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> int:
    """Return bytes that this process takes to make results of what is kept; with a cluster the driver's plan counts
    them.
    """
    if resources.client is not None:
        return 0
    kept = [statistic for statistic in statistics if statistic.keeps == "state"]
    finishing = max((statistic.finishing_bytes(profile_of(source)) for statistic in kept), default=0)
    results: int = sum(statistic.result_bytes for statistic in statistics)
    return results + finishing + sum(statistic.state_bytes for statistic in kept)


def _plan_reading(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> ReadingPlan:
    profile = profile_of(source)
    return plan_reading(profile, resources, reading_sizes(source, statistics, resources))


def reading_sizes(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> ReadingSizes:
    """Return the sizes of the statistics of one pass, for `plan_reading`."""
    profile = profile_of(source)
    return ReadingSizes(
        state_bytes=sum(s.state_bytes for s in statistics),
        # Statistics are fed one after another: the temporaries of one are gone when the next begins.
        scratch_bytes=max((s.scratch_bytes(profile) for s in statistics), default=0),
        finishing_bytes=max((s.finishing_bytes(profile) for s in statistics), default=0),
        result_bytes=sum(s.result_bytes for s in statistics),
        parameter_bytes=sum(s.parameter_bytes for s in statistics)
        * (1 if resources.client is None else PARAMETER_COPIES),
        can_split=len(statistics) == 1 and statistics[0].can_split,
        compiled=loads_kernels(statistics, profile.n),
        one_run_per_partition=isinstance(source, RowSource) and source.residence == "graph",
    )
