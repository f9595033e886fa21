"""Y'(X − μ), Y'Y, label sums and the moments of X in one reading: what cross-product methods need."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.moments import ColumnMoments, add_zeros, integer_sums, merge_moments, moments_block
from mlfs_dask.blocks.pair_scores import Sums
from mlfs_dask.blocks.products import (
    label_pairs_block,
    label_products_block,
    label_sums_block,
    positives_block,
    weighted_block,
)
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.moments import first_values, moments_scratch_bytes, moved
from mlfs_dask.typing import Matrix

if TYPE_CHECKING:
    from mlfs_dask.statistics.covariates import Adjustment

#: Multiplications and additions above which a job loads the compiled kernels: below it, NumPy has finished
#: before the compiler's modules are even imported.
COMPILED_WORK = 300_000_000


#: Y'(X − mean) of a label and a feature up to this fraction of the most that it could be is the rounding of 0. Features
#: without any association with the labels then tie.
UNCORRELATED = 2.0**-40


class _Sums(NamedTuple):
    """Names for the arrays of a state."""

    rows: NDArray[Any]  # (1,)
    counts: NDArray[Any]  # (d,): stored values
    mean: NDArray[np.float64]  # (d,): of stored values, less the shift
    m2: NDArray[np.float64]  # (d,): of stored values
    shift: NDArray[np.float64]  # (d,)
    products: NDArray[np.float64]  # (q, d): sums of x - shift
    positives: NDArray[Any]  # (q,)
    unknown: NDArray[Any]  # (q,)
    pairs: NDArray[Any]  # (q, q)

    @property
    def moments(self) -> ColumnMoments:
        return ColumnMoments(self.counts, self.mean, self.m2)


@dataclass(frozen=True)
class LabelMoments:
    """Sums over all rows, centred. Of weighted rows what is counted is a sum of their weights, and float64.

    Attributes
    ----------
    n : int or float
        Rows.
    mean, m2 : float64 array, shape (d,)
        Of every feature; M2 is exactly 0 for a constant one.
    products : float64 array, shape (q, d)
        Y'(X − mean): sum of x − mean over the rows that have the label.
    positives, unknown : int64 array, shape (q,)
        Entries 1 and −1 of each label.
    pairs : int64 array, shape (q, q)
        Rows that have both labels.
    residual_m2 : float64 array, shape (q,), or None
        Of each label, where X and Y are residuals of a regression on covariates, to which their means are added
        (`statistics.covariates`): `pairs` is then Y'Y of these, and float64.
    adjustment : Adjustment or None
    """

    n: int | float
    mean: NDArray[np.float64]
    m2: NDArray[np.float64]
    products: NDArray[np.float64]
    positives: NDArray[Any]
    unknown: NDArray[Any]
    pairs: NDArray[Any]
    residual_m2: NDArray[np.float64] | None = None
    adjustment: Adjustment | None = None

    @property
    def label_m2(self) -> NDArray[np.float64]:
        """M2 of each label, shape (q,)."""
        if self.residual_m2 is not None:
            return self.residual_m2
        result: NDArray[np.float64] = self.positives * (1.0 - self.positives / (self.n or 1))
        return result

    @property
    def terms(self) -> Sums:
        """What formulas of a label and a feature are made of."""
        residual = None if self.residual_m2 is None else self.residual_m2[:, np.newaxis]
        rank = 0 if self.adjustment is None else self.adjustment.rank
        return Sums(self.products, self.m2[np.newaxis], self.positives[:, np.newaxis], self.n, residual, rank)

    def adjusted_gram(self, gram: NDArray[np.float64], columns: NDArray[np.intp]) -> NDArray[np.float64]:
        """Centred X'X of some features as that of their residuals, where there are covariates; in its place."""
        if self.adjustment is None:
            return gram
        return self.adjustment.of_features(columns).gram(gram, self.m2[columns])

    @property
    def std(self) -> NDArray[np.float64]:
        """Population standard deviation, shape (d,)."""
        return np.sqrt(self.m2 / (self.n or 1))

    @property
    def factor(self) -> NDArray[np.float64]:
        """What brings a feature to unit variance, shape (d,); 0 for a constant one."""
        std = self.std
        return np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)

    def scaled_products(self, factor: NDArray[np.float64]) -> NDArray[np.float64]:
        """Y'(X − mean) of features times `factor`, shape (q, d), in the place of `products`."""
        products = self.products
        products *= factor
        products[self.positives == self.n] = 0.0  # a label that always occurs goes with no feature: this is rounding
        return products

    @property
    def constant_labels(self) -> int:
        """Number of labels that all rows have, or none, or that follow from the covariates."""
        return int(np.count_nonzero(self.label_m2 == 0))


