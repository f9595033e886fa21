"""Shards written byte by byte are what zarr-python reads and would have written."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr

from mlfs_dask.storage.digest import hash_file
from mlfs_dask.storage.encoding import ArraySpec, write_shard
from mlfs_dask.storage.plan import ArrayPlan


def write(folder: Path, spec: ArraySpec, values: np.ndarray) -> None:
    group = zarr.create_group(folder)
    spec.create(group)
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
    spec = ArraySpec("a/b", ArrayPlan(length, chunk, shard, item), dtype, columns, compressor, {"k": "v"})
    write(tmp_path / "ours", spec, values)
    array = zarr.open_group(tmp_path / "ours", mode="r")["a/b"]
    np.testing.assert_array_equal(array[:], values)
    assert dict(array.attrs) == {"k": "v"}


def test_same_bytes_as_zarr(tmp_path: Path) -> None:
    values = np.arange(1, 52, dtype="float32").reshape(17, 3)
    spec = ArraySpec("X", ArrayPlan(17, 2, 10, 12), "float32", 3, "none", {})
    write(tmp_path / "ours", spec, values)
    group = zarr.create_group(tmp_path / "theirs")
    spec.create(group)
    group["X"][:] = values
    for shard in range(2):
        ours, theirs = (tmp_path / who / spec.shard_key(shard) for who in ("ours", "theirs"))
        assert ours.read_bytes() == theirs.read_bytes()
