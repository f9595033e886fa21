"""Values of labels: which of them mean positive, negative and unknown, in files and in arrays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NoReturn, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError

MinusOne: TypeAlias = Literal["unknown", "negative"]
"""What -1 means among the labels of a source."""

POSITIVE, NEGATIVE, MISSING, MINUS = 1.0, 0.0, math.nan, -1.0
"""What a value of a label becomes. `MINUS` is unknown or negative: which follows from all labels together."""

UNKNOWN, MINUS_ONE = -1, -2
"""Entries of int8 labels beside 1: a label that is known to be unknown, and a -1 as the source has it."""

#: Texts that stand for no value, in features and in labels: those of pandas, and ?.
MISSING_TEXTS = frozenset(
    ["", "?", "None", "NaN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "-1.#IND", "-1.#QNAN", "#NA", "#N/A N/A"]
    + [letters for text in ("na", "n/a", "<na>", "nan", "null", "#n/a") for letters in (text, text.upper())]
)
_MISSING = "a missing value"
_WORDS = {POSITIVE: ("true", "yes", "t", "y"), NEGATIVE: ("false", "no", "f", "n")}

_Key: TypeAlias = float | str


def is_missing(text: str) -> bool:
    """Return True if a text stands for a missing value.

    >>> is_missing(" NA"), is_missing("none")
    (True, False)
    """
    return text.strip() in MISSING_TEXTS


def _key(text: str) -> _Key:
    """Return the look-up key of a value: a number in any notation, or a text in lower case."""
    if is_missing(text):
        return _MISSING
    text = text.strip().lower()
    try:
        return float(text)
    except ValueError:
        return text


@dataclass(frozen=True)
class LabelValues:
    """Values that mean positive, negative and unknown, as the user said it.

    What is not said follows from the rest: 1 and words for true are positive, 0 and words for false negative, and
    missing values unknown. A -1 is negative where another value was said to be unknown; else all labels together tell
    what it is. Where both positive and negative values were said, every other value is refused.

    Parameters
    ----------
    positive, negative, unknown : tuple of str
        Numbers, or texts in any letters. "NA" stands for missing values.

    Raises
    ------
    UsageError
        A value is said to be two things.

    Examples
    --------
    >>> values = LabelValues(negative=("-1",), unknown=("0",))
    >>> [values.of_text(text) for text in ("1", "-1.0", "0", "maybe")]
    [1.0, 0.0, nan, None]
    """

    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        seen: dict[_Key, str] = {}
        for name in ("positive", "negative", "unknown"):
            for text in getattr(self, name):
                if seen.setdefault(_key(text), name) != name:
                    raise UsageError(
                        f"the label {text!r} cannot be both {seen[_key(text)]} and {name}\n  cure: name each value once"
                    )

    @property
    def is_default(self) -> bool:
        """True if no value was given a meaning."""
        return not (self.positive or self.negative or self.unknown)

    @cached_property
    def _said(self) -> dict[_Key, float]:
        """Meaning of every given value."""
        said: dict[_Key, float] = {}
        for meaning, texts in ((POSITIVE, self.positive), (NEGATIVE, self.negative), (MISSING, self.unknown)):
            said |= {_key(text): meaning for text in texts}
        return said

    @cached_property
    def _meanings(self) -> dict[_Key, float]:
        """Meaning of every accepted value."""
        said = self._said
        meanings: dict[_Key, float] = {_MISSING: MISSING}
        if not (self.positive and self.negative):
            meanings |= {1.0: POSITIVE, 0.0: NEGATIVE, -1.0: NEGATIVE if self.unknown else MINUS}
            meanings |= {word: meaning for meaning, words in _WORDS.items() for word in words}
        meanings |= said
        # Counted apart from 0 where both may be negative, so that this can be told.
        if self.minus_one is not None and 0.0 not in said:
            meanings[-1.0] = MINUS
        return meanings

    @property
    def minus_one(self) -> MinusOne | None:
        """Given meaning of -1; None if it was not given."""
        for name, texts in (("negative", self.negative), ("unknown", self.unknown)):
            if -1.0 in map(_key, texts):
                return name  # type: ignore[return-value]
        return None

    @property
    def has_texts(self) -> bool:
        """True if a given value is a text."""
        keys = map(_key, (*self.positive, *self.negative, *self.unknown))
        return any(isinstance(key, str) and key != _MISSING for key in keys)

    @property
    def zero(self) -> float | None:
        """Meaning of 0, hence of implicit sparse entries; None if 0 is not a label value."""
        return self._meanings.get(0.0)

    @property
    def zero_is_unknown(self) -> bool:
        """True if implicit sparse entries are unknown."""
        return self.zero is not None and math.isnan(self.zero)

    def of_text(self, text: str) -> float | None:
        """Return the meaning of a text; None if it is not a label value."""
        return self._meanings.get(_key(text))

    def of_class(self, text: str) -> float | None:
        """Return the meaning of a text in a column of classes; None if the text is a class, as 1 and yes are there."""
        return ({_MISSING: MISSING} | self._said).get(_key(text))

    def of_numbers(self, values: NDArray[Any], refuse: Callable[[int], NoReturn]) -> NDArray[Any]:
        """Return the meanings of numbers: `POSITIVE`, `NEGATIVE`, `MISSING` (NaN) and `MINUS`.

        Parameters
        ----------
        values : ndarray of numbers
            As they are where nothing was said: then whoever takes them checks them.
        refuse : callable
            Called with the place in the flattened `values` of the first that is no label.
        """
        if self.is_default:
            return values
        numbers = np.full(values.shape, np.inf)
        for key, meaning in self._meanings.items():
            if isinstance(key, float):
                numbers[values == key] = meaning
        if values.dtype.kind == "f":
            numbers[np.isnan(values)] = self._meanings[_MISSING]
        wrong = np.isinf(numbers)
        if wrong.any():
            refuse(int(np.argmax(wrong)))
        return numbers

    def described(self) -> str:
        """Return the values that labels may have, for messages."""
        if self.is_default:
            return "0 or 1 (-1 = unknown)"
        names = ("positive", self.positive), ("negative", self.negative), ("unknown", self.unknown)
        return "; ".join(f"{', '.join(texts)} = {name}" for name, texts in names if texts)


LABEL_CURE = (
    "labels are 1, 0, and -1, ? or an empty field where unknown; binarise the column, say --label-classes if it holds "
    "classes or --label-separator if tags, or what values mean with --labels-positive, --labels-negative and "
    "--labels-unknown"
)
VALUES_CURE = "name every value that occurs with --labels-positive, --labels-negative or --labels-unknown (NA: missing)"
DEFAULT_VALUES = LabelValues()


def entries_of(numbers: NDArray[Any]) -> NDArray[np.int8]:
    """Return the int8 entries of `POSITIVE`, `NEGATIVE`, `MISSING` and `MINUS`."""
    return np.where(np.isnan(numbers), UNKNOWN, np.where(numbers == MINUS, MINUS_ONE, numbers)).astype(np.int8)


def numbers_of(entries: NDArray[np.int8]) -> NDArray[np.float64]:
    """Return what `entries_of` made entries of."""
    return np.where(entries == UNKNOWN, MISSING, np.where(entries == MINUS_ONE, MINUS, entries))


def label_block(
    values: NDArray[Any],
    *,
    names: Sequence[str] | None,
    file: str,
    place: Callable[[int], dict[str, Any]],
    meaning: LabelValues = DEFAULT_VALUES,
) -> csr_array:
    """Return the labels of some rows as the int8 matrix that readers give.

    Parameters
    ----------
    values : ndarray, shape (rows, q)
        By default 1, 0, -1 or NaN.
    names : sequence of str or None
        Label names, for messages.
    file : str
        For messages.
    place : callable
        From the row within `values` to what DataError should say of it: ``{"line": 7}`` or ``{"row": 7}``.
    meaning : LabelValues
        What the values mean.

    Returns
    -------
    csr_array of int8, shape (rows, q)
        1, `UNKNOWN` for NaN, and `MINUS_ONE` for -1.

    Raises
    ------
    DataError
        Another value, with its row or line and its label.
    """
    if not values.shape[1]:
        return csr_array(values.shape, dtype=np.int8)
    given = values

    def refuse(entry: int) -> NoReturn:
        row, column = divmod(entry, given.shape[1])
        bad_label(given[row, column], column, names=names, file=file, meaning=meaning, **place(row))

    flat = meaning.of_numbers(given, refuse).reshape(-1)
    entries = np.flatnonzero(flat != 0)  # NaN among them
    rows = entries // given.shape[1]
    columns = entries - rows * given.shape[1]
    matrix = _label_csr(flat[entries], columns, rows, given.shape, lambda entry: refuse(int(entries[entry])))
    matrix.has_canonical_format = True  # entries were met in order
    return matrix


def sparse_label_block(
    values: csr_array,
    *,
    names: Sequence[str] | None,
    file: str,
    place: Callable[[int], dict[str, Any]],
    meaning: LabelValues = DEFAULT_VALUES,
) -> csr_array:
    """`label_block` for labels that are sparse already: absent entries are 0.

    Where 0 is unknown, they are written out: 24 bytes an entry are held.
    """
    data = values.data
    rows = np.repeat(np.arange(values.shape[0]), np.diff(values.indptr))

    def refuse(entry: int) -> NoReturn:
        row, column = int(rows[entry]), int(values.indices[entry])
        bad_label(values.data[entry], column, names=names, file=file, meaning=meaning, **place(row))

    if meaning.zero_is_unknown:
        dense = np.full(values.shape, np.nan, np.float32)
        dense[rows, values.indices] = meaning.of_numbers(data, refuse)
        return label_block(dense, names=names, file=file, place=place)
    if meaning.zero != 0:
        raise zero_in_sparse(meaning, file)
    data = meaning.of_numbers(data, refuse)
    entries = np.flatnonzero(data)
    columns = values.indices[entries]
    matrix = _label_csr(data[entries], columns, rows[entries], values.shape, lambda entry: refuse(int(entries[entry])))
    matrix.sort_indices()
    return matrix


def _label_csr(
    values: NDArray[Any],
    columns: NDArray[Any],
    rows: NDArray[Any],
    shape: tuple[int, ...],
    refuse: Callable[[int], NoReturn],
) -> csr_array:
    """Return the labels of entries other than 0, whose rows ascend: 1, -1 and NaN; `refuse` is told of another one."""
    allowed = (values == 1) | (values == -1) | np.isnan(values)
    if not allowed.all():
        refuse(int(np.argmin(allowed)))
    indptr = np.zeros(shape[0] + 1, dtype=np.int64)
    np.cumsum(np.bincount(rows, minlength=shape[0]), out=indptr[1:])
    return csr_array((entries_of(values), columns.astype(np.int32, copy=False), indptr), shape=shape)


def bad_label(
    value: object,
    column: int,
    *,
    names: Sequence[str] | None,
    file: str,
    line: int | None = None,
    row: int | None = None,
    meaning: LabelValues = DEFAULT_VALUES,
) -> NoReturn:
    """Raise DataError for a label that has no meaning; `row` counts from 1."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    where = f"row {row}: " if row is not None else ""
    raise DataError(
        f"{where}a label must be {meaning.described()}",
        file=file,
        line=line,
        column=names[column] if names is not None else column + 1,
        value=value,
        cure=LABEL_CURE if meaning.is_default else VALUES_CURE,
    )


