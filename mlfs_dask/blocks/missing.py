"""Missing values (NaN) of one block: sums over what is present, and what is filled in. Sparse blocks stay sparse."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.linear import dense_tiles
from mlfs_dask.typing import Matrix


def present_sums_block(X: Matrix) -> NDArray[np.float64]:
    """Sum of the values of each feature that are not NaN, shape (d,).

    >>> present_sums_block(np.array([[1.0, 5.0], [2.0, np.nan]]))
    array([3., 5.])
    """
    d = X.shape[1]
    if isinstance(X, np.ndarray):
        sums = np.zeros(d)
        for _, tile in dense_tiles(X, None):
            sums += np.nansum(tile, axis=0)
        return sums
    present = ~np.isnan(X.data)
    counted: NDArray[Any] = np.bincount(X.indices[present], weights=X.data[present], minlength=d)
    return counted.astype(np.float64, copy=False)


def fill_block(X: Matrix, fill: NDArray[np.float64]) -> Matrix:
    """X with `fill`, shape (d,), in the places of NaN; X itself where there is none.

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


def column_medians(sample: Matrix, columns: NDArray[np.intp], default: NDArray[np.float64]) -> NDArray[np.float64]:
    """Median of the values of some features that are not NaN, shape (d,); `default` for the others, and without values.

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
        present = column[~np.isnan(column)].astype(np.float64)
        if len(present):
            medians[f] = np.median(present)
    return medians
