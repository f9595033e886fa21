"""A store that was damaged or replaced never gives values: every way of reading it ends in an error that says where."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import mlfs_dask as mlfs
from mlfs_dask.cluster.connect import connect
from mlfs_dask.errors import DataError
from mlfs_dask.storage.dataset import Dataset
from mlfs_dask.storage.opening import open_dataset
from tests.storage.damage import FAULTS, flip, overwrite, remove_checksums
from tests.storage.stores import make_store, sample


def stream(dataset: Dataset) -> None:
    for _ in dataset.rows.stream(0, dataset.rows.profile.partitions):
        pass


X_READINGS = (stream, lambda dataset: dataset.X.compute())
LABEL_READINGS = (stream, lambda dataset: dataset.Y.compute(), lambda dataset: dataset.rows.all_labels())


def readings(key: str) -> tuple[Callable[[Dataset], object], ...]:
    return X_READINGS if key.startswith("X") else LABEL_READINGS


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return make_store(tmp_path / "sparse.zarr", *sample(sparse=True), partition_bytes=900)


@pytest.mark.parametrize("checksums", [True, False])
@pytest.mark.parametrize("fault", FAULTS)
def test_no_reading_gives_values(store: Path, fault: str, checksums: bool) -> None:
    key, entry, value = FAULTS[fault]
    if not checksums:
        remove_checksums(store)
    overwrite(store, key, entry, value)
    for read in readings(key):
        with pytest.raises(DataError) as raised:
            read(open_dataset(store))
        text = str(raised.value)
        assert text.startswith(f"{store}/{key}: the store is damaged: "), text
        assert "in partition " in text
        assert "cure: restore a copy, or convert the sources again" in text
        assert ("differs from its checksum" in text) == checksums


def test_the_text_names_row_and_value(store: Path) -> None:
    remove_checksums(store)
    rows = open_dataset(store).rows
    offsets = np.asarray(rows.row_offsets)
    indptr = np.cumsum([0, *(np.count_nonzero(sample(sparse=True)[0], axis=1))])
    row = int(np.searchsorted(indptr, 40, side="right")) - 1
    part = int(np.searchsorted(offsets, row, side="right")) - 1
    overwrite(store, "X/indices", 40, 12)
    with pytest.raises(DataError) as raised:
        stream(open_dataset(store))
    assert (
        f"row {row} (counted from 0) has the column index 12, of 12 columns, in partition {part} "
        f"(rows {offsets[part]} to {offsets[part + 1] - 1}, counted from 0)"
    ) in str(raised.value)


@pytest.mark.parametrize("read", [stream, lambda dataset: dataset.rows.all_labels()])
def test_a_value_that_no_label_has(store: Path, read: Callable[[Dataset], object]) -> None:
    overwrite(remove_checksums(store), "obsm/labels/data", 40, 7)
    with pytest.raises(DataError, match="obsm/labels/data: the store is damaged: it holds the label 7, which can be"):
        read(open_dataset(store))


@pytest.mark.parametrize("compressor", ["none", "zstd", "lz4"])
@pytest.mark.parametrize(("form", "keys"), [("dense", ("X", "obsm/labels")), ("sparse", ("X/data",))])
def test_a_flipped_bit(tmp_path: Path, compressor: str, form: str, keys: tuple[str, ...]) -> None:
    X, Y = sample(sparse=form == "sparse")
    for key in keys:
        store = make_store(tmp_path / f"{key[0]}.zarr", X, Y, storage=form, compressor=compressor, partition_bytes=900)
        flip(store, key)
        for read in readings(key):
            with pytest.raises(DataError, match=rf"{key}: the store is damaged: .* in partition "):
                read(open_dataset(store))


def test_a_flipped_bit_at_a_url(store: Path) -> None:
    import fsspec

    fsspec.filesystem("memory").put(str(store), "/flipped.zarr", recursive=True)
    place = "memory://flipped.zarr"
    stream(open_dataset(place))
    with fsspec.open(f"{place}/X/data/c/0", "r+b") as file:
        file.seek(5)
        file.write(b"?")
    with pytest.raises(DataError, match="X/data: the store is damaged"):
        stream(open_dataset(place))


@pytest.mark.parametrize("key", ["var/min", "var/_index", "uns/mlfs/label_names"])
def test_a_flipped_bit_in_a_small_array(store: Path, key: str) -> None:
    names = {"var/min": "features", "var/_index": "feature_names", "uns/mlfs/label_names": "label_names"}
    flip(store, key)
    with pytest.raises(DataError, match=f"{key} is damaged: it differs from what was written"):
        getattr(open_dataset(store), names[key])


def test_a_root_that_was_changed(store: Path) -> None:
    root = store / "zarr.json"
    root.write_bytes(root.read_bytes().replace(b'"constant_features":', b'"constant_features":1', 1))
    with pytest.raises(DataError, match=r"zarr\.json is damaged: it differs from what was written"):
        open_dataset(store)


def test_a_shard_index_that_was_changed(store: Path) -> None:
    shard = store / "X/data/c/0"
    content = bytearray(shard.read_bytes())
    content[-20] ^= 1
    shard.write_bytes(content)
    with pytest.raises(DataError, match="X/data: the store is damaged: the index of shard 0 differs from its checksum"):
        stream(open_dataset(store))


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_store_without_checksums_is_read(tmp_path: Path, form: str) -> None:
    X, Y = sample(sparse=form == "sparse")
    dataset = open_dataset(remove_checksums(make_store(tmp_path / "old.zarr", X, Y, partition_bytes=900)))
    blocks = [block.X.copy() for block in dataset.rows.stream(0, dataset.rows.profile.partitions)]
    dense = [block if isinstance(block, np.ndarray) else block.toarray() for block in blocks]
    np.testing.assert_array_equal(np.concatenate(dense), X)
    np.testing.assert_array_equal(dataset.rows.all_labels().toarray(), Y)


def replace(store: Path) -> None:
    """Put another store of the same shape in its place, as `mlfs convert --force` does."""
    X, Y = sample(sparse=(store / "X/data").exists())
    other = make_store(store.with_name("other.zarr"), np.nan_to_num(X), abs(Y[::-1]), partition_bytes=900)
    store.rename(store.with_name("old.zarr"))
    other.rename(store)


READINGS = {
    "stream": stream,
    "X": lambda dataset: dataset.X.compute(),
    "Y": lambda dataset: dataset.Y.compute(),
    "all_labels": lambda dataset: dataset.rows.all_labels(),
    "names": lambda dataset: dataset.label_names,
    "select": lambda dataset: mlfs.ELC(n_features_to_select=2).fit(dataset),
    "evaluate": lambda dataset: mlfs.evaluate(dataset, "random", folds=2),
}


@pytest.mark.parametrize("reading", READINGS)
@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_a_store_that_is_replaced_while_it_is_read(tmp_path: Path, form: str, reading: str) -> None:
    X, Y = sample(sparse=form == "sparse")
    store = make_store(tmp_path / "out.zarr", np.nan_to_num(X), abs(Y), partition_bytes=900)
    dataset = open_dataset(store)
    _ = dataset.rows
    replace(store)
    if reading == "names":
        (store / "uns/mlfs/label_names/c/0").write_bytes(b"others")
    with pytest.raises(DataError, match=r"out\.zarr: the store was replaced while it was read\n  cure: run the same"):
        READINGS[reading](dataset)


def test_a_store_that_is_removed_while_it_is_read(store: Path) -> None:
    dataset = open_dataset(store)
    blocks = dataset.rows.stream(0, dataset.rows.profile.partitions)
    next(blocks)
    shutil.rmtree(store)
    with pytest.raises(DataError, match="the store was removed while it was read"):
        list(blocks)


@pytest.mark.cluster
def test_workers_find_it_too(tmp_path: Path, two_workers: Path) -> None:
    X, Y = sample(sparse=True)
    store = make_store(tmp_path / "out.zarr", X, abs(Y), partition_bytes=900)
    with connect(scheduler_file=two_workers, min_workers=2):
        dataset = open_dataset(store)
        _ = dataset.rows
        replace(store)
        with pytest.raises(DataError, match="the store was replaced while it was read"):
            mlfs.ELC(n_features_to_select=2).fit(dataset)


def test_a_url_that_is_replaced(store: Path) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    memory.put(str(store), "/replaced.zarr", recursive=True)
    dataset = open_dataset("memory://replaced.zarr")
    _ = dataset.rows
    replace(store)
    memory.rm("/replaced.zarr", recursive=True)
    memory.put(str(store), "/replaced.zarr", recursive=True)
    with pytest.raises(DataError, match=r"replaced\.zarr: the store was replaced while it was read"):
        stream(dataset)
