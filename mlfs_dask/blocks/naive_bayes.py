"""Naive Bayes on codes, one classifier per label: terms from counts, and errors on rows from sums of terms.

Terms are integer multiples of 2^-32, so that their sums are exact in any order: rounding never decides a label with
even odds.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.typing import Array

#: Denominator of the terms.
UNIT = 2.0**32


class Terms(NamedTuple):
    """Contributions of a feature's code to the log odds of a label, as integers.

    Attributes
    ----------
    prior : float64 array, shape (q,)
    codes : float64 array, shape (codes, q, d)
    """

    prior: Array
    codes: Array


def bayes_terms(joint: Array, marginal: Array, positives: Array, n: float | Array, n_codes: NDArray[np.int64]) -> Terms:
    """Return log ratios of the probabilities with and without a label, with one row added to every count (Laplace).

    Parameters
    ----------
    joint : float64 array, shape (codes, q, d)
        Number of rows with the code of a feature and the label.
    marginal : float64 array, shape (codes, 1, d) or (codes, q, d)
        Number of rows with the code; for unknown labels, among the rows in which the label is known.
    positives : float64 array, shape (q,)
        Number of rows with the label.
    n : float, or float64 array of shape (q,)
        Number of rows.
    n_codes : int64 array, shape (d,)
        Number of codes that occur, of each feature.

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
    return Terms(_as_integers(np.log((positives + 1.0) / (n - positives + 1.0))), _as_integers(codes))


def _as_integers(values: Array) -> Array:
    values *= UNIT
    return np.rint(values, out=values)


def count_mistakes(indicators: sp.csc_array, Y: NDArray[np.int8], base: Array, terms: Array) -> int:
    """Return the number of known labels predicted wrongly; a label is predicted if its odds exceed even.

    Parameters
    ----------
    indicators : csc_array, shape (rows, m)
        Indicators of the rows' codes.
    Y : int8 array, shape (rows, q)
        1, 0, or -1 for unknown entries, which are no errors.
    base : float64 array, shape (q,)
        Log odds of a row without any of the codes.
    terms : float64 array, shape (m, q)
        Contribution of each code.

    Examples
    --------
    >>> indicators, Y = sp.csc_array(np.array([[1, 0], [0, 1]])), np.array([[1], [1]], np.int8)
    >>> count_mistakes(indicators, Y, np.array([-1.0]), np.array([[3.0], [1.0]]))
    1
    """
    odds = indicators @ terms
    odds += base
    return int(np.count_nonzero(((odds > 0.0) != (Y > 0)) & (Y >= 0)))
