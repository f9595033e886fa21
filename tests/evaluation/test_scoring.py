"""What scoring holds, and what is done where it does not fit."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.evaluation.protocols import make_settings
from mlfs_dask.evaluation.scoring import SEARCH_WORK, ScoringPlan, plan_scoring, searchable_rows
from mlfs_dask.runtime import Resources

MB = 2**20


def plan(limit: int, *, held: bool = False, n: int = 10**6, columns: int = 100, **options: Any) -> ScoringPlan:
    profile = SimpleNamespace(float_dtype=np.dtype(np.float32), buffer_bytes=MB, block_bytes=4 * MB, block_rows=1000)
    labels = sp.csr_array((n, 10), dtype=np.int8)
    table: Any = SimpleNamespace(n=n, q=10, Y=labels, held=held, source=SimpleNamespace(profile=profile))
    resources = Resources(1, 2, limit, limit, process_bytes=100 * MB)
    return plan_scoring(make_settings(None, options), table, columns, n - n // 5, n // 5, resources)


@pytest.fixture(autouse=True)
def a_process_of_100_megabytes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mlfs_dask.runtime.driver_bytes", lambda: 100 * MB)
    monkeypatch.setattr("mlfs_dask.evaluation.scoring.scratch_folder", lambda: tmp_path)
    monkeypatch.setattr("mlfs_dask.evaluation.scoring.free_disk", lambda _: 10**12)


def test_columns_go_to_a_file_before_a_model_is_given_up(tmp_path: Path) -> None:
    options: dict[str, Any] = {"classifiers": ("logistic",)}
    train = 3 * 8 * 800_000 * 100  # as the solver holds it
    roomy, filed, short = (plan(limit, **options) for limit in (4000 * MB, 2200 * MB, 1000 * MB))
    assert (roomy.folder, roomy.exact_logistic) == (None, True)
    assert roomy.held_bytes > 400 * 10**6 + train
    assert (filed.folder, filed.exact_logistic) == (tmp_path, True)
    assert filed.held_bytes == roomy.held_bytes - 400 * 10**6
    assert short.exact_logistic is False
    assert short.held_bytes < 900 * MB


def test_what_fits_nowhere_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DoesNotFitError, match="scoring 100 columns of 1,000,000 rows") as error:
        plan(250 * MB)
    assert "max_train_rows" in str(error.value)
    assert "a file of 400,000,000 bytes" in str(error.value)
    assert plan(1000 * MB).folder is not None
    monkeypatch.setattr("mlfs_dask.evaluation.scoring.free_disk", lambda _: 10**8)
    with pytest.raises(DoesNotFitError):
        plan(1000 * MB)


def test_ml_knn_learns_from_a_sample_where_all_rows_would_take_hours() -> None:
    assert plan(8000 * MB).knn_rows == searchable_rows(200_000, 100) < 800_000
    assert plan(8000 * MB, max_train_rows=800_000).knn_rows is None
    assert plan(8000 * MB, n=100_000).knn_rows is None
    assert plan(8000 * MB, classifiers=("sgd",)).knn_rows is None
    for test in (0, 1000, 10**6):
        rows = searchable_rows(test, 100)
        assert rows * (rows + test) * 100 <= SEARCH_WORK < (rows + 1) * (rows + 1 + test) * 100


def test_buffers_of_the_reading_are_part_of_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    options: dict[str, Any] = {"n": 1000, "columns": 10, "classifiers": ("sgd",)}
    held, read = plan(8000 * MB, held=True, **options), plan(8000 * MB, **options)
    monkeypatch.setattr("mlfs_dask.evaluation.scoring.metrics_bytes", lambda *_: 0)
    alone = plan(8000 * MB, held=True, **options)
    threads = 2
    assert read.held_bytes == max(held.held_bytes, alone.held_bytes + threads * (5 * MB + 1000 * 10 * 4))
