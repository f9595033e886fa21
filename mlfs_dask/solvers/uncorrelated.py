"""Regression whose projections are uncorrelated: max tr(W'M) with W'RW = I, R = X'(I + θL)X + diag(ridge), M = X'F.

The solution is W = V (M'V)^{-1/2} with R V = M: a solve with q right-hand sides and a q × q root, no root of R (Y.
Huang et al., Access-MFS, Eqs. 12-14). X is seen through two products, X P and X'R, each of which may be a reading of
the data. V is therefore found by Galerkin's condition in a small space that is widened by q directions at a time, which
is block conjugate gradients while R stays as it is, and begins with the last W and the one before when R or F changes:
their X W are at hand, so that the first approximation with a new R costs no reading. Where R changes little by little,
so does W, and the two span where it goes: a widening fewer is needed than from the last W alone.

D. P. O'Leary, "The block conjugate gradient algorithm and related methods", Linear Algebra and its Applications 29
(1980) 293-322, doi:10.1016/0024-3795(80)90247-5.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from mlfs_dask.errors import MlfsError
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, column_dots, column_sums, inner, multiply, narrowed, row_blocks
from mlfs_dask.solvers.laplacian import Smoother

Array = NDArray[np.float64]

#: Blocks of directions that new ones are made orthogonal to, besides W and the one before.
WINDOW = 3

#: Arrays of shape (n, q) that `Subspace.solve` holds at most, F and the result included: both X W, those of the window
#: and of the new block, X V, and one on its way.
ROW_MATRICES = WINDOW + 6

#: Arrays of shape (d, q) that it holds at most.
FEATURE_MATRICES = WINDOW + 8

#: Square of the share of its length below which a direction, seen from the others, is left out of the space.
_DEPENDENT = 1e-8

#: The same, above which rounding leaves directions orthogonal enough the first time.
_APART = 1e-3

#: Least share of its squared length that a feature must have left beside others for a factor in single precision.
_SINGLE = 1e-3

#: Squared singular values of R^{-1/2}M below this share of the largest are zero: the rank of the labels.
_RANK = 1e-10


class Readings(Protocol):
    """Products with X, centred, each of which may be a reading."""

    def forward(self, W: Array, out: Array) -> Array:
        """X W into `out`."""

    def backward(self, V: Array) -> Array:
        """X'V."""


@dataclass(frozen=True)
class Projection:
    """What a solve ends with.

    Attributes
    ----------
    W : float64 array, shape (d, q)
    XW : float64 array, shape (n, q)
    rank : int
        Of M. Below q, W'RW is a projection of this rank instead of I.
    expansions : int
        Times the space was widened: two products with X each.
    error : float
        Estimate of the distance of W from the solution in the norm of R, relative to that of W.
    converged : bool
    """

    W: Array
    XW: Array
    rank: int
    expansions: int
    error: float
    converged: bool


@dataclass
class Block:
    """Directions P, shape (d, c), orthonormal in R and to the other blocks, with X P, shape (n, c).

    `held`, shape (n, q), is the array of whose beginning X P is made.
    """

    P: Array
    XP: Array
    held: Array


