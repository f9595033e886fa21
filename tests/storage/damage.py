"""Faults in stores: values overwritten where they lie in a shard, and stores whose chunks have no checksums."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from mlfs_dask.storage.digest import crc32c, hash_file, seal_root

FAULTS = {
    "index too large": ("X/indices", 40, 2**30),
    "index negative": ("X/indices", 40, -1),
    "index twice in a row": ("X/indices", 40, None),
    "offset falls": ("X/indptr", 30, 1),
    "offset too large": ("X/indptr", 30, 2**40),
    "last offset too large": ("X/indptr", 60, 2**40),
    "label index too large": ("obsm/labels/indices", 40, 2**30),
    "label index negative": ("obsm/labels/indices", 40, -1),
    "label offset falls": ("obsm/labels/indptr", 30, 1),
    "label offset too large": ("obsm/labels/indptr", 30, 2**40),
}
"""Array, entry and value (None: that of the entry before) of faults in the sparse store of `stores.sample`."""


def overwrite(store: Path, key: str, entry: int, value: int | None) -> None:
    """Overwrite one entry of a 1-D array of a store that is not compressed."""
    array = json.loads((store / key / "zarr.json").read_bytes())
    shard_length, chunk_length = _lengths(array)
    shard, within = divmod(entry, shard_length)
    path = store / key / "c" / str(shard)
    content = bytearray(path.read_bytes())
    offset = int(_index(content, shard_length // chunk_length)[within // chunk_length, 0])
    dtype = np.dtype(array["data_type"])
    values = np.frombuffer(content, dtype, chunk_length, offset)
    values[within % chunk_length] = values[within % chunk_length - 1] if value is None else value
    path.write_bytes(content)


def flip(store: Path, key: str) -> None:
    """Flip one bit in the first chunk of an array."""
    path = next(path for path in sorted((store / key / "c").rglob("*")) if path.is_file())
    content = bytearray(path.read_bytes())
    content[5] ^= 16
    path.write_bytes(content)


def forge(store: Path, edit: Callable[[dict[str, Any], dict[str, Any]], object]) -> Path:
    """Change the root metadata as somebody would who can compute digests.

    Parameters
    ----------
    store : Path
    edit : callable
        Changes the attribute `mlfs`, and the metadata of the arrays by key, in place.
    """
    root = json.loads((store / "zarr.json").read_bytes())
    ours, arrays = root["attributes"]["mlfs"], root["consolidated_metadata"]["metadata"]
    edit(ours, arrays)
    for key in ours["sizes"]:
        path = store / key
        if path.is_file():
            ours["sizes"][key], ours["digests"][key] = path.stat().st_size, hash_file(path)
    (store / "zarr.json").write_bytes(seal_root(root))
    return store


def replace_chunk(store: Path, shard: str, content: bytes, *, offset: int = 0) -> Path:
    """Replace the first chunk of a shard of one chunk, checksums and sizes included; its index says `offset`."""
    content += crc32c(content).to_bytes(4, "little")
    index = np.array([offset, len(content)], "<u8").tobytes()
    (store / shard).write_bytes(content + index + crc32c(index).to_bytes(4, "little"))
    return forge(store, lambda ours, arrays: None)


def remove_checksums(store: Path) -> Path:
    """Make a store one of those that were written before chunks had checksums."""
    root = json.loads((store / "zarr.json").read_bytes())
    ours, consolidated = root["attributes"]["mlfs"], root["consolidated_metadata"]["metadata"]
    for key, array in consolidated.items():
        codecs = array.get("codecs", [{}])
        if codecs[0].get("name") != "sharding_indexed":
            continue
        inner = codecs[0]["configuration"]
        assert inner["codecs"].pop() == {"name": "crc32c"}
        (store / key / "zarr.json").write_text(json.dumps(array))
        shard_length, chunk_length = _lengths(array)
        for path in (path for path in (store / key / "c").rglob("*") if path.is_file()):
            path.write_bytes(b"".join(_without_checksums(path.read_bytes(), shard_length // chunk_length)))
        for path in (store / key).rglob("*"):
            if path.is_file():
                name = path.relative_to(store).as_posix()
                ours["sizes"][name], ours["digests"][name] = path.stat().st_size, hash_file(path)
    (store / "zarr.json").write_bytes(seal_root(root))
    return store


def _lengths(array: dict[str, Any]) -> tuple[int, int]:
    """Entries of the first axis in a shard, and in a chunk."""
    inner = array["codecs"][0]["configuration"]
    return array["chunk_grid"]["configuration"]["chunk_shape"][0], inner["chunk_shape"][0]


def _index(content: bytes | bytearray, chunks: int) -> np.ndarray[Any, Any]:
    return np.frombuffer(content, "<u8", 2 * chunks, len(content) - 16 * chunks - 4).reshape(chunks, 2)


def _without_checksums(content: bytes, chunks: int) -> Iterator[bytes]:
    index = _index(content, chunks).copy()
    at = 0
    for entry in index:
        if entry[0] == 2**64 - 1:
            continue
        offset, size = (int(number) for number in entry)
        yield content[offset : offset + size - 4]
        entry[:] = at, size - 4
        at += size - 4
    yield index.tobytes()
    yield crc32c(index.tobytes()).to_bytes(4, "little")
