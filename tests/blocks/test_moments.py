"""Moments of one block and their merging: against NumPy in extended precision, for any cut."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks.moments import ColumnMoments, add_zeros, merge_moments, moments_block


def zero(d):
    return ColumnMoments(np.zeros(d, np.int64), np.zeros(d), np.zeros(d))


def cut(data, total):
    cuts = sorted(data.draw(st.lists(st.integers(0, total), max_size=4)))
    return list(zip([0, *cuts], [*cuts, total], strict=True))


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
