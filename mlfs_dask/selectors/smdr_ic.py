"""SMDR-IC: regression on the most dependent projections of features, with labels that are propagated to all rows.

Labels of all rows are linear in sums with the anchors of the rows, and so is all that the regression needs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.blocks.rounding import RANK
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree, Propagation, add_smoothness
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers import proximal, row_sparse
from mlfs_dask.statistics.gram import Gram, scale_gram
from mlfs_dask.statistics.label_statistics import label_cosines
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.products import LabelMoments, label_products
from mlfs_dask.statistics.propagated_labels import PropagatedLabels, PropagationSums
from mlfs_dask.typing import Array


@method(
    "smdr-ic",
    "Instance and label correlations (SMDR-IC)",
    paper="Li, Du, Ding, Jia, Chen & Shang 2023, Mathematics 11, 782",
    doi="10.3390/math11030782",
)
class SMDRIC(AnchoredRegression):
    """Semi-supervised multi-label dimensionality reduction by instance and label correlations (Li et al. 2023).

    The paper's text was not available; this is what the program of its authors' next method, SMDR-MRC, computes, less
    the two terms that are new in that. Labels F are propagated to the rows that have none over the graph S of the rows,
    F = A S F + (I − A) Y₀: Y₀ has the labels of a labelled row, divided by their sum, A is 0 for labelled rows and the
    weight of the propagation for the others, whose labels are then multiplied by the cosines of labels. The target T is
    the projection XP of largest dependence with F: tr P'X'HFF'HXP with P'(μX'X + (1 − μ)I)P = I, a direction a label.
    Minimises ½‖XW − T‖² + (λ/2) tr (XW)'L(XW) + α‖W₁‖₁ + β Σ_f ‖w₂_f‖ with W = W₁ + W₂. A feature's score is the norm
    of its row of W.

    Notes
    -----
    Two passes over X: moments with a sample, among which anchors are placed, and sums. More than `gram_cap`
    features are refused. Features are standardised over all rows. Rows with an unknown label (-1) are not labelled.

    What differs from the program: T has a direction a label and no more, for the others are arbitrary; the graph is
    one of anchors, and symmetric; α and β count relative to the least at which W = 0, which both have to reach; the
    loop is one of proximal steps that lower the objective, and ends where W moves by less than `tol`. With the
    program's graph labels and P are its own on emotions to 14 digits; its W is not, for its 50 steps do not reach the
    minimum.

    References
    ----------
    R. Li, J. Du, J. Ding, L. Jia, Y. Chen, Z. Shang, "Semi-supervised multi-label dimensionality reduction learning by
    instance and label correlations", Mathematics 11 (2023) 782, doi:10.3390/math11030782.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.SMDRIC(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    lambda_: Annotated[float, Param("Weight of the graph of the rows.")] = 1.0
    alpha: Annotated[float, Param("Weight of ‖W₁‖₁, relative to the least weight at which W = 0.", above=0)] = 0.3
    beta: Annotated[
        float, Param("Weight of the norms of rows of W₂, relative to the least weight at which W = 0.", above=0)
    ] = 0.3
    absolute: Absolute = False
    mu: Annotated[float, Param("Weight of X'X beside the identity in the constraint on P.", below=1)] = 0.5
    propagation: Propagation = 0.99
    n_neighbors: MeanDegree = 10
    tol: Annotated[float, Param("Relative change of W in one iteration at which the loop stops.")] = 1e-5
    max_iter: MaxIter = 1000

    name = "SMDR-IC"
    supervision = "semi-supervised: labels are propagated to rows with unknown ones"
    unknown_entry = "gets a label from near rows"
    typical_iterations = 80, 520
    memory = "worker: 8 bytes * (d² + 2 q d + 3 m d + m²) for m anchors; driver: 8 bytes * (4 d² + 26 q d + 3 m d)"
    # Factors of the constraint, the term of the graph and its sum with X'X, and two matrices of weights.
    workspace = f"{1 + row_sparse.SQUARE_MATRICES} d d + {proximal.SPLIT_MATRICES} q d + {AnchoredRegression.workspace}"

    def second(self, source: Profile | RowSource, anchors: Anchors, found: Mapping[str, Any]) -> dict[str, Statistic]:
        profile = profile_of(source)
        return {
            "sums": OfLabelled(label_products(profile)),
            "gram": Gram(profile.d),
            "graph": PropagatedLabels(anchors, profile.q),
        }

    def scores(self, *, k: int, sums: LabelMoments, gram: Array, graph: PropagationSums, factor: Array) -> Scores:
        labels = graph.anchor_labels(self.propagation) @ label_cosines(sums.pairs)
        XF, _ = graph.label_sums(labels, factor)
        G = scale_gram(gram, factor)
        B = G @ self._projection(G, XF)
        largest = float(np.abs(B).max(initial=0.0)), float(row_norms(B).max(initial=0.0))
        if largest[0] == 0.0:
            return Scores(np.zeros(len(G)), converged=True)
        system = G.copy()
        add_smoothness(self.lambda_ * self.n_neighbors, system, G, graph.of_all_rows())
        facts = {"anchors": len(labels), "labelled_rows": int(sums.n), "directions": B.shape[1]}
        solution = proximal.solve(
            system,
            B,
            np.zeros((B.shape[1],) * 2),
            entries=penalty_weight(self, "alpha", largest[0], facts),
            rows=penalty_weight(self, "beta", largest[1], facts),
            split=True,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        return self.solved(solution._replace(W=solution.W.sum(axis=0)), facts)

    def _projection(self, G: Array, XF: Array) -> Array:
        """Return P, shape (d, c), of the directions that depend on the labels."""
        C = row_sparse.solve_gram(self.mu * G, XF, 1.0 - self.mu, np.ones(len(G))).P
        values, vectors = np.linalg.eigh(XF.T @ C)
        dependent = values > RANK * max(values[-1], 0.0)
        return np.asarray(C @ (vectors[:, dependent] / np.sqrt(values[dependent])))
