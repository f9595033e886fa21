"""Stores that are damaged, replaced or made to hurt: every reading ends in an error that says where; so does verify."""

from __future__ import annotations

import json
import os
import shutil
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zstandard

import mlfs_dask as mlfs
from mlfs_dask import runtime
from mlfs_dask.cluster.connect import connect
from mlfs_dask.errors import DataError, DoesNotFitError
from mlfs_dask.storage.dataset import Dataset
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask.storage.verify import verify
from tests.storage.damage import FAULTS, flip, forge, overwrite, remove_checksums, replace_chunk
from tests.storage.stores import make_store, sample


def stream(dataset: Dataset) -> None:
    for _ in dataset.rows.stream(0, dataset.rows.profile.partitions):
        pass


X_READINGS = (stream, lambda dataset: dataset.X.compute())
LABEL_READINGS = (stream, lambda dataset: dataset.Y.compute(), lambda dataset: dataset.rows.all_labels())


def readings(key: str) -> tuple[Callable[[Dataset], object], ...]:
    return X_READINGS if key.startswith("X") else LABEL_READINGS


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("whole")
    return {
        "sparse": make_store(folder / "sparse.zarr", *sample(sparse=True), partition_bytes=900),
        "dense": make_store(folder / "dense.zarr", *sample(sparse=False), dtype="float64"),
    }


@pytest.fixture
def store(tmp_path: Path, whole: dict[str, Path]) -> Path:
    return Path(shutil.copytree(whole["sparse"], tmp_path / "s.zarr"))


@pytest.fixture
def dense_store(tmp_path: Path, whole: dict[str, Path]) -> Path:
    return Path(shutil.copytree(whole["dense"], tmp_path / "s.zarr"))


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


@pytest.mark.parametrize("key", ["var/min", "var/_index", "uns/mlfs/label_names"])
def test_a_flipped_bit_in_a_small_array(store: Path, key: str) -> None:
    names = {"var/min": "features", "var/_index": "feature_names", "uns/mlfs/label_names": "label_names"}
    flip(store, key)
    with pytest.raises(DataError, match=f"{key} is damaged: it differs from what was written"):
        getattr(open_dataset(store), names[key])
    root = store / "zarr.json"
    root.write_bytes(root.read_bytes().replace(b'"constant_features":', b'"constant_features":1', 1))
    with pytest.raises(DataError, match=r"zarr\.json is damaged: it differs from what was written"):
        open_dataset(store)


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


@pytest.fixture(params=["dense", "sparse"])
def any_store(request: pytest.FixtureRequest, tmp_path: Path, whole: dict[str, Path]) -> Path:
    return Path(shutil.copytree(whole[request.param], tmp_path / "out.zarr"))


def files(any_store: Path) -> list[Path]:
    return sorted(path for path in any_store.rglob("*") if path.is_file())


def test_an_intact_store(any_store: Path) -> None:
    found = verify(any_store)
    assert found.intact
    assert found.objects == len(files(any_store))
    assert found.bytes == sum(path.stat().st_size for path in files(any_store))


@pytest.mark.parametrize("place", [0, 0.5, 1])
def test_a_flipped_byte_in_any_file(any_store: Path, place: float) -> None:
    for path in files(any_store):
        content = bytearray(path.read_bytes())
        content[int(place * (len(content) - 1))] ^= 4
        original = path.read_bytes()
        path.write_bytes(content)
        key = path.relative_to(any_store).as_posix()
        try:
            json.loads(content)
        except ValueError:
            readable = key != "zarr.json"  # of the root, whose own digest is inside it
        else:
            readable = True
        if readable:
            assert verify(any_store).damaged == (key,)
        else:
            with pytest.raises(DataError, match=r"zarr.json is damaged"):
                verify(any_store)
        path.write_bytes(original)
    assert verify(any_store).intact


def test_missing_and_extra_files(any_store: Path) -> None:
    (any_store / "var" / "min" / "c" / "0").unlink()
    (any_store / "notes.txt").write_text("mine")
    found = verify(any_store)
    assert found.missing == ("var/min/c/0",)
    assert found.extra == ("notes.txt",)
    assert not found.intact


