"""One reading of X and Y that feeds any number of statistics.

A task streams a run of partitions into one accumulator per statistic; partials are merged in a tree and turned
into the small result where the last merge ran. No block crosses a task boundary, and nothing is computed until
`run_pass`. On a cluster a pass is one graph; without one it runs in threads of this process, without Dask.
"""

from __future__ import annotations

import logging
import os
import socket
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from mlfs_dask import caching, runtime
from mlfs_dask.caching import Slot
from mlfs_dask.errors import ClusterLostError
from mlfs_dask.primitives.plan import PassPlan, plan_pass
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Profile, RowSource

if TYPE_CHECKING:
    from dask.delayed import Delayed

State: TypeAlias = tuple[NDArray[Any], ...]
Result = TypeVar("Result")

logger = logging.getLogger(__name__)

#: Seconds between two reports of progress from one task.
PROGRESS_SECONDS = 0.3

#: Times that rows are sent to workers that die with them.
_SENDINGS = 4


class Statistic(Protocol):
    """Chunk, combine, finalize, identity: a reduction over rows in four functions.

    Plain and picklable: it holds parameters, never data. States are tuples of arrays.

    A statistic with large states may also have `split(state, pieces)`, which gives independent states that are
    merged apart, `finalize_piece(state, piece, pieces)`, and `join(results)`. One whose result is worth keeping for
    other jobs (`mlfs_dask.caching`) is a `KeptStatistic`.
    """

    @property
    def state_bytes(self) -> int:
        """Bytes of one state."""

    @property
    def result_bytes(self) -> int:
        """Bytes of what `finalize` returns."""

    def scratch_bytes(self, profile: Profile) -> int:
        """Bytes that `add` allocates beside the state on the largest block."""

    def zero(self) -> State:
        """The identity: a state of no rows."""

    def add(self, state: State, block: Block) -> None:
        """Add one block to `state`, in place."""

    def merge(self, into: State, other: State) -> None:
        """Add `other` to `into`, in place; `other` stays as it is."""

    def finalize(self, state: State) -> Any:
        """The result; runs where the last merge ran."""


class KeptStatistic:
    """A `Statistic` whose result is worth keeping for other jobs."""

    #: What the cache calls it.
    kind: ClassVar[str]

    @property
    def parameters(self) -> Mapping[str, Any]:
        """Plain values and arrays that the result depends on, beside the data."""
        return {}

    def covers(self, arrays: Mapping[str, NDArray[Any]]) -> bool:
        """Whether the arrays that are kept are enough."""
        return True

    def to_arrays(self, result: Any) -> Mapping[str, NDArray[Any]]:
        """The result as arrays."""
        raise NotImplementedError

    def from_arrays(self, arrays: Mapping[str, NDArray[Any]]) -> Any:
        """The result that `to_arrays` was given."""
        raise NotImplementedError


def slot_of(source: Any, statistic: Any) -> Slot:
    """Where the result of a statistic is kept, if it is."""
    if not isinstance(statistic, KeptStatistic):
        return Slot()
    return caching.slot(source, statistic.kind, statistic.parameters, covers=statistic.covers)


@dataclass(frozen=True)
class PassRecord:
    """What a pass took. One without tasks was no pass: what it would have given came from the cache.

    Attributes
    ----------
    tasks, bytes_read : int
    seconds : float
    peak_worker_bytes : int
        Largest resident bytes of any process that ran one of its tasks, while the pass ran.
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
        Without tasks if all of them came from the cache. The others alone are read.

    Raises
    ------
    DoesNotFitError
        Before anything runs.
    ClusterLostError
        The scheduler or all workers went away, or a worker was killed again and again.
    """
    slots = [slot_of(source, statistic) for statistic in statistics]
    found = [_load(slot, statistic) for slot, statistic in zip(slots, statistics, strict=True)]
    missing = [i for i, result in enumerate(found) if result is None]
    if statistics and not missing:
        return found, NOT_READ
    wanted = [statistics[i] for i in missing]
    if plan is None or not plan.runs or len(missing) < len(statistics):
        plan = _plan_reading(source, wanted, resources)
    results, record = _read(source, wanted, resources, label, plan)
    for i, result in zip(missing, results, strict=True):
        found[i] = result
        statistic = statistics[i]
        if isinstance(statistic, KeptStatistic):
            slots[i].save(statistic.to_arrays(result))
    return found, record


