"""Keep-k-smallest of one group: by hand, ties, empty and single rows, equal to sorting all distances."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import gates, neighbours
from mlfs_dask.blocks.neighbours import NearestRows, Neighbours


def search(X, k, cuts, group=slice(None), *, compiled=False):
    nearest = NearestRows(X[group], group.start or 0, k, compiled=compiled)
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
    monkeypatch.setattr(gates, "QUERY_ROWS", 7)
    monkeypatch.setattr(gates, "CANDIDATE_ROWS", 64)
    monkeypatch.setattr(gates, "VALUES_AT_ONCE", 100)
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


def test_a_group_from_elsewhere_has_all_candidates_as_neighbours():
    nearest = NearestRows(np.array([[1.0], [9.0]]), None, 2)
    nearest.add(np.arange(4.0)[:, None], 0)
    assert nearest.indices.tolist() == [[1, 0], [3, 2]]
    assert nearest.distances.tolist() == [[0.0, 1.0], [36.0, 49.0]]


def texts(n=500, d=300, seed=0):
    """Sparse rows, some of them empty, equal, or with many more values than others."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < 0.03) * rng.integers(1, 4, size=(n, d)) * rng.choice([1.0, -0.3], size=(n, d))
    X[::50] = 0
    X[1::50] = X[3]
    X[7] = rng.normal(size=d)
    # Distances that differ by less than a product's rounding may be thought to be.
    X[200:260] = X[199]
    X[np.arange(200, 260), rng.integers(0, d, 60)] += np.sqrt(1e-9 * rng.random(60))
    return sp.csr_array(X)


@pytest.mark.parametrize("cuts", [[0, 500], [0, 1, 90, 90, 500]])
def test_the_compiled_search_of_sparse_rows_gives_the_same_bits(cuts, monkeypatch):
    X = texts()
    for group in (slice(0, 500), slice(60, 61), slice(100, 300)):
        expected = search(X, 9, [0, 500], group)
        distances = brute(X, 9)[1][group]
        assert expected.distances == pytest.approx(distances, rel=1e-12, abs=1e-11)
        for rows, pairs in ((16384, 2**19), (64, 100), (16, 70)):
            monkeypatch.setattr(gates, "SPARSE_ROWS", rows)
            monkeypatch.setattr(gates, "SPARSE_PAIRS", pairs)
            found = search(X, 9, cuts, group, compiled=True)
            assert found.indices.tolist() == expected.indices.tolist()
            assert found.distances.tobytes() == expected.distances.tobytes()


def test_the_compiled_search_takes_features_in_any_order():
    X = texts(300)
    mixed = X.copy()
    for row in range(300):
        part = slice(*mixed.indptr[row : row + 2])
        mixed.indices[part], mixed.data[part] = mixed.indices[part][::-1].copy(), mixed.data[part][::-1].copy()
    mixed.has_sorted_indices = False
    expected, found = search(X, 5, [0, 300]), search(mixed, 5, [0, 300], compiled=True)
    assert found.indices.tolist() == expected.indices.tolist()
    assert found.distances == pytest.approx(expected.distances, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("scale", [1e-200, 1e-25, 1e-9, 1.0, 1e11, 1e25, 1e140])
def test_products_in_single_precision_lose_no_neighbour_of_any_size(scale, monkeypatch):
    rng = np.random.default_rng(3)
    # Differences that single precision cannot tell: a tight cluster far from others.
    X = rng.normal(size=(400, 7))
    X[100:250] = X[100] + 1e-5 * rng.normal(size=(150, 7))
    X[5] *= 1e6
    X *= scale
    expected = brute(X, 6)[0]
    found = search(X, 6, [0, 130, 400])
    tight = np.arange(100, 250)
    rest = np.setdiff1d(np.arange(400), [*tight, 5])
    assert found.indices[rest].tolist() == expected[rest].tolist()
    # Of the cluster, too, but for distances that 42 digits of |q|² + d² cannot tell.
    shares = [len({*a} & {*b}) / 6 for a, b in zip(found.indices[tight], expected[tight], strict=True)]
    assert np.mean(shares) > 0.99
    monkeypatch.setattr(neighbours, "SINGLE_PRECISION", (np.inf, 0.0))
    double = search(X, 6, [0, 400])
    assert double.indices.tolist() == found.indices.tolist()
    assert double.distances.tobytes() == found.distances.tobytes()


def test_a_graph_keeps_neighbours_at_distance_zero():
    graph = Neighbours(np.array([[2, 1], [0, 2], [0, 1]]), np.array([[0.0, 3.0], [1.0, 2.0], [0.0, 5.0]])).to_csr()
    assert graph.nnz == 6
    assert graph.toarray().tolist() == [[0, 3, 0], [1, 0, 2], [0, 5, 0]]
    assert graph.has_canonical_format
