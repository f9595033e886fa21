"""MDDM: multi-label dimensionality reduction via dependence maximisation (Zhang & Zhou 2010), as a ranking of features.

The Hilbert-Schmidt independence criterion of projected features XP and labels, with linear kernels, is tr P'A'AP with
A = Y'(X − mean). Its maximum under either constraint on P follows from A, and for one of them from X'X: one pass.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from mlfs_dask import runtime
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import parameter
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.contract import AT_SHARE, method
from mlfs_dask.selectors.costs import Asked, Cost
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.selectors.products import ProductFilter
from mlfs_dask.selectors.scores import SOLVED_BITS, round_scores
from mlfs_dask.statistics.gram import Gram, require_gram, scale_gram
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@method("mddm", "Dependence maximisation", paper="Zhang & Zhou 2010, ACM TKDD 4, 14", doi="10.1145/1839490.1839495")
class MDDM(ProductFilter):
    """Dependence maximisation (MDDM; Zhang & Zhou 2010) as a ranking of features.

    MDDM finds the projection P of the features whose Hilbert-Schmidt independence criterion with the labels,
    tr P'X'HYY'HXP, is largest. The score of a feature is the norm of its row of P L^(1/2), L holding the eigenvalues:
    what it brings into the projection, each direction counting with its dependence on the labels. With all directions
    of the constraint "projection" its square is the feature's own criterion, the trace of HSIC for the feature alone.


    Notes
    -----
    Scores on emotions agree with an open program.

    References
    ----------
    Y. Zhang, Z.-H. Zhou, "Multilabel dimensionality reduction via dependence maximization", ACM Transactions on
    Knowledge Discovery from Data 4 (2010) 14, doi:10.1145/1839490.1839495.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.0, 0.0, 5.0], [1.0, 1.0, 5.0], [1.0, 0.0, 5.0]])
    >>> Y = np.array([[0, 1], [0, 0], [1, 1], [1, 1]])
    >>> mlfs.MDDM(n_features_to_select=1).fit(X, Y).scores_.round(3)
    array([2.236, 1.   , 0.   ])
    """

    constraint: Annotated[
        Literal["projection", "subspace"],
        Param(
            'Constraint on the directions P. "projection": they are orthonormal, P\'P = I. "subspace": '
            "projected features are uncorrelated, P'CP = I with C = mu X'HX + (1 - mu) I, so that a feature "
            "that repeats others adds less."
        ),
    ] = "projection"
    n_components: Annotated[int | None, Param("Number of directions; by default all q.")] = None
    mu: Annotated[
        float,
        Param(
            'Weight of X\'HX beside the identity in the constraint "subspace". 0 is "projection"; with 1 '
            "features that repeat others would have no scores.",
            below=1,
        ),
    ] = 0.5
    standardise: Annotated[bool, Param("Scale features to unit variance; the paper only centres them.")] = True
    gram_cap: Annotated[
        int, Param('Largest number of features for which "subspace" forms X\'X; more features are refused.', least=0)
    ] = 4096

    memory = "worker: 8 bytes * (q * d + q²), driver: 8 bytes * 2 * q * d; with subspace d² and 3 * d² more"
    unknown_entry = AT_SHARE

    @property
    def workspace(self) -> str:
        """Directions, and C and its factor."""
        return "q d" if self.constraint == "projection" else "q d + 2 d d"

    def reads(self, source: Profile | RowSource) -> dict[str, Statistic]:
        statistics, profile = super().reads(source), profile_of(source)
        if self.constraint == "subspace":
            statistics["gram"] = Gram(profile.d, weighted=profile.weight is not None)
        return statistics

    def cost(self, source: Profile | RowSource, resources: Resources, asked: Asked) -> Cost:
        if self.constraint == "subspace":
            form = parameter("constraint", "subspace")
            require_gram(profile_of(source).d, self.gram_cap, form, f"take {parameter('constraint', 'projection')}, ")
        return super().cost(source, resources, asked)

    def scores(self, *, k: int, sums: LabelMoments, gram: Array | None = None) -> Array:
        factor = sums.factor
        if not self.standardise:
            factor = (factor > 0).astype(np.float64)
        A = sums.scaled_products(factor)
        Z = A.T
        if gram is not None:
            from scipy import linalg

            C = scale_gram(gram.copy(), factor * np.sqrt(self.mu))
            C[np.diag_indices_from(C)] += 1.0 - self.mu
            with runtime.one_blas_thread():  # SciPy's own, which this may have loaded
                Z = linalg.cho_solve(linalg.cho_factor(C, lower=True, overwrite_a=True, check_finite=False), A.T)
        if self.n_components is not None and self.n_components < len(A):
            # P L^(1/2) = C⁻¹A'Q, with the eigenvectors Q of A C⁻¹ A' as of the same eigenvalues.
            _, Q = np.linalg.eigh(A @ Z)
            Z = Z @ Q[:, -self.n_components :]
        scores: Array = np.sqrt(np.einsum("fr,fr->f", Z, Z))
        return round_scores(scores, SOLVED_BITS) if self.constraint == "subspace" else scores
