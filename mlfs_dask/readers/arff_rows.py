"""Rows of an ARFF file, which compiled kernels tokenise (`tokens_compiled`); plain rows of small files need none.

This module resolves the rare values that the kernels set aside and words the errors. An uncompressed file is read in
byte ranges, each independently. Held while reading: a block of text and its numbers, about twice the batch size.
"""

from __future__ import annotations

import math
import re
import string
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.blocks import gates
from mlfs_dask.errors import DataError, number_of
from mlfs_dask.files.compressed_io import SourceFile
from mlfs_dask.readers import tokens
from mlfs_dask.readers.arff_header import (
    ArffHeader,
    Attribute,
    readable,
    unquote,
)
from mlfs_dask.readers.base import UNKNOWN_BYTES, Header, LabelSpec
from mlfs_dask.readers.classes import ClassColumn, joined_labels
from mlfs_dask.readers.label_values import MINUS_ONE, UNKNOWN, VALUES_CURE, LabelValues, zero_in_sparse
from mlfs_dask.readers.lines import NEWLINE, LineBlock, excerpt, line_error, line_from
from mlfs_dask.readers.sparse_rows import with_defaults, without_zeros
from mlfs_dask.readers.text import TextReader, number_from_text
from mlfs_dask.typing import Matrix

_FALSE_TRUE = (
    ("0", "1"),
    ("no", "yes"),
    ("n", "y"),
    ("false", "true"),
    ("f", "t"),
    ("off", "on"),
    ("-1", "1"),
    ("-1", "+1"),
    ("0.0", "1.0"),
)
_LABEL_NUMBERS = {
    "0": 0,
    "0.0": 0,
    "1": 1,
    "+1": 1,
    "1.0": 1,
    "-1": tokens.MINUS_ONE_CODE,
    "-1.0": tokens.MINUS_ONE_CODE,
}
# Room for values set aside, beyond one row of them.
_DEFERRED_ROWS = 1 << 12
# What values and codes of labels become; all others are missing.
_LABELS = {0.0: 0, 1.0: 1, -1.0: MINUS_ONE, float(tokens.MINUS_ONE_CODE): MINUS_ONE}
_MEANING_CODES = {0.0: 0, 1.0: 1, -1.0: tokens.MINUS_ONE_CODE}
_LABEL_CURE = (
    "labels are 0, 1, -1 or ? (unknown): correct the value, or name other attributes as labels; where they are "
    "classes, declare them in place of numeric, as in {1,2,3}, and say --label-classes"
)
# Bytes of rows that Python reads where the file is small, and how many of them at a time.
_PLAIN = (string.ascii_letters + string.digits + "+-.:;?,\r\n").encode()
_PLAIN_BYTES = 1 << 18
# A value as it stands in a dense row, for counting the values of a row that is too long.
_VALUE = re.compile(r"""(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|[^\s,'"][^\s,]*)""")


