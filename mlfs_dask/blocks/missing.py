"""Missing values (NaN) of one block: sums over present values, and filling. Sparse blocks stay sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.linear import dense_tiles
from mlfs_dask.typing import Array, Matrix


def present_sums_block(X: Matrix, weights: Array | None = None) -> Array:
    """Return the sum of the present values of each feature, shape (d,); `weights`, (rows,), are row weights.

    >>> present_sums_block(np.array([[1.0, 5.0], [2.0, np.nan]]))
    array([3., 5.])
    """
    d = X.shape[1]
    if isinstance(X, np.ndarray):
        sums = np.zeros(d)
        for part, tile in dense_tiles(X, None):
            present = np.where(np.isnan(tile), 0.0, tile)
            sums += present.sum(axis=0) if weights is None else weights[part] @ present
        return sums
    present = ~np.isnan(X.data)
    values = X.data if weights is None else X.data * np.repeat(weights, np.diff(X.indptr))
    sums = np.bincount(X.indices[present], weights=values[present], minlength=d)
    return np.asarray(sums, dtype=np.float64)


def missing_weights_block(X: Matrix, weights: Array) -> Array:
    """Return the sum of the weights of the rows with a missing value of each feature, shape (d,).

    >>> missing_weights_block(np.array([[np.nan, 5.0], [2.0, np.nan]]), np.array([0.5, 2.0]))
    array([0.5, 2. ])
    """
    if isinstance(X, np.ndarray):
        return np.asarray(weights @ np.isnan(X))
    missing = np.isnan(X.data)
    of_values = np.repeat(weights, np.diff(X.indptr))
    sums = np.bincount(X.indices[missing], weights=of_values[missing], minlength=X.shape[1])
    return np.asarray(sums, dtype=np.float64)


def count_nonzero_block(X: Matrix, weights: Array | None = None) -> NDArray[Any]:
    """Return the number, or total weight, of rows with a nonzero value of each feature, shape (d,); NaN is nonzero.

    >>> count_nonzero_block(np.array([[np.nan, 0.0], [2.0, 0.0]])), count_nonzero_block(np.eye(2), np.array([0.5, 2.0]))
    (array([2, 0]), array([0.5, 2. ]))
    """
    if isinstance(X, np.ndarray):
        return np.count_nonzero(X, axis=0) if weights is None else np.asarray(weights @ (X != 0))
    stored = X.data != 0
    of_values = None if weights is None else np.repeat(weights, np.diff(X.indptr))[stored]
    return np.bincount(X.indices[stored], weights=of_values, minlength=X.shape[1])


def only_zero_and_one_block(X: Matrix, chosen: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return True for each chosen feature whose present values are all 0 or 1, shape (len(chosen),).

    >>> only_zero_and_one_block(np.array([[1.0, 0.5], [np.nan, 1.0]]), np.array([0, 1]))
    array([ True, False])
    """
    if isinstance(X, np.ndarray):
        only = np.empty(len(chosen), bool)
        for start in range(0, len(chosen), 64):
            tile = X[:, chosen[start : start + 64]]
            only[start : start + 64] = ((tile == 0) | (tile == 1) | np.isnan(tile)).all(axis=0)
        return only
    other = (X.data != 0) & (X.data != 1) & ~np.isnan(X.data)
    zero_one: NDArray[np.bool_] = np.bincount(X.indices[other], minlength=X.shape[1])[chosen] == 0
    return zero_one


def fill_block(X: Matrix, fill: Array) -> Matrix:
    """Return X with NaN replaced by `fill`, shape (d,); X itself if it has no NaN.

    Examples
    --------
    >>> fill_block(np.array([[1.0, 5.0], [2.0, np.nan]]), np.array([0.0, 7.0]))
    array([[1., 5.],
           [2., 7.]])
    """
    values = X if isinstance(X, np.ndarray) else X.data
    if values.dtype.kind != "f":
        return X
    missing = np.isnan(values)
    if not missing.any():
        return X
    if isinstance(X, np.ndarray):
        return np.where(missing, fill.astype(X.dtype), X)
    filled = sp.csr_array(
        (np.where(missing, fill.astype(values.dtype)[X.indices], values), X.indices, X.indptr), X.shape
    )
    filled.has_canonical_format = True
    return filled


def column_medians(
    sample: Matrix,
    columns: NDArray[np.intp],
    default: Array,
    weights: Array | None = None,
) -> Array:
    """Return medians of the present values of the given features, shape (d,); `default` elsewhere or without values.

    `weights`, shape (rows,), are weights of the sample rows.

    Examples
    --------
    >>> sample = np.array([[1.0, 5.0, np.nan], [2.0, np.nan, np.nan], [9.0, 7.0, np.nan]])
    >>> column_medians(sample, np.array([1, 2]), np.array([4.0, 4.0, 4.0]))
    array([4., 6., 4.])
    """
    medians = default.astype(np.float64)
    dense = isinstance(sample, np.ndarray)
    by_column = sample if dense else sample.tocsc()
    for f in columns:
        column = by_column[:, f] if dense else by_column[:, [f]].toarray().ravel()
        present = ~np.isnan(column)
        if present.any():
            values = column[present].astype(np.float64)
            medians[f] = np.median(values) if weights is None else _weighted_median(values, weights[present])
    return medians


def _weighted_median(values: Array, weights: Array) -> float:
    """Return the median of values repeated by weight; the mean of the two middle values if there are two.

    >>> _weighted_median(np.array([5.0, 1.0, 2.0]), np.array([1.0, 1.0, 2.0]))
    2.0
    """
    order = np.argsort(values)
    below = np.cumsum(weights[order])
    low, high = (int(np.searchsorted(below, below[-1] / 2, side=side)) for side in ("left", "right"))
    return float((values[order[low]] + values[order[high]]) / 2)
