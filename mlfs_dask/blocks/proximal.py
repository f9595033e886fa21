"""Proximal operators and row norms of small matrices."""

from __future__ import annotations

import numpy as np

from mlfs_dask.typing import Array


def row_norms(W: Array) -> Array:
    """Return the Euclidean norm of each row.

    >>> row_norms(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([5., 0.])
    """
    norms: Array = np.sqrt(np.einsum("ij,ij->i", W, W))
    return norms


def shrink_rows(W: Array, threshold: float | Array) -> Array:
    """Shorten every row by `threshold`, a scalar or one per row, in place; a shorter row becomes exactly zero.

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


def shrink_entries(W: Array, threshold: float) -> Array:
    """Reduce the magnitude of every entry by `threshold`, in place; a smaller entry becomes exactly zero.

    The proximal operator of ``threshold * Σ|w|``.

    >>> shrink_entries(np.array([[3.0, -4.0], [0.3, -0.4]]), 1.0)
    array([[ 2., -3.],
           [ 0., -0.]])
    """
    size = np.abs(W)
    size -= threshold
    np.copysign(np.maximum(size, 0.0, out=size), W, out=W)
    return W


def hierarchical_prox(V: Array, U: Array, threshold: float, M: float) -> tuple[Array, Array]:
    """Return the proximal point of V and U under the constraint |u_i| ≤ M ‖v‖ for every entry of a row.

    Minimises ½‖b − v‖² + ½‖a − u‖² + threshold ‖b‖ over b and a with |a_i| ≤ M ‖b‖, for every row (Hier-Prox;
    Lemhadri, Ruan, Abraham & Tibshirani 2021, JMLR 22, 127, Algorithm 3). The s largest entries of u are cut at
    w = M ‖b‖, where ‖b‖ (1 + s M²) = ‖v‖ − threshold + M times their sum.

    Parameters
    ----------
    V : float64 array, shape (d, q)
    U : float64 array, shape (d, h)
    threshold, M : float

    Returns
    -------
    V, U : float64 array
        New arrays. A row with V = 0 has no direction to grow in, and becomes 0.

    Examples
    --------
    >>> hierarchical_prox(np.array([[3.0, 4.0], [0.3, 0.4]]), np.array([[9.0, -1.0], [0.1, 0.0]]), 1.0, 1.0)
    (array([[3.9, 5.2],
           [0. , 0. ]]), array([[ 6.5, -1. ],
           [ 0. ,  0. ]]))
    """
    size, entries = row_norms(V), np.abs(U)
    length = np.maximum(size - threshold, 0.0)
    cut = np.flatnonzero(entries.max(axis=1, initial=0.0) > M * length)
    if len(cut):
        s = np.arange(U.shape[1] + 1)
        falling = np.zeros((len(cut), len(s)))
        falling[:, :-1] = -np.sort(-entries[cut], axis=1)
        sums = np.zeros_like(falling)
        np.cumsum(falling[:, :-1], axis=1, out=sums[:, 1:])
        lengths = np.maximum(size[cut, np.newaxis] - threshold + M * sums, 0.0) / (1.0 + s * M**2)
        n_cut = (falling > M * lengths).sum(axis=1)
        length[cut] = lengths[np.arange(len(cut)), n_cut]
    length[size == 0.0] = 0.0
    shrunk = V * np.divide(length, size, out=np.zeros_like(size), where=size > 0)[:, np.newaxis]
    return shrunk, np.copysign(np.minimum(entries, M * length[:, np.newaxis]), U)
