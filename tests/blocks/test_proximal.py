"""Row shrinkage: by hand, and as the solution of its own problem."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks.proximal import row_norms, shrink_rows


def test_rows_shorter_than_the_threshold_vanish():
    W = np.array([[3.0, 4.0], [0.6, 0.8], [0.0, 0.0], [0.0, -2.0]])
    shrink_rows(W, 1.0)
    assert np.asarray(W) == pytest.approx(np.array([[2.4, 3.2], [0, 0], [0, 0], [0, -1]]))
    assert not W[1].any()


def test_shrinkage_by_nothing_changes_nothing():
    W = np.array([[1.0, 2.0], [0.0, 0.0]])
    assert shrink_rows(W.copy(), 0.0).tolist() == W.tolist()


def test_shrinkage_solves_its_problem():
    rng = np.random.default_rng(0)
    M = rng.normal(size=(5, 3))
    U = shrink_rows(M.copy(), 0.7)

    def value(U):
        return 0.5 * ((U - M) ** 2).sum() + 0.7 * row_norms(U).sum()

    for _ in range(100):
        assert value(U) <= value(U + 0.01 * rng.normal(size=U.shape))
