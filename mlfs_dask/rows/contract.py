"""Rows as all code sees them: blocks of them in memory, their profile for plans, and a source that streams them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from mlfs_dask.blocks.unknown import no_labels
from mlfs_dask.rows.covariates import Covariates, Place, RowColumn
from mlfs_dask.typing import Array, Matrix, RowArray


class Block(NamedTuple):
    """Consecutive rows, as every kernel sees them.

    Attributes
    ----------
    start : int
        Index of the first row in the whole matrix.
    X : ndarray or csr_array, shape (rows, d)
        C-ordered when dense; canonical (sorted, no repeats) when sparse. The arrays may be views of a
        buffer that the next block overwrites: a kernel keeps no reference.
    Y : csr_array of int8, shape (rows, q)
        Canonical, entries 1 and -1 only; an absent entry is 0.
    weights : float64 array, shape (rows,), or None
        How often each row counts; None: once. Only statistics that are asked for it look at it.
    covariates : float64 array, shape (rows, c), or None
        What scores are adjusted for.
    """

    start: int
    X: Matrix
    Y: csr_array
    weights: Array | None = None
    covariates: Array | None = None

    def chosen(self, rows: NDArray[np.intp]) -> Block:
        """Some of the rows, copied."""
        weights, covariates = (None if each is None else each[rows] for each in (self.weights, self.covariates))
        return Block(self.start, self.X[rows], self.Y[rows], weights, covariates)


@dataclass(frozen=True)
class FeatureInfo:
    """What is known of each feature without a reading; None where it is not known.

    Attributes
    ----------
    minimum, maximum : float64 array, shape (d,), or None
        Over the values present (missing values apart; implicit zeros of sparse data counted).
    n_categories : int64 array, shape (d,), or None
        0 for a numeric feature, 2 for a 0/1 feature, K for a categorical one coded 0..K-1.
    n_missing : int64 array, shape (d,), or None
        Number of NaN.
    zero_share : float64 array, shape (d,), or None
        Share of zeros among the values present.
    """

    minimum: Array | None = None
    maximum: Array | None = None
    n_categories: NDArray[np.int64] | None = None
    n_missing: NDArray[np.int64] | None = None
    zero_share: Array | None = None


@dataclass(frozen=True)
class Profile:
    """The integers from which a job is planned; no data is touched to make it.

    Attributes
    ----------
    n, d, q : int
        Rows, features, labels.
    sparse : bool
        Whether X is sparse.
    dtype : dtype
        Of X as stored.
    nonzeros : int
        Stored values of X (n * d when dense).
    label_nonzeros : int
        Stored entries of Y.
    partitions : int
        Number of row partitions.
    block_rows : int
        Rows of the largest block that a reading hands to a kernel.
    block_bytes : int
        Bytes of X in the largest block.
    buffer_bytes : int
        Bytes that the reader holds while it streams a partition (its buffers, the blocks included).
    read_bytes : int
        Bytes read from storage by one reading of X and Y (0 for data in memory).
    weight : float or None
        Sum of the weights of the rows; None where every row counts once.
    covariates : int
        Covariates of a row.
    remote : bool
        Whether a server sends them, that takes a while to answer however little it is asked for.
    foreign : bool
        Whether every reading decodes a file of others, which a store would spare.
    arrays : tuple of RowArray
        What every process holds that reads the rows, beside buffers: which rows are meant, their weights.
    """

    n: int
    d: int
    q: int
    sparse: bool
    dtype: np.dtype[Any]
    nonzeros: int
    label_nonzeros: int
    partitions: int
    block_rows: int
    block_bytes: int
    buffer_bytes: int
    read_bytes: int
    weight: float | None = None
    covariates: int = 0
    remote: bool = False
    foreign: bool = False
    arrays: tuple[RowArray, ...] = ()

    @property
    def total(self) -> int | float:
        """How many rows count: n, or the sum of their weights."""
        return self.n if self.weight is None else self.weight

    @property
    def array_bytes(self) -> int:
        """Bytes of `arrays`."""
        return sum(array.nbytes for array in self.arrays)

    @property
    def itemsize(self) -> int:
        """Bytes of one stored value of X."""
        return self.dtype.itemsize

    @property
    def float_dtype(self) -> np.dtype[Any]:
        """The narrowest of float32 and float64 that holds every value of X: an int32 needs the second."""
        return np.result_type(self.dtype, np.float32)

    @property
    def block_values(self) -> int:
        """Stored values of X in the largest block, at most; of sparse X each has a column number of 4 bytes or more."""
        return min(self.block_bytes // (self.itemsize + 4 * self.sparse), self.nonzeros)

    @property
    def labels_of_row(self) -> int:
        """Stored entries of Y in a row, on average, rounded up."""
        return -(-self.label_nonzeros // max(self.n, 1))

    def labels_only(self) -> Profile:
        """The profile of the labels of the same rows, without a feature."""
        label_bytes = 5 * self.label_nonzeros + 8 * self.n
        return replace(
            self,
            d=0,
            sparse=True,
            nonzeros=0,
            block_bytes=label_bytes * self.block_rows // max(self.n, 1),
            read_bytes=min(self.read_bytes, label_bytes),
        )


class RowSource(ABC):
    """Rows of X and Y in partitions; any run of partitions can be streamed.

    Implemented for stores (`mlfs_dask.storage.store_reader`), files whose readers enter them at any row
    (`mlfs_dask.storage.file_rows`), Dask arrays and arrays in memory (`mlfs_dask.rows.sources`), for several of these
    (`mlfs_dask.rows.joined`), and for views (`mlfs_dask.rows.view`).

    Attributes
    ----------
    residence : {"storage", "process", "graph"}
        Where the rows are. "storage": any process of the cluster can stream them. "process": in the memory of this
        process, which therefore reads them itself, with a cluster too. "graph": in the row chunks of a Dask array, each
        of which is an argument of the task that reads it.
    """

    residence: Literal["storage", "process", "graph"] = "storage"

    @property
    @abstractmethod
    def profile(self) -> Profile: ...

    @property
    @abstractmethod
    def row_offsets(self) -> NDArray[np.int64]:
        """(partitions + 1,): the first row of every partition, and n."""

    @abstractmethod
    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Blocks of partitions first..last-1 in row order."""

    def labels_only(self) -> RowSource:
        """The labels of the same rows in the same partitions, X having no column; these rows, where X must be read."""
        return self

    def all_labels(self) -> csr_array:
        """Y of all rows, as int8, read without X where the source can."""
        pieces = [block.Y.copy() for block in self.labels_only().stream(0, len(self.row_offsets) - 1)]
        return csr_array(vstack([csr_array((0, self.profile.q), dtype=np.int8), *pieces], format="csr"))

    @property
    def features(self) -> FeatureInfo:
        """What is known of each feature without a reading."""
        return FeatureInfo()

    @property
    def quantiles(self) -> Array | None:
        """(d, s): quantiles that codes follow from (`blocks.codes.quantile_table`), if known without a reading."""
        return None

    @property
    def label_counts(self) -> NDArray[np.int64] | None:
        """(3, q): unknown, negative, positive entries of each label, if known without a reading."""
        return None

    @property
    def unknown_labels(self) -> NDArray[np.int64] | None:
        """Labels that may have unknown entries, rising; None where it takes a reading to tell."""
        counts = self.label_counts
        return None if counts is None else np.flatnonzero(counts[0])

    @property
    def weights(self) -> Array | None:
        """(n,): how often each row counts; None: once."""
        return None

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        """Columns of the rows beside X and Y, by name."""
        return {}

    def read_column(self, column: RowColumn) -> NDArray[Any]:
        """Codes of one of `columns`, a category, of all rows; shape (n,).

        Raises
        ------
        DataError
            One is missing.
        """
        return column.codes(self.all_rows)

    @property
    def all_rows(self) -> Place:
        """Where all rows lie, for columns of them."""
        return Place(0, self.profile.n, slice(None), 0)

    @property
    def feature_names(self) -> Sequence[str] | None:
        """Names of the features, by which covariates are found, where the source knows them."""
        return None

    @property
    def strata(self) -> RowColumn | None:
        """The strata of the rows, where labels are those of each of them."""
        return None

    @property
    def covariates(self) -> Covariates | None:
        """What the rows carry beside X and Y, for which scores are adjusted."""
        return None

    @property
    def digest(self) -> str | None:
        """Digest of the content, by which statistics are cached and checkpoints found; None where there is none."""
        return None

    @property
    def earlier(self) -> Sequence[tuple[str, int]]:
        """(digest, partitions) of the content before each time that rows were appended: its first partitions."""
        return ()

    def tail(self, first: int) -> RowSource:
        """The rows of partitions `first` and later, with their numbers in the whole; where there is an `earlier`."""
        raise TypeError(f"{type(self).__name__} has no rows that were appended")

    @property
    def place(self) -> str | None:
        """Path or URL of the store that the rows come from."""
        return None

    def require_visible(self) -> None:
        """Raise DataError or StoreAccessError unless this process can read the rows, where `residence` is "storage"."""
        return  # rows that come with their source are always there

    def delayed_partition(self, partition: int) -> Any:
        """A Dask Delayed of a `RowSource` that streams one partition; where `residence` is "graph"."""
        raise TypeError(f"{type(self).__name__} is no Dask array")


def profile_of(source: RowSource | Profile) -> Profile:
    """The profile of rows, or the one that stands for them in a plan."""
    return source if isinstance(source, Profile) else source.profile


def unknown_labels(source: RowSource | Profile) -> NDArray[np.int64]:
    """Labels that may have unknown entries, rising; none of a profile, and until a reading has told."""
    known = None if isinstance(source, Profile) else source.unknown_labels
    return no_labels() if known is None else known
