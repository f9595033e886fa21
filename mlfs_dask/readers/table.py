"""Rows of Arrow batches: what CSV, TSV, Parquet and Feather have in common.

A format opens a file, names its columns and gives batches; codes of texts, classes and labels are made here. The codes
of a column of texts are the order of the distinct texts of the whole file, found by one pass over such columns, so
that they are the same for any size of batches, any split into parts and any order of rows.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import math
import re
from abc import abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NoReturn, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError
from mlfs_dask.files.limits import require_memory
from mlfs_dask.readers.base import (
    UNKNOWN_BYTES,
    FileSpec,
    Header,
    LabelSpec,
    Reader,
    damaged,
    sort_categories,
)
from mlfs_dask.readers.classes import MAX_CATEGORIES, ClassColumn, CodedLabels, joined_labels
from mlfs_dask.readers.label_columns import find_column, find_columns, split_columns
from mlfs_dask.readers.label_table import LabelTable
from mlfs_dask.readers.label_values import DEFAULT_VALUES, LabelValues, bad_label, is_missing, label_block
from mlfs_dask.redaction import redact

logger = logging.getLogger(__name__)

Place = Callable[[int], dict[str, Any]]
"""From a row of some batches to what a DataError says of it: its line, or its number."""

FLOAT64: np.dtype[Any] = np.dtype(np.float64)

#: A plain number, as Arrow reads it.
NUMBER = re.compile(r"\s*[+-]?((\d+\.?\d*|\.\d+)([eE][+-]?\d+)?|inf(inity)?|nan)\s*", re.IGNORECASE)
#: A number as people write it: a sign, a sign of money, digits with marks between groups of three, a unit or %.
_WRITTEN = re.compile(
    r"(?P<sign>[+\-\u2212]?)\s*(?P<money>([A-Z]{0,3}[$\u20ac\u00a3\u00a5\u20b9\u20a9\u20bd\u20ba\u20aa])?)\s*"
    r"(?P<inner>[+\-\u2212]?)(?P<digits>[.,]?\d[\d.,_'\u2019\u00a0\u202f ]*?)(?P<power>[eEdD][+-]?\d+)?"
    r"\s*(?P<unit>([^\d\s.,:/+\-\u2212<>()_'\u2019][^\d]*)?)",
    re.ASCII,
)
#: Marks between groups of three digits and before the fraction: as in the file first, then the others.
_MARKS = [("", "."), *((group, ".") for group in ",_'\u2019\u00a0\u202f "), ("", ","), (".", ","), (" ", ",")]
_FEW, _STRAY = 50, 0.1
"""A column of at least so many different values, of which at most this share are no numbers, holds no categories."""
#: So many rows, each with a text of its own, make a column that says nothing about other rows.
IDENTIFYING_ROWS = 20

T = TypeVar("T", bound="TableReader")


@dataclass(frozen=True, kw_only=True)
class TableReader(Reader):
    """One table.

    Attributes
    ----------
    header : Header
    path : str
    dtype : dtype
        Of X where it is not asked for as float64.
    ordered : frozenset of int
        Features whose categories are in the order that the file gives.
    """

    header: Header
    path: str
    _names: tuple[str, ...]
    _features: tuple[int, ...]
    _labels: tuple[int, ...]
    _texts: frozenset[int] = frozenset()
    _meaning: LabelValues = DEFAULT_VALUES
    _classes: Mapping[int, CodedLabels] = field(default_factory=dict)
    _codes: Mapping[int, Mapping[str, float]] = field(default_factory=dict)
    _names_column: int = 0
    _decimal: str = "."
    _counts: Mapping[int, tuple[float, float]] = field(default_factory=dict)
    dtype: np.dtype[Any] = FLOAT64
    ordered: frozenset[int] = frozenset()

    @property
    def nonzeros(self) -> int:  # type: ignore[override]
        """See `Reader`."""
        return (self.header.n_rows or 0) * len(self._features)

    def only_labels(self: T) -> T:
        """See `Reader`."""
        return replace(self, header=self.header.labels_only(), _features=())

    @abstractmethod
    def _arrow_name(self, column: int) -> str:
        """Return the name of a column in Arrow's batches."""

    @abstractmethod
    def _text_batches(self, columns: Sequence[int]) -> Iterator[Any]:
        """Yield Arrow batches of the whole file with some columns, or one after the other with each."""

    # ---- values

    def _row_bytes_held(self, width: int) -> int:
        """Return the bytes of a row of some columns while its labels are written out."""
        return 8 * width + UNKNOWN_BYTES * sum(len(column.label_names) for column in self._classes.values())

    def _matrices(self, batches: Sequence[Any], place: Place) -> tuple[NDArray[Any], csr_array]:
        """Return features, of type `dtype`, and labels of some batches."""
        X = self._values(batches, self._features, place, self.dtype)
        return X, self._label_matrix(self._label_values(batches, place), place)

    def _label_values(self, batches: Sequence[Any], place: Place) -> NDArray[Any]:
        """Return the numbers of the labels: int8 where they can be, an eighth of what has to be looked through."""
        import pyarrow as pa

        plain = self._meaning.is_default and not self._texts.intersection(self._labels)
        if len(batches) == 1 and plain and self._labels:
            columns = batches[0].select(list(map(self._arrow_name, self._labels)))
            if not any(column.null_count for column in columns.columns):
                with contextlib.suppress(pa.ArrowInvalid):  # another number, which a message has to show
                    small: NDArray[np.int8] = _numbers(columns, np.dtype(np.int8), safe=True)
                    return small
        return self._values(batches, self._labels, place)

    def _label_matrix(self, values: NDArray[np.float64], place: Place) -> csr_array:
        if self._classes:
            columns = [self._classes[column] for column in self._labels]
            return joined_labels([column.labels(values[:, at]) for at, column in enumerate(columns)])
        return label_block(values, names=self._label_names, file=self.path, place=place)

    @property
    def _label_names(self) -> list[str]:
        return [self._names[column] for column in self._labels]

    def _values(
        self,
        batches: Sequence[Any],
        columns: Sequence[int],
        place: Place,
        dtype: np.dtype[Any] = FLOAT64,
    ) -> NDArray[Any]:
        """Return the numbers of some columns, shape (rows, columns): codes of texts and what labels mean, NaN where
        missing.
        """
        translated = self._texts if self._meaning.is_default else self._texts.union(self._labels)
        if len(batches) == 1 and columns and not translated.intersection(columns):
            numbers: NDArray[Any] = _numbers(batches[0].select(list(map(self._arrow_name, columns))), dtype)
            return numbers
        values = np.empty((sum(batch.num_rows for batch in batches), len(columns)), dtype)
        numeric = [at for at, column in enumerate(columns) if column not in self._texts]
        names = [self._arrow_name(columns[at]) for at in numeric]
        row = 0
        for batch in batches:
            rows = values[row : row + batch.num_rows]
            if numeric:
                # Columns on end are copied several times as fast as a list of them.
                on_end = numeric[-1] - numeric[0] + 1 == len(numeric)
                rows[:, slice(numeric[0], numeric[-1] + 1) if on_end else numeric] = _numbers(
                    batch.select(names), dtype
                )
            for at, column in enumerate(columns):
                if column in translated:
                    array = batch.column(self._arrow_name(column))
                    rows[:, at] = self._translated(array, rows[:, at], column, row, place)
            row += batch.num_rows
        return values

    def _translated(
        self, array: Any, numbers: NDArray[np.float64], column: int, row: int, place: Place
    ) -> NDArray[np.float64]:
        """Return the codes of texts or what labels mean, of a column whose numbers are read."""
        import pyarrow as pa

        def refuse(at: int) -> NoReturn:
            value, label = array[at].as_py(), self._labels.index(column)
            meaning, names = self._meaning, self._label_names
            bad_label(value, label, names=names, file=self.path, meaning=meaning, **place(row + at))

        if column not in self._texts:
            return self._meaning.of_numbers(numbers, refuse)
        array = array if hasattr(array, "dictionary") else array.dictionary_encode()
        texts = [as_text(text) for text in array.dictionary.to_pylist()]
        codes = self._classes[column].codes if column in self._classes else self._codes.get(column)
        # A dictionary may hold more texts than the rows have.
        lacking = math.nan if column in self._classes and not self._classes[column].has_all else None
        found = [
            self._meaning.of_text(text) if codes is None else codes.get(text, math.nan if is_missing(text) else lacking)
            for text in texts
        ]
        found.append(self._meaning.of_text("NA") if codes is None else np.nan)
        table = np.array([np.inf if number is None else number for number in found])
        # `to_numpy` of an array loads pandas: 60 MiB that no plan knows of.
        numbers = _numbers(pa.RecordBatch.from_arrays([array.indices], names=["codes"]), FLOAT64)[:, 0]
        places = np.where(np.isnan(numbers), len(texts), numbers).astype(np.int64)
        values: NDArray[np.float64] = table[places]
        wrong = np.flatnonzero(np.isinf(values))
        if wrong.size and codes is None:
            refuse(int(wrong[0]))
        if wrong.size:
            raise damaged(
                "a text that the first pass over the column did not find: the file was changed, or is damaged",
                self.path,
                column=self._names[column],
                value=texts[places[wrong[0]]],
            )
        return values

    # ---- categories and classes

    def distinct(self, features: Iterable[int]) -> dict[int, set[str]]:
        """Return the different texts of some features; one pass over the file or over those columns."""
        columns = {feature: self._features[feature] for feature in features}
        texts, _ = self._distinct_texts(tuple(columns.values()))
        return {feature: texts[column] for feature, column in columns.items()}

    def _distinct_texts(self, columns: Sequence[int]) -> tuple[dict[int, set[str]], dict[int, float]]:
        """Return the different texts of some columns, and rows that have one: infinity where each of very many has
        its own.
        """
        import pyarrow.compute as pc

        texts: dict[int, set[str]] = {column: set() for column in columns}
        filled: dict[int, float] = dict.fromkeys(columns, 0)
        column_of = {self._arrow_name(column): column for column in columns}
        for batch in self._text_batches(columns) if columns else ():
            for name, array in zip(batch.schema.names, batch.columns, strict=True):
                column = column_of[name]
                found = texts[column]
                if math.isinf(filled[column]):
                    continue
                # Arrow ends the process where it gets no memory for the different ones, of which Python has a copy.
                require_memory(f"{self.path}: the texts of column {name!r}", 3 * array.nbytes)
                for counted in pc.value_counts(array).to_pylist():
                    if counted["values"] is not None and not is_missing(text := as_text(counted["values"])):
                        found.add(text)
                        filled[column] += counted["counts"]
                if len(found) > MAX_CATEGORIES:
                    if len(found) == filled[column] and column not in self._labels:
                        found.clear()
                        filled[column] = math.inf
                        continue
                    raise self._too_many_texts(column, found)
        return texts, filled

    def too_many_texts(self, feature: int) -> DataError:
        """Return the error of a feature with more texts than categories can be."""
        return self._too_many_texts(self._features[feature], ())

    def _too_many_texts(self, column: int, texts: Collection[str]) -> DataError:
        marked = 2 * sum(_WRITTEN.fullmatch(text) is not None for text in texts) > len(texts)
        return DataError(
            f"a categorical column may hold {MAX_CATEGORIES:,} different texts, and this one holds more",
            file=self.path,
            column=self._names[column],
            cure=f"write plain numbers, without marks as in {min(texts)!r}"
            if marked
            else "leave it out with --drop (an identifier or free text is no feature), or code it",
        )

    def with_found_texts(self: T, features: Sequence[int], *, asked: Collection[int] = ()) -> T:
        """Return the same file, with these features read as categories, or as numbers where all their texts write
        numbers.

        One pass over these columns. `asked` are features said to be categories.
        """
        texts, filled = self._distinct_texts([self._features[feature] for feature in features])
        codes: dict[int, Mapping[str, float]] = dict(self._codes)
        categories: dict[int, list[str]] = {}
        for feature in features:
            column = self._features[feature]
            numbers = None if feature in asked else self._numbers_written(column, texts[column])
            if numbers is None:
                categories[feature] = sort_categories(texts[column])
            else:
                codes[column] = numbers
        counts = {
            (column := self._features[feature]): (filled[column], len(texts[column]) or filled[column])
            for feature in features
            if feature not in asked
        }
        reader = replace(self, _codes=codes, _texts=self._texts.union(codes), _counts=counts)
        return reader.with_categories(categories) if categories else reader

    def _numbers_written(self, column: int, texts: Collection[str]) -> dict[str, float] | None:
        """Return the numbers that all texts of a column write, with one mark if any; None where they are categories.

        Raises
        ------
        DataError
            Most are numbers: a few texts would turn measurements into categories.
        """
        written = {text: match for text in texts if (match := _WRITTEN.fullmatch(text.strip()))}
        marks = {text: _mark(match) for text, match in written.items()}
        plain = {text for text in texts if NUMBER.fullmatch(text)}
        others = [text for text in texts if text not in plain]
        kinds = {mark for text, mark in marks.items() if any(mark) or text.strip() != "0"}
        name, problem = self._names[column], ""
        if written and len(written) == len(texts):
            is_code = any(re.match(r"0\d", match["digits"]) for match in written.values())
            ways = _values(list(written.values()), self._decimal) if len(kinds) <= 1 and not is_code else []
            if len(ways) == 1:
                numbers = dict(zip(written, ways[0], strict=True))
                logger.warning(
                    "%s: column %r holds numbers as texts: %r is read as %s (--key categorical=%s: as categories)",
                    redact(self.path),
                    name,
                    min(texts),
                    numbers[min(texts)],
                    name,
                )
                return numbers
            if ways:
                problem = "numbers that can be read in two ways"
            elif len(kinds) == 2 and plain:
                problem = "numbers with and without a mark"
        most = max((sum(mark in (kind, ("", "", "")) for mark in marks.values()) for kind in kinds), default=0)
        if len(texts) >= _FEW and 0 < len(texts) - most <= len(texts) * _STRAY:
            problem = "a few texts among many different numbers"
            others = [text for text in texts if text not in written]
        if problem:
            value = min(others or texts)
            raise DataError(
                f"{problem}: {len(others):,} of its {len(texts):,} different values are no plain numbers",
                file=self.path,
                column=name,
                **self._where(column, {value}),
                value=value,
                cure="correct them (an empty field is a missing value); or, if the column holds categories, "
                f"say so with --key categorical={name}",
            )
        if len(plain) > len(others) > 0:
            more = "" if len(others) == 1 else " and other texts"
            logger.warning(
                "%s: column %r is read as categories: besides %d different numbers it holds %r%s; in a column of "
                "measurements leave such fields empty (--key categorical=%s: they are categories)",
                redact(self.path),
                name,
                len(plain),
                min(others),
                more,
                name,
            )
        return None

    def _where(self, column: int, values: Collection[str]) -> dict[str, Any]:
        """Return the arguments of DataError that locate some values."""
        return {}

    def text_counts(self, feature: int) -> tuple[float, float]:
        """Return rows that have a text, and different texts, of a feature; infinity where each of very many has its
        own.
        """
        return self._counts.get(self._features[feature], (0, 0))

    def without(self: T, features: Collection[int]) -> T:
        """Return the same file without some features, which a warning names."""
        for feature in sorted(features):
            warn_left_out(redact(self.path), self._names[self._features[feature]], "has a different text in every row")
        kept = [feature for feature in range(len(self._features)) if feature not in features]
        names, old = self.header.feature_names, self.header.categories
        categories = {new: old[feature] for new, feature in enumerate(kept) if feature in old}
        header = replace(
            self.header,
            feature_names=None if names is None else tuple(names[feature] for feature in kept),
            n_features=len(kept),
            categories=categories,
        )
        return replace(self, header=header, _features=tuple(self._features[feature] for feature in kept))

    def with_categories(self: T, categories: Mapping[int, Sequence[str]]) -> T:
        """Return the same file, with these features read as categories in this order."""
        merged = {**self.header.categories, **{k: tuple(v) for k, v in categories.items()}}
        return replace(
            self,
            header=replace(self.header, categories=dict(sorted(merged.items()))),
            _texts=self._texts | {self._features[feature] for feature in categories},
            _codes={
                **self._codes,
                **{
                    self._features[feature]: {text: code for code, text in enumerate(texts)}
                    for feature, texts in merged.items()
                },
            },
        )

    @property
    def class_columns(self) -> dict[str, ClassColumn]:
        """Name -> column of classes that was found in the rows."""
        return {column.name: column for column in self._classes.values() if isinstance(column, ClassColumn)}

    def with_classes(self: T, columns: Mapping[str, ClassColumn]) -> T:
        """Return the same file with these classes, those of other files or of a store among them."""
        classes = {column: columns.get(self._names[column], old) for column, old in self._classes.items()}
        names = tuple(name for column in self._labels for name in classes[column].label_names)
        return replace(self, _classes=classes, header=replace(self.header, label_names=names, n_labels=len(names)))

    def with_label_table(self: T, labels: LabelSpec, storage_options: dict[str, Any]) -> T:
        """Return the same file, with the labels that stand in a table beside it; one pass over the keys finds them.

        Raises
        ------
        DataError
            No key is in the table.
        """
        import pyarrow.compute as pc

        source = labels.xml or ""
        table = LabelTable.read(source, labels, storage_options)
        rows = missing = 0
        first: str | None = None
        for batch in self._text_batches(self._labels):
            for key in pc.value_counts(batch.column(0)).to_pylist():
                rows += key["counts"]
                if (text := as_text(key["values"])) not in table.codes:
                    missing += key["counts"]
                    first = first or text
        if missing == rows:
            raise DataError(
                "none of its keys is in the table of labels",
                file=self.path,
                column=table.name,
                value=first,
                cure=f"the first column of {source} has keys such as {next(iter(table.codes), '')!r}",
            )
        if missing:
            logger.warning(
                "%s: %d of %d rows are not in %s, %r for one: their labels are unknown",
                redact(self.path), missing, rows, redact(source), first,
            )  # fmt: skip
        column = self._labels[0]
        return replace(self, _classes={column: table}, _texts=self._texts.union(self._labels)).with_classes({})

    def with_found_classes(self: T, labels: LabelSpec, tags: Collection[str] = ()) -> T:
        """Return the same file, of whose label columns each class becomes a label; one pass over them finds them.

        Where this was not asked for, `tags` are columns of lists, and all others have to be one label.
        """
        texts, _ = self._distinct_texts(self._labels)
        classes = {
            column: ClassColumn.of(self._names[column], texts[column], labels.separator, labels.values, file=self.path)
            for column in self._labels
        }
        for column in classes.values() if not labels.classes else ():
            if column.name not in tags and not column.is_one_label:
                value = next(text for text in column.texts if labels.values.of_text(text) is None)
                bad_label(value, 0, names=[column.name], file=self.path, meaning=labels.values)
        return replace(self, _classes=classes, _texts=self._texts.union(self._labels)).with_classes({})

    # ---- a table with features as rows

    def row_names(self) -> Iterator[list[str]]:
        """Yield the names of all rows, some at a time."""
        for batch in self._text_batches([self._names_column]):
            yield ["" if text is None else as_text(text) for text in batch.column(0).to_pylist()]

    def rows_of_numbers(self, batch_bytes: int) -> Iterator[NDArray[np.float64]]:
        """Yield all rows, some at a time, without their names."""
        for batch in self.read(self.parts(1 << 62)[0], batch_bytes=batch_bytes):
            assert isinstance(batch.X, np.ndarray)
            yield batch.X

    def require_numbers(self, texts: Collection[int]) -> None:
        """Raise DataError for a column of texts among those of samples."""
        for column in sorted({*texts}.intersection(self._features)):
            raise DataError(
                "a sample needs a column of numbers, but this one holds texts",
                file=self.path,
                column=self._names[column],
                cure=f"leave it out: --drop {self._names[column]!r}",
            )


