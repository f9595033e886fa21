"""Quadratic programs whose columns lie on the unit simplex, by accelerated projected gradients.

min ½ tr(W'QW) + ½ tr(W L W') − tr(W'R) over W >= 0 with columns that sum to 1. Steps are those of Beck & Teboulle with
backtracking and the restart of O'Donoghue & Candès; it stops by the gap of Frank & Wolfe, an upper bound of how far the
objective is from its least value where it is convex. Most rows of W become zero soon: iterations are made with a
working set of the others, and rows return to it whose multipliers say so (Joachims 1999, "shrinking").

A. Beck, M. Teboulle, "A fast iterative shrinkage-thresholding algorithm for linear inverse problems", SIAM Journal on
Imaging Sciences 2 (2009) 183-202, doi:10.1137/080716542. B. O'Donoghue, E. Candès, "Adaptive restart for accelerated
gradient schemes", Foundations of Computational Mathematics 15 (2015) 715-732, doi:10.1007/s10208-013-9150-3.
T. Joachims, "Making large-scale SVM learning practical", in Advances in Kernel Methods, MIT Press 1999, 169-184.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.solvers.low_rank import LowRankPlusDiagonal
from mlfs_dask.typing import Array

#: Arrays of the shape of W that the solver holds, without R.
MATRICES = 8

#: Factor by which the curvature that steps presume is above one that was met.
CURVATURE_MARGIN = 1.1

#: Iterations after which rows that have become zero are left out, where they are half of all or more; twice as many
#: each time, since momentum is lost with every change of the rows.
SHRINK_AFTER = 25


@dataclass(frozen=True)
class Solution:
    """Result of the solver.

    Attributes
    ----------
    W : float64 array, shape (m, c)
    multipliers : float64 array, shape (m, c)
        By how much the objective rises with each weight at the expense of the column's others: 0 or more, and about 0
        where a weight is positive.
    objective : list of float
        At the start, with equal weights, and after every iteration.
    gap : float
        Upper bound of what the objective is above its least value, as a share of its size.
    converged : bool
    """

    W: Array
    multipliers: Array
    objective: list[float]
    gap: float
    converged: bool


def solve_on_simplex(
    Q: Array | LowRankPlusDiagonal, R: Array, L: Array | None = None, *, tol: float, max_iter: int
) -> Solution:
    """Minimise ½ tr(W'QW) + ½ tr(W L W') − tr(W'R) over W >= 0 with columns that sum to 1.

    Parameters
    ----------
    Q : float64 array, shape (m, m), or LowRankPlusDiagonal
        Symmetric; an array has no negative entries.
    R : float64 array, shape (m, c)
    L : float64 array, shape (c, c), optional
        A Laplacian; none by default.
    tol : float
        Largest gap, as a share of the size of the objective, at which it stops.
    max_iter : int

    Examples
    --------
    >>> Q, R = np.eye(3), np.array([[0.9], [0.5], [0.1]])
    >>> solution = solve_on_simplex(Q, R, tol=1e-12, max_iter=100)
    >>> solution.W.ravel().round(6).tolist(), solution.multipliers.ravel().round(6).tolist()
    ([0.7, 0.3, 0.0], [0.0, 0.0, 0.1])
    """
    m, c = R.shape
    # Steps lie between columns that sum to 1: their curvature is far below the largest eigenvalue of Q, whose vector
    # has one sign, and is met by trying. The mean of the diagonal is below the largest eigenvalue.
    curvature = float(Q.diagonal().mean()) + (0.0 if L is None else float(L.diagonal().mean()))
    # A linear objective has any step; this one leaves most digits of the weights.
    curvature = max(curvature, 1e-6 * float(np.abs(R).max(initial=0.0))) or 1.0

    W = np.full((m, c), 1.0 / max(m, 1))
    working, patience = np.arange(m), SHRINK_AFTER
    objective: list[float] = []
    while True:
        part = Q if len(working) == m else principal_submatrix(Q, working)
        W[working], curvature, converged = _descend(
            part, R[working], L, W[working], curvature, tol, max_iter, objective, patience
        )
        gradient = _image(Q, W, L) - R
        best = gradient.min(axis=0)
        gap = _relative_gap(W, gradient, objective[-1])
        if gap <= tol or len(objective) > max_iter:
            return Solution(W, gradient - best, objective, gap, bool(gap <= tol))
        # Weight would move to rows whose gradient is below the mean of the column.
        wanted = np.flatnonzero(((W > 0) | (gradient < np.einsum("fc,fc->c", W, gradient))).any(axis=1))
        if not converged:
            patience *= 2
            working = wanted if len(wanted) <= m // 2 else np.arange(m)
            continue
        # From here on the working set grows: it cannot go round in circles.
        patience, grown = max_iter, np.union1d(working, wanted)
        # More than half of all rows save little; that none is missing only rounding errors can bring about.
        working = grown if len(working) < len(grown) <= m // 2 else np.arange(m)


def principal_submatrix(Q: Array | LowRankPlusDiagonal, rows: NDArray[np.intp]) -> Array | LowRankPlusDiagonal:
    """Return rows and columns of Q.

    >>> principal_submatrix(np.arange(9.0).reshape(3, 3), np.array([0, 2])).tolist()
    [[0.0, 2.0], [6.0, 8.0]]
    """
    return Q.principal_submatrix(rows) if isinstance(Q, LowRankPlusDiagonal) else Q[np.ix_(rows, rows)]


def _image(Q: Array | LowRankPlusDiagonal, W: Array, L: Array | None) -> Array:
    """Return Q W + W L."""
    image: Array = Q @ W
    return image if L is None else image + W @ L


def _relative_gap(W: Array, gradient: Array, objective: float) -> float:
    """Return the duality gap of Frank & Wolfe as a share of the size of the objective."""
    gap = max(float(np.vdot(W, gradient) - gradient.min(axis=0).sum()), 0.0)
    return gap / max(abs(objective), np.finfo(np.float64).tiny)


def _descend(
    Q: Array | LowRankPlusDiagonal,
    R: Array,
    L: Array | None,
    W: Array,
    curvature: float,
    tol: float,
    max_iter: int,
    objective: list[float],
    patience: int,
) -> tuple[Array, float, bool]:
    """Accelerated projected gradients from W, the largest curvature met, and whether they converged.

    Appends to `objective`. They end without after a multiple of `patience` iterations where half of the rows are zero,
    or with the last one.
    """
    image = _image(Q, W, L)
    if not objective:
        objective.append(float(np.vdot(W, 0.5 * image - R)))
    V, image_of_V, t = W, image, 1.0
    iteration = 0
    while True:
        if _relative_gap(W, image - R, objective[-1]) <= tol:
            return W, curvature, True
        if len(objective) > max_iter:
            return W, curvature, False
        while True:
            new = project_columns(V - (image_of_V - R) / curvature)
            image_of_new = _image(Q, new, L)
            move = new - V
            size = float(np.vdot(move, move))
            met = float(np.vdot(move, image_of_new - image_of_V))
            # The curvature of a move far below the weights is rounding.
            if not (met > curvature * size * (1.0 + 1e-9) and size > 1e-16 * float(np.vdot(new, new))):
                break
            curvature = CURVATURE_MARGIN * met / size
        if float(np.vdot(V - new, new - W)) > 0:  # momentum leads upwards
            t = 1.0
        t, last = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * t * t)), t
        momentum = (last - 1.0) / t
        V, image_of_V = new + momentum * (new - W), image_of_new + momentum * (image_of_new - image)
        W, image = new, image_of_new
        objective.append(float(np.vdot(W, 0.5 * image - R)))
        iteration += 1
        if iteration % patience == 0 and 2 * np.count_nonzero(W.any(axis=1)) <= len(W):
            return W, curvature, False


def project_columns(W: Array) -> Array:
    """Return the nearest columns without negative entries that sum to 1.

    J. Duchi et al., "Efficient projections onto the l1-ball for learning in high dimensions", ICML 2008, 272-279,
    doi:10.1145/1390156.1390191.

    >>> project_columns(np.array([[0.9, 2.0], [0.5, 0.0]])).round(6)
    array([[0.7, 1. ],
           [0.3, 0. ]])
    """
    m, c = W.shape
    falling = -np.sort(-W, axis=0)
    excess = (np.cumsum(falling, axis=0) - 1.0) / np.arange(1, m + 1)[:, np.newaxis]
    last = m - 1 - (falling > excess)[::-1].argmax(axis=0)
    projected: Array = np.maximum(W - excess[last, np.arange(c)], 0.0)
    return projected
