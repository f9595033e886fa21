"""Scores of features, ranks, and what is said of them."""

from __future__ import annotations

import math
import numbers
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError, number_of, parameter
from mlfs_dask.typing import Array

#: Labels that a warning, and features that a refusal names.
SHOWN = 5

#: `n_features_to_select` where the data has to tell.
AUTO = "auto"

#: Significant bits of scores: twelve digits.
SCORE_BITS = 40

#: Significant bits of scores by a solve with X'X, whose rounding is that of other scores times the condition of the
#: matrix, 1e-11 and less, or by a loop that ends where W moves little: copies of a feature tie.
SOLVED_BITS = 30

#: Share of the resamples from which on a feature is said to be chosen again and again.
OFTEN = 0.9

#: Pairs of complementary halves from which on a bound of features chosen by chance is told: it falls little with more.
FEWEST_PAIRS = 20

#: A fraction 1 / RANK_TAIL of the resamples lies below the rank interval of a feature, and as many above: it is the
#: central 90 %.
RANK_TAIL = 20


@dataclass(frozen=True)
class Scores:
    """Result of `Method.score`.

    Attributes
    ----------
    scores : float64 array, shape (d,)
        Larger is better; never NaN.
    ranking : int64 array, shape (d,), or None
        Features, best first, if not by score with ties by lower index. Those that do not vary may stand anywhere.
    iterations : int
        Of the method's loop; 0 where there is none.
    converged : bool or None
        None where there is no loop, or its early stop is a part of the method.
    objective : sequence of float
        Value after every iteration.
    extra : mapping
        Further facts for the record, as plain data.
    warnings : sequence of Warning
        Warnings for the caller of `fit`.
    q_values : float64 array, shape (d,), or None
        Least false discovery rate at which each feature is discovered, with n_features_to_select="auto".
    discovered : bool array, shape (d,), or None
        The features to keep, with n_features_to_select="auto". They come first in the ranking, whatever their scores.
    resampled_scores : float64 array, shape (B, d), or None
        Scores of resampled rows.
    informative : bool or None
        Whether any feature is associated with any label. None: if any score is not 0.
    row_labels : Statistic or None
        Rule that recovers the labels of rows (`mlfs_dask.statistics.write_rows`).
    labels : float64 array, shape (n, q), or None
        Recovered labels of the rows that were fitted, where they are known of these rows alone.
    mean : float64 array, shape (d,), or None
        Means of the features; by these such rows are known again.
    shared : float64 array, shape (d,), or None
        What every feature shares with those that were chosen one after another, but the last.
    """

    scores: Array
    ranking: NDArray[np.int64] | None = None
    iterations: int = 0
    converged: bool | None = None
    objective: Sequence[float] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)
    warnings: Sequence[Warning] = ()
    q_values: Array | None = None
    discovered: NDArray[np.bool_] | None = None
    resampled_scores: Array | None = None
    informative: bool | None = None
    row_labels: Any = None
    labels: Array | None = None
    mean: Array | None = None
    shared: Array | None = None

    def order(self, varies: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return features, best first; those that do not vary come last, by index.

        Parameters
        ----------
        varies : bool array, shape (d,)
        """
        if self.ranking is None:
            return rank(self.scores, varies)
        return np.concatenate([self.ranking[varies[self.ranking]], np.flatnonzero(~varies)])


def count_kept(
    n_features_to_select: int | float | str | None,
    d: int,
    *,
    name: str = "n_features_to_select",
    of: str = "features",
) -> int:
    """Return the number of features to keep out of `d`.

    Parameters
    ----------
    n_features_to_select : int, float or None
        A count from 1 to d; a fraction in (0, 1], of which at least one feature comes; None for half.
    d : int
    name, of : str
        What Python calls it, and what is counted, for messages.

    Raises
    ------
    UsageError

    Examples
    --------
    >>> count_kept(None, 7), count_kept(3, 7), count_kept(0.1, 7), count_kept(1.0, 7)
    (3, 3, 1, 7)
    """
    value: Any = n_features_to_select
    if value is None:
        return max(1, d // 2)
    known = "a count or a fraction in (0, 1]"
    if parameter(name) == name:  # the command line has no None
        known = "a count, a fraction in (0, 1], or None for half of the features"
    name = parameter(name)
    number = None if isinstance(value, (bool, np.bool_, str)) else value
    if isinstance(number, numbers.Integral):
        if 1 <= value <= d:
            return int(value)
        raise UsageError(
            f"{name} must be between 1 and the number of {of}, {d}; got {value}. "
            "Give a smaller count, or a fraction such as 0.1."
            if value > d
            else f"{name} must be at least 1; got {value}. Give {known}."
        )
    if isinstance(number, numbers.Real) and 0 < value <= 1:
        # The fraction that was meant: 0.29 * 100 is less than 29 in floating point.
        return max(1, int(d * Fraction(float(value)).limit_denominator(10**9)))
    raise UsageError(f"{name} must be {known}; got {value!r}.")


def uninformative_warning(
    title: str,
    *,
    constant: int,
    d: int,
    constant_labels: int,
    q: int,
    otherwise: str = "no feature is associated with any label",
    weighs_features: bool = False,
) -> UserWarning:
    """Return the warning of a method that cannot rank the features.

    Parameters
    ----------
    title : str
        Of the method.
    constant, d : int
        Features that are constant, and all.
    constant_labels, q : int
        Labels that are the same in every row where they are known, and all.
    otherwise : str
        The reason where neither all features nor all labels are.
    weighs_features : bool
        Whether the method weighs features against one another, which labels have no part in.
    """
    reasons = []
    if constant == d:
        reasons.append("the only feature is constant" if d == 1 else f"all {d:,} features are constant")
    if constant_labels == q:
        same = "the only label is" if q == 1 else f"all {q:,} labels are"
        reasons.append(f"{same} the same in every row")
    reason = " and ".join(reasons) or otherwise
    consequence = "All features get the same score, and the ranking is their order in the data."
    if weighs_features and constant < d:
        consequence = "The ranking is by what features share with one another alone."
    return UserWarning(f"{title} cannot rank the features: {reason}. {consequence}")


def zero_weights_warning(title: str, facts: Mapping[str, Any]) -> list[Warning]:
    """Return the warning of a method whose scores are all 0, where penalties are why: the facts have their weights.

    >>> print(*zero_weights_warning("RFS", {"gamma": 30.0, "critical_gamma": 12.0}))
    RFS cannot rank the features: the penalty leaves all weights at 0. gamma has the weight 30, which is 2.5 times 12, \
the least at which they are 0. Give a smaller gamma. All features get the same score.
    """
    names = [key.removeprefix("critical_") for key in facts if key.startswith("critical_") and facts[key] > 0]
    told = []
    for name in names:
        weight, critical = facts[name], facts[f"critical_{name}"]
        start = "" if weight >= critical else " in the first iteration"
        least = f"{weight / critical:.4g} times {critical:.4g}, the least at which they are 0{start}"
        told.append(f"{parameter(name)} has the weight {weight:.4g}, which is {least}")
    text = (
        f"{title} cannot rank the features: the penalty leaves all weights at 0. {'; '.join(told)}. "
        f"Give a smaller {' and '.join(map(parameter, names))}. All features get the same score."
    )
    return [UserWarning(text)] if names else []


def never_positive_warnings(
    title: str, positives: NDArray[np.integer[Any]], names: Sequence[str] | None, consequence: str
) -> list[Warning]:
    """Return the warning of labels that no row is known to have, if there are any.

    Parameters
    ----------
    title : str
        Of the method.
    positives : int array, shape (q,)
        Rows that are known to have each label.
    names : sequence of str, length q, or None
        Of the labels.
    consequence : str
        What the method makes of such a label, and the cure.
    """
    q = len(positives)
    never = np.flatnonzero(positives == 0)
    if not len(never):
        return []
    return [
        UserWarning(
            f"{title}: {len(never):,} of {number_of(q, 'label')} {'has' if len(never) == 1 else 'have'} "
            f"no known positive row ({_listed(never, names)}). {consequence}"
        )
    ]


def known_in_no_row(labels: NDArray[np.intp], names: Sequence[str] | None) -> str:
    """Return the message about labels without a known entry.

    >>> known_in_no_row(np.array([0, 2]), ["a", "b", "c"])
    "labels 'a' and 'c' are known in no row"
    """
    one = len(labels) == 1
    listed = _listed(labels, names)
    listed = f"({listed})" if names is None else listed
    return f"label{'' if one else 's'} {listed} {'is' if one else 'are'} known in no row"


def no_part_in_scores(labels: NDArray[np.intp], names: Sequence[str] | None) -> str:
    """Return the warning of labels of which no entry is known, where other labels have one."""
    return f"{known_in_no_row(labels, names)}, and {'has' if len(labels) == 1 else 'have'} no part in the scores"


def _listed(labels: NDArray[np.intp], names: Sequence[str] | None) -> str:
    """Return the first labels by name or place."""
    shown = [str(label) if names is None else repr(str(names[label])) for label in labels[:SHOWN]]
    if len(labels) > len(shown):
        shown.append(f"{len(labels) - len(shown):,} more")
    listed = " and ".join([", ".join(shown[:-1]), shown[-1]] if len(shown) > 1 else shown)
    return f"column{'s' if len(labels) > 1 else ''} {listed} of Y, counted from 0" if names is None else listed


def round_scores(scores: Array, bits: int = SCORE_BITS) -> Array:
    """Return scores to `bits` significant bits. Those beyond differ by the order of summation, which depends on the
    chunks.

    Scores that are neighbours after rounding become equal: features that are copies of one another tie, also where
    their scores lie on two sides of a bound of rounding.

    Parameters
    ----------
    scores : float64 array, shape (..., d)

    Examples
    --------
    >>> round_scores(np.array([0.1 + 0.2, 0.3])).tolist()
    [0.3000000000001819, 0.3000000000001819]
    """
    mantissa, exponent = np.frexp(scores)
    rounded: Array = np.ldexp(np.rint(np.ldexp(mantissa, bits)), exponent - bits)
    order = np.argsort(rounded, axis=-1)
    rising = np.take_along_axis(rounded, order, axis=-1)
    step = 1.5 * np.ldexp(1.0, np.frexp(rising)[1] - bits)
    # The largest of each run of neighbours: the next that is further from the one above it than a step.
    apart = np.diff(rising, axis=-1, append=np.inf) > step
    last = np.where(apart, rising, np.inf)
    joined = np.minimum.accumulate(last[..., ::-1], axis=-1)[..., ::-1]
    np.put_along_axis(rounded, order, joined, axis=-1)
    return rounded


def rank(scores: Array, varies: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return indices by falling score; ties by lower index. Features that do not vary come last, by index.

    >>> rank(np.array([0.5, 2.0, 0.5])), rank(np.array([0.5, 2.0, 0.5]), np.array([True, False, True]))
    (array([1, 0, 2]), array([0, 2, 1]))
    """
    if varies is not None:
        scores = np.where(varies, scores, -np.inf)
    return np.argsort(-scores, kind="stable").astype(np.int64, copy=False)


def most_relevant(relevance: Array, count: int) -> NDArray[np.intp]:
    """Return the `count` features of largest relevance, rising; ties by lower index.

    >>> most_relevant(np.array([0.5, 2.0, 0.5]), 2)
    array([0, 1])
    """
    return np.sort(rank(relevance)[:count])


def kept_first(ranking: NDArray[np.int64], kept: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return a ranking that begins with the features that are chosen in any case, in their order.

    >>> kept_first(np.array([3, 0, 2, 1]), np.array([1, 0]))
    array([1, 0, 3, 2])
    """
    return np.concatenate([kept, ranking[~np.isin(ranking, kept)]]) if len(kept) else ranking


def lower_constant(scores: Array, varies: NDArray[np.bool_]) -> Array:
    """Return scores in which no feature without variation exceeds one that varies.

    A filter gives a constant 0, which is more than the negative score of a redundant feature.

    >>> lower_constant(np.array([0.5, 0.0, -1.0]), np.array([True, False, True]))
    array([ 0.5, -1. , -1. ])
    """
    if not varies.any():
        return scores
    return np.where(varies, scores, np.minimum(scores, scores[varies].min()))


def constant_warnings(k: int, d: int, n_constant: int, *, informed: bool) -> list[Warning]:
    """Return the warning of features kept that do not vary, if there are any.

    Parameters
    ----------
    k, d, n_constant : int
        Features kept, all, and those that do not vary.
    informed : bool
        Whether the method itself has warned, which it does where no feature varies.
    """
    n_kept = k - (d - n_constant)
    if n_kept <= 0 or (informed and n_constant == d):
        return []
    return [
        UserWarning(
            f"{n_kept:,} of the {number_of(k, 'feature')} kept {'does' if n_kept == 1 else 'do'} not vary: only "
            f"{d - n_constant:,} of {d:,} do. Keep at most so many"
        )
    ]


class RankStability(NamedTuple):
    """Variation of ranks between resamples.

    Attributes
    ----------
    intervals : int64 array, shape (d, 2)
        Ranks, from 1, of each feature, of which one in `RANK_TAIL` is left out at each end.
    frequency : float64 array, shape (d,)
        Share of the resamples in which each feature is among the k best.
    agreement, error : float
        Agreement of the choices of k features, 1 for equal ones and 0 on average for random ones, and its standard
        error; NaN of fewer than two resamples, or where all features are chosen.
    """

    intervals: NDArray[np.int64]
    frequency: Array
    agreement: float
    error: float


def rank_stability(scores: Array, k: int, varies: NDArray[np.bool_] | None = None) -> RankStability:
    """Return the variation of ranks between resamples.

    Parameters
    ----------
    scores : float64 array, shape (B, d)
        Of every resample.
    k : int
    varies : bool array, shape (d,), optional
        Features that vary in the rows themselves; the others come last.

    References
    ----------
    S. Nogueira, K. Sechidis, G. Brown, "On the stability of feature selection algorithms", Journal of Machine Learning
    Research 18 (2018) 174, for the index and its variance.

    Examples
    --------
    >>> found = rank_stability(np.array([[3.0, 2.0, 1.0], [3.0, 1.0, 2.0]]), 2)
    >>> found.intervals.tolist(), found.frequency.tolist(), round(found.agreement, 9)
    ([[1, 1], [2, 3], [2, 3]], [1.0, 0.5, 0.5], -0.5)
    """
    n_resamples, d = scores.shape
    ranks = np.empty((n_resamples, d), dtype=np.int32)
    for own, of_resample in zip(ranks, scores, strict=True):
        own[rank(of_resample, varies)] = np.arange(1, d + 1)
    among = ranks <= k
    frequency = among.mean(axis=0)
    agreement = error = math.nan
    if n_resamples > 1 and k < d:
        share = k / d
        variance = frequency * (1 - frequency) * n_resamples / (n_resamples - 1)
        agreement = 1 - float(variance.mean()) / (share * (1 - share))
        # What each resample adds to the agreement, less terms that are the same of all choices of k features.
        own = among @ frequency / (d * share * (1 - share))
        error = 2 / n_resamples * math.sqrt(float(((own - own.mean()) ** 2).sum()))
    ranks.sort(axis=0)
    outside = n_resamples // RANK_TAIL
    intervals = np.stack([ranks[outside], ranks[-1 - outside]], axis=1).astype(np.int64)
    return RankStability(intervals, frequency, agreement, error)


def falsely_chosen(k: int, d: int, n_resamples: int) -> float | None:
    """Return most features chosen in a share `OFTEN` of complementary halves by chance, expected; None where it says
    nothing.

    By chance are those that are no likelier among the best k of a half than a feature drawn at random: C k²/d at most,
    of unimodal frequencies. It is told where k² ≤ d, from 20 pairs of halves on.

    References
    ----------
    R. Shah, R. Samworth, "Variable selection with error control: another look at stability selection", Journal of the
    Royal Statistical Society B 75 (2013) 55-80, doi:10.1111/j.1467-9868.2011.01034.x, Theorem 2.

    Examples
    --------
    >>> round(falsely_chosen(10, 500, 100), 4), falsely_chosen(100, 500, 100)
    (0.0863, None)
    """
    pairs = n_resamples // 2
    if pairs < FEWEST_PAIRS or k * k > d:
        return None
    return 4 * (1 - OFTEN + 1 / (2 * pairs)) / (1 + 1 / pairs) * k * k / d


def unknown_labels_error(unknown: NDArray[np.integer[Any]], names: Sequence[str] | None) -> DataError:
    """Return the refusal of labels that hold -1, which the user asked for."""
    label = int(np.flatnonzero(unknown)[0])
    named = "" if names is None else f"label {str(names[label])!r}, "
    return DataError(
        f"{parameter('unknown', 'refuse')} was given, and Y holds {int(unknown.sum())} "
        f"unknown entries (-1) in {np.count_nonzero(unknown)} of its labels, first in {named}column {label} of Y "
        f"(counted from 0)",
        cure="drop those rows or labels; "
        "where -1 is negative and 0 unknown say so (mlfs_dask.label_matrix(Y, negative=-1, unknown=0), `mlfs convert "
        "--labels-negative -1 --labels-unknown 0`); where -1, 0 and 1 are three classes pass them as text; where "
        f"unknown entries count as negative choose {parameter('unknown', 'negative')}",
    )


def not_converged(text: str) -> UserWarning:
    """Return the warning of a loop that ended before it converged: scikit-learn's, in a process that has
    scikit-learn.
    """
    if "sklearn.exceptions" not in sys.modules:
        return UserWarning(text)
    from sklearn.exceptions import ConvergenceWarning  # its import takes a second, which commands are spared

    warning: UserWarning = ConvergenceWarning(text)
    return warning
