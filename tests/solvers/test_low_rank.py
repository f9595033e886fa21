"""Nyström approximations with a diagonal: what is exact, their eigenvalues, and equations with them."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.low_rank import LowRankPlusDiagonal, nystroem, solve_low_rank_sylvester


def matrix(m=12, seed=0, shift=0.3):
    rng = np.random.default_rng(seed)
    F = rng.normal(size=(m, 6))
    return F @ F.T + shift * np.eye(m)


def dense(Q):
    return Q @ np.eye(len(Q.e))


def test_landmarks_that_are_copies_of_each_other_are_one():
    Q = matrix()[np.ix_([0, 0, 1, 2, 3, 3], [0, 0, 1, 2, 3, 3])]
    found = nystroem(Q[:, :4], np.arange(4), np.diag(Q))
    assert found.F.shape == (6, 3)
    assert dense(found)[:4] == pytest.approx(Q[:4], rel=1e-9)


@pytest.mark.parametrize("shift", [0.3, -2.0], ids=["definite", "indefinite"])
def test_a_sylvester_equation_with_it_has_no_residual(shift):
    rng = np.random.default_rng(0)
    Q, J, B, C = matrix(shift=shift), np.arange(5), rng.normal(size=(4, 4)), rng.normal(size=(12, 4))
    A, B = (3.0 * nystroem(Q[:, J], J, np.diag(Q))).add_to_diagonal(1.0), B + B.T
    W = solve_low_rank_sylvester(A, B, C)
    assert pytest.approx(C, abs=1e-10) == dense(A) @ W + W @ B


def test_an_equation_without_one_solution_is_refused():
    A = LowRankPlusDiagonal(np.ones((2, 1)), np.array([2.0]), np.array([1.0, 1.0]))  # eigenvalues 1 and 5
    for shift in (-1.0, -5.0):
        with pytest.raises(MlfsError, match="no one solution"):
            solve_low_rank_sylvester(A, np.array([[shift]]), np.array([[1.0], [2.0]]))


def test_a_sylvester_equation_takes_one_copy_of_the_low_rank_for_all_columns():
    rng = np.random.default_rng(0)
    A = LowRankPlusDiagonal(rng.random((20_000, 20)), np.ones(20), np.ones(20_000))
    tracemalloc.start()
    solve_low_rank_sylvester(A, np.diag([1.0, 2.0, 3.0]), rng.random((20_000, 3)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert A.F.nbytes <= peak <= 1.9 * A.F.nbytes  # the copy, and columns of W and C
