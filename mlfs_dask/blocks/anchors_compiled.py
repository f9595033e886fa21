"""Compiled kernels of `anchors`: the nearest anchors of every row of a tile, and their weights."""

from __future__ import annotations

import numpy as np
from numba import njit

#: Differences of a row's squared distances below this fraction of their size are rounding errors.
TIE = 1e-12


@njit(cache=True, nogil=True)
def keep_smallest(value, index, values, indices):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Put `value` in the place of the last of `values`, and there among the others, rising; ties by lower index."""
    p = values.size - 1
    while p > 0 and (values[p - 1] > value or (values[p - 1] == value and indices[p - 1] > index)):
        values[p], indices[p] = values[p - 1], indices[p - 1]
        p -= 1
    values[p], indices[p] = value, index


@njit(cache=True, nogil=True)
def simplex(near, size, weights):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the weights of the s nearest anchors of a row, whose s + 1 least distances are `near`, rising.

    `size` is that of the terms of the distances: where these differ by rounding errors alone, the weights are equal.
    """
    s = weights.size
    last = near[s]
    total = 0.0
    for p in range(s):
        weights[p] = last - near[p]
        total += weights[p]
    if total <= TIE * s * (size + abs(last)):
        weights[:] = 1.0 / s
    else:
        weights /= total


@njit(cache=True, nogil=True, fastmath={"reassoc", "contract"})
def squared_distance(x, y):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Squared distance of two vectors; summed in an order of the compiler's, the same for every call."""
    distance = 0.0
    for j in range(x.size):
        gap = x[j] - y[j]
        distance += gap * gap
    return distance


@njit(cache=True, nogil=True)
def weigh_dense(tile, factor, anchors, scores, rounding, indices, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the nearest anchors of dense rows and their weights.

    Parameters: tile float64 (rows, d), centred; factor (d,); anchors float64 (m, d), of scaled rows; scores float32
    (rows, m), the squared distances but for what is the same for all anchors of a row; rounding (2,), with which
    rounding[0]‖x‖ + rounding[1] bounds the error of the scores of a row x; indices int32 and weights float64
    (rows, s), the output. s < m.
    """
    rows, d = tile.shape
    m = anchors.shape[0]
    s = weights.shape[1]
    rough, unused = np.empty(s + 1, np.float32), np.zeros(s + 1, np.int64)
    near, nearest = np.empty(s + 1, np.float64), np.empty(s + 1, np.int64)
    x = np.empty(d, np.float64)
    for i in range(rows):
        row = scores[i]
        rough[:] = np.inf
        for a in range(m):
            if row[a] < rough[s]:
                keep_smallest(row[a], 0, rough, unused)
        size = 0.0
        for j in range(d):
            x[j] = tile[i, j] * factor[j]
            size += x[j] * x[j]
        # An anchor with a larger score is not among the s + 1 nearest: that many others are certainly nearer.
        bound = rough[s] + 2.0 * (rounding[0] * np.sqrt(size) + rounding[1])
        near[:] = np.inf
        nearest[:] = 0
        for a in range(m):
            if not row[a] > bound:  # in this form also true where a row is not finite
                distance = squared_distance(x, anchors[a])
                if distance < near[s]:
                    keep_smallest(distance, a, near, nearest)
        simplex(near, size, weights[i])
        indices[i] = nearest[:s]


@njit(cache=True, nogil=True)
def weigh_sparse(values, columns, rowptr, factor, anchors, squares, indices, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the nearest anchors of sparse rows and their weights.

    Parameters: X as CSR (values, columns, rowptr); factor (d,); anchors float64 (d, m), a column an anchor, of scaled
    rows that are not centred; squares (m,), their squared lengths; indices int32 and weights float64 (rows, s).
    """
    m = anchors.shape[1]
    rows, s = weights.shape
    near, nearest = np.empty(s + 1, np.float64), np.empty(s + 1, np.int64)
    products = np.empty(m, np.float64)
    for i in range(rows):
        products[:] = 0.0
        size = 0.0
        for p in range(rowptr[i], rowptr[i + 1]):
            value = values[p] * factor[columns[p]]
            size += value * value
            line = anchors[columns[p]]
            for a in range(m):
                products[a] += value * line[a]
        near[:] = np.inf
        nearest[:] = 0
        for a in range(m):
            distance = squares[a] - 2.0 * products[a]
            if distance < near[s]:
                keep_smallest(distance, a, near, nearest)
        # The distances lack |x|², which is the same for all anchors; their rounding errors are relative to it, too.
        simplex(near, size + squares[nearest[0]], weights[i])
        indices[i] = nearest[:s]
