"""Moments of one block and their merging: against NumPy in extended precision, for any cut."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.moments import ColumnMoments, add_zeros, merge_moments, moments_block


def zero(d):
    return ColumnMoments(np.zeros(d, np.int64), np.zeros(d), np.zeros(d))


def cut(data, total):
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    return list(zip([0, *cuts], [*cuts, total], strict=True))


@pytest.mark.parametrize("dtype", [np.uint8, np.int16, np.int64, np.float32, np.float64])
def test_dense_block_by_hand(dtype):
    counts, mean, m2 = moments_block(np.array([[1, 7], [2, 7], [6, 7]], dtype=dtype), np.array([1.0, 0.0]))
    assert counts.tolist() == [3, 3]
    assert mean.tolist() == [2.0, 7.0]
    assert m2.tolist() == [14.0, 0.0]


def test_sparse_block_counts_stored_values_until_zeros_are_added():
    X = sp.csr_array(np.array([[0, 5.0], [4, 5], [0, 5]]))
    moments = moments_block(X, np.zeros(2))
    assert moments.counts.tolist() == [1, 3]
    assert moments.mean.tolist() == [4.0, 5.0]
    counts, mean, m2 = add_zeros(moments, 3, np.zeros(2))
    assert counts.tolist() == [3, 3]
    assert mean == pytest.approx([4 / 3, 5])
    assert m2 == pytest.approx([32 / 3, 0])
    assert m2[1] == 0.0
    assert moments.counts.tolist() == [1, 3]  # what was given stays as it was


@pytest.mark.parametrize("X", [np.zeros((0, 2)), sp.csr_array((0, 2)), sp.csr_array((3, 2))])
def test_nothing_stored(X):
    counts, mean, m2 = moments_block(X, np.zeros(2))
    assert counts.tolist() == [0, 0] if X.shape[0] == 0 or sp.issparse(X) else [3, 3]
    assert mean.tolist() == m2.tolist() == [0.0, 0.0]


@settings(max_examples=50)
@given(st.data())
def test_any_cut_gives_the_moments_of_the_whole(data):
    rng = np.random.default_rng(data.draw(st.integers(0, 1000)))
    n = data.draw(st.integers(1, 40))
    centre = data.draw(st.sampled_from([0.0, 1.0, 1e8]))
    dense = centre + rng.normal(size=(n, 3)) * (rng.random((n, 3)) < 0.6)
    X = sp.csr_array(dense) if data.draw(st.booleans()) else dense
    total = zero(3)
    origin = dense[0] if X is dense else np.zeros(3)
    for first, last in cut(data, n):
        merge_moments(total, moments_block(X[first:last], origin))
    _, mean, m2 = add_zeros(total, n, origin)
    mean = mean + origin
    exact = dense.astype(np.longdouble)
    assert mean == pytest.approx(exact.mean(axis=0).astype(float), rel=1e-12, abs=1e-13)
    deviation = exact - exact.mean(axis=0)
    expected = (deviation**2).sum(axis=0).astype(float)
    # Zero is the origin of sparse data: a column of 10⁸ without zeros, which should not be sparse, loses digits.
    assert m2 == pytest.approx(expected, rel=1e-11 if X is dense or centre < 1e8 else 1e-6, abs=1e-12)


@settings(max_examples=30)
@given(st.data())
def test_a_constant_column_is_exactly_constant_for_any_cut(data):
    value = data.draw(st.sampled_from([0.1, 1e8 + 0.1, 1 / 3, -7.7e-5]))
    n = data.draw(st.integers(1, 30))
    dense = np.full((n, 1), value)
    X = sp.csr_array(dense) if data.draw(st.booleans()) else dense
    total = zero(1)
    for first, last in cut(data, n):
        merge_moments(total, moments_block(X[first:last], np.zeros(1)))
    _, mean, m2 = add_zeros(total, n, np.zeros(1))
    assert m2[0] == 0.0
    assert mean[0] == value


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("wrap", [np.asarray, sp.csr_array])
def test_values_that_are_no_numbers_show(bad, wrap):
    total = zero(2)
    merge_moments(total, moments_block(wrap(np.array([[1.0, 1.0], [2.0, bad]])), np.zeros(2)))
    merge_moments(total, moments_block(wrap(np.array([[1.0, 1.0]])), np.zeros(2)))
    _, mean, m2 = add_zeros(total, 3, np.zeros(2))
    assert np.isfinite(mean[0])
    assert np.isfinite(m2[0])
    assert not (np.isfinite(mean[1]) and np.isfinite(m2[1]))
