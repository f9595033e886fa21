"""Naive Bayes of codes, a classifier a label: its terms from counts, and its mistakes on rows by a sum of terms.

Terms are whole numbers of 2^-32, so that their sums are exact in any order: a label at which the odds are even is
predicted by no rounding.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.typing import Array

#: Parts of 1 that terms are whole numbers of.
UNIT = 2.0**32


class Terms(NamedTuple):
    """What a feature's code adds to the log odds of a label, in whole numbers.

    Attributes
    ----------
    prior : float64 array, shape (q,)
    codes : float64 array, shape (codes, q, d)
    """

    prior: Array
    codes: Array


def bayes_terms(joint: Array, marginal: Array, positives: Array, n: float | Array, n_codes: NDArray[np.int64]) -> Terms:
    """Logarithms of ratios of probabilities with and without a label, a row being added to every count (Laplace).

    Parameters
    ----------
    joint : float64 array, shape (codes, q, d)
        Rows that have the code of a feature and the label.
    marginal : float64 array, shape (codes, 1, d) or (codes, q, d)
        Rows that have the code; where labels may be unknown, those in which each is known.
    positives : float64 array, shape (q,)
        Rows that have the label.
    n : float, or float64 array of shape (q,)
        Rows.
    n_codes : int64 array, shape (d,)
        Codes that rows have, of each feature.

    Examples
    --------
    >>> joint, marginal = np.array([[[3.0]], [[0.0]]]), np.array([[[3.0]], [[1.0]]])
    >>> terms = bayes_terms(joint, marginal, np.array([3.0]), 4.0, np.array([2]))
    >>> (np.exp(terms.codes / UNIT)).round(3).tolist()  # (4/5) / (1/3) and (1/5) / (2/3)
    [[[2.4]], [[0.3]]]
    """
    with_label = (positives[:, np.newaxis] + n_codes)[np.newaxis]
    without = ((n - positives)[:, np.newaxis] + n_codes)[np.newaxis]
    codes = np.log((joint + 1.0) / with_label) - np.log((marginal - joint + 1.0) / without)
    return Terms(_whole(np.log((positives + 1.0) / (n - positives + 1.0))), _whole(codes))


def _whole(values: Array) -> Array:
    values *= UNIT
    return np.rint(values, out=values)


def count_mistakes(indicators: sp.csc_array, Y: NDArray[np.int8], base: Array, terms: Array) -> int:
    """Known labels of rows that are predicted wrongly: one is predicted where its odds are above even.

    Parameters
    ----------
    indicators : csc_array, shape (rows, m)
        Which codes rows have.
    Y : int8 array, shape (rows, q)
        1, 0, and -1 for unknown entries, which are no mistakes.
    base : float64 array, shape (q,)
        Log odds of a row without any of the codes.
    terms : float64 array, shape (m, q)
        What each code adds.

    Examples
    --------
    >>> indicators, Y = sp.csc_array(np.array([[1, 0], [0, 1]])), np.array([[1], [1]], np.int8)
    >>> count_mistakes(indicators, Y, np.array([-1.0]), np.array([[3.0], [1.0]]))
    1
    """
    odds = indicators @ terms
    odds += base
    return int(np.count_nonzero(((odds > 0.0) != (Y > 0)) & (Y >= 0)))
