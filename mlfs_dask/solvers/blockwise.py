"""Gradient steps of mFSIR (Mansouri, Benabdeslem & Benkabou), block by block; products with X are passed as functions.

Minimises ‖X(G⊙H) − V‖² + α‖Y − VB‖² + β tr(V'LV) over G, H, and V, B >= 0 (Eq. 8). The step of each block follows from
its own Lipschitz constant, so that the objective never rises. `solve_fixed` is the printed form with one step for all.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.trace import LoopTrace, ratio
from mlfs_dask.typing import Array

#: Arrays of shape (n, l) that the loop holds: V, X W, L V, the gradient of V, and two temporary ones.
ROW_MATRICES = 6

#: Arrays of shape (d, l) that the loop holds: G, H, W, X'V, X'X W, their successors and a gradient.
FEATURE_MATRICES = 10


@dataclass
class Factors:
    """The variables of the loop, from which it can be resumed.

    Attributes
    ----------
    G, H : float64 array, shape (d, l)
    V : float64 array, shape (n, l)
    B : float64 array, shape (l, q)
    """

    G: Array
    H: Array
    V: Array
    B: Array

    @property
    def W(self) -> Array:
        """G ⊙ H."""
        return self.G * self.H


#: Called with factors and trace after an iteration; the next one changes both in place.
SaveState = Callable[[Factors, LoopTrace], None]


@dataclass
class Problem:
    """Y, L, α, β, and products with X: what an iteration does not change.

    Attributes
    ----------
    Y : csr_array, shape (n, q)
        0/1, float64.
    laplacian : Laplacian or None
        None: L = 0.
    forward, backward, normal : callable
        ``forward(W)`` gives X W, ``backward(V)`` X'V, and ``normal(W)`` X'X W.
    alpha, beta : float
    """

    Y: sp.csr_array
    laplacian: Laplacian | None
    forward: Callable[[Array], Array]
    backward: Callable[[Array], Array]
    normal: Callable[[Array], Array]
    alpha: float
    beta: float

    def smooth(self, V: Array) -> Array | None:
        """Return L V; None where it is not needed."""
        if self.laplacian is None or not self.beta:
            return None
        return self.laplacian.product(V)

    def label_gradient(self, V: Array, B: Array, F: Array) -> Array:
        """Return half of ∇_V of Eq. 10: V − X W + α(VB − Y)B' + βLV. F is X W."""
        gradient: Array = V @ (self.alpha * (B @ B.T) + np.eye(len(B))) - F
        if self.alpha:
            gradient -= self.Y @ (self.alpha * B.T)
        LV = self.smooth(V)
        return gradient if LV is None else gradient + self.beta * LV

    def label_products(self, V: Array) -> tuple[Array, Array]:
        """Return V'V, shape (l, l), and V'Y, shape (l, q)."""
        return V.T @ V, np.asarray((self.Y.T @ V).T)

    def objective(self, V: Array, B: Array, F: Array) -> tuple[float, float, float]:
        """Return Eq. 8, its first term, and ‖V‖²."""
        VV, VY = self.label_products(V)
        LV = self.smooth(V)
        residuals = F - V
        fit = float(np.vdot(residuals, residuals))
        smoothness = 0.0 if LV is None else float(np.vdot(V, LV))
        # ‖Y − VB‖² from small matrices; Y has entries 1 alone.
        decomposition = max(
            0.0, float(self.Y.data @ self.Y.data) - 2 * float(np.vdot(B, VY)) + float(np.vdot(B @ B.T, VV))
        )
        return fit + self.alpha * decomposition + self.beta * smoothness, fit, float(np.trace(VV))


def solve_blockwise(
    problem: Problem,
    at: Factors,
    trace: LoopTrace,
    *,
    rho: float,
    weight_steps: int,
    label_steps: int,
    tol: float,
    max_iter: int,
    save: SaveState,
) -> None:
    """Blockwise steps, each of which lowers the objective or leaves it.

    Parameters
    ----------
    problem : Problem
    at : Factors
        The start; changed in place. Rows of B have norm 1, and keep it: otherwise (tW, tV, B/t) would lower the
        objective as t falls, down to V = 0 and W = 0.
    trace : LoopTrace
        Of the iterations so far; the others are appended.
    rho : float
        λ_max(X'X), or more.
    weight_steps, label_steps : int
        Steps of G and H with V as it is, and then of V and B with X W as it is, in one iteration.
    tol : float
        Relative change of the objective in one iteration at which the loop ends.
    max_iter : int
    save : callable
        Called with factors and trace after every iteration that does not converge.
    """
    for _ in range(trace.iterations, max_iter):
        before = at.W
        descend(at, problem.backward(at.V), rho, weight_steps, problem.normal)
        F = problem.forward(at.W)
        with runtime.stage("solving for latent labels", label_steps, unit="steps") as report_progress:
            for _ in range(label_steps):
                label_step(problem, at, F)
                report_progress()
        _record(trace, problem, at, F, at.W - before)
        if trace.change <= tol:
            trace.converged = True
            break
        save(at, trace)


