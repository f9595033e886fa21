"""Which rows are chosen: a range, or a bit a row."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


class RowMask:
    """Chosen rows in one bit a row, where their numbers would take eight bytes each.

    Parameters
    ----------
    rows : int64 array, shape (m,)
        Distinct.
    n : int
        Rows in all.

    Attributes
    ----------
    bits : uint8 array, shape (ceil(n / 8),)

    Examples
    --------
    >>> rows = RowMask(np.array([2, 3, 9]), 12)
    >>> len(rows), rows.bits.nbytes, rows.between(3, 10)
    (3, 2, array([3, 9]))
    """

    def __init__(self, rows: NDArray[np.int64], n: int) -> None:
        mask = np.zeros(n, dtype=bool)
        mask[rows] = True
        self.bits = np.packbits(mask)
        self._length = len(rows)

    def __len__(self) -> int:
        return self._length

    def between(self, first: int, last: int) -> NDArray[np.int64]:
        """Numbers of the chosen rows among first..last-1, rising."""
        skipped = first % 8
        bits = np.unpackbits(self.bits[first // 8 : -(-last // 8)], count=last - first + skipped)
        return first + np.flatnonzero(bits[skipped:])


Rows: TypeAlias = range | RowMask


def numbers_between(rows: Rows, first: int, last: int) -> NDArray[np.int64]:
    """Numbers of the chosen rows among first..last-1, rising.

    >>> numbers_between(range(1, 10, 3), 2, 8)
    array([4, 7])
    """
    if isinstance(rows, RowMask):
        return rows.between(first, last)
    low, high = offsets_of(rows, np.array([first, last]))
    return np.asarray(rows[low:high], np.int64)


def numbers_of(rows: Rows) -> NDArray[np.int64]:
    """Numbers of all chosen rows, rising."""
    return np.asarray(rows, np.int64) if isinstance(rows, range) else rows.between(0, 8 * len(rows.bits))


def offsets_of(rows: Rows, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the chosen rows come before each bound, where the bounds rise from 0.

    >>> offsets_of(range(1, 10, 3), np.array([0, 1, 2, 9])), offsets_of(RowMask(np.array([4, 6]), 9), np.array([0, 5]))
    (array([0, 0, 1, 3]), array([0, 1]))
    """
    if isinstance(rows, range):
        return np.clip(-(-(bounds - rows.start) // rows.step), 0, len(rows)).astype(np.int64)
    counts = [len(rows.between(first, last)) for first, last in pairwise(bounds.tolist())]
    return np.cumsum([0, *counts], dtype=np.int64)


def rows_of_rows(rows: Rows | None, chosen: Rows | None, n: int) -> Rows | None:
    """The rows of n that are `chosen` among `rows`; None for all.

    >>> rows_of_rows(range(1, 10, 3), range(1, 3), 12)
    range(4, 10, 3)
    """
    if rows is None or chosen is None:
        return chosen if rows is None else rows
    if isinstance(rows, range) and isinstance(chosen, range):
        return rows[chosen.start : chosen.stop : chosen.step]
    return RowMask(numbers_of(rows)[numbers_of(chosen)], n)
