"""Labels predicted for all rows at once: (θL + H) F + K∘(F − Y) + μFL_p = HXW, by conjugate gradients.

L is the Laplacian of a sparse graph on rows, H centres, K marks the known entries and L_p is the Laplacian of a small
graph on labels (Y. Huang et al., Access-MFS, Eq. 17). Nothing n × n is formed and X is not read. Where every row is
known in all labels or in none, the eigenvectors of L_p decouple the labels; else all labels form one system.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.solvers import conjugate_gradients as cg
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.typing import Array

#: Arrays of shape (n, q) that `propagate_labels` holds besides its arguments: those of the solver, C and F in the
#: eigenvectors of L_p, and two in the operator.
ROW_MATRICES = cg.MATRICES + 4


class Propagation(NamedTuple):
    """F, shape (n, q), and the steps of conjugate gradients that it took."""

    F: Array
    steps: int


def propagate_labels(
    F: Array,
    target: Array,
    known: NDArray[np.bool_],
    *,
    laplacian: Laplacian | None,
    theta: float,
    label_laplacian: Array | None,
    mu: float,
    tol: float,
) -> Propagation:
    """Solve the equation for F.

    Parameters
    ----------
    F : float64 array, shape (n, q)
        The start.
    target : float64 array, shape (n, q)
        C = HXW + K∘Y.
    known : bool array, shape (n, 1) or (n, q)
        K: by rows, or by entries.
    laplacian : Laplacian, optional
        L of the rows; None for 0.
    theta : float
    label_laplacian : float64 array, shape (q, q), optional
        L_p; None for 0.
    mu : float
    tol : float
        Norm of the residual, relative to that of C.

    Raises
    ------
    MlfsError
        A product is not finite.

    Examples
    --------
    >>> found = propagate_labels(
    ...     np.zeros((2, 1)), np.array([[1.0], [0.0]]), np.ones((2, 1), bool), laplacian=None, theta=0.0,
    ...     label_laplacian=None, mu=0.0, tol=1e-12,
    ... )
    >>> found.F.round(3)  # (H + I) F = C
    array([[0.75],
           [0.25]])
    """
    n, q = F.shape
    diagonal = np.full(n, 1.0 - 1.0 / n)
    if laplacian is not None:
        diagonal += theta * laplacian.degrees
    by_row = known.shape[1] == 1
    coupling = np.zeros((q, q)) if label_laplacian is None else mu * label_laplacian
    E = np.eye(q)
    sigma = np.diag(coupling)
    if by_row and label_laplacian is not None:
        sigma, E = np.linalg.eigh(coupling)
        sigma = np.maximum(sigma, 0.0)

    right, solution = target @ E, F @ E

    def solve(columns: NDArray[np.intp]) -> int:
        """Solve for some columns in place of their start; the steps that this took."""

        def operator(P: Array, active: NDArray[np.intp]) -> Array:
            """Return (θL + H) P + K∘P, and P times the Laplacian of labels."""
            runtime.check_stopped()
            product: Array = P - P.mean(axis=0) + known * P
            if laplacian is not None:
                product += theta * laplacian.product(P)
            product += sigma[columns[active]] * P if by_row else P @ coupling
            return product

        def precondition(R: Array, active: NDArray[np.intp]) -> Array:
            scale = diagonal[:, np.newaxis] + known + sigma[columns[active]]
            return np.asarray(R / np.maximum(scale, np.finfo(np.float64).tiny))

        found = cg.conjugate_gradients(
            operator,
            right[:, columns],
            x0=solution[:, columns],
            precondition=precondition,
            tol=tol,
            max_iter=1000,  # real data takes some twenty
            single_system=not by_row,
        )
        solution[:, columns] = found.x
        return found.iterations

    if by_row:
        steps = max(cg.solve_groups(solve, np.arange(q), "predicting labels"))
    else:
        with runtime.stage("predicting labels"):
            steps = solve(np.arange(q))
    return Propagation(solution @ E.T, steps)