def first_kept(names: Sequence[str], dropped: Collection[int]) -> int:
    """Return the first column that is not left out, which has the names of rows; 0 where all are."""
    return next((column for column in range(len(names)) if column not in dropped), 0)


def choose_columns(
    names: Sequence[str],
    spec: FileSpec,
    *,
    ignored: Collection[int],
    beside: Collection[int] = (),
    names_column: int = 0,
    file: str,
) -> tuple[list[int], list[int]]:
    """Return the columns of the features and of the labels; of a table with features as rows, those of samples and
    none.
    """
    if not spec.transpose:
        obs = [find_column(names, name, "column of rows,", file=file) for name in spec.obs]
        features, labels = split_columns(
            names, spec.labels, drop=(*spec.drop, *spec.obs), ignored=ignored, beside=beside, file=file
        )
        return sorted(obs) if spec.only_obs else features, labels
    dropped = set(find_columns(names, spec.drop, "column to leave out,", file=file))
    return [column for column in range(len(names)) if column not in {names_column, *ignored, *dropped}], []


def _mark(written: re.Match[str]) -> tuple[str, str, str]:
    """Return the marks of a written number: currency, unit, and Fortran's letter of an exponent."""
    power = written["power"] or ""
    return written["money"], written["unit"].strip(), "D" if power[:1] in ("d", "D") else ""


