"""Entropy-based label selection: against its plain twin, published code, and hand cases; tiles, plans, refusals."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask import GMM, LabelEntropy, runtime
from mlfs_dask.blocks.codes import code_book, equal_width_book, quantile_table
from mlfs_dask.blocks.counts import CodeBook
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.plan import reading_fits, split_evenly
from mlfs_dask.engine.readings import plan_statistics
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.rows.contract import FeatureInfo
from mlfs_dask.rows.joined import JoinedRows
from mlfs_dask.rows.sources import ArrayRows, as_rows, measure_features
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors.costs import Asked, Readings
from mlfs_dask.statistics.counts import CountScores, count_in_tiles
from mlfs_dask.statistics.resampling import NOT_RESAMPLED, Resampled, Resampling
from tests.conftest import published
from tests.problems import real_data
from tests.reference import label_entropy as twin


def problem(seed=0, n=200, d=7, q=5):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.05, 0.6, q)).astype(np.int8)
    X = rng.normal(size=(n, d))
    X[:, 0] += 2 * Y[:, 0]
    X[:, 1] = rng.random(n) < 0.3
    X[:, 2] = np.where(rng.random(n) < 0.8, 0, X[:, 2])
    return X, Y


@pytest.mark.parametrize("promising", [0, 1, 3, 0.2, 0.5, 1.0])
@pytest.mark.parametrize("bins", [2, 5])
def test_equals_the_plain_twin(promising, bins):
    X, Y = problem()
    found = LabelEntropy(3, n_promising_labels=promising, bins=bins).fit(X, Y)
    expected = twin.label_entropy(X, Y, n_promising_labels=promising, bins=bins)
    assert found.scores_ == pytest.approx(expected, rel=1e-12, abs=1e-13)


@pytest.mark.parametrize("threads", [1, 3])
def test_tiles_give_the_same_bits(threads):
    X, Y = problem(d=40)
    source = ArrayRows(X, as_labels(Y), block_bytes=4000)
    selector = LabelEntropy(3, n_promising_labels=1.0, binning="equal-width")
    whole = selector.fit(source)
    assert whole.report_.passes == 1
    # One table of 40 features and 6 columns is 960 bytes a thread, beside edges (728 bytes), the labels' positive rows
    # (48) and scratch (40 + 24 a feature): leave room for less.
    limit = int((runtime.PROCESS_BYTES + 728 + threads * (1048 + 960 // 3)) / 0.8)
    tight = Resources(1, threads, limit, 2**32)
    source.profile = replace(source.profile, block_rows=1, block_bytes=8)  # no scratch
    readings = Readings(source, tight, selector.plan(source, tight), Asked(3))
    scores = selector.make_question().method.score(readings)
    assert readings.plan.passes == len(readings.records) > 1
    assert list(readings.plan.readings) == [
        f"counts {i + 1}/{len(readings.records)}" for i in range(len(readings.records))
    ]
    assert scores.scores.tobytes() == whole.scores_.tobytes()


def test_tiling_is_planned_and_said():
    profile = ArrayRows(np.zeros((10, 2)), as_labels(np.zeros((10, 2)))).profile
    wide = replace(profile, n=10**6, d=10**6, q=10**4, sparse=True, nonzeros=10**8, partitions=50)
    resources = Resources(2, 1, 700 * 2**20, 2**34, client=object())
    plan = LabelEntropy(10, n_promising_labels=100).plan(wide, resources)
    assert plan.passes > 2  # the ranges first, then the tiles
    assert "tiled over" in plan.notes[0]
    assert plan.peak_worker_bytes <= 0.8 * resources.memory_limit
    with pytest.raises(DoesNotFitError):
        LabelEntropy(10, n_promising_labels=100).plan(wide, replace(resources, memory_limit=150 * 2**20))


@settings(max_examples=60)
@given(st.data())
def test_tiles_are_the_fewest_that_fit(data):
    """Against tiles that are made and planned one by one, of features with any number of codes."""
    d, sparse = data.draw(st.integers(1, 40)), data.draw(st.booleans())
    codes = np.array(data.draw(st.lists(st.sampled_from([1, 2, 3, 16, 17, 40, 256]), min_size=d, max_size=d)))
    missing = np.array(data.draw(st.lists(st.booleans(), min_size=d, max_size=d))) & (codes < 256)
    book = CodeBook(np.concatenate(([0], np.cumsum(codes - 1))), np.zeros(int((codes - 1).sum())), missing)
    profile = replace(
        ArrayRows(np.zeros((10, 2)), as_labels(np.zeros((10, 2)))).profile,
        n=10**6,
        d=d,
        q=7,
        sparse=sparse,
        partitions=50,
        block_rows=data.draw(st.integers(1, 50)),
    )
    p = data.draw(st.integers(0, 7))
    slots = np.where(np.arange(7) < p, np.arange(7), -1)
    counts = CountScores(book, 0, d, sparse, slots, 10**6, formula=len, formula_key="")
    resampling = data.draw(st.sampled_from([NOT_RESAMPLED, Resampling(2, 0), Resampling(2, 3)]))
    client = data.draw(st.sampled_from([None, object()]))
    resources = Resources(2, data.draw(st.integers(1, 3)), 2**40, 2**40, client=client)
    whole, one = (counts.tile_sizes(profile, resources, n, resampling).state_bytes for n in (1, d))
    spare = data.draw(st.integers(one // 2, 4 * whole + 10_000))
    tight = replace(resources, memory_limit=int((runtime.PROCESS_BYTES + spare) / 0.8))

    def plans(n_tiles):
        tiles = [
            Resampled([replace(counts, first=a, last=b)], resampling, profile) for a, b in split_evenly(d, n_tiles)
        ]
        assert counts.tile_sizes(profile, tight, n_tiles, resampling).state_bytes == max(t.state_bytes for t in tiles)
        for tile in tiles:
            plan_statistics(profile, [tile], tight)
        return len(tiles)

    try:
        found = len(count_in_tiles(counts, profile, tight, resampling=resampling))
    except DoesNotFitError:
        found = d + 1
    if found <= d:
        assert plans(found) == found
    if found > 1:
        largest = counts.tile_sizes(profile, tight, found - 1, resampling)
        assert not reading_fits(profile, tight, largest)


def test_tiles_of_edges_that_are_found_later_are_chosen_then():
    """The plan of a Dask array is an estimate; its counts are not run by it."""
    X, Y = problem()
    lazy_X, lazy_Y = da.from_array(X, chunks=(50, -1)), da.from_array(Y, chunks=(50, -1))
    source = as_rows(lazy_X, lazy_Y)
    here = Resources(1, 1, 2**32, 2**32)
    plan = LabelEntropy(3).plan(source, here)
    assert list(plan.readings) == ["ranges", "estimated counts"]
    readings = Readings(source, here, plan, Asked(3))
    assert (
        LabelEntropy(3).make_question().method.score(readings).scores.tobytes()
        == LabelEntropy(3).fit(X, Y).scores_.tobytes()
    )
    assert list(LabelEntropy(3, binning="equal-width").plan(as_rows(X, Y), here).readings) == ["counts"]


def test_kinds_of_features_are_kept_where_ranges_are_not_known():
    """Joined rows know of categories, and not of ranges."""
    rng = np.random.default_rng(0)
    X, Y = rng.integers(0, 3, (60, 2)).astype(float), as_labels(rng.integers(0, 2, (60, 2)))
    kinds = np.array([3, 0])
    whole = LabelEntropy(1).fit(ArrayRows(X, Y, n_categories=kinds))
    parts = [ArrayRows(X[part], Y[part], n_categories=kinds) for part in (slice(0, 20), slice(20, 60))]
    found = LabelEntropy(1).fit(JoinedRows(parts))
    assert found.scores_.tobytes() == whole.scores_.tobytes()
    assert found.report_.passes == found.report_.plan["passes"] == 2
    assert found.scores_[0] != LabelEntropy(1).fit(X, Y).scores_[0]


def test_passes_are_counted():
    X, Y = problem()
    lazy_X, lazy_Y = da.from_array(X, chunks=(50, -1)), da.from_array(Y, chunks=(50, -1))
    # What is kept of features that are mostly 0 is what the default asks for.
    for binning, of_arrays in (("equal-width", 1), ("quantile", 2), ("auto", 1)):
        selector = LabelEntropy(3, binning=binning)
        assert selector.fit(X, Y).report_.passes == of_arrays
        # Ranges and the rows that quantiles come from are one reading.
        assert selector.fit(lazy_X, lazy_Y).report_.passes == 2
        report = selector.fit(lazy_X, lazy_Y).report_
        assert report.passes == report.plan["passes"]
        assert report.tasks == report.plan["tasks"]


@pytest.mark.parametrize("promising", [0, 1, 3, 6])
def test_published_entropies_on_emotions(promising):
    X, Y = real_data("emotions")
    with pytest.warns(UserWarning, match="99 % of the rows or more in 4 of 72 features"):
        found = LabelEntropy(10, n_promising_labels=promising, binning="equal-width").fit(X, Y)
    expected = published("label_entropy")[f"Y{promising}_scores"] * np.log(2)  # their logarithms are to base 2
    assert found.scores_ == pytest.approx(expected, rel=1e-12)


def test_categories_keep_their_codes():
    # Codes 0, 1, 2 cut at the middle would join 0 and 1.
    X = np.array([[0.0], [1.0], [2.0], [2.0]])
    book = equal_width_book(FeatureInfo(np.zeros(1), np.full(1, 2.0), np.array([3]), None), 2)
    assert book.edges.tolist() == [0.5, 1.5]
    numeric = equal_width_book(FeatureInfo(np.zeros(1), np.full(1, 2.0), np.array([0]), None), 2)
    assert numeric.edges.tolist() == [1.0]
    assert X.max() == 2


def test_edges_of_huge_ranges_stay_finite():
    top = np.finfo(np.float64).max
    book = equal_width_book(FeatureInfo(np.full(1, -top), np.full(1, top), None, None), 4)
    assert np.isfinite(book.edges).all()
    assert book.edges[1] == pytest.approx(0, abs=top * 1e-15)


@settings(max_examples=25)
@given(st.integers(0, 1000))
def test_a_table_of_quantiles_gives_the_edges_of_the_sample(seed):
    rng = np.random.default_rng(seed)
    X = np.round(np.exp(rng.normal(size=(rng.integers(1, 60), 6))) - rng.integers(0, 2), 1)
    X[rng.random(X.shape) < 0.1] = np.nan
    X = np.where(rng.random(X.shape) < 0.3, np.nanmax(X, initial=-9), X)
    features = replace(measure_features(X), n_categories=np.zeros(6, np.int64))
    table = quantile_table(X, features)
    for bins in range(2, 9):
        for binning in ("auto", "quantile"):
            if (binning == "quantile" or bins > 2) and (features.zero_share > 0.5).any():
                continue
            from_table = code_book(features, bins, binning, table=table)
            from_sample = code_book(features, bins, binning, sample=X)
            assert from_table.edges.tolist() == from_sample.edges.tolist()
            assert from_table.edge_ptr.tolist() == from_sample.edge_ptr.tolist()
    assert code_book(features, 9, "quantile", table=table) is None or not (features.minimum < features.maximum).any()


def test_quantiles_leave_0_1_features_as_they_are():
    X = np.array([[1.0, 1.0]] * 60 + [[0.0, 0.5]] * 40)
    features = measure_features(X)  # of an array: which features are 0/1 is not known
    for sample in (X, sp.csr_array(X)):
        # Of the first; the other's middle is its top.
        assert code_book(features, 2, "quantile", sample=sample).edges.tolist() == [0.5]
        assert code_book(features, 2, "quantile", sample=sample, cut_binary=True).edges.tolist() == []
    stored = replace(features, n_categories=np.array([2, 0]))
    assert code_book(stored, 2, "quantile", sample=X).edges.tolist() == [0.5]
    assert code_book(stored, 2, "quantile", sample=X, cut_binary=True).edges.tolist() == []


@settings(max_examples=25)
@given(st.integers(0, 1000), st.sampled_from([np.float64, np.float32, np.int16]))
def test_quantile_edges_of_sparse_rows_are_those_of_dense_ones(seed, dtype):
    rng = np.random.default_rng(seed)
    X = (10 * rng.normal(size=(20, 6)) * (rng.random((20, 6)) < 0.5)).astype(dtype)
    if X.dtype.kind == "f":
        X[rng.random(X.shape) < 0.1] = np.nan
    features = measure_features(X)
    for binning, bins in (("quantile", 4), ("auto", 2), ("auto", 4), ("auto", 11)):
        dense, found = (code_book(features, bins, binning, sample=sample) for sample in (X, sp.csr_array(X)))
        assert found.edges.tolist() == dense.edges.tolist()
        assert found.edge_ptr.tolist() == dense.edge_ptr.tolist()


def test_missing_values_are_an_error_or_a_code():
    X, Y = problem()
    X[3, 4] = np.nan
    told = r"column 4 \(counted from 0\): X contains NaN: 1 missing value in 1 feature"
    with pytest.raises(DataError, match=told) as caught:
        LabelEntropy(3).fit(X, Y)
    assert "choose missing='code' to" in str(caught.value)
    found = LabelEntropy(3, missing="code", n_promising_labels=1.0, binning="equal-width").fit(X, Y)
    codes = (np.nanmin(X, axis=0) + np.nanmax(X, axis=0)) / 2 < X
    expected = twin.label_entropy(np.where(np.isnan(X), 2, codes), Y, n_promising_labels=1.0, bins=3)
    assert found.scores_ == pytest.approx(expected, rel=1e-12)


def test_a_category_per_row_is_refused_by_name():
    class Named(ArrayRows):
        features = FeatureInfo(np.zeros(2), np.full(2, 299.0), np.array([0, 300]), np.zeros(2, dtype=np.int64))

    X = np.stack([np.arange(300.0)] * 2, axis=1)
    with pytest.raises(DataError, match="a categorical feature has 300 values; at most 256") as caught:
        LabelEntropy(1).fit(Named(X, as_labels(np.ones((300, 1)))))
    assert "--drop" in str(caught.value)
    assert caught.value.column == 1


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_promising_labels": -1}, "n_promising_labels must be a count from 0 or a fraction"),
        ({"n_promising_labels": 1.5}, "n_promising_labels must be a count from 0 or a fraction"),
        ({"n_promising_labels": 6}, "n_promising_labels is 6, but there are 5 labels"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message):
    X, Y = problem()
    with pytest.raises(UsageError, match=message):
        LabelEntropy(3, **parameters).fit(X, Y)


@pytest.mark.parametrize(
    ("fraction", "q", "count"), [(0.1, 30, 3), (0.2, 6, 2), (0.2, 14, 3), (1.0, 7, 7), (0.0, 7, 0)]
)
def test_fractions_of_labels_are_rounded_up(fraction, q, count):
    assert LabelEntropy(n_promising_labels=fraction).make_question().method._n_counted(q) == count


def test_labels_of_one_value_have_no_part_in_the_geometric_mean():
    X, Y = problem()
    X += Y.sum(axis=1, keepdims=True)  # halves may share no information at all
    more = np.column_stack([np.zeros(len(Y)), Y, np.ones(len(Y))]).astype(int)
    found = GMM(1).fit(X, more).scores_
    assert (found > 0).all()
    assert found == pytest.approx(GMM(1).fit(X, Y).scores_)
    assert found == pytest.approx(twin.gmm(X, more), rel=1e-9)
