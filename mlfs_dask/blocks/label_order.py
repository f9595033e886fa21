"""Labels of rows ranked by score, the basis of ranking metrics and of the judge of `auto`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.typing import Array


class LabelOrder(NamedTuple):
    """Labels of m rows by descending score, and the entries of positive labels; each row has one.

    Attributes
    ----------
    truth : bool array, shape (m, q)
        True if the label of each rank is positive; ties by index.
    rank : int array, shape (entries,)
        Rank from 0 of each positive label, row by row: the last rank of its tie.
    positives_above : int array, shape (entries,)
        Number of positive labels up to that rank.
    starts : int array, shape (m,)
        First entry of each row.
    """

    truth: NDArray[np.bool_]
    rank: NDArray[np.intp]
    positives_above: NDArray[np.intp]
    starts: NDArray[np.intp]

    @property
    def positives(self) -> NDArray[np.intp]:
        """Number of positive labels of each row, shape (m,)."""
        result: NDArray[np.intp] = self.truth.sum(axis=1)
        return result

    @property
    def precision(self) -> Array:
        """Average precision of each row, shape (m,)."""
        result: Array = np.add.reduceat(self.positives_above / (self.rank + 1), self.starts)
        return result / self.positives


def order_labels(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> LabelOrder:
    """Rank the labels of rows with at least one positive label.

    Parameters
    ----------
    truth : bool array, shape (m, q)
    scores : float array, shape (m, q)
        Higher for more likely labels. Ties count against the scores, as in scikit-learn.

    Examples
    --------
    >>> order = order_labels(np.array([[True, False, True]]), np.array([[0.5, 0.5, 0.9]]))
    >>> order.rank, order.positives_above, order.precision.round(4)
    (array([0, 2]), array([1, 2]), array([0.8333]))
    """
    q = truth.shape[1]
    ranking = np.argsort(-scores, axis=1, kind="stable")
    truth, scores = np.take_along_axis(truth, ranking, axis=1), np.take_along_axis(scores, ranking, axis=1)
    # The last rank of a tie: all tied labels count as better.
    last = np.full(truth.shape, q - 1)
    np.copyto(last[:, :-1], np.arange(q - 1), where=scores[:, 1:] != scores[:, :-1])
    last = np.minimum.accumulate(last[:, ::-1], axis=1)[:, ::-1]
    row, rank = np.nonzero(truth)
    rank = last[row, rank]
    positives_above: NDArray[np.intp] = np.cumsum(truth, axis=1, dtype=np.intp)[row, rank]
    return LabelOrder(truth, rank, positives_above, np.searchsorted(row, np.arange(len(truth))))


def average_precision(truth: NDArray[np.bool_], scores: NDArray[np.floating]) -> Array:
    """Return the average precision of every row; NaN for a row with all labels or none.

    Parameters
    ----------
    truth, scores : array, shape (m, q)
        See `order_labels`.

    Returns
    -------
    float64 array, shape (m,)

    Examples
    --------
    >>> average_precision(np.array([[True, False, True], [False] * 3]), np.array([[0.1, 0.2, 0.3], [0.1, 0.2, 0.3]]))
    array([0.83333333,        nan])
    """
    result = np.full(len(truth), np.nan)
    ordered = truth.any(axis=1) & ~truth.all(axis=1)
    if ordered.any():
        result[ordered] = order_labels(truth[ordered], scores[ordered]).precision
    return result
