"""Code books: bins of equal width or equal frequency, or a code for zero and bins for the other values.

Quantiles come from a sample of rows drawn by index, or from a source's table for the same sample
(`RowSource.quantiles`): the edges are the same either way.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.counts import MAX_CODES, CodeBook
from mlfs_dask.blocks.missing import only_zero_and_one_block
from mlfs_dask.blocks.row_draws import QUANTILE_ROWS, draw_row_numbers
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import FeatureInfo, Profile

Binning = Literal["auto", "quantile", "equal-width"]

#: Largest number of codes whose edges a table of quantiles provides.
TABLE_CODES = 8

#: Share of the rows from which a code is crowded: almost no rows are left for the other codes.
CROWDED_SHARE = Fraction(99, 100)

#: Shares of the values present at which a table holds quantiles: all shares for up to `TABLE_CODES` codes, and the
#: shares that show whether the first or the last code is crowded.
TABLE_SHARES = tuple(
    sorted(
        {Fraction(j, bins) for bins in range(2, TABLE_CODES + 1) for j in range(1, bins)}
        | {1 - CROWDED_SHARE, CROWDED_SHARE}
    )
)

#: Edge between negative numbers and 0.
BELOW_ZERO = float(-np.finfo(np.float64).tiny)


def edge_rows(profile: Profile) -> NDArray[np.int64]:
    """Return the ascending indices of the sample rows for quantiles."""
    return edge_rows_of(profile.n, profile.d, profile.nonzeros if profile.sparse else None)


def edge_rows_of(n: int, d: int, nonzeros: int | None) -> NDArray[np.int64]:
    """Return the sample rows for data of n rows; `nonzeros` is None for dense data."""
    row_bytes = 8 * d if nonzeros is None else 12 * -(-nonzeros // max(n, 1))
    # One fixed seed: a store and every selection use the same sample rows.
    return draw_row_numbers(n, QUANTILE_ROWS, 0, row_bytes=row_bytes)


def equal_width_book(features: FeatureInfo, bins: int, *, code_missing: bool = True) -> CodeBook:
    """Return bins of equal width between each feature's minimum and maximum.

    Edge j = 1..bins-1 is (minimum * (bins - j) + maximum * j) / bins, for two codes the midrange; a value on an edge
    belongs to the bin below. Categorical features keep their codes, constant features have one code.

    Parameters
    ----------
    features : FeatureInfo
        With minimum and maximum.
    bins : int
        At least 2.
    code_missing : bool
        Give NaN a code of its own in features with NaN.
    """
    assert features.minimum is not None
    assert features.maximum is not None
    low, high = features.minimum, features.maximum
    d = len(low)
    categories = np.zeros(d, dtype=np.int64) if features.n_categories is None else features.n_categories
    counts = np.where(categories > 0, categories - 1, np.where(low < high, bins - 1, 0))
    ptr = np.concatenate(([0], np.cumsum(counts)))
    feature = np.repeat(np.arange(d), counts)
    step = np.arange(ptr[-1]) - ptr[:-1][feature] + 1
    # Exact if minimum and maximum are integers and the edge is one, too. The power of two keeps the widest float64
    # features finite and changes no digit of the others.
    scale = np.where(np.maximum(np.abs(low), np.abs(high)) > 1e300, 2.0**-9, 1.0)
    low, high, scale = (low * scale)[feature], (high * scale)[feature], scale[feature]
    equal = (low * (bins - step) + high * step) / bins / scale
    edges = np.where(categories[feature] > 0, step - 0.5, equal)
    missing = np.zeros(d, dtype=bool) if features.n_missing is None or not code_missing else features.n_missing > 0
    return CodeBook(ptr.astype(np.int64), edges.astype(np.float64), missing)


def code_book(
    features: FeatureInfo,
    bins: int,
    binning: Binning = "auto",
    *,
    table: Array | None = None,
    sample: Matrix | None = None,
    weights: Array | None = None,
    code_missing: bool = True,
    cut_binary: bool = False,
) -> CodeBook | None:
    """Return the codes of all features; None if they need quantiles and neither a table nor a sample is given.

    "quantile": edge j is the smallest value that at least j/bins of the values present do not exceed. Duplicate edges,
    and edges with no value above, are dropped, so a feature may have fewer codes than `bins`.

    "auto": a feature with more than half of its present values 0 gets a code for 0, and quantiles of its other values
    define bins - 1 codes; with negative and positive values it gets at least one code more, for 0 lies between them.
    Other features are cut at quantiles. If all quantiles equal the maximum, the cut is at the largest of `TABLE_SHARES`
    below it, or else halfway between minimum and maximum: a varying feature has at least two codes.

    0/1 and categorical features keep their codes.

    Parameters
    ----------
    features : FeatureInfo
        With minimum and maximum over all rows, and for "auto" with the shares of zeros.
    bins : int
    binning : {"auto", "quantile", "equal-width"}
    table : float64 array, shape (d, shares), optional
        From `quantile_table`.
    sample : ndarray or csr_array, shape (m, d), optional
        The rows of `edge_rows`.
    weights : float64 array, shape (m,), optional
        Weights of the sample rows.
    code_missing : bool
        Give NaN a code of its own in features with NaN.
    cut_binary : bool
        With "quantile", cut features with two values like other numbers: a feature whose larger value is the more
        frequent one then has one code.
    """
    if binning == "equal-width":
        return equal_width_book(features, bins, code_missing=code_missing)
    cut_binary &= binning == "quantile"
    if binning == "auto":
        bins = min(bins, MAX_CODES - 2)  # zero between negative and positive values, and NaN, need further codes
    uniform = equal_width_book(features, 2, code_missing=code_missing)
    low, high = features.minimum, features.maximum
    assert low is not None
    assert high is not None
    categories = np.zeros(uniform.d, np.int64) if features.n_categories is None else features.n_categories
    numeric = ((categories == 0) | (cut_binary & (categories == 2))) & (low < high)
    mostly_zero = is_mostly_zero(features) if features.zero_share is not None else np.zeros(uniform.d, bool)
    by_zero = numeric & mostly_zero if binning == "auto" else np.zeros(uniform.d, bool)
    if sample is not None and not cut_binary:
        # Arrays do not declare 0/1 features; the sample shows them.
        unknown = np.flatnonzero((low == 0) & (high == 1) & (categories == 0))
        numeric[unknown] &= ~only_zero_and_one_block(sample, unknown)
        by_zero &= numeric
    by_quantiles, zero = np.flatnonzero(numeric & ~by_zero), np.flatnonzero(by_zero)
    if mostly_zero[by_quantiles].any():
        table = None  # the table holds quantiles of the nonzero values of these features
    quantiles = _quantiles(table, by_quantiles, bins, sample, weights)
    others = _quantiles(table, zero, bins - 1, sample, weights, zeros=False)
    if quantiles is None or others is None:
        return None
    feature = np.repeat(np.arange(uniform.d), np.diff(uniform.edge_ptr))
    feature_edges = [(feature[~numeric[feature]], uniform.edges[~numeric[feature]])]
    feature_edges.append(_below_maximum(by_quantiles, quantiles, high))
    if binning == "auto":
        single = by_quantiles[~(quantiles < high[by_quantiles, np.newaxis]).any(axis=1)]
        if sample is not None:
            table = np.full((uniform.d, len(TABLE_SHARES)), np.nan)
            table[single] = quantiles_of(sample[:, single], TABLE_SHARES, weights)
        finer = np.zeros((0, 1)) if table is None else table[single]
        largest = np.where(finer < high[single, np.newaxis], finer, -np.inf).max(axis=1, initial=-np.inf)
        # The midrange is the only edge of `uniform`.
        middle = uniform.edges[uniform.edge_ptr[single]]
        feature_edges.append((single, np.where(np.isfinite(largest), largest, middle)))
    feature_edges.append(_below_maximum(zero, others, high))
    for chosen, edge in ((zero[low[zero] < 0], BELOW_ZERO), (zero[high[zero] > 0], 0.0)):
        feature_edges.append((chosen, np.full(len(chosen), edge)))
    feature, edges = (np.concatenate(parts) for parts in zip(*feature_edges, strict=True))
    order = np.lexsort((edges, feature))
    feature, edges = feature[order], edges[order] + 0.0  # -0 is 0
    again = (np.diff(feature, prepend=-1) == 0) & (np.diff(edges, prepend=np.nan) == 0)
    feature, edges = feature[~again], edges[~again]
    ptr = np.concatenate(([0], np.cumsum(np.bincount(feature, minlength=uniform.d))))
    return CodeBook(ptr.astype(np.int64), edges.astype(np.float64), uniform.has_missing)


def _below_maximum(chosen: NDArray[np.int64], edges: Array, high: Array) -> tuple[NDArray[np.int64], Array]:
    """Return pairs of feature and edge, from edges (c, s), dropping edges with no value above."""
    feature, edges = np.repeat(chosen, edges.shape[1]), edges.ravel()
    useful = edges < high[feature]  # false of NaN
    return feature[useful], edges[useful]


def zero_share(present: NDArray[Any], nonzero: NDArray[Any]) -> Array:
    """Return the share of zeros among the values present, as in `FeatureInfo.zero_share`; 0 without any value.

    >>> zero_share(np.array([4, 0]), np.array([1, 0])).tolist()
    [0.75, 0.0]
    """
    share = np.zeros(len(present))
    np.divide(present - nonzero, present, out=share, where=present > 0)
    return share


def is_mostly_zero(features: FeatureInfo) -> NDArray[np.bool_]:
    """Return a mask of features with more than half of their present values 0, which get a code for 0, shape (d,)."""
    assert features.zero_share is not None
    return np.asarray(features.zero_share > 0.5)


def is_numeric(features: FeatureInfo) -> NDArray[np.bool_]:
    """Return a mask of features that vary and are not known to be 0/1 or categorical, shape (d,)."""
    assert features.minimum is not None
    assert features.maximum is not None
    varies: NDArray[np.bool_] = features.minimum < features.maximum
    return varies if features.n_categories is None else varies & (features.n_categories == 0)


def default_quantiles(sample: Matrix, mostly_zero: NDArray[np.bool_], weights: Array | None = None) -> Array:
    """Return quantiles at `TABLE_SHARES`, (d, shares); for mostly zero features, the cuts of their nonzero values.

    Parameters
    ----------
    sample : ndarray or csr_array, shape (m, d)
        The rows of `edge_rows`.
    mostly_zero : bool array, shape (d,)
    weights : float64 array, shape (m,), optional
        Weights of the sample rows.
    """
    table = np.empty((len(mostly_zero), len(TABLE_SHARES)))
    for columns, zeros in ((~mostly_zero, True), (mostly_zero, False)):
        if columns.any():
            table[columns] = quantiles_of(sample[:, columns], TABLE_SHARES, weights, zeros=zeros)
    if mostly_zero.any():
        ends = 1 - CROWDED_SHARE, CROWDED_SHARE
        of_all = quantiles_of(sample[:, mostly_zero], ends, weights)
        for share, quantiles in zip(ends, of_all.T, strict=True):
            table[mostly_zero, TABLE_SHARES.index(share)] = quantiles
    return table


def quantile_table(
    X: Matrix,
    features: FeatureInfo,
    weights: Array | None = None,
    *,
    rows: NDArray[np.int64] | None = None,
) -> Array:
    """Return the `default_quantiles` of all features, computed in batches; NaN for features that are not numeric.

    Parameters
    ----------
    X : ndarray or csr_array, shape (m, d)
        The rows of `edge_rows`, with their `weights`; or all rows, with the sample's indices in `rows`.
    features : FeatureInfo
    weights : float64 array, shape (m,), optional
    rows : int64 array, optional
    """
    d = X.shape[1]
    if rows is None or len(rows) == X.shape[0]:
        rows = None
    elif not isinstance(X, np.ndarray):
        X, rows = X[rows], None
    if not isinstance(X, np.ndarray):
        X = sp.csc_array(X)
    stored = X.nnz if sp.issparse(X) else d * len(X if rows is None else rows)
    numeric, mostly_zero = np.flatnonzero(is_numeric(features)), is_mostly_zero(features)
    table = np.full((d, len(TABLE_SHARES)), np.nan)
    step = max(1, gates.VALUES_AT_ONCE * d // max(stored, 1))
    for columns in (numeric[start : start + step] for start in range(0, len(numeric), step)):
        sample = X[:, columns] if rows is None else X[np.ix_(rows, columns)]
        table[columns] = default_quantiles(sample, mostly_zero[columns], weights)
    return table


def is_cut(features: FeatureInfo) -> NDArray[np.bool_]:
    """Return `is_numeric`, shape (d,), without features in [0, 1] that might be 0/1."""
    numeric = is_numeric(features)
    if features.n_categories is None:
        numeric &= (features.minimum != 0) | (features.maximum != 1)
    return numeric


def known_crowded(features: FeatureInfo, book: CodeBook, table: Array | None = None) -> NDArray[np.bool_]:
    """Return a mask of features with a code known to hold at least 99 % of the rows, before counting, shape (d,).

    The share of zeros reveals it for the code of 0, a table of quantiles for the first and the last code.

    Examples
    --------
    >>> from mlfs_dask.rows.contract import FeatureInfo
    >>> features = FeatureInfo(np.zeros(2), np.array([60.0, 2]), zero_share=np.array([0.995, 0.6]))
    >>> known_crowded(features, equal_width_book(features, 2))
    array([ True, False])
    """
    crowded = np.zeros(book.d, bool)
    if features.zero_share is not None:
        crowded |= features.zero_share >= float(CROWDED_SHARE)
    if table is not None:
        assert features.maximum is not None
        least, most = (table[:, TABLE_SHARES.index(share)] for share in (1 - CROWDED_SHARE, CROWDED_SHARE))
        at_ends = (book.codes_of(most) == 0) | (book.codes_of(least) == book.codes_of(features.maximum))
        crowded |= at_ends & ~np.isnan(least)
    return crowded


def widest_book(features: FeatureInfo, bins: int, binning: Binning, *, code_missing: bool = True) -> CodeBook:
    """Return a book in which no feature has fewer codes than in `code_book`, for plans before edges are known."""
    assert features.minimum is not None
    assert features.maximum is not None
    both_signs = binning == "auto" and bool(((features.minimum < 0) & (features.maximum > 0)).any())
    return equal_width_book(features, bins + both_signs, code_missing=code_missing)


def _quantiles(
    table: Array | None,
    chosen: NDArray[np.int64],
    parts: int,
    sample: Matrix | None,
    weights: Array | None,
    *,
    zeros: bool = True,
) -> Array | None:
    """Return quantiles that divide the chosen features into `parts`, (c, parts - 1); None without table and sample."""
    shares = [Fraction(j, parts) for j in range(1, parts)]
    if not len(chosen) or not shares:
        return np.zeros((len(chosen), len(shares)))
    if sample is not None:
        return quantiles_of(sample[:, chosen], shares, weights, zeros=zeros)
    if table is None or parts > TABLE_CODES:
        return None
    quantiles = table[chosen][:, [TABLE_SHARES.index(share) for share in shares]]
    return None if np.isnan(quantiles).any() else quantiles


def quantiles_of(
    sample: Matrix, shares: Sequence[Fraction], weights: Array | None = None, *, zeros: bool = True
) -> Array:
    """Return the smallest value that at least a given share of a column's present values do not exceed, (d, shares).

    Parameters
    ----------
    sample : ndarray or csr_array, shape (m, d)
        NaN counts as missing; a column without present values gets NaN.
    shares : sequence of Fraction
    weights : float64 array, shape (m,), optional
        Weights of the rows.
    zeros : bool
        True if zeros count as values.

    Examples
    --------
    >>> X = np.array([[0.0, 5], [1, 0], [2, 0], [3, np.nan]])
    >>> quantiles_of(X, [Fraction(1, 2), Fraction(3, 4)]).tolist()
    [[1.0, 2.0], [0.0, 5.0]]
    >>> quantiles_of(sp.csr_array(X), [Fraction(1, 2)], zeros=False).tolist()
    [[2.0], [5.0]]
    """
    m, d = sample.shape
    if weights is not None:
        columns = sp.csc_array(sample)
        columns.eliminate_zeros()
        of_each = [_weighted_quantiles(columns, f, shares, weights, zeros=zeros) for f in range(d)]
        return np.array(of_each).reshape(d, len(shares))
    if isinstance(sample, np.ndarray):
        sample = sample if zeros or sample.dtype.kind == "f" else sample.astype(np.float64)
        columns = np.array(sample.T, order="C")
        if not zeros:
            columns[columns == 0] = np.nan
        columns.sort(axis=1)  # NaN comes last
        present = m - np.isnan(columns).sum(axis=1)
        cuts = np.take_along_axis(columns, np.minimum(_ranks(present, shares), max(m - 1, 0)), axis=1).astype(float)
        return np.where(present[:, np.newaxis] > 0, cuts, np.nan)
    columns = sp.csc_array(sample, copy=True)
    columns.eliminate_zeros()
    column, values = np.repeat(np.arange(d), np.diff(columns.indptr)), columns.data
    for start, stop in itertools.pairwise(columns.indptr):  # 50 times as fast as one sort by column and value
        values[start:stop].sort()
    stored = np.diff(columns.indptr)
    below = np.bincount(column[values < 0], minlength=d)[:, np.newaxis]
    missing = np.bincount(column[np.isnan(values)], minlength=d)
    zero = (m - stored if zeros else np.zeros(d, np.int64))[:, np.newaxis]
    present = stored - missing + zero[:, 0]
    rank = _ranks(present, shares)
    is_zero = (rank >= below) & (rank < below + zero)
    place = columns.indptr[:-1, np.newaxis] + rank - np.where(rank >= below, zero, 0)
    quantiles = np.append(values, 0.0)[np.where(is_zero, len(values), np.minimum(place, len(values)))]
    return np.where(present[:, np.newaxis] > 0, quantiles.astype(np.float64), np.nan)


def _ranks(present: NDArray[np.int64], shares: Sequence[Fraction]) -> NDArray[np.int64]:
    """Return the rank, from 0, of the quantile at each share, shape (d, shares)."""
    ranks = [-(-share.numerator * present // share.denominator) - 1 for share in shares]
    return np.maximum(np.stack(ranks, axis=1) if ranks else np.zeros((len(present), 0), np.int64), 0)


def _weighted_quantiles(
    columns: sp.csc_array, f: int, shares: Sequence[Fraction], weights: Array, *, zeros: bool
) -> Array:
    """Return the quantiles of one column with row weights."""
    stored = slice(columns.indptr[f], columns.indptr[f + 1])
    values, rows = columns.data[stored].astype(np.float64), columns.indices[stored]
    present = ~np.isnan(values)
    mass = weights[rows[present]]
    if zeros:
        values = np.append(values[present], 0.0)
        mass = np.append(mass, weights.sum() - weights[rows].sum())
    else:
        values = values[present]
    values, mass = values[mass > 0], mass[mass > 0]
    if not len(values):
        return np.full(len(shares), np.nan)
    order = np.argsort(values, kind="stable")
    reached = np.cumsum(mass[order])
    # Rounding must not decide whether the weights reach a share, whatever their unit.
    at = [np.searchsorted(reached, float(share) * reached[-1] * (1 - 1e-9)) for share in shares]
    quantiles: Array = values[order][np.minimum(np.array(at, np.int64), len(values) - 1)]
    return quantiles
