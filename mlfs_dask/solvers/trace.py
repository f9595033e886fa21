"""The trace of a loop: values of every iteration, for progress displays, checkpoints and run records."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from mlfs_dask import runtime

logger = logging.getLogger(__name__)


@dataclass
class LoopTrace:
    """Values of every iteration.

    Attributes
    ----------
    objective : list of float
    converged : bool
        Whether the loop ended by its own rule.
    values : dict of list
        What a method records beside the objective, by name.
    penalties : dict of float
        Weights of the penalties, and the least ones at which the first W is 0.
    """

    objective: list[float] = field(default_factory=list)
    converged: bool = False
    values: dict[str, list[float]] = field(default_factory=dict)
    penalties: dict[str, float] = field(default_factory=dict)

    @property
    def iterations(self) -> int:
        """Number of iterations so far."""
        return len(self.objective)

    def add(self, objective: float, **values: float) -> None:
        """Append an iteration, with values of the method, and report it as a progress event."""
        self.objective.append(float(objective))
        self.record(**values)
        runtime.emit("step", number=self.iterations, objective=self.objective[-1], **values)
        logger.info("step %d: objective %.9g", self.iterations, self.objective[-1])

    def record(self, **values: float) -> None:
        """Append values to the lists of their names."""
        for name, value in values.items():
            self.values.setdefault(name, []).append(value)

    @property
    def change(self) -> float:
        """Relative change of the objective in the last iteration."""
        if len(self.objective) < 2:
            return math.inf
        before, now = self.objective[-2:]
        return abs(now - before) / abs(before) if before else abs(now)

    def facts(self) -> dict[str, Any]:
        """Return everything, as plain data of which `type(trace)(**facts)` makes the trace again."""
        return asdict(self)


def ratio(part: float | np.floating, whole: float | np.floating, nothing: float = 0.0) -> float:
    """Return part / whole; 0 of a whole that is nothing."""
    return float(part) / float(whole) if whole > nothing else 0.0
