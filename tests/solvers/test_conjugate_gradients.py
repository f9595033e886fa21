"""Conjugate gradients: against direct solution, column by column, with breakdowns and numbers that are none."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.conjugate_gradients import conjugate_gradients


def system(seed=0, m=30, c=4, spread=3.0):
    rng = np.random.default_rng(seed)
    Q, _ = np.linalg.qr(rng.normal(size=(m, m)))
    A = Q * np.geomspace(1, 10**spread, m) @ Q.T
    return (A + A.T) / 2, rng.normal(size=(m, c))


def test_it_solves_every_column():
    A, b = system()
    found = conjugate_gradients(lambda P, columns: A @ P, b, tol=1e-11)
    assert found.x == pytest.approx(np.linalg.solve(A, b), rel=1e-7, abs=1e-9)
    assert found.converged.all()
    assert (np.linalg.norm(b - A @ found.x, axis=0) <= 1e-9 * np.linalg.norm(b, axis=0)).all()
    assert (found.residuals <= 1e-11).all()


def test_columns_of_different_operators_keep_their_numbers():
    A, b = system(spread=1.0)
    shifts = np.array([0.0, 1.0, 100.0, 1e4])
    seen = set()

    def operator(P, columns):
        assert P.shape[1] == len(columns)
        seen.add(tuple(columns))
        return A @ P + P * shifts[columns]

    found = conjugate_gradients(operator, b, tol=1e-12)
    for j, shift in enumerate(shifts):
        assert found.x[:, j] == pytest.approx(np.linalg.solve(A + shift * np.eye(30), b[:, j]), abs=1e-9)
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


def test_the_preconditioner_knows_its_columns():
    A, b = system(spread=1.0)
    shifts = np.array([0.0, 1.0, 100.0, 1e4])
    diagonal = np.diag(A)[:, np.newaxis]
    found = conjugate_gradients(
        lambda P, columns: A @ P + P * shifts[columns],
        b,
        precondition=lambda R, columns: R / (diagonal + shifts[columns]),
        tol=1e-11,
    )
    expected = np.column_stack([np.linalg.solve(A + s * np.eye(30), b[:, j]) for j, s in enumerate(shifts)])
    assert found.x == pytest.approx(expected, abs=1e-8)
