"""MIFS: features that tell few latent labels, which the labels and the rows' neighbours share.

The latent labels are linear in the data, so that sums of features, labels and anchor weights are all that is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.heat_kernel import heat_kernel_graph
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.errors import parameter
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, run_program
from mlfs_dask.exact.graphs import nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.rows.contract import Profile, RowSource, profile_of
from mlfs_dask.selectors.anchored_regression import AnchoredRegression, MeanDegree, centred_labels
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.in_memory import InMemory
from mlfs_dask.selectors.parameters import Absolute, MaxIter, Param
from mlfs_dask.selectors.regression import penalty_weight
from mlfs_dask.selectors.scores import Scores
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.latent_span import Span, solve
from mlfs_dask.statistics.anchor_sums import AnchorTotals
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.products import LabelMoments
from mlfs_dask.typing import Array, Matrix, join_terms


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
    Two passes over X: moments with a sample, among which anchors are placed, and sums. More than `gram_cap`
    features are refused.

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

    takes_numbers = True
    name = "MIFS"
    init_shapes: ClassVar[Mapping[str, str]] = {"W": "d l", "V": "n l", "B": "l q"}
    known_entries = True
    typical_iterations = 5, 40
    workspace = f"2 d d + 8 d l + 4 m m + {AnchoredRegression.workspace}"  # factors of X'X, and systems of anchors

    def latent(self, q: int) -> int:
        by_default = max(1, round(0.3 * q)) if self._is_published else q
        return min(q, by_default if self.n_latent is None else self.n_latent)

    def _exact_workspace(self, profile: Profile) -> tuple[str, dict[str, int]]:
        """Return the memory besides X and Y: the graph, latent labels and weights with their successors."""
        sizes = {"l": self.latent(profile.q), "k": min(self.n_neighbors, profile.n - 1)}
        own = "8 n k + y + 9 n l + 6 d l"
        return join_terms(matrix.workspace(sparse=profile.sparse), graphs.workspace(), own), sizes

    def _fit_exactly(
        self, X: Matrix, Y: sp.csr_array, moments: FeatureMoments, start: Arrays | None = None
    ) -> ExactFit:
        """Return the steps of V, B and W in turn along their gradients, that of B without its α, until the objective
        settles.

        As in MIFS_train.m of MLC_toolbox (K. Kimura), for the authors' program was not to be had.

        Raises
        ------
        MlfsError
            The steps diverge.
        """
        features = ScaledMatrix(X, moments, ddof=1)
        labels = Y.astype(np.float64)
        squares = float(labels.data @ labels.data)
        (n, d), q, epsilon = X.shape, Y.shape[1], np.finfo(np.float64).eps
        alpha, beta, gamma, step = self.alpha, self.beta, self.gamma, self.step
        n_latent = self.latent(q)
        L = Laplacian(heat_kernel_graph(nearest_rows(features.rows, self.n_neighbors).to_csr(), self.lambda_**2))

        def begin() -> Arrays:
            draw, shapes = (
                np.random.default_rng(self.seed),
                {"W": (d, n_latent), "V": (n, n_latent), "B": (n_latent, q)},
            )
            drawn = {name: draw.random(shape) for name, shape in shapes.items()} if start is None else dict(start)
            return drawn | {"D": np.ones(d)}

        def descend(at: Arrays) -> tuple[Arrays, float]:
            W, V, B, D = (at[name] for name in "WVBD")
            XW, DW = features.forward(W), D[:, np.newaxis] * W
            told = V @ (B @ B.T) - np.asarray(labels @ B.T)
            V = V - step * (V - XW + alpha * told + beta * L.product(V))
            B = B - step * (V.T @ V @ B - np.asarray(labels.T @ V).T)
            W = W - step * (features.backward(XW - V) + gamma * DW)
            norms = row_norms(W)
            value = float(np.square(features.forward(W) - V).sum()) + beta * float(np.vdot(V, L.product(V)))
            of_labels = squares - 2.0 * float(np.vdot(B, np.asarray(labels.T @ V).T))
            value += alpha * (of_labels + float(np.vdot(B, V.T @ V @ B))) + gamma * float(norms.sum())
            return {"W": W, "V": V, "B": B, "D": 0.5 / np.sqrt(norms**2 + epsilon)}, value

        at, trace = run_program(
            self,
            begin,
            descend,
            further_cure=f", or a smaller {parameter('step')}",
            has_converged=lambda before, now: abs(now - before) < self.tol * max(1.0, before),
        )
        return ExactFit(row_norms(at["W"]), trace, {"n_latent": n_latent})

    def sizes(self, source: Profile | RowSource) -> dict[str, int]:
        return super().sizes(source) | {"l": self.latent(profile_of(source).q)}

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


# ---------------------------------------------------------------------- with all rows in memory
