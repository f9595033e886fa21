"""SMILE: a ridge regression on labels that are filled in, whose predictions are smooth over all rows.

Q. Tan, Y. Yu, G. Yu, J. Wang, "Semi-supervised multi-label classification using incomplete label information",
Neurocomputing 260 (2017) 192-202, doi:10.1016/j.neucom.2017.04.033.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.anchors import Anchors
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree, add_smoothness
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.loop import placeholder
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.selectors.scores import SOLVED_BITS, Scores, round_scores
from mlfs_dask.solvers import row_sparse
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.filled_labels import FilledProducts
from mlfs_dask.statistics.gram import scale_gram
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.products import LabelMoments, label_products
from mlfs_dask.typing import Array


@method(
    "smile",
    "Incomplete label information (SMILE)",
    paper="Tan, Yu, Yu & Wang 2017, Neurocomputing 260, 192-202",
    doi="10.1016/j.neucom.2017.04.033",
)
class SMILE(AnchoredRegression):
    """Semi-supervised classification with incomplete label information (SMILE; Tan, Yu, Yu & Wang 2017), as a ranking.

    Labels of the labelled rows are filled in: where a row does not have label l it gets what its other labels j make
    likely, Σ_j C_jl, divided by the sum of the row, with C_jl = (n_jl + s) / (n_j + 2s) from the rows that have both
    labels, and label j. Minimises ‖XP + 1b' − Ỹ‖² + α tr (XP)'L(XP) + ρ‖P‖² over P and b, the first term over the
    labelled rows, the second over all. The paper has a classifier; a feature's score is the norm of its row of P.

    Notes
    -----
    Two passes over X: moments with a sample, among which anchors are placed, and labels; then sums. More than
    `gram_cap` features are refused. Features are standardised over all rows. Rows with an unknown label (-1) enter
    the graph only.

    What differs from the paper: the ridge ρ, without which there is no solution with more features than rows, and the
    graph of the rows, which is one of anchors. On emotions the filled labels are those of an open program; its P is
    another, for it takes clusters for a graph and adds random numbers.

    References
    ----------
    Q. Tan, Y. Yu, G. Yu, J. Wang, "Semi-supervised multi-label classification using incomplete label information",
    Neurocomputing 260 (2017) 192-202, doi:10.1016/j.neucom.2017.04.033.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.SMILE(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    smoothing: Annotated[float, Param("Number s that is added to counts of labels.", above=0)] = 0.5
    alpha: Annotated[float, Param("Weight of the graph of the rows.")] = 0.35
    ridge: Annotated[float, Param("Weight of ‖P‖², relative to the mean of the squared norms of features.")] = 0.1
    n_neighbors: MeanDegree = 5

    learns_from_labelled = True
    name = "SMILE"
    supervision = "semi-supervised: rows with unknown labels have a part in the graph"
    unknown_entry = "makes its row unlabelled, which counts in the graph at most"
    memory = "worker: 8 bytes * (2 d² + q d + m d) for m anchors; driver: 8 bytes * (6 d² + 12 q d + 3 m d)"
    # The term of the graph, and factors of its sum with X'X.
    workspace = f"{1 + row_sparse.SQUARE_MATRICES} d d + {AnchoredRegression.workspace}"

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        return super().reads(source) | {"sums": OfLabelled(label_products(profile_of(source)))}

    def second(self, source: Profile | RowSource, anchors: Anchors, found: Mapping[str, Any]) -> dict[str, Statistic]:
        profile = profile_of(source)
        C = placeholder(profile.q, profile.q)
        if found:
            pairs = found["sums"].pairs
            C = (pairs + self.smoothing) / (np.diag(pairs)[:, np.newaxis] + 2.0 * self.smoothing)
        assert anchors.centre is not None
        second = super().second(source, anchors, found)
        del second["sums"]  # of the first pass
        return {"filled": OfLabelled(FilledProducts(anchors.centre, C)), **second}

    def scores(
        self,
        *,
        k: int,
        sums: LabelMoments,
        filled: Array,
        labelled: Array,
        gram: Array,
        graph: AnchorTotals,
        factor: Array,
    ) -> Scores:
        G = scale_gram(labelled, factor)
        ridge = self.ridge * float(np.trace(G)) / max(int(np.count_nonzero(factor)), 1)
        add_smoothness(self.alpha * self.n_neighbors, G, scale_gram(gram, factor), graph)
        P = row_sparse.solve_gram(G, factor[:, np.newaxis] * filled, ridge, (factor > 0).astype(np.float64)).P
        facts = {"anchors": len(graph.masses), "labelled_rows": int(sums.n)}
        return Scores(round_scores(row_norms(P), SOLVED_BITS), extra=facts)
