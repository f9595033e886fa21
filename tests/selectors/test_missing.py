"""Missing features, for every method: an error, or filled in, which equals a fit on data that were filled in before."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

import mlfs_dask
from mlfs_dask import ELC, SMFS, LabelEntropy, runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.selection.estimator import get_estimator

#: Settings that make every method quick.
QUICK = {
    "mfsir": {"max_iter": 3, "graph": "anchors", "n_anchors": 8},
    "smfs": {"max_iter": 3, "n_trees": 10, "graph": "anchors", "n_anchors": 8},
    "access-mfs": {"max_iter": 3, "graph": "anchors", "n_anchors": 8},
    "auto": {"candidates": "br-cc,enm"},
}


def problem(n=60, d=8, q=3):
    """X with zeros and holes in all features but the first, and labels."""
    rng = np.random.default_rng(0)
    Y = (rng.random((n, q)) < 0.4).astype(np.int8)
    X = np.where(rng.random((n, d)) < 0.6, rng.normal(size=(n, d)), 0.0)
    X[:, 2:5] += 2 * Y
    holes = rng.random((n, d)) < 0.2
    holes[:, 0] = False
    X[holes] = np.nan
    return X, Y


def fit(method, X, Y=None, **parameters):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".* did not converge")
        return get_estimator(method)(3, **QUICK.get(method, {}), **parameters).fit(X, Y)


def test_the_reading_is_planned_and_made_only_where_something_is_missing():
    X, Y = problem()
    resources = runtime.current_resources()
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


def test_a_constant_feature_with_holes_stays_constant():
    X, Y = problem()
    X[:, 6] = np.where(np.isnan(X[:, 6]), np.nan, 0.1)
    for how in ("mean", "median"):
        found = fit("elc", X, Y, missing=how)
        assert found.report_.extra["constant_features"] == 1
        assert found.ranking_[-1] == 6


def test_a_feature_without_values_counts_as_constant(tmp_path):
    X, Y = problem()
    X[:, 6] = np.nan
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    mlfs_dask.convert(tmp_path / "data.npz", tmp_path / "data.zarr")
    for source in (X, mlfs_dask.open_dataset(tmp_path / "data.zarr")):
        labels = Y if source is X else None
        assert fit("elc", source, labels, missing="mean").ranking_[-1] == 6
        assert fit("label-entropy", source, labels, missing="median", n_promising_labels=1.0).scores_[6] == 0.0


def test_jobs_on_one_store_share_the_reading(tmp_path):
    X, Y = problem()
    np.savez(tmp_path / "data.npz", X=X, Y=Y)
    mlfs_dask.convert(tmp_path / "data.npz", tmp_path / "data.zarr")
    rows = mlfs_dask.open_dataset(tmp_path / "data.zarr").rows
    selectors = [ELC(3, missing="mean"), LabelEntropy(3, missing="mean", binning="equal-width")]
    resources = runtime.current_resources()
    with mlfs_dask.cache():
        first = [selector.make_method().first_statistics(rows, resources) for selector in selectors]
        assert [[statistic.kind for statistic in each] for each in first] == [["means of present values"]] * 2
        run_reading(rows, first[0], resources)
        for selector in selectors:
            assert selector.plan(rows, resources).passes == 1
            assert selector.fit(rows).report_.passes == 1
        for selector in selectors:
            assert selector.plan(rows, resources).passes == selector.fit(rows).report_.passes == 0


def test_recovered_labels_come_from_the_filled_rows():
    X, Y = problem()
    Y = np.where(np.random.default_rng(1).random(Y.shape) < 0.3, -1, Y)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    found = fit("smfs", X, Y, missing="mean").recover_labels(X, Y)
    assert found == pytest.approx(fit("smfs", filled, Y).recover_labels(filled, Y), abs=1e-8)
