"""Counts against a plain loop, in both forms; information, pairs of labels and statistics that are made of them."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.contingency import with_label_pairs
from mlfs_dask.blocks.counts import (
    BlockCoder,
    CodeBook,
    code_planes,
    count_block,
    empty_table,
    layout_counts,
)
from mlfs_dask.blocks.entropy import entropy_of_counts, information
from mlfs_dask.blocks.naive_bayes import bayes_terms, count_mistakes
from mlfs_dask.blocks.pair_scores import Counts
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
        count_block(coder, Block(a, X[a:b], Y[a:b]), slots, np.full(len(slots), -1), table, compiled=compiled)
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
    if sparse and draw(st.booleans()):
        widths[:] = 1  # is counted in a way of its own
    codes_of = book([np.sort(rng.normal(size=w) * 3) for w in widths], missing)
    Y = sp.csr_array(rng.choice([0, 0, 0, 1, -1], (n, q)).astype(np.int8))
    p = draw(st.integers(1, q))
    slots = np.full(q, -1)
    slots[rng.permutation(q)[:p]] = np.arange(p)
    first = draw(st.integers(0, d - 1))
    last = draw(st.integers(first + 1, d))
    cuts = draw(st.lists(st.integers(0, n), max_size=3))
    if sparse:
        X = sp.csr_array(X)
        X.data[::7] = 0  # stored zeros
    return codes_of, X, Y, slots, first, last, cuts


@settings(max_examples=60)
@given(problems())
def test_both_forms_equal_loops_for_any_cut(problem):
    codes_of, X, Y, slots, first, last, cuts = problem
    expected = plain_table(codes_of, X, Y, slots, first, last)
    for compiled in (False, True):
        found = full_table(codes_of, X, Y, slots, first=first, last=last, compiled=compiled, cuts=cuts)
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(a, b)


@pytest.mark.parametrize("features", [(0, 5), (1, 4)])
@pytest.mark.parametrize("stored_zeros", [False, True])
@pytest.mark.parametrize("edge", [0.0, 0.5, 1.0])
def test_sparse_integers_without_a_sign_have_one_edge(edge, stored_zeros, features):
    """Where each stored value is above it, none is looked at; not so of some features, of stored zeros, or of ones."""
    rng = np.random.default_rng(0)
    X = sp.csr_array(np.where(rng.random((50, 5)) < 0.5, rng.integers(1, 3, (50, 5)), 0).astype(np.uint8))
    X.data[::7] *= not stored_zeros
    Y, codes_of = sp.csr_array((rng.random((50, 3)) < 0.4).astype(np.int8)), book([[edge]] * 5)
    expected = plain_table(codes_of, X, Y, np.arange(3), *features)
    for compiled in (False, True):
        found = full_table(codes_of, X, Y, np.arange(3), first=features[0], last=features[1], compiled=compiled)
        for a, b in zip(found, expected, strict=True):
            assert np.array_equal(a, b)


def test_counts_beyond_int32_have_room():
    layout = layout_counts(book([[0.5]]), 0, 1, sparse=False)
    table = empty_table(layout, 1, np.dtype(np.int64))
    table[0][...] = 2**31
    coder = BlockCoder(book([[0.5]]), layout)
    Y = sp.csr_array(np.ones((1, 1), dtype=np.int8))
    for compiled in (False, True):
        count_block(coder, Block(0, np.ones((1, 1)), Y), np.array([0]), np.array([-1]), table, compiled=compiled)
    assert table[0].tolist() == [[[2**31 + 2]]]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_more_rows_than_a_lane_holds_and_more_features_than_a_tile(form, compiled):
    rng = np.random.default_rng(0)
    X = (rng.random((700, 2500)) < 0.6).astype(np.float32)
    X[:, 0] = 1
    Y = sp.csr_array(np.column_stack([np.ones(700), rng.random((700, 2)) < 0.4]).astype(np.int8))
    joint, marginal = full_table(book([[0.5]] * 2500), form(X), Y, np.array([0, 1, 2]), compiled=compiled)
    assert np.array_equal(marginal[1], X.sum(axis=0))
    assert np.array_equal(joint[1], Y.T.toarray().astype(int) @ (X > 0))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("edges", [[0.5], [0.5, 1.5]])
def test_rows_in_which_labels_are_unknown_are_counted_beside_those_with_a_label(form, compiled, edges):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, (700, 1100)).astype(np.float32)
    Y = rng.choice(np.array([-1, 0, 1], np.int8), (700, 20), p=[0.4, 0.5, 0.1])
    coder = BlockCoder(
        book([edges] * 1100), layout_counts(book([edges] * 1100), 0, 1100, sparse=form is not np.asarray)
    )
    table = empty_table(coder.layout, 35, np.dtype(np.int32))
    unknown = np.where(np.arange(20) < 5, -1, 15 + np.arange(20))  # of 15 labels: 6 of a row are many
    block = Block(0, form(X), sp.csr_array(Y))
    positives = count_block(coder, block, np.arange(20), unknown, table, compiled=compiled)
    has = np.concatenate([Y.T == 1, Y.T[5:] == -1]).astype(int)
    assert np.array_equal(positives, has.sum(axis=1))
    joint, _ = code_planes(coder.layout, table, slice(0, 1100), len(edges) + 1, positives, 700, compiled=compiled)
    for code in range(len(edges) + 1):
        assert np.array_equal(joint[code], has @ (np.digitize(X, edges) == code))


def test_frequent_labels_have_counts_beyond_16_bits():
    X, Y = sp.csr_array(np.ones((70_000, 1), np.int8)), sp.csr_array(np.ones((70_000, 5), np.int8))
    joint, _ = full_table(book([[0.5]]), X, Y, np.arange(5), compiled=True)
    assert (joint[1] == 70_000).all()


# ---------------------------------------------------------------- what is made of counts


def test_pairs_take_the_memory_of_those_that_rows_have():
    """Not that of rows times all pairs of labels, here 125 MB."""
    labels = np.concatenate([np.eye(500, dtype=np.int8)] * 2)
    labels[:, 0] = 1
    Y = sp.csr_array(labels)
    tracemalloc.start()
    try:
        found = with_label_pairs(Y, tuple(range(500)))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert found.shape == (1000, 500 + 124_750)
    assert found[:, 500:].sum() == 998


def test_entropy_of_one_state_is_exactly_zero():
    for n in range(1, 2000):
        assert entropy_of_counts(np.array([[n], [0]]), n)[0] == 0.0


def test_information_of_independent_features_is_exactly_zero():
    # Every combination equally often: the three entropies cancel but for rounding.
    joint = np.array([[[7]], [[7]], [[7]]])
    assert information(Counts(joint, np.full((3, 1, 1), 21), np.array([[21]]), 63))[0, 0] == 0.0


def test_even_odds_predict_no_label_in_any_order_of_the_features():
    """Counts that mirror each other cancel to nothing, not to a rounding error."""
    joint = np.array([[[7.0, 2.0, 5.0, 4.0]], [[2.0, 7.0, 4.0, 5.0]]])
    marginal = joint + joint[:, :, [1, 0, 3, 2]]
    terms = bayes_terms(joint, marginal, np.array([9.0]), 18.0, np.full(4, 2))
    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]):
        first = terms.codes[0, :, order]  # a row that has the first code of all features
        assert count_mistakes(sp.csc_array(np.ones((1, 4))), np.array([[False]]), terms.prior, first) == 0
        assert count_mistakes(sp.csc_array(np.ones((1, 4))), np.array([[True]]), terms.prior, first) == 1
        assert count_mistakes(sp.csc_array(np.ones((1, 4))), np.array([[False]]), terms.prior + 1, first) == 1
