"""X in memory: products and Gram matrices of scaled X, dense or sparse, against the dense scaled array."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.exact import matrix
from mlfs_dask.exact.matrix import ScaledMatrix
from mlfs_dask.solvers.laplacian import Laplacian
from mlfs_dask.typing import HeldArray
from tests.exact.fits import Moments

CONTAINERS = {
    "float64": np.asarray,
    "float32": lambda X: X.astype(np.float32),
    "int16": lambda X: X.astype(np.int16),
    "csr": sp.csr_array,
    "csr of bytes": lambda X: sp.csr_array(X.astype(np.uint8)),
}


def problem(n=40, d=7):
    rng = np.random.default_rng(0)
    X = np.round(rng.gamma(2.0, 10.0, size=(n, d)) * (rng.random((n, d)) < 0.6))
    X[:, 3] = 4.0
    return X, rng


def scaled(X, *, centre, standardise):
    deviation = X.std(axis=0)
    Z = np.where(deviation > 1e-12, X - X.mean(axis=0) if centre else X, 0.0)
    return Z / np.where(deviation > 1e-12, deviation, 1.0) if standardise else Z


@pytest.mark.parametrize("container", CONTAINERS)
@pytest.mark.parametrize(("centre", "standardise"), [(True, True), (True, False), (False, False)])
def test_products_are_those_of_the_scaled_array(container, centre, standardise):
    X, rng = problem()
    Z = scaled(X, centre=centre, standardise=standardise)
    given = CONTAINERS[container](X)
    M = ScaledMatrix(given, Moments(given), centre=centre, standardise=standardise)
    W, V, s = rng.normal(size=(7, 3)), rng.normal(size=(40, 2)), rng.random(40) * (rng.random(40) < 0.5)
    assert M.shape == (40, 7)
    assert M.forward(W) == pytest.approx(Z @ W)
    assert M.backward(V) == pytest.approx(Z.T @ V)
    assert M.gram() == pytest.approx(Z.T @ Z, abs=1e-9)
    assert M.gram(s) == pytest.approx(Z.T @ (s[:, None] * Z), abs=1e-9)
    columns = np.array([1, 3, 6])
    assert M.gram(s, columns) == pytest.approx((Z.T @ (s[:, None] * Z))[np.ix_(columns, columns)], abs=1e-9)
    assert M.squares == pytest.approx((Z**2).mean(axis=0))
    S = sp.random_array((40, 40), density=0.1, rng=rng, format="csr")
    L = Laplacian(sp.csr_array(S + S.T))
    dense = np.diag(L.degrees) - L.graph.toarray()
    assert M.gram_with(L) == pytest.approx(Z.T @ dense @ Z, abs=1e-8)
    assert M.gram_with(L, 0.5) == pytest.approx(0.5 * Z.T @ dense @ Z, abs=1e-8)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_x_stays_as_it_is_and_a_constant_feature_is_zero(container):
    X, _ = problem()
    given = container(X)
    M = ScaledMatrix(given, Moments(given))
    assert M.factor[3] == M.squares[3] == 0
    assert not M.forward(np.eye(7)[:, 3:4]).any()
    assert not M.backward(np.eye(40))[3].any()
    assert not M.gram()[3].any()
    assert ((given.toarray() if sp.issparse(given) else given) == X).all()


def test_sparse_x_is_never_made_dense():
    X = sp.random_array((300, 5000), density=0.001, rng=np.random.default_rng(0), format="csr")
    M = ScaledMatrix(X, Moments(X))
    assert sp.issparse(M.rows)
    assert M.rows.nnz == X.nnz


def test_rows_have_the_distances_of_scaled_ones():
    X, _ = problem()
    Z = scaled(X, centre=True, standardise=True)
    expected = ((Z[:, None] - Z) ** 2).sum(axis=2)
    for given in (X, sp.csr_array(X)):
        rows = ScaledMatrix(given, Moments(given)).rows
        rows = rows.toarray() if sp.issparse(rows) else rows
        assert ((rows[:, None] - rows) ** 2).sum(axis=2) == pytest.approx(expected)


def test_a_column_far_from_zero_keeps_its_digits():
    X, _ = problem()
    far = X.copy()
    far[:, 0] += 2.0**40
    assert ScaledMatrix(far, Moments(far)).gram() == pytest.approx(ScaledMatrix(X, Moments(X)).gram(), abs=1e-9)


def test_what_is_held_depends_on_the_container():
    assert matrix.held_arrays(sparse=False) == [HeldArray("scaled X", "n d")]
    assert "n d" not in [array.shape for array in matrix.held_arrays(sparse=True)]
