"""Interface of readers: a header, independent parts, and batches of rows.

A reader turns one file into `Batch`es. It decides nothing about storage: values have the type of the file, labels are
int8, dense or sparse as the file has them. `mlfs_dask.storage.convert` stages the batches and writes the store, and
`mlfs_dask.storage.file_rows` reads them where they lie.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.readers.label_values import LabelValues, MinusOne
from mlfs_dask.redaction import redact
from mlfs_dask.typing import Matrix

#: Bytes of a batch where a file is read for its values or for some of its columns alone.
BATCH_BYTES = 8 << 20

#: Rows of a few columns that are read together.
SCAN_ROWS = 1 << 16

#: Bytes of a label of a row while it is written out as unknown.
UNKNOWN_BYTES = 40

#: Two values that mean false and true; sorted, false comes first.
BOOLEAN_SPELLINGS = ({"0", "1"}, {"no", "yes"}, {"n", "y"}, {"false", "true"}, {"f", "t"})


def sort_categories(texts: Iterable[str]) -> list[str]:
    """Return texts in the order of their codes: sorted, false before true in whatever letters.

    Examples
    --------
    >>> sort_categories({"no", "Yes"}), sort_categories({"no", "Yes", "Zzz"})
    (['no', 'Yes'], ['Yes', 'Zzz', 'no'])
    """
    found = set(texts)
    is_boolean = len(found) == 2 and {text.lower() for text in found} in BOOLEAN_SPELLINGS
    return sorted(found, key=str.lower if is_boolean else None)


def is_subsequence(some: Sequence[str], texts: Sequence[str]) -> bool:
    """Return True if the distinct texts of `some` occur in `texts` in the same order.

    Examples
    --------
    >>> is_subsequence(["low", "high"], ["low", "mid", "high"]), is_subsequence(["high", "low"], ["low", "high"])
    (True, False)
    """
    rest = iter(texts)
    return all(text in rest for text in some)


def damaged(problem: str, file: str, **place: Any) -> DataError:
    """Return the error of a damaged file; `place` is its line or row, column and value."""
    return DataError(problem, file=file, **place, cure="the file is damaged or cut off: fetch or write it again")


class NoRowsError(DataError):
    """A file that is whole and has no rows, which is left out beside others that have some."""


@dataclass(frozen=True)
class Header:
    """Names and declared kinds, known before any row is read.

    Attributes
    ----------
    feature_names, label_names : tuple of str or None
        None where the format has no names: they become `x0..`, `y0..` when the widths are known.
    categories : dict of int to tuple of str
        Feature index -> declared values in the order of their codes 0..K-1, for nominal features. A two-valued
        nominal that means false/true in any spelling is given as its 0/1 values, false first.
    n_features, n_labels : int or None
        None where only the last row tells (svmlight).
    n_rows : int or None
        If the file declares it.
    minus_one : {"unknown", "negative"} or None
        What -1 means among the labels, where the file says so itself.
    """

    feature_names: tuple[str, ...] | None
    label_names: tuple[str, ...] | None
    categories: dict[int, tuple[str, ...]] = field(default_factory=dict)
    n_features: int | None = None
    n_labels: int | None = None
    n_rows: int | None = None
    minus_one: MinusOne | None = None

    @classmethod
    def of_columns(
        cls, names: Sequence[str], features: Sequence[int], labels: Sequence[int], *, n_rows: int | None = None
    ) -> Header:
        """Return the header of a table with columns of features and of labels."""
        return cls(
            feature_names=tuple(names[column] for column in features),
            label_names=tuple(names[column] for column in labels),
            n_features=len(features),
            n_labels=len(labels),
            n_rows=n_rows,
        )

    def labels_only(self) -> Header:
        """Return the header of the labels alone; X has no column."""
        return replace(self, feature_names=None, categories={}, n_features=0)

    @property
    def recorded_categories(self) -> dict[int, tuple[str, ...]]:
        """The categories that a store records: what 0 and 1 mean only where it is not false and true."""
        return {
            feature: values
            for feature, values in sorted(self.categories.items())
            if {value.lower() for value in values} not in BOOLEAN_SPELLINGS
        }


class Part(NamedTuple):
    """Independent piece of a source: a byte range, a run of row groups, a range of rows.

    A file that cannot be entered in the middle (compressed text) is one part.

    Attributes
    ----------
    index : int
        Number of the part.
    start, stop : int
        Uncompressed bytes or rows, in the units of the reader; `stop` None means to the end.
    row : int or None
        Number of its first row, where the format tells without a pass.
    file : int
        Number of the file, of several that are read as one.
    """

    index: int  # type: ignore[assignment]  # shadows tuple.index, which nobody calls
    start: int
    stop: int | None
    row: int | None = None
    file: int = 0


def parts_at(starts: Iterable[int], stop: int | None, *, rows: bool = False) -> list[Part]:
    """Return the parts that begin at `starts`, the last of which ends at `stop`; `rows`: starts are numbers of rows."""
    bounds = itertools.pairwise([*starts, stop])
    return [Part(i, a, b, a if rows else None) for i, (a, b) in enumerate(bounds) if a is not None]


class Batch(NamedTuple):
    """Consecutive rows of a source.

    Attributes
    ----------
    X : ndarray or csr_array, shape (rows, d)
        Of type `Reader.dtype`. NaN = missing. Nominal values are codes. Widths may still grow where the header has no
        width. An ndarray that owns its memory is given away: it is changed in place.
    Y : csr_array of int8, shape (rows, q)
        Entries 1, `UNKNOWN` and `MINUS_ONE`, no explicit zeros. What a -1 of the source means follows from all labels
        together, so that it is settled after the last row (`Statistics.settle_minus_one`).
    first_line : int or None
        Line number of the batch's first row, for messages about it; None where the format has no lines or a
        part that starts in the middle does not know it.
    """

    X: Matrix
    Y: csr_array
    first_line: int | None = None


class Reader(ABC):
    """One opened source; picklable, so that parts are read in other processes.

    Constructed by the format's `open_*` function with the path, the label specification and the storage options.

    Attributes
    ----------
    header : Header
    path : str
    in_threads : bool
        Whether `read` spends its time in compiled code without the interpreter's lock, so that threads read parts side
        by side. Then nothing of the reader may be changed by reading.
    opened_bytes : int
        Bytes that the open source takes beside batches.
    enterable : bool
        Whether rows are read from any row on at no extra cost, so that passes need no store. The members below are
        those of such a reader.
    dtype : dtype
        Of X in batches.
    sparse : bool
        Whether X is sparse.
    nonzeros : int
        Stored values of X.
    """

    in_threads: bool = True
    opened_bytes: int = 0
    enterable: bool = False
    dtype: np.dtype[Any] = np.dtype(np.float64)
    sparse: bool = False
    header: Header
    path: str
    nonzeros: int

    @abstractmethod
    def parts(self, part_bytes: int) -> list[Part]:
        """Split into independent parts of about `part_bytes` bytes of source."""

    @abstractmethod
    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of one part.

        A batch holds at most about `batch_bytes` bytes, 8 bytes a value; the reader holds at most a small multiple of
        it. Raises DataError with file, line, column, value and cure.
        """

    def pass_reader(self) -> Reader:
        """Return a reader of the same rows for passes whose plan has room for `held_bytes`."""
        return self

    def held_bytes(self, batch_bytes: int) -> int:
        """Return bytes that `read` holds beside its batches."""
        raise NotImplementedError

    def only_labels(self) -> Reader:
        """Return a reader of the labels alone; X has no column."""
        raise NotImplementedError


