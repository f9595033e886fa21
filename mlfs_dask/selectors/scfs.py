"""After SCFS: a row-sparse regression whose graph of the rows is one by the features and by the labels, in turn with W.

The paper's text was not available; the method computes the following.
"""

from __future__ import annotations

from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.graph_regression import GraphRegression
from mlfs_dask.selectors.parameters import AnchorNeighbors


@method(
    "scfs",
    "Feature-label space consistency (after SCFS)",
    paper="after Xu, Wang, An, Wei & Ruan 2018, CIKM, 783-792",
    doi="10.1145/3269206.3271760",
)
class SCFS(GraphRegression):
    """Semi-supervised multi-label selection by one similarity of features and labels, after SCFS (Xu et al. 2018).

    The paper's text was not available; the method computes the following. Minimises ‖XW + 1b' − F‖² + Σ κ (f_il −
    y_il)² over known labels + c Σ_ia z_ia (‖f_i − u_a‖² + η‖x_i − c_a‖²) + γ Σ_f ‖w_f‖ over W, b, the labels F of
    the rows, and anchors [c_a, u_a]: rows that are near by the features are near by the labels, since both spaces
    have one graph. A row's weights z fall linearly to 0 at the next anchor beyond its nearest ones, as of adaptive
    graphs. A feature's score is the norm of its row of W.

    Notes
    -----
    Passes over X: one for moments, X'X and a sample, among which anchors are placed, one at W = 0, and one per
    iteration, in which labels and weights of each row are made, in turn, added to sums and discarded. More than
    `gram_cap` features are refused. Any labels may be unknown (-1).

    η makes rows as far from their anchors by the features as by the labels at the start, c is `alpha` ·
    `n_neighbors`, and γ is relative to the least weight at which W = 0. As in other methods with adaptive graphs,
    every iteration chooses anew, row by row, how much squared weights of anchors count, so that each row has its
    number of anchors. No one objective falls in every step, therefore: what is recorded leaves that sum out, and
    may rise by what it changes (on emotions by 0.2 % after the 30th iteration). The last iterate counts and not
    that of the least objective, which may be an early one (on medical the second of 60).

    Sums between two passes are not predicted. While the rows keep their weights of anchors, sums of rows known whole
    or not at all are exact functions of W, b and U: labels are affine in them, of slope 1/(1 + κ_i + c). But b and U
    are already at their joint best with the labels in every update. Ten exact steps a pass had the objective of one
    step a pass within .2 % in the same pass (yeast), and no lower end on emotions and birds: what
    moves slowly are the anchors and the weights, row by row.

    References
    ----------
    Y. Xu, J. Wang, S. An, J. Wei, J. Ruan, "Semi-supervised multi-label feature selection by preserving feature-label
    space consistency", Proceedings of the 27th ACM International Conference on Information and Knowledge Management
    (2018) 783-792, doi:10.1145/3269206.3271760.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> Y[:30] = -1
    >>> sorted(mlfs.SCFS(n_features_to_select=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    anchor_neighbors: AnchorNeighbors = 5

    name = "SCFS"
    typical_iterations = 10, 40
    adaptive = True
    memory = "worker: 8 bytes * (3 m d + 2 d q + m²) for m anchors, and d² in the first pass; driver: 8 bytes * 5 d²"
