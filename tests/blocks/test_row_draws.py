"""Draws for rows: from their numbers alone, of the distribution that is meant."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlfs_dask.blocks.row_draws import row_bits, shuffled_places


@settings(max_examples=50)
@given(st.integers(0, 500), st.integers(0, 300), st.integers(1, 150), st.integers(0, 2**64 - 1))
def test_rows_draw_the_same_in_any_cut(start, rows, m, key):
    for draw in (row_bits, lambda start, rows, key: shuffled_places(start, rows, m, key)):
        whole = draw(0, start + rows, key)
        assert draw(start, rows, key).tolist() == whole[start:].tolist()


@settings(max_examples=50)
@given(st.integers(1, 200), st.integers(0, 2**64 - 1))
def test_every_place_is_given_once_in_every_run_of_rows(m, key):
    places = shuffled_places(0, 3 * m, m, key).reshape(3, m)
    assert np.sort(places, axis=1).tolist() == [list(range(m))] * 3


def test_a_row_gets_every_place_equally_often():
    m, keys = 12, 6000
    places = np.array([shuffled_places(30, 1, m, key)[0] for key in range(keys)])
    counts = np.bincount(places, minlength=m)
    assert ((counts - keys / m) ** 2 / (keys / m)).sum() < 32  # chi-squared with 11 degrees of freedom: p = 0.001


def test_keys_give_draws_that_are_uncorrelated():
    a, b = ((row_bits(0, 100_000, key) & np.uint64(1)).astype(float) for key in (1, 2))
    assert a.mean() == pytest.approx(0.5, abs=0.006)
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.012
