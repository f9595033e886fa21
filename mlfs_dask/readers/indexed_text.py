"""Rows of `label,label index:value index:value ...`: what svmlight and XMLC text have in common.

A line that begins with a blank has no labels; a line with nothing on it, or nothing but a comment, is no
row. Unordered features are sorted and one that stands twice is an error; a label that stands twice counts
once.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError, parameter
from mlfs_dask.files.compressed_io import PIECE_BYTES
from mlfs_dask.files.limits import COLUMN_BYTES
from mlfs_dask.readers import tokens
from mlfs_dask.readers.base import UNKNOWN_BYTES, Batch, LabelSpec, Part
from mlfs_dask.readers.classes import MAX_CATEGORIES, ClassColumn, text_of_number
from mlfs_dask.readers.label_values import UNKNOWN, LabelValues
from mlfs_dask.readers.lines import NEWLINE, LineBlock, excerpt, line_error, line_from, line_number
from mlfs_dask.readers.sparse_rows import with_defaults, without_zeros
from mlfs_dask.readers.text import TextReader, number_from_text

_UNBOUNDED = 1 << 31


def fills_unknown(labels: LabelSpec, n_labels: int | None, path: str) -> bool:
    """Return True if labels that a row does not list are unknown.

    Raises
    ------
    UsageError
        Labels that are listed are not positive, or nothing tells how many labels there are.
    """
    values = labels.values
    if values.is_default:
        return False
    if values.of_text("1") != 1.0 or values.zero is None or values.zero == 1.0:
        raise UsageError(
            f"{path}: labels that a row lists are positive here (1), and others negative or unknown (0)\n"
            "  cure: say --labels-unknown 0 if they are unknown"
        )
    if values.zero_is_unknown and n_labels is None:
        raise UsageError(
            f"{path}: the number of unknown labels of a row that does not list them is not known\n"
            "  cure: say how many labels there are, with --n-labels"
        )
    return values.zero_is_unknown


class _Rows(NamedTuple):
    """Rows of a block; `starts` are the bytes at which they begin, and the byte behind the last."""

    X: csr_array
    Y: csr_array
    starts: NDArray[np.int64]
    classes: NDArray[np.float64]


#: The column that the class of a row is in, where labels are named after it.
CLASS = "class"


@dataclass(kw_only=True)
class IndexedTextReader(TextReader):
    """Rows of one file. Where the header has no widths, those of a batch are what the rows read so far show."""

    feature_base: int
    base_cure: str
    fills_unknown: bool = False
    every_line: bool = False
    classes: ClassColumn | None = None
    may_have_classes: bool = False

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of the rows that begin in `part`. See `TextReader.read`.

        Raises
        ------
        DataError
            Also when the whole file is read from its beginning and its number of rows is not the one it declares.
        """
        n_features, n_labels, n = self.header.n_features or 0, self.header.n_labels or 0, 0
        for batch in super().read(part, batch_bytes=batch_bytes):
            X, Y = batch.X, batch.Y
            assert isinstance(X, csr_array)
            n_features, n_labels = max(n_features, X.shape[1]), max(n_labels, Y.shape[1])
            X.resize((X.shape[0], n_features))
            Y.resize((Y.shape[0], n_labels))
            n += X.shape[0]
            yield batch
        declared, whole = self.header.n_rows, part.start == self.data_start and part.stop is None
        if declared is not None and whole and n != declared:
            raise DataError(
                f"the header declares {declared} rows, the file has {n}",
                file=self.path,
                line=1,
                cure="correct the header, or fetch the file again: it may be cut off",
            )

    def _rows(
        self, block: LineBlock, p: int, batch_bytes: int, report: NDArray[np.int64]
    ) -> Iterator[tuple[csr_array, csr_array, int]]:
        rows = self._parsed(block, p, report)
        if rows is None:
            return
        X, Y, starts = rows.X, rows.Y, rows.starts
        step, n_labels = X.shape[0], self.header.n_labels or 0
        if self.fills_unknown:  # labels that are not listed are written out: a few rows at a time
            step = max(1, batch_bytes // (UNKNOWN_BYTES * n_labels))
            Y.resize((Y.shape[0], n_labels))
        for first in range(0, X.shape[0], step):
            last = min(first + step, X.shape[0])
            labels = Y[first:last]
            if self.fills_unknown:
                labels = with_defaults(labels, dict.fromkeys(range(n_labels), UNKNOWN))
            yield X[first:last], labels, int(starts[first])

    def _parsed(self, block: LineBlock, p: int, report: NDArray[np.int64]) -> _Rows | None:
        """Return the rows from `p` on; None where there is none."""
        lines = int(np.count_nonzero(block.data[p : block.length] == NEWLINE))
        # The shortest entries, malformed ones included, are `1: ` and `1,`.
        capacity = (block.length - p) // 3 + 2
        bounds = np.empty(lines + 1, dtype=np.int64)
        features = np.empty(capacity, dtype=np.int32)
        values = np.empty(capacity)
        label_bounds = np.empty(lines + 1, dtype=np.int64)
        labels = np.empty(2 * capacity + 1, dtype=np.int32)
        label_values = np.empty(len(labels), dtype=np.int8)
        classes = np.empty(0 if self.classes is None else lines + 1)
        row_starts = np.empty(lines + 2, dtype=np.int64)
        deferred = np.empty((capacity, tokens.DEFERRED_FIELDS), dtype=np.int64)
        limits = [_UNBOUNDED if n is None else n for n in (self.header.n_features, self.header.n_labels)]
        from mlfs_dask.readers.tokens_compiled import svmlight_rows

        svmlight_rows(
            block.data, p, block.length, self.feature_base, limits[0], limits[1], self.every_line, bounds,
            features, values, label_bounds, labels, label_values, classes, row_starts[:-1], deferred, report,
        )  # fmt: skip
        for start, stop, index, place in deferred[: report[tokens.DEFERRED]].tolist():
            values[place] = self._number(block, start, stop, index)
        rows = int(report[tokens.ROWS])
        if not rows:
            self._check(block, report)
            return None
        entries, label_entries = int(bounds[rows]), int(label_bounds[rows])
        self._check_widths(
            block,
            row_starts,
            (label_bounds[: rows + 1], labels[:label_entries]),
            (bounds[: rows + 1], features[:entries]),
        )
        X = without_zeros(
            self._sorted_rows(
                block,
                row_starts,
                bounds[: rows + 1],
                features,
                values,
                int(features[:entries].max(initial=-1)) + 1,
                in_order=not report[tokens.UNSORTED] & 1,
                problem="a feature may stand only once in a row",
                name_of=lambda feature: feature + self.feature_base,
            )
        )
        if self.classes is None:
            Y = csr_array(
                (label_values[:label_entries], labels[:label_entries], label_bounds[: rows + 1]),
                shape=(rows, int(labels[:label_entries].max(initial=-1)) + 1),
            )
            if report[tokens.UNSORTED] & 2:
                Y.has_canonical_format = False
                Y.sum_duplicates()
                Y.data[:] = 1
            Y.has_canonical_format = True
        else:
            assert self.classes is not None
            Y = self.classes.labels(self.classes.codes_of_numbers(classes[:rows]))
        self._check(block, report)
        row_starts[rows] = report[tokens.POSITION]
        return _Rows(X, Y, row_starts, classes[:rows])

    # ---- a class of each row in place of its labels

    @property
    def class_columns(self) -> dict[str, ClassColumn]:
        """Name -> column of classes that was found in the rows."""
        return {} if self.classes is None else {self.classes.name: self.classes}

    def with_classes(self, columns: Mapping[str, ClassColumn]) -> IndexedTextReader:
        """Return the same file with these classes, those of other files or of a store among them."""
        if self.classes is None:
            return self
        column = columns.get(self.classes.name, self.classes)
        names = column.label_names
        return replace(self, classes=column, header=replace(self.header, label_names=names, n_labels=len(names)))

    def found_classes(self, values: LabelValues) -> IndexedTextReader:
        """Return the same file, whose rows begin with a class; one pass over it finds all of them."""
        reader = replace(self, classes=ClassColumn.of(CLASS, (), None, values, file=self.path))
        found: set[float] = set()
        for block, p, report in reader._unread(self.data_start, None, PIECE_BYTES):
            rows = reader._parsed(block, p, report)
            if rows is not None:
                found.update(np.unique(rows.classes[~np.isnan(rows.classes)]).tolist())
            if len(found) > MAX_CATEGORIES:
                break
        texts = map(text_of_number, found)
        column = ClassColumn.of(CLASS, texts, None, values, file=self.path)
        return reader.with_classes({CLASS: column})

    def _check_widths(
        self,
        block: LineBlock,
        row_starts: NDArray[np.int64],
        labels: tuple[NDArray[np.int64], NDArray[np.int32]],
        features: tuple[NDArray[np.int64], NDArray[np.int32]],
    ) -> None:
        """Refuse a number that makes more columns than memory has room for, while its line is known."""
        limit = runtime.memory_limit()
        more = f"or give more memory with {parameter('memory_limit')}"
        for (bounds, numbers), declared in ((labels, self.header.n_labels), (features, self.header.n_features)):
            top = int(numbers.max(initial=-1))
            projected = COLUMN_BYTES * (top + 1)
            if declared is not None or projected <= limit:
                continue
            place = int(row_starts[np.searchsorted(bounds, int(numbers.argmax()), side="right") - 1])
            if numbers is labels[1]:
                raise line_error(
                    self.source,
                    block,
                    place,
                    f"labels are numbers from 0, and so many would take {projected >> 20:,} MiB of memory, "
                    f"of which there are {limit >> 20:,}",
                    value=top,
                    cure=f"correct the row, number the labels anew, {more}{self._offer_classes}",
                )
            raise DoesNotFitError(
                f"{self.path}, line {line_number(self.source, block.offset + place)}: "
                f"{top + 1:,} features, for the index {top + self.feature_base}",
                projected=projected,
                available=limit,
                cure=f"correct the row, number the features anew, {more}",
            )

    def _number(self, block: LineBlock, start: int, stop: int, index: int) -> float:
        text = bytes(block.data[start:stop]).decode("utf-8", "replace")
        number = number_from_text(text)
        if number is None or math.isinf(number):
            raise line_error(
                self.source,
                block,
                start,
                f"a {'number' if number is None else 'finite number'} was expected",
                column=index + self.feature_base,
                value=excerpt(text),
                cure="write index:value pairs with blanks between them, nan for a missing value",
            )
        return number

    def _check(self, block: LineBlock, report: NDArray[np.int64]) -> None:
        status, p = int(report[tokens.STATUS]), int(report[tokens.POSITION])
        if status in (tokens.DONE, tokens.FULL):
            return
        if status == tokens.BAD_LABEL:
            # The whole number is shown, not what is left of it where its digits end.
            while p > 0 and block.data[p - 1] not in b"\n, \t":
                p -= 1
        text = line_from(block, p)
        text = "" if text[:1].isspace() else text.partition(" ")[0].partition("\t")[0]
        if status == tokens.BAD_LABEL:
            raise self._bad_label(text, block, p)
        index = text.partition(":")[0]
        base = self.feature_base
        if ":" in text and index.isascii() and index.isdigit():
            if base and not index.strip("0"):  # no number of Python's, which have at most 4 300 digits
                problem, cure = "feature 0 came, but features count from 1", self.base_cure
            elif self.header.n_features is not None:
                top = self.header.n_features - 1 + base
                problem = f"a feature index from {base} to {top} was expected"
                cure = f"correct the row or the declared number of features; {self.base_cure}"
            else:
                problem = f"a feature index below {_UNBOUNDED - 1} was expected"
                cure = "number the features anew"
        else:
            problem, cure = "a pair index:value was expected", "correct the row"
        raise line_error(self.source, block, p, problem, value=excerpt(text), cure=cure)

    @property
    def _offer_classes(self) -> str:
        if not self.may_have_classes:
            return ""
        return (
            "; or, if each row begins with its class (-1 and +1; 1.0, 2.0, 3.0), say --label-classes: each is a label"
        )

    def _bad_label(self, text: str, block: LineBlock, p: int) -> DataError:
        number = number_from_text(text)
        if self.every_line and self.header.n_rows is None:
            problem, cure = "pairs index:value alone were expected", "the labels are in a file of their own"
        elif self.classes is not None:
            problem, cure = "the class of the row, a number, was expected", "begin a row without a class with a blank"
        elif text.isascii() and text.isdigit() and self.header.n_labels is None:
            problem = f"label numbers from 0 below {_UNBOUNDED - 1} were expected"
            cure = "number the labels anew" + self._offer_classes
        else:
            last = "" if self.header.n_labels is None else f" to {self.header.n_labels - 1}"
            problem = f"label numbers from 0{last} with commas between them were expected"
            cure = "write the positive labels as 1,3,5; begin a row without labels with a blank"
            if number is not None and not text.isdigit():
                problem = f"label numbers from 0{last} were expected, and this is none"
                cure = cure + self._offer_classes
            elif text.rpartition(":")[0].isdigit():
                problem += ", and none follows the comma"
        return line_error(self.source, block, p, problem, value=excerpt(text) or None, cure=cure)
