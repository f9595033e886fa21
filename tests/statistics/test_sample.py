"""Samples of rows: the same for any cut, dense or sparse as the source is, from the cache too; what fills gaps in."""

from __future__ import annotations

import pickle
from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.cache import cache
from mlfs_dask.engine.readings import plan_statistics, run_reading
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics import missing as module
from mlfs_dask.statistics.missing import MeansOfPresent, fill_statistics, fill_values
from mlfs_dask.statistics.sample import RowSample, draw_rows

HERE = Resources(1, 1, 2**33, 2**33)


def problem(n=120, d=7, q=4, seed=0, dtype=np.float64):
    rng = np.random.default_rng(seed)
    X = (10 * rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.5)).astype(dtype)
    return X, rng.choice(np.array([0, 0, 1, -1], dtype=np.int8), (n, q))


def profile_of(X, Y):
    return ArrayRows(X, as_labels(Y)).profile


def check(found, X, Y, chosen):
    assert np.array_equal(found.X.toarray() if sp.issparse(found.X) else found.X, X[chosen])
    assert np.array_equal(found.Y.toarray(), Y[chosen])
    assert found.Y.dtype == np.int8


@settings(max_examples=40)
@given(st.data())
def test_the_same_rows_for_any_cut_and_container(data):
    n = data.draw(st.integers(1, 60))
    dtype = data.draw(st.sampled_from([np.float64, np.float32, np.int16]))
    X, Y = problem(n, seed=data.draw(st.integers(0, 99)), dtype=dtype)
    chosen = np.array(sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1))))
    cuts = [0, *sorted(data.draw(st.lists(st.integers(0, n), max_size=4))), n]
    lazy = da.from_array(X, chunks=(tuple(np.diff(cuts).tolist()), (3, 4)))
    threads = replace(HERE, threads_per_worker=data.draw(st.integers(1, 3)))
    block_bytes = data.draw(st.sampled_from([1, 300, 2**20]))
    for source in (
        ArrayRows(X, as_labels(Y), block_bytes=block_bytes),
        ArrayRows(sp.csr_array(X), as_labels(Y), block_bytes=block_bytes),
        as_rows(lazy, da.from_array(Y, chunks=(20, -1))),
        as_rows(lazy.map_blocks(sp.csr_array), da.from_array(Y, chunks=(20, -1))),
    ):
        (found,), _ = run_reading(source, [RowSample(chosen, source.profile)], threads)
        check(found, X, Y, chosen)
        assert found.X.dtype == X.dtype
        assert sp.issparse(found.X) == source.profile.sparse


def test_rows_are_copies_and_outlive_the_buffer():
    """A block is a view of memory that the next one overwrites."""
    X, Y = problem()
    buffer = np.empty((30, 7))

    class Buffered(ArrayRows):
        def stream(self, first, last):
            for block in super().stream(first, last):
                part = buffer[: len(block.X)]
                part[:] = block.X
                yield block._replace(X=part)

    chosen = np.array([0, 5, 40, 119])
    source = Buffered(X, as_labels(Y), block_bytes=30 * 56)
    (found,), _ = run_reading(source, [RowSample(chosen, source.profile)], HERE)
    buffer[:] = np.nan
    check(found, X, Y, chosen)


def test_sparse_and_dense_chunks_of_one_array_give_sparse_rows():
    X, Y = problem(40)
    statistic = RowSample(np.arange(0, 40, 3), profile_of(X, Y))
    state, other = statistic.zero(), statistic.zero()
    (second,) = ArrayRows(sp.csr_array(X[20:]), as_labels(Y[20:])).stream(0, 1)
    statistic.add(other, second._replace(start=20))
    (first,) = ArrayRows(X[:20], as_labels(Y[:20])).stream(0, 1)
    statistic.add(state, first)
    statistic.merge(other, state)  # in any order
    found = statistic.finalize(other)
    check(found, X, Y, np.arange(0, 40, 3))
    assert found.X.has_canonical_format


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array])
def test_the_cache_gives_the_rows_back(form, tmp_path):
    class Rows(ArrayRows):
        digest = "0123"
        place = "rows"

    X, Y = problem()
    source = Rows(form(X), as_labels(Y), block_bytes=600)
    chosen = draw_rows(source.profile, 20, 3)
    with cache(tmp_path):
        for tasks in (True, False):
            (found,), record = run_reading(source, [RowSample(chosen, source.profile)], HERE)
            check(found, X, Y, chosen)
            assert (record.tasks > 0) == tasks
        other = draw_rows(source.profile, 20, 4)[:-1]
        assert run_reading(source, [RowSample(other, source.profile)], HERE)[1].tasks > 0


def test_a_sample_takes_the_memory_that_it_says():
    X, Y = problem(2000, d=300)
    for container in (X, sp.csr_array(X)):
        source = ArrayRows(container, as_labels(Y))
        statistic = RowSample(draw_rows(source.profile, 500, 0), source.profile)
        (found,), _ = run_reading(source, [statistic], HERE)
        arrays = [found.X.data, found.X.indices, found.X.indptr] if sp.issparse(found.X) else [found.X]
        assert sum(array.nbytes for array in arrays) <= 1.1 * statistic.result_bytes
        assert plan_statistics(source, [pickle.loads(pickle.dumps(statistic))], HERE).peak_worker_bytes > 0


# ---------------------------------------------------------------- what fills gaps in


def test_the_mean_of_equal_values_is_their_value():
    """The sum of 0.1 over 7 rows is 0.7000000000000001 or less."""
    for rows in range(2, 40):
        X = np.full((rows + 1, 1), 0.1)
        X[0] = np.nan
        ((means), _), _ = run_reading(ArrayRows(X, as_labels(np.ones((rows + 1, 1)))), [MeansOfPresent(1)] * 2, HERE)
        assert means.mean.tolist() == [0.1]


def test_medians_of_many_rows_are_those_of_a_sample(monkeypatch):
    monkeypatch.setattr(module, "QUANTILE_ROWS", 1000)
    rng = np.random.default_rng(0)
    X = np.where(rng.random((6000, 5)) < 0.4, 0.0, rng.normal(3.0, size=(6000, 5)))
    X[rng.random(X.shape) < 0.3] = np.nan
    fills = []
    for block_bytes in (2**30, 9000):
        source = ArrayRows(X, as_labels(np.zeros((6000, 1))), block_bytes=block_bytes)
        statistics = fill_statistics(source.profile, "median", 0)
        assert len(statistics[1].chosen) == 1000
        fills.append(fill_values(statistics, run_reading(source, statistics, HERE)[0]))
    assert fills[0].tolist() == fills[1].tolist()
    present = [np.sort(column[~np.isnan(column)]) for column in X.T]
    places = [np.searchsorted(values, fill) / len(values) for values, fill in zip(present, fills[0], strict=True)]
    assert places == pytest.approx([0.5] * 5, abs=0.1)  # zeros are 0.4 of the values
