"""mFSIR on rows in memory (Mansouri, Benabdeslem & Benkabou), with the graph of the paper (Eq. 6).

Y is factorised as VB with a few non-negative latent labels V, smooth over near rows, and V is regressed on the features
with weights G⊙H (Eq. 8). Blockwise steps, or the steps of Algorithm 1 as printed.

D. E. K. Mansouri, K. Benabdeslem, S.-E. Benkabou, "Implicit regularization for multi-label feature selection",
arXiv:2411.11436, doi:10.48550/arXiv.2411.11436.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.column_keys import key_places
from mlfs_dask.blocks.factorisation import nonnegative_factors
from mlfs_dask.blocks.heat_kernel import heat_kernel_graph
from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.engine import checkpoints
from mlfs_dask.exact import graphs, matrix
from mlfs_dask.exact.fit import ExactFit, save_if_due
from mlfs_dask.exact.graphs import nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.solvers import blockwise, spectral
from mlfs_dask.solvers.blockwise import Factors, Problem
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace
from mlfs_dask.typing import Array, Matrix, join_terms

if TYPE_CHECKING:
    from mlfs_dask.selectors.mfsir import MFSIR
    from mlfs_dask.statistics.moments import FeatureMoments


def fit(method: MFSIR, X: Matrix, Y: sp.csr_array, moments: FeatureMoments) -> ExactFit:
    """Fit mFSIR.

    Parameters
    ----------
    method : MFSIR
    X : ndarray or csr_array, shape (n, d)
        As read, finite.
    Y : csr_array, shape (n, q)
        1 for positive labels, and the share of a label for unknown entries.
    moments : FeatureMoments
        Of X.

    Raises
    ------
    MlfsError
        The fixed form diverges.
    """
    n, d = X.shape
    features = ScaledMatrix(X, moments)
    labels = sp.csr_array(Y, dtype=np.float64)
    laplacian = None
    if method.beta > 0 and n > 1:
        laplacian = _laplacian(features, method.n_neighbors, method.lambda_)
    products = _Products(features, method.gram_cap)
    problem = Problem(labels, laplacian, products, float(method.alpha), float(method.beta))

    checkpoint = checkpoints.current()
    state = checkpoint.load()
    if state is None:
        at, trace = _start(method, labels, d), LoopTrace()
        rho = spectral.largest_eigenvalue(
            products.normal, spectral.starting_block(key_places(X, moments.m2 > 0), moments.m2 > 0)
        )
    else:
        at = Factors(**{name: state.arrays[name] for name in ("G", "H", "V", "B")})
        trace, rho = LoopTrace(**state.facts["trace"]), float(state.facts["rho"])

    def save(at: Factors, trace: LoopTrace) -> None:
        save_if_due(checkpoint, vars(at), trace, rho=rho)

    extra: dict[str, Any] = {
        "n_latent": at.V.shape[1],
        "rho": rho,
        "gram": d <= method.gram_cap,
        "graph": None if laplacian is None else {"kind": "exact"},
    }
    loop: dict[str, Any] = {"tol": method.tol, "max_iter": method.max_iter, "save": save}
    if method.step == "fixed":
        extra["eta"] = _stable_step(problem, rho) if method.eta is None else float(method.eta)
        blockwise.solve_fixed(problem, at, trace, eta=extra["eta"], **loop)
        return ExactFit(row_norms(at.W), trace, extra)
    loop |= {"weight_steps": method.weight_steps_of(d), "label_steps": method.label_steps, "rho": rho}
    blockwise.solve_blockwise(problem, at, trace, **loop)
    return ExactFit(row_norms(at.W), trace, extra)


def workspace(*, sparse: bool, gram: bool, graph: bool) -> str:
    """What `fit` holds besides X and Y: latent labels, weights, the search of λ_max, X'X, the graph."""
    return join_terms(
        matrix.workspace(sparse=sparse),
        f"y + {blockwise.ROW_MATRICES} n l + {blockwise.FEATURE_MATRICES} d l",
        f"{2 * spectral.BLOCK * spectral.MAX_PRODUCTS} d",
        "d d" if gram else "",
        join_terms(graphs.workspace(), "4 n k") if graph else "",
    )


def _laplacian(features: ScaledMatrix, n_neighbors: int, lambda_: float | None) -> Laplacian:
    """L of Eq. 5 for the graph of Eq. 6."""
    distances = nearest_rows(features.rows, n_neighbors).to_csr()
    # The mean squared distance over all pairs is 2 Σ var_f, and a standardised feature has variance 1.
    mean = 2.0 * float((features.factor > 0).sum())
    return Laplacian(heat_kernel_graph(distances, mean if lambda_ is None else float(lambda_) ** 2))


def _start(method: MFSIR, Y: sp.csr_array, d: int) -> Factors:
    """G, H, V and B to start from."""
    n, q = Y.shape
    n_latent, omega = method.latent(q), method.omega
    if method.step == "fixed":
        shapes = (d, n_latent), (d, n_latent), (n, n_latent), (n_latent, q)
        seeds = np.random.SeedSequence(method.seed).spawn(4)
        draws = (np.random.default_rng(s).uniform(-omega, omega, shape) for s, shape in zip(seeds, shapes, strict=True))
        return Factors(*draws)
    T, B = nonnegative_factors(Y, n_latent)
    V = np.maximum(np.asarray(Y @ T), 0.0)
    # All features begin alike and weights may take either sign; a random start would show in the ranking. The size of G
    # does not matter: the step of each factor is scaled by the size of the other.
    return Factors(np.ones((d, len(B))), np.zeros((d, len(B))), V, B)


class _Products:
    """Products with standardised X: by X'X up to the Gram cap."""

    def __init__(self, features: ScaledMatrix, gram_cap: int) -> None:
        self.forward = features.forward
        self.backward = features.backward
        self._gram = features.gram() if features.shape[1] <= gram_cap else None

    def normal(self, W: Array) -> Array:
        if self._gram is not None:
            return np.asarray(self._gram @ W)
        return self.backward(self.forward(W))


def _stable_step(problem: Problem, rho: float) -> float:
    """1 over the largest Lipschitz constant of the four blocks, their factors being of size 1."""
    pairs = (problem.Y.T @ problem.Y).toarray()
    smooth = 1.0 + problem.alpha + 2.0 * problem.beta * problem.largest_degree
    return 0.5 / max(rho, smooth, problem.alpha * float(np.linalg.eigvalsh(pairs)[-1]))
