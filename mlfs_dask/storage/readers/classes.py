"""Columns of classes or of tags: each class becomes a label of its own, COLUMN=CLASS."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, hstack

from mlfs_dask.errors import DataError
from mlfs_dask.storage.label_values import MISSING_TEXTS, LabelValues
from mlfs_dask.storage.readers.base import MINUS_ONE, UNKNOWN

#: Different texts that a column of classes or of categories may hold.
MAX_CATEGORIES = 100_000
#: Python's `float` takes more for numbers: 1_0 and digits of other scripts. An identifier such as 007 is none.
_NUMBER = re.compile(r"[+-]?(?!0\d)(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_FRACTION = re.compile(r"[+-]?\d*\.\d+([eE][+-]?\d+)?")
#: So few different fractions may be classes.
_FEW = 20


def class_of(text: str) -> str:
    """The class that a text names: without blanks around it, and whole numbers written as such.

    Examples
    --------
    >>> class_of(" red "), class_of("3.0"), class_of("+1"), class_of("007"), class_of("1_0")
    ('red', '3', '1', '007', '1_0')
    """
    text = text.strip()
    if not _NUMBER.fullmatch(text):
        return text
    number = float(text)
    return str(int(number)) if number.is_integer() and abs(number) < 2**53 else text


def sort_classes(classes: Iterable[str]) -> tuple[str, ...]:
    """Classes in the order of their labels: numbers by size, else as texts are sorted."""
    found = sorted(set(classes))
    try:
        return tuple(sorted(found, key=float))
    except ValueError:
        return tuple(found)


@dataclass(frozen=True)
class ClassColumn:
    """A column whose texts are classes, or several tags with a separator between them.

    A column of nothing but 0 and 1, words for true and false, or other values that mean positive, negative and unknown,
    is one label of the column's name; of any other, and of -1, 0 and 1, each class is a label.

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
    """

    name: str
    texts: tuple[str, ...]
    classes: tuple[str, ...]
    separator: str | None
    meaning: LabelValues
    is_one_label: bool

    @classmethod
    def of(
        cls, name: str, texts: Iterable[str], separator: str | None, meaning: LabelValues, *, file: str
    ) -> ClassColumn:
        """The column of these texts.

        Raises
        ------
        DataError
            They are measurements.
        """
        texts = tuple(sorted(texts))
        known = [text for text in texts if not _is_missing(text)]
        classes = sort_classes(each for text in known for each in split_tags(text, separator))
        measured = [each for each in classes if _FRACTION.fullmatch(each)]
        if 2 * len(measured) > max(len(classes), _FEW):
            raise DataError(
                f"a column of classes was expected, and this one has {len(classes):,} different numbers",
                file=file,
                column=name,
                value=measured[0],
                cure="binarise it, or name other columns as labels",
            )
        one = separator is None and all(meaning.of_text(text) is not None for text in known)
        if meaning.is_default and {"-1", "0", "1"} <= set(classes):  # said to be classes: a sentiment
            one = False
        return cls(name, texts, classes, separator, meaning, one)

    @property
    def label_names(self) -> tuple[str, ...]:
        return (self.name,) if self.is_one_label else tuple(f"{self.name}={each}" for each in self.classes)

    @cached_property
    def codes(self) -> dict[str, int]:
        """Place of every text."""
        return {text: code for code, text in enumerate(self.texts)}

    def codes_of_numbers(self, numbers: NDArray[np.float64]) -> NDArray[np.float64]:
        """Places of the texts that write some numbers, NaN where none does."""
        texts = np.array([float(text) for text in self.texts])
        codes = np.full(len(numbers), np.nan)
        if len(texts):
            order = np.argsort(texts)
            place = np.minimum(np.searchsorted(texts[order], numbers), len(texts) - 1)
            known = texts[order][place] == numbers
            codes[known] = order[place[known]]
        return codes

    def labels(self, values: NDArray[np.float64]) -> csr_array:
        """Labels of some rows, int8 of shape (rows, labels), with entries as of `Batch.Y`."""
        codes = np.where(np.isnan(values), len(self.texts), values).astype(np.intp)
        missing = self._is_missing[codes]
        if self.is_one_label:
            meanings = [self.meaning.of_text(text) for text in (*self.texts, "NA")]
            roles = np.array(meanings, np.float64)[codes]
            entries = np.where(np.isnan(roles), UNKNOWN, np.where(roles == -1, MINUS_ONE, roles)).astype(np.int8)
            matrix = csr_array(entries[:, None])
            return csr_array((matrix.data, matrix.indices, matrix.indptr.astype(np.int64)), shape=matrix.shape)
        places, bounds = self._labels_of_texts
        counts = bounds[codes + 1] - bounds[codes]
        unknown = self.meaning.missing_is_unknown & missing
        counts[unknown] = len(self.classes)
        indptr = np.concatenate([[0], np.cumsum(counts)])
        rows = np.repeat(np.arange(len(values)), counts)
        within = np.arange(indptr[-1]) - indptr[rows]
        data = np.where(unknown[rows], UNKNOWN, 1).astype(np.int8)
        known = ~unknown[rows]
        columns = within.astype(np.int32)
        columns[known] = places[bounds[codes[rows[known]]] + within[known]]
        return csr_array((data, columns, indptr.astype(np.int64)), shape=(len(values), len(self.classes)))

    @cached_property
    def _is_missing(self) -> NDArray[np.bool_]:
        """Whether each text, and what stands behind the last, is no value."""
        return np.array([*map(_is_missing, self.texts), True])

    @cached_property
    def _labels_of_texts(self) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
        """Labels of every text on end, rising, and where those of each begin."""
        place = {each: number for number, each in enumerate(self.classes)}
        found = [sorted({place[each] for each in split_tags(text, self.separator)}) for text in (*self.texts, "")]
        bounds = np.concatenate([[0], np.cumsum([len(labels) for labels in found])]).astype(np.int64)
        return np.array([label for labels in found for label in labels], np.int32), bounds


def _is_missing(text: str) -> bool:
    return text.strip().lower() in MISSING_TEXTS


def split_tags(text: str, separator: str | None) -> list[str]:
    """The classes that a text names: one, or the tags between separators."""
    parts = [] if _is_missing(text) else [text] if separator is None else text.split(separator)
    return [class_of(part) for part in parts if part.strip()]


def joined_labels(blocks: Sequence[csr_array]) -> csr_array:
    """Labels of several columns side by side."""
    if len(blocks) == 1:
        return blocks[0]
    joined = hstack(blocks, format="csr", dtype=np.int8)
    return csr_array((joined.data, joined.indices, joined.indptr.astype(np.int64)), shape=joined.shape)


def united_classes(readers: Sequence[Any]) -> list[Any]:
    """Readers that found classes in their rows, each given those of all."""
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
    """A reader that found classes in its rows, with those that the labels of a store have.

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
