"""Tests of labels and features, a p-value each, from sums and counts alone: no permutations, and no rows.

The law of a pair's statistic under independence is known from what the reading has summed up (Pitman 1937 for moments
of the permutation law): Student's t where both are frequent, the hypergeometric one for rare 0/1 pairs, and between
them a gamma law with the skewness of the pair.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import special

from mlfs_dask.blocks.entropy import information
from mlfs_dask.blocks.pair_scores import Counts, Sums
from mlfs_dask.typing import Array

#: Skewness of a pair above which its score is r √(n − 1), whose variance is 1 for any data: the denominator of t
#: is no estimate any more where one row may be all of the covariance.
SKEWED = 0.3

#: Smallest term of a tail, relative to its sum, that is added.
_NEGLIGIBLE = 1e-17

#: Names of effects, and their numbers.
EFFECTS = ("log odds ratio", "difference of means", "information", "information, trend", "partial slope")
LOG_ODDS, DIFFERENCE, INFORMATION, TREND, SLOPE = range(len(EFFECTS))


class PairTests(NamedTuple):
    """Tests of pairs; arrays that broadcast to the shape of `p_value`.

    Attributes
    ----------
    n, positives : array
        Rows where the label is known, and those that have it.
    effect, statistic : float64 array
        Their sign is the direction. NaN where nothing can be tested: feature or label is the same in every known row.
    p_value : float64 array
        Two-sided; NaN where nothing can be tested.
    corrected : bool array
        Whether the p-value is that of a skewed law.
    kind : int array
        Numbers of `EFFECTS`.
    """

    n: NDArray[Any]
    positives: NDArray[Any]
    effect: Array
    statistic: Array
    p_value: Array
    corrected: NDArray[np.bool_]
    kind: NDArray[Any]

    @property
    def order(self) -> Array:
        """Rising from the surest pair; where p-values vanish, by the statistic. Infinite where nothing is tested."""
        return np.where(self.p_value > 0, self.p_value, np.where(np.isnan(self.p_value), np.inf, -abs(self.statistic)))


class FeatureLaw(NamedTuple):
    """What a test has to know of features beside `Sums`; arrays that broadcast to (p, w).

    Attributes
    ----------
    mean : float64 array
        Over the rows of the sums.
    skewness : float64 array
    zero_one : bool array
        Features whose values are 0 and 1 alone.
    """

    mean: Array
    skewness: Array
    zero_one: NDArray[np.bool_]


def correlation_tests(sums: Sums, law: FeatureLaw) -> PairTests:
    """Tests of the correlation of labels and features; of means, slope and correlation they are the same.

    Parameters
    ----------
    sums : Sums
        All of them arrays that broadcast to (p, w), n included; covariates have taken `rank` degrees of freedom.
    law : FeatureLaw

    Returns
    -------
    PairTests
        The statistic is t on n − 2 degrees of freedom. Of 0/1 features the effect is the log odds ratio, with
        one half added to every count (Haldane, Anscombe), of others the difference of means.

    Notes
    -----
    Rare labels and rare or skewed features make a t-test wrong by orders of magnitude: with 0.05 expected
    co-occurrences, a single one is 4.2 standard deviations. The skewness of a pair under independence is
    γ = skew(x) skew(y)/√n. On its heavy side the p-value is the larger of that of t and that of a gamma law of this
    skewness (Pearson III). Where a cell of two 0/1 columns has less than 1 / `SKEWED`² expected rows, it is that of
    the hypergeometric law, half of the observed count's probability being added (mid-p).

    References
    ----------
    E. J. G. Pitman, "Significance tests which may be applied to samples from any populations. II. The correlation
    coefficient test", Supplement to the Journal of the Royal Statistical Society 4 (1937) 225-232,
    doi:10.2307/2983647. H. O. Lancaster, "Significance tests in discrete distributions", Journal of the American
    Statistical Association 56 (1961) 223-234, doi:10.1080/01621459.1961.10482105, for mid-p.
    """
    n, positives = np.asarray(sums.n, dtype=np.float64), np.asarray(sums.positives, dtype=np.float64)
    others, degrees = n - positives, n - 2 - sums.rank
    with np.errstate(divide="ignore", invalid="ignore"):
        spread = positives * others / n if sums.residual_m2 is None else sums.residual_m2
        r = np.clip(sums.products / np.sqrt(sums.m2 * spread), -1.0, 1.0)
        t = r * np.sqrt(degrees / (1 - r * r))
        share = positives / n
        skewness = law.skewness * skewness_of_share(share) / np.sqrt(n)
        effect = sums.products / spread
    tested = (sums.m2 > 0) & (spread > 0) & (degrees > 0)
    t = np.where(tested, t, np.nan)
    p = 2 * special.stdtr(np.broadcast_to(degrees, t.shape), -np.abs(t))
    corrected = tested & (np.abs(skewness) > SKEWED)
    score = np.where(corrected, np.abs(r) * np.sqrt(np.maximum(n - 1 - sums.rank, 0)), np.abs(t))
    heavy = tested & np.isfinite(score) & _on_heavy_side(np.copysign(score, r), skewness)
    if heavy.any():
        p[heavy] = np.maximum(p[heavy], 2 * _gamma_tail(score[heavy], np.abs(skewness[heavy])))
    kind = np.where(law.zero_one, LOG_ODDS, DIFFERENCE)
    if law.zero_one.any():
        counted = sums.residual_m2 is None and np.asarray(sums.positives).dtype.kind in "iu"
        both, ones = sums.products + positives * law.mean, n * law.mean
        if counted:
            both, ones = np.rint(both), np.rint(ones)
        with np.errstate(divide="ignore", invalid="ignore"):
            cells = both, positives - both, ones - both, others - ones + both
            odds = np.log((cells[0] + 0.5) * (cells[3] + 0.5) / ((cells[1] + 0.5) * (cells[2] + 0.5)))
            rarest = np.minimum(positives, others) * np.minimum(ones, n - ones) / n
        effect = np.where(law.zero_one, odds, effect)
        exact = tested & law.zero_one & (rarest < 1 / SKEWED**2) & counted
        if exact.any():
            n_exact, positives_exact, ones_exact, both_exact = (
                np.broadcast_to(array, exact.shape)[exact] for array in (n, positives, ones, both)
            )
            p[exact] = hypergeometric_mid_p(both_exact, n_exact, positives_exact, ones_exact)
            corrected = corrected | exact
    effect = np.where(tested, effect, np.nan)
    return PairTests(np.asarray(sums.n), np.asarray(sums.positives), effect, t, np.minimum(p, 1.0), corrected, kind)


def code_tests(counts: Counts) -> Array:
    """Tests of the information of labels and codes, shape (3, p, w): information, p-value, and direction.

    The direction is the sign of the trend over rising codes, doubled where the p-value is corrected.

    Notes
    -----
    The statistic is G = 2 n M, which has the χ² law on (codes − 1) degrees of freedom where all cells expect some rows.
    Where a code with the label is too rare or too skewed for that, the p-value is the least of those of the single
    codes, each as of a 0/1 feature (`correlation_tests`), times their number (Bonferroni).
    """
    shared, n = information(counts), np.asarray(counts.n, dtype=np.float64)
    some = counts.marginal > 0
    codes = np.count_nonzero(some, axis=0)
    p = special.chdtrc(np.maximum(codes - 1, 1), 2 * n * shared)
    least, corrected, trend = np.ones(shared.shape), np.zeros(shared.shape, bool), np.zeros(shared.shape)
    for code, (joint, rows) in enumerate(zip(counts.joint, counts.marginal, strict=True)):
        share = rows / n
        products, m2 = joint - counts.positives * share, rows * (n - rows) / n
        law = FeatureLaw(share, skewness_of_share(share), np.ones((1, 1), bool))
        tested = correlation_tests(Sums(products, m2, counts.positives, n), law)
        least = np.fmin(least, tested.p_value)
        corrected |= tested.corrected
        trend += code * products
    p = np.where(corrected, np.minimum(least * np.where(codes > 2, codes, 1), 1), p)
    varies = (codes > 1) & (counts.positives > 0) & (counts.positives < n)
    return np.where(varies, np.stack([shared, p, np.sign(trend) * (1 + corrected)]), np.nan)


def skewness_of_share(share: Array) -> Array:
    """Skewness of a 0/1 column of which a share is 1; infinite or NaN of a constant one.

    >>> skewness_of_share(np.array([0.5, 0.1])).round(3)
    array([0.   , 2.667])
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        skewness: Array = (1 - 2 * share) / np.sqrt(share * (1 - share))
    return skewness


