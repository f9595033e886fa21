"""Labels predicted for all rows at once: (θL + H) F + K∘(F − Y) + μFL_p = HXW, by conjugate gradients.

L is the Laplacian of a sparse graph on rows, H centres, K marks the known entries and L_p is the Laplacian of a small
graph on labels (Y. Huang et al., Access-MFS, Eq. 17). Nothing n × n is formed and X is not read. Where rows are known
as a whole the eigenvectors of L_p take the labels apart; else all labels are solved for together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, column_sums, multiply, narrowed, row_blocks
from mlfs_dask.solvers import conjugate_gradients as cg
from mlfs_dask.solvers.laplacian import Smoother

Array = NDArray[np.float64]

#: Arrays of shape (n, q) that `propagate_labels` holds, F and its right-hand side included.
ROW_MATRICES = cg.MATRICES + 1

#: Most steps; real data takes some twenty.
MAX_STEPS = 1000


def propagate_labels(
    F: Array,
    target: Array,
    known: NDArray[np.bool_],
    *,
    laplacian: Smoother | None,
    theta: float,
    label_laplacian: Array | None,
    mu: float,
    tol: float,
    space: RowSpace = IN_MEMORY,
) -> int:
    """Solve the equation, F being changed in place.

    Parameters
    ----------
    F : float64 array, shape (n, q)
        Where to start; overwritten with the solution.
    target : float64 array, shape (n, q)
        C = HXW + K∘Y. Overwritten.
    known : bool array, shape (n, 1) or (n, q)
        K: by rows, or by entries.
    laplacian : Smoother, optional
        L of the rows; None for 0.
    theta : float
    label_laplacian : float64 array, shape (q, q), optional
        L_p; None for 0.
    mu : float
    tol : float
        Norm of the residual, relative to that of C.
    space : RowSpace
        Where arrays go.

    Returns
    -------
    int
        Steps of conjugate gradients.

    Raises
    ------
    MlfsError
        A product is not finite.

    Examples
    --------
    >>> F = np.zeros((2, 1))
    >>> _ = propagate_labels(
    ...     F, np.array([[1.0], [0.0]]), np.ones((2, 1), bool), laplacian=None, theta=0.0, label_laplacian=None,
    ...     mu=0.0, tol=1e-12,
    ... )
    >>> F.round(3)  # (H + I) F = C
    array([[0.75],
           [0.25]])
    """
    n, q = F.shape
    diagonal = np.full(n, 1.0 - 1.0 / n)
    if laplacian is not None:
        diagonal += theta * laplacian.degrees
    image = space.empty(n, q)
    by_row = known.shape[1] == 1
    coupling = np.zeros((q, q)) if label_laplacian is None else mu * label_laplacian
    if by_row:
        sigma, E = np.linalg.eigh(coupling) if label_laplacian is not None else (np.zeros(q), np.eye(q))
        sigma = np.maximum(sigma, 0.0)
        multiply(target, E, target)
        multiply(F, E, F)
    else:
        sigma = np.diag(coupling)

    def operator(P: Array, columns: NDArray[np.intp]) -> Array:
        """(θL + H) P + K∘P, and P times the Laplacian of labels."""
        product = narrowed(image, P.shape[1])
        done()
        mean = column_sums(P) / n
        if laplacian is not None:
            laplacian.product(P, product)
        for part in row_blocks(n, q):
            block = P[part] - mean
            block += known[part] * P[part]
            if laplacian is not None:
                block += theta * product[part]
            block += sigma[columns] * P[part] if by_row else P[part] @ coupling
            product[part] = block
        return product

    def precondition(R: Array, columns: NDArray[np.intp], rows: slice) -> Array:
        scale = diagonal[rows, np.newaxis] + known[rows] + sigma[columns]
        return R / np.maximum(scale, np.finfo(np.float64).tiny)

    with runtime.stage("predicted labels", unit="steps") as done:
        found = cg.conjugate_gradients(
            operator,
            target,
            x0=F,
            precondition=precondition,
            tol=tol,
            max_iter=MAX_STEPS,
            together=not by_row,
            space=space,
        )
    if by_row:
        multiply(F, E.T, F)
    space.release(image)
    return found.iterations
