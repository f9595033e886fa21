"""Bytes of Zarr v3, laid down without zarr-python: chunks and shards.

A shard is its inner chunks one after the other, each with its CRC-32C, then the index with its own. Writing a dense
array that way holds one inner chunk and costs one copy and the digest; through zarr-python a shard is held whole, twice
(`benchmarks/store_write.py` has the figures). The metadata are a few short documents. Loading zarr-python for them
takes 0.22 s, a third of the time in which a small file is converted, and anndata 1.6 s more; and zarr-python unpacks a
chunk into as much memory as the chunk asks for, where `files.chunk_codecs.decode` fills a buffer of its size.

References
----------
Zarr core specification, version 3: https://zarr-specs.readthedocs.io/en/latest/v3/core/index.html
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask import runtime
from mlfs_dask.storage.array_layout import BLOSC, CHECKSUM_BYTES
from mlfs_dask.storage.digest import crc32c, new_hash

#: Offset and length of a chunk that a shard does not hold.
ABSENT = 2**64 - 1
_THREAD_BYTES = 1 << 20


def encoder(compressor: str) -> Callable[[NDArray[Any]], Any]:
    """Return the function that turns one chunk into stored bytes."""
    if compressor == "none":
        return lambda chunk: chunk.reshape(-1).view(np.uint8).data
    import numcodecs  # takes a while to load

    if compressor == "zstd":
        codec = numcodecs.Zstd(level=1)
    else:
        # Bytes are shuffled within items: the codec has to see the items.
        codec = numcodecs.Blosc(**BLOSC[compressor], shuffle=numcodecs.Blosc.SHUFFLE)
    return lambda chunk: memoryview(codec.encode(chunk))


def write_shard(path: Path, chunks: Iterator[NDArray[Any]], *, slots: int, compressor: str) -> tuple[int, str]:
    """Write one shard of the codec `sharding_indexed`, a checksum after each chunk, index at the end.

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
    index = np.full((slots, 2), ABSENT, "<u8")
    offset = 0
    encode: Callable[[NDArray[Any]], Any] | None = None
    with path.open("wb", buffering=0) as file, runtime.ThreadPool(1) as hasher:

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
            encode = encode or encoder(compressor)
            content = encode(chunk)
            index[slot] = offset, content.nbytes + CHECKSUM_BYTES
            offset += content.nbytes + CHECKSUM_BYTES
            put(content)
            put(crc_bytes(content))
        table = index.tobytes()
        put(table)
        put(crc_bytes(table))
    return offset + len(table) + CHECKSUM_BYTES, digest.hexdigest()


def crc_bytes(content: Any) -> bytes:
    """Return the bytes that the codec `crc32c` appends to `content`."""
    return struct.pack("<I", crc32c(content))
