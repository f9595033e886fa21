"""An opened store: lazy arrays that say the truth, facts, metadata that validate themselves, and refusals."""

from __future__ import annotations

import copy
import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sparse
import zarr
from dask.array.utils import assert_eq

from mlfs_dask.errors import DataError
from mlfs_dask.files.object_store import open_objects
from mlfs_dask.storage.anndata_encoding import read_vector
from mlfs_dask.storage.dataset import Dataset, open_metadata, open_store
from mlfs_dask.storage.inspect import facts_of
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask.storage.schema import StoreSchema
from tests.storage.stores import make_store, sample


@pytest.fixture(params=["dense", "sparse"])
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


def opened(folder: Path, form: str, **options: Any) -> tuple[Dataset, np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    X, Y = sample(sparse=form == "sparse")
    path = make_store(folder / "out.zarr", X, Y, storage=form, **options)
    return open_dataset(path), X, Y


@pytest.mark.parametrize(("compressor", "partition_bytes"), [("none", 1), ("zstd", 900), ("none", 10**9)])
def test_lazy_arrays(tmp_path: Path, form: str, partition_bytes: int, compressor: str) -> None:
    dataset, X, Y = opened(tmp_path, form, partition_bytes=partition_bytes, compressor=compressor)
    assert dataset.X.shape == X.shape
    assert dataset.X.dtype == np.float64
    assert dataset.Y.dtype == np.int8
    assert dataset.X.chunks[0] == tuple(np.diff(dataset.schema.partitions.rows))
    assert dataset.X.numblocks[0] == dataset.Y.numblocks[0] == dataset.rows.profile.partitions
    # assert_eq checks names, chunks, dtype and meta of every block against what is declared.
    assert_eq(dataset.X, X, equal_nan=True)
    assert_eq(dataset.Y, Y)
    if form == "sparse":
        assert isinstance(dataset.X.compute(), sparse.GCXS)
    for array in (dataset.X, dataset.Y):
        for block in array.blocks.ravel():
            assert type(block.compute()) is type(array._meta)


def test_inspection(tmp_path: Path) -> None:
    dataset, X, Y = opened(tmp_path, "sparse", partition_bytes=900)
    facts = facts_of(open_metadata(tmp_path / "out.zarr"))
    assert json.loads(json.dumps(facts)) == facts
    assert facts["nonzeros"] == np.count_nonzero(X)
    assert facts["density"] == np.count_nonzero(X) / X.size
    assert facts["label_cardinality"] == (Y == 1).sum() / 60
    assert facts["unknown_labels"] == (Y == -1).sum()
    assert facts["labels_never_positive"] == sum(not (column == 1).any() for column in Y.T)
    assert facts["missing_values"] == np.isnan(X).sum()
    assert facts["features_with_missing_values"] == np.isnan(X).any(axis=0).sum()
    assert facts["kinds"] == {"numeric": 12, "integer": 0, "binary": 0, "categorical": 0}
    assert facts["partitions"] == dataset.rows.profile.partitions > 1
    files = sum(path.stat().st_size for path in (tmp_path / "out.zarr").rglob("*") if path.is_file())
    assert facts["bytes"] == files - (tmp_path / "out.zarr" / "zarr.json").stat().st_size
    assert facts["digest"] == dataset.digest
    assert "out.zarr: 60 rows, 12 features, 20 labels, sparse" in repr(dataset)
    assert (dataset.shape, dataset.feature_names[3], dataset.label_names[0]) == (X.shape, "é 3'", "label 0")
    np.testing.assert_array_equal(dataset.label_counts, [(value == Y).sum(axis=0) for value in (-1, 0, 1)])


def test_opening_needs_neither_zarr_nor_dask(tmp_path: Path) -> None:
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False))
    code = (
        "import sys; from mlfs_dask.storage.opening import open_dataset; "
        f"open_dataset({str(path)!r}); print(sorted({{'dask', 'zarr', 'numba', 'pandas'}} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_opening_reads_the_root_alone(tmp_path: Path) -> None:
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False))
    for file in path.rglob("*"):
        if file.is_file() and file != path / "zarr.json":
            file.write_bytes(b"?" * file.stat().st_size)
    dataset = open_dataset(path)
    assert dataset.label_counts.shape == (3, 20)
    with pytest.raises(DataError, match=r"var/_index is damaged") as raised:
        _ = dataset.feature_names
    assert "cure: restore a copy" in str(raised.value)


VECTORS = ("var/_index", "var/min", "var/n_missing", "var/kind/codes", "var/kind/categories", "uns/mlfs/label_names")


@pytest.mark.parametrize("chunk", [5, 1 << 20])
def test_small_arrays_are_read_as_zarr_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    """Of several parts, the last of them cut, and of none where all is 0."""
    monkeypatch.setattr("mlfs_dask.storage.anndata_encoding.CHUNK", chunk)
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False))
    metadata = json.loads((path / "zarr.json").read_text())["consolidated_metadata"]["metadata"]
    for key in VECTORS:
        found, expected = (
            read_vector(open_objects(path).read, key, metadata[key], metadata[key]["shape"][0]),
            zarr.open_array(path / key, mode="r")[:],
        )
        assert isinstance(expected, np.ndarray)
        assert found.dtype == expected.dtype
        assert found.tolist() == expected.tolist(), key
        assert found.flags.writeable


# Refusals


@pytest.mark.parametrize("open_it", [open_dataset, open_metadata])
def test_no_such_store(tmp_path: Path, open_it: Any) -> None:
    with pytest.raises(DataError, match=r"\*\.zarr: there is no such store\n  cure: name every store: patterns "):
        open_dataset(tmp_path / "*.zarr")
    with pytest.raises(DataError, match=r"nowhere.zarr: there is no such store\n  cure: make a store with"):
        open_it(tmp_path / "nowhere.zarr")