def _shift(numbers: list[int]) -> None:
    numbers[1] -= 1


IMPOSSIBLE: dict[str, Callable[[dict[str, Any], dict[str, Any]], object]] = {
    "shape of an array": lambda ours, arrays: arrays["X/data"].update(shape=[99]),
    "no such array": lambda ours, arrays: arrays.pop("obsm/labels/indptr"),
    "length of the names": lambda ours, arrays: arrays["var/_index"].update(shape=[3]),
    "type of the label names": lambda ours, arrays: arrays["uns/mlfs/label_names"].update(data_type="int8"),
    "number of features": lambda ours, arrays: ours.update(d=17),
    "offsets of the partitions": lambda ours, arrays: _shift(ours["partitions"]["nonzeros"]),
    "rows of the partitions": lambda ours, arrays: _shift(ours["partitions"]["rows"]),
    "more labels than rows": lambda ours, arrays: ours["label_counts"].update(positive=[61] * 20),
    "more constant features than features": lambda ours, arrays: ours.update(constant_features=13),
}


@pytest.mark.parametrize("edit", IMPOSSIBLE)
def test_metadata_that_cannot_be(store: Path, edit: str) -> None:
    """Every byte is as it was written, and no selection could read it."""
    forge(store, IMPOSSIBLE[edit])
    with pytest.raises(DataError, match="cure: "):
        verify(store)


def test_a_value_that_cannot_be(store: Path) -> None:
    overwrite(remove_checksums(store), "X/indices", 40, 12)
    forge(store, lambda ours, arrays: None)
    with pytest.raises(DataError, match="has the column index 12, of 12 columns"):
        verify(store)


ZEROS = 256 * 2**20
#: What an error may cost: messages, and the libraries that are loaded on the way.
FEW_BYTES = 64 * 2**20


def read(store: Path) -> None:
    """All that a selection reads before and while it computes."""
    dataset = open_dataset(store)
    _ = dataset.feature_names, dataset.label_names, dataset.kinds, dataset.categories
    require_memory(dataset)
    for _ in dataset.rows.stream(0, dataset.rows.profile.partitions):
        pass


def require_memory(dataset: Dataset) -> None:
    """As every reading does before its first block."""
    buffers = dataset.rows.profile.buffer_bytes
    if buffers > 2**30:
        raise DoesNotFitError("the buffers", projected=buffers, available=2**30, cure="")


@pytest.fixture
def peak() -> Callable[[], int]:
    """Bytes by which this process has grown since the beginning of the test, libraries apart."""
    import mlfs_dask.storage.arrays  # noqa: F401 - those of lazy arrays

    runtime.measure_memory()
    runtime.reset_peak_rss()
    before = runtime.current_rss()
    return lambda: runtime.peak_rss() - before


@pytest.fixture
def small_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    held = runtime.current_rss()  # by other tests of this process
    monkeypatch.setattr(runtime, "available_memory", lambda: held + 2**30)


