"""Mean and variance of every feature in one pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.missing import only_zero_and_one_block
from mlfs_dask.blocks.moments import ColumnMoments, add_zeros, integer_sums, merge_moments, moments_block
from mlfs_dask.blocks.products import label_products_block, label_sums_block, positives_block, weighted_block
from mlfs_dask.blocks.unknown import no_labels, unknown_marks
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.rows.covariates import indicator_codes
from mlfs_dask.typing import Array, Matrix

#: Share of a sum of squares about the first row up to which what is left about the mean is rounding.
CONSTANT = 2.0**-44


@dataclass(frozen=True)
class FeatureMoments:
    """Moments of every feature over all rows.

    Attributes
    ----------
    n : int or float
        Rows, or the sum of their weights.
    mean : float64 array, shape (d,)
    m2 : float64 array, shape (d,)
        Sum of squared deviations; exactly 0 for a constant feature, NaN where a value is NaN or infinite.
    """

    n: int | float
    mean: Array
    m2: Array

    @property
    def std(self) -> Array:
        """Population standard deviation, shape (d,)."""
        return np.sqrt(self.m2 / max(self.n, 1))


@dataclass(frozen=True)
class Moments(Statistic):
    """Statistic: `FeatureMoments` of X.

    Means are kept relative to the first row of dense data that a state meets; zero is the origin of sparse data.

    Parameters
    ----------
    n_features : int
    """

    n_features: int

    kind = "moments"
    state_names = ("rows", "shift", "counts", "mean", "m2")

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        return (1,), *((self.n_features,),) * 4

    @property
    def result_bytes(self) -> int:
        return 16 * self.n_features

    def scratch_bytes(self, profile: Profile) -> int:
        return moments_scratch_bytes(profile)

    def zero(self) -> State:
        d = self.n_features
        return np.zeros(1, np.int64), np.zeros(d), np.zeros(d, np.int64), np.zeros(d), np.zeros(d)

    def add(self, state: State, block: Block) -> None:
        _add_rows(state, block.X, None)

    def merge(self, into: State, other: State) -> None:
        if into[0][0] == 0:
            into[1][:] = other[1]
        into[0][0] += other[0][0]
        merge_moments(ColumnMoments(*into[2:]), moved(ColumnMoments(*other[2:]), other[1] - into[1]))

    def finalize(self, state: State) -> FeatureMoments:
        rows, shift, *moments = state
        n = rows[0].item()
        total = add_zeros(ColumnMoments(*moments), n, shift)
        mean, m2, integers = total.mean + shift, total.m2, integer_sums(total, shift)
        mean[integers.which], m2[integers.which] = integers.mean, integers.m2
        return FeatureMoments(n, mean, m2)


@dataclass(frozen=True)
class CardinalityMoments(Moments):
    """Statistic: `FeatureMoments` of X in which a row counts once for each label that it has.

    Their n is the number of positive labels, and M2 the scatter of the labels' rows about their common mean. Weights of
    rows are taken too.

    Parameters
    ----------
    n_features : int
    """

    kind = "cardinality-moments"

    def scratch_bytes(self, profile: Profile) -> int:
        # The rows that have a label are copied; of weighted dense rows the squares are an array of their own.
        squares = 0 if profile.sparse else 8 * profile.block_rows * profile.d
        return super().scratch_bytes(profile) + profile.block_bytes + 16 * profile.block_rows + squares

    def zero(self) -> State:
        return Statistic.zero(self)

    def add(self, state: State, block: Block) -> None:
        weights = np.diff(positives_block(block.Y).indptr).astype(np.float64)
        if block.weights is not None:
            weights *= block.weights
        weighted_rows = np.flatnonzero(weights)
        if len(weighted_rows):
            _add_rows(
                state, block.X if len(weighted_rows) == len(weights) else block.X[weighted_rows], weights[weighted_rows]
            )


class Shapes(NamedTuple):
    """Shapes of the distributions of features.

    Attributes
    ----------
    zero_one : bool array, shape (d,)
        Features whose values are 0 and 1 alone.
    rows : float64 array, shape (S, 1 + u)
        Of each stratum the rows, and those in which each of u labels is known that may be unknown.
    central : float64 array, shape (S, 1 + u, 3, d)
        Sums over these of the second to the fourth power of deviations from their mean.
    positives : float64 array, shape (S, q)
        Rows that have each label; without labels where there is one stratum.
    """

    zero_one: NDArray[np.bool_]
    rows: Array
    central: Array
    positives: Array

    @property
    def skewness(self) -> Array:
        """(1 + u, d), of one stratum; NaN of a constant feature."""
        second, third, _ = self._central
        with np.errstate(all="ignore"):
            result: Array = third / second**1.5 * np.sqrt(self.rows[0][:, np.newaxis])
        return result

    @property
    def kurtosis(self) -> Array:
        """(1 + u, d), of one stratum, in excess of that of a normal law; NaN of a constant feature."""
        second, _, fourth = self._central
        with np.errstate(all="ignore"):
            result: Array = fourth / second**2 * self.rows[0][:, np.newaxis] - 3
        return result

    @property
    def _central(self) -> Array:
        return np.moveaxis(self.central[0], 1, 0)


@dataclass(frozen=True)
class FeatureShapes(Statistic):
    """Statistic: `Shapes` of X, from sums of powers about the first row of dense X, about zero of sparse X.

    Parameters
    ----------
    n_features : int
    unknown : int64 array, shape (u,), optional
        Labels that may have unknown entries, rising. Sums over the rows where one is known are those over all rows less
        those over the rows in which it is unknown.
    n_labels : int
        Labels that are counted in strata.
    strata : slice, optional
        Covariates that are indicators of each stratum but the first.
    identity : plain values
        Equal for equal strata.
    """

    n_features: int
    unknown: NDArray[np.int64] = field(default_factory=no_labels)
    n_labels: int = 0
    strata: slice | None = None
    identity: Any = None

    kind = "four powers"
    state_names = ("rows", "shift", "sums", "others", "positives")

    @property
    def _n_strata(self) -> int:
        return 1 if self.strata is None else 1 + self.strata.stop - self.strata.start

    @property
    def parameters(self) -> Mapping[str, Any]:
        unknown = {"unknown": self.unknown} if len(self.unknown) else {}
        return unknown | ({} if self.strata is None else {"strata": self.identity})

    @property
    def _sums_bytes(self) -> int:
        """Bytes of the sums of one power."""
        return 8 * self._n_strata * (1 + len(self.unknown)) * self.n_features

    @property
    def state_bytes(self) -> int:
        return 9 * self.n_features + 4 * self._sums_bytes + 8 * self._n_strata * (1 + len(self.unknown) + self.n_labels)

    @property
    def result_bytes(self) -> int:
        return self.state_bytes

    def scratch_bytes(self, profile: Profile) -> int:
        own = 0
        if len(self.unknown):  # rows of labels, powers as they are multiplied, and products before they are added
            own = 60 * profile.labels_of_row * profile.block_rows + 20 * len(self.unknown) * profile.d
            own += 36 * profile.block_values if profile.sparse else 8 * profile.block_rows * profile.d
        if self.strata is not None:  # the rows of a stratum
            own += profile.block_bytes + 40 * profile.block_rows * (1 + profile.labels_of_row)
        if profile.sparse:
            return own + 40 * profile.block_values + 64 * profile.d
        return own + 2 * profile.block_bytes + 24 * profile.block_rows * profile.d + 64 * profile.d

    def finishing_bytes(self, profile: Profile) -> int:
        return 80 * profile.d + 8 * self._sums_bytes

    def zero(self) -> State:
        d, axes = self.n_features, (self._n_strata, 1 + len(self.unknown))
        labels = np.zeros((self._n_strata, self.n_labels))
        return np.zeros(axes), np.zeros(d), np.zeros((*axes, 4, d)), np.zeros(d, dtype=bool), labels

    def add(self, state: State, block: Block) -> None:
        rows, shift, sums, others, positives = state
        X = block.X
        if X.shape[0] == 0:
            return
        if not rows.any():
            shift[:] = first_values(X)
        if self.strata is None:
            self._add(rows[0], sums[0], shift, block)
        else:
            assert block.covariates is not None
            codes = indicator_codes(block.covariates[:, self.strata])
            for stratum in np.unique(codes).tolist():
                own = np.flatnonzero(codes == stratum)
                part = block.select_rows(own) if len(own) < len(codes) else block
                self._add(rows[stratum], sums[stratum], shift, part)
                positives[stratum] += label_sums_block(weighted_block(positives_block(part.Y), part.weights))
        known = np.flatnonzero(~others)
        if len(known):
            others[known] = ~only_zero_and_one_block(X, known)

    def _add(self, rows: Array, sums: Array, shift: Array, block: Block) -> None:
        """Add the rows of one stratum to its numbers of rows, (1 + u,), and sums of powers, (1 + u, 4, d)."""
        X, weights = block.X, block.weights
        rows[0] += X.shape[0] if weights is None else weights.sum()
        with np.errstate(over="ignore", invalid="ignore"):
            # A Dask array may mix sparse blocks with dense ones.
            dense = isinstance(X, np.ndarray) or bool(shift.any())
            deviations: Any = (X if isinstance(X, np.ndarray) else X.toarray()) - shift if dense else None
            if dense:
                _add_powers(sums[0], deviations, weights)
            else:
                power = np.ones(len(X.data)) if weights is None else np.repeat(weights, np.diff(X.indptr))
                for total in sums[0]:
                    power *= X.data
                    total += np.bincount(X.indices, weights=power, minlength=self.n_features)
            if len(self.unknown):
                marks = unknown_marks(block.Y, self.unknown)
                marks = weighted_block(marks, weights)
                rows[1:] += label_sums_block(marks)
                origin = np.zeros(self.n_features)
                for p in range(4):
                    values = deviations ** (p + 1) if dense else _power(X, p + 1)
                    sums[1:, p] += label_products_block(values, marks, origin)

    def merge(self, into: State, other: State) -> None:
        if not other[0].any():
            return
        if not into[0].any():
            into[1][:] = other[1]
        with np.errstate(over="ignore", invalid="ignore"):
            into[2][...] += move_powers(other[2], other[0][:, :, np.newaxis], other[1] - into[1])
        np.add(into[0], other[0], out=into[0])
        np.logical_or(into[3], other[3], out=into[3])
        np.add(into[4], other[4], out=into[4])

    def finalize(self, state: State) -> Shapes:
        rows, _, sums, others, positives = state
        known_rows, known = rows.copy(), sums.copy()
        known_rows[:, 1:] = rows[:, :1] - rows[:, 1:]
        known[:, 1:] = sums[:, :1] - sums[:, 1:]
        return Shapes(~others, known_rows, central_sums(known, known_rows[:, :, np.newaxis]), positives)


def _power(X: Any, exponent: int) -> sp.csr_array:
    """Return the stored values of sparse X to a power."""
    return sp.csr_array((X.data.astype(np.float64) ** exponent, X.indices, X.indptr), shape=X.shape)


def move_powers(sums: Array, n: Array, move: Array) -> Array:
    """Return sums of the first four powers, (..., 4, d), about an origin that lies lower by `move`; n are rows."""
    first, second, third, fourth = np.moveaxis(sums, -2, 0)
    moved_sums = (
        first + n * move,
        second + 2 * move * first + n * move**2,
        third + 3 * move * second + 3 * move**2 * first + n * move**3,
        fourth + 4 * move * third + 6 * move**2 * second + 4 * move**3 * first + n * move**4,
    )
    return np.stack(moved_sums, axis=-2)


def central_sums(sums: Array, n: Array) -> Array:
    """Return sums of three powers of deviations from the mean, (..., 3, d), from those of four powers, (..., 4, d)."""
    first, second, third, fourth = np.moveaxis(sums, -2, 0)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = first / np.maximum(n, 1)
        x2 = second - first * mean
        x3 = third - mean * (3 * second - 2 * first * mean)
        x4 = fourth - mean * (4 * third - mean * (6 * second - 3 * first * mean))
    constant = x2 <= CONSTANT * second  # what is left is rounding
    return np.stack([np.where(constant, 0.0, each) for each in (x2, x3, x4)], axis=-2)


def _add_powers(sums: Array, deviations: Array, weights: Array | None) -> None:
    """Add sums over the rows of the first four powers of deviations, which are changed."""
    ones, power = np.ones(len(deviations)) if weights is None else weights, deviations.copy()
    for total in sums:
        total += ones @ power
        power *= deviations


def _add_rows(state: State, X: Matrix, weights: Array | None) -> None:
    rows, shift, *moments = state
    if rows[0] == 0:
        shift[:] = first_values(X)
    rows[0] += X.shape[0] if weights is None else weights.sum()
    merge_moments(ColumnMoments(*moments), moments_block(X, shift, weights))


def first_values(X: Matrix) -> Array:
    """Return an origin near the values of X, shape (d,): its first row when dense, zero when sparse.

    Values that are not finite give 0, so that they spoil their own column's sums and no origin.
    """
    if not isinstance(X, np.ndarray) or X.shape[0] == 0:
        return np.zeros(X.shape[1])
    first = X[0].astype(np.float64)
    return np.where(np.isfinite(first), first, 0.0)


def moved(moments: ColumnMoments, by: Array) -> ColumnMoments:
    """Return the same moments about an origin that lies lower by `by`."""
    return moments._replace(mean=moments.mean + by)


def moments_scratch_bytes(profile: Profile) -> int:
    """Return bytes of temporaries of `moments_block` on the largest block, merging included."""
    if profile.sparse:
        # Deviations and their squares of the stored values, and indices as bincount takes them (int64).
        stored = profile.block_values
        return 32 * stored + 64 * profile.d
    # One block of deviations, and buffers inside NumPy.
    return 8 * profile.block_rows * profile.d + 64 * profile.d + 128 * 1024
