"""Shuffled and resampled rows: the same replicates for any cut, each a permutation or a bootstrap of the rows."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.row_draws import row_bits, shuffled_places
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.cache import cache
from mlfs_dask.engine.readings import reading_sizes, run_reading
from mlfs_dask.rows.covariates import ArrayColumn, as_categories
from mlfs_dask.rows.joined import JoinedRows
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.rows.view import RowView
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics import resampling as module
from mlfs_dask.statistics.products import LabelProducts
from mlfs_dask.statistics.resampling import (
    Resampled,
    Resampling,
    draw_pool,
    label_sample,
    pool_in_strata,
    replicate_groups,
)
from mlfs_dask.statistics.sample import RowSample
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask.storage.opening import open_dataset
from tests.storage.memory_reader import make_reader

HERE = Resources(1, 1, 2**33, 2**33)


def problem(n=90, d=5, q=4, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)).round(2), (rng.random((n, q)) < 0.4).astype(np.int8)


def pool_of(source, seed=3):
    labels = source.labels_only()
    (sample,), _ = run_reading(labels, [label_sample(labels.profile, seed)], HERE)
    return draw_pool(sample, seed)


def replicate_rows(source, resampling, i):
    """X and Y of a replicate of all rows."""
    blocks = [resampling.replicate(block, i) for block in source.stream(0, source.profile.partitions)]
    X = np.concatenate([b.X.toarray() if sp.issparse(b.X) else b.X for b in blocks])
    return X, np.concatenate([b.Y.toarray() for b in blocks])


def test_a_shuffle_permutes_the_labels_of_all_rows_and_leaves_the_features():
    X, Y = problem()
    source = ArrayRows(X, as_labels(Y), block_bytes=300)
    resampling = Resampling(5, 0, seed=3, pool=pool_of(source))
    shuffled = [replicate_rows(source, resampling, i) for i in range(1, 6)]
    for features, labels in shuffled:
        assert features.tolist() == X.tolist()
        assert sorted(labels.tolist()) == sorted(Y.tolist())
    assert len({labels.tobytes() for _, labels in [*shuffled, (X, Y)]}) == 6


def test_beyond_the_pool_labels_are_drawn_from_it_equally_often(monkeypatch):
    monkeypatch.setattr(module, "POOL_ROWS", 300)
    n = 900
    rng = np.random.default_rng(0)
    Y = (rng.random((n, 40)) < 0.5).astype(np.int8)  # every row is another
    source = ArrayRows(np.zeros((n, 1)), as_labels(Y), block_bytes=1000)
    pool = pool_of(source)
    assert pool.shape == (300, 40)
    every = {row.tobytes() for row in Y}
    assert {row.tobytes() for row in pool.toarray()} <= every
    resampling = Resampling(1, 0, seed=3, pool=pool)
    _, labels = replicate_rows(source, resampling, 1)
    _, counts = np.unique(labels, axis=0, return_counts=True)
    assert counts.tolist() == [3] * 300


@pytest.mark.parametrize("pool_rows", [65536, 256])
def test_shuffles_in_strata_give_rows_the_labels_of_their_stratum(monkeypatch, pool_rows):
    monkeypatch.setattr(module, "POOL_ROWS", pool_rows)
    rng = np.random.default_rng(0)
    n, n_strata = 900, 4
    strata = np.minimum(rng.integers(0, 4, n), rng.integers(0, 40, n))
    strata[strata == 3] = np.arange((strata == 3).sum()) > 0  # one row of the last stratum is rarely in a small pool
    strata[899] = 3
    Y = (rng.random((n, 30)) < 0.5).astype(np.int8)  # every row is another
    column = as_categories(ArrayColumn("batch", strata))
    source = RowView(ArrayRows(np.zeros((n, 1)), as_labels(Y), block_bytes=1000), strata=column)
    labels = source.labels_only()
    (sample,), _ = run_reading(labels, [label_sample(labels.profile, 3)], HERE)
    pool, pooled = pool_in_strata(sample, 3, n, n_strata, None)
    resampling = Resampling(3, 0, seed=3, pool=pool, strata=pooled)
    own = {s: {row.tobytes() for row in Y[strata == s]} for s in range(n_strata)}
    seen = []
    for i in (1, 2, 3):
        _, shuffled = replicate_rows(source, resampling, i)
        assert (shuffled[:, :n_strata].argmax(axis=1) == strata).all()
        within = shuffled[:, n_strata:].reshape(n, 30, n_strata)[np.arange(n), :, strata]
        assert all(row.tobytes() in own[s] for row, s in zip(np.ascontiguousarray(within), strata, strict=True))
        if pool_rows > n:
            assert sorted(map(bytes, within)) == sorted(map(bytes, Y))
        seen.append(within.tobytes())
    assert len(set(seen)) == 3


@pytest.mark.parametrize("threads", [1, 3])
def test_results_are_those_of_the_replicates_rows(threads):
    X, Y = problem(n=300)
    source = ArrayRows(X, as_labels(Y), block_bytes=1500)
    resampling = Resampling(2, 2, seed=1, pool=pool_of(source))
    statistic = LabelProducts(5, 4)
    resources = replace(HERE, threads_per_worker=threads)
    (found,), record = run_reading(source, [Resampled([statistic], resampling, source.profile)], resources)
    assert record.tasks
    for i, (sums,) in enumerate(found):
        features, labels = replicate_rows(source, resampling, i)
        (expected,), _ = run_reading(ArrayRows(features, as_labels(labels)), [statistic], HERE)
        assert sums.n == expected.n == len(features)
        assert sums.pairs.tolist() == expected.pairs.tolist()
        assert sums.products == pytest.approx(expected.products, rel=1e-10, abs=1e-10)
        assert sums.m2 == pytest.approx(expected.m2, rel=1e-10)


def test_replicates_go_into_the_fewest_readings_that_fit():
    X, Y = problem(n=40, d=2000, q=20)
    source = ArrayRows(X, as_labels(Y))
    statistic, resampling = LabelProducts(2000, 20), Resampling(10, 20, pool=pool_of(source))
    assert len(replicate_groups([statistic], resampling, source, HERE)) == 1
    sizes = reading_sizes(source, [Resampled([statistic], resampling, source.profile, 0, 10)], HERE)
    everything = sizes.state_bytes + sizes.result_bytes + sizes.scratch_bytes + sizes.parameter_bytes
    tight = replace(HERE, memory_limit=int((HERE.process_bytes + everything + 2**16) / 0.8))
    groups = replicate_groups([statistic], resampling, source, tight)
    assert [len(group.replicates) for group in groups] == [8, 8, 8, 7]
    assert [i for group in groups for i in group.replicates] == list(range(31))


def sources(tmp_path):
    X, Y = problem(n=70)
    labels = as_labels(Y)
    convert_reader(
        lambda: make_reader(X.astype(np.float32), Y), tmp_path / "dense.zarr", options=Options(partition_bytes=600)
    )
    store = open_dataset(tmp_path / "dense.zarr").rows
    (tmp_path / "dense.zarr" / "X").rename(tmp_path / "X")  # only the files of labels are read
    assert store.profile.partitions > 1
    rows = np.arange(0, 70, 2)
    whole = ArrayRows(X, labels)
    yield store, Y
    yield whole, Y
    yield as_rows(da.from_array(X, chunks=(13, 2)), da.from_array(Y, chunks=(30, -1))), Y
    yield RowView(whole, rows, Y=labels[rows]), Y[rows]
    yield JoinedRows([whole, whole]), np.concatenate([Y, Y])


def test_labels_alone_are_read_without_the_features(tmp_path):
    for source, Y in sources(tmp_path):
        alone = source.labels_only()
        sample = RowSample(np.arange(len(Y)), alone.profile)
        (found,), record = run_reading(alone, [sample], HERE)
        assert found.Y.toarray().tolist() == Y.tolist()
        assert found.X.shape == (len(Y), 0)
        assert alone.profile.d == 0
        assert alone.profile.n == len(Y)
        assert alone.row_offsets[-1] == len(Y)
        assert record.bytes_read == alone.profile.read_bytes <= source.profile.read_bytes


def test_the_cache_tells_a_sample_of_labels_from_one_of_rows(tmp_path):
    X, Y = problem(n=70)
    convert_reader(lambda: make_reader(X.astype(np.float32), Y), tmp_path / "s.zarr")
    rows = open_dataset(tmp_path / "s.zarr").rows
    alone = rows.labels_only()
    with cache(tmp_path / "cache"):
        run_reading(alone, [RowSample(np.arange(70), alone.profile)], HERE)
        (found,), record = run_reading(rows, [RowSample(np.arange(70), rows.profile)], HERE)
        (_,), again = run_reading(alone, [RowSample(np.arange(70), alone.profile)], HERE)
    assert record.tasks
    assert not again.tasks
    assert found.X.shape == X.shape


# ---------------------------------------------------------------- draws, from numbers of rows alone


@settings(max_examples=50)
@given(st.integers(0, 500), st.integers(0, 300), st.integers(1, 150), st.integers(0, 2**64 - 1))
def test_rows_draw_the_same_in_any_cut(start, rows, m, key):
    for draw in (row_bits, lambda start, rows, key: shuffled_places(start, rows, m, key)):
        whole = draw(0, start + rows, key)
        assert draw(start, rows, key).tolist() == whole[start:].tolist()


@settings(max_examples=50)
@given(st.integers(1, 200), st.integers(0, 2**64 - 1))
def test_every_place_is_given_once_in_every_run_of_rows(m, key):
    places = shuffled_places(0, 3 * m, m, key).reshape(3, m)
    assert np.sort(places, axis=1).tolist() == [list(range(m))] * 3


def test_a_row_gets_every_place_equally_often():
    m, keys = 12, 6000
    places = np.array([shuffled_places(30, 1, m, key)[0] for key in range(keys)])
    counts = np.bincount(places, minlength=m)
    assert ((counts - keys / m) ** 2 / (keys / m)).sum() < 32  # chi-squared with 11 degrees of freedom: p = 0.001
