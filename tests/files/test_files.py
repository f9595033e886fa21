"""Arrays in files, and digests of code, parameters and arrays."""

from __future__ import annotations

import gc
from pathlib import Path

import dask
import numpy as np
import pytest

from mlfs_dask.files import array_files, fingerprints
from mlfs_dask.files.array_files import drop_pages, is_mapped, map_file
from mlfs_dask.files.fingerprints import code_digest, digest_of


def resident_file_bytes():
    lines = Path("/proc/self/status").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(("RssFile", "RssShmem"))) * 1024


def new_file_array(folder, shape):
    with (folder / "x").open("wb+") as file:
        file.truncate(8 * int(np.prod(shape)))
        return map_file(file, shape, np.float64)


def test_what_is_written_to_a_mapped_array_is_in_the_file(tmp_path):
    x = np.random.default_rng(0).random((300, 7))
    mapped = new_file_array(tmp_path, x.shape)
    assert is_mapped(mapped[2:9])
    assert not mapped.any()
    mapped[:] = x
    assert (np.fromfile(tmp_path / "x").reshape(x.shape) == x).all()
    view = mapped[5]
    del mapped
    gc.collect()
    assert (view == x[5]).all()
    del view
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


def test_what_is_not_mapped(tmp_path):
    assert not is_mapped(new_file_array(tmp_path, (0, 3)))
    assert not is_mapped(np.ones((5, 2))[1:])


def test_pages_that_are_dropped_are_no_memory_of_the_process(tmp_path):
    array = new_file_array(tmp_path, (2**20, 8))
    before = resident_file_bytes()
    array[:] = np.arange(2**20)[:, np.newaxis]
    assert resident_file_bytes() - before > array.nbytes // 2
    drop_pages()
    assert resident_file_bytes() - before < 8 * 2**20
    assert array.sum() == 8 * sum(range(2**20))


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


def test_all_code_of_the_package_has_a_part_in_its_digest(monkeypatch, tmp_path):
    digests = {code_digest.__wrapped__()}
    monkeypatch.setattr(fingerprints, "__file__", str(tmp_path / "fingerprints.py"))
    for file in ("exact/smfs.py", "solvers/padm.py", "typing.py", "formats/csv.py"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        for text in ("x = 1", "x = 2"):
            (tmp_path / file).write_text(text)
            digests.add(code_digest.__wrapped__())
    assert len(digests) == 9


def test_values_and_arrays_that_differ_have_different_digests():
    numbers = (np.array([1, 2]), np.array([1, 3]), np.array([[1, 2]]), np.array([1, 2], np.int32), np.array([1.0, 2.0]))
    few = (np.array([], np.int64), np.array([], np.float64), np.array(7), np.array([7]), {"b": np.array([7])})
    values = (1, 1.5, "1", None, True, [1, 2], *numbers, *few)
    assert len({digest_of(identity) for identity in ({"b": 1}, *({"a": value} for value in values))}) == 17


def test_the_same_content_has_the_same_digest():
    grid = np.arange(12.0).reshape(3, 4)
    assert digest_of({"x": grid[:, ::2]}) == digest_of({"x": grid[:, ::2].copy()})
    assert digest_of({"x": np.float64(0.5), "y": np.int64(2)}) == digest_of({"y": 2, "x": 0.5})


def test_what_has_no_content_is_refused():
    with pytest.raises(TypeError, match="no digest can be taken of set"):
        digest_of({"x": {1, 2}})
