"""Sparse least squares by accelerated proximal gradients, on sums over all rows.

Minimises ½ tr W'GW − tr W'B + ½ tr W R W' + λ₁ Σ|w| + λ₂₁ Σ‖w_f‖ with G = X'X, B = X'Y; or, with W = W₁ + W₂, the same
where one penalty is that of W₁ and the other that of W₂. A. Beck, M. Teboulle, "A fast iterative shrinkage-thresholding
algorithm for linear inverse problems", SIAM Journal on Imaging Sciences 2 (2009) 183-202; the momentum starts again
where the objective would rise (B. O'Donoghue, E. Candès, "Adaptive restart for accelerated gradient schemes",
Foundations of Computational Mathematics 15 (2015) 715-732).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.proximal import row_norms, shrink_entries, shrink_rows
from mlfs_dask.typing import Array

#: Arrays of shape (d, c) that `solve` holds, and with two matrices of weights.
FEATURE_MATRICES, SPLIT_MATRICES = 9, 14


class Solution(NamedTuple):
    """Weights, (d, c), or W₁ and W₂, (2, d, c); the objective after every step; whether they had come to rest."""

    W: Array
    objective: list[float]
    converged: bool


def solve(
    G: Array | None,
    B: Array,
    R: Array,
    *,
    entries: float = 0.0,
    rows: float | Array = 0.0,
    split: bool = False,
    groups: Array | None = None,
    start: Array | None = None,
    tol: float,
    max_iter: int,
) -> Solution:
    """Return W of the least objective. No step raises the objective.

    Parameters
    ----------
    G : float64 array, shape (d, d), or None
        Symmetric, positive semidefinite; None: 0.
    B : float64 array, shape (d, c)
    R : float64 array, shape (c, c)
        Symmetric, positive semidefinite.
    entries : float
        λ₁, the weight of the absolute values of W.
    rows : float, or float64 array, shape (d,)
        λ₂₁, the weight of the norms of the rows of W, or one of each.
    split : bool
        Whether W = W₁ + W₂, and the absolute values are those of W₁, the norms those of W₂.
    groups : float64 array, shape (c,), optional
        Group of every column; what counts are the norms of the rows within the columns of a group. One by default.
    start : float64 array, shape (d, c), or (2, d, c)
        The W from which steps begin; 0 by default.
    tol : float
        Change of W in a step, relative to W, at which it has come to rest.
    max_iter : int

    Examples
    --------
    >>> solve(np.eye(2), np.array([[3.0], [0.5]]), np.zeros((1, 1)), entries=1.0, tol=1e-6, max_iter=9).W
    array([[2.],
           [0.]])
    """
    columns = parts(groups) if groups is not None else [slice(None)]

    def objective_of(W: Array, total: Array, GW: Array) -> float:
        value = float(np.vdot(total, 0.5 * (GW + total @ R) - B))
        norms = sum(float(np.sum(rows * row_norms(W[-1][:, part]))) for part in columns)
        return value + entries * float(np.abs(W[0]).sum()) + norms

    def product(W: Array) -> Array:
        return np.zeros_like(W) if G is None else np.asarray(G @ W)

    W = V = np.zeros((1 + split, *B.shape)) if start is None else start.reshape(1 + split, *B.shape)
    GW = GV = product(W.sum(axis=0))  # of the sums of W and of V
    # The step length is 1/L, and L is doubled until it bounds the curvature along the step.
    L = float(np.diag(R).max(initial=0.0) + (0.0 if G is None else np.diag(G).max(initial=0.0)))
    L = max(L, np.finfo(float).tiny)
    objective, momentum = [objective_of(W, W.sum(axis=0), GW)], 1.0
    for _ in range(max_iter):
        ahead = V.sum(axis=0)
        slope = GV - B + ahead @ R
        while True:
            new = V - slope / L
            shrink_entries(new[0], entries / L)
            for part in columns:
                new[-1][:, part] = shrink_rows(new[-1][:, part], rows / L)
            total, moved = new.sum(axis=0), new - V
            G_new = product(total)
            step = total - ahead
            # Rounding must not decide: in one dimension the two are equal.
            if np.vdot(step, G_new - GV + step @ R) <= L * np.vdot(moved, moved) * (1.0 + 1e-9):
                break
            L *= 2.0
        value = objective_of(new, total, G_new)
        if value > objective[-1]:
            if momentum == 1.0:  # by rounding: this is the minimum
                return Solution(W if split else W[0], objective[1:], True)
            V, GV, momentum = W, GW, 1.0
            continue
        faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        speed, momentum = (momentum - 1.0) / faster, faster
        change = np.linalg.norm(new - W)
        V, GV = new + speed * (new - W), G_new + speed * (G_new - GW)
        W, GW = new, G_new
        objective.append(value)
        if change <= tol * np.linalg.norm(W):
            return Solution(W if split else W[0], objective[1:], True)
    return Solution(W if split else W[0], objective[1:], False)


def parts(groups: Array) -> list[NDArray[np.intp]]:
    """Return columns of every group.

    >>> [part.tolist() for part in parts(np.array([2.0, 0.0, 2.0]))]
    [[1], [0, 2]]
    """
    return [np.flatnonzero(groups == group) for group in np.unique(groups)]
