"""Symmetric matrices of low rank plus a diagonal: the Nyström approximation of a matrix from some of its columns.

Q ≈ C P⁺ C' + diag(e), where C holds the columns of landmarks and P their rows of it. Rows and columns of landmarks are
those of Q, e makes the diagonal that of Q, and only entries of two other features are approximated.

C. Williams, M. Seeger, "Using the Nyström method to speed up kernel machines", Advances in Neural Information
Processing Systems 13 (2001) 682-688. I. Rodriguez-Lujan, R. Huerta, C. Elkan, C. Santa Cruz, "Quadratic programming
feature selection", Journal of Machine Learning Research 11 (2010) 1491-1516.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import MlfsError
from mlfs_dask.typing import Array


@dataclass(frozen=True)
class LowRankPlusDiagonal:
    """The symmetric matrix F diag(c) F' + diag(e).

    Attributes
    ----------
    F : float64 array, shape (d, r)
    c : float64 array, shape (r,)
        Below 0 for directions in which the matrix is negative.
    e : float64 array, shape (d,)

    Examples
    --------
    >>> Q = LowRankPlusDiagonal(np.array([[1.0], [2.0]]), np.array([1.0]), np.array([0.0, 3.0]))  # [[1, 2], [2, 7]]
    >>> (Q @ np.eye(2)).tolist(), (2.0 * Q @ np.ones(2)).tolist(), Q.mean()
    ([[1.0, 2.0], [2.0, 7.0]], [6.0, 18.0], 3.0)
    """

    F: Array
    c: Array
    e: Array

    #: NumPy's scalars leave products to this class.
    __array_ufunc__ = None

    def __matmul__(self, W: Array) -> Array:
        image: Array = self.F @ (self.c * (self.F.T @ W).T).T
        image += (self.e * W.T).T
        return image

    def __rmul__(self, factor: float) -> LowRankPlusDiagonal:
        return replace(self, c=factor * self.c, e=factor * self.e)

    def principal_submatrix(self, rows: NDArray[np.intp]) -> LowRankPlusDiagonal:
        """Return these rows and columns."""
        return replace(self, F=self.F[rows], e=self.e[rows])

    def mean(self) -> float:
        """Return the mean of all entries."""
        d = len(self.e)
        return float(self.c @ self.F.sum(axis=0) ** 2 + self.e.sum()) / d**2

    def diagonal(self) -> Array:
        """Return shape (d,)."""
        diagonal: Array = np.einsum("fr,fr,r->f", self.F, self.F, self.c) + self.e
        return diagonal


def nystroem(C: Array, landmarks: NDArray[np.intp], diagonal: Array) -> LowRankPlusDiagonal:
    """Return Q ≈ C P⁺ C' + diag(e) from the columns of landmarks and the diagonal.

    Eigenvalues of P that are rounding errors of 0, as landmarks that are copies of each other make them, are cut;
    negative ones stay. Where Q is indefinite, C P⁺ C' may exceed the diagonal: e is 0 there.

    Parameters
    ----------
    C : float64 array, shape (d, r)
        Columns of Q. Entries of landmarks with themselves are set to those of `diagonal`.
    landmarks : int array, shape (r,)
        Their places, rising.
    diagonal : float64 array, shape (d,)
        That of Q.

    Examples
    --------
    >>> Q = nystroem(np.array([[1.0], [0.5], [0.0]]), np.array([0]), np.array([1.0, 1.0, 2.0]))
    >>> (Q @ np.eye(3)).tolist()
    [[1.0, 0.5, 0.0], [0.5, 1.0, 0.0], [0.0, 0.0, 2.0]]
    """
    C[landmarks, np.arange(len(landmarks))] = diagonal[landmarks]
    P = C[landmarks]
    eigenvalues, U = np.linalg.eigh(0.5 * (P + P.T))
    sizes = np.abs(eigenvalues)
    kept = sizes > len(P) * np.finfo(np.float64).eps * sizes.max(initial=0.0)
    F: Array = C @ (U[:, kept] / np.sqrt(sizes[kept]))
    c = np.sign(eigenvalues[kept])
    e = np.maximum(diagonal - np.einsum("fr,fr,r->f", F, F, c), 0.0)
    e[landmarks] = 0.0
    return LowRankPlusDiagonal(F, c, e)


def solve_low_rank_sylvester(A: LowRankPlusDiagonal, B: Array, C: Array) -> Array:
    """Return W of A W + W B = C.

    With the eigenvectors of B it falls into a system for each column, A plus a number on its diagonal, which the
    identity of Sherman, Morrison & Woodbury solves in r unknowns.

    Parameters
    ----------
    A : LowRankPlusDiagonal of shape (m, m)
    B : float64 array, shape (q, q)
        Symmetric.
    C : float64 array, shape (m, q)

    Raises
    ------
    MlfsError
        The solution is lost in rounding errors: an eigenvalue of A is that of -B, or nearly so.

    Examples
    --------
    >>> A = LowRankPlusDiagonal(np.ones((2, 1)), np.array([2.0]), np.array([1.0, 1.0]))  # [[3, 2], [2, 3]]
    >>> solve_low_rank_sylvester(A, np.array([[1.0]]), np.array([[6.0], [6.0]])).round(12)
    array([[1.],
           [1.]])
    """
    shifts, V = np.linalg.eigh(B)
    T = C @ V
    W = np.empty_like(T)
    scaled = np.empty_like(A.F)
    try:
        for j, shift in enumerate(shifts):
            with np.errstate(divide="raise", invalid="raise"):
                np.divide(A.F, (A.e + shift)[:, np.newaxis], out=scaled)
            core = A.c[:, np.newaxis] * (A.F.T @ scaled)
            core.flat[:: len(core) + 1] += 1.0
            W[:, j] = T[:, j] / (A.e + shift) - scaled @ np.linalg.solve(core, A.c * (scaled.T @ T[:, j]))
    except (np.linalg.LinAlgError, FloatingPointError):
        W[:] = np.inf
    W = np.asarray(W @ V.T)
    with np.errstate(invalid="ignore"):
        residual = np.abs(A @ W + W @ B - C).max(initial=0.0)
    if not residual <= np.sqrt(np.finfo(np.float64).eps) * np.abs(C).max(initial=0.0):
        raise MlfsError("A W + W B = C has no one solution: A and -B have an eigenvalue in common")
    return W
