"""Conversions end to end: content, forms, refusals, what is left behind, and what a killed one goes on with."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import fsspec
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.files.sources import examine, require_unchanged
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.readers.label_values import MINUS_ONE, UNKNOWN
from mlfs_dask.storage import convert as module
from mlfs_dask.storage.chunking import ConversionPlan
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import Conversion, convert, convert_reader
from mlfs_dask.storage.destination import Destination
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask.storage.spool import SpooledRows
from mlfs_dask.storage.verify import verify
from tests.storage.memory_reader import MemoryReader, make_reader
from tests.storage.stores import make_store, sample

NAN = float("nan")


def data(n: int = 40, d: int = 9, q: int = 3, *, seed: int = 0) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=(n, d)), generator.choice([0, 1], (n, q)).astype(np.int8)


def run(folder: Path, reader: MemoryReader, *, name: str = "out.zarr", **options: Any) -> Conversion:
    return convert_reader(lambda: reader, folder / name, workers=1, options=Options(**options))


def rows_of(conversion: Conversion) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    dataset = open_dataset(conversion.store)
    X, Y = dataset.X.compute(), dataset.Y.compute()
    return tuple(M if isinstance(M, np.ndarray) else M.todense() for M in (X, Y))


def left_behind(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@settings(max_examples=10)
@given(draw=st.data())
def test_any_split_gives_the_same_content(draw: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    X, _ = data(n=30)
    X[X < 0.5] = 0
    X[::4, 1], X[:, 2], X[:, 3], X[4, 4] = NAN, np.rint(9 * X[:, 2]), 1, 2.0**25 + 1
    X[7] = 0
    meanings = [1, MINUS_ONE, MINUS_ONE] if draw.draw(st.booleans()) else [1, MINUS_ONE, UNKNOWN]
    Y = np.random.default_rng(draw.draw(st.integers(0, 9))).choice(meanings, (30, 3)).astype(np.int8)
    storage = draw.draw(st.sampled_from(["dense", "sparse"]))
    reference = run(tmp_path_factory.mktemp("whole"), make_reader(X, Y), storage=storage)
    cuts = tuple(draw.draw(st.sets(st.integers(1, 30))))
    part_cuts = tuple(draw.draw(st.sets(st.integers(1, 30), max_size=4)))
    folder = tmp_path_factory.mktemp("split")
    made = run(
        folder,
        make_reader(draw.draw(st.sampled_from([np.asarray, csr_array]))(X), Y, cuts=cuts, part_cuts=part_cuts),
        partition_bytes=draw.draw(st.sampled_from([100, 1000, 10**8])),
        compressor=draw.draw(st.sampled_from(["none", "zstd", "lz4"])),
        storage=storage,
    )
    assert left_behind(folder) == ["out.zarr"]
    assert verify(made.store).intact
    assert made.schema.storage == storage
    assert made.schema.digest == reference.schema.digest
    assert made.schema.content == reference.schema.content
    for name, values in vars(open_dataset(reference.store).features).items():
        np.testing.assert_array_equal(getattr(open_dataset(made.store).features, name), values, err_msg=name)
    found, labels = rows_of(made)
    np.testing.assert_array_equal(found, X)
    np.testing.assert_array_equal(labels, np.where(Y == MINUS_ONE, 0, Y))
    assert made.schema.positive == tuple((labels == 1).sum(axis=0))
    assert made.schema.unknown == tuple((labels == -1).sum(axis=0))


def test_the_digest_tells_contents_apart(tmp_path: Path) -> None:
    X, Y = data()
    names = [f"f{i}" for i in range(9)]
    changed = X.copy()
    changed[3, 4] += 1e-12
    other_label = Y.copy()
    other_label[5, 1] = -1
    readers = {
        "same": make_reader(X, Y, feature_names=names),
        "value": make_reader(changed, Y, feature_names=names),
        "label": make_reader(X, other_label, feature_names=names),
        "name": make_reader(X, Y, feature_names=[*names[:-1], "other"]),
        "rows": make_reader(X[::-1], Y[::-1], feature_names=names),
    }
    made = {key: run(tmp_path, reader, name=key).schema for key, reader in readers.items()}
    assert len({schema.digest for schema in made.values()}) == len(made)
    assert made["name"].content["X"] == made["same"].content["X"]
    assert made["label"].content["X"] == made["same"].content["X"]
    assert made["value"].content["labels"] == made["same"].content["labels"]


def test_spellings_of_false_and_true_are_no_content(tmp_path: Path) -> None:
    X, Y = np.array([[0.0, 1], [1, 1]]), np.ones((2, 1), np.int8)
    declared = [{}, {0: ("0", "1")}, {0: ("NO", "YES")}, {0: ("left", "right")}]
    made = [run(tmp_path, make_reader(X, Y, categories=each), name=f"{i}") for i, each in enumerate(declared)]
    assert len({each.schema.digest for each in made}) == 1
    three = run(tmp_path, make_reader(X, Y, categories={0: ("a", "b", "c")}), name="three")
    assert three.schema.digest != made[0].schema.digest


def test_everything_is_on_the_disk_before_it_is_visible(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before, after = set(), set()

    def note(descriptor: int) -> None:
        name = str(Path(f"/proc/self/fd/{descriptor}").readlink())
        (after if (tmp_path / "out.zarr").exists() else before).add(name)

    monkeypatch.setattr(os, "fsync", note)
    made = run(tmp_path, make_reader(*data()))
    assert before == {str(tmp_path / ".out.zarr.wip" / "store" / key) for key in (*made.schema.sizes, "zarr.json")}
    assert after == {str(tmp_path)}, "the folder that holds the new name"


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([0, 0, 0], "uint8"),
        ([0, 255, 3], "uint8"),
        ([0, -1, 3], "int16"),
        ([0, 70_000, 3], "int32"),
        ([0.5, 0.25, 3], "float32"),
        ([0.1, 0.25, 3], "float64"),
        ([0, 1, NAN], "float32"),
        ([NAN, NAN, NAN], "float32"),
    ],
)
def test_the_narrowest_type_without_loss(tmp_path: Path, values: list[float], dtype: str) -> None:
    X = np.array(values)[:, None]
    made = run(tmp_path, make_reader(X, np.ones((3, 1), np.int8)))
    assert (made.schema.dtype, made.schema.storage) == (dtype, "dense")
    found, _ = rows_of(made)
    np.testing.assert_array_equal(found, X)


@pytest.mark.parametrize(
    ("values", "dtype", "said"),
    [
        ([2**24, 3], "float32", None),
        ([2**24 + 1, 3], None, None),
        ([2**24 + 1, NAN], None, None),
        ([2**24 + 1, 0.5], "float32", None),
        ([2**40 + 1, 2**53 - 1], None, None),
        # What is read as 2^53 may be the next number.
        ([2**40 + 1, 2**53], None, "hold whole numbers beyond 2^53, which float64 rounds; leave identifiers out with"),
        ([2**60, 3], None, "hold whole numbers beyond 2^53, which float64 rounds; leave identifiers out with"),
        ([2**24 + 1, 3], "float32", "hold whole numbers beyond 2^24, which float32 rounds; leave --dtype out to keep"),
        ([-(2**24) - 1, 3], "float32", "hold whole numbers beyond 2^24, which float32 rounds; leave --dtype out"),
        ([2**53 + 2, 3], None, "hold whole numbers beyond 2^53, which float64 rounds; leave identifiers out with"),
    ],
)
def test_whole_numbers_are_kept_or_their_loss_is_told(
    tmp_path: Path, values: list[float], dtype: str | None, said: str | None
) -> None:
    X = np.array([values, [1.0, 2.0]]).T
    reader = make_reader(X, np.ones((2, 1), np.int8), feature_names=("id", "x"))
    made = run(tmp_path, reader, dtype=dtype)
    if said is None:
        assert made.warnings == ()
    else:
        (warning,) = made.warnings
        assert warning.startswith(f"1 of the features ('id') {said}")
    if dtype is None:
        np.testing.assert_array_equal(rows_of(made)[0], X)


ONES = np.ones((3, 50))
TINY = np.where(np.arange(150).reshape(3, 50) == 52, 1e-60, 0)
NAMED = {"feature_names": [f"f{i}" for i in range(50)], "path": "a.txt", "first_line": 11}
VANISHES = "memory, column 'x2', value '1e-60': a nonzero value becomes 0 as float32"


@pytest.mark.parametrize(
    ("X", "q", "header", "options", "problem"),
    [
        (ONES[:0], 1, {}, {}, "there are no rows"),
        (ONES[:, :0], 1, {}, {}, "there are no features"),
        (ONES, 0, {}, {}, "there are no labels"),
        (ONES[:, :3], 2, {"feature_names": ["a", "b", "a"]}, {},
         r"memory, column 'a': two features have the same name \(the features number 1 and 3\)\n  cure: rename"),
        (ONES[:, :3], 2, {"label_names": ["y", "y"]}, {}, "column 'y': two labels have the same name"),
        (ONES[:, :3], 2, {"feature_names": ["a", "b"]}, {}, "rows have 3 features but there are 2 feature names"),
        (ONES[:, :3], 2, {"label_names": ["y"]}, {}, "rows have 2 labels but there are 1 label names"),
        *((form(np.where(TINY, value, 1)), 1, NAMED, {}, f"^a.txt, line 12, column 'f2', value {value}: a feature must "
           "be a finite number or missing\n  cure: replace infinite values, or leave the field empty")
          for form in (np.asarray, csr_array) for value in (np.inf, -np.inf)),
        (3 * ONES, 1, {"categories": {0: tuple("abc")}}, {}, "a categorical feature with 3 declared values has code 3"),
        *((np.array([[1.0, value]]), 1, {"feature_names": ["a", "b"]}, {"dtype": dtype},
           f"memory, column 'b': {problem}(.|\n)*cure: leave --dtype out")
          for value, dtype, problem in (
              (0.5, "int16", "int16 cannot hold fractions"),
              (NAN, "uint8", "uint8 cannot hold missing values"),
              (300.0, "uint8", "values run from 0 to 300, beyond uint8"),
              (-1.0, "uint8", "values run from -1 to 0, beyond uint8"),
              (1e300, "float32", r"values run from 0 to 1e\+300, beyond float32"))),
        *((form(TINY), 1, {}, {"dtype": "float32", "storage": storage}, VANISHES)
          for form in (np.asarray, csr_array) for storage in ("dense", "sparse")),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, X: Any, q: int, header: Any, options: Any, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        run(tmp_path, make_reader(X, np.ones((X.shape[0], q), np.int8), **header), **options)
    assert left_behind(tmp_path) == []


def test_ranges_are_those_of_the_stored_values(tmp_path: Path) -> None:
    X = np.array([[0.1, 1 + 1e-12], [0.2, 1 - 1e-12]])
    made = run(tmp_path, make_reader(X, np.ones((2, 1), np.int8)), dtype="float32")
    dataset = open_dataset(made.store)
    assert dataset.features.minimum.tolist() == [float(np.float32(0.1)), 1.0]
    assert dataset.features.maximum.tolist() == [float(np.float32(0.2)), 1.0]
    assert dataset.schema.constant_features == 1


def test_kinds_ranges_and_categories(tmp_path: Path) -> None:
    X = np.array(
        [
            # numeric, integer, binary, categorical, two texts, missing, constant, all missing
            [0.5, 3, 0, 2, 0, 1, 4, NAN],
            [1.5, -2, 1, 0, 1, NAN, 4, NAN],
            [2.5, 0, 1, 2, 1, 0, 4, NAN],
        ]
    )
    reader = make_reader(
        X,
        np.ones((3, 1), np.int8),
        feature_names=["num", "int", "bin", "cat", "two", "hole", "const", "none"],
        categories={2: ("NO", "YES"), 3: ("red", "green", "blue"), 4: ("left", "right")},
    )
    made = run(tmp_path, reader)
    dataset = open_dataset(made.store)
    assert " ".join(dataset.kinds) == "numeric integer binary categorical binary binary integer numeric"
    info = dataset.features
    assert info.minimum.tolist()[:7] == [0.5, -2, 0, 0, 0, 0, 4]
    assert info.maximum.tolist()[:7] == [2.5, 3, 1, 2, 1, 1, 4]
    assert np.isnan([info.minimum[7], info.maximum[7]]).all()
    assert info.n_categories.tolist() == [0, 0, 2, 3, 2, 2, 0, 0]
    assert info.n_missing.tolist() == [0, 0, 0, 0, 0, 1, 0, 3]
    assert dataset.categories == {3: ("red", "green", "blue"), 4: ("left", "right")}
    assert made.schema.constant_features == 2
    assert made.schema.kinds == {"numeric": 2, "integer": 2, "binary": 3, "categorical": 1}


@pytest.mark.parametrize("shape", [(700, 3), (50, 1000)])
def test_counts_of_many_rows_and_of_many_features(tmp_path: Path, shape: tuple[int, int]) -> None:
    """More values than a byte counts, and more features than are looked at together."""
    generator = np.random.default_rng(0)
    X = generator.integers(0, 3, shape).astype(float)
    X[generator.random(shape) < 0.1] = NAN
    X[:, 0] = 1
    made = run(tmp_path, make_reader(X, np.ones((len(X), 1), np.int8)))
    features = open_dataset(made.store).features
    assert made.schema.nonzeros == np.count_nonzero(X)
    np.testing.assert_array_equal(features.n_missing, np.isnan(X).sum(axis=0))
    np.testing.assert_array_equal(features.minimum, np.nanmin(X, axis=0))


def test_a_feature_that_identifies_rows(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    X = np.array([[2.0, 0], [0, 1], [1, 1]])
    reader = make_reader(
        X, np.ones((3, 1), np.int8), feature_names=["id", "f"], categories={0: ("a", "b", "c"), 1: ("x", "y", "z")}
    )
    with caplog.at_level(logging.WARNING):
        made = run(tmp_path, reader)
    (warning,) = made.warnings
    assert warning.startswith("feature 'id' has a different value in each of the 3 rows")
    assert warning.endswith("--drop id")
    assert warning in caplog.text


@pytest.mark.parametrize("q", [5, 400])
def test_form_of_the_labels(tmp_path: Path, q: int) -> None:
    Y = np.zeros((30, q), np.int8)
    Y[:, 1] = 1
    made = run(tmp_path, make_reader(np.ones((30, 2)), Y))
    assert made.schema.labels_storage == ("dense" if q == 5 else "sparse")
    np.testing.assert_array_equal(rows_of(made)[1], Y)


def test_sparse_partitions_begin_with_whole_rows(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    X = (generator.random((2000, 60)) < 0.05).astype(float)
    X[100:1900] = 0  # a long run of empty rows must not become one partition
    X[50] = 1
    made = run(tmp_path, make_reader(X, np.ones((2000, 1), np.int8), cuts=(33, 150)), partition_bytes=1000)
    cuts = made.schema.partitions
    indptr = csr_array(X).indptr
    assert made.schema.storage == "sparse"
    assert cuts.nonzeros == tuple(indptr[list(cuts.rows)])
    assert cuts.count > 10
    assert max(np.diff(cuts.rows)) < 900
    np.testing.assert_array_equal(rows_of(made)[0], X)


# The destination


def test_force_replaces_only_with_a_complete_store(tmp_path: Path) -> None:
    X, Y = data()
    before = run(tmp_path, make_reader(X, Y)).schema
    bad = np.full_like(X, np.inf)
    with pytest.raises(DataError):
        convert_reader(lambda: make_reader(bad, Y), tmp_path / "out.zarr", workers=1, force=True)
    assert open_dataset(tmp_path / "out.zarr").digest == before.digest
    link = tmp_path / "latest.zarr"
    link.symlink_to("out.zarr")
    convert_reader(lambda: make_reader(X + 1, Y), link, workers=1, force=True)
    assert link.readlink() == Path("out.zarr")
    np.testing.assert_array_equal(open_dataset(tmp_path / "out.zarr").X.compute(), X + 1)
    assert left_behind(tmp_path) == ["latest.zarr", "out.zarr"]


@pytest.mark.parametrize("kind", ["file", "folder"])
def test_force_replaces_no_other_files(tmp_path: Path, kind: str) -> None:
    target = tmp_path / "out.zarr"
    if kind == "file":
        target.write_text("thesis")
    else:
        target.mkdir()
        (target / "thesis.tex").write_text("thesis")
    with pytest.raises(UsageError, match="exists and is not a store, so --force does not replace it"):
        convert_reader(lambda: make_reader(*data()), target, workers=1, force=True)
    assert (target if kind == "file" else target / "thesis.tex").read_text() == "thesis"


def test_a_store_replaced_while_the_new_one_moved_comes_back(tmp_path: Path) -> None:
    """Killed between the two renames: the old store lies in the working directory."""
    X, Y = data()
    before = run(tmp_path, make_reader(X, Y)).schema
    wip = tmp_path / ".out.zarr.wip"
    wip.mkdir()
    (tmp_path / "out.zarr").rename(wip / "store.old")
    bad = np.full_like(X, np.inf)
    with pytest.raises(DataError):
        convert_reader(lambda: make_reader(bad, Y), tmp_path / "out.zarr", workers=1, force=True)
    assert open_dataset(tmp_path / "out.zarr").digest == before.digest
    assert left_behind(tmp_path) == ["out.zarr"]


def test_a_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    memory = fsspec.filesystem("memory")
    X, Y = data()
    url = "memory://bucket/some.zarr"
    try:
        cut = Options(partition_bytes=500)  # more objects than the next store has
        made = convert_reader(lambda: make_reader(X, Y), url, workers=1, options=cut)
        np.testing.assert_array_equal(open_dataset(url).X.compute(), X)
        assert open_dataset(url).feature_names[0] == "x0"
        assert verify(url).intact
        assert left_behind(tmp_path) == []
        with pytest.raises(UsageError, match=r"memory://bucket/some\.zarr exists"):
            convert_reader(lambda: make_reader(X, Y), url, workers=1)
        convert_reader(lambda: make_reader(X[:5], Y[:5]), url, workers=1, force=True)
        assert open_dataset(url).shape == (5, 9)
        assert verify(url).intact
        assert made.schema.n == 40
    finally:
        memory.rm("/bucket", recursive=True)


@pytest.mark.parametrize("place", ["memory://planted/some.zarr", "local"])
@pytest.mark.parametrize("planted", ["link", "lock", "of another user", "for the group"])
def test_a_working_directory_that_others_planted_is_refused(
    planted: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing of theirs is read, written or removed, whatever is passed."""
    temporary, elsewhere = tmp_path / "tmp", tmp_path / "elsewhere"
    temporary.mkdir()
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    store = str(temporary / "some.zarr") if place == "local" else place
    wip = Destination(store, None).wip
    assert wip.parent == temporary
    (elsewhere / "lock").write_text("precious")
    if planted == "link":
        wip.symlink_to(elsewhere)
    else:
        wip.mkdir(mode=0o700)
        (wip / "lock").symlink_to(elsewhere / "lock")
    problem = "symbolic link"
    if planted == "of another user":
        if os.geteuid() != 0:
            pytest.skip("needs root")
        os.chown(wip, 65534, 65534)
        problem = "another user"
    elif planted == "for the group":
        wip.chmod(0o770)
        if place != "local":  # beside a store its owner says who may write
            problem = "mode 770 lets"
    for go_on in ({"resume": True}, {"force": True}, {}):
        with pytest.raises(MlfsError, match=f"(?is){problem}.*cure: "):
            convert_reader(lambda: make_reader(*data()), store, workers=1, **go_on)
    assert (elsewhere / "lock").read_text() == "precious"
    assert os.path.lexists(wip)