def test_not_a_store(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"not an mlfs store: it has no zarr\.json"):
        open_dataset(tmp_path)
    (tmp_path / "file").write_text("x")
    with pytest.raises(DataError, match="a store is a directory, this is a file"):
        open_store(tmp_path / "file")
    (tmp_path / "zarr.json").write_text('{"zarr_format": 3, "node_type": "group", "attributes": {}}')
    with pytest.raises(DataError, match="not an mlfs store: the root group has no attribute 'mlfs'"):
        open_dataset(tmp_path)
    for other in ("[]", '{"attributes": {"mlfs": 3}}', '{"attributes": {"mlfs": []}}'):
        (tmp_path / "zarr.json").write_text(other)
        with pytest.raises(DataError, match="not an mlfs store"):
            open_dataset(tmp_path)
    (tmp_path / "zarr.json").write_text('{"zarr')
    with pytest.raises(DataError, match=r"zarr\.json is damaged: "):
        open_dataset(tmp_path)


@pytest.mark.parametrize(("record", "kind"), [("run.json", "a run"), ("eval.json", "an evaluation")])
def test_a_folder_of_results_is_not_a_store(tmp_path: Path, record: str, kind: str) -> None:
    for name in (record, "pairs.parquet"):  # of pairs, not of rows
        (tmp_path / name).touch()
    with pytest.raises(DataError, match=f"this is {kind}, not a store\n  cure: see it with `mlfs report`"):
        open_dataset(tmp_path)


def test_a_store_cut_off_half_way(tmp_path: Path) -> None:
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False), partition_bytes=900)
    shards = sorted((path / "X" / "c").iterdir())
    (shards[1] / "0").unlink()
    last = shards[-1] / "0"
    last.write_bytes(last.read_bytes()[:-10])
    with pytest.raises(DataError) as raised:
        open_dataset(path)
    assert "the store is incomplete: 1 object missing: X/c/1/0; " in str(raised.value)
    assert f"1 object not of the recorded size: X/c/{shards[-1].name}/0" in str(raised.value)


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the root of a sparse store says."""
    X, Y = sample(sparse=True)
    path = make_store(tmp_path_factory.mktemp("schema") / "t.zarr", X, Y, storage="sparse", partition_bytes=900)
    said: dict[str, Any] = json.loads((path / "zarr.json").read_bytes())["attributes"]["mlfs"]
    return said


def test_every_missing_key_is_named(document: dict[str, Any]) -> None:
    schema = StoreSchema.from_json(document)
    assert json.loads(json.dumps(schema.to_json())) == document
    for key in document:
        damaged = {name: value for name, value in document.items() if name != key}
        if key in ("checksums", "earlier"):
            assert not getattr(StoreSchema.from_json(damaged), key)
            continue
        with pytest.raises(DataError, match=key) as raised:
            StoreSchema.from_json(damaged, path="some.zarr")
        assert "some.zarr" in str(raised.value)
        assert "cure:" in str(raised.value)


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        ("n", 0, "n must be positive"),
        ("n", -1, "'n' has the wrong form"),
        ("n", "5", "'n' has the wrong form"),
        ("dtype", "complex64", "unknown dtype 'complex64'"),
        ("storage", "rows", "unknown storage 'rows'"),
        ("labels_storage", "", "unknown labels_storage ''"),
        ("compressor", "gzip", "unknown compressor 'gzip'"),
        ("partitions.rows", lambda at: [*at[:-1], 61], "partitions.rows must run from 0 to 60, not 0 to 61"),
        ("partitions.rows", [], "partitions.rows must run from 0 to 60"),
        ("partitions.rows", [0, 60], "partitions.nonzeros has "),
        (
            "partitions.nonzeros",
            lambda at: [0, at[-1] + 1, *at[2:]],
            "partitions.nonzeros must not fall",
        ),
        ("partitions.nonzeros", lambda at: [*at[:-1], 900], "partitions.nonzeros must run from 0 to "),
        (
            "partitions.label_nonzeros",
            lambda at: [*at[:-1], 900],
            "partitions.label_nonzeros must run from 0",
        ),
        ("partitions.nonzeros", lambda at: [0, None, *at[2:]], "'partitions.nonzeros' has the wrong form"),
        ("label_counts.unknown", [0], "label_counts.unknown has 1 entries for 20 labels"),
        ("label_counts", [], "'label_counts' has the wrong form"),
        ("digests", {"a": 1}, "'digests' has the wrong form"),
        ("sources", {}, "'sources' has the wrong form"),
        ("checksums", {"X/c/0": ["a"]}, "key 'checksums' has the wrong form"),
        ("earlier", [{"digest": "ab"}], "key 'earlier' has the wrong form"),
        ("earlier", {}, "key 'earlier' has the wrong form"),
        ("format_version", 2, "format_version 2 is newer than 1"),
        *(
            ("format_version", version, "format_version must be a whole number")
            for version in (None, "1", 0, True, 1.0)
        ),
    ],
)
def test_values_that_cannot_be(document: dict[str, Any], path: str, value: Any, problem: str) -> None:
    changed = copy.deepcopy(document)
    *folders, last = path.split(".")
    place = functools.reduce(dict.__getitem__, folders, changed)
    place[last] = value(place[last]) if callable(value) else value
    with pytest.raises(DataError) as raised:
        StoreSchema.from_json(changed, path="some.zarr")
    assert problem in str(raised.value)
    assert ("upgrade mlfs-dask" in str(raised.value)) == ("newer" in problem)
