"""The largest eigenvalue from products alone: from above, closely, in few products, the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.spectral import BLOCK, MAX_PRODUCTS, largest_eigenvalue


def counted(A):
    calls = []

    def operator(Q):
        calls.append(Q.shape)
        return A @ Q

    return operator, calls


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(1, 80), st.integers(1, 200))
def test_is_above_and_close(seed, d, n):
    X = np.random.default_rng(seed).normal(size=(n, d))
    A = X.T @ X
    exact = np.linalg.eigvalsh(A)[-1]
    operator, calls = counted(A)
    found = largest_eigenvalue(operator, d)
    assert exact * (1 - 1e-10) <= found <= exact * (1.02 if len(calls) < MAX_PRODUCTS else 1.1) + 1e-9
    assert calls[0] == (d, min(d, BLOCK))
    assert sum(columns for _, columns in calls) <= d
    assert found == largest_eigenvalue(operator, d)


def test_a_tolerance_is_reached_with_more_products():
    X = np.random.default_rng(0).normal(size=(3000, 300))
    A = X.T @ X
    exact = np.linalg.eigvalsh(A)[-1]
    few, calls_few = counted(A)
    many, calls_many = counted(A)
    rough, close = largest_eigenvalue(few, 300, tol=0.1), largest_eigenvalue(many, 300, tol=1e-4)
    assert len(calls_few) < len(calls_many) <= MAX_PRODUCTS
    assert close == pytest.approx(exact, rel=2e-4)
    assert abs(close - exact) < abs(rough - exact)
    assert close > exact


def test_small_and_empty_matrices():
    assert largest_eigenvalue(lambda Q: 3.0 * Q, 1) == pytest.approx(3)
    operator, calls = counted(np.zeros((40, 40)))
    assert largest_eigenvalue(operator, 40) == 0.0
    assert len(calls) == 1
    low_rank = np.zeros((100, 100))
    low_rank[3, 3] = 7.0
    assert largest_eigenvalue(lambda Q: low_rank @ Q, 100) == pytest.approx(7)


def test_products_that_are_not_finite_are_refused():
    with pytest.raises(
        MlfsError, match=r"largest eigenvalue: a product of the operator is not finite\n  cure: look for"
    ):
        largest_eigenvalue(lambda Q: Q * np.inf, 3)