def _on_heavy_side(statistics: Array, skewness: Array) -> NDArray[np.bool_]:
    """Which statistics, in standard deviations, lie in the heavier tail of their law."""
    with np.errstate(invalid="ignore"):  # of infinite ones
        heavier = statistics * skewness > 0
    # Below one standard deviation the heavy side is the lighter one.
    result: NDArray[np.bool_] = heavier & (np.abs(statistics) > 1) & (np.abs(skewness) > 1e-3)
    return result


def _gamma_tail(score: Array, skewness: Array) -> Array:
    """P(score or more) of a gamma law with mean 0, variance 1 and this skewness, above 0 (Pearson III)."""
    shape = 4 / skewness**2
    tail: Array = special.gammaincc(shape, shape + score * np.sqrt(shape))
    return tail


def skewed_scores(statistics: Array, skewness: Array) -> Array:
    """Standard normal scores of statistics whose law is skewed: on the heavy side, those of a gamma law's tail.

    Parameters
    ----------
    statistics, skewness : float64 array
        Of one shape.

    Examples
    --------
    >>> skewed_scores(np.array([4.0, -4.0, 4.0]), np.array([1.0, 1.0, 0.0])).round(2)
    array([ 2.83, -4.  ,  4.  ])
    """
    scores = statistics.copy()
    heavy = _on_heavy_side(statistics, skewness)
    size = np.abs(statistics[heavy])
    tail = np.maximum(_gamma_tail(size, np.abs(skewness[heavy])), np.finfo(float).tiny)
    scores[heavy] = np.sign(statistics[heavy]) * np.minimum(size, -special.ndtri(tail))
    return scores


