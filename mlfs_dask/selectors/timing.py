"""Estimate of the seconds of a fit.

One block is read and fed to every statistic of the plan; the seconds a row are multiplied by the rows and the readings.
Work of the driver between readings is counted in floating-point operations, whose rate is measured on one matrix
product, or is tried on rows of that block. All of it is measured on this machine, with its disk and its present load.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from mlfs_dask import runtime
from mlfs_dask.engine.passes import Statistic, is_cached
from mlfs_dask.engine.plan import PassPlan
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import Cost, Plan, Reading, Work
from mlfs_dask.selectors.iterative import filled_placeholders
from mlfs_dask.typing import Block, RowSource

#: Seconds that the scheduler of a cluster takes for a task, and bytes a second of states, parameters and results on
#: their way between its processes.
TASK_SECONDS = 0.002
MESSAGE_RATE = 5e8

#: Seconds that a fit takes of data of a few rows: the plan, the cache, threads and their libraries.
FIT_SECONDS = 0.04

#: Fraction of a block that a statistic is fed at first, and seconds up to which it is then fed the whole.
TRIAL_FRACTION = 1 / 8
BLOCK_SECONDS = 0.3

#: Seconds up to which a trial is made again, since the first may have loaded libraries.
TRIAL_SECONDS = 1.0

#: Rows and columns of the product that tells the speed of the driver.
PRODUCT_SIZE = 512


class _Speed(NamedTuple):
    """Seconds that one statistic takes."""

    loading: float  # once in a process
    row: float
    finalize: float


def estimate_seconds(
    cost_of: Callable[[RowSource, Resources], Cost], source: RowSource, resources: Resources, plan: Plan
) -> Plan:
    """`plan` with its seconds, from a short measurement, mostly under a second: one block of `source` is read.

    Parameters
    ----------
    cost_of : callable
        `cost` of the selector.
    source : RowSource
        One that streams.
    resources : Resources
    plan : Plan
        Of that cost, the source and the resources.

    Returns
    -------
    Plan
        As it was where rows are in a Dask array, whose blocks may take any time.
    """
    if source.residence == "graph":
        return plan
    with filled_placeholders():
        cost = cost_of(source, resources)
    with runtime.one_blas_thread():
        rate = _product_rate()
        started = time.perf_counter()
        with contextlib.closing(source.stream(0, 1)) as blocks:  # type: ignore[type-var]
            block = next(blocks)
            row_reading = (time.perf_counter() - started) / block.X.shape[0]
            totals = np.zeros(3)  # at most, typically at least and at most
            measured: dict[Any, _Speed] = {}
            loading = FIT_SECONDS
            if cost.loads_sklearn:
                loading += _seconds_of(lambda: importlib.import_module("sklearn.ensemble"))
            for step in cost.steps:
                if isinstance(step, str):
                    continue
                seconds = step.flops / rate
                fed = list(step.statistics)
                if isinstance(step, Reading):
                    read = plan.readings[step.name].tasks > 0
                    fed = [statistic for statistic in fed if read and not is_cached(source, statistic)]
                for statistic in fed:
                    if (key := _sizes(statistic)) not in measured:
                        threads = plan.readings[step.name].threads if isinstance(step, Reading) else 1
                        with runtime.finishing_with(1 if resources.client is not None else threads):
                            measured[key] = _measure(statistic, block)
                        loading += measured[key].loading
                speeds = [measured[_sizes(statistic)] for statistic in fed]
                if isinstance(step, Work):
                    seconds += sum(step.rows * speed.row + speed.finalize for speed in speeds)
                    if step.trial is not None:
                        part, parts = step.trial(block)
                        again = first = _seconds_of(part)
                        if first <= TRIAL_SECONDS:
                            again = _seconds_of(part)
                        loading += max(first - again, 0.0)
                        seconds += parts * again
                elif read:
                    seconds += _reading_seconds(
                        source.profile.n, row_reading, fed, speeds, plan.readings[step.name], resources
                    )
                totals += seconds * np.array([step.times, *np.minimum(step.typical or (step.times,) * 2, step.times)])
    most, low, high = (totals + loading).tolist()
    return replace(plan, seconds=most, typical_seconds=(low, high) if plan.typical_passes or low < most else None)


def _sizes(statistic: Statistic) -> tuple[Any, ...]:
    """Equal for statistics that take as long, such as the tiles of one."""
    return type(statistic), statistic.state_bytes, statistic.result_bytes, statistic.parameter_bytes


def _measure(statistic: Statistic, block: Block) -> _Speed:
    rows = block.X.shape[0]
    few = math.ceil(rows * TRIAL_FRACTION)
    part = block._replace(X=block.X[:few], Y=block.Y[:few])
    state = statistic.zero()
    first, again = (_seconds_of(lambda: statistic.add(state, part)) for _ in range(2))
    row = again / few
    if row * rows <= BLOCK_SECONDS:
        # What is done once a block is then in its right proportion.
        row = _seconds_of(lambda: statistic.add(state, block)) / rows
    with np.errstate(divide="ignore", invalid="ignore"):  # of few rows, a resample may have none
        return _Speed(max(first - again, 0.0), row, _seconds_of(lambda: statistic.finalize(state)))


def _seconds_of(function: Callable[[], object]) -> float:
    started = time.perf_counter()
    function()
    return time.perf_counter() - started


def _product_rate() -> float:
    """Floating-point operations a second of a product of matrices, in one thread."""
    X = np.ones((PRODUCT_SIZE, PRODUCT_SIZE))
    X @ X
    return 2 * PRODUCT_SIZE**3 / _seconds_of(lambda: X @ X)


def _reading_seconds(
    n: int,
    row_reading: float,
    statistics: list[Statistic],
    speeds: list[_Speed],
    plan: PassPlan,
    resources: Resources,
) -> float:
    """Seconds of one reading of n rows, without loading."""
    local = not hasattr(resources.client, "scheduler")
    slots = plan.threads if resources.client is None else resources.slots
    cores = runtime.available_cores() if local else slots
    parallel = min(slots, cores, len(plan.runs))
    adding = sum(speed.row for speed in speeds)
    # A thread of its own reads ahead, where there is a core for it.
    row = max(row_reading, adding) if cores > parallel else row_reading + adding
    seconds = n * row / parallel + sum(speed.finalize for speed in speeds) / plan.pieces
    if resources.client is not None:
        states = len(plan.runs) * sum(s.state_bytes for s in statistics)
        messages = sum(s.parameter_bytes * parallel + s.result_bytes for s in statistics)
        seconds += plan.tasks * TASK_SECONDS + (states / parallel + messages) / MESSAGE_RATE
    return seconds
