"""Further columns of the rows: covariates, for which scores are adjusted, strata, and clusters."""

from __future__ import annotations

import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError, number_of
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.files.object_store import is_url, read_text_file
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import RowSource

#: Largest number of categories: a covariate has an indicator for all but the first, a stratum a table for each.
MAX_CATEGORIES = 1000

#: Rows of a column that are read at a time.
_ROWS_AT_ONCE = 2**20

#: Rows in which columns are compared with labels, and the share of a label's variance within the values of a column up
#: to which the column nearly determines the label.
_ROWS_SEEN, _UNEXPLAINED = 2**15, 0.1


@dataclass(frozen=True)
class RowSpan:
    """Span of rows in a source, restricted to the rows of a view.

    Attributes
    ----------
    start, stop : int
        Row range of the source.
    inside : int64 array or slice
        Rows of the view within the range, counted from `start`.
    row : int
        Number, in the view, of the first row.
    """

    start: int
    stop: int
    inside: NDArray[np.int64] | slice
    row: int

    def number(self, i: int) -> int:
        """Return the number, in the source, of row i of the span's view rows."""
        return int(np.arange(self.start, self.stop)[self.inside][i])


class RowColumn(ABC):
    """Column of the rows of a source: numbers, or category codes.

    Attributes
    ----------
    name : str
    categories : sequence of str, or None
        Categories of the codes 0, 1, ...; None for numbers.
    nbytes : int
        Bytes of the column in every process.
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
    def read(self, span: RowSpan) -> NDArray[Any]:
        """Return the values of a span, shape (rows,). Missing values are NaN or negative codes."""

    def distinct(self, most: int) -> Array:
        """Return the distinct finite numbers of all rows, ascending; may stop once there are more than `most`."""
        raise NotImplementedError

    def cut(self, numbers: NDArray[np.int64] | slice) -> RowColumn:
        """Return the column for a view with the given rows."""
        return self

    @property
    def width(self) -> int:
        """Number of numeric columns: 1, or an indicator for each category but the first."""
        return 1 if self.categories is None else max(len(self.categories) - 1, 0)

    def codes(self, span: RowSpan) -> NDArray[Any]:
        """Return the category codes of a span.

        Raises
        ------
        DataError
            If a value is missing.
        """
        values = self.read(span)
        if (values < 0).any():
            raise _missing(self.name, span.number(int(np.argmax(values < 0))))
        return values

    def numbers(self, span: RowSpan) -> Array:
        """Return a span as numbers, shape (rows, width).

        Raises
        ------
        DataError
            If a value is missing or infinite.
        """
        values = self.read(span)
        missing = values < 0 if self.categories is not None else ~np.isfinite(values)
        if missing.any():
            raise _missing(self.name, span.number(int(np.argmax(missing))))
        if self.categories is None:
            return np.asarray(values, dtype=np.float64)[:, np.newaxis]
        indicators: Array = (values[:, np.newaxis] == np.arange(1, len(self.categories))).astype(float)
        return indicators


def _missing(name: str, row: int) -> DataError:
    return DataError(
        f"{name!r} is missing, or infinite, in row {row} (counted from 0)",
        cure="fill it in, choose the rows that have it (--rows), or leave the column out",
    )


@dataclass(frozen=True)
class ArrayColumn(RowColumn):
    """Column in memory with a value for each row of a view."""

    name: str
    values: NDArray[Any] = field(repr=False)
    categories: Sequence[str] | None = None

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return int(self.values.nbytes)

    @cached_property
    def identity(self) -> str:
        return digest_of({"categories": self.categories and list(self.categories), "values": self.values})

    def read(self, span: RowSpan) -> NDArray[Any]:
        rows = range(span.start, span.stop)[span.inside] if isinstance(span.inside, slice) else span.inside
        return self.values[span.row : span.row + len(rows)]

    def distinct(self, most: int) -> Array:
        return np.unique(self.values[np.isfinite(self.values)]).astype(np.float64)

    def cut(self, numbers: NDArray[np.int64] | slice) -> RowColumn:
        return replace(self, values=self.values[numbers])


@dataclass(frozen=True)
class SourceColumn(ArrayColumn):
    """Column in memory with a value for each row of the source; a view reads its own rows of it."""

    def read(self, span: RowSpan) -> NDArray[Any]:
        return self.values[span.start : span.stop][span.inside]

    def cut(self, numbers: NDArray[np.int64] | slice) -> RowColumn:
        return self


@dataclass(frozen=True)
class Covariates:
    """Covariates of the rows.

    Attributes
    ----------
    columns : tuple of RowColumn
    features : tuple of (int, str)
        Features that serve as covariates: column of X in the view, and name.
    in_strata : bool
        True if the last of `columns` holds the strata of the rows.
    """

    columns: tuple[RowColumn, ...] = ()
    features: tuple[tuple[int, str], ...] = ()
    in_strata: bool = False

    @property
    def stratum_columns(self) -> slice | None:
        """Slice of the stratum indicators within the covariates of a row; None without strata."""
        width = sum(column.width for column in self.columns)
        return slice(width - self.columns[-1].width, width) if self.in_strata else None

    @property
    def width(self) -> int:
        """Number of covariates per row."""
        return sum(column.width for column in self.columns) + len(self.features)

    @property
    def nbytes(self) -> int:
        """Bytes of the columns in every process."""
        return sum(column.nbytes for column in self.columns)

    @property
    def identity(self) -> list[Any]:
        """Plain values, equal for equal covariates of the same rows."""
        return [[column.identity for column in self.columns], [number for number, _ in self.features]]

    def of_rows(self, span: RowSpan, X: Matrix) -> Array:
        """Return the covariates of the block of X, shape (rows, width).

        Raises
        ------
        DataError
            If a value is missing or infinite.
        """
        parts = [column.numbers(span) for column in self.columns]
        for number, name in self.features:
            values = X[:, [number]]
            part = np.asarray(values if isinstance(values, np.ndarray) else values.toarray(), dtype=np.float64)
            if not np.isfinite(part).all():
                raise _missing(f"feature:{name}", span.number(int(np.argmin(np.isfinite(part[:, 0])))))
            parts.append(part)
        return np.concatenate(parts, axis=1) if parts else np.empty((X.shape[0], 0))

    def cut(self, numbers: NDArray[np.int64] | slice, features: NDArray[np.int64] | None) -> Covariates:
        """Return the covariates for a view with the given rows and features (ascending).

        Raises
        ------
        UsageError
            If a feature that is a covariate is not among the features.
        """
        indices = None if features is None else {int(number): index for index, number in enumerate(features)}
        for number, name in self.features:
            if indices is not None and number not in indices:
                raise UsageError(f"feature {name!r} is a covariate, and has to be among the chosen features")
        renumbered = [(number if indices is None else indices[number], name) for number, name in self.features]
        return Covariates(tuple(column.cut(numbers) for column in self.columns), tuple(renumbered), self.in_strata)


def as_column(name: str, values: Any, n: int) -> ArrayColumn:
    """Return a column of values in memory; texts, truth values and pandas categories become categories.

    Raises
    ------
    DataError
        If there are not n values, or too many categories.

    Examples
    --------
    >>> as_column("batch", ["b", "a", "b"], 3).values, as_column("age", [30, 31.5, 29], 3).categories
    (array([1, 0, 1], dtype=int32), None)
    """
    if hasattr(values, "cat") and hasattr(values, "dtype"):  # a pandas Series of categories
        categories, codes = [str(category) for category in values.cat.categories], np.asarray(values.cat.codes)
    elif hasattr(values, "categories") and hasattr(values, "codes"):
        categories, codes = [str(category) for category in values.categories], np.asarray(values.codes)
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
    return ArrayColumn(name, codes.astype(np.int32), categories)


def _as_categories(name: str, array: NDArray[Any]) -> ArrayColumn:
    missing = np.array([value is None or value != value for value in array]) if array.dtype.kind == "O" else None
    texts = array.astype(str)
    present = texts if missing is None else texts[~missing]
    categories = np.unique(present)
    codes = np.searchsorted(categories, texts).astype(np.int32) if len(categories) else np.zeros(len(texts), np.int32)
    if missing is not None:
        codes[missing] = -1
    return ArrayColumn(name, codes, [str(category) for category in categories])


def _check_categories(column: RowColumn) -> RowColumn:
    """Return the column, unless it has too many categories.

    Raises
    ------
    DataError
        If the column has more than `MAX_CATEGORIES` categories.
    """
    if column.categories is not None and len(column.categories) > MAX_CATEGORIES:
        raise DataError(
            f"{column.name!r} has {number_of(len(column.categories), 'category')}, at most {MAX_CATEGORIES:,} of which "
            "can be told apart. It may be a row number",
            cure="leave it out, or merge rare categories",
        )
    return column


def table_columns(table: Any, n: int, what: str) -> list[ArrayColumn]:
    """Return the columns of a table, an array in memory, or a Dask array, which is computed.

    Parameters
    ----------
    table : data frame, array-like of shape (n, c) or (n,)
    n : int
        Number of rows.
    what : str
        Purpose of the columns; unnamed columns are called by it and their number.

    Raises
    ------
    DataError

    Examples
    --------
    >>> [column.name for column in table_columns([[1, 2], [3, 4], [5, 6]], 3, "covariates")]
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
    if what != "covariates" and len(named) != 1:
        raise DataError(
            f"{what} are one column; got {len(named)}", cure="join them into one, such as batch and sex to 'batch sex'"
        )
    return [as_column(name, values, n) for name, values in named.items()]


