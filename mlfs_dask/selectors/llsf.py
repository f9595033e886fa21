"""LLSF: label-specific features, by a sparse regression that keeps the weights of labels that meet alike.

The sums X'X, X'Y and Y'Y, which one pass gives, are all that it needs.
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np

from mlfs_dask.blocks.proximal import shrink_entries
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import Regression, penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.proximal import Solution, solve
from mlfs_dask.statistics.label_statistics import cosine_distances, graph_laplacian, label_cosines
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array


@method(
    "llsf",
    "Label-specific features",
    paper="Huang, Li, Huang & Wu 2016, IEEE Transactions on Knowledge and Data Engineering 28, 3309",
    doi="10.1109/TKDE.2016.2608339",
)
class LLSF(Regression):
    """Label-specific features by sparse regression (LLSF; Huang, Li, Huang & Wu 2016).

    Minimises ½‖XW − Y‖² + (α/2) tr W R W' + β‖W‖₁, where R holds one minus the cosines of the columns of Y, so that
    labels that rarely occur together have different weights. The paper is about a classifier; here a feature's
    score is the norm of its row of W.

    Notes
    -----
    More than `gram_cap` features are refused.

    What differs from the paper: R has negative eigenvalues, so that the published objective has no least value where α
    is large, nor ever with more features than rows. Here R less its least eigenvalue is taken, which adds a ridge, or
    the Laplacian of the cosines. Features are standardised, there is an intercept, α counts relative to the number of
    rows, β relative to the least at which W = 0, and the loop ends where W moves by less than `tol`. The published
    form is the authors' program on X as it is (which they scale to rows of length 1): R itself, no intercept, α and β
    as they are, a start by ridge regression, and an end where their objective, with the number of weights that are not
    0 in place of ‖W‖₁, changes by at most 0.0001 or is not positive. It equals the program on emotions to 12 digits.
    The objective that a run records lacks ½‖Y‖², which no W changes, but for the published form.

    References
    ----------
    J. Huang, G. Li, Q. Huang, X. Wu, "Learning label-specific features and class-dependent labels for multi-label
    classification", IEEE Transactions on Knowledge and Data Engineering 28 (2016) 3309-3323,
    doi:10.1109/TKDE.2016.2608339.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0.0, 1.0, 5.0], [0.2, 0.0, 5.0], [1.0, 0.9, 5.0], [0.9, 0.1, 5.0]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    >>> mlfs.LLSF(n_features_to_select=1).fit(X, Y).ranking_
    array([0, 1, 2])
    """

    alpha: Annotated[
        float,
        Param(
            'Weight of the correlations R of labels, relative to the number of rows; in "published" absolute, '
            "where 2**-5 is usual."
        ),
    ] = 0.1
    beta: Annotated[
        float,
        Param(
            'Weight of the penalty, relative to the least weight at which W = 0; in "published" absolute, '
            "where 2**-3 is usual.",
            above=0,
        ),
    ] = 0.1
    absolute: Absolute = False
    correlation: Annotated[
        Literal["shifted", "laplacian"],
        Param(
            'Form of R with which the objective is convex. "shifted": R less its least eigenvalue. '
            '"laplacian": the Laplacian of the cosines.'
        ),
    ] = "shifted"
    variant: Annotated[
        Literal["corrected", "published"],
        Param(
            'Variant of the method. "corrected": the minimum of a convex objective. "published": the authors\' '
            "iteration."
        ),
    ] = "corrected"
    ridge: Annotated[float, Param('Weight of the ridge regression from which "published" starts.', above=0)] = 0.1
    tol: Annotated[float, Param("Relative change of W in one iteration at which the loop stops.")] = 1e-5
    max_iter: MaxIter = 1000

    known_entries = True
    takes_numbers = True
    name = "LLSF"
    typical_iterations = 40, 400

    def scores(self, *, k: int, sums: LabelMoments, gram: Array) -> Scores:
        R = cosine_distances(sums.pairs)
        if self.variant == "published":
            # Sums as they are, not centred.
            G = gram + np.outer(sums.mean, sums.mean) * sums.n
            B = (sums.products + np.outer(sums.positives, sums.mean)).T
            return self.solved(self._published(G, B, R, float(np.trace(sums.pairs))), {}, exact=True)
        G, B = self.system(sums, gram)
        if self.correlation == "laplacian":
            R = graph_laplacian(label_cosines(sums.pairs))
            if sums.residual_m2 is not None:  # cosines of numbers may be negative
                R -= min(np.linalg.eigvalsh(R)[0], 0.0) * np.eye(len(R))
        else:
            R -= np.linalg.eigvalsh(R)[0] * np.eye(len(R))
        critical = float(np.abs(B).max(initial=0.0))
        if critical == 0.0:
            return Scores(np.zeros(len(G)), converged=True)
        facts: dict[str, float] = {}
        beta = penalty_weight(self, "beta", critical, facts)
        R *= self.alpha * sums.n
        return self.solved(solve(G, B, R, entries=beta, tol=self.tol, max_iter=self.max_iter), facts)

    def _published(self, G: Array, B: Array, R: Array, target: float) -> Solution:
        """Run the authors' iteration; `target` is ‖Y‖²."""
        W = np.asarray(np.linalg.solve(G + self.ridge * np.eye(len(G)), B))
        before = W
        L = float(np.sqrt(2.0 * (np.linalg.norm(G, 2) ** 2 + np.linalg.norm(self.alpha * R, 2) ** 2)))
        objective: list[float] = []
        old, new, last = 1.0, 1.0, 0.0
        for _ in range(self.max_iter):
            V = W + (old - 1.0) / new * (W - before)
            V -= (G @ V - B + self.alpha * V @ R) / L
            before, old, new = W, new, (1.0 + np.sqrt(4.0 * new**2 + 1.0)) / 2.0
            W = shrink_entries(V, self.beta / L)
            loss = np.vdot(W, G @ W) - 2.0 * np.vdot(W, B) + target + self.alpha * np.vdot(W @ R, W)
            objective.append(float(loss + self.beta * np.count_nonzero(W)))
            if abs(last - objective[-1]) <= 1e-4 or objective[-1] <= 0.0:
                return Solution(W, objective, True)
            last = objective[-1]
        return Solution(W, objective, False)
