"""Neighbours of neighbours, compiled: what a first guess of the nearest points gains by asking the neighbours found.

A point asks those it has as neighbours and those that have it, for the same (W. Dong, M. Charikar, K. Li, "Efficient
k-nearest neighbor graph construction for generic similarity measures", WWW 2011, doi:10.1145/1963405.1963487). All
points ask at once, so that neither their order nor threads matter.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mlfs_dask.blocks.nearest_compiled import take_place


@njit(cache=True, nogil=True)
def reverse(indices, most):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Up to `most` points that have each point as a neighbour, −1 where there are fewer, shape (n, most).

    Those to whom it is the nearest come first, and then by their number.
    """
    n, k = indices.shape
    rows = np.full((n, most), -1, np.int32)
    count = np.zeros(n, np.int32)
    for p in range(k):
        for i in range(n):
            j = indices[i, p]
            if count[j] < most:
                rows[j, count[j]] = i
                count[j] += 1
    return rows


@njit(cache=True, nogil=True, fastmath=True)
def improve(points, indices, distances, asked, back, low, high, near, squares):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the nearest of the present neighbours and of those they know, for points low..high-1.

    Parameters: points float32 (n, m); indices int32 (n, k) and distances float32 (n, k), nearest first, the present
    guess, which stays as it is; asked, how many of a point's neighbours count here; back, of `reverse`; near, squares
    (high - low, k), the output.
    """
    n, m = points.shape
    k, most = indices.shape[1], back.shape[1]
    seen = np.full(n, -1, np.int32)
    for i in range(low, high):
        found, best = near[i - low], squares[i - low]
        seen[i] = i
        for p in range(k):
            found[p] = indices[i, p]
            best[p] = distances[i, p]
            seen[indices[i, p]] = i
        worst = best[k - 1]
        for p in range(asked + most):
            through = indices[i, p] if p < asked else back[i, p - asked]
            if through < 0:
                break
            for other in range(-1, asked + most):
                if other < 0:
                    j = through
                elif other < asked:
                    j = indices[through, other]
                else:
                    j = back[through, other - asked]
                    if j < 0:
                        break
                if seen[j] == i:
                    continue
                seen[j] = i
                square = np.float32(0.0)
                for f in range(m):
                    difference = points[i, f] - points[j, f]
                    square += difference * difference
                if square < worst:
                    take_place(found, best, j, square)
                    worst = best[k - 1]
