"""The largest eigenvalue from products alone: from above, closely, in few products, the same each time."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlfs_dask.blocks.column_keys import key_places
from mlfs_dask.errors import MlfsError
from mlfs_dask.solvers.spectral import BLOCK, MAX_PRODUCTS, largest_eigenvalue, starting_block


def drawn(d):
    return np.linalg.qr(np.random.default_rng(0).normal(size=(d, min(d, BLOCK))))[0]


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
    found = largest_eigenvalue(operator, drawn(d))
    assert exact * (1 - 1e-10) <= found <= exact * (1.02 if len(calls) < MAX_PRODUCTS else 1.1) + 1e-9
    assert calls[0] == (d, min(d, BLOCK))
    assert sum(columns for _, columns in calls) <= d
    assert found == largest_eigenvalue(operator, drawn(d))


def test_a_tolerance_is_reached_with_more_products():
    X = np.random.default_rng(0).normal(size=(3000, 300))
    A = X.T @ X
    exact = np.linalg.eigvalsh(A)[-1]
    few, calls_few = counted(A)
    many, calls_many = counted(A)
    rough, close = largest_eigenvalue(few, drawn(300), tol=0.1), largest_eigenvalue(many, drawn(300), tol=1e-4)
    assert len(calls_few) < len(calls_many) <= MAX_PRODUCTS
    assert close == pytest.approx(exact, rel=2e-4)
    assert abs(close - exact) < abs(rough - exact)
    assert close > exact


def test_products_that_are_not_finite_are_refused():
    with pytest.raises(
        MlfsError, match=r"largest eigenvalue: a product of the operator is not finite\n  cure: look for"
    ):
        largest_eigenvalue(lambda Q: Q * np.inf, drawn(3))


@pytest.mark.parametrize("copies", [1, 40])
def test_by_the_keys_of_columns_their_order_has_no_part(copies):
    rng = np.random.default_rng(copies)
    X = rng.normal(size=(90, 30))
    X = np.concatenate([X, np.repeat(X[:, :1], copies, axis=1), np.zeros((90, 2))], axis=1)
    order, found = rng.permutation(X.shape[1]), []
    for Z in (X, X[:, order]):
        varies = np.ptp(Z, axis=0) > 0
        start = starting_block(key_places(Z, varies), varies)
        assert start.T @ start == pytest.approx(np.eye(start.shape[1]), abs=1e-9)
        assert start.shape == (len(varies), BLOCK)
        found.append(largest_eigenvalue((Z.T @ Z).dot, start))
    exact = np.linalg.eigvalsh(X.T @ X)[-1]
    assert found[0] == pytest.approx(found[1], rel=1e-9)
    assert exact * (1 - 1e-10) <= found[0] <= exact * 1.02