def _load(slot: Slot, statistic: Any) -> Any:
    arrays = slot.load()
    return None if arrays is None else statistic.from_arrays(arrays)


def _read(
    source: RowSource, statistics: Sequence[Statistic], resources: Resources, label: str, plan: PassPlan
) -> tuple[list[Any], PassRecord]:
    started = time.perf_counter()
    runtime.emit("pass", label=label, partitions=plan.runs[-1][1] if plan.runs else 0)
    travels = resources.client is not None and not getattr(source, "in_memory", False)
    if travels or getattr(source, "holds_blocks", False):
        (merged,) = compute_graphs([build_pass(source, statistics, plan)], plan, resources)
    else:
        merged = _run_here(source, statistics, plan, resources)
    results, info = merged
    seconds = time.perf_counter() - started
    runtime.emit("pass-done", label=label, seconds=seconds)
    logger.info("%s: %d tasks, %.3f s", label, plan.tasks, seconds)
    return results, PassRecord(plan.tasks, plan.bytes_read, seconds, max(info.values(), default=0))


def plan_statistics(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> PassPlan:
    """The plan of one pass that feeds `statistics`: one without tasks if all of them are in the cache.

    Raises
    ------
    DoesNotFitError
    """
    wanted = [statistic for statistic in statistics if not slot_of(source, statistic).is_filled]
    if statistics and not wanted:
        return PassPlan((), 1, 1, 0, 0, resources.process_bytes)
    return _plan_reading(source, wanted, resources)


def _plan_reading(source: RowSource | Profile, statistics: Sequence[Statistic], resources: Resources) -> PassPlan:
    profile = source if isinstance(source, Profile) else source.profile
    return plan_pass(
        profile,
        resources,
        state_bytes=sum(s.state_bytes for s in statistics),
        scratch_bytes=sum(s.scratch_bytes(profile) for s in statistics),
        result_bytes=sum(s.result_bytes for s in statistics),
        can_split=len(statistics) == 1 and hasattr(statistics[0], "split"),
        compiled=any(getattr(s, "compiled", False) for s in statistics),
        one_run_per_partition=getattr(source, "holds_blocks", False),
    )


def build_pass(source: RowSource, statistics: Sequence[Statistic], plan: PassPlan) -> Delayed:
    """The lazy graph of one pass; computing it gives (results, peak bytes by process)."""
    from dask.delayed import delayed

    held = delayed(tuple(statistics), name=f"mlfs-statistics-{os.urandom(8).hex()}", traverse=False)
    blocks = getattr(source, "delayed_blocks", None)
    if blocks is not None:
        sources = [blocks(i) for i in range(len(plan.runs))]
    else:
        sources = [delayed(source, name=f"mlfs-source-{os.urandom(8).hex()}", traverse=False)] * len(plan.runs)
    run = delayed(_run, pure=False, nout=plan.pieces if plan.pieces > 1 else None)
    partials = [
        run(held, rows, first, last, plan.pieces) for rows, (first, last) in zip(sources, plan.runs, strict=True)
    ]
    if plan.pieces == 1:
        return merge_tree(held, partials, plan.fan_in)
    finished = [
        merge_tree(held, [partial[piece] for partial in partials], plan.fan_in, piece, plan.pieces)
        for piece in range(plan.pieces)
    ]
    joined: Delayed = delayed(_join, pure=False)(held, finished)
    return joined


def merge_tree(held: Delayed, partials: list[Delayed], fan_in: int, piece: int = 0, pieces: int = 1) -> Delayed:
    """The lazy end of a pass: partials are merged `fan_in` at a time, and the last one is finished.

    Parameters
    ----------
    held : Delayed
        The tuple of statistics.
    partials : list of Delayed
        (states, peak bytes by process) of every run.
    fan_in : int
    piece, pieces : int
        Which piece of the states it is, where they are cut.
    """
    from dask.delayed import delayed

    finished: Delayed = delayed(_finalize, pure=False)(held, merge_partials(held, partials, fan_in), piece, pieces)
    return finished


def merge_partials(held: Delayed, partials: list[Delayed], fan_in: int) -> Delayed:
    """Partials merged `fan_in` at a time, and not finished: what `merge_tree` does first."""
    from dask.delayed import delayed

    merge = delayed(_merge, pure=False)
    parts = partials
    while len(parts) > 1:
        groups = [parts[i : i + fan_in] for i in range(0, len(parts), fan_in)]
        parts = [merge(held, group) if len(group) > 1 else group[0] for group in groups]
    return parts[0]


def _run(statistics: Sequence[Statistic], source: Any, first: int, last: int, pieces: int = 1) -> Any:
    """Stream partitions first..last-1 into new states; a list of them, cut, if there are several pieces."""
    # A store is streamed here; the blocks of a Dask array have been computed as arguments of this task.
    blocks: Iterable[Block] = source.stream(first, last) if hasattr(source, "stream") else source.blocks()
    runtime.reset_peak_rss()
    states = [s.zero() for s in statistics]
    # Under a cluster every core already has a task: BLAS must not bring its own threads.
    with threadpool_limits(1):
        for block in told(blocks, getattr(source, "row_offsets", None), first, last):
            for statistic, state in zip(statistics, states, strict=True):
                statistic.add(state, block)
    if pieces == 1:
        return states, {process_name(): runtime.peak_rss()}
    parts = statistics[0].split(states[0], pieces)  # type: ignore[attr-defined]
    del states
    peaks = {process_name(): runtime.peak_rss()}
    return [([part], peaks) for part in parts]


def told(blocks: Iterable[Block], offsets: NDArray[np.int64] | None, first: int, last: int) -> Iterator[Block]:
    """The blocks of partitions first..last-1, whoever shows progress being told from time to time how many are done."""
    so_far, told_at = 0, time.monotonic()
    for block in blocks:
        runtime.check_stopped()
        yield block
        if offsets is not None and time.monotonic() - told_at > PROGRESS_SECONDS:
            row = block.start + block.X.shape[0]
            done = int(np.searchsorted(offsets, row, side="right")) - 1 - first
            if first + done < last and done > so_far:
                runtime.emit_from_task("partitions", done=done - so_far)
                so_far, told_at = done, time.monotonic()
    runtime.emit_from_task("partitions", done=last - first - so_far)


def _merge(
    statistics: Sequence[Statistic], partials: Sequence[tuple[list[State], dict[str, int]]]
) -> tuple[list[State], dict[str, int]]:
    """Sum partials into a copy of the first: a task's inputs belong to Dask and may be read again."""
    states = [tuple(a.copy() for a in state) for state in partials[0][0]]
    peaks = dict(partials[0][1])
    for other, other_peaks in partials[1:]:
        for statistic, state, part in zip(statistics, states, other, strict=True):
            statistic.merge(state, part)
        _keep_largest(peaks, other_peaks)
    _keep_largest(peaks, {process_name(): runtime.peak_rss()})
    return states, peaks


def _finalize(
    statistics: Sequence[Statistic],
    partial: tuple[list[State], dict[str, int]],
    piece: int = 0,
    pieces: int = 1,
) -> tuple[list[Any], dict[str, int]]:
    states, peaks = partial
    if pieces > 1:
        results = [statistics[0].finalize_piece(states[0], piece, pieces)]  # type: ignore[attr-defined]
    else:
        results = [s.finalize(state) for s, state in zip(statistics, states, strict=True)]
    peaks = dict(peaks)
    _keep_largest(peaks, {process_name(): runtime.peak_rss()})
    return results, peaks


def _join(
    statistics: Sequence[Statistic], finished: Sequence[tuple[list[Any], dict[str, int]]]
) -> tuple[list[Any], dict[str, int]]:
    """Put the results of all pieces together, in their order."""
    peaks: dict[str, int] = {}
    for _, piece_peaks in finished:
        _keep_largest(peaks, piece_peaks)
    return [statistics[0].join([results[0] for results, _ in finished])], peaks  # type: ignore[attr-defined]


def _keep_largest(into: dict[str, int], other: dict[str, int]) -> None:
    for name, peak in other.items():
        into[name] = max(peak, into.get(name, 0))


def process_name() -> str:
    """Host and process id, the same for every task of a process."""
    return f"{socket.gethostname()}:{os.getpid()}"


def _run_here(
    source: RowSource, statistics: Sequence[Statistic], plan: PassPlan, resources: Resources
) -> tuple[list[Any], dict[str, int]]:
    """The same pass in threads of this process, merged as runs finish, in order."""
    threads = min(resources.threads_per_worker, len(plan.runs))
    if threads <= 1:
        states = [s.zero() for s in statistics]
        peaks: dict[str, int] = {}
        for first, last in plan.runs:
            for block in source.stream(first, last):
                for statistic, state in zip(statistics, states, strict=True):
                    statistic.add(state, block)
            runtime.emit("partitions", done=last - first)
        return _finalize(statistics, (states, peaks))
    with runtime.TaskThreads(threads, "mlfs-pass") as pool:
        # No more runs are handed out than threads: finished partials must not pile up.
        waiting = list(plan.runs)
        pending = [pool.submit(_run, statistics, source, *waiting.pop(0)) for _ in range(min(threads, len(waiting)))]
        merged: tuple[list[State], dict[str, int]] | None = None
        while pending:
            partial = pending.pop(0).result()
            if waiting:
                pending.append(pool.submit(_run, statistics, source, *waiting.pop(0)))
            if merged is None:
                merged = partial
            else:
                for statistic, state, part in zip(statistics, merged[0], partial[0], strict=True):
                    statistic.merge(state, part)
                _keep_largest(merged[1], partial[1])
    assert merged is not None
    return _finalize(statistics, merged)


class DataLostError(ClusterLostError):
    """Rows that had been sent to a worker went away with it. They have to be sent again."""


def send(data: Any, resources: Resources, *, broadcast: bool = False) -> Any:
    """Futures of data that goes straight to the workers: inside a graph it would pass through the scheduler.

    Parameters
    ----------
    data : list or ndarray
        A list is spread over the workers, item by item.
    resources : Resources
        With a client.
    broadcast : bool
        Every worker gets all of it.

    Raises
    ------
    DataLostError
        A worker went away while it was sent.
    ClusterLostError
    """
    from distributed.comm.core import CommClosedError

    client = resources.client
    try:
        return client.scatter(data, hash=False, broadcast=broadcast)
    except (TimeoutError, CommClosedError, OSError, KeyError) as error:
        kind = DataLostError if client.status == "running" else ClusterLostError
        raise kind(
            f"the cluster was lost while data was sent to it: {error or type(error).__name__}"
            f"\n  cure: start the cluster again and run the same command with --resume"
        ) from error


def send_again(attempt: Callable[[], Result], resources: Resources) -> Result:
    """What `attempt` gives; where a worker takes rows that were sent to it away, it is made again.

    Tasks are repeated by the scheduler, but what the driver has sent is nobody's result.

    Raises
    ------
    ClusterLostError
        No worker is left, or it happened again and again.
    """
    for _ in range(_SENDINGS - 1):
        try:
            return attempt()
        except DataLostError as error:
            logger.info("a worker was lost with rows that had been sent to it; they are sent again (%s)", error)
            try:
                resources.client.wait_for_workers(1, timeout=resources.worker_wait)
            except (TimeoutError, OSError):
                raise error from None
    return attempt()


def compute_graphs(
    graphs: Sequence[Delayed], plan: PassPlan, resources: Resources, *, left_there: int = 0
) -> list[Any]:
    """Compute lazy parts of one pass together, and bring each of them to the driver.

    Of the last `left_there` only futures are given: their results stay with the workers, for the graphs that follow.

    Raises
    ------
    ClusterLostError
        Of its kind DataLostError where only what the driver had sent to workers was lost.
    """
    client = resources.client
    if client is None:
        from dask.base import compute

        return list(compute(*graphs, scheduler="threads"))
    from distributed.comm.core import CommClosedError
    from distributed.scheduler import KilledWorker, NoValidWorkerError

    def on_event(event: tuple[Any, Any]) -> None:
        message = dict(event[1])
        runtime.emit(message.pop("kind"), **message)

    client.subscribe_topic(runtime.PROGRESS_TOPIC, on_event)
    try:
        with warnings.catch_warnings():
            # What every task needs of a million features is some megabytes, and travels once.
            warnings.filterwarnings("ignore", message="Sending large graph")
            futures = client.compute(list(graphs), optimize_graph=False)
        brought = len(futures) - left_there
        return [*(_wait(future, resources) for future in futures[:brought]), *futures[brought:]]
    except KilledWorker as error:
        raise ClusterLostError(
            f"a worker died {getattr(error, 'allowed_failures', 'several')} times on the same part of the data "
            f"(task {getattr(error, 'task', '?')}); almost always it ran out of memory. Projected peak: "
            f"{plan.peak_worker_bytes / 2**20:,.0f} MiB of {resources.memory_limit / 2**20:,.0f} MiB a worker."
            f"\n  cure: give each worker more memory (--memory-limit) or fewer threads "
            f"(--threads-per-worker 1); the worker's log tells the cause"
        ) from error
    except NoValidWorkerError as error:
        # A scheduler may have a shorter limit of its own (distributed.scheduler.no-workers-timeout).
        raise _no_workers(resources) from error
    except (CancelledError, CommClosedError, OSError) as error:
        gone = "scheduler" in str(getattr(error, "reason", ""))
        kind = DataLostError if isinstance(error, CancelledError) and client.status == "running" else ClusterLostError
        raise (ClusterLostError if gone else kind)(
            f"the cluster was lost while a pass was running: {error or type(error).__name__}"
            f"\n  cure: start the cluster again and run the same command; finished work is kept where the "
            f"method keeps checkpoints"
        ) from error
    finally:
        if client.status == "running":
            client.unsubscribe_topic(runtime.PROGRESS_TOPIC)


def _wait(future: Any, resources: Resources) -> Any:
    """Wait for `future`, but not longer than `worker_wait` on a cluster without workers."""
    from distributed import TimeoutError as DaskTimeoutError

    client = resources.client
    empty_since: float | None = None
    while True:
        try:
            return future.result(timeout=min(5.0, resources.worker_wait / 2))
        except (TimeoutError, DaskTimeoutError):
            if future.done():
                raise
        if client.status != "running":
            raise OSError(f"the connection to the scheduler is {client.status}")
        if client.nthreads():
            empty_since = None
        elif empty_since is None:
            empty_since = time.monotonic()
        elif time.monotonic() - empty_since >= resources.worker_wait:
            raise _no_workers(resources)


def _no_workers(resources: Resources) -> ClusterLostError:
    scheduler = resources.client.scheduler
    address = scheduler.address if scheduler is not None else "ADDRESS"
    return ClusterLostError(
        f"every worker went away while a pass was running, and none came back within {resources.worker_wait:g} s."
        f"\n  cure: look into the workers' logs (out of memory, end of the job's time), start workers again with "
        f"`dask worker {address}`, and wait longer with --wait SECONDS where they come late"
    )
