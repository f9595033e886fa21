"""Row weights, for methods whose scores are sums over the rows.

A row of weight 2 counts twice, and a row of weight 0 is left out. Weights are rounded to multiples of about 2⁻⁵² of
their sum, so that their float64 sums are exact: like counts of rows, they are the same for any chunks and workers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mlfs_dask.errors import DataError
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.rows.view import RowView
from mlfs_dask.typing import Array


def weighted_rows(source: RowSource, sample_weight: Any, *, mean_one: bool = False) -> RowSource:
    """Return the rows of a source with weights; the source itself if all weights are 1.

    Parameters
    ----------
    source : RowSource
    sample_weight : array-like, shape (n,), or None
    mean_one : bool
        True to scale the weights to a mean of 1 over the rows whose weight is not 0.

    Raises
    ------
    DataError
        If a weight is negative or not finite, if there are not n weights, or if all weights are 0.

    Examples
    --------
    >>> from mlfs_dask.rows.sources import as_rows
    >>> source = as_rows(np.eye(3), np.eye(3))
    >>> weighted_rows(source, [1, 1, 1]) is source
    True
    >>> [(block.X.shape, block.weights) for block in weighted_rows(source, [2, 0, 0.5]).stream(0, 1)]
    [((2, 3), array([2. , 0.5]))]
    """
    if sample_weight is None:
        return source
    n = source.profile.n
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise DataError(
            f"sample_weight must have shape ({n},), a weight for every row; got {weights.shape}",
            cure="give as many weights as rows, or None",
        )
    invalid = ~(np.isfinite(weights) & (weights >= 0))
    if invalid.any():
        row = int(np.flatnonzero(invalid)[0])
        raise DataError(
            f"sample_weight must hold numbers from 0; row {row} has {weights[row]} (counted from 0)",
            cure="give weight 0 to rows to leave out",
        )
    total = float(weights.sum())
    if total == 0:
        raise DataError("all sample weights are zero", cure="give some rows a weight above 0")
    if mean_one:
        weights = weights * (np.count_nonzero(weights) / total)
        total = float(weights.sum())
    if (weights == 1).all():
        return source
    weights = exact_weights(weights, total)
    positive = np.flatnonzero(weights)
    if len(positive) == n:
        return RowView(source, weights=weights)
    return RowView(source, positive, weights=weights[positive])


def exact_weights(weights: Array, total: float) -> Array:
    """Round weights, shape (m,), so that all their float64 sums up to `total` are exact, in any order.

    >>> exact_weights(np.array([0.1, 0.2]), 2.0**51)
    array([0., 0.])
    """
    unit = math.ldexp(1.0, math.frexp(total)[1] - 52)
    return np.rint(weights / unit) * unit
