"""Parquet and Feather (Arrow IPC) tables by pyarrow, a few rows at a time, row groups or record batches as parts.

Null and NaN are missing. Texts and dictionaries are categorical: their codes are the sorted order of the
distinct texts of the whole file, found by one reading of those columns alone, because every row group may
have a dictionary of its own. An ordered dictionary (an ordered categorical of pandas) keeps its order, where all
row groups agree on it. A file that `mlfs transform` wrote says which columns are labels and in which order its
categories are.

Reading a row group takes a page and a dictionary of every column at once, often 2 MiB a column. Where that
would be much more than a batch, the columns are brought a few at a time into a temporary file (8 bytes a
value, in TMPDIR), and rows are read from there.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, ClassVar, NoReturn, cast

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.files.redaction import redact
from mlfs_dask.storage.label_values import LabelValues
from mlfs_dask.storage.limits import filled_temporary_file, require_arrow
from mlfs_dask.storage.readers.base import (
    BOOLEAN_SPELLINGS,
    Batch,
    Header,
    LabelSpec,
    Part,
    ReadOptions,
    is_subsequence,
    sort_categories,
)
from mlfs_dask.storage.readers.classes import MAX_CATEGORIES, UNKNOWN_BYTES, ClassColumn, joined_labels
from mlfs_dask.storage.readers.label_columns import (
    DEFAULT_VALUES,
    bad_label,
    find_column,
    is_nameless,
    label_block,
    split_columns,
    unique_names,
)
from mlfs_dask.storage.readers.matrix import SMALL_BYTES, FileArray, fortran_rows, open_random

logger = logging.getLogger(__name__)

_SCAN_ROWS = 1 << 16
# A writer's usual limits for a page and a dictionary are 1 MiB each.
_COLUMN_BYTES = 2 << 20
_METADATA_KEY = b"mlfs"
_DEFAULTS = ReadOptions()


@dataclass(frozen=True)
class ParquetReader:
    """One Parquet or Feather file; made by `open_parquet`. Positions are rows.

    Attributes
    ----------
    header : Header
    path : str
    ordered : frozenset of int
        Features whose categories are in the order that the file gives.
    """

    in_threads: ClassVar[bool] = True

    header: Header
    path: str
    _storage_options: dict[str, Any]
    _names: tuple[str, ...]
    _features: tuple[int, ...]
    _labels: tuple[int, ...]
    _texts: frozenset[int]
    _group_starts: tuple[int, ...]
    _group_bytes: tuple[int, ...]
    _codes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)
    _meaning: LabelValues = DEFAULT_VALUES
    _classes: Mapping[int, ClassColumn] = field(default_factory=dict)
    _names_column: int = 0
    ordered: frozenset[int] = frozenset()

    @property
    def found_categories(self) -> frozenset[int]:
        """Features whose categories were found in the rows, not declared."""
        return frozenset(self.header.categories)

    def distinct(self, features: Iterable[int]) -> dict[int, set[str]]:
        """Different texts of some features; reads those columns only."""
        columns = {feature: self._features[feature] for feature in features}
        texts = self._distinct_texts(columns.values())
        return {feature: texts[column] for feature, column in columns.items()}

    def _distinct_texts(self, columns: Iterable[int]) -> dict[int, set[str]]:
        """Different texts of some columns."""
        found: dict[int, set[str]] = {column: set() for column in columns}
        import pyarrow.compute as pc

        with _open(self.path, self._storage_options) as file:
            for column, texts in found.items():
                name = self._names[column]
                for batch in file.iter_batches(batch_size=_SCAN_ROWS, columns=[name]):
                    values = batch.column(0)
                    texts.update(_as_text(text) for text in pc.unique(values).to_pylist() if text is not None)
                    if len(texts) > MAX_CATEGORIES:
                        raise DataError(
                            f"a categorical column may hold {MAX_CATEGORIES:,} different texts, and this one "
                            "holds more",
                            file=self.path,
                            column=name,
                            cure="leave the column out with --drop, or code it",
                        )
        return found

    def dictionary(self, feature: int) -> list[str]:
        """Texts of an ordered dictionary in its order, also those that no row has; [] where row groups differ.

        Where a row group of Parquet has no dictionary, pyarrow makes one in the order of the rows that are read: that
        of one row is too short for the texts of the column, so that the caller sees it.
        """
        name = self._names[self._features[feature]]
        longest: list[str] = []
        with _open(self.path, self._storage_options) as file:
            for group in np.flatnonzero(file.rows).tolist():
                first = next(iter(file.iter_batches(batch_size=1, columns=[name], row_groups=[group])))
                texts = [_as_text(text) for text in first.column(0).dictionary.to_pylist()]
                shorter, longest = sorted((longest, texts), key=len)
                if not is_subsequence(shorter, longest):
                    return []
        return longest

    def with_categories(self, categories: Mapping[int, Sequence[str]]) -> ParquetReader:
        """The same file, with these features read as categories in this order."""
        merged = {**self.header.categories, **{k: tuple(v) for k, v in categories.items()}}
        return replace(
            self,
            header=replace(self.header, categories=dict(sorted(merged.items()))),
            _texts=self._texts | {self._features[feature] for feature in categories},
            _codes={
                self._features[feature]: {text: code for code, text in enumerate(texts)}
                for feature, texts in merged.items()
            },
        )

    def row_names(self) -> Iterator[list[str]]:
        """See `Table`."""
        with _open(self.path, self._storage_options) as file:
            for batch in file.iter_batches(batch_size=_SCAN_ROWS, columns=[self._names[self._names_column]]):
                yield ["" if text is None else _as_text(text) for text in batch.column(0).to_pylist()]

    def rows_of_numbers(self, batch_bytes: int) -> Iterator[NDArray[np.float64]]:
        """See `Table`."""
        for part in self.parts(batch_bytes):
            for batch in self.read(part, batch_bytes=batch_bytes):
                assert isinstance(batch.X, np.ndarray)
                yield batch.X

    @property
    def class_columns(self) -> dict[str, ClassColumn]:
        """See `FindsClasses`."""
        return {column.name: column for column in self._classes.values()}

    def with_classes(self, columns: Mapping[str, ClassColumn]) -> ParquetReader:
        """See `FindsClasses`."""
        classes = {column: columns.get(self._names[column], old) for column, old in self._classes.items()}
        names = tuple(name for column in self._labels for name in classes[column].label_names)
        return replace(self, _classes=classes, header=replace(self.header, label_names=names, n_labels=len(names)))

    def with_found_classes(self, labels: LabelSpec) -> ParquetReader:
        """The same file, of whose label columns each class becomes a label; one reading of them finds them."""
        texts = self._distinct_texts(self._labels)
        classes = {
            column: ClassColumn.of(self._names[column], texts[column], labels.separator, labels.values, file=self.path)
            for column in self._labels
        }
        return replace(self, _classes=classes).with_classes({})

    def parts(self, part_bytes: int) -> list[Part]:
        """Runs of row groups of about `part_bytes` stored bytes."""
        starts = [0]
        size = 0
        for start, stored in zip(self._group_starts, self._group_bytes, strict=False):
            if size and size + stored > part_bytes:
                starts.append(start)
                size = 0
            size += stored
        stops = [*starts[1:], self._group_starts[-1]]
        return [Part(index, start, stop) for index, (start, stop) in enumerate(zip(starts, stops, strict=True))]

    def read(self, part: Part, *, batch_bytes: int, start: int | None = None) -> Iterator[Batch]:
        """Batches of one part; X is dense. See `Reader.read`."""
        row = part.start if start is None else start
        stop = self._group_starts[-1] if part.stop is None else part.stop
        if row >= stop:
            return
        first = int(np.searchsorted(self._group_starts, row, side="right")) - 1
        last = int(np.searchsorted(self._group_starts, stop, side="left"))
        allowed = max(SMALL_BYTES, 4 * batch_bytes)
        n_classes = sum(len(column.classes) for column in self._classes.values())
        width = 8 * len(self._columns)
        batch_bytes = batch_bytes * width // (width + UNKNOWN_BYTES * n_classes)
        with _open(self.path, self._storage_options) as file:
            needed = max(sum(file.bytes_needed(group, self._columns)) for group in range(first, last))
            if needed <= allowed:
                pieces = self._streamed(file, range(first, last), row, batch_bytes)
            else:
                pieces = self._by_columns(file, range(first, last), row, batch_bytes, allowed)
            for X, labels in pieces:
                if self._classes:
                    columns = [self._classes[column] for column in self._labels]
                    Y = joined_labels([column.labels(labels[:, place]) for place, column in enumerate(columns)])
                else:
                    Y = label_block(
                        labels,
                        names=self.header.label_names,
                        file=self.path,
                        place=lambda offset, row=row: {"row": row + offset + 1},  # type: ignore[misc]
                    )
                row += len(X)
                yield Batch(X, Y, row)

    @property
    def _columns(self) -> tuple[int, ...]:
        return (*self._features, *self._labels)

    def _streamed(
        self, file: Any, groups: range, row: int, batch_bytes: int
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """(X, Y) of the rows from `row` on, straight from the row groups."""
        skip = row - self._group_starts[groups.start]
        for batch in file.iter_batches(
            batch_size=max(1, batch_bytes // (8 * len(self._columns))),
            row_groups=list(groups),
            columns=[self._names[column] for column in self._columns],
        ):
            if skip >= batch.num_rows:
                skip -= batch.num_rows
                continue
            batch, skip = batch.slice(skip), 0
            yield self._values(batch, self._features, row), self._values(batch, self._labels, row)
            row += batch.num_rows

    def _by_columns(
        self, file: Any, groups: range, row: int, batch_bytes: int, allowed: int
    ) -> Iterator[tuple[NDArray[np.float64], NDArray[np.float64]]]:
        """(X, Y) of the rows from `row` on, each row group through a temporary file."""
        width, d = len(self._columns), len(self._features)
        for group in groups:
            start = self._group_starts[group]
            n = self._group_starts[group + 1] - start
            with filled_temporary_file("mlfs-parquet-", 8 * n * width) as spool:
                place = 0
                for some in _runs(file.bytes_needed(group, self._columns), allowed):
                    columns = self._columns[place : place + some]
                    at = 0
                    for batch in file.iter_batches(
                        batch_size=max(1, batch_bytes // (8 * some)),
                        row_groups=[group],
                        columns=[self._names[column] for column in columns],
                    ):
                        values = self._values(batch, columns, start + at)
                        for column in range(some):
                            spool.seek(8 * ((place + column) * n + at))
                            spool.write(values[:, column].tobytes())
                        at += batch.num_rows
                    place += some
            with spool:
                flat = FileArray(spool, 0, np.dtype(np.float64), n * width, file=self.path)
                rows = fortran_rows(flat, (n, width))
                local = max(row - start, 0)
                while local < n:
                    stop = rows.reach(local, batch_bytes)
                    values = cast("NDArray[np.float64]", rows.take(local, stop))
                    yield np.ascontiguousarray(values[:, :d]), values[:, d:]
                    local = stop

    def _values(self, batch: Any, columns: Sequence[int], row: int) -> NDArray[np.float64]:
        values = np.empty((batch.num_rows, len(columns)))
        for place, column in enumerate(columns):
            array = batch.column(self._names[column])
            if column in self._classes:
                values[:, place] = self._looked_up(array, self._classes[column].codes, column)
                continue
            if column not in self._texts:
                values[:, place] = _numbers(array)
            elif column in self._codes:
                values[:, place] = self._looked_up(array, self._codes[column], column)
            else:
                values[:, place] = self._label_texts(array)
            if column in self._labels:
                values[:, place] = self._label_values(values[:, place], array, column, row)
        return values

    def _label_values(self, values: NDArray[np.float64], array: Any, column: int, row: int) -> NDArray[np.float64]:
        """What the values of a label become; those of texts have become it already, and are infinite if they mean
        nothing.
        """

        def refuse(place: int) -> NoReturn:
            bad_label(
                array[place].as_py(),
                self._labels.index(column),
                names=self.header.label_names,
                file=self.path,
                row=row + place + 1,
                meaning=self._meaning,
            )

        if column not in self._texts:
            return self._meaning.of_numbers(values, refuse)
        wrong = np.flatnonzero(np.isinf(values))
        if wrong.size:
            refuse(int(wrong[0]))
        return values

    def _label_texts(self, array: Any) -> NDArray[np.float64]:
        import pyarrow as pa

        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        found = [self._meaning.of_text(_as_text(text)) for text in array.dictionary.to_pylist()]
        numbers = [np.inf if number is None else number for number in (*found, self._meaning.of_text("NA"))]
        codes = array.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
        looked_up: NDArray[np.float64] = np.array(numbers)[codes]
        return looked_up

    def _looked_up(self, array: Any, table: Mapping[str, float], column: int) -> NDArray[np.float64]:
        """Codes of texts, NaN where missing."""
        import pyarrow as pa

        if not pa.types.is_dictionary(array.type):
            array = array.dictionary_encode()
        texts = [_as_text(text) for text in array.dictionary.to_pylist()]
        numbers = [table.get(text, -1.0) for text in texts]  # no row has it: a dictionary may hold more
        codes = array.indices.fill_null(len(numbers)).to_numpy(zero_copy_only=False)
        looked_up: NDArray[np.float64] = np.array([*numbers, np.nan])[codes]
        if (looked_up == -1).any():
            raise DataError(
                "a text that the first reading of the column did not find",
                file=self.path,
                column=self._names[column],
                value=texts[codes[int(np.argmax(looked_up == -1))]],
                cure="the file is damaged, or was changed meanwhile: fetch or write it again",
            )
        return looked_up


def open_parquet(path: str, options: ReadOptions = _DEFAULTS) -> ParquetReader:
    """Open one Parquet or Feather file.

    Parameters
    ----------
    path : str
        Local path or URL.
    options : ReadOptions
        `labels` by columns or count, unless the file says which they are.

    Raises
    ------
    UsageError
        No labels were specified, or pyarrow is missing.
    DataError
        No such file, a column of a type that is neither number nor text, an unknown label column.
    """
    with _open(path, options.storage_options) as file:
        schema, rows, group_bytes = file.schema, file.rows, file.group_bytes
        names = tuple(schema.names)
        stored = parse_json((schema.metadata or {}).get(_METADATA_KEY, b"{}"))
        index = dict.fromkeys(_index_columns(schema, names, path), "is the index of a pandas table")
        for column, name in enumerate(names):
            if is_nameless(name) and column not in index and (content := _content(file, schema.field(column))):
                index[column] = f"has no name and holds {content}"
    unique_names(names, file=path)
    labels = options.labels
    if not labels.names_columns and "labels" in stored:
        labels = replace(labels, columns=tuple(stored["labels"]))
    names_column = 0
    if options.transpose:  # the index of pandas, else the first column, has the names of rows
        names_column = next((column for column, what in index.items() if what == "is the index of a pandas table"), 0)
        dropped = {find_column(names, name, "column to leave out,", file=path) for name in options.drop}
        gone = {names_column, *index, *dropped}
        features = [column for column in range(len(names)) if column not in gone]
        label_columns: list[int] = []
        index = {}
    else:
        features, label_columns = split_columns(names, labels, drop=options.drop, ignored=index, file=path)
    for column, what in index.items():
        if column not in label_columns and names[column] not in options.drop:
            logger.warning("%s: column %r %s: it is left out", redact(path), names[column], what)
    texts = frozenset(column for column in (*features, *label_columns) if _is_text(schema.field(column), path))
    reader = ParquetReader(
        header=Header(
            feature_names=tuple(names[column] for column in features),
            label_names=tuple(names[column] for column in label_columns),
            n_features=len(features),
            n_labels=len(label_columns),
            n_rows=sum(rows),
        ),
        path=path,
        _storage_options=dict(options.storage_options),
        _names=names,
        _features=tuple(features),
        _labels=tuple(label_columns),
        _texts=texts,
        _group_starts=(0, *np.cumsum(rows, dtype=np.int64).tolist()),
        _group_bytes=tuple(group_bytes),
        _meaning=labels.values,
        _names_column=names_column,
    )
    if options.transpose and texts:
        raise DataError(
            "a column of numbers of a sample was expected, and it holds texts",
            file=path,
            column=names[min(texts)],
            cure=f"leave it out: --drop {names[min(texts)]!r}",
        )
    if not sum(rows):
        raise DataError("the table has no rows", file=path, cure="check the file")
    declared = stored.get("categories", {})
    categories = {
        place: declared[names[column]]
        for place, column in enumerate(features)
        if column in texts and names[column] in declared
    }
    missing = [place for place, column in enumerate(features) if column in texts and place not in categories]
    ordered = set()
    for place, values in reader.distinct(missing).items():
        categories[place] = sort_categories(values)
        if not getattr(schema.field(features[place]).type, "ordered", False):
            continue
        order = reader.dictionary(place)
        if {text.lower() for text in order} in BOOLEAN_SPELLINGS:
            categories[place] = sort_categories(order)  # false is 0 and true is 1, in whatever order
        elif values <= set(order) and len(order) <= MAX_CATEGORIES:
            categories[place] = order
            ordered.add(place)
        else:
            logger.warning(
                "%s: column %r is ordered, but its row groups do not say in which order: its texts are sorted",
                redact(path),
                names[features[place]],
            )
    reader = replace(reader, ordered=frozenset(ordered))
    reader = reader.with_categories(categories) if categories else reader
    return reader.with_found_classes(labels) if labels.classes else reader


def _index_columns(schema: Any, names: Sequence[str], path: str) -> list[int]:
    """Columns that pandas wrote for the index of a table, which says nothing about the rows."""
    try:
        described = schema.pandas_metadata or {}
        columns = described.get("index_columns", ())
        return [column for column, name in enumerate(names) if name in columns]
    except (ValueError, TypeError, AttributeError) as error:
        raise DataError(
            f"what pandas says of the table is damaged: {error}", file=path, cure="fetch or write the file again"
        ) from error


def _content(file: Any, column: Any) -> str:
    """What is in a column without a name: "row numbers" (0, 1, 2... or 1, 2, 3...), "nothing", or "" for data."""
    if not _is_number(column.type):
        return ""
    numbers = empty = True
    row = first = 0
    for batch in file.iter_batches(batch_size=_SCAN_ROWS, columns=[column.name]):
        values = _numbers(batch.column(0))
        if not row:
            first = int((values[:1] == 1).any())
        numbers = numbers and np.array_equal(values, np.arange(row, row + len(values)) + first)
        empty = empty and bool(np.isnan(values).all())
        if not (numbers or empty):
            return ""
        row += len(values)
    return "row numbers" if numbers else "nothing"


class _ParquetFile:
    """An open Parquet file; its groups are the row groups."""

    def __init__(self, stream: BinaryIO) -> None:
        from pyarrow import parquet

        # Column chunks are streamed through small buffers, so that a large row group is never held.
        self._file = parquet.ParquetFile(stream, buffer_size=1 << 16, pre_buffer=False)
        self.schema = self._file.schema_arrow
        groups = [self._file.metadata.row_group(group) for group in range(self._file.metadata.num_row_groups)]
        self._width = self._file.metadata.num_columns
        self.rows = [group.num_rows for group in groups]
        self.group_bytes = [group.total_byte_size for group in groups]
        self.iter_batches = self._file.iter_batches

    def bytes_needed(self, group: int, columns: Sequence[int]) -> list[int]:
        """Bytes that reading each column of a group holds: a page and a dictionary, packed and unpacked.

        As if all columns were of the same size, with which they take most. To ask for the size of one ends the process
        where its metadata are damaged.
        """
        size = self.group_bytes[group] // self._width + 1
        return [2 * min(size, _COLUMN_BYTES)] * len(columns)


class _FeatherFile:
    """An open Feather file; its groups are the record batches, of which some columns can be read alone."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        # Of the narrowest column the rows are counted; the format does not say them.
        self.schema = self._reader(None).schema
        self._widths = [_width(kind) for kind in self.schema.types]
        narrowest = self._reader([int(np.argmin(self._widths))] if self._widths else None)
        self.rows = [narrowest.get_batch(group).num_rows for group in range(narrowest.num_record_batches)]
        self.group_bytes = [rows * sum(self._widths) for rows in self.rows]

    def _reader(self, columns: list[int] | None) -> Any:
        import pyarrow as pa

        self._stream.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
        return pa.ipc.open_file(self._stream, options=options)

    def iter_batches(
        self, batch_size: int, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[Any]:
        """Some columns of some record batches, at most `batch_size` rows at a time."""
        reader = self._reader([self.schema.get_field_index(name) for name in columns])
        for group in range(len(self.rows)) if row_groups is None else row_groups:
            batch = reader.get_batch(group)
            batch.validate(full=True)  # offsets and codes are otherwise taken as they are, also beyond the end
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)

    def bytes_needed(self, group: int, columns: Sequence[int]) -> list[int]:
        """Bytes that reading each column of a group holds: all of it, packed and unpacked."""
        return [2 * self.rows[group] * self._widths[column] for column in columns]


