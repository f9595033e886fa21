"""The P-step of SMFS: row-sparse weighted least squares, warm-started as the labels change.

min tr(P'GP) − 2 tr(P'B) + β ‖P‖_{2,1} with G = X'SX and B = X'SY (Xu & Zhao 2020, Eqs. 9 and 10). G is a matrix, or
known by products, each of which may be a pass over X, and entry by entry for some features at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.working_set import WorkingSet
from mlfs_dask.typing import Array

#: β relative to the least one at which P is 0, chosen by `benchmarks/quality.py smfs`.
BETA_FRACTION = 0.1

#: Relative residual of the conjugate gradients of the first P-step without X'SX, which `tighten` lowers for later ones,
#: and the maximum number of steps of each, all of which lower the objective.
FEATURE_TOL = 1e-2
FEATURE_STEPS = 5

#: Maximum number of features without X'SX that a P-step solves for at a time: 32 MiB of X'SX.
SET_FEATURES = 2048


#: Numbers of a saved state.
NUMBERS = "beta", "critical", "epsilon", "tol"


class RowSparseRegression:
    """P for a B that changes from one P-step to the next.

    Parameters
    ----------
    B : float64 array, shape (d, q)
        The first X'SY.
    beta : float, optional
        By default `BETA_FRACTION` of the least value at which P is 0.
    inner_iterations : int, optional
        Reweightings of a P-step; by default as many as change P by 1 %, 10 at most, and one where each reads X.
    gram : float64 array, shape (d, d), optional
        G. Without it the others are needed.
    diagonal : float64 array, shape (d,), optional
        About that of G.
    normal : callable, optional
        G P for any P of shape (d, c).
    gram_of : callable, optional
        G of some features, for their indices.
    max_features : int
        Features that are solved for at a time without G; 0 for conjugate gradients on all.
    reaches_zero : bool
        Whether P is 0 where that is the minimum, and not what steps towards it leave.

    Attributes
    ----------
    P : float64 array, shape (d, q)
    GP : float64 array, shape (d, q), or None
        G P, which the caller sets after an update where `needs_product`; with G it follows from the P-step.
    beta, critical, epsilon : float
        The least β at which P is 0 for the last B, and ε of `row_sparse`.
    """

    def __init__(
        self,
        B: Array,
        *,
        beta: float | None,
        inner_iterations: int | None = None,
        gram: Array | None = None,
        diagonal: Array | None = None,
        normal: Callable[[Array], Array] | None = None,
        gram_of: Callable[[NDArray[np.intp]], Array] | None = None,
        max_features: int = 0,
        reaches_zero: bool = True,
        state: Mapping[str, Any] | None = None,
    ) -> None:
        d, q = B.shape
        self.critical = row_sparse.critical_weight(B)
        self.beta = BETA_FRACTION * self.critical if beta is None else float(beta)
        self._inner, self._reaches_zero = inner_iterations, reaches_zero
        self._gram = gram
        self._diagonal = diagonal
        self._normal = normal
        self.P: Array = np.zeros((d, q))
        self.GP: Array | None = None if gram is None else np.zeros((d, q))
        self.epsilon, self.tol = 0.0, FEATURE_TOL
        self._t: Array = np.full(d, 2.0 * np.sqrt(q))
        rows: dict[str, Any] = {}
        if state is not None:
            self.P, self.GP = state["P"], state.get("GP")
            self.beta, self.critical, self.epsilon, self.tol = (float(state[name]) for name in NUMBERS)
            self._t = row_sparse.weights(self.P, self.epsilon)
            rows = {name: state[name] for name in ("rows", "inactive", "violation") if name in state}
        self._working: WorkingSet | None = None
        if gram is None and self.beta > 0 and max_features:
            assert gram_of is not None
            self._working = WorkingSet(gram_of, d, max_features, **rows)

    @property
    def needs_product(self) -> bool:
        """True if G P must be set after an update."""
        return self._working is not None

    @property
    def penalty(self) -> float:
        """β ‖P‖_{2,1}."""
        return self.beta * row_sparse.penalty(self.P, self.epsilon)

    def update(self, B: Array) -> int:
        """Compute P by Eq. 10 and D by Eq. 9 in turn; return the number of steps."""
        self.critical = row_sparse.critical_weight(B)
        if self._reaches_zero and self.beta >= self.critical > 0:
            self.P = np.zeros_like(self.P)
            self.GP = None if self.GP is None else np.zeros_like(self.P)
            return 0
        if self._working is not None and self.GP is not None:
            self._working.update_inactive_rows(self.P, self.GP, B, self.beta, self.epsilon)
            assert self._diagonal is not None
            return self._working.step(
                self.P,
                self.GP,
                B,
                self.beta,
                self.epsilon,
                diagonal=self._diagonal,
                max_iter=self._inner or row_sparse.REWEIGHTINGS,
                tol=row_sparse.MOVED if self._inner is None else None,
            )
        steps, iterations = 0, self._inner or (row_sparse.REWEIGHTINGS if self._gram is not None else 1)
        if self._working is not None:
            iterations = 1  # P from which the first set is chosen
        for _ in range(iterations):
            step = self._solve(B)  # Eq. 10
            moved = float(np.linalg.norm(step.P - self.P))
            self.P = step.P
            if self._gram is not None:
                t = self._t[:, np.newaxis]  # 0 where B, and with it P, is
                self.GP = B - self.beta * np.divide(self.P, t, out=np.zeros_like(self.P), where=t > 0)
            steps += step.steps
            self.epsilon = self.epsilon or row_sparse.smoothing(self.P)
            self._t = row_sparse.weights(self.P, self.epsilon)  # Eq. 9
            if self.beta == 0 or (self._inner is None and moved <= row_sparse.MOVED * float(np.linalg.norm(self.P))):
                break
        return steps

    def _solve(self, B: Array) -> row_sparse.Step:
        if self._gram is not None:
            return row_sparse.solve_gram(self._gram, B, self.beta, self._t, start=self.P, product=self.GP)
        assert self._normal is not None
        assert self._diagonal is not None
        return row_sparse.solve_products(
            self._normal,
            B,
            self.beta,
            self._t,
            start=self.P,
            diagonal=self._diagonal,
            tol=self.tol,
            max_iter=FEATURE_STEPS,
        )

    def tighten(self, change: float, tol: float) -> None:
        """Lower the tolerance as the objective converges: a relative residual r leaves it off by about r²."""
        self.tol = min(self.tol, 0.1 * float(np.sqrt(max(change, tol))))

    def has_settled(self, tol: float, objective: float) -> bool:
        """Return True if an exact P-step would gain no more than `tol` of the objective."""
        if not self.P.any():
            return True
        if self._working is not None:
            # Where the active features do not all fit in the set, only the change of the objective ends the loop.
            full = len(self._working.rows) == self._working.max_rows
            return self._working.violation <= tol * objective or full
        return self._gram is not None or self.tol <= 0.1 * np.sqrt(tol)

    def finish(self, B: Array) -> None:
        """Set the features outside the last working set from their gradient."""
        if self._working is not None and self.GP is not None and self.P.any():
            self._working.update_inactive_rows(self.P, self.GP, B, self.beta, self.epsilon)

    def state(self) -> dict[str, NDArray[Any]]:
        """Return arrays to resume from."""
        arrays = {name: np.asarray(getattr(self, name)) for name in NUMBERS}
        arrays |= {"P": self.P} if self.GP is None else {"P": self.P, "GP": self.GP}
        if self._working is not None and self.GP is not None:
            working = self._working
            arrays |= {"rows": working.rows, "inactive": working.inactive}
            arrays["violation"] = np.asarray(working.violation)
        return arrays
