"""CSFS: a row-sparse regression that fits unknown labels as they are predicted, within [0, 1].

X. Chang, F. Nie, Y. Yang, H. Huang, "A convex formulation for semi-supervised multi-label feature selection", AAAI
Conference on Artificial Intelligence 28 (2014) 1171-1177.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Cost, Reading, Readings
from mlfs_dask.selectors.loop import Loop, Shares
from mlfs_dask.selectors.parameters import Absolute, GramCap, MaxIter, Missing, Param, seed_of
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.reweighted_regression import START, At
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.gram import GRAM_CAP, Gram, scale_gram
from mlfs_dask.statistics.reweighted_rows import ReweightedRows, WeightedSums
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Seed


@dataclass
class Fixed(Shares):
    """What no iteration changes."""

    gram: Annotated[Array, "d d", "X'X"]


@method(
    "csfs", "Convex semi-supervised feature selection", paper="Chang, Nie, Yang & Huang 2014, AAAI, 1171-1177", doi=""
)
class CSFS(Loop[Fixed, At]):
    """Convex semi-supervised multi-label feature selection (CSFS; Chang, Nie, Yang & Huang 2014).

    Minimises Σ_i ‖x_iW + b − f_i‖² + α Σ_f ‖w_f‖ over W, b and the labels f_i of the rows: known entries are 0 or 1,
    and unknown ones any number between. An unknown entry adds the squared distance of its prediction from [0, 1], so
    that the problem is convex and there is one minimum. A feature's score is the norm of its row of W.

    Notes
    -----
    Features are standardised over all rows, by algebra where X is sparse. Readings of X: one for moments and X'X,
    one at W = 0, and one an iteration, in which the labels of each row are made, added to sums and discarded. Of
    more than `gram_cap` features it is refused. Any entries may be unknown (-1), and rows of which nothing is known
    count where predictions leave [0, 1].

    What differs from the paper: α is relative to the least at which W = 0. There are up to 10 reweightings of the
    features an iteration. In the authors' program the penalty has twice the weight that is reported, and labelled rows
    without a positive label count as unlabelled. Up to the scale of the features α = 1 of the program is alpha=2 with
    absolute=True.

    References
    ----------
    X. Chang, F. Nie, Y. Yang, H. Huang, "A convex formulation for semi-supervised multi-label feature selection", AAAI
    Conference on Artificial Intelligence 28 (2014) 1171-1177.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.CSFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    alpha: Annotated[float, Param("Weight of the penalty, relative to the least weight at which W = 0.", above=0)] = 0.1
    absolute: Absolute = False
    gram_cap: GramCap = GRAM_CAP
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 0.0001
    max_iter: MaxIter = 45
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample of rows for medians")] = None

    caps_features = True
    name = "CSFS"
    records = Fixed, At
    supervision = "semi-supervised: labels may be unknown"
    unknown_entry = "is fitted or recovered inside the method"
    typical_iterations = 3, 20
    passes = "2 + 1 an iteration"
    memory = "worker: 8 bytes * (d² + 2 d q); driver: 8 bytes * (3 d² + 8 d q)"

    workspace = f"{row_sparse.SQUARE_MATRICES} d d + 6 d q"  # factors of X'X, X'F and what follows it

    def first(self, profile: Profile) -> dict[str, Statistic]:
        return super().first(profile) | {"gram": Gram(profile.d)}

    def cost_beside(self, profile: Profile, fixed: Fixed, at: At) -> Cost:
        return Cost(steps=[Reading(START, tuple(self.reading(fixed, at)))])

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        labels, scaling = results["labels"], standard_scaling(results["moments"])
        share = labels.shares(job.source.profile.n)
        gram = scale_gram(results["gram"], scaling.factor)
        return Fixed(scaling.centre, scaling.factor, share, gram)

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        at = At(np.zeros((len(fixed.centre), len(fixed.share))), fixed.share, 0.0, 0.0)
        sums: WeightedSums = job.run(START, *self.reading(fixed, at))[0]
        critical = row_sparse.critical_weight(sums.centred_products())
        return self._step(fixed, replace(at, weight=penalty_weight(self, "alpha", critical, trace.penalties)), sums)

    def reading(self, fixed: Fixed, at: At) -> Sequence[Statistic]:
        return [ReweightedRows(fixed.scaling, at.W, at.b, None, gram=False)]

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        return {"objective": float(sums[0].loss[0]) + at.weight * row_sparse.penalty(at.W, at.epsilon)}

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        return self._step(fixed, at, sums[0])

    def _step(self, fixed: Fixed, at: At, sums: WeightedSums) -> At:
        """W and the weights of the features in turn, and b."""
        W, epsilon = row_sparse.reweight(fixed.gram, sums.centred_products(), at.weight, at.W, at.epsilon)
        return At(W, sums.Y / sums.total, at.weight, epsilon)

    def loop_scores(self, fixed: Fixed, at: At) -> Array:
        return row_norms(at.W)
