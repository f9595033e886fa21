"""Layout of arrays in a store: the shards and chunks of one array, and metadata of arrays and groups of Zarr v3."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

CHUNK_BYTES = 8 << 20
"""Most bytes of one inner chunk of a dense X: large enough to be read at full speed, small enough to reuse."""

CHECKSUM_BYTES = 4

#: The codec that ends a chunk with its checksum.
CRC32C: dict[str, Any] = {"name": "crc32c"}
BLOSC: dict[str, dict[str, Any]] = {
    "lz4": {"cname": "lz4", "clevel": 5},
    "blosc-zstd": {"cname": "zstd", "clevel": 3},
}


def itemsize_of(data_type: str) -> int:
    """Return the bytes of one value of a type such as "float32"."""
    return int(re.sub(r"\D", "", data_type)) // 8


def group_metadata(attributes: Mapping[str, Any]) -> bytes:
    """Return the `zarr.json` of a group."""
    return json.dumps({"zarr_format": 3, "node_type": "group", "attributes": dict(attributes)}).encode()


def array_metadata(
    *,
    shape: Sequence[int],
    data_type: str,
    chunks: Sequence[int],
    codecs: Sequence[Mapping[str, Any]],
    fill_value: int | str,
    attributes: Mapping[str, Any],
) -> bytes:
    """Return the `zarr.json` of an array; `chunks` are what one object holds, a shard where there are shards."""
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(shape),
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(chunks)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": fill_value,
        "codecs": list(codecs),
        "attributes": dict(attributes),
    }
    return json.dumps(document).encode()


def bytes_codecs(itemsize: int, compressor: str) -> list[dict[str, Any]]:
    """Return the codecs of a chunk: plain little-endian bytes, then the compressor (see `zarr_format.encoder`)."""
    codecs: list[dict[str, Any]] = [{"name": "bytes"}]
    if itemsize > 1:
        codecs[0]["configuration"] = {"endian": "little"}
    if compressor == "zstd":
        codecs.append({"name": "zstd", "configuration": {"level": 1, "checksum": False}})
    elif compressor in BLOSC:
        settings = {**BLOSC[compressor], "shuffle": "shuffle", "typesize": itemsize, "blocksize": 0}
        codecs.append({"name": "blosc", "configuration": settings})
    return codecs


@dataclass(frozen=True)
class ArrayLayout:
    """Cutting of one array of a store into shards and chunks of rows; its `zarr.json` and this say the same.

    Attributes
    ----------
    key : str
        Path of the array inside the store.
    shape : tuple of int
    data_type : str
        As NumPy and Zarr call it.
    shard_rows, chunk_rows : int
        Rows (first axis) of a shard and of an inner chunk.
    compressor : {"none", "zstd", "lz4", "blosc-zstd"}
        "none": chunks are plain little-endian bytes, so that positioned reads give values.
    checksums : bool
        Whether the stored bytes of every chunk end with their CRC-32C.
    """

    key: str
    shape: tuple[int, ...]
    data_type: str
    shard_rows: int
    chunk_rows: int
    compressor: str = "none"
    checksums: bool = True

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return itemsize_of(self.data_type)

    @property
    def dtype(self) -> str:
        """NumPy's name of the type as it is stored, with the byte order."""
        return f"<{self.data_type[0]}{self.itemsize}"

    @property
    def row_bytes(self) -> int:
        """Bytes of one row."""
        return math.prod(self.shape[1:]) * self.itemsize

    @property
    def chunk_bytes(self) -> int:
        """Bytes of the values in one inner chunk."""
        return self.chunk_rows * self.row_bytes

    @property
    def shards(self) -> int:
        """Number of shards."""
        return -(-self.shape[0] // self.shard_rows)

    @property
    def stored_bytes(self) -> int:
        """Bytes on disk without a compressor: padded last chunks, checksums and shard indexes included."""
        chunks = -(-self.shape[0] // self.chunk_rows)
        return chunks * (self.chunk_bytes + CHECKSUM_BYTES) + self.shards * self.index_bytes

    def shard_key(self, shard: int) -> str:
        """Return the key of a shard below the root."""
        return "/".join([self.key, "c", str(shard)] + ["0"] * (len(self.shape) - 1))

    def chunks(self, shard: int) -> Iterator[tuple[int, int]]:
        """Yield the first row and the number of rows of every chunk of a shard that holds any."""
        start = shard * self.shard_rows
        stop = min(start + self.shard_rows, self.shape[0])
        for first in range(start, stop, self.chunk_rows):
            yield first, min(self.chunk_rows, stop - first)

    def metadata(self, attributes: Mapping[str, str]) -> bytes:
        """Return the array's `zarr.json`."""
        whole_rows = list(self.shape[1:])
        sharding = {
            "chunk_shape": [self.chunk_rows, *whole_rows],
            "codecs": [*bytes_codecs(self.itemsize, self.compressor), CRC32C],
            "index_codecs": [*bytes_codecs(8, "none"), CRC32C],
            "index_location": "end",
        }
        return array_metadata(
            shape=self.shape,
            data_type=self.data_type,
            chunks=(self.shard_rows, *whole_rows),
            codecs=[{"name": "sharding_indexed", "configuration": sharding}],
            fill_value=0,
            attributes=attributes,
        )

    @property
    def checksum_bytes(self) -> int:
        """Bytes of the checksum that follows the stored bytes of a chunk."""
        return CHECKSUM_BYTES * self.checksums

    @property
    def stride(self) -> int:
        """Bytes from one chunk to the next in what we write, where they are not compressed."""
        return self.chunk_bytes + self.checksum_bytes

    @property
    def max_stored_bytes(self) -> int:
        """Bytes of a compressed chunk at most: no compressor makes twice as much of what it cannot make smaller."""
        return 2 * self.chunk_bytes + 64

    @property
    def index_bytes(self) -> int:
        """Bytes of the index at the end of each shard, with its checksum."""
        return 16 * (self.shard_rows // self.chunk_rows) + CHECKSUM_BYTES

    @property
    def buffer_bytes(self) -> int:
        """Bytes that an `ArrayReader` holds: an index, a chunk that blocks take parts of, and its stored bytes."""
        total = self.index_bytes + self.chunk_bytes
        if self.compressor != "none":
            total += self.max_stored_bytes
        return total

    @classmethod
    def of(cls, key: str, document: Mapping[str, Any]) -> ArrayLayout:
        """Return the layout of an array whose metadata are `document`.

        Raises
        ------
        KeyError, TypeError, ValueError, AttributeError
            It is no array that this package writes. A chunk of one takes at most `CHUNK_BYTES`, or is a single row:
            what is read of it is bounded by that, whatever its stored bytes unpack to.
        """
        (sharding,) = document["codecs"]
        outer, inner = document["chunk_grid"]["configuration"]["chunk_shape"], sharding["configuration"]
        names = [codec["name"] for codec in inner["codecs"]]
        checksums = names[-1] == "crc32c"
        compressors = names[1:-1] if checksums else names[1:]
        compressor = compressors[0] if compressors else "none"
        if compressor == "blosc":
            compressor = "lz4" if inner["codecs"][1]["configuration"]["cname"] == "lz4" else "blosc-zstd"
        layout = cls(
            key,
            tuple(document["shape"]),
            document["data_type"],
            outer[0],
            inner["chunk_shape"][0],
            compressor,
            checksums,
        )
        sizes = (*layout.shape, layout.shard_rows, layout.chunk_rows)
        whole_rows = list(layout.shape[1:])
        known = (
            re.fullmatch(r"u?int(8|16|32|64)|float(16|32|64)", layout.data_type),
            sharding["name"] == "sharding_indexed",
            inner.get("index_location", "end") == "end",
            [codec["name"] for codec in inner["index_codecs"]] == ["bytes", "crc32c"],
            names[0] == "bytes" and inner["codecs"][0].get("configuration", {}).get("endian", "little") == "little",
            compressors in ([], ["zstd"], ["blosc"]),
            document["chunk_key_encoding"] == {"name": "default", "configuration": {"separator": "/"}},
            document["fill_value"] == 0,
            len(layout.shape) in (1, 2) and all(isinstance(size, int) and 0 <= size < 2**53 for size in sizes),
        )
        if not all(known):
            raise ValueError("an array of another form")
        if not outer[1:] == inner["chunk_shape"][1:] == whole_rows:
            raise ValueError(f"shape {layout.shape} in shards of {outer} and chunks of {inner['chunk_shape']}")
        if layout.chunk_rows < 1 or layout.shard_rows < 1 or layout.shard_rows % layout.chunk_rows:
            raise ValueError(f"shards of {layout.shard_rows} rows with chunks of {layout.chunk_rows}")
        if layout.chunk_bytes > max(CHUNK_BYTES, layout.row_bytes):
            raise ValueError(f"a chunk of {layout.chunk_rows} rows and {layout.chunk_bytes} bytes")
        return layout
