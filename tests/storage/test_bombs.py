"""Stores that somebody made to hurt: what they declare is refused before anything is allocated, and nothing waits."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zstandard

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, DoesNotFitError
from mlfs_dask.storage.dataset import Dataset
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask.storage.verify import verify
from tests.storage.damage import forge, replace_chunk
from tests.storage.stores import make_store, sample

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

    runtime.settle()
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
def test_a_chunk_that_begins_where_no_file_ends(tmp_path: Path, offset: int) -> None:
    store = make_store(tmp_path / "s.zarr", *sample(sparse=False), dtype="float64")
    replace_chunk(store, "X/c/0/0", bytes(5760), offset=offset)
    with pytest.raises(DataError, match=f"{store}/X: the store is damaged: .*shard 0"):
        read(store)


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
def test_a_declaration_that_cannot_be(tmp_path: Path, peak: Callable[[], int], declaration: str) -> None:
    X, Y = sample(sparse=False)
    store = forge(make_store(tmp_path / "s.zarr", X, Y, dtype="float64"), DECLARATIONS[declaration])
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
    tmp_path: Path, peak: Callable[[], int], content: bytes, error: type[Exception]
) -> None:
    store = make_store(tmp_path / "s.zarr", *sample(sparse=False))
    (store / "var/_index/c/0").write_bytes(content)
    forge(store, lambda ours, arrays: None)
    with pytest.raises(error, match="var/_index"):
        _ = open_dataset(store).feature_names
    assert peak() < FEW_BYTES


@pytest.mark.parametrize("key", ["zarr.json", "X/c/0/0", "var/min/c/0"])
def test_a_pipe_in_the_place_of_a_file(tmp_path: Path, key: str) -> None:
    """Opening one waits until somebody writes into it."""
    store = make_store(tmp_path / "s.zarr", *sample(sparse=False))
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
def test_metadata_that_are_nested_deeply(tmp_path: Path, where: str) -> None:
    store = make_store(tmp_path / "s.zarr", *sample(sparse=False))
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
