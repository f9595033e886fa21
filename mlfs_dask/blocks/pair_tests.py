"""Tests of label-feature pairs from sums and counts alone, without permutations.

The null distribution of a pair's statistic follows from the sums (Pitman 1937, for moments of the permutation
distribution): Student's t for frequent values, the hypergeometric distribution for rare 0/1 pairs, and in between a
distribution with the pair's skewness and kurtosis. Within strata it is the sum of the strata's distributions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from mlfs_dask.blocks.contingency import general_association
from mlfs_dask.blocks.entropy import information
from mlfs_dask.blocks.pair_scores import Counts, StratifiedCounts, Sums, quotient
from mlfs_dask.typing import Array

#: Skewness and excess kurtosis of a pair from which its score is r √(n − 1), with variance 1 for any data: if one row
#: may contribute all of the covariance, the denominator of t is no longer an estimate.
SKEWED, PEAKED = 0.3, 0.3

#: Excess kurtosis from which the saddlepoint of the difference of two gamma variables is too low.
SPIKED = 10.0

#: Skewness and excess kurtosis up to which the tails of t apply.
_FLAT = 1e-3

#: Smallest term of a tail to be added, relative to the sum.
_NEGLIGIBLE = 1e-17

#: Names of effects, with their numbers.
EFFECTS = (
    "log odds ratio",
    "difference of means",
    "information",
    "information, trend",
    "partial slope",
    "slope",
    "rank-biserial",
    "log odds per unit",
)
LOG_ODDS, DIFFERENCE, INFORMATION, TREND, PARTIAL_SLOPE, SLOPE, RANK_BISERIAL, LOG_ODDS_PER_UNIT = range(len(EFFECTS))

#: Names of tests, with their numbers.
TESTS = (
    "t",
    "exact",
    "z within strata",
    "CMH",
    "G",
    "Pearson",
    "partial t",
    "knockoffs",
    "t of clusters",
    "rank sum",
    "logistic score",
)
T, EXACT, WITHIN, CMH, G, PEARSON, PARTIAL_T, KNOCKOFFS, CLUSTERED, RANK_SUM, LOGISTIC = range(len(TESTS))


class PairTests(NamedTuple):
    """Test results of pairs; arrays that broadcast to the shape of `p_value`.

    Attributes
    ----------
    n, positives : array
        Rows in which the label is known, and rows with the label.
    effect, statistic : float64 array
        Signed by direction. NaN without a test: feature or label is constant in the known rows.
    p_value : float64 array
        Two-sided; NaN without a test.
    order : float64 array
        Sort key, ascending from the most significant pair: log10 of the p-value, also below the smallest float64.
        Infinite without a test.
    corrected : bool array
        True if the p-value is that of a skewed or heavy-tailed distribution.
    kind, test : int array
        Indices into `EFFECTS` and `TESTS`.
    error : float64 array
        Standard error of the effect; NaN where there is none.
    degrees : float64 array
        Degrees of freedom of Student's t for an interval of the effect; infinite for the normal distribution.
    """

    n: NDArray[Any]
    positives: NDArray[Any]
    effect: Array
    statistic: Array
    p_value: Array
    order: Array
    corrected: NDArray[np.bool_]
    kind: NDArray[Any]
    test: NDArray[Any]
    error: Array = np.array(np.nan)
    degrees: Array = np.array(np.inf)

    @property
    def interval(self) -> tuple[Array, Array]:
        """Ends of the 95 % interval of the effect."""
        margin = special.stdtrit(self.degrees, 0.975) * self.error
        return self.effect - margin, self.effect + margin


class PairLaw(NamedTuple):
    """Moments of pairs for tests, besides `Sums`; arrays that broadcast to (p, w).

    Attributes
    ----------
    mean : float64 array
        Means of features over the rows of the sums.
    zero_one : bool array
        Mask of the 0/1 features.
    skewness, kurtosis : float64 array
        Skewness and excess kurtosis of the products' null distribution.
    variance : float64 array, or None
        Null variance of the products within strata; None: without strata it follows from the sums.
    clusters : ClusterSums or None
        Sums over the clusters of rows.
    """

    mean: Array
    zero_one: NDArray[np.bool_]
    skewness: Array
    kurtosis: Array
    variance: Array | None = None
    clusters: ClusterSums | None = None


class ClusterSums(NamedTuple):
    """Sums over clusters of the score u = Σ x̃ ỹ and the scatter R = Σ ỹ² of each cluster, of residuals x̃ and ỹ.

    Attributes
    ----------
    squares, cross : float64 array, shape (p, w)
        Σ u² and Σ u R.
    scatter : float64 array, shape (p, 1), or (p, w) with R = Σ x̃²
        Σ R².
    clusters : int64 array, shape (p, 1)
        Clusters with known rows of each label.
    """

    squares: Array
    cross: Array
    scatter: Array
    clusters: NDArray[np.int64]


def law_within(strata: Iterable[tuple[Array, ...]]) -> tuple[Array, Array, Array]:
    """Return variance, skewness and excess kurtosis of Σ (x − mean) y for labels shuffled within strata.

    Parameters
    ----------
    strata : iterable of (n, positives, x2, x3, x4)
        For each stratum: rows, rows with the label, and sums of the second to fourth power of x − mean; arrays that
        broadcast to (p, w).

    Notes
    -----
    The variance is Σ Sxx Syy/(n − 1) over strata, as in Mantel and Haenszel for 0/1 features. Cumulants of strata
    are added. The fourth cumulant of a stratum is that of n independent products with the same cumulants.
    """
    variance: Any = 0.0
    cumulants: list[Any] = [0.0, 0.0, 0.0]
    for n, positives, x2, x3, x4 in strata:
        rows = np.maximum(n, 1.0)
        share = positives / rows
        spread = share * (1 - share)
        kurtosis = x4 - 3 * x2 * x2 / rows  # times n, like the next line
        variance = variance + x2 * spread * (rows / np.maximum(rows - 1, 1))
        cumulants[0] = cumulants[0] + x2 * spread
        cumulants[1] = cumulants[1] + x3 * (spread * (1 - 2 * share))
        cumulants[2] = cumulants[2] + kurtosis * (spread * (1 - 6 * spread))
    second, third, fourth = cumulants
    with np.errstate(divide="ignore", invalid="ignore"):
        return variance, third / second**1.5, fourth / second**2


def correlation_tests(sums: Sums, law: PairLaw) -> PairTests:
    """Test the correlation of labels and features; tests of means, slope and correlation are equal.

    Parameters
    ----------
    sums : Sums
        Arrays that broadcast to (p, w), including n; covariates have used `rank` degrees of freedom.
    law : PairLaw

    Returns
    -------
    PairTests
        The statistic is t with n − 2 degrees of freedom; within strata a normal score, whose square is the
        Cochran-Mantel-Haenszel statistic for 0/1 features. The effect is the log odds ratio for 0/1 features, with one
        half added to every count (Haldane, Anscombe), and the difference of means otherwise. Its standard error is
        Woolf's for log odds; of a difference, that of the test: pooled over rows with and without the label, with
        n − 2 degrees of freedom, or within strata.
        With clusters the effect is a difference of means for all features, its standard error is that of a linear model
        with clusters (CR1, with the factor G / (G − 1)), and the statistic is t with G − 1 degrees of freedom.

    Notes
    -----
    Rare labels and rare or skewed features make a t-test wrong by orders of magnitude: with 0.05 expected
    co-occurrences, a single one is 4.2 standard deviations. The skewness of a pair under independence is
    γ = skew(x) skew(y)/√n, its excess kurtosis κ = kurt(x) kurt(y)/n. The p-value is the larger of two: that of t, and
    that of the difference of two gamma variables with this skewness and kurtosis (of one gamma variable, Pearson III,
    if κ ≤ 3/2 γ²). If a cell of two 0/1 columns has an expected count below 1 / `SKEWED`², the p-value is
    hypergeometric, with half of the observed count's probability (mid-p).

    With G clusters, the statistic is that of one mean, applied to the scores u of the clusters: T √((G − 1) / (G − T²))
    with T² = (Σ u)² / Σ u², the robust score statistic of generalised estimating equations with independence
    (Rotnitzky & Jewell 1990).

    If adding one half turns the sign of a log odds ratio, Peto's is used: observed minus expected rows, divided by
    their variance (Yusuf et al. 1985).

    References
    ----------
    E. J. G. Pitman, "Significance tests which may be applied to samples from any populations. II. The correlation
    coefficient test", Supplement to the Journal of the Royal Statistical Society 4 (1937) 225-232,
    doi:10.2307/2983647. S. Yusuf, R. Peto, J. Lewis, R. Collins, P. Sleight, "Beta blockade during and after myocardial
    infarction", Progress in Cardiovascular Diseases 27 (1985) 335-371, doi:10.1016/S0033-0620(85)80003-7.
    H. O. Lancaster, "Significance tests in discrete distributions", Journal of the American
    Statistical Association 56 (1961) 223-234, doi:10.1080/01621459.1961.10482105, for mid-p. R. Lugannani, S. Rice,
    "Saddle point approximation for the distribution of the sum of independent random variables", Advances in Applied
    Probability 12 (1980) 475-490, doi:10.2307/1426607. A. Rotnitzky, N. P. Jewell, "Hypothesis testing of regression
    parameters in semiparametric generalized linear models for cluster correlated data", Biometrika 77 (1990) 485-497,
    doi:10.1093/biomet/77.3.485. N. Mantel, "Chi-square tests with one degree of freedom",
    Journal of the American Statistical Association 58 (1963) 690-700, doi:10.1080/01621459.1963.10500879.
    """
    n, positives = np.asarray(sums.n, dtype=np.float64), np.asarray(sums.positives, dtype=np.float64)
    others, degrees = n - positives, n - 2 - sums.rank
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = positives * others / n if sums.residual_m2 is None else sums.residual_m2
        effect = sums.products / spread
        tested = (sums.m2 > 0) & (spread > 0) & (degrees > 0)
        skewness, kurtosis = (np.where(np.isfinite(a), a, 0.0) for a in (law.skewness, law.kurtosis))
        corrected = tested & ((np.abs(skewness) > SKEWED) | (kurtosis > PEAKED))
        if law.clusters is not None:
            return _cluster_tests(sums, law.clusters, np.where(tested, effect, np.nan), spread)
        if law.variance is None:
            r = np.clip(sums.products / np.sqrt(sums.m2 * spread), -1.0, 1.0)
            statistic = r * np.sqrt(degrees / (1 - r * r))
            score = np.where(corrected, np.abs(r) * np.sqrt(np.maximum(n - 1 - sums.rank, 0)), np.abs(statistic))
            residual = np.maximum(sums.m2 - sums.products * effect, 0.0)
            error, freedom = np.sqrt(residual / (degrees * spread)), degrees
        else:
            tested &= law.variance > 0
            statistic = sums.products / np.sqrt(law.variance)
            score, freedom = np.abs(statistic), np.array(np.inf)
            error = np.sqrt(law.variance) / spread
    statistic = np.where(tested, statistic, np.nan)
    shape = statistic.shape
    if law.variance is None:
        log_p = log_p_of_t(np.abs(statistic), np.broadcast_to(degrees, shape))
    else:
        log_p = np.log(2) + special.log_ndtr(-np.abs(statistic))
    heavy = tested & np.isfinite(score) & (score > 1) & ((np.abs(skewness) > _FLAT) | (kurtosis > _FLAT))
    if heavy.any():
        skewed = np.broadcast_to(skewness, shape)[heavy] * np.sign(statistic[heavy])
        tail = log_heavy_tail(score[heavy], skewed, np.broadcast_to(kurtosis, shape)[heavy])
        log_p[heavy] = np.maximum(log_p[heavy], np.log(2) + tail)
    kind = np.where(law.zero_one, LOG_ODDS, DIFFERENCE)
    test = np.full(shape, T) if law.variance is None else np.broadcast_to(np.where(law.zero_one, CMH, WITHIN), shape)
    if law.zero_one.any() and sums.residual_m2 is None:
        counted = np.asarray(sums.positives).dtype.kind in "iu"
        both, ones = sums.products + positives * law.mean, n * law.mean
        if counted:
            both, ones = np.rint(both), np.rint(ones)
        cells = np.stack(np.broadcast_arrays(both, positives - both, ones - both, others - ones + both))
        with np.errstate(divide="ignore", invalid="ignore"):
            smoothed = cells + 0.5
            odds = np.log(smoothed[0] * smoothed[3] / (smoothed[1] * smoothed[2]))
            turned, information = odds * sums.products < 0, sums.m2 * spread / (n - 1)
            odds = np.where(turned, sums.products / information, odds)
            woolf = np.sqrt(np.where(turned, 1 / information, (1 / smoothed).sum(axis=0)))
            rarest = np.minimum(positives, others) * np.minimum(ones, n - ones) / n
        effect, error = np.where(law.zero_one, odds, effect), np.where(law.zero_one, woolf, error)
        freedom = np.where(law.zero_one, np.inf, freedom)
        exact = tested & law.zero_one & (rarest < 1 / SKEWED**2) & counted & (law.variance is None)
        if exact.any():
            n_exact, positives_exact, ones_exact, both_exact = (
                np.broadcast_to(array, exact.shape)[exact] for array in (n, positives, ones, both)
            )
            log_p[exact] = _log_mid_p(both_exact, n_exact, positives_exact, ones_exact)
            corrected = corrected | exact
            test = np.where(exact, EXACT, test)
    if sums.residual_m2 is not None:  # effects of a linear model
        kind = np.full(kind.shape, DIFFERENCE)
    effect, error = np.where(tested, effect, np.nan), np.where(tested, error, np.nan)
    order = _order(np.minimum(log_p, 0.0))
    n_rows, with_label = np.asarray(sums.n), np.asarray(sums.positives)
    p = p_of_order(order)
    return PairTests(n_rows, with_label, effect, statistic, p, order, corrected, kind, test, error, freedom)


def rank_effects(tests: PairTests) -> PairTests:
    """Return tests of midranks with the rank-biserial correlation 2 A − 1, A being the area under the ROC curve.

    References
    ----------
    J. A. Hanley, B. J. McNeil, "The meaning and use of the area under a receiver operating characteristic (ROC) curve",
    Radiology 143 (1982) 29-36, doi:10.1148/radiology.143.1.7063747, for the standard error.
    """
    effect = tests.effect * 2 / np.maximum(tests.n, 1)
    area, n_in, n_out = (1 + effect) / 2, tests.positives, tests.n - tests.positives
    with np.errstate(divide="ignore", invalid="ignore"):
        both_in, both_out = area / (2 - area), 2 * area**2 / (1 + area)
        variance = area * (1 - area) + (n_in - 1) * (both_in - area**2) + (n_out - 1) * (both_out - area**2)
        error = 2 * np.sqrt(np.maximum(variance, 0.0) / (n_in * n_out))
    return tests._replace(effect=effect, error=error, kind=np.array(RANK_BISERIAL), test=np.array(RANK_SUM))


def logistic_effects(tests: PairTests, score: Array, variance: Array) -> PairTests:
    """Return score tests with the first step of a logistic regression from no effect: the score by its variance."""
    tested = ~np.isnan(tests.effect)
    effect, error = (quotient(value, variance) for value in (score, np.sqrt(variance)))
    effect, error = (np.where(tested, value, np.nan) for value in (effect, error))
    return tests._replace(effect=effect, error=error, kind=np.array(LOG_ODDS_PER_UNIT), test=np.array(LOGISTIC))


def cluster_error(clusters: ClusterSums, slope: Array, spread: Array) -> Array:
    """Return the standard error (CR1) of a slope, of a regression on what has the sum of squares `spread`."""
    G = clusters.clusters
    residual = clusters.squares - slope * (2 * clusters.cross - slope * clusters.scatter)
    return np.sqrt(np.maximum(residual, 0.0) * (G / (G - 1))) / spread


def _cluster_tests(sums: Sums, clusters: ClusterSums, effect: Array, spread: Array) -> PairTests:
    """Test pairs by sums over clusters; `effect` is NaN without a test, and `spread` is M2 of each label."""
    G = np.asarray(clusters.clusters, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        squares = np.minimum(sums.products**2 / clusters.squares, G)  # more is rounding
        statistic = np.sign(effect) * np.sqrt(squares * ((G - 1) / (G - squares)))
        error = cluster_error(clusters, effect, spread)
    tested = ~np.isnan(effect) & (G > 2) & (clusters.squares > 0)
    statistic = np.where(tested, statistic, np.nan)
    order = _order(np.minimum(log_p_of_t(np.abs(statistic), np.broadcast_to(G - 1, statistic.shape)), 0.0))
    no, kind, test = np.zeros(statistic.shape, bool), np.array(DIFFERENCE), np.array(CLUSTERED)
    effect, error = np.where(tested, effect, np.nan), np.where(tested, error, np.nan)
    p, n, positives = p_of_order(order), np.asarray(sums.n), np.asarray(sums.positives)
    return PairTests(n, positives, effect, statistic, p, order, no, kind, test, error, G - 1)


def _order(log_p: Array) -> Array:
    """Return `PairTests.order` from natural logarithms of p-values, NaN without a test."""
    return np.where(np.isnan(log_p), np.inf, log_p / np.log(10))


def p_of_order(order: Array) -> Array:
    """Return p-values from `PairTests.order`, NaN without a test."""
    return np.where(np.isinf(order) & (order > 0), np.nan, np.exp(order * np.log(10)))


#: P-values below which their logarithms are computed separately.
_UNDERFLOWING = 1e-290


def log_p_of_t(t: Array, degrees: Array) -> Array:
    """Return logarithms of two-sided p-values of Student's t, NaN for NaN."""
    p = 2 * special.stdtr(degrees, -t)
    with np.errstate(divide="ignore"):
        log_p: Array = np.log(p)
    small = (p < _UNDERFLOWING) & np.isfinite(t)
    if small.any():
        a, squares = degrees[small] / 2, t[small] ** 2
        x = degrees[small] / (degrees[small] + squares)
        # Far in the tail, the continued fraction of the beta distribution converges fast (DLMF 8.17.22, backwards).
        fraction = np.ones(len(a))
        for m in range(30, 0, -1):
            even = m * (0.5 - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
            odd = -(a + m - 1) * (a + m - 0.5) * x / ((a + 2 * m - 2) * (a + 2 * m - 1))
            fraction = 1 + odd / (1 + even / fraction)
        log_p[small] = a * np.log(x) - 0.5 * np.log1p(degrees[small] / squares) - np.log(a) - special.betaln(a, 0.5)
        log_p[small] -= np.log(fraction)
    return log_p


def _log_p_of_chi2(statistic: Array, degrees: Array) -> Array:
    """Return logarithms of upper tails of χ², NaN for NaN."""
    p = special.chdtrc(degrees, statistic)
    with np.errstate(divide="ignore"):
        log_p: Array = np.log(p)
    small = (p < _UNDERFLOWING) & np.isfinite(statistic)
    if small.any():
        shape, half = degrees[small] / 2, statistic[small] / 2
        term = total = np.ones(len(half))
        for k in range(1, 40):  # asymptotic series in 1/x, whose terms decrease this far out
            term = term * (shape - k) / half
            total = total + term
        log_p[small] = (shape - 1) * np.log(half) - half - special.gammaln(shape) + np.log(total)
    return log_p


def code_tests(counts: Counts | StratifiedCounts, *, pearson: bool = False) -> Array:
    """Test labels against codes: information, statistic, `PairTests.order`, direction, (4, p, w); NaN without a test.

    Within strata there are two more rows: known rows of the label, and rows with the label.

    The direction is the sign of the trend over ascending codes, doubled if the p-value is corrected.

    Parameters
    ----------
    counts : Counts or StratifiedCounts
    pearson : bool
        Use Pearson's statistic instead of G.

    Notes
    -----
    The statistic is G = 2 n M, or Pearson's, with the χ² distribution on (codes − 1) degrees of freedom if all expected
    counts are large; within strata it is Cochran-Mantel-Haenszel's general association. For codes too rare or too
    skewed, the p-value is the smallest p-value of single codes, each tested as a 0/1 feature (`correlation_tests`),
    times their number (Bonferroni).
    """
    strata = counts.strata if isinstance(counts, StratifiedCounts) else (counts,)
    joint, marginal, positives, n = (
        np.sum([np.asarray(stratum[i], dtype=np.float64) for stratum in strata], axis=0) for i in range(4)
    )
    rows_known, n = n, np.maximum(n, 1.0)
    codes = np.count_nonzero(marginal > 0, axis=0)
    stratified = isinstance(counts, StratifiedCounts)
    if isinstance(counts, StratifiedCounts):
        shared, statistic = counts.pooled(information), general_association(counts)
    else:
        shared = information(counts)
        statistic = pearson_statistic(counts) if pearson else 2 * np.asarray(counts.n, dtype=np.float64) * shared
    log_p = _log_p_of_chi2(statistic, np.broadcast_to(np.maximum(codes - 1, 1), statistic.shape))
    least, corrected, trend = np.zeros(shared.shape), np.zeros(shared.shape, bool), np.zeros(shared.shape)
    varies = np.zeros(shared.shape, bool)
    for code in range(len(joint)):
        products, laws = np.zeros(shared.shape), []
        for stratum in strata:
            rows_of = np.maximum(np.asarray(stratum.n, dtype=np.float64), 1.0)
            rows, share = stratum.marginal[code], stratum.marginal[code] / rows_of
            products = products + stratum.joint[code] - stratum.positives * share
            x2 = rows * (1 - share)
            laws.append((rows_of, stratum.positives, x2, x2 * (1 - 2 * share), x2 * (1 - 3 * share * (1 - share))))
        variance, skewness, kurtosis = law_within(laws)
        share, m2 = marginal[code] / n, np.sum([law[2] for law in laws], axis=0)
        law = PairLaw(share, np.ones((1, 1), bool), skewness, kurtosis, variance if stratified else None)
        own_positives = counts.positives if isinstance(counts, Counts) else positives
        tested = correlation_tests(Sums(products, m2, own_positives, n), law)
        least = np.fmin(least, tested.order * np.log(10))
        corrected |= tested.corrected
        varies |= variance > 0
        trend += code * products
    log_p = np.where(corrected, np.minimum(least + np.log(np.where(codes > 2, codes, 1)), 0), log_p)
    results = np.stack([shared, statistic, log_p / np.log(10), np.sign(trend) * (1 + corrected)])
    known = [np.broadcast_to(a, shared.shape) for a in (rows_known, positives)] if stratified else []
    return np.concatenate([np.where(varies, results, np.nan), *(a[np.newaxis] for a in known)])


def pearson_statistic(counts: Counts) -> Array:
    """Return Pearson's χ² of labels and codes, shape (p, w)."""
    joint, marginal, positives, n = counts
    terms: Array = np.zeros(joint.shape[1:])
    for observed, share in zip(joint, marginal / n, strict=True):
        terms += quotient((observed - share * positives) ** 2, share)
    # 1/E summed over the rows with the label and those without: n / (share n_l (n − n_l)).
    terms *= quotient(np.asarray(n, dtype=np.float64), positives * (n - positives))
    return terms


def kurtosis_of_share(share: Array) -> Array:
    """Return the excess kurtosis of a 0/1 column with a share of ones; infinite or NaN for a constant one."""
    with np.errstate(divide="ignore", invalid="ignore"):
        kurtosis: Array = 1 / (share * (1 - share)) - 6
    return kurtosis


def skewness_of_share(share: Array) -> Array:
    """Return the skewness of a 0/1 column with a share of ones; infinite or NaN for a constant one.

    >>> skewness_of_share(np.array([0.5, 0.1])).round(3)
    array([0.   , 2.667])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness: Array = (1 - 2 * share) / np.sqrt(share * (1 - share))
    return skewness


def log_heavy_tail(score: Array, skewness: Array, kurtosis: Array) -> Array:
    """Return log P(score or more) for a distribution with mean 0, variance 1, given skewness and excess kurtosis.

    The distribution is the difference of two gamma variables of one scale, with a saddlepoint tail (Lugannani &
    Rice 1980), accurate to some percent. With no more kurtosis than a gamma variable, it is one gamma variable (Pearson
    III); above `SPIKED`, the gamma variable on this side gives an upper bound.

    Parameters
    ----------
    score : float64 array
        Positive.
    skewness, kurtosis : float64 array
        Arrays of the same shape.

    Examples
    --------
    >>> np.exp(log_heavy_tail(np.array([4.0, 4.0]), np.array([1.0, 0.0]), np.array([1.5, 1.5]))).round(5)
    array([0.00229, 0.00085])
    """
    kurtosis = np.maximum(kurtosis, 1.5 * skewness**2)
    scale = np.sqrt(kurtosis / 6)
    both = scale**-2.0  # sum of the two shapes; next, their difference
    more = np.clip(skewness / (2 * scale**3), -both, both)
    right, left = (both + more) / 2, (both - more) / 2
    log_tail = np.full(len(score), -np.inf)
    # One variable; or the second is almost always 0, and the tail of the first is an upper bound.
    single = (left <= 1e-9 * both) | (kurtosis > SPIKED)
    with np.errstate(divide="ignore"):
        log_tail[single] = np.log(special.gammaincc(right[single], more[single] + score[single] / scale[single]))
    double = ~np.isfinite(log_tail) & (right > 1e-9 * both)
    right, left, more, both, reach = (a[double] for a in (right, left, more, both, score / scale))
    # The saddlepoint in units of the scale solves right/(1 − u) − left/(1 + u) = more + reach.
    u = 2 * reach / (both + np.sqrt(both**2 + 4 * (more + reach) * reach))
    w = np.sqrt(2 * (right * (u + np.log1p(-u)) + left * (np.log1p(u) - u) + u * reach))
    v = u * np.sqrt(right / (1 - u) ** 2 + left / (1 + u) ** 2)
    normal = special.log_ndtr(-w)
    ratio = np.exp(-0.5 * w**2 - normal) / np.sqrt(2 * np.pi) * (1 / v - 1 / w)
    with np.errstate(divide="ignore"):  # a side almost without a tail
        log_tail[double] = normal + np.log1p(np.maximum(ratio, -1))
    return log_tail


def heavy_scores(statistics: Array, skewness: Array, kurtosis: Array) -> Array:
    """Return standard normal scores of statistics, reduced to the tails of a heavier distribution.

    Parameters
    ----------
    statistics, skewness, kurtosis : float64 array
        Arrays of one shape.

    Examples
    --------
    >>> heavy_scores(np.array([4.0, -4.0, 4.0]), np.array([1.0, 1.0, 0.0]), np.zeros(3)).round(2)
    array([ 2.83, -4.  ,  4.  ])
    """
    scores, size = statistics.copy(), np.abs(statistics)
    heavy = (size > 1) & ((np.abs(skewness) > _FLAT) | (kurtosis > _FLAT))
    log_tail = log_heavy_tail(size[heavy], skewness[heavy] * np.sign(statistics[heavy]), kurtosis[heavy])
    bound = -special.ndtri_exp(np.minimum(log_tail, np.log(0.5)))
    scores[heavy] = np.sign(statistics[heavy]) * np.minimum(size[heavy], bound)
    return scores


def _log_mid_p(both: Array, n: Array, positives: Array, ones: Array) -> Array:
    """Return log of the two-sided mid-p of the number of rows with two properties, given the margins.

    It is twice the smaller tail, with half of the observed number's probability. Terms are summed outwards from the
    observed number, as far as they matter: few if a cell is rare.

    Parameters
    ----------
    both, n, positives, ones : float64 array, shape (m,)
        Integers: rows with both properties, all rows, rows with either property.

    Examples
    --------
    >>> np.exp(_log_mid_p(*np.array([[3.0], [6.0], [3.0], [3.0]]))).round(9)  # 2 * 1/2 * 1/20
    array([0.05])
    """
    cells = np.stack([both, positives - both, ones - both, n - positives - ones + both])
    log_own = _log_factorials(positives, n - positives, ones, n - ones) - special.gammaln(n + 1)
    log_own -= special.gammaln(cells + 1).sum(axis=0)
    # Outwards: two cells grow, and two shrink.
    outwards = both * n >= positives * ones
    grow = np.where(outwards, cells[[0, 3]], cells[[1, 2]])
    shrink = np.where(outwards, cells[[1, 2]], cells[[0, 3]])
    # Relative to the probability of the observed number, which may be below the smallest float64.
    tail, term, active = np.full(len(log_own), 0.5), np.ones(len(log_own)), np.arange(len(log_own))
    while len(active):
        grow += 1
        term = term * (shrink[0] * shrink[1]) / (grow[0] * grow[1])
        shrink -= 1
        tail[active] += term
        going = term > _NEGLIGIBLE * tail[active]
        if not going.all():
            active, term, grow, shrink = active[going], term[going], grow[:, going], shrink[:, going]
    log_tail: Array = np.log(tail) + log_own
    # If rounding puts a tail above one half, use the other tail.
    other = np.log1p(-np.minimum(np.exp(log_tail), 1 - 1e-16))
    log_p: Array = np.log(2) + np.minimum(log_tail, np.where(log_tail > np.log(0.5), other, np.inf))
    return log_p


def _log_factorials(*numbers: Array) -> Array:
    total: Array = np.sum([special.gammaln(number + 1) for number in numbers], axis=0)
    return total