def test_what_is_staged_for_a_url_is_private(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))

    def refuse(*_: object) -> None:
        raise OSError("no")

    monkeypatch.setattr(Destination, "_upload", refuse)
    with pytest.raises(MlfsError, match="pass --resume"):
        convert_reader(lambda: make_reader(*data()), "memory://private/some.zarr", workers=1)
    (kept,) = tmp_path.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o700
    monkeypatch.undo()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    try:
        convert_reader(lambda: make_reader(*data()), "memory://private/some.zarr", workers=1, resume=True)
        assert left_behind(tmp_path) == []
    finally:
        fsspec.filesystem("memory").rm("/private", recursive=True)


# Threads and processes


def _plan(processes: int) -> Callable[..., ConversionPlan]:
    return lambda *args, **kwargs: ConversionPlan(processes, 1 << 20, 1)


@pytest.mark.parametrize("in_threads", [False, True])
def test_two_workers_write_the_same_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_threads: bool) -> None:
    X, Y = data(n=60)
    alone = run(tmp_path, make_reader(X, Y), name="alone.zarr", partition_bytes=700).schema
    monkeypatch.setattr(module, "_plan", _plan(2))
    log = tmp_path / "log"
    reader = make_reader(X, Y, part_cuts=(10, 20, 50), in_threads=in_threads, log=str(log), sleep=0.3)
    made = run(tmp_path, reader, partition_bytes=700).schema
    assert made.digest == alone.digest
    assert made.digests["X/c/1/0"] == alone.digests["X/c/1/0"]
    workers = {tuple(line.split()[2:]) for line in log.read_text().splitlines()}
    assert len(workers) == 2
    assert ({pid for pid, _ in workers} == {str(os.getpid())}) is in_threads
    log.unlink()
    assert left_behind(tmp_path) == ["alone.zarr", "out.zarr"]


