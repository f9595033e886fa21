"""Parquet and Feather (Arrow IPC) tables by pyarrow, a few rows at a time, row groups or record batches as parts.

Null and NaN are missing. Texts and dictionaries are categorical: their codes are the sorted order of the
distinct texts of the whole file, found by one pass over those columns alone, because every row group may
have a dictionary of its own. An ordered dictionary (an ordered categorical of pandas) keeps its order, where all
row groups agree on it. A file that `mlfs transform` wrote says which columns are labels and in which order its
categories are.

A row group is unpacked whole, or streamed, which takes a page and a dictionary of every column at once, often 4 MiB a
column: whichever holds less, and of 200 columns that is the former up to a million rows. Where both would be much more
than a batch, the columns are brought a few at a time into a temporary file (8 bytes a value, in TMPDIR), and rows are
read from there.
"""

from __future__ import annotations

import contextlib
import logging
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, TypedDict, cast
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, DoesNotFitError, MlfsError, require_extra
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.files.limits import filled_temporary_file, memory_cure, require_arrow, require_memory
from mlfs_dask.files.object_store import is_url, local_path
from mlfs_dask.readers.base import (
    BOOLEAN_SPELLINGS,
    DEFAULT_SPEC,
    SCAN_ROWS,
    Batch,
    FileSpec,
    Format,
    Header,
    NoRowsError,
    Part,
    begins_with,
    damaged,
    is_subsequence,
    parts_at,
    sort_categories,
)
from mlfs_dask.readers.classes import MAX_CATEGORIES
from mlfs_dask.readers.label_columns import find_columns, is_nameless, unique_names
from mlfs_dask.readers.matrix import SMALL_BYTES, FileArray, fortran_rows, open_random
from mlfs_dask.readers.table import (
    Place,
    TableReader,
    as_text,
    choose_columns,
    first_kept,
    is_number,
    is_string,
    is_text,
    narrowest,
    warn_left_out,
)
from mlfs_dask.redaction import redact

logger = logging.getLogger(__name__)


#: Bytes that reading a row group may hold where a pass makes no store: through a temporary file it takes three times
#: as long. Writers' default, a million rows, takes 4 MiB a column; a plan counts what it is, and takes fewer threads.
STREAMED_BYTES = 1 << 30
# A writer's usual limits for a page and a dictionary are 1 MiB each.
_COLUMN_BYTES = 2 << 20
#: What Arrow holds while it reads a column, however few rows it has, and of a file that is open: for each byte of its
#: metadata, and for each column.
_READER_BYTES, _METADATA_TIMES, _SCHEMA_BYTES = 6 << 10, 10, 5 << 9
#: Column chunks that are read at once, and rows of a column from which on Arrow's own threads read columns.
_CHUNKS, _THREADED_ROWS = 1 << 14, 1 << 13
_METADATA_KEY = b"mlfs"
#: What pandas calls an index without a name; other programs keep the column, and leave out what says that it is one.
_INDEX = re.compile(r"__index_level_\d+__")


class _Stored(TypedDict, total=False):
    """Metadata that `mlfs transform` writes beside a table."""

    labels: list[str]
    categories: dict[str, list[str]]


class _Pandas(TypedDict, total=False):
    """Metadata that pandas writes: the columns of the index, a mapping for a range."""

    index_columns: list[Any]


