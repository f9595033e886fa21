"""Shards written byte by byte are what zarr-python reads and would have written."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec

from mlfs_dask.storage.chunking import ArrayChunking
from mlfs_dask.storage.digest import hash_file
from mlfs_dask.storage.object_store import LocalObjects
from mlfs_dask.storage.zarr_format import ArraySpec, write_shard


def make(folder: Path, spec: ArraySpec) -> zarr.Group:
    """A group with the array's metadata in it."""
    group = zarr.create_group(folder)
    LocalObjects(folder).write(f"{spec.name}/zarr.json", spec.metadata())
    return group


def write(folder: Path, spec: ArraySpec, values: np.ndarray) -> None:
    make(folder, spec)
    for shard in range(spec.plan.shards):
        path = folder / spec.shard_key(shard)
        path.parent.mkdir(parents=True, exist_ok=True)

        def chunks(shard: int = shard):
            for start, count in spec.chunks(shard):
                chunk = np.zeros((spec.plan.chunk, *spec.tail), spec.dtype)
                chunk[:count] = values[start : start + count]
                yield chunk

        size, digest = write_shard(path, chunks(), slots=spec.plan.shard // spec.plan.chunk, compressor=spec.compressor)
        assert size == path.stat().st_size
        assert digest == hash_file(path)


@pytest.mark.parametrize("compressor", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("dtype", ["uint8", "int16", "float32", "float64", "int64"])
@pytest.mark.parametrize("columns", [None, 3])
@pytest.mark.parametrize(("length", "chunk", "shard"), [(10, 3, 6), (6, 3, 6), (1, 1, 1), (7, 2, 8)])
def test_zarr_reads_it(
    tmp_path: Path, compressor: str, dtype: str, columns: int | None, length: int, chunk: int, shard: int
) -> None:
    generator = np.random.default_rng(0)
    values = generator.integers(0, 100, (length,) if columns is None else (length, columns)).astype(dtype)
    item = values[:1].nbytes
    spec = ArraySpec("a/b", ArrayChunking(length, chunk, shard, item), dtype, columns, compressor, {"k": "v"})
    write(tmp_path / "ours", spec, values)
    array = zarr.open_group(tmp_path / "ours", mode="r")["a/b"]
    np.testing.assert_array_equal(array[:], values)
    assert dict(array.attrs) == {"k": "v"}


def test_same_bytes_as_zarr(tmp_path: Path) -> None:
    values = np.arange(1, 52, dtype="float32").reshape(17, 3)
    spec = ArraySpec("X", ArrayChunking(17, 2, 10, 12), "float32", 3, "none", {})
    write(tmp_path / "ours", spec, values)
    make(tmp_path / "theirs", spec)["X"][:] = values
    for shard in range(2):
        ours, theirs = (tmp_path / who / spec.shard_key(shard) for who in ("ours", "theirs"))
        assert ours.read_bytes() == theirs.read_bytes()


@pytest.mark.parametrize(
    ("compressor", "codecs"),
    [
        ("none", ()),
        ("zstd", (ZstdCodec(level=1),)),
        ("lz4", (BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=4),)),
    ],
)
@pytest.mark.parametrize("columns", [None, 3])
def test_same_metadata_as_zarr(
    tmp_path: Path, compressor: str, codecs: tuple[object, ...], columns: int | None
) -> None:
    spec = ArraySpec("a/b", ArrayChunking(17, 2, 10, 12), "float32", columns, compressor, {"k": "v"})
    zarr.create_group(tmp_path).create_array(
        "a/b",
        shape=(17, *spec.tail),
        chunks=(2, *spec.tail),
        shards=(10, *spec.tail),
        dtype="float32",
        compressors=[*codecs, Crc32cCodec()],
        fill_value=0,
        attributes={"k": "v"},
    )
    theirs = json.loads((tmp_path / "a/b/zarr.json").read_bytes())
    assert theirs.pop("storage_transformers", []) == []
    assert json.loads(spec.metadata()) == theirs
