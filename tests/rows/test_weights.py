"""Weights of rows: which are exact, and which are refused."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.rows.weights import weighted_rows
from mlfs_dask.runtime import Resources

RESOURCES = Resources(1, 2, 2**32, 2**32)


def problem(n=60, d=5, q=3):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, d)) < 0.4, 0.0, rng.normal(3.0, size=(n, d)))
    Y = rng.integers(-1, 2, (n, q))
    return X, Y, rng.integers(0, 4, n)


def test_sums_of_weights_are_exact():
    """Whatever the order, so that a label that always occurs has the sum of all weights."""
    rng = np.random.default_rng(0)
    for scale in (1e-200, 1e-3, 1.0, 1e100):
        weights = rng.random(10_000) * scale
        source = ArrayRows(np.zeros((10_000, 1)), as_labels(np.ones((10_000, 1))))
        found = weighted_rows(source, weights).weights
        assert found == pytest.approx(weights, rel=0, abs=1e-12 * scale)
        assert {found.sum(), found[::-1].sum(), found[rng.permutation(10_000)].cumsum()[-1]} == {found.sum()}


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (
            np.ones(5),
            r"sample_weight must have shape \(60,\), a weight for every row; got \(5,\)\n  cure: give as many",
        ),
        (np.ones((60, 1)), r"got \(60, 1\)"),
        (np.where(np.arange(60) == 7, -1.0, 1.0), r"numbers from 0; row 7 has -1.0 \(counted from 0\)\n  cure: give 0"),
        (np.where(np.arange(60) == 7, np.nan, 1.0), "row 7 has nan"),
        (np.where(np.arange(60) == 7, np.inf, 1.0), "row 7 has inf"),
        (np.zeros(60), "all sample weights are zero\n  cure: give some rows"),
    ],
)
def test_impossible_weights_are_refused(weights, message):
    X, Y, _ = problem()
    with pytest.raises(DataError, match=message):
        weighted_rows(ArrayRows(X, as_labels(Y)), weights)
