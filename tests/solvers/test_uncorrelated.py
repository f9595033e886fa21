"""Uncorrelated regression: against dense algebra, for any start, preconditioner and rank; what a solve reads."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.uncorrelated import (
    WINDOW,
    DiagonalPreconditioner,
    GramPreconditioner,
    Subspace,
    _Metric,
    inverse_root,
)
from tests.solvers.laplacians import DenseLaplacian


class Products:
    def __init__(self, X):
        self.X = X
        self.readings = 0

    def forward(self, W, out):
        self.readings += 1
        out[...] = self.X @ W
        return out

    def backward(self, V):
        self.readings += 1
        return self.X.T @ V


def problem(seed=0, n=120, d=40, q=4):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * np.geomspace(0.1, 3, d)
    X -= X.mean(axis=0)
    F = rng.normal(size=(n, q))
    F -= F.mean(axis=0)
    S = np.triu(rng.random((n, n)) < 0.03, 1).astype(float)
    S += S.T
    return X, F, np.diag(S.sum(axis=1)) - S, rng.uniform(0.1, 30, d)


def difference(found, expected):
    return float(np.abs(found - expected).max())


def dense(X, F, L, ridge, theta):
    R = X.T @ X + theta * X.T @ L @ X + np.diag(ridge)
    values, vectors = np.linalg.eigh(R)
    half = (vectors / np.sqrt(values)) @ vectors.T
    U, s, V = np.linalg.svd(half @ X.T @ F, full_matrices=False)
    good = s > 1e-8 * s[0]
    return half @ U[:, good] @ V[good]


def solve(space, products, F, L, ridge, theta, *, gram=True, tol=1e-9, max_expansions=200, first=None):
    X = products.X
    if gram:
        precondition = GramPreconditioner((1 + theta) * (X.T @ X), ridge, single=theta > 0)
    else:
        precondition = DiagonalPreconditioner((X * X).sum(axis=0), theta, ridge)
    return space.solve(
        F,
        products,
        laplacian=None if L is None else DenseLaplacian(L),
        theta=theta,
        ridge=ridge,
        precondition=precondition,
        tol=tol,
        max_expansions=max_expansions,
        first=first,
    )


@pytest.mark.parametrize("gram", [True, False])
@pytest.mark.parametrize("theta", [0.0, 0.3, 5.0])
def test_equals_dense_algebra_again_and_again(gram, theta):
    """R and F change as they do in the loop; the space that is kept must not carry errors on."""
    X, F, L, ridge = problem()
    rng = np.random.default_rng(1)
    products, space = Products(X), Subspace()
    for _ in range(40):
        found = solve(space, products, F, L, ridge, theta, gram=gram)
        expected = dense(X, F, L, ridge, theta)
        assert found.converged
        assert found.rank == 4
        assert difference(found.W, expected) < 1e-7 * np.abs(expected).max()
        assert difference(found.XW, X @ found.W) < 1e-10
        F = F + 0.05 * rng.normal(size=F.shape)
        F -= F.mean(axis=0)
        ridge = ridge * np.exp(0.2 * rng.normal(size=len(ridge)))


def test_a_solve_reads_twice_a_widening_and_goes_on_from_the_last():
    X, F, L, ridge = problem()
    products, space = Products(X), Subspace()
    first = solve(space, products, F, L, ridge, 1.0, first=X.T @ F)
    assert products.readings == 2 * first.expansions - 1
    again = solve(space, products, F, L, ridge * 1.001, 1.0)
    assert products.readings == 2 * (first.expansions + again.expansions) - 1
    assert again.expansions < first.expansions


def test_a_known_inverse_needs_one_widening():
    X, F, _, ridge = problem()
    found = solve(Subspace(), Products(X), F, None, ridge, 0.0, max_expansions=1)
    assert difference(found.W, dense(X, F, np.zeros((120, 120)), ridge, 0.0)) < 1e-10


def test_the_error_is_told_when_the_solve_is_cut_short():
    X, F, L, ridge = problem()
    expected = dense(X, F, L, ridge, 2.0)
    R = X.T @ X + 2.0 * X.T @ L @ X + np.diag(ridge)
    for cut in (2, 3, 4):
        found = solve(Subspace(), Products(X), F, L, ridge, 2.0, max_expansions=cut)
        assert not found.converged
        D = found.W - expected
        actual = np.sqrt(np.trace(D.T @ R @ D) / 4)
        assert actual / 10 < found.error < actual * 10


@pytest.mark.parametrize("rank", [0, 1, 3])
def test_labels_of_lower_rank(rank):
    X, F, L, ridge = problem()
    F = F[:, :rank] @ np.random.default_rng(2).normal(size=(rank, 4))
    found = solve(Subspace(), Products(X), F, L, ridge, 1.0)
    assert found.rank == rank
    assert found.converged
    if rank:
        assert difference(found.W, dense(X, F, L, ridge, 1.0)) < 1e-6
    else:
        assert not found.W.any()


@pytest.mark.parametrize("gram", [True, False])
def test_features_that_repeat_and_features_that_are_zero_without_a_ridge(gram):
    X, F, L, _ = problem(d=10)
    X = np.hstack([X, X[:, :3], np.zeros((120, 2))])
    found = solve(Subspace(), Products(X), F, L, np.zeros(15), 1.0, gram=gram)
    once = dense(X[:, :10], F, L, np.zeros(10), 1.0)
    assert found.converged
    assert difference(found.XW, X[:, :10] @ once) < 1e-6
    assert not found.W[13:].any()


@pytest.mark.parametrize("tol", [1e-3, 1e-6, 1e-12])
def test_a_space_that_holds_everything_is_exact(tol):
    X, F, L, ridge = problem(d=6)
    found = solve(Subspace(), Products(X), F, L, ridge, 3.0, tol=tol, gram=False)
    assert found.converged
    assert found.expansions < 10
    assert difference(found.W, dense(X, F, L, ridge, 3.0)) < 10 * tol


def test_what_is_not_finite_is_refused():
    X, F, L, ridge = problem()
    with pytest.raises(MlfsError, match=r"met a value that is not finite\n  cure: look for values of X beyond 1e150"):
        solve(Subspace(), Products(X), np.where(F > 2, np.nan, F), L, ridge, 1.0)

    class Broken(Products):
        def backward(self, V):
            return super().backward(V) * np.inf

    with pytest.raises(MlfsError, match="met a value that is not finite"), np.errstate(all="ignore"):
        solve(Subspace(), Broken(X), F, L, ridge, 1.0, gram=False)


def test_inverse_root_of_nothing():
    root, rank = inverse_root(np.zeros((2, 2)))
    assert rank == 0
    assert root.tolist() == [[0, 0], [0, 0]]


def test_the_space_stays_small_while_it_is_widened():
    X, F, L, ridge = problem()
    sizes = []

    class Watched(Subspace):
        def _orthonormal(self, *arguments):
            sizes.append(len(self.blocks))
            return super()._orthonormal(*arguments)

    space = Watched()
    for factor in (1.0, 1.1, np.geomspace(0.01, 100, 40)):
        found = solve(space, Products(X), F, L, ridge * factor, 1.0, gram=False)
    assert found.expansions > WINDOW + 1
    assert max(sizes) == WINDOW + 2  # and W, and the one before
    assert len(space.blocks) == 2


def test_directions_close_to_the_space_become_orthogonal_to_it():
    X, F, L, ridge = problem()
    space = Subspace()
    W = solve(space, Products(X), F, L, ridge, 1.0).W
    P = W + 1e-3 * np.abs(W).max() * np.random.default_rng(0).normal(size=W.shape)
    XP = X @ P
    block = space._orthonormal(P, XP, _Metric(DenseLaplacian(L), 1.0, ridge, np.empty_like(XP)), XP)
    R = X.T @ X + X.T @ L @ X + np.diag(ridge)
    assert difference(block.P.T @ R @ W, 0.0) < 2e-14
    assert difference(block.P.T @ R @ block.P, np.eye(4)) < 1e-12
    assert difference(block.XP, X @ block.P) < 1e-11
