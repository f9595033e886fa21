"""Uncorrelated regression: against dense algebra, by a factor, by products and in a moving space; what is refused."""

from __future__ import annotations

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
from tests.reference.anchors import row_weights


def problem(theta=1.0, n=120, d=40, q=4):
    """R = X'(I + θL)X + diag(ridge), X and F."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * np.geomspace(0.1, 3, d)
    X -= X.mean(axis=0)
    F = rng.normal(size=(n, q))
    F -= F.mean(axis=0)
    S = np.triu(rng.random((n, n)) < 0.03, 1).astype(float)
    S += S.T
    L = np.diag(S.sum(axis=1)) - S
    return X.T @ (X + theta * L @ X) + np.diag(rng.uniform(0.1, 30, d)), X, F


def dense(R, M):
    values, vectors = np.linalg.eigh(R)
    half = (vectors / np.sqrt(values)) @ vectors.T
    U, s, V = np.linalg.svd(half @ M, full_matrices=False)
    good = s > 1e-8 * s[0]
    return half @ U[:, good] @ V[good]


def by_products(R, M, *, tol=1e-11, start=None):
    return solve_products(lambda P: R @ P, M, np.diag(R), tol=tol, max_iter=1000, start=start)


def test_steps_start_from_the_last_solution():
    """R and F change as they do in a loop; errors must not be carried on."""
    rng = np.random.default_rng(1)
    R, X, F = problem()
    F[:, 3] = F[:, 2] + 1e-4 * F[:, 3]  # a direction that is small beside the others
    found = by_products(R, X.T @ F)
    assert by_products(R, X.T @ F, start=found, tol=1e-10).steps == 0
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
        with pytest.raises(MlfsError, match=r"met a value that is not finite\n  cure: look for values of X beyond"):
            find(R, M)
    with pytest.raises(MlfsError, match="X'X is far from positive semidefinite"):
        cholesky_solver(np.array([[1.0, 2.0], [2.0, 1.0]]))


# ---------------------------------------------------------------- without X'X


def rows(n=200, d=30, q=3, m=12):
    """X'X of a spectrum that falls, M, the ridge, and the smoothing of anchors."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)) * np.geomspace(3, 0.1, d) @ np.linalg.qr(rng.normal(size=(d, d)))[0]
    X -= X.mean(axis=0)
    Z = np.c_[row_weights(X, X[:m], 3), np.zeros(n)]  # the last anchor has no rows
    return X.T @ X, X.T @ rng.normal(size=(n, q)), rng.uniform(0.5, 2, d), Smoothing(2.0, Z.T @ X, Z.sum(axis=0))


def sketch_of(G, r):
    Omega = np.random.default_rng(1).normal(size=(len(G), r))
    return NystromSketch(Omega, G @ Omega, float(np.trace(G)))


@pytest.mark.parametrize("r", [1, 5, 30])
def test_in_a_moving_space_w_comes_to_that_of_the_gram_matrix_when_all_rests(r):
    G, M, ridge, smoothing = rows()
    means = smoothing.ZX[:-1] / smoothing.masses[:-1, np.newaxis]
    R = (1 + smoothing.theta) * G + np.diag(ridge) - smoothing.theta * smoothing.ZX[:-1].T @ means
    wanted = solve_gram(R, M).W
    regression = SubspaceRegression(sketch_of(G, r))
    regression.direction = M
    residuals = []
    for _ in range(200):
        found = regression.solve(M, ridge, smoothing, G @ regression.direction)
        residuals.append(found.residual)
        saved = regression.state()
        assert saved["basis"].shape[1] <= 6
        assert saved["images"] == pytest.approx(G @ saved["basis"], rel=1e-8, abs=1e-8)
    assert np.linalg.norm(found.W - wanted) <= 1e-7 * np.linalg.norm(wanted)
    assert residuals[-1] <= 1e-7
    assert residuals[0] > 1e-3 or r == 30
    # What is saved is all that it needs to go on.
    again = SubspaceRegression(sketch_of(G, r))
    again.restore(regression.state())
    image = G @ regression.direction
    one, other = (each.solve(M, ridge, smoothing, image).W for each in (regression, again))
    assert one.tolist() == other.tolist()


@pytest.mark.parametrize("r", [1, 4, 10, 30])
def test_a_sketch_is_the_inverse_of_what_it_knows(r):
    """What it knows of less than the mean of the rest counts as this mean."""
    G, M, ridge, _ = rows()
    sketch = sketch_of(G, r)
    known = sketch.rest * np.eye(30) + sketch.vectors @ np.diag(sketch.excess) @ sketch.vectors.T
    found = sketch.precondition(M, ridge, 3.0)
    assert found == pytest.approx(np.linalg.solve(3.0 * known + np.diag(ridge), M), rel=1e-9, abs=1e-12)
    largest = np.linalg.eigvalsh(G)[-1]
    assert sketch.rest + sketch.excess.max(initial=0.0) <= largest * (1 + 1e-9)
    if r >= 10:
        assert sketch.rest + sketch.excess.max() >= 0.9 * largest
    if r == 30:
        assert known == pytest.approx(G, rel=1e-6, abs=1e-8)


def test_a_sketch_of_more_directions_than_the_rank():
    """X of rank 20 with 55 features, some of them copies: rounding makes Ω'X'XΩ indefinite."""
    failed = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        B = rng.normal(size=(300, 20)) @ rng.normal(size=(20, 55))
        G, Omega = np.zeros((60, 60)), np.zeros((60, 55))
        G[:55, :55], Omega[:55] = B.T @ B, rng.normal(size=(55, 55))
        sketch = NystromSketch(Omega, G @ Omega, float(np.trace(G)))
        assert len(sketch.excess) <= 55
        assert np.sort(sketch.rest + sketch.excess)[-20:] == pytest.approx(np.linalg.eigvalsh(G)[-20:], rel=1e-6)
        residual, ridge = rng.normal(size=(60, 3)), rng.uniform(0.5, 2, 60)
        expected = np.linalg.solve(G + np.diag(ridge), residual)
        assert sketch.precondition(residual, ridge, 1.0) == pytest.approx(expected, abs=1e-6)
        try:
            np.linalg.cholesky(Omega.T @ G @ Omega)
        except np.linalg.LinAlgError:
            failed += 1
    assert failed
