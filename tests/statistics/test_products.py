"""Moments and label products of whole matrices: any cut and container, columns far from zero, plans kept."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.products import label_pairs_block
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.rows.contract import Block, Profile
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.statistics.products import LabelProducts, wants_compiled
from tests.reference import elc as twin


def problem(seed=0, n=60, d=6, q=4, centre=0.0):
    rng = np.random.default_rng(seed)
    Y = np.where(rng.random((n, q)) < 0.3, 1, np.where(rng.random((n, q)) < 0.05, -1, 0)).astype(np.int8)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    return X + centre, Y


def reduce(statistic, X, Y, states):
    """Blocks into states, states merged in order; `states` lists lists of (first, last)."""
    total = statistic.zero()
    for cuts in states:
        state = statistic.zero()
        for first, last in cuts:
            statistic.add(state, Block(first, X[first:last], Y[first:last]))
        statistic.merge(total, state)
    return statistic.finalize(total)


def draw_cuts(data, n):
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=5))), n]
    pieces = list(itertools.pairwise(cuts))
    where = [data.draw(st.integers(0, 2)) for _ in pieces]
    return [[p for p, w in zip(pieces, where, strict=True) if w == state] for state in range(3)]


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("ratio", [1.0, 1e4, 1e8])
def test_columns_far_from_zero_keep_their_digits(compiled, ratio):
    X, Y = problem(n=3000)
    X = X + ratio  # standard deviation about 0.8
    found = reduce(LabelProducts(6, 4, compiled=compiled), X, as_labels(Y), [[(0, 700), (700, 1000)], [(1000, 3000)]])
    A = (Y == 1).T.astype(np.longdouble) @ twin.standardise(X)
    exact = (X - ratio).astype(np.longdouble)  # no digit is lost by this subtraction
    deviation = exact - exact.mean(axis=0)
    exact_A = (Y == 1).T.astype(np.longdouble) @ (deviation / np.sqrt((deviation**2).mean(axis=0)))
    assert found.products / found.std == pytest.approx(exact_A.astype(float), rel=1e-9)
    assert A.astype(float) == pytest.approx(exact_A.astype(float), rel=1e-9)  # the twin is as good


@pytest.mark.parametrize("compiled", [False, True])
def test_small_integers_and_floats_do_not_saturate(compiled):
    Y = as_labels(np.ones((70_000, 1), dtype=np.int8))
    ones = np.ones((70_000, 1), dtype=np.uint8)
    ones[0] = 0
    found = reduce(LabelProducts(1, 1, compiled=compiled), ones, Y, [[(0, 70_000)]])
    assert found.mean[0] * 70_000 == pytest.approx(69_999)
    big = np.full((70_000, 1), 2.0**24, dtype=np.float32)  # float32 sums would stand still
    big[::2] += 2
    found = reduce(LabelProducts(1, 1, compiled=compiled), big, Y, [[(0, 70_000)]])
    assert found.mean[0] == 2.0**24 + 1


@settings(max_examples=60)
@given(st.data())
def test_any_cut_and_container_of_integers_gives_the_same_bits(data):
    n, rng = data.draw(st.integers(1, 60)), np.random.default_rng(data.draw(st.integers(0, 1000)))
    X = rng.integers(*data.draw(st.sampled_from([(0, 2), (-3, 9), (1000, 1003)])), (n, 6)).astype(np.float64)
    X[:, 5] = 7.0
    Y = as_labels((rng.random((n, 4)) < 0.3).astype(np.int8))
    results = []
    for _ in range(2):
        container = sp.csr_array(X) if data.draw(st.booleans()) else X
        results.append(reduce(LabelProducts(6, 4, compiled=data.draw(st.booleans())), container, Y, draw_cuts(data, n)))
    moments = reduce(Moments(6), container, Y, draw_cuts(data, n))
    # Quotients of integers, rounded once.
    total, count = X.sum(axis=0), Y.sum(axis=0)
    for found in (*results, moments):
        assert np.array_equal(found.mean, total / n)
        assert np.array_equal(found.m2, (n * (X * X).sum(axis=0) - total**2) / n)
    for found in results:
        assert np.array_equal(found.products, (n * (Y.T @ X) - np.outer(count, total)) / n)


def test_sums_that_are_rounding_are_zero():
    rng = np.random.default_rng(0)
    Z = rng.normal(size=(60, 5))
    X, Y = np.vstack([Z, Z]), np.repeat([[0], [1]], 60, axis=0)
    X[:, 0] += 1e-9 * Y[:, 0]
    order = rng.permutation(120)
    found = reduce(LabelProducts(5, 1), X[order], as_labels(Y[order]), [[(0, 17), (17, 80)], [(80, 120)]])
    assert found.products[0, 0] == pytest.approx(30e-9, rel=1e-6)
    assert found.products[0, 1:].tolist() == [0.0] * 4


@settings(max_examples=30)
@given(st.data())
def test_a_constant_column_is_exactly_constant_for_any_cut(data):
    value = data.draw(st.sampled_from([0.1, 1e8 + 0.1, 1 / 3, -7.7e-5]))
    n = data.draw(st.integers(1, 30))
    X = np.full((n, 1), value)
    X = sp.csr_array(X) if data.draw(st.booleans()) else X
    found = reduce(Moments(1), X, as_labels(np.zeros((n, 1), np.int8)), draw_cuts(data, n))
    assert (found.mean[0], found.m2[0]) == (value, 0.0)


def test_pairs_of_labels_do_not_overflow():
    assert label_pairs_block(as_labels(np.ones((1000, 2), dtype=np.int8))).tolist() == [[1000, 1000]] * 2


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("scale", [1.0, 1e-5, 1e-9, 1e-120])
def test_sums_of_any_scale_are_those_of_numpy(container, compiled, scale):
    """Small values are no integers; and labels may be unknown, or never occur."""
    X, Y = problem(n=300)
    Y[:, 3] = 0
    X[:, 1] = np.round(9 * X[:, 1])
    cuts = [[(0, 150)], [(150, 300)]]
    found = reduce(LabelProducts(6, 4, compiled=compiled), container(X * scale), as_labels(Y), cuts)
    moments = reduce(Moments(6), container(X * scale), as_labels(Y), cuts)
    centred, positive = X - X.mean(axis=0), (Y == 1).astype(int)
    assert found.mean == pytest.approx(scale * X.mean(axis=0), rel=1e-10, abs=1e-13 * scale)
    assert found.products == pytest.approx(scale * (positive.T @ centred), rel=1e-10, abs=1e-12 * scale)
    assert found.pairs.tolist() == (positive.T @ positive).tolist()
    for each in (found, moments):
        assert each.m2 == pytest.approx(scale**2 * (centred**2).sum(axis=0), rel=1e-10, abs=0)


KINDS = ["real", "small", "bytes", "zero-one", "first zero-one", "last zero-one", "infinite"]


@pytest.mark.parametrize(
    ("container", "kind"),
    [(np.asarray, "far from zero"), *itertools.product([np.asarray, sp.csr_array], KINDS)],
)
def test_sums_over_known_entries_by_marks_are_those_of_numpy(container, kind):
    """More rows and features than a tile, labels that fill no group of four, one that is always known."""
    rng, (n, d, q) = np.random.default_rng(0), (1500, 70, 7)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    bytes_of = (80 * np.abs(X)).astype(np.uint8)  # whose squares are no bytes
    zero_one = slice(None, 605) if kind.startswith("first") else slice(605 * kind.startswith("last"), None)
    if kind.endswith("zero-one"):
        X[zero_one] = X[zero_one] > 0
    X = {"bytes": bytes_of, "small": X * 2.0**-60, "far from zero": X + 2.0**20}.get(kind, X)
    if kind == "infinite":
        X[10, 3] = np.inf
    Y = rng.choice(np.array([-1, 0, 1], np.int8), (n, q), p=[0.4, 0.4, 0.2])
    Y[:, 2] = Y[:, 2] > 0
    Y[:800, 5] = -1
    unknown, labels = np.array([0, 1, 3, 4, 5, 6]), as_labels(Y)
    cuts = [[(0, 600), (600, 605), (605, 607)], [(607, 1500)]]
    marked = LabelProducts(d, q, unknown, compiled=True, marked=True)
    found, plain = (reduce(each, container(X), labels, cuts) for each in (marked, LabelProducts(d, q, unknown)))
    for name in ("positives", "pairs", "mean", "m2", "products"):
        assert getattr(found, name) == pytest.approx(getattr(plain, name), rel=1e-10, abs=1e-9, nan_ok=True)
    finite = np.isfinite(X).all(axis=0)
    for (i, label), sums in itertools.product(enumerate(unknown), (found.known, plain.known)):
        known = Y[:, label] >= 0
        assert (sums.n[label], sums.positives[label]) == (known.sum(), (Y[:, label] == 1).sum())
        assert sums.mean[i, finite] == pytest.approx(X[known][:, finite].mean(axis=0), rel=1e-12, abs=1e-12)
        assert sums.m2[i, finite] == pytest.approx(X[known][:, finite].var(axis=0) * known.sum(), rel=1e-9, abs=0)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_halves_of_rows_have_no_whole_sums(container):
    """Though all rows together have, and features are integers."""
    rng = np.random.default_rng(0)
    X, Y = rng.integers(0, 5, (40, 3)).astype(float), rng.integers(0, 2, (40, 2)).astype(np.int8)
    Y[:, 0], weights = np.arange(40) < 15, np.full(40, 0.5)
    statistic = LabelProducts(3, 2, weighted=True)
    state = statistic.zero()
    statistic.add(state, Block(0, container(X), as_labels(Y), weights))
    found = statistic.finalize(state)
    assert (found.n, found.positives[0]) == (20.0, 7.5)
    assert found.products == pytest.approx(0.5 * Y.T @ (X - X.mean(axis=0)), rel=1e-12, abs=1e-12)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_standardised_values_are_no_integers(container):
    """Their sums are nearly 0 and n, in single precision."""
    X, Y = problem(n=40)
    X = ((X - X.mean(axis=0)) / X.std(axis=0)).astype(np.float32)
    found = reduce(Moments(6), container(X), as_labels(Y), [[(0, 15)], [(15, 40)]])
    exact = X.astype(np.longdouble)
    assert found.mean == pytest.approx(exact.mean(axis=0).astype(float), rel=1e-9, abs=1e-14)
    assert found.m2 == pytest.approx(((exact - exact.mean(axis=0)) ** 2).sum(axis=0).astype(float), rel=1e-12)


@pytest.mark.parametrize(
    ("n", "q", "expected"), [(200_000, 100, True), (200_000, 1, False), (500_000, 1, True), (80_000, 100, False)]
)
def test_products_of_sparse_rows_are_compiled_from_fewer_rows_on_with_many_labels(n, q, expected):
    sizes = {"nonzeros": 60 * n, "label_nonzeros": 3 * n, "partitions": 10, "block_rows": 50_000, "block_bytes": 2**24}
    profile = Profile(n, 100_000, q, True, np.dtype(np.float32), **sizes, buffer_bytes=2**24, read_bytes=2**28)
    assert wants_compiled(profile) == expected