def label_matrix(Y: Any, *, positive: Any = (), negative: Any = (), unknown: Any = ()) -> Any:
    """Return labels as 1 (positive), 0 (negative) and -1 (unknown), from any three values.

    Parameters
    ----------
    Y : array-like or sparse matrix, shape (n, q) or (n,)
        Labels, numbers or texts. Implicit entries of a sparse matrix are 0.
    positive, negative, unknown : value or sequence of values
        Values in Y with this meaning. By default 1 and words for true are positive, 0 and words for false negative,
        and NaN and None unknown; -1 is negative if another value is unknown, and unknown otherwise. If both positive
        and negative values are given, every other value except a missing one is refused.

    Returns
    -------
    ndarray of int8, shape (n, q), or csr_array
        Sparse if Y is sparse, unless 0 is unknown: then most entries are -1 and are stored. A pandas table stays a
        table, with its names.

    Raises
    ------
    DataError
        A value has no meaning.
    UsageError
        A value is given two meanings.

    Examples
    --------
    >>> label_matrix([[1, -1, 0], [0, 1, -1]], negative=-1, unknown=0)
    array([[ 1,  0, -1],
           [-1,  1,  0]], dtype=int8)
    >>> label_matrix([["P", "U"], ["N", "P"]], positive="P", negative="N", unknown="U")
    array([[ 1, -1],
           [ 0,  1]], dtype=int8)
    """
    from scipy import sparse as sp

    values = LabelValues(*(_texts(value) for value in (positive, negative, unknown)))
    if sp.issparse(Y):
        return _sparse_labels(sp.csr_array(Y), values)
    array = np.asarray(Y)
    if array.ndim not in (1, 2):
        raise DataError(f"Y must have two dimensions, (rows, labels); got shape {array.shape}", cure="reshape it")
    coded = _coded(array.reshape(len(array), -1), values)
    if hasattr(Y, "columns") and hasattr(Y, "index"):
        return type(Y)(coded, index=Y.index, columns=Y.columns)
    return coded


