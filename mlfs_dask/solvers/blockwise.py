"""Gradient steps of mFSIR (Mansouri, Benabdeslem & Benkabou), block by block, with the big products given from outside.

Minimises ‖X(G⊙H) − V‖² + α‖Y − VB‖² + β tr(V'LV) over G, H, and V, B >= 0 (Eq. 8). Each block moves by its own
Lipschitz constant, so that the objective never rises; the printed form, one step for all, is kept beside it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.errors import MlfsError
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, graph_rows, row_blocks
from mlfs_dask.solvers.laplacian import Smoother
from mlfs_dask.solvers.trace import LoopTrace

#: Arrays of shape (n, l) that the loop holds: V, X W, and L V.
ROW_MATRICES = 3

#: Arrays of shape (d, l) that the loop holds: G, H, W, X'V, X'X W, their successors and a gradient.
FEATURE_MATRICES = 10

#: Square of a relative step from which no curvature can be told: rounding would be most of it.
_TOO_SHORT = 1e-12

Array = NDArray[np.float64]


class Products(Protocol):
    """Products with X that a step needs, each of which may be a reading of X."""

    def normal(self, W: Array, *, last: bool) -> Array:
        """X'X W. `last` tells that X W of the same array will be asked for next."""

    def forward(self, W: Array) -> Array:
        """X W, until it is asked for again."""

    def backward(self, V: Array) -> Array:
        """X'V."""


@dataclass
class Factors:
    """Where the loop stands: all that has to be kept to go on from here.

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


@dataclass
class Trace(LoopTrace):
    """What happened, a value for every iteration; the objective is Eq. 8.

    Attributes
    ----------
    residual : list of float
        ‖X W − V‖ / ‖V‖.
    step : list of float
        ‖ΔW‖ / ‖W‖.
    """

    residual: list[float] = field(default_factory=list)
    step: list[float] = field(default_factory=list)


@dataclass
class Snapshot:
    """All that a loop needs to go on as if it had never stopped.

    Attributes
    ----------
    at : Factors
    W, XXW : float64 array, shape (d, l)
        W = G⊙H as the loop holds it, and X'X W.
    rho : float
    trace : Trace
    """

    at: Factors
    W: Array
    XXW: Array
    rho: float
    trace: Trace


#: What is done with a snapshot after an iteration; the arrays in it are the loop's own.
Keep = Callable[[Snapshot], None]


def _forget(snapshot: Snapshot) -> None:
    """Keep nothing."""


@dataclass
class Problem:
    """What stays as it is: Y, L, α, β, and how X is multiplied.

    Attributes
    ----------
    Y : csr_array, shape (n, q)
        0/1, float64.
    laplacian : Smoother or None
        None: L = 0.
    products : Products
    alpha, beta : float
    space : RowSpace
        Where arrays of n rows go.
    """

    Y: sp.csr_array
    laplacian: Smoother | None
    products: Products
    alpha: float
    beta: float
    space: RowSpace = IN_MEMORY
    _image: Array = field(init=False, default_factory=lambda: np.empty((0, 0)))

    @property
    def largest_degree(self) -> float:
        """Largest diagonal entry of L."""
        return 0.0 if self.laplacian is None else float(self.laplacian.degrees.max(initial=0.0))

    def smooth(self, V: Array) -> Array | None:
        """L V, until it is asked for again; None where it is not needed."""
        if self.laplacian is None or not self.beta:
            return None
        if self._image.shape != V.shape:
            self._image = self.space.empty(*V.shape)
        return self.laplacian.product(V, self._image)

    def label_gradient(self, part: slice, V: Array, B: Array, F: Array, LV: Array | None) -> Array:
        """Half of ∇_V of Eq. 10 for some rows: V − X W + α(VB − Y)B' + βLV. F is X W."""
        gradient: Array = V[part] @ (self.alpha * (B @ B.T) + np.eye(len(B)))
        gradient -= F[part]
        if self.alpha:
            gradient -= graph_rows(self.Y, part) @ (self.alpha * B.T)
        if LV is not None:
            gradient += self.beta * LV[part]
        return gradient

    def label_products(self, V: Array) -> tuple[Array, Array]:
        """V'V, shape (l, l), and V'Y, shape (l, q)."""
        VV, VY = np.zeros((V.shape[1], V.shape[1])), np.zeros((V.shape[1], self.Y.shape[1]))
        for part in row_blocks(*V.shape):
            self._add_products(part, V, VV, VY)
        return VV, VY

    def _add_products(self, part: slice, V: Array, VV: Array, VY: Array) -> None:
        VV += V[part].T @ V[part]
        VY += (graph_rows(self.Y, part).T @ V[part]).T

    def objective(self, V: Array, B: Array, F: Array) -> tuple[float, float, float]:
        """Eq. 8, its first term, and ‖V‖²."""
        VV, VY = np.zeros((V.shape[1], V.shape[1])), np.zeros((V.shape[1], self.Y.shape[1]))
        LV = self.smooth(V)
        fit = smoothness = 0.0
        for part in row_blocks(*V.shape):
            fit += _squared(F[part] - V[part])
            self._add_products(part, V, VV, VY)
            if LV is not None:
                smoothness += float(np.vdot(V[part], LV[part]))
        # ‖Y − VB‖² from small matrices; Y has entries 1 alone.
        decomposition = max(0.0, self.Y.nnz - 2 * float(np.vdot(B, VY)) + float(np.vdot(B @ B.T, VV)))
        return fit + self.alpha * decomposition + self.beta * smoothness, fit, float(np.trace(VV))


