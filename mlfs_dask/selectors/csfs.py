"""CSFS: a row-sparse regression that fits unknown labels as they are predicted, within [0, 1].

X. Chang, F. Nie, Y. Yang, H. Huang, "A convex formulation for semi-supervised multi-label feature selection", AAAI
Conference on Artificial Intelligence 28 (2014) 1171-1177.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Annotated

from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.loop import Loop, Shares
from mlfs_dask.selectors.parameters import GramCap, Param
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.reweighted_regression import At, ReweightedRegression
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.gram import GRAM_CAP, Gram
from mlfs_dask.statistics.reweighted_rows import ReweightedRows, WeightedSums
from mlfs_dask.typing import Array


@dataclass
class Fixed(Shares):
    """Constants of the iterations."""

    gram: Annotated[Array, "d d", "X'X"]


@method(
    "csfs", "Convex semi-supervised feature selection", paper="Chang, Nie, Yang & Huang 2014, AAAI, 1171-1177", doi=""
)
class CSFS(ReweightedRegression[Fixed]):
    """Convex semi-supervised multi-label feature selection (CSFS; Chang, Nie, Yang & Huang 2014).

    Minimises Σ_i ‖x_iW + b − f_i‖² + α Σ_f ‖w_f‖ over W, b and the labels f_i of the rows: known entries are 0 or 1,
    and unknown ones any number between. An unknown entry adds the squared distance of its prediction from [0, 1], so
    that the problem is convex and there is one minimum. A feature's score is the norm of its row of W.

    Notes
    -----
    Features are standardised over all rows, by algebra where X is sparse. Passes over X: one for moments and X'X,
    one at W = 0, and one per iteration, in which the labels of each row are made, added to sums and discarded. More
    than `gram_cap` features are refused. Any entries may be unknown (-1), and rows of which nothing is known count
    where predictions leave [0, 1].

    What differs from the paper: α is relative to the least weight at which W = 0. There are up to 10 reweightings
    of the features an iteration. In the authors' program the penalty has twice the weight that is reported, and
    labelled rows without a positive label count as unlabelled. Up to the scale of the features α = 1 of the program
    is alpha=2 with absolute=True.

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
    gram_cap: GramCap = GRAM_CAP

    caps_features = True
    name = "CSFS"
    penalty = "alpha"
    records = Fixed, At
    supervision = "semi-supervised: labels may be unknown"
    unknown_entry = "is fitted or recovered inside the method"
    typical_iterations = 3, 20
    passes = "2 + 1 an iteration"
    memory = "worker: 8 bytes * (d² + 2 d q); driver: 8 bytes * (3 d² + 8 d q)"

    workspace = f"{row_sparse.SQUARE_MATRICES} d d + 6 d q"  # factors of X'X, X'F and what follows it

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        return Loop.reads(self, profile) | {"gram": Gram(profile.d)}  # copies of a feature keep their own scores

    def first_step(self, fixed: Fixed, at: At, sums: WeightedSums, trace: LoopTrace) -> At:
        critical = row_sparse.critical_weight(sums.centred_products())
        weight = penalty_weight(self, "alpha", critical, trace.penalties)
        return self.step(fixed, replace(at, weight=weight), sums, 1.0)

    def rows(self, fixed: Fixed, at: At) -> Statistic:
        return ReweightedRows(fixed.scaling, at.W, at.b, None, gram=False)

    def step(self, fixed: Fixed, at: At, sums: WeightedSums, power: float) -> At:
        W, epsilon = row_sparse.reweight(fixed.gram, sums.centred_products(), at.weight, at.W, at.epsilon)
        return At(W, sums.Y / sums.total, at.weight, epsilon)
