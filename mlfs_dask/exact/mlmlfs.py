"""MLMLFS on rows in memory, by the authors' program (Zhu, Xu, Hu, Zhang & Zhao 2018).

P. Zhu, Q. Xu, Q. Hu, C. Zhang, H. Zhao, "Multi-label feature selection with missing labels", Pattern Recognition 74
(2018) 488-502, doi:10.1016/j.patcog.2017.09.036; the program is MLMLFS.m of MLMLFS-PR2017.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from scipy import linalg
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.heat_kernel import heat_kernel_graph
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine.checkpoints import Arrays
from mlfs_dask.errors import parameter
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, run_program
from mlfs_dask.exact.graphs import mean_distance, nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.typing import Array, Matrix, join_terms

if TYPE_CHECKING:
    from mlfs_dask.selectors.mlmlfs import MLMLFS
    from mlfs_dask.statistics.moments import FeatureMoments

EPSILON = np.finfo(np.float64).eps


def fit(method: MLMLFS, X: Matrix, Y: sp.csr_array, moments: FeatureMoments, start: Arrays | None = None) -> ExactFit:
    """W, the weights of rows by the b and the labels of before, b and the labels in turn.

    The system for W has αX'LF more on its right side than the objective has: the program subtracts 1 from every entry
    of a matrix where the identity is meant.

    Parameters
    ----------
    method : MLMLFS
    X : ndarray or csr_array, shape (n, d)
        As read, finite.
    Y : csr_array, shape (n, q)
        1 for positive labels, −1 for unknown ones.
    moments : FeatureMoments
        Of X.
    start : mapping, optional
        W (d, q) and b (q,) to begin with; drawn between 0 and 1 by default.

    Raises
    ------
    MlfsError
        The loop diverges.
    """
    features = ScaledMatrix(X, moments, ddof=1)
    entries = Y.toarray()
    labels, known = np.where(entries > 0, 1.0, -1.0), entries >= 0
    d, q = X.shape[1], Y.shape[1]
    alpha, lambda_, p = method.alpha, method.lambda_, method.p
    width = 2.0 * mean_distance(features.rows) ** 2
    L = Laplacian(heat_kernel_graph(nearest_rows(features.rows, method.n_neighbors).to_csr(), width))
    smooth = features.gram_with(L, alpha)

    def weigh(W: Array, b: Array, F: Array) -> Array:
        return np.asarray(0.5 / np.sqrt(row_norms(features.forward(W) + b - F) ** 2 + EPSILON))

    def begin() -> Arrays:
        draw = np.random.default_rng(method.seed)
        at = {"W": draw.random((d, q)), "b": draw.random(q)} if start is None else dict(start)
        F = np.where(known, labels, 0.0)
        return at | {"F": F, "s": weigh(at["W"], at["b"], F), "D": np.ones(d)}

    def turn(at: Arrays) -> tuple[Arrays, float]:
        F, s = at["F"], at["s"]
        total, X_s = s.sum(), features.backward(s[:, np.newaxis])[:, 0]
        G = features.gram(s) + smooth
        G -= np.outer(X_s, X_s / total)
        G[np.diag_indices(d)] += lambda_ * at["D"]
        right = features.backward(s[:, np.newaxis] * (F - s @ F / total)) + alpha * features.backward(L.product(F))
        W = np.asarray(linalg.solve(G, right, assume_a="pos", check_finite=False))
        norms = row_norms(W)
        s = weigh(W, at["b"], F)
        b = (s @ F - features.backward(s[:, np.newaxis])[:, 0] @ W) / s.sum()
        P = features.forward(W) + b
        F = np.where(known, labels, np.clip(P, -1.0, 1.0))
        value = float(row_norms(P - F).sum()) + alpha * float(np.vdot(P, L.product(P)))
        value += lambda_ * float((norms**p).sum())
        return {"W": W, "b": b, "F": F, "s": s, "D": 0.5 * p * (norms**2 + EPSILON) ** (0.5 * p - 1.0)}, value

    at, trace = run_program(
        begin,
        turn,
        name="MLMLFS",
        cure=f"take {parameter('variant', 'corrected')}",
        has_converged=lambda before, now: abs(now - before) <= method.tol * abs(before),
        max_iter=method.max_iter,
    )
    return ExactFit(row_norms(at["W"]), trace, {})


def workspace(*, sparse: bool) -> str:
    """What `fit` holds besides X and Y: the graph, X'LX and the system for W, labels, predictions and rows of them."""
    own = f"8 n k + {4 * gates.VALUES_AT_ONCE} + 10 n q + 5 d d + 6 d q + strips"
    return join_terms(matrix.workspace(sparse=sparse), graphs.workspace(), own)
