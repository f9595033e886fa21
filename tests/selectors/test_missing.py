"""Missing features, values that are no numbers, and weights of rows, where `test_matrix` does not have them."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask import ELC, ENM, SMFS, LabelEntropy
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.selection.estimator import get_estimator


def problem(n=80, d=8, q=3, holes=0.2):
    """X with zeros and holes in all features but the first, labels, and weights from 0."""
    rng = np.random.default_rng(0)
    Y = (rng.random((n, q)) < 0.4).astype(np.int8)
    X = np.where(rng.random((n, d)) < 0.6, rng.normal(size=(n, d)), 0.0)
    X[:, 2:5] += 2 * Y
    X[rng.random((n, d)) < np.array([0.0] + [holes] * (d - 1))] = np.nan
    return X, Y, rng.integers(0, 4, n)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """A store of `problem` in which feature 6 has no value."""
    folder = tmp_path_factory.mktemp("store")
    X, Y, _ = problem()
    X[:, 6] = np.nan
    np.savez(folder / "data.npz", X=X, Y=Y)
    mlfs_dask.convert(folder / "data.npz", folder / "data.zarr")
    return mlfs_dask.open_dataset(folder / "data.zarr")


# ---------------------------------------------------------------- missing values


def test_the_reading_is_planned_and_made_only_where_something_is_missing():
    X, Y, _ = problem()
    resources = current_resources()
    for selector in (
        ELC(3, missing="mean"),
        LabelEntropy(3, missing="median", binning="equal-width"),
        SMFS(3, missing="mean", graph="exact"),
    ):
        for matrix, more in ((X, 1), (np.nan_to_num(X), 0)):
            source = ArrayRows(matrix, as_labels(Y))
            plan = selector.plan(source, resources)
            report = selector.fit(source).report_
            assert plan.passes == report.passes == 1 + more
            assert ("means of features" in plan.readings) == bool(more)


@pytest.mark.parametrize("how", ["mean", "median"])
def test_a_feature_of_one_value_or_none_stays_constant(how, store):
    X, Y, _ = problem()
    X[:, 6] = np.where(np.isnan(X[:, 6]), np.nan, 0.1)
    found = ELC(3, missing=how).fit(X, Y)
    assert found.report_.extra["constant_features"] == 1
    assert found.ranking_[-1] == 6
    X[:, 6] = np.nan
    for rows in ((X, Y), (store,)):
        assert ELC(3, missing=how).fit(*rows).ranking_[-1] == 6
        assert LabelEntropy(3, missing=how, n_promising_labels=1.0).fit(*rows).scores_[6] == 0.0


def test_jobs_on_one_store_share_the_reading(store):
    rows, resources = store.rows, current_resources()
    selectors = [ELC(3, missing="mean"), LabelEntropy(3, missing="mean", binning="equal-width")]
    with mlfs_dask.cache():
        first = [selector.make_question().first_statistics(rows, resources) for selector in selectors]
        assert [[statistic.kind for statistic in each] for each in first] == [["means of present values"]] * 2
        run_reading(rows, first[0], resources)
        for passes in (1, 0):
            for selector in selectors:
                assert selector.plan(rows, resources).passes == selector.fit(rows).report_.passes == passes


def test_recovered_labels_come_from_the_filled_rows():
    X, Y, _ = problem()
    Y = np.where(np.random.default_rng(1).random(Y.shape) < 0.3, -1, Y)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    selector = SMFS(3, graph="anchors", n_trees=10, missing="mean")
    found, expected = (selector.fit(rows, Y).recover_labels(rows, Y) for rows in (X, filled))
    assert found == pytest.approx(expected, abs=1e-8)


# ---------------------------------------------------------------- values that are no numbers


@pytest.mark.parametrize("method", ["elc", "mfsir"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_values_that_are_no_numbers_are_refused_by_name(method, bad):
    X, Y, _ = problem(holes=0)
    X[40, 5] = bad
    of_sums = "NaN or infinity, or values too large for float64 sums, in 1 feature", "SimpleImputer"
    # Missing values of rows in memory are counted before anything is summed.
    in_memory = ("NaN: 1 missing value in 1 feature", "choose missing='mean'") if np.isnan(bad) else of_sums
    lazy = da.from_array(X, chunks=(30, -1))
    for container, (said, cure) in ((X, in_memory), (sp.csr_array(X), in_memory), (lazy, of_sums)):
        with pytest.raises(DataError, match=rf"column 5 \(counted from 0\): X contains {said}\n") as caught:
            get_estimator(method)(3).fit(container, Y)
        assert cure in str(caught.value)
    with pytest.raises(DataError, match="column 'f5'"):
        get_estimator(method)(3).fit(pd.DataFrame(X, columns=[f"f{i}" for i in range(8)]), Y)


@pytest.mark.parametrize("size", [1e-148, 1e-161, 1e-310])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("mddm", {"constraint": "subspace"}),
        ("br-cc", {}),
        ("fisher", {}),
        ("laplacian", {}),
        ("mfsir", {}),
        ("access-mfs", {}),
        ("auto", {"candidates": "mddm,spfs"}),
    ],
)
def test_a_feature_whose_squares_vanish_is_constant(method, params, size):
    X, Y, _ = problem(holes=0)
    constant = X.copy()
    X[:, 2] *= size
    constant[:, 2] = 0.0
    for container in (np.asarray, sp.csr_array):
        found, expected = (get_estimator(method)(3, **params).fit(container(x), Y).scores_ for x in (X, constant))
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_a_range_without_an_inverse_is_none():
    X, Y = np.random.default_rng(0).normal(size=(60, 4)), np.repeat([[0, 1], [1, 0]], 30, axis=0)
    X[:, 1] *= 1e-313
    scores = get_estimator("relieff")(2).fit(X, Y).scores_
    assert scores[1] == scores.min()
    X[:, 1] = 0.0
    assert scores.tolist() == get_estimator("relieff")(2).fit(X, Y).scores_.tolist()


# ---------------------------------------------------------------- weights of rows


def containers(X):
    yield X
    yield sp.csr_array(X)
    yield da.from_array(X, chunks=(25, 3))
    yield da.from_array(X, chunks=(25, -1)).map_blocks(sp.csr_array)


@pytest.mark.parametrize("selector", [ELC(3, variant="screen"), LabelEntropy(3, bins=4), ENM(3, bins=20)], ids=str)
def test_the_unit_of_weights_does_not_matter(selector):
    X, Y, weights = problem(holes=0)
    Y[:, 2] = weights > 0  # a label that always occurs among the rows that count
    X[0], weights[0] = 100.0, 0  # which would be the maximum
    expected = selector.fit(X, Y, sample_weight=weights).scores_
    assert selector.fit(X, Y, sample_weight=1e-3 * weights).scores_ == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize(
    ("method", "missing"), [("elc", "mean"), ("elc", "median"), ("enm", "mean"), ("enm", "median"), ("enm", "code")]
)
def test_missing_features_of_weighted_rows(method, missing):
    X, Y, weights = problem()
    selector = get_estimator(method)(3, missing=missing)
    expected = selector.fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0)).scores_
    for container in containers(X):
        found = selector.fit(container, Y, sample_weight=weights).scores_
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_an_unknown_label_is_refused_of_rows_that_count_alone():
    X, Y, weights = problem(holes=0)
    weights[0], Y[0, 1] = 0, -1
    selector = LabelEntropy(3, unknown="refuse", n_promising_labels=1.0)
    with pytest.raises(DataError, match=r"unknown='refuse' was given, and .*unknown"):
        selector.fit(X, Y, sample_weight=weights + 1)
    expected = LabelEntropy(3, n_promising_labels=1.0).fit(X[1:], Y[1:], sample_weight=weights[1:]).scores_
    found = LabelEntropy(3, n_promising_labels=1.0).fit(X, Y, sample_weight=weights).scores_
    assert found == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("method", [ELC, ENM])
def test_shuffles_and_resamples_of_weighted_rows(method):
    """Rows that do not count hide what the labels go with."""
    rng = np.random.default_rng(0)
    Y = (rng.random((600, 3)) < 0.4).astype(np.int8)
    X = rng.normal(size=(600, 8))
    X[300:, 2:5] += 2 * Y[300:]
    X[:300, 2:5] -= 2 * Y[:300]
    X[rng.random(X.shape) < 0.05] = np.nan
    weights = np.repeat([0.0, 0.5], 300)
    for container in containers(X):
        found = method("auto", resamples=5, missing="mean").fit(container, Y, sample_weight=weights)
        assert np.flatnonzero(found.support_).tolist() == [2, 3, 4]
        assert found.selection_frequency_[2:5].tolist() == [1.0] * 3
        assert found.report_.passes == found.report_.plan["passes"]
