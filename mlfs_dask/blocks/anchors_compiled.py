"""Compiled kernels of `anchors`: nearest anchors of every row, and weights by distance or by combination."""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit
from mlfs_dask.blocks.rounding import NEGLIGIBLE

#: Scores of a row that are looked at together.
LANES = 32

#: For combinations: relative increase of the diagonal, and the bound below which a gradient counts as 0.
RIDGE, ZERO_GRADIENT = 1e-3, 1e-12


@njit()
def keep_smallest(value, index, values, indices):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Replace the last of `values` by `value`, and sort it in, ascending; ties by lower index."""
    p = values.size - 1
    while p > 0 and (values[p - 1] > value or (values[p - 1] == value and indices[p - 1] > index)):
        values[p], indices[p] = values[p - 1], indices[p - 1]
        p -= 1
    values[p], indices[p] = value, index


@njit()
def simplex(near, size, weights):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the weights of the s nearest anchors of a row, from its s + 1 smallest distances `near`, ascending.

    `size` is the scale of the distances: if they differ only by rounding relative to it, the weights are equal.
    """
    s = weights.size
    last = near[s]
    total = 0.0
    for p in range(s):
        weights[p] = last - near[p]
        total += weights[p]
    if total <= NEGLIGIBLE * s * (size + abs(last)):
        weights[:] = 1.0 / s
    else:
        weights /= total


@njit()
def combination(G, weights):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the weights z ≥ 0 with sum 1 that minimise z'Gz + ridge ‖z‖²: neighbours combined to reconstruct a row.

    G, shape (s, s), holds products of the neighbours minus the row; the ridge is added in place. z is the minimiser
    w ≥ 0 of w'Gw/2 − Σw divided by its sum, found by active sets (C. L. Lawson, R. J. Hanson, "Solving least squares
    problems", 1974, chapter 23).
    """
    s = weights.size
    trace = 0.0
    for a in range(s):
        trace += G[a, a]
    if trace <= 0.0:
        weights[:] = 1.0 / s
        return
    for a in range(s):
        G[a, a] += RIDGE * trace / s
    inside, wanted, slack = np.zeros(s, np.bool_), np.empty(s), np.ones(s)
    weights[:] = 0.0
    for _ in range(3 * s):
        enters = -1
        for a in range(s):
            if not inside[a] and slack[a] > ZERO_GRADIENT and (enters < 0 or slack[a] > slack[enters]):
                enters = a
        if enters < 0:
            break
        inside[enters] = True
        while True:
            solve_ones(G, inside, wanted)
            share = 1.0
            for a in range(s):
                if inside[a] and wanted[a] <= 0.0:
                    share = min(share, weights[a] / (weights[a] - wanted[a]) if weights[a] > 0.0 else 0.0)
            for a in range(s):
                if inside[a]:
                    weights[a] += share * (wanted[a] - weights[a])
                    if share < 1.0 and wanted[a] <= 0.0 and weights[a] <= ZERO_GRADIENT * abs(wanted[a]):
                        weights[a], inside[a] = 0.0, False
            if share == 1.0:
                break
        for a in range(s):
            slack[a] = 1.0
            for b in range(s):
                slack[a] -= G[a, b] * weights[b]
    weights /= weights.sum()


@njit()
def solve_ones(G, inside, x):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Solve G x = 1 on the rows and columns in `inside` by elimination; G is positive definite."""
    chosen = np.flatnonzero(inside)
    p = chosen.size
    A, b = np.empty((p, p)), np.ones(p)
    for i in range(p):
        for j in range(p):
            A[i, j] = G[chosen[i], chosen[j]]
    for i in range(p):
        for j in range(i + 1, p):
            ratio = A[j, i] / A[i, i]
            b[j] -= ratio * b[i]
            for k in range(i, p):
                A[j, k] -= ratio * A[i, k]
    for i in range(p - 1, -1, -1):
        for k in range(i + 1, p):
            b[i] -= A[i, k] * b[k]
        b[i] /= A[i, i]
        x[chosen[i]] = b[i]


@njit()
def combine(products, weights):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Apply `combination` to many rows: products (rows, s, s), overwritten; weights (rows, s), the output."""
    for i in range(weights.shape[0]):
        combination(products[i], weights[i])


@njit()
def reconstruct(near, size, chosen, products, weights):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the weights with which the chosen anchors best reconstruct a row x.

    near: ‖x − c‖² of each anchor, with size 0; or ‖c‖² − 2x·c, with size ‖x‖². products (m, m): C C'.
    """
    s = weights.size
    G = np.empty((s, s))
    for a in range(s):
        for b in range(s):
            one, other = chosen[a], chosen[b]
            # (c − x)·(e − x) = (‖c − x‖² + ‖e − x‖² − ‖c − e‖²) / 2
            apart = products[one, one] + products[other, other] - 2.0 * products[one, other]
            G[a, b] = 0.5 * (near[a] + near[b] - apart) + size
    combination(G, weights)


@njit(fastmath={"reassoc", "contract"})
def squared_distance(x, y):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the squared distance of two vectors, summed in the compiler's order, the same for every call."""
    distance = 0.0
    for j in range(x.size):
        gap = x[j] - y[j]
        distance += gap * gap
    return distance


