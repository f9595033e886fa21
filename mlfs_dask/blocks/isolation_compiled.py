"""Compiled pair search of `isolation`: a look-up and an addition for each pair and tree, with one tile in memory."""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit
from mlfs_dask.blocks.nearest_compiled import insert_neighbour

#: Candidates whose sums stay in the first-level cache.
TILE = 4096


@njit()
def nearest_by_mass(codes, tables, low, high, k, indices, masses):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the k rows with the smallest mass for rows low..high-1; see `isolation.nearest_by_mass`.

    Parameters: codes (trees, n); tables (trees, leaves, leaves); indices, masses int64 (high - low, k), the output.
    """
    trees, n = codes.shape
    total = np.empty(TILE, tables.dtype)
    for i in range(low, high):
        nearest, best = indices[i - low], masses[i - low]
        for p in range(k):
            best[p] = np.iinfo(np.int64).max
        for start in range(0, n, TILE):
            width = min(TILE, n - start)
            for j in range(width):
                total[j] = 0
            t = 0
            while t + 4 <= trees:
                r0, r1 = tables[t, codes[t, i]], tables[t + 1, codes[t + 1, i]]
                r2, r3 = tables[t + 2, codes[t + 2, i]], tables[t + 3, codes[t + 3, i]]
                c0, c1 = codes[t, start : start + width], codes[t + 1, start : start + width]
                c2, c3 = codes[t + 2, start : start + width], codes[t + 3, start : start + width]
                for j in range(width):
                    total[j] += (r0[c0[j]] + r1[c1[j]]) + (r2[c2[j]] + r3[c3[j]])
                t += 4
            while t < trees:
                row = tables[t, codes[t, i]]
                code = codes[t, start : start + width]
                for j in range(width):
                    total[j] += row[code[j]]
                t += 1
            worst = best[k - 1]
            for j in range(width):
                mass = np.int64(total[j])
                if mass < worst and start + j != i:
                    # Candidates come in index order: an equal mass is inserted after existing ones.
                    insert_neighbour(nearest, best, start + j, mass)
                    worst = best[k - 1]
