"""Inputs, results and saved states that the exact forms have in common."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.engine.checkpoints import Arrays, Checkpoint
from mlfs_dask.solvers.trace import LoopTrace

Array = NDArray[np.float64]


class FeatureMoments(Protocol):
    """Moments of every feature over all rows."""

    @property
    def n(self) -> int | float:
        """Rows."""

    @property
    def mean(self) -> Array:
        """Shape (d,)."""

    @property
    def m2(self) -> Array:
        """Sum of squared deviations, shape (d,); exactly 0 for a constant feature."""


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
