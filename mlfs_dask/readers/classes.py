"""Columns of classes or of tags: each class becomes a label of its own, COLUMN=CLASS."""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, ClassVar, NoReturn

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack, lil_array

from mlfs_dask.errors import DataError
from mlfs_dask.readers.label_values import POSITIVE, UNKNOWN, LabelValues, entries_of

#: Different texts that a column of classes or of categories may hold.
MAX_CATEGORIES = 100_000
_FRACTION = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
#: A whole number, which a column of numbers may write with a sign or a point.
_WHOLE = re.compile(r"[+-]?(0|[1-9]\d*)(\.0*)?", re.ASCII)
_LIST = re.compile(r"[\[{].*[\]}]", re.DOTALL)
#: Half a list, or a text in quotes.
_PIECE = re.compile(r"\[[^\]]*|[^\[]*\]|'.*'|\".*\"", re.DOTALL)
#: So few different fractions may be classes.
_FEW = 20


def text_of_number(number: float) -> str:
    """Return the class name of a number: whole numbers without a point.

    >>> text_of_number(3.0), text_of_number(0.5)
    ('3', '0.5')
    """
    return str(int(number)) if float(number).is_integer() else repr(number)


def sort_classes(classes: Iterable[str]) -> tuple[str, ...]:
    """Return classes in the order of their labels: numbers by size, else as texts are sorted."""
    found = sorted(set(classes))
    try:
        return tuple(sorted(found, key=float))
    except ValueError:
        return tuple(found)


class CodedLabels:
    """A column of codes, each of which stands for the labels in a row of a table.

    Attributes
    ----------
    has_all : bool
        Whether every text of the rows has a code.
    name : str
    label_names : tuple of str
    codes : dict of str to int
        Code of every text.
    table : csr_array of int8, shape (codes + 1, labels)
        Labels of each code and, in the last row, of a missing value; entries as of `Batch.Y`.
    """

    has_all: ClassVar[bool]
    name: str
    label_names: tuple[str, ...]
    codes: Mapping[str, int]
    table: csr_array

    def labels(self, values: NDArray[np.float64]) -> csr_array:
        """Return the labels of rows with these codes, NaN where missing: int8, shape (rows, labels)."""
        last = int(self.table.shape[0]) - 1
        labels = self.table[np.where(np.isnan(values), last, values).astype(np.intp)]
        return csr_array((labels.data, labels.indices, labels.indptr.astype(np.int64)), shape=labels.shape)


