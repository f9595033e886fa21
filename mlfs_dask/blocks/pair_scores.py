"""Scores of features from a statistic of every label-feature pair, computed in tiles and aggregated over labels.

A formula of counts or sums receives arrays that broadcast to (p, w), p labels by w features, of any tile. Arrays for
all labels, such as the rows with a code, have one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.unknown import values_at_marks
from mlfs_dask.typing import Array


class Counts(NamedTuple):
    """Contingency tables: number of rows by code, label and feature.

    Attributes
    ----------
    joint : int64 array, shape (codes, p, w)
        Rows with the code and the label, for all codes; float64 for weighted rows, like the other arrays.
    marginal : int64 array, shape (codes, 1, w) or (codes, p, w)
        Rows with the code; for unknown labels, among the rows in which the label is known.
    positives : int64 array, shape (p, 1)
        Rows with the label.
    n : int or float, or array of shape (p, 1)
        Number of rows; for each label the number of known rows.
    """

    joint: NDArray[Any]
    marginal: NDArray[Any]
    positives: NDArray[Any]
    n: Any

    @property
    def width(self) -> int:
        """Number of features."""
        return int(self.joint.shape[2])

    @property
    def varying(self) -> NDArray[np.bool_]:
        """Mask of the labels that vary, shape (p,). A constant label carries no information."""
        return _varying(self.positives, self.n)

    def tile(self, labels: NDArray[np.intp], features: slice) -> Counts:
        """Return the counts of the given labels and features."""
        marginal = _of_labels(self.marginal[:, :, features], labels, axis=1)
        return Counts(self.joint[:, labels, features], marginal, self.positives[labels], _of_labels(self.n, labels))

    def known(self, marks: NDArray[np.int64]) -> Counts:
        """Return the counts of the first p labels, each over the rows in which it is known.

        Parameters
        ----------
        marks : int64 array, shape (p,)
            Index, among the labels, of the rows in which a label is unknown (`blocks.unknown`); -1 if always known.
        """
        p = len(marks)
        if (marks < 0).all():
            return Counts(self.joint[:, :p], self.marginal, self.positives[:p], self.n)
        joint = np.moveaxis(self.joint, 1, 0)
        marginal = self.marginal - np.moveaxis(values_at_marks(joint, marks), 0, 1)
        # A label without known rows counts 0 of one row.
        n = np.maximum(self.n - values_at_marks(self.positives, marks), 1)
        return Counts(self.joint[:, :p], marginal, self.positives[:p], n)


class StratifiedCounts(NamedTuple):
    """Contingency tables of each stratum for the same labels and features; a label may be unknown in a whole stratum.

    Attributes
    ----------
    strata : tuple of Counts
    """

    strata: tuple[Counts, ...]

    @classmethod
    def of(cls, counts: Counts, n_strata: int) -> StratifiedCounts:
        """Split counts by stratum; their labels are the strata, then every label within each stratum."""
        strata = []
        for s in range(n_strata):
            alone, within = counts.joint[:, s : s + 1], slice(n_strata + s, None, n_strata)
            n, marginal = counts.positives[s].item(), alone
            if np.ndim(counts.n):
                # Counts within a stratum exclude its rows with unknown label.
                n = np.maximum(counts.n[within] - (counts.n[s] - n), 0)
                marginal = counts.marginal[:, within] - (counts.marginal[:, s : s + 1] - alone)
            strata.append(Counts(counts.joint[:, within], marginal, counts.positives[within], n))
        return cls(tuple(counts for counts in strata if np.any(counts.n)))

    @property
    def n(self) -> Any:
        """Number of rows in all strata; for unknown labels, the known rows of each label."""
        return sum(counts.n for counts in self.strata)

    @property
    def width(self) -> int:
        return self.strata[0].width

    @property
    def varying(self) -> NDArray[np.bool_]:
        """Mask of the labels that vary within a stratum, shape (p,)."""
        result: NDArray[np.bool_] = np.any([counts.varying for counts in self.strata], axis=0)
        return result

    def tile(self, labels: NDArray[np.intp], features: slice) -> StratifiedCounts:
        return StratifiedCounts(tuple(counts.tile(labels, features) for counts in self.strata))

    def pooled(self, pair: Callable[[Counts], Array]) -> Array:
        """Return the mean of a statistic over strata, weighted by rows, shape (p, w); 0 for a constant label."""
        total, n = np.zeros(self.strata[0].joint.shape[1:]), self.n
        for counts in self.strata:
            varies = np.flatnonzero(counts.varying)
            share = counts.n / np.maximum(n, 1)
            total[varies] += pair(counts.tile(varies, slice(None))) * _of_labels(share, varies)
        return total


class Sums(NamedTuple):
    """Sums of x − mean over the rows.

    Attributes
    ----------
    products : float64 array, shape (p, w)
        Over the rows with the label.
    m2 : float64 array, shape (1, w) or (p, w)
        Sums of squares over all rows; for unknown labels, over the known rows of each, relative to their mean.
    positives : int64 array, shape (p, 1)
        Rows with the label.
    n : int or float, or array of shape (p, 1)
        Number of rows; for each label the number of known rows.
    residual_m2 : float64 array, shape (p, 1), or None
        Sums of squares of numeric targets, and of labels adjusted for covariates; the other sums are then of residuals,
        too.
    rank : int, or int64 array of shape (p, 1)
        Degrees of freedom of the covariates; for each label over its known rows.
    """

    products: Array
    m2: Array
    positives: NDArray[Any]
    n: Any
    residual_m2: Array | None = None
    rank: Any = 0

    @property
    def label_m2(self) -> Array:
        """Sums of squared deviations of the labels, shape (p, 1)."""
        if self.residual_m2 is not None:
            return self.residual_m2
        result: Array = self.positives * (1 - self.positives / np.maximum(self.n, 1))
        return result

    @property
    def freedom(self) -> Any:
        """Residual degrees of freedom of a feature given a label: n - 2 without covariates, and at least 1."""
        return np.maximum(self.n - 2 - self.rank, 1)

    @property
    def width(self) -> int:
        return int(self.products.shape[1])

    @property
    def varying(self) -> NDArray[np.bool_]:
        return _varying(self.positives, self.n) if self.residual_m2 is None else self.residual_m2[:, 0] > 0

    def tile(self, labels: NDArray[np.intp], features: slice) -> Sums:
        residual = None if self.residual_m2 is None else self.residual_m2[labels]
        m2, n = _of_labels(self.m2[:, features], labels), _of_labels(self.n, labels)
        rank = _of_labels(self.rank, labels)
        return Sums(self.products[labels, features], m2, self.positives[labels], n, residual, rank)


def _of_labels(terms: Any, labels: NDArray[np.intp], axis: int = 0) -> Any:
    """Select the terms of labels; terms common to all labels stay as they are."""
    return terms if np.ndim(terms) == 0 or terms.shape[axis] == 1 else np.take(terms, labels, axis)


def _varying(positives: NDArray[Any], n: Any) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = ((positives > 0) & (positives < n))[:, 0]
    return result


#: Arguments of a formula for labels and features.
AnyTerms = TypeVar("AnyTerms", Counts, StratifiedCounts, Sums)


class Aggregation(NamedTuple):
    """Aggregation of a feature's statistics over varying labels to a score; a filter may define its own.

    Attributes
    ----------
    of_sum : callable
        Maps sums over labels, shape (w,), and the number of labels to scores; the mean is ``lambda total, p: total /
        p``.
    of_pair : callable
        Maps the statistics, shape (p, w), to the summands.
    """

    of_sum: Callable[[Array, int], Array]
    of_pair: Callable[[Array], Array] = lambda pair: pair


def _log(pair: Array) -> Array:
    with np.errstate(divide="ignore"):
        result: Array = np.log(pair)
    return result


SUM = Aggregation(lambda total, p: total)
NORM = Aggregation(lambda total, p: np.sqrt(total), lambda pair: pair * pair)
GEOMETRIC_MEAN = Aggregation(lambda total, p: np.exp(total / p) if p else total, _log)


def score_pairs(pair: Callable[[AnyTerms], Array], terms: AnyTerms, over: Aggregation = SUM) -> Array:
    """Return the scores of the features, shape (w,), from a statistic of every varying label with every feature.

    Labels are added sequentially: equal terms give equal bits for any tiling.

    Parameters
    ----------
    pair : callable
        Maps the terms of a tile to its (p, w) statistics.
    terms : Counts or Sums
    over : Aggregation

    Examples
    --------
    >>> sums = Sums(np.array([[3.0, 0.0], [4.0, 1.0]]), np.ones((1, 2)), np.array([[2], [1]]), 4)
    >>> score_pairs(lambda sums: sums.products, sums, NORM)
    array([5., 1.])
    """
    labels, scores = np.flatnonzero(terms.varying), np.zeros(terms.width)
    step = gates.SCORE_BYTES // (8 * max(1, min(terms.width, gates.SCORE_FEATURES)))
    for start in range(0, terms.width, gates.SCORE_FEATURES):
        features = slice(start, start + gates.SCORE_FEATURES)
        total = scores[features]
        for first in range(0, len(labels), step):
            for row in over.of_pair(pair(terms.tile(labels[first : first + step], features))):
                total += row
    return over.of_sum(scores, len(labels))


def quotient(numerator: Array, denominator: NDArray[Any]) -> Array:
    """Return the quotient, 0 for a denominator of 0, as of constant features.

    >>> quotient(np.array([[3.0, 2.0]]), np.array([[2.0, 0.0]]))
    array([[1.5, 0. ]])
    """
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    result: Array = np.divide(numerator, denominator, out=np.zeros(shape), where=denominator > 0)
    return result
