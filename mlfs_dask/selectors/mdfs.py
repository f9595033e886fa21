"""MDFS: a row-sparse regression on labels that are smooth over the rows and over the labels.

These labels of the rows are linear in the data, so that sums of features, labels and anchor weights are all that is
needed.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree, centred_labels
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.latent_span import Span, solve
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.label_statistics import neighbour_laplacian
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array

#: Neighbours of a label at most by default. With all others as neighbours, as published, the labels of a row are pulled
#: towards their mean.
LABEL_NEIGHBORS = 5


@method(
    "mdfs",
    "Manifold regularized discriminative feature selection",
    paper="Zhang, Luo, Li, Zhou & Li 2019, Pattern Recognition 95, 136-150",
    doi="10.1016/j.patcog.2019.06.003",
)
class MDFS(AnchoredRegression):
    """Manifold regularized discriminative feature selection (MDFS; Zhang, Luo, Li, Zhou & Li 2019).

    Minimises α‖XW + 1b' − F‖² + α‖F − Y‖² + tr F'LF + β tr F L_0 F' + γ Σ_f ‖w_f‖ over W, b and F: the labels F of the
    rows are near the known ones, are predicted from few features, and are similar in near rows (L) and for labels that
    nearly the same rows have (L_0). A feature's score is the norm of its row of W.

    Notes
    -----
    Two passes over X: moments with a sample, among which anchors are placed, and sums. Given W, F is linear in X, Y
    and the rows' weights of anchors, so that F and W in turn need no row: the loop is on the driver, and no step
    raises the objective. More than `gram_cap` features are refused.

    What differs from the paper: the graph of the rows is one of anchors, γ is relative to the least weight at which
    W = 0, and β to the mean degree of the graph of the labels. Each row and each label has q − 1 neighbours in the
    paper, where every label is a neighbour of every other one. On emotions anchors give the best 14 of 72 features
    of the exact graph; with the published graphs a plain loop has the W of the authors' program.

    References
    ----------
    J. Zhang, Z. Luo, C. Li, C. Zhou, S. Li, "Manifold regularized discriminative feature selection for multi-label
    learning", Pattern Recognition 95 (2019) 136-150, doi:10.1016/j.patcog.2019.06.003.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> sorted(mlfs.MDFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    alpha: Annotated[float, Param("Weight of the regression, and of the given labels.", above=0)] = 1.0
    beta: Annotated[float, Param("Weight of the graph of the labels, whose mean degree counts as 1.")] = 1.0
    gamma: Annotated[float, Param("Weight of the penalty, relative to the least weight at which W = 0.", above=0)] = 0.1
    absolute: Absolute = False
    n_neighbors: MeanDegree = 5
    label_neighbors: Annotated[
        int | None,
        Param("Number of neighbours of a label in the graph of the labels; by default 5, at most q − 2.", least=1),
    ] = None
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 1e-5
    max_iter: MaxIter = 200

    takes_numbers = True
    name = "MDFS"
    known_entries = True
    typical_iterations = 5, 40
    workspace = f"2 d d + 8 q d + 4 m m + {AnchoredRegression.workspace}"  # factors of X'X, and systems of anchors

    def _label_laplacian(self, sums: LabelMoments) -> Array:
        wanted = min(LABEL_NEIGHBORS, len(sums.pairs) - 2) if self.label_neighbors is None else self.label_neighbors
        return neighbour_laplacian(sums.pairs, wanted)

    def scores(self, *, k: int, sums: LabelMoments, gram: Array, graph: AnchorTotals, factor: Array) -> Scores:
        XX, XY = self.system(sums, gram, factor)
        YY, graph = centred_labels(sums, graph)
        # F rotated to the eigenvectors of L_0, in which its columns do not interact.
        values, vectors = np.linalg.eigh(self._label_laplacian(sums))
        coupling = np.maximum(values, 0.0) * (self.beta / self.alpha)
        facts = {"anchors": len(graph.masses)}
        solution = solve(
            Span(XX, XY, YY, graph, 1.0, self.n_neighbors / self.alpha, coupling),
            XX,
            vectors.T,
            weigh=lambda critical: penalty_weight(self, "gamma", critical * self.alpha, facts) / self.alpha,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        return self.solved(solution, facts)
