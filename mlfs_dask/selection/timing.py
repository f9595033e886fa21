"""Estimate of the seconds of a fit's passes, measured on one block of data.

The block is read and added to every statistic of the plan. The seconds are multiplied by the numbers of blocks and
passes, and divided by the number of reading threads. The driver's work between passes is not estimated.
"""

from __future__ import annotations

import contextlib
import io
import pickle
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.engine.readings import is_cached
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Block, RowSource
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import Cost, Plan

#: Number of passes from which a plan mentions the time that a store would save.
MANY_READINGS = 6


def estimate_seconds(
    cost_of: Callable[[RowSource, Resources], Cost], source: RowSource, resources: Resources, plan: Plan
) -> Plan:
    """Return `plan` with the estimated seconds of its passes, measured on one block of `source`.

    Parameters
    ----------
    cost_of : callable
        `cost` of the selector.
    source : RowSource
        Source that can be streamed.
    resources : Resources
    plan : Plan
        Plan for this cost, source and resources.

    Returns
    -------
    Plan
        Unchanged for rows in a Dask array, whose blocks may take any time to compute.
    """
    if source.residence == "graph":
        return plan
    cost = cost_of(source, resources)
    # Workers of a running cluster have cores of their own; local workers share the cores of this machine.
    cores = resources.slots if hasattr(resources.client, "scheduler") else runtime.available_cores()
    totals, of_store = np.zeros(3), 0.0  # columns: maximum, then lower and upper typical value
    with runtime.one_blas_thread(), contextlib.closing(source.stream(0, 1)) as blocks:  # type: ignore[type-var]
        started = time.perf_counter()
        block = next(blocks)
        reading = time.perf_counter() - started
        spared = max(reading - _copy_seconds(block), 0) if source.profile.foreign else 0.0
        measured: dict[Any, float] = {}
        for step in cost.steps:
            if isinstance(step, str) or not plan.readings[step.name].tasks:
                continue
            planned = plan.readings[step.name]
            seconds = reading
            for statistic in step.statistics:
                if is_cached(source, statistic):
                    continue
                key = _cost_key(statistic)
                if key not in measured:
                    measured[key] = _seconds_of_add(statistic, block)
                seconds += measured[key]
            threads = planned.threads if resources.client is None else resources.slots
            share = source.profile.n / block.X.shape[0] / min(threads, cores, len(planned.runs))
            of_store += (seconds - spared) * share * step.times
            seconds *= share
            totals += seconds * np.array([step.times, *np.minimum(step.typical or (step.times,) * 2, step.times)])
    most, low, high = totals.tolist()
    notes = [*plan.notes, "the seconds are those of passes; work of the driver between them is not estimated"]
    if source.profile.foreign and plan.passes >= MANY_READINGS:
        notes.append(
            f"each of {plan.passes:,} passes decodes the file, in about {most:.2g} s altogether; from a store they "
            f"would take about {of_store:.2g} s, and `mlfs convert` takes the time of a few passes"
        )
    return replace(plan, seconds=most, typical_seconds=(low, high) if plan.typical_passes else None, notes=tuple(notes))


def _copy_seconds(block: Block) -> float:
    """Return the seconds of copying X of a block twice, which is about the time to read it from a store."""
    arrays = [block.X] if isinstance(block.X, np.ndarray) else [block.X.data, block.X.indices]
    started = time.perf_counter()
    for _ in range(2):
        for array in arrays:
            array.copy()
    return time.perf_counter() - started


class _Pickler(pickle.Pickler):
    """Pickler of statistics that replaces placeholders (arrays without memory) by real arrays."""

    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, np.ndarray) and obj.ndim and not any(obj.strides):
            return _placeholder_values, (obj.shape, obj.dtype)
        return NotImplemented


def _placeholder_values(shape: tuple[int, ...], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return zeros, or small random numbers, which keep linear systems built from them well-conditioned."""
    if dtype.kind != "f":
        return np.zeros(shape, dtype)
    return 1e-3 * np.random.default_rng(0).random(shape)


def _cost_key(statistic: Statistic) -> tuple[Any, ...]:
    """Return a key that is equal for statistics of equal cost, such as tiles of one statistic."""
    return type(statistic), statistic.state_bytes, statistic.result_bytes, statistic.parameter_bytes


def _seconds_of_add(statistic: Statistic, block: Block) -> float:
    """Return the seconds of adding a block the second time: the first loads libraries and touches memory."""
    pickled = io.BytesIO()
    _Pickler(pickled).dump(statistic)
    statistic = pickle.loads(pickled.getvalue())
    state = statistic.zero()
    statistic.add(state, block)
    started = time.perf_counter()
    statistic.add(state, block)
    return time.perf_counter() - started
