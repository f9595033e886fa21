"""Scores of features from their contingency tables, the counts of their codes with labels.

A formula is a frozen dataclass whose fields are its parameters: it can be sent to workers, and what it gives be cached.
Sums run over labels and codes in their order: equal counts give equal bits however the features were cut.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.entropy import count_log_count, entropy_of_counts, mutual_information, rounding_error

Array = NDArray[np.float64]

#: Of an array of features and pairs of labels that is worked on at a time: some of them stay in a processor's cache.
PAIR_BYTES = 256 << 10

#: Share of the sum of weights by which a sum of them has to differ from what is expected: less is rounding.
LEAST_DIFFERENCE = 1e-12


@dataclass(frozen=True)
class CountFormula(ABC):
    """A score of every feature from its counts with labels."""

    @abstractmethod
    def __call__(self, joint: NDArray[Any], marginal: NDArray[Any], positives: NDArray[Any], n: int | float) -> Array:
        """Scores, shape (w,), of w features.

        Parameters
        ----------
        joint : int64 array, shape (codes, p, w)
            Rows that have the code and the label, every code included; float64 of weighted rows, as the others.
        marginal : int64 array, shape (codes, w)
            Rows that have the code.
        positives : int64 array, shape (p,)
            Rows that have the label.
        n : int or float
            Rows.
        """

    def with_labels(self, positives: NDArray[Any], n: int | float) -> CountFormula:
        """The formula with what follows from the labels alone: asked for once, before scores with these labels are."""
        return self


@dataclass(frozen=True)
class ChiSquare(CountFormula):
    """Sum over labels of Pearson's χ² of the codes of a feature and having the label.

    Examples
    --------
    >>> joint = np.array([[[2, 1]], [[0, 1]]])  # 2 codes, 1 label, 2 features
    >>> ChiSquare()(joint, np.array([[2, 2], [2, 2]]), np.array([2]), 4)
    array([4., 0.])
    """

    def __call__(self, joint: NDArray[Any], marginal: NDArray[Any], positives: NDArray[Any], n: int | float) -> Array:
        score = np.zeros(marginal.shape[1])
        share = marginal / n
        for label, count in enumerate(positives.tolist()):
            if not 0 < count < n:
                continue
            # 1/E of the rows with the label and of those without: n / (share n_l (n − n_l)) together.
            terms = np.zeros_like(score)
            for own, observed in zip(share, joint[:, label], strict=True):
                terms += _ratio((observed - own * count) ** 2, own)
            score += terms * (n / (count * (n - count)))
        return score


@dataclass(frozen=True)
class AssignedChiSquare(CountFormula):
    """χ² of the codes of a feature and the labels as classes, of rows each of which is shared out among its labels.

    Counts are sums of weights, in which a row counts 1/|L| for each of its |L| labels.

    Examples
    --------
    >>> joint = np.array([[[2.0, 1.0], [0.0, 1.0]], [[0.0, 1.0], [2.0, 1.0]]])
    >>> AssignedChiSquare()(joint, np.array([[2.0, 2.0], [2.0, 2.0]]), np.array([2.0, 2.0]), 4.0)
    array([4., 0.])
    """

    def __call__(self, joint: NDArray[Any], marginal: NDArray[Any], positives: NDArray[Any], n: int | float) -> Array:
        score, total = np.zeros(marginal.shape[1]), positives.sum()
        if not total:
            return score
        for observed in joint:
            # The rows that have the code, each with weight 1: the sum over their labels.
            share = observed.sum(axis=0) / total
            terms = np.zeros_like(score)
            for count, own in zip(positives.tolist(), observed, strict=True):
                expected = share * count
                difference = own - expected
                difference[np.abs(difference) <= LEAST_DIFFERENCE * total] = 0.0
                terms += _ratio(difference**2, expected)
            score += terms
        return score


@dataclass(frozen=True)
class OddsRatio(CountFormula):
    """Sum over labels of |log odds ratio| of having a code and having the label.

    Of more than two codes, the mean over the codes, weighted by their rows; of two both are equal.

    Parameters
    ----------
    smoothing : float
        Added to each of the four counts.

    Examples
    --------
    >>> joint = np.array([[[3, 2]], [[1, 2]]])
    >>> OddsRatio(1.0)(joint, np.array([[4, 4], [4, 4]]), np.array([4]), 8).round(6)  # log(4 · 4 / (2 · 2))
    array([1.386294, 0.      ])
    """

    smoothing: float

    def __call__(self, joint: NDArray[Any], marginal: NDArray[Any], positives: NDArray[Any], n: int | float) -> Array:
        score, s = np.zeros(marginal.shape[1]), self.smoothing
        varying = (marginal > 0) & (marginal < n)
        share = np.where(varying, marginal / n, 0.0)
        for label, count in enumerate(positives.tolist()):
            if not 0 < count < n:
                continue
            terms = np.zeros_like(score)
            for own, rows, both in zip(share, marginal, joint[:, label], strict=True):
                code_alone, label_alone = rows - both, count - both
                neither = n - rows - label_alone
                agreeing, differing = (both + s) * (neither + s), (code_alone + s) * (label_alone + s)
                # The larger by the smaller: |log| of a code and of its complement are the same bits.
                terms += own * np.log(np.maximum(agreeing, differing) / np.minimum(agreeing, differing))
            score += terms
        return score


@dataclass(frozen=True)
class PairInteraction(CountFormula):
    """Sum over labels of M(f; l), less the interaction information with pairs of chosen labels (Lee & Kim 2015).

    Counts are those with the q labels, and after them with every pair of chosen ones (`with_label_pairs`).

    Parameters
    ----------
    n_labels : int
    chosen : tuple of int
        Rising.
    between : float64 array, shape (pairs,), optional
        M(l; l') of the pairs of chosen labels, which `with_labels` adds.
    """

    n_labels: int
    chosen: tuple[int, ...]
    between: Array | None = None

    def with_labels(self, positives: NDArray[Any], n: int | float) -> PairInteraction:
        first, second = self._pairs
        one, other = (positives[np.array(self.chosen, dtype=np.int64)[of]] for of in (first, second))
        return replace(self, between=_pair_information(one, other, positives[self.n_labels :], n))

    @property
    def _pairs(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Places in `chosen` of both labels of every pair, as itertools.combinations has them."""
        first, second = np.triu_indices(len(self.chosen), 1)
        return first, second

    def __call__(self, joint: NDArray[Any], marginal: NDArray[Any], positives: NDArray[Any], n: int | float) -> Array:
        q = self.n_labels
        shared, _ = mutual_information(joint[:, :q], marginal, positives[:q], n)
        score = np.zeros(marginal.shape[1])
        for information in shared:
            score += information
        if len(self.chosen) < 2:
            return score
        chosen = np.array(self.chosen, dtype=np.int64)
        first, second = self._pairs
        assert self.between is not None
        # n H(f, l) but for a term n log n, which is in all entropies and cancels.
        of_feature = count_log_count(marginal).sum(axis=0)
        with_label = np.stack([_states(joint[:, label], marginal) for label in self.chosen])
        step = max(1, PAIR_BYTES // (8 * marginal.size))
        for start in range(0, len(first), step):
            pairs = slice(start, start + step)
            i, j = first[pairs], second[pairs]
            one, other = joint[:, chosen[i]], joint[:, chosen[j]]
            both = joint[:, q + start : q + start + len(i)]
            cells = _states(both, one) + _states(other - both, marginal[:, np.newaxis] - one)
            given_feature = (of_feature + cells - with_label[i] - with_label[j]) / n
            given_feature -= self.between[pairs, np.newaxis]
            # Added one after the other, which `sum` does not do for a single feature: the same bits for any cut.
            given_feature[0] += score
            score = np.cumsum(given_feature, axis=0, out=given_feature)[-1]
        return score


def with_label_pairs(Y: sp.csr_array, chosen: tuple[int, ...]) -> sp.csr_array:
    """Y with a further label for every pair of chosen ones, which the rows have that have both.

    Parameters
    ----------
    Y : csr_array of int8, shape (rows, q)
    chosen : tuple of int
        Pairs come in the order of `itertools.combinations`.

    Returns
    -------
    csr_array of int8, shape (rows, q + pairs)

    Examples
    --------
    >>> with_label_pairs(sp.csr_array(np.array([[1, 0, 1], [1, 1, 1]], dtype=np.int8)), (0, 1, 2)).toarray()
    array([[1, 0, 1, 0, 1, 0],
           [1, 1, 1, 1, 1, 1]], dtype=int8)
    """
    m = len(chosen)
    if m < 2:
        return Y
    has = sp.csr_array(Y[:, list(chosen)] > 0)
    has.sort_indices()
    # Each label of a row stands in a pair with every later one of that row.
    ends = np.repeat(has.indptr[1:], np.diff(has.indptr)).astype(np.int64)
    at = np.arange(has.nnz)
    later = ends - at - 1
    first = np.repeat(at, later)
    second = first + 1 + np.arange(len(first)) - np.repeat(np.cumsum(later) - later, later)
    one, other = has.indices[first].astype(np.int64), has.indices[second]
    columns = one * (2 * m - one - 1) // 2 + other - one - 1
    indptr = np.concatenate(([0], np.cumsum(later)))[has.indptr]
    pairs = sp.csr_array((np.ones(len(first), np.int8), columns, indptr), shape=(Y.shape[0], m * (m - 1) // 2))
    return sp.csr_array(sp.hstack([Y, pairs], format="csr"))


def _states(having: NDArray[Any], rows: NDArray[Any]) -> Array:
    """Sum over codes of c log c of the rows with a label and of those without."""
    result: Array = (count_log_count(having) + count_log_count(rows - having)).sum(axis=0)
    return result


def _pair_information(one: NDArray[Any], other: NDArray[Any], both: NDArray[Any], n: int | float) -> Array:
    """M(l; l') of pairs of labels, shape (p,), from the rows that have the one, the other and both."""
    joint = np.stack([both, other - both, one - both, n - one - other + both])
    entropy = [entropy_of_counts(np.stack([having, n - having]), n) for having in (one, other)]
    information: Array = entropy[0] + entropy[1] - entropy_of_counts(joint, n)
    information[information <= rounding_error(n)] = 0.0
    return information


def _ratio(numerator: Array, denominator: Array) -> Array:
    """The quotient, 0 where the denominator is 0."""
    return np.divide(numerator, denominator, out=np.zeros_like(numerator), where=denominator > 0)