def _width(kind: Any) -> int:
    """Bytes of a value; of a text a guess."""
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 32


_FEATHER, _FEATHER_1 = b"ARROW1", b"FEA1"


@contextlib.contextmanager
def _open(path: str, storage_options: dict[str, Any]) -> Iterator[_ParquetFile | _FeatherFile]:
    require_arrow()
    import pyarrow as pa

    with open_random(path, storage_options) as stream:
        mark = stream.read(len(_FEATHER))
        stream.seek(0)
        if mark.startswith(_FEATHER_1):
            raise DataError(
                "it is Feather of version 1, version 2 was expected",
                file=path,
                cure="read and write it with pyarrow.feather, which writes version 2",
            )
        # The first also of memory, of which a damaged file asks for any amount; the last of names.
        damage = (pa.ArrowException, OSError, UnicodeDecodeError)
        known, name = (_FeatherFile, "Feather") if mark == _FEATHER else (_ParquetFile, "Parquet")
        try:
            file = known(stream)
        except damage as error:
            raise DataError(
                f"it is no {name} file, or cut off: {error}", file=path, cure="fetch or write it again"
            ) from error
        try:
            yield file
        except damage as error:
            raise DataError(f"the file is damaged: {error}", file=path, cure="fetch or write it again") from error


def _runs(sizes: Sequence[int], allowed: int) -> Iterator[int]:
    """Lengths of runs of columns whose sizes add up to no more than `allowed` (or are of one column)."""
    length = total = 0
    for size in sizes:
        if length and total + size > allowed:
            yield length
            length = total = 0
        length += 1
        total += size
    yield length


def _is_text(column: Any, path: str) -> bool:
    """Whether a column is categorical (else it is a number)."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        if not _is_number(kind) and not _is_string(kind):
            kind = column.type
        else:
            return True
    if _is_string(kind):
        return True
    if _is_number(kind):
        return False
    raise DataError(
        f"a column of type {column.type} is neither number nor text",
        file=path,
        column=column.name,
        cure=f"leave it out: --drop {column.name!r}",
    )


def _is_string(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _is_number(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in (*tests, pa.types.is_null))


def _numbers(array: Any) -> NDArray[np.float64]:
    import pyarrow as pa

    if pa.types.is_boolean(array.type):
        array = array.cast(pa.uint8())
    values: NDArray[np.float64] = array.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    return values


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else str(value)
