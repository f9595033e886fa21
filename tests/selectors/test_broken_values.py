"""Values that are no numbers are refused by every method that rests on moments, with the name of their feature."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.selection.estimator import get_estimator


@pytest.mark.parametrize("method", ["elc", "br-cc", "laplacian", "mfsir", "smfs", "access-mfs"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 40])
def test_values_that_are_no_numbers_are_refused_by_name(method, bad, place):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 9)), (rng.random((60, 3)) < 0.4).astype(np.int8)
    X[place, 5] = bad
    of_sums = "NaN or infinity, or values too large for float64 sums, in 1 feature", "SimpleImputer"
    # Missing values of rows in memory are counted before anything is summed.
    in_memory = ("NaN: 1 missing value in 1 feature", "choose missing='mean'") if np.isnan(bad) else of_sums
    lazy = da.from_array(X, chunks=(30, -1))
    for container, (problem, cure) in ((X, in_memory), (sp.csr_array(X), in_memory), (lazy, of_sums)):
        with pytest.raises(DataError, match=rf"column 5 \(counted from 0\): X contains {problem}\n") as caught:
            get_estimator(method)(3).fit(container, Y)
        assert cure in str(caught.value)
    with pytest.raises(DataError, match="column 'f5'"):
        get_estimator(method)(3).fit(pd.DataFrame(X, columns=[f"f{i}" for i in range(9)]), Y)


@pytest.mark.parametrize("size", [1e-148, 1e-154, 1e-161, 1e-310])
@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("mddm", {"constraint": "subspace"}),
        ("mddm", {}),
        ("br-cc", {}),
        ("fisher", {}),
        ("laplacian", {}),
        ("mfsir", {}),
        ("access-mfs", {}),
        ("auto", {"candidates": "mddm,spfs"}),
    ],
)
def test_a_feature_whose_squares_vanish_is_constant(method, params, size):
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 6)), (rng.random((60, 3)) < 0.4).astype(np.int8)
    X[:, 2] *= size
    expected = X.copy()
    expected[:, 2] = 0.0
    for container in (np.asarray, sp.csr_array):
        found, constant = (get_estimator(method)(3, **params).fit(container(x), Y).scores_ for x in (X, expected))
        assert found == pytest.approx(constant, rel=1e-9, abs=1e-12)


def test_a_range_without_an_inverse_is_none():
    X, Y = np.random.default_rng(0).normal(size=(60, 4)), np.repeat([[0, 1], [1, 0]], 30, axis=0)
    X[:, 1] *= 1e-313
    scores = get_estimator("relieff")(2).fit(X, Y).scores_
    assert scores[1] == scores.min()
    X[:, 1] = 0.0
    assert scores.tolist() == get_estimator("relieff")(2).fit(X, Y).scores_.tolist()
