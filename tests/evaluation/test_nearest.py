"""Neighbours: those of the definition, ties by lower index, whatever the cut, the threads and the place of the rows."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.evaluation.column_subset import ColumnSubset, mean_centring
from mlfs_dask.evaluation.nearest import nearest_rows, search_bytes

MODULE = "mlfs_dask.evaluation.nearest"
BLOCKS = "mlfs_dask.evaluation.column_subset"


def by_definition(rows: np.ndarray, queries: np.ndarray, k: int, own: bool) -> np.ndarray:
    """Nearest first, ties by lower index."""
    near = []
    for i, x in enumerate(queries):
        others = [j for j in range(len(rows)) if not (own and j == i)]
        near.append(sorted(others, key=lambda j: (((rows[j] - x) ** 2).sum(), j))[:k])
    return np.array(near)


@settings(max_examples=60)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(3, 25),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 200),
    st.integers(1, 3),
    st.sampled_from([1, 2, 5, 1000]),
)
def test_neighbours_do_not_depend_on_how_rows_are_cut(
    seed: int, n: int, k: int, sparse: bool, block: int, group: int, threads: int, tile: int
) -> None:
    random = np.random.default_rng(seed)
    X = random.integers(0, 3, (n + 6, 5)).astype(np.float32)  # few values: distances tie
    matrix = sp.csr_array(X) if sparse else X
    chosen, asking = random.permutation(n + 6)[:n], random.integers(0, n + 6, 6)
    k = min(k, n - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{BLOCKS}.BLOCK_VALUES", 1)
        patch.setattr(f"{BLOCKS}.BLOCK_ROWS", block)
        patch.setattr(f"{MODULE}.GROUP_BYTES", group)
        patch.setattr(f"{MODULE}.MIN_GROUP_ROWS", 1)
        patch.setattr("mlfs_dask.blocks.gates.QUERY_ROWS", tile)
        patch.setattr("mlfs_dask.blocks.gates.VALUES_AT_ONCE", tile)
        rows, others = ColumnSubset(matrix, chosen, 3), ColumnSubset(matrix, asking, 3)
        own = nearest_rows(rows, k, mean_centring(rows), threads=threads)
        near = nearest_rows(rows, k, mean_centring(rows), queries=others, threads=threads)
    assert np.array_equal(own, by_definition(X[chosen][:, :3], X[chosen][:, :3], k, True))
    assert np.array_equal(near, by_definition(X[chosen][:, :3], X[asking][:, :3], k, False))


def test_data_far_from_zero() -> None:
    """Centred rows have the digits that products of rows as they are would lose."""
    random = np.random.default_rng(0)
    X = 1e6 + 1e-3 * random.normal(size=(300, 3))
    rows = ColumnSubset(X)
    Z = X - X.mean(axis=0)
    assert np.array_equal(nearest_rows(rows, 5, mean_centring(rows)), by_definition(Z, Z, 5, True))
    # A few rows far off, beside which all others are near each other.
    X = np.concatenate([1e-3 * random.normal(size=(300, 3)), [[1e6, 0, 0], [0, -1e6, 0]]])
    rows = ColumnSubset(X)
    unscaled = replace(mean_centring(rows), centre=np.zeros(3))
    near = nearest_rows(rows, 5, unscaled)
    assert np.array_equal(near[:300], by_definition(X, X, 5, True)[:300])


@pytest.mark.parametrize("columns", [3, 300])
@pytest.mark.parametrize("levels", [2, 10**6])
def test_the_search_holds_what_is_planned(columns: int, levels: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.GROUP_BYTES", 2**21)
    for name in (f"{BLOCKS}.BLOCK_VALUES", f"{MODULE}.BLOCK_VALUES", "mlfs_dask.blocks.gates.VALUES_AT_ONCE"):
        monkeypatch.setattr(name, 2**16)
    n = 6000
    X = np.random.default_rng(0).integers(0, levels, (n, columns)).astype(np.float32)
    rows = ColumnSubset(X)
    scaling = mean_centring(rows)
    nearest_rows(ColumnSubset(X[:50]), 3, scaling)
    tracemalloc.start()
    try:
        nearest_rows(rows, 10, scaling, threads=2)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < search_bytes(columns, 10, n, threads=2) < 4 * peak
