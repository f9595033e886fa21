"""What is missing in a block: sums over the rest, and what is filled in."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.missing import column_medians, fill_block, present_sums_block

NAN = np.nan
X = np.array([[1.0, 0.0, NAN, 0.0], [NAN, 2.0, NAN, 0.0], [4.0, NAN, NAN, 0.0]])


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_sums_of_what_is_present(container, dtype):
    assert present_sums_block(container(X.astype(dtype))).tolist() == [5.0, 2.0, 0.0, 0.0]
    assert present_sums_block(container(X[:0].astype(dtype))).tolist() == [0.0] * 4


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_values_in_the_places_of_missing_ones(container, dtype):
    block = container(X.astype(dtype))
    found = fill_block(block, np.array([9.0, 8.0, 7.0, 6.0]))
    assert type(found) is type(block)
    assert found.dtype == dtype
    expected = [[1, 0, 7, 0], [9, 2, 7, 0], [4, 8, 7, 0]]
    assert (found if container is np.asarray else found.toarray()).tolist() == expected
    assert np.isnan(block.sum())  # which may be a view of a buffer, or the caller's
    assert fill_block(found, np.zeros(4)) is found
    whole = container(np.eye(4, dtype=np.int8))
    assert fill_block(whole, np.zeros(4)) is whole


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_medians_of_columns(container):
    rng = np.random.default_rng(0)
    sample = np.where(rng.random((41, 6)) < 0.4, 0.0, rng.normal(size=(41, 6)))
    sample[rng.random(sample.shape) < 0.3] = NAN
    sample[:, 5] = NAN
    found = column_medians(container(sample), np.arange(1, 6), np.full(6, 9.0))
    assert found[0] == found[5] == 9.0
    assert found[1:5].tolist() == np.nanmedian(sample[:, 1:5], axis=0).tolist()
