"""Arrays in files: what is mapped, what its pages cost, and which folder has room."""

from __future__ import annotations

import gc
import io
from pathlib import Path

import dask
import numpy as np
import pytest

from mlfs_dask import array_files
from mlfs_dask.array_files import drop_pages, is_mapped, map_file, read_header, write_array


def resident_file_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssFile", "RssShmem"))) * 1024


@pytest.mark.parametrize("order", ["C", "F"])
def test_an_array_is_mapped_as_it_was_written(tmp_path, order):
    x = np.asarray(np.random.default_rng(0).random((300, 7)), order=order)
    with (tmp_path / "x.npy").open("wb") as stream:
        write_array(stream, x)
    assert (np.load(tmp_path / "x.npy") == x).all()
    with (tmp_path / "x.npy").open("rb") as stream:
        shape, fortran, dtype = read_header(stream)
        mapped = map_file(stream, stream.tell(), shape, fortran, dtype)
    assert fortran == (order == "F")
    assert is_mapped(mapped[2:9])
    assert (mapped == x).all()
    with pytest.raises(ValueError, match="read-only"):
        mapped[0] = 1
    view = mapped[5]
    del mapped
    gc.collect()
    assert (view == x[5]).all()
    del view
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_what_is_not_mapped(tmp_path):
    with (tmp_path / "x").open("wb+") as file:
        assert not is_mapped(map_file(file, 0, (0, 3), False, np.float64))
    assert not is_mapped(np.ones((5, 2))[1:])


def test_arrays_of_any_layout_are_written(monkeypatch):
    monkeypatch.setattr(array_files, "BLOCK_BYTES", 7)
    x = np.arange(60.0).reshape(12, 5)
    for array in (x, x.T, x[::2, 1:4], np.empty((0, 3)), np.array(3), np.array([True, False])):
        stream = io.BytesIO()
        write_array(stream, array)
        stream.seek(0)
        again = np.load(stream)
        assert (again.shape, again.dtype) == (array.shape, array.dtype)
        assert (again == array).all()
    with pytest.raises(ValueError, match="objects would be pickled"):
        write_array(io.BytesIO(), np.array([None]))
    with pytest.raises(ValueError, match="magic string"):
        read_header(io.BytesIO(b"no such file"))


def test_pages_that_are_dropped_are_no_memory_of_the_process(tmp_path):
    with (tmp_path / "x").open("wb+") as file:
        file.truncate(2**26)
        array = map_file(file, 0, (2**20, 8), False, np.float64, writable=True)
    before = resident_file_bytes()
    array[:] = np.arange(2**20)[:, np.newaxis]
    assert resident_file_bytes() - before > array.nbytes // 2
    drop_pages()
    assert resident_file_bytes() - before < 8 * 2**20
    assert array.sum() == 8 * sum(range(2**20))


def test_a_mapped_array_is_written_without_being_held(tmp_path):
    with (tmp_path / "x").open("wb+") as file:
        file.truncate(2**26)
        array = map_file(file, 0, (2**20, 8), False, np.float64, writable=True)
    before = resident_file_bytes()
    with (tmp_path / "y.npy").open("wb") as stream:
        write_array(stream, array)
    assert resident_file_bytes() - before < 8 * 2**20


def test_a_folder_in_memory_has_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(array_files, "_file_system", lambda folder: "tmpfs")
    assert array_files.free_disk(tmp_path) == 0
    monkeypatch.setattr(array_files, "_file_system", lambda folder: "xfs")
    assert array_files.free_disk(tmp_path) > 0
    assert array_files.free_disk(tmp_path / "absent") == 0


def test_the_file_system_is_that_of_the_nearest_mount():
    assert array_files._file_system(Path("/proc/self")) == "proc"
    if Path("/dev/shm").is_mount():
        assert array_files._file_system(Path("/dev/shm/somewhere")) == "tmpfs"


def test_the_scratch_folder_is_that_of_dask_or_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "system"))
    with dask.config.set({"temporary-directory": None}):
        assert array_files.scratch_folder() == tmp_path / "system"
    with dask.config.set({"temporary-directory": str(tmp_path / "dask")}):
        assert array_files.scratch_folder() == tmp_path / "dask"