def _texts(value: Any) -> tuple[str, ...]:
    several = isinstance(value, Iterable) and not isinstance(value, str | bytes)
    return tuple(map(str, value if several else (value,)))


def _coded(array: NDArray[Any], values: LabelValues) -> NDArray[np.int8]:
    """Return labels as 1, 0 and -1, for an array of two dimensions."""
    flat = array.reshape(-1)

    def refuse(place: int) -> NoReturn:
        row, column = divmod(place, array.shape[1])
        raise _no_label(flat[place], row, column, values)

    if array.dtype.kind in "biuf":
        numbers = LabelValues.of_numbers(values, flat, refuse)
        if values.is_default:
            missing = np.isnan(flat) if flat.dtype.kind == "f" else np.zeros(len(flat), np.bool_)
            wrong = ~(missing | (flat == 0) | (flat == 1) | (flat == -1))
            if wrong.any():
                refuse(int(np.argmax(wrong)))
    else:
        texts = np.array(["NA" if value is None else str(value) for value in flat.tolist()])
        distinct, codes = np.unique(texts, return_inverse=True)
        found = [values.of_text(text) for text in distinct.tolist()]
        for code, meaning in enumerate(found):
            if meaning is None:
                refuse(int(np.argmax(codes == code)))
        numbers = np.array(found, np.float64)[codes]
    labels = np.where(np.isnan(numbers), -1.0, numbers).astype(np.int8)
    if values.minus_one == "negative":
        labels[numbers == MINUS] = 0
    return labels.reshape(array.shape)


