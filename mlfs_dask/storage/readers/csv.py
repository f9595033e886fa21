"""CSV and TSV tables with a header row, parsed by pyarrow in blocks that end where a record ends.

Kinds are settled from the first 8 MiB: a column in which a text occurs there is categorical, any other is
numeric, and a text met in it later is an error that says so (one stray "abc" must not turn a measurement
into categories). The codes of a categorical column are the sorted order of its distinct texts over the whole
file, which costs one more reading of the file when such columns exist, and makes the codes the same for any
block size, any split into parts and any order of rows.

Memory: about five times a batch. Lines are counted only when there is something to say about one.
"""

from __future__ import annotations

import contextlib
import csv
import io
import itertools
import logging
import re
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO, ClassVar, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.files.redaction import redact
from mlfs_dask.storage.label_values import LabelValues
from mlfs_dask.storage.limits import require_arrow
from mlfs_dask.storage.readers.base import Batch, Header, LabelSpec, Part, ReadOptions, sort_categories
from mlfs_dask.storage.readers.classes import MAX_CATEGORIES, UNKNOWN_BYTES, ClassColumn, joined_labels
from mlfs_dask.storage.readers.compressed_io import LONGEST_LINE, SourceFile, format_suffix, line_too_long, open_source
from mlfs_dask.storage.readers.label_columns import (
    DEFAULT_VALUES,
    bad_label,
    find_column,
    is_nameless,
    label_block,
    split_columns,
    unique_names,
)

logger = logging.getLogger(__name__)

SAMPLE_BYTES = 8 << 20
# Excel writes this line, and shows a table by it: the delimiter, and no row.
_SEPARATOR_LINE = re.compile(rb"(?:\xef\xbb\xbf)?\"?sep=([,;\t|])\"?\r?\n")
_SCAN_BYTES = 1 << 20  # stays in a core's cache between being read and looked at
_TILE_BYTES = 1 << 18
_MANY_ROWS = 1 << 16
#: More than a number takes.
_CELL_BYTES = 32
_MISSING = ("", "NA", "N/A", "NaN", "nan", "NAN", "null", "NULL", "?")
MISSING_TEXTS = [*_MISSING, *(f" {text}" for text in _MISSING)]
_NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?|nan)\s*", re.IGNORECASE)
_DECIMAL_COMMA = re.compile(_NUMBER.pattern.replace(r"\.", ","), re.IGNORECASE)
_GROUPED = re.compile(r"[+-]?\d{1,3}(,\d{3})+(\.\d+)?")
#: What a person reads as a number, with a decimal comma, a minus sign of its own or a per cent sign.
_READ_AS_NUMBER = re.compile(r"\s*[+\-−]?\d+([.,]\d+)?\s*%?\s*")
_FEW, _STRAY = 50, 0.1
"""A column of at least so many different values, of which at most this share are texts, holds no categories."""
_NOTHING = "nothing"
_BOM = b"\xef\xbb\xbf"
_DEFAULTS = ReadOptions()


class _Block(NamedTuple):
    """Whole records of a file.

    Attributes
    ----------
    data : bytes-like
        The next block overwrites it.
    at : int
        Place of the first byte in the uncompressed file.
    newlines : int
    quoted : bool
        Whether a quote occurs: then a newline need not end a record.
    """

    data: Any
    at: int
    newlines: int
    quoted: bool


