"""Preconditioned conjugate gradients for several right-hand sides at once, each with its own step and its own end.

The columns are independent systems that share the cost of one application of the operator, which may be a reading of
the data. M. R. Hestenes, E. Stiefel, "Methods of conjugate gradients for solving linear systems", Journal of Research
of the National Bureau of Standards 49 (1952) 409-436, doi:10.6028/jres.049.044.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import MlfsError

Operator = Callable[[NDArray[np.float64], NDArray[np.intp]], NDArray[np.float64]]


@dataclass(frozen=True)
class Solution:
    """What the solver ends with.

    Attributes
    ----------
    x : float64 array, shape (m, c)
    iterations : int
        Applications of the operator after the one that gave the first residual.
    residuals : float64 array, shape (c,)
        ‖b − A x‖ / ‖b‖ of every column, as the recurrence has it; 0 for b = 0.
    converged : bool array, shape (c,)
    broke_down : bool array, shape (c,)
        Columns that met a direction along which A is not positive: A is singular there, or not positive definite.
        Their x is the last one before.
    """

    x: NDArray[np.float64]
    iterations: int
    residuals: NDArray[np.float64]
    converged: NDArray[np.bool_]
    broke_down: NDArray[np.bool_]


def conjugate_gradients(
    operator: Operator,
    b: NDArray[np.float64],
    *,
    x0: NDArray[np.float64] | None = None,
    precondition: Operator | None = None,
    tol: float | NDArray[np.float64] = 1e-8,
    max_iter: int = 1000,
) -> Solution:
    """Solve A x = b for every column of b, A symmetric and positive definite.

    Parameters
    ----------
    operator : callable
        ``operator(P, columns)`` gives A P. P holds the columns of b numbered `columns` (those that have not converged
        yet), which only an operator that differs between columns needs to look at. P must not be kept or changed.
    b : float64 array, shape (m, c)
    x0 : float64 array, shape (m, c), optional
        Where to start; 0 by default, which saves one application of A.
    precondition : callable, optional
        ``precondition(R, columns)`` gives M⁻¹ R, M symmetric and positive definite.
    tol : float or float64 array, shape (c,)
        A column is done when ‖b − A x‖ <= tol ‖b‖.
    max_iter : int

    Returns
    -------
    Solution

    Raises
    ------
    MlfsError
        A product or a right-hand side is not finite.

    Notes
    -----
    Holds 5 arrays of the size of b beside b, and what the operator needs.

    Examples
    --------
    >>> A = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda P, columns: A @ P, np.array([[1.0], [2.0]])).x.round(6).tolist()
    [[0.090909], [0.636364]]
    """
    b = np.asarray(b, dtype=np.float64)
    _require_finite(b, "the right-hand side")
    c = b.shape[1]
    size = np.linalg.norm(b, axis=0)
    limit = np.broadcast_to(np.asarray(tol, dtype=np.float64), (c,)) * size
    if x0 is None:
        x, r = np.zeros_like(b), b.copy()
    else:
        x = np.array(x0, dtype=np.float64)
        r = b - operator(x, np.arange(c))
        _require_finite(r, "the first residual")
    x[:, size == 0] = 0.0
    r[:, size == 0] = 0.0
    residuals = np.linalg.norm(r, axis=0)
    broke_down = np.zeros(c, dtype=bool)
    active = np.flatnonzero(residuals > limit)
    R = r[:, active]
    Z = precondition(R, active) if precondition is not None else R
    P = Z.copy()
    rz = np.einsum("ij,ij->j", R, Z)
    iterations = 0
    while len(active) and iterations < max_iter:
        AP = operator(P, active)
        iterations += 1
        curvature = np.einsum("ij,ij->j", P, AP)
        _require_finite(curvature, "a product of the operator")
        # A direction that A turns into nothing: beyond it there are only other solutions, or none.
        good = (curvature > 0) & (rz > 0)
        alpha = np.where(good, rz, 0.0) / np.where(good, curvature, 1.0)
        x[:, active] += P * alpha
        R -= AP * alpha
        residuals[active] = np.linalg.norm(R, axis=0)
        broke_down[active[~good]] = True
        keep = good & (residuals[active] > limit[active])
        if not keep.all():
            active, R, P, rz = active[keep], R[:, keep], P[:, keep], rz[keep]
            if not len(active):
                break
        Z = precondition(R, active) if precondition is not None else R
        new = np.einsum("ij,ij->j", R, Z)
        _require_finite(new, "a residual")
        P *= new / rz
        P += Z
        rz = new
    share = residuals / np.where(size > 0, size, 1.0)
    return Solution(x, iterations, share, residuals <= limit, broke_down & (residuals > limit))


def _require_finite(array: NDArray[np.float64], what: str) -> None:
    if not np.isfinite(array).all():
        raise MlfsError(
            f"conjugate gradients: {what} is not finite\n  cure: look for values of X beyond 1e150, and for NaN; "
            "scale the features"
        )