class LabelProducts(Statistic):
    """Statistic: `LabelMoments` of X and Y.

    Dense X is summed relative to the first row that a state meets, and two states that began with different
    rows are brought to one of them when they merge. So nothing has to be known before the reading, and a feature
    with a mean of 10⁸ standard deviations keeps its digits. Sparse X is summed as it is: zero is its origin.

    Parameters
    ----------
    n_features, n_labels : int
    compiled : bool
        Use the compiled kernels. To be decided once per job (`wants_compiled`), never per block.
    weighted : bool
        Whether rows have weights.
    """

    kind = "products"
    state_names = _Sums._fields

    def __init__(self, n_features: int, n_labels: int, *, compiled: bool = False, weighted: bool = False) -> None:
        self.n_features = n_features
        self.n_labels = n_labels
        self.compiled = compiled
        self.weighted = weighted

    @property
    def state_bytes(self) -> int:
        d, q = self.n_features, self.n_labels
        return 8 + 32 * d + 8 * q * d + 16 * q + 8 * q * q

    @property
    def result_bytes(self) -> int:
        d, q = self.n_features, self.n_labels
        return 16 * d + 8 * q * d + 16 * q + 8 * q * q

    def scratch_bytes(self, profile: Profile) -> int:
        d, q = self.n_features, self.n_labels
        labels = 28 * profile.block_rows + 40 * min(profile.label_nonzeros, profile.block_rows * max(q, 1))
        if self.compiled:
            return labels + 2 * 2**20
        # The products of one block are a matrix of their own before they are added; sparse ones exist twice.
        own = 8 * q * d + (12 * q * d if profile.sparse else 0) + 24 * q * q
        return labels + own + 8 * profile.block_rows * d * (not profile.sparse) + moments_scratch_bytes(profile)

    def zero(self) -> State:
        d, q, counted = self.n_features, self.n_labels, np.float64 if self.weighted else np.int64
        return tuple(
            _Sums(
                rows=np.zeros(1, counted),
                counts=np.zeros(d, counted),
                mean=np.zeros(d),
                m2=np.zeros(d),
                shift=np.zeros(d),
                products=np.zeros((q, d)),
                positives=np.zeros(q, counted),
                unknown=np.zeros(q, counted),
                pairs=np.zeros((q, q), counted),
            )
        )

    def add(self, state: State, block: Block) -> None:
        s = _Sums(*state)
        X, Y, weights = block.X, block.Y, block.weights
        before = s.rows[0].item()
        if X.shape[0] == 0:
            return
        if before == 0:
            s.shift[:] = first_values(X)
        s.rows[0] = before + (X.shape[0] if weights is None else weights.sum())
        # A Dask array may mix sparse blocks, which count stored values from zero, with dense ones, whose kernel
        # counts rows.
        mixed = bool((s.counts != before).any()) if isinstance(X, np.ndarray) else bool(s.shift.any())
        if self.compiled and not mixed:
            _add_compiled(s, X, Y)
            return
        P = positives_block(Y)
        weighted = weighted_block(P, weights)
        merge_moments(s.moments, moments_block(X, s.shift, weights))
        np.add(s.products, label_products_block(X, weighted, s.shift), out=s.products)
        sums = label_sums_block(weighted)
        np.add(s.positives, sums, out=s.positives)
        np.add(s.unknown, label_sums_block(weighted_block(Y, weights)) - sums, out=s.unknown)
        np.add(s.pairs, label_pairs_block(P, None if weights is None else weighted), out=s.pairs)

    def merge(self, into: State, other: State) -> None:
        a, b = _Sums(*into), _Sums(*other)
        if b.rows[0] == 0:
            return
        if a.rows[0] == 0:
            a.shift[:] = b.shift
        move = b.shift - a.shift
        if move.any():
            for products, positive in zip(a.products, b.positives, strict=True):
                products += positive * move  # b's sums, seen from a's shift
        a.rows[0] += b.rows[0]
        merge_moments(a.moments, moved(b.moments, move))
        for mine, theirs in zip(into[5:], other[5:], strict=True):
            np.add(mine, theirs, out=mine)

    def finalize(self, state: State) -> LabelMoments:
        s = _Sums(*state)
        n = s.rows[0].item()
        total = add_zeros(s.moments, n, s.shift)
        mean, m2, integers = total.mean + s.shift, total.m2, integer_sums(total, s.shift, *s.products)
        mean[integers.which], m2[integers.which] = integers.mean, integers.m2
        # A new array: the state belongs to Dask, and the task may run twice.
        centred = s.products.copy()
        for products, positive in zip(centred, s.positives, strict=True):
            exact = np.rint(products[integers.which])
            products -= positive * total.mean
            if positive % 1 == 0:  # weights need not be whole
                difference = integers.n * exact.astype(np.int64) - int(positive) * integers.total
                products[integers.which] = difference / integers.n
            with np.errstate(over="ignore", invalid="ignore"):
                drop_rounding(products, np.sqrt(positive * m2))
        return LabelMoments(n, mean, m2, centred, s.positives, s.unknown, s.pairs)


