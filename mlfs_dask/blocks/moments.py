"""Moments (count, mean, M2) of each column of one block, and their merging.

M2 is the sum of squared deviations from the mean, merged by the formula of Chan, Golub and LeVeque; E[x²] − E[x]² would
lose all digits for a column far from zero. A constant column has M2 exactly 0 for any split of the rows: deviations are
relative to a value of the column itself.

Means are relative to an origin that the caller chooses near the data. The difference of two means of 10⁸ would have
eight digits left, and merging squares it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.rounding import ROUNDING
from mlfs_dask.typing import Array, Matrix

#: Largest sum of integers recovered from moments: its product with n fits int64.
_LARGEST_SUM = 2.0**31

#: Sums of squares below this count as 0: deviations of 1e-145, whose squares lose digits and whose variance has no
#: finite inverse.
_SMALLEST_SQUARES = 2.0**-960


class ColumnMoments(NamedTuple):
    """Moments of columns relative to an origin; all arrays have shape (d,).

    `counts` are int64; for weighted rows, float64 sums of weights.
    """

    counts: NDArray[Any]
    mean: Array
    m2: Array


def moments_block(X: Matrix, origin: Array, weights: Array | None = None) -> ColumnMoments:
    """Return count, mean and M2 of the stored values of each column, relative to the origin.

    Parameters
    ----------
    X : ndarray or csr_array, shape (rows, d)
        Only stored values of a sparse block count; `add_zeros` adds the implicit zeros once, at the end.
    origin : float64 array, shape (d,)
    weights : float64 array, shape (rows,), optional
        Row weights, positive.

    Returns
    -------
    count : int64 array, shape (d,), or float64 for weighted rows
    mean, m2 : float64 array, shape (d,)
        Zero if the count is zero; NaN if a value is NaN or infinite.

    Examples
    --------
    >>> moments_block(np.array([[1.0, 5.0], [3.0, 5.0]]), np.array([0.0, 5.0]))
    ColumnMoments(counts=array([2, 2]), mean=array([2., 0.]), m2=array([2., 0.]))
    """
    rows, d = X.shape
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(X, sp.csr_array):
            of_values = None if weights is None else np.repeat(weights, np.diff(X.indptr))
            return _sparse_moments(X.data, X.indices, origin, of_values)
        if rows == 0:
            return ColumnMoments(np.zeros(d, np.int64), np.zeros(d), np.zeros(d))
        first = X[0].astype(np.float64)
        deviation = X - first
        if weights is not None:
            total = weights.sum()
            mean = weights @ deviation / total
            deviation -= mean
            return ColumnMoments(np.full(d, total), first - origin + mean, weights @ (deviation * deviation))
        mean = deviation.sum(axis=0) / rows
        deviation -= mean
        m2 = np.asarray(np.einsum("ij,ij->j", deviation, deviation), dtype=np.float64)
        return ColumnMoments(np.full(d, rows, np.int64), first - origin + mean, m2)


def _sparse_moments(values: NDArray[Any], columns: NDArray[Any], origin: Array, weights: Array | None) -> ColumnMoments:
    d = len(origin)
    count = np.bincount(columns, weights=weights, minlength=d).astype(np.int64 if weights is None else np.float64)
    present = np.where(count > 0, count, 1)
    first = origin.copy()
    first[columns[::-1]] = values[::-1]  # the last assignment wins: the first value of each column
    deviation = values - first[columns]
    counted = deviation if weights is None else weights * deviation
    mean = np.bincount(columns, weights=counted, minlength=d) / present
    del counted
    deviation -= mean[columns]
    deviation *= deviation
    if weights is not None:
        deviation *= weights
    m2 = np.bincount(columns, weights=deviation, minlength=d).astype(np.float64, copy=False)
    return ColumnMoments(count, first - origin + mean, m2)


def merge_moments(into: ColumnMoments, other: ColumnMoments) -> None:
    """Merge `other` into `into`, in place.

    Examples
    --------
    >>> a, b = (moments_block(np.array([[x]]), np.zeros(1)) for x in (1.0, 3.0))
    >>> merge_moments(a, b)
    >>> a
    ColumnMoments(counts=array([2]), mean=array([2.]), m2=array([2.]))
    """
    count, mean, m2 = into
    more, other_mean, other_m2 = other
    total = count + more
    total = np.where(total > 0, total, 1)
    with np.errstate(over="ignore", invalid="ignore"):
        delta = other_mean - mean
        # An empty column copies the mean, so that a constant stays exactly constant.
        mean += np.where(count == 0, delta, delta * (more / total))
        m2 += other_m2 + delta * delta * (count * (more / total))
    count += more


class IntegerSums(NamedTuple):
    """Exact sums of columns with integer values, such as 0/1; all arrays but `which` cover these columns only.

    Moments are rounded, differently for every split of the rows, and rounding would order features with equal scores.
    These sums depend only on the data.

    Attributes
    ----------
    which : bool array, shape (d,)
    n : int
        Number of rows.
    total : int64 array
        Sums of x − origin.
    mean, m2 : float64 array
        Mean and M2 of x itself, each the quotient of two integers.
    """

    which: NDArray[np.bool_]
    n: int
    total: NDArray[np.int64]
    mean: Array
    m2: Array


def integer_sums(moments: ColumnMoments, origin: Array, *others: Array) -> IntegerSums:
    """Recover exact sums for the columns whose sums are all integers up to rounding.

    Parameters
    ----------
    moments : ColumnMoments
        Moments over all rows, relative to `origin`.
    origin : float64 array, shape (d,)
    *others : float64 array, shape (d,)
        Sums of x − origin over subsets of rows.

    Examples
    --------
    >>> moments = ColumnMoments(np.array([3, 3]), np.array([1 / 3, 0.5]), np.array([2 / 3, 1.0]))
    >>> sums = integer_sums(moments, np.zeros(2))
    >>> sums.which, sums.total
    (array([ True, False]), array([1]))
    """
    counts, mean, m2 = moments
    n = float(counts.max(initial=0))
    with np.errstate(over="ignore", invalid="ignore"):
        total, squares = n * mean, m2 + n * mean * mean
        # A sum of squares between 0 and 1 belongs to small values, not to integers.
        which = (origin == np.rint(origin)) & ((squares == 0) | (squares >= 0.5))
        for sums in (origin, total, squares, *others):
            which &= (np.abs(sums) < _LARGEST_SUM) & (np.abs(sums - np.rint(sums)) <= ROUNDING * squares)
    if not 0 < n < _LARGEST_SUM or n % 1:
        which[:] = False
        n = 1.0
    rows = int(n)
    t, s, first = (np.rint(sums[which]).astype(np.int64) for sums in (total, squares, origin))
    return IntegerSums(which, rows, t, (t + rows * first) / rows, (rows * s - t * t) / rows)


def add_zeros(moments: ColumnMoments, rows: int | float, origin: Array) -> ColumnMoments:
    """Return moments over all `rows` rows, including implicit zeros, as new arrays.

    Columns that vary by less than 1e-145 count as constant.

    Examples
    --------
    >>> add_zeros(ColumnMoments(np.array([1]), np.array([2.0]), np.array([0.0])), 2, np.zeros(1))
    ColumnMoments(counts=array([2]), mean=array([1.]), m2=array([2.]))
    """
    total = ColumnMoments(moments.counts.copy(), moments.mean.copy(), moments.m2.copy())
    merge_moments(total, ColumnMoments(rows - total.counts, -origin, np.zeros_like(origin)))
    total.m2[total.m2 < _SMALLEST_SQUARES] = 0.0
    return total
