"""Rows that are kept: samples, all rows or some columns in memory, and what fills gaps in."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine.cache import cache
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.errors import DataError
from mlfs_dask.rows.joined import JoinedRows
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics import missing as module
from mlfs_dask.statistics.missing import MeansOfPresent, fill_statistics, fill_values
from mlfs_dask.statistics.rows_in_memory import read_rows
from mlfs_dask.statistics.sample import RowSample, draw_rows
from mlfs_dask.storage.opening import open_dataset
from tests.storage.stores import make_store, sample

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


# ---------------------------------------------------------------- all rows, and some columns


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def store(request, tmp_path):
    """A store of several partitions, with its X and Y."""
    X, Y = sample(n=200, d=12, q=5, sparse=request.param)
    X, Y = np.nan_to_num(X), np.abs(Y)
    path = make_store(tmp_path / "s.zarr", X, Y, partition_bytes=4096)
    dataset = open_dataset(path)
    assert dataset.rows.profile.partitions > 1
    assert dataset.rows.profile.sparse == request.param
    return dataset, X, Y


def test_columns_come_in_the_order_asked_for(store):
    dataset, X, Y = store
    columns = np.array([7, 0, 11])
    found, labels, record = read_rows(dataset.rows, current_resources(), columns=columns)
    assert np.array_equal(found, X[:, columns].astype(found.dtype))
    assert np.array_equal(labels.toarray(), Y)
    assert record.bytes_read == dataset.rows.profile.read_bytes
    out = np.full((200, 3), np.nan)
    assert read_rows(dataset.rows, current_resources(), columns=columns, out=out)[0] is out
    assert np.array_equal(out, X[:, columns])


def test_all_rows_come_as_the_source_has_them(store):
    dataset, X, Y = store
    events = []
    with runtime.progress_to(events.append):
        found, labels, _ = read_rows(dataset.rows, current_resources(), label="training rows")
    assert sp.issparse(found) == dataset.rows.profile.sparse
    assert np.array_equal(found.toarray() if sp.issparse(found) else found, X)
    assert np.array_equal(labels.toarray(), Y)
    partitions = dataset.rows.profile.partitions
    assert events[0] == {"kind": "pass", "label": "training rows", "partitions": partitions}
    assert sum(event.get("done", 0) for event in events) == partitions
    # Nothing that the source reads next changes what was read.
    assert not np.shares_memory(labels.data, next(dataset.rows.stream(0, 1)).Y.data)


@pytest.mark.parametrize(
    ("dtype", "read"),
    [("uint8", "float32"), ("int16", "float32"), ("int32", "float64"), ("float32", "float32"), ("float64", "float64")],
)
def test_no_value_is_rounded(dtype, read):
    largest = 2.0**30 + 1 if dtype in ("int32", "float64") else 100.0
    X = np.array([[largest, 1], [largest - 1, 0]]).astype(dtype)
    found, _, _ = read_rows(ArrayRows(X, sp.csr_array(np.ones((2, 1), np.int8))), current_resources())
    assert found.dtype == read
    np.testing.assert_array_equal(found, X)


def test_no_rows_are_a_matrix_of_none():
    source = ArrayRows(sp.csr_array((0, 3)), sp.csr_array((0, 2), dtype=np.int8))
    X, Y, _ = read_rows(source, current_resources())
    assert (X.shape, Y.shape) == ((0, 3), (0, 2))


def test_dense_and_sparse_rows_are_not_joined():
    Y = sp.csr_array((2, 1), dtype=np.int8)
    with pytest.raises(DataError, match="stored dense and some sparse"):
        JoinedRows((ArrayRows(np.zeros((2, 2)), Y), ArrayRows(sp.csr_array((2, 2)), Y)))
