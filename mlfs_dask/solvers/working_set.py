"""Row-sparse least squares by a working set: its rows are solved for, the others follow from stationarity.

min tr(P'GP) − 2 tr(P'B) + β Σ (√(‖pⁱ‖² + ε²) − ε) as in `row_sparse`, G being known by its products and, for rows of a
set, entry by entry. At the optimum a row is next to zero where 2‖bⁱ − (GP)ⁱ‖ < β, and it is then a function of that
gradient alone; rows that violate this join the set. G of the set is read whenever the set changes, and serves many
steps. R. Tibshirani et al., "Strong rules for discarding predictors in lasso-type problems", Journal of the Royal
Statistical Society B 74 (2012) 245-266, doi:10.1111/j.1467-9868.2011.01004.x.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.solvers import row_sparse
from mlfs_dask.typing import Array

#: Rows of the first set; later ones are at most doubled at a time.
FIRST_ROWS = 1024

#: Rows up to this fraction of the root mean square of those in the set are next to zero, and leave it if their
#: gradient is below this fraction of β.
_WEAK = 0.01
_INSIDE = 0.98

#: Lower bound of 1 − u² in the closed form of inactive rows, u = 2‖gradient‖/β: finite at u = 1, where a row joins.
_EDGE = 1e-4


class WorkingSet:
    """The rows of P that are solved for.

    Parameters
    ----------
    gram : callable
        ``gram(rows)`` gives G of some rows and columns; may be a pass over X.
    size : int
        d.
    max_rows : int
        Most rows in the set. If more should join, those furthest from stationarity do.
    rows : int array, optional
    inactive : bool array, shape (d,), optional
        The set to resume with.
    violation : float, optional
        That of the last step.

    Attributes
    ----------
    rows : int array
        Rising.
    inactive : bool array, shape (d,)
        Rows next to zero, which have a closed form in their gradient.
    violation : float
        Estimate of what the rows outside the set, each by itself, could have lowered the objective by before the last
        step.
    """

    def __init__(
        self,
        gram: Callable[[NDArray[np.intp]], Array],
        size: int,
        max_rows: int,
        rows: NDArray[np.intp] | None = None,
        inactive: NDArray[np.bool_] | None = None,
        violation: float = np.inf,
    ) -> None:
        self._gram = gram
        self._size = size
        self.max_rows = max_rows
        self.rows = np.empty(0, np.intp) if rows is None else rows
        self._G: Array = gram(self.rows) if len(self.rows) else np.empty((0, 0))
        self.inactive = np.ones(size, dtype=bool) if inactive is None else inactive
        self.violation = float(violation)

    def step(
        self,
        P: Array,
        GP: Array,
        B: Array,
        beta: float,
        epsilon: float,
        *,
        diagonal: Array,
        max_iter: int,
        tol: float | None,
    ) -> int:
        """Return the reweighted steps of the rows of the set, in place; those that end next to zero become inactive.

        Parameters
        ----------
        P : float64 array, shape (d, c)
            In the first step about the solution, from which the first set is chosen.
        GP, B : float64 array, shape (d, c)
        beta, epsilon : float
            β > 0.
        diagonal : float64 array, shape (d,)
            About the diagonal of G.
        max_iter : int
            Most steps; twice as many if the objective has not fallen by then.
        tol : float or None
            Relative change of P at which steps end; None: never.

        Returns
        -------
        int
            Steps.
        """
        if not len(self.rows):
            self._set_rows(np.argsort(-row_norms(P), kind="stable")[: min(FIRST_ROWS, self.max_rows)])
            P[self._outside()] = 0.0
            newly_active, right = np.zeros(len(self.rows), dtype=bool), B[self.rows]
        else:
            newly_active = self._select_rows(P, B - GP, diagonal, beta, epsilon)
            right = B[self.rows] - (GP[self.rows] - self._G @ P[self.rows])
        rows, G, at = self.rows, self._G, P[self.rows]
        t = row_sparse.weights(at, epsilon)
        # With the weight of a row next to zero a joining row would take many steps to grow.
        t[newly_active] = np.sqrt(np.mean(t[~newly_active] ** 2)) if not newly_active.all() else 1.0

        def objective(Q: Array) -> float:
            return float(np.vdot(Q, G @ Q - 2.0 * right)) + beta * row_sparse.penalty(Q, epsilon)

        begun, steps = objective(at), 0
        while True:
            before, at = at, row_sparse.solve_gram(G, right, beta, t, start=at).P
            t = row_sparse.weights(at, epsilon)
            steps += 1
            small = tol is not None and np.linalg.norm(at - before) <= tol * np.linalg.norm(at)
            # The new weights of joining rows may raise the objective in the first step; later steps lower it.
            if (small or steps >= max_iter) and (objective(at) <= begun or steps >= 2 * max_iter):
                break
        # Rows that become inactive get their closed form now, so that the next G P is that of these rows.
        norms, gradient = row_norms(at), right - G @ at
        weak = (norms <= _WEAK * np.sqrt(np.mean(norms**2))) & (2.0 * row_norms(gradient) < _INSIDE * beta)
        at[weak] = _stationary_rows(gradient[weak], beta, epsilon)
        P[rows] = at
        self.inactive[rows] = weak
        return steps

    def update_inactive_rows(self, P: Array, GP: Array, B: Array, beta: float, epsilon: float) -> None:
        """Set the inactive rows outside the set, in place, from the gradient B − GP."""
        if not len(self.rows):
            return
        weak = self._outside() & self.inactive
        P[weak] = _stationary_rows(B[weak] - GP[weak], beta, epsilon)

    def _select_rows(
        self, P: Array, gradient: Array, diagonal: Array, beta: float, epsilon: float
    ) -> NDArray[np.bool_]:
        """Select the next set, and return which of its rows are newly active."""
        outside, weak = self._outside(), self.inactive
        relative = 2.0 * row_norms(gradient) / beta
        residual = row_norms(gradient - (beta / row_sparse.weights(P, epsilon))[:, np.newaxis] * P)
        residual[weak] = 0.5 * beta * np.maximum(relative[weak] - 1.0, 0.0)
        gain = residual[outside] ** 2 / np.maximum(diagonal[outside], np.finfo(float).tiny)
        self.violation = float(gain.sum())

        joining = np.flatnonzero(outside & weak & (residual > 0))
        joining = joining[np.argsort(-residual[joining], kind="stable")][: max(len(self.rows), FIRST_ROWS)]
        if len(joining) or (outside & ~weak).any():
            may_move = ~weak
            may_move[self.rows] |= relative[self.rows] >= _INSIDE
            may_move[joining] = True
            rows = np.flatnonzero(may_move)
            self._set_rows(rows[np.argsort(-residual[rows], kind="stable")][: self.max_rows])
        return np.isin(self.rows, joining)

    def _set_rows(self, rows: NDArray[np.intp]) -> None:
        self.rows = np.sort(rows)
        self._G = self._gram(self.rows)

    def _outside(self) -> NDArray[np.bool_]:
        outside = np.ones(self._size, dtype=bool)
        outside[self.rows] = False
        return outside


def _stationary_rows(gradient: Array, beta: float, epsilon: float) -> Array:
    """Return rows next to zero at which the objective is stationary: ε u g/(√(1 − u²)‖g‖), u = 2‖g‖/β."""
    relative = 2.0 * row_norms(gradient) / beta
    factor = 2.0 * epsilon / (beta * np.sqrt(np.maximum(1.0 - relative**2, _EDGE)))
    return factor[:, np.newaxis] * gradient