def stratified_labels(Y: csr_array, codes: NDArray[Any], n_strata: int) -> csr_array:
    """Return labels for all strata, then for every label within every stratum, shape (rows, S + q S).

    Parameters
    ----------
    Y : csr_array of int8, shape (rows, q)
        Entries 1 and -1; an unknown entry stays unknown in the label within the row's stratum.
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
    is_stratum = np.zeros(len(indices), bool)
    is_stratum[indptr[:-1]] = True
    indices[is_stratum], data[~is_stratum] = codes, Y.data
    indices[~is_stratum] = n_strata * (1 + Y.indices.astype(np.int64)) + np.repeat(codes, np.diff(Y.indptr))
    return csr_array((data, indices, indptr), shape=(rows, n_strata * (1 + q)))


def indicator_codes(indicators: Array) -> NDArray[np.int64]:
    """Return the category codes of rows, shape (rows,), from their indicators of all categories but the first.

    >>> indicator_codes(np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0]])).tolist()
    [0, 2, 1]
    """
    return (indicators @ np.arange(1.0, 1 + indicators.shape[1])).astype(np.int64)


def strata_of(Y: csr_array) -> NDArray[np.int64]:
    """Return the strata of rows, shape (rows,), from their `stratified_labels`: the first entry of a row.

    >>> strata_of(csr_array(np.array([[0, 1, 0, 1], [1, 0, 0, 0]], np.int8))).tolist()
    [1, 0]
    """
    return np.asarray(Y.indices[Y.indptr[:-1]], np.int64)


def without_strata(Y: csr_array, n_strata: int) -> csr_array:
    """Return the original labels, shape (rows, q), of `stratified_labels`.

    >>> without_strata(csr_array(np.array([[0, 1, 0, -1], [1, 0, 0, 0]], np.int8)), 2).toarray().tolist()
    [[-1], [0]]
    """
    rows, columns = Y.shape
    is_label = np.ones(len(Y.indices), bool)
    is_label[Y.indptr[:-1]] = False
    indices = Y.indices[is_label] // n_strata - 1
    return csr_array((Y.data[is_label], indices, Y.indptr - np.arange(rows + 1)), shape=(rows, columns // n_strata - 1))


def labels_in_strata(labels: NDArray[np.int64], n_strata: int) -> NDArray[np.int64]:
    """Return the numbers, among `stratified_labels`, of the given labels within all strata.

    >>> labels_in_strata(np.array([0, 2]), 2).tolist()
    [2, 3, 6, 7]
    """
    return (n_strata * (1 + labels[:, np.newaxis]) + np.arange(n_strata)).ravel()


def labels_of_strata(numbers: NDArray[np.int64], n_strata: int) -> NDArray[np.int64]:
    """Return the original labels, ascending, of numbers among `stratified_labels`.

    >>> labels_of_strata(np.array([3, 6, 7]), 2).tolist()
    [0, 2]
    """
    return np.unique(numbers // n_strata - 1)


#: Prefix of a covariate's name that refers to a feature.
FEATURE = "feature:"


def covariate_names(names: str | Sequence[str] | None) -> list[str]:
    """Return the names of covariates, given in a sequence or separated by commas.

    >>> covariate_names("age, feature:sex"), covariate_names(None)
    (['age', 'feature:sex'], [])
    """
    return [name.strip() for name in names.split(",")] if isinstance(names, str) else list(map(str, names or ()))


def find_covariates(source: RowSource, names: str | Sequence[str], strata: str | None = None) -> Covariates:
    """Find covariates by name, in a list or separated by commas; a column of strata always becomes categories.

    Raises
    ------
    UsageError
        If a column does not exist.
    DataError
        If there are too many strata.
    """
    columns = []
    features = []
    for name in covariate_names(names):
        if name.startswith(FEATURE):
            features.append((_feature_number(source, name.removeprefix(FEATURE)), name.removeprefix(FEATURE)))
        else:
            columns.append(_check_categories(find_column(source, name, "covariate")))
    if strata is not None:
        columns.append(find_strata(source, strata))
    return Covariates(tuple(columns), tuple(features), strata is not None)


def find_strata(source: RowSource, name: str) -> RowColumn:
    """Find the column of strata, and convert its values to categories.

    Raises
    ------
    UsageError
        If the column does not exist.
    DataError
        If there are too many strata.
    """
    return _check_categories(as_categories(find_column(source, name, "column of strata"), MAX_CATEGORIES))


def find_clusters(source: RowSource, name: str) -> RowColumn:
    """Find the column of clusters by name, or read it from a text file with a line for every row.

    Raises
    ------
    UsageError
        If there is neither a column nor a file of this name.
    DataError
        If the file has another number of lines.
    """
    if name not in source.columns and (is_url(name) or Path(name).is_file()):
        return _as_categories(name, np.array(row_lines(name, source.profile.n), dtype=object))
    return as_categories(find_column(source, name, "column of clusters"))


def read_weights(source: RowSource, name: str) -> Array:
    """Return the values of a column of weights, shape (n,).

    Raises
    ------
    UsageError
        If the column does not exist, or holds categories.
    DataError
        If a value is missing.
    """
    column = find_column(source, name, "column of weights")
    if column.categories is not None:
        raise UsageError(f"the column of weights {name!r} holds categories\n  cure: give a column of numbers")
    return column.numbers(source.all_rows)[:, 0]


class ClusterSizes(NamedTuple):
    """Sizes of the clusters of some rows.

    Attributes
    ----------
    rows : int64 array, shape (G,)
        Number of rows of each cluster; 0 of a category without rows.
    overlap : int
        Largest number of clusters with rows both before and after a row: 1 if rows are sorted by cluster.
    """

    rows: NDArray[np.int64]
    overlap: int

    @property
    def n_clusters(self) -> int:
        """Number of clusters that have rows."""
        return int(np.count_nonzero(self.rows))


def count_clusters(source: RowSource, column: RowColumn) -> ClusterSizes:
    """Count the rows of each cluster, in a pass over the column.

    Raises
    ------
    DataError
        If a value is missing.
    """
    G = len(column.categories or ())
    sizes, first, last = np.zeros(G, np.int64), np.full(G, source.profile.n), np.full(G, -1)
    for row, codes in _codes_in_parts(source, column):
        numbers = np.arange(row, row + len(codes))
        sizes += np.bincount(codes, minlength=G)
        np.minimum.at(first, codes, numbers)
        np.maximum.at(last, codes, numbers)
    begins, ends = np.sort(first[sizes > 0]), np.sort(last[sizes > 0])
    # Just before the last row of a cluster, all clusters that began before that row and did not end are there.
    together = np.searchsorted(begins, ends, side="right") - np.arange(len(ends))
    return ClusterSizes(sizes, int(together.max(initial=0)))


def clusters_of_rows(source: RowSource, rows: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return the numbers of the clusters of some rows, ascending; None without clusters."""
    if source.clusters is None:
        return None
    pieces = []
    for row, codes in _codes_in_parts(source, source.clusters):
        low, high = np.searchsorted(rows, (row, row + len(codes)))
        pieces.append(codes[rows[low:high] - row])
    return np.concatenate([np.empty(0, np.int64), *pieces])


