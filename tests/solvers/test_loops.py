"""Loops of ELC and of mFSIR on small matrices: conditions of optimality, ties, objectives that never rise, limits."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.solvers.padm import best_mask, solve_corrected

# ---------------------------------------------------------------- ELC


DEFAULTS = {"lambda_": 0.1, "beta": 1.0, "mask_iter": 200, "tol": 1e-3, "gap_tol": 1e-3, "max_iter": 5000}


def corrected_problem(seed=0, q=4, d=12, k=5):
    rng = np.random.default_rng(seed)
    A, Gamma = 30 * rng.normal(size=(q, d)), 50 * rng.normal(size=(q, q))
    mask = np.zeros(d, dtype=bool)
    mask[:k] = True
    return A, Gamma, mask, np.arange(d)


def test_best_mask_takes_the_smallest_and_breaks_ties_by_preference():
    r = np.array([0.0, -5.0, 1e-12, 3.0, -0.0])
    assert best_mask(r, 1, np.arange(5)).tolist() == [False, True, False, False, False]
    # 1e-12 is rounding beside 5: three features are equal, and the preferred one is taken.
    assert best_mask(r, 2, np.array([3, 2, 0, 4, 1])).tolist() == [False, True, True, False, False]
    assert best_mask(np.zeros(3), 2, np.array([2, 0, 1])).tolist() == [False, True, True]


@pytest.mark.parametrize("q", [4, 9])  # fewer and more labels than features in the mask
def test_the_fixed_point_is_the_group_lasso_on_the_mask(q):
    A, Gamma, mask, order = corrected_problem(q=q)
    found = solve_corrected(A, Gamma, mask, order, **DEFAULTS | {"tol": 1e-10, "gap_tol": 1e-10, "max_iter": 200_000})
    assert found.converged
    assert found.mask.sum() == 5
    lambda_ = 0.1 * np.linalg.norm(A.T @ Gamma, axis=1).max()
    gradient = A.T @ (A[:, found.mask] @ found.W[found.mask] - Gamma)
    for f in np.flatnonzero(found.mask):
        size = np.linalg.norm(found.W[f])
        if size > 1e-8:  # stationary: the gradient balances the penalty
            assert gradient[f] == pytest.approx(-lambda_ * found.W[f] / size, rel=1e-4, abs=1e-4 * lambda_)
        else:
            assert np.linalg.norm(gradient[f]) <= lambda_ * (1 + 1e-6)
    assert np.linalg.norm(found.W[~found.mask]) <= 1e-6 * np.linalg.norm(found.W)
    fit = np.linalg.norm(A[:, found.mask] @ found.W[found.mask] - Gamma) ** 2
    penalty = lambda_ * np.linalg.norm(found.W, axis=1).sum()
    assert found.objective[-1] == pytest.approx(0.5 * fit + penalty, rel=1e-8)


def test_the_start_does_not_depend_on_the_signs_of_eigenvectors():
    A, Gamma, mask, order = corrected_problem(1)
    one = solve_corrected(A, Gamma, mask, order, **DEFAULTS)
    other = solve_corrected(A, Gamma * [1, -1, 1, -1], mask, order, **DEFAULTS)
    assert other.residual == pytest.approx(one.residual, rel=1e-9)
    assert other.mask.tolist() == one.mask.tolist()


# ---------------------------------------------------------------- mFSIR
