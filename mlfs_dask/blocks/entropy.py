"""Counts to entropies and mutual information, in natural logarithms.

H = log n - (1/n) sum of c log c over the counts c. Sums over codes run in ascending order, within each over the other
variable's, so that equal counts give equal bits however the work was cut, and a 0/1 feature those of its complement
(a + b = b + a).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.pair_scores import Counts
from mlfs_dask.typing import Array


def count_log_count(counts: NDArray[Any]) -> Array:
    """c log c, with 0 log 0 = 0.

    >>> count_log_count(np.array([0, 1])).tolist()
    [0.0, 0.0]
    """
    values = counts.astype(np.float64)
    logs = np.log(np.where(values > 0, values, 1.0))
    logs *= values
    return logs


def sum_count_log_counts(counts: NDArray[Any], axes: int = 1) -> Array:
    """Sum of c log c over the first axes, the last of them first.

    >>> sum_count_log_counts(np.array([[2, 4], [2, 0]])).round(6).tolist()
    [2.772589, 5.545177]
    """
    if axes == 0:
        return count_log_count(counts)
    total = np.zeros(counts.shape[axes:], dtype=np.float64)
    for state in counts:
        total += sum_count_log_counts(state, axes - 1)
    return total


def entropy_of_counts(counts: NDArray[Any], n: Any, axes: int = 1) -> Array:
    """Entropy of each column of a table of counts over states.

    Parameters
    ----------
    counts : int or float array, shape (states, ...)
        Summing to n over the first axes.
    n : int or float
    axes : int
        Number of axes that are states: those of one variable in the first, of another in the second.

    >>> entropy_of_counts(np.array([[2, 4], [2, 0]]), 4).round(6).tolist()
    [0.693147, 0.0]
    """
    entropy: Array = np.log(n) - sum_count_log_counts(counts, axes) / n
    entropy[entropy <= rounding_error(n)] = 0.0
    return entropy


def rounding_error(n: Any) -> Any:
    """What an entropy of n rows may be off by: smaller ones are taken as zero."""
    return 16 * np.finfo(np.float64).eps * np.maximum(np.abs(np.log(n)), 1.0)


def information(counts: Counts) -> Array:
    """Mutual information M(f; l) = H(f) + H(l) - H(f, l), shape (p, w).

    Zero where it is no larger than the rounding error of its three entropies.
    """
    joint, marginal, positives, n = counts
    total = np.zeros(joint.shape[1:])
    for both, rows in zip(joint, marginal, strict=True):
        states = count_log_count(both)
        states += count_log_count(rows - both)
        total += states
    joint_entropy = np.log(n) - total / n
    label = entropy_of_counts(np.stack([positives, n - positives]), n)
    shared: Array = entropy_of_counts(marginal, n) + label - joint_entropy
    shared[shared <= rounding_error(n)] = 0.0
    return shared
