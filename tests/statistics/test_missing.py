"""Missing features, filled in while rows are read: what with, and which rows come out."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics import missing as module
from mlfs_dask.statistics.missing import MeansOfPresent, fill_statistics, fill_values

RESOURCES = Resources(1, 2, 2**32, 2**32)


def problem(n=60, d=5):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, d)) < 0.4, 0.0, rng.normal(3.0, size=(n, d)))
    X[rng.random((n, d)) < 0.3] = np.nan
    return X, as_labels(rng.integers(0, 2, (n, 2)))


def sources(X, Y):
    """The same rows in every kind of source, whole and in parts."""
    yield ArrayRows(X, Y)
    yield ArrayRows(X, Y, block_bytes=200)
    yield ArrayRows(sp.csr_array(X), Y, block_bytes=200)
    yield as_rows(da.from_array(X, chunks=(17, 2)), Y)
    yield as_rows(da.from_array(X, chunks=(17, -1)).map_blocks(sp.csr_array), Y)


def found_fill(source, how):
    statistics = fill_statistics(source.profile, how, 0)
    return fill_values(statistics, run_reading(source, statistics, RESOURCES)[0])


def test_the_mean_of_equal_values_is_their_value():
    """The sum of 0.1 over 7 rows is 0.7000000000000001 or less."""
    for rows in range(2, 40):
        X = np.full((rows + 1, 1), 0.1)
        X[0] = np.nan
        ((means), _), _ = run_reading(
            ArrayRows(X, as_labels(np.ones((rows + 1, 1)))), [MeansOfPresent(1)] * 2, RESOURCES
        )
        assert means.mean.tolist() == [0.1]


def test_medians_of_many_rows_are_those_of_a_sample(monkeypatch):
    monkeypatch.setattr(module, "QUANTILE_ROWS", 1000)
    X, Y = problem(n=6000)
    fills = []
    for source in (ArrayRows(X, Y), ArrayRows(X, Y, block_bytes=9000)):
        assert len(fill_statistics(source.profile, "median", 0)[1].chosen) == 1000
        fills.append(found_fill(source, "median"))
    assert fills[0].tolist() == fills[1].tolist()
    present = [np.sort(column[~np.isnan(column)]) for column in X.T]
    places = [np.searchsorted(values, fill) / len(values) for values, fill in zip(present, fills[0], strict=True)]
    assert places == pytest.approx([0.5] * 5, abs=0.1)  # zeros are 0.4 of the values