@dataclass(frozen=True)
class _Columns:
    """The attributes as the kernels want them, and all that errors need to know of them.

    `codes[v]` of declaration k stands for `values[v]`; attribute i uses declaration `declared[i]`.
    """

    attributes: list[Attribute]
    kinds: NDArray[np.uint8]
    declared: NDArray[np.int32]
    targets: NDArray[np.int32]
    declarations: list[tuple[tuple[bytes, ...], tuple[int, ...]]]
    nominals: tokens.Nominals
    default_features: dict[int, int]
    default_labels: dict[int, int]
    n_features: int
    n_labels: int
    classes: list[ClassColumn]
    plain_places: list[int]

    def name_of(self, target: int) -> str:
        """Return the name of the attribute that a kernel writes to a target."""
        return readable(self.attributes[int(np.flatnonzero(self.targets == target)[0])].name)

    @property
    def n_values(self) -> int:
        """Columns of the values that kernels read: features, and behind them codes of classes."""
        return self.n_features + len(self.classes)

    @cached_property
    def readers(self) -> dict[bytes, tuple[int, Callable[[bytes], float]]]:
        """Attributes by their index as text, each with a function from a plain value to its number or label; empty if
        one attribute has no such function.
        """
        readers: dict[bytes, tuple[int, Callable[[bytes], float]]] = {}
        for i, (kind, declaration, target) in enumerate(zip(self.kinds, self.declared, self.targets, strict=True)):
            values, codes = self.declarations[declaration] if kind == tokens.NOMINAL else ((), ())
            if target != tokens.IGNORED and (kind == tokens.OTHER or len(set(values)) < len(values)):
                return {}
            known: dict[bytes, float] = dict(zip(values, codes, strict=True))
            if target < 0 and kind == tokens.NUMERIC:
                known = {text.encode(): code for text, code in _LABEL_NUMBERS.items()}
            known[b"?"] = math.nan
            if target < 0:
                known = {value: _LABELS.get(code, UNKNOWN) for value, code in known.items()}
            read = known.__getitem__ if kind == tokens.NOMINAL or target < 0 else _plain_number
            readers[b"%d" % i] = i, len if target == tokens.IGNORED else read
        return readers

    def split(self, X: Matrix, Y: csr_array) -> tuple[Matrix, csr_array]:
        """Return features, and labels of all attributes in their order."""
        if not self.classes:
            return X, Y
        codes = X[:, self.n_features :]
        codes = codes if isinstance(codes, np.ndarray) else codes.toarray()
        found = [column.labels(codes[:, number]) for number, column in enumerate(self.classes)]
        columns = Y.tocsc()
        for number, place in enumerate(self.plain_places):
            found.insert(place, csr_array(columns[:, [number]]))
        return X[:, : self.n_features], joined_labels(found)


def _class_column(attribute: Attribute, spec: LabelSpec, path: str) -> ClassColumn | None:
    """Return the classes of a nominal label; None for a 0/1 label."""
    if not spec.classes or attribute.kind != "nominal":
        return None
    if spec.separator is None and _label_codes(attribute, spec.values) is not None:
        return None
    # Codes are places among the values, in the order declared: so are the texts of the column.
    values = tuple(map(readable, attribute.values))
    column = ClassColumn.of(readable(attribute.name), values, spec.separator, spec.values, file=path)
    return replace(column, texts=values)


