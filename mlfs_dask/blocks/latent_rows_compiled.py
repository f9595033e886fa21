"""Compiled row step of mFSIR: non-negative least squares with one small matrix for all rows."""

from __future__ import annotations

from mlfs_dask.blocks.compiling import njit


@njit()
def sweep_nonnegative(V, right, Q, sweeps):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Decrease v'Qv − 2r'v over v ≥ 0 for every row of V, in place, by `sweeps` rounds of coordinate descent.

    Parameters: V, right float64 (rows, l); Q float64 (l, l), symmetric and positive definite.
    """
    rows, width = V.shape
    for i in range(rows):
        v, r = V[i], right[i]
        for _ in range(sweeps):
            for j in range(width):
                slope = -r[j]
                for t in range(width):
                    slope += Q[j, t] * v[t]
                v[j] = max(0.0, v[j] - slope / Q[j, j])
