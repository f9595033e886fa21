"""Chosen rows and columns: however they are cut, and wherever they lie, what comes out is the same."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from sklearn.preprocessing import StandardScaler

from mlfs_dask.evaluation.chosen import ChosenRows, centred, nearest_rows, scaled, standard
from mlfs_dask.row_arrays import RowSpace

MODULE = "mlfs_dask.evaluation.chosen"


def dense(rows: ChosenRows) -> np.ndarray:
    pieces = [block.X.toarray() if sp.issparse(block.X) else block.X for block in rows.blocks()]
    return np.concatenate(pieces)


def by_definition(rows: np.ndarray, queries: np.ndarray, k: int, own: bool) -> np.ndarray:
    """Nearest first, ties by lower index."""
    near = []
    for i, x in enumerate(queries):
        others = [j for j in range(len(rows)) if not (own and j == i)]
        near.append(sorted(others, key=lambda j: (((rows[j] - x) ** 2).sum(), j))[:k])
    return np.array(near)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(3, 25),
    st.integers(1, 4),
    st.booleans(),
    st.integers(1, 9),
    st.integers(1, 200),
    st.integers(1, 3),
    st.booleans(),
)
def test_neighbours_do_not_depend_on_how_rows_are_cut(
    seed: int, n: int, k: int, sparse: bool, block: int, group: int, threads: int, many: bool
) -> None:
    random = np.random.default_rng(seed)
    X = random.integers(0, 3, (n + 6, 5)).astype(np.float32)  # few values: distances tie
    matrix = sp.csr_array(X) if sparse else X
    chosen, asking = random.permutation(n + 6)[:n], random.integers(0, n + 6, 6)
    k = min(k, n - 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(f"{MODULE}._BLOCK_VALUES", 1)
        patch.setattr(f"{MODULE}._BLOCK_ROWS", block)
        patch.setattr(f"{MODULE}.GROUP_BYTES", group)
        patch.setattr(f"{MODULE}.FEWEST_ROWS", 1)
        patch.setattr("mlfs_dask.primitives.neighbours.COMPILED_PAIRS", 0 if many else 10**9)
        rows, others = ChosenRows(matrix, chosen, 3), ChosenRows(matrix, asking, 3)
        assert np.array_equal(dense(rows), X[chosen][:, :3])
        own = nearest_rows(rows, k, centred(rows), threads=threads)
        near = nearest_rows(rows, k, centred(rows), queries=others, threads=threads)
    assert np.array_equal(own.indices, by_definition(X[chosen][:, :3], X[chosen][:, :3], k, True))
    assert np.array_equal(near.indices, by_definition(X[chosen][:, :3], X[asking][:, :3], k, False))


@pytest.mark.parametrize("sparse", [False, True])
def test_scaling_is_scikit_learns(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(3, 2, (50, 4))
    X[:, 2] = 0.1  # its mean is not exactly 0.1
    matrix = sp.csr_array(X) if sparse else X
    monkeypatch.setattr(f"{MODULE}._BLOCK_VALUES", 1)
    monkeypatch.setattr(f"{MODULE}._BLOCK_ROWS", 7)
    found = scaled(matrix, standard(ChosenRows(matrix)))
    expected = StandardScaler(with_mean=not sparse).fit_transform(X)
    np.testing.assert_allclose(found.toarray() if sparse else found, expected, rtol=1e-12, atol=1e-12)


def test_a_file_holds_the_same_rows_as_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}._BLOCK_VALUES", 1)
    monkeypatch.setattr(f"{MODULE}._BLOCK_ROWS", 8)
    X = np.random.default_rng(0).normal(size=(60, 4)).astype(np.float32)
    mapped = RowSpace(tmp_path).empty(60, 4, np.float32)
    mapped[:] = X
    rows = np.random.default_rng(1).permutation(60)[:50]
    memory, file = ChosenRows(X, rows, 3), ChosenRows(mapped, rows, 3)
    scalings = [standard(memory), standard(file)]
    assert np.array_equal(scalings[0].centre, scalings[1].centre)
    assert np.array_equal(scalings[0].factor, scalings[1].factor)
    found = [nearest_rows(each, 3, scalings[0], threads=2) for each in (memory, file)]
    assert np.array_equal(found[0].indices, found[1].indices)
    assert np.array_equal(found[0].distances, found[1].distances)
