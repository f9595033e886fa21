"""Preconditioned conjugate gradients for several right-hand sides at once, each with its own step and stopping test.

The columns are independent systems that share the cost of one application of the operator, which may be a pass of
the data. M. R. Hestenes, E. Stiefel, "Methods of conjugate gradients for solving linear systems", Journal of Research
of the National Bureau of Standards 49 (1952) 409-436, doi:10.6028/jres.049.044.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import MlfsError
from mlfs_dask.typing import Array

#: Arrays of the shape of b that the solver holds, without b and what the operator gives: x, the residual, the
#: direction, and the preconditioned residual.
MATRICES = 4

#: Right-hand sides that are solved together where the operator reads no data: their arrays then stay in the cache of a
#: core. 12 884 rows and 200 labels took 5.2 s with 32 at a time, 5.4 s with 8, 7.0 s with 128, and 10.2 s at once.
GROUP = 32

_T = TypeVar("_T")

Operator = Callable[[Array, NDArray[np.intp]], Array]


@dataclass(frozen=True)
class Solution:
    """Result of the solver.

    Attributes
    ----------
    x : float64 array, shape (m, c)
    iterations : int
        Applications of the operator after the one that gave the first residual.
    residuals : float64 array, shape (c,)
        ‖b − A x‖ / ‖b‖ of every column, by the recurrence; 0 for b = 0. With `single_system` this, `converged` and
        `broke_down` have shape (1,).
    converged : bool array, shape (c,)
    broke_down : bool array, shape (c,)
        Columns that stopped at a direction p with p'Ap <= 0: A is singular or not positive definite.
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
    precondition: Operator | None = None,
    tol: float | Array = 1e-8,
    max_iter: int = 1000,
    single_system: bool = False,
) -> Solution:
    """Solve A x = b for every column of b, A symmetric and positive definite.

    Parameters
    ----------
    operator : callable
        ``operator(P, columns)`` gives A P. P holds the columns of b numbered `columns` (those that have not converged
        yet), which only an operator that differs between columns needs to look at. P must not be changed.
    b : float64 array, shape (m, c)
    x0 : float64 array, shape (m, c), optional
        Where to start; 0 by default, which saves one application of A.
    precondition : callable, optional
        ``precondition(R, columns)`` gives M⁻¹ R, M symmetric and positive definite.
    tol : float or float64 array, shape (c,)
        A column is done when ‖b − A x‖ <= tol ‖b‖.
    max_iter : int
    single_system : bool
        Treat all columns as one unknown vector: one step length, one stopping test.

    Returns
    -------
    Solution

    Raises
    ------
    MlfsError
        A product or a right-hand side is not finite.

    Notes
    -----
    Holds `MATRICES` arrays of the shape of b.

    Examples
    --------
    >>> A = np.array([[4.0, 1.0], [1.0, 3.0]])
    >>> conjugate_gradients(lambda P, columns: A @ P, np.array([[1.0], [2.0]])).x.round(6).tolist()
    [[0.090909], [0.636364]]
    """
    c = b.shape[1]
    whole = np.arange(c)

    def dots(U: Array, V: Array) -> Array:
        products: Array = np.einsum("ij,ij->j", U, V)
        return products.sum(keepdims=True) if single_system else products

    size = np.sqrt(dots(b, b))
    _require_finite(size, "the right-hand side")
    limit = np.broadcast_to(np.asarray(tol, dtype=np.float64), size.shape) * size
    if x0 is None:
        x, R = np.zeros_like(b), b.copy()
    else:
        x = np.where(size > 0, x0, 0.0)
        R = b - operator(x, whole)
        _require_finite(R, "the first residual")
        R[:, np.broadcast_to(size == 0, (c,))] = 0.0
    residuals = np.sqrt(dots(R, R))
    broke_down = np.zeros(len(size), dtype=bool)
    # Systems that have not converged, and their columns; R, Z and P hold these alone.
    active = np.flatnonzero(residuals > limit)
    columns = whole if single_system else active
    R = R[:, columns]
    Z = R if precondition is None else precondition(R, columns)
    P, rz = Z.copy(), dots(R, Z)
    iterations = 0
    while len(active) and iterations < max_iter:
        AP = operator(P, columns)
        iterations += 1
        curvature = dots(P, AP)
        _require_finite(curvature, "a product of the operator")
        # Along other directions the quadratic has no minimum: the system stops with the x that it has.
        good = (curvature > 0) & (rz > 0)
        step = np.where(good, rz, 0.0) / np.where(good, curvature, 1.0)
        x[:, columns] += P * step
        R -= AP * step
        residuals[active] = np.sqrt(dots(R, R))
        broke_down[active[~good]] = True
        going = good & (residuals[active] > limit[active])
        if not going.all():
            active, rz = active[going], rz[going]
            if not len(active):
                break
            R, P, columns = R[:, going], P[:, going], active
        Z = R if precondition is None else precondition(R, columns)
        new = dots(R, Z)
        _require_finite(new, "a residual")
        P = Z + P * (new / rz)
        rz = new
    relative = residuals / np.where(size > 0, size, 1.0)
    return Solution(x, iterations, relative, residuals <= limit, broke_down & (residuals > limit))


def solve_groups(solve: Callable[[NDArray[np.intp]], _T], columns: NDArray[np.intp], label: str) -> list[_T]:
    """Solve systems that share no data in groups of `GROUP` columns, which the threads of this process share out.

    Parameters
    ----------
    solve : callable
        ``solve(columns)`` solves the systems of these columns, and may be called in another thread.
    columns : intp array, shape (c,)
    label : str
        What is done, for the report of progress.

    Returns
    -------
    list
        What `solve` gives, group by group.
    """
    groups = np.array_split(columns, math.ceil(len(columns) / GROUP))
    with runtime.stage(label, len(groups), unit="groups") as report_progress:

        def run(group: NDArray[np.intp]) -> _T:
            solution = solve(group)
            report_progress()
            return solution

        with runtime.one_blas_thread(), runtime.TaskThreads(_threads(len(groups)), "mlfs-solve") as pool:
            return list(pool.map(run, groups))


def columns_at_once(c: int) -> int:
    """Return columns out of c that the threads of `solve_groups` hold arrays of at a time."""
    return min(c, GROUP * _threads(math.ceil(c / GROUP)))


def _threads(groups: int) -> int:
    """Return threads of `solve_groups`, which change nothing but the time that it takes."""
    return min(runtime.own_resources(current_resources()).threads_per_worker, groups)


def _require_finite(array: Array, what: str) -> None:
    if not np.isfinite(array).all():
        raise MlfsError(
            f"conjugate gradients: {what} is not finite\n  cure: look for values of X beyond 1e150, and for NaN; "
            "scale the features"
        )