def _codes_in_parts(source: RowSource, column: RowColumn) -> Iterator[tuple[int, NDArray[Any]]]:
    """Yield the number of a row, and the category codes of the rows from it on."""
    whole, row = source.all_rows, 0
    for start in range(whole.start, whole.stop, _ROWS_AT_ONCE):
        stop, inside = min(start + _ROWS_AT_ONCE, whole.stop), whole.inside
        if isinstance(inside, np.ndarray):
            inside = inside[np.searchsorted(inside, start) : np.searchsorted(inside, stop)] - start
        codes = column.codes(RowSpan(start, stop, inside, row))
        yield row, codes
        row += len(codes)


def find_determining_column(source: RowSource, others: Sequence[str]) -> tuple[str, NDArray[np.int64]] | None:
    """Find a column that nearly determines labels and has more values than these labels; None without one.

    Its name and the numbers of the labels are returned.

    Rows with one value of such a column may belong together. The labels of up to 16 partitions are read in this
    process, at most `_ROWS_SEEN` rows.

    Parameters
    ----------
    source : RowSource
        Labels, not numeric targets.
    others : sequence of str
        Columns that are not considered.
    """
    names = [name for name in source.columns if name not in others]
    whole, offsets, labels = source.all_rows, source.row_offsets, source.labels_only()
    if not names or source.residence == "graph" or not isinstance(whole.inside, slice):
        return None
    partitions = np.unique(np.linspace(0, len(offsets) - 2, 16).astype(int)).tolist()
    seen = {name: list[NDArray[Any]]() for name in names}
    Y: list[NDArray[np.int8]] = []
    for partition in partitions:
        left = _ROWS_SEEN // len(partitions)
        for block in labels.stream(partition, partition + 1):
            rows = min(left, block.Y.shape[0])
            Y.append(block.Y[:rows].toarray())
            span = RowSpan(block.start, block.start + rows, slice(None), block.start)
            for name, values in seen.items():
                values.append(source.columns[name].read(span))
            left -= rows
            if not left:
                break
    positive = np.concatenate(Y) > 0
    m, share = len(positive), positive.mean(axis=0)
    for name, values in seen.items():
        codes, sizes = np.unique(np.concatenate(values), return_inverse=True, return_counts=True)[1:]
        if not 3 <= len(sizes) <= m // 2:
            continue
        sums = np.stack([np.bincount(codes, weights=column) for column in positive.T], axis=-1)
        within = m * share - (sums**2 / sizes[:, np.newaxis]).sum(axis=0)
        unexplained = within / (m - len(sizes)) / np.maximum(m * share * (1 - share), 1e-9) * (m - 1)
        determined = np.flatnonzero((share > 0) & (share < 1) & (unexplained < _UNEXPLAINED))
        if len(determined) and len(sizes) > len(np.unique(positive[:, determined], axis=0)):
            return name, determined
    return None