@dataclass
class Subspace:
    """The space in which V is sought; what has to be kept to go on with another R or F.

    Parameters
    ----------
    blocks : list of Block
        After a solve W, and the span of the one before if there was one.
    rate : float
        Largest share of the squared error that a widening has left lately. With it the first widening with a new R may
        be the only one.
    missed : float, optional
        Error of the W that the last solve began with, before it widened the space; None if it did not.
    """

    blocks: list[Block] = field(default_factory=list)
    rate: float = 0.5
    missed: float | None = None
    space: RowSpace = IN_MEMORY

    def solve(
        self,
        F: Array,
        readings: Readings,
        *,
        laplacian: Smoother | None,
        theta: float,
        ridge: Array,
        precondition: Callable[[Array], Array],
        tol: float,
        max_expansions: int,
        first: Array | None = None,
        enough: float = 0.0,
    ) -> Projection:
        """Find W for one R and F.

        Parameters
        ----------
        F : float64 array, shape (n, q)
            Need not be centred.
        readings : Readings
        laplacian : Smoother, optional
            L; None for 0.
        theta : float
        ridge : float64 array, shape (d,)
            Not negative.
        precondition : callable
            R⁻¹, roughly, of an array of shape (d, c).
        tol : float
            Error of W in the norm of R, relative to W.
        max_expansions : int
        first : float64 array, shape (d, q), optional
            X'F, if it is known and the space is still empty: it saves a reading.
        enough : float
            Error up to which the best W in the span of the last two will do, nothing being read, if the solve before
            this one began with no greater one: never twice in a row.

        Returns
        -------
        Projection
            X W of the last solve is overwritten by the next one.

        Raises
        ------
        MlfsError
            A product is not finite.
        """
        n, q = F.shape
        space = self.space
        metric = _Metric(laplacian, theta, ridge, space.empty(n, q))
        mean = column_sums(F) / n

        kept, self.blocks = self.blocks, []
        for block in kept:  # orthonormal in the R of before
            if block.P.shape[1]:
                self.blocks.append(self._orthonormal(block.P, block.XP, metric, block.held))
            else:
                space.release(block.held)
        V, XV = np.zeros((len(ridge), q)), space.zeros(n, q)
        for block in self.blocks:
            self._move(V, XV, block, inner(block.XP, F))
        fresh, first_new = not self.blocks, len(self.blocks)
        root, rank = inverse_root(inner(F, XV))
        last_gain, slowest, error, converged = np.inf, 0.0, np.inf, False
        expansions, gained = 0, 0.0
        if enough > 0 and len(kept) > 1 and rank == q and self.missed is not None and self.missed <= enough:
            max_expansions, error, converged = 0, self.missed, True
        while expansions < max_expansions:
            if fresh and expansions == 0 and first is not None:
                residual = first.copy()
            else:
                residual = readings.backward(metric.left(F, mean, XV)) - ridge[:, np.newaxis] * V
            # All directions of W count alike, however small the singular value of M behind them.
            P = precondition(residual @ root if rank == q else residual)
            _require_finite(P)
            size = np.linalg.norm(P, axis=0)
            P = P[:, size > 0] / size[size > 0]
            if not P.shape[1]:
                error, converged = 0.0, True
                break
            held = space.empty(n, q)
            block = self._orthonormal(P, readings.forward(P, narrowed(held, P.shape[1])), metric, held)
            expansions += 1
            if not block.P.shape[1]:  # there is nothing outside of the space
                space.release(held)
                error, converged = 0.0, True
                break
            # P'(M - R V): the best step along P, even where rounding has left P at an angle to what is behind V.
            coefficients = block.P.T @ residual
            self._move(V, XV, block, coefficients)
            self.blocks.append(block)
            if len(self.blocks) > first_new + WINDOW:
                # In exact arithmetic the directions to come are orthogonal to it by themselves.
                space.release(self.blocks.pop(first_new).held)
            root, rank = inverse_root(inner(F, XV))
            if rank == 0:
                error, converged = 0.0, True
                break
            # What this block added is the squared error before it, less the one after it, which falls geometrically.
            gain = float(np.square(coefficients @ root).sum()) / rank
            gained += gain
            if expansions > 1:
                rate = min(gain / last_gain, 0.99) if last_gain > 0 else 0.0
                slowest = max(slowest, rate)
            else:
                rate = min(2.0 * self.rate, 0.5)
            last_gain = gain
            error = float(np.sqrt(gain * rate / (1.0 - rate)))
            if error <= tol:
                converged = True
                break
        if slowest > 0:
            self.rate = slowest
        self.missed = float(np.sqrt(gained + error**2)) if expansions else None
        W, XW = V @ root, multiply(XV, root, XV)
        # W'RW = I. Directions in which it was sought gain nothing with the next R.
        before = self.blocks[:1] if first_new else []
        space.release(metric.image, *(block.held for block in self.blocks[len(before) :]))
        self.blocks = [Block(W, XW, XW), *before]
        return Projection(W, XW, rank, expansions, error, converged)

    def _move(self, V: Array, XV: Array, block: Block, coefficients: Array) -> None:
        """V and X V by a combination of the directions of a block."""
        V += block.P @ coefficients
        for part in row_blocks(*XV.shape):
            XV[part] += block.XP[part] @ coefficients

    def _orthonormal(self, P: Array, XP: Array, metric: _Metric, held: Array) -> Block:
        """New directions made orthonormal in R, to one another and to those before; dependent ones are left out.

        X P is overwritten, and lies at the beginning of `held` before and after.
        """
        for _ in range(2):  # once more for what rounding left
            SXP, DP = metric.smooth(XP), metric.ridge[:, np.newaxis] * P
            size = np.sqrt(column_dots(XP, SXP) + np.einsum("ij,ij->j", P, DP))
            overlaps = [inner(block.XP, SXP) + block.P.T @ DP for block in self.blocks]
            for block, overlap in zip(self.blocks, overlaps, strict=True):
                P = P - block.P @ overlap
            for part in row_blocks(*XP.shape):
                for block, overlap in zip(self.blocks, overlaps, strict=True):
                    XP[part] -= block.XP[part] @ overlap
            SXP, DP = metric.smooth(XP), metric.ridge[:, np.newaxis] * P
            T, least = _orthonormalising(inner(XP, SXP) + P.T @ DP, size)
            P, XP = P @ T, multiply(XP, T, narrowed(held, T.shape[1]))
            if least > _APART:
                break
        return Block(P, XP, held)


