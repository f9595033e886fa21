"""Row-sparse least squares by reweighting: min tr(P'GP) − 2 tr(P'B) + β Σ (√(‖pⁱ‖² + ε²) − ε), G = X'SX, B = X'SY.

Every step replaces the penalty by a quadratic that touches it from above, β Σ ‖pⁱ‖²/tⁱ with tⁱ = 2√(‖pⁱ‖² + ε²), so
that no step raises the objective, however loosely it is solved. With ε > 0 a row that goes to zero ends proportional to
its gradient, not at zero: rows near zero still have an order. F. Nie, H. Huang, X. Cai, C. Ding, "Efficient and robust
feature selection via joint ℓ2,1-norms minimization", NIPS 23 (2010) 1813-1821.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.solvers.conjugate_gradients import conjugate_gradients
from mlfs_dask.typing import Array

#: ε relative to the root mean square of the row norms of the first P.
SMOOTHING = 1e-6

#: Largest trace, as a fraction of β, of diag(√t) G diag(√t) in the rows that count as weak.
_WEAK = 0.01

#: Relative change at which the alternation of strong and weak rows has converged, and its maximum number of rounds.
_SETTLED = 1e-8
_TURNS = 12

#: Most reweightings that are made of one problem before it changes, and the relative change of P that ends them.
REWEIGHTINGS, MOVED = 10, 0.01

#: Arrays of shape (d, d) that `solve_gram` holds besides G.
SQUARE_MATRICES = 2

#: Arrays of shape (d, c) that `solve_products` holds.
FEATURE_MATRICES = 8


class Step(NamedTuple):
    """A reweighted step: P (d, c), applications of the operator, relative residual of its worst column."""

    P: Array
    steps: int
    residual: float


def smoothing(P: Array) -> float:
    """Return ε for a problem whose first solution is P."""
    norms = row_norms(P)
    return SMOOTHING * float(np.sqrt((norms**2).mean())) if norms.size else 0.0


def critical_weight(B: Array) -> float:
    """Return the least β at which P is 0."""
    return 2.0 * float(row_norms(B).max(initial=0.0))


def weights(P: Array, epsilon: float, power: float = 1.0) -> Array:
    """Return tⁱ = 1/D_ii of the next step, shape (d,), for a penalty by a power of the norms of rows, at most 1.

    >>> weights(np.array([[3.0, 4.0], [0.0, 0.0]]), 0.5).round(3)
    array([10.05,  1.  ])
    """
    norms = row_norms(P)
    return np.asarray(2.0 / power * np.sqrt(norms**2 + epsilon**2) ** (2.0 - power))


def penalty(P: Array, epsilon: float, power: float = 1.0) -> float:
    """Return Σ (√(‖pⁱ‖² + ε²) − ε), which is ‖P‖_{2,1} up to ε; of another power Σ ((‖pⁱ‖² + ε²)^(power/2) − ε^power).

    >>> penalty(np.array([[3.0, 4.0], [0.0, 0.0]]), 0.0)
    5.0
    """
    norms = row_norms(P)
    return float((np.sqrt(norms**2 + epsilon**2) ** power - epsilon**power).sum())


def solve_gram(
    G: Array, B: Array, beta: float, t: Array, *, start: Array | None = None, product: Array | None = None
) -> Step:
    """Return (G + β diag(1/t))⁻¹ B by a factorisation; rows of t = 0 are zero.

    As rows of P go to zero, so do their t and their coupling with the others. Where most rows are such weak ones, only
    the strong rows are factorised, and the two groups are solved for alternately; two or three rounds are enough.

    Parameters
    ----------
    G : float64 array, shape (d, d)
        Symmetric, positive semidefinite.
    B : float64 array, shape (d, c)
    beta : float
        Where it is 0, or next to it, and G is singular, P is the shortest solution.
    t : float64 array, shape (d,)
    start : float64 array, shape (d, c), optional
        The last P, from which the alternation starts.
    product : float64 array, shape (d, c), optional
        G times it.

    Examples
    --------
    >>> solve_gram(np.array([[3.0]]), np.array([[2.0]]), 1.0, np.array([1.0])).P
    array([[0.5]])
    """
    root = np.sqrt(t) if beta > 0 else np.ones_like(t)
    if beta > 0:
        # The trace of the weak rows' part of diag(√t) G diag(√t) bounds its norm.
        strength = t * np.diag(G) / beta
        order = np.argsort(strength, kind="stable")
        weak = order[np.cumsum(strength[order]) <= _WEAK]
        if 2 * len(weak) > len(t):
            P = _solve_strong(G, B, beta, root, np.sort(weak), start, product)
            if P is not None:
                return Step(P, 0, 0.0)
    return Step(root[:, np.newaxis] * _factorised(G, beta, root)(root[:, np.newaxis] * B), 0, 0.0)


def reweight(G: Array, B: Array, beta: float, P: Array, epsilon: float, power: float = 1.0) -> tuple[Array, float]:
    """Return the next P, and ε: weights and P in turn, until P moves little. G and B may change from one call to the
    next.

    Parameters
    ----------
    G, B, beta
        As in `solve_gram`.
    P : float64 array, shape (d, c)
        The last one.
    epsilon : float
        0 at the beginning, where ε follows from the first solution.
    power : float
        As in `weights`.

    Examples
    --------
    >>> P, epsilon = reweight(np.eye(2), np.array([[3.0], [0.5]]), 2.0, np.zeros((2, 1)), 0.0)
    >>> P.round(1).tolist(), epsilon > 0
    ([[2.0], [0.0]], True)
    """
    if beta >= critical_weight(B) and not (power < 1.0 and P.any()):
        return np.zeros_like(P), 0.0
    for _ in range(REWEIGHTINGS):
        t = weights(P, epsilon, power) if epsilon else np.ones(len(P))
        P, before = solve_gram(G, B, beta, t, start=P).P, P
        epsilon = epsilon or smoothing(P)
        if np.linalg.norm(P - before) <= MOVED * np.linalg.norm(P):
            break
    return P, epsilon


def minimise(G: Array, B: Array, beta: float, *, tol: float, max_iter: int) -> tuple[Array, list[float], bool]:
    """Return P of the least tr(P'GP) − 2 tr(P'B) + β Σ (√(‖pⁱ‖² + ε²) − ε), the objective after every step, and
    whether it had come to rest: it changed by at most `tol` of the largest that it was.

    >>> P, objective, converged = minimise(np.eye(2), np.array([[3.0], [0.5]]), 2.0, tol=1e-6, max_iter=99)
    >>> P.round(3).tolist(), converged
    ([[2.0], [0.0]], True)
    """
    P, epsilon, t, objective = np.zeros_like(B), 0.0, np.ones(len(B)), []
    if beta >= critical_weight(B):
        return P, [0.0], True
    for _ in range(max_iter):
        P = solve_gram(G, B, beta, t, start=P).P
        epsilon = epsilon or smoothing(P)
        t = weights(P, epsilon)
        objective.append(float(np.vdot(P, G @ P - 2.0 * B)) + beta * penalty(P, epsilon))
        if len(objective) > 1 and objective[-2] - objective[-1] <= tol * max(map(abs, objective)):
            return P, objective, True
    return P, objective, False


def _factorised(G: Array, beta: float, root: Array) -> Callable[[Array], Array]:
    """Return a function that applies (diag(root) G diag(root) + β)⁻¹, or its pseudo-inverse."""
    M = root[:, np.newaxis] * G
    M *= root
    M[np.diag_indices_from(M)] += beta
    factor = _cholesky_factor(M)
    if factor is not None:
        return lambda right: np.asarray(linalg.cho_solve(factor, right, check_finite=False))
    values, vectors = linalg.eigh(M.T, overwrite_a=True, check_finite=False)
    first = int(np.searchsorted(values, 1e-12 * max(values[-1], 0.0), side="right"))
    values, vectors = values[first:, np.newaxis], vectors[:, first:]
    return lambda right: np.asarray(vectors @ ((vectors.T @ right) / values))


def _cholesky_factor(M: Array) -> tuple[Array, bool] | None:
    """Return the factor of M for `cho_solve`; None if M is singular or nearly singular."""
    try:
        factor = linalg.cho_factor(M, lower=True, check_finite=False)
    except linalg.LinAlgError:
        return None
    # LAPACK also returns a factor of a nearly singular M, whose solutions would have no correct digits.
    diagonal = np.abs(np.diag(factor[0]))
    return None if diagonal.min(initial=1.0) < 1e-7 * diagonal.max(initial=1.0) else (factor[0], True)


def _solve_strong(
    G: Array,
    B: Array,
    beta: float,
    root: Array,
    weak: NDArray[np.intp],
    start: Array | None,
    product: Array | None,
) -> Array | None:
    """Return the solution by alternating strong rows (factorised) and weak ones (fixed-point step); None if that
    fails.
    """
    strong = np.setdiff1d(np.arange(len(root)), weak, assume_unique=True)
    across = G[:, strong]
    square = across[strong]
    inverse = _factorised(square, beta, root[strong])
    column = root[strong, np.newaxis]
    factor = root[weak, np.newaxis] ** 2 / beta
    P = np.zeros_like(B) if start is None else start.copy()
    product, change = G @ P if product is None else product.copy(), np.inf
    for _ in range(_TURNS):
        new = column * inverse(column * (B[strong] - product[strong] + square @ P[strong]))
        product += across @ (new - P[strong])
        P[strong] = new
        rest = factor * (B[weak] - product[weak])
        before, change = change, float(np.linalg.norm(rest - P[weak]))
        P[weak] = rest
        if _WEAK * change <= _SETTLED * float(np.linalg.norm(rest)):  # the next change is smaller by _WEAK or more
            return P
        if change > 0.5 * before:
            break
        product = G @ P
    return None


def solve_products(
    normal: Callable[[Array], Array],
    B: Array,
    beta: float,
    t: Array,
    *,
    start: Array,
    diagonal: Array,
    tol: float,
    max_iter: int,
) -> Step:
    """Return (G + β diag(1/t))⁻¹ B by conjugate gradients, G being known by its products alone.

    Parameters
    ----------
    normal : callable
        G P for any P of shape (d, c'); may be a pass over X.
    B, beta, t
        As in `solve_gram`.
    start : float64 array, shape (d, c)
        The last P.
    diagonal : float64 array, shape (d,)
        About the diagonal of G; for the preconditioner.
    tol : float
        ‖residual‖ / ‖right-hand side‖ of every column.
    max_iter : int
    """
    root = np.sqrt(t) if beta > 0 else np.ones_like(t)
    column = root[:, np.newaxis]
    inverse = np.zeros_like(column)
    np.divide(start, column, out=(Q := np.zeros_like(start)), where=column > 0)
    scale = (root**2 * diagonal + beta)[:, np.newaxis]
    np.divide(1.0, scale, out=inverse, where=scale > 0)

    def operator(V: Array, _: NDArray[np.intp]) -> Array:
        return np.asarray(column * normal(column * V) + beta * V)

    solution = conjugate_gradients(
        operator,
        column * B,
        x0=Q if Q.any() else None,
        precondition=lambda R, _: inverse * R,
        tol=tol,
        max_iter=max_iter,
    )
    return Step(column * solution.x, solution.iterations, float(solution.residuals.max(initial=0.0)))
