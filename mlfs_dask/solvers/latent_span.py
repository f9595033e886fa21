"""Regression on latent labels that are linear in the data: no row is needed, only their joint sums.

Minimises ‖XW − V‖² + α‖Y − VB‖² + c tr V'(I − ZΛ⁻¹Z')V + Σ_j σ_j ‖v_j‖² + γ Σ‖w_f‖ with BB' = I. Given W and B, V
solves a linear system whose solution is V = X C_X + Y C_Y + Z C_Z (Woodbury, in m unknowns), so that V'V, X'V, Y'V and
Z'V follow from the sums of [X Y Z]'[X Y Z].
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.proximal import Solution
from mlfs_dask.statistics.anchor_sums import AnchorTotals

Array = NDArray[np.float64]


@dataclass(frozen=True)
class Span:
    """Sums of the centred columns of X (d), Y (q) and of the anchor weights Z (m)."""

    XX: Array
    XY: Array
    YY: Array
    graph: AnchorTotals

    @cached_property
    def modes(self) -> tuple[Array, Array]:
        """T, shape (m, m), and ν, shape (m, 1): T Z'Z T' = diag(ν) and T Λ T' = I, but for anchors of no row."""
        root = np.sqrt(self.graph.inverse_masses)
        values, vectors = np.linalg.eigh(self.graph.ZZ * root * root[:, np.newaxis])
        return vectors.T * root, values[:, np.newaxis]

    def latent(
        self, W: Array, B: Array, alpha: float, smooth: float, coupling: Array
    ) -> tuple[Array, Array, Array, Array]:
        """X'V, Y'V, Z'V and V'V of the best V; `smooth` is c, and `coupling` has σ."""
        ZX, ZY, (T, nu) = self.graph.ZX, self.graph.ZY, self.modes
        scale = 1.0 + alpha + smooth + coupling
        right = T @ (ZX @ W + alpha * ZY @ B.T)
        C_Z = T.T @ (smooth * right / (scale - smooth * nu))
        C_X, C_Y, C_Z = W / scale, alpha * B.T / scale, C_Z / scale
        XV = self.XX @ C_X + self.XY @ C_Y + ZX.T @ C_Z
        YV = self.XY.T @ C_X + self.YY @ C_Y + ZY.T @ C_Z
        ZV = ZX @ C_X + ZY @ C_Y + self.graph.ZZ @ C_Z
        return XV, YV, ZV, C_X.T @ XV + C_Y.T @ YV + C_Z.T @ ZV


def solve(
    span: Span,
    B: Array,
    *,
    alpha: float,
    smooth: float,
    coupling: Array | None = None,
    gamma: float,
    absolute: bool,
    tol: float,
    max_iter: int,
) -> tuple[Solution, float]:
    """W of least objective by blocks, and γ as it is. No step raises the objective.

    Parameters
    ----------
    span : Span
    B : float64 array, shape (k, q)
        The first one; the only one where a coupling is given.
    alpha, smooth : float
        `smooth` is c.
    coupling : float64 array, shape (k,), optional
        σ.
    gamma : float
        Relative to the least at which the first W is 0, unless it is `absolute`.
    absolute : bool
    tol : float
    max_iter : int
    """
    sigma = np.zeros(len(B)) if coupling is None else coupling
    W, epsilon = np.zeros((len(span.XX), len(B))), 0.0
    objective: list[float] = []
    weight = 0.0
    for _ in range(max_iter):
        XV, YV, ZV, VV = span.latent(W, B, alpha, smooth, sigma)
        if coupling is None:
            P, _, Q = np.linalg.svd(YV.T, full_matrices=False)
            B = P @ Q
        weight = weight or (gamma if absolute else gamma * 2.0 * float(row_norms(XV).max(initial=0.0)))
        if weight == 0.0:
            return Solution(W, objective, True), weight
        W, epsilon = row_sparse.reweight(span.XX, XV, weight, W, epsilon)
        size = float(np.trace(VV))
        value = float(np.vdot(W, span.XX @ W - 2.0 * XV)) + size + float(sigma @ np.diag(VV))
        value += alpha * (float(np.trace(span.YY)) - 2.0 * float(np.vdot(B, YV.T)) + size)
        value += smooth * (size - float(np.vdot(ZV, span.graph.inverse_masses[:, np.newaxis] * ZV)))
        objective.append(value + weight * row_sparse.penalty(W, epsilon))
        if len(objective) > 1 and objective[-2] - objective[-1] <= tol * objective[-2]:
            return Solution(W, objective, True), weight
    return Solution(W, objective, False), weight
