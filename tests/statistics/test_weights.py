"""Rows with weights: which come, with what, from every kind of source; and what is counted of them."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.sample import RowSample
from mlfs_dask.statistics.subsets import read_rows
from mlfs_dask.statistics.weights import weighted_rows

RESOURCES = Resources(1, 2, 2**32, 2**32)


def problem(n=60, d=5, q=3):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, d)) < 0.4, 0.0, rng.normal(3.0, size=(n, d)))
    Y = rng.integers(-1, 2, (n, q))
    return X, Y, rng.integers(0, 4, n)


def sources(X, Y):
    """The same rows in every kind of source, whole and in parts."""
    Y = as_labels(Y)
    yield ArrayRows(X, Y)
    yield ArrayRows(X, Y, block_bytes=200)
    yield ArrayRows(sp.csr_array(X), Y, block_bytes=200)
    yield as_rows(da.from_array(X, chunks=(17, 2)), Y)
    yield as_rows(da.from_array(X, chunks=(17, -1)).map_blocks(sp.csr_array), Y)


def test_rows_of_weight_zero_are_left_out():
    X, Y, weights = problem()
    counted = weights > 0
    for source in sources(X, Y):
        rows = weighted_rows(source, weights)
        profile = rows.profile
        assert (profile.n, profile.weight, profile.total) == (counted.sum(), weights.sum(), weights.sum())
        assert rows.weights.tolist() == weights[counted].tolist()
        assert rows.row_offsets[-1] == counted.sum()
        blocks = list(rows.stream(0, profile.partitions))
        assert [block.start for block in blocks] == np.cumsum([0, *(len(b.weights) for b in blocks[:-1])]).tolist()
        assert np.concatenate([block.weights for block in blocks]).tolist() == weights[counted].tolist()
        found, labels, _ = read_rows(rows, RESOURCES)
        assert (found.toarray() if sp.issparse(found) else found).tolist() == X[counted].tolist()
        assert labels.toarray().tolist() == Y[counted].tolist()
        (sample,), _ = run_reading(rows, [RowSample(np.arange(0, profile.n, 7), profile)], RESOURCES)
        assert sample.Y.toarray().tolist() == Y[counted][::7].tolist()


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
