"""Blocks of whole lines from a byte range of a text file, and the line number of a byte.

The rule by which ranges share a file: a line belongs to the range that holds its first byte. A reader enters
range [start, stop) at the first line beginning at or after `start`, so ranges can be read in any order and
process and every line is read once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.files.compressed_io import LONGEST_LINE, SMALL_PIECE_BYTES, SourceFile, line_too_long
from mlfs_dask.readers.base import Part, parts_at

UTF8_MARK = b"\xef\xbb\xbf"
NEWLINE = 10


class LineBlock(NamedTuple):
    """Whole lines of a file.

    Attributes
    ----------
    data : uint8 array
        `data[:length]` are the bytes, and `data[length - 1]` is a newline: one is added where the file lacks
        its last. The next block overwrites the array.
    length : int
        Bytes of whole lines.
    offset : int
        Place of `data[0]` in the uncompressed file.
    """

    data: NDArray[np.uint8]
    length: int
    offset: int


def split_lines(source: SourceFile, first: int, part_bytes: int) -> list[Part]:
    """Return parts of about `part_bytes` bytes from byte `first` on; one part if the file cannot be entered."""
    if not source.enterable or source.size - first <= part_bytes:
        return parts_at([first], None)
    count = -(-(source.size - first) // max(part_bytes, 1))
    return parts_at([first + (source.size - first) * i // count for i in range(count)], None)


def line_blocks(source: SourceFile, start: int, stop: int | None, *, block_bytes: int) -> Iterator[LineBlock]:
    """Yield lines whose first byte lies in [start, stop), in blocks of about `block_bytes`.

    Holds one buffer of `block_bytes`, more only where a single line is longer, up to `LONGEST_LINE`.
    """
    # A line begins at `start` if the byte before it is a newline, so reading begins one byte early.
    offset = max(start - 1, 0)
    with source.open(offset) as stream:
        if start > 0:
            passed = _reading_line(stream)
            if not passed:
                return
            offset += passed
        if stop is not None and offset >= stop:
            return
        buffer = bytearray(block_bytes + 1)
        filled = 0
        while True:
            capacity = len(buffer) - 1
            if filled == capacity:
                if filled >= LONGEST_LINE:
                    raise line_too_long(source.path, line_number(source, offset))
                buffer = buffer + bytes(len(buffer))
                continue
            count = capacity - filled
            if stop is not None:
                # Beyond `stop` only the rest of the last line is wanted, so the reads begin small.
                beyond = offset + filled - stop
                count = min(count, -beyond if beyond < 0 else max(SMALL_PIECE_BYTES, beyond))
            got = stream.readinto(memoryview(buffer)[filled : filled + count])  # type: ignore[attr-defined]
            filled += got
            if not got:
                if not filled:
                    return
                if buffer[filled - 1] != NEWLINE:
                    buffer[filled] = NEWLINE
                    filled += 1
                yield LineBlock(np.frombuffer(buffer, np.uint8), filled, offset)
                return
            if stop is not None and offset + filled >= stop:
                # The line that owns byte stop - 1 is the last; it ends at the first newline from there on.
                end = buffer.find(b"\n", stop - 1 - offset, filled) + 1
                if end:
                    yield LineBlock(np.frombuffer(buffer, np.uint8), end, offset)
                    return
            # Pipes and remote files answer in small pieces: go on until the buffer is worth parsing.
            length = buffer.rfind(b"\n", 0, filled) + 1 if filled == capacity else 0
            if length:
                yield LineBlock(np.frombuffer(buffer, np.uint8), length, offset)
                buffer[: filled - length] = buffer[length:filled]
                filled -= length
                offset += length


def line_from(block: LineBlock, p: int) -> str:
    """Return the line of a block from byte `p` on, without its end; bytes that are no UTF-8 as surrogates."""
    rest = bytes(block.data[p : block.length])
    return rest[: rest.index(b"\n")].decode("utf-8", "surrogateescape").rstrip("\r")


def excerpt(text: str) -> str:
    """Return an excerpt of a text for an error: 40 characters, as Latin-1 if the text is no UTF-8.

    Examples
    --------
    >>> excerpt("x" * 50)
    'xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...'
    """
    text = text.encode("utf-8", "surrogateescape").decode("utf-8", "replace").strip()
    return text if len(text) <= 40 else text[:37] + "..."


def line_number(source: SourceFile, offset: int) -> int:
    """Number, from 1, of the line that holds byte `offset`. Reads the file up to there."""
    number, position = 1, 0
    with source.open() as stream:
        while position < offset and (piece := stream.read(min(1 << 20, offset - position))):
            number += piece.count(b"\n")
            position += len(piece)
    return number


def line_error(
    source: SourceFile, block: LineBlock, p: int, problem: str, *, cure: str, column: Any = None, value: Any = None
) -> DataError:
    """Return the error of what stands at byte `p` of a block, with its line."""
    line = line_number(source, block.offset + p)
    return DataError(problem, file=source.path, line=line, column=column, value=value, cure=cure)


def _reading_line(stream: object) -> int:
    """Return bytes up to and including the next newline; 0 when the file ends before one."""
    passed = 0
    while True:
        piece = stream.readline(SMALL_PIECE_BYTES)  # type: ignore[attr-defined]
        passed += len(piece)
        if piece.endswith(b"\n"):
            return passed
        if not piece:
            return 0
