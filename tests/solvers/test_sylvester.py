"""The Sylvester equation of symmetric matrices: its residual, published solutions, and where there is none."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.sylvester import solve_symmetric_sylvester
from tests.conftest import published


def test_the_solution_has_no_residual():
    rng = np.random.default_rng(0)
    A, B, C = rng.normal(size=(30, 30)), rng.normal(size=(4, 4)), rng.normal(size=(30, 4))
    A, B = A + A.T, B + B.T
    W = solve_symmetric_sylvester(A, B, C)
    assert pytest.approx(C, abs=1e-10) == A @ W + W @ B


def test_solutions_of_the_authors_of_grro():
    """Of five pairs of weights; the last makes the system indefinite."""
    given = published("grro")
    FF = np.zeros((72, 72))
    FF[np.triu_indices(72)] = given["FF"]
    FF = np.triu(FF, 1) + FF.T
    for alpha, beta, scores in zip(given["alpha"], given["beta"], given["scores"], strict=True):
        W = solve_symmetric_sylvester(np.eye(72) + alpha * FF, beta * given["LL"], given["FL"])
        assert W.sum(axis=1) == pytest.approx(scores, rel=1e-9, abs=1e-13)


def test_an_equation_without_one_solution_is_refused():
    with pytest.raises(MlfsError, match="no one solution"):
        solve_symmetric_sylvester(np.diag([1.0, 2.0]), np.array([[-2.0]]), np.ones((2, 1)))
