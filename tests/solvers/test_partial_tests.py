"""Partial t-tests and knockoffs from sums, against fits and knockoffs that are formed."""

import numpy as np
import pytest

from mlfs_dask.solvers import partial_tests
from mlfs_dask.solvers.partial_tests import (
    factored,
    knockoff_correlations,
    knockoff_q_values,
    lasso_statistics,
    maximum_entropy,
)


def problem(n=400, d=12, q=3, seed=0):
    """Standardised X that is correlated, and labels that it predicts."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) + 0.7 * rng.normal(size=(n, 1))
    Y = X[:, :q] + rng.normal(size=(n, q))
    X, Y = ((A - A.mean(axis=0)) / A.std(axis=0) for A in (X, Y))
    return X, Y, X.T @ X / n, X.T @ Y / n


def fixed_knockoffs(X, R, s, rng):
    """X(I − R⁻¹D) + U V^½ with U orthonormal and orthogonal to the ones and X, times √n: the knockoffs themselves."""
    n, d = X.shape
    base = np.concatenate([np.ones((n, 1)), X, rng.normal(size=(n, d))], axis=1)
    U = np.linalg.qr(base)[0][:, d + 1 :] * np.sqrt(n)
    inverse = np.linalg.inv(R)
    V = np.diag(2 * s) - np.diag(s) @ inverse @ np.diag(s)
    return X @ (np.eye(d) - inverse @ np.diag(s)) + U @ np.linalg.cholesky(V).T


def test_of_features_without_a_triangle_there_is_none():
    _, _, R, _ = problem()
    R[1], R[:, 1] = R[0], R[:, 0]
    R[1, 1] = 1.0
    found = factored(R)
    assert found is None or found.least_eigenvalue < 1e-10


@pytest.mark.parametrize("d", [1, 5, 80])
def test_least_eigenvalue_and_diagonal_of_the_inverse(d):
    _, _, R, _ = problem(d=d, q=1)
    found = factored(R)
    assert found.least_eigenvalue == pytest.approx(np.linalg.eigvalsh(R)[0], rel=1e-2)
    np.testing.assert_allclose(found.inverse_diagonal, np.diag(np.linalg.inv(R)), rtol=1e-9)


def test_maximum_entropy_is_stationary():
    _, _, R, _ = problem(d=30)
    s = maximum_entropy(R)
    stationary = s * np.diag(np.linalg.inv(2 * R - np.diag(s)))
    assert ((np.abs(stationary - 1) < 1e-2) | (s == 1.0)).all()
    assert np.linalg.eigvalsh(2 * R - np.diag(s))[0] > 0


def test_correlations_of_knockoffs_have_the_moments_of_knockoffs_that_are_formed():
    X, Y, R, r = problem(n=200, d=6, q=2)
    n, d = X.shape
    rng = np.random.default_rng(1)
    s, R_ = maximum_entropy(R), factored(R)
    residual = (Y.T @ Y / n - r.T @ np.linalg.solve(R, r)) * n / (n - d - 1)
    formed = np.array([fixed_knockoffs(X, R, s, rng).T @ Y / n for _ in range(2000)])
    drawn = np.array([knockoff_correlations(R_, s, r, residual, rng.standard_normal((d, 2)), n) for _ in range(2000)])
    error = formed.std(axis=0) / np.sqrt(2000)
    assert (np.abs(formed.mean(axis=0) - drawn.mean(axis=0)) < 5 * np.sqrt(2) * error).all()
    np.testing.assert_allclose(drawn.std(axis=0) / formed.std(axis=0), 1.0, atol=0.08)
    # The Gram matrix of features and knockoffs is the same when a pair of them is swapped.
    K = fixed_knockoffs(X, R, s, rng)
    np.testing.assert_allclose(K.T @ K / n, R, atol=1e-10)
    np.testing.assert_allclose(X.T @ K / n, R - np.diag(s), atol=1e-10)


@pytest.mark.parametrize("steps", [1, 5, 200])
def test_swapped_features_change_the_sign_of_their_own_statistics_alone(steps, monkeypatch):
    X, _, R, r = problem(d=8)
    monkeypatch.setattr(partial_tests, "LASSO_STEPS", steps)
    s, rng = maximum_entropy(R), np.random.default_rng(2)
    knockoffs = r + 0.05 * rng.standard_normal(r.shape)
    swapped = np.array([True, False] * 4)
    W = lasso_statistics(R, s, r, knockoffs, len(X))
    turned = lasso_statistics(
        R, s, np.where(swapped[:, np.newaxis], knockoffs, r), np.where(swapped[:, np.newaxis], r, knockoffs), len(X)
    )
    assert np.abs(W).max() > 0
    np.testing.assert_allclose(turned, np.where(swapped[:, np.newaxis], -W, W), atol=1e-12)


def test_a_short_list_cannot_be_certified():
    statistics = np.array([9.0, 8.0, 7.0, 6.0, 0.0, 0.0])
    assert knockoff_q_values(statistics).tolist() == [0.25, 0.25, 0.25, 0.25, 1.0, 1.0]
    assert knockoff_q_values(np.append(statistics, 5.0)).tolist() == [0.2] * 4 + [1.0, 1.0, 0.2]
    # One below −5 among those above 5 takes the level there; above it nothing changes.
    assert knockoff_q_values(np.append(statistics, [5.0, -5.5])).tolist() == [0.25] * 4 + [1, 1, 0.4, 1.0]
