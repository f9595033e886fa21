"""Compiled kernels for moments and label products together, imported only for large jobs.

Every value of X is loaded once from memory: moments and label sums are computed while a tile of rows and features is in
the second-level cache. No kernel uses Python objects; all release the GIL.
"""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit

#: Rows of a tile, whose moments are merged into the running moments at once.
TILE_ROWS = 128

#: Bytes of label sums (q, features of a tile) that stay in the second-level cache beside the tile itself.
TILE_BYTES = 512 * 1024


@njit(error_model="numpy")
def add_dense(  # type: ignore[no-untyped-def]
    X, indptr, indices, signs, count, mean, m2, shift, products
):  # pragma: no cover - compiled
    """Add a dense block to the moments and to the products (q, d), in place.

    Parameters: X (rows, d) C-ordered; Y as CSR (indptr, indices, signs); count, mean, m2 (d,); shift (d,), the origin
    of means and products.
    """
    rows, d = X.shape
    q = products.shape[0]
    width = min(d, max(64, TILE_BYTES // (8 * max(q, 1)) // 16 * 16))
    total = np.empty(width, np.float64)
    square = np.empty(width, np.float64)
    for f0 in range(0, d, width):
        f1 = min(d, f0 + width)
        w = f1 - f0
        centre = mean[f0:f1]
        origin = shift[f0:f1]
        if rows > 0 and count[f0] == 0:
            for j in range(w):
                centre[j] = np.float64(X[0, f0 + j]) - origin[j]
        n_rows = count[f0]
        for r0 in range(0, rows, TILE_ROWS):
            r1 = min(rows, r0 + TILE_ROWS)
            for j in range(w):
                total[j] = 0.0
                square[j] = 0.0
            r = r0
            while r + 4 <= r1:
                x0, x1 = X[r, f0:f1], X[r + 1, f0:f1]
                x2, x3 = X[r + 2, f0:f1], X[r + 3, f0:f1]
                for j in range(w):
                    o, c = origin[j], centre[j]
                    a0 = (np.float64(x0[j]) - o) - c
                    a1 = (np.float64(x1[j]) - o) - c
                    a2 = (np.float64(x2[j]) - o) - c
                    a3 = (np.float64(x3[j]) - o) - c
                    total[j] += (a0 + a1) + (a2 + a3)
                    square[j] += (a0 * a0 + a1 * a1) + (a2 * a2 + a3 * a3)
                r += 4
            while r < r1:
                x0 = X[r, f0:f1]
                for j in range(w):
                    a0 = (np.float64(x0[j]) - origin[j]) - centre[j]
                    total[j] += a0
                    square[j] += a0 * a0
                r += 1
            for r in range(r0, r1):
                x0 = X[r, f0:f1]
                for p in range(indptr[r], indptr[r + 1]):
                    if signs[p] > 0:
                        into = products[indices[p], f0:f1]
                        for j in range(w):
                            into[j] += np.float64(x0[j]) - origin[j]
            # The running mean is the centre, so earlier rows add nothing to `total`, and M2 + square is the sum of
            # squares about it over all rows; the correction subtracts no more than its rounding.
            n_rows += r1 - r0
            for j in range(w):
                m2[f0 + j] += square[j] - total[j] * (total[j] / n_rows)
                centre[j] += total[j] / n_rows
        for j in range(f0, f1):
            count[j] = n_rows


@njit(error_model="numpy")
def add_sparse(  # type: ignore[no-untyped-def]
    values, columns, rowptr, labelptr, rows, signs, count, mean, m2, products
):  # pragma: no cover - compiled
    """Add a sparse block to the moments of stored values and to the products (q, d), in place.

    Parameters: X as CSR (values, columns, rowptr); Y as CSC (labelptr, rows, signs).
    """
    for p in range(rowptr[-1]):
        j = np.uint32(columns[p])  # unsigned: no index from the end has to be looked for
        value = np.float64(values[p])
        count[j] += 1
        delta = value - mean[j]
        if delta == 0:  # as of 0/1 features: neither moment changes, and nothing is divided
            continue
        if count[j] == 1:
            mean[j] = value
        else:
            mean[j] += delta / count[j]
            m2[j] += delta * (value - mean[j])
    # Label by label: the sums of one label fit the second-level cache, the sums of all labels do not.
    for label in range(labelptr.size - 1):
        into = products[label]
        for s in range(labelptr[label], labelptr[label + 1]):
            if signs[s] > 0:
                for p in range(rowptr[rows[s]], rowptr[rows[s] + 1]):
                    into[np.uint32(columns[p])] += np.float64(values[p])


@njit()
def add_pairs(indptr, indices, signs, positives, unknown, pairs):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Add the label sums (q,), unknown entries (q,) and label pairs (q, q) of one block, in place."""
    for r in range(indptr.size - 1):
        for s in range(indptr[r], indptr[r + 1]):
            a = indices[s]
            if signs[s] < 0:
                unknown[a] += 1
                continue
            positives[a] += 1
            for t in range(indptr[r], indptr[r + 1]):
                if signs[t] > 0:
                    pairs[a, indices[t]] += 1
