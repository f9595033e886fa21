"""Regression whose projections are uncorrelated: max tr(W'M) subject to W'RW = I, R positive definite.

The solution is W = V (M'V)^{-1/2} with R V = M: a solve with q right-hand sides and a q × q root, no root of R (Y.
Huang et al., Access-MFS, Eqs. 12-14). V comes from a Cholesky factor of R, or, where R is known by its products alone,
from conjugate gradients.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from scipy import linalg

from mlfs_dask.blocks.linear import row_groups
from mlfs_dask.blocks.rounding import NEGLIGIBLE, RANK
from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers import conjugate_gradients as cg
from mlfs_dask.solvers.trace import ratio
from mlfs_dask.typing import Array

#: Arrays of shape (d, d) that `solve_gram` holds besides R: a copy, which becomes the factor.
SQUARE_MATRICES = 1

#: Arrays of shape (d, q) that `solve_products` holds besides its arguments.
FEATURE_MATRICES = cg.MATRICES + 4

#: Relative residual of the solve for W above which a loop has not converged.
RESIDUAL_TOL = 1e-3


@dataclass(frozen=True)
class Projection:
    """A solution.

    Attributes
    ----------
    W : float64 array, shape (d, q)
    rank : int
        Of M. Below q, W'RW is a projection of this rank instead of I.
    steps : int
        Of the conjugate gradients; 0 where R was factorised.
    residual : float
        ‖residual‖ / ‖right-hand side‖ of the worst column; 0 where R was factorised.
    values, vectors : float64 array, shapes (q,) and (q, q)
        Eigenvalues and eigenvectors of M'R⁻¹M.
    """

    W: Array
    rank: int
    steps: int
    residual: float
    values: Array
    vectors: Array


def solve_gram(R: Array, M: Array) -> Projection:
    """Find W by a Cholesky factor of R.

    Parameters
    ----------
    R : float64 array, shape (d, d)
        Symmetric, positive semidefinite; constant features have empty rows.
    M : float64 array, shape (d, q)

    Raises
    ------
    MlfsError
        A value is not finite, or R is far from positive semidefinite.

    Examples
    --------
    >>> solve_gram(np.diag([4.0, 1.0]), np.array([[2.0], [0.0]])).W
    array([[0.5],
           [0. ]])
    """
    _require_finite(M)
    V = cholesky_solver(R)(M)
    values, vectors = _eigenpairs(M.T @ V)
    root, rank = _root(values, vectors)
    return Projection(V @ root, rank, 0, 0.0, values, vectors)


def solve_products(
    operator: Callable[[Array], Array],
    M: Array,
    diagonal: Array,
    *,
    tol: float,
    max_iter: int,
    start: Projection | None = None,
) -> Projection:
    """Find W by conjugate gradients, preconditioned by the diagonal of R.

    Parameters
    ----------
    operator : callable
        R P for any P of shape (d, c).
    M : float64 array, shape (d, q)
    diagonal : float64 array, shape (d,)
        That of R, or about; features of 0 have W = 0.
    tol : float
        ‖residual‖ / ‖right-hand side‖ of every column.
    max_iter : int
    start : Projection, optional
        The solution of a problem nearby, from which the steps start.

    Raises
    ------
    MlfsError
        A value is not finite.

    Examples
    --------
    >>> R, M = np.diag([4.0, 1.0]), np.array([[2.0], [0.0]])
    >>> solve_products(lambda P: R @ P, M, np.diag(R), tol=1e-12, max_iter=10).W
    array([[0.5],
           [0. ]])
    """
    _require_finite(M)
    inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)[:, np.newaxis]
    if start is None:
        values, E = _eigenpairs(M.T @ (inverse * M))
    else:
        values, E = start.values, start.vectors
    # In these coordinates the columns of M are about orthonormal in R⁻¹: all directions of W are solved for with the
    # same accuracy, however small the singular values of M behind them.
    least = RANK * max(float(values.max(initial=0.0)), np.finfo(np.float64).tiny)
    sizes = np.sqrt(np.maximum(values, least))
    right = (M @ E) / sizes
    solution = cg.conjugate_gradients(
        lambda P, _: operator(P),
        right,
        x0=None if start is None else start.W @ E,  # the solution, if R and M had not changed
        precondition=lambda residual, _: inverse * residual,
        tol=tol,
        max_iter=max_iter,
    )
    values, vectors = _eigenpairs(E @ (sizes[:, np.newaxis] * (right.T @ solution.x) * sizes) @ E.T)
    root, rank = _root(values, vectors)
    W = ((solution.x * sizes) @ E.T) @ root
    return Projection(W, rank, solution.iterations, float(solution.residuals.max(initial=0.0)), values, vectors)


def _eigenpairs(K: Array) -> tuple[Array, Array]:
    _require_finite(K)
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    return values, vectors


def _root(values: Array, vectors: Array) -> tuple[Array, int]:
    good = values > RANK * max(values[-1], 0.0)
    vectors = vectors[:, good]
    root: Array = (vectors / np.sqrt(values[good])) @ vectors.T
    return root, int(good.sum())


def cholesky_solver(R: Array) -> Callable[[Array], Array]:
    """Return a function that applies R⁻¹ to arrays of shape (d, c).

    Where R is singular its diagonal grows by the least fraction that lets it be factorised.

    Parameters
    ----------
    R : float64 array, shape (d, d)
        Symmetric, positive semidefinite; constant features have empty rows.

    Raises
    ------
    MlfsError
        R is far from positive semidefinite.
    """
    diagonal = np.diag(R)
    for fraction in (1e-13, 1e-10, 1e-7):
        A = R.copy()
        A[np.diag_indices_from(A)] = np.where(diagonal > 0, diagonal * (1.0 + fraction), 1.0)
        try:
            # Transposed it is as LAPACK has it, and need not be copied once more.
            factor = linalg.cho_factor(A.T, overwrite_a=True, check_finite=False)
        except linalg.LinAlgError:
            continue
        return lambda right: np.asarray(linalg.cho_solve(factor, right, check_finite=False))
    raise MlfsError("X'X is far from positive semidefinite\n  cure: look for values of X beyond 1e150, and for NaN")


def _require_finite(array: Array) -> None:
    if not np.isfinite(array).all():
        raise MlfsError(
            "the regression on predicted labels met a value that is not finite"
            "\n  cure: look for values of X beyond 1e150, and for NaN; scale the features"
        )


@dataclass(frozen=True)
class Smoothing:
    """θ(X'X − X'ZΛ⁻¹Z'X), what the anchor graph adds to R.

    Attributes
    ----------
    theta : float
    ZX : float64 array, shape (m, d)
        Z'X.
    masses : float64 array, shape (m,)
        The diagonal of Λ.
    """

    theta: float
    ZX: Array
    masses: Array

    @property
    def root(self) -> Array:
        """Λ^{-1/2}Z'X, shape (m, d)."""
        roots = np.sqrt(self.masses)[:, np.newaxis]
        return np.divide(self.ZX, roots, out=np.zeros_like(self.ZX), where=roots > 0)


class GramRegression:
    """W by a Cholesky factor of R, which is an explicit matrix where X'X is.

    Parameters
    ----------
    gram : float64 array, shape (d, d)
        X'X.
    """

    #: Directions whose products with X'X the next solve needs; none.
    direction: Array | None = None

    def __init__(self, gram: Array) -> None:
        self.gram = gram

    def solve(self, M: Array, ridge: Array, smoothing: Smoothing, image: Array | None = None) -> Projection:
        """Return W for R = X'X + diag(ridge) + θ(X'X − X'ZΛ⁻¹Z'X)."""
        root = smoothing.root
        R = root.T @ root
        R *= -smoothing.theta
        R += (1.0 + smoothing.theta) * self.gram
        R[np.diag_indices_from(R)] += ridge
        return solve_gram(R, M)

    def state(self) -> dict[str, Array]:
        """Return arrays to resume from: none, since every solve starts anew."""
        return {}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Resume from the arrays of `state`."""


class SubspaceRegression:
    """W without X'X: a Galerkin projection on a small subspace whose products with X'X are known.

    Each call is one locally optimal step of block conjugate gradients: the subspace is spanned by the last W, its last
    change and the preconditioned residual (A. V. Knyazev, SIAM Journal on Scientific Computing 23 (2001) 517-541). R
    and M may change between calls.

    Parameters
    ----------
    sketch : NystromSketch
    """

    def __init__(self, sketch: NystromSketch) -> None:
        self.sketch = sketch
        # Arrays side by side.
        self.basis: list[Array] = []
        self.images: list[Array] = []
        self.direction: Array | None = None

    def solve(self, M: Array, ridge: Array, smoothing: Smoothing, image: Array | None = None) -> Projection:
        """Return the best W of the subspace for R = X'X + diag(ridge) + θ(X'X − X'ZΛ⁻¹Z'X).

        Parameters
        ----------
        M : float64 array, shape (d, q)
        ridge : float64 array, shape (d,)
        smoothing : Smoothing
        image : float64 array, shape (d, c)
            X'X times `direction`, which joins the subspace.

        Returns
        -------
        Projection
            Its residual is ‖M − R V‖ / ‖M‖.
        """
        assert self.direction is not None
        assert image is not None
        q, known, theta, LZX = M.shape[1], bool(self.basis), smoothing.theta, smoothing.root
        S = np.concatenate([*self.basis, self.direction], axis=1)
        self.basis = []  # it is in S
        GS = np.concatenate([*self.images, image], axis=1)
        self.images = []
        RS, across = np.empty_like(S), theta * (LZX @ S)
        for part in row_groups(len(S)):
            RS[part] = (1.0 + theta) * GS[part] + ridge[part, np.newaxis] * S[part] - LZX[:, part].T @ across
        SM = S.T @ M
        coefficients = _solve_dependent(S.T @ RS, SM)
        values, vectors = _eigenpairs(SM.T @ coefficients)
        root, rank = _root(values, vectors)
        residual = RS @ coefficients
        del RS
        np.subtract(M, residual, out=residual)
        coefficients = coefficients @ root
        self.basis, self.images = [S @ coefficients], [GS @ coefficients]
        if known:  # and the step without the part along the last W
            self.basis.append(S[:, q:] @ coefficients[q:])
            self.images.append(GS[:, q:] @ coefficients[q:])
        del S, GS
        self.direction = self.sketch.precondition(residual @ root, ridge, 1.0 + theta)
        error = ratio(np.linalg.norm(residual), np.linalg.norm(M))
        return Projection(self.basis[0], rank, 1, error, values, vectors)

    def state(self) -> dict[str, Array]:
        """Return arrays to resume from."""
        assert self.direction is not None
        basis, images = (np.concatenate(arrays, axis=1) for arrays in (self.basis, self.images))
        return {"basis": basis, "images": images, "direction": self.direction}

    def restore(self, arrays: Mapping[str, Array]) -> None:
        """Continue from the arrays of `state`."""
        self.basis, self.images, self.direction = [arrays["basis"]], [arrays["images"]], arrays["direction"]


def _solve_dependent(K: Array, right: Array) -> Array:
    """Return k⁺ right for the positive semidefinite Gram matrix K of directions that may be nearly linearly
    dependent.
    """
    diagonal = np.diag(K)
    scale = np.divide(1.0, np.sqrt(np.maximum(diagonal, 0.0)), out=np.zeros_like(diagonal), where=diagonal > 0)
    values, vectors = np.linalg.eigh((K + K.T) / 2 * np.outer(scale, scale))
    good = values > NEGLIGIBLE * max(values[-1], 0.0)
    vectors = vectors[:, good]
    solution: Array = scale[:, np.newaxis] * (
        vectors @ ((vectors.T @ (scale[:, np.newaxis] * right)) / values[good, np.newaxis])
    )
    return solution


class NystromSketch:
    """Nyström approximation of X'X from its product with random directions, for preconditioning.

    Z. Frangella, J. A. Tropp, M. Udell, "Randomized Nyström preconditioning", SIAM Journal on Matrix Analysis and
    Applications 44 (2023) 718-752, doi:10.1137/21M1466244.

    Parameters
    ----------
    Omega, image : float64 array, shape (d, r)
        Random directions, and X'X times them.
    trace : float
        Of X'X.
    """

    def __init__(self, Omega: Array, image: Array, trace: float) -> None:
        d, r = Omega.shape
        shift = np.finfo(np.float64).eps * np.sqrt(d) * max(float(np.linalg.norm(image)), np.finfo(np.float64).tiny)
        moved = image + shift * Omega
        core = Omega.T @ moved
        core = (core + core.T) / 2
        try:
            factor = linalg.cholesky(core, lower=True, check_finite=False)
            half = linalg.solve_triangular(factor, moved.T, lower=True, check_finite=False).T
        except linalg.LinAlgError:  # X'X has a lower rank than there are directions
            scale, vectors = linalg.eigh(core, check_finite=False)
            kept = scale > scale[-1] * r * np.finfo(np.float64).eps
            half = moved @ (vectors[:, kept] / np.sqrt(scale[kept]))
        U, sigma, _ = linalg.svd(half, full_matrices=False, check_finite=False)
        values = np.maximum(sigma**2 - shift, 0.0)
        #: Mean of the eigenvalues that are not among those of the sketch.
        self.rest = max((trace - float(values.sum())) / max(d - r, 1), float(np.finfo(np.float64).tiny))
        large = values > self.rest
        self.vectors: Array = U[:, large]
        self.excess: Array = values[large] - self.rest

    def precondition(self, residual: Array, ridge: Array, scale: float) -> Array:
        """Return (scale · X'X + diag(ridge))⁻¹ residual, X'X being approximated by the sketch."""
        inverse = 1.0 / (scale * self.rest + ridge)[:, np.newaxis]
        first = inverse * residual
        if not len(self.excess):
            return np.asarray(first)
        weighted = inverse * self.vectors
        core = np.diag(1.0 / (scale * self.excess)) + self.vectors.T @ weighted
        return np.asarray(first - weighted @ linalg.solve(core, self.vectors.T @ first, assume_a="pos"))