def _add_compiled(s: _Sums, X: Matrix, Y: sp.csr_array) -> None:
    from mlfs_dask.blocks import products_compiled as kernels

    labels = (Y.indptr.astype(np.int64, copy=False), Y.indices.astype(np.int32, copy=False), Y.data)
    if isinstance(X, np.ndarray):
        kernels.add_dense(X, *labels, s.counts, s.mean, s.m2, s.shift, s.products)
        kernels.add_pairs(*labels, s.positives, s.unknown, s.pairs)
        return
    rowptr = X.indptr.astype(np.int64, copy=False)
    by_label = Y.tocsc()
    columns = (by_label.indptr.astype(np.int64, copy=False), by_label.indices, by_label.data)
    kernels.add_sparse(X.data, X.indices, rowptr, *columns, s.counts, s.mean, s.m2, s.products)
    kernels.add_pairs(*labels, s.positives, s.unknown, s.pairs)


def drop_rounding(products: NDArray[np.float64], most: NDArray[np.float64]) -> NDArray[np.float64]:
    """Products of labels and features, in place; those that are rounding beside the most that they could be are 0.

    >>> drop_rounding(np.array([1e-15, -0.5]), np.array([1.0, 1.0]))
    array([ 0. , -0.5])
    """
    products[np.abs(products) <= UNCORRELATED * most] = 0.0
    return products


def label_products(profile: Profile) -> LabelProducts:
    """The statistic for data of a profile."""
    weighted = profile.weight is not None
    return LabelProducts(profile.d, profile.q, compiled=wants_compiled(profile), weighted=weighted)


def wants_compiled(profile: Profile) -> bool:
    """Whether a job is large enough for the compiled kernels: one decision for all its blocks.

    The two paths round differently in the last digits, so it may depend on sizes, never on chunks.
    """
    if profile.weight is not None:
        return False  # the compiled kernels count every row once
    cardinality = profile.label_nonzeros / max(profile.n, 1)
    return profile.nonzeros * (2 + cardinality) > COMPILED_WORK
