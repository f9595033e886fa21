"""Labels predicted for all rows at once: (θL + H) F + K∘(F − Y) + μFL_p = HXW, by conjugate gradients.

L is the Laplacian of a sparse graph on rows, H centres, K marks the known entries and L_p is the Laplacian of a small
graph on labels (Y. Huang et al., Access-MFS, Eq. 17). Nothing n × n is formed and X is not read. Where rows are known
as a whole the eigenvectors of L_p take the labels apart; else all labels are solved for together.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.solvers.conjugate_gradients import conjugate_gradients
from mlfs_dask.solvers.uncorrelated import Laplacian

Array = NDArray[np.float64]

#: Arrays of shape (n, q) that `propagate_labels` holds at most, F, its right-hand side and the result included.
ROW_MATRICES = 11

#: Most steps; real data takes some twenty.
MAX_STEPS = 1000


def propagate_labels(
    F: Array,
    target: Array,
    known: Array,
    *,
    laplacian: Laplacian | None,
    degrees: Array | None,
    theta: float,
    label_laplacian: Array | None,
    mu: float,
    tol: float,
) -> tuple[Array, int]:
    """F that solves the equation.

    Parameters
    ----------
    F : float64 array, shape (n, q)
        Where to start.
    target : float64 array, shape (n, q)
        C = HXW + K∘Y.
    known : float64 array, shape (n, 1) or (n, q)
        K, of zeros and ones: by rows, or by entries.
    laplacian : Laplacian, optional
        L of the rows; None for 0.
    degrees : float64 array, shape (n,), optional
        Diagonal of L.
    theta : float
    label_laplacian : float64 array, shape (q, q), optional
        L_p; None for 0.
    mu : float
    tol : float
        Norm of the residual, relative to that of C.

    Returns
    -------
    F : float64 array, shape (n, q)
    steps : int
        Of conjugate gradients.

    Raises
    ------
    MlfsError
        A product is not finite.

    Examples
    --------
    >>> F, _ = propagate_labels(
    ...     np.zeros((2, 1)), np.array([[1.0], [0.0]]), np.ones((2, 1)), laplacian=None, degrees=None, theta=0.0,
    ...     label_laplacian=None, mu=0.0, tol=1e-12,
    ... )
    >>> F.round(3)  # (H + I) F = C
    array([[0.75],
           [0.25]])
    """
    n, q = F.shape
    diagonal = known + (1.0 - 1.0 / n)
    if laplacian is not None and degrees is not None:
        diagonal = diagonal + theta * degrees[:, np.newaxis]

    def smooth(P: Array) -> Array:
        """(θL + H) P."""
        centred: Array = P - P.mean(axis=0)
        return centred if laplacian is None else centred + theta * (laplacian @ P)

    if known.shape[1] == 1:
        sigma, E = np.zeros(q), np.eye(q)
        if label_laplacian is not None:
            sigma, E = np.linalg.eigh(label_laplacian)
            sigma = mu * np.maximum(sigma, 0.0)
        found = conjugate_gradients(
            lambda P, columns: smooth(P) + known * P + sigma[columns] * P,
            target @ E,
            x0=F @ E,
            precondition=lambda R, columns: R / np.maximum(diagonal + sigma[columns], np.finfo(np.float64).tiny),
            tol=tol,
            max_iter=MAX_STEPS,
        )
        rotated: Array = found.x @ E.T
        return rotated, found.iterations

    coupling = np.zeros((q, q)) if label_laplacian is None else mu * label_laplacian
    inverse = 1.0 / np.maximum(diagonal + np.diag(coupling), np.finfo(np.float64).tiny)

    def together(p: Array) -> Array:
        P = p.reshape(n, q)
        return (smooth(P) + known * P + P @ coupling).reshape(-1, 1)

    found = conjugate_gradients(
        lambda p, columns: together(p),
        target.reshape(-1, 1),
        x0=F.reshape(-1, 1),
        precondition=lambda r, columns: (inverse * r.reshape(n, q)).reshape(-1, 1) if len(columns) else r,
        tol=tol,
        max_iter=MAX_STEPS,
    )
    return found.x.reshape(n, q), found.iterations
