"""Row-sparse least squares: limits, all the ways to take a step, sets of rows; the mask of ELC."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.padm import best_mask, solve_corrected
from mlfs_dask.solvers.row_sparse import penalty, smoothing, solve_gram, solve_products
from mlfs_dask.solvers.working_set import WorkingSet


def problem(d=8, strong=1, n=60, c=3):
    """X'X and X'Y; the first features have a part in Y."""
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(n, c))
    for row in range(strong):
        Y[:, row % c] += 3 * X[:, row]
    return X.T @ X, X.T @ Y


def objective(G, B, P, beta, epsilon):
    return np.vdot(P, G @ P - 2 * B) + beta * penalty(P, epsilon)


def test_without_penalty_it_is_least_squares_even_where_features_repeat():
    G, B = problem()
    least = np.linalg.solve(G, B)
    assert pytest.approx(least) == solve_gram(G, B, 0.0, np.ones(8)).P
    for beta in (0.0, 1e-13):  # next to nothing is as good as nothing
        P = solve_gram(np.block([[G, G], [G, G]]), np.vstack([B, B]), beta, np.ones(16)).P
        assert pytest.approx(np.vstack([least, least]) / 2, rel=1e-5, abs=1e-8) == P


def test_products_alone_give_the_same_step():
    G, B = problem()
    B[:, 2] = 0.0  # what is left of a column is that of the worst
    t = np.linspace(0.1, 2, 8)
    calls = []

    def found(start, tol=1e-12, max_iter=100):
        calls.clear()
        normal = lambda V: calls.append(V.shape) or G @ V  # noqa: E731
        return solve_products(normal, B, 2.0, t, start=start, diagonal=np.diag(G), tol=tol, max_iter=max_iter)

    exact = solve_gram(G, B, 2.0, t).P
    close = found(0 * B)
    assert pytest.approx(exact, abs=1e-9) == close.P
    assert close.steps == len(calls)
    assert close.residual <= 1e-12
    assert found(exact, tol=1e-8).steps == 0
    loose = found(0 * B, max_iter=2)
    assert loose.steps == 2
    assert loose.residual > 1e-12


def test_weak_rows_are_solved_in_turns_with_the_strong_ones(monkeypatch):
    rng = np.random.default_rng(4)
    G, B = problem(d=40)
    t = np.where(rng.random(40) < 0.2, 1.0, 10.0 ** rng.uniform(-9, -6, 40))
    factorised = []
    original = row_sparse._factorised
    monkeypatch.setattr(
        row_sparse, "_factorised", lambda G, beta, root: factorised.append(len(G)) or original(G, beta, root)
    )
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


# ---------------------------------------------------------------- on a set of rows


def solved(beta, max_rows, *, rounds, steps=30, tol=1e-12):
    """P after so many rounds, each with a product, as selectors make them: its objectives, sizes of sets, and more."""
    G, B = problem(d=30, strong=6)
    P = np.linalg.solve(G + beta * np.eye(30), B)
    epsilon, values, sizes = smoothing(P), [], []
    working = WorkingSet(lambda rows: sizes.append(len(rows)) or G[np.ix_(rows, rows)], 30, max_rows)
    for _ in range(rounds):
        GP = G @ P
        working.update_inactive_rows(P, GP, B, beta, epsilon)
        working.step(P, GP, B, beta, epsilon, diagonal=np.diag(G), max_iter=steps, tol=tol)
        values.append(objective(G, B, P, beta, epsilon))
    working.update_inactive_rows(P, G @ P, B, beta, epsilon)
    return P, 2 * (G @ P - B), epsilon, values, sizes, working


@pytest.mark.parametrize(("max_rows", "beta"), [(4, 60.0), (10, 150.0), (30, 5.0)])
def test_the_end_is_the_optimum_of_all_rows_however_few_fit_the_set(max_rows, beta):
    P, gradient, epsilon, values, _, working = solved(beta, max_rows, rounds=400)
    smooth = np.sqrt(row_norms(P) ** 2 + epsilon**2)[:, None]
    strong = row_norms(P) > 1e-3 * row_norms(P).max()
    assert gradient[strong] == pytest.approx(-(beta * P / smooth)[strong], abs=(3e-3 if max_rows == 4 else 1e-4) * beta)
    assert (row_norms(gradient[~strong]) <= beta * (1 + 1e-3)).all()
    assert working.violation <= 1e-5 * abs(values[-1])
    assert len(working.rows) <= max_rows
    assert strong.sum() > 4 or beta == 150.0


def test_sets_grow_step_by_step_and_rows_that_join_get_away_from_zero_at_once(monkeypatch):
    monkeypatch.setattr("mlfs_dask.solvers.working_set.FIRST_ROWS", 2)
    *_, values, sizes, _ = solved(60.0, 30, rounds=30)
    assert sizes[0] == 2
    assert sizes[1] <= 4
    assert max(sizes) < 30
    assert len(sizes) < 15  # once they stand they are read for no more
    few = solved(60.0, 30, rounds=4, steps=2, tol=None)[3]
    assert few[-1] - values[-1] < 0.005 * abs(values[-1])


# ---------------------------------------------------------------- the mask of ELC


def test_best_mask_takes_the_smallest_and_breaks_ties_by_preference():
    r = np.array([0.0, -5.0, 1e-12, 3.0, -0.0])
    assert best_mask(r, 1, np.arange(5)).tolist() == [False, True, False, False, False]
    # 1e-12 is rounding beside 5: three features are equal, and the preferred one is taken.
    assert best_mask(r, 2, np.array([3, 2, 0, 4, 1])).tolist() == [False, True, True, False, False]
    assert best_mask(np.zeros(3), 2, np.array([2, 0, 1])).tolist() == [False, True, True]


def test_the_start_does_not_depend_on_the_signs_of_eigenvectors():
    rng = np.random.default_rng(1)
    A, Gamma = 30 * rng.normal(size=(4, 12)), 50 * rng.normal(size=(4, 4))
    given = {"lambda_": 0.1, "beta": 1.0, "mask_iter": 200, "tol": 1e-3, "gap_tol": 1e-3, "max_iter": 5000}
    one, other = (
        solve_corrected(A, Gamma * signs, np.arange(12) < 5, np.arange(12), **given)
        for signs in (np.ones(4), [1, -1, 1, -1])
    )
    assert other.residual == pytest.approx(one.residual, rel=1e-9)
    assert other.mask.tolist() == one.mask.tolist()
