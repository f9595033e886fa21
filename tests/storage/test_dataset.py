"""An opened store: lazy arrays that say the truth, facts, and refusals."""

from __future__ import annotations

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

from mlfs_dask.errors import DataError, MlfsError
from mlfs_dask.storage.anndata_encoding import read_vector
from mlfs_dask.storage.dataset import Dataset, open_metadata, open_store
from mlfs_dask.storage.digest import seal_root
from mlfs_dask.storage.inspect import facts_of
from mlfs_dask.storage.object_store import open_objects
from mlfs_dask.storage.opening import open_dataset
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


def test_rows_for_passes_are_the_same_rows(tmp_path: Path, form: str) -> None:
    dataset, X, Y = opened(tmp_path, form, partition_bytes=900)
    blocks = [
        (block.start, block.X.copy(), block.Y.copy())
        for block in dataset.rows.stream(0, dataset.rows.profile.partitions)
    ]
    dense = [part if isinstance(part, np.ndarray) else part.toarray() for _, part, _ in blocks]
    np.testing.assert_array_equal(np.concatenate(dense), X)
    np.testing.assert_array_equal(np.concatenate([labels.toarray() for _, _, labels in blocks]), Y)
    assert [start for start, _, _ in blocks] == np.cumsum([0, *(len(part) for part in dense)])[:-1].tolist()


def test_facts(tmp_path: Path, form: str) -> None:
    dataset, X, Y = opened(tmp_path, form)
    assert dataset.shape == X.shape
    assert dataset.feature_names[3] == "é 3'"
    assert dataset.label_names[0] == "label 0"
    assert set(dataset.kinds) == {"numeric"}
    assert dataset.categories == {}
    np.testing.assert_array_equal(dataset.features.minimum, np.nanmin(X, axis=0))
    np.testing.assert_array_equal(dataset.features.maximum, np.nanmax(X, axis=0))
    np.testing.assert_array_equal(dataset.features.n_missing, np.isnan(X).sum(axis=0))
    np.testing.assert_array_equal(dataset.label_counts, [(v == Y).sum(axis=0) for v in (-1, 0, 1)])
    assert f"out.zarr: 60 rows, 12 features, 20 labels, {form}" in repr(dataset)
    profile = dataset.rows.profile
    assert (profile.n, profile.d, profile.q, profile.sparse) == (60, 12, 20, form == "sparse")


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
    (tmp_path / "zarr.json").write_text("[]")
    with pytest.raises(DataError, match="not an mlfs store"):
        open_dataset(tmp_path)
    (tmp_path / "zarr.json").write_text('{"zarr')
    with pytest.raises(DataError, match=r"zarr\.json is damaged: "):
        open_dataset(tmp_path)


def test_no_permission(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> int:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("mlfs_dask.storage.object_store.open_file", refuse)
    with pytest.raises(MlfsError, match="no permission to read"):
        open_dataset(tmp_path)


def change_root(path: Path, change: Any) -> None:
    """Change the root metadata as another writer might have: its digest fits."""
    document = json.loads((path / "zarr.json").read_bytes())
    change(document)
    (path / "zarr.json").write_bytes(seal_root(document))


def test_an_unknown_format_version(tmp_path: Path) -> None:
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False))
    change_root(path, lambda root: root["attributes"]["mlfs"].update(format_version=99))
    with pytest.raises(DataError, match=r"format_version 99 is newer than 1, .*\n  cure: upgrade mlfs-dask"):
        open_dataset(path)


def test_a_store_cut_off_half_way(tmp_path: Path) -> None:
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False), partition_bytes=900)
    shards = sorted((path / "X" / "c").iterdir())
    (shards[1] / "0").unlink()
    last = shards[-1] / "0"
    last.write_bytes(last.read_bytes()[:-10])
    with pytest.raises(DataError) as raised:
        open_dataset(path)
    assert "the store is not whole: 1 object missing: X/c/1/0; " in str(raised.value)
    assert f"1 object not of the recorded size: X/c/{shards[-1].name}/0" in str(raised.value)


def test_a_store_without_its_root(tmp_path: Path) -> None:
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False))
    (path / "zarr.json").unlink()
    with pytest.raises(DataError, match=r"not an mlfs store: it has no zarr\.json"):
        open_dataset(path)


@pytest.mark.parametrize("key", ["X", "obsm/labels"])
def test_metadata_that_is_missing(tmp_path: Path, key: str) -> None:
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False))
    change_root(path, lambda root: root["consolidated_metadata"]["metadata"].pop(key))
    with pytest.raises(DataError, match=f"the metadata of {key} is missing or damaged"):
        _ = open_dataset(path).rows


def test_metadata_of_another_shape(tmp_path: Path) -> None:
    path = make_store(tmp_path / "out.zarr", *sample(sparse=False))
    change_root(path, lambda root: root["consolidated_metadata"]["metadata"]["X"].update(shape=[60, 11]))
    with pytest.raises(DataError, match=r"metadata of X .*shape \(60, 11\) in shards of \[60, 12\]"):
        _ = open_dataset(path).X
