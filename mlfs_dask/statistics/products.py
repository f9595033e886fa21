"""Y'(X − μ), Y'Y, label sums and the moments of X in one pass: what cross-product methods need."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.linear import row_groups
from mlfs_dask.blocks.moments import ColumnMoments, add_zeros, integer_sums, merge_moments, moments_block
from mlfs_dask.blocks.pair_scores import Sums
from mlfs_dask.blocks.products import (
    label_pairs_block,
    label_products_block,
    label_sums_block,
    positives_block,
    weighted_block,
)
from mlfs_dask.blocks.rounding import ROUNDING
from mlfs_dask.blocks.sparse import count_labels
from mlfs_dask.blocks.unknown import no_labels, with_unknown_columns
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.rows.contract import Block, Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.statistics.label_statistics import filled_pairs
from mlfs_dask.statistics.moments import first_values, moments_scratch_bytes, moved
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.statistics.covariates import Adjustment


#: Least share of entries of Y that are 1 or unknown, as one in so many, from which the unknown are summed by marks:
#: a mark costs a sixteenth of what an entry costs.
MARKED = 16


class _Sums(NamedTuple):
    """Names for the arrays of a state."""

    rows: NDArray[Any]  # (1,)
    counts: NDArray[Any]  # (d,): stored values
    mean: Array  # (d,): of stored values, less the shift
    m2: Array  # (d,): of stored values
    shift: Array  # (d,)
    products: Array  # (q, d): sums of x - shift
    positives: NDArray[Any]  # (q,)
    unknown: NDArray[Any]  # (q,)
    pairs: NDArray[Any]  # (q, q)
    squares: Array  # (u, d): of x - shift; left out while all stored values are 1, whose squares are the sums
    squared: NDArray[Any]  # (1,): 1 once `squares` are there

    @property
    def moments(self) -> ColumnMoments:
        return ColumnMoments(self.counts, self.mean, self.m2)

    def begin_squares(self) -> None:
        """Write the squares of the blocks so far, which had none to add."""
        if not self.squared[0]:
            self.squares[:] = self.products[len(self.products) - len(self.squares) :]
            self.squared[0] = 1


class KnownSums(NamedTuple):
    """Sums of labels over the rows where each is known.

    Attributes
    ----------
    n, positives : int64 or float64 array, shape (q,)
        Rows where the label is known, and those that have it.
    labels : int64 array, shape (u,)
        Labels that may have unknown entries.
    mean : float64 array, shape (u, d)
        Of every feature over the rows where one of these is known.
    m2 : float64 array, shape (u, d)
        Sum of squared deviations of every feature from its mean over the rows where one of these is known.
    """

    n: NDArray[Any]
    positives: NDArray[Any]
    labels: NDArray[np.int64]
    mean: Array
    m2: Array


@dataclass(frozen=True)
class LabelMoments:
    """Sums over all rows, centred. Of weighted rows what is counted is a sum of their weights, and float64.

    Where labels may be unknown, Y has in the place of an unknown entry the share of the known rows that have the label,
    so that the entry is 0 when Y is centred: `products` are those over the rows where the label is known, and
    `positives` and `pairs` are float64.

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
    known : KnownSums or None
        Of each label over the rows where it is known, where some may be unknown.
    residual_m2 : float64 array, shape (q,), or None
        M2 of labels that are numbers: numeric targets, of which `positives` are sums and `pairs` Y'Y, and residuals.
    """

    n: int | float
    mean: Array
    m2: Array
    products: Array
    positives: NDArray[Any]
    unknown: NDArray[Any]
    pairs: NDArray[Any]
    known: KnownSums | None = None
    residual_m2: Array | None = None

    @property
    def label_m2(self) -> Array:
        """M2 of each label, shape (q,)."""
        if self.residual_m2 is not None:
            return self.residual_m2
        if self.known is None:
            return np.asarray(self.positives * (1.0 - self.positives / (self.n or 1)))
        share = self.known.positives / np.maximum(self.known.n, 1)
        return np.asarray(self.known.positives * (1.0 - share))

    @property
    def terms(self) -> Sums:
        """Terms of formulas of a label and a feature; if labels may be unknown, over the known rows of each label."""
        residual = None if self.residual_m2 is None else self.residual_m2[:, np.newaxis]
        if self.known is None:
            return Sums(self.products, self.m2[np.newaxis], self.positives[:, np.newaxis], self.n, residual)
        m2 = self._of_known(self.m2, self.known.m2)
        return Sums(self.products, m2, self.known.positives[:, np.newaxis], self.known.n[:, np.newaxis], residual)

    @property
    def label_squares(self) -> Array:
        """Sum of squares of the known entries of each label, shape (q,)."""
        if self.residual_m2 is None:
            return np.asarray(self.positives if self.known is None else self.known.positives)
        return np.asarray(self.residual_m2 + self.positives**2 / (self.n or 1))

    def _of_known(self, every: Array, known: Array) -> Array:
        """Return numbers of features over the rows where each label is known, shape (q, d)."""
        assert self.known is not None
        numbers = np.repeat(every[np.newaxis], len(self.positives), axis=0)
        numbers[self.known.labels] = known
        return numbers

    def adjusted_gram(self, gram: Array, columns: NDArray[np.intp]) -> Array:
        """Return centred X'X of some features as that of their residuals, where there are covariates; in its place."""
        return gram

    @property
    def known_mean(self) -> Array:
        """Means of features, shape (1, d); where labels may be unknown over the rows where each is known, (q, d)."""
        return self.mean[np.newaxis] if self.known is None else self._of_known(self.mean, self.known.mean)

    @property
    def std(self) -> Array:
        """Population standard deviation, shape (d,)."""
        return np.sqrt(self.m2 / (self.n or 1))

    @property
    def factor(self) -> Array:
        """Factor that scales a feature to unit variance, shape (d,); 0 for a constant feature."""
        std = self.std
        return np.divide(1.0, std, out=np.zeros_like(std), where=std > 0)

    def scaled_products(self, factor: Array) -> Array:
        """Return Y'(X − mean) of features times `factor`, shape (q, d), in the place of `products`."""
        products = self.products
        products *= factor
        products[self.positives == self.n] = 0.0  # a label that always occurs goes with no feature: this is rounding
        return products

    @property
    def constant_labels(self) -> int:
        """Number of labels that all rows have, or none, or that follow from the covariates."""
        return int(np.count_nonzero(self.label_m2 == 0))


