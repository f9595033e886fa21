"""Matrices of low rank plus a diagonal, Sylvester equations, the simplex, the largest eigenvalue."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlfs_dask.blocks.column_keys import key_places
from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers import simplex
from mlfs_dask.solvers.low_rank import LowRankPlusDiagonal, nystroem, solve_low_rank_sylvester
from mlfs_dask.solvers.simplex import principal_submatrix, solve_on_simplex
from mlfs_dask.solvers.spectral import BLOCK, MAX_PRODUCTS, largest_eigenvalue, starting_block
from mlfs_dask.solvers.sylvester import solve_symmetric_sylvester
from tests.conftest import published


def matrix(shift=0.3):
    F = np.random.default_rng(0).normal(size=(12, 6))
    return F @ F.T + shift * np.eye(12)


def dense(Q):
    return Q @ np.eye(len(Q.e))


def test_landmarks_that_are_copies_of_each_other_are_one():
    Q = matrix()[np.ix_([0, 0, 1, 2, 3, 3], [0, 0, 1, 2, 3, 3])]
    found = nystroem(Q[:, :4], np.arange(4), np.diag(Q))
    assert found.F.shape == (6, 3)
    assert dense(found)[:4] == pytest.approx(Q[:4], rel=1e-9)


def test_a_sylvester_equation_without_one_solution_is_refused():
    A = LowRankPlusDiagonal(np.ones((2, 1)), np.array([2.0]), np.array([1.0, 1.0]))  # eigenvalues 1 and 5
    for solve, given_A in ((solve_low_rank_sylvester, A), (solve_symmetric_sylvester, dense(A))):
        for shift in (-1.0, -5.0):
            with pytest.raises(MlfsError, match="no one solution"):
                solve(given_A, np.array([[shift]]), np.array([[1.0], [2.0]]))


def test_solutions_of_the_authors_of_grro():
    """Of five pairs of weights; the last makes the system indefinite."""
    given = published("grro")
    FF = np.zeros((72, 72))
    FF[np.triu_indices(72)] = given["FF"]
    FF = np.triu(FF, 1) + FF.T
    for alpha, beta, scores in zip(given["alpha"], given["beta"], given["scores"], strict=True):
        W = solve_symmetric_sylvester(np.eye(72) + alpha * FF, beta * given["LL"], given["FL"])
        assert W.sum(axis=1) == pytest.approx(scores, rel=1e-9, abs=1e-13)


# ---------------------------------------------------------------- quadratic programs on the simplex


def coupling():
    S = np.triu(np.random.default_rng(0).random((3, 3)), 1)
    return np.diag((S + S.T).sum(axis=1)) - S - S.T


@pytest.mark.parametrize("coupled", [False, True])
def test_the_solution_meets_the_conditions_of_optimality(coupled):
    rng = np.random.default_rng(0)
    F, R = rng.random((25, 8)), rng.random((25, 3))
    Q, L = F @ F.T / 8 + 0.1 * np.eye(25), coupling()
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
    sizes, growing, L = [], 0, coupling() if coupled else None
    recorded = lambda Q, rows: sizes.append(len(rows)) or principal_submatrix(Q, rows)  # noqa: E731
    monkeypatch.setattr(simplex, "principal_submatrix", recorded)
    for seed in range(6):
        rng = np.random.default_rng(seed)
        F, R = rng.random((300, 3)), rng.random((300, 3))
        Q, found = F @ F.T + 0.1 * np.eye(300), []
        for after, parts in ((10**9, Q), (1, LowRankPlusDiagonal(F, np.ones(3), np.full(300, 0.1)) if low_rank else Q)):
            assert not sizes
            monkeypatch.setattr(simplex, "SHRINK_AFTER", after)
            found.append(solve_on_simplex(parts, R, L, tol=1e-12, max_iter=20_000))
        whole, shrunk = found
        assert shrunk.converged
        assert shrunk.objective[-1] == pytest.approx(whole.objective[-1], rel=1e-11)
        assert pytest.approx(whole.W, abs=1e-5) == shrunk.W
        gradient = Q @ shrunk.W - R + (0 if L is None else shrunk.W @ L)
        assert shrunk.multipliers == pytest.approx(gradient - gradient.min(axis=0), abs=1e-12)
        assert max(sizes) <= 150
        growing += any(later > before for before, later in itertools.pairwise(sizes))
        sizes.clear()
    assert growing


# ---------------------------------------------------------------- the largest eigenvalue, from products alone


def drawn(d):
    return np.linalg.qr(np.random.default_rng(0).normal(size=(d, min(d, BLOCK))))[0]


def eigenvalue(A, calls=None, **options):
    def product(Q):
        if calls is not None:
            calls.append(Q.shape)
        return A @ Q

    return largest_eigenvalue(product, drawn(len(A)), **options)


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 80), st.integers(1, 200))
def test_it_is_above_and_close(seed, d, n):
    X = np.random.default_rng(seed).normal(size=(n, d))
    A, calls = X.T @ X, []
    exact, found = np.linalg.eigvalsh(A)[-1], eigenvalue(A, calls)
    assert exact * (1 - 1e-10) <= found <= exact * (1.02 if len(calls) < MAX_PRODUCTS else 1.1) + 1e-9
    assert calls[0] == (d, min(d, BLOCK))
    assert sum(columns for _, columns in calls) <= d
    assert found == eigenvalue(A)


def test_a_tolerance_is_reached_with_more_products():
    X = np.random.default_rng(0).normal(size=(1000, 300))
    A, few, many = X.T @ X, [], []
    exact, rough, close = np.linalg.eigvalsh(A)[-1], eigenvalue(A, few, tol=0.1), eigenvalue(A, many, tol=1e-4)
    assert len(few) < len(many) <= MAX_PRODUCTS
    assert exact < close == pytest.approx(exact, rel=2e-4)
    assert abs(close - exact) < abs(rough - exact)
    with pytest.raises(MlfsError, match=r"largest eigenvalue: a product of the operator is not finite\n  cure: look"):
        largest_eigenvalue(lambda Q: Q * np.inf, drawn(3))


@pytest.mark.parametrize("copies", [1, 40])
def test_by_the_keys_of_columns_their_order_has_no_part(copies):
    rng = np.random.default_rng(copies)
    X = rng.normal(size=(90, 30))
    X = np.concatenate([X, np.repeat(X[:, :1], copies, axis=1), np.zeros((90, 2))], axis=1)
    order, found = rng.permutation(X.shape[1]), []
    for Z in (X, X[:, order]):
        varies = np.ptp(Z, axis=0) > 0
        start = starting_block(key_places(Z, varies), varies)
        assert start.T @ start == pytest.approx(np.eye(start.shape[1]), abs=1e-9)
        assert start.shape == (len(varies), BLOCK)
        found.append(largest_eigenvalue((Z.T @ Z).dot, start))
    exact = np.linalg.eigvalsh(X.T @ X)[-1]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert exact * (1 - 1e-10) <= found[0] <= exact * 1.02