def make_reader(
    source: SourceFile,
    header: ArffHeader,
    labels: list[int],
    dropped: set[int],
    spec: LabelSpec,
    *,
    missing: tuple[str, ...] = (),
) -> ArffReader:
    """Return the reader of a file whose labels are chosen.

    Parameters
    ----------
    source : SourceFile
    header : ArffHeader
    labels : list of int
        Attributes that are labels, in the order of the file.
    dropped : set of int
        Attributes to leave out.
    spec : LabelSpec
    missing : tuple of str
        Texts beside ? that stand for a missing value.

    Raises
    ------
    DataError
        An attribute can be neither feature nor label.
    """
    attributes, meaning = header.attributes, spec.values
    classes = {i: column for i in labels if (column := _class_column(attributes[i], spec, source.path)) is not None}
    plain = [i for i in labels if i not in classes]
    features = [i for i in range(len(attributes)) if i not in dropped.union(labels)]
    kinds = np.full(len(attributes), tokens.OTHER, dtype=np.uint8)
    declared = np.zeros(len(attributes), dtype=np.int32)
    targets = np.full(len(attributes), tokens.IGNORED, dtype=np.int32)
    targets[[*features, *classes]] = np.arange(len(features) + len(classes))
    targets[plain] = -1 - np.arange(len(plain))
    declarations: dict[tuple[tuple[bytes, ...], tuple[int, ...]], int] = {}
    categories: dict[int, tuple[str, ...]] = {}
    default_features: dict[int, int] = {}
    default_labels: dict[int, int] = {}
    for i in sorted((*features, *labels)):
        attribute, target, is_label = attributes[i], int(targets[i]), targets[i] < 0
        absent: float | None = 0.0  # what a sparse row leaves out: 0, or the value that is declared first
        if attribute.kind == "numeric":
            # The kernels know the numbers of labels where nothing else was said.
            kinds[i] = tokens.OTHER if is_label and not meaning.is_default else tokens.NUMERIC
            absent = meaning.zero if is_label else 0.0
        elif attribute.kind == "nominal":
            kinds[i] = tokens.NOMINAL
            codes = _label_codes(attribute, meaning) if is_label else _codes(attribute)
            if i in classes:
                codes = tuple(range(len(attribute.values)))
            if codes is None:
                raise DataError(
                    f"a label is numeric or {{0,1}}; this one is declared {_shown(attribute.values)}",
                    file=source.path,
                    line=attribute.line,
                    column=readable(attribute.name),
                    cure="if they are classes, say --label-classes: each is a label; or say what its values mean with "
                    "--labels-positive, --labels-negative and --labels-unknown; or name other attributes as labels",
                )
            values = tuple(v.encode("utf-8", "surrogateescape") for v in attribute.values)
            declared[i] = declarations.setdefault((values, codes), len(declarations))
            absent = 0.0 if i in classes else codes[0]
            if not is_label and i not in classes:
                by_code = sorted(range(len(codes)), key=codes.__getitem__)
                categories[target] = tuple(readable(attribute.values[v]) for v in by_code)
        elif is_label or attribute.kind == "string":
            raise DataError(
                f"a {attribute.kind} attribute can be no {'label' if is_label else 'feature'}",
                file=source.path,
                line=attribute.line,
                column=readable(attribute.name),
                cure="name other attributes as labels"
                if is_label
                else f"leave it out: --drop {readable(attribute.name)!r}",
            )
        if header.sparse and absent is None:
            raise zero_in_sparse(meaning, source.path)
        if header.sparse and absent is not None and absent != 0:
            (default_labels if is_label else default_features)[-1 - target if is_label else target] = (
                _LABELS.get(absent, UNKNOWN) if is_label else 1
            )
    if not features or not labels:
        raise DataError(
            f"{number_of(len(features), 'feature')} and {number_of(len(labels), 'label')} are left; at least one of "
            "each is needed",
            file=source.path,
            cure="check which attributes are labels, and --drop",
        )
    columns = _Columns(
        attributes=attributes,
        kinds=kinds,
        declared=declared,
        targets=targets,
        declarations=list(declarations),
        nominals=tokens.index_nominals(list(declarations)),
        default_features=default_features,
        default_labels=default_labels,
        n_features=len(features),
        n_labels=len(plain),
        classes=list(classes.values()),
        plain_places=[place for place, i in enumerate(labels) if i not in classes],
    )
    label_names = [
        name for i in labels for name in (classes[i].label_names if i in classes else (readable(attributes[i].name),))
    ]
    return ArffReader(
        header=Header(
            feature_names=tuple(readable(attributes[i].name) for i in features),
            label_names=tuple(label_names),
            categories=categories,
            n_features=len(features),
            n_labels=len(label_names),
        ),
        path=source.path,
        source=source,
        data_start=header.data_start,
        data_line=header.data_line,
        sparse=header.sparse,
        columns=columns,
        meaning=meaning,
        missing=missing,
    )


def _codes(attribute: Attribute) -> tuple[int, ...]:
    """Return the code of each declared value of a feature: 0 for false and 1 for true, else in the order declared."""
    values = tuple(value.lower() for value in attribute.values)
    for pair in _FALSE_TRUE:
        if set(values) == set(pair) and len(values) == 2:
            return tuple(pair.index(value) for value in values)
    return tuple(range(len(values)))


def _label_codes(attribute: Attribute, meaning: LabelValues) -> tuple[int, ...] | None:
    """Return the code of each declared value of a label; None where one means nothing."""
    if not meaning.is_default:
        found = [value for text in attribute.values if (value := meaning.of_text(text)) is not None]
        codes = tuple(_MEANING_CODES.get(value, tokens.UNKNOWN_CODE) for value in found)
        return codes if len(codes) == len(attribute.values) else None
    values = tuple(value.lower() for value in attribute.values)
    # A label that occurs in all rows or in none may be declared {1} or {0}.
    if all(value in _LABEL_NUMBERS for value in values):
        return tuple(_LABEL_NUMBERS[value] for value in values)
    return _codes(attribute) if any(set(values) == set(pair) for pair in _FALSE_TRUE) else None


def _shown(values: tuple[str, ...]) -> str:
    listed = ", ".join(readable(value) for value in values[:8])
    return f"{{{listed}{', ...' if len(values) > 8 else ''}}}"


