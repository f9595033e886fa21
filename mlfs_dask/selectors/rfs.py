"""RFS: a regression whose loss and penalty are sums of norms of rows (Nie, Huang, Cai & Ding 2010).

F. Nie, H. Huang, X. Cai, C. Ding, "Efficient and robust feature selection via joint ℓ2,1-norms minimization", Advances
in Neural Information Processing Systems 23 (2010) 1813-1821.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.loop import Loop, Scaled
from mlfs_dask.selectors.parameters import MaxIter, Missing, Param, seed_of
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.reweighted_rows import ReweightedRows, WeightedSums
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Seed

Array = NDArray[np.float64]

#: e of the loss √(‖r‖² + e²). A row that is met exactly has weight 1/(2e), and where e is tiny it holds its own
#: prediction: the loop stops above the minimum. With e = 0.1 it ends 1e-4 off.
ROW_SMOOTHING = 0.05

#: The same in the published form. The authors' program has 2**-26, which leaves 1e-9 of the scores to the order of the
#: rows' sums where rows are met exactly; scores of the two differ by 3e-9.
PUBLISHED_SMOOTHING = 2.0**-20

#: ε of the penalty in the published form, times γ.
PUBLISHED_EPSILON = 2.0**-26

#: Name of the reading in which W = 0.
START = "start"


@dataclass
class Fixed(Scaled):
    """What no iteration changes."""

    share: Annotated[Array, "q"]

    @property
    def varies(self) -> NDArray[np.bool_]:
        """Labels that differ between rows, shape (q,)."""
        return (self.share > 0) & (self.share < 1)


@dataclass
class At:
    """The small variables; γ as it is, and ε of the penalty."""

    W: Annotated[Array, "d q"]
    b: Annotated[Array, "q"]
    gamma: Annotated[float, ""]
    epsilon: Annotated[float, ""]


@method("rfs", "Robust feature selection", paper="Nie, Huang, Cai & Ding 2010, NIPS 23, 1813-1821", doi="")
class RFS(Loop[Fixed, At]):
    """Robust feature selection by joint L2,1-norms (Nie, Huang, Cai & Ding 2010).

    Minimises Σ_i ‖x_iW + b − y_i‖ + γ Σ_f ‖w_f‖ over W and b. The loss is a norm and not its square, so that rows far
    off count less; the penalty makes rows of W zero. A feature's score is the norm of its row of W.

    Notes
    -----
    Features are standardised with the population standard deviation, by algebra where X is sparse. Both norms are
    reweighted: W is the ridge regression with weights 1/(2‖r_i‖) of rows and 1/(2‖w_f‖) of features. New weights of
    rows take a reading, those of features none: there are up to 10 of these in an iteration. Readings of X: one for
    moments, one at W = 0, and one an iteration. A worker and the driver hold 8 d² bytes, the driver 24 d² more.

    What differs from the paper: b is free, and not penalised; γ is relative to the least at which W = 0 where b are the
    shares of the labels; a norm ‖r‖ of a row is √(‖r‖² + 0.05²), since a row that is met exactly would hold its own
    prediction for ever. The published form has a constant feature, which is penalised, in place of b, γ as it is, the
    sample standard deviation, one reweighting an iteration, and smoothing of 1e-6 in place of 0.05.

    References
    ----------
    F. Nie, H. Huang, X. Cai, C. Ding, "Efficient and robust feature selection via joint ℓ2,1-norms minimization",
    Advances in Neural Information Processing Systems 23 (2010) 1813-1821.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    >>> selector = mlfs.RFS(n_features_to_select=1).fit(X, Y)
    >>> selector.ranking_.tolist(), selector.scores_[2]
    ([0, 1, 2], np.float64(0.0))
    """

    gamma: Annotated[
        float,
        Param("Weight of the penalty, relative to the least at which W = 0; in the published form as it is.", above=0),
    ] = 0.1
    variant: Annotated[
        Literal["corrected", "published"],
        Param('"corrected" has a free intercept and smoothed norms of rows. "published" is the authors\' iteration.'),
    ] = "corrected"
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 0.0001
    max_iter: MaxIter = 45
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample of rows for medians")] = None

    name = "RFS"
    records = Fixed, At
    typical_iterations = 5, 12
    passes = "2 + 1 an iteration"
    memory = "worker: 8 bytes * (d² + 2 d q); driver: 8 bytes * (4 d² + 8 d q)"

    workspace = f"{2 + row_sparse.SQUARE_MATRICES} d d + 6 d q"  # X'SX and its factors, X'SY and what follows it

    @property
    def _published(self) -> bool:
        return self.variant == "published"

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        return Cost(steps=[Reading(START, tuple(self.reading(fixed, at)))])

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        moments, n = results["moments"], job.source.profile.n
        scaling = standard_scaling(moments)
        factor = scaling.factor * np.sqrt((n - 1) / n) if self._published else scaling.factor
        return Fixed(scaling.centre, factor, results["labels"].positive / n)

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        at = At(np.zeros((len(fixed.centre), len(fixed.share))), fixed.share, float(self.gamma), 0.0)
        if self._published:  # rows have weight 1
            return self._step(fixed, at, job.run(START, ReweightedRows(fixed.scaling, at.W, at.b, None))[0])
        sums: WeightedSums = job.run(START, *self.reading(fixed, at))[0]
        slope = (sums.XY - np.outer(sums.X, at.b))[:, fixed.varies]
        critical = 2.0 * float(row_norms(slope).max(initial=0.0))
        return self._step(fixed, replace(at, gamma=at.gamma * critical), sums)

    def reading(self, fixed: Fixed, at: At) -> Sequence[Statistic]:
        smoothing = PUBLISHED_SMOOTHING if self._published else ROW_SMOOTHING
        return [ReweightedRows(fixed.scaling, at.W, at.b, smoothing)]

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        rows: WeightedSums = sums[0]
        norms = float(row_norms(np.vstack([at.b, at.W] if self._published else [at.W])).sum())
        return {"objective": float(rows.loss[0]) + at.gamma * norms}

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        return self._step(fixed, at, sums[0])

    def _step(self, fixed: Fixed, at: At, sums: WeightedSums) -> At:
        """W and the weights of the features in turn, and b. In the published form b is a row of W, and weights once."""
        if self._published:
            G, B = sums.with_constant()
            W, epsilon = np.vstack([at.b, at.W]), at.epsilon
            t = row_sparse.weights(W, epsilon) if epsilon else np.full(len(W), 1.0 / at.gamma)
            W = row_sparse.solve_gram(G, B, at.gamma, t, start=W).P
            return At(W[1:], W[0], at.gamma, PUBLISHED_EPSILON / at.gamma)
        G, B = sums.centred()
        B[:, ~fixed.varies] = 0.0  # what rounding leaves of it
        W, epsilon = row_sparse.reweight(G, B, at.gamma, at.W, at.epsilon)
        return At(W, (sums.Y - sums.X @ W) / sums.total, at.gamma, epsilon)

    def loop_scores(self, fixed: Fixed, at: At) -> Array:
        return row_norms(at.W)
