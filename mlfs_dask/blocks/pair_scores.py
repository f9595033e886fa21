"""Scores of features from a statistic of every label and feature: tile by tile, aggregated over labels in their order.

A formula of counts or of sums sees arrays that broadcast to (p, w): p labels by w features, of a tile of either, never
which one. What holds for all labels, as the rows that have a code, has one row.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.unknown import of_marks
from mlfs_dask.typing import Array


class Counts(NamedTuple):
    """Rows by code, label and feature.

    Attributes
    ----------
    joint : int64 array, shape (codes, p, w)
        Rows that have the code and the label, every code included; float64 of weighted rows, as the others.
    marginal : int64 array, shape (codes, 1, w) or (codes, p, w)
        Rows that have the code; where labels may be unknown, those among the rows where the label is known.
    positives : int64 array, shape (p, 1)
        Rows that have the label.
    n : int or float, or array of shape (p, 1)
        Rows; of each label those where it is known.
    """

    joint: NDArray[Any]
    marginal: NDArray[Any]
    positives: NDArray[Any]
    n: Any

    @property
    def width(self) -> int:
        """Features."""
        return int(self.joint.shape[2])

    @property
    def varying(self) -> NDArray[np.bool_]:
        """(p,): labels that some rows have and some have not. The others say nothing of any feature."""
        return _varying(self.positives, self.n)

    def tile(self, labels: NDArray[np.intp], features: slice) -> Counts:
        """The counts of some labels and features."""
        marginal = _of_labels(self.marginal[:, :, features], labels, axis=1)
        return Counts(self.joint[:, labels, features], marginal, self.positives[labels], _of_labels(self.n, labels))

    def known(self, marks: NDArray[np.int64]) -> Counts:
        """Counts of the first p labels, of each over the rows where it is known.

        Parameters
        ----------
        marks : int64 array, shape (p,)
            Where the rows in which a label is unknown stand among the labels (`blocks.unknown`); -1 where there are
            none.
        """
        p = len(marks)
        if (marks < 0).all():
            return Counts(self.joint[:, :p], self.marginal, self.positives[:p], self.n)
        joint = np.moveaxis(self.joint, 1, 0)
        marginal = self.marginal - np.moveaxis(of_marks(joint, marks), 0, 1)
        # Of a label that no row knows all is 0, of one row.
        n = np.maximum(self.n - of_marks(self.positives, marks), 1)
        return Counts(self.joint[:, :p], marginal, self.positives[:p], n)


class StratifiedCounts(NamedTuple):
    """Counts of each stratum, of the same labels and features; a label may be known in no row of one.

    Attributes
    ----------
    strata : tuple of Counts
    """

    strata: tuple[Counts, ...]

    @classmethod
    def of(cls, counts: Counts, n_strata: int) -> StratifiedCounts:
        """The strata of counts whose labels are the strata and then every label within each of them."""
        strata = []
        for s in range(n_strata):
            alone, within = counts.joint[:, s : s + 1], slice(n_strata + s, None, n_strata)
            n, marginal = counts.positives[s].item(), alone
            if np.ndim(counts.n):
                # What is said of a label within a stratum is of all rows but those in which it is unknown there.
                n = np.maximum(counts.n[within] - (counts.n[s] - n), 0)
                marginal = counts.marginal[:, within] - (counts.marginal[:, s : s + 1] - alone)
            strata.append(Counts(counts.joint[:, within], marginal, counts.positives[within], n))
        return cls(tuple(counts for counts in strata if np.any(counts.n)))

    @property
    def n(self) -> Any:
        """Rows of all strata; where labels may be unknown, of each label those where it is known."""
        return sum(counts.n for counts in self.strata)

    @property
    def width(self) -> int:
        return self.strata[0].width

    @property
    def varying(self) -> NDArray[np.bool_]:
        """(p,): labels that some rows of a stratum have and some have not."""
        result: NDArray[np.bool_] = np.any([counts.varying for counts in self.strata], axis=0)
        return result

    def tile(self, labels: NDArray[np.intp], features: slice) -> StratifiedCounts:
        return StratifiedCounts(tuple(counts.tile(labels, features) for counts in self.strata))

    def pooled(self, pair: Callable[[Counts], Array]) -> Array:
        """Mean of a statistic over the strata, weighted by their rows, shape (p, w); 0 where a label does not vary."""
        total, n = np.zeros(self.strata[0].joint.shape[1:]), self.n
        for counts in self.strata:
            varies = np.flatnonzero(counts.varying)
            share = counts.n / np.maximum(n, 1)
            total[varies] += pair(counts.tile(varies, slice(None))) * _of_labels(share, varies)
        return total


class Sums(NamedTuple):
    """Sums of x − mean over rows.

    Attributes
    ----------
    products : float64 array, shape (p, w)
        Over the rows that have the label.
    m2 : float64 array, shape (1, w) or (p, w)
        Of squares, over all rows; where labels may be unknown, over those where the label is known, about their mean.
    positives : int64 array, shape (p, 1)
        Rows that have the label.
    n : int or float, or array of shape (p, 1)
        Rows; of each label those where it is known.
    residual_m2 : float64 array, shape (p, 1), or None
        Of labels adjusted for covariates: what these leave of their sums of squares. The sums are then of residuals.
    rank : int, or int64 array of shape (p, 1)
        Degrees of freedom that the covariates take; of each label those over the rows where it is known.
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
        """Degrees of freedom of what is left of a feature by a label: n - 2 without covariates, and at least 1."""
        return np.maximum(self.n - 2 - self.rank, 1)

    @property
    def width(self) -> int:
        return int(self.products.shape[1])

    @property
    def varying(self) -> NDArray[np.bool_]:
        varying = _varying(self.positives, self.n)
        return varying if self.residual_m2 is None else varying & (self.residual_m2[:, 0] > 0)

    def tile(self, labels: NDArray[np.intp], features: slice) -> Sums:
        residual = None if self.residual_m2 is None else self.residual_m2[labels]
        m2, n = _of_labels(self.m2[:, features], labels), _of_labels(self.n, labels)
        rank = _of_labels(self.rank, labels)
        return Sums(self.products[labels, features], m2, self.positives[labels], n, residual, rank)