def zstd(size: int, *, says: bool = True) -> bytes:
    """Zeros, packed."""
    packer = zstandard.ZstdCompressor(level=1, write_content_size=says).compressobj(size=size if says else -1)
    zeros = bytes(2**20)
    return b"".join([*(packer.compress(zeros) for _ in range(size // len(zeros))), packer.flush()])


def lying(compressor: str) -> bytes:
    """A chunk of Blosc that says something else than it is."""
    header = bytearray(numcodecs.Blosc(cname="lz4").encode(np.zeros(60 * 12 * 8, np.uint8)))
    at = {"unpacked": 4, "packed": 12}[compressor]
    header[at : at + 4] = struct.pack("<I", 2**31 - 17)
    return bytes(header)


CHUNKS = {
    "more than it has to": ("zstd", lambda: zstd(ZEROS), "says that it holds 268435456 bytes, and has to hold 5760"),
    "more without saying so": ("zstd", lambda: zstd(ZEROS, says=False), "cannot be unpacked"),
    "in a second frame": ("zstd", lambda: zstandard.compress(bytes(5760)) + zstd(ZEROS), "cannot be unpacked"),
    "less than it has to": ("zstd", lambda: zstandard.compress(bytes(5)), "says that it holds 5 bytes"),
    "no frame": ("zstd", lambda: b"nothing of the kind", "no frame of Zstandard"),
    "more by Blosc": ("lz4", lambda: lying("unpacked"), "says that it holds 2147483631 bytes, and has to hold 5760"),
    "beyond its end": ("lz4", lambda: lying("packed"), "says that it takes 2147483631 bytes"),
    "no header": ("lz4", lambda: b"", "has 4 bytes, not at most"),
}


@pytest.mark.parametrize("chunk", CHUNKS)
def test_a_chunk_that_unpacks_to_more(tmp_path: Path, peak: Callable[[], int], chunk: str) -> None:
    compressor, content, problem = CHUNKS[chunk]
    X, Y = sample(sparse=False)
    store = make_store(tmp_path / "s.zarr", X, Y, compressor=compressor, dtype="float64")
    replace_chunk(store, "X/c/0/0", content())
    for reading in (read, lambda store: open_dataset(store).X.compute()):
        with pytest.raises(DataError, match=problem) as raised:
            reading(store)
        assert f"{store}/X: the store is damaged: chunk 0 of shard 0" in str(raised.value)
    assert peak() < FEW_BYTES


@pytest.mark.parametrize("offset", [2**62, 2**63 - 1, 2**63, 2**64 - 2])
def test_a_chunk_that_begins_where_no_file_ends(dense_store: Path, offset: int) -> None:
    replace_chunk(dense_store, "X/c/0/0", bytes(5760), offset=offset)
    with pytest.raises(DataError, match=f"{dense_store}/X: the store is damaged: .*shard 0"):
        read(dense_store)


def cut(key: str, shard: int, chunk: int) -> Callable[[Any, Any], None]:
    def edit(ours: Any, arrays: Any) -> None:
        grid, inner = arrays[key]["chunk_grid"]["configuration"], arrays[key]["codecs"][0]["configuration"]
        grid["chunk_shape"][0], inner["chunk_shape"][0] = shard, chunk

    return edit


def rows(n: int) -> Callable[[Any, Any], None]:
    """As many rows, all of them in the last partition."""

    def edit(ours: Any, arrays: Any) -> None:
        ours["n"] = ours["partitions"]["rows"][-1] = n
        arrays["obs/_index"]["shape"] = [n]
        for key, width in (("X", ours["d"]), ("obsm/labels", ours["q"])):
            arrays[key]["shape"][0] = n
            ours["partitions"]["nonzeros" if key == "X" else "label_nonzeros"][-1] = n * width

    return edit


def features(d: int) -> Callable[[Any, Any], None]:
    def edit(ours: Any, arrays: Any) -> None:
        ours["partitions"]["nonzeros"] = [d * row for row in ours["partitions"]["rows"]]
        ours["d"] = d
        for key, array in arrays.items():
            if key.startswith("var/") and array["node_type"] == "array" and key != "var/kind/categories":
                array["shape"], array["chunk_grid"]["configuration"]["chunk_shape"] = [d], [min(d, 2**20)]
        inner = arrays["X"]["codecs"][0]["configuration"]
        for shape in (arrays["X"]["shape"], arrays["X"]["chunk_grid"]["configuration"]["chunk_shape"]):
            shape[1] = d
        inner["chunk_shape"][1] = d

    return edit


def key_of(key: str, name: str, value: Any) -> Callable[[Any, Any], None]:
    return lambda ours, arrays: arrays[key].update({name: value})


DECLARATIONS = {
    "chunks of 0 rows": cut("X", 60, 0),
    "shards of 0 rows": cut("X", 0, 0),
    "chunks of -1 rows": cut("X", 60, -1),
    "chunks of 10^12 rows": cut("X", 10**12, 10**12),
    "chunks of 2^62 rows": cut("obsm/labels", 2**62, 2**62),
    "shards of 10^12 chunks": cut("X", 10**12, 1),
    "chunks that do not divide": cut("X", 60, 7),
    "10^12 rows": rows(10**12),
    "2^62 rows": rows(2**62),
    "2^70 rows": rows(2**70),
    "10^12 features": features(10**12),
    "10^9 features": features(10**9),
    "2^62 features": features(2**62),
    "a shape of 10^12 names": key_of("var/_index", "shape", [10**12]),
    "a shape of no numbers": key_of("X", "shape", ["a", None]),
    "a negative shape": key_of("X", "shape", [-1, 12]),
    "texts in X": key_of("X", "data_type", "U1000000000"),
    "no array": key_of("X", "codecs", []),
    "another type": key_of("X", "data_type", "int64"),
}


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize("declaration", DECLARATIONS)
def test_a_declaration_that_cannot_be(dense_store: Path, peak: Callable[[], int], declaration: str) -> None:
    store = forge(dense_store, DECLARATIONS[declaration])
    with pytest.raises((DataError, DoesNotFitError)) as raised:
        read(store)
    assert str(store) in str(raised.value) or isinstance(raised.value, DoesNotFitError)
    assert peak() < FEW_BYTES


@pytest.mark.usefixtures("small_memory")
@pytest.mark.parametrize(
    ("content", "error"),
    [
        # A frame whose header says 1 TiB.
        (b"\x28\xb5\x2f\xfd\xe0" + struct.pack("<Q", 2**40), DoesNotFitError),
        (zstandard.compress(struct.pack("<I", 2**31 - 1) + bytes(60)), DataError),
        (zstandard.compress(b"\0"), DataError),
        (zstd(2**20, says=False), DataError),
        (b"", DataError),
    ],
    ids=["1 TiB", "2^31 strings", "too short", "no size", "empty"],
)
def test_names_that_unpack_to_more(
    dense_store: Path, peak: Callable[[], int], content: bytes, error: type[Exception]
) -> None:
    store = dense_store
    (store / "var/_index/c/0").write_bytes(content)
    forge(store, lambda ours, arrays: None)
    with pytest.raises(error, match="var/_index"):
        _ = open_dataset(store).feature_names
    assert peak() < FEW_BYTES


@pytest.mark.parametrize("key", ["zarr.json", "X/c/0/0", "var/min/c/0"])
def test_a_pipe_in_the_place_of_a_file(dense_store: Path, key: str) -> None:
    """Opening one waits until somebody writes into it."""
    store = dense_store
    (store / key).unlink()
    os.mkfifo(store / key)

    def say_that_it_is_empty(ours: Any, arrays: Any) -> None:
        ours["sizes"][key] = 0

    if key != "zarr.json":
        forge(store, say_that_it_is_empty)
    with pytest.raises(DataError, match="is a pipe, a socket or a device, a file was expected"):
        read(store)
    with pytest.raises(DataError, match="is a pipe, a socket or a device, a file was expected"):
        verify(store)


@pytest.mark.parametrize("where", ["root", "attribute", "categories"])
def test_metadata_that_are_nested_deeply(dense_store: Path, where: str) -> None:
    store = dense_store
    deep = "[" * 100_000 + "]" * 100_000
    if where == "categories":
        texts = numcodecs.VLenUTF8().encode(np.array([deep], object))
        (store / "uns/mlfs/categories/c/0").write_bytes(numcodecs.Zstd(level=0).encode(texts))
        forge(store, lambda ours, arrays: None)
        with pytest.raises(DataError, match="uns/mlfs/categories is damaged: it is nested too deeply"):
            _ = open_dataset(store).categories
        return
    text = deep if where == "root" else '{"attributes": {"mlfs": ' + deep + "}}"
    (store / "zarr.json").write_text(text)
    with pytest.raises(DataError, match=r"zarr\.json is damaged: it is nested too deeply"):
        open_dataset(store)
