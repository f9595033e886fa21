"""Regression on latent labels that are linear in the data: no row is needed, only their joint sums.

Minimises ‖XW − V‖² + α‖Y − VB‖² + βc tr V'(I − ZΛ⁻¹Z')V + γ Σ‖w_f‖ with BB' = I. Given W and B, V solves a linear
system whose solution is V = X C_X + Y C_Y + Z C_Z (Woodbury, in m unknowns), so that V'V, X'V, Y'V and Z'V follow
from the sums of [X Y Z]'[X Y Z].
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.proximal import Solution
from mlfs_dask.statistics.anchor_sums import AnchorTotals

Array = NDArray[np.float64]


class Span(NamedTuple):
    """Sums of the centred columns of X (d), Y (q) and of the anchor weights Z (m)."""

    XX: Array
    XY: Array
    YY: Array
    graph: AnchorTotals

    def latent(self, W: Array, B: Array, alpha: float, smooth: float) -> tuple[Array, Array, Array, Array]:
        """X'V, Y'V, Z'V and V'V of the best V; `smooth` is βc."""
        (ZX, masses, ZZ, ZY), scale = self.graph, 1.0 + alpha + smooth
        right = ZX @ W + alpha * ZY @ B.T
        used = masses > 0
        C_Z = np.zeros_like(right)
        system = np.diag(scale * masses[used]) - smooth * ZZ[np.ix_(used, used)]
        C_Z[used] = np.linalg.solve(system, smooth * right[used])
        C_X, C_Y, C_Z = W / scale, alpha * B.T / scale, C_Z / scale
        XV = self.XX @ C_X + self.XY @ C_Y + ZX.T @ C_Z
        YV = self.XY.T @ C_X + self.YY @ C_Y + ZY.T @ C_Z
        ZV = ZX @ C_X + ZY @ C_Y + ZZ @ C_Z
        return XV, YV, ZV, C_X.T @ XV + C_Y.T @ YV + C_Z.T @ ZV


def solve(
    span: Span, n_latent: int, *, alpha: float, smooth: float, gamma: float, absolute: bool, tol: float, max_iter: int
) -> tuple[Solution, float]:
    """W of least objective by blocks, and γ as it is.

    `gamma` is relative to the least at which the first W is 0, unless it is `absolute`.

    No step raises the objective.
    """
    B = np.linalg.eigh(span.YY)[1][:, ::-1][:, :n_latent].T
    W, epsilon = np.zeros((len(span.XX), n_latent)), 0.0
    objective: list[float] = []
    weight = 0.0
    for _ in range(max_iter):
        XV, YV, ZV, VV = span.latent(W, B, alpha, smooth)
        P, _, Q = np.linalg.svd(YV.T, full_matrices=False)
        B = P @ Q
        weight = weight or (gamma if absolute else gamma * 2.0 * float(row_norms(XV).max(initial=0.0)))
        if weight == 0.0:
            return Solution(W, objective, True), weight
        W, epsilon = row_sparse.reweight(span.XX, XV, weight, W, epsilon)
        size = float(np.trace(VV))
        value = float(np.vdot(W, span.XX @ W - 2.0 * XV)) + size
        value += alpha * (float(np.trace(span.YY)) - 2.0 * float(np.vdot(B, YV.T)) + size)
        value += smooth * (size - float(np.vdot(ZV, span.graph.inverse_masses[:, np.newaxis] * ZV)))
        objective.append(value + weight * row_sparse.penalty(W, epsilon))
        if len(objective) > 1 and objective[-2] - objective[-1] <= tol * objective[-2]:
            return Solution(W, objective, True), weight
    return Solution(W, objective, False), weight
