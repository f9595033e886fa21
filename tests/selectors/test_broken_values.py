"""Values that are no numbers are refused by every method that rests on moments, with the name of their feature."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.selectors import get_method


@pytest.mark.parametrize("method", ["elc", "br-cc", "laplacian", "mfsir", "smfs", "access-mfs"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("place", [0, 40])
def test_values_that_are_no_numbers_are_refused_by_name(method, bad, place):
    pd = pytest.importorskip("pandas")
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 9)), (rng.random((60, 3)) < 0.4).astype(np.int8)
    X[place, 5] = bad
    for container in (X, sp.csr_array(X), da.from_array(X, chunks=(30, -1))):
        with pytest.raises(
            DataError, match=r"column 5 \(counted from 0\): X contains NaN or infinity, .* in 1 feature\n"
        ) as caught:
            get_method(method)(3).fit(container, Y)
        assert "SimpleImputer" in str(caught.value)
    with pytest.raises(DataError, match="column 'f5'"):
        get_method(method)(3).fit(pd.DataFrame(X, columns=[f"f{i}" for i in range(9)]), Y)
