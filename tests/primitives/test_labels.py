"""Labels on the driver: exact for any cut and container, beside another statistic, in one pass."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.primitives import labels
from mlfs_dask.primitives.labels import WithLabels, collect_labels
from mlfs_dask.primitives.moments import Moments
from mlfs_dask.primitives.row_passes import plan_rows
from mlfs_dask.primitives.rows import ArrayRows, as_rows
from mlfs_dask.runtime import Resources

HERE = Resources(1, 1, 2**33, 2**33)


def problem(q, n=37):
    rng = np.random.default_rng(q)
    return rng.normal(size=(n, 4)), rng.choice([0, 0, 0, 1, -1], size=(n, q)).astype(np.int8)


def sources(X, Y):
    yield ArrayRows(X, as_labels(Y))
    yield ArrayRows(X, as_labels(Y), block_bytes=1)
    yield ArrayRows(sp.csr_array(X), as_labels(Y), block_bytes=200)
    yield as_rows(da.from_array(X, chunks=(10, 2)), da.from_array(Y, chunks=(7, -1)))


@pytest.mark.parametrize("q", [1, 7, 8, 9, 20])
@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("unpacked", [2**22, 50])
def test_every_entry_comes_back_from_any_source(q, threads, unpacked, monkeypatch):
    monkeypatch.setattr(labels, "_UNPACKED", unpacked)
    X, Y = problem(q)
    for source in sources(X, Y):
        found = collect_labels(source, Moments(4), replace(HERE, threads_per_worker=threads))
        assert found.Y.toarray().tolist() == Y.tolist()
        assert found.Y.dtype == np.int8
        assert found.Y.has_canonical_format
        assert found.Y.nnz == np.count_nonzero(Y)
        assert found.result.mean == pytest.approx(X.mean(axis=0))
        assert found.result.n == 37
        assert found.record.tasks >= 1


def test_rows_without_labels_and_labels_without_rows():
    X, Y = problem(5)
    Y[:] = 0
    found = collect_labels(ArrayRows(X, as_labels(Y)), Moments(4), HERE)
    assert found.Y.shape == (37, 5)
    assert found.Y.nnz == 0


def test_what_it_holds_is_planned():
    X, Y = problem(20)
    source = ArrayRows(X, as_labels(Y))
    there = replace(HERE, client=object())
    with_labels = plan_rows(source, WithLabels(Moments(4), 20), there)
    # Six bytes a row come back, and every block is unpacked.
    assert with_labels.peak_worker_bytes >= 37 * 6 + 4 * 37 * 20
    assert WithLabels(Moments(4), 20).result_bytes == Moments(4).result_bytes
