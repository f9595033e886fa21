"""A candidate takes its place among the k nearest."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks.nearest_compiled import take_place


@pytest.mark.parametrize(
    ("value", "found", "best"),
    [
        (0, [9, 1, 2], [0, 1, 3]),
        (1, [1, 9, 2], [1, 1, 3]),  # behind one that is as near
        (4, [1, 2, 9], [1, 3, 4]),
    ],
)
def test_a_candidate_takes_its_place(value, found, best):
    indices, values = np.array([1, 2, 3]), np.array([1, 3, 5])
    take_place(indices, values, 9, value)
    assert indices.tolist() == found
    assert values.tolist() == best
