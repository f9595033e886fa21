"""Loops of ELC and of mFSIR on small matrices: conditions of optimality, ties, objectives that never rise, limits."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.blockwise import (
    Factors,
    Problem,
    solve_blockwise,
    solve_fixed,
    unit_rows,
)
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.solvers.padm import best_mask, solve_corrected
from mlfs_dask.solvers.trace import LoopTrace

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


class Dense:
    """Products with a matrix at hand, counted."""

    def __init__(self, Z):
        self.Z = Z
        self.calls = []

    def normal(self, W):
        self.calls.append("normal")
        return self.Z.T @ (self.Z @ W)

    def forward(self, W):
        self.calls.append("forward")
        return self.Z @ W

    def backward(self, V):
        self.calls.append("backward")
        return self.Z.T @ V


def problem(seed, *, n=40, d=8, q=4, alpha=1.0, beta=1.0, most=2, hub=False):
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < 0.4).astype(float)
    Z = rng.normal(size=(n, d)) @ np.diag(rng.uniform(0.1, 3, d))
    S = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.1), 1)
    if hub:
        S[0, 1:] = 1.0  # a row that all others have for a neighbour
    S = sp.csr_array(S + S.T)
    start = Factors(np.ones((d, most)), np.zeros((d, most)), rng.random((n, most)), unit_rows(rng.random((most, q))))
    return Problem(sp.csr_array(Y), Laplacian(S), Dense(Z), alpha, beta), start


def value(task, at):
    """Eq. 8, entry by entry."""
    Z, Y = task.products.Z, task.Y.toarray()
    L = np.diag(task.laplacian.degrees) - task.laplacian.graph.toarray()
    return (
        ((Z @ (at.G * at.H) - at.V) ** 2).sum()
        + task.alpha * ((Y - at.V @ at.B) ** 2).sum()
        + task.beta * np.trace(at.V.T @ L @ at.V)
    )


def rho(task):
    return float(np.linalg.eigvalsh(task.products.Z.T @ task.products.Z)[-1])


def solve(task, start, **given):
    options = {"rho": rho(task), "weight_steps": 3, "label_steps": 3, "tol": 0.0, "max_iter": 30, **given}
    trace = LoopTrace()
    solve_blockwise(task, start, trace, save=ignore, **options)
    return start, trace


def solve_printed(task, start, **options):
    trace = LoopTrace()
    solve_fixed(task, start, trace, save=ignore, **options)
    return start, trace


def ignore(at, trace):
    """In place of a checkpoint."""


@settings(max_examples=60)
@given(
    seed=st.integers(0, 10**6),
    alpha=st.sampled_from([0.0, 1e-3, 1.0, 1e3]),
    beta=st.sampled_from([0.0, 1e-2, 1.0, 1e3]),
    most=st.integers(1, 5),
    steps=st.tuples(st.integers(1, 4), st.integers(1, 4)),
    hub=st.booleans(),
    scale=st.sampled_from([1e-3, 1.0, 1e3]),
)
def test_the_objective_never_rises(seed, alpha, beta, most, steps, hub, scale):
    task, start = problem(seed, alpha=alpha, beta=beta, most=most, hub=hub)
    task.products.Z *= scale
    first = value(task, start)
    found, trace = solve(task, start, weight_steps=steps[0], label_steps=steps[1])
    values = np.array([first, *trace.objective])
    assert (np.diff(values) <= 1e-12 * first).all()
    assert values[-1] < first
    assert trace.objective[-1] == pytest.approx(value(task, found), rel=1e-9, abs=1e-9 * first)
    assert (found.V >= 0).all()
    assert (found.B >= 0).all()
    assert np.linalg.norm(found.B, axis=1) == pytest.approx(1)


def test_a_step_too_large_is_refused_in_words():
    task, start = problem(0)
    with pytest.raises(
        MlfsError, match=r"mFSIR diverged in iteration \d+: .* is not finite\n  cure: choose a smaller eta"
    ):
        solve_printed(task, start, eta=10.0, tol=0.0, max_iter=100)
