"""SFS-BLL on rows in memory, by the authors' program (Shi, Zhu, Li, Cheng & Liu 2023).

D. Shi, L. Zhu, J. Li, Z. Cheng, Z. Liu, "Binary label learning for semi-supervised feature selection", IEEE
Transactions on Knowledge and Data Engineering 35 (2023) 2299-2312; the program is SFS.m of SFS-BLL.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.errors import parameter
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, run_program
from mlfs_dask.exact.graphs import nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.conjugate_gradients import MATRICES, conjugate_gradients
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.typing import Array, Matrix, join_terms

if TYPE_CHECKING:
    from mlfs_dask.selectors.sfs_bll import SFSBLL
    from mlfs_dask.statistics.moments import FeatureMoments

EPSILON = np.finfo(np.float64).eps

#: Relative residual at which the system of the labels is solved.
SOLVED = 1e-14


def fit(method: SFSBLL, X: Matrix, Y: sp.csr_array, moments: FeatureMoments, start: Arrays | None = None) -> ExactFit:
    """Weights, multipliers, codes and labels in turn, from random codes.

    Parameters
    ----------
    method : SFSBLL
    X : ndarray or csr_array, shape (n, d)
        As read, finite.
    Y : csr_array, shape (n, q)
        1 and -1; rows with an unknown label are unlabelled.
    moments : FeatureMoments
        Of X.
    start : mapping, optional
        B (n, q), the codes to begin with; drawn by default.

    Raises
    ------
    MlfsError
        A residual becomes 0, and the weights of rows are not finite.
    """
    features, (n, d) = ScaledMatrix(X, moments, ddof=1), X.shape
    labelled = np.ones((n, 1))
    labelled[Y.tocoo().row[Y.data < 0]] = 0.0
    labels = labelled * (Y.toarray() > 0)
    alpha, beta, gamma, rho = (float(each) for each in (method.kappa, method.beta, method.gamma, method.rho))
    L = Laplacian(cosine_graph(features, method.n_neighbors))

    def begin() -> Arrays:
        draws = np.random.default_rng(method.seed).standard_normal(labels.shape) > 0 if start is None else start["B"]
        B = draws.astype(np.float64)
        return {"W": np.zeros((d, B.shape[1])), "B": B, "F": B, "G": np.zeros_like(B), "w": np.ones(n)}

    def step(at: Arrays) -> tuple[Arrays, float]:
        B, F, w = at["B"], at["F"], at["w"]
        t = 2.0 * np.sqrt(np.square(at["W"]).sum(axis=1) + EPSILON)
        W = row_sparse.solve_gram(features.gram(w), features.backward(w[:, np.newaxis] * B), gamma, t).P
        XW, G = features.forward(W), at["G"] + rho * (B - F)
        residuals = row_norms(XW - B)
        w = np.divide(residuals.sum(), residuals, out=np.full(n, np.nan), where=residuals > 0)
        B = np.where(labelled > 0, np.sign(alpha * labels + rho * F - G), np.sign(F - G / rho)) / 2.0 + 0.5
        weights = 2.0 * beta * w[:, np.newaxis]
        diagonal = rho + alpha * labelled + weights
        if not np.isfinite(w).all():
            return at, np.nan
        inverse = 1.0 / (diagonal + 2.0 * L.degrees[:, np.newaxis])
        F = conjugate_gradients(
            lambda P, _: 2.0 * L.product(P) + diagonal * P,
            rho * B + G + alpha * labels + weights * XW,
            x0=F,
            precondition=lambda R, _: inverse * R,
            tol=SOLVED,
        ).x
        value = float(np.vdot(F, L.product(F))) + 0.5 * alpha * float(np.square(labelled * (F - labels)).sum())
        value += beta * float((w[:, np.newaxis] * np.square(XW - F)).sum()) + gamma * float(row_norms(W).sum())
        return {"W": W, "B": B, "F": F, "G": G, "w": w}, value

    at, trace = run_program(
        begin,
        step,
        name="SFS-BLL",
        cure=f"take {parameter('variant', 'corrected')}, or a larger {parameter('kappa')} and a smaller "
        f"{parameter('beta')}",
        has_converged=lambda before, now: abs(now - before) <= method.tol * abs(before),
        max_iter=method.max_iter,
    )
    ones = float(at["B"][labelled[:, 0] == 0].mean()) if (labelled == 0).any() else None
    return ExactFit(row_norms(at["W"]), trace, {"ones_of_unlabelled": ones})


def cosine_graph(features: ScaledMatrix, k: int) -> sp.csr_array:
    """Cosines of each row with its k nearest ones, shape (n, n); an edge that two rows have counts the larger."""
    rows, centre, n = features.rows, features.centre, features.shape[0]
    indices = nearest_rows(rows, k).indices
    along = np.zeros(n) if centre is None else np.asarray(rows @ centre)
    of_centre = 0.0 if centre is None else float(centre @ centre)

    def products(left: Matrix, right: Matrix) -> Array:
        if sp.issparse(left):
            return np.asarray(left.multiply(right).sum(axis=1)).ravel()
        return np.asarray(np.einsum("ij,ij->i", left, right))

    size = np.sqrt(np.maximum(products(rows, rows) - 2.0 * along + of_centre, 0.0))
    cosines = np.zeros(indices.shape)
    for low in range(0, n, gates.GROUP_ROWS):
        part = slice(low, min(low + gates.GROUP_ROWS, n))
        for j in range(indices.shape[1]):
            others = indices[part, j]
            dots = products(rows[part], rows[others]) - along[part] - along[others] + of_centre
            scale = size[part] * size[others]
            np.divide(dots, scale, out=cosines[part, j], where=scale > 0)
    k = indices.shape[1]
    graph = sp.csr_array((cosines.ravel(), indices.ravel(), np.arange(0, n * k + 1, k)), shape=(n, n))
    symmetric: sp.csr_array = sp.csr_array(graph.maximum(graph.T))
    return symmetric


def workspace(*, sparse: bool) -> str:
    """What `fit` holds besides X and Y: the graph, variables with their successors, X'SX and its factors."""
    variables = f"{12 + MATRICES} n q + 6 n + 4 d q + {1 + row_sparse.SQUARE_MATRICES} d d"
    return join_terms(matrix.workspace(sparse=sparse), graphs.workspace(), "10 n k", variables)
