"""Digests: of every stored object, of the root metadata, and of the content whatever its cutting.

Objects are hashed with BLAKE2b-128 (`b2sum -l 128` prints the same). The root's `zarr.json` carries those
digests, and protects itself: its own digest is taken with the digest's place filled with zeros.

The content digest must not depend on partitions, on batches, or on who wrote which shard first. So the arrays
enter it by two CRCs of their plain bytes (CRC-32 and CRC-32C), which can be joined from those of the pieces;
names and kinds enter it in full.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fastcrc import crc32 as crc

from mlfs_dask.storage.numbered_names import NumberedNames

BLANK = "0" * 32
_CRC32 = 0xEDB88320
_CRC32C = 0x82F63B78

#: CRC-32C of bytes, or of bytes after others whose CRC-32C is given: at 59 GB/s in the processor's cache, where
#: google-crc32c, which Zarr brings, has 30 (`benchmarks/checksums.py`).
crc32c = crc.iscsi


def new_hash() -> Any:
    """Return a BLAKE2b-128 hash object."""
    return hashlib.blake2b(digest_size=16)


def hash_file(path: Path) -> str:
    """Return BLAKE2b-128 of a file's bytes, in hexadecimal."""
    with path.open("rb") as file:
        return str(hashlib.file_digest(file, new_hash).hexdigest())


@dataclass(frozen=True)
class Checksum:
    """Length and two CRCs of some bytes; `+` gives those of the bytes joined.

    Examples
    --------
    >>> Checksum.of(b"multi-") + Checksum.of(b"label") == Checksum.of(b"multi-label")
    True
    """

    length: int = 0
    crc32: int = 0
    crc32c: int = 0

    @classmethod
    def of(cls, content: Any) -> Checksum:
        return cls().extended(content)

    def extended(self, content: Any) -> Checksum:
        """Return the checksum of these bytes followed by `content`; cheaper than the sum of two checksums."""
        view = memoryview(content)
        return Checksum(self.length + view.nbytes, crc.iso_hdlc(view, self.crc32), crc32c(view, self.crc32c))

    def __add__(self, other: Checksum) -> Checksum:
        return Checksum(
            self.length + other.length,
            _combine(self.crc32, other.crc32, other.length, _CRC32),
            _combine(self.crc32c, other.crc32c, other.length, _CRC32C),
        )

    def __str__(self) -> str:
        return f"{self.length}:{self.crc32:08x}{self.crc32c:08x}"

    def to_json(self) -> list[int]:
        return [self.length, self.crc32, self.crc32c]


def _combine(first: int, second: int, length: int, polynomial: int) -> int:
    """Return CRC of two byte strings joined: the first is shifted by the second's length in GF(2)[x] / polynomial."""
    shift = 1 << 31  # the polynomial 1, lowest power in the highest bit
    power = _multiply(1 << 30, 1 << 30, polynomial)  # x^2
    power = _multiply(power, power, polynomial)  # x^4
    power = _multiply(power, power, polynomial)  # x^8: one byte
    while length:
        if length & 1:
            shift = _multiply(power, shift, polynomial)
        power = _multiply(power, power, polynomial)
        length >>= 1
    return _multiply(shift, first, polynomial) ^ second


def _multiply(a: int, b: int, polynomial: int) -> int:
    product = 0
    bit = 1 << 31
    while a:
        if a & bit:
            product ^= b
            a ^= bit
        bit >>= 1
        b = (b >> 1) ^ polynomial if b & 1 else b >> 1
    return product


def content_digest(parts: Mapping[str, Any]) -> str:
    """Return BLAKE2b-128 of plain data (numbers, text, lists, arrays of whole numbers) in a canonical JSON form.

    Lists and arrays are written a piece at a time: there may be millions of features.
    """
    digest = new_hash()
    for place, key in enumerate(sorted(parts)):
        digest.update(("," if place else "{").encode() + _json(key) + b":")
        value = parts[key]
        if isinstance(value, np.ndarray) or (isinstance(value, Sequence) and not isinstance(value, str)):
            for start in range(0, len(value), _PIECE):
                digest.update((b"," if start else b"[") + _items(value, start, min(start + _PIECE, len(value))))
            digest.update(b"]" if len(value) else b"[]")
        else:
            digest.update(_json(value))
    digest.update(b"}" if parts else b"{}")
    return str(digest.hexdigest())


_PIECE = 1 << 16


def _items(sequence: Any, start: int, stop: int) -> bytes:
    """Return JSON of some values of a list, without its brackets."""
    if isinstance(sequence, NumberedNames):
        return sequence.framed(start, stop, lambda _: (b'"', b'",'))[:-1]
    values = sequence[start:stop]
    if isinstance(values, np.ndarray):
        if values.min() >= 0 and values.max() <= 9:
            text = np.full((len(values), 2), ord(","), np.uint8)
            text[:, 0] = values + ord("0")
            return text.tobytes()[:-1]
        values = values.tolist()
    return _json(list(values))[1:-1]


def _json(value: Any) -> bytes:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    # Names that were not valid UTF-8 in their file may hold lone surrogates.
    return text.encode("utf-8", "surrogatepass")


def seal_root(document: dict[str, Any]) -> bytes:
    """Return the bytes of the root's `zarr.json`, with its own digest in `attributes.mlfs.root_digest`.

    Parameters
    ----------
    document : dict
        The metadata; `root_digest` is filled in.
    """
    document["attributes"]["mlfs"]["root_digest"] = BLANK
    blank = json.dumps(document, separators=(",", ":")).encode()
    digest = new_hash()
    digest.update(blank)
    place = blank.index(_mark(BLANK))
    filled = _mark(digest.hexdigest())
    return blank[:place] + filled + blank[place + len(filled) :]


def root_is_intact(content: bytes, recorded: str) -> bool:
    """Return True if the bytes of a root's `zarr.json` are unchanged since `seal_root`."""
    digest = new_hash()
    digest.update(content.replace(_mark(recorded), _mark(BLANK), 1))
    return bool(digest.hexdigest() == recorded)


def _mark(digest: str) -> bytes:
    return b'"root_digest":"' + digest.encode() + b'"'


def join(checksums: Iterable[Checksum]) -> Checksum:
    """Return the checksum of pieces in their order."""
    total = Checksum()
    for checksum in checksums:
        total += checksum
    return total
