"""Regressions whose loss is a sum of norms of rows: an iteration, one pass, gives rows and features new weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.contract import family
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.loop import F, Loop
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Missing, Param, seed_of
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.column_keys import ColumnKeys
from mlfs_dask.statistics.reweighted_rows import ReweightedRows, WeightedSums
from mlfs_dask.typing import Array, Seed

#: e of the loss √(‖r‖² + e²). A row that is met exactly has weight 1/(2e), and where e is tiny it holds its own
#: prediction: the loop stops above the minimum. With e = 0.1 it ends 1e-4 off.
ROW_SMOOTHING = 0.05

#: Name of the pass in which W = 0.
START = "start"


@dataclass
class At:
    """The small variables; the weight of the penalty as it is, and its ε."""

    W: Annotated[Array, "d q"]
    b: Annotated[Array, "q"]
    weight: Annotated[float, ""]
    epsilon: Annotated[float, ""]


@family
class ReweightedRegression(Loop[F, At]):
    """Base class of regressions that minimise Σ ‖x_iW + b − y_i‖, a quadratic form of W, and a penalty on its rows.

    `Fixed` is a record with `Shares`.
    """

    absolute: Absolute = False
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 0.0001
    max_iter: MaxIter = 45
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample of rows for medians")] = None

    #: What a label is that a row does not have, and one that it has.
    box: ClassVar[tuple[float, float]] = (0.0, 1.0)

    workspace = f"{2 + row_sparse.SQUARE_MATRICES} d d + 6 d q"  # X'SX and its factors, X'SY and what follows it

    #: Parameter of the penalty's weight, relative to the least at which W = 0, or as it is.
    penalty: ClassVar[str] = "gamma"

    @property
    def power(self) -> float:
        """Power of the norms of rows of W in the penalty."""
        return 1.0

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        return super().reads(profile) | {"keys": ColumnKeys(profile.d)}

    def cost_beside(self, profile: Profile, fixed: F, at: At) -> Cost:
        return Cost(steps=[Reading(START, (self.rows(fixed, at),))])

    def quadratic(self, fixed: F) -> Array | None:
        """Return the quadratic form of W, (d, d), if there is one."""
        return None

    def zero(self, fixed: Any) -> At:
        """Return W = 0, and b the shares of the labels."""
        low, high = self.box
        return At(
            np.zeros((len(fixed.centre), len(fixed.share))),
            low + (high - low) * fixed.share,
            float(getattr(self, self.penalty)),
            0.0,
        )

    def start(self, job: Readings, fixed: F, results: Mapping[str, Any], trace: LoopTrace) -> At:
        at = self.zero(fixed)
        sums: WeightedSums = job.run(START, self.rows(fixed, at))[0]
        return self.first_step(fixed, at, sums, trace)

    def first_step(self, fixed: Any, at: At, sums: WeightedSums, trace: LoopTrace) -> At:
        """Return W from the sums at W = 0, which also tell the least weight of the penalty that leaves it there."""
        slope = (sums.XY - np.outer(sums.X, at.b))[:, self._varies(fixed)]
        weight = penalty_weight(self, self.penalty, row_sparse.critical_weight(slope), trace.penalties)
        return self.step(fixed, replace(at, weight=weight), sums, 1.0)

    def _varies(self, fixed: Any) -> NDArray[np.bool_]:
        """Labels of which rounding is not all that centring leaves: those that differ between rows, and zeros."""
        varies: NDArray[np.bool_] = fixed.varies | ((fixed.share == 0) & (self.box[0] == 0))
        return varies

    def rows(self, fixed: Any, at: At) -> Statistic:
        return ReweightedRows(fixed.scaling, at.W, at.b, ROW_SMOOTHING, self.box)

    def objective(self, fixed: F, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        value = float(sums[0].loss[0]) + at.weight * row_sparse.penalty(at.W, at.epsilon, self.power)
        quadratic = self.quadratic(fixed)
        return {"objective": value if quadratic is None else value + float(np.vdot(at.W, quadratic @ at.W))}

    def update(self, job: Readings, fixed: F, at: At, sums: list[Any], trace: LoopTrace) -> At:
        return self.step(fixed, at, sums[0], self.power)

    def step(self, fixed: Any, at: At, sums: WeightedSums, power: float) -> At:
        """Return W and the weights of the features, updated in turn, and b."""
        G, B = sums.centred()
        B[:, ~self._varies(fixed)] = 0.0  # what rounding leaves of it
        quadratic = self.quadratic(fixed)
        if quadratic is not None:
            G += quadratic
        W, epsilon = row_sparse.reweight(G, B, at.weight, at.W, at.epsilon, power)
        return At(W, (sums.Y - sums.X @ W) / sums.total, at.weight, epsilon)
