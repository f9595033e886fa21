"""Neighbours of neighbours, compiled: what a first guess of the nearest points gains by asking the neighbours found.

A point asks those it has as neighbours and those that have it, for the same, but not for whom it was told of before (W.
Dong, M. Charikar, K. Li, "Efficient k-nearest neighbor graph construction for generic similarity measures", WWW 2011,
doi:10.1145/1963405.1963487). All points ask at once, so that neither their order nor threads matter.
"""

from __future__ import annotations

import numpy as np
from numba import njit

from mlfs_dask.blocks.nearest_compiled import take_place


@njit(cache=True, nogil=True)
def reorder(points, order):  # type: ignore[no-untyped-def]  # pragma: no cover
    """points[order], in place."""
    n = len(points)
    done = np.zeros(n, np.bool_)
    for first in range(n):
        if done[first] or order[first] == first:
            continue
        held = points[first].copy()
        i = first
        while order[i] != first:
            points[i] = points[order[i]]
            done[i] = True
            i = order[i]
        points[i] = held
        done[i] = True


@njit(cache=True, nogil=True)
def reverse(indices, fresh, rows, fresh_rows):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write points that have each point as a neighbour, −1 where they are fewer than rows has columns.

    Those to whom it is the nearest come first, and then by their number; `fresh_rows` are those to whom it is new.
    """
    n, k = indices.shape
    most = rows.shape[1]
    count = np.zeros(n, np.int32)
    for i in range(n):
        for p in range(most):
            rows[i, p] = -1
    for p in range(k):
        for i in range(n):
            j = indices[i, p]
            if count[j] < most:
                rows[j, count[j]] = i
                fresh_rows[j, count[j]] = fresh[i, p]
                count[j] += 1


@njit(cache=True, nogil=True, fastmath=True)
def improve(points, indices, distances, fresh, asked, back, fresh_back, low, high, near, squares, gained):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the nearest of the present neighbours and of those they know, for points low..high-1.

    Parameters: points float32 (n, m); indices int32 (n, k), distances float32 (n, k), nearest first, and fresh bool
    (n, k), the present guess, which stays as it is; asked, how many of a point's neighbours count here; back and
    fresh_back, of `reverse`; near, squares and gained (high - low, k), the output, `gained` being those not known yet.
    """
    n, m = points.shape
    k, most = indices.shape[1], back.shape[1]
    seen = np.full(n, -1, np.int32)
    for i in range(low, high):
        found, best, new = near[i - low], squares[i - low], gained[i - low]
        seen[i] = i
        for p in range(k):
            found[p] = indices[i, p]
            best[p] = distances[i, p]
            new[p] = False
            seen[indices[i, p]] = i
        worst = best[k - 1]
        for p in range(asked + most):
            own = p < asked
            through = indices[i, p] if own else back[i, p - asked]
            if through < 0:
                break
            just_met = fresh[i, p] if own else fresh_back[i, p - asked]
            for other in range(-1, asked + most):
                if other < 0:
                    j, news = through, just_met
                elif other < asked:
                    j, news = indices[through, other], just_met or fresh[through, other]
                else:
                    j, news = back[through, other - asked], just_met or fresh_back[through, other - asked]
                    if j < 0:
                        break
                if not news or seen[j] == i:
                    continue
                seen[j] = i
                square = np.float32(0.0)
                for f in range(m):
                    difference = points[i, f] - points[j, f]
                    square += difference * difference
                if square < worst:
                    place = k - 1
                    while place > 0 and best[place - 1] > square:
                        best[place], found[place], new[place] = best[place - 1], found[place - 1], new[place - 1]
                        place -= 1
                    best[place], found[place], new[place] = square, j, True
                    worst = best[k - 1]


@njit(cache=True, nogil=True)
def join(near, squares, fresh, others, other_squares):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Take others among the near points where they are nearer than the last of those; they are fresh.

    Parameters: near, squares and fresh (n, k), nearest first, −1 and infinity where there are fewer; others and
    other_squares (n, c), different ones a row.
    """
    n, k = near.shape
    for i in range(n):
        found, best, new = near[i], squares[i], fresh[i]
        for p in range(others.shape[1]):
            j, square = others[i, p], other_squares[i, p]
            if not square < best[k - 1]:
                continue
            known = False
            for other in found:
                known |= other == j
            if known:
                continue
            place = k - 1
            while place > 0 and best[place - 1] > square:
                best[place], found[place], new[place] = best[place - 1], found[place - 1], new[place - 1]
                place -= 1
            best[place], found[place], new[place] = square, j, True


@njit(cache=True, nogil=True, fastmath={"reassoc", "nsz"})
def rank_candidates(points, candidates, low, high, near, squares):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the nearest of the candidates of points low..high-1, nearest first, and their squared distances.

    Parameters: points (n, m); candidates, integers (n, c), different ones a row; near and squares (high - low, k), the
    output, k <= c. Equal distances keep the order of the candidates.
    """
    m = points.shape[1]
    for i in range(low, high):
        found, best = near[i - low], squares[i - low]
        best[:] = np.inf
        worst = best[-1]
        for j in candidates[i]:
            square = points[i, 0] * 0
            for f in range(m):
                difference = points[i, f] - points[j, f]
                square += difference * difference
            if square < worst:
                take_place(found, best, j, square)
                worst = best[-1]
