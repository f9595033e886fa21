"""The Sylvester equation A W + W B = C of symmetric A and B, by their eigenvectors.

R. H. Bartels, G. W. Stewart, "Solution of the matrix equation AX + XB = C", Communications of the ACM 15 (1972)
820-826, doi:10.1145/361573.361582, whose triangular forms are diagonal here.
"""

from __future__ import annotations

import numpy as np

from mlfs_dask.errors import MlfsError
from mlfs_dask.typing import Array

#: Arrays of the shape of A that the solver holds besides it: a copy, eigenvectors, and what LAPACK works with.
SQUARE_MATRICES = 5


def solve_symmetric_sylvester(A: Array, B: Array, C: Array) -> Array:
    """Return W of A W + W B = C.

    Parameters
    ----------
    A : float64 array, shape (m, m)
        Symmetric; only its lower triangle is looked at.
    B : float64 array, shape (q, q)
        Symmetric.
    C : float64 array, shape (m, q)

    Raises
    ------
    MlfsError
        An eigenvalue of A is that of -B: there is no one solution.

    Examples
    --------
    >>> solve_symmetric_sylvester(np.diag([1.0, 3.0]), np.array([[1.0]]), np.array([[4.0], [4.0]]))
    array([[2.],
           [1.]])
    """
    of_A, U = np.linalg.eigh(A)
    of_B, V = np.linalg.eigh(B)
    sums = of_A[:, np.newaxis] + of_B
    size = np.abs(of_A).max(initial=0.0) + np.abs(of_B).max(initial=0.0)
    if np.abs(sums).min(initial=np.inf) <= len(A) * np.finfo(np.float64).eps * size:
        raise MlfsError("A W + W B = C has no one solution: A and -B have an eigenvalue in common")
    W: Array = U @ ((U.T @ C @ V) / sums) @ V.T
    return W
