"""X in memory: products and Gram matrices of scaled X, dense or sparse, against the dense scaled array."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.exact import matrix
from mlfs_dask.exact.matrix import ScaledMatrix
from tests.exact.fits import Moments


def problem(n=40, d=7):
    rng = np.random.default_rng(0)
    X = np.round(rng.gamma(2.0, 10.0, size=(n, d)) * (rng.random((n, d)) < 0.6))
    X[:, 3] = 4.0
    return X, rng


def scaled(X, *, centre, standardise):
    deviation = X.std(axis=0)
    Z = np.where(deviation > 1e-12, X - X.mean(axis=0) if centre else X, 0.0)
    return Z / np.where(deviation > 1e-12, deviation, 1.0) if standardise else Z


def test_sparse_x_is_never_made_dense():
    X = sp.random_array((300, 5000), density=0.001, rng=np.random.default_rng(0), format="csr")
    M = ScaledMatrix(X, Moments(X))
    assert sp.issparse(M.rows)
    assert M.rows.nnz == X.nnz


def test_a_column_far_from_zero_keeps_its_digits():
    X, _ = problem()
    far = X.copy()
    far[:, 0] += 2.0**40
    assert ScaledMatrix(far, Moments(far)).gram() == pytest.approx(ScaledMatrix(X, Moments(X)).gram(), abs=1e-9)


def test_what_is_held_depends_on_the_container():
    assert matrix.workspace(sparse=False) == "n d"
    assert "n d" not in matrix.workspace(sparse=True)
