"""After LFFS: few features that are not redundant tell latent labels, of which those are taken that go together.

The latent labels are linear in the data, so that sums of features, labels and anchor weights are all that is needed.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree, centred_labels
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.latent_span import Span, solve
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.label_statistics import graph_laplacian, label_cosines
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@method(
    "lffs",
    "Label correlations and feature redundancy (after LFFS)",
    paper="after Fan, Chen, Huang, Liu, Weng & Lan 2022, Knowledge-Based Systems 241, 108256",
    doi="10.1016/j.knosys.2022.108256",
)
class LFFS(AnchoredRegression):
    """Label correlations and feature redundancy, after Fan, Chen, Huang, Liu, Weng & Lan 2022.

    The paper's text was not available; the method computes the following. Minimises ‖XW − V‖² + α‖Y − VB‖² + β tr
    V'LV + μ n tr B L_Y B' + δ n tr W'QW + γ Σ_f ‖w_f‖ over n rows, with BB' = I: the k latent labels V of the rows
    are predicted from few features, reproduce the labels, are similar in near rows (L), and labels that often occur
    together have similar parts in them (L_Y, the Laplacian of the cosines of the columns of Y). Correlated features
    do not share weights: Q holds their squared correlations. A feature's score is the norm of its row of W.

    Notes
    -----
    Two passes over X: moments with a sample, among which anchors are placed, and sums. More than `gram_cap`
    features are refused. Features are standardised. No step raises the objective. γ is relative to the least weight
    at which the first W is 0. With as many latent labels as labels tr B L_Y B' is the same for every B, and μ has
    no effect. The graph of the rows is one of anchors.

    References
    ----------
    Y. Fan, B. Chen, W. Huang, J. Liu, W. Weng, W. Lan, "Multi-label feature selection based on label correlations and
    feature redundancy", Knowledge-Based Systems 241 (2022) 108256, doi:10.1016/j.knosys.2022.108256.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> sorted(mlfs.LFFS(n_features_to_select=2, n_latent=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    alpha: Annotated[float, Param("Weight of the labels beside the features.", above=0)] = 1.0
    beta: Annotated[float, Param("Weight of the graph of the rows.")] = 0.1
    mu: Annotated[float, Param("Weight of the correlation of the labels, relative to the number of rows.")] = 0.01
    delta: Annotated[float, Param("Weight of the redundancy of features, relative to the number of rows.")] = 0.1
    gamma: Annotated[float, Param("Weight of the penalty, relative to the least weight at which W = 0.", above=0)] = 0.1
    absolute: Absolute = False
    n_neighbors: MeanDegree = 5
    n_latent: Annotated[int | None, Param("Number of latent labels, at most q; by default half of q, at least 1.")] = (
        None
    )
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 1e-5
    max_iter: MaxIter = 200

    name = "LFFS"
    known_entries = True
    typical_iterations = 8, 83
    memory = "worker: 8 bytes * (d² + q d + m d + m²) for m anchors; driver: 8 bytes * (5 d² + 12 q d + 3 m d)"
    # The sum of X'X and Q, its factors, and systems of anchors.
    workspace = f"3 d d + 8 d l + 4 m m + {AnchoredRegression.workspace}"

    def _latent(self, q: int) -> int:
        return min(q, max(1, q // 2) if self.n_latent is None else self.n_latent)

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        return super().sizes(source) | {"l": self._latent(profile_of(source).q)}

    def scores(self, *, k: int, sums: LabelMoments, gram: Array, graph: AnchorTotals, factor: Array) -> Scores:
        n = float(sums.n)
        XX, XY = self.system(sums, gram, factor)
        G = XX * XX  # standardised: n² times the squared correlations
        G *= self.delta / n
        G += XX
        YY, graph = centred_labels(sums, graph)
        R = self.mu * n * graph_laplacian(label_cosines(sums.pairs))
        span = Span(XX, XY, YY, graph, self.alpha, self.beta * self.n_neighbors, correlation=R)
        # The best B for W = 0, but for the graph of the rows.
        fit = self.alpha**2 / (1.0 + self.alpha) * YY
        facts = {"anchors": len(graph.masses)}
        solution = solve(
            span,
            G,
            np.linalg.eigh(fit - R)[1][:, ::-1][:, : self._latent(len(YY))].T,
            rotates=True,
            weigh=lambda critical: penalty_weight(self, "gamma", critical, facts),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        return self.solved(solution, facts)
