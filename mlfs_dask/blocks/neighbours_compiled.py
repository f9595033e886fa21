"""Compiled search of `neighbours` among sparse rows: only values of the same feature are multiplied.

A row's products with all candidates are summed feature by feature over the candidates with the feature (inverted lists,
as in text retrieval). For n rows this takes Σ c_f² multiplications, with c_f rows that have feature f; products of
tiles take as many look-ups as there are pairs of rows.
"""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit


@njit()
def screen(queries, norms, limits, first, begin, candidates, squares, slack, rows, columns, sums, best):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Find pairs that may be among the k nearest, from query `begin` on; return the next query and the number of pairs.

    Parameters: queries as CSR (indptr, indices, data), with |q|² (norms) and upper bounds of |c|² − 2q·c (limits);
    `first`, the candidate equal to the first query; candidates as CSC, with |c|² slightly reduced (squares); slack, the
    relative error of a sum, as a share of |q|² + |c|²; rows and columns, the output; sums, one zero per candidate, zero
    again afterwards; best, workspace of k numbers.
    """
    q_start, q_feature, q_value = queries
    c_start, c_row, c_value = candidates
    width, k = len(sums), len(best)
    count = 0
    for i in range(begin, len(norms)):
        if len(rows) - count < width:
            return i, count
        for p in range(q_start[i], q_start[i + 1]):
            f = q_feature[p]
            value = -2.0 * q_value[p]
            for e in range(c_start[f], c_start[f + 1]):
                sums[c_row[e]] += value * c_value[e]
        limit = limits[i]
        best[:] = np.inf
        for j in range(width):
            near = sums[j] + squares[j]
            sums[j] = 0.0
            if near <= limit and j != first + i:
                rows[count] = i
                columns[count] = j
                count += 1
                # `most` is an upper bound: candidates above the k-th smallest bound are excluded.
                most = near + slack * (norms[i] + squares[j])
                place = k - 1
                if most < best[place]:
                    while place > 0 and best[place - 1] > most:
                        best[place] = best[place - 1]
                        place -= 1
                    best[place] = most
                    limit = min(limit, best[k - 1])
    return len(norms), count


@njit()
def pair_distances(q_start, q_feature, q_value, c_start, c_feature, c_value, rows, columns, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the squared distances of sparse rows with ascending features: (q − c)² summed in the order of features."""
    for p in range(len(rows)):
        a, a_end = q_start[rows[p]], q_start[rows[p] + 1]
        b, b_end = c_start[columns[p]], c_start[columns[p] + 1]
        total = 0.0
        while a < a_end or b < b_end:
            if b == b_end or (a < a_end and q_feature[a] < c_feature[b]):
                difference = q_value[a]
                a += 1
            elif a == a_end or c_feature[b] < q_feature[a]:
                difference = c_value[b]
                b += 1
            else:
                difference = q_value[a] - c_value[b]
                a += 1
                b += 1
            total += difference * difference
        out[p] = total


@njit()
def keep(rows, columns, start, distances, keys, near, least, order):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Insert candidates into the k nearest of their rows, in place, after equal keys.

    Parameters: rows, columns, distances and keys of pairs, with ascending columns for each row; start, the index of
    column 0; near, least, order (rows, k): indices, distances and keys of the nearest, sorted by key.
    """
    k = near.shape[1]
    for p in range(len(rows)):
        i, key = rows[p], keys[p]
        place = k - 1
        if key >= order[i, place]:
            continue
        while place > 0 and order[i, place - 1] > key:
            near[i, place] = near[i, place - 1]
            least[i, place] = least[i, place - 1]
            order[i, place] = order[i, place - 1]
            place -= 1
        near[i, place] = start + columns[p]
        least[i, place] = distances[p]
        order[i, place] = key
