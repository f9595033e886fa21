"""After SFSS: a row-sparse regression on labels that spread from the labelled rows over a graph of all rows.

Spread labels are linear in the data, so that sums of features, labels and anchor weights over the labelled rows and
over all rows are all that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree, centred_labels
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.latent_span import Span, Tied, solve
from mlfs_dask.statistics.anchor_sums import AnchorSums, AnchorTotals
from mlfs_dask.statistics.gram import scale_gram
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@method(
    "sfss",
    "Structural feature selection with sparsity (after SFSS)",
    paper="after Ma, Nie, Yang, Uijlings, Sebe & Hauptmann 2012, IEEE Transactions on Multimedia 14, 1662-1672",
    doi="10.1109/TMM.2012.2199293",
)
class SFSS(AnchoredRegression):
    """Structural feature selection with sparsity, after Ma, Nie, Yang, Uijlings, Sebe & Hauptmann 2012.

    The paper's text was not available; the method computes the following. Minimises tr F'LF + μ‖XW + 1b' − F‖² + γ
    Σ_f ‖w_f‖ over W, b and the labels F of all rows, which are Y in labelled rows: those of the other rows are
    similar in near rows and near the prediction from few features. A feature's score is the norm of its row of W.

    Notes
    -----
    Two passes over X: moments with a sample, among which anchors are placed, and sums over the labelled rows and
    over all rows. More than `gram_cap` features are refused. Features are standardised over all rows. Rows with an
    unknown label (-1) count as unlabelled. The problem is convex; γ is relative to the least weight at which W = 0.
    The graph of the rows is one of anchors.

    References
    ----------
    Z. Ma, F. Nie, Y. Yang, J. Uijlings, N. Sebe, A. Hauptmann, "Discriminating joint feature analysis for multimedia
    data understanding", IEEE Transactions on Multimedia 14 (2012) 1662-1672, doi:10.1109/TMM.2012.2199293.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.SFSS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    mu: Annotated[float, Param("Weight of the regression beside the graph of the rows.", above=0)] = 1.0
    gamma: Annotated[float, Param("Weight of the penalty, relative to the least weight at which W = 0.", above=0)] = 0.1
    absolute: Absolute = False
    n_neighbors: MeanDegree = 5
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 1e-5
    max_iter: MaxIter = 200

    takes_numbers = learns_from_labelled = True
    name = "SFSS"
    supervision = "semi-supervised: labels spread over the graph to rows with unknown ones"
    unknown_entry = "makes its row unlabelled, which counts in the graph at most"
    typical_iterations = 2, 13
    memory = "worker: 8 bytes * (2 d² + q d + 2 m d + 2 m²) for m anchors; driver: 8 bytes * (6 d² + 12 q d + 6 m d)"
    # Factors of X'X, and systems of anchors.
    workspace = f"{row_sparse.SQUARE_MATRICES} d d + 8 q d + 6 m m + 4 m d + {AnchoredRegression.workspace}"

    def second(self, source: Profile | RowSource, anchors: Anchors, found: Mapping[str, Any]) -> dict[str, Statistic]:
        graph = AnchorSums(anchors, profile_of(source).q)
        return super().second(source, anchors, found) | {"graph": graph, "labelled_graph": OfLabelled(graph)}

    def scores(
        self,
        *,
        k: int,
        sums: LabelMoments,
        labelled: Array,
        gram: Array,
        graph: AnchorTotals,
        labelled_graph: AnchorTotals,
        factor: Array,
    ) -> Scores:
        G, n = scale_gram(gram, factor), float(sums.n)
        XX, XY = self.system(sums, labelled, factor)
        YY, known = centred_labels(sums, labelled_graph)
        known.ZX[...] *= factor
        # Of the labelled rows about the means of all; then of the others.
        shift = known.ZX.sum(axis=0)
        XX += np.outer(shift, shift / n)
        np.subtract(G, XX, out=XX)
        others = AnchorTotals(*(every - some for every, some in zip(graph, known, strict=True)))
        others.ZY[...] = 0.0
        nothing = np.zeros_like(XY), np.zeros_like(YY), others
        span = Span(XX, *nothing, alpha=0.0, smooth=self.n_neighbors / self.mu, tied=Tied(XY, YY, known))
        facts = {"anchors": len(graph.masses), "labelled_rows": int(sums.n)}
        solution = solve(
            span,
            G,
            np.eye(len(YY)),
            weigh=lambda critical: penalty_weight(self, "gamma", critical * self.mu, facts) / self.mu,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        solution = solution._replace(objective=[self.mu * value for value in solution.objective])
        return self.solved(solution, facts)
