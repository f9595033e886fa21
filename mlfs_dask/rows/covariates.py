"""Columns that rows carry beside X and Y: what scores are adjusted for, and the strata that they are made in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError, number_of
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import RowSource

#: Most values of a category: every one but the first is a covariate, and of strata each has tables of its own.
MAX_CATEGORIES = 1000


@dataclass(frozen=True)
class Place:
    """Where the rows of a block lie.

    Attributes
    ----------
    start, stop : int
        Rows of the source of a view.
    inside : int64 array or slice
        Those of them that are in the view, counted from `start`.
    row : int
        Number of the first of these in the view.
    """

    start: int
    stop: int
    inside: NDArray[np.int64] | slice
    row: int

    def number(self, i: int) -> int:
        """Number of row i of the block in the source."""
        return int(np.arange(self.start, self.stop)[self.inside][i])


class RowColumn(ABC):
    """A column of the rows of a source: numbers, or codes of categories.

    Attributes
    ----------
    name : str
    categories : sequence of str, or None
        What the codes 0, 1, ... stand for; None: numbers.
    nbytes : int
        Bytes that every process holds of it.
    identity : plain values
        Equal for equal columns of the same rows.
    """

    name: str
    categories: Sequence[str] | None
    nbytes: int

    @property
    @abstractmethod
    def identity(self) -> Any: ...

    @abstractmethod
    def read(self, place: Place) -> NDArray[Any]:
        """Values of some rows, shape (rows,). Missing are NaN and negative codes."""

    def distinct(self) -> Array:
        """Different finite numbers of all rows, rising; where there are too many, some more than may be."""
        raise NotImplementedError

    def cut(self, numbers: NDArray[np.int64] | slice) -> RowColumn:
        """The column of a view that has some rows of this one."""
        return self

    @property
    def width(self) -> int:
        """Columns of numbers: categories are indicators of each but the first."""
        return 1 if self.categories is None else max(len(self.categories) - 1, 0)

    def codes(self, place: Place) -> NDArray[Any]:
        """Codes of categories of some rows.

        Raises
        ------
        DataError
            One is missing.
        """
        values = self.read(place)
        if (values < 0).any():
            raise _missing(self.name, place.number(int(np.argmax(values < 0))))
        return values

    def numbers(self, place: Place) -> Array:
        """Some rows as numbers, shape (rows, width).

        Raises
        ------
        DataError
            One is missing.
        """
        values = self.read(place)
        missing = values < 0 if self.categories is not None else ~np.isfinite(values)
        if missing.any():
            raise _missing(self.name, place.number(int(np.argmax(missing))))
        if self.categories is None:
            return np.asarray(values, dtype=np.float64)[:, np.newaxis]
        indicators: Array = (values[:, np.newaxis] == np.arange(1, len(self.categories))).astype(float)
        return indicators


def _missing(name: str, row: int) -> DataError:
    return DataError(
        f"{name!r} is missing, or infinite, in row {row} (counted from 0)",
        cure="fill it in, choose the rows that have it (--rows), or leave it out of covariates and strata",
    )


@dataclass(frozen=True)
class ArrayColumn(RowColumn):
    """A column in memory, of the rows of a view."""

    name: str
    values: NDArray[Any] = field(repr=False)
    categories: Sequence[str] | None = None

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return int(self.values.nbytes)

    @cached_property
    def identity(self) -> str:
        return digest_of({"categories": self.categories and list(self.categories), "values": self.values})

    def read(self, place: Place) -> NDArray[Any]:
        rows = range(place.start, place.stop)[place.inside] if isinstance(place.inside, slice) else place.inside
        return self.values[place.row : place.row + len(rows)]

    def distinct(self) -> Array:
        return np.unique(self.values[np.isfinite(self.values)]).astype(np.float64)

    def cut(self, numbers: NDArray[np.int64] | slice) -> RowColumn:
        return replace(self, values=self.values[numbers])


@dataclass(frozen=True)
class SourceColumn(ArrayColumn):
    """A column in memory, of the rows of a source, whichever of them a view has."""

    def read(self, place: Place) -> NDArray[Any]:
        return self.values[place.start : place.stop][place.inside]

    def cut(self, numbers: NDArray[np.int64] | slice) -> RowColumn:
        return self


@dataclass(frozen=True)
class Covariates:
    """The covariates of rows.

    Attributes
    ----------
    columns : tuple of RowColumn
    features : tuple of (int, str)
        Features that are covariates: column of X in the view, and name.
    in_strata : bool
        Whether the last column has the strata of the rows.
    """

    columns: tuple[RowColumn, ...] = ()
    features: tuple[tuple[int, str], ...] = ()
    in_strata: bool = False

    @property
    def stratum_columns(self) -> slice | None:
        """The numbers of a row that are indicators of its stratum; None without strata."""
        width = sum(column.width for column in self.columns)
        return slice(width - self.columns[-1].width, width) if self.in_strata else None

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return sum(column.width for column in self.columns) + len(self.features)

    @property
    def nbytes(self) -> int:
        """Bytes that every process holds."""
        return sum(column.nbytes for column in self.columns)

    @property
    def identity(self) -> list[Any]:
        """Equal for equal covariates of the same rows."""
        return [[column.identity for column in self.columns], [number for number, _ in self.features]]

    def of_rows(self, place: Place, X: Matrix) -> Array:
        """Covariates of the rows of a block, of which X is the matrix; shape (rows, width).

        Raises
        ------
        DataError
            One is missing.
        """
        parts = [column.numbers(place) for column in self.columns]
        for number, name in self.features:
            values = X[:, [number]]
            part = np.asarray(values if isinstance(values, np.ndarray) else values.toarray(), dtype=np.float64)
            if not np.isfinite(part).all():
                raise _missing(f"feature:{name}", place.number(int(np.argmin(np.isfinite(part[:, 0])))))
            parts.append(part)
        return np.concatenate(parts, axis=1) if parts else np.empty((X.shape[0], 0))

    def cut(self, numbers: NDArray[np.int64] | slice, features: NDArray[np.int64] | None) -> Covariates:
        """The covariates of a view that has some rows of this one and, rising, some features.

        Raises
        ------
        UsageError
            A feature that is a covariate is not among them.
        """
        places = None if features is None else {int(number): place for place, number in enumerate(features)}
        for number, name in self.features:
            if places is not None and number not in places:
                raise UsageError(f"feature {name!r} is a covariate, and has to be among the chosen features")
        kept = [(number if places is None else places[number], name) for number, name in self.features]
        return Covariates(tuple(column.cut(numbers) for column in self.columns), tuple(kept), self.in_strata)


def as_column(name: str, values: Any, n: int) -> ArrayColumn:
    """A column of values in memory: numbers as they are; texts, truth values and pandas categories as categories.

    Raises
    ------
    DataError
        There are not n of them, or too many categories.

    Examples
    --------
    >>> as_column("batch", ["b", "a", "b"], 3).values, as_column("age", [30, 31.5, 29], 3).categories
    (array([1, 0, 1], dtype=int32), None)
    """
    if hasattr(values, "cat") and hasattr(values, "dtype"):  # a pandas column of categories
        categories, codes = [str(each) for each in values.cat.categories], np.asarray(values.cat.codes)
    elif hasattr(values, "categories") and hasattr(values, "codes"):
        categories, codes = [str(each) for each in values.categories], np.asarray(values.codes)
    else:
        array = np.asarray(values)
        if array.ndim != 1 or len(array) != n:
            raise DataError(
                f"{name!r} must have shape ({n},), a value for every row; got {array.shape}",
                cure="give as many values as rows",
            )
        if array.dtype.kind in "iuf":
            return ArrayColumn(name, array)
        return _as_categories(name, array)
    if len(codes) != n:
        raise DataError(f"{name!r} has {len(codes):,} values for {n:,} rows", cure="give as many values as rows")
    return checked(ArrayColumn(name, codes.astype(np.int32), categories))


def _as_categories(name: str, array: NDArray[Any]) -> ArrayColumn:
    missing = np.array([each is None or each != each for each in array]) if array.dtype.kind == "O" else None
    texts = array.astype(str)
    known = texts if missing is None else texts[~missing]
    categories = np.unique(known)
    codes = np.searchsorted(categories, texts).astype(np.int32) if len(categories) else np.zeros(len(texts), np.int32)
    if missing is not None:
        codes[missing] = -1
    return checked(ArrayColumn(name, codes, [str(each) for each in categories]))


AnyColumn = TypeVar("AnyColumn", bound=RowColumn)


def checked(column: AnyColumn) -> AnyColumn:
    """The column.

    Raises
    ------
    DataError
        It has too many categories.
    """
    if column.categories is not None and len(column.categories) > MAX_CATEGORIES:
        raise DataError(
            f"{column.name!r} has {number_of(len(column.categories), 'category')}, at most {MAX_CATEGORIES:,} of which "
            "can be told apart. It may only number the rows",
            cure="leave it out, or join rare ones",
        )
    return column


def columns_of(table: Any, n: int, what: str) -> list[ArrayColumn]:
    """Columns of a table or an array in memory, or of a Dask array, which is computed.

    Parameters
    ----------
    table : data frame, array-like of shape (n, c) or (n,)
    n : int
        Rows.
    what : str
        What they are; columns without a name are called that and their number.

    Raises
    ------
    DataError

    Examples
    --------
    >>> [column.name for column in columns_of([[1, 2], [3, 4], [5, 6]], 3, "covariates")]
    ['covariates 0', 'covariates 1']
    """
    if hasattr(table, "compute"):
        table = table.compute()
    if hasattr(table, "toarray"):
        table = table.toarray()
    if hasattr(table, "columns"):  # a data frame
        named = {str(name): table[name] for name in table.columns}
    elif hasattr(table, "cat") or hasattr(table, "categories"):
        named = {str(getattr(table, "name", None) or what): table}
    else:
        array = np.asarray(table)
        columns = array[:, np.newaxis] if array.ndim == 1 else array
        if columns.ndim != 2 or len(columns) != n or columns.shape[1] == 0:
            raise DataError(
                f"{what} must have shape ({n}, c), a row for every row of X; got {array.shape}",
                cure="give as many rows as X has, and a column for each",
            )
        named = {what if array.ndim == 1 else f"{what} {i}": column for i, column in enumerate(columns.T)}
    if what == "strata" and len(named) != 1:
        raise DataError(
            f"strata are one column; got {len(named)}", cure="join them to one, such as batch and sex to 'batch sex'"
        )
    return [as_column(name, values, n) for name, values in named.items()]


def stratified_labels(Y: csr_array, codes: NDArray[Any], n_strata: int) -> csr_array:
    """Labels in which every stratum is one, and then every label within every stratum, shape (rows, S + q S).

    Parameters
    ----------
    Y : csr_array of int8, shape (rows, q)
        Entries 1 and -1; unknown entries are those of the label within the stratum of the row.
    codes : int array, shape (rows,)
        Strata of the rows.
    n_strata : int

    Examples
    --------
    >>> stratified_labels(csr_array(np.array([[1], [-1], [0]], np.int8)), np.array([0, 1, 1]), 2).toarray()
    array([[ 1,  0,  1,  0],
           [ 0,  1,  0, -1],
           [ 0,  1,  0,  0]], dtype=int8)
    """
    rows, q = Y.shape
    indptr = Y.indptr.astype(np.int64) + np.arange(rows + 1)
    indices, data = np.empty(indptr[-1], np.int64), np.ones(indptr[-1], np.int8)
    own = np.zeros(len(indices), bool)
    own[indptr[:-1]] = True
    indices[own], data[~own] = codes, Y.data
    indices[~own] = n_strata * (1 + Y.indices.astype(np.int64)) + np.repeat(codes, np.diff(Y.indptr))
    return csr_array((data, indices, indptr), shape=(rows, n_strata * (1 + q)))


def indicated(indicators: Array) -> NDArray[np.int64]:
    """Codes of rows, shape (rows,), of which there are indicators of each category but the first.

    >>> indicated(np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
    [0, 2, 1]
    """
    return (indicators @ np.arange(1.0, 1 + indicators.shape[1])).astype(np.int64)


def strata_of(Y: csr_array) -> NDArray[np.int64]:
    """Strata of rows, shape (rows,), of which Y has the `stratified_labels`: a row's first entry.

    >>> strata_of(csr_array(np.array([[0, 1, 0, 1], [1, 0, 0, 0]], np.int8))).tolist()
    [1, 0]
    """
    return np.asarray(Y.indices[Y.indptr[:-1]], np.int64)


def without_strata(Y: csr_array, n_strata: int) -> csr_array:
    """Labels, shape (rows, q), of which Y has the `stratified_labels`.

    >>> without_strata(csr_array(np.array([[0, 1, 0, -1], [1, 0, 0, 0]], np.int8)), 2).toarray().tolist()
    [[-1], [0]]
    """
    rows, columns = Y.shape
    own = np.ones(len(Y.indices), bool)
    own[Y.indptr[:-1]] = False
    indices = Y.indices[own] // n_strata - 1
    return csr_array((Y.data[own], indices, Y.indptr - np.arange(rows + 1)), shape=(rows, columns // n_strata - 1))


def labels_in_strata(labels: NDArray[np.int64], n_strata: int) -> NDArray[np.int64]:
    """Numbers of some labels within all strata, among `stratified_labels`.

    >>> labels_in_strata(np.array([0, 2]), 2).tolist()
    [2, 3, 6, 7]
    """
    return (n_strata * (1 + labels[:, np.newaxis]) + np.arange(n_strata)).ravel()


def labels_of_strata(numbers: NDArray[np.int64], n_strata: int) -> NDArray[np.int64]:
    """Labels, rising, of which some within strata are given by their numbers among `stratified_labels`.

    >>> labels_of_strata(np.array([3, 6, 7]), 2).tolist()
    [0, 2]
    """
    return np.unique(numbers // n_strata - 1)


#: What stands before the name of a feature that is a covariate.
FEATURE = "feature:"


def find_covariates(source: RowSource, names: str | Sequence[str], strata: str | None = None) -> Covariates:
    """Covariates by their names, in text with commas between; strata are categories, whatever they hold.

    Raises
    ------
    UsageError
        One is not there.
    DataError
        There are too many strata.
    """
    named = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(map(str, names))
    columns = []
    features = []
    for name in named:
        if name.startswith(FEATURE):
            features.append((_feature_number(source, name.removeprefix(FEATURE)), name.removeprefix(FEATURE)))
        else:
            columns.append(_find_column(source, name, "covariate"))
    if strata is not None:
        columns.append(find_strata(source, strata))
    return Covariates(tuple(columns), tuple(features), strata is not None)


def find_strata(source: RowSource, name: str) -> RowColumn:
    """The column whose values are strata, as categories.

    Raises
    ------
    UsageError
        It is not there.
    DataError
        There are too many of them.
    """
    return as_categories(_find_column(source, name, "column of strata"))


def _find_column(source: RowSource, name: str, what: str) -> RowColumn:
    known = source.columns
    if name in known:
        return known[name]
    there = f"there are {', '.join(known)}" if known else "the rows have no columns beside features and labels"
    cure = "keep columns with `mlfs convert --obs NAMES`, or have AnnData bring them in obs"
    features = source.feature_names
    if what == "covariate" and features is not None and name in features:
        cure = f"write {FEATURE}{name} for the feature"
    elif source.place is None:
        cure = "give fit(X, Y, covariates=..., strata=...) the values of arrays"
    raise UsageError(f"the {what} {name!r} is not there; {there}\n  cure: {cure}")


def _feature_number(source: RowSource, name: str) -> int:
    names = source.feature_names
    if names is not None and name in names:
        return list(names).index(name)
    if name.isdecimal() and int(name) < source.profile.d:
        return int(name)
    raise UsageError(
        f"there is no feature {name!r} to be a covariate\n  cure: give the name of a feature, or its number from 0"
    )


@dataclass(frozen=True)
class CodedColumn(RowColumn):
    """Numbers as categories, each value one of its own."""

    numeric: RowColumn
    found: Array = field(repr=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.numeric.name

    @property
    def categories(self) -> Sequence[str]:  # type: ignore[override]
        return [f"{value:g}" for value in self.found.tolist()]

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return self.numeric.nbytes

    @property
    def identity(self) -> Any:
        return [self.numeric.identity, self.found]

    def read(self, place: Place) -> NDArray[Any]:
        values = self.numeric.read(place)
        codes = np.searchsorted(self.found, values).clip(max=len(self.found) - 1)
        return np.where(self.found[codes] == values, codes, -1)

    def cut(self, numbers: NDArray[np.int64] | slice) -> RowColumn:
        return replace(self, numeric=self.numeric.cut(numbers))


def as_categories(column: RowColumn) -> RowColumn:
    """A column as categories; the values of one of numbers, which are all looked at, are some.

    Raises
    ------
    DataError
        There are too many.
    """
    coded = column if column.categories is not None else CodedColumn(column, column.distinct())
    return checked(coded)
