"""Shrinkage and row norms of small matrices."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def row_norms(W: NDArray[np.float64]) -> NDArray[np.float64]:
    """Euclidean norm of each row.

    >>> row_norms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([5., 0.])
    """
    norms: NDArray[np.float64] = np.sqrt(np.einsum("ij,ij->i", W, W))
    return norms


def shrink_rows(W: NDArray[np.float64], threshold: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Shorten every row by `threshold`, or by one of its own, in place; a shorter row becomes exactly zero.

    The proximal operator of ``threshold * ‖W‖_{2,1}``.

    >>> shrink_rows(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    array([[2.4, 3.2],
           [0. , 0. ]])
    """
    norms = row_norms(W)
    factors = np.zeros_like(norms)
    np.divide(norms - threshold, norms, out=factors, where=norms > threshold)
    W *= factors[:, np.newaxis]
    return W


def shrink_entries(W: NDArray[np.float64], threshold: float) -> NDArray[np.float64]:
    """Bring every entry nearer to 0 by `threshold`, in place; a smaller entry becomes exactly zero.

    The proximal operator of ``threshold * Σ|w|``.

    >>> shrink_entries(np.array([[3.0, -4.0], [0.3, -0.4]]), 1.0)
    array([[ 2., -3.],
           [ 0., -0.]])
    """
    size = np.abs(W)
    size -= threshold
    np.copysign(np.maximum(size, 0.0, out=size), W, out=W)
    return W