@pytest.mark.parametrize("in_threads", [False, True])
def test_bad_data_in_a_worker_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_threads: bool) -> None:
    monkeypatch.setattr(module, "_plan", _plan(2))
    X, Y = data()
    X[39, 1] = np.inf
    with pytest.raises(DataError, match=r"column 2, value inf"):
        run(tmp_path, make_reader(X, Y, part_cuts=(10, 30), in_threads=in_threads))
    assert left_behind(tmp_path) == []


class _Dies(MemoryReader):
    def read(self, part: Any, *, batch_bytes: int) -> Any:
        os._exit(9)


def test_a_worker_that_dies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_plan", _plan(2))
    X, Y = data()
    reader = make_reader(X, Y, part_cuts=(10,))
    with pytest.raises(MlfsError, match=r"a worker process died while converting(.|\n)*--resume"):
        run(tmp_path, _Dies(X, Y, reader.header))
    assert left_behind(tmp_path) == [".out.zarr.wip"]
    made = convert_reader(lambda: reader, tmp_path / "out.zarr", workers=1, resume=True)
    np.testing.assert_array_equal(rows_of(made)[0], X)
    assert left_behind(tmp_path) == ["out.zarr"]


# Going on


class Stop(KeyboardInterrupt):
    pass


def interrupt(
    folder: Path, reader: MemoryReader, monkeypatch: pytest.MonkeyPatch, *, where: str, **options: Any
) -> None:
    """Run a conversion that is interrupted just before one of its steps."""

    def stop(*args: Any, **kwargs: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        if where == "publish":
            patch.setattr(Destination, "publish", stop)
        elif where == "write_root":
            patch.setattr(module, "write_root", stop)
        else:
            patch.setattr(module._Run, where, stop)
        with pytest.raises(Stop):
            run(folder, reader, **options)
    assert left_behind(folder) == [".out.zarr.wip"]


@pytest.mark.parametrize("where", ["_stage", "_merge", "_write", "_finish", "write_root", "publish"])
def test_going_on_from_any_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    X, Y = data()
    log = tmp_path.parent / f"{tmp_path.name}.log"
    reader = make_reader(X, Y, part_cuts=(10, 30), log=str(log))
    interrupt(tmp_path, reader, monkeypatch, where=where)
    log.unlink(missing_ok=True)
    made = convert_reader(lambda: reader, tmp_path / "out.zarr", workers=1, resume=True)
    np.testing.assert_array_equal(rows_of(made)[0], X)
    assert verify(made.store).intact
    assert left_behind(tmp_path) == ["out.zarr"]
    # Besides the one small batch from which memory is planned.
    reads = log.read_text().splitlines()[1:] if log.exists() else []
    assert bool(reads) is (where == "_stage")


def test_shards_that_are_written_are_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data()
    reader = make_reader(X, Y)
    interrupt(tmp_path, reader, monkeypatch, where="_finish", partition_bytes=700)
    store = tmp_path / ".out.zarr.wip" / "store"
    shards = sorted(path for path in store.rglob("*") if path.is_file())
    kept, torn, lost = shards[0], shards[1], shards[2]
    written = kept.stat().st_mtime_ns
    torn.write_bytes(b"torn")
    lost.unlink()
    made = convert_reader(
        lambda: reader, tmp_path / "out.zarr", workers=1, resume=True, options=Options(partition_bytes=700)
    )
    assert (tmp_path / "out.zarr" / kept.relative_to(store)).stat().st_mtime_ns == written
    assert verify(made.store).intact
    np.testing.assert_array_equal(rows_of(made)[0], X)


@pytest.mark.parametrize(
    ("where", "torn"),
    [("publish", ("store/X/c/0/0", "store/var/min/c/0")), ("_merge", ("stage/000000.bin", "stage/000000.json"))],
)
def test_what_a_power_cut_has_torn_is_mended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, torn: tuple[str, ...]
) -> None:
    X, Y = data()
    reader = make_reader(X, Y)
    interrupt(tmp_path, reader, monkeypatch, where=where)
    for name in torn:
        path = tmp_path / ".out.zarr.wip" / name
        half_a_line = path.read_bytes() + b'{"offset": 12, "ro'
        path.write_bytes(half_a_line if path.suffix == ".json" else b"\0" * path.stat().st_size)
    made = convert_reader(lambda: reader, tmp_path / "out.zarr", workers=1, resume=True)
    assert verify(made.store).intact
    np.testing.assert_array_equal(rows_of(made)[0], X)


