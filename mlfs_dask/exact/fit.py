"""Inputs, results, saved states, and the loop of published programs, that the exact forms have in common."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.checkpoints import Arrays, Checkpoint
from mlfs_dask.errors import MlfsError
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
    begin: Callable[[], Arrays],
    step: Callable[[Arrays], tuple[Arrays, float]],
    *,
    name: str,
    cure: str,
    has_converged: Callable[[float, float], bool],
    max_iter: int,
) -> tuple[Arrays, LoopTrace]:
    """The variables that a published program ends with, and its trace.

    Parameters
    ----------
    begin : callable
        ``begin()`` gives the variables at the start, by name.
    step : callable
        ``step(variables)`` gives those after an iteration, and the objective.
    name : str
        Of the method, for messages.
    cure : str
        What to do where the program diverges.
    has_converged : callable
        Whether the loop ends, for the last objective but one and the last.
    max_iter : int

    Raises
    ------
    MlfsError
        The program diverges.
    """
    checkpoint = checkpoints.current()
    state = checkpoint.load()
    at, trace = (begin(), LoopTrace()) if state is None else (state.arrays, LoopTrace(**state.facts["trace"]))
    while trace.iterations < max_iter and not trace.converged:
        with np.errstate(over="ignore", invalid="ignore"):
            at, objective = step(at)
        if not np.isfinite(objective):
            raise MlfsError(
                f"{name} as published diverged in iteration {trace.iterations + 1}: the objective is not finite\n"
                f"  cure: {cure}"
            )
        trace.add(objective)
        trace.converged = trace.iterations > 1 and has_converged(*trace.objective[-2:])
        save_if_due(checkpoint, at, trace)
    return at, trace
