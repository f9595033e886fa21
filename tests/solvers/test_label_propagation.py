"""Predicted labels: against dense algebra, by rows and by entries known, with and without graphs."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.solvers.conjugate_gradients import GROUP
from mlfs_dask.solvers.label_propagation import propagate_labels
from tests.solvers.laplacians import DenseLaplacian as Laplacian


def problem(seed=0, n=40, q=5):
    rng = np.random.default_rng(seed)
    S = np.triu(rng.random((n, n)) * (rng.random((n, n)) < 0.1), 1)
    P = np.triu(rng.random((q, q)), 1)
    L_s, L_p = (np.diag((A + A.T).sum(axis=1)) - A - A.T for A in (S, P))
    return rng, L_s, L_p, rng.normal(size=(n, q))


def dense(target, known, L_s, theta, L_p, mu):
    n, q = target.shape
    H = np.eye(n) - 1 / n
    K = np.broadcast_to(known, (n, q))
    whole = np.kron(theta * L_s + H, np.eye(q)) + np.diag(K.ravel()) + mu * np.kron(np.eye(n), L_p)
    return np.linalg.solve(whole, target.ravel()).reshape(n, q)


@pytest.mark.parametrize("by", ["rows", "entries", "one row"])
@pytest.mark.parametrize(("theta", "mu"), [(1.0, 1.0), (0.0, 1.0), (2.0, 0.0), (0.0, 0.0), (30.0, 0.01)])
def test_equals_dense_algebra(by, theta, mu):
    rng, L_s, L_p, target = problem()
    known = rng.random((40, 1 if by != "entries" else 5)) < 0.4
    if by == "one row":
        known[:] = False
        known[3] = True
    found, steps = propagate_labels(
        np.zeros_like(target),
        target,
        known,
        laplacian=Laplacian(L_s) if theta else None,
        theta=theta,
        label_laplacian=L_p if mu else None,
        mu=mu,
        tol=1e-12,
    )
    assert found == pytest.approx(dense(target, known, L_s, theta, L_p, mu), abs=1e-8)
    assert 0 < steps < 200


@pytest.mark.parametrize("columns", [1, 5])
def test_a_good_start_takes_no_step(columns):
    _, L_s, L_p, target = problem()
    known = np.ones((40, columns), dtype=bool)
    parameters = {"laplacian": Laplacian(L_s), "theta": 1.0, "label_laplacian": L_p, "mu": 1.0}
    found, _ = propagate_labels(np.zeros_like(target), target, known, **parameters, tol=1e-12)
    again, steps = propagate_labels(found, target, known, **parameters, tol=1e-9)
    assert steps == 0
    assert again == pytest.approx(found, abs=1e-12)


def test_labels_are_solved_in_groups():
    rng, L_s, L_p, target = problem(q=GROUP + 9)
    known = rng.random((40, 1)) < 0.4
    found, _ = propagate_labels(
        np.zeros_like(target),
        target,
        known,
        laplacian=Laplacian(L_s),
        theta=2.0,
        label_laplacian=L_p,
        mu=0.1,
        tol=1e-12,
    )
    assert found == pytest.approx(dense(target, known, L_s, 2.0, L_p, 0.1), abs=1e-8)
