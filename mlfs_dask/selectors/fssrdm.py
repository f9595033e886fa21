"""After FSSRDM: a row-sparse regression whose projection of the features depends on the labels as much as it can.

X'X and X'Y of the labelled rows, and Y'Y, are all that it needs: one pass.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np

from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Profile, RowSource
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import Regression, penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.proximal import Solution
from mlfs_dask.statistics.label_statistics import label_cosines
from mlfs_dask.statistics.labelled import OfLabelled
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@method(
    "fssrdm",
    "Sparsity and dependence (after FSSRDM)",
    paper="after Jiang, Wang & Yu 2018, ICICIP, 325-332",
    doi="",
)
class FSSRDM(Regression):
    """Sparsity regularisation and dependence maximisation, after Jiang, Wang & Yu 2018.

    The paper's text was not available; the method computes the following. Minimises ‖H(XW − F)‖² − β tr W'A'AW + γ
    Σ_f ‖w_f‖ over the labelled rows, H centring them, with A = F'HX: tr W'A'AW is the Hilbert-Schmidt criterion,
    with linear kernels, of projected features and labels. The labels are completed by their correlation: F = Y C,
    where C holds the cosines of the columns of Y, its rows divided by their sums. A feature's score is the norm of
    its row of W.

    Notes
    -----
    More than `gram_cap` features are refused. Features are standardised over the labelled rows. Rows with an
    unknown label (-1) have no part. β counts relative to the least at which the objective has no minimum, γ
    relative to the least at which W = 0.

    References
    ----------
    L. Jiang, J. Wang, G. Yu, "Semi-supervised multi-label feature selection based on sparsity regularization and
    dependence maximization", International Conference on Intelligent Control and Information Processing (2018) 325-332.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0], [9.0, 9.0, 9.0]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1], [-1, -1]])
    >>> mlfs.FSSRDM(n_features_to_select=1).fit(X, Y).ranking_
    array([0, 1, 2])
    """

    beta: Annotated[
        float,
        Param("Weight of the dependence, relative to the least weight at which the objective has no minimum.", below=1),
    ] = 0.5
    gamma: Annotated[float, Param("Weight of the penalty, relative to the least weight at which W = 0.", above=0)] = 0.1
    absolute: Absolute = False
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 1e-6
    max_iter: MaxIter = 200

    takes_numbers = True
    name = "FSSRDM"
    supervision = "semi-supervised: rows with unknown labels have no part"
    unknown_entry = "makes its row unlabelled, which counts in the graph at most"
    typical_iterations = 10, 60

    memory = "worker: 8 bytes * (d² + q d + q²); driver: 8 bytes * (4 d² + 12 q d)"
    # The quadratic form and its factors, beside what its family holds.
    workspace = f"{1 + row_sparse.SQUARE_MATRICES} d d + {Regression.workspace}"

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        return {name: OfLabelled(statistic) for name, statistic in super().reads(source).items()}

    def covariate_sums(self, source: Profile | RowSource) -> Statistic | None:
        of_covariates = super().covariate_sums(source)
        return None if of_covariates is None else OfLabelled(of_covariates)

    def scores(self, *, k: int, sums: LabelMoments, gram: Array) -> Scores:
        G, B = self.system(sums, gram)
        C = label_cosines(sums.pairs)
        C /= np.maximum(C.sum(axis=1, keepdims=True), 1.0)
        A = B @ C  # X'HF, (d, q)
        critical = row_sparse.critical_weight(A)
        if critical == 0.0:
            return Scores(np.zeros(len(G)), converged=True)
        # The largest eigenvalue of A'A relative to X'X, from its q × q twin.
        ridge = 1e-9 * float(np.diag(G).max())
        largest = float(np.linalg.eigvalsh(A.T @ row_sparse.solve_gram(G, A, ridge, np.ones(len(G))).P)[-1])
        quadratic = A @ A.T
        quadratic *= -self.beta / largest
        quadratic += G
        facts = {"largest_beta": 1.0 / largest, "labelled_rows": int(sums.n)}
        gamma = penalty_weight(self, "gamma", critical, facts)
        solution = row_sparse.minimise(quadratic, A, gamma, tol=self.tol, max_iter=self.max_iter)
        return self.solved(Solution(*solution), facts)
