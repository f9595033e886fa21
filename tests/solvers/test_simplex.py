"""Quadratic programs on the simplex: conditions of optimality, a general minimiser, and what the end tells."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.solvers.simplex import project_columns, solve_on_simplex
from tests.reference.global_information import least


def problem(m=25, c=3, seed=0):
    rng = np.random.default_rng(seed)
    F = rng.random((m, 8))
    Q = F @ F.T / 8 + 0.1 * np.eye(m)
    S = rng.random((c, c))
    S = np.triu(S, 1) + np.triu(S, 1).T
    return Q, rng.random((m, c)), np.diag(S.sum(axis=1)) - S


@pytest.mark.parametrize("coupled", [False, True])
def test_the_solution_meets_the_conditions_of_optimality(coupled):
    Q, R, L = problem()
    solution = solve_on_simplex(Q, R, L if coupled else None, tol=1e-13, max_iter=20_000)
    W, multipliers = solution.W, solution.multipliers
    assert solution.converged
    assert solution.gap <= 1e-13
    assert W.min() == 0
    assert W.sum(axis=0) == pytest.approx(1)
    gradient = Q @ W - R + (W @ L if coupled else 0)
    assert multipliers == pytest.approx(gradient - gradient.min(axis=0))
    assert np.where(W > 0, multipliers, 0) == pytest.approx(0, abs=1e-6)
    assert solution.objective[-1] == pytest.approx(min(solution.objective), rel=1e-14)


def test_the_solution_is_that_of_a_general_minimiser():
    Q, R, L = problem(m=8)
    expected = least(lambda W: np.vdot(W, 0.5 * (Q @ W + W @ L) - R), R.shape)
    found = solve_on_simplex(Q, R, L, tol=1e-13, max_iter=20_000)
    assert pytest.approx(expected, abs=1e-5) == found.W


def test_linear_objectives_have_all_weight_on_the_best():
    solution = solve_on_simplex(np.zeros((3, 3)), np.array([[0.2], [0.5], [0.1]]), tol=1e-13, max_iter=10)
    assert solution.W.ravel().tolist() == [0, 1, 0]
    assert solution.multipliers.ravel() == pytest.approx([0.3, 0, 0.4])
    assert solve_on_simplex(np.zeros((2, 2)), np.zeros((2, 1)), tol=1e-13, max_iter=10).converged


def test_too_few_iterations_are_told():
    Q, R, _ = problem()
    solution = solve_on_simplex(Q, R, tol=1e-13, max_iter=3)
    assert not solution.converged
    assert solution.gap > 1e-13
    assert len(solution.objective) == 4  # the start, and three iterations


def test_projections_are_the_nearest_points():
    rng = np.random.default_rng(1)
    W = rng.normal(size=(6, 2))
    expected = least(lambda V: np.sum((V - W) ** 2), W.shape)
    assert project_columns(W) == pytest.approx(expected, abs=1e-5)
    inside = np.abs(W) / np.abs(W).sum(axis=0)
    assert project_columns(inside) == pytest.approx(inside)
