"""Bytes of Zarr v3: array and group metadata, and shards written straight to files.

zarr-python makes the metadata, so that it says what zarr-python reads; the shards, which are nearly all bytes
of a store, are laid down here: inner chunks one after the other, then the index with its CRC-32C. Writing a
dense array that way holds one inner chunk and costs one copy and the digest; through zarr-python a shard is
held whole, twice (`benchmarks/store_write.py` has the figures).
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from mlfs_dask.storage.digest import new_hash
from mlfs_dask.storage.plan import ArrayPlan

if TYPE_CHECKING:
    import zarr

_ABSENT = 2**64 - 1
_THREAD_BYTES = 1 << 20


@dataclass(frozen=True)
class ArraySpec:
    """One sharded array of a store.

    Attributes
    ----------
    name : str
        Path below the root.
    plan : ArrayPlan
    dtype : str
    columns : int or None
        Second dimension; None for a 1-D array.
    compressor : {"none", "zstd", "lz4"}
    attributes : mapping
        AnnData's encoding.
    """

    name: str
    plan: ArrayPlan
    dtype: str
    columns: int | None
    compressor: str
    attributes: Mapping[str, str]

    @property
    def tail(self) -> tuple[int, ...]:
        return () if self.columns is None else (self.columns,)

    def shard_key(self, shard: int) -> str:
        return f"{self.name}/c/{shard}" + ("" if self.columns is None else "/0")

    def create(self, group: zarr.Group) -> None:
        """Write the array's metadata."""
        group.create_array(
            self.name,
            shape=(self.plan.length, *self.tail),
            chunks=(self.plan.chunk, *self.tail),
            shards=(self.plan.shard, *self.tail),
            dtype=self.dtype,
            compressors=_zarr_codec(self.compressor, np.dtype(self.dtype).itemsize),
            fill_value=0,
            attributes=dict(self.attributes),
        )

    def chunks(self, shard: int) -> Iterator[tuple[int, int]]:
        """First entry and number of entries of every inner chunk of a shard that holds any."""
        start = shard * self.plan.shard
        stop = min(start + self.plan.shard, self.plan.length)
        for first in range(start, stop, self.plan.chunk):
            yield first, min(self.plan.chunk, stop - first)


def _zarr_codec(compressor: str, itemsize: int) -> Any:
    from zarr.codecs import BloscCodec, ZstdCodec

    if compressor == "zstd":
        return ZstdCodec(level=1)
    if compressor == "lz4":
        return BloscCodec(cname="lz4", clevel=5, shuffle="shuffle", typesize=itemsize)
    return None


def encoder(compressor: str, itemsize: int) -> Callable[[NDArray[Any]], Any]:
    """The function that turns one inner chunk into stored bytes."""
    if compressor == "none":
        return lambda chunk: chunk.reshape(-1).view(np.uint8).data
    import numcodecs  # only compressed stores pay for it

    if compressor == "zstd":
        codec = numcodecs.Zstd(level=1)
        return lambda chunk: memoryview(codec.encode(chunk))
    # Bytes are shuffled within items, so the codec must see the items.
    codec = numcodecs.Blosc(cname="lz4", clevel=5, shuffle=numcodecs.Blosc.SHUFFLE)
    return lambda chunk: memoryview(codec.encode(chunk))


def write_shard(path: Path, chunks: Iterator[NDArray[Any]], *, slots: int, compressor: str) -> tuple[int, str]:
    """Write one shard of the codec `sharding_indexed`, index at the end.

    Parameters
    ----------
    path : Path
    chunks : iterator of ndarray
        Inner chunks in order, C-ordered, each of the full inner shape.
    slots : int
        Inner chunks in a full shard; those after the last one given are absent.
    compressor : {"none", "zstd", "lz4"}

    Returns
    -------
    size : int
        Bytes.
    digest : str
        BLAKE2b-128.
    """
    digest = new_hash()
    index = np.full((slots, 2), _ABSENT, "<u8")
    offset = 0
    encode: Callable[[NDArray[Any]], Any] | None = None
    with path.open("wb", buffering=0) as file, ThreadPoolExecutor(1) as hasher:

        def put(content: Any) -> None:
            view = memoryview(content)
            # The digest takes longer than the write; both run without the interpreter's lock.
            hashing = hasher.submit(digest.update, view) if view.nbytes >= _THREAD_BYTES else None
            if hashing is None:
                digest.update(view)
            left = view
            while left.nbytes:
                left = left[file.write(left) :]
            if hashing is not None:
                hashing.result()

        for slot, chunk in enumerate(chunks):
            encode = encode or encoder(compressor, chunk.itemsize)
            content = encode(chunk)
            index[slot] = offset, content.nbytes
            offset += content.nbytes
            put(content)
        table = index.tobytes()
        put(table + struct.pack("<I", google_crc32c.value(table)))
    return offset + len(table) + 4, digest.hexdigest()
