"""Exact graphs against all distances and a forest's nodes, ties, containers; X in memory."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.forest import float32_scaling, forest_columns, forest_seeds, to_float32
from mlfs_dask.exact.graphs import least_mass_rows, nearest_rows
from mlfs_dask.exact.matrix import ScaledMatrix
from tests.exact.fits import Moments
from tests.reference.smfs import grow_trees, isolation_masses


def problem(seed=0, n=60, d=5):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d)) * (rng.random((n, d)) < 0.6)
    X[n // 2] = X[0]
    X[:, 1] = 3.0
    return X


@pytest.mark.parametrize("n", [1, 2, 3])
def test_few_rows_have_few_neighbours(n):
    X = problem(n=n)
    assert nearest_rows(X, 5).indices.shape == (n, n - 1)
    assert least_mass_rows(X, 5, n_trees=3, max_samples=8, seed=0).neighbours.indices.shape == (n, n - 1)


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
def test_masses_are_those_of_the_smallest_common_node_in_every_tree(container):
    X = problem(n=120)
    found = least_mass_rows(container(X), 6, n_trees=10, max_samples=64, seed=3)
    prepared = to_float32(container(X), *float32_scaling(container(X)))
    prepared = prepared[:, forest_columns(prepared)]
    trees = grow_trees(prepared, 10, 64, forest_seeds(3)[1])
    xi = isolation_masses(trees, prepared.toarray() if sp.issparse(prepared) else prepared)
    np.fill_diagonal(xi, np.inf)
    order = np.argsort(np.round(xi, 12), axis=1, kind="stable")[:, :6]
    assert found.neighbours.indices.tolist() == order.tolist()
    assert found.neighbours.distances == pytest.approx(np.take_along_axis(xi, order, axis=1), rel=1e-12)
    assert found.sample_rows == 120


def test_masses_compiled_and_for_some_rows_at_a_time_are_the_same(monkeypatch):
    X = problem(n=200)
    expected = least_mass_rows(X, 4, n_trees=10, max_samples=64, seed=0)
    monkeypatch.setattr(gates, "COMPILED_LOOKUPS", 0)
    for rows in (30, 1000):
        monkeypatch.setattr(gates, "GROUP_ROWS", rows)
        found = least_mass_rows(X, 4, n_trees=10, max_samples=64, seed=0)
        assert found.neighbours.indices.tolist() == expected.neighbours.indices.tolist()
        assert found.neighbours.distances.tolist() == expected.neighbours.distances.tolist()


def test_sparse_x_is_never_made_dense_and_a_column_far_from_zero_keeps_its_digits():
    X = sp.random_array((300, 5000), density=0.001, rng=np.random.default_rng(0), format="csr")
    M = ScaledMatrix(X, Moments(X))
    assert sp.issparse(M.rows)
    assert M.rows.nnz == X.nnz
    near = problem()
    far = near.copy()
    far[:, 0] += 2.0**20
    assert ScaledMatrix(far, Moments(far)).gram() == pytest.approx(ScaledMatrix(near, Moments(near)).gram(), abs=1e-7)
