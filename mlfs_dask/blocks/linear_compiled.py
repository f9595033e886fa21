"""Compiled products of sparse rows with wide dense matrices, imported only where these leave the second-level cache.

Rows are visited feature by feature: a row of W or of the sums, of which there are many more than rows in a group, is
loaded once for the group. Sums of a product have the order of SciPy's.
"""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit

#: Features of a strip of Z'X: a few cache lines of every row, whose sums stay in the first-level cache.
STRIP = 32


@njit()
def forward(ptr, rows, values, W, centre, out):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write (X − centre) W to `out` (rows, c), X (rows, d) being (ptr, rows, values) as CSC, W (d, c)."""
    out[:] = 0.0
    shift = np.zeros(W.shape[1])
    for j in range(W.shape[0]):
        w = W[j]
        for i in range(w.size):
            shift[i] += centre[j] * w[i]
        for p in range(ptr[j], ptr[j + 1]):
            into, value = out[rows[p]], values[p]
            for i in range(w.size):
                into[i] += value * w[i]
    for r in range(out.shape[0]):
        for i in range(shift.size):
            out[r, i] -= shift[i]


@njit()
def backward(ptr, rows, values, R, centre, sums, into):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Add (X − centre)'R to `into` (d, c), X as in `forward`, R (rows, c) with `sums` (c,) over its rows."""
    total = np.empty(sums.size)
    for j in range(into.shape[0]):
        total[:] = 0.0
        for p in range(ptr[j], ptr[j + 1]):
            r, value = R[rows[p]], values[p]
            for i in range(total.size):
                total[i] += value * r[i]
        for i in range(total.size):
            into[j, i] = into[j, i] + total[i] - centre[j] * sums[i]


@njit()
def grouped_rows(tile, first, columns, weights, into):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Add Z'X to `into` (m, d), X being a dense tile (rows, d), Z (first, columns, weights) as CSR."""
    for i in range(len(tile)):
        row = tile[i]
        for z in range(first[i], first[i + 1]):
            sums, weight = into[columns[z]], weights[z]
            for j in range(row.size):
                sums[j] += weight * row[j]


@njit()
def grouped(ptr, rows, values, first, columns, weights, centre, sums, into):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add Z'(X − centre) to `into` (m, d), X as in `forward`, Z (first, columns, weights) as CSR with `sums` (m,)."""
    m, d = into.shape
    total = np.empty((m, STRIP))
    for low in range(0, d, STRIP):
        width = min(STRIP, d - low)
        total[:] = 0.0
        for j in range(width):
            for p in range(ptr[low + j], ptr[low + j + 1]):
                for z in range(first[rows[p]], first[rows[p] + 1]):
                    total[columns[z], j] += weights[z] * values[p]
        for a in range(m):
            for j in range(width):
                into[a, low + j] = into[a, low + j] + total[a, j] - sums[a] * centre[low + j]
