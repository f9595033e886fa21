"""Opening files, packed or damaged, local or at a URL, and their lines: each comes once, whatever the cutting."""

from __future__ import annotations

import bz2
import gzip
import lzma
import pickle
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.files.compressed_io import SourceFile, open_source
from mlfs_dask.readers.lines import (
    line_blocks,
    split_lines,
)

TEXT = "".join(f"{i} {i * i % 7919}\n" for i in range(40_000)).encode()


def zstd(data: bytes) -> bytes:
    return bytes(pytest.importorskip("zstandard").ZstdCompressor().compress(data))


COMPRESS = {
    "gzip": (".gz", gzip.compress),
    "xz": (".xz", lzma.compress),
    "bzip2": (".bz2", bz2.compress),
    "zstd": (".zst", zstd),
}


@pytest.fixture(params=list(COMPRESS))
def compressed(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, str]:
    suffix, compress = COMPRESS[request.param]
    path = tmp_path / f"data.txt{suffix}"
    # Two members: concatenated compressed files are legal in all four formats.
    path.write_bytes(compress(TEXT[:1000]) + compress(TEXT[1000:]))
    return path, request.param


def test_compressed_file_gives_the_same_bytes(compressed: tuple[Path, str]) -> None:
    path, name = compressed
    source = pickle.loads(pickle.dumps(open_source(str(path))))
    assert (source.compression, source.enterable) == (name, False)
    assert source.size == path.stat().st_size
    with source.open() as stream:
        assert stream.read() == TEXT
    assert source.read_range(99_990, 100_020) == TEXT[99_990:100_020]


def test_compression_is_told_by_the_bytes(compressed: tuple[Path, str], tmp_path: Path) -> None:
    bare = tmp_path / "data.txt"
    bare.write_bytes(compressed[0].read_bytes())
    assert open_source(str(bare)).compression == compressed[1]


def test_damage_is_told_from_the_end_of_the_file(compressed: tuple[Path, str]) -> None:
    """Also where a second stream begins."""
    path, name = compressed
    data = path.read_bytes()
    second, middle = len(COMPRESS[name][1](TEXT[:1000])), len(data) // 2
    flipped = [data[:place] + bytes([data[place] ^ 0x20]) + data[place + 1 :] for place in range(second, second + 3)]
    for content, problem in (
        *((content, "damaged") for content in (*flipped, data[:middle] + bytes(40) + data[middle + 40 :])),
        *((content, r"cut off.*\n.*compress the file again") for content in (data[: second + 3], data[:-20])),
    ):
        path.write_bytes(content)
        with (
            open_source(str(path)).open() as stream,
            pytest.raises(DataError, match=f"the {name} data is {problem}") as caught,
        ):
            stream.read()
        assert caught.value.file == str(path)


def test_xz_may_have_zeros_between_streams(tmp_path: Path) -> None:
    zeros = bytes(1 << 17)
    (tmp_path / "a.xz").write_bytes(lzma.compress(TEXT[:9]) + bytes(4) + lzma.compress(TEXT[9:]) + zeros)
    with open_source(str(tmp_path / "a.xz")).open() as stream:
        assert stream.read() == TEXT


@pytest.mark.parametrize(
    ("content", "came"), [(TEXT, "not compressed"), (b"", "empty"), (lzma.compress(b"x"), "xz data")]
)
def test_name_that_promises_another_compression(tmp_path: Path, content: bytes, came: str) -> None:
    path = tmp_path / "data.txt.gz"
    path.write_bytes(content)
    with pytest.raises(DataError, match=rf"ends in \.gz.*gzip data, but the file is {came}\n.*rename"):
        open_source(str(path))


def test_text_that_begins_like_bzip2_is_text(tmp_path: Path) -> None:
    path = tmp_path / "data.csv"
    path.write_bytes(b"BZh9,other\n1,2\n")
    assert open_source(str(path)).compression is None


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="a file was expected, this is a directory"):
        open_source(str(tmp_path))


def test_urls() -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open("memory://opening/data.txt.gz", "wb") as file:
        file.write(gzip.compress(TEXT))
    source = open_source("memory://opening/data.txt.gz")
    assert source.read_range(5, 25) == TEXT[5:25]
    with pytest.raises(DataError, match="there is no such file"):
        open_source("memory://opening/absent.txt")
    with pytest.raises(UsageError, match=r"nosuch://opening/data.txt: Protocol not known: nosuch\n  cure: give a"):
        open_source("nosuch://opening/data.txt")


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
