"""Rows with unknown labels, represented as further labels: known rows are all rows minus these."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.typing import Array


def no_labels() -> NDArray[np.int64]:
    """Return an empty array of labels, shape (0,)."""
    return np.empty(0, np.int64)


def with_unknown_columns(Y: sp.csr_array, unknown: NDArray[np.int64]) -> sp.csr_array:
    """Append a label to Y for each label in `unknown`, positive in the rows where that label is unknown.

    Parameters
    ----------
    Y : csr_array of int8, or ndarray, shape (rows, q)
        Canonical, entries 1 and -1; or numeric targets, NaN for unknown.
    unknown : int64 array, shape (u,)
        Labels with unknown entries, ascending; entries -1 of other labels are dropped.

    Returns
    -------
    csr_array of int8, or ndarray, shape (rows, q + u)
        Entries 1 only; numeric targets are 0 where they are unknown.

    Examples
    --------
    >>> Y = sp.csr_array(np.array([[1, -1], [-1, 1]], np.int8))
    >>> with_unknown_columns(Y, np.array([1])).toarray().tolist()
    [[1, 0, 1], [0, 1, 0]]
    >>> with_unknown_columns(np.array([[2.5, np.nan], [-1.0, 1.5]]), np.array([1])).tolist()
    [[2.5, 0.0, 1.0], [-1.0, 1.5, 0.0]]
    """
    if isinstance(Y, np.ndarray):
        return np.column_stack([np.nan_to_num(Y), np.isnan(Y[:, unknown])])
    n, q = Y.shape
    column = np.full(q, -1, np.int64)
    column[unknown] = q + np.arange(len(unknown))
    indices = np.where(Y.data < 0, column[Y.indices], Y.indices)
    entries, indptr = indices >= 0, Y.indptr
    if not entries.all():
        indptr = np.concatenate([[0], np.cumsum(entries)])[indptr]
        indices = indices[entries]
    marked = sp.csr_array((np.ones(len(indices), np.int8), indices, indptr), shape=(n, q + len(unknown)))
    marked.sort_indices()
    return marked


def unknown_marks(Y: Any, unknown: NDArray[np.int64]) -> sp.csr_array:
    """Return the columns that `with_unknown_columns` appends, shape (rows, u), sparse."""
    return sp.csr_array(with_unknown_columns(Y, unknown)[:, Y.shape[1] :])


def at_shares(Y: sp.csr_array, shares: Array) -> sp.csr_array:
    """Replace unknown entries of Y by their label's share; return Y itself if it has none.

    Parameters
    ----------
    Y : csr_array of int8, shape (rows, q)
        Entries 1 and -1.
    shares : float64 array, shape (q,)

    Examples
    --------
    >>> at_shares(sp.csr_array(np.array([[1, -1], [-1, 0]], np.int8)), np.array([0.5, 0.2])).toarray().tolist()
    [[1.0, 0.2], [0.5, 0.0]]
    """
    if not (Y.data < 0).any():
        return Y
    return sp.csr_array((np.where(Y.data < 0, shares[Y.indices], 1.0), Y.indices, Y.indptr), shape=Y.shape)


def spread_rows(Y: sp.csr_array, P: Array) -> sp.csr_array:
    """Return, for each label, the columns of P in the rows with it: the row-wise Kronecker products of Y and P.

    Parameters
    ----------
    Y : csr_array, shape (rows, u)
        Entries 1 only.
    P : float64 array, shape (rows, c)

    Returns
    -------
    csr_array of float64, shape (rows, u c)

    Examples
    --------
    >>> spread_rows(sp.csr_array(np.array([[1, 0], [1, 1]])), np.array([[1.0, 2.0], [3.0, 4.0]])).toarray().tolist()
    [[1.0, 2.0, 0.0, 0.0], [3.0, 4.0, 3.0, 4.0]]
    """
    (rows, u), c = Y.shape, P.shape[1]
    data = np.repeat(P, np.diff(Y.indptr), axis=0).ravel()
    indices = (Y.indices.astype(np.int64)[:, np.newaxis] * c + np.arange(c)).ravel()
    return sp.csr_array((data, indices, Y.indptr.astype(np.int64) * c), shape=(rows, u * c))


def values_at_marks(values: NDArray[Any], marks: NDArray[np.int64]) -> NDArray[Any]:
    """Select the rows of `values` with the counts of unknown rows of each of p labels; 0 for labels always known.

    Parameters
    ----------
    values : array, shape (p + u, ...)
    marks : int64 array, shape (p,)
        Index of a label's unknown rows; -1 for a label always known.

    >>> values_at_marks(np.array([5, 6, 1]), np.array([-1, 2])).tolist()
    [0, 1]
    """
    selected = values[marks]
    selected[marks < 0] = 0
    return selected
