"""Compiled row step of Access-MFS for partly labelled rows: a small linear system for every row."""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit


@njit()
def correct_rows(F, marked, A, sign):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Turn rows f A into rows f (A⁻¹ + sign·diag(marked_i))⁻¹, in place.

    Uses the Woodbury identity with the Cholesky factor of I + sign·A_ee for the marked entries e. With eigenvalues of A
    in (0, 1], or in (0, 1/2] for sign -1, its condition number is at most 2.

    Parameters: F float64 (rows, q); marked bool (rows, q); A float64 (q, q), symmetric; sign 1.0 or -1.0.
    """
    rows, q = F.shape
    L = np.empty((q, q))
    y = np.empty(q)
    entries = np.empty(q, np.int64)
    for i in range(rows):
        f, m = F[i], 0
        for j in range(q):
            if marked[i, j]:
                entries[m] = j
                m += 1
        for a in range(m):  # L L' y = f_e, forward substitution
            row = A[entries[a]]
            for b in range(a + 1):
                s = sign * row[entries[b]]
                if a == b:
                    s += 1.0
                for c in range(b):
                    s -= L[a, c] * L[b, c]
                L[a, b] = np.sqrt(s) if a == b else s / L[b, b]
            t = f[entries[a]]
            for b in range(a):
                t -= L[a, b] * y[b]
            y[a] = t / L[a, a]
        for a in range(m - 1, -1, -1):  # backward substitution
            y[a] /= L[a, a]
            for b in range(a):
                y[b] -= L[a, b] * y[a]
        for a in range(m):
            step, row = sign * y[a], A[entries[a]]
            for j in range(q):
                f[j] -= step * row[j]
