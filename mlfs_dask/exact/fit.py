"""Inputs, results, saved states, and the loop of published programs, that the exact forms have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.checkpoints import Arrays, Checkpoint
from mlfs_dask.errors import MlfsError, parameter
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.typing import Array


@dataclass(frozen=True)
class ExactFit:
    """Result of an exact form.

    Attributes
    ----------
    scores : float64 array, shape (d,)
    trace : LoopTrace
    extra : dict
        Further facts for the record of the run, as plain data.
    labels : float64 array, shape (n, q), or None
        Predicted or recovered labels.
    """

    scores: Array
    trace: LoopTrace
    extra: dict[str, Any]
    labels: Array | None = None


def save_if_due(checkpoint: Checkpoint, arrays: Arrays, trace: LoopTrace, **facts: Any) -> None:
    """Save the state of a loop, if it is time to."""
    if checkpoint.due():
        checkpoint.save(arrays, {"trace": trace.facts(), **facts})


def run_program(
    method: Any,
    begin: Callable[[], Arrays],
    step: Callable[[Arrays], tuple[Arrays, float]],
    *,
    further_cure: str = "",
    has_converged: Callable[[float, float], bool] | None = None,
) -> tuple[Arrays, LoopTrace]:
    """Return the variables that a published program ends with, and its trace.

    Parameters
    ----------
    method : Method
        With `name`, `tol`, `max_iter` and a variant that is corrected.
    begin : callable
        ``begin()`` gives the variables at the start, by name.
    step : callable
        ``step(variables)`` gives those after an iteration, and the objective.
    further_cure : str
        What else to do where the program diverges.
    has_converged : callable, optional
        Whether the loop ends, for the last objective but one and the last; by default where it changes by `tol`.

    Raises
    ------
    MlfsError
        The program diverges.
    """

    def settles(before: float, now: float) -> bool:
        return bool(abs(now - before) <= method.tol * abs(before))

    checkpoint = checkpoints.current()
    state = checkpoint.load()
    at, trace = (begin(), LoopTrace()) if state is None else (state.arrays, LoopTrace(**state.facts["trace"]))
    while trace.iterations < method.max_iter and not trace.converged:
        with np.errstate(over="ignore", invalid="ignore"):
            at, objective = step(at)
        if not np.isfinite(objective):
            raise MlfsError(
                f"{method.name} as published diverged in iteration {trace.iterations + 1}: the objective is not finite"
                f"\n  cure: take {parameter('variant', 'corrected')}{further_cure}"
            )
        trace.add(objective)
        trace.converged = trace.iterations > 1 and (has_converged or settles)(*trace.objective[-2:])
        save_if_due(checkpoint, at, trace)
    return at, trace
