"""Rows of matrices stored by columns, in bands, in streams."""

from __future__ import annotations

import io
import zipfile
from typing import BinaryIO, cast

import h5py
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csc_array, csr_array, random_array

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers import matrix
from mlfs_dask.storage.readers.encoded import dense_rows
from mlfs_dask.storage.readers.matrix import (
    CsrRows,
    FileArray,
    Rows,
    array_rows,
    flat_rows,
    fortran_rows,
    head,
    rows_of_columns,
    spooled,
)


def rows_in_steps(rows: Rows, max_bytes: int) -> tuple[np.ndarray, list[int]]:
    start, blocks, stops = 0, [], []
    while start < rows.shape[0]:
        stop = rows.reach(start, max_bytes)
        assert start < stop <= rows.shape[0]
        block = rows.take(start, stop)
        blocks.append(block if isinstance(block, np.ndarray) else block.toarray())
        stops.append(stop)
        start = stop
    return np.vstack(blocks), stops


@settings(max_examples=40)
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 15),
    density=st.sampled_from([0.0, 0.05, 0.5, 1.0]),
    band=st.integers(1, 2000),
    max_bytes=st.integers(1, 3000),
    seed=st.integers(0, 9),
)
def test_a_matrix_by_columns_comes_out_by_rows(n, d, density, band, max_bytes, seed) -> None:
    by_columns = csc_array(random_array((n, d), density=density, rng=seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matrix, "SMALL_BYTES", band)
        patch.setattr(matrix, "PIECE_BYTES", 64)
        rows = rows_of_columns(by_columns.data, by_columns.indices, by_columns.indptr, (n, d), file="f")
        found, _ = rows_in_steps(rows, max_bytes)
        np.testing.assert_array_equal(found, by_columns.toarray())
        np.testing.assert_array_equal(rows.take(0, n).toarray(), by_columns.toarray())
        rows.close()


def test_csr_rows_keep_to_the_bytes() -> None:
    by_rows = csr_array(random_array((200, 50), density=0.2, rng=1))
    rows = CsrRows(by_rows.data, by_rows.indices, by_rows.indptr, (200, 50), file="f")
    found, stops = rows_in_steps(rows, 1000)
    np.testing.assert_array_equal(found, by_rows.toarray())
    starts = [0, *stops[:-1]]
    cost = 12 * (by_rows.indptr[stops] - by_rows.indptr[starts]) + 8 * (np.array(stops) - starts)
    assert cost.max() <= 1000
    assert len(stops) > 10


class Counted:
    """An array that counts how often a row is read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.reads = np.zeros(len(array), dtype=int)

    def __getitem__(self, key: slice) -> np.ndarray:
        self.reads[key] += 1
        return self.array[key]


def test_a_chunk_is_read_once() -> None:
    array = Counted(np.arange(700.0).reshape(100, 7))
    rows = array_rows(array, chunks=(30, 7))
    found, stops = rows_in_steps(rows, 7 * 8 * 4)
    np.testing.assert_array_equal(found, array.array)
    assert len(stops) == 25
    assert array.reads.max() <= 2, "once, and once more where a batch spans two chunks"


def test_large_batches_end_with_chunks() -> None:
    _, stops = rows_in_steps(array_rows(np.zeros((100, 7)), chunks=(15, 7)), 7 * 8 * 40)
    assert stops == [30, 60, 90, 100]


def test_a_packed_member_is_read_in_any_order() -> None:
    values, file = np.arange(1000, dtype=np.int32), io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("v", b"head" + values.tobytes())
    member = zipfile.ZipFile(file).open("v")  # noqa: SIM115  # the array closes it
    flat = FileArray(cast(BinaryIO, member), 4, values.dtype, 1000, file="f", own=True)
    np.testing.assert_array_equal(flat[10:20], values[10:20])
    np.testing.assert_array_equal(flat[500:], values[500:])
    rows = flat_rows(flat, (250, 4))
    np.testing.assert_array_equal(rows.take(1, 3), values[4:12].reshape(2, 4))
    rows.close()
    assert member.closed


def test_a_file_that_ends_too_soon() -> None:
    flat = FileArray(io.BytesIO(b"1234"), 0, np.dtype(np.int32), 3, file="f")
    with pytest.raises(DataError, match="f: the file is cut off: 8 bytes of an array are missing"):
        flat[0:3]


@pytest.mark.parametrize("small", [0, 4000, 1 << 20])
@pytest.mark.parametrize("turned", [False, True])
def test_columns_in_a_stream_come_out_by_rows(small: int, turned: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "SMALL_BYTES", small)
    monkeypatch.setattr(matrix, "PIECE_BYTES", 100)
    array = np.arange(6000.0).reshape(100, 60)
    flat = spooled(io.BytesIO(array.tobytes("F")).read, array.dtype, array.size, file="f")
    first = head(flat, 5)
    np.testing.assert_array_equal(first[2:9], array.ravel("F")[2:5])
    flat = head(flat, array.size) if first is flat else flat
    rows = fortran_rows(flat, array.shape, array.dtype, turned=turned)
    found, _ = rows_in_steps(rows, 2000)
    np.testing.assert_array_equal(found, array.T if turned else array)
    rows.close()


@pytest.mark.parametrize("indptr", [[0, 1], [0, 2, 1], [1, 1, 2], [0, 1, 3]])
def test_arrays_that_do_not_belong_together(indptr: list[int]) -> None:
    with pytest.raises(DataError, match="do not belong together for 2 rows or columns"):
        CsrRows(np.ones(2), np.array([0, 1]), np.array(indptr), (2, 2), file="f")
    with pytest.raises(DataError, match="do not belong together"):
        rows_of_columns(np.ones(2), np.array([0, 1]), np.array(indptr), (2, 2), file="f")


@pytest.mark.parametrize("bad", [5, -1])
def test_indices_outside_the_matrix(bad: int) -> None:
    rows = CsrRows(np.ones(2), np.array([0, bad]), np.array([0, 1, 2]), (2, 5), file="f")
    with pytest.raises(DataError, match="row 2: a column index outside the 5 columns of the matrix"):
        rows.take(0, 2)
    columns = rows_of_columns(np.ones(2), np.array([0, bad]), np.array([0, 1, 2]), (5, 2), file="f")
    with pytest.raises(DataError, match="a row index outside the 5 rows of the matrix"):
        columns.reach(0, 100)


@pytest.mark.parametrize(
    ("dtype", "how", "as_it_lies"),
    [
        ("<f4", {}, True),
        (">f8", {"userblock_size": 512}, True),
        ("<u2", {"chunks": (5, 3)}, False),
        ("bool", {}, False),  # which HDF5 has as an enumeration
    ],
)
def test_values_of_hdf5_that_lie_as_they_are_need_no_library(tmp_path, dtype, how, as_it_lies) -> None:
    values = (np.arange(60).reshape(20, 3) % 7).astype(dtype)
    chunks = how.pop("chunks", None)
    with h5py.File(tmp_path / "a.h5", "w", **how) as file:
        file.create_dataset("x", data=values, chunks=chunks)
    with h5py.File(tmp_path / "a.h5") as file:
        assert (matrix.unpacked_array(file["x"], file=str(tmp_path / "a.h5")) is not None) == as_it_lies
        rows = dense_rows(file["x"], file=str(tmp_path / "a.h5"), what="X")
        found, _ = rows_in_steps(rows, 100)
        rows.close()
    np.testing.assert_array_equal(found, values)
