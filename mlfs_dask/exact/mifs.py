"""MIFS on rows in memory, by the gradient steps of a published program (Jian, Li, Shu & Liu 2016).

L. Jian, J. Li, K. Shu, H. Liu, "Multi-label informed feature selection", IJCAI 2016, 1627-1633; the program is
MIFS_train.m of MLC_toolbox (K. Kimura), as the authors' was not to be had.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

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
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.typing import Matrix, join_terms

if TYPE_CHECKING:
    from mlfs_dask.selectors.mifs import MIFS
    from mlfs_dask.statistics.moments import FeatureMoments


def fit(method: MIFS, X: Matrix, Y: sp.csr_array, moments: FeatureMoments, start: Arrays | None = None) -> ExactFit:
    """Steps of V, B and W in turn along their gradients, that of B without its α, until the objective changes little.

    Parameters
    ----------
    method : MIFS
    X : ndarray or csr_array, shape (n, d)
        As read, finite.
    Y : csr_array, shape (n, q)
        1 for positive labels, and the share of a label for unknown entries.
    moments : FeatureMoments
        Of X.
    start : mapping, optional
        W (d, l), V (n, l) and B (l, q) to begin with; drawn between 0 and 1 by default.

    Raises
    ------
    MlfsError
        The steps diverge.
    """
    features = ScaledMatrix(X, moments, ddof=1)
    labels = Y.astype(np.float64)
    squares = float(labels.data @ labels.data)
    (n, d), q, epsilon = X.shape, Y.shape[1], np.finfo(np.float64).eps
    alpha, beta, gamma, step = method.alpha, method.beta, method.gamma, method.step
    n_latent = method.latent(q)
    L = Laplacian(heat_kernel_graph(nearest_rows(features.rows, method.n_neighbors).to_csr(), method.lambda_**2))

    def begin() -> Arrays:
        draw, shapes = np.random.default_rng(method.seed), {"W": (d, n_latent), "V": (n, n_latent), "B": (n_latent, q)}
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
        begin,
        descend,
        name="MIFS",
        cure=f"take {parameter('variant', 'corrected')}, or a smaller {parameter('step')}",
        has_converged=lambda before, now: abs(now - before) < method.tol * max(1.0, before),
        max_iter=method.max_iter,
    )
    return ExactFit(row_norms(at["W"]), trace, {"n_latent": n_latent})


def workspace(*, sparse: bool) -> str:
    """What `fit` holds besides X and Y: the graph, latent labels and weights with their successors."""
    return join_terms(matrix.workspace(sparse=sparse), graphs.workspace(), "8 n k + y + 9 n l + 6 d l")
