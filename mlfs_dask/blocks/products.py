"""Products Y'X and Y'Y of one block with labels Y: sums over the rows with a label.

X is taken relative to a given row of shifts. Y'(X − μ) of a column far from zero is a small difference of large sums;
relative to a value of the column itself no digits are lost.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.typing import Array, Matrix


def positives_block(Y: sp.csr_array) -> sp.csr_array:
    """Return the positive entries of Y, as int8; of numeric targets the known entries, 0 for NaN.

    >>> positives_block(sp.csr_array(np.array([[1, -1]], dtype=np.int8))).toarray()
    array([[1, 0]], dtype=int8)
    """
    if isinstance(Y, np.ndarray):
        return np.nan_to_num(Y)
    if Y.nnz == 0 or Y.data.min() > 0:
        return Y
    positives = Y.copy()
    positives.data[positives.data < 0] = 0
    positives.eliminate_zeros()
    return positives


def label_products_block(X: Matrix, Y: sp.csr_array, shift: Array) -> Array:
    """Return the sum of (x − shift) over the rows with each label.

    Parameters
    ----------
    X : ndarray or csr_array, shape (rows, d)
    Y : csr_array of int8, or ndarray, shape (rows, q)
        Positive entries only; float64 weights for weighted rows (`weighted_block`); numeric targets without NaN.
    shift : float64 array, shape (d,)

    Returns
    -------
    float64 array, shape (q, d)

    Examples
    --------
    >>> Y = sp.csr_array(np.eye(2, dtype=np.int8))
    >>> label_products_block(np.array([[4, 1], [6, 1]]), Y, np.array([5.0, 1.0]))
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    by_label = Y.T.astype(np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        if isinstance(X, np.ndarray):
            return np.asarray(by_label @ (X - shift))
        products = by_label @ X.astype(np.float64)
        products = products.toarray() if sp.issparse(products) else products
        if shift.any():
            products -= np.outer(label_sums_block(Y), shift)
        return np.asarray(products)


def weighted_block(Y: sp.csr_array, weights: Array | None) -> sp.csr_array:
    """Return Y with its entries replaced by the row weights, or numeric Y times these; Y itself without weights.

    >>> weighted_block(sp.csr_array(np.array([[1, -1], [0, 1]], dtype=np.int8)), np.array([0.5, 2.0])).toarray()
    array([[0.5, 0.5],
           [0. , 2. ]])
    """
    if weights is None:
        return Y
    if isinstance(Y, np.ndarray):
        return Y * weights[:, np.newaxis]
    return sp.csr_array((np.repeat(weights, np.diff(Y.indptr)), Y.indices, Y.indptr), shape=Y.shape)


def label_sums_block(Y: sp.csr_array) -> NDArray[Any]:
    """Return the number of entries of each label, shape (q,), as int64; sums of weighted or numeric entries."""
    if isinstance(Y, np.ndarray):
        return np.asarray(Y.sum(axis=0))
    if Y.dtype.kind == "f":
        return np.bincount(Y.indices, weights=Y.data, minlength=Y.shape[1])
    return np.bincount(Y.indices, minlength=Y.shape[1]).astype(np.int64)


def label_pairs_block(Y: sp.csr_array, weighted: sp.csr_array | None = None) -> NDArray[Any]:
    """Return the number of rows with both labels of each pair, shape (q, q); Y'Y of numeric targets without NaN.

    Y holds positive entries only, and `weighted` the weights of their rows. Sums are int64, or float64 for weights: an
    int8 product of 1 000 ones would be −24.
    """
    if isinstance(Y, np.ndarray):
        return np.asarray(Y.T @ (Y if weighted is None else weighted))
    other = Y.astype(np.int64) if weighted is None else weighted
    pairs: Any = Y.astype(other.dtype).T @ other
    return np.asarray(pairs.toarray())
