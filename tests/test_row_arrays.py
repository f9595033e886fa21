"""Arrays of n rows in memory and in files: the same bits, nothing left behind, no more disk than there is."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import dask
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import row_arrays
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, graph_product, is_mapped, keep_columns, narrowed, row_blocks


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setattr(row_arrays, "_file_system", lambda folder: "ext4")
    return tmp_path


@pytest.fixture
def small_blocks(monkeypatch):
    monkeypatch.setattr(row_arrays, "BLOCK_BYTES", 8 * 3 * 7)


def test_blocks_cover_all_rows_once(small_blocks):
    for n in (0, 1, 6, 7, 8, 50):
        rows = [i for part in row_blocks(n, 3) for i in range(part.start, part.stop)]
        assert rows == list(range(n))
    assert [part.stop - part.start for part in row_blocks(20, 3)] == [7, 7, 6]
    assert [part.stop - part.start for part in row_blocks(2, 1000)] == [1, 1]


def test_files_have_no_name_and_go_with_their_array(folder):
    array = RowSpace(folder).zeros(1000, 3)
    array[5] = 7.0
    assert is_mapped(array[2:9])
    assert not list(folder.iterdir())
    maps = Path("/proc/self/maps").read_text()
    assert str(folder) in maps
    view = array[5]
    del array
    gc.collect()
    assert view.tolist() == [7, 7, 7]
    del view
    gc.collect()
    assert str(folder) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("end", ["pass", "raise ValueError", "os.kill(os.getpid(), 9)", "raise KeyboardInterrupt"])
def test_nothing_is_left_however_a_process_ends(folder, end):
    code = (
        "import os, sys\nfrom mlfs_dask import row_arrays\nrow_arrays._file_system = lambda f: ''\n"
        "kept = row_arrays.RowSpace(sys.argv[1]).zeros(100000, 4)\nprint(len(kept), flush=True)\n" + end
    )
    ran = subprocess.run([sys.executable, "-c", code, str(folder)], capture_output=True, text=True, check=False)
    assert ran.stdout == "100000\n"
    assert not list(folder.iterdir())


def test_arrays_that_are_released_are_used_again(folder):
    space = RowSpace(folder)
    first = space.empty(100, 4)
    first[...] = 1.0
    space.release(first)
    again = space.empty(200, 2)
    assert np.shares_memory(first, again)
    assert not np.shares_memory(first, space.empty(100, 4))
    IN_MEMORY.release(again)
    assert not np.shares_memory(IN_MEMORY.empty(200, 2), again)


def test_pages_of_a_block_are_given_back_when_it_is_done(folder):
    """What a process holds, as the system counts it, stays that of a block; and everything is there afterwards."""

    def resident():
        lines = Path("/proc/self/status").read_text().splitlines()
        return sum(int(line.split()[1]) for line in lines if line.startswith(("RssFile", "RssShmem"))) * 1024

    array = RowSpace(folder).empty(2**20, 8)
    before, most = resident(), 0
    for part in row_blocks(*array.shape):
        array[part] = np.arange(part.start, part.stop)[:, np.newaxis]
        most = max(most, resident())
    assert most - before < 8 * row_arrays.BLOCK_BYTES
    assert array[:].sum() == 8 * sum(range(2**20))
    assert resident() - before > array.nbytes // 2
    row_arrays.give_back()
    assert resident() - before < 8 * row_arrays.BLOCK_BYTES


def test_a_full_disk_is_refused_before_it_is_written_to(folder, monkeypatch):
    monkeypatch.setattr(row_arrays, "DISK_SHARE", 1e-9)
    with pytest.raises(DoesNotFitError, match=r"scratch folder .*\n  cure: point TMPDIR to a folder on a disk"):
        RowSpace(folder).empty(10**6, 10)
    monkeypatch.undo()

    def no_space(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", no_space)
    monkeypatch.setattr(row_arrays, "_file_system", lambda folder: "ext4")
    with pytest.raises(DoesNotFitError):
        RowSpace(folder).empty(10, 10)
    assert not list(folder.iterdir())


def test_a_folder_in_memory_has_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(row_arrays, "_file_system", lambda folder: "tmpfs")
    assert row_arrays.free_disk(tmp_path) == 0
    monkeypatch.setattr(row_arrays, "_file_system", lambda folder: "xfs")
    assert row_arrays.free_disk(tmp_path) > 0
    assert row_arrays.free_disk(tmp_path / "absent") == 0


def test_the_file_system_is_that_of_the_nearest_mount():
    assert row_arrays._file_system(Path("/proc/self")) == "proc"
    if Path("/dev/shm").is_mount():
        assert row_arrays._file_system(Path("/dev/shm/somewhere")) == "tmpfs"


def test_the_scratch_folder_is_that_of_dask_or_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "system"))
    with dask.config.set({"temporary-directory": None}):
        assert row_arrays.scratch_folder() == tmp_path / "system"
    with dask.config.set({"temporary-directory": str(tmp_path / "dask")}):
        assert row_arrays.scratch_folder() == tmp_path / "dask"


@pytest.mark.usefixtures("small_blocks")
def test_columns_move_together_in_their_place():
    values = np.arange(150.0).reshape(50, 3)
    for kept in (np.array([True, False, True]), np.array([2]), np.array([], dtype=int)):
        array = values.copy()
        found = keep_columns(array, kept, 3)
        assert found.tolist() == values[:, kept].tolist()
        assert np.shares_memory(found, array) or found.size == 0
    assert narrowed(array, 2).shape == (50, 2)
    assert narrowed(array, 0).shape == (50, 0)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("slab", [2**26, 8 * 40 * 2, 1])
@pytest.mark.parametrize("in_files", [False, True])
@pytest.mark.parametrize("compiled_from", [0, 10**7])
def test_the_algebra_of_blocks(slab, in_files, compiled_from, folder, monkeypatch):
    monkeypatch.setattr(row_arrays, "SLAB_BYTES", slab)
    monkeypatch.setattr(row_arrays, "COMPILED_PRODUCTS", compiled_from)
    space = RowSpace(folder) if in_files else IN_MEMORY
    rng = np.random.default_rng(0)
    values, other, M = rng.normal(size=(40, 5)), rng.normal(size=(40, 3)), rng.normal(size=(5, 3))
    A, B = space.copy(values), space.copy(other)
    assert is_mapped(A) == in_files
    assert row_arrays.column_sums(A) == pytest.approx(values.sum(axis=0))
    assert row_arrays.column_dots(A, A) == pytest.approx((values**2).sum(axis=0))
    assert row_arrays.inner(A, B) == pytest.approx(values.T @ other)
    S = sp.random_array((40, 40), density=0.1, rng=rng, format="csr")
    product = graph_product(S, A, space.empty(40, 5))
    assert product == pytest.approx(S @ values)
    # Columns come out the same bits, however many are multiplied at a time.
    assert (product == S @ values).all()
    assert row_arrays.add(space.copy(values), A, -2.0) == pytest.approx(-values)
    assert row_arrays.centre(space.copy(values)) == pytest.approx(values - values.mean(axis=0))
    assert row_arrays.multiply(A, M, narrowed(A, 3)) == pytest.approx(values @ M)


def test_memory_and_files_give_the_same_bits(folder):
    """Wherever an array begins: sums must not depend on its address."""
    rng = np.random.default_rng(0)
    n = 3 * row_arrays.block_rows(7) + 11
    values = rng.normal(size=(n, 7))
    there = RowSpace(folder).copy(values)
    for offset in (0, 1, 2, 3, 5):
        here = np.empty(n * 7 + offset)[offset:].reshape(n, 7)
        here[...] = values
        for function in (
            row_arrays.column_sums,
            lambda A: row_arrays.column_dots(A, A),
            lambda A: row_arrays.inner(A, A),
        ):
            assert function(here).tobytes() == function(there).tobytes()
        assert row_arrays.multiply(here, np.eye(7)[:, :3] * 0.3, np.empty((n, 3))).tobytes() == (
            row_arrays.multiply(there, np.eye(7)[:, :3] * 0.3, np.empty((n, 3))).tobytes()
        )


def test_rows_of_a_graph():
    S = sp.random_array((40, 40), density=0.1, rng=np.random.default_rng(0), format="csr")
    assert (row_arrays.graph_rows(S, slice(5, 20)).toarray() == S.toarray()[5:20]).all()
    assert row_arrays.graph_rows(S, slice(0, 40)) is S


def directed(n=300, k=4, seed=0):
    """k neighbours of every row, one of which many have."""
    rng = np.random.default_rng(seed)
    indices = np.stack([rng.choice(np.delete(np.arange(n), i), k, replace=False) for i in range(n)])
    indices[10:200:2, 0] = np.where((indices[10:200:2] == 5).any(axis=1), indices[10:200:2, 0], 5)
    return indices, rng.random((n, k))


def columns_rise(graph):
    same_row = np.diff(np.repeat(np.arange(graph.shape[0]), np.diff(graph.indptr))) == 0
    return bool((np.diff(graph.indices)[same_row] > 0).all())


@pytest.mark.parametrize("rows", [1, 7, 299, 300])
def test_graphs_are_made_from_blocks_of_rows(rows, monkeypatch, tmp_path):
    monkeypatch.setattr(row_arrays, "_file_system", lambda folder: "ext4")
    indices, values = directed()
    S = np.zeros((300, 300))
    np.put_along_axis(S, indices, values, axis=1)
    both = {"sum": S + S.T, "mirrored": S.T[:, ::-1], "less": np.eye(300) - S}
    combine = {
        "sum": lambda S, T, part: S + T,
        "mirrored": lambda S, T, part: sp.csr_array(T[:, ::-1]),  # columns of a row are not in order
        "less": lambda S, T, part: sp.csr_array(
            sp.diags_array(np.ones(300)[part], offsets=part.start, shape=S.shape) - S
        ),
    }
    for space in (RowSpace(), RowSpace(tmp_path)):
        monkeypatch.setattr(row_arrays, "BLOCK_BYTES", 8 * 40)
        monkeypatch.setattr(row_arrays, "GRAPH_ROWS", rows)
        graph = row_arrays.neighbour_graph(indices, values, space)
        assert (graph.toarray() == S).all()
        assert columns_rise(graph)
        for name, dense in both.items():
            found = row_arrays.graph_of(graph, combine[name], space, room=None if name == "sum" else 300 * 5)
            assert (found.toarray() == dense).all()
            assert columns_rise(found)
            assert is_mapped(found.data) == is_mapped(found.indices) == space.in_files
            V = np.random.default_rng(1).random((300, 3))
            assert graph_product(found, V, np.empty_like(V)) == pytest.approx(dense @ V, rel=1e-12)


def test_a_graph_without_edges():
    graph = row_arrays.neighbour_graph(np.empty((3, 0), np.int64), np.empty((3, 0)))
    found = row_arrays.graph_of(graph, lambda S, T, part: S + T)
    assert (found.shape, found.nnz) == ((3, 3), 0)