def test_an_interrupted_conversion_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader = make_reader(*data())
    caplog.set_level("INFO", logger="mlfs_dask")  # the command line gives the advice itself
    interrupt(tmp_path, reader, monkeypatch, where="_write")
    assert "keeps what is done, for --resume" in caplog.text
    with pytest.raises(UsageError, match=r"an interrupted conversion to .*\n  cure: pass --resume .*--force"):
        run(tmp_path, reader)
    convert_reader(lambda: reader, tmp_path / "out.zarr", workers=1, force=True)
    assert left_behind(tmp_path) == ["out.zarr"]


def test_other_options_do_not_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    X, Y = data()
    interrupt(tmp_path, make_reader(X, Y), monkeypatch, where="_write")

    def resume(reader: MemoryReader, **options: Any) -> None:
        convert_reader(lambda: reader, tmp_path / "out.zarr", workers=1, resume=True, options=Options(**options))

    with pytest.raises(UsageError, match=r"cannot resume .*option dtype was None and is 'float32'\n  cure: .*--force"):
        resume(make_reader(X, Y), dtype="float32")
    with pytest.raises(UsageError, match="names of features or labels, or their declared values, were changed"):
        resume(make_reader(X, Y, feature_names=list("abcdefghi")))
    (tmp_path / ".out.zarr.wip" / "job.json").write_text("{")
    with pytest.raises(UsageError, match="its description is missing or damaged"):
        resume(make_reader(X, Y))