def _of_labels(terms: Any, labels: NDArray[np.intp], axis: int = 0) -> Any:
    """Terms of some labels; those that hold for all of them as they are."""
    return terms if np.ndim(terms) == 0 or terms.shape[axis] == 1 else np.take(terms, labels, axis)


def _varying(positives: NDArray[Any], n: Any) -> NDArray[np.bool_]:
    result: NDArray[np.bool_] = ((positives > 0) & (positives < n))[:, 0]
    return result


#: What a formula of labels and features is made of.
AnyTerms = TypeVar("AnyTerms", Counts, StratifiedCounts, Sums)


class Aggregation(NamedTuple):
    """How the statistics of a feature with all varying labels become one score; a filter may have one of its own.

    Attributes
    ----------
    of_sum : callable
        Sums over labels, shape (w,), and the number of labels to scores. The mean is ``lambda total, p: total / p``.
    of_pair : callable
        What is summed, from the statistics, shape (p, w).
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
    """Scores of the features, shape (w,), from a statistic of every varying label with every feature.

    Labels are added one after the other: equal terms give equal bits for any tiles.

    Parameters
    ----------
    pair : callable
        Terms of a tile to its (p, w) statistics.
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
    """The quotient, 0 where the denominator is 0: of constant features.

    >>> quotient(np.array([[3.0, 2.0]]), np.array([[2.0, 0.0]]))
    array([[1.5, 0. ]])
    """
    shape = np.broadcast_shapes(numerator.shape, denominator.shape)
    result: Array = np.divide(numerator, denominator, out=np.zeros(shape), where=denominator > 0)
    return result
