"""Selections of rows, features or labels: numbers, ranges, names, or a file of them.

An expression is `0:100000`, `::10`, `5`, or several of these with commas between them; numbers count from 0, and ranges
end before their last number, as in Python. In a name * stands for any characters, and ? for one. `@FILE`, or the path
of a file, has one number or name a line.
"""

from __future__ import annotations

import csv
import itertools
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError, closest
from mlfs_dask.files.object_store import open_file
from mlfs_dask.readers.label_columns import matching

Chosen: TypeAlias = str | int | slice | range | Sequence[Any] | NDArray[Any]
"""What the user gives: an expression, names, numbers, a range, or a mask."""

_RANGE = re.compile(r"\s*(-?\d*)\s*:\s*(-?\d*)\s*(?::\s*(\d*)\s*)?")
_NUMBER = re.compile(r"\s*-?\d+\s*")
#: Characters of a line of a file of names.
_LONGEST_ENTRY = 1 << 20


def choose_rows(chosen: Chosen, n: int) -> range | NDArray[np.int64]:
    """Return the numbers of the chosen rows, rising.

    Parameters
    ----------
    chosen : str, slice, range, sequence of int, or bool array of shape (n,)
    n : int
        Rows in all.

    Raises
    ------
    UsageError
        An expression that cannot be read, or no row is chosen.
    DataError
        A line of a file is no row, or names one twice.

    Examples
    --------
    >>> choose_rows("::10", 25), choose_rows("0:2,-1", 25), choose_rows([3, 1], 4)
    (range(0, 25, 10), array([ 0,  1, 24]), array([1, 3]))
    """
    return _choose(chosen, n, {}, "row")


def choose_columns(chosen: Chosen, names: Sequence[str], what: str) -> NDArray[np.int64]:
    """Return the numbers of the chosen features or labels, rising.

    Parameters
    ----------
    chosen : str, slice, range, sequence of str or int, or bool array
        Where an entry of an expression is a name, the name is meant.
    names : sequence of str
        Of all.
    what : {"feature", "label"}

    Raises
    ------
    UsageError, DataError

    Examples
    --------
    >>> choose_columns("sky,0:2", ["a", "b", "c", "sky"], "label")
    array([0, 1, 3])
    """
    numbers = {str(name): number for number, name in enumerate(names)}
    return np.asarray(_choose(chosen, len(numbers), numbers, what), np.int64)


def list_features(chosen: Chosen, names: Sequence[str] | None, d: int) -> NDArray[np.int64]:
    """Return the numbers of features in the order in which they are named.

    Parameters
    ----------
    chosen : str, sequence of str or int, or bool array
        As of `choose_columns`.
    names : sequence of str, length d, or None
        Of all; None where they have numbers alone.
    d : int

    Raises
    ------
    UsageError, DataError

    Examples
    --------
    >>> list_features("sky,0", ["a", "b", "c", "sky"], 4), list_features([2, -3], None, 3)
    (array([3, 0]), array([2, 0]))
    """
    numbers = {} if names is None else {str(name): number for number, name in enumerate(names)}
    return np.asarray(_choose(chosen, d, numbers, "feature", rising=False), np.int64)


def _choose(
    chosen: Chosen, n: int, numbers: Mapping[str, int], what: str, *, rising: bool = True
) -> range | NDArray[np.int64]:
    indices: range | NDArray[np.int64]
    if isinstance(chosen, str):
        indices = _read(chosen, n, numbers, what, rising=rising)
    elif isinstance(chosen, slice | range):
        indices = range(n)[chosen if isinstance(chosen, slice) else slice(chosen.start, chosen.stop, chosen.step)]
        if indices.step < 0:
            indices = indices[::-1]
    else:
        entries = np.atleast_1d(np.asarray(chosen))
        if entries.dtype == bool:
            if entries.shape != (n,):
                raise UsageError(f"a mask of {what}s needs {n} entries; it has the shape {entries.shape}.")
            indices = np.flatnonzero(entries)
        else:
            read = [number for entry in entries.tolist() for number in _numbers(str(entry), n, numbers, what)]
            indices = _in_order(read, _distinct(read, numbers, what), rising=rising)
    if not len(indices):
        numbered = "" if n == 0 else f", with numbers from 0 to {n - 1:,}"
        raise UsageError(f"no {what} is chosen; there are {n:,}{numbered}.")
    return indices


def _in_order(read: Any, distinct: NDArray[np.int64], *, rising: bool) -> NDArray[np.int64]:
    """Return distinct numbers: rising, or as they were read."""
    return distinct if rising else np.array(list(dict.fromkeys(np.asarray(read).tolist())), np.int64)


def _read(text: str, n: int, numbers: Mapping[str, int], what: str, *, rising: bool) -> range | NDArray[np.int64]:
    entries = [entry for entry in next(csv.reader([text]), []) if entry.strip()]
    unknown = [entry for entry in entries if not _is_known(entry, numbers)]
    if text.startswith("@") or (unknown and os.path.isfile(text)):  # noqa: PTH113  # Path refuses long texts
        return _read_file(text.removeprefix("@"), n, numbers, what, rising=rising)
    if unknown:
        raise UsageError(f"there is no {what} {unknown[0]!r}, and no file {text!r}.{_cure(unknown[0], numbers, what)}")
    if len(entries) == 1 and entries[0] not in numbers and _RANGE.fullmatch(entries[0]):
        return _range(entries[0], n)  # not an array: it may be long
    ranges = [entry not in numbers and bool(_RANGE.fullmatch(entry)) for entry in entries]
    numbers_read = [
        np.array(_range(entry, n) if is_range else _numbers(entry, n, numbers, what), np.int64)
        for entry, is_range in zip(entries, ranges, strict=True)
    ]
    if not any(ranges):
        _distinct([number for each in numbers_read for number in each.tolist()], numbers, what)
    read = np.concatenate([np.empty(0, np.int64), *numbers_read])
    return _in_order(read, np.unique(read), rising=rising)


