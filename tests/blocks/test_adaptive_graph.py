"""Adaptive graphs: weights by hand, the optimum of their problem, ties, few neighbours."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlfs_dask.blocks.adaptive_graph import column_graph, neighbours_used, simplex_weights


def project_on_simplex(v):
    """Closest point of the simplex, by sorting."""
    u = np.sort(v)[::-1]
    shift = (np.cumsum(u) - 1) / np.arange(1, len(u) + 1)
    return np.maximum(v - shift[np.flatnonzero(u > shift)[-1]], 0)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 6), st.integers(0, 6))
def test_weights_solve_their_problem_with_the_alpha_they_come_with(seed, k, more):
    distances = np.sort(np.random.default_rng(seed).random((3, k + 1 + more)), axis=1)
    weights, alpha = simplex_weights(distances[:, : k + 1], k, np.ones(3))
    for i in range(3):
        whole = project_on_simplex(-distances[i] / (2 * alpha[i]))  # Eq. 19
        assert whole[:k] == pytest.approx(weights[i], abs=1e-9)
        assert whole[k:] == pytest.approx(0, abs=1e-9)


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


def test_slack_takes_weight_away():
    plain, _ = simplex_weights(np.array([[1.0, 2.0, 4.0]]), 2, np.ones(1))
    less, _ = simplex_weights(np.array([[1.0, 2.0, 4.0]]), 2, np.ones(1), slack=5.0)
    assert less == pytest.approx(plain / 2)


@pytest.mark.parametrize(("k", "m", "used"), [(5, 1, 0), (5, 2, 1), (5, 3, 1), (5, 6, 4), (2, 6, 2), (1, 100, 1)])
def test_neighbours_used(k, m, used):
    assert neighbours_used(k, m) == used


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