def hypergeometric_mid_p(both: Array, n: Array, positives: Array, ones: Array) -> Array:
    """Two-sided mid-p of the number of rows that have two properties, as the margins are given.

    It is twice the smaller tail, to which the observed number counts half. Numbers are summed outwards from the
    observed one, as many as matter: few where a cell is rare.

    Parameters
    ----------
    both, n, positives, ones : float64 array, shape (m,)
        Whole numbers: rows with both, all rows, those with either.

    Examples
    --------
    >>> hypergeometric_mid_p(*np.array([[3.0], [6.0], [3.0], [3.0]]))  # 2 * 1/2 * 1/20
    array([0.05])
    """
    cells = np.stack([both, positives - both, ones - both, n - positives - ones + both])
    own = np.exp(
        _log_factorials(positives, n - positives, ones, n - ones)
        - special.gammaln(n + 1)
        - special.gammaln(cells + 1).sum(axis=0)
    )
    # Outwards: the two cells that grow, and the two that shrink.
    outwards = both * n >= positives * ones
    grow = np.where(outwards, cells[[0, 3]], cells[[1, 2]])
    shrink = np.where(outwards, cells[[1, 2]], cells[[0, 3]])
    tail, term, active = own / 2, own.copy(), np.arange(len(own))
    while len(active):
        grow += 1
        term = term * (shrink[0] * shrink[1]) / (grow[0] * grow[1])
        shrink -= 1
        tail[active] += term
        going = term > _NEGLIGIBLE * tail[active]
        if not going.all():
            active, term, grow, shrink = active[going], term[going], grow[:, going], shrink[:, going]
    p: Array = 2 * np.minimum(tail, 1 - tail)
    return p


def _log_factorials(*numbers: Array) -> Array:
    total: Array = np.sum([special.gammaln(number + 1) for number in numbers], axis=0)
    return total
