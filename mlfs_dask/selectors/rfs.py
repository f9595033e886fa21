"""RFS: a regression whose loss and penalty are sums of norms of rows (Nie, Huang, Cai & Ding 2010).

F. Nie, H. Huang, X. Cai, C. Ding, "Efficient and robust feature selection via joint ℓ2,1-norms minimization", Advances
in Neural Information Processing Systems 23 (2010) 1813-1821.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

import numpy as np

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.selectors.loop import Shares
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.selectors.reweighted_regression import ROW_SMOOTHING, START, At, ReweightedRegression
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.reweighted_rows import ReweightedRows, WeightedSums

#: The smoothing of rows in the published form. The authors' program has 2**-26, which leaves 1e-9 of the scores to the
#: order of the rows' sums where rows are met exactly; scores of the two differ by 3e-9.
PUBLISHED_SMOOTHING = 2.0**-20

#: ε of the penalty in the published form, times γ.
PUBLISHED_EPSILON = 2.0**-26


@method("rfs", "Robust feature selection", paper="Nie, Huang, Cai & Ding 2010, NIPS 23, 1813-1821", doi="")
class RFS(ReweightedRegression[Shares]):
    """Robust feature selection by joint L2,1-norms (Nie, Huang, Cai & Ding 2010).

    Minimises Σ_i ‖x_iW + b − y_i‖ + γ Σ_f ‖w_f‖ over W and b. The loss is a norm and not its square, so that rows far
    off count less; the penalty makes rows of W zero. A feature's score is the norm of its row of W.

    Notes
    -----
    Features are standardised with the population standard deviation, by algebra where X is sparse. Both norms are
    reweighted: W is the ridge regression with weights 1/(2‖r_i‖) of rows and 1/(2‖w_f‖) of features. New weights of
    rows take a pass, those of features none: there are up to 10 of these in an iteration. Passes over X: one for
    moments, one at W = 0, and one per iteration.

    What differs from the paper: b is free, and not penalised; γ is relative to the least at which W = 0 where b are
    the shares of the labels; a norm ‖r‖ of a row is √(‖r‖² + 0.05²), since a row that is met exactly would hold its
    own prediction for ever. The published form has a constant feature, which is penalised, in place of b, γ as it is,
    the sample standard deviation, one reweighting an iteration, and smoothing of 1e-6 in place of 0.05. In the
    authors' program γ is 1.

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
        Param('Weight of the penalty, relative to the least weight at which W = 0; in "published" absolute.', above=0),
    ] = 0.1
    variant: Annotated[
        Literal["corrected", "published"],
        Param(
            'Variant of the method. "corrected": with a free intercept and smoothed norms of rows. '
            '"published": the authors\' iteration.'
        ),
    ] = "corrected"

    takes_numbers = True
    name = "RFS"
    records = Shares, At
    typical_iterations = 5, 12
    passes = "2 + 1 an iteration"
    memory = "worker: 8 bytes * (d² + 2 d q); driver: 8 bytes * (4 d² + 8 d q)"

    @property
    def _published(self) -> bool:
        return self.variant == "published"

    def setup(self, job: Readings, results: dict[str, Any]) -> Shares:
        fixed, n = super().setup(job, results), job.source.profile.n
        return replace(fixed, factor=fixed.factor * np.sqrt((n - 1) / n)) if self._published else fixed

    def start(self, job: Readings, fixed: Shares, results: Mapping[str, Any], trace: LoopTrace) -> At:
        if not self._published:
            return super().start(job, fixed, results, trace)
        at = self.zero(fixed)  # rows have weight 1
        return self.step(fixed, at, job.run(START, self._rows(fixed, at, None))[0], 1.0)

    def rows(self, fixed: Shares, at: At) -> Statistic:
        return self._rows(fixed, at, PUBLISHED_SMOOTHING if self._published else ROW_SMOOTHING)

    def _rows(self, fixed: Shares, at: At, smoothing: float | None) -> ReweightedRows:
        return ReweightedRows(fixed.scaling, at.W, at.b, smoothing, unknown=fixed.share)

    def objective(self, fixed: Shares, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        if not self._published:
            return super().objective(fixed, at, sums, trace)
        return {"objective": float(sums[0].loss[0]) + at.weight * float(row_norms(np.vstack([at.b, at.W])).sum())}

    def step(self, fixed: Shares, at: At, sums: WeightedSums, power: float) -> At:
        """In the published form b is a row of W, and features get new weights once."""
        if not self._published:
            return super().step(fixed, at, sums, power)
        G, B = sums.with_constant()
        W, epsilon = np.vstack([at.b, at.W]), at.epsilon
        t = row_sparse.weights(W, epsilon) if epsilon else np.full(len(W), 1.0 / at.weight)
        W = row_sparse.solve_gram(G, B, at.weight, t, start=W).P
        return At(W[1:], W[0], at.weight, PUBLISHED_EPSILON / at.weight)
