"""Keep-k-smallest of one group: by hand, ties, empty and single rows, equal to sorting all distances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import neighbours
from mlfs_dask.blocks.neighbours import NearestRows


def search(X, k, cuts, group=slice(None)):
    nearest = NearestRows(X[group], group.start or 0, k)
    for low, high in itertools.pairwise(cuts):
        nearest.add(X[low:high], low)
    return nearest


def brute(X, k):
    X = np.asarray(X.todense()) if sp.issparse(X) else X
    D = ((X[:, None] - X) ** 2).sum(axis=2)
    np.fill_diagonal(D, np.inf)
    order = np.argsort(D, axis=1, kind="stable")[:, :k]
    return order, np.take_along_axis(D, order, axis=1)


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
def test_a_small_case_by_hand(make):
    X = make(np.array([[0.0, 0], [3, 4], [0, 1], [0, 0], [3, 4]]))
    nearest = search(X, 2, [0, 5])
    assert nearest.indices.tolist() == [[3, 2], [4, 2], [0, 3], [0, 2], [1, 2]]
    assert nearest.distances.tolist() == [[0, 1], [0, 18], [1, 1], [0, 1], [0, 18]]


@pytest.mark.parametrize("make", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("cuts", [[0, 40], [0, 1, 2, 40], [0, 0, 7, 7, 33, 40], list(range(41))])
def test_any_cut_equals_sorting_all_distances_ties_included(make, cuts):
    rng = np.random.default_rng(0)
    X = rng.integers(0, 3, size=(40, 3)).astype(float)  # many equal rows and equal distances
    order, distances = brute(X, 6)
    for group in (slice(0, 40), slice(5, 6), slice(17, 39)):
        nearest = search(make(X), 6, cuts, group)
        assert nearest.indices.tolist() == order[group].tolist()
        assert nearest.distances.tolist() == distances[group].tolist()


def test_tiles_of_any_size_give_the_same_bits(monkeypatch):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(300, 17)) + 5
    X[::7] = X[3]
    expected = search(X, 9, [0, 300])
    order, distances = brute(X, 9)
    assert expected.indices.tolist() == order.tolist()
    assert expected.distances == pytest.approx(distances, rel=1e-12)
    monkeypatch.setattr(neighbours, "QUERY_ROWS", 7)
    monkeypatch.setattr(neighbours, "TILE_ROWS", 64)
    monkeypatch.setattr(neighbours, "TILE_VALUES", 100)
    found = search(X, 9, [0, 11, 150, 300])
    assert (found.indices == expected.indices).all()
    assert (found.distances == expected.distances).all()


def test_rows_far_from_zero_and_one_far_from_all_keep_their_order():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 4)) + 1e3
    X[13] = 1e9
    nearest = search(X, 5, [0, 20, 60])
    order, distances = brute(X, 5)
    rest = np.arange(60) != 13
    assert nearest.indices[rest].tolist() == order[rest].tolist()
    assert nearest.distances[rest] == pytest.approx(distances[rest], rel=1e-12)


def test_fewer_candidates_than_k_leave_places_empty():
    X = np.array([[0.0], [1.0]])
    nearest = search(X, 3, [0, 2])
    assert nearest.indices.tolist() == [[1, -1, -1], [0, -1, -1]]
    assert np.isinf(nearest.distances[:, 1:]).all()


def test_a_copy_goes_on_apart():
    X = np.arange(6.0)[:, None]
    nearest = NearestRows(X, 0, 1)
    nearest.add(X[:3], 0)
    other = nearest.copy()
    other.add(X[3:], 3)
    assert nearest.indices[5].tolist() == [2]
    assert other.indices[5].tolist() == [4]
