"""Columns in a scratch file, and the reading of columns into it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.evaluation.column_file import new_column_file
from mlfs_dask.files.array_files import is_mapped
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import current_resources
from mlfs_dask.statistics.rows_in_memory import read_rows
from tests.storage.stores import make_store


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