def solve_blockwise(
    problem: Problem,
    start: Factors,
    backward: Array,
    *,
    rho: float,
    weight_steps: int,
    label_steps: int,
    tol: float,
    max_iter: int,
    resume: Snapshot | None = None,
    keep: Keep = _forget,
) -> tuple[Factors, Trace]:
    """Blockwise steps, each of which lowers the objective or leaves it.

    Parameters
    ----------
    problem : Problem
    start : Factors
        Changed in place. Rows of B have norm 1, and keep it: (tW, tV, B/t) would otherwise lower the objective with
        t for ever and leave V and W at 0.
    backward : float64 array, shape (d, l)
        X'V of the start.
    rho : float
        λ_max(X'X). Found to be too small, it is corrected and the step taken again.
    weight_steps, label_steps : int
        Steps of G and H with V as it is, and then of V and B with X W as it is, in one iteration.
    tol : float
        Relative change of the objective in one iteration at which the loop ends.
    max_iter : int
    resume : Snapshot, optional
        Where to go on, in place of `start`, `backward` and `rho`.
    keep : callable
        Called with a snapshot after every iteration but the last.

    Returns
    -------
    Factors
    Trace
    """
    if resume is None:
        at, trace = start, Trace()
        weights = _Weights(problem.products, at, rho)
    else:
        at, trace = resume.at, resume.trace
        weights = _Weights(problem.products, at, resume.rho, known=(resume.W, resume.XXW))
    C = backward
    for t in range(trace.iterations + 1, max_iter + 1):
        if t > 1:
            C = problem.products.backward(at.V)
        before = weights.W
        weights.descend(C, weight_steps)
        F = problem.products.forward(weights.W)
        with runtime.stage("latent labels", label_steps, unit="steps") as done:
            for _ in range(label_steps):
                label_step(problem, at, F)
                done()
        _note(trace, problem, at, F, weights.W - before)
        if _stands(trace, tol):
            trace.converged = True
            break
        keep(Snapshot(at, weights.W, weights.XXW, weights.rho, trace))
    return at, trace


def solve_fixed(
    problem: Problem,
    start: Factors,
    backward: Array,
    *,
    eta: float,
    tol: float,
    max_iter: int,
    resume: Snapshot | None = None,
    keep: Keep = _forget,
) -> tuple[Factors, Trace]:
    """Algorithm 1 as printed: one step η for all blocks, B as it comes, `max_iter` iterations.

    G, H, V and B follow one another, each with the others as they are by then ("one variable is updated while fixing
    the other three"). The rule to stop (Eq. 15) has no absolute value and would end every run at its first iteration
    that lowers the objective; here `tol` ends none, and only tells what `converged` says.

    Parameters
    ----------
    As `solve_blockwise`.
    eta : float
        η of Eq. 9.
    """
    products, C = problem.products, backward
    if resume is None:
        at, trace = start, Trace()
        XXW = products.normal(at.W, last=False)
    else:
        at, trace, XXW = resume.at, resume.trace, resume.XXW
    # Too large a step overflows; `_note` finds that and says so.
    with np.errstate(over="ignore", invalid="ignore"):
        for t in range(trace.iterations + 1, max_iter + 1):
            if t > 1:
                C = products.backward(at.V)
            before = at.W
            at.G = at.G - 2 * eta * at.H * (XXW - C)  # Eqs. 9 and 10
            XXW = products.normal(at.W, last=False)
            at.H = at.H - 2 * eta * at.G * (XXW - C)
            W = at.W
            XXW = products.normal(W, last=True)

            F = products.forward(W)
            LV = problem.smooth(at.V)
            for part in row_blocks(*at.V.shape):
                at.V[part] -= 2 * eta * problem.label_gradient(part, at.V, at.B, F, LV)
                np.maximum(at.V[part], 0.0, out=at.V[part])  # Eq. 11
            VV, VY = problem.label_products(at.V)
            slope = problem.alpha * (VV @ at.B - VY)
            at.B = np.maximum(at.B - 2 * eta * slope, 0.0)
            _note(trace, problem, at, F, W - before)
            keep(Snapshot(at, W, XXW, 0.0, trace))
    trace.converged = _stands(trace, tol)
    return at, trace


