"""CSV and TSV tables with a header row, parsed by pyarrow in blocks that end where a record ends.

Kinds are settled from the first 8 MiB: a column in which a text occurs there is categorical, any other is
numeric, and a text met in it later is an error that says so (one stray "abc" must not turn a measurement
into categories). The codes of a categorical column are the sorted order of its distinct texts over the whole
file, which costs one more pass over the file when such columns exist, and makes the codes the same for any
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
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError, require_extra
from mlfs_dask.files.compressed_io import (
    LONGEST_LINE,
    PIECE_BYTES,
    SourceFile,
    format_suffix,
    line_too_long,
    open_source,
)
from mlfs_dask.files.limits import require_arrow
from mlfs_dask.readers.base import DEFAULT_SPEC, SCAN_ROWS, Batch, FileSpec, Format, Header, NoRowsError, Part, parts_at
from mlfs_dask.readers.label_columns import find_columns, is_nameless, unique_names
from mlfs_dask.readers.label_values import DEFAULT_VALUES, MISSING_TEXTS, bad_label, is_missing
from mlfs_dask.readers.lines import line_number
from mlfs_dask.readers.table import NUMBER, TableReader, choose_columns, first_kept
from mlfs_dask.redaction import redact

logger = logging.getLogger(__name__)

SAMPLE_BYTES = 8 << 20
_TILE_BYTES = 1 << 18
#: More than a number takes.
_CELL_BYTES = 32
#: What pyarrow says of a row, counted without those that are blank: its number, fields and text, or column and value.
_RAGGED = re.compile(r"Row #(\d+): Expected \d+ columns, got (\d+): (.*)", re.DOTALL)
_NO_NUMBER = re.compile(r"column #(\d+): Row #(\d+): CSV conversion error to .*?: invalid value '(.*)'", re.DOTALL)
#: First line by which Excel is told the delimiter.
_SEPARATOR_LINE = re.compile(rb'"?sep=([\x20-\x7e\t])"?\r?\n', re.IGNORECASE)
_NOTHING = "nothing"
_BOM = b"\xef\xbb\xbf"


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


@dataclass(frozen=True, kw_only=True)
class CsvReader(TableReader):
    """One CSV file; made by `open_csv`. Parts are of uncompressed bytes."""

    _source: SourceFile
    _delimiter: str
    _data_start: int
    _row_bytes: float
    _sample_has_quotes: bool
    _empty: frozenset[int] = frozenset()

    def parts(self, part_bytes: int) -> list[Part]:
        """Return byte ranges that begin and end between records; one part if compressed.

        Holds 1 MiB. A local file is scanned once for quotes (a newline inside quotes ends no record); of a
        remote one the first 8 MiB tell whether to, because scanning would download it.
        """
        size = self._source.size
        if not self._source.enterable or size - self._data_start <= part_bytes:
            return parts_at([self._data_start], None)
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
        return parts_at(sorted({start for start in starts if start < size}), None)

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of one part; X is dense, Y sparse. See `Reader.read`."""
        rows_wanted = max(1, batch_bytes // self._row_bytes_held(len(self._names)))
        # Of a narrow table less at a time, which stays in the cache; a column costs the same however few its rows.
        rows_wanted = max(rows_wanted // 4, min(rows_wanted, SCAN_ROWS))
        # Known from the file's first record on; a part in the middle counts lines only when it must.
        line = self._line_at(part.start) if part.start == self._data_start else None
        for block in self._blocks(part.start, part.stop, rows_wanted):
            table = self._parse(block)
            if table.num_rows:
                X, Y = self._matrices(table.to_batches(), lambda row, block=block: self._place(block, row))  # type: ignore[misc]
                del table
                yield Batch(X, Y, line)
                del X, Y
            if line is not None:
                line += block.newlines

    def _arrow_name(self, column: int) -> str:
        return str(column)

    def _text_batches(self, columns: Sequence[int]) -> Iterator[Any]:
        reader = replace(self, _texts=frozenset(columns))
        for block in self._blocks(self._data_start, None, max(1, SAMPLE_BYTES // (8 * len(self._names)))):
            yield from reader._parse(block, columns).to_batches()

    @property
    def _parsed(self) -> list[int]:
        """Columns that are read, in the order of the file; those that have to be empty among them."""
        return sorted((*self._features, *self._labels, *self._empty))

    # ---- blocks of whole records

    def _text_columns(self, sample: bytes) -> tuple[set[int], str]:
        """Return columns that hold a text in the sample, and the decimal point: a comma if that leaves fewer."""
        import pyarrow as pa

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
                # One block: types are inferred from the first only.
                table = replace(self, _decimal=decimal)._table(block, None, block_size=len(sample) + 1)
            except pa.ArrowInvalid as error:
                self._explain(block, None, error)
            numbers = (pa.null(), pa.int64(), pa.float64())
            outcomes.append(({at for at, kind in enumerate(table.schema.types) if kind not in numbers}, decimal))
        return min(outcomes, key=lambda outcome: len(outcome[0]))

    def _blocks(self, position: int, stop: int | None, rows_wanted: int) -> Iterator[_Block]:
        """Yield the consecutive runs of whole records, about `rows_wanted` rows each, in one buffer."""
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
        """Return the table of a block: float64 columns, and dictionaries of texts; `only` these columns."""
        import pyarrow as pa

        text = pa.dictionary(pa.int32(), pa.string())
        columns = self._parsed if only is None else only
        if block.quoted and (quote := _swallowing_quote(bytes(block.data), self._delimiter)) is not None:
            raise _unclosed(self.path, self._line_at(block.at + quote))
        types = dict.fromkeys(self._texts, text) | dict.fromkeys(self._empty, pa.null())
        kinds = {column: types.get(column, pa.float64()) for column in columns}
        try:
            return self._table(block, kinds)
        except pa.ArrowInvalid as error:
            self._explain(block, kinds, error)

    def _table(
        self, block: _Block, types: Mapping[int, Any] | None, *, block_size: int = 0, use_threads: bool = True
    ) -> Any:
        """Return the table of some columns of a block, of these types; None: of all, whose types are inferred."""
        import pyarrow as pa
        from pyarrow import csv as arrow_csv

        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            # The program answers Ctrl-C itself. Arrow would put another handler in that place for each block, and a
            # signal that comes while it does so ends the process.
            pa.enable_signal_handlers(False)
        named = None if types is None else {str(column): kind for column, kind in types.items()}
        return arrow_csv.read_csv(
            pa.BufferReader(block.data),
            read_options=arrow_csv.ReadOptions(
                column_names=[str(column) for column in range(len(self._names))],
                use_threads=use_threads,
                # What one thread parses at a time. It has to hold a record, and in a wide table many,
                # because each block costs every column some microseconds.
                block_size=block_size or max(1 << 20, int(256 * self._row_bytes)),
            ),
            parse_options=arrow_csv.ParseOptions(delimiter=self._delimiter, newlines_in_values=block.quoted),
            convert_options=arrow_csv.ConvertOptions(
                null_values=[blank + text for text in MISSING_TEXTS for blank in ("", " ")],
                strings_can_be_null=True,
                true_values=[],
                false_values=[],
                decimal_point=self._decimal,
                column_types=named,
                include_columns=None if named is None else list(named),
            ),
        )

    # ---- where something is, looked up only for messages

    def _where(self, column: int, values: Collection[str]) -> dict[str, Any]:
        sample = self._source.read_range(self._data_start, SAMPLE_BYTES).decode("utf-8", "replace")
        for line, fields in _records(sample, self._delimiter):
            if len(fields) == len(self._names) and fields[column] in values:
                return {"line": self._line_at(self._data_start) + line}
        return {}

    def _line_at(self, position: int) -> int:
        """Return the line number of the uncompressed byte `position`."""
        return line_number(self._source, position)

    def _place(self, block: _Block, row: int) -> dict[str, Any]:
        text = str(block.data, "utf-8", "replace")
        line, _ = next(itertools.islice(_records(text, self._delimiter), row, None))
        return {"line": self._line_at(block.at) + line}

    def _refuse_long(self, content: bytes, at: int) -> NoReturn:
        """Raise a DataError for a long run of bytes in which no record ends: a line, or a quote that is not closed."""
        if b"\n" not in content:
            raise line_too_long(self.path, self._line_at(at))
        quote = _open_quote(content, self._delimiter)
        longer = f"a quoted field is longer than {LONGEST_LINE >> 20} MiB"
        raise _unclosed(self.path, self._line_at(at + (quote or 0)), problem=longer)

    def _explain(self, block: _Block, types: Mapping[int, Any] | None, error: Exception) -> NoReturn:
        """Raise a DataError with the line and column that pyarrow gives where one thread reads."""
        import pyarrow as pa

        content, at = bytes(block.data), block.at
        _decoded(content, self.path, lambda: self._line_at(at))
        if (quote := _open_quote(content, self._delimiter)) is not None:
            raise _unclosed(self.path, self._line_at(at + quote)) from error
        try:
            self._table(block, types, use_threads=False)
        except pa.ArrowInvalid as found:
            error = found
        if ragged := _RAGGED.search(str(error)):
            raise DataError(
                f"{len(self._names)} fields were expected, as in the header; this row has {ragged[2]}",
                file=self.path,
                **self._place(block, int(ragged[1]) - 1),
                value=ragged[3][:60],
                cure="write one blank between two fields, for example with tr -s ' '"
                if self._delimiter == " "
                else f"complete the row, or quote a field that holds the delimiter {self._delimiter!r}",
            ) from error
        if no_number := _NO_NUMBER.search(str(error)):
            column, value = int(no_number[1]), no_number[3]
            place = self._place(block, int(no_number[2]) - 1)
            if column in self._labels:
                label = self._labels.index(column)
                bad_label(value, label, names=self._label_names, file=self.path, **place, meaning=self._meaning)
            problem, cure = (
                "a number was expected, as in the rows before",
                "correct the value; or, if the column holds ",
            )
            cure += f"categories, say so with --key categorical={self._names[column]}"
            if column in self._empty:
                problem = "the column has no name and is empty in the rows before, and is not here"
                cure = f"name it, or leave it out: --drop {column + 1}"
            name = column + 1 if column in self._empty else self._names[column]
            raise DataError(problem, file=self.path, **place, column=name, value=value, cure=cure) from error
        raise DataError(
            f"pyarrow cannot parse the rows from here on: {error}",
            file=self.path,
            line=self._line_at(at),
            cure="check the quotes and delimiters near this line",
        ) from error


def open_csv(path: str, spec: FileSpec = DEFAULT_SPEC, *, tabs: bool = False) -> CsvReader:
    """Open a CSV or TSV file.

    Parameters
    ----------
    path : str
        Local path or URL; may be compressed.
    spec : FileSpec
        `labels` by columns or count. `keys` may hold ``categorical`` (names of columns to read as categories,
        separated by commas) and ``header`` (yes or no; by default a first line of nothing but numbers, other
        than 0, 1, 2... or 1, 2, 3..., is taken for a row).
    tabs : bool
        The delimiter is a tab; otherwise the one of a first line ``sep=;``, else whichever of ``, ; tab |`` occurs most
        in the first line, or a blank where none does.

    Raises
    ------
    UsageError
        No labels were specified, or pyarrow is missing.
    DataError
        No such file, an empty one, a ragged row, a name given twice, an unknown label column.
    """
    require_extra("pyarrow", f"{path}: CSV")
    require_arrow()
    source = open_source(path, spec.storage_options)
    sample = _sample(source)
    tabs = tabs or format_suffix(path) in (".tsv", ".tab")
    first = _first_record(sample, path, tabs=tabs)
    delimiter, body = first.delimiter, sample[first.end :]
    if _begins_with_comments(first.fields, body.decode("utf-8", "replace"), delimiter):
        raise DataError(
            "the file begins with a comment, a header row of column names was expected",
            file=path,
            line=first.line,
            value=delimiter.join(first.fields)[:60],
            cure="remove the lines of comments, for example with grep -v '^#'",
        )
    headerless = _is_headerless(first, body, spec)
    names = tuple(map(str, range(1, len(first.fields) + 1))) if headerless else tuple(first.fields)
    if headerless:
        body = sample[first.start :]
        if "header" not in spec.keys:
            logger.warning(
                "%s: no header row: the first line holds numbers and is read as data (--key header=yes: as names)",
                redact(path),
            )
    unique_names(names, file=path, line=first.line)
    # What is longer than a sample was cut off anywhere.
    whole = len(body) if len(sample) < SAMPLE_BYTES else _record_end(body, len(body)) or len(body)
    complete = body[:whole]
    ignored = _ignored_columns(complete, names, delimiter, headerless=headerless)
    for column, content in ignored.items():
        logger.warning("%s: column %d has no name and holds %s: it is left out", redact(path), column + 1, content)
    dropped = find_columns(names, spec.drop, "column to leave out,", file=path)
    names_column = first_kept(names, dropped)
    features, labels = choose_columns(names, spec, ignored=ignored, names_column=names_column, file=path)
    if not body.strip():
        raise NoRowsError("there is a header row but no data row", file=path, cure="check the file")
    # What is empty in the sample has to be so behind it.
    empty = {column for column, content in ignored.items() if content == _NOTHING} - {*features, *labels, *dropped}
    reader = CsvReader(
        header=Header(
            feature_names=None if headerless else tuple(names[column] for column in features),
            label_names=None if headerless else tuple(names[column] for column in labels),
            n_features=len(features),
            n_labels=len(labels),
        ),
        path=path,
        _source=source,
        _names=names,
        _features=tuple(features),
        _labels=tuple(labels),
        _delimiter=delimiter,
        _data_start=first.start if headerless else first.end,
        _row_bytes=len(complete) / max(complete.count(b"\n"), 1),
        _sample_has_quotes=b'"' in complete,
        _empty=frozenset(empty if len(sample) >= SAMPLE_BYTES else ()),
        _meaning=spec.labels.values,
        _names_column=names_column,
    )
    texts, decimal = reader._text_columns(complete)
    if spec.transpose:
        reader.require_numbers(texts)
    by_option = filter(None, spec.keys.get("categorical", "").split(","))
    asked = set(find_columns(names, by_option, "column of categories", file=path))
    texts |= asked
    if spec.labels.values.has_texts or spec.labels.key is not None:  # also where the sample holds none
        texts |= {*labels}
    reader = replace(reader, _texts=frozenset(texts), _decimal=decimal)
    categorical = [place for place, column in enumerate(features) if column in texts]
    if categorical:
        by_key = {place for place in categorical if features[place] in asked}
        reader = reader.with_found_texts(categorical, asked=by_key)
    if spec.labels.key is not None:
        return reader.with_label_table(spec.labels, spec.storage_options)
    return reader.with_found_classes(spec.labels) if spec.labels.classes else reader


def _sample(source: SourceFile) -> bytes:
    """Return the first bytes of a file, two lines at least; DataError where they are no text of lines."""
    sample = source.read_range(0, SAMPLE_BYTES)
    while sample.count(b"\n") < 2:
        too_long = sample.rfind(b"\n") + 1 + LONGEST_LINE
        if len(sample) >= too_long:
            raise line_too_long(source.path, sample.count(b"\n") + 1)
        more = source.read_range(len(sample), min(2 * len(sample), too_long))
        if not more:
            break
        sample += more
    nul = sample.find(b"\0")
    for is_so, problem, line, cure in (
        (
            sample.startswith((b"\xff\xfe", b"\xfe\xff")),
            "the text is UTF-16, UTF-8 was expected",
            1,
            "convert the file, for example with iconv -f utf-16 -t utf-8",
        ),
        (
            nul >= 0,
            "the text holds NUL bytes: it is UTF-16, or damaged",
            sample.count(b"\n", 0, max(nul, 0)) + 1,
            "convert it, for example with iconv -f utf-16le -t utf-8, or fetch it again",
        ),
        (
            b"\n" not in sample and b"\r" in sample,
            "lines end with CR alone, LF or CR LF was expected",
            1,
            "convert the file, for example with tr '\\r' '\\n'",
        ),
        (not sample, "the file is empty", None, "give a table with a header row of column names"),
        (
            not sample.strip(),
            "the file holds nothing but blank lines",
            None,
            "give a table with a header row of column names",
        ),
    ):
        if is_so:
            raise (DataError if sample.strip() else NoRowsError)(problem, file=source.path, line=line, cure=cure)
    return sample


class _FirstRecord(NamedTuple):
    """The first record that is not blank: its fields, whether all are in quotes, its line, and its bytes."""

    delimiter: str
    fields: list[str]
    quoted: bool
    line: int
    start: int
    end: int


def _is_headerless(first: _FirstRecord, body: bytes, spec: FileSpec) -> bool:
    """Return True if the first record is a row of data."""
    said = spec.keys.get("header")
    if said is None:
        following = body[: body.find(b"\n") + 1 or None].decode("utf-8", "replace")
        # Only names are quoted where values are not.
        names_quoted = first.quoted and not _all_quoted(following, first.delimiter)
        return not names_quoted and _is_row_of_numbers(first.fields)
    meaning = DEFAULT_VALUES.of_text(said)
    if meaning not in (0, 1):
        raise UsageError(f"header must be yes or no, not {said!r}")
    return meaning == 0


def _decoded(content: bytes, path: str, first_line: Callable[[], int]) -> str:
    """Return a text; DataError with the line where it is not UTF-8."""
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            "the text is not UTF-8",
            file=path,
            line=first_line() + content.count(b"\n", 0, error.start),
            value=content[error.start : error.start + 1],
            cure="convert the file, for example with iconv -f latin1 -t utf-8",
        ) from error


def _begins_with_comments(first: list[str], rest: str, delimiter: str) -> bool:
    """Return True if the first record is a comment, not a header row that begins with # (`#id,a,b`)."""
    if not first[0].startswith("#"):
        return False
    with contextlib.suppress(csv.Error):
        _, second = next(_records(rest, delimiter), (0, first))
        return second[0].startswith("#") or len(second) != len(first)
    return False


def _all_quoted(record: str, delimiter: str) -> bool:
    """Return True if every field of a record is in quotes."""
    return '"' in record and not re.sub('"[^"]*"', "", record).replace(delimiter, "").strip()


def _first_record(sample: bytes, path: str, *, tabs: bool) -> _FirstRecord:
    end = len(sample) - len(sample.removeprefix(_BOM))
    said = _SEPARATOR_LINE.match(sample, end)
    end = said.end() if said else end
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
    line = sample.count(b"\n", 0, start) + 1
    text = _decoded(sample[start:end], path, lambda: line)
    outside = re.sub('"[^"]*"', "", text)
    delimiter = "\t" if tabs else max(",;\t|", key=outside.count)
    if said:
        delimiter = said[1].decode()
    elif delimiter not in outside and " " in outside.strip():
        delimiter = " "
    _, fields = next(_records(text, delimiter))
    quoted = _all_quoted(text, delimiter)
    return _FirstRecord(delimiter, fields if quoted else [name.strip() for name in fields], quoted, line, start, end)


def _ignored_columns(sample: bytes, names: Sequence[str], delimiter: str, *, headerless: bool) -> dict[int, str]:
    """Return columns without a name that hold row numbers or nothing in the sample, and which of the two."""
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
        empty = {column for column in empty if is_missing(fields[column])}
        rows += 1
    # Two numbers of a table without a header could be labels.
    if rows < (3 if headerless else 1):
        return {}
    numbers = from_zero | from_one
    return dict.fromkeys(sorted(numbers), "row numbers") | dict.fromkeys(sorted(empty), _NOTHING)


def _is_row_of_numbers(fields: Sequence[str]) -> bool:
    """Return True if a first line holds data: numbers, not the column numbers that data frames write."""
    if not all(NUMBER.fullmatch(text) or is_missing(text) for text in fields):
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
    """Return the byte of the first quote that opens a field and is closed on a later line, by a quote that text
    follows.

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
    """Return the byte of the quote that is not closed where it should be, in a run of bytes that cannot be parsed."""
    quote = _swallowing_quote(block, delimiter)
    quotes = np.flatnonzero(np.frombuffer(block, np.uint8) == ord('"'))
    if quote is None and len(quotes) % 2:
        return _field_opening(block, quotes, len(quotes) // 2, delimiter)
    return quote


def _field_opening(block: bytes, quotes: NDArray[np.intp], pair: int, delimiter: str) -> int | None:
    """Return byte where the field begins that the quotes of a pair are in; None where these quotes begin no field."""
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
    """Return the first start of a record at or behind each target position, in a file whose records begin at
    `start`.
    """
    starts = []
    position, quotes = start, 0
    waiting = iter(targets)
    target = next(waiting, None)
    piece = bytearray(PIECE_BYTES)
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


def open_tsv(path: str, spec: FileSpec = DEFAULT_SPEC) -> CsvReader:
    """`open_csv` with tabs between fields, whatever the suffix."""
    return open_csv(path, spec, tabs=True)


def _head_of_csv(content: bytes, lines: list[str]) -> bool:
    words = lines[0].split() if lines else []
    has_blanks = len(words) > 1 and [len(line.split()) for line in lines[1:2]] == [len(words)]
    return bool(lines) and (has_blanks or any(mark in lines[0] for mark in ",;|"))


FORMATS = tuple(
    Format(
        name=name,
        title=title,
        open=open,
        suffixes=suffixes,
        keys=("categorical", "header"),
        head=head,
        order=order,
        in_place=lambda path: False,
        is_table=True,
    )
    for order, (name, title, open, suffixes, head) in enumerate(
        [
            (
                "tsv",
                "CSV with tabs",
                open_tsv,
                (".tsv", ".tab"),
                lambda content, lines: bool(lines) and "\t" in lines[0],
            ),
            ("csv", "CSV with a header row", open_csv, (".csv", ".raw", ".traw"), _head_of_csv),
        ],
        start=1,
    )
)
