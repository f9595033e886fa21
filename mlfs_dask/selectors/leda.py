"""After LEDA: discriminant analysis on labels that are propagated to all rows.

Three passes: labels of all rows follow from sums with the anchors of the rows, and weigh the rows in the third one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, Propagation
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.loop import placeholder
from mlfs_dask.selectors.one_reading import Passes
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.selectors.scores import SOLVED_BITS, Scores, round_scores
from mlfs_dask.solvers import row_sparse
from mlfs_dask.statistics.gram import scale_gram
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.products import LabelMoments, drop_rounding, label_products
from mlfs_dask.statistics.propagated_labels import PropagatedGram, PropagatedLabels, PropagationSums
from mlfs_dask.typing import Array

#: Name of the third pass.
SCATTER = "scatter"


@method(
    "leda",
    "Label enlarged discriminant analysis (after LEDA)",
    paper="after Guo, Tao, Hou & Yi 2020, Knowledge and Information Systems 62, 2383-2417",
    doi="10.1007/s10115-019-01409-3",
)
class LEDA(AnchoredRegression):
    """Label enlarged discriminant analysis, after Guo, Tao, Hou & Yi 2020.

    The paper's text was not available; the method computes the following. Labels F are propagated to the rows that
    have none, F = A S F + (I − A) Y₀: Y₀ has the labels of a labelled row, divided by their sum, A is 0 for
    labelled rows and α for the others, and S is the graph of the rows. Then a discriminant analysis with several
    labels a row: with w_i = Σ_l f_il, N_l = Σ_i f_il, the mean m of the weighted rows and the means m_l of labels,
    directions V solve S_b V = (S_t + ρI) V D with S_b = Σ_l N_l (m_l − m)(m_l − m)' and S_t = Σ_i w_i (x_i − m)(x_i
    − m)'. The paper learns features; a feature's score is the norm of its row of V D^½.

    Notes
    -----
    Three passes over X: moments with a sample, among which anchors are placed; sums, from which labels follow; the
    scatter of the weighted rows. More than `gram_cap` features are refused. Features are standardised over all
    rows. Rows with an unknown label (-1) are not labelled. The graph of the rows is one of anchors, S = ZΛ⁻¹Z'.

    References
    ----------
    B. Guo, H. Tao, C. Hou, D. Yi, "Semi-supervised multi-label feature learning via label enlarged discriminant
    analysis", Knowledge and Information Systems 62 (2020) 2383-2417, doi:10.1007/s10115-019-01409-3.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.LEDA(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    propagation: Propagation = 0.99
    ridge: Annotated[float, Param("Weight ρ of the ridge, relative to the mean diagonal of S_t.")] = 0.1

    name = "LEDA"
    supervision = "semi-supervised: labels are propagated to rows with unknown ones"
    unknown_entry = "gets a label from near rows"
    passes = "3"
    memory = "worker: 8 bytes * (d² + q d + 3 m d + m²) for m anchors; driver: 8 bytes * (4 d² + 12 q d + 3 m d)"
    # The scatter, its factors, and means of labels.
    workspace = f"{1 + row_sparse.SQUARE_MATRICES} d d + {AnchoredRegression.workspace}"

    def second(self, source: Profile | RowSource, anchors: Anchors, found: Mapping[str, Any]) -> dict[str, Statistic]:
        profile = profile_of(source)
        sums = OfLabelled(label_products(profile))
        return {"sums": sums, "graph": PropagatedLabels(anchors, profile.q)}

    def later(self, source: Profile | RowSource, found: Mapping[str, Any]) -> Passes:
        yield from super().later(source, found)
        anchors, graph = self.anchors(source, found), found.get("graph")
        weights = placeholder(anchors.count) if graph is None else graph.anchor_labels(self.propagation).sum(axis=1)
        yield SCATTER, {"gram": PropagatedGram(anchors, weights)}

    def scores(self, *, k: int, sums: LabelMoments, graph: PropagationSums, gram: Array, factor: Array) -> Scores:
        labels = graph.anchor_labels(self.propagation)
        XF, N = graph.label_sums(labels, factor)
        total = max(float(N.sum()), np.finfo(float).tiny)
        moved = XF.sum(axis=1)
        S = scale_gram(gram, factor)
        S -= np.outer(moved, moved / total)
        # √N_l (m_l − m): S_b is M M', so that V D^½ is (S_t + ρI)⁻¹ M but for a rotation.
        M = np.divide(XF - np.outer(moved, N / total), np.sqrt(N), out=np.zeros_like(XF), where=N > 0)
        drop_rounding(M, np.sqrt(np.diag(S).clip(0.0))[:, np.newaxis])
        varies = factor > 0
        ridge = self.ridge * float(np.trace(S)) / max(int(np.count_nonzero(varies)), 1)
        V = row_sparse.solve_gram(S, M, ridge, varies.astype(np.float64)).P
        facts = {"anchors": labels.shape[0], "labelled_rows": int(sums.n)}
        return Scores(round_scores(row_norms(V), SOLVED_BITS), extra=facts)
