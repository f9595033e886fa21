"""Compiled row step of mFSIR: non-negative least squares with one small matrix for all rows."""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit

#: Rows whose sums are added at once, a vector register or two.
LANES = 16


@njit()
def sweep_nonnegative(V, right, Q, sweeps):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Decrease v'Qv − 2r'v over v ≥ 0 for every row of V, in place, by `sweeps` rounds of coordinate descent.

    Parameters: V, right float64 (rows, l); Q float64 (l, l), symmetric and positive definite.
    """
    rows, width = V.shape
    v, r, slope = np.zeros((width, LANES)), np.zeros((width, LANES)), np.empty(LANES)
    for start in range(0, rows, LANES):
        count = min(LANES, rows - start)
        for i in range(count):
            for j in range(width):
                v[j, i], r[j, i] = V[start + i, j], right[start + i, j]
        for _ in range(sweeps):
            for j in range(width):
                for i in range(LANES):
                    slope[i] = -r[j, i]
                for t in range(width):
                    for i in range(LANES):
                        slope[i] += Q[j, t] * v[t, i]
                for i in range(LANES):
                    v[j, i] = max(0.0, v[j, i] - slope[i] / Q[j, j])
        for i in range(count):
            for j in range(width):
                V[start + i, j] = v[j, i]
