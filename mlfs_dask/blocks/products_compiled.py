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

#: Rows and features of a tile whose rows are added up by code: 256 KiB, which stay in the second-level cache.
CODED_ROWS = 512
CODED_FEATURES = 64


@njit(error_model="numpy")
def add_dense(  # type: ignore[no-untyped-def]
    X, indptr, indices, count, mean, m2, shift, products
):  # pragma: no cover - compiled
    """Add a dense block to the moments and to the products (q, d), in place.

    Parameters: X (rows, d) C-ordered; positive labels as CSR (indptr, indices); count, mean, m2 (d,); shift (d,), the
    origin of means and products.
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
    values, columns, rowptr, labelptr, rows, count, mean, m2, products
):  # pragma: no cover - compiled
    """Add a sparse block to the moments of stored values and to the products (q, d), in place.

    Parameters: X as CSR (values, columns, rowptr); positive labels as CSC (labelptr, rows).
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
            for p in range(rowptr[rows[s]], rowptr[rows[s] + 1]):
                into[np.uint32(columns[p])] += np.float64(values[p])


@njit(fastmath={"contract"})
def add_coded(X, codes, shift, products, squares):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Add sums of v = x - shift and of v² over the rows with each mark to products and squares (u, d), in place.

    Rows are added up by code, and the sums of 15 codes to their labels: an addition for four labels in place of one
    for each.

    Parameters: X (rows, d); codes (groups, rows): bit i of group g is the mark of label 4 g + i.
    """
    rows, d = X.shape
    tile = np.zeros((CODED_ROWS, CODED_FEATURES), np.float64)
    sums = np.empty((16, 2, CODED_FEATURES), np.float64)
    for r0 in range(0, rows, CODED_ROWS):
        r1 = min(rows, r0 + CODED_ROWS)
        for f0 in range(0, d, CODED_FEATURES):
            f1 = min(d, f0 + CODED_FEATURES)
            for r in range(r0, r1):
                x, v, origin = X[r, f0:f1], tile[r - r0], shift[f0:f1]
                for j in range(f1 - f0):
                    v[j] = np.float64(x[j]) - origin[j]
            for g in range(len(codes)):
                sums[:] = 0.0
                for r in range(r0, r1):
                    total, square = sums[codes[g, r]]
                    v = tile[r - r0]
                    for j in range(CODED_FEATURES):  # a fixed number: the loop has no rest
                        total[j] += v[j]
                        square[j] += v[j] * v[j]
                for label in range(4 * g, min(4 * g + 4, len(products))):
                    into, squared = products[label, f0:f1], squares[label, f0:f1]
                    for code in range(16):
                        if (code >> (label - 4 * g)) & 1:
                            total, square = sums[code]
                            for j in range(f1 - f0):
                                into[j] += total[j]
                                squared[j] += square[j]


@njit(fastmath={"contract"})
def add_columns(ptr, rows, values, marks, sums):  # type: ignore[no-untyped-def]  # pragma: no cover - compiled
    """Add sums of stored values over the rows with each mark to `sums` (u, d), feature by feature, in place.

    Parameters: X as CSC (ptr, rows, values); marks (rows, u), uint8, 0 or 1.
    """
    u, d = sums.shape
    strip = np.empty((16, u), np.float64)  # of features, as a cache line of `sums` holds eight
    for f0 in range(0, d, len(strip)):
        f1 = min(d, f0 + len(strip))
        strip[:] = 0.0
        for f in range(f0, f1):
            total = strip[f - f0]
            p = ptr[f]
            while p + 4 <= ptr[f + 1]:
                a, b, c, e = marks[rows[p]], marks[rows[p + 1]], marks[rows[p + 2]], marks[rows[p + 3]]
                v0, v1, v2, v3 = values[p], values[p + 1], values[p + 2], values[p + 3]
                for j in range(u):
                    total[j] += (v0 * a[j] + v1 * b[j]) + (v2 * c[j] + v3 * e[j])
                p += 4
            while p < ptr[f + 1]:
                a, v0 = marks[rows[p]], values[p]
                for j in range(u):
                    total[j] += v0 * a[j]
                p += 1
        for label in range(u):
            into = sums[label, f0:f1]
            for j in range(f1 - f0):
                into[j] += strip[j, label]


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
