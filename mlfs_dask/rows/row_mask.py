"""Selections of rows: a range, or a mask of one bit per row."""

from __future__ import annotations

from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray


class RowMask:
    """Row mask of one bit per row; row numbers would take eight bytes each.

    Parameters
    ----------
    rows : int64 array, shape (m,)
        Distinct row numbers.
    n : int
        Total number of rows.

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
        """Return the selected row numbers within first..last-1, ascending."""
        skipped = first % 8
        bits = np.unpackbits(self.bits[first // 8 : -(-last // 8)], count=last - first + skipped)
        return first + np.flatnonzero(bits[skipped:])


Rows: TypeAlias = range | RowMask


def row_numbers_between(rows: Rows, first: int, last: int) -> NDArray[np.int64]:
    """Return the selected row numbers within first..last-1, ascending.

    >>> row_numbers_between(range(1, 10, 3), 2, 8)
    array([4, 7])
    """
    if isinstance(rows, RowMask):
        return rows.between(first, last)
    low, high = offsets_of(rows, np.array([first, last]))
    return np.asarray(rows[low:high], np.int64)


def row_numbers(rows: Rows) -> NDArray[np.int64]:
    """Return all selected row numbers, ascending."""
    return np.asarray(rows, np.int64) if isinstance(rows, range) else rows.between(0, 8 * len(rows.bits))


def offsets_of(rows: Rows, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the number of selected rows before each bound; the bounds ascend from 0.

    >>> offsets_of(range(1, 10, 3), np.array([0, 1, 2, 9])), offsets_of(RowMask(np.array([4, 6]), 9), np.array([0, 5]))
    (array([0, 0, 1, 3]), array([0, 1]))
    """
    if isinstance(rows, range):
        return np.clip(-(-(bounds - rows.start) // rows.step), 0, len(rows)).astype(np.int64)
    counts = [len(rows.between(first, last)) for first, last in pairwise(bounds.tolist())]
    return np.cumsum([0, *counts], dtype=np.int64)


def compose_rows(rows: Rows | None, selection: Rows | None, n: int) -> Rows | None:
    """Compose two selections: return the row numbers, of n rows, of `selection` within `rows`; None for all.

    >>> compose_rows(range(1, 10, 3), range(1, 3), 12)
    range(4, 10, 3)
    """
    if rows is None or selection is None:
        return selection if rows is None else rows
    if isinstance(rows, range) and isinstance(selection, range):
        return rows[selection.start : selection.stop : selection.step]
    return RowMask(row_numbers(rows)[row_numbers(selection)], n)
