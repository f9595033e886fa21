"""What the exact forms take and give, and how they keep their state."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.checkpoints import Arrays, Checkpoint
from mlfs_dask.solvers.trace import LoopTrace

Array = NDArray[np.float64]


class FeatureMoments(Protocol):
    """Moments of every feature over all rows."""

    @property
    def n(self) -> int:
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
    warnings : list of Warning
        For the caller to issue. Those about labels without a positive row are not among them: they name labels.
    """

    scores: Array
    trace: LoopTrace
    extra: dict[str, Any]
    labels: Array | None = None
    warnings: list[Warning] = field(default_factory=list)


def one_blas_thread(function: Callable[..., ExactFit]) -> Callable[..., ExactFit]:
    """Keep BLAS to one thread while a function runs.

    On a machine of two cores that others used too, a fit of Access-MFS (978 x 1449, 45 labels, 80 iterations) took 84 s
    with two threads of BLAS, which wait for one another, and 9 s with one.
    """

    @functools.wraps(function)
    def limited(*args: Any, **kwargs: Any) -> ExactFit:
        with runtime.one_blas_thread():
            return function(*args, **kwargs)

    return limited


def save_state(checkpoint: Checkpoint, arrays: Arrays, trace: LoopTrace, **facts: Any) -> None:
    """Save the state of a loop, if it is time to."""
    if checkpoint.due():
        checkpoint.save(arrays, {"trace": trace.facts(), **facts})


def convergence_warning(text: str) -> Warning:
    """The warning of selectors for a loop that ended before it converged."""
    from mlfs_dask.selectors.estimator import ConvergenceWarning  # scikit-learn's, but in commands, which do without it

    warning: Warning = ConvergenceWarning(text)
    return warning