@njit(fastmath={"reassoc", "contract"})
def scale_row(row, factor, x):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write a row times factors to `x`, and return its squared norm."""
    size = 0.0
    for j in range(x.size):
        x[j] = row[j] * factor[j]
        size += x[j] * x[j]
    return size


@njit()
def count_up_to(values, bound):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return how many values are not above a bound."""
    count = np.int32(0)
    for a in range(values.size):
        count += np.int32(not values[a] > bound)
    return count


@njit()
def upper_bound(row, s, least):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return a value that more than s values of a row do not exceed, and few others.

    Values are dealt out to the places of `least`, more than s, in turn: it is the (s + 1)-th of their smallest values.
    Without branches that a processor would guess wrongly, this is several times as fast as to sort values in.
    """
    least[:] = np.inf
    for low in range(0, row.size, least.size):
        batch = row[low : low + least.size]
        for a in range(batch.size):
            least[a] = batch[a] if batch[a] < least[a] else least[a]
    bound = least.max()
    for a in range(least.size):
        if least[a] < bound and count_up_to(least, least[a]) > s:
            bound = least[a]
    return bound


@njit()
def weigh_dense(tile, factor, anchors, scores, rounding, products, indices, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the nearest anchors of dense rows and their weights.

    Parameters: tile float64 (rows, d), centred; factor (d,); anchors float64 (m, d), of scaled rows; scores float32
    (rows, m), squared distances up to a constant per row; rounding (2,), where rounding[0]‖x‖ + rounding[1] bounds the
    error of the scores of a row x; products float64 (m, m), of the anchors, for the weights of `reconstruct`, or None;
    indices int32 and weights float64 (rows, s), the output. s < m.
    """
    rows, d = tile.shape
    m = anchors.shape[0]
    s = weights.shape[1]
    least = np.empty(min(m, max(LANES, 2 * s + 2)), np.float32)
    near, nearest = np.empty(s + 1, np.float64), np.empty(s + 1, np.int64)
    x = np.empty(d, np.float64)
    for i in range(rows):
        row, size = scores[i], scale_row(tile[i], factor, x)
        # An anchor with a larger score is not among the s + 1 nearest: as many others are certainly nearer.
        bound = upper_bound(row, s, least) + 2.0 * (rounding[0] * np.sqrt(size) + rounding[1])
        bound = np.float32(bound + 2.0**-23 * abs(bound))  # rounded up
        near[:] = np.inf
        nearest[:] = 0
        for low in range(0, m, LANES):
            batch = row[low : low + LANES]
            if count_up_to(batch, bound):
                for a in range(batch.size):
                    if not batch[a] > bound:  # this form is also true for a row that is not finite
                        distance = squared_distance(x, anchors[low + a])
                        if distance < near[s]:
                            keep_smallest(distance, low + a, near, nearest)
        if products is not None:
            reconstruct(near, 0.0, nearest, products, weights[i])
        else:
            simplex(near, size, weights[i])
        for p in range(s):  # assigning a slice takes 2 s more to compile
            indices[i, p] = nearest[p]


@njit(fastmath={"nnan", "nsz"})
def largest_size(row):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Return the largest absolute value of a vector."""
    size = 0.0
    for a in range(row.size):
        size = max(size, abs(row[a]))
    return size


@njit()
def weigh_scores(scores, indices, weights):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Write the nearest anchors of rows and their weights.

    Parameters: scores float64 (rows, m), squared distances up to a constant per row; indices int32 and weights float64
    (rows, s), the output. s < m.
    """
    s = weights.shape[1]
    near, nearest = np.empty(s + 1, np.float64), np.empty(s + 1, np.int64)
    for i in range(len(scores)):
        row = scores[i]
        near[:] = np.inf
        nearest[:] = 0
        for a in range(row.size):
            if row[a] < near[s]:
                keep_smallest(row[a], a, near, nearest)
        simplex(near, largest_size(row), weights[i])
        for p in range(s):  # assigning a slice takes 2 s more to compile
            indices[i, p] = nearest[p]


@njit()
def weigh_sparse(values, columns, rowptr, factor, anchors, squares, products, indices, weights):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the nearest anchors of sparse rows and their weights.

    Parameters: X as CSR (values, columns, rowptr); factor (d,); anchors float64 (d, m), one per column, of scaled rows
    that are not centred; squares (m,), their squared norms; products of these anchors, as for `weigh_dense`; indices
    int32 and weights float64 (rows, s), the output.
    """
    m = anchors.shape[1]
    rows, s = weights.shape
    near, nearest = np.empty(s + 1, np.float64), np.empty(s + 1, np.int64)
    along = np.empty(m, np.float64)
    for i in range(rows):
        along[:] = 0.0
        size = 0.0
        for p in range(rowptr[i], rowptr[i + 1]):
            value = values[p] * factor[columns[p]]
            size += value * value
            line = anchors[columns[p]]
            for a in range(m):
                along[a] += value * line[a]
        near[:] = np.inf
        nearest[:] = 0
        for a in range(m):
            distance = squares[a] - 2.0 * along[a]
            if distance < near[s]:
                keep_smallest(distance, a, near, nearest)
        # The distances lack the constant |x|², but their rounding errors are relative to it.
        if products is not None:
            reconstruct(near, size, nearest, products, weights[i])
        else:
            simplex(near, size + squares[nearest[0]], weights[i])
        for p in range(s):  # assigning a slice takes 2 s more to compile
            indices[i, p] = nearest[p]