@dataclass(frozen=True)
class CsvReader:
    """One CSV file; made by `open_csv`. Positions are uncompressed bytes.

    Attributes
    ----------
    header : Header
    path : str
    """

    in_threads: ClassVar[bool] = True

    header: Header
    path: str
    _source: SourceFile
    _names: tuple[str, ...]
    _features: tuple[int, ...]
    _labels: tuple[int, ...]
    _texts: frozenset[int]
    _delimiter: str
    _decimal: str
    _data_start: int
    _row_bytes: float
    _sample_has_quotes: bool
    _empty: frozenset[int] = frozenset()
    _meaning: LabelValues = DEFAULT_VALUES
    _classes: Mapping[int, ClassColumn] = field(default_factory=dict)
    _codes: Mapping[int, Mapping[str, int]] = field(default_factory=dict)

    # ---- what concatenation asks for: files have to agree on categories found in the data

    ordered: ClassVar[frozenset[int]] = frozenset()

    @property
    def found_categories(self) -> frozenset[int]:
        """Features whose categories were found in the rows, not declared."""
        return frozenset(self.header.categories)

    def distinct(self, features: Iterable[int]) -> dict[int, set[str]]:
        """Different texts of some features; one reading of the file."""
        columns = [self._features[feature] for feature in features]
        texts = self._scan(columns)
        return {feature: texts[self._features[feature]] for feature in features}

    def with_categories(self, categories: Mapping[int, Sequence[str]]) -> CsvReader:
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

    # ---- a table with features as rows

    def row_names(self) -> Iterator[list[str]]:
        """See `Table`."""
        reader = replace(self, _texts=frozenset({0}))
        for block in self._blocks(self._data_start, None, max(1, SAMPLE_BYTES // (8 * len(self._names)))):
            for chunk in reader._parse(block, only=[0]).column("0").chunks:
                texts = chunk.to_pylist()
                yield ["" if text is None else text for text in texts]

    def rows_of_numbers(self, batch_bytes: int) -> Iterator[NDArray[np.float64]]:
        """See `Table`."""
        for block in self._blocks(self._data_start, None, max(1, batch_bytes // (8 * len(self._names)))):
            yield self._feature_values(self._parse(block))

    def _require_numbers(self, texts: set[int]) -> None:
        """Refuse a column of texts among those of samples."""
        for column in sorted(texts & {*self._features}):
            raise DataError(
                "a column of numbers of a sample was expected, and it holds texts",
                file=self.path,
                column=self._names[column],
                cure=f"leave it out: --drop {self._names[column]!r}",
            )

    # ---- columns of classes

    @property
    def class_columns(self) -> dict[str, ClassColumn]:
        """See `FindsClasses`."""
        return {column.name: column for column in self._classes.values()}

    def with_classes(self, columns: Mapping[str, ClassColumn]) -> CsvReader:
        """See `FindsClasses`."""
        classes = {column: columns.get(self._names[column], old) for column, old in self._classes.items()}
        names = tuple(name for column in self._labels for name in classes[column].label_names)
        return replace(self, _classes=classes, header=replace(self.header, label_names=names, n_labels=len(names)))

    def _with_found_classes(self, labels: LabelSpec) -> CsvReader:
        """The same file, of whose label columns each class becomes a label; one reading finds them."""
        texts = self._scan(self._labels)
        classes = {
            column: ClassColumn.of(self._names[column], texts[column], labels.separator, labels.values, file=self.path)
            for column in self._labels
        }
        return replace(self, _classes=classes, _texts=self._texts | set(self._labels)).with_classes({})

    # ---- the protocol

    def parts(self, part_bytes: int) -> list[Part]:
        """Byte ranges that begin and end between records; one part if compressed.

        Holds 1 MiB. A local file is scanned once for quotes (a newline inside quotes ends no record); of a
        remote one the first 8 MiB tell whether to, because scanning would download it.
        """
        size = self._source.size
        if not self._source.enterable or size - self._data_start <= part_bytes:
            return [Part(0, self._data_start, None)]
        remote = "://" in self.path
        quotes = self._sample_has_quotes or not remote
        targets = range(self._data_start + part_bytes, size, max(part_bytes, 1))
        starts = [self._data_start]
        with self._source.open(self._data_start) as stream:
            if quotes:
                starts += _record_starts(stream, self._data_start, targets)
        if not quotes:
            for target in targets:
                with self._source.open(max(target - 1, 0)) as stream:
                    starts.append(target - 1 + len(stream.readline()))
        starts = sorted({start for start in starts if start < size})
        stops: list[int | None] = [*starts[1:], None]
        return [Part(index, start, stop) for index, (start, stop) in enumerate(zip(starts, stops, strict=True))]

    def read(self, part: Part, *, batch_bytes: int, start: int | None = None) -> Iterator[Batch]:
        """Batches of one part; X is dense, Y sparse. See `Reader.read`."""
        position = part.start if start is None else start
        n_classes = sum(len(column.classes) for column in self._classes.values())
        rows_wanted = max(1, batch_bytes // (8 * len(self._names) + UNKNOWN_BYTES * n_classes))
        # Of a narrow table less at a time, which stays in the cache; a column costs the same however few its rows.
        rows_wanted = max(rows_wanted // 4, min(rows_wanted, _MANY_ROWS))
        # Known from the file's first record on; a part in the middle counts lines only when it must.
        line = self._line_at(position) if position == self._data_start else None
        for block in self._blocks(position, part.stop, rows_wanted):
            table = self._parse(block)
            if table.num_rows:
                X, Y = self._feature_values(table), self._label_values(table, block)
                del table
                yield Batch(X, Y, block.at + len(block.data), line)
                del X, Y
            if line is not None:
                line += block.newlines

    @property
    def _parsed(self) -> list[int]:
        """Columns that are read, in the order of the file; those that have to be empty among them."""
        return sorted((*self._features, *self._labels, *self._empty))

    # ---- blocks of whole records

    def _text_columns(self, sample: bytes) -> tuple[set[int], str]:
        """Columns that hold a text in the sample, and the decimal point: a comma if that leaves fewer."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        decimals = "." if self._delimiter == "," else ".,"
        block = _Block(sample, self._data_start, 0, b'"' in sample)
        for decimal in decimals:
            # Most tables hold nothing but numbers, which several threads can find out; kinds are inferred by one.
            with contextlib.suppress(pa.ArrowInvalid):
                replace(self, _decimal=decimal)._table(block, dict.fromkeys(self._parsed, pa.float64()))
                return set(), decimal
        outcomes = []
        for decimal in decimals:
            try:
                table = _read_csv(
                    sample,
                    # One block: types are inferred from the first only.
                    read_options=arrow_csv.ReadOptions(
                        column_names=[str(column) for column in range(len(self._names))],
                        block_size=len(sample) + 1,
                    ),
                    parse_options=_parse_options(self._delimiter, quoted=block.quoted),
                    convert_options=_convert_options(decimal),
                )
            except pa.ArrowInvalid as error:
                self._explain(block, error)
            texts = {
                column
                for column, kind in enumerate(table.schema.types)
                if kind not in (pa.null(), pa.int64(), pa.float64())
            }
            outcomes.append((texts, decimal))
        return min(outcomes, key=lambda outcome: len(outcome[0]))

    def _blocks(self, position: int, stop: int | None, rows_wanted: int) -> Iterator[_Block]:
        """Consecutive runs of whole records, about `rows_wanted` rows each, in one buffer."""
        row_bytes = self._row_bytes
        buffer, filled, ended = bytearray(1 << 12), 0, False
        at = position
        with self._source.open(position) as stream:
            while not ended:
                # Of rows with longer cells fewer are parsed at a time.
                want = max(int(rows_wanted * min(row_bytes, _CELL_BYTES * len(self._names))), 1 << 12)
                cut = 0
                while not (cut or ended):
                    if len(buffer) < want:
                        # Not resized: pyarrow may still hold on to what it has parsed. Somewhat longer than wanted,
                        # as rows of the next run are a little longer or shorter.
                        longer = bytearray(want + want // 8)
                        longer[:filled] = memoryview(buffer)[:filled]
                        buffer = longer
                    count = want - filled if stop is None else min(want - filled, stop - at - filled)
                    got = 0
                    if count > 0:
                        got = stream.readinto(memoryview(buffer)[filled : filled + count])  # type: ignore[attr-defined]
                    filled += got
                    ended = not got
                    if filled >= want:
                        cut = _record_end(buffer, filled)
                        if not cut and filled >= LONGEST_LINE:
                            self._refuse_long(bytes(memoryview(buffer)[:filled]), at)
                        want = max(min(2 * want, LONGEST_LINE), want)
                if ended:
                    cut = filled
                for start, length, newlines, quoted in _split_rows(buffer, cut, rows_wanted):
                    yield _Block(memoryview(buffer)[start : start + length], at, newlines, quoted)
                    at += length
                    row_bytes = length / max(newlines, 1)
                filled -= cut
                memoryview(buffer)[:filled] = buffer[cut : cut + filled]

    def _parse(self, block: _Block, only: Sequence[int] | None = None) -> Any:
        """Table of a block: float64 columns, and dictionaries of texts; `only` these columns."""
        import pyarrow as pa

        text = pa.dictionary(pa.int32(), pa.string())
        columns = self._parsed if only is None else only
        if block.quoted and (quote := _swallowing_quote(bytes(block.data), self._delimiter)) is not None:
            raise _unclosed(self.path, self._line_at(block.at + quote))
        types = dict.fromkeys(self._texts, text) | dict.fromkeys(self._empty, pa.null())
        try:
            return self._table(block, {column: types.get(column, pa.float64()) for column in columns})
        except pa.ArrowInvalid as error:
            self._explain(block, error)

    def _table(self, block: _Block, types: Mapping[int, Any]) -> Any:
        """Table of some columns of a block, of these types."""
        from pyarrow import csv as arrow_csv

        named = {str(column): kind for column, kind in types.items()}
        return _read_csv(
            block.data,
            read_options=arrow_csv.ReadOptions(
                column_names=[str(column) for column in range(len(self._names))],
                # What one thread parses at a time. It has to hold a record, and in a wide table many,
                # because each block costs every column some microseconds.
                block_size=max(1 << 20, int(256 * self._row_bytes)),
            ),
            parse_options=_parse_options(self._delimiter, quoted=block.quoted),
            convert_options=_convert_options(self._decimal, column_types=named, include_columns=list(named)),
        )

    def _feature_values(self, table: Any) -> NDArray[np.float64]:
        """(rows, d) float64 with codes for texts and NaN where missing."""
        X = np.empty((table.num_rows, len(self._features)))
        at = {column: position for position, column in enumerate(self._parsed)}
        numeric = [place for place, column in enumerate(self._features) if column not in self._texts]
        positions = [at[self._features[place]] for place in numeric]
        texts = [place for place, column in enumerate(self._features) if column in self._texts]
        row = 0
        for batch in table.to_batches():
            rows = X[row : row + batch.num_rows]
            _fill(rows, numeric, batch, positions)
            for place in texts:
                column = self._features[place]
                rows[:, place] = self._looked_up(batch.column(at[column]), self._codes[column], column)
            row += batch.num_rows
        return X

    def _looked_up(self, texts: Any, values: Mapping[str, float], column: int) -> NDArray[np.float64]:
        """Numbers that stand for the texts of a dictionary column; NaN where missing."""
        try:
            table = np.array([values[text] for text in texts.dictionary.to_pylist()] + [np.nan])
        except KeyError as error:
            raise DataError(
                "a text that was not there when the file was opened: it has changed since",
                file=self.path,
                column=self._names[column],
                value=error.args[0],
                cure="convert again, from a file that nobody writes to",
            ) from error
        codes = texts.indices.fill_null(len(table) - 1).to_numpy(zero_copy_only=False)
        looked_up: NDArray[np.float64] = table[codes]
        return looked_up

    def _label_values(self, table: Any, block: _Block) -> csr_array:
        if self._classes:
            return self._class_values(table)
        return self._plain_labels(table, block)

    def _class_values(self, table: Any) -> csr_array:
        """Labels of columns of classes."""
        at = {column: position for position, column in enumerate(self._parsed)}
        batches = table.to_batches()
        blocks = []
        for column in self._labels:
            classes = self._classes[column]
            codes = [self._looked_up(batch.column(at[column]), classes.codes, column) for batch in batches]
            blocks.append(classes.labels(np.concatenate(codes)))
        return joined_labels(blocks)

    def _plain_labels(self, table: Any, block: _Block) -> csr_array:
        Y = np.empty((table.num_rows, len(self._labels)))
        meaning = self._meaning
        position = {column: position for position, column in enumerate(self._parsed)}
        numeric = [place for place, column in enumerate(self._labels) if column not in self._texts]
        positions = [position[self._labels[place]] for place in numeric]
        row = 0
        for batch in table.to_batches():
            rows = Y[row : row + batch.num_rows]
            _fill(rows, numeric, batch, positions)
            for place, column in enumerate(self._labels):
                values = batch.column(position[column])

                def refuse(at: int, values: Any = values, place: int = place, row: int = row) -> NoReturn:
                    bad_label(
                        values[at].as_py(),
                        place,
                        names=self._label_names,
                        file=self.path,
                        line=self._line_of_row(block, row + at),
                        meaning=meaning,
                    )

                if column in self._texts:
                    found = [meaning.of_text(text) for text in values.dictionary.to_pylist()]
                    numbers = [np.inf if number is None else number for number in (*found, meaning.of_text("NA"))]
                    rows[:, place] = np.array(numbers)[
                        values.indices.fill_null(len(found)).to_numpy(zero_copy_only=False)
                    ]
                    if (wrong := np.isinf(rows[:, place])).any():
                        refuse(int(np.argmax(wrong)))
                else:
                    rows[:, place] = meaning.of_numbers(rows[:, place], refuse)
            row += batch.num_rows
        return label_block(
            Y,
            names=self._label_names,
            file=self.path,
            place=lambda row: {"line": self._line_of_row(block, row)},
        )

    def _scan(self, columns: Sequence[int]) -> dict[int, set[str]]:
        """Different texts of some columns, from one reading of the file."""
        reader = replace(self, _texts=self._texts | set(columns))
        texts: dict[int, set[str]] = {column: set() for column in columns}
        rows = max(1, SAMPLE_BYTES // (8 * len(self._names)))
        for block in self._blocks(self._data_start, None, rows):
            table = reader._parse(block, only=columns)
            for column in columns:
                for chunk in table.column(str(column)).chunks:
                    texts[column].update(chunk.dictionary.to_pylist())
                if len(texts[column]) > MAX_CATEGORIES:
                    raise DataError(
                        f"a categorical column may hold {MAX_CATEGORIES:,} different texts, and this one holds more",
                        file=self.path,
                        column=self._names[column],
                        cure="remove the column (an identifier or free text is no feature), or code it",
                    )
        return texts

    def _check_categories(self, sample: bytes, column: int, texts: set[str]) -> None:
        """Refuse a column of measurements that a few texts would turn into categories; tell of what may be one."""
        others = {text for text in texts if not _NUMBER.fullmatch(text)}
        with_commas = bool(others) and all(_GROUPED.fullmatch(t) or _DECIMAL_COMMA.fullmatch(t) for t in others)
        if not with_commas and (len(texts) < _FEW or len(others) > len(texts) * _STRAY):
            n_numbers = len(texts) - len(others)
            if others and all(map(_READ_AS_NUMBER.fullmatch, texts)):
                logger.warning(
                    "%s: column %r is taken for categories: %r and the like are no numbers here; write them as -1.5 "
                    "if they are measurements (--key categorical=%s: they are categories)",
                    redact(self.path),
                    self._names[column],
                    min(others),
                    self._names[column],
                )
            elif n_numbers > len(others):
                logger.warning(
                    "%s: column %r is taken for categories: beside %d different numbers it holds %r%s; in a column of "
                    "measurements leave such fields empty (--key categorical=%s: they are categories)",
                    redact(self.path),
                    self._names[column],
                    n_numbers,
                    min(others),
                    "" if len(others) == 1 else " and other texts",
                    self._names[column],
                )
            return
        problem = "numbers with commas in them" if with_commas else "a few texts among many different numbers"
        for line, fields in _records(sample.decode("utf-8", "replace"), self._delimiter):
            if fields[column] in others:
                raise DataError(
                    f"{problem}: {len(others):,} of its {len(texts):,} different values are no numbers",
                    file=self.path,
                    line=self._line_at(self._data_start) + line,
                    column=self._names[column],
                    value=fields[column],
                    cure="correct them (an empty field is a missing value); or, if the column holds categories, say so "
                    f"with --key categorical={self._names[column]}",
                )

    # ---- where something is, looked up only for messages

    @property
    def _label_names(self) -> list[str]:
        return [self._names[column] for column in self._labels]

    def _line_at(self, position: int) -> int:
        """Line number of the uncompressed byte `position`."""
        return 1 + sum(piece.count(b"\n") for piece in self._pieces(position))

    def _pieces(self, stop: int) -> Iterator[bytes]:
        with self._source.open() as stream:
            while stop > 0 and (piece := stream.read(min(_SCAN_BYTES, stop))):
                stop -= len(piece)
                yield piece

    def _line_of_row(self, block: _Block, row: int) -> int:
        text = str(block.data, "utf-8", "replace")
        line, _ = next(itertools.islice(_records(text, self._delimiter), row, None))
        return self._line_at(block.at) + line

    def _refuse_long(self, content: bytes, at: int) -> NoReturn:
        """Raise a DataError for a long run of bytes in which no record ends: a line, or a quote that is not closed."""
        if b"\n" not in content:
            raise line_too_long(self.path, self._line_at(at))
        quote = _open_quote(content, self._delimiter)
        longer = f"a quoted field is longer than {LONGEST_LINE >> 20} MiB"
        raise _unclosed(self.path, self._line_at(at + (quote or 0)), problem=longer)

    def _explain(self, block: _Block, error: Exception) -> NoReturn:
        """Raise a DataError with the line and column that pyarrow does not give."""
        content, at = bytes(block.data), block.at
        try:
            text = content.decode("utf-8")
        except UnicodeDecodeError as failure:
            raise DataError(
                "the text is not UTF-8",
                file=self.path,
                line=self._line_at(at) + content.count(b"\n", 0, failure.start),
                value=content[failure.start : failure.start + 1],
                cure="convert the file, for example with iconv -f latin1 -t utf-8",
            ) from error
        if (quote := _open_quote(content, self._delimiter)) is not None:
            raise _unclosed(self.path, self._line_at(at + quote)) from error
        try:
            self._explain_ragged(text, at)
            self._explain_value(text, at)
        except csv.Error:
            pass
        raise DataError(
            f"pyarrow cannot parse the rows from here on: {error}",
            file=self.path,
            line=self._line_at(at),
            cure="look at the quotes and delimiters near this line",
        ) from error

    def _explain_ragged(self, text: str, at: int) -> None:
        for line, fields in _records(text, self._delimiter):
            if len(fields) != len(self._names):
                raise DataError(
                    f"{len(self._names)} fields were expected, as in the header; this row has {len(fields)}",
                    file=self.path,
                    line=self._line_at(at) + line,
                    value=self._delimiter.join(fields)[:60],
                    cure=f"complete the row, or quote a field that holds the delimiter {self._delimiter!r}",
                )

    def _explain_value(self, text: str, at: int) -> None:
        number = _NUMBER if self._decimal == "." else _DECIMAL_COMMA
        columns = [column for column in self._parsed if column not in self._texts]
        for line, fields in _records(text, self._delimiter):
            for column in columns:
                value = fields[column]
                empty = column in self._empty
                if value in MISSING_TEXTS or (number.fullmatch(value) and not empty):
                    continue
                line += self._line_at(at)
                if empty:
                    raise DataError(
                        "the column has no name and is empty in the rows before, and is not here",
                        file=self.path,
                        line=line,
                        column=column + 1,
                        value=value,
                        cure=f"name it, or leave it out: --drop {column + 1}",
                    )
                if column in self._labels:
                    label = self._labels.index(column)
                    bad_label(value, label, names=self._label_names, file=self.path, line=line, meaning=self._meaning)
                raise DataError(
                    "a number was expected, as in the rows before",
                    file=self.path,
                    line=line,
                    column=self._names[column],
                    value=value,
                    cure="correct the value; or, if the column holds categories, say so with "
                    f"--key categorical={self._names[column]}",
                )


def open_csv(path: str, options: ReadOptions = _DEFAULTS, *, tabs: bool = False) -> CsvReader:
    """Open a CSV or TSV file.

    Parameters
    ----------
    path : str
        Local path or URL; may be compressed.
    options : ReadOptions
        `labels` by columns or count. `keys` may hold ``categorical`` (names of columns to read as categories,
        separated by commas) and ``header`` (yes or no; by default a first line of nothing but numbers, other
        than 0, 1, 2... or 1, 2, 3..., is taken for a row).
    tabs : bool
        The delimiter is a tab; otherwise whichever of ``, ; tab |`` occurs most in the first line, or a blank where
        none does and names are quoted. A first line `sep=;`, which Excel writes and reads, names it.

    Raises
    ------
    UsageError
        No labels were specified, or pyarrow is missing.
    DataError
        No such file, an empty one, a ragged row, a name given twice, an unknown label column.
    """
    require_arrow()
    source = open_source(path, options.storage_options)
    tabs = tabs or format_suffix(path) in (".tsv", ".tab")
    sample = source.read_range(0, SAMPLE_BYTES)
    while sample.count(b"\n") < 2:
        too_long = sample.rfind(b"\n") + 1 + LONGEST_LINE
        if len(sample) >= too_long:
            raise line_too_long(path, sample.count(b"\n") + 1)
        more = source.read_range(len(sample), min(2 * len(sample), too_long))
        if not more:
            break
        sample += more
    if sample.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(
            "the text is UTF-16, UTF-8 was expected",
            file=path,
            line=1,
            cure="convert the file, for example with iconv -f utf-16 -t utf-8",
        )
    if b"\0" in sample:
        raise DataError(
            "the text holds NUL bytes: it is UTF-16, or damaged",
            file=path,
            line=sample.count(b"\n", 0, sample.index(b"\0")) + 1,
            cure="convert it, for example with iconv -f utf-16le -t utf-8, or fetch it again",
        )
    if b"\n" not in sample and b"\r" in sample:
        raise DataError(
            "lines end with CR alone, LF or CR LF was expected",
            file=path,
            line=1,
            cure="convert the file, for example with tr '\\r' '\\n'",
        )
    if not sample.strip():
        raise DataError(
            "the file is empty" if not sample else "the file holds nothing but blank lines",
            file=path,
            cure="give a table with a header row of column names",
        )
    separator = _SEPARATOR_LINE.match(sample)
    lead = separator.end() if separator else len(sample) - len(sample.removeprefix(_BOM))
    given = separator[1].decode() if separator else "\t" if tabs else ""
    delimiter, first, quoted, header_line, data_start = _first_record(sample, path, lead, given)
    if _begins_with_comments(first, sample[data_start:].decode("utf-8", "replace"), delimiter):
        raise DataError(
            "the file begins with a comment, a header row of column names was expected",
            file=path,
            line=header_line,
            value=delimiter.join(first)[:60],
            cure="remove the lines of comments, for example with grep -v '^#'",
        )
    told = DEFAULT_VALUES.of_text(options.keys.get("header", "yes"))
    if told not in (0, 1):
        raise UsageError(f"header must be yes or no, not {options.keys['header']!r}")
    headerless = told == 0
    if "header" not in options.keys:
        following = sample[data_start : sample.find(b"\n", data_start) + 1 or None].decode("utf-8", "replace")
        # Only names are quoted where values are not.
        names_quoted = quoted and not _all_quoted(following, delimiter)
        headerless = not names_quoted and _is_row_of_numbers(first)
    names = tuple(str(number) for number in range(1, len(first) + 1)) if headerless else tuple(first)
    if headerless:
        data_start = lead
        if "header" not in options.keys:
            logger.warning(
                "%s: no header row: the first line holds numbers, and is not taken for names (--key header=yes)",
                redact(path),
            )
    unique_names(names, file=path, line=header_line)
    body = sample[data_start:]
    # What is longer than a sample was cut off anywhere.
    whole = len(body) if len(sample) < SAMPLE_BYTES else _record_end(body, len(body)) or len(body)
    complete = body[:whole]
    has_row_names = not headerless and _has_row_names(complete, len(names), delimiter)
    if has_row_names:
        names = ("", *names)
    ignored = _ignored_columns(complete, names, delimiter, headerless=headerless)
    if has_row_names:
        ignored[0] = "the names of rows, as R writes them"
    for column, content in ignored.items():
        logger.warning("%s: column %d has no name and holds %s: it is left out", redact(path), column + 1, content)
    if options.transpose:  # the first column has the names of rows
        dropped = {find_column(names, name, "column to leave out,", file=path) for name in options.drop}
        features = [column for column in range(1, len(names)) if column not in dropped | {*ignored}]
        labels: list[int] = []
    else:
        features, labels = split_columns(names, options.labels, drop=options.drop, ignored=ignored, file=path)
    if not body.strip():
        raise DataError("a header row and no rows after it", file=path, cure="check the file")
    rows = max(complete.count(b"\n"), 1)
    header = Header(
        feature_names=None if headerless else tuple(names[column] for column in features),
        label_names=None if headerless else tuple(names[column] for column in labels),
        n_features=len(features),
        n_labels=len(labels),
    )
    dropped = {find_column(names, name, "column to leave out,", file=path) for name in options.drop}
    # What is empty in the sample has to be so behind it.
    empty = {column for column, content in ignored.items() if content == _NOTHING} - {*features, *labels, *dropped}
    reader = CsvReader(
        header=header,
        path=path,
        _source=source,
        _names=names,
        _features=tuple(features),
        _labels=tuple(labels),
        _texts=frozenset(),
        _delimiter=delimiter,
        _decimal=".",
        _data_start=data_start,
        _row_bytes=len(complete) / rows,
        _sample_has_quotes=b'"' in complete,
        _empty=frozenset(empty if len(sample) >= SAMPLE_BYTES else ()),
        _meaning=options.labels.values,
    )
    texts, decimal = reader._text_columns(complete)
    if options.transpose:
        reader._require_numbers(texts)
    asked = [name for name in options.keys.get("categorical", "").split(",") if name]
    texts |= {find_column(names, name, "column of categories", file=path) for name in asked}
    if options.labels.values.has_texts:  # also where the sample holds none
        texts |= {*labels}
    reader = replace(reader, _texts=frozenset(texts), _decimal=decimal)
    categorical = [place for place, column in enumerate(features) if column in texts]
    if categorical:
        values = reader.distinct(categorical)
        for place in categorical:
            if names[features[place]] not in asked and str(features[place] + 1) not in asked:
                reader._check_categories(complete, features[place], values[place])
        reader = reader.with_categories({place: sort_categories(values[place]) for place in categorical})
    return reader._with_found_classes(options.labels) if options.labels.classes else reader


def _fill(rows: NDArray[np.float64], places: list[int], batch: Any, positions: list[int]) -> None:
    """Copy the columns of a batch at `positions` to the columns `places`."""
    if places:
        numbers = batch.select(positions).to_tensor(null_to_nan=True, row_major=True).to_numpy()
        rows[:, slice(None) if len(places) == rows.shape[1] else places] = numbers


def _read_csv(data: Any, **options: Any) -> Any:
    """The table of some bytes."""
    import pyarrow as pa
    from pyarrow import csv as arrow_csv

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        # The program answers Ctrl-C itself. Arrow would put another handler in that place for each block, and a signal
        # that comes while it does so ends the process.
        pa.enable_signal_handlers(False)
    return arrow_csv.read_csv(pa.BufferReader(data), **options)


def _parse_options(delimiter: str, *, quoted: bool) -> Any:
    from pyarrow import csv as arrow_csv

    return arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=quoted)


def _convert_options(decimal: str, **options: Any) -> Any:
    from pyarrow import csv as arrow_csv

    return arrow_csv.ConvertOptions(
        null_values=MISSING_TEXTS,
        strings_can_be_null=True,
        true_values=[],
        false_values=[],
        decimal_point=decimal,
        **options,
    )


def _begins_with_comments(first: list[str], rest: str, delimiter: str) -> bool:
    """Whether the first record is a comment, and no header row that begins with # (`#id,a,b`)."""
    if not first[0].startswith("#"):
        return False
    with contextlib.suppress(csv.Error):
        _, second = next(_records(rest, delimiter), (0, first))
        return second[0].startswith("#") or len(second) != len(first)
    return False


def _all_quoted(record: str, delimiter: str) -> bool:
    """Whether every field of a record is in quotes."""
    return '"' in record and not re.sub('"[^"]*"', "", record).replace(delimiter, "").strip()


def _first_record(sample: bytes, path: str, lead: int, given: str) -> tuple[str, list[str], bool, int, int]:
    """Delimiter (`given`, or found), fields, whether all are quoted, line number, and end in bytes of the first record
    behind `lead` bytes that is not blank.
    """
    end = lead
    while True:
        start = end
        end = sample.find(b"\n", start) + 1 or len(sample)
        while sample.count(b'"', start, end) % 2 and end < len(sample):
            end = sample.find(b"\n", end) + 1 or len(sample)
        if sample[start:end].strip():
            break
    if sample.count(b'"', start, end) % 2:
        quote = sample.rfind(b'"', start, sample.find(b"\n", start) + 1 or end)
        raise _unclosed(path, sample.count(b"\n", 0, max(quote, start)) + 1)
    try:
        text = sample[start:end].decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            "the text is not UTF-8",
            file=path,
            line=sample.count(b"\n", 0, start) + 1,
            value=error.object[error.start : error.start + 1],
            cure="convert the file, for example with iconv -f latin1 -t utf-8",
        ) from error
    outside = re.sub('"[^"]*"', "", text)
    delimiter = given or max(",;\t|", key=outside.count)
    # R's write.table separates quoted names with blanks, which names themselves may hold.
    if not given and delimiter not in outside and '" ' in text:
        delimiter = " "
    _, fields = next(_records(text, delimiter))
    quoted = _all_quoted(text, delimiter)
    names = fields if quoted else [name.strip() for name in fields]
    return delimiter, names, quoted, sample.count(b"\n", 0, start) + 1, end


def _has_row_names(sample: bytes, named: int, delimiter: str) -> bool:
    """Whether records begin with a name of their row, for which the header of R's write.table has no field."""
    records = _records(sample.decode("utf-8", "replace"), delimiter)
    try:
        _, first = next(records, (0, []))
        if len(first) != named + 1:
            return False
        # Rows that end in a delimiter have an empty field more; names of rows are not empty, and none is there twice.
        whole = [first, *(fields for _, fields in records if len(fields) == named + 1)]
    except csv.Error:  # what cannot be read is told of where it is read
        return False
    row_names = {fields[0] for fields in whole}
    return len(row_names) == len(whole) and "" not in row_names and any(fields[-1] for fields in whole)


def _ignored_columns(sample: bytes, names: Sequence[str], delimiter: str, *, headerless: bool) -> dict[int, str]:
    """Columns without a name that hold row numbers or nothing in the sample, and which of the two."""
    from_zero = {column for column, name in enumerate(names) if headerless or is_nameless(name)}
    if not from_zero:
        return {}
    from_one, empty = from_zero, from_zero
    rows = 0
    for _, fields in _records(sample.decode("utf-8", "replace"), delimiter):
        if len(fields) != len(names) or not (from_zero or from_one or empty):
            break
        from_zero = {column for column in from_zero if fields[column] == str(rows)}
        from_one = {column for column in from_one if fields[column] == str(rows + 1)}
        empty = {column for column in empty if fields[column] in MISSING_TEXTS}
        rows += 1
    # Two numbers of a table without a header could be labels.
    if rows < (3 if headerless else 1):
        return {}
    numbers = from_zero | from_one
    return dict.fromkeys(sorted(numbers), "row numbers") | dict.fromkeys(sorted(empty), _NOTHING)


def _is_row_of_numbers(fields: Sequence[str]) -> bool:
    """Whether a first line holds data: numbers, and not the column numbers that data frames write."""
    if not all(_NUMBER.fullmatch(text) or text in _MISSING for text in fields):
        return False
    # The index that a data frame writes has no name.
    named = list(fields[1:] if not fields[0] else fields)
    return named not in (
        [str(number) for number in range(len(named))],
        [str(number + 1) for number in range(len(named))],
    )


def _records(text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """(lines before it, fields) of each record that is not an empty line."""
    lines = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter)
    before = 0
    for fields in lines:
        if fields:
            yield before, fields
        before = lines.line_num


def _record_end(block: bytes | bytearray, filled: int) -> int:
    """End of the last whole record in the first bytes of a block that begins with one; 0 if none is whole."""
    end = block.rfind(b"\n", 0, filled) + 1
    quotes = _quotes(block, 0, end)
    while end and quotes % 2:
        # This newline is inside quotes, and so are those between it and the quote before it.
        opening = block.rfind(b'"', 0, end)
        before = block.rfind(b"\n", 0, opening) + 1
        quotes -= block.count(b'"', before, end)
        end = before
    return end


def _swallowing_quote(block: bytes, delimiter: str) -> int | None:
    """Byte of the first quote that opens a field and is closed on a later line, by a quote that text follows.

    That is the next field's opening quote: the rows between, which parsers take for one text, would be lost.
    """
    data = np.frombuffer(block, np.uint8)
    quotes = np.flatnonzero(data == ord('"'))
    opening, closing = quotes[::2], quotes[1::2]
    before, ends = (np.frombuffer((delimiter + more).encode(), np.uint8) for more in ("\n", '\n\r"'))
    # Behind a quote within an unquoted field (5" pipe) nothing says any more which quotes open a field.
    begins = np.isin(data[opening - 1], before) | (opening == 0)
    begins[1:] |= opening[1:] == closing[: len(opening) - 1] + 1
    known = len(begins) if begins.all() else int(np.argmin(begins))
    closing = closing[: min(known, np.searchsorted(closing, len(data) - 1))]
    for pair in np.flatnonzero(~np.isin(data[closing + 1], ends)).tolist():
        first = _field_opening(block, quotes, pair, delimiter)
        if first is not None and block.find(b"\n", first, int(closing[pair])) >= 0:
            return first
    return None


def _open_quote(block: bytes, delimiter: str) -> int | None:
    """Byte of the quote that is not closed where it should be, in a run of bytes that cannot be parsed."""
    quote = _swallowing_quote(block, delimiter)
    quotes = np.flatnonzero(np.frombuffer(block, np.uint8) == ord('"'))
    if quote is None and len(quotes) % 2:
        return _field_opening(block, quotes, len(quotes) // 2, delimiter)
    return quote


def _field_opening(block: bytes, quotes: NDArray[np.intp], pair: int, delimiter: str) -> int | None:
    """Byte where the field begins that the quotes of a pair are in; None where these quotes begin no field."""
    while pair and quotes[2 * pair] == quotes[2 * pair - 1] + 1:  # a quote inside a quoted field is written twice
        pair -= 1
    opening = int(quotes[2 * pair])
    begins = opening == 0 or block[opening - 1 : opening] in (delimiter.encode(), b"\n")
    return opening if begins else None


def _unclosed(path: str, line: int, *, problem: str = "a quoted field begins here that is not closed") -> DataError:
    return DataError(
        problem,
        file=path,
        line=line,
        cure='close the quote; a quote inside a quoted field is written twice ("")',
    )


def _quotes(block: bytes | bytearray, start: int, stop: int) -> int:
    # Counting takes ten times as long as finding that there is none.
    return block.count(b'"', start, stop) if block.find(b'"', start, stop) >= 0 else 0


def _split_rows(buffer: bytearray, filled: int, rows: int) -> Iterator[tuple[int, int, int, bool]]:
    """(start, length, newlines, quoted) of a run of records, cut where rows are so short that it holds far too many."""
    quoted = buffer.find(b'"', 0, filled) >= 0
    data = np.frombuffer(buffer, np.uint8, filled)
    count = sum(int(np.count_nonzero(data[i : i + _TILE_BYTES] == ord("\n"))) for i in range(0, filled, _TILE_BYTES))
    if count > 2 * rows and not quoted:
        ends = np.flatnonzero(data == ord("\n"))[rows - 1 : -1 : rows] + 1
        for start, stop in itertools.pairwise([0, *ends.tolist(), filled]):
            yield start, stop - start, min(rows, count), False
            count -= rows
    elif filled:
        yield 0, filled, count, quoted


def _record_starts(stream: BinaryIO, start: int, targets: Iterable[int]) -> list[int]:
    """First start of a record at or behind each target position, in a file whose records begin at `start`."""
    starts = []
    position, quotes = start, 0
    waiting = iter(targets)
    target = next(waiting, None)
    piece = bytearray(_SCAN_BYTES)
    while target is not None and (filled := stream.readinto(piece)):  # type: ignore[attr-defined]
        offset = 0
        while target is not None and target - 1 < position + filled:
            newline = piece.find(b"\n", max(target - 1 - position, offset), filled)
            if newline < 0:
                break
            quotes += _quotes(piece, offset, newline)
            offset = newline + 1
            if quotes % 2 == 0:
                starts.append(position + offset)
                target = next((t for t in waiting if t > position + offset), None)
        quotes += _quotes(piece, offset, filled)
        position += filled
    return starts


def open_tsv(path: str, options: ReadOptions = _DEFAULTS) -> CsvReader:
    """`open_csv` with tabs between fields, whatever the suffix."""
    return open_csv(path, options, tabs=True)
