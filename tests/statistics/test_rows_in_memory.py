"""Some rows, joined rows and some columns of a source."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.errors import DataError
from mlfs_dask.rows.joined import JoinedRows
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import current_resources
from mlfs_dask.statistics.rows_in_memory import read_rows
from mlfs_dask.storage.opening import open_dataset
from tests.storage.stores import make_store, sample


@pytest.fixture(params=[False, True], ids=["dense", "sparse"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, np.ndarray, np.ndarray]:
    """A store of several partitions, with its X and Y."""
    X, Y = sample(n=200, d=12, q=5, sparse=request.param)
    X, Y = np.nan_to_num(X), np.abs(Y)
    path = make_store(tmp_path / "s.zarr", X, Y, partition_bytes=4096)
    dataset = open_dataset(path)
    assert dataset.rows.profile.partitions > 1
    assert dataset.rows.profile.sparse == request.param
    return dataset, X, Y


def test_columns_come_in_the_order_asked_for(store: tuple[Any, np.ndarray, np.ndarray]) -> None:
    dataset, X, Y = store
    columns = np.array([7, 0, 11])
    found, labels, record = read_rows(dataset.rows, current_resources(), columns=columns)
    assert np.array_equal(found, X[:, columns].astype(found.dtype))
    assert np.array_equal(labels.toarray(), Y)
    assert record.bytes_read == dataset.rows.profile.read_bytes
    out = np.full((200, 3), np.nan)
    assert read_rows(dataset.rows, current_resources(), columns=columns, out=out)[0] is out
    assert np.array_equal(out, X[:, columns])


def test_all_rows_come_as_the_source_has_them(store: tuple[Any, np.ndarray, np.ndarray]) -> None:
    dataset, X, Y = store
    events: list[dict[str, Any]] = []
    with runtime.progress_to(events.append):
        found, labels, _ = read_rows(dataset.rows, current_resources(), label="training rows")
    assert sp.issparse(found) == dataset.rows.profile.sparse
    assert np.array_equal(found.toarray() if sp.issparse(found) else found, X)
    assert np.array_equal(labels.toarray(), Y)
    partitions = dataset.rows.profile.partitions
    assert events[0] == {"kind": "pass", "label": "training rows", "partitions": partitions}
    assert sum(event.get("done", 0) for event in events) == partitions
    # Nothing that the source reads next changes what was read.
    assert not np.shares_memory(labels.data, next(dataset.rows.stream(0, 1)).Y.data)


@pytest.mark.parametrize(
    ("dtype", "read"),
    [("uint8", "float32"), ("int16", "float32"), ("int32", "float64"), ("float32", "float32"), ("float64", "float64")],
)
def test_no_value_is_rounded(dtype: str, read: str) -> None:
    largest = 2.0**30 + 1 if dtype in ("int32", "float64") else 100.0
    X = np.array([[largest, 1], [largest - 1, 0]]).astype(dtype)
    found, _, _ = read_rows(ArrayRows(X, sp.csr_array(np.ones((2, 1), np.int8))), current_resources())
    assert found.dtype == read
    np.testing.assert_array_equal(found, X)


def test_no_rows_are_a_matrix_of_none() -> None:
    source = ArrayRows(sp.csr_array((0, 3)), sp.csr_array((0, 2), dtype=np.int8))
    X, Y, _ = read_rows(source, current_resources())
    assert (X.shape, Y.shape) == ((0, 3), (0, 2))


def test_dense_and_sparse_rows_are_not_joined() -> None:
    Y = sp.csr_array((2, 1), dtype=np.int8)
    with pytest.raises(DataError, match="stored dense and some sparse"):
        JoinedRows((ArrayRows(np.zeros((2, 2)), Y), ArrayRows(sp.csr_array((2, 2)), Y)))