def _is_known(entry: str, numbers: Mapping[str, int]) -> bool:
    return entry in numbers or bool(_RANGE.fullmatch(entry) or _NUMBER.fullmatch(entry) or matching(entry, numbers))


def _numbers(entry: str, n: int, numbers: Mapping[str, int], what: str) -> list[int]:
    """Return the numbers of an entry without a range: one number, or those of a pattern of names."""
    found = [] if entry in numbers else matching(entry.strip(), numbers)
    return found or [_number(entry, n, numbers, what)]


def _range(text: str, n: int) -> range:
    match = _RANGE.fullmatch(text)
    assert match is not None
    start, stop, step = (int(part) if part else None for part in match.groups())
    if step == 0:
        raise UsageError(f"the step of {text!r} must be positive.")
    return range(n)[start:stop:step]


def _number(entry: str, n: int, numbers: Mapping[str, int], what: str) -> int:
    if entry in numbers:
        return numbers[entry]
    if not _NUMBER.fullmatch(entry):
        raise UsageError(f"there is no {what} {entry!r}.{_cure(entry, numbers, what)}")
    number = int(entry)
    if not -n <= number < n:
        raise UsageError(f"there is no {what} number {number}; they are numbered from 0 to {n - 1}.")
    return number % n


def _cure(entry: str, numbers: Mapping[str, int], what: str) -> str:
    """Return the cure for an entry that is neither name, number nor range."""
    if numbers:
        return f" {closest(entry, list(numbers))}"
    if what != "row":
        return f" The {what}s of this data have no names: give their numbers, from 0."
    return " Rows have no names: give numbers, ranges as 0:100, or the path of a file with a number a line."


def _distinct(chosen: list[int], numbers: Mapping[str, int], what: str) -> NDArray[np.int64]:
    rising, counts = np.unique(np.array(chosen, np.int64), return_counts=True)
    if (counts > 1).any():
        twice = int(rising[counts.argmax()])
        name = next((repr(name) for name, number in numbers.items() if number == twice), twice)
        raise UsageError(f"{what} {name} is chosen twice\n  cure: name it once")
    return rising


def _read_file(path: str, n: int, numbers: Mapping[str, int], what: str, *, rising: bool) -> NDArray[np.int64]:
    numbers_read = np.fromiter((number for _, _, number in _lines_of(path, n, numbers, what)), np.int64)
    distinct, counts = np.unique(numbers_read, return_counts=True)
    if (counts > 1).any():
        repeated = int(distinct[counts.argmax()])
        lines = ((line, entry) for line, entry, number in _lines_of(path, n, numbers, what) if number == repeated)
        (first, _), (line, entry) = itertools.islice(lines, 2)
        raise DataError(f"this {what} is in line {first}, too", file=path, line=line, value=entry, cure="name it once")
    return _in_order(numbers_read, distinct, rising=rising)


def _lines_of(path: str, n: int, numbers: Mapping[str, int], what: str) -> Iterator[tuple[int, str, int]]:
    """Number, content and meaning of every line of a file that is not blank."""
    try:
        with os.fdopen(open_file(path), encoding="utf-8-sig") as stream:
            for line, ended in enumerate(iter(lambda: stream.readline(_LONGEST_ENTRY), ""), 1):
                if len(ended) == _LONGEST_ENTRY:
                    raise DataError(f"a line is longer than any {what}", file=path, line=line, cure="check the file")
                text = ended.rstrip("\n")
                entry = text if text in numbers else _entry_in(text.strip(), numbers)
                if entry:
                    yield line, entry, _number_in_line(entry, n, numbers, what, path, line)
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"the file of {what}s cannot be read: {error}", file=path, cure=f"give a text file with one {what} per line"
        ) from error


def _entry_in(text: str, numbers: Mapping[str, int]) -> str:
    """Return the name in a line, without quotes and with escaped line breaks as in `selected.txt`."""
    if text in numbers:
        return text
    if text.startswith('"'):
        return next(csv.reader([text]), [text])[0]
    unescaped = text.replace("\\n", "\n").replace("\\r", "\r")
    return unescaped if unescaped in numbers else text


def _number_in_line(entry: str, n: int, numbers: Mapping[str, int], what: str, path: str, line: int) -> int:
    try:
        return _number(entry, n, numbers, what)
    except UsageError as error:
        raise DataError(
            str(error), file=path, line=line, value=entry, cure=f"name one {what} of the store in every line"
        ) from None


def origin_of(digest: str | None, subset: Mapping[str, Any] | None) -> str | None:
    """Return the digest of the whole store.

    Parameters
    ----------
    digest : str or None
        Of the store, or of a part of it.
    subset : mapping or None
        What was chosen (`Dataset.subset_record`); it may be a part of a part.
    """
    while subset:
        digest = subset["of"]
        subset = digest if isinstance(digest, Mapping) else None
    return digest
