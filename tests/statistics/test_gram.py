"""X'X, X'SX and products with them: by hand, for any cut and container, far from zero, with constant features."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.gram import Gram, NormalProduct, WeightedGram
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.statistics.scaling import Scaling, standard_scaling

HERE = Resources(1, 1, 2**33, 2**33)
D, Q = 7, 3


def problem(seed=0, n=50, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = (10 * rng.normal(size=(n, D)) * (rng.random((n, D)) < 0.5)).astype(dtype)
    return X, rng.choice(np.array([0, 0, 0, 1, -1], dtype=np.int8), (n, Q))


def rows_of(X, Y=None, *, block_bytes=300):
    Y = np.ones((X.shape[0], 1), dtype=np.int8) if Y is None else Y
    return ArrayRows(as_matrix(X), as_labels(Y), block_bytes=block_bytes)


def reduce(statistic, source, resources=HERE):
    ((found,), _) = run_reading(source, [statistic], resources)
    return found


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


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("weights", [None, np.array([1.0, 2.0])])
def test_temporaries_of_a_product_are_within_the_plan(form, weights):
    rng, n, d = np.random.default_rng(0), 40_000, 60
    X = form(rng.random((n, d), dtype=np.float32) * (rng.random((n, d)) < 0.3))
    source = rows_of(X, rng.random((n, 2)) < 0.4, block_bytes=2**30)
    statistic = NormalProduct(Scaling(np.ones(d), np.ones(d)), np.ones((d, 1)), label_weights=weights)
    (block,), state = source.stream(0, 1), statistic.zero()
    statistic.add(state, block)  # loads what is loaded late
    tracemalloc.start()
    statistic.add(state, block)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= statistic.scratch_bytes(source.profile) + 2**16
