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
from mlfs_dask.row_arrays import (
    IN_MEMORY,
    RowSpace,
    graph_of,
    graph_product,
    graph_rows,
    narrowed,
    row_blocks,
    take_columns,
)
from mlfs_dask.solvers import conjugate_gradients as cg

Array = NDArray[np.float64]

#: Bytes of one array of the solver; columns are solved in groups of this size, in memory. A neighbour costs a line of
#: the cache, 8 columns, however few of them are asked for: so many there are up to two million rows.
GROUP_BYTES = 128 * 2**20

#: Arrays of a group that are held at a time: those of the conjugate gradients, two on the way through W, and the mask.
GROUP_MATRICES = cg.MATRICES + 3


class Reconstruction:
    """I − W, ready for products with columns of Y.

    Parameters
    ----------
    W : csr_array, shape (n, n)
        Rows sum to one, or are empty: a row without neighbours is reconstructed by nothing, and costs nothing.
    space : RowSpace
        Where the two matrices are kept.
    """

    def __init__(self, W: sp.csr_array, space: RowSpace = IN_MEMORY) -> None:
        n = W.shape[0]
        identity = np.where(np.diff(W.indptr) == 0, 0.0, 1.0)

        def less(S: sp.csr_array, part: slice) -> sp.csr_array:
            return sp.csr_array(sp.diags_array(identity[part], offsets=part.start, shape=S.shape) - S)

        self._A = graph_of(W, lambda S, T, part: less(S, part), space, room=W.nnz + n)
        self._transposed = graph_of(W, lambda S, T, part: less(T, part), space, room=W.nnz + n)
        self.diagonal = np.empty(n)
        for part in row_blocks(n, max(1, 2 * self._transposed.nnz // max(n, 1))):
            squares: Any = graph_rows(self._transposed, part).power(2).sum(axis=1)
            self.diagonal[part] = squares

    def error(self, Y: Array) -> float:
        """‖(I − W) Y‖², held in groups of columns."""
        n, q = Y.shape
        width = group_columns(n)
        total = 0.0
        for low in range(0, q, width):
            columns = np.arange(low, min(low + width, q))
            left = graph_product(self._A, take_columns(Y, columns), np.empty((n, len(columns))))
            for part in row_blocks(*left.shape):
                total += float(np.einsum("ij,ij->", left[part], left[part]))
        return total

    def normal(self, Y: Array, through: Array, out: Array) -> Array:
        """(I − W)'(I − W) Y into `out`, by way of `through`; all of one shape, (n, c)."""
        graph_product(self._A, Y, through)
        return graph_product(self._transposed, through, out)


def group_columns(n: int) -> int:
    """Columns of a group."""
    return max(1, GROUP_BYTES // (8 * max(n, 1)))


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
    width = group_columns(n)
    groups = range(0, q, width)
    steps, residual = 0, 0.0
    with runtime.stage("recovered labels", len(groups), unit="groups of labels") as done:
        for low in groups:
            high = min(low + width, q)
            some = np.zeros(high - low, dtype=bool)
            for part in row_blocks(n, q):
                some |= free[part, low:high].any(axis=0)
            chosen = np.flatnonzero(some) + low
            if len(chosen):
                found = _solve(Y, free, chosen, s, inverse, fitted, alpha, reconstruction, tol=tol, max_iter=max_iter)
                steps = max(steps, found.iterations)
                residual = max(residual, float(found.residuals.max(initial=0.0)))
            done()
    return Recovery(steps, residual)


def _solve(
    Y: Array,
    free: NDArray[np.bool_],
    chosen: NDArray[np.intp],
    s: Array,
    inverse: Array,
    fitted: Array | None,
    alpha: float,
    reconstruction: Reconstruction,
    *,
    tol: float,
    max_iter: int,
) -> cg.Solution:
    """Some columns of `recover_labels`; `inverse`, shape (n, 1), is that of the diagonal of S + α(I − W)'(I − W)."""
    column = s[:, np.newaxis]
    mask, start = take_columns(free, chosen), take_columns(Y, chosen)
    through, image = np.empty_like(start), np.empty_like(start)
    right = np.empty_like(start)
    for part in row_blocks(*start.shape):
        image[part] = np.where(mask[part], 0.0, start[part])
        start[part] *= mask[part]
    reconstruction.normal(image, through, right)
    for part in row_blocks(*start.shape):
        right[part] *= -alpha
        if fitted is not None:
            right[part] += column[part] * fitted[part][:, chosen]
        right[part] *= mask[part]

    def operator(V: Array, columns: NDArray[np.intp]) -> Array:
        product = narrowed(image, V.shape[1])
        reconstruction.normal(V, narrowed(through, V.shape[1]), product)
        for part in row_blocks(*V.shape):
            product[part] *= alpha
            product[part] += column[part] * V[part]
            product[part] *= mask[part][:, columns]
        return product

    found = cg.conjugate_gradients(
        operator,
        right,
        x0=start,
        precondition=lambda R, _, rows: inverse[rows] * R,
        tol=tol,
        max_iter=max_iter,
    )
    for part in row_blocks(*Y.shape):
        Y[part, chosen] = np.where(mask[part], np.clip(found.x[part], -1.0, 1.0), Y[part][:, chosen])
    return found