@dataclass(frozen=True)
class LabelSpec:
    """Label columns and the meaning of their values; the label options of `mlfs convert`.

    Give at most one of `columns` and `count`; formats that store labels apart from features need neither.

    Parameters
    ----------
    xml : str, optional
        Mulan's file of label names, or a table of labels (CSV), of which `columns` chooses some.
    key : str, optional
        Column of the data whose values are in the first column of that table.
    columns : tuple of str, optional
        Label columns: names, numbers from 1, or patterns such as `fault_*`.
    count : int, optional
        Number of label columns, the last ones or, with `first`, the first ones.
    first : bool
    positive, negative, unknown : tuple of str
        Values with this meaning.
    classes : bool
        Each class of a column becomes a label.
    separator : str, optional
        Text between two tags of a column; each tag becomes a label.
    """

    xml: str | None = None
    key: str | None = None
    columns: tuple[str, ...] | None = None
    count: int | None = None
    first: bool = False
    positive: tuple[str, ...] = ()
    negative: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    classes: bool = False
    separator: str | None = None

    def __post_init__(self) -> None:
        names_labels = self.xml is not None and self.xml.endswith(".xml")
        if names_labels + (self.columns is not None) + (self.count is not None) > 1 or (self.xml and self.count):
            raise UsageError(
                "--label-file, --label-columns and --n-labels exclude one another; only a table of labels can be given "
                "with --label-columns"
            )

    @property
    def names_columns(self) -> bool:
        """True if the label columns are given."""
        return self.xml is not None or self.columns is not None or self.count is not None

    @cached_property
    def values(self) -> LabelValues:
        """Meaning of label values."""
        return LabelValues(self.positive, self.negative, self.unknown)


