"""Uncorrelated regression: against dense algebra, by a factor and by products, for any rank; what is refused."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.uncorrelated import (
    NystromSketch,
    Smoothing,
    SubspaceRegression,
    cholesky_solver,
    solve_gram,
    solve_products,
)


def problem(seed=0, n=120, d=40, q=4, theta=1.0):
    """R = X'(I + θL)X + diag(ridge), X, F and the ridge."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.geomspace(0.1, 3, d)
    X -= X.mean(axis=0)
    F = rng.normal(size=(n, q))
    F -= F.mean(axis=0)
    S = np.triu(rng.random((n, n)) < 0.03, 1).astype(float)
    S += S.T
    L = np.diag(S.sum(axis=1)) - S
    ridge = rng.uniform(0.1, 30, d)
    return X.T @ X + theta * X.T @ L @ X + np.diag(ridge), X, F


def dense(R, M):
    values, vectors = np.linalg.eigh(R)
    half = (vectors / np.sqrt(values)) @ vectors.T
    U, s, V = np.linalg.svd(half @ M, full_matrices=False)
    good = s > 1e-8 * s[0]
    return half @ U[:, good] @ V[good]


def by_products(R, M, *, tol=1e-11, max_iter=1000, start=None):
    return solve_products(lambda P: R @ P, M, np.diag(R), tol=tol, max_iter=max_iter, start=start)


@pytest.mark.parametrize("find", [solve_gram, by_products])
@pytest.mark.parametrize("theta", [0.0, 0.3, 5.0])
def test_equals_dense_algebra(find, theta):
    R, X, F = problem(theta=theta)
    found = find(R, X.T @ F)
    assert pytest.approx(dense(R, X.T @ F), abs=1e-8) == found.W
    assert pytest.approx(np.eye(4), abs=1e-8) == found.W.T @ R @ found.W
    assert found.rank == 4
    assert found.residual <= 1e-11


def test_steps_start_from_the_last_solution():
    """R and F change as they do in a loop; errors must not be carried on."""
    rng = np.random.default_rng(1)
    R, X, F = problem()
    F[:, 3] = F[:, 2] + 1e-4 * F[:, 3]  # a direction that is small beside the others
    first = found = by_products(R, X.T @ F)
    assert by_products(R, X.T @ F, start=first, tol=1e-10).steps == 0
    for _ in range(20):
        R = R + np.diag(0.01 * np.diag(R) * rng.random(len(R)))
        F = F + 1e-5 * rng.normal(size=F.shape)
        found = by_products(R, X.T @ F, start=found, tol=1e-9)
        assert found.residual <= 1e-9
        assert pytest.approx(dense(R, X.T @ F), abs=1e-7) == found.W
    near, far = (by_products(R * 1.001, X.T @ F, start=start, tol=1e-6).steps for start in (found, None))
    assert near < far


def test_what_is_not_finite_is_refused():
    R, X, F = problem()
    M = X.T @ np.where(F > 2, np.nan, F)
    for find in (solve_gram, by_products):
        with pytest.raises(
            MlfsError, match=r"met a value that is not finite\n  cure: look for values of X beyond 1e150"
        ):
            find(R, M)
    with pytest.raises(MlfsError, match="X'X is far from positive semidefinite"):
        cholesky_solver(np.array([[1.0, 2.0], [2.0, 1.0]]))


def test_memory_of_the_search_in_a_space():
    d, q = 5000, 20
    rng = np.random.default_rng(0)
    directions = rng.normal(size=(d, q))
    regression = SubspaceRegression(NystromSketch(directions, 2.0 * directions, 2.0 * d))
    smoothing = Smoothing(1.0, rng.normal(size=(10, d)), np.ones(10))
    M, ridge = rng.normal(size=(d, q)), np.ones(d)
    regression.direction = M.copy()
    tracemalloc.start()
    for _ in range(4):
        regression.solve(M, ridge, smoothing, 2.0 * regression.direction)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert 12 * 8 * d * q < peak < 15.2 * 8 * d * q
