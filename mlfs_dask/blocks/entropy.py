"""Counts to entropies and mutual information, in natural logarithms.

H = log n - (1/n) sum of c log c over the counts c. Sums over codes run in ascending order, and within a code over the
other variable's codes, so that equal counts give equal bits for any tiling, and a 0/1 feature gives the bits of its
complement (a + b = b + a).
"""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.pair_scores import Counts
from mlfs_dask.typing import Array

#: Counts below this are looked up in a table of 512 KiB, in a tenth of the time of a logarithm.
LOOKED_UP = 2**16


def count_log_count(counts: NDArray[Any]) -> Array:
    """Return c log c, with 0 log 0 = 0.

    >>> count_log_count(np.array([0, 1])).tolist()
    [0.0, 0.0]
    """
    if counts.dtype.kind in "iu" and counts.max(initial=0) < LOOKED_UP:
        return _logs_of_counts().take(counts)
    return _count_log_count(counts)


@functools.cache
def _logs_of_counts() -> Array:
    return _count_log_count(np.arange(LOOKED_UP))


def _count_log_count(counts: NDArray[Any]) -> Array:
    values = counts.astype(np.float64)
    logs = np.log(np.where(values > 0, values, 1.0))
    logs *= values
    return logs


def sum_count_log_counts(counts: NDArray[Any], axes: int = 1) -> Array:
    """Sum c log c over the first axes, the last of them first.

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
    """Return the entropy of each column of a table of counts over states.

    Parameters
    ----------
    counts : int or float array, shape (states, ...)
        Sums to n over the first axes.
    n : int or float
    axes : int
        Number of axes of states: one variable in the first, another in the second.

    >>> entropy_of_counts(np.array([[2, 4], [2, 0]]), 4).round(6).tolist()
    [0.693147, 0.0]
    """
    entropy: Array = np.log(n) - sum_count_log_counts(counts, axes) / n
    entropy[entropy <= rounding_error(n)] = 0.0
    return entropy


def rounding_error(n: Any) -> Any:
    """Return the bound of rounding errors of an entropy of n rows, below which it counts as zero."""
    return 16 * np.finfo(np.float64).eps * np.maximum(np.abs(np.log(n)), 1.0)


def information(counts: Counts) -> Array:
    """Return the mutual information M(f; l) = H(f) + H(l) - H(f, l), shape (p, w).

    Zero if it does not exceed the rounding error of the three entropies.
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
