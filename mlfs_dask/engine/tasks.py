"""Tasks of a pass: a run of partitions streamed into states, states merged, and the last one finished.

No block leaves the task that reads it. The same functions run in threads of this process and on the workers of a
cluster.
"""

from __future__ import annotations

import copy
import functools
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ParamSpec, TypeAlias, TypeVar

import numpy as np

from mlfs_dask import runtime
from mlfs_dask.blocks import gates
from mlfs_dask.cluster.workers import code_here
from mlfs_dask.context import assigned
from mlfs_dask.engine.plan import ReadingPlan
from mlfs_dask.engine.statistic import State, Statistic, loads_kernels
from mlfs_dask.errors import MlfsError, is_load_failure
from mlfs_dask.rows.contract import Block, RowSource

_P = ParamSpec("_P")
_T = TypeVar("_T")

#: Seconds between two reports of progress from one task, for every so many tasks of the pass: each report is a message
#: of the worker to the scheduler and of the scheduler to the client.
PROGRESS_SECONDS, PROGRESS_TASKS = 0.3, 64

Peaks: TypeAlias = dict[str, int]
"""Largest resident bytes of any process, by the code that it runs."""


class TaskSystemError(Exception):
    """An OSError that a task raised. A plain OSError at the client says that the connection failed."""

    def __init__(self, number: int | None, text: str, file: str | None) -> None:
        super().__init__(number, text, file)  # as it is pickled

    @property
    def error(self) -> OSError:
        """Error of the task."""
        number, text, file = self.args
        return OSError(text) if number is None else OSError(number, text, file)


class LoadError(Exception):
    """Failure of a library to load in a task.

    Attributes
    ----------
    process, cause : str
        The process that could not load it, and why.
    """

    def __init__(self, process: str, cause: str) -> None:
        super().__init__(process, cause)  # as it is pickled
        self.process, self.cause = process, cause


def _reading_task(function: Callable[_P, _T]) -> Callable[_P, _T]:
    """Let a task of a cluster raise what the client can judge: `LoadError`, and `TaskSystemError` for an OSError."""

    @functools.wraps(function)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> _T:
        try:
            return function(*args, **kwargs)
        except Exception as error:
            worker = runtime.current_worker()
            if worker is None:
                raise
            if is_load_failure(error):
                raise LoadError(worker.local_directory, repr(error)) from None
            if not isinstance(error, OSError):
                raise
            file = None if error.filename is None else str(error.filename)
            raise TaskSystemError(error.errno, error.strerror or str(error), file) from None

    return run


@_reading_task
def read_run(
    statistics: Sequence[Statistic],
    source: RowSource,
    first: int,
    last: int,
    pieces: int = 1,
) -> Any:
    """Stream partitions first..last-1 into new states; a list of them, cut, if there are several pieces."""
    if runtime.current_worker() is not None:
        if loads_kernels(statistics, source.profile.n):
            runtime.prepare_for_kernels()
        runtime.reset_peak_rss()  # of earlier jobs; in the driver's process its own peak counts, too
    states = [s.zero() for s in statistics]
    # Every core already has a task or a thread of ours: BLAS must not bring its own.
    with runtime.one_blas_thread(), assigned(gates.rows_of_pass, source.profile.n):
        try:
            for block in _report_partitions(source, first, last):
                view, part = None, block
                for statistic, state in zip(statistics, states, strict=True):
                    if statistic.view is not view:
                        view = statistic.view
                        part = block if view is None else view.part_of(block)
                    if part.X.shape[0]:
                        statistic.add(state, part)
        except MlfsError as error:
            if runtime.current_worker() is not None:
                # Errors of web clients, which stand behind it, cannot be pickled.
                error.__cause__ = error.__context__ = None
            raise
    if pieces == 1:
        return states, _peak_here()
    (statistic,) = statistics
    parts = statistic.split(states[0], pieces)
    del states
    peaks = _peak_here()
    return [([part], peaks) for part in parts]


def _report_partitions(source: RowSource, first: int, last: int) -> Iterator[Block]:
    """Yield the blocks of partitions first..last-1; from time to time a progress event says how many are done."""
    offsets = source.row_offsets
    tasks = (len(offsets) - 1) / max(last - first, 1)
    pause = PROGRESS_SECONDS * max(tasks / PROGRESS_TASKS, 1.0)
    so_far, reported_at = 0, time.monotonic()
    for block in source.stream(first, last):
        runtime.check_stopped()
        yield block
        if time.monotonic() - reported_at > pause:
            row = block.start + block.X.shape[0]
            done = int(np.searchsorted(offsets, row, side="right")) - 1 - first
            if first + done < last and done > so_far:
                runtime.emit_from_task("partitions", done=done - so_far)
                so_far, reported_at = done, time.monotonic()
    runtime.emit_from_task("partitions", done=last - first - so_far)


@_reading_task
def merge_states(
    statistics: Sequence[Statistic], partials: Sequence[tuple[list[State], Peaks]]
) -> tuple[list[State], Peaks]:
    """Merge partials into a copy of the first: a task's inputs belong to Dask and may be read again."""
    # A copy, not the identity: pieces of states are smaller than whole ones.
    states, peaks = copy.deepcopy(partials[0])
    for others, other_peaks in partials[1:]:
        for statistic, state, part in zip(statistics, states, others, strict=True):
            statistic.merge(state, part)
        _keep_largest(peaks, other_peaks)
    _keep_largest(peaks, _peak_here())
    return states, peaks


@_reading_task
def finalize_states(
    statistics: Sequence[Statistic],
    partial: tuple[list[State], Peaks],
    piece: int = 0,
    pieces: int = 1,
) -> tuple[list[Any], Peaks]:
    states, peaks = partial
    if pieces > 1:
        (statistic,) = statistics
        results = [statistic.finalize_piece(states[0], piece, pieces)]
    else:
        results = [s.finalize(state) for s, state in zip(statistics, states, strict=True)]
    peaks = dict(peaks)
    _keep_largest(peaks, _peak_here())
    return results, peaks


def join_pieces(
    statistics: Sequence[Statistic], finished: Sequence[tuple[list[Any], Peaks]]
) -> tuple[list[Any], Peaks]:
    """Put the results of all pieces together, in their order."""
    peaks: Peaks = {}
    for _, piece_peaks in finished:
        _keep_largest(peaks, piece_peaks)
    (statistic,) = statistics
    return [statistic.join([results[0] for results, _ in finished])], peaks


def _peak_here() -> Peaks:
    """Return the peak resident bytes of this process by the code that it runs (a single code without a cluster)."""
    return {"" if runtime.current_worker() is None else code_here(): runtime.peak_rss()}


def _keep_largest(into: Peaks, other: Peaks) -> None:
    for name, peak in other.items():
        into[name] = max(peak, into.get(name, 0))


def run_in_threads(source: RowSource, statistics: Sequence[Statistic], plan: ReadingPlan) -> tuple[list[Any], Peaks]:
    """Return the pass in threads of this process, merged in order as runs finish."""
    threads = min(plan.threads, len(plan.runs))
    if threads <= 1:
        return finalize_states(statistics, read_run(statistics, source, 0, source.profile.partitions))
    with runtime.TaskThreads(threads, "mlfs-read") as pool:
        # No more runs are handed out than threads: finished partials must not pile up.
        waiting = list(plan.runs)

        def submit() -> Any:
            first, last = waiting.pop(0)
            return pool.submit(read_run, statistics, source, first, last)

        pending = [submit() for _ in range(threads)]
        merged: tuple[list[State], Peaks] | None = None
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
    return finalize_states(statistics, merged)
