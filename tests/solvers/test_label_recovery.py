"""Labels that follow their neighbours: against dense solution, known entries, singular cases."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.runtime import process_limits
from mlfs_dask.solvers import conjugate_gradients as cg
from mlfs_dask.solvers.label_recovery import Reconstruction, recover_labels
from tests.reference import smfs as twin


def problem(seed=0, n=30, q=4, k=5):
    rng = np.random.default_rng(seed)
    W = np.zeros((n, n))
    for i in range(n):
        near = rng.choice([j for j in range(n) if j != i], size=k, replace=False)
        W[i, near] = rng.dirichlet(np.ones(k))
    Y = rng.choice([-1.0, 1.0], size=(n, q))
    free = rng.random((n, q)) < 0.6
    s = rng.random(n) * (rng.random(n) < 0.5)
    return W, Y, free, s, rng.normal(size=(n, q))


def dense(W, Y, free, s, fitted, alpha):
    A = np.eye(len(W)) - W
    return twin.recover(Y, free, np.diag(s) + alpha * A.T @ A, s[:, None] * fitted)


def run(W, Y, free, s, fitted, alpha, **options):
    before = Y.copy()
    found = recover_labels(
        Y, free, s, fitted, alpha, Reconstruction(sp.csr_array(W)), **{"tol": 1e-12, "max_iter": 1000} | options
    )
    assert (before == Y).all()
    return found.Y, found


@pytest.mark.parametrize("alpha", [0.01, 1.0, 100.0])
def test_free_entries_solve_the_system_and_known_ones_stay(alpha):
    W, Y, free, s, fitted = problem()
    free[:, 2] = False
    found, info = run(W, Y, free, s, fitted, alpha)
    assert found == pytest.approx(dense(W, Y, free, s, fitted, alpha), abs=1e-8)
    assert (found[~free] == Y[~free]).all()
    assert info.residual <= 1e-12
    assert info.steps > 0


def test_entries_keep_within_one():
    W, Y, free, s, fitted = problem()
    found, _ = run(W, Y, free, s, 50 * fitted, 0.1)
    assert found.max() == 1.0
    assert found.min() == -1.0


def test_groups_of_rows_that_nothing_ties_down_keep_their_start():
    W = np.zeros((6, 6))
    W[[0, 1, 2, 3], [1, 0, 3, 2]] = 1.0  # two pairs, and two rows without neighbours
    Y = np.array([[1.0], [-1], [0.25], [0.5], [0.125], [1]])
    free = np.array([[False], [True], [True], [True], [True], [True]])
    found, info = run(W, Y, free, np.zeros(6), None, 1.0)
    assert found[:2].ravel().tolist() == [1, pytest.approx(1)]
    assert found[2:4].ravel() == pytest.approx(0.375)  # equal, and nearest to what they were
    assert found[4:].ravel().tolist() == [0.125, 1]
    assert info.residual < 1e-9


def test_cut_short_it_says_so():
    W, Y, free, s, fitted = problem()
    _, info = run(W, Y, free, s, fitted, 1.0, max_iter=2)
    assert info.steps == 2
    assert info.residual > 1e-6


@pytest.mark.parametrize("threads", [1, 3])
def test_labels_are_solved_in_groups_of_any_threads(threads):
    W, Y, free, s, fitted = problem(q=2 * cg.GROUP + 6)
    free[:, ::7] = False
    with process_limits(threads=threads):
        found, info = run(W, Y, free, s, fitted, 1.0)
        assert cg.columns_at_once(Y.shape[1]) == min(threads * cg.GROUP, Y.shape[1])
    parts = [slice(low, low + 5) for low in range(0, Y.shape[1], 5)]
    singly = [run(W, Y[:, part], free[:, part], s, fitted[:, part], 1.0) for part in parts]
    assert found == pytest.approx(np.hstack([each for each, _ in singly]), abs=1e-12)
    assert (info.steps, info.residual) == (max(i.steps for _, i in singly), max(i.residual for _, i in singly))
