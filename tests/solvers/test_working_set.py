"""Row-sparse least squares on a set of rows: the optimum of all rows, however few fit the set."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks.proximal import row_norms
from mlfs_dask.solvers import row_sparse
from mlfs_dask.solvers.working_set import WorkingSet


def problem(seed=0, n=60, d=30, c=3, strong=6):
    rng = np.random.default_rng(seed)
    X, Y = rng.normal(size=(n, d)), rng.normal(size=(n, c))
    for row in range(strong):
        Y[:, row % c] += 3 * X[:, row]
    return X.T @ X, X.T @ Y


def solved(G, B, beta, max_rows, *, rounds=60, sizes=None):
    """The P of the set after so many rounds, each with a product, as a selector makes them."""

    def gram(rows):
        if sizes is not None:
            sizes.append(len(rows))
        return G[np.ix_(rows, rows)]

    P = np.linalg.solve(G + beta * np.eye(len(G)), B)
    epsilon = row_sparse.smoothing(P)
    working = WorkingSet(gram, len(G), max_rows)
    values = []
    for _ in range(rounds):
        GP = G @ P
        working.update_inactive_rows(P, GP, B, beta, epsilon)
        working.step(P, GP, B, beta, epsilon, diagonal=np.diag(G), max_iter=30, tol=1e-12)
        values.append(np.vdot(P, G @ P - 2 * B) + beta * row_sparse.penalty(P, epsilon))
    working.update_inactive_rows(P, G @ P, B, beta, epsilon)
    return P, epsilon, values, working


@pytest.mark.parametrize(("max_rows", "beta"), [(4, 60.0), (10, 150.0), (30, 5.0)])
def test_the_end_is_the_optimum_of_all_rows(max_rows, beta):
    G, B = problem()
    P, epsilon, values, working = solved(G, B, beta, max_rows, rounds=400)
    gradient = 2 * (G @ P - B)
    smooth = np.sqrt(row_norms(P) ** 2 + epsilon**2)[:, None]
    strong = row_norms(P) > 1e-3 * row_norms(P).max()
    assert gradient[strong] == pytest.approx(-(beta * P / smooth)[strong], abs=(3e-3 if max_rows == 4 else 1e-4) * beta)
    assert (row_norms(gradient[~strong]) <= beta * (1 + 1e-3)).all()
    assert working.violation <= 1e-5 * abs(values[-1])
    assert len(working.rows) <= max_rows
    assert strong.sum() > 4 or beta == 150.0


def test_sets_are_enlarged_step_by_step_and_read_for_no_more_once_they_stand(monkeypatch):
    monkeypatch.setattr("mlfs_dask.solvers.working_set.FIRST_ROWS", 2)
    G, B = problem()
    sizes = []
    solved(G, B, 60.0, 30, rounds=30, sizes=sizes)
    assert sizes[0] == 2
    assert sizes[1] <= 4
    assert max(sizes) < 30
    assert len(sizes) < 15


def test_rows_that_join_get_away_from_zero_in_a_few_steps(monkeypatch):
    monkeypatch.setattr("mlfs_dask.solvers.working_set.FIRST_ROWS", 2)
    G, B = problem()
    P = np.linalg.solve(G + 60.0 * np.eye(30), B)
    epsilon = row_sparse.smoothing(P)
    working = WorkingSet(lambda rows: G[np.ix_(rows, rows)], 30, 30)
    for _ in range(4):
        GP = G @ P
        working.update_inactive_rows(P, GP, B, 60.0, epsilon)
        working.step(P, GP, B, 60.0, epsilon, diagonal=np.diag(G), max_iter=2, tol=None)
    best = solved(G, B, 60.0, 30)[2][-1]
    value = np.vdot(P, G @ P - 2 * B) + 60.0 * row_sparse.penalty(P, epsilon)
    assert value - best < 0.005 * abs(best)
