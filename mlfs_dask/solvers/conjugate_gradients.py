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
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, add, column_dots, keep_columns, narrowed, row_blocks

Array = NDArray[np.float64]

#: Arrays of the size of b that the solver holds, b and the solution included, without what the operator gives.
MATRICES = 3

Operator = Callable[[Array, NDArray[np.intp]], Array]
Preconditioner = Callable[[Array, NDArray[np.intp], slice], Array]


@dataclass(frozen=True)
class Solution:
    """What the solver ends with.

    Attributes
    ----------
    x : float64 array, shape (m, c)
    iterations : int
        Applications of the operator after the one that gave the first residual.
    residuals : float64 array, shape (c,)
        ‖b − A x‖ / ‖b‖ of every column, as the recurrence has it; 0 for b = 0. One, as the two that follow, where
        all columns were solved for together.
    converged : bool array, shape (c,)
    broke_down : bool array, shape (c,)
        Columns that met a direction along which A is not positive: A is singular there, or not positive definite.
        Their x is the last one before.
    """

    x: Array
    iterations: int
    residuals: Array
    converged: NDArray[np.bool_]
    broke_down: NDArray[np.bool_]


def conjugate_gradients(
    operator: Operator,
    b: Array,
    *,
    x0: Array | None = None,
    precondition: Preconditioner | None = None,
    tol: float | Array = 1e-8,
    max_iter: int = 1000,
    together: bool = False,
    space: RowSpace = IN_MEMORY,
) -> Solution:
    """Solve A x = b for every column of b, A symmetric and positive definite.

    Parameters
    ----------
    operator : callable
        ``operator(P, columns)`` gives A P. P holds the columns of b numbered `columns` (those that have not converged
        yet), which only an operator that differs between columns needs to look at. P must not be kept or changed;
        what is given is done with when the operator is called again.
    b : float64 array, shape (m, c)
        C-ordered. Overwritten.
    x0 : float64 array, shape (m, c), optional
        Where to start, overwritten with the solution; 0 by default, which saves one application of A.
    precondition : callable, optional
        ``precondition(R, columns, rows)`` gives M⁻¹ R for some rows, M symmetric, positive definite, and diagonal
        (but for rows of one block).
    tol : float or float64 array, shape (c,)
        A column is done when ‖b − A x‖ <= tol ‖b‖.
    max_iter : int
    together : bool
        The columns are parts of one unknown, with one step and one end.
    space : RowSpace
        Where arrays go.

    Returns
    -------
    Solution
        Its x is x0, where there is one.

    Raises
    ------
    MlfsError
        A product or a right-hand side is not finite.

    Notes
    -----
    Holds `MATRICES` arrays of the size of b, b and x included, and what the operator needs.

    Examples
    --------
    >>> A = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda P, columns: A @ P, np.array([[1.0], [2.0]])).x.round(6).tolist()
    [[0.090909], [0.636364]]
    """
    m, c = b.shape
    whole = np.arange(c)

    def summed(products: Array) -> Array:
        return products.sum(keepdims=True) if together else products

    size = np.sqrt(summed(column_dots(b, b)))
    _require_finite(size, "the right-hand side")
    limit = np.broadcast_to(np.asarray(tol, dtype=np.float64), size.shape) * size
    r = b
    if x0 is None:
        x = space.zeros(m, c)
    else:
        x = x0
        add(r, operator(x, whole), -1.0)
        _require_finite(column_dots(r, r), "the first residual")
    if (size == 0).any():
        zero = np.broadcast_to(size == 0, (c,))
        for part in row_blocks(m, c):
            x[part][:, zero] = 0.0
            r[part][:, zero] = 0.0
    residuals = np.sqrt(summed(column_dots(r, r)))
    broke_down = np.zeros(len(size), dtype=bool)
    # Systems that go on, and their columns: those of r and of P alone are kept.
    active = np.flatnonzero(residuals > limit)
    columns = whole if together else active

    def preconditioned(part: slice) -> Array:
        return R[part] if precondition is None else precondition(R[part], columns, part)

    R = r if len(columns) == c else keep_columns(r, columns, c)
    held = space.empty(m, c)
    P = narrowed(held, len(columns))
    rz = np.zeros(len(columns))
    for part in row_blocks(m, c):
        P[part] = preconditioned(part)
        rz += np.einsum("ij,ij->j", R[part], P[part])
    rz = summed(rz)
    iterations = 0
    while len(active) and iterations < max_iter:
        AP = operator(P, columns)
        iterations += 1
        curvature = summed(column_dots(P, AP))
        _require_finite(curvature, "a product of the operator")
        # A direction that A turns into nothing: beyond it there are only other solutions, or none.
        good = (curvature > 0) & (rz > 0)
        alpha = np.where(good, rz, 0.0) / np.where(good, curvature, 1.0)
        squares = np.zeros(len(columns))
        for part in row_blocks(m, c):
            if len(columns) == c:
                x[part] += P[part] * alpha
            else:
                x[part][:, columns] += P[part] * alpha
            R[part] -= AP[part] * alpha
            squares += np.einsum("ij,ij->j", R[part], R[part])
        residuals[active] = np.sqrt(summed(squares))
        broke_down[active[~good]] = True
        keep = good & (residuals[active] > limit[active])
        if not keep.all():
            active, rz = active[keep], rz[keep]
            if not len(active):
                break
            columns = active
            R, P = keep_columns(R, keep, c), keep_columns(P, keep, c)
        new = np.zeros(len(columns))
        for part in row_blocks(m, c):
            new += np.einsum("ij,ij->j", R[part], preconditioned(part))
        new = summed(new)
        _require_finite(new, "a residual")
        ratio = new / rz
        for part in row_blocks(m, c):
            P[part] *= ratio
            P[part] += preconditioned(part)
        rz = new
    space.release(held)
    share = residuals / np.where(size > 0, size, 1.0)
    return Solution(x, iterations, share, residuals <= limit, broke_down & (residuals > limit))


def _require_finite(array: Array, what: str) -> None:
    if not np.isfinite(array).all():
        raise MlfsError(
            f"conjugate gradients: {what} is not finite\n  cure: look for values of X beyond 1e150, and for NaN; "
            "scale the features"
        )
