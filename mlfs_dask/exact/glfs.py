"""GLFS on rows in memory, by the authors' program (Zhang, Wu, Jiang, Liu, Li, Tang & Long 2023).

J. Zhang, H. Wu, M. Jiang, J. Liu, S. Li, Y. Tang, J. Long, "Group-preserving label-specific feature selection for
multi-label learning", Expert Systems with Applications 213 (2023) 118861; the program is main_function.m of GLFS.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.proximal import row_norms, shrink_entries
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.errors import parameter
from mlfs_dask.exact import matrix
from mlfs_dask.exact.fit import ExactFit, run_program
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.solvers import proximal, row_sparse
from mlfs_dask.statistics.label_statistics import label_cosines
from mlfs_dask.typing import Array, Matrix, join_terms

if TYPE_CHECKING:
    from mlfs_dask.selectors.glfs import GLFS
    from mlfs_dask.statistics.moments import FeatureMoments

EPSILON = np.finfo(np.float64).eps


def fit(
    method: GLFS,
    X: Matrix,
    Y: sp.csr_array,
    moments: FeatureMoments,
    groups: NDArray[np.integer],
    label_groups: Array,
    start: Arrays | None = None,
) -> ExactFit:
    """A step of W, one of M and latent labels in turn, until the objective changes little.

    A row group with n_g rows is centred by the first n_g rows and columns of the centring matrix of all rows, and the
    objective counts the weights that are not 0 in place of ‖W‖₁, as there.

    Parameters
    ----------
    method : GLFS
    X : ndarray or csr_array, shape (n, d)
        As read, finite.
    Y : csr_array, shape (n, q)
        1 for positive labels, and the share of a label for unknown entries.
    moments : FeatureMoments
        Of X.
    groups : int array, shape (n,)
        Group of every row.
    label_groups : float64 array, shape (q,)
        Group of every label.
    start : mapping, optional
        W and M (d, q) to begin with; drawn between 0 and 1 by default.

    Raises
    ------
    MlfsError
        The steps diverge.
    """
    features, labels = ScaledMatrix(X, moments, ddof=1), Y.toarray().astype(np.float64)
    (n, d), q, beta, gamma = X.shape, Y.shape[1], method.beta, method.gamma
    G = features.gram()
    L = float(np.sqrt(2.0) * np.linalg.eigvalsh(G)[-1]) or 1.0
    members, columns = [np.flatnonzero(groups == g) for g in np.unique(groups)], proximal.parts(label_groups)
    rules = []
    for rows in members:
        pairs = labels[rows].T @ labels[rows]
        C = (1.0 - method.lambda_) * np.eye(q) + method.lambda_ * label_cosines(pairs)
        mean = labels[rows].mean(axis=0)
        sizes = row_norms(labels[rows]) * float(np.linalg.norm(mean))
        cosines = np.divide(labels[rows] @ mean, sizes, out=np.zeros_like(sizes), where=sizes > 0)
        a = method.alpha * cosines[:, np.newaxis]
        rules.append((mean, a, *np.linalg.eigh(C)))

    def begin() -> Arrays:
        draw = np.random.default_rng(method.seed)
        drawn = {name: draw.random((d, q)) for name in ("W", "M")} if start is None else dict(start)
        return drawn | {"before": drawn["W"], "momentum": np.ones(2), "XZ": features.backward(labels)}

    def step(at: Arrays) -> tuple[Arrays, float]:
        W, before, M, (old, new), XZ = (at[name] for name in ("W", "before", "M", "momentum", "XZ"))
        V = W + (old - 1.0) / new * (W - before)
        V, before = shrink_entries(V - (G @ (V + M) - XZ) / L, beta / L), W
        right, M = XZ - G @ V, M.copy()
        for part in columns:
            t = 2.0 * row_norms(M[:, part]) + EPSILON
            M[:, part] = row_sparse.solve_gram(G, right[:, part], gamma, t).P
        predictions, Z, value = features.forward(V + M), np.empty((n, q)), 0.0
        for rows, (mean, a, values, E) in zip(members, rules, strict=True):
            Z[rows] = _latent(predictions[rows], labels[rows], mean, a, values, E, n)
            value += float((a * np.square(Z[rows] - mean)).sum())
            value += float(np.square(Z[rows] @ E * values - labels[rows] @ E).sum())
        value += float(np.square(predictions - (Z - Z.mean(axis=0))).sum())
        value += beta * int(np.count_nonzero(V)) + gamma * float(row_norms(M).sum())
        faster = np.array([new, (1.0 + np.sqrt(1.0 + 4.0 * new**2)) / 2.0])
        return {"W": V, "before": before, "M": M, "momentum": faster, "XZ": features.backward(Z)}, value

    at, trace = run_program(
        begin,
        step,
        name="GLFS",
        cure=f"take {parameter('variant', 'corrected')}",
        has_converged=lambda before, now: abs(now - before) <= method.tol * abs(before),
        max_iter=method.max_iter,
    )
    return ExactFit(row_norms(at["W"] + at["M"]), trace, {})


def _latent(P: Array, Y: Array, mean: Array, a: Array, values: Array, E: Array, n: int) -> Array:
    """Z of (I − 11'/n + diag a) Z + Z C² = (I − 11'/n) P + a m' + Y C for the rows of a group, by its eigenvectors."""
    right = (P - P.sum(axis=0) / n + a * mean) @ E + values * (Y @ E)
    diagonal = 1.0 + a + values**2
    solved, ones = right / diagonal, 1.0 / diagonal
    solved += ones * (solved.sum(axis=0) / (n - ones.sum(axis=0)))
    Z: Array = solved @ E.T
    return Z


def workspace(*, sparse: bool) -> str:
    """What `fit` holds besides X and Y: X'X and its factors, labels and latent ones, weights with their successors."""
    factors = f"{1 + row_sparse.SQUARE_MATRICES} d d"
    return join_terms(matrix.workspace(sparse=sparse), factors, "9 n q + 12 d q + g q q")
