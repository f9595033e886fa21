"""Counts of a conversion: by hand, against NumPy, and the same for any split."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError
from mlfs_dask.storage.statistics import Statistics

NAN = float("nan")
VALUES = st.sampled_from([0.0, 0.0, 1.0, 2.0, -3.0, 0.5, 0.1, 2.0**25 + 1, 1e300, NAN])


def counted(X: Any, *, sparse: bool = False) -> Statistics:
    statistics = Statistics()
    if sparse:
        statistics.add_sparse(csr_array(np.asarray(X, float)))
    else:
        statistics.add_dense(np.asarray(X, float))
    return statistics


def facts(statistics: Statistics) -> dict[str, Any]:
    minimum, maximum = statistics.ranges()
    return {
        "rows": statistics.rows,
        "nonzeros": statistics.nonzeros,
        "longest_row": statistics.longest_row,
        "fits_float32": statistics.fits_float32,
        "minimum": [str(v + 0.0) for v in minimum],
        "maximum": [str(v + 0.0) for v in maximum],
        "stored": statistics.stored.tolist(),
        "missing": statistics.missing.tolist(),
        "integers": statistics.integers.tolist(),
    }


@pytest.mark.parametrize("sparse", [False, True])
def test_by_hand(sparse: bool) -> None:
    X = [[0, 1, 0.5, NAN, 0], [0, 2, -1, NAN, NAN], [0, 3, 0, NAN, 7]]
    assert facts(counted(X, sparse=sparse)) == {
        "rows": 3,
        "nonzeros": 10,
        "longest_row": 4,
        "fits_float32": True,
        "minimum": ["0.0", "1.0", "-1.0", "nan", "0.0"],
        "maximum": ["0.0", "3.0", "0.5", "nan", "7.0"],
        "stored": [0, 3, 2, 0, 1],
        "missing": [0, 0, 0, 3, 1],
        "integers": [True, True, False, True, True],
    }


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize(
    ("value", "fits"), [(2.0**24, True), (2.0**24 + 1, False), (0.5, True), (0.1, False), (1e39, False)]
)
def test_float32(sparse: bool, value: float, fits: bool) -> None:
    assert counted([[value, 0.0], [0.0, 3.0]], sparse=sparse).fits_float32 is fits


@given(X=arrays(float, st.tuples(st.integers(1, 40), st.integers(1, 5)), elements=VALUES), data=st.data())
def test_any_split_and_either_form_count_alike(X: np.ndarray[Any, Any], data: st.DataObject) -> None:
    whole = facts(counted(X))
    assert facts(counted(X, sparse=True)) == whole
    cuts = sorted(data.draw(st.sets(st.integers(1, len(X)))))
    merged = Statistics()
    for rows in np.split(X, cuts):
        merged.merge(counted(rows, sparse=data.draw(st.booleans())))
    assert facts(merged) == whole


def test_long_rows_and_many_tiles() -> None:
    generator = np.random.default_rng(0)
    for shape in ((700, 3), (50, 1000)):
        X = generator.integers(0, 3, shape).astype(float)
        X[generator.random(shape) < 0.1] = NAN
        X[:, 0] = 1  # more values than a byte counts
        statistics = counted(X)
        assert statistics.longest_row == max(np.count_nonzero(row) for row in X)
        np.testing.assert_array_equal(statistics.missing, np.isnan(X).sum(axis=0))
        np.testing.assert_array_equal(statistics.stored, ((X != 0) & ~np.isnan(X)).sum(axis=0))


@pytest.mark.parametrize("shape", [(0, 3), (3, 0)])
@pytest.mark.parametrize("sparse", [False, True])
def test_nothing_to_count(shape: tuple[int, int], sparse: bool) -> None:
    statistics = counted(np.zeros(shape), sparse=sparse)
    assert (statistics.rows, statistics.n_features, statistics.nonzeros) == (*shape, 0)


def test_labels() -> None:
    statistics = Statistics()
    statistics.add_labels(csr_array(np.array([[1, 0, -1], [1, -1, 0]], np.int8)))
    statistics.add_labels(csr_array(np.array([[0, 0, 0, 1]], np.int8)))
    assert statistics.positive.tolist() == [2, 0, 0, 1]
    assert statistics.unknown.tolist() == [0, 1, 1, 0]
    assert statistics.label_nonzeros == 5


@pytest.mark.parametrize("sparse", [False, True])
def test_categories_that_occur(sparse: bool) -> None:
    statistics = Statistics({1: 4})
    X = np.array([[9, 0], [9, 3], [9, NAN], [9, 3]])
    statistics.add_sparse(csr_array(X)) if sparse else statistics.add_dense(X)
    assert statistics.seen[1].tolist() == [True, False, False, True]


def test_a_code_that_was_not_declared() -> None:
    with pytest.raises(DataError, match="a categorical feature with 3 declared values has code 3"):
        Statistics({0: 3}).add_dense(np.array([[3.0]]))


def test_saved_and_loaded(tmp_path: Path) -> None:
    statistics = Statistics({1: 4})
    statistics.add_dense(np.array([[0, 1, 0.1, NAN], [0, 2, 0, 0]]))
    statistics.add_labels(csr_array(np.array([[1, -1]], np.int8)))
    path = tmp_path / "counts.npz"
    statistics.save(path)
    loaded = Statistics.load(path)
    assert facts(loaded) == facts(statistics)
    assert loaded.positive.tolist() == [1, 0]
    assert loaded.seen[1].tolist() == [False, True, True, False]
    assert loaded.label_nonzeros == 2
