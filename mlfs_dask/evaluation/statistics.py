"""Tests over data sets and folds, and the stability of chosen sets: plain functions of small arrays.

Demšar (2006), Statistical comparisons of classifiers over multiple data sets, JMLR 7, 1-30, is followed for ranks,
the Friedman test and what comes after it; Kuncheva (2007), A stability index for feature selection, for the agreement
of sets.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, stats


@dataclass(frozen=True)
class PairedTest:
    """A paired t-test of two methods on the same folds.

    Attributes
    ----------
    difference : float
        Mean of first minus second, over the pairs in which both are defined; NaN without any.
    p_value : float
        Two-sided; 1 where all pairs are equal, 0 where all differ by the same amount, NaN for fewer than two pairs.
    n_pairs : int
    """

    difference: float
    p_value: float
    n_pairs: int

    def decides(self, alpha: float) -> bool:
        """Return True if the two differ at level `alpha`; False without a p-value."""
        return self.p_value < alpha


def paired_t_test(first: ArrayLike, second: ArrayLike) -> PairedTest:
    """Return two-sided paired t-test; pairs with an undefined value (NaN) are left out.

    Examples
    --------
    >>> test = paired_t_test([1.0, 2.0, 3.0], [0.0, 2.0, 1.0])
    >>> test.difference, round(test.p_value, 4), test.n_pairs
    (1.0, 0.2254, 3)
    """
    difference = np.asarray(first, np.float64) - np.asarray(second, np.float64)
    difference = difference[~np.isnan(difference)]
    n = len(difference)
    if n == 0:
        return PairedTest(math.nan, math.nan, 0)
    mean = float(difference.mean())
    if n == 1:
        return PairedTest(mean, math.nan, 1)
    # Of equal differences SciPy says NaN and warns of lost precision; the limit is what a reader expects.
    if np.ptp(difference) <= 1e-12 * np.abs(difference).max():
        return PairedTest(mean, 1.0 if mean == 0 else 0.0, n)
    return PairedTest(mean, float(stats.ttest_1samp(difference, 0.0).pvalue), n)


def rank_methods(values: ArrayLike, *, higher_is_better: bool) -> NDArray[np.float64]:
    """Return the ranks of methods on each data set, 1 the best, equal values sharing the mean of their places.

    Parameters
    ----------
    values : array, shape (N, k)
        Data sets by methods, all defined.
    higher_is_better : bool

    Returns
    -------
    float64 array, shape (N, k)

    Examples
    --------
    >>> rank_methods([[0.9, 0.7, 0.9]], higher_is_better=True)
    array([[1.5, 3. , 1.5]])
    """
    values = np.asarray(values, np.float64)
    ranks: NDArray[np.float64] = stats.rankdata(-values if higher_is_better else values, axis=1)
    return ranks


class FriedmanTest(TypedDict):
    """Friedman's test that all methods are alike, in its two forms, as records have it.

    Attributes
    ----------
    n_datasets, n_methods : int
        N and k.
    chi2, chi2_p_value : float
        As Demšar writes it, without a correction for ties; k − 1 degrees of freedom.
    f, f_p_value : float
        Iman and Davenport's less conservative form; k − 1 and (k − 1)(N − 1) degrees of freedom. `f` is infinite where
        all data sets rank the methods alike: None in JSON.
    """

    n_datasets: int
    n_methods: int
    chi2: float
    chi2_p_value: float
    f: float | None
    f_p_value: float


def friedman_test(ranks: ArrayLike) -> FriedmanTest:
    """Return friedman's test of ranks.

    Parameters
    ----------
    ranks : array, shape (N, k)
        Of `rank_methods`; at least two data sets and two methods.

    Raises
    ------
    ValueError
        With fewer.

    Examples
    --------
    >>> test = friedman_test([[1, 2, 3], [1, 3, 2], [1, 2, 3], [2, 1, 3]])
    >>> test["chi2"], round(test["f"], 4)
    (4.5, 3.8571)
    """
    ranks = np.asarray(ranks, np.float64)
    N, k = ranks.shape
    if N < 2 or k < 2:
        raise ValueError(f"Friedman's test needs two data sets and two methods, got {N} and {k}")
    average = ranks.mean(axis=0)
    chi2 = max(0.0, 12 * N / (k * (k + 1)) * float(np.sum((average - (k + 1) / 2) ** 2)))
    left = N * (k - 1) - chi2
    f = (N - 1) * chi2 / left if left > 1e-9 * N * k else math.inf
    return {
        "n_datasets": N,
        "n_methods": k,
        "chi2": chi2,
        "chi2_p_value": float(stats.chi2.sf(chi2, k - 1)),
        "f": f,
        "f_p_value": float(stats.f.sf(f, k - 1, (k - 1) * (N - 1))),
    }


def nemenyi_difference(n_methods: int, n_datasets: int, *, alpha: float = 0.05) -> float:
    """Return the critical difference of average ranks when all methods are compared with all (Nemenyi).

    Examples
    --------
    >>> round(nemenyi_difference(4, 14), 2)
    1.25
    """
    q = stats.studentized_range.ppf(1 - alpha, n_methods, np.inf) / math.sqrt(2)
    return float(q) * _rank_deviation(n_methods, n_datasets)


def nemenyi_p_values(ranks: NDArray[np.float64], n_datasets: int) -> NDArray[np.float64]:
    """Return P-values of all pairs of methods, shape (m, m), by their average ranks (Nemenyi).

    Examples
    --------
    >>> nemenyi_p_values(np.array([1.0, 1.5, 3.5, 4.0]), 6).round(3)[0].tolist()
    [1.0, 0.908, 0.004, 0.0]
    """
    differences = np.abs(ranks[:, np.newaxis] - ranks) / _rank_deviation(len(ranks), n_datasets)
    p: NDArray[np.float64] = stats.studentized_range.sf(differences * math.sqrt(2), len(ranks), np.inf)
    return p


def bonferroni_dunn_difference(n_methods: int, n_datasets: int, *, alpha: float = 0.05) -> float:
    """Return the critical difference of average ranks when all methods are compared with one control (Bonferroni–Dunn).

    Examples
    --------
    >>> round(bonferroni_dunn_difference(7, 8), 2)
    2.85
    """
    q = stats.norm.isf(alpha / (2 * (n_methods - 1)))
    return float(q) * _rank_deviation(n_methods, n_datasets)


def _rank_deviation(k: int, N: int) -> float:
    return math.sqrt(k * (k + 1) / (6 * N))


@dataclass(frozen=True)
class Stability:
    """Mean agreement over all pairs of sets; NaN for fewer than two sets.

    Attributes
    ----------
    kuncheva, jaccard : float
    n_sets : int
    """

    kuncheva: float
    jaccard: float
    n_sets: int


def stability(sets: Sequence[Collection[int]], n_features: int) -> Stability:
    """Return the mean of Kuncheva's index (2007, Eq. 2) and of Jaccard's over all pairs of sets of k features out of d.

    With r common features Kuncheva's index is (r d − k²) / (k (d − k)): 1 for equal sets, 0 on average for random ones,
    −k / (d − k) at the least, and NaN where k is d, when there is no choice to agree on. Jaccard's is r / (2 k − r).

    Raises
    ------
    ValueError
        If sets differ in size, for which Kuncheva's index is not defined.

    Examples
    --------
    >>> stability([{0, 1}, {0, 1}, {0, 2}], 4)  # doctest: +ELLIPSIS
    Stability(kuncheva=0.333..., jaccard=0.555..., n_sets=3)
    """
    sizes = {len(chosen) for chosen in sets}
    if len(sizes) > 1:
        came = " and ".join(map(str, sorted(sizes, reverse=True)))
        raise ValueError(f"Kuncheva's index compares sets of equal size, got {came}")
    m = len(sets)
    if m < 2 or not sets[0]:
        return Stability(math.nan, math.nan, m)
    k, d = len(sets[0]), n_features
    # Common features of all pairs at once: row i of `members` marks the features of set i.
    _, columns = np.unique(np.concatenate([np.fromiter(chosen, np.int64, k) for chosen in sets]), return_inverse=True)
    members = sparse.csr_array((np.ones(m * k), columns, np.arange(0, m * k + 1, k)), dtype=np.float64)
    common = (members @ members.T).toarray()[np.triu_indices(m, 1)]
    kuncheva = float(((common * d - k * k) / (k * (d - k))).mean()) if k < d else math.nan
    return Stability(kuncheva, float((common / (2 * k - common)).mean()), m)