@dataclass(frozen=True)
class ClassColumn(CodedLabels):
    """A column whose texts are classes, or several tags with a separator between them.

    A column of nothing but 0 and 1, words for true and false, or other values that mean positive, negative and unknown,
    is one label of the column's name; of any other, and of -1, 0 and 1, each class is a label. Texts that are all lists
    of JSON or Python name the tags in them. Classes are the texts without blanks around them; where all are whole
    numbers, 3 and 3.0 are one.

    Attributes
    ----------
    name : str
    texts : tuple of str
        All that occur in it. A value of the column is the place of its text here, NaN where it is missing.
    classes : tuple of str
        In the order of their labels.
    separator : str or None
        Between tags.
    meaning : LabelValues
    is_one_label : bool
        Whether all that it holds means positive, negative or unknown.
    tags : dict of str to tuple of str
        The classes that each text names, or some text of another file.
    """

    has_all: ClassVar[bool] = True

    name: str
    texts: tuple[str, ...]
    classes: tuple[str, ...]
    separator: str | None
    meaning: LabelValues
    is_one_label: bool
    tags: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    @classmethod
    def of(
        cls, name: str, texts: Iterable[str], separator: str | None, meaning: LabelValues, *, file: str
    ) -> ClassColumn:
        """Return the column of these texts.

        Raises
        ------
        DataError
            They are measurements, or lists that cannot be read.
        """
        texts = tuple(sorted(texts))
        known = [text for text in texts if meaning.of_class(text) is None]
        are_lists = bool(known) and all(_LIST.fullmatch(text.strip()) for text in known)

        def refuse(problem: str, value: str, cure: str) -> NoReturn:
            raise DataError(problem, file=file, column=name, value=value, cure=cure)

        tags: dict[str, tuple[str, ...]] = {}
        for text in known:
            parts = _listed(text) if are_lists else [text] if separator is None else text.split(separator)
            tags[text] = tuple(part.strip() for part in parts or () if part.strip())
            if parts is None:
                refuse("it is no list of JSON or Python", text, 'write lists as ["joy", "fear"], or tags as joy;fear')
            if separator is not None and any(map(_PIECE.fullmatch, tags[text])):
                refuse(
                    f"split at {separator!r}, it leaves a bracket or quotes",
                    text,
                    'write tags without them, or all as lists: ["joy", "fear"]',
                )
            if are_lists and len(set(tags[text])) < len(tags[text]):
                refuse(
                    "a list names a class twice",
                    text,
                    "name each class once; write 0 and 1 of each label as columns, or as a list of fixed size",
                )
        found = {each for some in tags.values() for each in some}
        if all(map(_WHOLE.fullmatch, found)):
            tags = {text: tuple(str(int(each.partition(".")[0])) for each in some) for text, some in tags.items()}
            found = {each for some in tags.values() for each in some}
        classes = sort_classes(found)
        measured = [each for each in classes if _FRACTION.fullmatch(each)]
        if separator is None and not are_lists and 2 * len(measured) > max(len(classes), _FEW):
            refuse(
                f"a column of classes was expected, and this one has {len(classes):,} different numbers",
                measured[0],
                "binarise it, or name other columns as labels",
            )
        one = separator is None and all(meaning.of_text(text) is not None for text in known)
        if meaning.is_default and {"-1", "0", "1"} <= set(classes):  # said to be classes: a sentiment
            one = False
        for text in texts:
            if not one and meaning.of_class(text) == POSITIVE:
                refuse(
                    "it was said to be positive, and the column holds classes",
                    text,
                    "leave it out of --labels-positive: each class is a label of its own",
                )
        return cls(name, texts, classes, separator, meaning, one, tags)

    @property
    def label_names(self) -> tuple[str, ...]:  # type: ignore[override]
        return (self.name,) if self.is_one_label else tuple(f"{self.name}={each}" for each in self.classes)

    @cached_property
    def codes(self) -> dict[str, int]:  # type: ignore[override]
        """Place of every text."""
        return {text: code for code, text in enumerate(self.texts)}

    def codes_of_numbers(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the places of the texts that write some numbers, NaN where none does."""
        texts = np.array([float(text) for text in self.texts])
        codes = np.full(len(numbers), np.nan)
        if len(texts):
            order = np.argsort(texts)
            place = np.minimum(np.searchsorted(texts[order], numbers), len(texts) - 1)
            known = texts[order][place] == numbers
            codes[known] = order[place[known]]
        return codes

    @cached_property
    def table(self) -> csr_array:
        """Labels of each text and, in a last row, of a missing one."""
        texts = (*self.texts, "NA")
        if self.is_one_label:
            return csr_array(entries_of(np.array([self.meaning.of_text(text) for text in texts], np.float64))[:, None])
        place = {each: number for number, each in enumerate(self.classes)}
        table = lil_array((len(texts), len(self.classes)), dtype=np.int8)
        for row, text in enumerate(texts):
            meaning = self.meaning.of_class(text)
            columns = sorted({place[each] for each in self.tags.get(text, ())})
            if meaning is not None and np.isnan(meaning):
                table.rows[row], table.data[row] = [*range(len(self.classes))], [UNKNOWN] * len(self.classes)
            else:
                table.rows[row], table.data[row] = columns, [1] * len(columns)
        return csr_array(table)


def _listed(text: str) -> list[str] | None:
    """Return the items of a list as JSON or Python write it; None where it is none, or holds more than texts and
    numbers.
    """
    try:
        items = json.loads(text, strict=False)
    except ValueError:
        if re.search(r"['\"]\s+['\"]", text):
            return None  # NumPy's, which has no commas: Python would join the texts
        try:
            items = ast.literal_eval(text)
        except (ValueError, SyntaxError, RecursionError):
            return None
    if not isinstance(items, list | set) or not all(isinstance(item, str | int | float) for item in items):
        return None
    return [item if isinstance(item, str) else text_of_number(item) for item in items]


def joined_labels(blocks: Sequence[csr_array]) -> csr_array:
    """Return the labels of several columns side by side."""
    if len(blocks) == 1:
        return blocks[0]
    joined = hstack(blocks, format="csr", dtype=np.int8)
    return csr_array((joined.data, joined.indices, joined.indptr.astype(np.int64)), shape=joined.shape)


def united_classes(readers: Sequence[Any]) -> list[Any]:
    """Return readers that found classes in their rows, each given those of all."""
    if not all(getattr(reader, "class_columns", None) for reader in readers):
        return list(readers)
    united = {}
    for name, column in readers[0].class_columns.items():
        texts = {text for reader in readers for text in reader.class_columns.get(name, column).texts}
        united[name] = ClassColumn.of(name, texts, column.separator, column.meaning, file=readers[0].path)
    return [
        reader.with_classes(
            {
                name: replace(united[name], texts=column.texts)
                for name, column in reader.class_columns.items()
                if name in united
            }
        )
        for reader in readers
    ]


def classes_of_store(reader: Any, label_names: Sequence[str], store: str) -> Any:
    """Return a reader that found classes in its rows, with those that the labels of a store have.

    Raises
    ------
    DataError
        The file has a class that the store has not.
    """
    if not getattr(reader, "class_columns", None):
        return reader
    columns = {}
    for name, column in reader.class_columns.items():
        known = tuple(label[len(name) + 1 :] for label in label_names if label.startswith(f"{name}="))
        if not known:
            continue  # it is one label, or the names of labels say that they differ
        new: Collection[str] = set(column.classes) - set(known)
        if new:
            raise DataError(
                f"it has a class that is no label of {store}",
                file=reader.path,
                column=name,
                value=min(new),
                cure="correct it, or convert all files together to a new store",
            )
        columns[name] = replace(column, classes=known, is_one_label=False)
    return reader.with_classes(columns)
