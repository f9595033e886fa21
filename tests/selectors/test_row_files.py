"""Selectors with a loop whose arrays of n rows are files: the same bits as in memory, nothing left, less memory."""

from __future__ import annotations

import gc
import json
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import dask.array as da
import numpy as np
import pytest

from mlfs_dask import open_dataset, row_arrays, runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.primitives import moving_points
from mlfs_dask.primitives.rows import ArrayRows
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace, is_mapped
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors import access_mfs, iterative, mfsir, smfs
from mlfs_dask.selectors.access_mfs import AccessMFS
from mlfs_dask.selectors.mfsir import MFSIR
from mlfs_dask.selectors.smfs import SMFS
from mlfs_dask.storage.convert import convert_reader
from tests.storage.memory_reader import make_reader

SELECTORS = {
    "mfsir": (MFSIR, {"max_iter": 4}),
    "mfsir, reading": (MFSIR, {"max_iter": 3, "gram_cap": 0, "n_latent": 4}),
    "mfsir, fixed": (MFSIR, {"max_iter": 4, "step": "fixed", "random_state": 0}),
    "smfs": (SMFS, {"max_iter": 3, "n_trees": 10}),
    "smfs, published": (SMFS, {"max_iter": 3, "n_trees": 10, "consistency": "none", "gram_cap": 0}),
    "access-mfs": (AccessMFS, {"max_iter": 3}),
    "access-mfs, reading": (AccessMFS, {"max_iter": 3, "gram_cap": 0}),
    "access-mfs, published": (AccessMFS, {"max_iter": 3, "variant": "published_code"}),
}


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    """Many blocks of rows and slabs of columns, so that all of their seams are met."""
    monkeypatch.setattr(row_arrays, "BLOCK_BYTES", 8 * 5 * 17)
    monkeypatch.setattr(row_arrays, "SLAB_BYTES", 8 * 120 * 2)
    monkeypatch.setattr(smfs.label_recovery, "GROUP_BYTES", 8 * 120 * 2)


def problem(method, n=120, d=9, q=5):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    Y = (rng.random((n, q)) < 0.4).astype(np.int8)
    if method != "mfsir":
        Y[rng.random(n) < 0.4] = -1
        Y[:10][rng.random((10, q)) < 0.4] = -1
    return X, Y


def fit(selector, X, Y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return selector.fit(X, Y)


def to_files(monkeypatch, folder):
    """Make the loops use files; gives the spaces that they ask for."""
    spaces = []

    def space(plan):
        spaces.append(RowSpace(folder))
        return spaces[-1]

    monkeypatch.setattr(row_arrays, "_file_system", lambda folder: "ext4")
    for module in (access_mfs, mfsir, smfs):
        monkeypatch.setattr(module, "row_space", space)
    return spaces


@pytest.mark.parametrize("name", SELECTORS)
@pytest.mark.parametrize("chunks", [None, (45, 4)])
def test_files_give_the_same_bits(name, chunks, monkeypatch, tmp_path):
    cls, options = SELECTORS[name]
    X, Y = problem(cls.method)
    data = X if chunks is None else da.from_array(X, chunks=chunks)
    here = fit(cls(3, **options), data, Y)
    spaces = to_files(monkeypatch, tmp_path)
    there = fit(cls(3, **options), data, Y)
    assert spaces
    assert there.scores_.tobytes() == here.scores_.tobytes()
    assert there.report_.objective == here.report_.objective
    if cls is not MFSIR:
        assert is_mapped(there.labels_)
        assert there.labels_.tobytes() == here.labels_.tobytes()
    assert not list(tmp_path.iterdir())


def test_files_on_a_cluster_with_approximate_graphs(monkeypatch, tmp_path):
    """The driver's numbers of every row, graphs among them, are files while workers read a store."""
    distributed = pytest.importorskip("distributed")
    monkeypatch.setattr(moving_points, "ALL_PAIRS", 0)
    (tmp_path / "files").mkdir()
    expected = {}
    for name in ("mfsir", "smfs", "access-mfs"):
        cls, options = SELECTORS[name]
        X, Y = problem(cls.method, n=700)
        reader = make_reader(X, Y)
        convert_reader(lambda reader=reader: reader, tmp_path / f"{name}.zarr", workers=1)
        options = {**options, "graph": "approximate", "random_state": 0}
        expected[name] = fit(cls(3, **options), open_dataset(tmp_path / f"{name}.zarr"), None), options
    spaces = to_files(monkeypatch, tmp_path / "files")
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", memory_limit=2**31
        ) as cluster,
        distributed.Client(cluster),
    ):
        for name, (here, options) in expected.items():
            there = fit(SELECTORS[name][0](3, **options), open_dataset(tmp_path / f"{name}.zarr"), None)
            assert there.scores_ == pytest.approx(here.scores_, rel=1e-9)
            assert there.report_.extra["graph"] == here.report_.extra["graph"]
            assert here.report_.extra["graph"]["kind"] == "approximate"
    assert len(spaces) >= 3
    assert not list((tmp_path / "files").iterdir())


