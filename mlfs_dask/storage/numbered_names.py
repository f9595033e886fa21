"""Names that are made up where a file has none: a letter and a number, `x0`, `x1` and so on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import overload

import numpy as np


class NumberedNames(Sequence[str]):
    """A letter and a number from 0, made where it is asked for: as texts, names of millions of features take gigabytes.

    Examples
    --------
    >>> names = NumberedNames("x", 12)
    >>> names[1:3], names[-1], len(names)
    (['x1', 'x2'], 'x11', 12)
    >>> names.framed(8, 11, lambda length: (b"<", b">"))
    b'<x8><x9><x10>'
    """

    def __init__(self, letter: str, count: int) -> None:
        self._letter = letter
        self._numbers = range(count)

    def __len__(self) -> int:
        return len(self._numbers)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        numbers = self._numbers[place]
        return f"{self._letter}{numbers}" if isinstance(numbers, int) else [f"{self._letter}{n}" for n in numbers]

    def framed(self, start: int, stop: int, frame: Callable[[int], tuple[bytes, bytes]]) -> bytes:
        """Return some names on end, as bytes, each within the two texts that `frame` gives for its length."""
        pieces = []
        while start < stop:
            digits = len(str(start))
            end = min(stop, 10**digits)
            before, after = frame(1 + digits)
            before += self._letter.encode()
            text = np.empty((end - start, len(before) + digits + len(after)), np.uint8)
            text[:, : len(before)] = np.frombuffer(before, np.uint8)
            text[:, len(before) + digits :] = np.frombuffer(after, np.uint8)
            numbers = np.arange(start, end)
            for place in range(len(before) + digits - 1, len(before) - 1, -1):
                numbers, digit = np.divmod(numbers, 10)
                text[:, place] = digit + ord("0")
            pieces.append(text.tobytes())
            start = end
        return b"".join(pieces)
