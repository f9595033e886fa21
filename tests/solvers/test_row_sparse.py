"""Reweighted row-sparse least squares: its own optimality condition, limits, and the two ways to take a step."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.row_sparse import penalty, smoothing, solve_gram, solve_products, weights


def problem(seed=0, n=40, d=8, c=3):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(n, c))
    Y[:, 0] += 3 * X[:, 1]
    return X.T @ X, X.T @ Y


def minimise(G, B, beta, steps, take=solve_gram):
    P, t, epsilon, values = np.zeros_like(B), np.ones(len(G)), None, []
    for _ in range(steps):
        P = take(G, B, beta, t).P
        epsilon = smoothing(P) if epsilon is None else epsilon
        t = weights(P, epsilon)
        values.append(np.vdot(P, G @ P - 2 * B) + beta * penalty(P, epsilon))
    return P, epsilon, values


@pytest.mark.parametrize("beta", [0.5, 20.0, 60.0])
def test_the_end_is_stationary_and_no_step_raises_the_objective(beta):
    G, B = problem()
    P, epsilon, values = minimise(G, B, beta, 400)
    assert (np.diff(values) <= 1e-12 * abs(values[-1])).all()
    gradient = 2 * (G @ P - B)
    smooth = np.sqrt(row_norms(P) ** 2 + epsilon**2)[:, None]
    assert gradient == pytest.approx(-beta * P / smooth, abs=1e-5 * np.abs(B).max())
    zero = row_norms(P) < 1e-4 * row_norms(P).max()
    assert (row_norms(gradient[zero]) <= beta * (1 + 1e-6)).all()
    assert zero.any() == (beta > 1)


def test_without_penalty_it_is_least_squares_even_where_features_repeat():
    G, B = problem()
    assert pytest.approx(np.linalg.solve(G, B)) == solve_gram(G, B, 0.0, np.ones(8)).P
    twice = np.block([[G, G], [G, G]])
    P = solve_gram(twice, np.vstack([B, B]), 0.0, np.ones(16)).P
    assert P[:8] == pytest.approx(P[8:])
    assert P[:8] == pytest.approx(np.linalg.solve(G, B) / 2)
    # Next to nothing is as good as nothing.
    P = solve_gram(twice, np.vstack([B, B]), 1e-13, np.ones(16)).P
    assert P[:8] == pytest.approx(np.linalg.solve(G, B) / 2, rel=1e-5, abs=1e-8)


def test_products_alone_give_the_same_step():
    G, B = problem()
    t = np.linspace(0.1, 2, 8)
    calls = []

    def normal(V):
        calls.append(V.shape)
        return G @ V

    exact = solve_gram(G, B, 2.0, t).P
    found = solve_products(normal, B, 2.0, t, start=0 * B, diagonal=np.diag(G), tol=1e-12, max_iter=100)
    assert pytest.approx(exact, abs=1e-9) == found.P
    assert found.steps == len(calls)
    assert found.residual <= 1e-12
    again = solve_products(normal, B, 2.0, t, start=exact, diagonal=np.diag(G), tol=1e-8, max_iter=100)
    assert again.steps == 0
    loose = solve_products(normal, B, 2.0, t, start=0 * B, diagonal=np.diag(G), tol=1e-12, max_iter=2)
    assert loose.steps == 2
    assert loose.residual > 1e-12


def test_weak_rows_are_solved_in_turns_with_the_strong_ones(monkeypatch):
    rng = np.random.default_rng(4)
    G, B = problem(d=40, n=60)
    t = np.where(rng.random(40) < 0.2, 1.0, 10.0 ** rng.uniform(-9, -6, 40))
    factorised = []
    original = row_sparse._factorised
    monkeypatch.setattr(
        row_sparse, "_factorised", lambda G, beta, root: factorised.append(len(G)) or original(G, beta, root)
    )
    monkeypatch.setattr(row_sparse, "_TURNS", 4)
    exact = np.linalg.solve(G + np.diag(2.0 / t), B)
    for start in (None, exact, rng.normal(size=B.shape)):
        found = solve_gram(G, B, 2.0, t, start=start).P
        assert found == pytest.approx(exact, rel=1e-7)
    assert max(factorised) < 20
    # Turns that do not settle give way to the whole.
    monkeypatch.setattr(row_sparse, "_TURNS", 1)
    factorised.clear()
    assert pytest.approx(exact, rel=1e-9) == solve_gram(G, B, 2.0, t).P
    assert factorised[-1] == 40


@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_memory_where_features_repeat_is_that_of_others(beta):
    d = 400
    X = np.random.default_rng(0).normal(size=(d, d))
    X[:, 1] = X[:, 0]
    G, B = X.T @ X, np.ones((d, 2))
    tracemalloc.start()
    solve_gram(G, B, beta, np.ones(d))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (row_sparse.SQUARE_MATRICES + 0.2) * 8 * d * d