@pytest.mark.parametrize("cls", [MFSIR, SMFS, AccessMFS])
@pytest.mark.parametrize("error", [None, ValueError, KeyboardInterrupt])
def test_nothing_is_left_of_files(cls, error, monkeypatch, tmp_path):
    spaces = to_files(monkeypatch, tmp_path)

    def interrupt(event):
        if event["kind"] == "step" and error is not None:
            assert str(tmp_path) in Path("/proc/self/maps").read_text()
            raise error

    selector = cls(3, max_iter=3)
    with runtime.progress_to(interrupt):
        if error is None:
            fit(selector, *problem(cls.method))
        else:
            with pytest.raises(error):
                fit(selector, *problem(cls.method))
    assert not list(tmp_path.iterdir())
    del selector
    spaces.clear()
    gc.collect()
    assert str(tmp_path) not in Path("/proc/self/maps").read_text()


@pytest.mark.parametrize("cls", [MFSIR, SMFS, AccessMFS])
def test_the_plan_takes_files_where_memory_is_short(cls, monkeypatch):
    X, Y = problem(cls.method)
    profile = ArrayRows(X, as_labels(Y)).profile
    large = replace(profile, n=10**7, q=200, partitions=10**4)
    cluster = Resources(2, 1, 2**40, 2**40, client=object())
    room = [2**50]
    monkeypatch.setattr(iterative, "free_disk", lambda folder: room[0])
    whole = cls().plan(large, cluster)
    assert not whole.shape
    assert iterative.row_space(whole) is IN_MEMORY
    short = replace(cluster, driver_limit=whole.peak_driver_bytes - 1)
    plan = cls().plan(large, short)
    size = plan.shape["scratch_bytes"]
    # What is held beside them is not largest when they are; on disk arrays of one phase stay for the next.
    assert 0.7 * size < whole.peak_driver_bytes - plan.peak_driver_bytes < size
    assert f"arrays of n rows are files: {size:,} bytes in the scratch folder" in plan.notes[-1]
    assert iterative.row_space(plan).in_files
    room[0] = size - 1
    plan = cls().plan(large, short)
    assert plan.peak_driver_bytes > short.driver_limit
    assert f"fit neither the driver's memory nor the scratch folder {row_arrays.scratch_folder()}" in plan.notes[-1]
    assert iterative.row_space(plan) is IN_MEMORY
    room[0] = 2**50
    tiny = ArrayRows(X, as_labels(Y))
    with runtime.process_limits(memory_limit=1), pytest.raises(DoesNotFitError):
        fit(cls(), tiny, None)


