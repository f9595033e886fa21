"""Products of blocks with dense matrices: sparse rows give what dense rows give, compiled or not."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks import gates
from mlfs_dask.blocks.linear import backward_block, forward_block, grouped_block


@pytest.mark.parametrize("cached", [0, 10**9], ids=["compiled", "SciPy"])
def test_products_of_sparse_rows_are_those_of_dense_rows(cached, monkeypatch):
    monkeypatch.setattr(gates, "CACHED_VALUES", cached)
    monkeypatch.setattr(gates, "COMPILED_ROWS", cached)
    rng = np.random.default_rng(0)
    X = np.where(rng.random((20, 45)) < 0.2, rng.integers(1, 9, (20, 45)), 0).astype(np.float32)
    Z = sp.csr_array(np.where(rng.random((20, 3)) < 0.5, rng.random((20, 3)), 0.0))
    W, R, into = rng.random((45, 2)), rng.random((20, 2)), rng.random((45, 2))
    for centre in (None, rng.random(45)):
        centred, rows = X - (0.0 if centre is None else centre), sp.csr_array(X)
        product, sums = np.empty((20, 2)), into.copy()
        forward_block(rows, W, centre, product)
        backward_block(rows, R, centre, sums)
        np.testing.assert_allclose(product, centred @ W, rtol=1e-12)
        np.testing.assert_allclose(sums, into + centred.T @ R, rtol=1e-12)
        for each in (X, rows):
            grouped = np.ones((3, 45))
            grouped_block(each, Z, centre, grouped)
            np.testing.assert_allclose(grouped, 1.0 + Z.T @ centred, rtol=1e-12)
