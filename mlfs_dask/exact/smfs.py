"""SMFS on rows in memory (Xu & Zhao 2020), with the density graph of the paper (Eqs. 2 and 3).

Two rows are neighbours if the smallest nodes of an isolation forest that hold both hold few rows. Unknown labels are
estimated from the neighbours (W) and from a row-sparse regression on the features (P), in turn.

T. Xu, L. Zhao, "A structure-induced framework for multi-label feature selection with highly incomplete labels", IEEE
Access 8 (2020) 71219-71230, doi:10.1109/ACCESS.2020.2987922.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.neighbours import Neighbours
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, save_if_due
from mlfs_dask.exact.graphs import combinations, least_mass_rows, nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.solvers import label_recovery, row_sparse
from mlfs_dask.solvers.label_recovery import Reconstruction, recover_labels
from mlfs_dask.solvers.row_sparse_regression import SET_FEATURES, RowSparseRegression
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.typing import Array, Matrix, join_terms

if TYPE_CHECKING:
    from mlfs_dask.selectors.smfs import SMFS
    from mlfs_dask.statistics.moments import FeatureMoments

#: Which rows are near, and how near.
Structure: TypeAlias = Literal["density", "distance", "reconstruction"]

#: Relative residual of the conjugate gradients of a Y-step.
LABEL_TOL = 1e-9


def fit(method: SMFS, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
    """Fit SMFS.

    Parameters
    ----------
    method : SMFS
    X : ndarray or csr_array, shape (n, d)
        As read, finite.
    Y : csr_array, shape (n, q)
        1 for positive labels, −1 for unknown ones.
    moments : FeatureMoments
        Of X.
    """
    labels, known, s = known_labels(Y, zeros_are_unknown=method.zeros_are_unknown(Y.data[Y.data < 0]))
    features = ScaledMatrix(X, moments, centre=method.standardise, standardise=method.standardise)
    sampled, k = {}, method.n_neighbors
    if method.structure == "density":
        forest = least_mass_rows(X, k, n_trees=method.n_trees, max_samples=method.max_samples, seed=method.seed)
        W, sampled = density_structure(forest.neighbours), {"forest_rows": forest.sample_rows}
    else:
        near, combined = nearest_rows(features.rows, k), method.structure == "reconstruction"
        W = near.to_csr(combinations(features.rows, near)) if combined else distance_structure(near)
    labels = start_labels(labels, known, W)
    free = np.ones_like(known) if method.consistency == "none" else ~known
    alpha = method.alpha
    if alpha is None:
        alpha = float(s[s > 0].mean()) if (s > 0).any() else 1.0
    loop = _Loop(method, features, labels, free, s, Reconstruction(W), alpha)
    trace = loop.run()
    scores = row_norms(loop.regression.P)
    extra: dict[str, Any] = {
        "alpha": alpha,
        "beta": loop.regression.beta,
        "critical_beta": loop.regression.critical,
        "epsilon": loop.regression.epsilon,
        "gram": loop.G is not None,
        "graph": {"kind": "exact"},
        **sampled,
        "labelled_rows": int(known.any(axis=1).sum()),
        "unknown_entries": int((~known).sum()),
        "recovered_positives": int(((loop.Y > 0) & ~known).sum()),
    }
    return ExactFit(scores, trace, extra, loop.Y)


def workspace(*, sparse: bool, gram: bool, structure: Structure = "density") -> str:
    """What `fit` holds besides X and Y."""
    return join_terms(
        matrix.workspace(sparse=sparse),
        # Leaf numbers, tables of masses, pairs.
        f"0.5 n t + 0.5 t s s + {4 * gates.VALUES_AT_ONCE}" if structure == "density" else graphs.workspace(),
        "7 n k",  # masses, neighbours, W, I − W and its transpose
        f"4.25 n q + {label_recovery.GROUP_MATRICES} n c",  # Y, X P, what is known and free, what is recovered
        f"{row_sparse.FEATURE_MATRICES} d q + {1 + row_sparse.SQUARE_MATRICES} {'d d' if gram else 'm m'}",
    )


def known_labels(Y: sp.csr_array, *, zeros_are_unknown: bool) -> tuple[Array, NDArray[np.bool_], Array]:
    """Y as 1 and −1 (n, q), which entries are known (n, q), and the diagonal of S of Eq. 7 (n,).

    Parameters
    ----------
    Y : csr_array, shape (n, q)
        1 for positive labels, −1 for unknown ones.
    zeros_are_unknown : bool
        Whether entries that are not 1 are unknown, and not those that are -1.

    Examples
    --------
    >>> known_labels(sp.csr_array(np.array([[1, 0], [-1, 1]])), zeros_are_unknown=False)[1]
    array([[ True,  True],
           [False,  True]])
    """
    entries = Y.toarray()
    positive = entries > 0
    known = positive if zeros_are_unknown else entries >= 0
    # Eq. 7: a row weighs by how rare its positive labels are.
    s = (positive / np.maximum(positive.sum(axis=0), 1)).sum(axis=1)
    return np.where(positive, 1.0, -1.0), known, s


def distance_structure(neighbours: Neighbours) -> sp.csr_array:
    """W of Eq. 3 with Euclidean distances in the place of ξ."""
    distances = np.sqrt(np.maximum(neighbours.distances, 0.0))
    # Less the least of the row, which changes nothing: exponentials of far rows would all be 0.
    return density_structure(neighbours._replace(distances=distances - distances[:, :1]))


def density_structure(neighbours: Neighbours) -> sp.csr_array:
    """W of Eq. 3: row-softmax of −ξ over the neighbours, shape (n, n), k entries a row.

    Parameters
    ----------
    neighbours : Neighbours
        `distances` is ξ.
    """
    weights = np.exp(-neighbours.distances)
    if weights.shape[1]:
        weights /= weights.sum(axis=1, keepdims=True)
    return neighbours.to_csr(weights)


def start_labels(Y: Array, known: NDArray[np.bool_], W: sp.csr_array) -> Array:
    """Eq. 4: unknown entries of labelled rows become what their neighbours have (old Y on the right).

    Rows of which nothing is known keep −1, as in the paper.

    Parameters
    ----------
    Y : float64 array, shape (n, q)
        1 and −1; unknown entries are −1.
    known : bool array, shape (n, q)
    W : csr_array, shape (n, n)
    """
    if not W.nnz:
        return Y
    return np.where(known.any(axis=1, keepdims=True) & ~known, W @ Y, Y)


class _Loop:
    """The loop of Algorithm 1 and its state, in the paper's letters.

    Attributes
    ----------
    Y : float64 array, shape (n, q)
    B : float64 array, shape (d, q)
        X'SY.
    regression : RowSparseRegression
        P, and X'SX or products with it.
    """

    def __init__(
        self,
        method: SMFS,
        X: ScaledMatrix,
        Y: Array,
        free: NDArray[np.bool_],
        s: Array,
        reconstruction: Reconstruction,
        alpha: float,
    ) -> None:
        self.X, self.Y, self.free, self.s = X, Y, free, s
        self.reconstruction = reconstruction
        self.alpha = alpha
        self.tol, self.max_iter = method.tol, method.max_iter
        # P depends on the labels of rows with a weight alone: where these are known, not on recovered ones.
        self.coupled = bool(free[s > 0].any())
        self.trace = LoopTrace()
        self.checkpoint = checkpoints.current()
        state = self.checkpoint.load()
        if state is not None:
            self.trace, self.Y = LoopTrace(**state.facts["trace"]), state.arrays["Y"]
        elif not self.coupled and free.any():
            self._recover(None)
        self.structure = reconstruction.error(self.Y)
        d = X.shape[1]
        self.G = X.gram(s) if d <= method.gram_cap else None
        self.B: Array = self._backward() if state is None else state.arrays["B"]
        self.regression = RowSparseRegression(
            self.B,
            beta=method.beta,
            inner_iterations=method.inner_iterations,
            gram=self.G,
            diagonal=X.squares * s.sum(),
            normal=self._normal,
            gram_of=lambda columns: X.gram(s, columns),
            max_features=min(method.gram_cap, SET_FEATURES),
            reaches_zero=method.consistency != "none",
            state=None if state is None else state.arrays,
        )
        self.weighted_labels = self._weighted(self.Y)

    def run(self) -> LoopTrace:
        """Algorithm 1."""
        trace, regression = self.trace, self.regression
        for iteration in range(trace.iterations + 1, self.max_iter + 1):
            trace.record(regression_steps=regression.update(self.B))  # Eqs. 9 and 10
            fit = self._update_Y()  # Eq. 13
            objective = fit + self.alpha * self.structure + regression.penalty  # Eq. 6

            # Where P does not depend on recovered labels the structure is constant: a change is not compared with it.
            scale = abs(objective) if self.coupled else self.weighted_labels
            change = abs(trace.objective[-1] - objective) / max(scale, 1e-300) if trace.objective else 1.0
            trace.add(objective, step=change)
            if change <= self.tol and regression.has_settled(self.tol, scale):
                trace.converged = True
                break
            regression.tighten(change, self.tol)
            if self.coupled and iteration < self.max_iter:
                self.B = self._backward()
            save_if_due(self.checkpoint, {"Y": self.Y, "B": self.B, **regression.state()}, trace)
        regression.finish(self.B)
        return trace

    def _update_Y(self) -> float:
        """Y by Eq. 13, where P has a part in it. Gives Σ s_ii ‖xⁱP − yⁱ‖²."""
        P, B = self.regression.P, self.B
        if self.G is not None and not self.coupled:
            return float(np.vdot(P, self.G @ P) - 2.0 * np.vdot(P, B)) + self.weighted_labels
        fitted = self.X.forward(P)
        if self.regression.needs_product:
            self.regression.GP = self.X.backward(self.s[:, np.newaxis] * fitted)
        if self.coupled:
            self._recover(fitted)
            self.structure = self.reconstruction.error(self.Y)
        return self._weighted(fitted - self.Y)

    def _recover(self, fitted: Array | None) -> None:
        solution = recover_labels(
            self.Y,
            self.free,
            self.s,
            fitted,
            self.alpha,
            self.reconstruction,
            tol=LABEL_TOL,
            max_iter=1000,
        )
        self.Y = solution.Y
        self.trace.record(recovery_steps=solution.steps, recovery_residual=solution.residual)

    def _backward(self) -> Array:
        """X'SY."""
        return self.X.backward(self.s[:, np.newaxis] * self.Y)

    def _normal(self, V: Array) -> Array:
        """X'SX V."""
        return self.X.backward(self.s[:, np.newaxis] * self.X.forward(V))

    def _weighted(self, rows: Array) -> float:
        """Σ s_ii ‖rowⁱ‖²."""
        return float(self.s @ np.einsum("ij,ij->i", rows, rows))