@dataclass(frozen=True, kw_only=True)
class ParquetReader(TableReader):
    """One Parquet or Feather file; made by `open_parquet`. Parts are of rows.

    Attributes
    ----------
    opened_bytes : int
        What the open file takes, before a row is read.
    """

    _storage_options: dict[str, Any]
    _made: _Made
    _group_starts: tuple[int, ...]
    _group_bytes: tuple[int, ...]
    _needed_bytes: int = 0
    _streamed_bytes: int = 0
    opened_bytes: int = 0

    enterable: bool = True

    def _arrow_name(self, column: int) -> str:
        return self._names[column]

    def _text_batches(self, columns: Sequence[int]) -> Iterator[Any]:
        with _open(self.path, self._storage_options, self._made) as file:
            for column in columns:
                yield from file.iter_batches(batch_size=SCAN_ROWS, columns=[self._names[column]])

    def dictionary(self, feature: int) -> list[str]:
        """Return the texts of an ordered dictionary in its order, also those that no row has; [] where row groups
        differ.

        Where a row group of Parquet has no dictionary, pyarrow makes one in the order of the rows that are read: that
        of one row is too short for the texts of the column, so that the caller sees it.
        """
        name = self._names[self._features[feature]]
        longest: list[str] = []
        with _open(self.path, self._storage_options, self._made) as file:
            for group in np.flatnonzero(file.rows).tolist():
                first = next(iter(file.iter_batches(batch_size=1, columns=[name], row_groups=[group])))
                texts = [as_text(text) for text in first.column(0).dictionary.to_pylist()]
                shorter, longest = sorted((longest, texts), key=len)
                if not is_subsequence(shorter, longest):
                    return []
        return longest

    def parts(self, part_bytes: int) -> list[Part]:
        """Return runs of row groups of about `part_bytes` stored bytes."""
        starts = [0]
        size = 0
        for start, stored in zip(self._group_starts, self._group_bytes, strict=False):
            if size and size + stored > part_bytes:
                starts.append(start)
                size = 0
            size += stored
        return parts_at(starts, self._group_starts[-1], rows=True)

    def held_bytes(self, batch_bytes: int) -> int:
        """See `Reader`."""
        # Columns of a batch, before and after they become numbers, and what Arrow holds of a row group.
        return self.opened_bytes + 2 * batch_bytes + min(self._needed_bytes, self._allowed(batch_bytes))

    def pass_reader(self) -> ParquetReader:
        """See `Reader`: wide row groups are not read through temporary files."""
        return replace(self, _streamed_bytes=STREAMED_BYTES)

    def _allowed(self, batch_bytes: int) -> int:
        """Return bytes that reading a row group may hold."""
        return max(self._streamed_bytes, SMALL_BYTES, 4 * batch_bytes)

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of one part; X is dense. See `Reader.read`."""
        row, allowed = part.start, self._allowed(batch_bytes)
        stop = self._group_starts[-1] if part.stop is None else part.stop
        if row >= stop:
            return
        first = int(np.searchsorted(self._group_starts, row, side="right")) - 1
        last = int(np.searchsorted(self._group_starts, stop, side="left"))
        width = len(self._columns)
        batch_bytes = batch_bytes * 8 * width // self._row_bytes_held(width)
        with _open(self.path, self._storage_options, self._made) as file:
            needed = max(file.bytes_held(group, self._columns) for group in range(first, last))
            groups = range(first, last)
            if needed <= allowed:
                rows = self._streamed(file, groups, row, batch_bytes)
            else:
                rows = self._by_columns(file, groups, row, batch_bytes, allowed)
            for X, Y in rows:
                row += len(X)
                yield Batch(X, Y)

    @property
    def _columns(self) -> tuple[int, ...]:
        return (*self._features, *self._labels)

    def _streamed(
        self, file: Any, groups: range, row: int, batch_bytes: int
    ) -> Iterator[tuple[NDArray[Any], csr_array]]:
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
            yield self._matrices([batch], _from(row))
            row += batch.num_rows

    def _by_columns(
        self, file: Any, groups: range, row: int, batch_bytes: int, allowed: int
    ) -> Iterator[tuple[NDArray[Any], csr_array]]:
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
                        batch_size=max(1, allowed // (8 * some)),  # a cast of a column costs as much for a few rows
                        row_groups=[group],
                        columns=[self._names[column] for column in columns],
                    ):
                        values = self._values([batch], columns, _from(start + at))
                        for column in range(some):
                            spool.seek(8 * ((place + column) * n + at))
                            spool.write(values[:, column].tobytes())
                        at += batch.num_rows
                    place += some
            with spool:
                flat = FileArray(spool, 0, np.dtype(np.float64), n * width, file=self.path)
                rows = fortran_rows(flat, (n, width), flat.dtype)
                local = max(row - start, 0)
                while local < n:
                    stop = rows.reach(local, batch_bytes)
                    values = cast("NDArray[np.float64]", rows.take(local, stop))
                    yield (
                        np.ascontiguousarray(values[:, :d], self.dtype),
                        self._label_matrix(values[:, d:], _from(start + local)),
                    )
                    local = stop


def _from(row: int) -> Place:
    return lambda offset: {"row": row + offset + 1}


def open_parquet(path: str, spec: FileSpec = DEFAULT_SPEC) -> ParquetReader:
    """Open one Parquet or Feather file.

    Parameters
    ----------
    path : str
        Local path or URL.
    spec : FileSpec
        `labels` by columns or count, unless the file says which they are.

    Raises
    ------
    UsageError
        No labels were specified, or pyarrow is missing.
    DataError
        No such file, a column of a type that is neither number nor text, an unknown label column.
    """
    require_extra("pyarrow", f"{path}: Parquet")
    with _open(path, spec.storage_options, _Made()) as file:
        if not sum(file.rows):
            raise NoRowsError("the table has no rows", file=path, cure="check the file")
        # Some writers keep the columns of folders in the files, too.
        constants = _folder_columns(path, spec.folder)
        for name in constants.keys() & {*file.schema.names}:
            _check_folder_column(file, name, constants[name], path)
        made = _Made({name: value for name, value in constants.items() if name not in file.schema.names})
        file = made.of(file, path)
        names = tuple(file.schema.names)
        stored = _metadata(file.schema, _METADATA_KEY, _Stored, path)
        index = dict.fromkeys(_index_columns(file.schema, names, path), "is the index of a pandas table")
        for column, name in enumerate(names):
            if is_nameless(name) and column not in index and (content := _content(file, file.schema.field(column))):
                index[column] = f"has no name and holds {content}"
        unique_names(names, file=path)
        labels = spec.labels
        if not labels.names_columns and "labels" in stored:
            labels = replace(labels, columns=tuple(stored["labels"]))
        # The index of pandas, else the first column that is not left out, has the names of rows.
        kept = first_kept(names, find_columns(names, spec.drop, "column to leave out,", file=path))
        names_column = next(
            (column for column, what in index.items() if what == "is the index of a pandas table"), kept
        )
        choice = replace(spec, labels=labels)
        beside = [column for column, name in enumerate(names) if name in constants]
        features, label_columns = choose_columns(
            names, choice, ignored=index, beside=beside, names_column=names_column, file=path
        )
        if spec.transpose:
            index = {}
        for column, what in index.items():
            if column not in label_columns and names[column] not in spec.drop:
                warn_left_out(redact(spec.folder or path), names[column], what)
        made = _with_lists(made, file, [names[column] for column in features], [names[c] for c in label_columns])
        features, label_columns = (made.places(names, columns) for columns in (features, label_columns))
        file = made.of(file, path)
        schema, rows, group_bytes = file.schema, file.rows, file.group_bytes
        needed = max((file.bytes_held(group, range(len(schema))) for group in range(len(rows))), default=0)
        opened_bytes = file.opened_bytes
    names = tuple(schema.names)
    unique_names(names, file=path)
    texts = frozenset(
        column
        for some, are_labels in ((features, False), (label_columns, True))
        for column in some
        if is_text(schema.field(column), path, is_label=are_labels)
    )
    reader = ParquetReader(
        header=Header.of_columns(names, features, label_columns, n_rows=sum(rows)),
        path=path,
        _storage_options=dict(spec.storage_options),
        _made=made,
        _names=names,
        _features=tuple(features),
        _labels=tuple(label_columns),
        _texts=texts,
        _group_starts=(0, *np.cumsum(rows, dtype=np.int64).tolist()),
        _group_bytes=tuple(group_bytes),
        _meaning=labels.values,
        _names_column=names_column,
        _needed_bytes=needed,
        opened_bytes=opened_bytes,
        dtype=narrowest(schema.field(column).type for column in features),
    )
    if spec.transpose:
        reader.require_numbers(texts)
    declared = stored.get("categories", {})
    categories = {
        place: declared[names[column]]
        for place, column in enumerate(features)
        if column in texts and names[column] in declared
    }
    missing = [place for place, column in enumerate(features) if column in texts and place not in categories]
    by_key = filter(None, spec.keys.get("categorical", "").split(","))
    asked = {*find_columns(names, by_key, "column of categories", file=path), *beside}
    plain = {place for place in missing if is_string(schema.field(features[place]).type)}
    reader = reader.with_found_texts(
        sorted(plain), asked={place for place in plain if spec.only_obs or features[place] in asked}
    )
    ordered = set()
    for place, values in reader.distinct(place for place in missing if place not in plain).items():
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
    if labels.key is not None:
        return reader.with_label_table(labels, spec.storage_options)
    return reader.with_found_classes(labels, made.tags) if labels.classes or made.tags else reader


def _index_columns(schema: Any, names: Sequence[str], path: str) -> list[int]:
    """Return columns that pandas wrote for the index of a table, which says nothing about the rows."""
    columns = _metadata(schema, b"pandas", _Pandas, path).get("index_columns", ())
    return [column for column, name in enumerate(names) if name in columns or _INDEX.fullmatch(name)]


def _metadata(schema: Any, key: bytes, form: Any, path: str) -> Any:
    """Return a program's metadata in the schema of the table; {} if there is none."""
    try:
        return parse_json((schema.metadata or {}).get(key, b"{}"), form)
    except ValueError as error:
        raise damaged(f"what {key.decode()} says of the table is damaged: {error}", path) from error


