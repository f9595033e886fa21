"""After FSCLA: a row-sparse regression with a shared subspace of the labels and a graph of rows by distances.

The paper's text was not available; the method computes the following.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.graph_regression import At, Fixed, GraphRegression
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.statistics.row_system import SystemSums
from mlfs_dask.typing import Array


@method(
    "fscla",
    "Label correlation analysis with L1-norm graph embedding (after FSCLA)",
    paper="after Wang, Chen, Hong, Zeng & Zhou 2017, Image and Vision Computing 63, 10-23",
    doi="10.1016/j.imavis.2017.05.004",
)
class FSCLA(GraphRegression):
    """Semi-supervised multi-label selection via label correlation analysis, after FSCLA (Wang et al. 2017).

    The paper's text was not available; the method computes the following. Minimises ‖XW + 1b' − F‖² + Σ κ (f_il −
    y_il)² over known labels + c Σ_ia z_ia ‖f_i − u_a‖ + β‖W − QQ'W‖² + γ Σ_f ‖w_f‖ over W, b, the labels F of the
    rows, values u of anchors, and Q'Q = I. Distances in the graph of the rows are not squared, so that labels may
    differ much between few rows; what W has outside of a subspace of few directions, which the labels share, is
    penalised. A feature's score is the norm of its row of W.

    Notes
    -----
    Passes over X: one for moments, X'X and a sample, among which anchors are placed, one at W = 0, and one per
    iteration, in which the labels of each row are made, added to sums and discarded. More than `gram_cap` features
    are refused. Any labels may be unknown (-1).

    Distances are √(‖f − u‖² + e²), with e a thousandth of the deviation of the labels at the start, c is
    `alpha` · `n_neighbors`, γ counts relative to the least at which W = 0, and β to the mean of the squared norms of
    features. Q has the leading left singular vectors of W.

    Sums between two passes are not predicted. While a row keeps its weights g of anchors its labels move by 1/(1 + κ
    + Σ g) of its prediction, which is little where one lies near an anchor; the weights themselves, which follow from
    distances, change row by row. Ten steps a pass with weights as they are make 11 to 12 passes in place of 12 to 13
    (emotions, yeast, birds).

    References
    ----------
    X.-D. Wang, R.-C. Chen, C.-Q. Hong, Z.-Q. Zeng, Z.-L. Zhou, "Semi-supervised multi-label feature selection via label
    correlation analysis with l1-norm graph embedding", Image and Vision Computing 63 (2017) 10-23,
    doi:10.1016/j.imavis.2017.05.004.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.FSCLA(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    beta: Annotated[
        float, Param("Weight of the part of W outside of the subspace, relative to the mean squared norm of features.")
    ] = 0.1
    n_shared: Annotated[int | None, Param("Dimension of the subspace, at most q; by default half of q.", least=1)] = (
        None
    )

    name = "FSCLA"
    typical_iterations = 10, 20
    counts_distances = True

    def _subspace(self, W: Array) -> Array:
        """Return Q, shape (d, r); empty where W = 0."""
        q = W.shape[1]
        wanted = (q + 1) // 2 if self.n_shared is None else min(self.n_shared, q)
        left, values, _ = np.linalg.svd(W, full_matrices=False)
        return left[:, :wanted][:, values[:wanted] > 0]

    def _ridge(self, fixed: Fixed) -> float:
        varying = int(np.count_nonzero(fixed.factor))
        return float(self.beta) * float(np.trace(fixed.gram)) / max(varying, 1)

    def quadratic(self, fixed: Fixed, at: At, sums: SystemSums) -> Array:
        Q, ridge = self._subspace(at.W), self._ridge(fixed)
        G: Array = Q @ (-ridge * Q.T)
        G += fixed.gram
        G[np.diag_indices_from(G)] += ridge
        return G

    def further_terms(self, fixed: Fixed, at: At, sums: SystemSums) -> float:
        outside = float(np.vdot(at.W, at.W) - np.square(self._subspace(at.W).T @ at.W).sum())
        return self._ridge(fixed) * outside
