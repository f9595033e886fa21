"""One reading of X that also takes numbers in for every row, gives numbers out for every row, or both.

`run_pass` reduces rows to something small. Here arrays of n rows that the driver holds travel to the tasks, each task
getting the rows of its own partitions and no others, and rows come back the same way; sums over rows are merged in a
tree as in every pass. In process nothing is copied: kernels read and write slices of the driver's arrays, which may be
files. On a cluster tasks run in waves, so that no more rows are on their way at a time than `IN_FLIGHT_BYTES`.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.primitives import passes
from mlfs_dask.primitives.passes import PassRecord, State
from mlfs_dask.primitives.plan import PassPlan, plan_pass
from mlfs_dask.row_arrays import give_back
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Profile, RowSource

logger = logging.getLogger(__name__)

Rows = Sequence[NDArray[Any]]

#: Bytes of rows that are on their way to tasks and back at a time, or those of one task, if they are more.
IN_FLIGHT_BYTES = 256 * 2**20

#: What the heap of a worker holds beside rows that have arrived, as a share of them: pieces of many sizes leave holes.
#: 2 000 000 rows of 20 columns: 354 MiB at most after any number of products, 278 without holes.
HOLES = 0.5


class RowStatistic(Protocol):
    """A statistic (see `passes.Statistic`) whose kernel also sees rows of driver arrays and writes rows.

    `outputs` names the columns and dtype of every array of n rows that it gives; it may be empty, and so may the state.
    """

    @property
    def outputs(self) -> Sequence[tuple[int, Any]]: ...

    @property
    def state_bytes(self) -> int: ...

    @property
    def result_bytes(self) -> int: ...

    def scratch_bytes(self, profile: Profile) -> int: ...

    def zero(self) -> State: ...

    def add_rows(self, state: State, block: Block, inputs: Rows, outputs: Rows) -> None:
        """Add one block to `state`; `inputs` and `outputs` hold the rows of this block alone."""

    def merge(self, into: State, other: State) -> None: ...

    def finalize(self, state: State) -> Any: ...


def run_row_pass(
    source: RowSource,
    statistic: RowStatistic,
    resources: Resources,
    *,
    inputs: Rows = (),
    out: Rows | None = None,
    label: str = "pass",
) -> tuple[list[NDArray[Any]], Any, PassRecord]:
    """Read every row once.

    Parameters
    ----------
    source : RowSource
    statistic : RowStatistic
    resources : Resources
    inputs : sequence of arrays of n rows
        What `add_rows` is given, block by block.
    out : sequence of arrays of n rows, optional
        Where outputs go; new arrays by default.
    label : str
        What the progress line calls this pass.

    Returns
    -------
    outputs : list of arrays of n rows
        As `statistic.outputs` names them; held by the driver.
    result : object
        Of `statistic.finalize`.
    record : PassRecord

    Raises
    ------
    DoesNotFitError
        Before anything runs.
    ClusterLostError
    """
    plan = plan_rows(source, statistic, resources, inputs=inputs, out_given=out is not None)
    if out is None:
        out = _new_outputs(statistic, source.profile.n)
    started = time.perf_counter()
    runtime.emit("pass", label=label, partitions=plan.runs[-1][1] if plan.runs else 0)
    travels = resources.client is not None and not getattr(source, "in_memory", False)
    if travels or getattr(source, "holds_blocks", False):
        result, peaks = passes.send_again(
            lambda: _run_there(source, statistic, inputs, out, plan, resources), resources
        )
    else:
        result, peaks = _run_here(source, statistic, inputs, out, plan, resources)
    seconds = time.perf_counter() - started
    runtime.emit("pass-done", label=label, seconds=seconds)
    logger.info("%s: %d tasks, %.3f s", label, plan.tasks, seconds)
    return list(out), result, PassRecord(plan.tasks, plan.bytes_read, seconds, max(peaks.values(), default=0))


def plan_rows(
    source: RowSource | Profile,
    statistic: RowStatistic,
    resources: Resources,
    *,
    inputs: Rows = (),
    input_bytes: int = 0,
    out_given: bool = False,
) -> PassPlan:
    """The plan of one row pass; what a worker holds of the rows that travel is part of its peak.

    Parameters
    ----------
    source, statistic, resources, inputs
        As in `run_row_pass`.
    input_bytes : int
        Bytes of one row of the inputs, where these do not exist yet.
    out_given : bool
        Outputs go to arrays of the caller, who counts them where the pass runs in this process.

    Raises
    ------
    DoesNotFitError
    """
    profile = source if isinstance(source, Profile) else source.profile
    matrices = getattr(statistic, "held_bytes", 0)
    taken = input_bytes + sum(a.nbytes // max(len(a), 1) for a in inputs)
    given = sum(width * np.dtype(dtype).itemsize for width, dtype in statistic.outputs)
    if resources.client is None:
        held = matrices + (0 if out_given else profile.n * given)
    else:
        # A wave, and what its last task has too much.
        partition = -(-profile.n // max(1, profile.partitions)) * (taken + given)
        held = min(profile.n * (taken + given), IN_FLIGHT_BYTES) // resources.workers + partition
        held += int(HOLES * held) + 2 * matrices  # as they arrive
    return plan_pass(
        profile,
        replace(resources, process_bytes=resources.process_bytes + held),
        state_bytes=statistic.state_bytes,
        scratch_bytes=statistic.scratch_bytes(profile),
        result_bytes=statistic.result_bytes,
        compiled=getattr(statistic, "compiled", False),
        one_run_per_partition=getattr(source, "holds_blocks", False),
        least_runs=-(-profile.n * (taken + given) * resources.slots // IN_FLIGHT_BYTES) if resources.client else 0,
    )


def _new_outputs(statistic: RowStatistic, n: int) -> list[NDArray[Any]]:
    return [np.empty((n, width), dtype=dtype) for width, dtype in statistic.outputs]


def _stream(
    statistic: RowStatistic, source: Any, first: int, last: int, origin: int, inputs: Rows, outputs: Rows
) -> State:
    """Rows of partitions first..last-1 into a new state and into `outputs`, whose row 0 is row `origin` of X."""
    blocks = source.stream(first, last) if hasattr(source, "stream") else source.blocks()
    state = statistic.zero()
    for block in blocks:
        part = slice(block.start - origin, block.start - origin + block.X.shape[0])
        statistic.add_rows(state, block, [a[part] for a in inputs], [a[part] for a in outputs])
        give_back()
    return state


def _run_here(
    source: RowSource, statistic: RowStatistic, inputs: Rows, outputs: Rows, plan: PassPlan, resources: Resources
) -> tuple[Any, dict[str, int]]:
    threads = min(resources.threads_per_worker, len(plan.runs))
    total: State | None = None
    if threads <= 1:
        for first, last in plan.runs:
            with runtime.one_blas_thread():
                state = _stream(statistic, source, first, last, 0, inputs, outputs)
            runtime.emit("partitions", done=last - first)
            total = _merged(statistic, total, state)
    else:
        with runtime.one_blas_thread(), runtime.TaskThreads(threads, "mlfs-pass") as pool:
            # No more runs are handed out than threads: finished states must not pile up.
            waiting = list(plan.runs)

            def submit() -> Any:
                first, last = waiting.pop(0)
                return last - first, pool.submit(_stream, statistic, source, first, last, 0, inputs, outputs)

            pending = [submit() for _ in range(threads)]
            while pending:
                done, future = pending.pop(0)
                state = future.result()
                if waiting:
                    pending.append(submit())
                runtime.emit("partitions", done=done)
                total = _merged(statistic, total, state)
    assert total is not None
    return statistic.finalize(total), {passes.process_name(): runtime.peak_rss()}


def _merged(statistic: RowStatistic, total: State | None, state: State) -> State:
    if total is None:
        return state
    statistic.merge(total, state)
    return total


def _run_task(
    statistics: tuple[RowStatistic], source: Any, first: int, last: int, rows: tuple[int, int], inputs: Rows
) -> tuple[list[NDArray[Any]], tuple[list[State], dict[str, int]]]:
    """One run in a task: the rows that it gives, and its state in the form that passes merge."""
    (statistic,) = statistics
    runtime.reset_peak_rss()
    outputs = _new_outputs(statistic, rows[1] - rows[0])
    with runtime.one_blas_thread():
        state = _stream(statistic, source, first, last, rows[0], inputs, outputs)
    runtime.emit_from_task("partitions", done=last - first)
    return outputs, ([state], {passes.process_name(): runtime.peak_rss()})


def _run_there(
    source: RowSource, statistic: RowStatistic, inputs: Rows, outputs: Rows, plan: PassPlan, resources: Resources
) -> tuple[Any, dict[str, int]]:
    from dask.delayed import delayed

    held = delayed((statistic,), name=f"mlfs-statistics-{os.urandom(8).hex()}", traverse=False)
    blocks = getattr(source, "delayed_blocks", None)
    whole = delayed(source, name=f"mlfs-source-{os.urandom(8).hex()}", traverse=False) if blocks is None else None
    run = delayed(_run_task, pure=False, nout=2)
    width = sum(a.nbytes // max(len(a), 1) for a in [*inputs, *outputs])
    merged: list[Any] = []
    finished: tuple[list[Any], dict[str, int]]
    for wave in _waves(plan.runs, source.row_offsets, width):
        bounds = [(int(source.row_offsets[first]), int(source.row_offsets[last])) for first, last in wave]
        slices: list[Any] = [[a[low:high] for a in inputs] for low, high in bounds]
        if resources.client is not None and inputs:
            slices = passes.send(slices, resources)
            give_back()
        ran = [
            run(held, whole if blocks is None else blocks(first), first, last, bound, part)
            for (first, last), bound, part in zip(wave, bounds, slices, strict=True)
        ]
        states = [*merged, *(state for _, state in ran)]
        given = [rows for rows, _ in ran] if outputs else []
        if wave[-1] == plan.runs[-1]:
            graphs = [*given, passes.merge_tree(held, states, plan.fan_in)]
            *pieces, finished = passes.compute_graphs(graphs, plan, resources)
        else:
            graphs = [*given, passes.merge_partials(held, states, plan.fan_in)]
            *pieces, partial = passes.compute_graphs(graphs, plan, resources, left_there=1)
            merged = [partial]
        for (low, high), piece in zip(bounds, pieces, strict=bool(pieces)):
            for array, rows in zip(outputs, piece, strict=True):
                array[low:high] = rows
        # What the graphs refer to stays on the workers: not while the next wave arrives.
        del slices, ran, states, graphs, given, pieces
        give_back()
    results, peaks = finished
    return results[0], peaks


def _waves(runs: Sequence[tuple[int, int]], offsets: NDArray[np.int64], width: int) -> Iterator[list[tuple[int, int]]]:
    """Runs one after another, so many at a time that their rows, of `width` bytes, stay within `IN_FLIGHT_BYTES`."""
    wave: list[tuple[int, int]] = []
    held = 0
    for first, last in runs:
        size = int(offsets[last] - offsets[first]) * width
        if wave and held + size > IN_FLIGHT_BYTES:
            yield wave
            wave, held = [], 0
        wave.append((first, last))
        held += size
    if wave:
        yield wave