@dataclass
class _Metric:
    """R = X'(I + θL)X + diag(ridge), on pairs of directions P and X P.

    `image`, shape (n, q), takes what is given.
    """

    laplacian: Smoother | None
    theta: float
    ridge: Array
    image: Array

    def smooth(self, U: Array) -> Array:
        """(I + θL) U."""
        if self.laplacian is None:
            return U
        image = self.laplacian.product(U, narrowed(self.image, U.shape[1]))
        for part in row_blocks(*image.shape):
            image[part] *= self.theta
            image[part] += U[part]
        return image

    def left(self, F: Array, mean: Array, XV: Array) -> Array:
        """F less its mean − (I + θL) X V."""
        smooth = self.smooth(XV)
        for part in row_blocks(*F.shape):
            np.subtract(F[part] - mean, smooth[part], out=self.image[part])
        return self.image


def inverse_root(K: Array) -> tuple[Array, int]:
    """K^{-1/2} of a positive semidefinite matrix, where it is singular of its regular part, and its rank.

    >>> inverse_root(np.diag([4.0, 0.0]))
    (array([[0.5, 0. ],
           [0. , 0. ]]), 1)
    """
    _require_finite(K)
    values, vectors = np.linalg.eigh((K + K.T) / 2)
    good = values > _RANK * max(values[-1], 0.0)
    vectors = vectors[:, good]
    root: Array = (vectors / np.sqrt(values[good])) @ vectors.T
    return root, int(good.sum())


def _require_finite(array: Array) -> None:
    if not np.isfinite(array).all():
        raise MlfsError(
            "the regression on predicted labels met a value that is not finite"
            "\n  cure: look for values of X beyond 1e150, and for NaN; scale the features"
        )


def _orthonormalising(A: Array, size: Array) -> tuple[Array, float]:
    """T with T'AT = I, for the directions that are not small beside `size`, their length before they were changed.

    Also the square of the least share of its length that a direction has left. What is small is the rounding of a
    difference: made longer, P and X P would no longer belong together.
    """
    scale = np.divide(1.0, size, out=np.zeros_like(size), where=size > 0)
    values, vectors = np.linalg.eigh((A + A.T) / 2 * scale[:, np.newaxis] * scale)
    good = values > _DEPENDENT
    T: Array = scale[:, np.newaxis] * (vectors[:, good] / np.sqrt(values[good]))
    return T, float(values.min(initial=np.inf))


class GramPreconditioner:
    """(A + diag(ridge))⁻¹, where A is X'(I + θL)X, or (1 + θ)X'X for it, the spectrum of L being bounded.

    In single precision it is factorised and applied in half the time, and may take a widening more where it would be
    R⁻¹ itself. Where features hardly differ it is made in double precision all the same.

    Parameters
    ----------
    A : float64 array, shape (d, d)
        Overwritten.
    ridge : float64 array, shape (d,)
    single : bool
        Whether single precision will do.
    """

    def __init__(self, A: Array, ridge: Array, *, single: bool) -> None:
        A[np.diag_indices_from(A)] += ridge
        diagonal = np.diag(A)
        self._scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros_like(diagonal), where=diagonal > 0)
        A *= self._scale[:, np.newaxis]
        A *= self._scale
        # Without ridge X'X may be singular; constant features leave empty rows.
        A[np.diag_indices_from(A)] = np.where(self._scale > 0, 1.0 + 1e-13, 1.0)
        factor = None
        for dtype, shift in (*[(np.float32, 0.0)] * single, (np.float64, 0.0), (np.float64, 1e-10), (np.float64, 1e-7)):
            factor = None  # before there are two
            B = A.astype(dtype)
            B[np.diag_indices_from(B)] += shift
            try:
                # Transposed it is as LAPACK has it, and need not be copied once more.
                factor = linalg.cho_factor(B.T, overwrite_a=True, check_finite=False)
            except linalg.LinAlgError:
                continue
            # Squares of these are what a feature has left beside those before it, as a share of its length.
            if dtype is np.float64 or np.square(np.diag(factor[0])).min() > _SINGLE:
                break
        else:
            raise MlfsError("X'X is far from positive semidefinite\n  cure: look for values of X beyond 1e150")
        self._factor = factor

    def __call__(self, R: Array) -> Array:
        scaled = self._scale[:, np.newaxis] * R
        size = np.abs(scaled).max(axis=0)  # of a residual near zero single precision would see nothing
        size[size == 0] = 1.0
        right = np.divide(scaled, size).astype(self._factor[0].dtype, copy=False)
        found = linalg.cho_solve(self._factor, right, overwrite_b=True, check_finite=False)
        return np.asarray(self._scale[:, np.newaxis] * found * size)


class DiagonalPreconditioner:
    """(diag((1 + θ)X'X) + diag(ridge))⁻¹.

    Parameters
    ----------
    squares : float64 array, shape (d,)
        Diagonal of X'X.
    theta : float
    ridge : float64 array, shape (d,)
    """

    def __init__(self, squares: Array, theta: float, ridge: Array) -> None:
        diagonal = (1.0 + theta) * squares + ridge
        self._inverse = np.divide(1.0, diagonal, out=np.zeros_like(diagonal), where=diagonal > 0)

    def __call__(self, R: Array) -> Array:
        return self._inverse[:, np.newaxis] * R
