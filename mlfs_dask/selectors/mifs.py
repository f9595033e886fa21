"""MIFS: features that tell few latent labels, which the labels and the rows' neighbours share.

The latent labels are linear in the data, so that sums of features, labels and anchor weights are all that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np

from mlfs_dask.exact import mifs as exact_form
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree, centred_labels
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.in_memory import InMemory
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.latent_span import Span, solve
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@method(
    "mifs",
    "Multi-label informed feature selection",
    paper="Jian, Li, Shu & Liu 2016, IJCAI, 1627-1633",
    doi="",
)
class MIFS(InMemory, AnchoredRegression):
    """Multi-label informed feature selection (MIFS; Jian, Li, Shu & Liu 2016).

    Minimises ‖XW − V‖² + α‖Y − VB‖² + β tr V'LV + γ Σ_f ‖w_f‖: the k latent labels V of the rows are predicted from
    few features, reproduce the labels, and are similar in near rows. A feature's score is the norm of its row of W.

    Notes
    -----
    Two readings of X: moments with a sample, among which anchors are placed, and sums. Of more than `gram_cap`
    features it is refused.

    What differs from the paper: its objective has no minimum, for it falls as W and V shrink and B grows. Here the
    rows of B are orthonormal, so that the step for B is a rotation and that for V one linear system; there are as many
    latent labels as labels by default. Features are standardised, there is an intercept, γ counts relative to the
    least at which the first W is 0, and the graph of the rows is one of anchors. The published form is a third party's
    program, for the authors' was not to be had: gradient steps of V, B and W from a random start, without α in that of
    B, the graph of nearest rows, the sample standard deviation, no intercept, γ as it is. It holds all rows in memory.
    The program is that of MLC_toolbox; with gamma=1, tol=0.001 and max_iter=500 they are equal on emotions to 13
    digits. Where it does not converge, the program makes one step fewer than its maximum, 499 of 500.

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

    variant: Annotated[
        Literal["corrected", "published"],
        Param(
            'Variant of the method. "corrected": an objective with a minimum. "published": the gradient steps '
            "of a program, with all rows in memory."
        ),
    ] = "corrected"
    alpha: Annotated[float, Param("Weight of the labels beside the features.", above=0)] = 1.0
    beta: Annotated[float, Param("Weight of the graph of the rows.")] = 0.1
    gamma: Annotated[
        float,
        Param(
            'Weight of the penalty, relative to the least weight at which W = 0; in "published" absolute, '
            "where 1 is usual.",
            above=0,
        ),
    ] = 0.1
    absolute: Absolute = False
    n_neighbors: MeanDegree = 5
    n_latent: Annotated[
        int | None,
        Param('Number of latent labels, at most q; by default q, and 0.3 q in "published".'),
    ] = None
    lambda_: Annotated[
        float, Param('Width λ of the heat kernel exp(−d²/λ²) of "published"; by default √2.', above=0)
    ] = 2.0**0.5
    step: Annotated[float, Param('Length of the gradient steps of "published".', above=0)] = 1e-5
    tol: Annotated[
        float,
        Param(
            'Relative change of the objective in one iteration at which the loop stops; "published", where '
            "0.001 is usual, stops at an absolute change of as much, too.",
        ),
    ] = 1e-5
    max_iter: MaxIter = 200

    name = "MIFS"
    init_shapes: ClassVar[Mapping[str, str]] = {"W": "d l", "V": "n l", "B": "l q"}
    known_entries = True
    typical_iterations = 5, 40

    def latent(self, q: int) -> int:
        by_default = max(1, round(0.3 * q)) if self._is_published else q
        return min(q, by_default if self.n_latent is None else self.n_latent)

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        sizes = {"l": self.latent(profile.q), "k": min(self.n_neighbors, profile.n - 1)}
        return exact_form.workspace(sparse=profile.sparse), sizes

    _fit_exactly = exact_form.fit

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        return super().sizes(source) | {"l": self.latent(profile_of(source).q)}

    @property
    def workspace(self) -> str:
        """Factors of X'X, and systems of anchors."""
        return f"2 d d + 8 d l + 4 m m + {super().workspace}"

    def scores(self, *, k: int, sums: LabelMoments, gram: Array, graph: AnchorTotals, factor: Array) -> Scores:
        XX, XY = self.system(sums, gram, factor)
        YY, graph = centred_labels(sums, graph)
        facts = {"anchors": len(graph.masses)}
        solution = solve(
            Span(XX, XY, YY, graph, self.alpha, self.beta * self.n_neighbors),
            XX,
            np.linalg.eigh(YY)[1][:, ::-1][:, : self.latent(len(YY))].T,
            rotates=True,
            weigh=lambda critical: penalty_weight(self, "gamma", critical, facts),
            tol=self.tol,
            max_iter=self.max_iter,
        )
        return self.solved(solution, facts)