@dataclass(frozen=True)
class FileSpec:
    """Specification of files: labels, format, columns.

    Attributes
    ----------
    labels : LabelSpec
    format : str or None
        Name of the format; None: by name and content.
    keys : dict of str to str
        What one format alone understands: the arrays in a .mat or .npz file, `feature_base` of svmlight.
    drop : tuple of str
        Names of columns to leave out, such as row identifiers and text.
    transpose : bool
        Rows of the file are features, and columns samples.
    obs : tuple of str
        Names of columns of rows, which are no features.
    storage_options : dict
        Of obstore (s3:, gs:, az:, https:) or of the file system of fsspec.
    only_obs : bool
        Whether columns of rows are read, in place of the features.
    targets : tuple of str
        Names of columns of rows, among `obs`, that are numeric targets.
    folder : str
        The folder that was named, below which names of folders such as ``year=2024`` are columns of Parquet files.
    """

    labels: LabelSpec = LabelSpec()
    format: str | None = None
    keys: dict[str, str] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    transpose: bool = False
    obs: tuple[str, ...] = ()
    storage_options: dict[str, Any] = field(default_factory=dict, repr=False)
    only_obs: bool = False
    targets: tuple[str, ...] = ()
    folder: str = ""

    @classmethod
    def of(
        cls,
        *,
        labels: LabelSpec | None = None,
        format: str | None = None,
        keys: Mapping[str, str] | None = None,
        drop: Iterable[str] = (),
        transpose: bool = False,
        obs: Iterable[str] = (),
        targets: Iterable[str] = (),
        storage_options: Mapping[str, Any] | None = None,
    ) -> FileSpec:
        """Return the specification that keyword arguments of `convert` and `open_dataset` give."""
        labels, targets = labels or LabelSpec(), tuple(targets)
        if targets and not labels.names_columns:
            labels = replace(labels, columns=())  # nothing but the targets
        return cls(
            labels,
            format,
            dict(keys or {}),
            tuple(drop),
            transpose,
            (*obs, *targets),
            dict(storage_options or {}),
            targets=targets,
        )

    @property
    def record(self) -> dict[str, Any]:
        """Given values as plain data, without defaults and without secrets."""
        labels = {name: value for name, value in asdict(self.labels).items() if value}
        keys = {key: redact(value) for key, value in self.keys.items()}
        said: dict[str, Any] = {"labels": labels, "format": self.format, "keys": keys, "drop": self.drop}
        obs = tuple(name for name in self.obs if name not in self.targets)
        said |= {"transpose": self.transpose, "obs": obs, "targets": self.targets}
        return {name: value for name, value in said.items() if value}

    @property
    def label_files(self) -> list[str]:
        """Files beside the sources that name or hold labels."""
        return [path for path in (self.labels.xml, self.keys.get("labels")) if path]


#: Specification of a file of which nothing is said.
DEFAULT_SPEC = FileSpec()


def _never(*_: Any) -> bool:
    return False


@dataclass(frozen=True, kw_only=True)
class Format:
    """Format of files, as a module of `mlfs_dask.formats` declares it in `FORMATS`.

    Attributes
    ----------
    name : str
        In `--format`.
    title : str
        In messages.
    open : callable
        ``open(path, spec)`` returns a `Reader`; the paths of a pair come as a tuple.
    suffixes : tuple of str
    keys : tuple of str or None
        Names in `FileSpec.keys` that it understands; None: `open` checks them.
    head : callable
        ``head(content, lines)``: whether a file with another suffix is one, by its first bytes and by the lines of
        them that are neither empty nor comments.
    group : callable
        ``group(root)``: whether an opened HDF5 file or Zarr group is one.
    folder : callable
        ``folder(path)``: whether a local folder is one.
    order : int
        Formats of a lower order are asked first.
    in_place : callable
        ``in_place(path)``: whether passes can read the rows where they lie.
    is_table : bool
        Labels are columns, and so are columns of rows.
    has_label_array : bool
        Labels are an array of their own, which no label option can name.
    takes_label_table : bool
        A table may hold the labels of a single matrix.
    is_container : bool
        The content decides the format, by `group`.
    is_matrix : callable or None
        ``is_matrix(path, spec)``: whether a file is X or Y alone, of two that are a pair.
    obs : tuple of two callables, or None
        ``names(path, spec)`` and ``read(path, names, spec)`` of columns of rows, where it is no table.
    var_column : callable or None
        ``var_column(path, name, spec)``: texts of a column of the features.
    """

    name: str
    title: str
    open: Callable[..., Reader]
    suffixes: tuple[str, ...] = ()
    keys: tuple[str, ...] | None = ()
    head: Callable[[bytes, list[str]], bool] = _never
    group: Callable[[Any], bool] = _never
    folder: Callable[[str], bool] = _never
    order: int = 0
    in_place: Callable[[str], bool] = lambda path: True
    is_table: bool = False
    has_label_array: bool = False
    takes_label_table: bool = False
    is_container: bool = False
    is_matrix: Callable[[str, FileSpec], bool] | None = None
    obs: tuple[Callable[..., tuple[str, ...]], Callable[..., Any]] | None = None
    var_column: Callable[[str, str, FileSpec], tuple[str, ...]] | None = None


def begins_with(mark: bytes) -> Callable[[bytes, list[str]], bool]:
    """Return a `Format.head` that recognises the first bytes of a file."""
    return lambda content, lines: content.startswith(mark)


#: Keys of formats that hold matrices as arrays.
NAME_KEYS = ("names", "label_names")
ARRAY_KEYS = ("x", "y", *NAME_KEYS)
