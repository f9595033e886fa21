"""Filters from contingency counts of features with every label: chi-square and odds ratio."""

from __future__ import annotations

from typing import Annotated, Any

import numpy as np

from mlfs_dask.blocks.contingency import general_association
from mlfs_dask.blocks.pair_scores import Counts, StratifiedCounts, quotient
from mlfs_dask.blocks.pair_tests import pearson_statistic
from mlfs_dask.blocks.rounding import NEGLIGIBLE
from mlfs_dask.selectors.contract import method
from mlfs_dask.selectors.counting import CountFilter
from mlfs_dask.selectors.parameters import Param
from mlfs_dask.statistics.counts import AssignedCountScores
from mlfs_dask.typing import Array


@method(
    "chi2",
    "Sum of chi-squares with the labels",
    paper="Yang & Pedersen 1997, ICML, 412; for labels Spolaôr et al. 2013, ENTCS 292, 135",
    doi="10.1016/j.entcs.2013.02.010",
)
class Chi2(CountFilter):
    """Sum over labels of Pearson's chi-square of a feature and the label.

    Binary relevance: the contingency table of a label has the codes of the feature as rows, and with and without
    the label as columns. For a 0/1 feature this is the statistic of Yang & Pedersen (1997), summed over the
    categories without weights. (scikit-learn's `chi2` differs: it compares sums of values and ignores the rows
    where a 0/1 feature is 0.)

    Notes
    -----
    Scores follow from integer counts and are identical for any chunking.

    References
    ----------
    Y. Yang, J. Pedersen, "A comparative study on feature selection in text categorization", International Conference on
    Machine Learning (1997) 412-420. N. Spolaôr, E. Cherman, M. Monard, H. Lee, "A comparison of multi-label feature
    selection methods using the problem transformation approach", Electronic Notes in Theoretical Computer Science 292
    (2013) 135-151, doi:10.1016/j.entcs.2013.02.010, for binary relevance.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    >>> Y = np.array([[0, 0], [0, 0], [1, 0], [1, 1]])
    >>> mlfs.Chi2(n_features_to_select=1).fit(X, Y).scores_.round(3)
    array([5.333, 1.333, 0.   ])
    """

    tests_pearson = True

    def pair(self, counts: Counts) -> Array:
        return pearson_statistic(counts)

    def pair_of_strata(self, counts: StratifiedCounts) -> Array:
        return general_association(counts)


@method(
    "br-or",
    "Sum of absolute log odds ratios with the labels (BR+OR)",
    paper="Chen, Huang, Tian & Qu 2009, Expert Systems with Applications 36, 5432",
    doi="10.1016/j.eswa.2008.06.054",
)
class BROR(CountFilter):
    """Sum over labels of the absolute log odds ratio of a feature and the label (BR+OR).

    Binary relevance with the odds ratio: `|log(P(f|l)(1 - P(f|not l)) / ((1 - P(f|l))P(f|not l)))|`, summed over
    the labels as Chen et al. (2009) sum it over classes. For a feature with more than two codes it is the mean over
    codes, weighted by their rows. Constant features and labels give 0.

    Notes
    -----
    Scores follow from integer counts and are identical for any chunking. Very rare features have the largest odds
    ratios: take another method for small k if features are rare.

    References
    ----------
    J. Chen, H. Huang, S. Tian, Y. Qu, "Feature selection for text classification with naive Bayes", Expert Systems with
    Applications 36 (2009) 5432-5435, doi:10.1016/j.eswa.2008.06.054. J. Haldane, "The estimation and significance of
    the logarithm of a ratio of frequencies", Annals of Human Genetics 20 (1956) 309-311, for the smoothing.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    >>> mlfs.BROR(n_features_to_select=1).fit(X, np.array([0, 0, 1, 1])).scores_.round(3)  # log(2.5² / 0.5²)
    array([3.219, 0.   , 0.   ])
    """

    smoothing: Annotated[
        float,
        Param(
            "Number added to each of the four counts of an odds ratio, which keeps the ratio finite; 0.5 is "
            "Haldane's correction.",
            above=0,
        ),
    ] = 0.5

    def pair(self, counts: Counts) -> Array:
        joint, marginal, positives, n = counts
        terms, s = np.zeros(joint.shape[1:]), float(self.smoothing)
        for both, rows in zip(joint, marginal, strict=True):
            code_alone, label_alone = rows - both, positives - both
            agreeing, differing = (both + s) * (n - rows - label_alone + s), (code_alone + s) * (label_alone + s)
            # The larger by the smaller: |log| of a code and of its complement are the same bits.
            ratio = np.log(np.maximum(agreeing, differing) / np.minimum(agreeing, differing))
            terms += np.where((rows > 0) & (rows < n), rows / n, 0.0) * ratio
        return terms

    def pair_of_strata(self, counts: StratifiedCounts) -> Array:
        """Return the common odds ratio of Mantel and Haenszel, strata in which code and label vary being smoothed."""
        n_codes, p, width = counts.strata[0].joint.shape
        terms, s, total = np.zeros((p, width)), float(self.smoothing), np.maximum(counts.n, 1)
        for code in range(n_codes):
            agreeing, differing, with_code = np.zeros((3, p, width))
            for joint, marginal, positives, of_stratum in counts.strata:
                both, rows, n = joint[code], marginal[code], np.maximum(of_stratum, 1)
                code_alone, label_alone = rows - both, positives - both
                varies = (rows > 0) & (rows < n) & (positives > 0) & (positives < n)
                agreeing += np.where(varies, (both + s) * (n - rows - label_alone + s) / n, 0.0)
                differing += np.where(varies, (code_alone + s) * (label_alone + s) / n, 0.0)
                with_code += rows
            larger, smaller = np.maximum(agreeing, differing), np.minimum(agreeing, differing)
            ratio = np.log(np.divide(larger, smaller, out=np.ones_like(larger), where=smaller > 0))
            terms += with_code / total * ratio
        return terms