def row_lines(path: str, n: int) -> list[str]:
    """Return the lines of a text file with a line for every row.

    Raises
    ------
    DataError
        If the file cannot be read, or has another number of lines.
    """
    try:
        lines = [line.strip() for line in read_text_file(path).splitlines()]
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(
            f"cannot be read: {error}", file=path, cure="give a text file with a line for every row"
        ) from error
    if len(lines) != n:
        raise DataError(
            f"{len(lines):,} lines for {n:,} rows", file=path, cure="write one line for every row, without a header"
        )
    return lines


def find_column(source: RowSource, name: str, what: str = "column") -> RowColumn:
    """Find a column of the rows by name.

    Raises
    ------
    UsageError
        If the column does not exist.
    """
    columns = source.columns
    if name in columns:
        return columns[name]
    available = f"there are {', '.join(columns)}" if columns else "the rows have no columns beside features and labels"
    cure = "keep columns with `mlfs convert --obs NAMES`, or have AnnData bring them in obs"
    features = source.feature_names
    if what == "covariate" and features is not None and name in features:
        cure = f"write {FEATURE}{name} for the feature"
    elif what == "column of clusters" and source.place is not None:
        cure += ", or give a text file with a line for every row"
    elif source.place is None:
        cure = "give fit(X, Y, covariates=..., strata=..., clusters=...) the values of arrays"
    raise UsageError(f"the {what} {name!r} is not there; {available}\n  cure: {cure}")


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
    """Numeric column as categories, one for each distinct value."""

    numeric: RowColumn
    values: Array = field(repr=False)

    @property
    def name(self) -> str:  # type: ignore[override]
        return self.numeric.name

    @cached_property
    def categories(self) -> Sequence[str]:  # type: ignore[override]
        return [f"{value:g}" for value in self.values.tolist()]

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        return self.numeric.nbytes

    @property
    def identity(self) -> Any:
        return [self.numeric.identity, self.values]

    def read(self, span: RowSpan) -> NDArray[Any]:
        numbers = self.numeric.read(span)
        codes = np.searchsorted(self.values, numbers)
        return np.where(np.append(self.values, np.nan)[codes] == numbers, codes, -1)

    def cut(self, numbers: NDArray[np.int64] | slice) -> RowColumn:
        return replace(self, numeric=self.numeric.cut(numbers))


def as_categories(column: RowColumn, most: int = sys.maxsize) -> RowColumn:
    """Return a column as categories: the distinct values of a numeric column, found over all rows.

    The search for values may stop after more than `most`.
    """
    return column if column.categories is not None else CodedColumn(column, column.distinct(most))
