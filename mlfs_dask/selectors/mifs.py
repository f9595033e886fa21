"""MIFS: features that tell few latent labels, which the labels and the rows' neighbours share.

The latent labels are linear in the data, so that sums of features, labels and anchor weights are all that is needed.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.latent_span import Span, solve
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.products import LabelMoments

Array = NDArray[np.float64]


@method(
    "mifs",
    "Multi-label informed feature selection",
    paper="Jian, Li, Shu & Liu 2016, IJCAI, 1627-1633",
    doi="",
)
class MIFS(AnchoredRegression):
    """Multi-label informed feature selection (MIFS; Jian, Li, Shu & Liu 2016).

    Minimises ‖XW − V‖² + α‖Y − VB‖² + β tr V'LV + γ Σ_f ‖w_f‖: the k latent labels V of the rows are told by few
    features, give the labels, and are alike in rows that are near each other. A feature's score is the norm of its row
    of W.

    Notes
    -----
    Two readings of X: moments with a sample, among which anchors are placed, and sums. A worker holds
    d² + q d + m d + m² numbers of 8 bytes a running task for m anchors. Of more than `gram_cap` features it is refused.
    Unknown labels (-1) are refused.

    What differs from the paper: its objective has no minimum, for it falls as W and V shrink and B grows. Here the
    rows of B are orthonormal, so that the step for B is a rotation and that for V one linear system; there are as many
    latent labels as labels by default. Features are standardised, there is an intercept, γ counts relative to the
    least at which the first W is 0, and the graph of the rows is one of anchors.

    References
    ----------
    L. Jian, J. Li, K. Shu, H. Liu, "Multi-label informed feature selection", Proceedings of the 25th International
    Joint Conference on Artificial Intelligence (2016) 1627-1633.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> rng = np.random.default_rng(0)
    >>> Y = rng.integers(0, 2, (60, 2))
    >>> X = np.hstack([rng.normal(size=(60, 2)), Y + rng.normal(0, 0.1, (60, 2))])
    >>> sorted(mlfs.MIFS(n_features_to_select=2, n_latent=2).fit(X, Y).ranking_[:2].tolist())
    [2, 3]
    """

    alpha: Annotated[float, Param("Weight of the labels beside the features.", above=0)] = 1.0
    beta: Annotated[float, Param("Weight of the graph of the rows.")] = 0.1
    gamma: Annotated[float, Param("Weight of the penalty, relative to the least at which W stays 0.", above=0)] = 0.1
    absolute: Absolute = False
    n_neighbors: MeanDegree = 5
    n_latent: Annotated[int | None, Param("Latent labels, at most as many as labels; by default as many.")] = None
    tol: Annotated[float, Param("Relative change of the objective in one iteration at which the loop stops.")] = 1e-5
    max_iter: MaxIter = 200

    name = "MIFS"
    typical_iterations = 5, 40

    def _latent(self, q: int) -> int:
        return min(q, q if self.n_latent is None else self.n_latent)

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        return super().sizes(source) | {"l": self._latent(profile_of(source).q)}

    @property
    def workspace(self) -> str:
        """Factors of X'X, and systems of anchors."""
        return f"2 d d + 8 d l + 4 m m + {super().workspace}"

    def scores(self, *, k: int, sums: LabelMoments, gram: Array, graph: AnchorTotals, factor: Array) -> Scores:
        mean = sums.positives / sums.n
        XX, XY = self.system(sums, gram, factor)
        YY = sums.pairs - np.outer(sums.positives, mean)
        ZY = graph.ZY - np.outer(graph.masses, mean)
        solution, gamma = solve(
            Span(XX, XY, YY, graph._replace(ZY=ZY)),
            np.linalg.eigh(YY)[1][:, ::-1][:, : self._latent(len(mean))].T,
            alpha=self.alpha,
            smooth=self.beta * self.n_neighbors,
            gamma=self.gamma,
            absolute=self.absolute,
            tol=self.tol,
            max_iter=self.max_iter,
        )
        return self.solved(solution, {"gamma": gamma, "anchors": len(graph.masses)})
