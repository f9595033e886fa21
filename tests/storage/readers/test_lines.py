"""Lines cut into parts and blocks: each line comes once, whole, whatever the cutting."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlfs_dask.storage.readers.compressed_io import SourceFile, open_source
from mlfs_dask.storage.readers.lines import (
    LineBlock,
    block_bytes_for,
    excerpt,
    line_blocks,
    line_from,
    line_number,
    split_lines,
)


def text_of(source: SourceFile, start: int, stop: int | None, block_bytes: int) -> bytes:
    pieces = []
    for block in line_blocks(source, start, stop, block_bytes=block_bytes):
        piece = bytes(block.data[: block.length])
        assert piece.endswith(b"\n")
        pieces.append(piece)
    return b"".join(pieces)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    text=st.text("ab\n", max_size=120),
    part_bytes=st.integers(1, 60),
    block_bytes=st.integers(1, 60),
    first=st.integers(0, 20),
    compressed=st.booleans(),
)
def test_any_cutting_gives_every_line_once(
    tmp_path: Path, text: str, part_bytes: int, block_bytes: int, first: int, compressed: bool
) -> None:
    path = tmp_path / ("text.gz" if compressed else "text")
    first = 0 if first > len(text) or (first and text[first - 1] != "\n") else first
    path.write_bytes(gzip.compress(text.encode()) if compressed else text.encode())
    source = open_source(str(path))
    parts = split_lines(source, first, part_bytes)
    assert [part.index for part in parts] == list(range(len(parts)))
    assert not compressed or len(parts) == 1
    read = b"".join(text_of(source, part.start, part.stop, block_bytes) for part in parts)
    expected = text[first:].encode()
    assert read == expected + (b"\n" if expected and not expected.endswith(b"\n") else b"")


def test_parts_are_about_as_large_as_asked(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"0123456789\n" * 1000)
    parts = split_lines(open_source(str(path)), 11, 2500)
    assert [part.start for part in parts] == [11, 2208, 4406, 6604, 8802]
    assert [part.stop for part in parts] == [2208, 4406, 6604, 8802, None]


def test_line_longer_than_the_block(tmp_path: Path) -> None:
    path = tmp_path / "text"
    line = b"x" * 300_000 + b"\n"
    path.write_bytes(b"a\n" + line + b"b\n" + line)
    source = open_source(str(path))
    assert text_of(source, 0, None, 100) == path.read_bytes()
    assert text_of(source, 1, 3, 100) == line
    assert text_of(source, 3, 300_004, 100) == b"b\n"
    assert text_of(source, 300_004, None, 1 << 20) == line


def test_line_numbers(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"one\n\nthree\nfour")
    source = open_source(str(path))
    assert [line_number(source, offset) for offset in (0, 3, 4, 5, 10, 11, 14)] == [1, 1, 2, 3, 3, 4, 4]


@pytest.mark.parametrize(("batch", "block"), [(1, 1 << 14), (1 << 20, 1 << 18), (1 << 30, 1 << 23)])
def test_block_bytes(batch: int, block: int) -> None:
    assert block_bytes_for(batch) == block


def test_what_errors_show(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_bytes(b"abc\xff d\r\nmore\n")
    (block,) = line_blocks(open_source(str(path)), 0, None, block_bytes=100)
    assert isinstance(block, LineBlock)
    assert line_from(block, 1) == "bc\udcff d"
    assert excerpt(line_from(block, 1)) == "bc� d"
