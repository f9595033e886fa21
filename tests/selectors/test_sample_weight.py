"""Weights of rows: a fit with whole weights is one of repeated rows, of every method that sums over the rows."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import (
    ELC,
    ENM,
    GMM,
    LabelEntropy,
)
from mlfs_dask.blocks import gates
from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import as_rows

SELECTORS = {
    "elc": ELC(3),
    "elc, screen": ELC(3, variant="screen"),
    "label-entropy": LabelEntropy(3),
    "label-entropy, all labels": LabelEntropy(3, n_promising_labels=1.0, bins=4),
    "label-entropy, quantiles": LabelEntropy(3, n_promising_labels=1.0, bins=3, binning="quantile"),
    "enm": ENM(3, bins=20),  # counted by position
    "gmm": GMM(3),
}


def problem():
    """X with zeros, labels of which one always occurs among the rows that count, and weights from 0."""
    rng = np.random.default_rng(0)
    Y = (rng.random((80, 4)) < 0.4).astype(np.int8)
    X = np.where(rng.random((80, 8)) < 0.6, rng.normal(size=(80, 8)), 0.0)
    X[:, 2:5] += 2 * Y[:, :3]
    weights = rng.integers(0, 4, 80)
    Y[:, 3] = weights > 0
    X[0], weights[0] = 100.0, 0  # which would be the maximum
    return X, Y, weights


def containers(X):
    yield X
    yield sp.csr_array(X)
    yield da.from_array(X, chunks=(25, 3))
    yield da.from_array(X, chunks=(25, -1)).map_blocks(sp.csr_array)


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("scale", [1e-3, 0.37])
def test_the_unit_of_weights_does_not_matter(name, scale):
    X, Y, weights = problem()
    expected = SELECTORS[name].fit(X, Y, sample_weight=weights).scores_
    found = SELECTORS[name].fit(X, Y, sample_weight=scale * weights).scores_
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("missing", ["mean", "median", "code"])
def test_missing_features_of_weighted_rows(missing):
    X, Y, weights = problem()
    X[np.random.default_rng(1).random(X.shape) < 0.2] = np.nan
    for name, selector in (("elc", ELC(3)), ("enm", ENM(3))):
        if missing == "code" and name == "elc":
            continue
        selector = selector.set_params(missing=missing)
        expected = selector.fit(np.repeat(X, weights, axis=0), np.repeat(Y, weights, axis=0)).scores_
        for container in containers(X):
            found = selector.fit(container, Y, sample_weight=weights).scores_
            assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_unknown_labels_of_rows_that_do_not_count():
    X, Y, weights = problem()
    assert weights[0] == 0
    for selector in (ELC(3), LabelEntropy(3)):
        Y[0, 1] = 0
        expected = selector.fit(X, Y, sample_weight=weights).scores_.tolist()
        Y[0, 1] = -1
        assert selector.fit(X, Y, sample_weight=weights).scores_.tolist() == expected
    with pytest.raises(DataError, match=r"unknown='refuse' was given, and .*unknown"):
        LabelEntropy(3, unknown="refuse").fit(X, Y, sample_weight=weights + 1)


def test_compiled_loops_are_not_taken_for_weights(monkeypatch):
    X, Y, weights = problem()
    expected = [selector.fit(X, Y, sample_weight=weights).scores_.tolist() for selector in (ELC(3), ENM(3))]
    monkeypatch.setattr(gates, "COMPILED_PRODUCTS", 0)
    monkeypatch.setattr(gates, "COMPILED_VALUES", 0)
    assert [s.fit(as_rows(X, Y), sample_weight=weights).scores_.tolist() for s in (ELC(3), ENM(3))] == expected


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
