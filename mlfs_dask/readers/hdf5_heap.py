"""Heaps of texts in HDF5 files, looked at before the library reads them.

HDF5 (1.14 and 2.0) steps through a heap by the sizes that its objects say they have. Where one is 0, as in a block of
zeros that a copy left behind, it steps for ever, and hears no signal.
"""

from __future__ import annotations

import re
import struct
from typing import Any, BinaryIO

from mlfs_dask.readers.base import damaged

#: Signature and version of a heap; its size follows, and then its objects.
_HEAP = re.compile(rb"GCOL\x01\0\0\0")
_HEADER_BYTES = 16
#: Index, references and size of an object; index 0 is free space, whose size includes this.
_OBJECT = struct.Struct("<HHIQ")
#: Bytes that are read of a heap at a time; most heaps have 4 KiB.
_PIECE_BYTES = 1 << 14


class HeapCheckedFile:
    """A file for h5py, which raises DataError instead of giving it a heap that has no end.

    Parameters
    ----------
    file : binary file
    path : str
        For messages.
    """

    def __init__(self, file: BinaryIO, path: str) -> None:
        self._file = file
        self._path = path
        self._checked: set[int] = set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)

    def readinto(self, buffer: memoryview) -> int:
        """Read bytes, and the heaps that begin among them whole."""
        start = self._file.tell()
        count: int = self._file.readinto(buffer)  # type: ignore[attr-defined]
        heaps = {start + match.start() for match in _HEAP.finditer(buffer[:count])} - self._checked
        for heap in sorted(heaps):
            self._check(heap)
        self._checked |= heaps
        if heaps:
            self._file.seek(start + count)
        return count

    def _check(self, heap: int) -> None:
        self._file.seek(heap)
        size = int.from_bytes(self._file.read(_HEADER_BYTES)[8:], "little")
        begin, piece = 0, b""
        at = _HEADER_BYTES
        while at + _OBJECT.size <= size:
            if not begin <= at <= begin + len(piece) - _OBJECT.size:
                self._file.seek(heap + at)
                begin, piece = at, self._file.read(_PIECE_BYTES)
                if len(piece) < _OBJECT.size:
                    return  # the library finds that out
            index, _, _, length = _OBJECT.unpack_from(piece, at - begin)
            step = length if index == 0 else _OBJECT.size + (length + 7) // 8 * 8
            if step % 2**64 == 0:
                raise damaged(f"a heap of texts at byte {heap:,} holds an object of no size", self._path)
            at += step
