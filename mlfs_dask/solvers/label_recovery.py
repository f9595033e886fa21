"""Labels that follow their neighbours: min Σ s_ii ‖xⁱP − yⁱ‖² + α ‖(I − W) Y‖² over the unknown entries of Y.

Every column is a system of its own, in the unknown entries of that label: (S + α(I − W)'(I − W)) Y = S X P, restricted
to them, the known ones being moved to the right. Conjugate gradients with the sparse W; X is not read.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.solvers.conjugate_gradients import conjugate_gradients

Array = NDArray[np.float64]

#: Bytes of one array of the solver; columns are solved in groups of this size.
GROUP_BYTES = 64 * 2**20

#: Arrays of a group that are held at a time.
GROUP_MATRICES = 12


class Reconstruction:
    """I − W, ready for products with columns of Y.

    Parameters
    ----------
    W : csr_array, shape (n, n)
        Rows sum to one, or are empty: a row without neighbours is reconstructed by nothing, and costs nothing.
    """

    def __init__(self, W: sp.csr_array) -> None:
        n = W.shape[0]
        empty = np.diff(W.indptr) == 0
        self._A = sp.csr_array(sp.diags_array(np.where(empty, 0.0, 1.0)) - W)
        self._transposed = sp.csr_array(self._A.T)
        self.diagonal = np.asarray(self._A.power(2).sum(axis=0), dtype=np.float64).reshape(n)

    def error(self, Y: Array) -> float:
        """‖(I − W) Y‖²."""
        left = self._A @ Y
        return float(np.einsum("ij,ij->", left, left))

    def normal(self, Y: Array) -> Array:
        """(I − W)'(I − W) Y."""
        product: Array = self._transposed @ (self._A @ Y)
        return product


class Recovery(NamedTuple):
    """What `recover_labels` tells: applications of the operator, relative residual of the worst column."""

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
    """Solve for the free entries of Y, in place, and keep them within [−1, 1].

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

    Returns
    -------
    Recovery
    """
    n, q = Y.shape
    if alpha == 0 and fitted is None:
        return Recovery(0, 0.0)  # nothing says what the free entries should be
    diagonal = (s + alpha * reconstruction.diagonal)[:, np.newaxis]
    # A row without weight and neighbours ties nothing down: its entries stay what they are.
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)
    column = s[:, np.newaxis]
    width = max(1, GROUP_BYTES // (8 * max(n, 1)))
    steps, residual = 0, 0.0
    for low in range(0, q, width):
        part = slice(low, min(low + width, q))
        chosen = np.flatnonzero(free[:, part].any(axis=0)) + low
        if not len(chosen):
            continue
        mask = free[:, chosen]
        known = np.where(mask, 0.0, Y[:, chosen])
        right = -alpha * reconstruction.normal(known)
        if fitted is not None:
            right += column * fitted[:, chosen]
        right *= mask

        def operator(V: Array, columns: NDArray[np.intp], mask: NDArray[np.bool_] = mask) -> Array:
            product = column * V + alpha * reconstruction.normal(V)
            product *= mask[:, columns]
            return product

        found = conjugate_gradients(
            operator,
            right,
            x0=np.where(mask, Y[:, chosen], 0.0),
            precondition=lambda R, _: inverse * R,
            tol=tol,
            max_iter=max_iter,
        )
        Y[:, chosen] = known + np.clip(found.x, -1.0, 1.0)
        steps = max(steps, found.iterations)
        residual = max(residual, float(found.residuals.max(initial=0.0)))
    return Recovery(steps, residual)
