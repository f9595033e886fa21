"""After SMLFS: a sparse logistic regression whose weights are alike in features, and in labels, that go together.

The logistic loss is touched from above by a quadratic with X'X/4, which no iteration changes: one pass gives the
slope, and what follows is a sparse least squares on the driver. Between two passes the slope is predicted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.heat_kernel import column_graph
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.costs import Readings
from mlfs_dask.selectors.loop import Loop, Scaled
from mlfs_dask.selectors.parameters import Absolute, GramCap, MaxIter, Missing, Param, StepsPerPass, seed_of
from mlfs_dask.selectors.regression import penalty_weight, require_labelled
from mlfs_dask.selectors.reweighted_regression import At
from mlfs_dask.selectors.scores import SOLVED_BITS, round_scores
from mlfs_dask.solvers import proximal
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.statistics.gram import GRAM_CAP, Gram, scale_gram
from mlfs_dask.statistics.label_statistics import graph_laplacian, label_cosines
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.logistic_rows import LogisticRows, LogisticSums
from mlfs_dask.statistics.products import label_products
from mlfs_dask.statistics.scaling import standard_scaling
from mlfs_dask.typing import Array, Seed

#: ε of the penalty, relative to the root mean square of the norms of rows of the first W.
SMOOTHING = 0.1

#: Change of W, relative to W, at which the steps of an iteration end, and their maximum number.
STEP_TOL, STEPS = 1e-3, 200


@dataclass
class Fixed(Scaled):
    """Constants of the iterations; the centre is that of the labelled rows."""

    features: Annotated[Array, "d d", "2αnL_F"]
    quadratic: Annotated[Array, "d d", "X'X/4 of the labelled rows + 2αnL_F"]
    labels: Annotated[Array, "q q", "2βnL_Y"]
    n: Annotated[float, "", "labelled rows"]


@method(
    "smlfs",
    "Local logic information (after SMLFS)",
    paper="after Zhang, Ma, Yang, Zhu & Yang 2021, Advances in Computational Intelligence 1, 7",
    doi="10.1007/s43674-021-00008-6",
)
class SMLFS(Loop[Fixed, At]):
    """Semi-supervised multi-label feature selection with local logic information, after Zhang et al. 2021.

    The paper's text was not available; the method computes the following. Minimises Σ_il [log(1 + e^a) − y a] + αn
    tr W'L_F W + βn tr W L_Y W' + γ Σ_f ‖w_f‖^p over W and b, the logistic loss of a = x_iW + b over the n labelled
    rows: weights are similar for near features, and for labels that often occur together. L_F is the Laplacian of a
    graph of the features over all rows, in which each is joined with its nearest ones by exp(−d²/w), w being the
    mean of these squared distances d²; L_Y is that of the cosines of the columns of Y over the labelled rows. A
    feature's score is the norm of its row of W.

    Notes
    -----
    Passes over X: one for moments and sums, and one per iteration, in which the quadratic that touches the loss
    from above is moved to the last W; no iteration raises the objective. Up to `steps_per_pass` moves are made
    between two passes, for which p(1 − p) of a row, the second derivative of its loss, is taken to be the mean
    over the rows, label by label: on ten sets the objective of one move a pass is reached after 2 to 9 passes in
    place of 4 to 31 (`benchmarks/gram.py predicted`). More than `gram_cap` features are refused. Features are
    standardised over all rows. Rows with an unknown label (-1) have a part in the graph of the features alone. γ
    counts relative to the least at which W = 0 for p = 1. For p < 1 there are many minima, and the loop begins with
    the solution for p = 1.

    References
    ----------
    Y. Zhang, Y. Ma, X. Yang, H. Zhu, T. Yang, "Semi-supervised multi-label feature selection with local logic
    information preserved", Advances in Computational Intelligence 1 (2021) 7, doi:10.1007/s43674-021-00008-6.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.SMLFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    alpha: Annotated[float, Param("Weight of the graph of the features, relative to the labelled rows.")] = 0.01
    beta: Annotated[float, Param("Weight of the correlation of the labels, relative to the labelled rows.")] = 0.1
    gamma: Annotated[
        float, Param("Weight of the penalty, relative to the least weight at which W = 0 for p = 1.", above=0)
    ] = 0.1
    absolute: Absolute = False
    p: Annotated[float, Param("Power of the norms of rows of W in the penalty.", above=0, most=1)] = 1.0
    n_neighbors: Annotated[int, Param("Number of nearest features to which a feature is connected.")] = 5
    gram_cap: GramCap = GRAM_CAP
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 0.0001
    max_iter: MaxIter = 40
    steps_per_pass: StepsPerPass = 8
    missing: Missing = "error"
    random_state: Annotated[Seed, seed_of("the sample of rows for medians")] = None

    caps_features = True
    name = "SMLFS"
    records = Fixed, At
    predicts = LogisticSums
    supervision = "semi-supervised: rows with unknown labels have a part in the graph of the features"
    unknown_entry = "makes its row unlabelled, which counts in the graph at most"
    typical_iterations = 3, 15
    passes = "1 + 1 an iteration"
    memory = "worker: 8 bytes * (2 d² + 2 q d); driver: 8 bytes * (4 d² + 12 q d)"

    setup_workspace = "2 d d"  # X'X, and who is near
    workspace = f"{proximal.FEATURE_MATRICES + 3} d q"

    def reads(self, profile: Profile) -> dict[str, Statistic]:
        return super().reads(profile) | {
            "gram": Gram(profile.d),
            "labelled": OfLabelled(Gram(profile.d)),
            "sums": OfLabelled(label_products(profile)),
        }

    def setup(self, job: Readings, results: dict[str, Any]) -> Fixed:
        sums, factor = results["sums"], standard_scaling(results["moments"]).factor
        require_labelled(sums.n)
        features = column_graph(scale_gram(results["gram"], factor), self.n_neighbors)
        features *= -2.0 * self.alpha * sums.n
        features[np.diag_indices_from(features)] -= features.sum(axis=1)
        quadratic = scale_gram(results["labelled"], factor)
        quadratic *= 0.25
        quadratic += features
        labels = 2.0 * self.beta * sums.n * graph_laplacian(label_cosines(sums.pairs))
        return Fixed(sums.mean, factor, features, quadratic, labels, float(sums.n))

    def start(self, job: Readings, fixed: Fixed, results: Mapping[str, Any], trace: LoopTrace) -> At:
        """Return a first step from W = 0, where b tells the shares of the labels; without a pass."""
        sums = results["sums"]
        share = np.clip(sums.positives / fixed.n, 0.5 / fixed.n, 1.0 - 0.5 / fixed.n)
        slope = sums.scaled_products(fixed.factor).T
        gamma = penalty_weight(self, "gamma", float(row_norms(slope).max(initial=0.0)), trace.penalties) or 1.0
        at = At(np.zeros(slope.shape), np.log(share / (1.0 - share)), gamma, 0.0)
        at = self._step(fixed, at, slope, np.ones(len(slope)))
        norms = row_norms(at.W)[fixed.factor > 0]  # constant features have no part in it
        return replace(at, epsilon=SMOOTHING * float(np.sqrt((norms**2).mean())) if len(norms) else 0.0)

    def rows(self, fixed: Fixed, at: At) -> Statistic:
        return OfLabelled(LogisticRows(fixed.scaling, at.W, at.b))

    def objective(self, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> dict[str, float]:
        W, norms = at.W, row_norms(at.W)
        graphs = 0.5 * float(np.vdot(W, fixed.features @ W + W @ fixed.labels))
        penalty = float(((norms + at.epsilon) ** self.p - at.epsilon**self.p).sum())
        return {"objective": float(sums[0].loss[0]) + graphs + at.weight * penalty}

    def update(self, job: Readings, fixed: Fixed, at: At, sums: list[Any], trace: LoopTrace) -> At:
        # The power of a norm is touched from above by a line.
        norms = np.maximum(row_norms(at.W) + at.epsilon, np.finfo(float).tiny)
        at = self._step(fixed, at, sums[0].XT, self.p * norms ** (self.p - 1.0))
        return replace(at, b=4.0 / fixed.n * sums[0].T)

    def _step(self, fixed: Fixed, at: At, right: Array, weights: Array) -> At:
        """Return W at the minimum of the quadratic that touches the loss at the last one."""
        W = proximal.solve(
            fixed.quadratic, right, fixed.labels, rows=at.weight * weights, start=at.W, tol=STEP_TOL, max_iter=STEPS
        ).W
        return replace(at, W=W)

    def predict(self, fixed: Fixed, at: At, sums: LogisticSums, after: At) -> dict[str, Array] | None:
        """Return the change of X'T and 1'T where p(1 − p) is the same in all rows."""
        dW, excess = after.W - at.W, 1.0 - 4.0 / fixed.n * sums.curvature
        return {
            "XT": excess * (fixed.quadratic @ dW - fixed.features @ dW),
            "T": excess * (0.25 * fixed.n) * (after.b - at.b),
        }

    def loop_scores(self, fixed: Fixed, at: At) -> Array:
        return round_scores(row_norms(at.W), SOLVED_BITS)

    def facts(self, fixed: Fixed, at: At) -> dict[str, Any]:
        return {"labelled_rows": int(fixed.n)}
