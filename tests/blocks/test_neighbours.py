"""Nearest rows, equal to sorting all distances; graphs of them, and ReliefF."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import gates, neighbours
from mlfs_dask.blocks.adaptive_graph import column_graph, simplex_weights
from mlfs_dask.blocks.heat_kernel import degrees, heat_kernel_graph
from mlfs_dask.blocks.neighbours import NearestRows, Neighbours
from mlfs_dask.blocks.relief import relief_scores


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
@pytest.mark.parametrize("cuts", [[0, 40], [0, 1, 2, 40], [0, 0, 7, 7, 33, 40], list(range(41))])
def test_any_cut_and_tile_equals_sorting_all_distances_ties_included(make, cuts, request):
    rng = np.random.default_rng(0)
    whole = rng.integers(0, 3, size=(40, 3)).astype(float)  # many equal rows and equal distances
    far = rng.normal(size=(40, 17)) + 5
    expected = search(far, 9, [0, 40])
    assert expected.distances == pytest.approx(brute(far, 9)[1], rel=1e-12)
    for tiles in ("large", "small"):
        if tiles == "small":
            request.getfixturevalue("small_gates")
        order, distances = brute(whole, 6)
        for group in (slice(0, 40), slice(5, 6), slice(17, 39)):
            nearest = search(make(whole), 6, cuts, group)
            assert nearest.indices.tolist() == order[group].tolist()
            assert nearest.distances.tolist() == distances[group].tolist()
        found = search(far, 9, cuts)
        assert found.indices.tolist() == expected.indices.tolist() == brute(far, 9)[0].tolist()
        assert found.distances.tobytes() == expected.distances.tobytes()


def test_rows_far_from_zero_and_one_far_from_all_keep_their_order():
    rng = np.random.default_rng(2)
    X = rng.normal(size=(60, 4)) + 1e3
    X[13] = 1e9
    nearest = search(X, 5, [0, 20, 60])
    order, distances = brute(X, 5)
    rest = np.arange(60) != 13
    assert nearest.indices[rest].tolist() == order[rest].tolist()
    assert nearest.distances[rest] == pytest.approx(distances[rest], rel=1e-12)


def test_fewer_candidates_than_k_leave_places_empty_and_a_group_from_elsewhere_has_all():
    nearest = search(np.array([[0.0], [1.0]]), 3, [0, 2])
    assert nearest.indices.tolist() == [[1, -1, -1], [0, -1, -1]]
    assert np.isinf(nearest.distances[:, 1:]).all()
    nearest = NearestRows(np.array([[1.0], [9.0]]), None, 2)
    nearest.add(np.arange(4.0)[:, None], 0)
    assert nearest.indices.tolist() == [[1, 0], [3, 2]]
    assert nearest.distances.tolist() == [[0.0, 1.0], [36.0, 49.0]]


def texts(n=300, d=120, seed=0):
    """Sparse rows, some of them empty, equal, or with many more values than others."""
    rng = np.random.default_rng(seed)
    X = (rng.random((n, d)) < 0.06) * rng.integers(1, 4, size=(n, d)) * rng.choice([1.0, -0.3], size=(n, d))
    X[::50] = 0
    X[1::50] = X[3]
    X[7] = rng.normal(size=d)
    # Distances that differ by less than a product's rounding may be thought to be.
    X[200:260] = X[199]
    X[np.arange(200, 260), rng.integers(0, d, 60)] += np.sqrt(1e-9 * rng.random(60))
    return sp.csr_array(X)


@pytest.mark.parametrize("cuts", [[0, 300], [0, 1, 90, 90, 300]])
def test_the_compiled_search_of_sparse_rows_gives_the_same_bits(cuts, monkeypatch):
    X = texts()
    for group in (slice(0, 300), slice(60, 61), slice(100, 250)):
        expected = search(X, 9, [0, 300], group)
        distances = brute(X, 9)[1][group]
        assert expected.distances == pytest.approx(distances, rel=1e-12, abs=1e-11)
        for rows, pairs in ((16384, 2**19), (64, 100), (16, 70)):
            monkeypatch.setattr(gates, "SPARSE_ROWS", rows)
            monkeypatch.setattr(gates, "SPARSE_PAIRS", pairs)
            found = search(X, 9, cuts, group, compiled=True)
            assert found.indices.tolist() == expected.indices.tolist()
            assert found.distances.tobytes() == expected.distances.tobytes()


def test_the_compiled_search_takes_features_in_any_order():
    X = texts()
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


# ---------------------------------------------------------------- heat kernels


def directed(entries, n):
    """A graph with the entries (i, j, d²), zeros stored."""
    i, j, values = zip(*entries, strict=True)
    return sp.csr_array((np.array(values, dtype=float), (i, j)), shape=(n, n))


def test_an_edge_is_there_if_either_is_a_neighbour_of_the_other():
    graph = heat_kernel_graph(directed([(0, 1, 2.0), (1, 2, 1.0), (2, 1, 1.0), (3, 0, 0.0)], 4), 2.0)
    expected = np.zeros((4, 4))
    expected[0, 1] = expected[1, 0] = np.exp(-1)
    expected[1, 2] = expected[2, 1] = np.exp(-0.5)
    expected[3, 0] = expected[0, 3] = 1.0  # equal rows, whose distance is stored though it is 0
    assert graph.toarray() == pytest.approx(expected, rel=1e-15)
    assert degrees(graph) == pytest.approx(expected.sum(axis=1))
    assert degrees(graph).shape == (4,)


def test_rows_far_apart_have_no_weight_and_no_warning():
    graph = heat_kernel_graph(directed([(0, 1, 1e6), (1, 0, 1e6)], 2), 1.0)
    assert degrees(graph).tolist() == [0, 0]


# ---------------------------------------------------------------- adaptive graphs


def test_ties_within_rounding_share_the_weight():
    distances = np.array([[1.0, 1.0 + 1e-14, 1.0 + 2e-14], [0.0, 0.0, 1e-14], [1.0, 1.0, 2.0]])
    weights, alpha = simplex_weights(distances, 2, np.array([1.0, 1.0, 1.0]))
    assert weights.tolist() == [[0.5, 0.5]] * 3
    assert alpha.tolist() == [0, 0, 1]


def test_without_one_more_neighbour_all_weigh_the_same():
    weights, alpha = simplex_weights(np.array([[1.0, 5.0]]), 2, np.ones(1))
    assert weights.tolist() == [[0.5, 0.5]]
    assert alpha.tolist() == [0]
    assert simplex_weights(np.empty((2, 0)), 0, np.ones(2))[0].shape == (2, 0)


def test_columns_that_are_equal_share_the_weight():
    rng = np.random.default_rng(0)
    f, g = rng.random((2, 50))
    F = np.stack([f, f, f, g, f], axis=1)
    graph, beta, squares = column_graph(F.T @ F, 2)
    # Three columns are as near to the first as can be, and it is one of four that are near to g.
    assert graph[0] == pytest.approx([0, 1 / 3, 1 / 3, 1 / 8, 1 / 3])
    assert beta.tolist() == [0] * 5
    assert squares == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1 / 4, 1 / 3])
    order = [3, 1, 4, 0, 2]
    turned, _, _ = column_graph(F[:, order].T @ F[:, order], 2)
    assert turned == pytest.approx(graph[np.ix_(order, order)])


def test_no_more_than_k_at_one_distance_are_no_tie():
    F = np.array([[0.0, 1.0, -1.0, 5.0]])
    graph, beta, _ = column_graph(F.T @ F, 2)
    # Its two nearest have 1/2 each; it has 15/27, 35/67 and 11/31 of those of the others.
    assert graph[0] == pytest.approx([0, (1 / 2 + 15 / 27) / 2, (1 / 2 + 35 / 67) / 2, 11 / 62])
    assert beta[0] > 0


def test_one_column_has_no_neighbour():
    graph, beta, _ = column_graph(np.full((1, 1), 4.0), 5)
    assert graph.tolist() == [[0.0]]
    assert beta.tolist() == [0.0]


# ---------------------------------------------------------------- ReliefF


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
