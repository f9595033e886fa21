"""Compiled counting kernels: the inner loops of `blocks.counts`, imported only for large jobs.

Dense rows are converted to codes in tiles of bytes that stay in the second-level cache. The rows of a tile are then
visited label by label: `code == v` is added into byte lanes, one lane per feature, which the compiler turns into vector
instructions, and the lanes are flushed before they overflow. Work is proportional to rows times features times labels
per row, but for frequent labels, such as the rows in which a label is unknown: of dense tiles, 64 rows of a feature are
one word then, whose bits in the rows of a label are counted together; of sparse blocks, the values of a run of
positions are visited together, each adding its row of label marks. No kernel uses Python objects; all release the GIL.
"""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit

#: Rows and features of a tile: 512 KiB of codes, which fit the second-level cache of most processors. Of more rows the
#: lanes of a label are flushed less often.
TILE_ROWS = 512
TILE_FEATURES = 1024

_LANE_ROWS = 252  # a byte lane counts up to 255; a multiple of four

#: Frequent labels have one row in so many, at least; they are counted together if they have as many labels a row on
#: average, which pays for the words or the marks.
FREQUENT = 4


@njit()
def count_lanes(  # type: ignore[no-untyped-def]
    X, first, edges, missing_columns, missing_codes, slot_ptr, slot_rows, lanes, marginal
):  # pragma: no cover - compiled
    """Add the codes 1..K-1 of a dense block to `lanes` (p, K-1, w) and `marginal` (K-1, w).

    Parameters: X (rows, d); first feature; edges (K-1, w) in X's type, +inf beyond a feature's codes; the columns
    (0..w-1) with a code for missing values, and that code; for each label slot s the ascending rows
    `slot_rows[slot_ptr[s]:slot_ptr[s + 1]]` with the label.
    """
    rows = X.shape[0]
    n_edges, width = edges.shape
    slots = lanes.shape[0]
    codes = np.empty((TILE_ROWS, TILE_FEATURES), np.uint8)
    lane = np.empty(TILE_FEATURES, np.uint8)
    bits = np.empty((TILE_ROWS // 64, TILE_FEATURES), np.uint64)
    mask = np.empty(TILE_ROWS // 64, np.uint64)
    ends = np.empty(slots, np.int64)
    for f0 in range(0, width, TILE_FEATURES):
        w = min(TILE_FEATURES, width - f0)
        next_row = slot_ptr[:-1].copy()
        for r0 in range(0, rows, TILE_ROWS):
            m = min(TILE_ROWS, rows - r0)
            for r in range(m):
                x = X[r0 + r, first + f0 : first + f0 + w]
                code = codes[r, :w]
                if n_edges == 1:
                    edge = edges[0, f0 : f0 + w]
                    for j in range(w):
                        code[j] = np.uint8(x[j] > edge[j])
                elif n_edges == 3:
                    _digitise_3(x, edges, f0, code)
                elif n_edges == 7:
                    _digitise_7(x, edges, f0, code)
                else:
                    for j in range(w):
                        code[j] = np.uint8(0)
                    for b in range(n_edges):
                        edge = edges[b, f0 : f0 + w]
                        for j in range(w):
                            code[j] += np.uint8(x[j] > edge[j])
            for i in range(missing_columns.size):
                j = missing_columns[i] - f0
                if 0 <= j < w:
                    for r in range(m):
                        value = X[r0 + r, first + f0 + j]
                        if value != value:
                            codes[r, j] = missing_codes[i]
            for v in range(1, n_edges + 1):
                total = marginal[v - 1, f0 : f0 + w]
                for start in range(0, m, _LANE_ROWS):
                    _add_all(codes, start, min(start + _LANE_ROWS, m), np.uint8(v), lane[:w])
                    for j in range(w):
                        total[j] += lane[j]
            frequent = 0
            for s in range(slots):
                end = next_row[s]
                while end < slot_ptr[s + 1] and slot_rows[end] < r0 + m:
                    end += 1
                ends[s] = end
                if (end - next_row[s]) * FREQUENT > m:
                    frequent += end - next_row[s]
            for v in range(1, n_edges + 1):
                if frequent > FREQUENT * m:
                    _pack_code(codes, m, w, np.uint8(v), bits)
                for s in range(slots):
                    begin, end = next_row[s], ends[s]
                    total = lanes[s, v - 1, f0 : f0 + w]
                    if frequent > FREQUENT * m and (end - begin) * FREQUENT > m:
                        for word in range(mask.size):
                            mask[word] = np.uint64(0)
                        for i in range(begin, end):
                            r = slot_rows[i] - r0
                            mask[r >> 6] |= np.uint64(1) << np.uint64(r & 63)
                        _add_words(bits, mask, total)
                        continue
                    for start in range(begin, end, _LANE_ROWS):
                        _add_listed(codes, r0, slot_rows[start : min(start + _LANE_ROWS, end)], np.uint8(v), lane[:w])
                        for j in range(w):
                            total[j] += lane[j]
            for s in range(slots):
                next_row[s] = ends[s]


@njit()
def _pack_code(codes, rows, w, v, bits):  # type: ignore[no-untyped-def] # pragma: no cover - compiled
    """Set bit r of column j in `bits` (words, TILE_FEATURES) where row r of the tile has code v in column j < w."""
    for word in range(bits.shape[0]):
        packed = bits[word, :w]
        for j in range(w):
            packed[j] = np.uint64(0)
        for r in range(64 * word, min(64 * word + 64, rows)):
            code, shift = codes[r], np.uint64(r & 63)
            for j in range(w):
                packed[j] |= np.uint64(code[j] == v) << shift


@njit(inline="always")
def _ones(x):  # type: ignore[no-untyped-def] # pragma: no cover - compiled
    # The compiler knows this form, and makes one instruction of it where the processor has that.
    x = x - ((x >> np.uint64(1)) & np.uint64(0x5555555555555555))
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return (x * np.uint64(0x0101010101010101)) >> np.uint64(56)


@njit()
def _add_words(bits, mask, total):  # type: ignore[no-untyped-def] # pragma: no cover - compiled
    for word in range(0, mask.size, 4):
        m0, m1, m2, m3 = mask[word], mask[word + 1], mask[word + 2], mask[word + 3]
        a, b, c, d = bits[word], bits[word + 1], bits[word + 2], bits[word + 3]
        for j in range(total.size):
            ones = (_ones(a[j] & m0) + _ones(b[j] & m1)) + (_ones(c[j] & m2) + _ones(d[j] & m3))
            total[j] += np.int32(ones)


@njit(inline="always")
def _digitise_3(x, edges, f0, code):  # type: ignore[no-untyped-def] # pragma: no cover - compiled
    w = code.size
    e0 = edges[0, f0 : f0 + w]
    e1 = edges[1, f0 : f0 + w]
    e2 = edges[2, f0 : f0 + w]
    for j in range(w):
        code[j] = np.uint8(x[j] > e0[j]) + np.uint8(x[j] > e1[j]) + np.uint8(x[j] > e2[j])


@njit(inline="always")
def _digitise_7(x, edges, f0, code):  # type: ignore[no-untyped-def] # pragma: no cover - compiled
    w = code.size
    e0 = edges[0, f0 : f0 + w]
    e1 = edges[1, f0 : f0 + w]
    e2 = edges[2, f0 : f0 + w]
    e3 = edges[3, f0 : f0 + w]
    e4 = edges[4, f0 : f0 + w]
    e5 = edges[5, f0 : f0 + w]
    e6 = edges[6, f0 : f0 + w]
    for j in range(w):
        value = x[j]
        code[j] = (
            np.uint8(value > e0[j])
            + np.uint8(value > e1[j])
            + np.uint8(value > e2[j])
            + np.uint8(value > e3[j])
            + np.uint8(value > e4[j])
            + np.uint8(value > e5[j])
            + np.uint8(value > e6[j])
        )


@njit(inline="always")
def _add_all(codes, start, stop, v, lane):  # type: ignore[no-untyped-def] # pragma: no cover - compiled
    w = lane.size
    for j in range(w):
        lane[j] = np.uint8(0)
    r = start
    while r + 4 <= stop:
        a, b, c, d = codes[r], codes[r + 1], codes[r + 2], codes[r + 3]
        for j in range(w):
            lane[j] += np.uint8(a[j] == v) + np.uint8(b[j] == v) + np.uint8(c[j] == v) + np.uint8(d[j] == v)
        r += 4
    while r < stop:
        a = codes[r]
        for j in range(w):
            lane[j] += np.uint8(a[j] == v)
        r += 1


@njit(inline="always")
def _add_listed(codes, first, listed, v, lane):  # type: ignore[no-untyped-def] # pragma: no cover - compiled
    w = lane.size
    for j in range(w):
        lane[j] = np.uint8(0)
    r = 0
    while r + 4 <= listed.size:
        a, b = codes[listed[r] - first], codes[listed[r + 1] - first]
        c, d = codes[listed[r + 2] - first], codes[listed[r + 3] - first]
        for j in range(w):
            lane[j] += np.uint8(a[j] == v) + np.uint8(b[j] == v) + np.uint8(c[j] == v) + np.uint8(d[j] == v)
        r += 4
    while r < listed.size:
        a = codes[listed[r] - first]
        for j in range(w):
            lane[j] += np.uint8(a[j] == v)
        r += 1


@njit()
def sparse_positions(  # type: ignore[no-untyped-def]
    indices, data, first, last, edge_ptr, edges, missing_code, zero_code, offset, positions
):  # pragma: no cover - compiled
    """Write the position of every stored value's code in a ragged table; -1 for other features and zero's code."""
    for k in range(indices.size):
        f = indices[k] - first
        if f < 0 or f >= last - first:
            positions[k] = -1
            continue
        value = data[k]
        low = edge_ptr[f]
        high = edge_ptr[f + 1]
        if value != value:
            code = missing_code[f]
        elif high - low == 1:
            code = 1 if value > edges[low] else 0
        else:
            begin = low
            while low < high:  # bisection for the number of edges below the value
                middle = (low + high) >> 1
                if value > edges[middle]:
                    low = middle + 1
                else:
                    high = middle
            code = low - begin
        zero = zero_code[f]
        positions[k] = -1 if code == zero else offset[f] + code - (1 if code > zero else 0)


@njit()
def one_edge_positions(  # type: ignore[no-untyped-def]
    indices, data, first, last, edge, above, positions
):  # pragma: no cover - compiled
    """Compute `sparse_positions` for features with one edge, at least 0, and no code for missing values."""
    for k in range(indices.size):
        f = indices[k] - first
        positions[k] = above[f] if 0 <= f < last - first and data[k] > edge[f] else -1


@njit()
def list_slots(  # type: ignore[no-untyped-def]
    indptr, indices, signs, slot_of_label, slot_of_unknown, ptr, rows
):  # pragma: no cover - compiled
    """List the ascending rows of every counted label, and those in which it is unknown: `ptr` (p + 1,), and the first
    ptr[p] entries of `rows`.
    """
    for s in range(indices.size):
        slot = slot_of_label[indices[s]] if signs[s] > 0 else slot_of_unknown[indices[s]]
        if slot >= 0:
            ptr[slot + 1] += 1
    for slot in range(1, ptr.size):
        ptr[slot] += ptr[slot - 1]
    place = ptr[:-1].copy()
    for r in range(indptr.size - 1):
        for s in range(indptr[r], indptr[r + 1]):
            slot = slot_of_label[indices[s]] if signs[s] > 0 else slot_of_unknown[indices[s]]
            if slot >= 0:
                rows[place[slot]] = r
                place[slot] += 1


@njit()
def count_positions(  # type: ignore[no-untyped-def]
    indptr, positions, slot_ptr, slot_rows, slots, table, marginal
):  # pragma: no cover - compiled
    """Add one to `table` (p, P) at every position of every row with a label of `slots`, and to `marginal` (P,).

    Label by label, so that the randomly accessed row of the table stays in the second-level cache.
    """
    for k in range(positions.size):
        p = positions[k]
        if p >= 0:
            marginal[p] += 1
    for slot in slots:
        row = table[slot]
        for i in range(slot_ptr[slot], slot_ptr[slot + 1]):
            r = slot_rows[i]
            for k in range(indptr[r], indptr[r + 1]):
                p = positions[k]
                if p >= 0:
                    row[p] += 1


@njit()
def count_frequent(  # type: ignore[no-untyped-def]
    indptr, positions, slot_ptr, slot_rows, slots, ptr, within, row, marks, sums, table
):  # pragma: no cover - compiled
    """Add to `table` (p, P) as `count_positions` does, to some labels together: run of positions by run.

    Parameters: slots (s,); ptr, zeros for the runs and one more; within (nonzeros,), uint16, and row (nonzeros,), for
    the values in the order of runs; marks (rows, s) of zeros; sums (positions of a run, s), uint16.
    """
    run, n_slots = sums.shape
    for s in range(n_slots):
        for i in range(slot_ptr[slots[s]], slot_ptr[slots[s] + 1]):
            marks[slot_rows[i], s] = 1
    shift = 0
    while run >> shift > 1:
        shift += 1
    for k in range(positions.size):
        if positions[k] >= 0:
            ptr[(positions[k] >> shift) + 1] += 1
    for b in range(1, ptr.size):
        ptr[b] += ptr[b - 1]
    for r in range(indptr.size - 1):
        for k in range(indptr[r], indptr[r + 1]):
            p = positions[k]
            if p >= 0:
                i = ptr[p >> shift]
                ptr[p >> shift] = i + 1
                within[i] = p & (run - 1)
                row[i] = r
    begin = 0
    for b in range(ptr.size - 1):
        first = b * run
        w = min(run, table.shape[1] - first)
        for start in range(begin, ptr[b], 65535):  # which no sum exceeds
            for j in range(w):
                for s in range(n_slots):
                    sums[j, s] = 0
            for i in range(start, min(start + 65535, ptr[b])):
                into, mark = sums[within[i]], marks[row[i]]
                for s in range(n_slots):
                    into[s] += mark[s]
            for s in range(n_slots):
                total = table[slots[s], first : first + w]
                for j in range(w):
                    total[j] += sums[j, s]
        begin = ptr[b]


@njit()
def fill_planes(  # type: ignore[no-untyped-def]
    counts, offset, columns, reference, totals, planes
):  # pragma: no cover - compiled
    """Copy counts by position to `planes` (codes, p, w), and fill in the reference codes by subtraction.

    Parameters: counts (p, P), with the codes of column `columns[i]` except its reference at positions
    offset[i]..offset[i + 1]-1; reference (w,); totals (p,) over all codes.
    """
    codes, slots, width = planes.shape
    for s in range(slots):
        for i in range(columns.size):
            f = columns[i]
            code = 0
            for position in range(offset[i], offset[i + 1]):
                if code == reference[f]:
                    code += 1
                planes[code, s, f] = counts[s, position]
                code += 1
        for f in range(width):
            left = totals[s]
            for code in range(codes):
                if code != reference[f]:
                    left -= planes[code, s, f]
            planes[reference[f], s, f] = left
