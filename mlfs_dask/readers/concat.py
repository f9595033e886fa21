"""Several files of one format, one after the other, as if they were one.

They have to agree on names, widths and declared categories; the first difference is named. Categories that
were found in the rows (texts in CSV and Parquet) are united instead, sorted, because one file need not hold
them all; where a file gives their order (an ordered dictionary of Parquet), that is kept. Where widths are not
known before the last row (svmlight), the widest file counts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import numpy as np

from mlfs_dask.errors import DataError
from mlfs_dask.readers.base import (
    Batch,
    Header,
    Part,
    Reader,
    is_subsequence,
    sort_categories,
)
from mlfs_dask.readers.classes import united_classes
from mlfs_dask.readers.table import IDENTIFYING_ROWS, TableReader

_CURE = "convert the files one by one, or make their columns agree"
_SAME_VALUES = "declare the same values in the same order, or convert the files one by one"


class ConcatReader(Reader):
    """Files in the order given; made by `concatenate`.

    Attributes
    ----------
    header : Header
    path : str
        Of all files, separated by blanks, for messages.
    """

    def __init__(self, header: Header, readers: Sequence[Reader]) -> None:
        self.header = header
        self.path = " ".join(reader.path for reader in readers)
        self.readers = tuple(readers)
        self.in_threads = all(reader.in_threads for reader in readers)
        self.opened_bytes = max(reader.opened_bytes for reader in readers)
        self.enterable = all(reader.enterable for reader in readers)
        self.dtype = np.result_type(*(reader.dtype for reader in readers))
        if self.enterable:
            self.sparse = all(reader.sparse for reader in readers)
            self.nonzeros = sum(reader.nonzeros for reader in readers)

    def pass_reader(self) -> ConcatReader:
        """See `Reader`."""
        return ConcatReader(self.header, [reader.pass_reader() for reader in self.readers])

    def held_bytes(self, batch_bytes: int) -> int:
        """See `Reader`."""
        return max(reader.held_bytes(batch_bytes) for reader in self.readers)

    def only_labels(self) -> ConcatReader:
        """See `Reader`."""
        return ConcatReader(self.header.labels_only(), [reader.only_labels() for reader in self.readers])

    def parts(self, part_bytes: int) -> list[Part]:
        """Return the parts of all files; none spans two."""
        parts: list[Part] = []
        rows: int | None = 0
        for file, reader in enumerate(self.readers):
            for part in reader.parts(part_bytes):
                row = None if part.row is None or rows is None else rows + part.row
                parts.append(part._replace(index=len(parts), row=row, file=file))
            rows = None if rows is None or reader.header.n_rows is None else rows + reader.header.n_rows
        return parts

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of one part. See `Reader.read`."""
        return self.readers[part.file].read(part, batch_bytes=batch_bytes)


def concatenate(readers: Sequence[Reader]) -> Reader:
    """Return a reader that concatenates several readers.

    Raises
    ------
    DataError
        The files differ in names, widths or declared categories; the first difference is named.
    """
    if len(readers) == 1:
        return _without_identifiers(readers)[0]
    readers = united_classes(readers)
    first = readers[0]
    for reader in readers[1:]:
        for what in ("feature", "label"):
            check_names(first.header, reader.header, what, paths=(first.path, reader.path))
    readers = _without_identifiers(_united(readers))
    first = readers[0]
    for reader in readers[1:]:
        check_categories(first.header, reader.header, paths=(first.path, reader.path))
    headers = [reader.header for reader in readers]
    rows = [header.n_rows for header in headers]
    header = replace(
        first.header,
        n_features=_widest(header.n_features for header in headers),
        n_labels=_widest(header.n_labels for header in headers),
        n_rows=None if None in rows else sum(n for n in rows if n is not None),
    )
    return ConcatReader(header, readers)


def _widest(widths: Iterable[int | None]) -> int | None:
    known = list(widths)
    return None if None in known else max(width for width in known if width is not None)


