"""After LSMR: a regression on labelled rows whose predictions are smooth over all rows, and over the labels.

X'X, X'Y and Y'Y of the labelled rows, and X'X and Z'X of all of them, are all that it needs.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree, add_smoothness
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.proximal import solve
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.gram import scale_gram
from mlfs_dask.statistics.label_statistics import graph_laplacian, label_cosines
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@method(
    "lsmr",
    "Laplacian-based regression (after LSMR)",
    paper="after Kraus, Benabdeslem & Canitia 2020, IJCNN, 1-8",
    doi="",
)
class LSMR(AnchoredRegression):
    """Laplacian-based semi-supervised multi-label regression, after Kraus, Benabdeslem & Canitia 2020.

    The paper's text was not available; the method computes the following. Minimises ‖XW + 1b' − Y‖² + α tr
    (XW)'L(XW) + μ n tr W L_Y W' + γ Σ_f ‖w_f‖ over W and b, the first term over the n labelled rows, the second
    over all rows: predictions are similar in near rows, and weights are similar for labels that often occur
    together. L_Y is the Laplacian of the cosines of the columns of Y over the labelled rows. A feature's score is
    the norm of its row of W.

    Notes
    -----
    Two passes over X: moments with a sample, among which anchors are placed, and sums. More than `gram_cap`
    features are refused. Features are standardised over all rows. Rows with an unknown label (-1) enter the graph
    only. γ is relative to the least weight at which W = 0. The graph of the rows is one of anchors.

    References
    ----------
    V. Kraus, K. Benabdeslem, B. Canitia, "Laplacian-based semi-supervised multi-label regression", International Joint
    Conference on Neural Networks (2020) 1-8.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.LSMR(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    alpha: Annotated[float, Param("Weight of the graph of the rows.")] = 0.01
    mu: Annotated[float, Param("Weight of the correlation of the labels, relative to the labelled rows.")] = 0.1
    gamma: Annotated[float, Param("Weight of the penalty, relative to the least weight at which W = 0.", above=0)] = 0.1
    absolute: Absolute = False
    n_neighbors: MeanDegree = 5
    tol: Annotated[float, Param("Relative change of W in one iteration at which the loop stops.")] = 1e-5
    max_iter: MaxIter = 1000

    learns_from_labelled = True
    name = "LSMR"
    supervision = "semi-supervised: rows with unknown labels have a part in the graph"
    unknown_entry = "makes its row unlabelled, which counts in the graph at most"
    typical_iterations = 40, 400
    memory = "worker: 8 bytes * (2 d² + q d + m d) for m anchors; driver: 8 bytes * (4 d² + 12 q d + 3 m d)"
    workspace = f"2 d d + {AnchoredRegression.workspace}"  # the term of the graph, and its sum with X'X

    def scores(
        self, *, k: int, sums: LabelMoments, labelled: Array, gram: Array, graph: AnchorTotals, factor: Array
    ) -> Scores:
        G, B = self.system(sums, labelled, factor)
        add_smoothness(self.alpha * self.n_neighbors, G, scale_gram(gram, factor), graph)
        R = self.mu * sums.n * graph_laplacian(label_cosines(sums.pairs))
        critical = float(row_norms(B).max(initial=0.0))
        if critical == 0.0:
            return Scores(np.zeros(len(G)), converged=True)
        facts = {"anchors": len(graph.masses), "labelled_rows": int(sums.n)}
        rows = 0.5 * penalty_weight(self, "gamma", 2.0 * critical, facts)
        return self.solved(solve(G, B, R, rows=rows, tol=self.tol, max_iter=self.max_iter), facts)
