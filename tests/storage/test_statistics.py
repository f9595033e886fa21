"""Counts of a conversion: by hand, against NumPy, and the same for any split."""

from __future__ import annotations

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


def test_a_code_that_was_not_declared() -> None:
    with pytest.raises(DataError, match="a categorical feature with 3 declared values has code 3"):
        Statistics({0: 3}).add_dense(np.array([[3.0]]))
