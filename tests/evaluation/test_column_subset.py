"""Columns of some rows: however they are cut into blocks, and wherever they are, what comes out is the same."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp
from sklearn.preprocessing import StandardScaler

from mlfs_dask.errors import DataError
from mlfs_dask.evaluation.column_subset import ColumnSubset, missing_fill, unit_variance_scaling

MODULE = "mlfs_dask.evaluation.column_subset"


def dense(subset: ColumnSubset) -> np.ndarray:
    pieces = [X.toarray() if sp.issparse(X) else X for _, X in subset.blocks()]
    return np.concatenate(pieces)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("block", [1, 7, 100])
def test_blocks_hold_the_rows_in_their_order(sparse: bool, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.BLOCK_VALUES", 1)
    monkeypatch.setattr(f"{MODULE}.BLOCK_ROWS", block)
    random = np.random.default_rng(0)
    X, rows = random.integers(0, 3, (40, 5)), random.permutation(40)[:30]
    subset = ColumnSubset(sp.csr_array(X) if sparse else X, rows, 3)
    assert (len(subset), subset.columns, subset.sparse) == (30, 3, sparse)
    assert subset.n_blocks == -(-30 // block)
    assert np.array_equal(dense(subset), X[rows][:, :3])
    assert [start for start, _ in subset.blocks()] == list(range(0, 30, block))
    assert np.array_equal(dense(subset.take(np.array([4, 0]))), X[rows[[4, 0]]][:, :3])
    assert np.array_equal(dense(ColumnSubset(X).take(np.array([4, 0]))), X[[4, 0]])


@pytest.mark.parametrize("sparse", [False, True])
def test_scaling_is_scikit_learns(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    X = np.random.default_rng(0).normal(3, 2, (50, 4))
    X[:, 2] = 0.1  # its mean is not exactly 0.1
    matrix = sp.csr_array(X) if sparse else X
    monkeypatch.setattr(f"{MODULE}.BLOCK_VALUES", 1)
    monkeypatch.setattr(f"{MODULE}.BLOCK_ROWS", 7)
    found = unit_variance_scaling(ColumnSubset(matrix), centred=not sparse).apply(matrix)
    expected = StandardScaler(with_mean=not sparse).fit_transform(X)
    np.testing.assert_allclose(found.toarray() if sparse else found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("sparse", [False, True])
def test_missing_values_are_filled_in(sparse: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{MODULE}.BLOCK_VALUES", 1)
    monkeypatch.setattr(f"{MODULE}.BLOCK_ROWS", 7)
    random = np.random.default_rng(0)
    X = np.where(random.random((60, 5)) < 0.4, 0.0, random.normal(size=(60, 5)))
    X[random.random(X.shape) < 0.2] = np.nan
    X[:, 3] = np.nan
    matrix, rows = sp.csr_array(X) if sparse else X, random.permutation(60)[:40]
    for how, function in (("mean", np.nanmean), ("median", np.nanmedian)):
        fill = missing_fill(ColumnSubset(matrix, rows, 4), ColumnSubset(matrix, rows[:0], 4), how)
        assert fill is not None
        expected = np.append(function(X[rows][:, :3], axis=0), 0.0)
        assert fill == pytest.approx(expected, rel=1e-14)
        subset = ColumnSubset(matrix, rows, 3, fill=fill).take(np.array([4, 2, 9]))
        assert subset.sparse == sparse
        wanted = X[rows[[4, 2, 9]]][:, :3]
        assert np.array_equal(dense(subset), np.where(np.isnan(wanted), fill[:3], wanted))
    whole = ColumnSubset(np.eye(3))
    assert missing_fill(whole, whole, "mean") is None


@pytest.mark.parametrize(("how", "expected"), [("mean", 3.0), ("median", 2.0)])
def test_a_value_that_only_a_judged_row_lacks_is_filled_in_as_well(how: str, expected: float) -> None:
    X = np.array([[1.0, 5.0], [2.0, 5.0], [6.0, 5.0], [np.nan, 5.0]])
    for matrix in (X, sp.csr_array(X)):
        train, test = (ColumnSubset(matrix, rows) for rows in (np.arange(3), np.array([3])))
        fill = missing_fill(train, test, how)
        assert fill is not None
        assert fill[0] == expected


def test_a_variance_that_is_no_number_is_refused() -> None:
    X = np.array([[1.0, 1e200], [2.0, 0.0], [3.0, 1.0]])
    with pytest.raises(DataError, match="variance of 1 feature is no number\n  cure: values above 1e150 have to be"):
        unit_variance_scaling(ColumnSubset(X), centred=True)
