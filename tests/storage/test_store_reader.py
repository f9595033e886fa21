"""Streaming a store whose chunks are small: plain, compressed, local and at a URL; chunks are requested ahead."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
import zarr
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.files import page_cache
from mlfs_dask.files.object_store import open_objects
from mlfs_dask.storage import store_reader
from mlfs_dask.storage.array_layout import CHUNK_BYTES
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask.storage.read_ahead import ChunksAhead, Window
from mlfs_dask.storage.store_reader import ArrayLayout, ArrayReader, StoreRows
from tests.storage.damage import forge, remove_checksums
from tests.storage.stores import make_store, sample, small_chunks


def sharded(**changes):
    """Metadata of an array that the reader takes, with changes by the path to a value."""
    inner = {
        "chunk_shape": [2, 2],
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": "end",
    }
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [8, 2],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": inner | changes.pop("inner", {})}],
    }
    return document | changes


def large(rows, width):
    """Chunks of so many rows and columns of float32, one in a shard."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [rows, width]}}
    return {"shape": [rows, width], "chunk_grid": grid, "inner": {"chunk_shape": [rows, width]}}


BIG_ENDIAN = [{"name": "bytes", "configuration": {"endian": "big"}}]


@pytest.mark.parametrize(
    "changes",
    [
        {"inner": {"codecs": BIG_ENDIAN}},
        {"inner": {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, *BIG_ENDIAN]}},
        {"inner": {"index_codecs": [*BIG_ENDIAN, {"name": "crc32c"}], "index_location": "start"}},
        {"inner": {"index_codecs": BIG_ENDIAN}},
        {"inner": {"chunk_shape": [2, 1]}},
        {"data_type": "complex64"},
        {"fill_value": 1},
        {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}},
        large(CHUNK_BYTES // 8 + 1, 2),
    ],
    ids=str,
)
def test_an_array_whose_bytes_mean_something_else_is_not_read(changes):
    for taken in ({}, large(CHUNK_BYTES // 8, 2), large(1, CHUNK_BYTES)):
        assert ArrayLayout.of("X", sharded(**taken)).shard_rows
    with pytest.raises((ValueError, DataError, KeyError)):
        ArrayLayout.of("X", sharded(**changes))


Store = Callable[..., tuple[str, np.ndarray[Any, Any], np.ndarray[Any, Any]]]


@pytest.fixture(params=["local", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Stores of small chunks, with X and Y."""

    def make(*, sparse: bool, small: int = 100, checksums: bool = True, **options: Any):
        small_chunks(monkeypatch, small)
        X, Y = sample(sparse=sparse)
        X[:, 0] = np.nan_to_num(X[:, 0])
        place = make_store(tmp_path / "t.zarr", X, Y, storage="sparse" if sparse else "dense", **options)
        if not checksums:
            remove_checksums(place)
        if request.param == "local":
            return str(place), X, Y
        fsspec.filesystem("memory").put(str(place), f"/{tmp_path.name}", recursive=True)
        return f"memory://{tmp_path.name}", X, Y

    return make


def collect(rows: StoreRows, first: int = 0, last: int | None = None) -> tuple[Any, Any]:
    last = rows.profile.partitions if last is None else last
    xs, ys, at = [], [], int(rows.row_offsets[first])
    for block in rows.stream(first, last):
        assert block.start == at
        assert block.Y.has_canonical_format
        at += block.X.shape[0]
        xs.append(block.X.toarray() if sp.issparse(block.X) else block.X.copy())
        ys.append(block.Y.toarray())
    assert at == rows.row_offsets[last]
    return np.concatenate(xs), np.concatenate(ys)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize(
    ("compressor", "small", "block_bytes"),
    [("none", 16, 64), ("none", 10**6, 200), ("zstd", 100, 64), ("lz4", 250, 1000)],
)
def test_blocks_are_the_rows(
    store: Store, sparse: bool, compressor: str, checksums: bool, small: int, block_bytes: int
) -> None:
    options = {"compressor": compressor, "partition_bytes": 900}
    place, X, Y = store(sparse=sparse, checksums=checksums, small=small, **options)
    rows = dataclasses.replace(open_dataset(place).rows, block_bytes=block_bytes)
    layout = rows.X.data if sparse else rows.X.dense
    assert (layout.compressor, layout.checksums) == (compressor, checksums)
    found_X, found_Y = collect(rows)
    np.testing.assert_array_equal(found_X, X)
    np.testing.assert_array_equal(found_Y, Y)
    part_X, _ = collect(rows, 1, 3)
    np.testing.assert_array_equal(part_X, X[rows.row_offsets[1] : rows.row_offsets[3]])
    np.testing.assert_array_equal(rows.all_labels().toarray(), Y)


DAMAGE = {
    "values": (lambda content: content[:3] + bytes([content[3] ^ 1]) + content[4:], "chunk 0 of shard 1 differs"),
    "index": (lambda content: content[:-1] + b"x", "the index of shard 1 differs"),
    "cut": (lambda content: content[:20], "shard 1 ends before its index|shard 1 .*cut"),
    "empty": (lambda content: b"", "shard 1 ends before its index|shard 1 .*cut"),
    "absent": (None, "X/c/1/0 is missing|No such file .*X/c/1/0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damage_of_a_shard_is_named(store: Store, damage: str) -> None:
    """An absent one is no shard of zeros."""
    change, said = DAMAGE[damage]
    place, *_ = store(sparse=False, partition_bytes=900)
    dataset, objects = open_dataset(place), open_objects(place)
    if change is None:
        filesystem, path = fsspec.url_to_fs(f"{place}/X/c/1/0")
        filesystem.rm_file(path)
    else:
        objects.write("X/c/1/0", change(objects.read("X/c/1/0")))
    with pytest.raises(DataError, match=f"the store is damaged: .*({said}).*in partition 1 ") as caught:
        collect(dataset.rows)
    assert "mlfs inspect --verify" in str(caught.value)
    assert place in str(caught.value)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_every_chunk_is_read_once(store: Store, monkeypatch: pytest.MonkeyPatch, sparse: bool) -> None:
    """Also those within which blocks end, and of which checksums need all."""
    place, X, Y = store(sparse=sparse)
    rows = dataclasses.replace(open_dataset(place).rows, block_bytes=200)
    offsets = []
    plain = os.preadv

    def preadv(descriptor: int, buffers: Any, offset: int, flags: int = 0) -> int:
        if not flags:  # which look whether a byte is in the page cache
            offsets.append((Path(f"/proc/self/fd/{descriptor}").readlink(), offset))
        return plain(descriptor, buffers, offset, flags)

    monkeypatch.setattr(os, "preadv", preadv)
    found_X, found_Y = collect(rows)
    np.testing.assert_array_equal(found_X, X)
    np.testing.assert_array_equal(found_Y, Y)
    assert len(offsets) == len(set(offsets)) > 10


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_absent_inner_chunks_are_zeros(store: Store) -> None:
    """As zarr-python writes them."""
    place, X, _ = store(sparse=False)
    X[:40] = 0
    zarr.open_array(f"{place}/X", mode="r+")[...] = X
    forge(Path(place), lambda ours, arrays: None)
    np.testing.assert_array_equal(collect(open_dataset(place).rows)[0], X)


def test_requests_overlap_and_are_bounded():
    """Shards of 4 chunks; the index of a shard is its number."""
    together, requested = threading.Barrier(3), []

    def read(index, shard, first, last):
        requested.append((shard, first))
        together.wait(20)
        return [np.array([index.result() * 4 + chunk]) for chunk in range(first, last)]

    chunks = ChunksAhead(4, lambda shard: shard, read, Window(3, 1))
    chunks.expect(0, 9)
    assert chunks._ahead[-1].result(20) == [[2]]
    assert sorted(requested) == [(0, 0), (0, 1), (0, 2)], "no more than that until one is taken"
    assert [chunks.take() for _ in range(9)] == [[number] for number in range(9)]
    assert len(requested) == 9
    chunks.expect(1, 4)  # another place
    assert chunks.take() == [1]
    chunks.close()


def is_mapped(array: np.ndarray[Any, Any]) -> bool:
    while isinstance(array.base, np.ndarray):
        array = array.base
    return isinstance(array.base, memoryview) and isinstance(array.base.obj, page_cache._Part)


def mapped_rows(store: Store, monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Path, StoreRows, np.ndarray]:
    """A store with chunks of an even number of float32 rows, the smallest of which are mapped, too."""
    monkeypatch.setattr(store_reader, "MAPPED_BYTES", 1)
    place, X, _ = store(sparse=False, partition_bytes=900, dtype="float32", **options)
    rows = dataclasses.replace(open_dataset(place).rows, block_bytes=1)  # blocks of a chunk
    return Path(place), rows, X.astype(np.float32)


@pytest.mark.parametrize("store", ["local", "memory"], indirect=True)
@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("compressor", ["none", "zstd"])
def test_cached_chunks_are_mapped(
    store: Store, monkeypatch: pytest.MonkeyPatch, compressor: str, checksums: bool
) -> None:
    place, rows, X = mapped_rows(store, monkeypatch, compressor=compressor, checksums=checksums)
    local = rows.location.local is not None
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: pytest.fail("what is cached is read ahead"))
    blocks = [(is_mapped(block.X), block.X.copy()) for block in rows.stream(0, rows.profile.partitions)]
    np.testing.assert_array_equal(np.concatenate([values for _, values in blocks]), X)
    assert {mapped for mapped, _ in blocks} == {local and compressor == "none"}
    if local and compressor == "none":  # a bit that is flipped is seen there, too
        shard = next((place / "X/c/0").iterdir())
        content = bytearray(shard.read_bytes())
        content[5] ^= 16
        shard.write_bytes(content)
        with pytest.raises(DataError, match="chunk 0 of shard 0") if checksums else contextlib.nullcontext():
            collect(rows)


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_chunks_that_are_not_cached_are_read(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nor are those that do not begin where a value may."""
    place, rows, X = mapped_rows(store, monkeypatch)
    wide = dataclasses.replace(rows.X.dense, data_type="float64", shape=(60, 6))  # chunks end with 4 bytes
    assert ArrayReader(rows.location, wide).mapped(wide.chunk_rows, wide.chunk_rows + 1) is None
    plain = os.preadv

    def preadv(descriptor: int, buffers: Any, offset: int, flags: int = 0) -> int:
        if flags:
            raise BlockingIOError
        return plain(descriptor, buffers, offset)

    requested = []
    monkeypatch.setattr(os, "preadv", preadv)
    monkeypatch.setattr(
        os, "posix_fadvise", lambda descriptor, *how: requested.append((os.fstat(descriptor).st_ino, *how))
    )
    assert not any(is_mapped(block.X) for block in rows.stream(0, 2))
    shards = [((place / f"X/c/{i}/0").stat().st_ino, 0, 0, os.POSIX_FADV_WILLNEED) for i in range(2)]
    assert [each for each in requested if each in shards] == shards, "each is read ahead once, as it is opened"
    np.testing.assert_array_equal(collect(rows)[0], X)


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_a_store_that_is_replaced_by_renaming(store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Mapped pages stay those of the store that was opened; the end of the pass tells of the other one."""
    place, rows, X = mapped_rows(store, monkeypatch)
    blocks = rows.stream(0, rows.profile.partitions)
    first = next(blocks)
    place.rename(tmp_path / "before.zarr")
    np.testing.assert_array_equal(first.X, X[: len(first.X)])
    with pytest.raises(DataError, match=r"removed while it was read|No such file"):
        list(blocks)


CUT = """
import sys
from pathlib import Path
from mlfs_dask.statistics.counts import ContingencyCounts
from mlfs_dask.storage import store_reader
from mlfs_dask_cli import start
store_reader.MAPPED_BYTES = store_reader.CHUNK_BYTES = 1
add = ContingencyCounts.add

def cut_and_add(statistic, state, block):
    if block.start == 0:
        Path(sys.argv[3], "X/c/0/0").write_bytes(b"")
    add(statistic, state, block)

ContingencyCounts.add = cut_and_add
sys.argv = ["mlfs", "select", "chi2", sys.argv[1], "-k", "3", "-o", sys.argv[1] + ".run"]
start()
"""


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_a_shard_that_is_cut_short_while_it_is_mapped(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """An error with exit code 3, as of any damage; without a handler the process would end by SIGBUS."""
    place, *_ = mapped_rows(store, monkeypatch)
    done = subprocess.run([sys.executable, "-c", CUT, str(place)], capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "ends early" in done.stderr
    assert "mlfs inspect --verify" in done.stderr


@pytest.mark.parametrize("store", ["local"], indirect=True)
def test_the_last_block_is_cut_short(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """When nothing is left to be read that would show it."""
    place, rows, X = mapped_rows(store, monkeypatch)
    blocks = rows.stream(0, rows.profile.partitions)
    last = next(block for block in blocks if block.start + len(block.X) == len(X))
    (place / f"X/c/{rows.profile.partitions - 1}/0").write_bytes(b"")
    assert not last.X.any()
    with pytest.raises(DataError, match=r"ends early, in partition \d+ "):
        next(blocks)