@dataclass(frozen=True)
class AdjustedMoments(LabelMoments):
    """`LabelMoments` of residuals of a regression of X and Y on covariates, to which their means are added.

    `pairs` is Y'Y of these, and float64 (`statistics.covariates`). Where labels may be unknown, Y has shares in the
    places of unknown entries, as in `LabelMoments`, and `terms` are of each label over the rows where it is known.

    Attributes
    ----------
    adjustment : Adjustment
    known_terms : Sums or None
        Terms of the labels, where some may be unknown.
    """

    adjustment: Adjustment = field(kw_only=True)
    known_terms: Sums | None = field(default=None, kw_only=True)

    @property
    def terms(self) -> Sums:
        return self.known_terms or super().terms._replace(rank=self.adjustment.rank)

    def adjusted_gram(self, gram: Array, columns: NDArray[np.intp]) -> Array:
        return self.adjustment.of_features(columns).gram(gram, self.m2[columns])


@dataclass(frozen=True)
class LabelProducts(Statistic):
    """Statistic: `LabelMoments` of X and Y.

    Dense X is summed relative to the first row that a state meets, and two states that began with different
    rows are brought to one of them when they merge. So nothing has to be known before the pass, and a feature
    with a mean of 10⁸ standard deviations keeps its digits. Sparse X is summed as it is: zero is its origin.

    The rows in which a label is unknown are summed as those of a further label. The sums of a label over the rows where
    it is known are those over all rows less these, and so are the squares of features.

    Parameters
    ----------
    n_features, n_labels : int
    unknown : int64 array, shape (u,), optional
        Labels that may have unknown entries, rising.
    compiled : bool
        Use the compiled kernels. To be decided once per job (`wants_compiled`), never per block.
    weighted : bool
        Whether rows have weights.
    marked : bool
        Whether many entries are unknown, of which the compiled kernels take marks row by row. To be decided once, too.
    numeric : bool
        Whether Y holds numeric targets.
    """

    n_features: int
    n_labels: int
    unknown: NDArray[np.int64] = field(default_factory=no_labels)
    compiled: bool = field(default=False, kw_only=True)
    marked: bool = field(default=False, kw_only=True)
    weighted: bool = field(default=False, kw_only=True)
    numeric: bool = field(default=False, kw_only=True)

    kind = "products"
    state_names = _Sums._fields

    @property
    def parameters(self) -> Mapping[str, Any]:
        return {"unknown": self.unknown} if len(self.unknown) else {}

    @property
    def shapes(self) -> tuple[tuple[int, ...], ...]:
        d, u = self.n_features, len(self.unknown)
        q = self.n_labels + u
        return (1,), (d,), (d,), (d,), (d,), (q, d), (q,), (q,), (q, q), (u, d), (1,)

    @property
    def result_bytes(self) -> int:
        d, u = self.n_features, len(self.unknown)
        q = self.n_labels + u
        return 16 * d + 8 * q * d + 16 * q + 8 * q * q + 16 * u * d

    def scratch_bytes(self, profile: Profile) -> int:
        own = self._sum_bytes(profile)
        if not len(self.unknown):
            return own
        u, q = len(self.unknown), self.n_labels + len(self.unknown)
        further = 30 * min(profile.label_nonzeros, profile.block_rows * max(q, 1))
        if self.compiled and self.marked:
            marks = 3 * q * profile.block_rows + 6 * q * (min(gates.GROUP_ROWS, profile.block_rows) + 3 * q)
            return further + marks + own + 32 * profile.block_values * profile.sparse
        return further + max(own, 24 * profile.block_values + 24 * u * self.n_features)

    def _sum_bytes(self, profile: Profile) -> int:
        """Return temporaries of the sums but for squares."""
        d, q = self.n_features, self.n_labels + len(self.unknown)
        labels = 28 * profile.block_rows + 40 * min(profile.label_nonzeros, profile.block_rows * max(q, 1))
        if self.compiled:
            return labels + 2 * 2**20
        # The products of one block are a matrix of their own before they are added; sparse ones exist twice.
        own = 8 * q * d + (12 * q * d if profile.sparse else 0) + 24 * q * q
        return labels + own + 8 * profile.block_rows * d * (not profile.sparse) + moments_scratch_bytes(profile)

    def zero(self) -> State:
        counted = ("rows", "counts", "positives", "unknown", "pairs")
        whole = not (self.weighted or self.numeric)
        kinds = (np.int64 if name in counted and whole else np.float64 for name in _Sums._fields)
        return tuple(np.zeros(shape, kind) for shape, kind in zip(self.shapes, kinds, strict=True))

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
        compiled = self.compiled and not mixed
        if compiled and self.marked:
            _add_marked(s, X, Y, self.unknown)
            return
        if len(self.unknown):
            Y = with_unknown_columns(Y, self.unknown)
            self._add_squares(s, X, weighted_block(sp.csr_array(Y[:, self.n_labels :]), weights))
        if compiled:
            _add_compiled(s, X, Y)
            return
        P = positives_block(Y)
        weighted = weighted_block(P, weights)
        merge_moments(s.moments, moments_block(X, s.shift, weights))
        np.add(s.products, label_products_block(X, weighted, s.shift), out=s.products)
        sums = label_sums_block(weighted)
        np.add(s.positives, sums, out=s.positives)
        if self.numeric:
            np.add(s.unknown, count_labels(Y, weights)[0], out=s.unknown)
        else:
            np.add(s.unknown, label_sums_block(weighted_block(Y, weights)) - sums, out=s.unknown)
        np.add(s.pairs, label_pairs_block(P, None if weights is None else weighted), out=s.pairs)

    def _add_squares(self, s: _Sums, X: Matrix, marks: sp.csr_array) -> None:
        """Add the squares over the rows in which labels are unknown, of which the weights are `marks`."""
        with np.errstate(over="ignore", invalid="ignore"):
            if isinstance(X, np.ndarray) or s.shift.any():
                V: Any = (X if isinstance(X, np.ndarray) else X.toarray()) - s.shift
                V *= V
            elif not s.squared[0] and (X.data == 1).all():
                return
            else:
                V = sp.csr_array((np.square(X.data, dtype=np.float64), X.indices, X.indptr), shape=X.shape)
            s.begin_squares()
            np.add(s.squares, label_products_block(V, marks, np.zeros_like(s.shift)), out=s.squares)

    def merge(self, into: State, other: State) -> None:
        a, b = _Sums(*into), _Sums(*other)
        if b.rows[0] == 0:
            return
        if a.rows[0] == 0:
            a.shift[:] = b.shift
        move, q = b.shift - a.shift, self.n_labels
        if b.squared[0]:
            a.begin_squares()
        if a.squared[0]:
            np.add(a.squares, b.squares if b.squared[0] else b.products[q:], out=a.squares)
        if move.any():  # of dense blocks, whose squares are there
            moved_squares = 2.0 * move * b.products[q:] + b.positives[q:, np.newaxis] * move**2
            np.add(a.squares, moved_squares, out=a.squares)
            for products, positive in zip(a.products, b.positives, strict=True):
                products += positive * move  # b's sums, seen from a's shift
        a.rows[0] += b.rows[0]
        merge_moments(a.moments, moved(b.moments, move))
        for mine, theirs in zip(into[5:-2], other[5:-2], strict=True):
            np.add(mine, theirs, out=mine)

    def finalize(self, state: State) -> LabelMoments:
        s = _Sums(*state)
        n = s.rows[0].item()
        total = add_zeros(s.moments, n, s.shift)
        mean, m2, integers = total.mean + s.shift, total.m2, integer_sums(total, s.shift, *s.products)
        mean[integers.which], m2[integers.which] = integers.mean, integers.m2
        offset = total.mean.copy()  # mean - shift has no digits left where both are large
        offset[integers.which] = integers.total / integers.n
        # A new array: the state belongs to Dask, and the task may run twice.
        centred, squares = s.products.copy(), np.diag(s.pairs)
        for products, positive, square in zip(centred, s.positives, squares, strict=True):
            exact = np.rint(products[integers.which])
            products -= positive * total.mean
            if positive % 1 == 0 and not self.numeric:  # weights need not be whole
                difference = integers.n * exact.astype(np.int64) - int(positive) * integers.total
                products[integers.which] = difference / integers.n
            with np.errstate(over="ignore", invalid="ignore"):
                drop_rounding(products, np.sqrt(square * m2))
        every = LabelMoments(n, mean, m2, centred, s.positives, s.unknown, s.pairs)
        if self.numeric and not len(self.unknown):
            every = replace(every, residual_m2=_m2_of_sums(squares, s.positives, n))
        return self._of_known(s, every, offset) if len(self.unknown) else every

    def _of_known(self, s: _Sums, every: LabelMoments, mean: Array) -> LabelMoments:
        """Return the moments of each label over the rows where it is known, from those of all rows, whose `mean` is
        relative to the shift, and of further labels.
        """
        unknown, q = self.unknown, self.n_labels
        n_unknown, positives = np.zeros(q, s.positives.dtype), s.positives[:q]
        n_unknown[unknown] = s.positives[q:]
        known, share = every.n - n_unknown, np.zeros(q)
        np.divide(positives, known, out=share, where=known > 0)
        marked, products, of_unknown = every.products[q:], every.products[:q], share[unknown, np.newaxis]

        # Squares of x − mean over the rows in which a label is unknown; then those of the others about their own mean.
        m2 = s.squares + (1.0 - s.squared - 2.0 * mean) * s.products[q:]
        m2 += n_unknown[unknown, np.newaxis] * mean**2
        np.subtract(every.m2, m2, out=m2)
        below = marked / np.where(known > 0, known, 1)[unknown, np.newaxis]
        m2 -= marked * below
        # Of a feature that is constant over the known rows this is rounding, of sums about zero or the shift.
        m2[m2 <= ROUNDING * every.m2 + np.finfo(np.float64).eps * 16 * every.n * mean**2] = 0.0
        products[unknown] += of_unknown * marked
        squares = np.diag(s.pairs)[:q]
        for label, own in zip(unknown, m2, strict=True):
            drop_rounding(products[label], np.sqrt(squares[label] * own))

        pairs = filled_pairs(s.pairs, unknown, every.n, positives)
        of_known = KnownSums(known, positives, unknown, every.mean - below, m2)
        filled = positives + share * n_unknown
        sums = every.n, every.mean, every.m2, products, filled, n_unknown, pairs
        residual = _m2_of_sums(squares, positives, known) if self.numeric else None
        return LabelMoments(*sums, known=of_known, residual_m2=residual)


