"""Statistics for tests of pairs of labels and features, and the tests computed from them, tile by tile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.pair_scores import Sums, quotient
from mlfs_dask.blocks.pair_tests import (
    INFORMATION,
    PEAKED,
    SKEWED,
    SLOPE,
    TREND,
    ClusterSums,
    PairLaw,
    PairTests,
    cluster_error,
    correlation_tests,
    kurtosis_of_share,
    law_within,
    logistic_effects,
    p_of_order,
    rank_effects,
    skewness_of_share,
)
from mlfs_dask.blocks.rounding import ROUNDING, SAME
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DoesNotFitError, parameter
from mlfs_dask.rows.contract import FeatureInfo, Profile, RowSource, profile_of, unknown_labels
from mlfs_dask.solvers.partial_tests import KNOCKOFF_MATRICES, LABEL_MATRICES, TEST_MATRICES
from mlfs_dask.statistics.covariates import Adjustment, covariate_products
from mlfs_dask.statistics.gram import GRAM_CAP, Gram
from mlfs_dask.statistics.moments import FeatureShapes, Shapes
from mlfs_dask.statistics.nonzeros import NonzeroCounts
from mlfs_dask.statistics.products import LabelMoments, label_products
from mlfs_dask.statistics.ranks import RankSums
from mlfs_dask.typing import Array, join_terms, numbers

#: Names of the pass for pairs alone, of the passes for clusters, and of those for ranks.
PAIR_TESTS, CLUSTERS, AGGREGATE, RANKS = "tests of pairs", "clusters", "rows of clusters", "ranks"


#: P-values up to which all are held and sorted. Of more they are counted in bins of 0.2 % of their value, whose upper
#: ends stand for them: q-values are then up to as much too large.
SORTED_PAIRS = 2**24

#: Bytes that pyarrow takes, which makes the table.
ARROW_BYTES = 40 * 2**20

#: Arrays of the size of a tile that a test holds.
TILE_ARRAYS = 36

Control = Literal["bh", "by", "holm", "partial", "knockoffs"]

#: Controls of tests given the other features.
GIVEN_OTHERS = ("partial", "knockoffs")


@dataclass(frozen=True)
class PairQuestion:
    """Request for tests of pairs.

    Attributes
    ----------
    rows : str or None
        Which make the table: "best", "significant", "all"; None: no table.
    best : int
        Pairs of each label that are found, from the surest on.
    control : {"bh", "by", "holm", "partial", "knockoffs"}
        The last two are of tests given the other features.
    level : float
        At which a pair is significant.
    seed : int
        Of knockoffs.
    min_labels : int
        Labels with which features are to go; 0: none are asked for.
    log_base : float or None
        Base of the logarithms that the values are, log(1 + x); None: the values are no logarithms.
    pseudocount : float
        Number added to both means of a fold change.
    clusters : bool
        True if rows have clusters.
    test : {"t", "rank", "logistic"}
        Test of a pair.
    direction : {"both", "up", "down"}
        Sign of the pairs that count as associated.
    """

    rows: str | None
    best: int
    control: Control
    level: float
    seed: int = 0
    min_labels: int = 0
    log_base: float | None = None
    pseudocount: float = 1e-9
    clusters: bool = False
    test: Literal["t", "rank", "logistic"] = "t"
    direction: Literal["both", "up", "down"] = "both"

    @property
    def given_others(self) -> bool:
        """True if the tests are of a label and a feature given the other features."""
        return self.control in GIVEN_OTHERS


def pairs_workspace(question: PairQuestion, q: int, d: int) -> tuple[str, dict[str, int]]:
    """Return the memory of tests of pairs besides the sums, in numbers of 8 bytes, and its size letters."""
    tile = TILE_ARRAYS * q * tile_features(q, d)
    sizes = {"sorted": min(q * d, SORTED_PAIRS), "tested": tile, "best": q * min(question.best, d)}
    sizes["arrow"] = numbers(ARROW_BYTES * (question.rows is not None))
    given_others = ""
    if question.given_others:
        matrices = KNOCKOFF_MATRICES if question.control == "knockoffs" else TEST_MATRICES
        given_others = f"{matrices} d d + {LABEL_MATRICES} q d"
        sizes |= {"d": d, "q": q}
    return join_terms("2 sorted", "tested", "4 best", "8 d", "arrow", given_others), sizes


def tile_features(q: int, d: int) -> int:
    """Return features of a tile."""
    return max(1, min(d, max(gates.TEST_FEATURES, gates.TEST_PAIRS // max(q, 1))))


def pair_statistics(source: Profile | RowSource, question: PairQuestion) -> tuple[Statistic, ...]:
    """Statistics of the reading: products, X'X given the others, shapes of features not known to be 0/1, covariates.

    Raises
    ------
    DoesNotFitError
        X'X of more features than it is formed of.
    """
    profile = profile_of(source)
    statistics: list[Statistic] = [label_products(source)]
    if question.given_others:
        if profile.d > GRAM_CAP:
            raise DoesNotFitError(
                f"X'X of {profile.d:,} features, which tests given the others form for at most {GRAM_CAP:,}",
                projected=8 * profile.d**2,
                available=8 * GRAM_CAP**2,
                cure=f"choose {parameter('control', 'bh')}, or some of the features with a filter before",
            )
        statistics.append(Gram(profile.d, unknown=unknown_labels(source), weighted=profile.weight is not None))
    kinds = None if isinstance(source, Profile) else source.features.n_categories
    covariates = None if isinstance(source, Profile) else source.covariates
    if covariates is not None and covariates.in_strata and not profile.numeric:
        of_strata = profile.q, covariates.stratum_columns, covariates.columns[-1].identity
        statistics.append(FeatureShapes(profile.d, unknown_labels(source), *of_strata))
    elif kinds is None or not (kinds == 2).all():
        statistics.append(FeatureShapes(profile.d, unknown_labels(source)))
    if question.rows is not None and not (profile.numeric or _nonzero_known(source).all()):
        statistics.append(NonzeroCounts(profile.d, profile.q, unknown_labels(source)))
    of_covariates = covariate_products(source)
    return tuple(statistics if of_covariates is None else [*statistics, of_covariates])


def _nonzero_known(source: Profile | RowSource) -> NDArray[np.bool_]:
    """Mask of the features whose share of nonzero values is known: 0/1 features, and those that are never 0."""
    info = FeatureInfo() if isinstance(source, Profile) else source.features
    known = np.zeros(profile_of(source).d, dtype=bool)
    if info.minimum is not None and info.maximum is not None:
        known |= (info.minimum > 0) | (info.maximum < 0)
    return known if info.n_categories is None else known | (info.n_categories == 2)


class SumTests:
    """Tests from sums: `correlation_tests`.

    Parameters
    ----------
    source : RowSource
    results : sequence
        Of `pair_statistics`, without X'X.
    test : {"t", "rank", "logistic"}
        Test of a pair; "rank" needs `add_ranks`.

    Attributes
    ----------
    moments : LabelMoments
        Adjusted for covariates.
    like_counts : bool
        True if the values of most features look like counts that are not normalised.
    whole : bool
        True if all values look like whole numbers, some others than 0 and 1.
    adjustment : Adjustment or None
    unknown : int64 array, shape (u,)
        Labels that may have unknown entries.
    """

    def __init__(self, source: RowSource, results: Any, test: Literal["t", "rank", "logistic"] = "t") -> None:
        moments, *shapes = results
        self._test = test
        self.unknown: NDArray[np.int64] = unknown_labels(source)
        adjustment: Adjustment | None = shapes.pop() if source.covariates is not None else None
        self._targets = source.targets if source.profile.numeric else None
        self._nonzeros = shapes.pop() if shapes and isinstance(shapes[-1], np.ndarray) else None
        #: Sums that are not adjusted for covariates.
        self.unadjusted: LabelMoments = moments
        self._two = source.features.n_categories
        self.shape: tuple[int, int] = moments.products.shape
        terms, mean = moments.terms, moments.known_mean
        m2, share, n = moments.m2[np.newaxis], moments.mean[np.newaxis], np.asarray(terms.n).reshape(-1, 1)
        self._strata: Shapes | None = None
        #: Sums over clusters by which pairs are tested, where there are any.
        self.clusters: ClusterSums | None = None
        #: Score, variance, skewness and kurtosis of logistic regressions, (q, d) each, where pairs are tested by them.
        self.logistic: Sequence[Array] | None = None
        #: Of each label, where its rows stand among those of `Shapes`.
        self._place = np.zeros(self.shape[0], dtype=np.int64)
        self._place[self.unknown] = 1 + np.arange(len(self.unknown))
        skewness, kurtosis = skewness_of_share(mean), kurtosis_of_share(mean)
        if shapes:
            zero_one = shapes[0].zero_one[np.newaxis]
            if len(shapes[0].rows) > 1:
                self._strata = shapes[0]
            numeric = np.flatnonzero(~shapes[0].zero_one)
            places = self._place if len(self.unknown) else self._place[:1]
            skewness[:, numeric] = shapes[0].skewness[np.ix_(places, numeric)]
            kurtosis[:, numeric] = shapes[0].kurtosis[np.ix_(places, numeric)]
        else:
            # A 0/1 feature in which missing values are filled with a share: x² is less than x there.
            ones = moments.n * share
            zero_one = np.abs(m2 + ones * share - ones) <= SAME * ones
        self.whole, self.like_counts = _whole_numbers(moments, zero_one[0])
        if adjustment is not None:
            moments = adjustment.moments(moments)
            terms = moments.terms
        self.moments, self.adjustment = moments, adjustment
        #: Arrays that broadcast to (q, d).
        self.sums: Sums = terms._replace(n=n)
        self._features = mean, zero_one, skewness, kurtosis

    def add_ranks(self, ranks: RankSums) -> None:
        """Test midranks in place of values from now on."""
        self.sums = self.sums._replace(products=ranks.products, m2=ranks.m2)
        none = np.zeros((1, self.shape[1]))
        self._features = none, none > 0, ranks.skewness, ranks.kurtosis

    def tile(self, features: slice) -> PairTests:
        """Return the tests of all labels with some features, arrays that broadcast to (q, w)."""
        return self._tests(np.arange(self.shape[0])[:, np.newaxis], features)

    def at(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> PairTests:
        """Return the tests of chosen pairs, arrays of the shape of their numbers."""
        return self._tests(labels, features)

    def _tests(self, labels: NDArray[np.intp], features: Any) -> PairTests:
        """Return `correlation_tests`; of numeric targets with the slope on the feature, in the target's unit."""
        sums, law = self._terms(labels, features)
        tests = correlation_tests(sums, law)
        if self._test == "rank":
            return rank_effects(tests)
        if self._test == "logistic":
            assert law.variance is not None
            return logistic_effects(tests, sums.products, law.variance)
        if self._targets is None:
            return tests
        effect = quotient(sums.products, sums.m2) * self._targets.scale[labels]
        effect = np.where(np.isnan(tests.effect), np.nan, effect)
        with np.errstate(divide="ignore", invalid="ignore"):
            error = np.abs(effect / tests.statistic)
            if law.clusters is not None:
                error = cluster_error(law.clusters, sums.products / sums.m2, sums.m2) * self._targets.scale[labels]
                error = np.where(np.isnan(effect), np.nan, error)
        return tests._replace(positives=np.array(np.nan), effect=effect, kind=np.array(SLOPE), error=error)

    def law(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> PairLaw:
        """Return the facts about the null distribution of the tests of chosen pairs."""
        return self._terms(labels, features)[1]

    def groups(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> Array:
        """Return means in rows with and without the label, then shares of nonzero values, of chosen pairs, (4, m).

        Means are those of X as it is, not adjusted for covariates, over the rows where the label is known. Numeric
        targets have none.
        """
        if self._targets is not None:
            return np.full((4, len(labels)), np.nan)
        of, place = self.unadjusted, self._place[labels]
        mean, n, positives = of.mean[features], np.full(len(labels), of.n), of.positives[labels]
        partly = np.flatnonzero(place)
        if of.known is not None:
            mean[partly] = of.known.mean[place[partly] - 1, features[partly]]
            n, positives = of.known.n[labels], of.known.positives[labels]
        products = of.products[labels, features]
        with np.errstate(divide="ignore", invalid="ignore"):
            shares = means = np.stack([mean + products / positives, mean - products / (n - positives)])
            if self._nonzeros is None:  # of 0/1 features the means, and others are never 0
                shares = np.where(False if self._two is None else self._two[features] == 2, means, 1.0)
            else:
                with_label, rows = self._nonzeros[1 + labels, features], self._nonzeros[0, features]
                rows[partly] -= self._nonzeros[self.shape[0] + place[partly], features[partly]]
                shares = np.stack([with_label / positives, (rows - with_label) / (n - positives)])
        groups: Array = np.concatenate([means, shares])
        groups[::2, positives == 0] = np.nan
        groups[1::2, positives == n] = np.nan
        return groups

    def _terms(self, labels: NDArray[np.intp], features: Any) -> tuple[Sums, PairLaw]:
        """Sums and law of labels, in a column or each with a feature of its own, with a tile of features or some."""
        of, in_column = self.sums, isinstance(features, slice)

        def cut(array: NDArray[Any]) -> NDArray[Any]:
            if in_column:
                return array if array.shape[1] == 1 else array[:, features]
            chosen: NDArray[Any] = np.broadcast_to(array, self.shape)[labels, features]
            return chosen

        residual = None if of.residual_m2 is None else cut(of.residual_m2)
        rank = of.rank if np.ndim(of.rank) == 0 else cut(of.rank)
        sums = Sums(cut(of.products), cut(of.m2), cut(of.positives), cut(of.n), residual, rank)
        mean, zero_one, skewness, kurtosis = map(cut, self._features)
        if self.clusters is not None:
            zero = np.zeros(())
            return sums, PairLaw(mean, zero_one, zero, zero, clusters=ClusterSums(*map(cut, self.clusters)))
        if self.logistic is not None:
            score, null_variance, skewness, kurtosis = map(cut, self.logistic)
            return sums._replace(products=score), PairLaw(mean, zero_one, skewness, kurtosis, null_variance)
        if self._strata is not None:
            return sums, self._law_within(sums, mean, zero_one, labels, features)
        n, share = np.asarray(sums.n, dtype=np.float64), sums.positives / np.maximum(sums.n, 1)
        with np.errstate(invalid="ignore"):  # of constant features and labels
            if self._targets is None:
                of_labels = skewness_of_share(share), kurtosis_of_share(share)
            else:
                of_labels = self._targets.skewness[labels], self._targets.kurtosis[labels]
            if self._test == "logistic":  # labels are independent draws, not shuffled ones
                kurtosis = kurtosis + 3
            skewness, kurtosis = skewness * of_labels[0] / np.sqrt(n), kurtosis * of_labels[1] / n
            if self._targets is not None or self._test == "rank":  # a test that needs no correction is t or normal
                corrected = (np.abs(skewness) > SKEWED) | (kurtosis > PEAKED)
                skewness, kurtosis = skewness * corrected, kurtosis * corrected
            variance: Array | None = None
            if self._test != "t":
                variance = sums.m2 * sums.label_m2 / (n - (self._test == "rank"))
        return sums, PairLaw(mean, zero_one, skewness, kurtosis, variance)

    def _law_within(self, sums: Sums, mean: Array, zero_one: Any, labels: NDArray[np.intp], features: Any) -> PairLaw:
        """Return the law where labels are shuffled within strata; what covariates take of the variance is taken."""
        shapes, place = self._strata, self._place[labels] if len(self.unknown) else np.zeros_like(labels[:1])
        assert shapes is not None
        assert sums.residual_m2 is not None
        strata, squares, spread = [], np.zeros(()), np.zeros(())
        for rows, central, positives in zip(shapes.rows, shapes.central, shapes.positives, strict=True):
            n, own = rows[place], positives[labels]
            if isinstance(features, slice):
                powers = tuple(central[place[:, 0], i, features] for i in range(3))
            else:
                powers = tuple(central[place, i, features] for i in range(3))
            strata.append((n, own, *powers))
            squares = squares + powers[0]
            spread = spread + own * (1 - own / np.maximum(n, 1))
        variance, skewness, kurtosis = law_within(strata)
        variance = variance * quotient(sums.m2, squares) * quotient(sums.residual_m2, spread)
        return PairLaw(mean, zero_one, skewness, kurtosis, variance)


def _whole_numbers(moments: LabelMoments, zero_one: NDArray[np.bool_]) -> tuple[bool, bool]:
    """Return whether sums are those of whole numbers, and whether these look like counts that are not normalised.

    Counts of genes or words are mostly 0, and vary by more than a Poisson variable with their mean: of most
    features that are not 0/1, the mean is below 1 and the variance above it. Genotypes 0, 1, 2 vary by less.
    """
    total, mean = moments.n * moments.mean, moments.mean[~zero_one]
    squares = moments.m2 + total * moments.mean
    near = [np.abs(sums - np.rint(sums)) <= ROUNDING * (1 + squares) for sums in (total, squares)]
    whole = len(mean) > 0 and bool(np.logical_and(*near).all() and (mean >= 0).all())
    spread = (mean < 1) & (moments.m2[~zero_one] > moments.n * mean)
    return whole, whole and 2 * int(np.count_nonzero(spread)) > len(spread)


class CountTests:
    """Tests from counts of codes: `code_tests`.

    Parameters
    ----------
    results : float64 array, shape (4, q, d) or (6, q, d)
        Those within strata have the rows where labels are known, and those that have them, behind.
    ordered : bool array, shape (d,)
        Features whose codes have an order.
    test : int
        Number of the test.
    n : int or float
    positives : array, shape (q,)
    """

    def __init__(self, results: Any, ordered: NDArray[np.bool_], test: int, n: Any, positives: NDArray[Any]) -> None:
        self.shape: tuple[int, int] = results.shape[1:]
        self._results, self._ordered, self._test = results, ordered, test
        self._n, self._positives = np.asarray(n).reshape(-1, 1), positives[:, np.newaxis]

    def groups(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> Array:
        return np.full((4, len(labels)), np.nan)  # counts of codes have no means

    def tile(self, features: slice) -> PairTests:
        return self._tests(self._results[..., features], self._ordered[features], self._n, self._positives)

    def at(self, labels: NDArray[np.intp], features: NDArray[np.intp]) -> PairTests:
        n = np.broadcast_to(self._n, (self.shape[0], 1))
        results = self._results[:, labels, features]
        return self._tests(results, self._ordered[features], n[labels, 0], self._positives[labels, 0])

    def _tests(self, results: Any, ordered: NDArray[np.bool_], n: Any, positives: Any) -> PairTests:
        information, statistic, order, direction, *known = results
        n, positives = (each.astype(self._positives.dtype) for each in known) if known else (n, positives)
        sign = np.where(ordered & (direction < 0), -1.0, 1.0)
        kind = np.where(ordered, TREND, INFORMATION)
        corrected = np.abs(direction) > 1
        effect, order = sign * information, np.where(np.isnan(order), np.inf, order)
        p, test = p_of_order(order), np.array(self._test)
        return PairTests(n, positives, effect, sign * statistic, p, order, corrected, kind, test)
