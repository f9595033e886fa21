"""Counting kernels against tables made by hand and by a plain loop, in both forms."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.counts import (
    BlockCoder,
    CodeBook,
    code_planes,
    count_block,
    empty_table,
    layout_counts,
    slots_of_rows,
)
from mlfs_dask.rows.contract import Block


def book(edges, missing=()):
    """A code book from a list of edges per feature."""
    ptr = np.concatenate(([0], np.cumsum([len(e) for e in edges]))).astype(np.int64)
    flags = np.zeros(len(edges), dtype=bool)
    flags[list(missing)] = True
    return CodeBook(ptr, np.concatenate([np.asarray(e, dtype=float) for e in edges]), flags)


def full_table(codes_of, X, Y, slots, *, first=0, last=None, compiled, cuts=(), dtype=np.int32):
    """(codes, p, w) and (codes, w) counts from the kernels."""
    last = X.shape[1] if last is None else last
    layout = layout_counts(codes_of, first, last, sparse=sp.issparse(X))
    coder = BlockCoder(codes_of, layout)
    p = int(slots.max()) + 1
    table = empty_table(layout, p, np.dtype(dtype))
    bounds = [0, *sorted(cuts), X.shape[0]]
    for a, b in itertools.pairwise(bounds):
        count_block(coder, Block(a, X[a:b], Y[a:b]), slots, table, compiled=compiled)
    n_codes = int(codes_of.n_codes[first:last].max())
    positives = np.zeros(p, dtype=np.int64)
    counted = slots >= 0
    positives[slots[counted]] = (Y > 0).sum(axis=0)[counted]
    joint, marginal = code_planes(
        layout, table, slice(0, last - first), n_codes, positives, X.shape[0], compiled=compiled
    )
    return joint, marginal


def plain_table(codes_of, X, Y, slots, first, last):
    """The same counts by loops over values."""
    dense = X.toarray() if sp.issparse(X) else X
    labels = Y.toarray()
    p, n_codes = int(slots.max()) + 1, int(codes_of.n_codes[first:last].max())
    joint = np.zeros((n_codes, p, last - first), dtype=np.int64)
    marginal = np.zeros((n_codes, last - first), dtype=np.int64)
    for f in range(first, last):
        edges = codes_of.edges[codes_of.edge_ptr[f] : codes_of.edge_ptr[f + 1]]
        for i in range(X.shape[0]):
            value = float(dense[i, f])
            code = sum(value > edge for edge in edges)
            if value != value and codes_of.has_missing[f]:
                code = len(edges) + 1
            marginal[code, f - first] += 1
            for label, slot in enumerate(slots):
                if slot >= 0 and labels[i, label] == 1:
                    joint[code, slot, f - first] += 1
    return joint, marginal


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_hand_case(form, compiled):
    X = form(np.array([[0.0, 3.0], [2.0, 0.0], [2.0, 1.0]]))
    Y = sp.csr_array(np.array([[1, 0], [1, 1], [0, 1]], dtype=np.int8))
    joint, marginal = full_table(book([[1.0], [0.5, 2.5]]), X, Y, np.array([0, 1]), compiled=compiled)
    # Feature 0 has codes 0, 1, 1; feature 1 has codes 2, 0, 1.
    assert marginal.tolist() == [[1, 1], [2, 1], [0, 1]]
    assert joint[:, 0].tolist() == [[1, 1], [1, 0], [0, 1]]  # rows 0 and 1
    assert joint[:, 1].tolist() == [[0, 1], [2, 1], [0, 0]]  # rows 1 and 2


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("n_edges", [1, 2, 3, 7, 9])
def test_value_on_an_edge_lies_below_it(compiled, form, n_edges):
    edges = 1.0 + np.arange(n_edges)
    X = np.concatenate([edges, np.nextafter(edges, np.inf)])[:, np.newaxis]
    Y = sp.csr_array(np.ones((2 * n_edges, 1), dtype=np.int8))
    _, marginal = full_table(book([edges, edges]), form(np.hstack([X, X])), Y, np.array([0]), compiled=compiled)
    # The first edge alone is in code 0, each value just above an edge with the next edge, the last one alone.
    assert marginal.tolist() == [[1, 1], *[[2, 2]] * (n_edges - 1), [1, 1]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("edge", [0.1, 0.3, 1e-40, 1e39, -0.7, 16777217.0])
def test_float32_values_meet_float64_edges_exactly(edge, compiled):
    near = np.float32(min(edge, 3e38))
    values = np.array(
        [np.nextafter(near, np.float32(-np.inf)), near, np.nextafter(near, np.float32(np.inf))],
        dtype=np.float32,
    )[:, None]
    Y = sp.csr_array(np.ones((3, 1), dtype=np.int8))
    _, marginal = full_table(book([[edge]]), values, Y, np.array([0]), compiled=compiled)
    above = int((values.astype(np.float64) > edge).sum())
    assert marginal.ravel().tolist() == [3 - above, above]


@pytest.mark.parametrize("compiled", [False, True])
def test_unknown_and_uncounted_labels_do_not_count(compiled):
    X = np.array([[1.0], [1.0], [1.0]])
    Y = sp.csr_array(np.array([[1, 1], [-1, 1], [0, 1]], dtype=np.int8))
    joint, _ = full_table(book([[0.5]]), X, Y, np.array([0, -1]), compiled=compiled)
    assert joint.shape[1] == 1
    assert joint[1, 0, 0] == 1


@pytest.mark.parametrize("compiled", [False, True])
def test_lanes_do_not_overflow(compiled):
    # More rows of one code and one label than a byte holds, in one tile and over several.
    X = np.ones((3000, 2), dtype=np.float32)
    Y = sp.csr_array(np.ones((3000, 1), dtype=np.int8))
    joint, marginal = full_table(book([[0.5], [0.5]]), X, Y, np.array([0]), compiled=compiled)
    assert marginal[1].tolist() == [3000, 3000]
    assert joint[1, 0].tolist() == [3000, 3000]


@pytest.mark.parametrize("compiled", [False, True])
def test_more_features_than_a_tile(compiled):
    rng = np.random.default_rng(0)
    X = rng.random((40, 2500)).astype(np.float32)
    Y = sp.csr_array((rng.random((40, 3)) < 0.4).astype(np.int8))
    joint, marginal = full_table(book([[0.5]] * 2500), X, Y, np.array([0, 1, 2]), compiled=compiled)
    assert np.array_equal(marginal[1], (X > 0.5).sum(axis=0))
    assert np.array_equal(joint[1], Y.T.toarray().astype(int) @ (X > 0.5))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_empty_block_counts_nothing(form, compiled):
    X = form(np.zeros((0, 2)))
    Y = sp.csr_array((0, 1), dtype=np.int8)
    joint, marginal = full_table(book([[0.5], [0.5]]), X, Y, np.array([0]), compiled=compiled)
    assert not joint.any()
    assert not marginal.any()


@pytest.mark.parametrize("compiled", [False, True])
def test_one_code_everywhere_needs_no_counts(compiled):
    X = np.zeros((5, 2))
    Y = sp.csr_array(np.ones((5, 1), dtype=np.int8))
    joint, marginal = full_table(book([[], []]), X, Y, np.array([0]), compiled=compiled)
    assert marginal.tolist() == [[5, 5]]
    assert joint.tolist() == [[[5, 5]]]


@pytest.mark.parametrize("compiled", [False, True])
def test_slots_are_ascending_rows_of_each_counted_label(compiled):
    Y = sp.csr_array(np.array([[1, 1], [0, 1], [1, -1]], dtype=np.int8))
    have = slots_of_rows(Y, np.array([1, 0]), 2, compiled=compiled)
    assert have.toarray().tolist() == [[1, 1, 0], [1, 0, 1]]
    assert have.indices.tolist() == [0, 1, 0, 2]


@st.composite
def problems(draw):
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    n, d, q = draw(st.integers(1, 600)), draw(st.integers(1, 9)), draw(st.integers(1, 6))
    dtype = draw(st.sampled_from([np.float64, np.float32, np.uint8, np.int16]))
    X = rng.integers(0, 6, (n, d)).astype(dtype)
    if dtype == np.int16:
        X -= 3
    is_float = np.dtype(dtype).kind == "f"
    if is_float:
        X *= rng.choice([1, -1, 0.37], d).astype(dtype)
    sparse = draw(st.booleans())
    if sparse:
        X[rng.random((n, d)) < 0.5] = 0
    missing = []
    if is_float and draw(st.booleans()):
        X[rng.random((n, d)) < 0.1] = np.nan
        missing = np.flatnonzero(np.isnan(X).any(axis=0))
    widths = rng.choice([0, 1, 2, 3, 7, 9, 30], d)
    codes_of = book([np.sort(rng.normal(size=w) * 3) for w in widths], missing)
    Y = sp.csr_array(rng.choice([0, 0, 0, 1, -1], (n, q)).astype(np.int8))
    p = draw(st.integers(1, q))
    slots = np.full(q, -1)
    slots[rng.permutation(q)[:p]] = np.arange(p)
    first = draw(st.integers(0, d - 1))
    last = draw(st.integers(first + 1, d))
    cuts = draw(st.lists(st.integers(0, n), max_size=3))
    return codes_of, sp.csr_array(X) if sparse else X, Y, slots, first, last, cuts


@settings(max_examples=60)
@given(problems())
def test_both_forms_equal_loops_for_any_cut(problem):
    codes_of, X, Y, slots, first, last, cuts = problem
    expected = plain_table(codes_of, X, Y, slots, first, last)
    for compiled in (False, True):
        found = full_table(codes_of, X, Y, slots, first=first, last=last, compiled=compiled, cuts=cuts)
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.float32, np.int16])
@pytest.mark.parametrize("edge", [0.0, 0.5, 1.0, 2.5])
@pytest.mark.parametrize("bounds", [(0, 5), (1, 4)])
def test_single_edges_of_sparse_values(dtype, edge, bounds):
    rng = np.random.default_rng(8)
    X = sp.csr_array(rng.integers(0, 4, (50, 5)).astype(dtype))
    X.data[::7] = 0  # stored zeros
    Y = sp.csr_array((rng.random((50, 3)) < 0.4).astype(np.int8))
    slots, first, last = np.array([1, -1, 0]), *bounds
    codes_of = book([[edge]] * 5)
    expected = plain_table(codes_of, X, Y, slots, first, last)
    for compiled in (False, True):
        found = full_table(codes_of, X, Y, slots, first=first, last=last, compiled=compiled)
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(a, b)


def test_counts_beyond_int32_have_room():
    layout = layout_counts(book([[0.5]]), 0, 1, sparse=False)
    table = empty_table(layout, 1, np.dtype(np.int64))
    table[0][...] = 2**31
    coder = BlockCoder(book([[0.5]]), layout)
    Y = sp.csr_array(np.ones((1, 1), dtype=np.int8))
    for compiled in (False, True):
        count_block(coder, Block(0, np.ones((1, 1)), Y), np.array([0]), table, compiled=compiled)
    assert table[0].tolist() == [[[2**31 + 2]]]
