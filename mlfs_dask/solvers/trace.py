"""The trace of a loop: values of every iteration, for progress displays, checkpoints and run records."""

from __future__ import annotations

import logging
import math
from dataclasses import asdict, dataclass, field
from typing import Any

from mlfs_dask import runtime

logger = logging.getLogger(__name__)


@dataclass
class LoopTrace:
    """Values of every iteration. A method adds lists of its own.

    Attributes
    ----------
    objective : list of float
    converged : bool
        Whether the loop ended by its own rule.
    """

    objective: list[float] = field(default_factory=list)
    converged: bool = False

    @property
    def iterations(self) -> int:
        """Number of iterations so far."""
        return len(self.objective)

    def report_progress(self, **values: float) -> None:
        """Emit number, objective and other values of the last iteration as a progress event, and log them."""
        runtime.emit("step", number=self.iterations, objective=self.objective[-1], **values)
        logger.info("step %d: objective %.9g", self.iterations, self.objective[-1])

    @property
    def change(self) -> float:
        """Relative change of the objective in the last iteration."""
        if len(self.objective) < 2:
            return math.inf
        before, now = self.objective[-2:]
        return abs(now - before) / abs(before) if before else abs(now)

    def facts(self) -> dict[str, Any]:
        """Everything, as plain data of which `type(trace)(**facts)` makes the trace again."""
        return asdict(self)

    def lists(self) -> dict[str, list[Any]]:
        """The method's own lists, for the record."""
        return {name: value for name, value in vars(self).items() if isinstance(value, list) and name != "objective"}
