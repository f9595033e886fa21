"""Scores adjusted for covariates C: sums of X and Y less what C tells of them, from C'X, C'Y and C'C."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.linear import TILE_BYTES, dense_tiles
from mlfs_dask.blocks.products import positives_block
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.errors import DataError, parameter
from mlfs_dask.rows.contract import Block, Profile, RowSource, profile_of
from mlfs_dask.statistics.moments import first_values
from mlfs_dask.statistics.products import AdjustedMoments, LabelMoments, drop_rounding

Array = NDArray[np.float64]

#: Share of a sum of squares about the first row up to which what is left about the mean is rounding.
CONSTANT = 2.0**-44

#: Share of the length of a covariate, or of a feature's or a label's sum of squares, up to which what the others leave
#: of it is rounding: sums have 16 digits, and a covariate that is nearly a combination of others costs as many as are
#: the same.
COLLINEAR = 2.0**-30


class _Sums(NamedTuple):
    """Names for the arrays of a state. P is [1, C − shift]."""

    c_shift: Array  # (c,)
    x_shift: Array  # (d,)
    PP: Array  # (1 + c, 1 + c)
    PX: Array  # (1 + c, d): of x − shift
    PY: Array  # (1 + c, q): of the rows that have the label


class CovariateProducts(Statistic):
    """Statistic: `Adjustment` for the covariates of the rows.

    Covariates and dense X are summed relative to the first row that a state meets, as in `LabelProducts`.

    Parameters
    ----------
    n_covariates, n_features, n_labels : int
    identity : plain values
        Equal for equal covariates of the same rows.
    weighted : bool
        Whether rows have weights.

    Notes
    -----
    A state has c (c + d + q) numbers. A block costs c multiplications for each stored value of X.
    """

    kind = "covariates"
    state_names = _Sums._fields

    def __init__(self, n_covariates: int, n_features: int, n_labels: int, identity: Any, weighted: bool) -> None:
        self.n_covariates = n_covariates
        self.n_features = n_features
        self.n_labels = n_labels
        self.identity = identity
        self.weighted = weighted

    @property
    def parameters(self) -> dict[str, Any]:
        return {"covariates": self.identity, "weighted": self.weighted}

    @property
    def state_bytes(self) -> int:
        c, d, q = self.n_covariates, self.n_features, self.n_labels
        return 8 * (c + d + (1 + c) * (1 + c + d + q))

    @property
    def result_bytes(self) -> int:
        return self.state_bytes

    def scratch_bytes(self, profile: Profile) -> int:
        c, d, q = self.n_covariates, self.n_features, self.n_labels
        rows = 16 * profile.block_rows * (1 + c) + 8 * min(profile.label_nonzeros, profile.block_rows * max(q, 1))
        return rows + 16 * (1 + c) * (d + q) + (8 * profile.block_values if profile.sparse else TILE_BYTES)

    def finishing_bytes(self, profile: Profile) -> int:
        return 2 * self.state_bytes

    def zero(self) -> State:
        c, d, q = self.n_covariates, self.n_features, self.n_labels
        return tuple(
            _Sums(np.zeros(c), np.zeros(d), np.zeros((1 + c, 1 + c)), np.zeros((1 + c, d)), np.zeros((1 + c, q)))
        )

    def add(self, state: State, block: Block) -> None:
        s = _Sums(*state)
        X, C = block.X, block.covariates
        assert C is not None
        if X.shape[0] == 0:
            return
        if s.PP[0, 0] == 0:
            # Values of one byte keep their digits, and a shift would cost a fifth of the time.
            s.c_shift[:], s.x_shift[:] = C[0], first_values(X) * (X.dtype.itemsize > 1)
        P = np.empty((len(C), 1 + self.n_covariates))
        P[:, 0] = 1.0
        np.subtract(C, s.c_shift, out=P[:, 1:])
        weighted = P if block.weights is None or not self.weighted else P * block.weights[:, np.newaxis]
        np.add(s.PP, weighted.T @ P, out=s.PP)
        np.add(s.PY, (positives_block(block.Y).T @ weighted).T, out=s.PY)
        with np.errstate(over="ignore", invalid="ignore"):  # such features are refused by their moments
            if isinstance(X, np.ndarray):
                for part, tile in dense_tiles(X, s.x_shift if s.x_shift.any() else None):
                    np.add(s.PX, weighted[part].T @ tile, out=s.PX)
                return
            np.add(s.PX, (X.T @ weighted).T, out=s.PX)
            if s.x_shift.any():  # Dask arrays may mix sparse blocks with dense ones
                np.subtract(s.PX, np.outer(weighted.sum(axis=0), s.x_shift), out=s.PX)

    def merge(self, into: State, other: State) -> None:
        a, b = _Sums(*into), _Sums(*other)
        if b.PP[0, 0] == 0:
            return
        if a.PP[0, 0] == 0:
            a.c_shift[:], a.x_shift[:] = b.c_shift, b.x_shift
        # [1, C − a] = [1, C − b] M
        M = np.eye(1 + self.n_covariates)
        M[0, 1:] = b.c_shift - a.c_shift
        PP = M.T @ b.PP @ M
        np.add(a.PP, PP, out=a.PP)
        np.add(a.PY, M.T @ b.PY, out=a.PY)
        with np.errstate(over="ignore", invalid="ignore"):
            np.add(a.PX, M.T @ b.PX + np.outer(PP[:, 0], b.x_shift - a.x_shift), out=a.PX)

    def finalize(self, state: State) -> Adjustment:
        s = _Sums(*state)
        n = s.PP[0, 0] or 1.0
        sums = s.PP[1:, :1]
        with np.errstate(over="ignore", invalid="ignore"):
            CX, CY = s.PX[1:] - sums * (s.PX[0] / n), s.PY[1:] - sums * (s.PY[0] / n)
        Z = orthonormal(s.PP[1:, 1:] - sums * (s.PP[0, 1:] / n), np.diag(s.PP)[1:])
        return Adjustment(Z.T @ CX, Z.T @ CY)


def orthonormal(CC: Array, squares: Array) -> Array:
    """Z such that centred C Z has orthonormal columns, shape (c, rank).

    Parameters
    ----------
    CC : float64 array, shape (c, c)
        C'C of centred C.
    squares : float64 array, shape (c,)
        Sums of squares of which those of CC are what centring leaves.

    Examples
    --------
    >>> orthonormal(np.array([[4.0, 8.0], [8.0, 16.0]]), np.array([4.0, 16.0])).shape
    (2, 1)
    """
    lengths = np.diag(CC)
    varies = lengths > CONSTANT * squares
    scale = np.divide(1.0, np.sqrt(np.abs(lengths)), out=np.zeros_like(lengths), where=varies)
    values, vectors = np.linalg.eigh(CC * np.outer(scale, scale))
    kept = values > COLLINEAR
    Z: Array = scale[:, np.newaxis] * vectors[:, kept] / np.sqrt(values[kept])
    return Z


@dataclass(frozen=True)
class Adjustment:
    """What sums lose by covariates.

    Attributes
    ----------
    QX : float64 array, shape (rank, d)
        Q'(X − mean) of Q, an orthonormal basis of the centred covariates.
    QY : float64 array, shape (rank, q)
        Q'Y.
    """

    QX: Array
    QY: Array

    @property
    def rank(self) -> int:
        """Degrees of freedom that are lost."""
        return len(self.QX)

    def of_features(self, columns: NDArray[np.intp]) -> Adjustment:
        """Of some features."""
        return Adjustment(self.QX[:, columns], self.QY)

    def gram(self, gram: Array, m2: Array | None = None) -> Array:
        """X'X of the residuals of X, in the place of centred X'X.

        Parameters
        ----------
        gram : float64 array, shape (d, d)
        m2 : float64 array, shape (d,), optional
            Sums of squares of the residuals, 0 of those that are rounding.
        """
        squares = np.diag(gram).copy()
        m2 = self._left(squares, self.QX) if m2 is None else m2
        gram -= self.QX.T @ self.QX
        gram[m2 == 0] = 0.0
        gram[:, m2 == 0] = 0.0
        np.fill_diagonal(gram, m2)
        return gram

    def moments(self, sums: LabelMoments) -> LabelMoments:
        """Sums of the residuals of X and Y, to which their means are added.

        Raises
        ------
        DataError
            Some labels are unknown: each would have covariates of its own rows.
        """
        if sums.unknown.any():
            raise DataError(
                "labels are unknown (-1), and scores are adjusted for covariates over rows whose labels are known",
                cure=f"drop those rows or labels, or choose {parameter('unknown', 'negative')} if -1 means negative",
            )
        share = sums.positives / (sums.n or 1)
        m2, label_m2 = self._left(sums.m2, self.QX), self._left(sums.positives * (1.0 - share), self.QY)
        with np.errstate(over="ignore", invalid="ignore"):
            products = sums.products - self.QY.T @ self.QX
            drop_rounding(products.T, np.sqrt(sums.positives * sums.m2[:, np.newaxis]))
        products[label_m2 == 0] = 0.0
        products[:, m2 == 0] = 0.0
        pairs = sums.pairs - self.QY.T @ self.QY
        np.fill_diagonal(pairs, label_m2 + sums.positives * share)
        of_residuals = sums.n, sums.mean, m2, products, sums.positives, sums.unknown, pairs
        return AdjustedMoments(*of_residuals, residual_m2=label_m2, adjustment=self)

    def _left(self, squares: Array, Q: Array) -> Array:
        """Sums of squares of residuals, 0 where that is rounding."""
        with np.errstate(over="ignore", invalid="ignore"):
            left = squares - np.einsum("cd,cd->d", Q, Q)
            return np.where(left <= COLLINEAR * squares, 0.0, left)


def covariate_products(source: Profile | RowSource) -> CovariateProducts | None:
    """The statistic for data whose rows have covariates; None for others."""
    profile = profile_of(source)
    if not profile.covariates:
        return None
    covariates = None if isinstance(source, Profile) else source.covariates
    identity = None if covariates is None else covariates.identity
    return CovariateProducts(profile.covariates, profile.d, profile.q, identity, profile.weight is not None)


def adjusted(results: dict[str, Any], adjustment: Adjustment) -> dict[str, Any]:
    """Results of `LabelProducts` and `Gram`, by their names, as those of the residuals of X and Y.

    Raises
    ------
    DataError
        Some labels are unknown.
    """
    results = dict(results)
    sums = results["sums"] = adjustment.moments(results["sums"])
    if "gram" in results:
        results["gram"] = adjustment.gram(results["gram"], sums.m2)
    return results
