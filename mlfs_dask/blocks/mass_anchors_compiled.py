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
    # Tree by tree: the table of one tree stays in the second-level cache.
    for t in range(trees):
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
