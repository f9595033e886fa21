"""A pass as a graph of Dask: on the workers of a cluster, whose faults end in a result or in a message.

A worker that runs other code, cannot load what tasks load or does not see the data is left out, and the pass is
repeated without it.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
import warnings
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import CancelledError, wait
from typing import TYPE_CHECKING, Any

from mlfs_dask import runtime
from mlfs_dask.cluster import workers as cluster_workers
from mlfs_dask.cluster.workers import CURE_CODE, Cluster, cluster_of, code_here
from mlfs_dask.engine.plan import ReadingPlan, memory_cure
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.engine.tasks import LoadError, TaskSystemError, finalize_states, join_pieces, merge_states, read_run
from mlfs_dask.errors import ClusterLostError, DataError, StoreAccessError, number_of
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.runtime import Resources

if TYPE_CHECKING:
    from dask.delayed import Delayed
    from distributed.scheduler import KilledWorker

logger = logging.getLogger(__name__)

#: Times that a pass is repeated without a worker less than before.
FUTILE_REPEATS = 3


def read_key(first: int, last: int, token: str) -> tuple[str, int, int]:
    """Return the name of the task that reads partitions first..last-1.

    Tasks whose names are tuples of one first item are one group to Dask's scheduler. It hands out a large group as
    workers become free; tasks of many groups it sends at once to the workers that have the source, of which there is
    one at the beginning.
    """
    return f"mlfs-read-{token}", first, last


def partitions_of(key: object) -> tuple[int, int] | None:
    """Return the first partition of a task, and the one after its last; None for tasks that read none."""
    match key:
        case (str(name), int(first), int(last)) if name.startswith("mlfs-read-"):
            return first, last
    return None


def build_reading(source: RowSource, statistics: Sequence[Statistic], plan: ReadingPlan) -> Delayed:
    """Return the lazy graph of one pass; computing it gives (results, peak bytes by process)."""
    from dask.delayed import delayed

    shared = delayed(tuple(statistics), name=f"mlfs-statistics-{os.urandom(8).hex()}", traverse=False)
    if source.residence == "graph":
        sources = [source.delayed_partition(first) for first, _ in plan.runs]
    else:
        sources = [delayed(source, name=f"mlfs-source-{os.urandom(8).hex()}", traverse=False)] * len(plan.runs)
    run = delayed(read_run, pure=False, nout=plan.pieces if plan.pieces > 1 else None)
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
    joined: Delayed = delayed(join_pieces, pure=False)(shared, finished)
    return joined


def _merge_tree(statistics: Delayed, partials: list[Delayed], fan_in: int, piece: int = 0, pieces: int = 1) -> Delayed:
    """Return the lazy end of a pass: partials are merged `fan_in` at a time, in their order; the last one is
    finished.
    """
    from dask.delayed import delayed

    merge = delayed(merge_states, pure=False)
    while len(partials) > 1:
        groups = [partials[i : i + fan_in] for i in range(0, len(partials), fan_in)]
        partials = [merge(statistics, group) if len(group) > 1 else group[0] for group in groups]
    finished: Delayed = delayed(finalize_states, pure=False)(statistics, partials[0], piece, pieces)
    return finished


def compute_graph(source: RowSource, build: Callable[[], Delayed], plan: ReadingPlan, resources: Resources) -> Any:
    """Compute the graph of a pass, made by `build`, and bring its result to this process.

    Raises
    ------
    ClusterLostError
    """
    client = resources.client
    if client is None:
        from dask.base import compute

        with runtime.TaskThreads(plan.threads, "mlfs-read") as pool:
            return compute(build(), scheduler="threads", pool=pool)[0]
    cluster, futile = cluster_of(client), 0
    while futile <= FUTILE_REPEATS:
        restriction = cluster.restriction()
        left_out = {worker.worker for worker in cluster.refused}
        try:
            result, peaks = _compute_on_cluster(build(), plan, resources, restriction)
            if peaks.keys() <= {code_here()}:
                return result, peaks
            cluster.workers()  # asks those that ran other code, if they are still there
        except Exception as error:
            if client.status != "running" or not _may_end_otherwise(error, source, cluster, restriction):
                raise
        futile += left_out == {worker.worker for worker in cluster.refused}
        logger.warning("the pass is repeated without the excluded workers")
    again = [str(worker) for worker in cluster.refused[-1:]] or [
        "a worker with other code went away before it was asked"
    ]
    raise ClusterLostError(
        f"a pass was begun {futile} times, and each time a worker had to be left out: {again[0]}."
        f"\n  cure: stop the program that starts such workers, or {CURE_CODE}"
    )


def _may_end_otherwise(error: Exception, source: RowSource, cluster: Cluster, restriction: dict[str, Any]) -> bool:
    """Return True if a failed pass may succeed on other workers; exclude the workers that made it fail."""
    before = len(cluster.refused)
    try:
        workers = cluster.workers()  # some may have joined meanwhile
    except ClusterLostError:
        if isinstance(error, ClusterLostError):
            return False  # it knows the cause
        raise
    if isinstance(error, LoadError):
        cluster.refuse(error.process, f"cannot load what tasks need: {error.cause}")
        return True
    if isinstance(error, DataError | StoreAccessError):
        cluster.refuse_blind(source.require_visible)
    if isinstance(error, _NoWorkersError) and restriction and workers:
        return True  # none came back of those that the tasks were kept to, and others are there
    return len(cluster.refused) > before


def _compute_on_cluster(
    graph: Delayed, plan: ReadingPlan, resources: Resources, restriction: dict[str, Any]
) -> tuple[Any, dict[str, int]]:
    """Return the results of a graph, and peak bytes by code of the process."""
    client, cluster = resources.client, cluster_of(resources.client)
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
    future = None
    try:
        with warnings.catch_warnings():
            # Parameters of a statistic, such as the weights of a million features, are some megabytes, and travel once.
            warnings.filterwarnings("ignore", message="Sending large graph")
            future = client.compute(graph, optimize_graph=False, **restriction)
        result: tuple[Any, dict[str, int]] = _wait(future, client, cluster, restriction.get("workers"))
        return result
    except TaskSystemError as error:
        raise error.error from None
    except KilledWorker as error:
        raise _killed(error, plan, resources, cluster) from error
    except (NoValidWorkerError, NoWorkerError) as error:
        # A scheduler may have a shorter limit of its own (distributed.scheduler.no-workers-timeout).
        raise _NoWorkersError(cluster) from error
    except (CancelledError, OSError) as error:  # of a connection; those of tasks are TaskSystemError
        raise cluster.loss(error) from error
    finally:
        if future is not None:
            # Waiting with a timeout leaves the future in a cycle of frames and errors. Until Python collects that,
            # workers would keep the parameters and results of every pass over a loop.
            future.release()
        if client.status == "running":
            client.unsubscribe_topic(runtime.PROGRESS_TOPIC)


def _wait(future: Any, client: Any, cluster: Cluster, admitted: Sequence[str] | None) -> Any:
    """Return the result of `future`, waited for no longer than `Cluster.wait` on a cluster without workers that may
    take part.
    """
    seen = time.monotonic()
    # future.result(timeout=...) cancels a transfer that has begun when the time is over. A client whose transfer was
    # cancelled before its turn came joins later ones to it, and none of them ever ends well.
    transfer = client.gather(future, asynchronous=True)
    result = asyncio.run_coroutine_threadsafe(transfer, client.loop.asyncio_loop)
    try:
        while wait([result], timeout=min(cluster_workers.LOOK_SECONDS, cluster.wait / 2)).not_done:
            if client.status != "running":
                raise cluster.loss()
            looked, there = time.monotonic(), cluster.check_silent_workers(_describe_work)
            if there if admitted is None else there.intersection(admitted):
                seen = looked
            elif looked - seen >= cluster.wait:
                raise _NoWorkersError(cluster)
        return result.result()
    finally:
        result.cancel()


def _describe_work(keys: Iterable[object]) -> str:
    """Describe the partitions that tasks with these keys read, with the verb."""
    runs = [run for run in map(partitions_of, keys) if run is not None]
    count = sum(last - first for first, last in runs)
    return f"{number_of(count, 'partition')} {'goes' if count == 1 else 'go'}" if count else "work goes"


def _killed(error: KilledWorker, plan: ReadingPlan, resources: Resources, cluster: Cluster) -> ClusterLostError:
    """Describe the workers that died one after the other on the same task."""
    worker, run = error.last_worker, partitions_of(error.task)
    if run is None:
        work = "partial results were merged"
    elif run[1] - run[0] == 1:
        work = f"partition {run[0]} was read"
    else:
        work = f"partitions {run[0]} to {run[1] - 1} were read"
    death = cluster.death_of(worker.host, worker.pid)
    memory = cluster.memory_of(worker.local_directory)
    facts = [
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
        f"{'; '.join(facts)}.\n  cure: {cure}"
    )


class _NoWorkersError(ClusterLostError):
    """Loss of every worker that tasks may run on; none came back in time."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(
            f"every worker went away while a pass was running, and none came back within {cluster.wait:g} s."
            f"\n  cure: look into the workers' logs (out of memory, end of the job's time), start workers again with "
            f"`dask worker {cluster.address}`, and wait longer with --wait SECONDS where they come late"
        )
