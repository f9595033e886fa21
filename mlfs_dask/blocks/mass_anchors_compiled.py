"""Compiled kernels of `mass_anchors`: masses of rows with landmarks, and weights of the landmarks."""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.anchors_compiled import keep_smallest, simplex
from mlfs_dask.blocks.compiling import njit


@njit()
def weigh_masses(codes, tables, totals, indices, weights):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the landmarks with the smallest masses for each row, and their weights.

    Parameters: codes (rows, trees), leaf numbers; tables (trees, leaves, m), masses of leaves with landmarks; totals
    (rows, m), workspace with the dtype of tables; indices int32 and weights float64 (rows, s), the output, s < m. Ties
    by lower index.
    """
    rows, trees = codes.shape
    m = tables.shape[2]
    s = weights.shape[1]
    totals[:] = 0
    # Eight trees at a time, so that totals are loaded and stored less often.
    whole = trees - trees % 8
    for t in range(0, whole, 8):
        for i in range(rows):
            total, code = totals[i], codes[i]
            a, b = tables[t, code[t]], tables[t + 1, code[t + 1]]
            c, d = tables[t + 2, code[t + 2]], tables[t + 3, code[t + 3]]
            e, f = tables[t + 4, code[t + 4]], tables[t + 5, code[t + 5]]
            g, h = tables[t + 6, code[t + 6]], tables[t + 7, code[t + 7]]
            for k in range(m):
                total[k] += ((a[k] + b[k]) + (c[k] + d[k])) + ((e[k] + f[k]) + (g[k] + h[k]))
    for t in range(whole, trees):
        for i in range(rows):
            line, total = tables[t, codes[i, t]], totals[i]
            for a in range(m):
                total[a] += line[a]
    near, nearest = np.empty(s + 1, np.float64), np.empty(s + 1, np.int64)
    for i in range(rows):
        near[:] = np.inf
        for a in range(m):
            if totals[i, a] < near[s]:
                keep_smallest(np.float64(totals[i, a]), a, near, nearest)
        simplex(near, 0.0, weights[i])
        for p in range(s):  # assigning a slice takes 2 s more to compile
            indices[i, p] = nearest[p]
