"""X'X, X'SX and products with them: by hand, for any cut and container, far from zero, with constant features."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.linear import GRAM_ROWS, dense_tiles
from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.engine.cache import cache
from mlfs_dask.engine.readings import plan_statistics, run_pass
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.runtime import PROCESS_BYTES, Resources
from mlfs_dask.statistics.gram import Gram, NormalProduct, WeightedGram, row_weights, scale_gram
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.statistics.scaling import Scaling, standard_scaling
from mlfs_dask.typing import Block

HERE = Resources(1, 1, 2**33, 2**33)
D, Q = 7, 3
SCALING = Scaling(np.linspace(-2, 2, D), np.r_[0.0, np.geomspace(0.1, 10, D - 1)])


def problem(seed=0, n=50, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = (10 * rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.5)).astype(dtype)
    return X, rng.choice(np.array([0, 0, 0, 1, -1], dtype=np.int8), (n, Q))


def rows_of(X, Y=None, *, block_bytes=300):
    Y = np.ones((X.shape[0], 1), dtype=np.int8) if Y is None else Y
    return ArrayRows(as_matrix(X), as_labels(Y), block_bytes=block_bytes)


def reduce(statistic, source, resources=HERE):
    ((found,), _) = run_pass(source, [statistic], resources)
    return found


def centred(X, centre=None):
    X = X.astype(np.float64)
    return X - (X.mean(axis=0) if centre is None else centre)


def test_by_hand():
    X = np.array([[1, 5, 0], [3, 5, 0], [5, 5, 6]])
    expected = [[8, 0, 12], [0, 0, 0], [12, 0, 24]]  # of (-2, 0, 2), (0, 0, 0) and (-2, -2, 4)
    for container in (X, X.astype(np.float32), sp.csr_array(X)):
        for block_bytes in (1, 2**20):
            found = reduce(Gram(3), rows_of(container, block_bytes=block_bytes))
            assert found == pytest.approx(np.array(expected), abs=1e-13)


def test_weights_by_hand():
    X = np.array([[1.0, 2.0], [3.0, 4.0], [9.0, 9.0]])
    Y = as_labels([[1, 0], [0, 1], [0, -1]])
    scaling = Scaling(np.array([1.0, 0.0]), np.array([1.0, 0.5]))
    weights = np.array([1.0, 3.0])
    # Rows (0, 1) and (2, 2), of weight 1 and 3; the last one has no label.
    for container in (X, sp.csr_array(X)):
        source = rows_of(container, Y)
        assert reduce(WeightedGram(scaling, weights), source) == pytest.approx(np.array([[12, 12], [12, 13]]))
        some = WeightedGram(scaling, weights, columns=np.array([1]))
        assert reduce(some, source) == pytest.approx(np.array([[13]]))
        P = np.array([[1.0], [2.0]])
        product = NormalProduct(scaling, P, label_weights=weights)
        assert reduce(product, source) == pytest.approx(np.array([[36], [38]]))


def test_weights_of_rows_are_those_of_their_positive_labels():
    Y = as_labels([[1, 1, 0], [0, -1, 1], [0, 0, 0], [-1, -1, -1]])
    assert row_weights(Y, np.array([1.0, 2.0, 4.0])).tolist() == [3, 4, 0, 0]


@settings(max_examples=40)
@given(st.data())
def test_any_cut_and_container_gives_the_products_of_the_whole(data):
    n = data.draw(st.integers(1, 40))
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.int16]))
    X, Y = problem(data.draw(st.integers(0, 99)), n, dtype)
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=4))), n]
    lazy = da.from_array(X, chunks=(tuple(np.diff(cuts).tolist()), (3, 4)))
    lazy_Y = da.from_array(Y, chunks=(7, -1))
    block_bytes = data.draw(st.sampled_from([1, 300, 2**20]))
    source = data.draw(
        st.sampled_from(
            [
                rows_of(X, Y, block_bytes=block_bytes),
                rows_of(sp.csr_array(X), Y, block_bytes=block_bytes),
                as_rows(lazy, lazy_Y),
                as_rows(lazy.map_blocks(sp.csr_array), lazy_Y),
            ]
        )
    )
    resources = replace(HERE, threads_per_worker=data.draw(st.integers(1, 3)))
    near = {"rel": 1e-9, "abs": 1e-9}
    Z = centred(X)
    found = reduce(Gram(D), source, resources)
    assert found == pytest.approx(Z.T @ Z, **near)
    assert (found == found.T).all()

    Z = centred(X, SCALING.centre) * SCALING.factor
    weights = np.array([0.5, 2.0, 0.0])
    S = np.diag((Y == 1) @ weights)
    found = reduce(WeightedGram(SCALING, weights), source, resources)
    assert found == pytest.approx(Z.T @ S @ Z, **near)
    assert (found == found.T).all()
    columns = np.array([5, 1, 2])
    found = reduce(WeightedGram(SCALING, weights, columns=columns), source, resources)
    assert found == pytest.approx((Z.T @ S @ Z)[np.ix_(columns, columns)], **near)
    P = np.random.default_rng(0).normal(size=(D, 2))
    assert reduce(NormalProduct(SCALING, P), source, resources) == pytest.approx(Z.T @ (Z @ P), **near)
    weighted = NormalProduct(SCALING, P, label_weights=weights)
    assert reduce(weighted, source, resources) == pytest.approx(Z.T @ S @ (Z @ P), **near)


@settings(max_examples=40)
@given(st.data())
def test_states_merge_in_any_order_and_dense_and_sparse_blocks_mix(data):
    """Every state has the first row that it met as its origin; one that met no row has none."""
    n = data.draw(st.integers(0, 30))
    X, Y = problem(data.draw(st.integers(0, 99)), n)
    X += 100.0
    statistic = Gram(D)
    states = [statistic.zero() for _ in range(3)]
    low = 0
    for high in [*sorted(data.draw(st.lists(st.integers(0, n), max_size=5))), n]:
        part = sp.csr_array(X[low:high]) if data.draw(st.booleans()) else X[low:high]
        statistic.add(states[data.draw(st.integers(0, 2))], Block(low, part, as_labels(Y[low:high])))
        low = high
    before = [[array.copy() for array in state] for state in states[1:]]
    for other in states[1:]:
        statistic.merge(states[0], other)
    for state, kept in zip(states[1:], before, strict=True):
        assert all(np.array_equal(a, b) for a, b in zip(state, kept, strict=True))
    Z = X - X.mean(axis=0) if n else X
    untouched = [array.copy() for array in states[0]]
    assert statistic.finalize(states[0]) == pytest.approx(Z.T @ Z, rel=1e-9, abs=1e-7)
    assert all(np.array_equal(a, b) for a, b in zip(states[0], untouched, strict=True))


@pytest.mark.parametrize("block_bytes", [300, 2**20])
def test_a_feature_far_from_zero_keeps_its_digits(block_bytes):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, D))
    X[:, ::2] += 1e8
    Z = X - X.mean(axis=0)  # of what float64 has kept of X
    source = rows_of(X, block_bytes=block_bytes)
    found = reduce(Gram(D), source, replace(HERE, threads_per_worker=3))
    assert found == pytest.approx(Z.T @ Z, rel=1e-9, abs=400 * 1e-8)
    moments = reduce(Moments(D), source)
    assert np.diag(found) == pytest.approx(moments.m2, rel=1e-12)
    weighted = reduce(WeightedGram(standard_scaling(moments), np.ones(1)), source)
    assert np.diag(weighted) == pytest.approx(np.full(D, 400), rel=1e-9)


def test_constant_features_are_exactly_zero_where_dense_and_by_their_scaling():
    X, Y = problem()
    X[:, 2] = 0.1
    X[:, 4] = 0.0
    found = reduce(Gram(D), rows_of(X), replace(HERE, threads_per_worker=3))
    assert (found[[2, 4]] == 0).all()
    assert (found[:, [2, 4]] == 0).all()
    # The origin of sparse data is zero: what is left of a stored constant is rounding.
    source = rows_of(sp.csr_array(X), Y)
    found = reduce(Gram(D), source)
    assert found[2] == pytest.approx(np.zeros(D), abs=1e-12)
    assert (found[4] == 0).all()
    scaling = standard_scaling(reduce(Moments(D), source))
    for statistic in (WeightedGram(scaling, np.ones(Q)), NormalProduct(scaling, np.ones((D, 1)))):
        assert (reduce(statistic, source)[[2, 4]] == 0).all()


@pytest.mark.parametrize("broken", [np.nan, np.inf])
@pytest.mark.parametrize("row", [0, 20])
def test_values_that_are_no_numbers_spoil_their_own_feature(broken, row):
    X, _ = problem()
    X[row, 3] = broken
    with np.errstate(invalid="ignore"):
        found = reduce(Gram(D), rows_of(X, block_bytes=2**20))
    others = np.delete(np.arange(D), 3)
    Z = centred(X[:, others])
    assert found[np.ix_(others, others)] == pytest.approx(Z.T @ Z)
    assert np.isnan(found[3]).all()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_rows_of_weight_zero_are_not_looked_at(form):
    X, Y = problem()
    none = ~(Y == 1).any(axis=1)
    assert none.any()
    X[none] = np.nan
    weights, P = np.ones(Q), np.ones((D, 2))
    Z = (X[~none] - SCALING.centre) * SCALING.factor
    S = np.diag((Y[~none] == 1).sum(axis=1).astype(float))
    source = rows_of(form(X), Y)
    assert reduce(WeightedGram(SCALING, weights), source) == pytest.approx(Z.T @ S @ Z)
    assert reduce(NormalProduct(SCALING, P, label_weights=weights), source) == pytest.approx(Z.T @ S @ Z @ P)
    nothing = reduce(WeightedGram(SCALING, np.zeros(Q)), source)
    assert (nothing == 0).all()


def test_gram_matrices_are_kept_and_read_back(tmp_path):
    class Rows(ArrayRows):
        digest = "0123"
        place = "rows"

    X, Y = problem()
    source = Rows(X, as_labels(Y))
    with cache(tmp_path):
        (first,), record = run_pass(source, [Gram(D)], HERE)
        (second,), again = run_pass(source, [Gram(D)], HERE)
    assert record.tasks > again.tasks == 0
    assert first.tobytes() == second.tobytes()


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("threads", [1, 2])
def test_memory_is_within_the_plan(form, weighted, threads):
    d, n = 700, 3000
    rng = np.random.default_rng(0)
    X = form(rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.05))
    source = rows_of(X, block_bytes=2**19)
    statistic = WeightedGram(Scaling(np.ones(d), np.ones(d)), np.ones(1)) if weighted else Gram(d)
    resources = replace(HERE, threads_per_worker=threads)
    plan = plan_statistics(source, [statistic], resources)
    run_pass(source, [statistic], resources)  # whatever is imported late is imported now
    tracemalloc.start()
    run_pass(source, [statistic], resources, plan=plan)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= plan.peak_worker_bytes - PROCESS_BYTES


def test_a_result_is_made_symmetric_without_another_copy_of_it():
    d = 1500
    statistic, G = Gram(d), np.random.default_rng(0).normal(size=(d, d))
    state = (np.array([3]), np.zeros(d), np.arange(float(d)), G)
    expected = G - np.outer(np.arange(float(d)), np.arange(d) / 3)
    expected = (expected + expected.T) * 0.5
    tracemalloc.start()
    found = statistic.finalize(state)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found.tobytes() == expected.tobytes()
    assert peak <= found.nbytes + 2.5 * 8 * GRAM_ROWS * d


def test_a_matrix_is_scaled_in_its_place():
    rng = np.random.default_rng(0)
    G, factor = rng.normal(size=(1500, 1500)), rng.random(1500)
    G = G + G.T
    expected = G * np.outer(factor, factor)
    tracemalloc.start()
    found = scale_gram(G, factor)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert found is G
    assert found.tobytes() == expected.tobytes()
    assert (found == found.T).all()
    assert peak <= 1.5 * 8 * GRAM_ROWS * 1500


def test_tiles_of_a_wide_block_are_taken_one_after_another():
    X, _ = problem(n=30)
    tiles = [(part, tile.copy()) for part, tile in dense_tiles(X, np.ones(D))]
    assert np.array_equal(np.concatenate([tile for _, tile in tiles]), X - 1)