def _add_compiled(s: _Sums, X: Matrix, Y: sp.csr_array) -> None:
    from mlfs_dask.blocks import products_compiled as kernels

    _add_labels(s, X, Y)
    kernels.add_pairs(*_compressed(Y), s.positives, s.unknown, s.pairs)


def _add_labels(s: _Sums, X: Matrix, Y: sp.csr_array) -> None:
    """Add the moments of X, and its sums over the rows with each label of Y."""
    from mlfs_dask.blocks import products_compiled as kernels

    moments, products, P = (s.counts, s.mean, s.m2), s.products[: Y.shape[1]], positives_block(Y)
    if isinstance(X, np.ndarray):
        kernels.add_dense(X, *_compressed(P)[:2], *moments, s.shift, products)
        return
    columns = _compressed(P.tocsc())[:2]
    kernels.add_sparse(X.data, X.indices, X.indptr.astype(np.int64, copy=False), *columns, *moments, products)


def _compressed(Y: sp.csr_array | sp.csc_array) -> tuple[NDArray[Any], NDArray[Any], NDArray[Any]]:
    """Return the arrays of labels for the compiled kernels."""
    return Y.indptr.astype(np.int64, copy=False), Y.indices.astype(np.int32, copy=False), Y.data


def _add_marked(s: _Sums, X: Matrix, Y: sp.csr_array, unknown: NDArray[np.int64]) -> None:
    """Add a block of which many entries are unknown: marks of these, row by row, are an array."""
    from mlfs_dask.blocks import products_compiled as kernels

    q, entries = Y.shape[1], Y.toarray()
    marks = (entries[:, unknown] < 0).astype(np.uint8, order="C")
    for part in row_groups(len(marks)):
        both = np.hstack([entries[part] > 0, marks[part]]).astype(np.float32)
        s.pairs[...] += (both.T @ both).astype(s.pairs.dtype)  # whole numbers, up to the rows
    np.copyto(s.positives, np.diag(s.pairs))
    _add_labels(s, X, Y)
    if isinstance(X, np.ndarray):
        s.begin_squares()
        codes = np.zeros((-(-len(unknown) // 4), len(marks)), np.uint8)
        for bit in range(4):
            of_bit = marks[:, bit::4].T << bit
            codes[: len(of_bit)] |= of_bit
        kernels.add_coded(X, codes, s.shift, s.products[q:], s.squares)
        return
    columns = X.tocsc()
    values = columns.data.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        squares = values * values
    if s.squared[0] or (squares != values).any():  # not of features that are 0 or 1
        s.begin_squares()
        kernels.add_columns(columns.indptr, columns.indices, squares, marks, s.squares)
    kernels.add_columns(columns.indptr, columns.indices, values, marks, s.products[q:])


def _m2_of_sums(squares: Array, sums: Array, n: Any) -> Array:
    """Return M2 of numeric targets, 0 of constant ones."""
    m2 = squares - sums**2 / np.maximum(n, 1)
    return np.where(m2 <= ROUNDING * squares, 0.0, m2)


def drop_rounding(products: Array, most: Array) -> Array:
    """Return the products of labels and features, in place; those that are rounding beside the most that they could
    be are 0.

    >>> drop_rounding(np.array([1e-15, -0.5]), np.array([1.0, 1.0]))
    array([ 0. , -0.5])
    """
    products[np.abs(products) <= ROUNDING * most] = 0.0
    return products


def label_products(source: Profile | RowSource) -> LabelProducts:
    """Return the statistic for rows, whose labels may be unknown; for those of a profile, all of whose labels are
    known.
    """
    profile, unknown = profile_of(source), unknown_labels(source)
    return LabelProducts(
        profile.d,
        profile.q,
        unknown,
        compiled=wants_compiled(profile),
        marked=profile.label_nonzeros * MARKED > profile.n * profile.q and len(unknown) > 0,
        weighted=profile.weight is not None,
        numeric=profile.numeric,
    )


def wants_compiled(profile: Profile) -> bool:
    """Return True if a job is large enough for the compiled kernels: one decision for all its blocks.

    The two paths round differently in the last digits, so it may depend on sizes, never on chunks.
    """
    if profile.weight is not None or profile.numeric:
        return False  # the compiled kernels count every row once
    cardinality = profile.label_nonzeros / max(profile.n, 1)
    # Of a sparse block NumPy takes the time of 16 additions more for each stored value, whose mean it looks up, and
    # SciPy makes the products anew, twice, and adds them: four of each label and feature for some two million values.
    made = 16 + profile.q * profile.d / 2**19 if profile.sparse else 0
    return profile.nonzeros * (2 + cardinality + made) > gates.COMPILED_PRODUCTS
