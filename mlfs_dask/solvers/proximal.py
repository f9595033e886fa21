"""Sparse least squares by accelerated proximal gradients, on sums over all rows.

Minimises ½ tr W'GW − tr W'B + ½ tr W R W' + λ₁ Σ|w| + λ₂₁ Σ‖w_f‖ with G = X'X, B = X'Y. A. Beck, M. Teboulle, "A fast
iterative shrinkage-thresholding algorithm for linear inverse problems", SIAM Journal on Imaging Sciences 2 (2009)
183-202; the momentum starts again where the objective would rise (B. O'Donoghue, E. Candès, "Adaptive restart for
accelerated gradient schemes", Foundations of Computational Mathematics 15 (2015) 715-732).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.proximal import row_norms, shrink_entries, shrink_rows

Array = NDArray[np.float64]

#: Arrays of shape (d, c) that `solve` holds.
FEATURE_MATRICES = 9


class Solution(NamedTuple):
    """Weights, (d, c), the objective after every step, and whether W had come to rest."""

    W: Array
    objective: list[float]
    converged: bool


def solve(
    G: Array, B: Array, R: Array, *, entries: float = 0.0, rows: float = 0.0, tol: float, max_iter: int
) -> Solution:
    """W of the least objective, from 0. No step raises the objective.

    Parameters
    ----------
    G : float64 array, shape (d, d)
        Symmetric, positive semidefinite.
    B : float64 array, shape (d, c)
    R : float64 array, shape (c, c)
        Symmetric, positive semidefinite.
    entries, rows : float
        λ₁, the weight of the absolute values of W, and λ₂₁, that of the norms of its rows.
    tol : float
        Change of W in a step, relative to W, at which it has come to rest.
    max_iter : int

    Examples
    --------
    >>> solve(np.eye(2), np.array([[3.0], [0.5]]), np.zeros((1, 1)), entries=1.0, tol=1e-6, max_iter=9).W
    array([[2.],
           [0.]])
    """
    W = V = GW = GV = np.zeros_like(B)
    # The step length is 1/L, and L is doubled until it bounds the curvature along the step.
    L = max(float(np.diag(G).max(initial=0.0) + np.diag(R).max(initial=0.0)), np.finfo(float).tiny)
    objective, momentum = [0.0], 1.0
    for _ in range(max_iter):
        slope = GV - B + V @ R
        while True:
            new = shrink_rows(shrink_entries(V - slope / L, entries / L), rows / L)
            G_new = G @ new
            step = new - V
            if np.vdot(step, G_new - GV + step @ R) <= L * np.vdot(step, step):
                break
            L *= 2.0
        value = float(np.vdot(new, 0.5 * (G_new + new @ R) - B))
        value += entries * float(np.abs(new).sum()) + rows * float(row_norms(new).sum())
        if value > objective[-1]:
            if momentum == 1.0:  # by rounding: this is the minimum
                return Solution(W, objective[1:], True)
            V, GV, momentum = W, GW, 1.0
            continue
        faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        ahead, momentum = (momentum - 1.0) / faster, faster
        change = np.linalg.norm(new - W)
        V, GV = new + ahead * (new - W), G_new + ahead * (G_new - GW)
        W, GW = new, G_new
        objective.append(value)
        if change <= tol * np.linalg.norm(W):
            return Solution(W, objective[1:], True)
    return Solution(W, objective[1:], False)