def test_two_conversions_to_one_place(tmp_path: Path) -> None:
    X, Y = data()

    class Nested(MemoryReader):
        def read(self, part: Any, *, batch_bytes: int) -> Any:
            for options in ({}, {"resume": True}, {"force": True}):
                with pytest.raises(UsageError, match="another process is converting to"):
                    convert_reader(lambda: make_reader(X, Y), tmp_path / "out.zarr", workers=1, **options)
            return super().read(part, batch_bytes=batch_bytes)

    reader = make_reader(X, Y)
    nested = Nested(X, Y, reader.header)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_plan", _plan(1))
        assert run(tmp_path, nested).schema.n == 40


@pytest.fixture
def full_disk(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    monkeypatch.setattr(module.shutil, "disk_usage", lambda path: SimpleNamespace(free=500))
    return monkeypatch


def test_not_enough_room_for_the_store(tmp_path: Path, full_disk: pytest.MonkeyPatch) -> None:
    problem = r"writing the store beside its staged rows .*\n  cure: make room"
    with pytest.raises(DoesNotFitError, match=problem) as raised:
        run(tmp_path, make_reader(*data()))
    assert raised.value.available == 500
    assert left_behind(tmp_path) == [".out.zarr.wip"]
    full_disk.undo()
    convert_reader(lambda: make_reader(*data()), tmp_path / "out.zarr", workers=1, resume=True)


@pytest.mark.usefixtures("full_disk")
def test_not_enough_room_for_the_staged_rows(tmp_path: Path) -> None:
    with pytest.raises(DoesNotFitError, match="staging rows in"):
        run(tmp_path, make_reader(*data(), part_cuts=(10, 20, 30)))


# From files


def write_csv(path: Path, rows: int = 30, *, seed: int = 0) -> Path:
    generator = np.random.default_rng(seed)
    lines = ["a,b,sky,sea"]
    lines += [f"{x:.3f},{y:.3f},{int(x > 0)},{int(y > 0)}" for x, y in generator.normal(size=(rows, 2))]
    path.write_text("\n".join(lines) + "\n")
    return path


def test_convert_records_its_sources(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv")
    made = convert(source, tmp_path / "out.zarr", labels=LabelSpec(columns=("sky", "sea")), workers=1, command="mlfs x")
    (recorded,) = made.schema.sources
    assert recorded["path"] == str(source)
    assert recorded["bytes"] == source.stat().st_size
    assert recorded["sha256"] == hashlib.sha256(source.read_bytes()).hexdigest()
    assert made.schema.command == "mlfs x"
    assert open_dataset(made.store).label_names.tolist() == ["sky", "sea"]


@pytest.mark.parametrize("name", ["a.csv", "a.arff"])
def test_a_small_file_is_converted_with_few_libraries(tmp_path: Path, name: str) -> None:
    # Each of them takes as long to load as a small table to convert, and Numba would compile for seconds.
    pytest.importorskip("pyarrow")
    header = "".join(f"@attribute {column} numeric\n" for column in ("a", "b", "sky", "sea"))
    rows = write_csv(tmp_path / "a.csv").read_text().split("\n", 1)[1]
    (tmp_path / "a.arff").write_text(f"@relation a\n{header}@data\n{rows}")
    code = (
        "import sys; from mlfs_dask_cli.main import mlfs; "
        f"mlfs(['convert', '{name}', 'out.zarr', '--n-labels', '2', '--quiet'], standalone_mode=False); "
        "print(sorted({'zarr', 'dask', 'distributed', 'numba', 'pandas', 'sklearn', 'fsspec'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert shown.stdout.splitlines()[-1] == "[]"


def test_a_source_that_does_not_exist(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"sources are paths and URLs of files; got ndarray\n  cure: "):
        convert(np.zeros((3, 2)), tmp_path / "out.zarr")  # type: ignore[arg-type]
    with pytest.raises(DataError, match=r"labels\.xml: there is no such file"):
        convert(
            write_csv(tmp_path / "a.csv"),
            tmp_path / "out.zarr",
            labels=LabelSpec(xml=str(tmp_path / "labels.xml")),
            workers=1,
        )
    assert left_behind(tmp_path) == ["a.csv"]


def test_a_source_that_is_changed_while_it_is_read(tmp_path: Path) -> None:
    source = write_csv(tmp_path / "a.csv")

    def open_and_change() -> Any:
        reader = open_source([str(source)], FileSpec(labels=LabelSpec(columns=("sky", "sea"))))
        with source.open("a") as file:
            file.write("1,2,0,1\n")
        return reader

    with pytest.raises(DataError, match=r"a\.csv: it was changed or replaced while it was read\n  cure: run the same"):
        convert_reader(open_and_change, tmp_path / "out.zarr", sources=examine([source]), workers=1)
    assert left_behind(tmp_path) == ["a.csv"]


def test_a_folder_at_a_url_that_is_changed() -> None:
    memory = fsspec.filesystem("memory")
    memory.pipe({"/changed/a": b"1", "/changed/b": b"2"})
    sources = examine(["memory://changed"])
    require_unchanged(sources)
    memory.pipe_file("/changed/b", b"3")
    with pytest.raises(DataError, match="memory://changed: it was changed or replaced"):
        require_unchanged(sources)


def test_changed_sources_do_not_resume(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    source = write_csv(tmp_path / "a.csv")
    labels = LabelSpec(columns=("sky", "sea"))

    def stop(*args: Any, **kwargs: Any) -> None:
        raise Stop

    with monkeypatch.context() as patch:
        patch.setattr(module._Run, "_finish", stop)
        with pytest.raises(Stop):
            convert(source, folder / "out.zarr", labels=labels, workers=1)
    shutil.copytree(folder, tmp_path / "copy")

    def resume(where: Path) -> Conversion:
        return convert(source, where / "out.zarr", labels=labels, workers=1, resume=True)

    content = source.read_bytes()
    source.write_bytes(content + b"1,2,0,1\n")
    with pytest.raises(UsageError, match=r"a.csv had \d+ bytes and has \d+"):
        resume(folder)
    source.write_bytes(content.replace(b"-", b"+", 1))
    with pytest.raises(UsageError, match=r"a\.csv was changed"):
        resume(folder)
    source.write_bytes(content)  # the same bytes at another time
    assert resume(folder).schema.n == 30
    assert json.loads((tmp_path / "copy" / ".out.zarr.wip" / "job.json").read_bytes())["options"]["storage"] == "auto"


@pytest.mark.parametrize("workers", [1, 2])
def test_progress(tmp_path: Path, workers: int) -> None:
    events: list[dict[str, Any]] = []
    reader = make_reader(*data(), part_cuts=(10,))
    reader.in_threads = True
    with runtime.progress_to(events.append):
        convert_reader(lambda: reader, tmp_path / "out.zarr", workers=workers)
    assert sum(event.get("rows", 0) for event in events) == 40, "told by the threads that read"
    read = [event for event in events if event.get("stage") == "read" and "parts_done" in event]
    write = [event for event in events if event.get("stage") == "write"]
    assert [(event["parts_done"], event["parts"]) for event in read] == [(1, 2), (2, 2)]
    assert write[-1]["parts_done"] == write[-1]["parts"]


def test_what_a_process_held_before_leaves_the_free_memory_to_a_conversion(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a notebook that holds 3 of 4 GiB."""
    monkeypatch.setattr(runtime, "current_rss", lambda: 3 * 2**30)
    monkeypatch.setattr(runtime, "available_memory", lambda: 4 * 2**30)
    X, Y = sample(sparse=False)
    assert open_dataset(make_store(tmp_path / "s.zarr", X, Y)).X.shape == X.shape


def test_what_is_converted_already_is_left_alone(tmp_path: Path) -> None:
    """As by a job that was killed just behind its last step."""
    source, store = tmp_path / "a.csv", tmp_path / "a.zarr"
    source.write_text("f,g,y\n1,2,0\n3,4,1\n")
    os.utime(source, (1e9, 1e9))
    how: dict[str, Any] = {"labels": LabelSpec(count=1), "command": "mlfs convert a.csv a.zarr --resume"}
    first = convert(source, store, **how, resume=True)
    mark = (store / "zarr.json").stat().st_mtime_ns
    again = convert(source, store, **(how | {"command": "mlfs convert a.csv a.zarr"}), resume=True)
    assert (again.schema, again.workers) == (first.schema, 0)
    for changed in ({"command": "mlfs convert a.csv a.zarr --drop f"}, {"resume": False}):
        with pytest.raises(UsageError, match="exists"):
            convert(source, store, **{**how, "resume": True, **changed})
    source.write_text("f,g,y\n1,2,0\n3,4,0\n")  # as many bytes
    os.utime(source, (1e9, 1e9))  # as `cp -p` and `rsync -t` do it
    with pytest.raises(UsageError, match="exists"):
        convert(source, store, **how, resume=True)
    assert (store / "zarr.json").stat().st_mtime_ns == mark


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_rows_that_quantiles_come_from_are_read_once(tmp_path, monkeypatch, form):
    """However many features there are, as long as the drawn rows of all fit in a few batches."""
    rng = np.random.default_rng(0)
    X = np.where(rng.random((3000, 3000)) < (0.03 if form == "sparse" else 1), rng.normal(size=(3000, 3000)), 0)
    X = X.astype(np.float32)
    np.savez(tmp_path / "x.npz", X=X, Y=np.ones((3000, 1), np.int8))
    read = []
    measured, reads = module._quantiles, SpooledRows._read_into

    def counted(*arguments):
        monkeypatch.setattr(SpooledRows, "_read_into", lambda self, *a: read.append(a[-1].nbytes) or reads(self, *a))
        try:
            return measured(*arguments)
        finally:
            monkeypatch.setattr(SpooledRows, "_read_into", reads)

    monkeypatch.setattr(module, "_quantiles", counted)
    convert(tmp_path / "x.npz", tmp_path / "x.zarr", workers=1, storage=form)
    assert 0 < sum(read) <= 1.2 * X.nbytes
    table = open_dataset(tmp_path / "x.zarr").rows.quantiles
    assert table is not None
    assert np.isfinite(table).all()


ROOT = Path(__file__).parent.parent.parent

# A conversion of 16 parts of 4 batches, each of which takes a while, as does each shard.
SCRIPT = """
import sys, time
from mlfs_dask.storage import convert as module
from mlfs_dask.storage.chunking import ConversionPlan
from mlfs_dask.storage.conversion_options import Options
from tests.storage.test_convert import slow_reader

if __name__ == "__main__":
    folder, workers = sys.argv[1], int(sys.argv[2])
    resume, in_threads = sys.argv[3] == "resume", sys.argv[4] == "threads"
    module._plan = lambda *args: ConversionPlan(workers, 1 << 20, 1)
    options = Options(partition_bytes=3000)
    write = module.write_one_shard
    module.write_one_shard = lambda *arguments: (time.sleep(0.05), write(*arguments))[1]
    print("ready", flush=True)
    module.convert_reader(lambda: slow_reader(folder, in_threads), folder + "/out.zarr", workers=workers,
                          options=options, resume=resume)
"""


def slow_reader(folder: str, in_threads: bool) -> MemoryReader:
    X, Y = rows()
    return make_reader(
        X,
        Y,
        cuts=tuple(range(0, 320, 5)),
        part_cuts=tuple(range(0, 320, 20)),
        sleep=0.03,
        log=f"{folder}/../log-{Path(folder).name}",
        in_threads=in_threads,
    )


def rows() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    return generator.normal(size=(320, 10)), generator.choice([0, 1, -1], (320, 3)).astype(np.int8)


def start(folder: Path, workers: int, *, resume: bool, kind: str = "processes") -> subprocess.Popen[bytes]:
    script = folder.parent / f"{folder.name}.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(folder), str(workers), "resume" if resume else "new", kind]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def batches_read(folder: Path) -> list[str]:
    log = folder.parent / f"log-{folder.name}"
    return [" ".join(line.split()[:2]) for line in log.read_text().splitlines()] if log.exists() else []


def wait_for(condition: object, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def check_finished(folder: Path) -> None:
    X, Y = rows()
    dataset = open_dataset(folder / "out.zarr")
    np.testing.assert_array_equal(dataset.X.compute(), X)
    np.testing.assert_array_equal(dataset.Y.compute(), Y)
    assert verify(folder / "out.zarr").intact
    assert [path.name for path in folder.iterdir()] == ["out.zarr"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_interrupt_key(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    process = start(folder, 2, resume=False, kind=kind)
    wait_for(lambda: len(batches_read(folder)) > 10, process)
    children = psutil.Process(process.pid).children(recursive=True)
    for each in (psutil.Process(process.pid), *children):  # as a terminal does
        each.send_signal(signal.SIGINT)
    _, problems = process.communicate(timeout=30)
    assert process.returncode != 0
    assert problems.count(b"Traceback") == 1, problems
    assert b"KeyboardInterrupt" in problems
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert [path.name for path in folder.iterdir()] == [".out.zarr.wip"]
    process = start(folder, 2, resume=True, kind=kind)
    process.communicate(timeout=100)
    check_finished(folder)
    again = len(batches_read(folder)) - len(set(batches_read(folder)))
    assert again <= 9, "the 4 batches of either part that was read, and the one from which memory is planned"
