"""ReliefF of rows in memory: neighbours that tie, classes of one row, tiles of pairs."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.relief import label_set_classes, relief_scores


def test_rows_that_are_as_far_share_the_last_places():
    """All 40 rows of the other class are at distance 1 of the first row, and count alike."""
    share = np.linspace(1, 0, 40)
    X = np.vstack([[[0.0, 0.0]], np.stack([share, 1 - share], axis=1)])
    classes = np.array([0] + [1] * 40)
    # Of the others, the nearest rows of their class, and the only one of the other.
    hits = sum(np.sort(np.abs(share - share[i]))[1:4].mean() for i in range(40))
    misses = np.array([share.sum(), (1 - share).sum()])
    expected = (np.array([0.5, 0.5]) - hits + misses) / 41
    assert relief_scores(X, classes, 3) == pytest.approx(expected)
    order = np.random.default_rng(0).permutation(41)
    assert relief_scores(X[order], classes[order], 3) == pytest.approx(expected)


def test_pairs_in_tiles_and_sparse_rows_give_the_same(monkeypatch):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((60, 5)) < 0.5, rng.random((60, 5)), 0.0)
    classes = np.arange(60) % 4
    expected = relief_scores(X, classes, 3)
    monkeypatch.setattr(gates, "VALUES_AT_ONCE", 16)
    monkeypatch.setattr(gates, "QUERY_ROWS", 7)
    assert relief_scores(X, classes, 3) == pytest.approx(expected, abs=1e-13)
    assert relief_scores(sp.csr_array(X), classes, 3) == pytest.approx(expected, abs=1e-13)


def test_parts_of_the_rows_that_are_drawn_sum_to_the_whole():
    rng = np.random.default_rng(0)
    X, classes = rng.random((30, 4)), np.arange(30) % 3
    parts = [relief_scores(X, classes, 2, np.arange(30)[part]) for part in (slice(0, 11), slice(11, None))]
    assert sum(parts) == pytest.approx(relief_scores(X, classes, 2), abs=1e-13)


def test_a_class_of_one_row_has_no_hits():
    X = np.array([[0.0], [0.5], [1.0]])
    # The first row is alone in its class: its misses are 0.5 and 1, of which the nearest counts.
    assert relief_scores(X, np.array([0, 1, 1]), 1) == pytest.approx((0.5 + (0.5 - 0.5) + (1.0 - 0.5)) / 3)


def test_rare_label_sets_are_no_class():
    Y = sp.csr_array(np.array([[1, 0], [0, 0], [1, 0], [0, 0], [1, 1]], dtype=np.int8))
    assert label_set_classes(Y, 2).tolist() == [1, 0, 1, 0, -1]
    assert label_set_classes(Y, 1).tolist() == [1, 0, 1, 0, 2]
    assert label_set_classes(Y, 3).tolist() == [-1] * 5
