"""Proximal alternating direction loop of ELC (Wang et al. 2020, Algorithm 1) on matrices in memory.

Minimises ½‖A diag(p) W − Γ‖² + λ‖U‖_{2,1} subject to U = W and k ones in p (Eq. 4), on q × d numbers; X is not
needed any more. The corrected form departs from the printed one where the comments say so; the printed form is
kept, because people will want to reproduce it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.blocks.column_keys import copies_of
from mlfs_dask.blocks.proximal import row_norms, shrink_rows
from mlfs_dask.blocks.rounding import SAME
from mlfs_dask.errors import MlfsError, parameter
from mlfs_dask.solvers.trace import ratio
from mlfs_dask.typing import Array

#: Arrays of shape (q, d) that the loop holds at once, A and a working copy of its chosen columns included.
MATRICES = 8


@dataclass(frozen=True)
class Solution:
    """Result of the loop.

    Attributes
    ----------
    W : float64 array, shape (d, q)
    mask : bool array, shape (d,)
        p, with k ones.
    residual : float64 array, shape (d,)
        r_f of Eq. 14 for every feature, without its constant: lower is better.
    objective : list of float
        Eq. 4 after every iteration.
    gap : list of float
        ‖W − U‖ / ‖W‖ after every iteration.
    swaps : list of int
        Features that entered the mask in every iteration.
    converged : bool
    first : int array, shape (d,)
        The first feature whose column of A each equals.
    """

    W: Array
    mask: NDArray[np.bool_]
    residual: Array
    objective: list[float]
    gap: list[float]
    swaps: list[int]
    converged: bool
    first: NDArray[np.intp]


def best_mask(residual: Array, k: int, preference: NDArray[np.integer]) -> NDArray[np.bool_]:
    """Return the mask of the k smallest residuals; where they are equal, up to rounding, the preferred features.

    Parameters
    ----------
    residual : float64 array, shape (d,)
    k : int
    preference : int array, shape (d,)
        Place of every feature in an order that is known beforehand; lower is preferred.

    Examples
    --------
    >>> best_mask(np.array([0.0, -1.0, 0.0]), 2, np.array([2, 1, 0]))
    array([False,  True,  True])
    """
    scale = np.abs(residual).max(initial=0.0) * SAME
    steps = np.rint(residual / scale) if scale > 0 else residual
    mask = np.zeros(len(residual), dtype=bool)
    mask[np.lexsort((preference, steps))[:k]] = True
    return mask


def solve_corrected(
    A: Array,
    Gamma: Array,
    mask: NDArray[np.bool_],
    preference: NDArray[np.integer],
    *,
    lambda_: float,
    beta: float,
    mask_iter: int,
    tol: float,
    gap_tol: float,
    max_iter: int,
) -> Solution:
    """Run Algorithm 1 with its corrections.

    Parameters
    ----------
    A : float64 array, shape (q, d)
        Y'X.
    Gamma : float64 array, shape (q, q)
        nΦΣ^{1/2}.
    mask : bool array, shape (d,)
        Start of p.
    preference : int array, shape (d,)
        Order of features that settles ties between residuals.
    lambda_ : float
        Relative to max_f ‖Γ'a_f‖, at which a lone feature would get no weight.
    beta : float
        Relative to λ_max(AA').
    mask_iter : int
        Iterations in which p may change. Eq. 14 judges every feature alone while W is fitted jointly, so that p
        need not come to rest: on real data it swaps features for ever. With p fixed the loop is a convex
        alternating direction method, and converges.
    tol : float
        Relative change of W at which the loop may stop.
    gap_tol : float
        ‖W − U‖ / ‖W‖ at which the loop may stop.
    max_iter : int

    Returns
    -------
    Solution
    """
    q, d = A.shape
    k = int(mask.sum())
    C = A.T @ Gamma  # row f is Γ'a_f
    first = copies_of(A)
    squares = np.einsum("cf,cf->f", A, A)
    radius = float(np.linalg.eigvalsh(A @ A.T)[-1])  # λ_max(A'A), from its q × q twin
    tau = 1.0 / radius  # Appendix B names the radius itself, with which the step diverges
    beta = beta * radius
    largest = float(row_norms(C).max())
    lambda_ = lambda_ * largest
    nothing = SAME * largest * tau  # a W of no larger norm counts as zero

    W = np.zeros((d, q))
    # Algorithm 1 starts V from 1/d. Columns of W belong to eigenvectors, whose signs are arbitrary, and a start
    # that is not zero would let them decide.
    V = np.zeros((d, q))
    normal, C_p = _normal_product(A[:, mask]), C[mask]
    image = np.zeros_like(C_p)  # A_p'A_p W_p
    target = float(np.vdot(Gamma, Gamma))
    objective: list[float] = []
    gaps: list[float] = []
    swaps: list[int] = []
    residual = np.zeros(d)
    converged = False
    for t in range(1, max_iter + 1):
        # Eqs. 7-9 with the sign of V turned: Eq. 5 has −tr(V'(W − U)). By rows, as Eq. 8.
        U = V / -beta
        U += W
        shrink_rows(U, lambda_ / beta)

        # Eq. 13 with Ω = P A'(A P W − Γ); rows outside the mask have none.
        W_new = beta * U
        W_new += V
        W_new += W / tau
        W_new[mask] += C_p - image
        W_new *= tau / (beta * tau + 1.0)

        # Eq. 14 for one feature, without ‖Γ‖².
        residual = squares * np.einsum("fc,fc->f", W_new, W_new)
        residual -= 2.0 * np.einsum("fc,fc->f", W_new, C)
        residual = -largest_of_copies(-residual, first)

        # Eq. 15, the multiplier of W = U.
        W -= W_new
        norm = float(np.linalg.norm(W_new))
        change = ratio(np.linalg.norm(W), norm, nothing)
        W = W_new
        W_p = W[mask]
        image = normal(W_p)
        fit = target + float(np.vdot(W_p, image)) - 2.0 * float(np.vdot(W_p, C_p))  # ‖A_p W_p − Γ‖²
        objective.append(0.5 * max(fit, 0.0) + lambda_ * float(row_norms(U).sum()))
        U -= W
        gaps.append(ratio(np.linalg.norm(U), norm, nothing))
        U *= beta
        V += U

        entered = 0
        if t <= mask_iter:
            best = best_mask(residual, k, preference)
            entered = int((best & ~mask).sum())
            if entered:
                mask = best
                normal, C_p = _normal_product(A[:, mask]), C[mask]
                image = normal(W[mask])
        swaps.append(entered)
        runtime.emit("step", number=t, objective=objective[-1])
        if not entered and change <= tol and gaps[-1] <= gap_tol:
            converged = True
            break
    return Solution(W, mask, residual, objective, gaps, swaps, converged, first)


def largest_of_copies(scores: Array, first: NDArray[np.intp]) -> Array:
    """Return the largest score of all copies of a feature, for each of them; `first` is the first feature that each
    equals.

    Copies that came into the mask at different times have different weights: by their own residuals some would stay
    and some go.

    >>> largest_of_copies(np.array([1.0, 5.0, 2.0]), np.array([0, 1, 0])).tolist()
    [2.0, 5.0, 2.0]
    """
    largest = scores.copy()
    np.maximum.at(largest, first, scores)
    return largest[first]


def _normal_product(A: Array) -> Callable[[Array], Array]:
    """Return a function that gives A'A W: by A'A where that is smaller than A, of shape (q, k)."""
    q, k = A.shape
    if k < q:
        return (A.T @ A).__matmul__
    return lambda W: A.T @ (A @ W)


def solve_published(
    A: Array,
    Gamma: Array,
    mask: NDArray[np.bool_],
    preference: NDArray[np.integer],
    *,
    lambda_: float,
    beta: float,
    tol: float,
    max_iter: int,
) -> Solution:
    """Run Algorithm 1 as printed, with λ and β as they are given.

    The printed signs make V double in every iteration, and with β = 10⁸ W hardly moves: the loop stops after two
    passes with the mask that it began with. Two things are not taken as printed, because nothing would be left to
    run: τ starts from the reciprocal of the spectral radius, as in the authors' code, and Eq. 9 is row-wise, as
    Eq. 8 is.

    Parameters
    ----------
    As `solve_corrected`.

    Returns
    -------
    Solution
        `converged` says only that ‖ΔW‖ fell below `tol`.
    """
    q, d = A.shape
    k = int(mask.sum())
    C = A.T @ Gamma
    first = copies_of(A)
    squares = np.einsum("cf,cf->f", A, A)
    tau = 1.0 / float(np.linalg.eigvalsh(A @ A.T)[-1])

    W = np.zeros((d, q))
    V = np.full((d, q), 1.0 / d)
    objective: list[float] = []
    gaps: list[float] = []
    swaps: list[int] = []
    residual = np.zeros(d)
    converged = False
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):  # where V doubles for too long
        for t in range(1, max_iter + 1):
            U = shrink_rows(W + V / beta, lambda_ / beta)  # Eq. 9

            Omega = np.zeros((d, q))
            Omega[mask] = A[:, mask].T @ (A[:, mask] @ W[mask] - Gamma)
            W_new = tau / (beta * tau + 1.0) * (beta * U + V + (W - tau * Omega) / tau)  # Eq. 13

            residual = squares * np.einsum("fc,fc->f", W_new, W_new)  # Eq. 14
            residual -= 2.0 * np.einsum("fc,fc->f", W_new, C)
            residual = -largest_of_copies(-residual, first)
            best = best_mask(residual, k, preference)
            swaps.append(int((best & ~mask).sum()))
            mask = best

            V = V - beta * (W_new - U)  # Eq. 15
            tau = ratio(1.0, row_norms(A.T @ (A @ V)).max())  # Appendix B

            step, norm = float(np.linalg.norm(W_new - W)), float(np.linalg.norm(W_new))
            gaps.append(ratio(np.linalg.norm(W_new - U), norm))
            W = W_new
            fit = float(np.linalg.norm(A[:, mask] @ W[mask] - Gamma))
            objective.append(0.5 * fit * fit + lambda_ * float(row_norms(U).sum()))
            if not np.isfinite(objective[-1]):
                raise MlfsError(
                    f"ELC as published diverged in iteration {t}: the objective is not finite\n  cure: take "
                    f"{parameter('variant', 'corrected')}, or a larger {parameter('beta')}"
                )
            runtime.emit("step", number=t, objective=objective[-1])
            if step <= tol and t > 1:
                converged = True
                break
    return Solution(W, mask, residual, objective, gaps, swaps, converged, first)
