"""Fields and codes that the compiled tokenizers of text files share with Python, and tables of nominal values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

# What stopped a kernel.
DONE, FULL, TOO_FEW, TOO_MANY, EMPTY_VALUE, NOT_A_ROW, BAD_INDEX, NOT_CLOSED, BAD_LABEL = range(9)

# Kinds of ARFF attribute.
NUMERIC, NOMINAL, OTHER = range(3)
# Of the value -1 of a nominal label: codes are not negative.
MINUS_ONE_CODE = 2
# Of a value of a nominal label that means unknown.
UNKNOWN_CODE = 3
# `target` of an attribute: its feature index, or -1 - its label index, or this.
IGNORED = np.iinfo(np.int32).min

# Fields of the int64 array `report` that a kernel fills; to WEIGHTS it adds.
STATUS, POSITION, ROWS, ENTRIES, LABELS, DEFERRED, LINES, UNSORTED, WEIGHTS, COUNT = range(10)
REPORT_FIELDS = 10

# Fields of a row of `deferred`: bytes [FROM, TO) of the buffer, the attribute, and the place of the value
# in the array of features, or -1 - its place in the array of labels.
FROM, TO, ATTRIBUTE, PLACE = range(4)
DEFERRED_FIELDS = 4


class Nominals(NamedTuple):
    """Values of all distinct nominal declarations, for look-up by bytes.

    Attributes
    ----------
    single : int32 array, shape (declarations, 256)
        Code of each value of one byte, -1 where there is none.
    slots : int32 array
        Open-addressed hash tables, one after the other: number of a value, or -1.
    first, mask : int64 arrays, shape (declarations,)
        Where a declaration's table begins in `slots`, and its size - 1.
    text : uint8 array
        All values on end; value v is `text[bounds[v] : bounds[v + 1]]`.
    bounds : int64 array
    codes : int32 array
        Code of each value.
    """

    single: NDArray[np.int32]
    slots: NDArray[np.int32]
    first: NDArray[np.int64]
    mask: NDArray[np.int64]
    text: NDArray[np.uint8]
    bounds: NDArray[np.int64]
    codes: NDArray[np.int32]


def index_nominals(declarations: Sequence[tuple[Sequence[bytes], Sequence[int]]]) -> Nominals:
    """Return tables for declarations given as (values, codes)."""
    single = np.full((max(len(declarations), 1), 256), -1, dtype=np.int32)
    first: list[int] = []
    mask: list[int] = []
    slots: list[NDArray[np.int32]] = []
    texts: list[bytes] = []
    bounds = [0]
    codes: list[int] = []
    for number, (values, value_codes) in enumerate(declarations):
        size = 4
        while size < 2 * len(values):
            size *= 2
        table = np.full(size, -1, dtype=np.int32)
        for value, code in zip(values, value_codes, strict=True):
            if len(value) == 1:
                single[number, value[0]] = code
            place = _hash_text(value) & (size - 1)
            while table[place] >= 0:
                place = (place + 1) & (size - 1)
            table[place] = len(codes)
            codes.append(code)
            texts.append(value)
            bounds.append(bounds[-1] + len(value))
        first.append(sum(len(table) for table in slots))
        mask.append(size - 1)
        slots.append(table)
    return Nominals(
        single,
        np.concatenate([*slots, np.empty(0, np.int32)]),
        np.array(first, dtype=np.int64),
        np.array(mask, dtype=np.int64),
        np.frombuffer(b"".join(texts), dtype=np.uint8).copy(),
        np.array(bounds, dtype=np.int64),
        np.array(codes, dtype=np.int32),
    )


def _hash_text(value: bytes) -> int:
    """Return FNV-1a, 32 bits: the twin of the loop in `_code_of`."""
    hashed = 2166136261
    for byte in value:
        hashed = ((hashed ^ byte) * 16777619) & 0xFFFFFFFF
    return hashed
