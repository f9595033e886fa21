"""Contingency tables N(feature, code, label) of one block of rows.

For the entropy-based selectors of Lee & Kim (2016). A `CodeBook` maps values to codes; a `CountTable` holds the counts
of all codes but one, the reference (code 0 of a dense feature, the code of 0.0 of a sparse one), which follows by
subtraction. Small jobs are counted with NumPy and SciPy products, large ones with the compiled loops of
`counts_compiled`; both give the same integers.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import Block

#: Largest number of codes of a dense feature counted in byte lanes; with more, it is counted by position.
LANE_CODES = 16

#: Largest number of codes of a feature; a code is one byte.
MAX_CODES = 256

#: Counts of a run of positions with all frequent labels, which stay in the second-level cache.
FREQUENT_COUNTS = 2**17

#: Temporary bytes for a count by position in NumPy.
STRIP_COUNT_BYTES = 28


@dataclass(frozen=True)
class CodeBook:
    """Map from the values of every feature to codes.

    The code of a value is the number of the feature's edges below it. NaN has the last code of its own if `has_missing`
    is true for the feature.

    Attributes
    ----------
    edge_ptr : int64 array, shape (d + 1,)
    edges : float64 array, shape (edge_ptr[-1],)
        Ascending within a feature.
    has_missing : bool array, shape (d,)
    """

    edge_ptr: NDArray[np.int64]
    edges: Array
    has_missing: NDArray[np.bool_]

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.edge_ptr) - 1

    @property
    def n_codes(self) -> NDArray[np.int64]:
        """Number of codes of every feature, including the code for missing values, shape (d,)."""
        return np.diff(self.edge_ptr) + 1 + self.has_missing

    def codes_of(self, values: Array) -> NDArray[np.int64]:
        """Return the codes of one value of each feature, other than NaN, shape (d,)."""
        is_below = self.edges < np.repeat(values, np.diff(self.edge_ptr))
        below = np.concatenate(([0], np.cumsum(is_below)))
        return below[self.edge_ptr[1:]] - below[self.edge_ptr[:-1]]

    def part(self, first: int, last: int) -> CodeBook:
        """Return the book of features first..last-1."""
        ptr = self.edge_ptr[first : last + 1]
        return CodeBook(ptr - ptr[0], self.edges[ptr[0] : ptr[-1]], self.has_missing[first:last])

    def select(self, features: NDArray[np.int64]) -> CodeBook:
        """Return the book of the given features, in the given order."""
        counts = np.diff(self.edge_ptr)[features]
        ptr = np.concatenate(([0], np.cumsum(counts)))
        places = np.arange(ptr[-1]) + np.repeat(self.edge_ptr[features] - ptr[:-1], counts)
        return CodeBook(ptr, self.edges[places], self.has_missing[features])

    def widest(self, count: int) -> NDArray[np.int64]:
        """Return the `count` features with the most codes, ascending, as an upper bound for a plan."""
        return np.sort(np.argsort(-self.n_codes, kind="stable")[:count])


@dataclass(frozen=True)
class CountLayout:
    """Layout of the counts of features first..last-1 in a table.

    Attributes
    ----------
    first, last : int
        The features counted.
    sparse : bool
        True for sparse blocks: all features are counted by position, with the code of zero as the reference.
    lane_codes : int
        Largest number of codes of a feature counted in lanes (1: none).
    by_position : int64 array
        Features (relative to `first`) counted by position.
    offset : int64 array, shape (len(by_position) + 1,)
        Ranges of positions of these features: one position for each code but the reference.
    reference : int64 array, shape (last - first,)
        Reference code, which is not counted.
    """

    first: int
    last: int
    sparse: bool
    lane_codes: int
    by_position: NDArray[np.int64]
    offset: NDArray[np.int64]
    reference: NDArray[np.int64]

    @property
    def width(self) -> int:
        """Number of features."""
        return self.last - self.first

    @property
    def positions(self) -> int:
        """Number of positions."""
        return int(self.offset[-1])

    def part(self, start: int, stop: int) -> CountLayout:
        """Return the layout of features start..stop-1 (relative to `first`) within the same table."""
        low, high = np.searchsorted(self.by_position, (start, stop))
        return CountLayout(
            self.first + start,
            self.first + stop,
            self.sparse,
            self.lane_codes,
            self.by_position[low:high] - start,
            self.offset[low : high + 1] - self.offset[low],
            self.reference[start:stop],
        )


def layout_counts(book: CodeBook, first: int, last: int, *, sparse: bool) -> CountLayout:
    """Choose the layout of the counts of features first..last-1."""
    part = book.part(first, last)
    n_codes = part.n_codes
    if sparse:
        wide = np.arange(last - first)
        reference = part.codes_of(np.zeros(part.d))
        lane_codes = 1
    else:
        wide = np.flatnonzero(n_codes > LANE_CODES)
        reference = np.zeros(last - first, dtype=np.int64)
        narrow = n_codes[n_codes <= LANE_CODES]
        lane_codes = int(narrow.max(initial=1))
    offset = np.concatenate(([0], np.cumsum(n_codes[wide] - 1)))
    return CountLayout(first, last, sparse, lane_codes, wide, offset, reference)


CountTable = tuple[NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any]]
"""(lanes (p, K-1, w), lane marginal (K-1, w), by position (p, P), position marginal (P,))."""


def empty_table(layout: CountLayout, p: int, dtype: np.dtype[Any]) -> CountTable:
    """Return a table of zeros for `p` labels."""
    width = layout.width if layout.lane_codes > 1 else 0
    return (
        np.zeros((p, layout.lane_codes - 1, width), dtype),
        np.zeros((layout.lane_codes - 1, width), dtype),
        np.zeros((p, layout.positions), dtype),
        np.zeros(layout.positions, dtype),
    )


def part_of_table(layout: CountLayout, table: CountTable, start: int, stop: int) -> CountTable:
    """Copy the counts of features start..stop-1 (relative to the layout's first), in the layout of `layout.part`."""
    lanes, lane_marginal, by_position, marginal = table
    low, high = np.searchsorted(layout.by_position, (start, stop))
    at = slice(layout.offset[low], layout.offset[high])
    # Without lanes the arrays have no feature axis.
    width = slice(start, stop) if lanes.shape[2] else slice(0, 0)
    return (
        lanes[:, :, width].copy(),
        lane_marginal[:, width].copy(),
        by_position[:, at].copy(),
        marginal[at].copy(),
    )


def table_items(layout: CountLayout, p: int) -> int:
    """Return the number of integers in a table."""
    return (p + 1) * ((layout.lane_codes - 1) * layout.width + layout.positions)


def tile_positions(book: CodeBook, first: NDArray[np.int64], *, sparse: bool) -> tuple[NDArray[np.int64], ...]:
    """Return the table items per row, and the number of features counted by position, for every tile of features.

    Parameters
    ----------
    book : CodeBook
    first : int64 array, shape (t + 1,)
        First feature of every tile, ascending, followed by d.
    sparse : bool

    Returns
    -------
    items, by_position : int64 array, shape (t,)
        `table_items` of a table for p labels is (p + 1) times `items`; computed without making layouts.

    Examples
    --------
    >>> book = CodeBook(np.array([0, 1, 3, 5]), np.zeros(5), np.zeros(3, dtype=bool))  # 2, 3 and 3 codes
    >>> tile_positions(book, np.array([0, 2, 3]), sparse=True)
    (array([3, 2]), array([2, 1]))
    >>> tile_positions(book, np.array([0, 2, 3]), sparse=False)  # lanes are as wide as the widest feature
    (array([4, 2]), array([0, 0]))
    """
    n_codes = book.n_codes
    wide = n_codes > (0 if sparse else LANE_CODES)
    items = np.add.reduceat(np.where(wide, n_codes - 1, 0), first[:-1])
    lane_codes = np.maximum.reduceat(np.where(wide, 1, n_codes), first[:-1])
    return items + (lane_codes - 1) * np.diff(first), np.add.reduceat(wide.astype(np.int64), first[:-1])


@dataclass(frozen=True)
class BlockCoder:
    """Block-independent data about codes, in the form that the kernels need.

    Parameters
    ----------
    book : CodeBook
        Book of all features.
    layout : CountLayout
    """

    book: CodeBook
    layout: CountLayout

    def lane_edges(self, dtype: np.dtype[Any]) -> NDArray[Any]:
        """Return the edges (K-1, w) in the type for comparisons with `dtype`, +inf beyond a feature's codes."""
        return self._narrow_edges if dtype == np.float32 else self._wide_edges

    @cached_property
    def _wide_edges(self) -> Array:
        layout = self.layout
        table = np.full((layout.lane_codes - 1, layout.width), np.inf)
        counts = np.diff(self.book.edge_ptr)[layout.first : layout.last]
        wide = np.zeros(layout.width, dtype=bool)
        wide[layout.by_position] = True
        start = self.book.edge_ptr[layout.first : layout.last]
        for b in range(layout.lane_codes - 1):
            has = (counts > b) & ~wide
            table[b, has] = self.book.edges[start[has] + b]
        return table

    @cached_property
    def _narrow_edges(self) -> NDArray[np.float32]:
        # x > e in float64 equals x > (the largest float32 not above e), since x is a float32.
        with np.errstate(over="ignore"):
            rounded = self._wide_edges.astype(np.float32)
        return np.where(rounded > self._wide_edges, np.nextafter(rounded, np.float32(-np.inf)), rounded)

    @cached_property
    def missing_columns(self) -> tuple[NDArray[np.int64], NDArray[np.uint8]]:
        """Return columns counted in lanes with a code for missing values, and that code."""
        layout = self.layout
        part = self.book.part(layout.first, layout.last)
        wide = np.zeros(layout.width, dtype=bool)
        wide[layout.by_position] = True
        columns = np.flatnonzero(part.has_missing & ~wide)
        return columns, (part.n_codes[columns] - 1).astype(np.uint8)

    @cached_property
    def single_edges(self) -> Array | None:
        """Edge of every feature, shape (w,), if each has exactly one, at least 0, and no code for missing values.

        A stored value of sparse data then counts at its feature's index or not at all.
        """
        part = self.book.part(self.layout.first, self.layout.last)
        if (np.diff(part.edge_ptr) != 1).any() or part.has_missing.any() or (part.edges < 0).any():
            return None
        return part.edges

    @cached_property
    def every_value_counts(self) -> bool:
        """True if each stored value of unsigned integers exceeds its feature's single edge."""
        return self.single_edges is not None and bool((self.single_edges < 1).all())


def slots_of_rows(
    Y: sp.csr_array,
    slot_of_label: NDArray[np.int64],
    slot_of_unknown: NDArray[np.int64],
    p: int,
    *,
    compiled: bool,
) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Return the ascending rows with each of the counted labels: offsets (p + 1,) of the slots, and the rows.

    Parameters
    ----------
    Y : csr_array, shape (rows, q)
    slot_of_label : int64 array, shape (q,)
        Slot 0..p-1 of each counted label, -1 for other labels.
    slot_of_unknown : int64 array, shape (q,)
        Slot of the rows in which each label is unknown, -1 where these are not counted.
    p : int
    compiled : bool
    """
    if compiled:
        from mlfs_dask.blocks.counts_compiled import list_slots

        ptr, listed = np.zeros(p + 1, dtype=np.int32), np.empty(Y.nnz, dtype=np.int32)
        list_slots(Y.indptr, Y.indices, Y.data, slot_of_label, slot_of_unknown, ptr, listed)
        return ptr, listed[: ptr[-1]]
    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    slots, negative = slot_of_label[Y.indices], Y.data < 0
    slots[negative] = slot_of_unknown[Y.indices[negative]]
    counted = slots >= 0
    slots, rows = slots[counted], rows[counted]
    order = np.argsort(slots, kind="stable")
    ptr = np.concatenate(([0], np.cumsum(np.bincount(slots, minlength=p))))
    return ptr.astype(np.int32), rows[order].astype(np.int32)


def count_block(
    coder: BlockCoder,
    block: Block,
    slot_of_label: NDArray[np.int64],
    slot_of_unknown: NDArray[np.int64],
    table: CountTable,
    *,
    compiled: bool,
) -> NDArray[Any]:
    """Add one block to `table`, in place.

    Parameters
    ----------
    coder : BlockCoder
    block : Block
    slot_of_label, slot_of_unknown : int64 array, shape (q,)
        As of `slots_of_rows`.
    table : CountTable
    compiled : bool
        Use the compiled loops; the counts are equal either way.

    Returns
    -------
    int64 array, shape (p,), or float64 of weighted rows
        Rows of the block with each counted label.
    """
    lanes, lane_marginal, by_position, marginal = table
    X, p = block.X, by_position.shape[0]
    compiled = compiled and block.weights is None
    slot_ptr, slot_rows = slots_of_rows(block.Y, slot_of_label, slot_of_unknown, p, compiled=compiled)
    positives: NDArray[np.int64] = np.diff(slot_ptr).astype(np.int64)
    if compiled:
        from mlfs_dask.blocks.counts_compiled import count_lanes, count_positions

        if lanes.shape[1]:
            edges = coder.lane_edges(X.dtype)
            count_lanes(X, coder.layout.first, edges, *coder.missing_columns, slot_ptr, slot_rows, lanes, lane_marginal)
        if by_position.shape[1]:
            indptr, positions = _positions(coder, X, compiled=True)
            slots = _count_frequent(indptr, positions, slot_ptr, slot_rows, by_position)
            count_positions(indptr, positions, slot_ptr, slot_rows, slots, by_position, marginal)
        return positives
    entries = np.ones(len(slot_rows)) if block.weights is None else block.weights[slot_rows]
    have = sp.csr_array((entries, slot_rows, slot_ptr), shape=(p, X.shape[0]))
    if block.weights is not None:
        return _count_weights(coder, X, have, block.weights, table)
    if lanes.shape[1]:
        _count_lanes(coder, X, have, lanes, lane_marginal)
    if by_position.shape[1]:
        coded = _indicators(*_positions(coder, X, compiled=False), len(marginal))
        _add_in_strips(have.astype(np.int64), coded, by_position)
        marginal += np.bincount(coded.indices, minlength=len(marginal)).astype(marginal.dtype)
    return positives


def _count_frequent(
    indptr: NDArray[Any],
    positions: NDArray[np.int32],
    slot_ptr: NDArray[np.int32],
    slot_rows: NDArray[np.int32],
    table: NDArray[Any],
) -> NDArray[np.int64]:
    """Add a block to the table of frequent labels where these are many; return the slots of the other labels."""
    from mlfs_dask.blocks.counts_compiled import FREQUENT, count_frequent

    n, size = len(indptr) - 1, np.diff(slot_ptr).astype(np.int64)
    is_frequent = size * FREQUENT > n
    if size[is_frequent].sum() <= FREQUENT * n:
        return np.arange(len(size))
    frequent = np.flatnonzero(is_frequent)
    run = 2 ** int(np.clip(np.log2(FREQUENT_COUNTS / len(frequent)), 6, 16))
    order = np.empty(len(positions), np.uint16), np.empty(len(positions), np.int32)
    scratch = *order, np.zeros((n, len(frequent)), np.uint8), np.empty((run, len(frequent)), np.uint16)
    ptr = np.zeros(table.shape[1] // run + 2, np.int64)
    count_frequent(indptr, positions, slot_ptr, slot_rows, frequent, ptr, *scratch, table)
    return np.flatnonzero(~is_frequent)


def _count_weights(coder: BlockCoder, X: Matrix, labels: sp.csr_array, weights: Array, table: CountTable) -> Array:
    """Add a block of weighted rows to a float64 table, as `count_block` does, and return sums of weights."""
    lanes, lane_marginal, by_position, marginal = table
    if lanes.shape[1]:
        codes = _codes(coder, X)
        for v in range(lanes.shape[1]):
            is_code = (codes == v + 1).astype(np.float64)
            lane_marginal[v] += weights @ is_code
            lanes[:, v] += labels @ is_code
    if by_position.shape[1]:
        coded = _indicators(*_positions(coder, X, compiled=False), len(marginal)).astype(np.float64)
        _add_in_strips(labels, coded, by_position)
        marginal += weights @ coded
    return np.asarray(labels.sum(axis=1), dtype=np.float64)


def _add_in_strips(labels: sp.csr_array, coded: sp.csr_array, by_position: NDArray[Any]) -> None:
    """Add the counts of each label and position in strips of labels, as the product is a temporary matrix."""
    step = max(1, gates.VALUES_AT_ONCE // by_position.shape[1])
    for low in range(0, by_position.shape[0], step):
        strip = slice(low, low + step)
        by_position[strip] += (labels[strip] @ coded).toarray().astype(by_position.dtype, copy=False)


def code_indicators(coder: BlockCoder, X: Matrix) -> sp.csr_array:
    """Return indicators of the codes of a block's rows, in a layout that counts all features by position.

    Parameters
    ----------
    coder : BlockCoder
        With the layout for sparse blocks, for dense blocks, too.
    X : ndarray or csr_array, shape (rows, d)
        Features of the coder's book.

    Returns
    -------
    csr_array of int8, shape (rows, positions)
        One if the row has the code, which is not the feature's reference.
    """
    return _indicators(*_positions(coder, X, compiled=False), coder.layout.positions).astype(np.int8)


def _indicators(indptr: NDArray[Any], positions: NDArray[Any], n_positions: int) -> sp.csr_array:
    """Return ones, int64, at the positions of each row, skipping -1."""
    has_slot = positions >= 0
    ptr = np.concatenate(([0], np.cumsum(has_slot)))[indptr]
    shape = len(indptr) - 1, n_positions
    return sp.csr_array((np.ones(int(ptr[-1]), dtype=np.int64), positions[has_slot], ptr), shape=shape)


def _codes(coder: BlockCoder, X: NDArray[Any]) -> NDArray[np.uint8]:
    layout = coder.layout
    values = X[:, layout.first : layout.last]
    codes = np.zeros(values.shape, dtype=np.uint8)
    for edge in coder.lane_edges(X.dtype):
        codes += values > edge
    for column, code in zip(*coder.missing_columns, strict=True):
        codes[np.isnan(values[:, column]), column] = code
    return codes


def _count_lanes(
    coder: BlockCoder,
    X: NDArray[Any],
    labels: sp.csr_array,
    lanes: NDArray[Any],
    marginal: NDArray[Any],
) -> None:
    codes = _codes(coder, X)
    for v in range(lanes.shape[1]):
        is_code = codes == v + 1
        marginal[v] += is_code.sum(axis=0, dtype=marginal.dtype)
        lanes[:, v] += (labels @ is_code.astype(np.float64)).astype(lanes.dtype)


def _positions(coder: BlockCoder, X: Any, *, compiled: bool) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return (indptr, positions) of codes counted by position; -1 for a reference code."""
    layout, book = coder.layout, coder.book
    part = book.part(layout.first, layout.last)
    if sp.issparse(X):
        indptr, indices, data = X.indptr, X.indices, X.data
        if compiled:
            from mlfs_dask.blocks.counts_compiled import one_edge_positions, sparse_positions

            whole = layout.first == 0 and layout.last == X.shape[1]
            if data.dtype.kind == "u" and whole and coder.every_value_counts and data.all():
                return indptr, indices
            positions = np.empty(len(indices), dtype=np.int32)
            if coder.single_edges is not None:
                above = layout.offset[:-1].astype(np.int32)
                one_edge_positions(indices, data, layout.first, layout.last, coder.single_edges, above, positions)
                return indptr, positions
            sparse_positions(
                indices,
                data,
                layout.first,
                layout.last,
                part.edge_ptr,
                part.edges,
                part.n_codes - 1,
                layout.reference,
                layout.offset[:-1],
                positions,
            )
            return indptr, positions
        feature = indices.astype(np.int64) - layout.first
        inside = (feature >= 0) & (feature < layout.width)
        feature = np.where(inside, feature, 0)
        code = _codes_of_features(part, feature, data)
    else:
        wide = layout.by_position
        rows = X.shape[0]
        indptr = np.arange(rows + 1) * len(wide)
        codes = np.empty((rows, len(wide)), dtype=np.int64)
        for i, j in enumerate(wide):
            codes[:, i] = _code_values(part, int(j), X[:, layout.first + j])
        code = codes.ravel()
        feature = np.tile(np.arange(len(wide)), rows)
        inside = np.ones(len(code), dtype=bool)
    reference = layout.reference[layout.by_position][feature]
    position = layout.offset[:-1][feature] + code - (code > reference)
    return indptr, np.where(inside & (code != reference), position, -1).astype(np.int32)


def _codes_of_features(part: CodeBook, feature: NDArray[np.int64], values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the codes of values of different features."""
    n_edges = np.diff(part.edge_ptr)[feature]
    start = part.edge_ptr[:-1][feature]
    code = np.zeros(len(values), dtype=np.int64)
    for b in range(int(n_edges.max(initial=0))):
        has = n_edges > b
        code[has] += values[has] > part.edges[start[has] + b]
    if part.has_missing.any():
        code = np.where(np.isnan(values), n_edges + 1, code)
    return code


def _code_values(part: CodeBook, feature: int, values: NDArray[Any]) -> NDArray[np.int64]:
    """Return the codes of values of one feature."""
    edges = part.edges[part.edge_ptr[feature] : part.edge_ptr[feature + 1]]
    code = np.searchsorted(edges, values.astype(np.float64), side="left")
    if part.has_missing[feature]:
        code = np.where(np.isnan(values), len(edges) + 1, code)
    return code


def code_planes(
    layout: CountLayout,
    table: CountTable,
    chosen: slice,
    n_codes: int,
    positives: NDArray[Any],
    n: int | float,
    *,
    compiled: bool,
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the counts of codes 0..n_codes-1 of a slice of features; reference codes follow from the totals.

    Parameters
    ----------
    chosen : slice
        Features, relative to the layout's first feature.
    n_codes : int
        Largest number of codes of the features.
    positives : int64 array, shape (p,)
        Rows with each label; float64 for a table of weights, like all counts.
    n : int or float
        Number of rows.
    compiled : bool
        Use the compiled loops.

    Returns
    -------
    joint : int64 array, shape (n_codes, p, features)
    marginal : int64 array, shape (n_codes, features)
    """
    lanes, lane_marginal, by_position, position_marginal = table
    start, stop, _ = chosen.indices(layout.width)
    dtype = np.result_type(by_position, np.int64)
    joint = np.zeros((n_codes, by_position.shape[0], stop - start), dtype)
    marginal = np.zeros((n_codes, stop - start), dtype)
    low, high = np.searchsorted(layout.by_position, (start, stop))
    columns, offset = layout.by_position[low:high] - start, layout.offset[low : high + 1]
    reference = layout.reference[start:stop]
    planes = min(lanes.shape[1], n_codes - 1)
    if planes:
        joint[1 : planes + 1] = lanes[:, :planes, start:stop].transpose(1, 0, 2)
        marginal[1 : planes + 1] = lane_marginal[:planes, start:stop]
    if compiled:
        from mlfs_dask.blocks.counts_compiled import fill_planes

        fill_planes(by_position, offset, columns, reference, positives, joint)
        fill_planes(position_marginal[np.newaxis], offset, columns, reference, np.array([n]), marginal[:, np.newaxis])
        return joint, marginal
    if len(columns):
        counts = np.diff(offset)
        column = np.repeat(columns, counts)
        step = np.arange(counts.sum()) - np.repeat(offset[:-1] - offset[0], counts)
        code = step + (step >= reference[column])
        at = slice(offset[0], offset[-1])
        joint[code, :, column] = by_position[:, at].T
        marginal[code, column] = position_marginal[at]
    features = np.arange(stop - start)
    marginal[reference, features] = n - marginal.sum(axis=0)
    joint[reference, :, features] = (positives[:, np.newaxis] - joint.sum(axis=0)).T
    return joint, marginal
