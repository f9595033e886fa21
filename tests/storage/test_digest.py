"""Digests join, seal and tell differences."""

from __future__ import annotations

import hashlib
import json
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlfs_dask.storage import digest as digest_module
from mlfs_dask.storage.digest import Checksum, content_digest, crc32c, join, root_is_intact, seal_root
from mlfs_dask.storage.numbered_names import NumberedNames


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_checksums_of_pieces_join(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    found = join(map(Checksum.of, pieces))
    assert found == Checksum(len(whole), zlib.crc32(whole), crc32c(whole))
    extended = Checksum()
    for piece in pieces:
        extended = extended.extended(piece)
    assert extended == found


def test_checksums_of_long_pieces_join() -> None:
    first, second = b"\x00" * 3_000_001, b"\xff" * 2**20
    assert Checksum.of(first) + Checksum.of(second) == Checksum.of(first + second)


def test_checksum_as_text_and_json() -> None:
    checksum = Checksum.of(b"123456789")  # the check values of both polynomials
    assert str(checksum) == "9:cbf43926e3069283"
    assert Checksum(*checksum.to_json()) == checksum


def test_content_digest_is_that_of_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lists are hashed piece by piece, numbers of one digit and names that are made up without a text for each."""
    monkeypatch.setattr(digest_module, "_PIECE", 7)
    names = NumberedNames("x", 123)
    for numbers in ([*range(10)] * 3, [3, 12, -1], []):
        parts = {"b": {"k": [1, 2], "a": "é"}, "names": list(names), "a": numbers, "text": "q"}
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        expected = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        assert content_digest(parts) == expected
        assert content_digest(parts | {"names": names, "a": np.array(numbers, np.int8)}) == expected
    assert content_digest({}) == hashlib.blake2b(b"{}", digest_size=16).hexdigest()


def test_content_digest() -> None:
    assert content_digest({"a": 1, "b": ["é"]}) == content_digest({"b": ["é"], "a": 1})
    assert content_digest({"a": 1}) != content_digest({"a": 2})
    assert len(content_digest({"name": "\udce9"})) == 32  # a name that was not UTF-8


def test_every_flipped_byte_of_the_root_is_noticed() -> None:
    content = seal_root({"attributes": {"mlfs": {"n": 1, "root_digest": ""}}, "zarr_format": 3})
    start = content.index(b'"root_digest":"') + len(b'"root_digest":"')
    recorded = content[start : start + 32].decode()
    assert root_is_intact(content, recorded)
    for place in range(len(content)):
        if start <= place < start + 32:
            continue
        flipped = bytearray(content)
        flipped[place] ^= 1
        assert not root_is_intact(bytes(flipped), recorded), place
    changed = content.replace(recorded.encode(), b"f" * 32)
    assert not root_is_intact(changed, "f" * 32)