def solve_fixed(
    problem: Problem, at: Factors, trace: LoopTrace, *, eta: float, tol: float, max_iter: int, save: SaveState
) -> None:
    """Algorithm 1 as printed: one step η for all blocks, rows of B of any norm, `max_iter` iterations.

    G, H, V and B follow one another, each with the others as they are by then ("one variable is updated while fixing
    the other three"). The rule to stop (Eq. 15) has no absolute value and would end every run at its first iteration
    that lowers the objective; here `tol` decides `converged` alone.

    Parameters
    ----------
    As `solve_blockwise`.
    eta : float
        η of Eq. 9.
    """
    # Too large a step overflows; `_record` finds that and says so.
    with np.errstate(over="ignore", invalid="ignore"):
        XXW = problem.normal(at.W)
        for _ in range(trace.iterations, max_iter):
            C = problem.backward(at.V)
            before = at.W
            at.G = at.G - 2 * eta * at.H * (XXW - C)  # Eqs. 9 and 10
            XXW = problem.normal(at.W)
            at.H = at.H - 2 * eta * at.G * (XXW - C)
            W = at.W
            XXW = problem.normal(W)

            F = problem.forward(W)
            at.V = np.maximum(at.V - 2 * eta * problem.label_gradient(at.V, at.B, F), 0.0)  # Eq. 11
            VV, VY = problem.label_products(at.V)
            slope = problem.alpha * (VV @ at.B - VY)
            at.B = np.maximum(at.B - 2 * eta * slope, 0.0)
            _record(trace, problem, at, F, W - before)
            save(at, trace)
    trace.converged = trace.change <= tol


def descend(at: Factors, C: Array, rho: float, steps: int, normal: Callable[[Array], Array]) -> None:
    """Make steps of G, then of H, each after ∇ = 2·other⊙(X'X W − C) by 1 / (2ρ·max other²).

    Parameters
    ----------
    at : Factors
        Its G and H are replaced.
    C : float64 array, shape (d, l)
        X'V.
    rho : float
        λ_max(X'X), or more: then no step raises ‖X W − V‖².
    steps : int
    normal : callable
        ``normal(W)`` gives X'X W, in a new array.
    """

    def step(moved: Array, other: Array) -> Array:
        size = max(float(other.max(initial=0.0)), -float(other.min(initial=0.0)))
        if size * size == 0.0 or rho == 0.0:
            return moved
        change = normal(moved * other)
        change -= C
        change *= other
        change /= rho * (size * size)
        return np.subtract(moved, change, out=change)

    for _ in range(steps):
        at.G = step(at.G, at.H)
        at.H = step(at.H, at.G)


def label_step(problem: Problem, at: Factors, F: Array) -> None:
    """One step of V, and one of B, with F = X W.

    The Lipschitz constant of all of V, 2(1 + α‖BB'‖ + β‖L‖), is that of the row with the largest degree. Every row has
    its own here: since 2Z − L is positive semidefinite, 2(1 + α‖BB'‖ + 2βz_i) is enough for row i.
    """
    own = np.asarray(1.0 + problem.alpha * _largest(at.B @ at.B.T))
    if problem.laplacian is not None:
        own = own + 2.0 * problem.beta * problem.laplacian.degrees[:, np.newaxis]
    at.V = np.maximum(at.V - problem.label_gradient(at.V, at.B, F) / own, 0.0)  # Eq. 11

    VV, VY = problem.label_products(at.V)
    constant = _largest(VV)
    if problem.alpha and constant > 0:
        # α cancels: it is a factor of the gradient and of its constant.
        at.B = unit_rows(at.B - (VV @ at.B - VY) / constant)


def unit_rows(B: Array) -> Array:
    """Return the nearest matrix without negative entries whose rows have norm 1.

    Parameters
    ----------
    B : float64 array, shape (l, q)

    Examples
    --------
    >>> unit_rows(np.array([[3.0, -1.0, 4.0], [-2.0, -1.0, -3.0]]))
    array([[0.6, 0. , 0.8],
           [0. , 1. , 0. ]])
    """
    positive = np.maximum(B, 0.0)
    lost = ~positive.any(axis=1)
    positive[lost, B[lost].argmax(axis=1)] = 1.0
    unit: Array = positive / np.linalg.norm(positive, axis=1, keepdims=True)
    return unit


def _record(trace: LoopTrace, problem: Problem, at: Factors, F: Array, change: Array) -> None:
    objective, fit, size = problem.objective(at.V, at.B, F)
    if not np.isfinite(objective):
        raise MlfsError(
            f"mFSIR diverged in iteration {trace.iterations + 1}: the objective is not finite\n  cure: choose a "
            "smaller eta, or step='blockwise'; smaller alpha and beta if they are extreme"
        )
    step = ratio(np.linalg.norm(change), np.linalg.norm(at.W))
    trace.add(objective, residual=ratio(np.sqrt(fit), np.sqrt(size)), step=step)


def _largest(matrix: Array) -> float:
    """Return the largest eigenvalue of a small symmetric matrix."""
    return float(np.linalg.eigvalsh(matrix)[-1])
