"""The pair search of `isolation`, compiled: a look-up and an addition for each pair and tree; only a tile is held."""

from __future__ import annotations

import numpy as np
from numba import njit

from mlfs_dask.blocks.nearest_compiled import take_place

#: Candidates whose sums stay in the first-level cache.
TILE = 4096


@njit(cache=True, nogil=True)
def nearest_by_mass(codes, tables, low, high, k, indices, masses):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the k rows of least summed mass for rows low..high-1; see `isolation.nearest_by_mass`.

    Parameters: codes (trees, n); tables (trees, leaves, leaves); indices, masses int64 (high - low, k), the output.
    """
    trees, n = codes.shape
    total = np.empty(TILE, tables.dtype)
    for i in range(low, high):
        found, best = indices[i - low], masses[i - low]
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
                    # Candidates come in order of their index: an equal mass goes behind those that are there.
                    take_place(found, best, start + j, mass)
                    worst = best[k - 1]


@njit(cache=True, nogil=True)
def rank_candidates(codes, tables, candidates, low, high, k, indices, masses):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the k candidates of least summed mass for rows low..high-1, ties by lower index.

    Parameters: codes (n, trees), rows first; tables (trees, leaves, leaves); candidates (high - low, c), rising in each
    row, at least k of them; indices, masses int64 (high - low, k), the output.
    """
    trees = codes.shape[1]
    for i in range(low, high):
        found, best = indices[i - low], masses[i - low]
        for p in range(k):
            best[p] = np.iinfo(np.int64).max
        worst = best[k - 1]
        own = codes[i]
        for j in candidates[i - low]:
            other = codes[j]
            mass = np.int64(0)
            for t in range(trees):
                mass += tables[t, own[t], other[t]]
            if mass < worst:
                take_place(found, best, j, mass)
                worst = best[k - 1]


@njit(cache=True, nogil=True)
def ask_neighbours(codes, tables, indices, masses, low, high, found, best):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the rows of least summed mass among the present neighbours and theirs, for rows low..high-1.

    Parameters: codes (n, trees), rows first; tables (trees, leaves, leaves); indices, masses int64 (n, k), the present
    neighbours, which stay as they are; found, best int64 (high - low, k), the output. Ties by lower index.
    """
    n, trees = codes.shape
    k = indices.shape[1]
    seen = np.full(n, -1, np.int32)
    for i in range(low, high):
        near, least = found[i - low], best[i - low]
        seen[i] = i
        for p in range(k):
            near[p], least[p] = indices[i, p], masses[i, p]
            seen[indices[i, p]] = i
        own = codes[i]
        for p in range(k):
            for o in range(k):
                j = indices[indices[i, p], o]
                if seen[j] == i:
                    continue
                seen[j] = i
                other = codes[j]
                mass = np.int64(0)
                for t in range(trees):
                    mass += tables[t, own[t], other[t]]
                if mass > least[k - 1] or (mass == least[k - 1] and j > near[k - 1]):
                    continue
                q = k - 1
                while q > 0 and (least[q - 1] > mass or (least[q - 1] == mass and near[q - 1] > j)):
                    least[q], near[q] = least[q - 1], near[q - 1]
                    q -= 1
                least[q], near[q] = mass, j
