"""A reading as a graph of Dask: on the workers of a cluster, whose faults end in a result or in a message.

A worker that runs other code, cannot load what tasks load or does not see the data is left out, and the reading is
repeated without it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, wait
from typing import TYPE_CHECKING, Any

from mlfs_dask import runtime
from mlfs_dask.cluster import watch as worker_watch
from mlfs_dask.cluster.admission import CURE_CODE, WorkerAdmission, admission, code_here
from mlfs_dask.cluster.watch import WorkerWatch, death_of, partitions_of, read_key
from mlfs_dask.engine.plan import ReadingPlan, memory_cure
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.engine.tasks import LoadError, TaskSystemError, finalize_states, join_pieces, merge_states, read_run
from mlfs_dask.errors import ClusterLostError, DataError, StoreAccessError
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.runtime import Resources

if TYPE_CHECKING:
    from dask.delayed import Delayed
    from distributed.scheduler import KilledWorker

logger = logging.getLogger(__name__)

#: Seconds in which a scheduler that is started again is found, for the message that says so.
RECONNECT_SECONDS = 5.0

#: Times that a reading is repeated without a worker less than before.
FUTILE_REPEATS = 3


def build_reading(source: RowSource, statistics: Sequence[Statistic], plan: ReadingPlan) -> Delayed:
    """The lazy graph of one reading; computing it gives (results, peak bytes by process)."""
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
    """The lazy end of a reading: partials are merged `fan_in` at a time, in their order; the last one is finished."""
    from dask.delayed import delayed

    merge = delayed(merge_states, pure=False)
    while len(partials) > 1:
        groups = [partials[i : i + fan_in] for i in range(0, len(partials), fan_in)]
        partials = [merge(statistics, group) if len(group) > 1 else group[0] for group in groups]
    finished: Delayed = delayed(finalize_states, pure=False)(statistics, partials[0], piece, pieces)
    return finished


def compute_graph(source: RowSource, build: Callable[[], Delayed], plan: ReadingPlan, resources: Resources) -> Any:
    """Compute the graph of a reading, made by `build`, and bring its result to this process.

    Raises
    ------
    ClusterLostError
    """
    client = resources.client
    if client is None:
        from dask.base import compute

        with runtime.TaskThreads(plan.threads, "mlfs-read") as pool:
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
        logger.warning("the reading is repeated without the workers that are left out")
    again = [str(worker) for worker in workers.refused[-1:]] or [
        "a worker with other code went away before it was asked"
    ]
    raise ClusterLostError(
        f"a reading was begun {futile} times, and each time a worker took part that has to be left out: {again[0]}."
        f"\n  cure: stop what starts such workers again and again, or {CURE_CODE}"
    )


def _may_end_otherwise(
    error: Exception, source: RowSource, workers: WorkerAdmission, restriction: Mapping[str, Any]
) -> bool:
    """Whether a reading that failed may succeed with other workers; those that made it fail are left out."""
    if isinstance(error, LoadError):
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


def _compute_on_cluster(graph: Delayed, plan: ReadingPlan, resources: Resources, restriction: Mapping[str, Any]) -> Any:
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
    except TaskSystemError as error:
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
            # workers would keep the parameters and results of every reading of a loop.
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


def _killed(error: KilledWorker, plan: ReadingPlan, resources: Resources, watch: WorkerWatch) -> ClusterLostError:
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
    what = "the connection to the scheduler was lost while a reading was running"
    if not isinstance(error, CancelledError | None):
        what = f"the cluster was lost while a reading was running: {error or type(error).__name__}"
    with contextlib.suppress(OSError, RuntimeError):  # of a client that is closed
        if client.status == "running" and admission(client).is_of_another_scheduler:
            what = f"the scheduler at {client.scheduler.address} was restarted while a reading was running"
    return ClusterLostError(
        f"{what}\n  cure: start the cluster again and run the same command with --resume; finished work is kept where "
        "the method keeps checkpoints"
    )


class _NoWorkersError(ClusterLostError):
    """Every worker that tasks may run on went away, and none came back in time."""


def _no_workers(resources: Resources) -> _NoWorkersError:
    scheduler = resources.client.scheduler
    address = scheduler.address if scheduler is not None else "ADDRESS"
    what = "every worker went away while a reading was running, and none came back"
    if admission(resources.client).was_restarted:
        what = f"the scheduler at {address} was restarted, and no worker came to it"
    return _NoWorkersError(
        f"{what} within {resources.worker_wait:g} s."
        f"\n  cure: look into the workers' logs (out of memory, end of the job's time), start workers again with "
        f"`dask worker {address}`, and wait longer with --wait SECONDS where they come late"
    )