def check_names(ours: Header, theirs: Header, what: str, *, paths: tuple[str, str], cure: str = _CURE) -> None:
    """Raise DataError unless both have the same names, or as many columns where they have none.

    `what` is "feature" or "label", `paths` is what the first and the other file, or store, are called.
    """
    names, other_names = (getattr(header, f"{what}_names") for header in (ours, theirs))
    if (names is None) != (other_names is None):
        named, unnamed = paths if other_names is None else paths[::-1]
        raise DataError(f"it has no {what} names, {named} has them", file=unnamed, cure=cure)
    if names is None:
        widths = [getattr(header, f"n_{what}s") for header in (ours, theirs)]
        if None not in widths and widths[0] != widths[1]:
            raise DataError(f"it has {widths[1]} {what}s, {paths[0]} has {widths[0]}", file=paths[1], cure=cure)
        return
    for number, (our, their) in enumerate(itertools.zip_longest(names, other_names), start=1):
        if our != their:
            problem = f"{what} {number} is {_shown(their)}; in {paths[0]} it is {_shown(our)}"
            raise DataError(problem, file=paths[1], cure=cure)


def _shown(name: str | None) -> str:
    return "not there" if name is None else repr(name)


def check_categories(ours: Header, theirs: Header, *, paths: tuple[str, str], cure: str = _SAME_VALUES) -> None:
    """Raise DataError unless both declare the same values, in the same order, for the same features."""
    for feature in sorted({*ours.categories, *theirs.categories}):
        if ours.categories.get(feature) != theirs.categories.get(feature):
            raise _values_differ(ours, theirs, feature, paths=paths, cure=cure)


def _values_differ(
    ours: Header, theirs: Header, feature: int, *, paths: tuple[str, str], cure: str = _SAME_VALUES
) -> DataError:
    values, other_values = (_listed(header.categories.get(feature)) for header in (ours, theirs))
    return DataError(
        f"its values are {other_values}; in {paths[0]} they are {values}",
        file=paths[1],
        column=ours.feature_names[feature] if ours.feature_names is not None else feature + 1,
        cure=cure,
    )


def _listed(values: tuple[str, ...] | None) -> str:
    if values is None:
        return "numbers"
    text = ", ".join(values[:10])
    return "{" + text + (f", ... {len(values)} in all" if len(values) > 10 else "") + "}"


def _united(readers: Sequence[Reader]) -> list[Reader]:
    """Return readers that found categories in their rows, each given those of all."""
    finders = [reader for reader in readers if isinstance(reader, TableReader)]
    if len(finders) != len(readers):
        return list(readers)
    features = sorted(frozenset().union(*(finder.header.categories for finder in finders)))
    if not features:
        return list(readers)
    values: dict[int, set[str]] = {feature: set() for feature in features}
    for finder in finders:
        lacking = [feature for feature in features if feature not in finder.header.categories]
        # A column of numbers here and of texts there holds texts.
        found = finder.distinct(lacking) if lacking else {}
        for feature in features:
            values[feature] |= found.get(feature) or set(finder.header.categories.get(feature, ()))
    united = {feature: _order(finders, feature, texts) or sort_categories(texts) for feature, texts in values.items()}
    return [finder.with_categories(united) for finder in finders]


def _without_identifiers(readers: Sequence[Reader]) -> Sequence[Reader]:
    """Return readers without the columns of texts in which each row has a text of its own."""
    tables = [reader for reader in readers if isinstance(reader, TableReader)]
    if len(tables) != len(readers):
        return readers
    found = set()
    for feature, texts in tables[0].header.categories.items():
        counts = [table.text_counts(feature) for table in tables]
        rows = sum(rows for rows, _ in counts)
        alone = rows >= IDENTIFYING_ROWS and all(rows == different for rows, different in counts)
        if alone and (math.isinf(rows) or rows == len(texts)):
            found.add(feature)
        elif math.isinf(rows):
            raise tables[0].too_many_texts(feature)
    return [table.without(found) for table in tables] if found else readers


def _order(finders: Sequence[TableReader], feature: int, texts: set[str]) -> tuple[str, ...]:
    """Return the order that files give for the texts of a feature; () where none does.

    Raises
    ------
    DataError
        Two orders differ, or a text is in none of them.
    """
    givers = [finder for finder in finders if feature in finder.ordered]
    if not givers:
        return ()
    first = max(givers, key=lambda giver: len(giver.header.categories[feature]))
    order = first.header.categories[feature]
    for giver in givers:
        if not is_subsequence(giver.header.categories[feature], order):
            raise _values_differ(first.header, giver.header, feature, paths=(first.path, giver.path))
    if new := texts.difference(order):
        other = next(finder for finder in finders if new & set(finder.header.categories.get(feature, new)))
        raise _values_differ(first.header, other.header, feature, paths=(first.path, other.path))
    return order