@dataclass(kw_only=True)
class ArffReader(TextReader):
    """Rows of one ARFF file."""

    sparse: bool
    columns: _Columns
    meaning: LabelValues
    missing: tuple[str, ...] = ()

    def _rows(
        self, block: LineBlock, p: int, batch_bytes: int, report: NDArray[np.int64]
    ) -> Iterator[tuple[Matrix, csr_array, int]]:
        columns, n = self.columns, len(self.columns.attributes)
        lines = int(np.count_nonzero(block.data[p : block.length] == NEWLINE))
        unknown_bytes = UNKNOWN_BYTES * sum(len(column.classes) for column in columns.classes)
        if self.sparse:
            # An entry takes 4 bytes at least, and a row without repeats has n at most.
            room = label_room = (block.length - p) // 4 + n + 1
        else:
            lines = max(
                1, min(lines, block.length // (2 * n - 1), batch_bytes // (8 * columns.n_values + unknown_bytes))
            )
            room = lines * columns.n_values
            label_room = min(lines * columns.n_labels, block.length) + columns.n_labels
        bounds, label_bounds, row_starts = (np.empty(lines + 1, dtype=np.int64) for _ in range(3))
        features, values = np.empty(room if self.sparse else 0, dtype=np.int32), np.empty(room)
        labels, label_values = np.empty(label_room, dtype=np.int32), np.empty(label_room, dtype=np.int8)
        deferred = np.empty((n + _DEFERRED_ROWS, tokens.DEFERRED_FIELDS), dtype=np.int64)
        arrays = bounds, features, values, label_bounds, labels, label_values, row_starts
        if not self._read_plain(block, p, arrays, report):
            from mlfs_dask.readers.tokens_compiled import arff_rows

            arff_rows(
                block.data, p, block.length, self.sparse, columns.n_values, columns.kinds, columns.declared,
                columns.targets, columns.nominals, *arrays, deferred, report,
            )  # fmt: skip
            self._resolve(block, deferred, report, values, label_values)
        rows = int(report[tokens.ROWS])
        row_starts[rows] = report[tokens.POSITION]
        how: dict[str, Any] = {
            "in_order": not report[tokens.UNSORTED],
            "problem": "an attribute may stand only once in a sparse row",
        }
        Y = self._sorted_rows(
            block, row_starts, label_bounds[: rows + 1], labels, label_values, columns.n_labels,
            name_of=lambda label: columns.name_of(-1 - label), **how,
        )  # fmt: skip
        X: Matrix = values.reshape(-1, columns.n_values)[:rows] if not self.sparse else self._sorted_rows(
            block, row_starts, bounds[: rows + 1], features, values, columns.n_values, name_of=columns.name_of, **how,
        )  # fmt: skip
        self._check(block, report)
        # Values absent that mean 1 are written out: a few rows at a time, for they may be many.
        filled = 16 * (len(columns.default_features) + len(columns.default_labels))
        filled += unknown_bytes if self.sparse else 0
        step = max(1, batch_bytes // filled) if filled else max(rows, 1)
        for first in range(0, rows, step):
            last = min(first + step, rows)
            some: Matrix = X[first:last]
            if not isinstance(some, np.ndarray):
                some = without_zeros(with_defaults(some, columns.default_features))
            some_labels = without_zeros(with_defaults(Y[first:last], columns.default_labels))
            yield *columns.split(some, some_labels), int(row_starts[first])

    def _read_plain(
        self, block: LineBlock, p: int, arrays: tuple[NDArray[Any], ...], report: NDArray[np.int64]
    ) -> bool:
        """Do the work of the kernel for some rows of a small file, if they have no quotes, comments or faults.

        The kernel takes seconds to compile, and half a second to load. Arguments are those of the kernel, `arrays`
        those from `bounds` to `row_starts`.

        Returns
        -------
        bool
            Whether the rows are read; False leaves them to the kernel.
        """
        bounds, features, values, label_bounds, labels, label_values, row_starts = arrays
        readers, width, n = self.columns.readers, self.columns.n_values, len(self.columns.attributes)
        text, plain = block.data[p : min(block.length, p + _PLAIN_BYTES)].tobytes(), _PLAIN + b"{} " * self.sparse
        lines = text.split(b"\n")[:-1][: len(row_starts) - 1]
        if self.source.size << 3 * bool(self.source.compression) > gates.COMPILED_TEXT or not (readers and lines):
            return False
        if text.replace(b", ", b",").translate(None, plain):
            return False
        attributes: list[int] = []
        read: list[float] = []
        ends = [0]
        try:
            for line in lines:
                row = line.strip().replace(b", ", b",")
                if row:
                    row_starts[len(ends) - 1] = p
                    if not self.sparse:
                        of_row = zip(readers.values(), row.split(b","), strict=True)
                        read += [number(value) for (_, number), value in of_row]
                    elif row[:1] + row[-1:] != b"{}" or row.count(b"{") + row.count(b"}") > 2:
                        return False
                    else:
                        for entry in row[1:-1].split(b",") if len(row) > 2 else ():
                            index, value = entry.split(b" ")
                            attribute, number = readers[index]
                            attributes.append(attribute)
                            read.append(number(value))
                    ends.append(len(read))
                p += len(line) + 1
        except (KeyError, ValueError):
            return False
        numbers, rows = np.array(read), len(ends) - 1
        if np.isinf(numbers).any():
            return False
        attribute_of = np.array(attributes, np.int64) if self.sparse else np.tile(np.arange(n), rows)
        row_of, target = np.repeat(np.arange(rows), np.diff(ends)), self.columns.targets[attribute_of]
        own, of_label = target >= 0, (target < 0) & (target != tokens.IGNORED) & (self.sparse | (numbers != 0))
        if self.sparse:
            _write_entries(row_of[own], target[own], numbers[own], bounds[: rows + 1], features, values)
        else:
            values.reshape(-1, width)[row_of[own], target[own]] = numbers[own]
        entries = -1 - target[of_label], numbers[of_label]
        _write_entries(row_of[of_label], *entries, label_bounds[: rows + 1], labels, label_values)
        report[: tokens.WEIGHTS] = 0
        report[[tokens.POSITION, tokens.ROWS, tokens.LINES]] = p, rows, len(lines)
        report[tokens.UNSORTED] = (np.diff(row_of * n + attribute_of) <= 0).any()
        return True

    def _resolve(
        self,
        block: LineBlock,
        deferred: NDArray[np.int64],
        report: NDArray[np.int64],
        features: NDArray[np.float64],
        label_values: NDArray[np.int8],
    ) -> None:
        """Write the values that the kernel set aside, or refuse the first that has no meaning."""
        codes: dict[int, dict[str, int]] = {}
        for start, stop, i, place in deferred[: report[tokens.DEFERRED]].tolist():
            token = bytes(block.data[start:stop]).decode("utf-8", "surrogateescape")
            declaration = int(self.columns.declared[i])
            if self.columns.kinds[i] == tokens.NOMINAL and declaration not in codes:
                values, value_codes = self.columns.declarations[declaration]
                decoded = (value.decode("utf-8", "surrogateescape") for value in values)
                codes[declaration] = dict(zip(decoded, value_codes, strict=True))
            known = codes.get(declaration, {})
            meaning = self.meaning if place < 0 else None
            if token in self.missing and token not in known:
                problem, value, cure = "", math.nan, ""
            else:
                problem, value, cure = _value_of(token, self.columns.attributes[i], known, meaning)
            if problem:
                raise line_error(
                    self.source,
                    block,
                    start,
                    problem,
                    column=readable(self.columns.attributes[i].name),
                    value=excerpt(token),
                    cure=cure,
                )
            if place >= 0:
                features[place] = value
            else:
                label_values[-1 - place] = _LABELS.get(value, UNKNOWN)

    def _check(self, block: LineBlock, report: NDArray[np.int64]) -> None:
        """Raise DataError where a row stopped the kernel."""
        status, p, count = (int(report[field]) for field in (tokens.STATUS, tokens.POSITION, tokens.COUNT))
        if status == tokens.DONE or (status == tokens.FULL and report[tokens.ROWS]):
            return
        n = len(self.columns.attributes)
        rest = line_from(block, p)
        line, name = excerpt(rest) or None, readable(self.columns.attributes[max(count, 0)].name)
        form, other = ("sparse", "dense") if self.sparse else ("dense", "sparse")
        column = value = None
        if status == tokens.FULL:
            problem = f"a sparse row has at most {n} entries, this one has more"
            cure = "keep one value of each attribute"
        elif status == tokens.NOT_A_ROW:
            problem, value = f"the first row is {form}, this one is {other}", line
            cure = "write all rows in one form" + (", {index value, index value}" if self.sparse else "")
        elif not self.sparse and status == tokens.EMPTY_VALUE:
            problem, column = "a value was expected, nothing stands here", name
            cure = "write ? for a missing value"
        elif not self.sparse and status == tokens.NOT_CLOSED:
            problem, column, value = "a comma was expected after the value", name, line
            cure = "put quotes around the whole value"
        elif not self.sparse:
            if status == tokens.TOO_MANY:
                count = n + max(len(_VALUE.findall(rest)), 1)  # after the last comma may be nothing
            problem = f"a row of {n} values was expected, this one has {count}"
            cure = "correct the row: look for lost or doubled commas and values with blanks but no quotes"
        elif status == tokens.TOO_MANY:
            problem, value, cure = "nothing but a weight {number} may follow the row's }", line, "correct the row"
        elif line is None:
            problem, cure = "the row ends without }", "correct the row, or fetch the file again"
        elif status == tokens.BAD_INDEX:
            problem, value = f"an attribute index from 0 to {n - 1} was expected", line
            cure = "correct the row: indices count from 0, labels included"
        else:
            what, after = ("a value", "index") if status == tokens.EMPTY_VALUE else ("a comma or }", "value")
            problem, column, value = f"{what} was expected after the {after}", name, line
            cure = "write {index value, index value}, with quotes around values that hold blanks"
        raise line_error(self.source, block, p, problem, column=column, value=value, cure=cure)


def _plain_number(text: bytes) -> float:
    return math.nan if text == b"?" else float(text)


def _write_entries(
    row_of: NDArray[np.int64],
    columns: NDArray[np.int32],
    numbers: NDArray[np.float64],
    bounds: NDArray[np.int64],
    indices: NDArray[np.int32],
    values: NDArray[Any],
) -> None:
    """Write entries, given row by row, as CSR arrays."""
    bounds[0] = 0
    np.cumsum(np.bincount(row_of, minlength=len(bounds) - 1), out=bounds[1:])
    indices[: len(columns)], values[: len(columns)] = columns, numbers


def _value_of(
    token: str, attribute: Attribute, codes: dict[str, int], meaning: LabelValues | None
) -> tuple[str, float, str]:
    """(problem or "", value, cure) of a token that a kernel did not finish; `meaning` of the values of a label."""
    text = unquote(token)
    if text is None:
        return "the quote is not closed", 0.0, "close it; inside a value write \\' for a quote"
    if attribute.kind == "nominal":
        if text in codes:
            return "", codes[text], ""
        return (
            f"the value is not among those declared in line {attribute.line}, {_shown(attribute.values)}",
            0.0,
            "declare it there, or write ? if it is unknown",
        )
    if attribute.kind == "date":
        try:
            moment = datetime.strptime(text, attribute.date_format)
        except ValueError:
            return (
                f"a date like {datetime(2001, 2, 3, 4, 5, 6).strftime(readable(attribute.date_format))} was expected",
                0.0,
                f"correct it, or the format in line {attribute.line}",
            )
        return "", (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp(), ""
    number = number_from_text(text)
    if meaning is not None and meaning.is_default:
        if number is None or (number not in (0.0, 1.0, -1.0) and not math.isnan(number)):
            return "a label is 0 or 1", 0.0, _LABEL_CURE
    elif meaning is not None:
        number = meaning.of_text(text)
        if number is None:
            return f"a label is {meaning.described()}", 0.0, VALUES_CURE
    elif number is None:
        return "a number was expected", 0.0, "write ? for a missing value, or declare the attribute nominal"
    elif math.isinf(number):
        return "a finite number was expected", 0.0, "write ? if the value is missing"
    return "", number, ""