def _values(written: Sequence[re.Match[str]], decimal: str) -> list[list[float]]:
    """Return numbers whose digits are marked alike, in every way that they can be read.

    >>> _values([_WRITTEN.fullmatch(text) for text in ("$1,234.50", "$999")], ".")
    [[1234.5, 999.0]]
    >>> _values([_WRITTEN.fullmatch(text) for text in ("1,234", "12,000")], ".")
    [[1234.0, 12000.0], [1.234, 12.0]]
    """
    found: list[list[float]] = []
    for group, point in sorted(_MARKS, key=lambda marks: marks[1] != decimal):
        whole = rf"(0|[1-9]\d{{0,2}}({re.escape(group)}\d{{3}})*)" if group else r"\d*"
        digits = re.compile(rf"{whole}({re.escape(point)}\d*)?")
        if all(digits.fullmatch(each["digits"]) for each in written):
            texts = [each["digits"].replace(group, "") if group else each["digits"] for each in written]
            powers = [(each["power"] or "e0").upper().replace("D", "E") for each in written]
            signs = ["-" if each["sign"] + each["inner"] in ("-", "\u2212") else "" for each in written]
            parts = zip(signs, (text.replace(point, ".") for text in texts), powers, strict=True)
            numbers = [float("".join(part)) for part in parts]
            if not group and point == decimal:
                return [numbers]
            if numbers not in found:
                found.append(numbers)
    return found