def _content(file: Any, column: Any) -> str:
    """Return the content of a nameless column: "row numbers" (0, 1, 2... or 1, 2, 3...), "nothing", or "" for data."""
    import pyarrow as pa

    if not is_number(column.type) or pa.types.is_boolean(column.type):
        return ""
    numbers = empty = True
    row = first = 0
    for batch in file.iter_batches(batch_size=SCAN_ROWS, columns=[column.name]):
        values = batch.column(0).cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
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
        self._widths = [_width(kind) if is_number(kind) else None for kind in self.schema.types]
        self.rows = [group.num_rows for group in groups]
        self.group_bytes = [group.total_byte_size for group in groups]
        self.opened_bytes = _METADATA_TIMES * self._file.metadata.serialized_size + _SCHEMA_BYTES * self._width

    def iter_batches(
        self, batch_size: int, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[Any]:
        """Yield some columns of some row groups, at most `batch_size` rows at a time."""
        indices = [self.schema.get_field_index(name) for name in columns]
        most = max(1, _CHUNKS // max(1, len(columns)))
        for run in self._runs(range(len(self.rows)) if row_groups is None else row_groups, batch_size, most):
            rows = sum(self.rows[group] for group in run)
            unpacked = self._unpacked_bytes(rows, indices)
            # Whichever takes less memory: unpacking the rows, or streaming their first row group.
            if unpacked is not None and unpacked <= sum(self.bytes_needed(run[0], indices)):
                # Arrow's own threads unpack columns side by side, and reuse each other's memory; of few rows they
                # scatter what each column takes beside its values over the heaps of all threads.
                table = self._file.read_row_groups(run, columns=list(columns), use_threads=rows >= _THREADED_ROWS)
                yield from table.to_batches(max_chunksize=batch_size)
            else:
                yield from self._file.iter_batches(batch_size=batch_size, columns=list(columns), row_groups=run)

    def _runs(self, groups: Sequence[int], max_rows: int, most: int) -> Iterator[list[int]]:
        """Yield row groups, at most so many, that have so many rows together, or one by one."""
        run: list[int] = []
        rows = 0
        for group in groups:
            if run and (rows + self.rows[group] > max_rows or len(run) == most):
                yield run
                run, rows = [], 0
            run.append(group)
            rows += self.rows[group]
        if run:
            yield run

    def _unpacked_bytes(self, rows: int, columns: Sequence[int]) -> int | None:
        """Return the bytes of so many rows as Arrow has them; None where there are texts, whose lengths nothing
        tells.
        """
        widths = [self._widths[column] for column in columns]
        return None if None in widths else rows * sum(width or 0 for width in widths)

    def bytes_held(self, group: int, columns: Sequence[int]) -> int:
        """Return bytes that reading some columns of a group holds, in the way that takes less."""
        import pyarrow as pa

        needed = self.bytes_needed(group, columns)
        unpacked = self._unpacked_bytes(self.rows[group], columns)
        if unpacked is None or unpacked > sum(needed):
            return sum(needed)
        # Beside the values, what is unpacked at a time by as many threads.
        return unpacked + sum(needed[: pa.cpu_count()]) + _READER_BYTES * len(columns)

    def bytes_needed(self, group: int, columns: Sequence[int]) -> list[int]:
        """Return bytes that streaming each column of a group holds: a page and a dictionary, packed and unpacked.

        As if all columns were of the same size, with which they take most. To ask for the size of one ends the process
        where its metadata are damaged.
        """
        size = self.group_bytes[group] // self._width + 1
        return [2 * min(size, _COLUMN_BYTES) + _READER_BYTES] * len(columns)


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
        self.opened_bytes = _SCHEMA_BYTES * len(self._widths)

    def _reader(self, columns: list[int] | None) -> Any:
        import pyarrow as pa

        self._stream.seek(0)
        options = pa.ipc.IpcReadOptions(included_fields=columns, use_threads=False)
        return pa.ipc.open_file(self._stream, options=options)

    def iter_batches(
        self, batch_size: int, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[Any]:
        """Yield some columns of some record batches, at most `batch_size` rows at a time."""
        reader = self._reader([self.schema.get_field_index(name) for name in columns])
        for group in range(len(self.rows)) if row_groups is None else row_groups:
            batch = reader.get_batch(group)
            batch.validate(full=True)  # offsets and codes are otherwise taken as they are, also beyond the end
            for start in range(0, batch.num_rows, batch_size):
                yield batch.slice(start, batch_size)

    def bytes_held(self, group: int, columns: Sequence[int]) -> int:
        """Return bytes that reading some columns of a group holds."""
        return sum(self.bytes_needed(group, columns))

    def bytes_needed(self, group: int, columns: Sequence[int]) -> list[int]:
        """Return the bytes that reading each column of a group holds: all of it, packed and unpacked."""
        return [2 * self.rows[group] * self._widths[column] for column in columns]


def _width(kind: Any) -> int:
    """Return the bytes of a value; of a text a guess."""
    try:
        return max(int(kind.bit_width) // 8, 1)
    except ValueError:
        return 32


_FEATHER, _FEATHER_1 = b"ARROW1", b"FEA1"


@dataclass(frozen=True)
class _Made:
    """Columns that are made of what a file and its path hold.

    Attributes
    ----------
    constants : dict of str to value
        Columns of one value each, behind those of the file.
    vectors : dict of str to int
        Columns of lists, and how long these are: behind all others each element is a column, NAME_0, NAME_1, ...
    tags : frozenset of str
        Columns of lists that are read as their texts in JSON.
    """

    constants: Mapping[str, Any] = field(default_factory=dict)
    vectors: Mapping[str, int] = field(default_factory=dict)
    tags: frozenset[str] = frozenset()

    def places(self, names: Sequence[str], columns: Sequence[int]) -> list[int]:
        """Return the places of columns, those of its elements for each vector."""
        ends = dict(zip(self.vectors, np.cumsum([len(names), *self.vectors.values()])[1:].tolist(), strict=True))
        return [
            place
            for column in columns
            for place in (
                range(ends[names[column]] - self.vectors[names[column]], ends[names[column]])
                if names[column] in self.vectors
                else [column]
            )
        ]

    def of(self, file: _ParquetFile | _FeatherFile | _WithMade, path: str) -> _ParquetFile | _FeatherFile | _WithMade:
        """Return the file with these columns."""
        file = file.stored if isinstance(file, _WithMade) else file
        return _WithMade(file, self, path) if self.constants or self.vectors or self.tags else file


def _with_lists(made: _Made, file: Any, features: Sequence[str], labels: Sequence[str]) -> _Made:
    """Return the columns made of columns of lists: a feature for each element of a vector, a label for each tag.

    Labels of lists of one size are a vector of 0 and 1.
    """
    import pyarrow as pa

    vectors: dict[str, int] = {}
    tags, are_labels = set(), set(labels)
    for name in (*features, *labels):
        kind = file.schema.field(name).type
        fixed = pa.types.is_fixed_size_list(kind)
        if not (fixed or pa.types.is_list(kind) or pa.types.is_large_list(kind)):
            continue
        if name in are_labels and not fixed and (pa.types.is_integer(kind.value_type) or is_string(kind.value_type)):
            tags.add(name)
        elif is_number(kind.value_type):
            vectors[name] = kind.list_size if fixed else _first_length(file, name)
    return replace(made, vectors=vectors, tags=frozenset(tags))


def _first_length(file: Any, name: str) -> int:
    """Return the length of the first list of a column; 0 where there is none."""
    for batch in file.iter_batches(batch_size=1024, columns=[name]):
        lists = batch.column(0).drop_null()
        if len(lists):
            return len(lists[0])
    return 0


class _WithMade:
    """An open file with columns that are made of what it and its path hold."""

    def __init__(self, file: _ParquetFile | _FeatherFile, made: _Made, path: str) -> None:
        import pyarrow as pa

        self.stored = file
        self._path = path
        self._constants = {name: pa.array([value]) for name, value in made.constants.items()}
        self._tags = made.tags
        self._vectors = made.vectors
        self._elements = {f"{name}_{at}": (name, at) for name, length in made.vectors.items() for at in range(length)}
        self.schema = file.schema
        for name in made.tags:
            at = self.schema.get_field_index(name)
            self.schema = self.schema.set(at, pa.field(name, pa.string()))
        for name, array in self._constants.items():
            self.schema = self.schema.append(pa.field(name, array.type))
        for new, (name, _) in self._elements.items():
            self.schema = self.schema.append(pa.field(new, file.schema.field(name).type.value_type))
        self.rows, self.group_bytes, self.opened_bytes = file.rows, file.group_bytes, file.opened_bytes

    def _source(self, name: str) -> str:
        """Return the column of the file that one is made of."""
        return self._elements[name][0] if name in self._elements else name

    def iter_batches(
        self, batch_size: int, columns: Sequence[str], row_groups: Sequence[int] | None = None
    ) -> Iterator[Any]:
        """Yield some columns of some groups, at most `batch_size` rows at a time."""
        import pyarrow as pa

        stored = list(dict.fromkeys(self._source(name) for name in columns if name not in self._constants))
        # Without another column the first one tells how many rows there are.
        asked = stored or [self.stored.schema.names[0]]
        for batch in self.stored.iter_batches(batch_size=batch_size, columns=asked, row_groups=row_groups):
            for name in self._vectors.keys() & set(stored):
                self._check_lengths(name, batch.column(name))
            yield pa.RecordBatch.from_arrays([self._column(name, batch) for name in columns], names=list(columns))

    def _column(self, name: str, batch: Any) -> Any:
        import pyarrow as pa
        import pyarrow.compute as pc

        if name in self._constants:
            return self._constants[name].take(pa.nulls(batch.num_rows, pa.int32()).fill_null(0))
        if name in self._elements:
            vector, at = self._elements[name]
            return pc.list_element(batch.column(vector), at)
        return _json_lists(batch.column(name)) if name in self._tags else batch.column(name)

    def _check_lengths(self, name: str, lists: Any) -> None:
        import pyarrow.compute as pc

        lengths = pc.unique(pc.list_value_length(lists).drop_null()).to_pylist()
        if wrong := [length for length in lengths if length != self._vectors[name]]:
            raise DataError(
                f"a list of {self._vectors[name]} numbers was expected, as in the first row",
                file=self._path,
                column=name,
                value=f"a list of {wrong[0]}",
                cure=f"write vectors of one length, or leave it out: --drop {name!r}",
            )

    def bytes_held(self, group: int, columns: Sequence[int]) -> int:
        """Return bytes that reading the columns of the file holds of which some are made."""
        return self.stored.bytes_held(group, sorted({*self._places(columns)} - {-1}))

    def bytes_needed(self, group: int, columns: Sequence[int]) -> list[int]:
        """Return bytes that reading the column of the file holds of which each is made."""
        places = self._places(columns)
        return [self.stored.bytes_needed(group, [place])[0] if place >= 0 else 0 for place in places]

    def _places(self, columns: Sequence[int]) -> list[int]:
        """Return places in the file of the columns of which some are made; -1 of constants."""
        return [self.stored.schema.get_field_index(self._source(self.schema.names[column])) for column in columns]


def _json_lists(lists: Any) -> Any:
    """Return the lists of texts or whole numbers as texts in JSON."""
    import pyarrow as pa
    import pyarrow.compute as pc

    values = pc.list_flatten(lists)
    if is_string(values.type):
        for mark in ("\\", '"'):
            values = pc.replace_substring(values, mark, "\\" + mark)
        values = pc.binary_join_element_wise('"', values, '"', "", null_handling="emit_null")
    else:
        values = values.cast(pa.string())
    lengths = pc.fill_null(pc.list_value_length(lists), 0).cast(pa.int32())
    offsets = np.concatenate([[0], np.cumsum(lengths.to_numpy(zero_copy_only=False))])
    joined = pc.binary_join(pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), pc.fill_null(values, "null")), ", ")
    texts = pc.binary_join_element_wise("[", joined, "]", "")
    return pc.if_else(pc.is_null(lists), pa.scalar(None, pa.string()), texts)


#: Folders that are numbers, as writers of Parquet name them: 00123, 1_0 and what a float64 does not hold are texts.
_FOLDER_INTEGER = re.compile(r"-?(0|[1-9]\d{0,14})", re.ASCII)
_FOLDER_FRACTION = re.compile(r"nan|-?(inf|(?=.*[.e])(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?)", re.ASCII | re.IGNORECASE)


def _folder_columns(path: str, folder: str) -> dict[str, Any]:
    """Return columns that folders between the named one and a file stand for, ``year=2024``: numbers, texts, None."""
    if not folder or not path.startswith(folder.rstrip("/") + "/"):
        return {}
    columns: dict[str, Any] = {}
    for part in path.removeprefix(folder.rstrip("/")).split("/")[:-1]:
        name, equals, text = part.partition("=")
        if equals and name:
            value: Any = None if text == "__HIVE_DEFAULT_PARTITION__" else unquote(text)
            if value and _FOLDER_INTEGER.fullmatch(value):
                value = int(value)
            elif value and _FOLDER_FRACTION.fullmatch(value):
                value = float(value)
            columns[unquote(name)] = value
    return columns


def _check_folder_column(file: Any, name: str, said: Any, path: str) -> None:
    """Raise DataError where a column of a file is something else than the folder that the file lies in says."""
    for batch in file.iter_batches(batch_size=SCAN_ROWS, columns=[name]):
        for value in batch.column(0).unique().to_pylist():
            if value != said and str(value).lower() != str(said).lower():
                raise DataError(
                    f"the folder says {said}",
                    file=path,
                    column=name,
                    value=value,
                    cure="move the rows to their folder, or name the files in place of the folder",
                )


@contextlib.contextmanager
def _open(path: str, storage_options: dict[str, Any], made: _Made) -> Iterator[_ParquetFile | _FeatherFile | _WithMade]:
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
        # Of memory a damaged file asks for any amount; the last of names.
        damage = (pa.ArrowException, OSError, UnicodeDecodeError)
        known, name = (_FeatherFile, "Feather") if mark == _FEATHER else (_ParquetFile, "Parquet")
        problem, opened_bytes = f"it is no {name} file, or cut off", 0
        try:
            if known is _ParquetFile and stream.seek(0, 2) >= 8:
                size = stream.seek(-8, 2)
                footer = min(int.from_bytes(stream.read(4), "little"), size)
                require_memory(f"{path}: what it says of its columns", _METADATA_TIMES * footer)
                stream.seek(0)
            file = known(stream if is_url(path) or known is _FeatherFile else pa.OSFile(str(local_path(path))))
            problem, opened_bytes = "the file is damaged", file.opened_bytes
            yield made.of(file, path)
        except MlfsError:
            raise
        except (MemoryError, *damage) as error:
            asked = re.search(r"of size (\d+)", str(error))
            if (isinstance(error, MemoryError) or "bad_alloc" in str(error)) and int(
                asked[1] if asked else 0
            ) < 1 << 48:
                raise DoesNotFitError(
                    f"{path}: what it unpacks to", projected=None, available=runtime.memory_limit(), cure=memory_cure()
                ) from error
            raise damaged(f"{problem}: {error}", path) from error
        finally:
            if opened_bytes > SMALL_BYTES:
                runtime.give_back_freed_memory()


def _runs(sizes: Sequence[int], allowed: int) -> Iterator[int]:
    """Yield the lengths of runs of columns whose sizes add up to no more than `allowed` (or are of one column)."""
    length = total = 0
    for size in sizes:
        if length and total + size > allowed:
            yield length
            length = total = 0
        length += 1
        total += size
    yield length


FORMATS = tuple(
    Format(
        name=name,
        title=title,
        open=open_parquet,
        suffixes=suffixes,
        keys=("categorical",),
        head=begins_with(mark),
        is_table=True,
    )
    for name, title, suffixes, mark in (
        ("parquet", "Parquet", (".parquet", ".pq"), b"PAR1"),
        ("feather", "Feather, Arrow IPC", (".feather", ".arrow", ".ipc"), _FEATHER),
    )
)
