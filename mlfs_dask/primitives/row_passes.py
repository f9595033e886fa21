"""One reading of X that also takes numbers in for every row, gives numbers out for every row, or both.

`run_pass` reduces rows to something small. Here arrays of n rows that the driver holds travel to the tasks, each task
getting the rows of its own partitions and no others, and rows come back the same way; sums over rows are merged in a
tree as in every pass. In process nothing is copied: kernels read and write slices of the driver's arrays.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.primitives import passes
from mlfs_dask.primitives.passes import PassRecord, State
from mlfs_dask.primitives.plan import PassPlan, plan_pass
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, Profile, RowSource

logger = logging.getLogger(__name__)

Rows = Sequence[NDArray[Any]]


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
    plan = plan_rows(source, statistic, resources, inputs=inputs)
    started = time.perf_counter()
    runtime.emit("pass", label=label, partitions=plan.runs[-1][1] if plan.runs else 0)
    travels = resources.client is not None and not getattr(source, "in_memory", False)
    if travels or getattr(source, "holds_blocks", False):
        outputs, result, peaks = passes.send_again(
            lambda: _run_there(source, statistic, inputs, plan, resources), resources
        )
    else:
        outputs, result, peaks = _run_here(source, statistic, inputs, plan, resources)
    seconds = time.perf_counter() - started
    runtime.emit("pass-done", label=label, seconds=seconds)
    logger.info("%s: %d tasks, %.3f s", label, plan.tasks, seconds)
    return outputs, result, PassRecord(plan.tasks, plan.bytes_read, seconds, max(peaks.values(), default=0))


def plan_rows(
    source: RowSource | Profile,
    statistic: RowStatistic,
    resources: Resources,
    *,
    inputs: Rows = (),
    input_bytes: int = 0,
) -> PassPlan:
    """The plan of one row pass; what a worker holds of the rows that travel is part of its peak.

    Parameters
    ----------
    source, statistic, resources, inputs
        As in `run_row_pass`.
    input_bytes : int
        Bytes of one row of the inputs, where these do not exist yet.

    Raises
    ------
    DoesNotFitError
    """
    profile = source if isinstance(source, Profile) else source.profile
    taken = input_bytes + sum(a.nbytes // max(len(a), 1) for a in inputs)
    given = sum(width * np.dtype(dtype).itemsize for width, dtype in statistic.outputs)
    held = profile.n * given if resources.client is None else -(-profile.n * (taken + given) // resources.workers)
    return plan_pass(
        profile,
        replace(resources, process_bytes=resources.process_bytes + held),
        state_bytes=statistic.state_bytes,
        scratch_bytes=statistic.scratch_bytes(profile),
        result_bytes=statistic.result_bytes,
        compiled=getattr(statistic, "compiled", False),
        one_run_per_partition=getattr(source, "holds_blocks", False),
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
    return state


def _run_here(
    source: RowSource, statistic: RowStatistic, inputs: Rows, plan: PassPlan, resources: Resources
) -> tuple[list[NDArray[Any]], Any, dict[str, int]]:
    outputs = _new_outputs(statistic, source.profile.n)
    threads = min(resources.threads_per_worker, len(plan.runs))
    total: State | None = None
    if threads <= 1:
        for first, last in plan.runs:
            with runtime.one_blas_thread():
                state = _stream(statistic, source, first, last, 0, inputs, outputs)
            runtime.emit("partitions", done=last - first)
            total = _merged(statistic, total, state)
    else:
        with runtime.one_blas_thread(), ThreadPoolExecutor(threads, thread_name_prefix="mlfs-pass") as pool:
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
    return outputs, statistic.finalize(total), {passes.process_name(): runtime.peak_rss()}


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
    source: RowSource, statistic: RowStatistic, inputs: Rows, plan: PassPlan, resources: Resources
) -> tuple[list[NDArray[Any]], Any, dict[str, int]]:
    from dask.delayed import delayed

    offsets = source.row_offsets
    bounds = [(int(offsets[first]), int(offsets[last])) for first, last in plan.runs]
    slices: list[Any] = [[a[low:high] for a in inputs] for low, high in bounds]
    if resources.client is not None and inputs:
        slices = passes.send(slices, resources)
    held = delayed((statistic,), name=f"mlfs-statistics-{os.urandom(8).hex()}", traverse=False)
    blocks = getattr(source, "delayed_blocks", None)
    if blocks is not None:
        sources = [blocks(i) for i in range(len(plan.runs))]
    else:
        sources = [delayed(source, name=f"mlfs-source-{os.urandom(8).hex()}", traverse=False)] * len(plan.runs)
    run = delayed(_run_task, pure=False, nout=2)
    ran = [
        run(held, rows, first, last, bound, part)
        for rows, (first, last), bound, part in zip(sources, plan.runs, bounds, slices, strict=True)
    ]
    final = passes.merge_tree(held, [state for _, state in ran], plan.fan_in)
    graphs = [*[rows for rows, _ in ran], final] if statistic.outputs else [final]
    *pieces, (results, peaks) = passes.compute_graphs(graphs, plan, resources)
    outputs = _new_outputs(statistic, source.profile.n)
    for (low, high), piece in zip(bounds, pieces, strict=bool(pieces)):
        for array, rows in zip(outputs, piece, strict=True):
            array[low:high] = rows
    return outputs, results[0], peaks
