"""Quadratic programs on the simplex: conditions of optimality, a general minimiser, and what the end tells."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from mlfs_dask.solvers import simplex
from mlfs_dask.solvers.low_rank import LowRankPlusDiagonal
from mlfs_dask.solvers.simplex import principal_submatrix, solve_on_simplex


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


def test_what_all_features_share_makes_no_steps_small():
    """Columns sum to 1: a constant added to Q changes no move between them, though its largest eigenvalue is 300."""
    rng = np.random.default_rng(0)
    F, R = rng.random((300, 20)), rng.random((300, 4))
    Q = F @ F.T / 20 + 0.1 * np.eye(300)
    expected, found = (solve_on_simplex(A, R, tol=1e-10, max_iter=5000) for A in (Q - Q.min(), Q + 1.0))
    assert found.converged
    assert len(found.objective) < 200
    assert pytest.approx(expected.W, abs=1e-4) == found.W


@pytest.mark.parametrize("coupled", [False, True])
@pytest.mark.parametrize("low_rank", [False, True])
def test_rows_that_are_left_out_too_early_come_back(low_rank, coupled, monkeypatch):
    sizes, growing = [], 0

    def recorded(Q, rows):
        sizes.append(len(rows))
        return principal_submatrix(Q, rows)

    monkeypatch.setattr(simplex, "principal_submatrix", recorded)
    for seed in range(10):
        rng = np.random.default_rng(seed)
        F, R, L = rng.random((300, 3)), rng.random((300, 3)), problem()[2] if coupled else None
        Q = F @ F.T + 0.1 * np.eye(300)
        monkeypatch.setattr(simplex, "SHRINK_AFTER", 10**9)
        whole = solve_on_simplex(Q, R, L, tol=1e-12, max_iter=20_000)
        assert not sizes
        monkeypatch.setattr(simplex, "SHRINK_AFTER", 1)
        parts = LowRankPlusDiagonal(F, np.ones(3), np.full(300, 0.1)) if low_rank else Q
        found = solve_on_simplex(parts, R, L, tol=1e-12, max_iter=20_000)
        assert found.converged
        assert found.objective[-1] == pytest.approx(whole.objective[-1], rel=1e-11)
        assert pytest.approx(whole.W, abs=1e-5) == found.W
        gradient = Q @ found.W - R + (0 if L is None else found.W @ L)
        assert found.multipliers == pytest.approx(gradient - gradient.min(axis=0), abs=1e-12)
        assert max(sizes) <= 150
        growing += any(later > before for before, later in itertools.pairwise(sizes))
        sizes.clear()
    assert growing
