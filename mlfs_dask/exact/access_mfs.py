"""Access-MFS on rows in memory (Huang et al. 2024), with the graph of all rows that the paper learns.

A regression with uncorrelated projections, predicted labels for all rows, and two adaptive graphs, one of rows and one
of labels, are updated in turn until the objective converges.

Y. Huang, L. Yang, D. Wang, K. Li, X. Yi, F. Lv, T. Li, "Adaptive Collaborative Correlation Learning-based
Semi-Supervised Multi-Label Feature Selection", arXiv:2406.12193 (2024), doi:10.48550/arXiv.2406.12193.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.adaptive_graph import column_graph, neighbours_used, simplex_weights
from mlfs_dask.blocks.duplicate_labels import DuplicateLabels, duplicate_labels
from mlfs_dask.blocks.neighbours import Neighbours
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.checkpoints import State
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, save_if_due
from mlfs_dask.exact.graphs import nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.solvers import label_propagation, uncorrelated
from mlfs_dask.solvers.label_propagation import propagate_labels
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.solvers.uncorrelated import Projection
from mlfs_dask.statistics.label_statistics import graph_laplacian
from mlfs_dask.typing import Array, Matrix, join_terms

if TYPE_CHECKING:
    from mlfs_dask.selectors.access_mfs import AccessMFS
    from mlfs_dask.statistics.moments import FeatureMoments

#: ε of D (below Eq. 9).
EPSILON = 1e-8

#: ε of D, what is added to the sum of a row's weights, and the change of the (log) objective that ends the loop, in the
#: authors' code.
PUBLISHED_EPSILON = 2.2e-16
PUBLISHED_SLACK = 0.01
PUBLISHED_TOL = 1e-2

#: Relative change of W at which the inner iterations of W and D stop.
SETTLED = 1e-6

#: Relative error that solves may leave by default: objectives agree with dense algebra to 8 digits, scores to 6.
SOLVER_TOL = 1e-7

#: Relative residuals of the conjugate gradients for F and, above the Gram cap, for W, as fractions of this error.
LABEL_TOL = 0.1
WEIGHT_TOL = 1e-2

#: Most steps of conjugate gradients for W in one iteration. They start from the last W. R and M change with every
#: iteration, and a full solve can take thousands of steps where features are many and rare.
WEIGHT_STEPS = 100


def fit(method: AccessMFS, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
    """Fit Access-MFS.

    Parameters
    ----------
    method : AccessMFS
    X : ndarray or csr_array, shape (n, d)
        As read, finite.
    Y : csr_array, shape (n, q)
        1 for positive labels, −1 for unknown ones.
    moments : FeatureMoments
        Of X.

    Raises
    ------
    MlfsError
        A value of X is too large to be squared.
    """
    published = method.variant == "published_code"
    positive, known = known_labels(Y, zeros_are_unknown=method.zeros_are_unknown(Y.data[Y.data < 0]))
    # The authors' code has a column for every label.
    duplicates = DuplicateLabels(np.arange(Y.shape[1])) if published else duplicate_labels(positive, known)
    positive, known = duplicates.collapse_labels(positive, known)
    features = ScaledMatrix(X, moments, standardise=method.standardise)
    loop = _Loop(method, features, positive.toarray(), known, duplicates)
    trace = loop.run(method.max_iter)
    scores = row_norms(loop.W)
    extra: dict[str, Any] = {
        "gram": loop.gram is not None,
        "labelled_rows": int(known.any(axis=1).sum()),
        "distinct_labels": duplicates.count,
        "graph": None if loop.L_s is None else {"kind": "exact"},
    }
    return ExactFit(scores, trace, extra, duplicates.expand(loop.F))


def workspace(*, sparse: bool, gram: bool, graph: bool) -> str:
    """What `fit` holds besides X and Y."""
    return join_terms(
        matrix.workspace(sparse=sparse),
        # Labels that are known and positive, F, X W, points, the solver of labels; W.
        f"{5.125 + label_propagation.ROW_MATRICES} n q + {uncorrelated.FEATURE_MATRICES + 2} d q",
        # X'X, R and its factor, or two X P.
        f"{2 + uncorrelated.SQUARE_MATRICES} d d" if gram else "2 n q",
        "strips + d d" if gram and graph else "",  # X'L_sX
        join_terms(graphs.workspace(), "5 n k") if graph else "",  # weights and S
    )


def known_labels(Y: sp.csr_array, *, zeros_are_unknown: bool) -> tuple[sp.csr_array, NDArray[np.bool_]]:
    """Known positives (n, q), and which entries are known: by rows, shape (n, 1), or by entries, shape (n, q).

    Parameters
    ----------
    Y : csr_array, shape (n, q)
        1 for positive labels, −1 for unknown ones.
    zeros_are_unknown : bool
        Whether a row without a positive label is unknown.
    """
    n, q = Y.shape
    row = np.repeat(np.arange(n), np.diff(Y.indptr))
    unknown = Y.data < 0
    missing = np.bincount(row[unknown], minlength=n)
    if zeros_are_unknown:
        missing[np.bincount(row[~unknown], minlength=n) == 0] = q
    positive = sp.csr_array(Y, dtype=np.float64, copy=True)
    positive.data[unknown] = 0.0
    positive.eliminate_zeros()
    if ((missing == 0) | (missing == q)).all():
        return positive, (missing == 0)[:, np.newaxis]
    return positive, (Y.toarray() >= 0) & (missing < q)[:, np.newaxis]


@dataclass
class _Loop:
    """The loop of Algorithm 2 and its state, in the paper's letters, rows being samples.

    q is the number of distinct labels: duplicate labels are one column, √m times what each of the m is.

    Attributes
    ----------
    W : float64 array, shape (d, q)
    XW : float64 array, shape (n, q)
        Of centred X.
    F : float64 array, shape (n, q)
    D : float64 array, shape (d,)
    L_s : Laplacian or None
    L_p : float64 array, shape (q, q), or None
    """

    method: AccessMFS
    X: ScaledMatrix
    Y: Array
    U: NDArray[np.bool_]
    duplicates: DuplicateLabels

    def __post_init__(self) -> None:
        method, d = self.method, self.X.shape[1]
        self.published = method.variant == "published_code"
        self.lambda_, self.theta, self.mu = float(method.lambda_), float(method.theta), float(method.mu)
        self.solver_tol = SOLVER_TOL if method.solver_tol is None else float(method.solver_tol)
        self.epsilon = PUBLISHED_EPSILON if self.published else EPSILON
        self.trace = LoopTrace()
        self.projection: Projection | None = None
        self.checkpoint = checkpoints.current()
        state = self.checkpoint.load()
        if state is not None:
            self._restore(state)
        else:
            self.F: Array = self.Y
            self.D: Array = np.ones(d)
            drawn = first_weights(d, len(self.duplicates.group), method.seed, published=self.published)
            self.W: Array = self.duplicates.collapse(drawn)
            self.XW: Array = self.X.forward(self.W) if self.theta > 0 else np.zeros_like(self.F)
        self.gram = self.X.gram() if d <= method.gram_cap else None
        self.L_s: Laplacian | None = None
        self.L_p: Array | None = None
        self.penalty = self._update_S() + self._update_P()

    def run(self, max_iter: int) -> LoopTrace:
        """Algorithm 2."""
        trace = self.trace
        for t in range(trace.iterations + 1, max_iter + 1):
            before = self.W
            self._update_W()
            self._update_F()
            self.penalty = self._update_S() + self._update_P()

            norm = float(np.linalg.norm(self.W))
            step = float(np.linalg.norm(self.W - before)) / norm if norm > 0 else 0.0
            trace.add(self.objective(), graph_penalty=self.penalty, step=step)
            if norm == 0 or (t > 1 and self._has_settled()):
                trace.converged = True
                break
            self._save()
        return trace

    def _has_settled(self) -> bool:
        if self.published:
            return self.trace.objective[-1] - self.trace.objective[-2] > -PUBLISHED_TOL
        trace = self.trace
        return trace.change <= self.method.tol and trace.values["solver_residual"][-1] <= uncorrelated.RESIDUAL_TOL

    def _update_W(self) -> None:
        """Algorithm 1: W by Eq. 14, D by Eq. 9, in turn."""
        M = self.X.backward(self.F - self.F.mean(axis=0))
        R = self._regression_gram()
        diagonal = 0.0 if R is None else np.diag(R).copy()
        steps = 0
        for _ in range(1 if self.published else self.method.inner_iterations):
            before, ridge = self.W, self.lambda_ * self.D
            if R is None:
                solution = self._solve_products(M, ridge)
            else:
                R[np.diag_indices_from(R)] = diagonal + ridge
                solution = uncorrelated.solve_gram(R, M)
            self.projection, self.W = solution, solution.W
            self.D = 0.5 / np.sqrt(row_norms(self.W) ** 2 + self.epsilon)
            steps += solution.steps
            if np.linalg.norm(self.W - before) <= SETTLED * np.linalg.norm(self.W):
                break
        self.XW = self.X.forward(self.W)
        self.trace.record(solver_steps=steps, solver_residual=solution.residual, rank=solution.rank)

    def _regression_gram(self) -> Array | None:
        """X'(I + θL_s)X, R without its ridge; None above the Gram cap."""
        if self.gram is None:
            return None
        if self.L_s is None:
            return self.gram.copy()
        R = self.X.gram_with(self.L_s, self.theta)
        R += self.gram
        return R

    def _solve_products(self, M: Array, ridge: Array) -> Projection:
        def operator(P: Array) -> Array:
            XP = self.X.forward(P)
            if self.L_s is not None:
                XP += self.theta * self.L_s.product(XP)
            return self.X.backward(XP) + ridge[:, np.newaxis] * P

        diagonal = (1.0 + self.theta) * len(self.F) * self.X.squares + ridge
        return uncorrelated.solve_products(
            operator,
            M,
            diagonal,
            tol=WEIGHT_TOL * self.solver_tol,
            max_iter=WEIGHT_STEPS,
            start=self.projection,
        )

    def _update_F(self) -> None:
        """F by Eq. 17."""
        self.F, steps = propagate_labels(
            self.F,
            self.XW + self.Y,  # C; X is centred
            self.U,
            laplacian=self.L_s,
            theta=self.theta,
            label_laplacian=self.L_p,
            mu=1.0 if self.published else self.mu,
            tol=LABEL_TOL * self.solver_tol,
        )
        self.trace.record(label_steps=steps)

    def _update_S(self) -> float:
        """S by Eq. 21: nearest neighbours among [f_i, W'x_i]. Gives θΣα_i‖s_i‖²."""
        k = neighbours_used(self.method.k_s, len(self.F))
        if self.theta == 0 or k == 0:
            return 0.0
        # Around zero, where the search has most digits.
        Z = np.hstack([self.F - self.F.mean(axis=0), self.XW * (np.sqrt(2.0) if self.published else 1.0)])
        neighbours = nearest_rows(Z, k + 1)
        slack = PUBLISHED_SLACK if self.published else 0.0
        squares: Array = np.einsum("ij,ij->i", Z, Z)
        weights, alpha = simplex_weights(0.5 * neighbours.distances, k, squares, slack=slack)  # m of Eq. 18
        S = Neighbours(neighbours.indices[:, :k], neighbours.distances[:, :k]).to_csr(weights)
        self.L_s = Laplacian(sp.csr_array((S + S.T) * 0.5))
        if self.published:
            return float(self.theta * alpha.mean() * np.square(self.L_s.graph.data).sum())
        return self.theta * float(alpha @ np.einsum("ij,ij->i", weights, weights))

    def _update_P(self) -> float:
        """P by Eq. 25: the adaptive graph of the columns of F. Gives μΣβ_i‖p_i‖²."""
        if (self.mu == 0 and not self.published) or len(self.duplicates.group) < 2:
            return 0.0
        P, beta, squares = column_graph(self.duplicates.expand_both(self.F.T @ self.F), self.method.k_p)
        self.L_p = self.duplicates.collapse_both(graph_laplacian(P))
        if self.published:  # from distances that are not halved
            return float(self.mu * 2.0 * beta.mean() * np.square(P).sum())
        return self.mu * float(beta @ squares)

    def objective(self) -> float:
        """Eq. 8 without α‖S‖² and β‖P‖²; of the authors' code, its logarithm of Eq. 8 with two halves."""
        F, half = self.F, 0.5 if self.published else 1.0
        value = float(np.square(self.XW - (F - F.mean(axis=0))).sum())
        value += float((self.U * np.square(F - self.Y)).sum())
        # ‖W‖_{2,1} as D has it, with ε.
        value += half * self.lambda_ * float(np.sqrt(row_norms(self.W) ** 2 + self.epsilon).sum())
        if self.L_s is not None:
            for factor, V in ((half, F), (1.0, self.XW)):
                value += factor * self.theta * float(np.vdot(V, self.L_s.product(V)))
        if self.L_p is not None:
            value += self.mu * float(np.vdot(self.L_p, F.T @ F))
        return float(np.log(value + self.penalty)) if self.published else value

    def _save(self) -> None:
        arrays = {"F": self.F, "W": self.W, "XW": self.XW, "D": self.D}
        if self.projection is not None:
            arrays |= {"values": self.projection.values, "vectors": self.projection.vectors}
        save_if_due(self.checkpoint, arrays, self.trace)

    def _restore(self, state: State) -> None:
        """Go on from a state; the graphs follow from F and X W."""
        self.F, self.W, self.XW, self.D = (state.arrays[name] for name in ("F", "W", "XW", "D"))
        self.projection = Projection(self.W, 0, 0, 0.0, state.arrays["values"], state.arrays["vectors"])
        self.trace = LoopTrace(**state.facts["trace"])


def first_weights(d: int, q: int, seed: int, *, published: bool) -> Array:
    """The W with which the first graph is made, shape (d, q)."""
    random = np.random.default_rng(seed)
    if published:
        return random.random((d, q))
    # Points of the first graph then have about the spread of standardised features.
    weights: Array = random.standard_normal((d, q)) / np.sqrt(d)
    return weights