def _sparse_labels(Y: Any, values: LabelValues) -> Any:
    from mlfs_dask.files.limits import require_memory

    rows = np.repeat(np.arange(Y.shape[0]), np.diff(Y.indptr))
    if values.zero != NEGATIVE:
        if not values.zero_is_unknown:
            raise zero_in_sparse(values)
        require_memory(f"{Y.shape[0]:,} x {Y.shape[1]:,} labels of which most are unknown", Y.shape[0] * Y.shape[1])
        labels = np.full(Y.shape, -1, np.int8)
        labels[rows, Y.indices] = _coded(Y.data[:, None], values)[:, 0]
        return labels
    coded = type(Y)((_coded(Y.data[:, None], values)[:, 0], Y.indices, Y.indptr), shape=Y.shape)
    coded.eliminate_zeros()
    return coded


def zero_in_sparse(values: LabelValues, file: str | None = None) -> DataError:
    """Return the error for sparse labels whose implicit zeros are neither negative nor unknown."""
    meaning = "positive" if values.zero == POSITIVE else "not named"
    return DataError(
        f"the labels are sparse: implicit entries are 0, and 0 is {meaning}",
        file=file,
        cure="state that 0 is negative or unknown, or give the labels as a dense matrix",
    )


def _no_label(value: Any, row: int, column: int, values: LabelValues) -> DataError:
    return DataError(
        f"a label must be {values.described()}; column {column} of Y holds {value!s} (row {row}; counted from 0)",
        cure="name every value with positive=, negative= and unknown=",
    )
