"""Conjugate gradients, and labels that are solved by them: against direct solution, breakdowns, groups of columns."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import MlfsError
from mlfs_dask.runtime import process_limits
from mlfs_dask.solvers import conjugate_gradients as cg
from mlfs_dask.solvers.conjugate_gradients import GROUP, conjugate_gradients
from mlfs_dask.solvers.label_propagation import propagate_labels
from mlfs_dask.solvers.label_recovery import Reconstruction, recover_labels


def system(spread=1.0):
    rng = np.random.default_rng(0)
    Q, _ = np.linalg.qr(rng.normal(size=(30, 30)))
    A = Q * np.geomspace(1, 10**spread, 30) @ Q.T
    return (A + A.T) / 2, rng.normal(size=(30, 4))


@pytest.mark.parametrize("preconditioned", [False, True])
def test_columns_of_different_operators_keep_their_numbers(preconditioned):
    A, b = system()
    shifts = np.array([0.0, 1.0, 100.0, 1e4])
    diagonal = np.diag(A)[:, np.newaxis]
    seen = set()

    def operator(P, columns):
        assert P.shape[1] == len(columns)
        seen.add(tuple(columns))
        return A @ P + P * shifts[columns]

    how = {"precondition": lambda R, columns: R / (diagonal + shifts[columns])} if preconditioned else {}
    found = conjugate_gradients(operator, b, tol=1e-12, **how)
    for j, shift in enumerate(shifts):
        assert found.x[:, j] == pytest.approx(np.linalg.solve(A + shift * np.eye(30), b[:, j]), abs=1e-9)
    assert found.converged.all()
    assert (found.residuals <= 1e-12).all()
    assert (0, 1, 2, 3) in seen
    assert (0, 1) in seen  # the well-conditioned ones leave first


def test_a_singular_operator_is_told_apart():
    A = np.diag([1.0, 2.0, 0.0])
    b = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 1.0]])
    found = conjugate_gradients(lambda P, _: A @ P, b, tol=1e-10)
    assert found.converged.tolist() == [True, False]
    assert found.broke_down.tolist() == [False, True]
    assert found.x[:, 0] == pytest.approx([1, 1, 0])
    assert np.isfinite(found.x).all()
    negative = conjugate_gradients(lambda P, _: -P, np.ones((3, 2)))
    assert negative.broke_down.all()
    assert not negative.x.any()


def test_numbers_that_are_none_are_refused():
    A, b = system()
    with pytest.raises(MlfsError, match="the right-hand side is not finite"):
        conjugate_gradients(lambda P, _: A @ P, b * np.nan)
    with pytest.raises(MlfsError, match=r"a product of the operator is not finite\n  cure: look for values"):
        conjugate_gradients(lambda P, _: P * np.nan, b)
    with pytest.raises(MlfsError, match="the first residual is not finite"):
        conjugate_gradients(lambda P, _: P * np.inf, b, x0=b)
    with pytest.raises(MlfsError, match="a residual is not finite"):
        conjugate_gradients(lambda P, _: A @ P, b, precondition=lambda R, *_: R if (b == R).all() else R * np.nan)


def test_columns_that_belong_together_take_one_step():
    A, b = system(spread=1.5)
    whole = np.kron(A, np.eye(4)) + np.kron(np.eye(30), np.ones((4, 4)))
    found = conjugate_gradients(
        lambda P, _: (whole @ P.reshape(-1, 1)).reshape(30, 4), b, tol=1e-11, single_system=True
    )
    assert found.x == pytest.approx(np.linalg.solve(whole, b.ravel()).reshape(30, 4), abs=1e-7)
    assert found.residuals.shape == found.converged.shape == (1,)
    one = conjugate_gradients(lambda P, _: whole @ P, b.reshape(-1, 1).copy(), tol=1e-11)
    assert found.iterations == one.iterations


# ---------------------------------------------------------------- labels that follow graphs of rows and of labels


class Laplacian:
    """As solvers take one."""

    def __init__(self, L):
        self.L = L
        self.degrees = np.diag(L)

    def product(self, V):
        return self.L @ V


def graphs(n=20, q=5):
    rng = np.random.default_rng(0)
    S = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.1), 1)
    P = np.triu(rng.random((q, q)), 1)
    L_s, L_p = (np.diag((A + A.T).sum(axis=1)) - A - A.T for A in (S, P))
    return rng, L_s, L_p, rng.normal(size=(n, q))


@pytest.mark.parametrize("q", [5, GROUP + 9])
@pytest.mark.parametrize("by", ["rows", "entries", "one row"])
@pytest.mark.parametrize(("theta", "mu"), [(1.0, 1.0), (0.0, 1.0), (2.0, 0.0), (0.0, 0.0), (30.0, 0.01)])
def test_predicted_labels_are_those_of_dense_algebra(by, theta, mu, q):
    rng, L_s, L_p, target = graphs(q=q)
    known = rng.random((20, q if by == "entries" else 1)) < 0.4
    if by == "one row":
        known[:] = np.arange(20)[:, np.newaxis] == 3
    graph = {"laplacian": Laplacian(L_s) if theta else None, "theta": theta}
    graph |= {"label_laplacian": L_p if mu else None, "mu": mu}
    found, steps = propagate_labels(np.zeros_like(target), target, known, **graph, tol=1e-12)
    whole = np.kron(theta * L_s + np.eye(20) - 1 / 20, np.eye(q)) + mu * np.kron(np.eye(20), L_p)
    whole += np.diag(np.broadcast_to(known, (20, q)).ravel())
    assert found == pytest.approx(np.linalg.solve(whole, target.ravel()).reshape(20, q), abs=1e-8)
    assert 0 < steps < 200
    again, steps = propagate_labels(found, target, known, **graph, tol=1e-9)
    assert steps == 0
    assert again == pytest.approx(found, abs=1e-12)


def recovery(q=4, n=30, k=5):
    """W, Y, which entries are free, S, and XP."""
    rng = np.random.default_rng(0)
    W = np.zeros((n, n))
    for i in range(n):
        near = rng.choice([j for j in range(n) if j != i], size=k, replace=False)
        W[i, near] = rng.dirichlet(np.ones(k))
    Y = rng.choice([-1.0, 1.0], size=(n, q))
    free = rng.random((n, q)) < 0.6
    s = rng.random(n) * (rng.random(n) < 0.5)
    return W, Y, free, s, rng.normal(size=(n, q))


def recovered(W, Y, free, s, fitted, alpha, **options):
    before = Y.copy()
    options = {"tol": 1e-12, "max_iter": 1000} | options
    found = recover_labels(Y, free, s, fitted, alpha, Reconstruction(sp.csr_array(W)), **options)
    assert (before == Y).all()
    return found.Y, found


def test_groups_of_rows_that_nothing_ties_down_keep_their_start():
    W = np.zeros((6, 6))
    W[[0, 1, 2, 3], [1, 0, 3, 2]] = 1.0  # two pairs, and two rows without neighbours
    Y = np.array([[1.0], [-1], [0.25], [0.5], [0.125], [1]])
    free = np.array([[False], [True], [True], [True], [True], [True]])
    found, info = recovered(W, Y, free, np.zeros(6), None, 1.0)
    assert found[:2].ravel().tolist() == [1, pytest.approx(1)]
    assert found[2:4].ravel() == pytest.approx(0.375)  # equal, and nearest to what they were
    assert found[4:].ravel().tolist() == [0.125, 1]
    assert info.residual < 1e-9


@pytest.mark.parametrize("threads", [1, 3])
def test_labels_are_recovered_in_groups_of_any_threads(threads):
    W, Y, free, s, fitted = recovery(q=2 * GROUP + 6)
    free[:, ::7] = False
    with process_limits(threads=threads):
        found, info = recovered(W, Y, free, s, fitted, 1.0)
        assert cg.columns_at_once(Y.shape[1]) == min(threads * GROUP, Y.shape[1])
    parts = [slice(low, low + 5) for low in range(0, Y.shape[1], 5)]
    singly = [recovered(W, Y[:, part], free[:, part], s, fitted[:, part], 1.0) for part in parts]
    assert found == pytest.approx(np.hstack([each for each, _ in singly]), abs=1e-12)
    assert (info.steps, info.residual) == (max(i.steps for _, i in singly), max(i.residual for _, i in singly))
