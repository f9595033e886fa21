"""Labels that follow their neighbours: min Σ s_ii ‖xⁱP − yⁱ‖² + α ‖(I − W) Y‖² over the unknown entries of Y.

Every column is a system of its own, in the unknown entries of that label: (S + α(I − W)'(I − W)) Y = S X P, restricted
to them, the known ones being moved to the right. Conjugate gradients with the sparse W; X is not read.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.solvers import conjugate_gradients as cg
from mlfs_dask.typing import Array

#: Arrays of shape (n, `cg.GROUP`) that each thread of `recover_labels` holds: those of the solver, start and right-hand
#: side, mask, and two in the operator. Besides these it holds the result.
GROUP_MATRICES = cg.MATRICES + 5


class Reconstruction:
    """I − W, ready for products with Y.

    Parameters
    ----------
    W : csr_array, shape (n, n)
        Rows sum to one, or are empty: a row without neighbours is reconstructed by nothing, and costs nothing.

    Attributes
    ----------
    diagonal : float64 array, shape (n,)
        Of (I − W)'(I − W).
    """

    def __init__(self, W: sp.csr_array) -> None:
        has_neighbours = (np.diff(W.indptr) > 0).astype(np.float64)
        self._A = sp.csr_array(sp.diags_array(has_neighbours) - W)
        self._transposed = sp.csr_array(self._A.T)
        squares: Any = self._A.power(2).sum(axis=0)
        self.diagonal: Array = np.asarray(squares).ravel()

    def error(self, Y: Array) -> float:
        """Return ‖(I − W) Y‖²."""
        rest = self._A @ Y
        return float(np.vdot(rest, rest))

    def normal(self, Y: Array) -> Array:
        """Return (I − W)'(I − W) Y."""
        return np.asarray(self._transposed @ (self._A @ Y))


class Recovery(NamedTuple):
    """Result of `recover_labels`: Y, the most steps of a label, and the largest relative residual."""

    Y: Array
    steps: int
    residual: float


def recover_labels(
    Y: Array,
    free: NDArray[np.bool_],
    s: Array,
    fitted: Array | None,
    alpha: float,
    reconstruction: Reconstruction,
    *,
    tol: float,
    max_iter: int,
) -> Recovery:
    """Solve for the free entries of Y, and keep them within [−1, 1].

    Parameters
    ----------
    Y : float64 array, shape (n, q)
        Where free, the start.
    free : bool array, shape (n, q)
    s : float64 array, shape (n,)
        Diagonal of S.
    fitted : float64 array, shape (n, q), or None
        X P; None where S is 0 in all rows with free entries, so that it is not needed.
    alpha : float
    reconstruction : Reconstruction
    tol : float
        ‖residual‖ / ‖right-hand side‖ of every column.
    max_iter : int
    """
    chosen = np.flatnonzero(free.any(axis=0))
    if not len(chosen) or (alpha == 0 and fitted is None):
        return Recovery(Y, 0, 0.0)  # no entry is free, or the objective depends on none
    weights = s[:, np.newaxis]
    diagonal = weights + alpha * reconstruction.diagonal[:, np.newaxis]
    # A row without weight and neighbours is in no term of the objective: its entries stay as they are.
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    recovered = Y.copy()

    def solve(columns: NDArray[np.intp]) -> tuple[int, float]:
        """Recover some labels; the steps that this took, and the largest residual."""
        mask, start = free[:, columns], Y[:, columns]
        right = -alpha * reconstruction.normal(np.where(mask, 0.0, start))
        if fitted is not None:
            right += weights * fitted[:, columns]
        right *= mask

        def operator(V: Array, active: NDArray[np.intp]) -> Array:
            runtime.check_stopped()
            return np.asarray((alpha * reconstruction.normal(V) + weights * V) * mask[:, active])

        solution = cg.conjugate_gradients(
            operator,
            right,
            x0=start * mask,
            precondition=lambda R, _: inverse * R,
            tol=tol,
            max_iter=max_iter,
        )
        recovered[:, columns] = np.where(mask, np.clip(solution.x, -1.0, 1.0), start)
        return solution.iterations, float(solution.residuals.max(initial=0.0))

    steps, residuals = zip(*cg.solve_groups(solve, chosen, "recovering labels"), strict=True)
    return Recovery(recovered, max(steps), max(residuals))