class _Weights:
    """G and H, and W = G⊙H with X'X W beside it, which the next step begins from."""

    def __init__(
        self, products: Products, at: Factors, rho: float, *, known: tuple[Array, Array] | None = None
    ) -> None:
        self.products = products
        self.at = at
        self.rho = rho
        if known is not None:
            self.W, self.XXW = known
            return
        self.W = at.W
        self.XXW = products.normal(self.W, last=False) if self.W.any() else np.zeros_like(self.W)

    def descend(self, C: Array, steps: int) -> None:
        """Steps of G, then of H, with C = X'V."""
        at = self.at
        for i in range(steps):
            at.G = self._step(at.G, at.H, C, last=False)
            at.H = self._step(at.H, at.G, C, last=i == steps - 1)

    def _step(self, moved: Array, other: Array, C: Array, *, last: bool) -> Array:
        """One factor after ∇ = 2·other⊙(X'X W − C) by 1 / (2ρ·max other²), W and X'X W following it."""
        largest = float(np.max(other * other, initial=0.0))
        if largest == 0.0 or self.rho == 0.0:
            return moved
        slope = other * (self.XXW - C)
        while True:
            new = moved - slope / (self.rho * largest)
            W = new * other
            XXW = self.products.normal(W, last=last)
            # ‖XΔW‖² <= ρ‖ΔW‖² is all that descent rests on, and costs nothing to look at.
            change = W - self.W
            size = _squared(change)
            if size <= _TOO_SHORT * _squared(W):
                break
            needed = float(np.vdot(change, XXW - self.XXW)) / size
            if not needed > self.rho * (1 + 1e-6):
                break
            self.rho = 1.1 * needed
        self.W, self.XXW = W, XXW
        return new


def label_step(problem: Problem, at: Factors, F: Array) -> None:
    """One step of V, and one of B, with F = X W.

    The constant of V, 2(1 + α‖BB'‖ + β‖L‖), is that of the row with the most neighbours. Rows are blocks of their own
    here: L <= 2Z, so that 2(1 + α‖BB'‖ + 2βz_i) is enough for row i, and the others need not wait for it.
    """
    LV = problem.smooth(at.V)
    own = 1.0 + problem.alpha * _largest(at.B @ at.B.T)
    for part in row_blocks(*at.V.shape):
        gradient = problem.label_gradient(part, at.V, at.B, F, LV)
        if problem.laplacian is not None:
            gradient /= (own + 2.0 * problem.beta * problem.laplacian.degrees[part])[:, np.newaxis]
        else:
            gradient /= own
        at.V[part] -= gradient
        np.maximum(at.V[part], 0.0, out=at.V[part])  # Eq. 11

    VV, VY = problem.label_products(at.V)
    constant = _largest(VV)
    if problem.alpha and constant > 0:
        # α is in the gradient and in its constant.
        at.B = unit_rows(at.B - (VV @ at.B - VY) / constant)


def unit_rows(B: Array) -> Array:
    """The nearest matrix without negative entries whose rows have norm 1.

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


def _note(trace: Trace, problem: Problem, at: Factors, F: Array, change: Array) -> None:
    objective, fit, size = problem.objective(at.V, at.B, F)
    if not np.isfinite(objective):
        raise MlfsError(
            f"mFSIR diverged in iteration {trace.iterations + 1}: the objective is not finite\n  cure: choose a "
            "smaller eta, or step='blockwise'; smaller alpha and beta if they are extreme"
        )
    trace.objective.append(objective)
    trace.residual.append(_ratio(np.sqrt(fit), np.sqrt(size)))
    trace.step.append(_ratio(np.linalg.norm(change), np.linalg.norm(at.W)))
    trace.tell(residual=trace.residual[-1], step=trace.step[-1])


def _stands(trace: Trace, tol: float) -> bool:
    """Whether the last iteration changed the objective by no more than `tol` of it."""
    if len(trace.objective) < 2:
        return False
    before, now = trace.objective[-2:]
    return abs(now - before) <= tol * before


def _largest(matrix: Array) -> float:
    """Largest eigenvalue of a small symmetric matrix."""
    return float(np.linalg.eigvalsh(matrix)[-1])


def _squared(matrix: Array) -> float:
    return float(np.vdot(matrix, matrix))


def _ratio(part: float | np.floating, whole: float | np.floating) -> float:
    return float(part / whole) if whole > 0 else 0.0