@functools.lru_cache(maxsize=1024)
def warn_left_out(place: str, column: str, what: str) -> None:
    """Warn of a column once for a file, or for a folder, however many files it has and however often it is opened."""
    logger.warning("%s: column %r %s: it is left out", place, column, what)


def as_text(value: object) -> str:
    return value if isinstance(value, str) else str(value)


def _numbers(batch: Any, dtype: np.dtype[Any], *, safe: bool = False) -> Any:
    """Return the columns of an Arrow batch as numbers of one type, shape (rows, columns), NaN where missing.

    With `safe` another value than that of the column raises ArrowInvalid.
    """
    import pyarrow as pa

    kind = pa.from_numpy_dtype(dtype)
    if any(each != kind for each in batch.schema.types):
        arrays = [array.cast(pa.uint8()) if pa.types.is_boolean(array.type) else array for array in batch.columns]
        arrays = [array.cast(kind, safe=safe) for array in arrays]
        batch = pa.RecordBatch.from_arrays(arrays, names=batch.schema.names)
    return batch.to_tensor(null_to_nan=True, row_major=True).to_numpy()


def is_text(column: Any, path: str, *, is_label: bool = False) -> bool:
    """Return True for a categorical column, False for a column of numbers."""
    import pyarrow as pa

    kind = column.type
    if pa.types.is_dictionary(kind):
        kind = kind.value_type
        if not is_number(kind) and not is_string(kind):
            kind = column.type
        else:
            return True
    if is_string(kind):
        return True
    if is_number(kind):
        return False
    raise DataError(
        f"a column of type {column.type} is neither number nor text",
        file=path,
        column=column.name,
        cure="write a label as 0 and 1, as a class, or as a list of texts or whole numbers"
        if is_label
        else f"leave it out: --drop {column.name!r}",
    )


def narrowest(kinds: Iterable[Any]) -> np.dtype[Any]:
    """Return float32 where it holds every value of columns of these types, NaN among them; else float64."""
    import pyarrow as pa

    def narrow(kind: Any) -> bool:
        if pa.types.is_integer(kind) or pa.types.is_floating(kind):
            return int(kind.bit_width) <= (32 if pa.types.is_floating(kind) else 16)
        return bool(pa.types.is_boolean(kind) or pa.types.is_null(kind))

    return np.dtype(np.float32 if all(map(narrow, kinds)) else np.float64)


def is_string(kind: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_number(kind: Any) -> bool:
    import pyarrow as pa

    tests = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_decimal)
    return any(test(kind) for test in (*tests, pa.types.is_null))
