"""Columns of some rows, in memory or a scratch file: however they are cut into blocks, the same comes out."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse as sp
from sklearn.preprocessing import StandardScaler

import mlfs_dask as mlfs
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DataError, DoesNotFitError
from mlfs_dask.evaluation.column_file import new_column_file
from mlfs_dask.evaluation.column_subset import ColumnSubset, missing_fill, unit_variance_scaling
from mlfs_dask.files.array_files import is_mapped
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.statistics.rows_in_memory import read_rows
from tests.storage.stores import make_store

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


def test_a_variance_that_is_no_number_is_refused() -> None:
    X = np.array([[1.0, 1e200], [2.0, 0.0], [3.0, 1.0]])
    with pytest.raises(DataError, match="variance of 1 feature is not finite\n  cure: values above 1e150 have to be"):
        unit_variance_scaling(ColumnSubset(X), centred=True)


def test_the_file_has_no_name(tmp_path: Path) -> None:
    columns = new_column_file(tmp_path, 1000, 3, np.float32)
    assert is_mapped(columns)
    assert (columns.shape, columns.dtype, columns.sum()) == ((1000, 3), np.float32, 0)
    columns[5] = 7
    assert columns[4:7].tolist() == [[0] * 3, [7] * 3, [0] * 3]
    assert not list(tmp_path.iterdir())
    assert new_column_file(tmp_path, 10, 0, np.float32).shape == (10, 0)


@pytest.mark.parametrize("end", ["pass", "raise ValueError", "os.kill(os.getpid(), 9)", "raise KeyboardInterrupt"])
def test_nothing_is_left_however_a_process_ends(tmp_path: Path, end: str) -> None:
    code = (
        "import os, sys\nfrom pathlib import Path\nfrom mlfs_dask.evaluation.column_file import new_column_file\n"
        "columns = new_column_file(Path(sys.argv[1]), 100000, 4, 'f8')\nprint(len(columns), flush=True)\n" + end
    )
    ran = subprocess.run([sys.executable, "-c", code, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.stdout == "100000\n"
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_refused_before_it_is_written_to(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_space(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    with pytest.raises(DoesNotFitError, match=r"scratch folder .*\n  cure: point TMPDIR to a folder on a disk"):
        new_column_file(tmp_path, 10, 10, np.float64)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", ["dense store", "sparse store", "array", "sparse array"])
def test_columns_are_read_into_the_file(tmp_path: Path, kind: str) -> None:
    random = np.random.default_rng(0)
    X = np.where(random.random((90, 8)) < 0.4, random.normal(size=(90, 8)), 0).astype(np.float32)
    Y = random.integers(0, 2, (90, 2)).astype(np.int8)
    source: Any
    if "store" in kind:
        storage = "sparse" if "sparse" in kind else "dense"
        source = mlfs.open_dataset(make_store(tmp_path / "s", X, Y, storage=storage, partition_bytes=500)).rows
    else:
        source = ArrayRows(sp.csr_array(X) if "sparse" in kind else X, sp.csr_array(Y))
    columns = np.array([5, 0, 7])
    dtype = source.profile.float_dtype
    assert dtype == np.float32
    out = new_column_file(tmp_path, 90, 3, dtype)
    found, _, _ = read_rows(source, current_resources(threads=2), columns=columns, out=out)
    assert found is out
    assert np.array_equal(out, X[:, columns])