@method(
    "ela-chi",
    "Chi-square after entropy-based label assignment (ELA+CHI)",
    paper="Chen, Yan, Zhang, Chen & Yang 2007, IEEE ICDM, 451",
    doi="10.1109/ICDM.2007.18",
)
class ELAChi2(CountFilter):
    """Chi-square of a feature and the labels as classes, by entropy-based label assignment (ELA+CHI).

    A row with `|L|` labels becomes `|L|` rows of one class each, with weight `1/|L|` (Chen et al. 2007). Pearson's
    chi-square of the table of codes and classes follows. Rows without a known label, and labels without a row, are
    left out, as in the program of Lee & Kim (2013), which the scores equal: a single label has no class to compare
    with, and gives 0.

    Notes
    -----
    A worker holds (q + 1) * sum of (codes - 1) sums of 8 bytes, of weights that are rounded so that their sums are
    exact: the same bits for any chunking.

    References
    ----------
    W. Chen, J. Yan, B. Zhang, Z. Chen, Q. Yang, "Document transformation for multi-label feature selection in text
    categorization", IEEE International Conference on Data Mining (2007) 451-456, doi:10.1109/ICDM.2007.18. The program:
    github.com/CAU-AIR-Lab/PMU, `ela_chi.m`.

    Examples
    --------
    >>> import numpy as np
    >>> import mlfs_dask as mlfs
    >>> X = np.array([[0, 0, 1], [0, 1, 1], [1, 0, 1], [1, 1, 1]])
    >>> Y = np.array([[1, 0], [1, 0], [0, 1], [0, 1]])
    >>> mlfs.ELAChi2(n_features_to_select=1).fit(X, Y).scores_
    array([4., 0., 0.])
    """

    tests_pearson = True
    known_entries = False  # a row stands for the labels that it is known to have
    unknown_entry = "is no membership: a row is in the classes that it is known to have"
    memory = "worker: 8 bytes * d * (codes - 1) * (q + 1)"
    takes_strata = False

    of_zeros = "among rows that have a label, no feature depends on which one it is"

    def score_counts(self, counts: Counts) -> Array:
        # Code after code: what is expected of a code follows from all labels.
        scores, total = np.zeros(counts.width), counts.positives.sum()
        if not total:
            return scores
        for observed in counts.joint:
            # The rows that have the code, each with weight 1: the sum over their labels.
            share = observed.sum(axis=0) / total
            terms = np.zeros_like(scores)
            for count, own in zip(counts.positives[:, 0].tolist(), observed, strict=True):
                expected = share * count
                difference = own - expected
                difference[np.abs(difference) <= NEGLIGIBLE * total] = 0.0
                terms += quotient(difference**2, expected)
            scores += terms
        return scores

    def _statistic(self, **fields: Any) -> AssignedCountScores:
        fields |= {"compiled": False, "formula": self.score_counts, "formula_key": self._formula_key}
        return AssignedCountScores(**fields)