MEASURED = """
import ctypes, gc, json, sys, warnings
import numpy as np
from scipy import sparse as sp
from mlfs_dask import open_dataset, row_arrays, runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.primitives.near_points import near_points
from mlfs_dask.primitives.rows import ArrayRows
from mlfs_dask.row_arrays import RowSpace
from mlfs_dask.selectors import access_mfs, mfsir, smfs
from mlfs_dask.solvers.laplacian import Laplacian

warnings.simplefilter("ignore")
row_arrays._file_system = lambda folder: "ext4"
folder, n, q = sys.argv[1], 100_000, 20
one = 8 * n * q
smfs.LABEL_STEPS = 3  # more of them take time, and no more memory
row_arrays.SLAB_BYTES = smfs.label_recovery.GROUP_BYTES = one // 10


def added(run):
    gc.collect()
    ctypes.CDLL("libc.so.6").malloc_trim(0)  # what was freed before is not to be used again
    row_arrays.give_back()
    before = runtime.current_rss()
    runtime.reset_peak_rss()
    run()
    return runtime.peak_rss() - before


def tell(name, peaks):
    print(json.dumps([name, *(peak / one for peak in peaks)]), flush=True)


def ring(n):
    # Searching for neighbours is told apart; this graph needs none.
    near = np.stack([(np.arange(n) - 7) % n, (np.arange(n) + 7) % n], axis=1).astype(np.int32)
    indptr = 2 * np.arange(n + 1, dtype=np.int32)
    return sp.csr_array((np.full(2 * n, 0.5), near.ravel(), indptr), shape=(n, n))


def update_S(problem):
    problem.L_s = Laplacian(ring(len(problem.F)))
    return 0.0


rng = np.random.default_rng(0)
X = rng.normal(size=(n, 10)).astype(np.float32)


def search(space, n=n):
    near_points(row_arrays.fill(space.empty(n, 3, np.float32), X[:n, :3]), 30, seed=0, space=space)


search(RowSpace(), 3000)
tell("search", [added(lambda: search(RowSpace(place))) for place in (None, folder)])

mfsir.MFSIR._graph = lambda self, source, *rest: (Laplacian(ring(source.profile.n)), None)
smfs.SMFS._density_graph = lambda self, source, *rest: (ring(source.profile.n), 256, {})
access_mfs._Problem._update_S = update_S
for name, cls, options in (
    ("mfsir", mfsir.MFSIR, {"n_latent": q}),
    ("smfs", smfs.SMFS, {"alpha": 1e-3}),
    ("access-mfs", access_mfs.AccessMFS, {"solver_tol": 1e-2}),
):
    # Few labels are given: they are in memory.
    Y = (rng.random((n, q)) < 0.02).astype(np.int8)
    if name != "mfsir":
        Y[rng.random(n) < 0.02] = -1
    rows, small = (ArrayRows(X[:m], as_labels(Y[:m])) for m in (n, 500))
    selector = cls(5, max_iter=1, **options)
    selector.fit(small, None)
    peaks = []
    for space in (None, folder):
        for module in (access_mfs, mfsir, smfs):
            module.row_space = lambda plan: RowSpace(space)
        with runtime.process_limits(threads=1):
            peaks.append(added(lambda: selector.fit(rows, None)))
        if hasattr(selector, "labels_"):
            del selector.labels_
    tell(name, peaks)
"""

#: Arrays of n rows and 20 columns by which files take less memory, and that they take at most.
SPARED = {"search": (2.0, 2.2), "mfsir": (1.4, 2.2), "smfs": (0.4, 3.0), "access-mfs": (3.5, 2.5)}


def test_files_take_the_memory_of_blocks(tmp_path):
    """What the process holds, as the system counts it."""
    ran = subprocess.run([sys.executable, "-c", MEASURED, str(tmp_path)], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr
    found = {name: peaks for name, *peaks in map(json.loads, ran.stdout.splitlines())}
    assert sorted(found) == sorted(SPARED)
    for name, (spared, most) in SPARED.items():
        in_memory, in_files = found[name]
        assert in_memory - in_files > spared, found
        assert in_files < most, found
    assert not list(tmp_path.iterdir())
