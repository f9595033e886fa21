"""The contract of row data: blocks in memory, the profile for plans, and sources that stream blocks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array, vstack

from mlfs_dask.blocks.unknown import no_labels
from mlfs_dask.rows.covariates import ClusterSizes, Covariates, RowColumn, RowSpan, count_clusters
from mlfs_dask.rows.targets import TargetForm
from mlfs_dask.typing import Array, Matrix, RowArray


class Block(NamedTuple):
    """Consecutive rows in memory, the input of all kernels.

    Attributes
    ----------
    start : int
        Index of the block's first row in the source.
    X : ndarray or csr_array, shape (rows, d)
        C-ordered if dense; canonical (sorted, no duplicates) if sparse. The arrays may be views of a buffer that the
        next block overwrites: a kernel keeps no reference.
    Y : csr_array of int8, or float64 array, shape (rows, q)
        Labels: canonical, entries 1 and -1 only; absent entries are 0. Numeric targets (`Profile.numeric`): dense, NaN
        for unknown.
    weights : float64 array, shape (rows,), or None
        Weight of each row; None: 1. Only weighted statistics use it.
    covariates : float64 array, shape (rows, c), or None
        Covariates for which scores are adjusted.
    clusters : int array, shape (rows,), or None
        Number of the cluster of each row.
    files : RowFiles or None
        Files of the cache for arrays of the block's rows (`mlfs_dask.engine.cache`); None: nothing is kept.
    """

    start: int
    X: Matrix
    Y: Any
    weights: Array | None = None
    covariates: Array | None = None
    clusters: NDArray[Any] | None = None
    files: Any = None

    def select_rows(self, rows: NDArray[np.intp]) -> Block:
        """Return a copy of the given rows."""
        columns = (None if a is None else a[rows] for a in (self.weights, self.covariates, self.clusters))
        return Block(self.start, self.X[rows], self.Y[rows], *columns)


@dataclass(frozen=True)
class FeatureInfo:
    """Facts about each feature that are available without a pass; None if unknown.

    Attributes
    ----------
    minimum, maximum : float64 array, shape (d,), or None
        Range of the values present (without missing values, with implicit zeros of sparse data).
    n_categories : int64 array, shape (d,), or None
        0 for a numeric feature, 2 for a 0/1 feature, K for a categorical one coded 0..K-1.
    n_missing : int64 array, shape (d,), or None
        Number of NaN values.
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
    """Sizes from which a job is planned; computed without reading data.

    Attributes
    ----------
    n, d, q : int
        Rows, features, labels.
    sparse : bool
        True if X is sparse.
    dtype : dtype
        Stored dtype of X.
    nonzeros : int
        Number of stored values of X (n * d if dense).
    label_nonzeros : int
        Number of stored entries of Y.
    partitions : int
        Number of row partitions.
    block_rows : int
        Rows of the largest block that a pass hands to a kernel.
    block_bytes : int
        Bytes of X in the largest block.
    buffer_bytes : int
        Bytes of the reader's buffers for a partition, including the blocks.
    read_bytes : int
        Bytes read from storage in one pass over X and Y (0 for data in memory).
    weight : float or None
        Sum of the row weights; None without weights.
    covariates : int
        Number of covariates per row.
    remote : bool
        True if a server with a latency for every request delivers the rows.
    foreign : bool
        True if every pass decodes a file of another program, which conversion to a store would avoid.
    numeric : bool
        True if Y holds numeric targets instead of labels.
    arrays : tuple of RowArray
        Arrays that every process of a pass holds besides buffers, such as a row mask or row weights.
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
    numeric: bool = False
    arrays: tuple[RowArray, ...] = ()

    @property
    def total(self) -> int | float:
        """Number of rows, or the sum of their weights."""
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
        """Narrowest of float32 and float64 that represents every value of X; int32 needs float64."""
        return np.result_type(self.dtype, np.float32)

    @property
    def block_values(self) -> int:
        """Most stored values of X in a block; a sparse value has a column index of 4 bytes or more."""
        return min(self.block_bytes // (self.itemsize + 4 * self.sparse), self.nonzeros)

    @property
    def labels_of_row(self) -> int:
        """Average number of stored entries of Y per row, rounded up."""
        return -(-self.label_nonzeros // max(self.n, 1))

    def labels_only(self) -> Profile:
        """Return the profile of the labels of the same rows, without features."""
        label_bytes = (8 if self.numeric else 5) * self.label_nonzeros + 8 * self.n
        return replace(
            self,
            d=0,
            sparse=True,
            nonzeros=0,
            block_bytes=label_bytes * self.block_rows // max(self.n, 1),
            read_bytes=min(self.read_bytes, label_bytes),
        )


class RowSource(ABC):
    """Rows of X and Y in partitions; any range of partitions can be streamed.

    Implemented for stores (`mlfs_dask.storage.store_reader`), for files that a reader can enter at any row
    (`mlfs_dask.storage.file_rows`), for Dask arrays and arrays in memory (`mlfs_dask.rows.sources`), for several
    sources in sequence (`mlfs_dask.rows.joined`), and for views (`mlfs_dask.rows.view`).

    Attributes
    ----------
    residence : {"storage", "process", "graph"}
        Location of the rows. "storage": any process of the cluster can stream them. "process": in the memory of this
        process, which streams them itself, even with a cluster. "graph": in the row chunks of a Dask array; each chunk
        is an argument of the task that streams it.
    weights : float64 array, shape (n,), or None
        Row weights; None: 1.
    strata : RowColumn or None
        Strata of the rows, if the labels are split by stratum (`stratified_labels`).
    targets : TargetForm or None
        Form in which numeric targets are streamed; None: as they are.
    covariates : Covariates or None
        Covariates of the rows, for which scores are adjusted.
    clusters : RowColumn or None
        Clusters of the rows: rows of different clusters are independent.
    earlier : sequence of (str, int)
        Digest and number of partitions before each append of rows; they are the first partitions.

    Notes
    -----
    A source sets an attribute when it is made, or computes it once, when it is first asked for.
    """

    residence: Literal["storage", "process", "graph"] = "storage"
    weights: Array | None = None
    strata: RowColumn | None = None
    targets: TargetForm | None = None
    covariates: Covariates | None = None
    clusters: RowColumn | None = None
    earlier: Sequence[tuple[str, int]] = ()

    @cached_property
    def profile(self) -> Profile:
        """Sizes from which a job is planned."""
        raise NotImplementedError

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        """First row of every partition, and n; shape (partitions + 1,)."""
        raise NotImplementedError

    @abstractmethod
    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Yield the blocks of partitions first..last-1 in row order."""

    def labels_only(self) -> RowSource:
        """Return a source of the labels alone, without features, or self if labels cannot be read without X."""
        return self

    def labels_and_covariates(self) -> RowSource:
        """Return a source of labels and covariates, without features if they can be read without X."""
        return self

    def all_labels(self) -> Any:
        """Return Y of all rows, as in a `Block`, read without X if the source can."""
        pieces = [block.Y.copy() for block in self.labels_only().stream(0, len(self.row_offsets) - 1)]
        return stack_labels(pieces, self.profile.q, numeric=self.profile.numeric)

    @cached_property
    def features(self) -> FeatureInfo:
        """Facts about each feature that are available without a pass."""
        return FeatureInfo()

    @property
    def quantiles(self) -> Array | None:
        """Quantiles that define the codes (`blocks.codes.quantile_table`), shape (d, s); None if they need a pass."""
        return None

    @cached_property
    def label_counts(self) -> NDArray[np.int64] | None:
        """Unknown, negative and positive entries of each label, shape (3, q); None if they need a pass."""
        return None

    @property
    def unknown_labels(self) -> NDArray[np.int64] | None:
        """Labels that may have unknown entries, ascending; None if a pass is needed to find them."""
        counts = self.label_counts
        return None if counts is None else np.flatnonzero(counts[0])

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        """Further columns of the rows, by name."""
        return {}

    def read_column(self, column: RowColumn) -> NDArray[Any]:
        """Read the category codes of one of `columns` for all rows, shape (n,).

        Raises
        ------
        DataError
            If a value is missing.
        """
        return column.codes(self.all_rows)

    @property
    def all_rows(self) -> RowSpan:
        """Span of all rows, for reading `columns`."""
        return RowSpan(0, self.profile.n, slice(None), 0)

    @property
    def feature_names(self) -> Sequence[str] | None:
        """Feature names, by which covariates are found; None if the source has no names."""
        return None

    @cached_property
    def cluster_sizes(self) -> ClusterSizes | None:
        """Sizes of the clusters, from a pass over their column; None without clusters."""
        return None if self.clusters is None else count_clusters(self, self.clusters)

    @cached_property
    def digest(self) -> str | None:
        """Digest of the content, the key of cached statistics and checkpoints; None without a digest."""
        return None

    def tail(self, first: int) -> RowSource:
        """Return the rows of partitions `first` and later, keeping their row numbers; needs an `earlier`."""
        raise TypeError(f"{type(self).__name__} has no rows that were appended")

    @cached_property
    def place(self) -> str | None:
        """Path or URL of the store of the rows; None for other sources."""
        return None

    def require_visible(self) -> None:
        """Raise DataError or StoreAccessError unless this process can read the rows; for `residence` "storage"."""
        return  # other sources carry their rows with them

    def delayed_partition(self, partition: int) -> Any:
        """Return a Dask Delayed of a `RowSource` that streams one partition; for `residence` "graph"."""
        raise TypeError(f"{type(self).__name__} is no Dask array")


def stack_labels(pieces: Sequence[Any], q: int, *, numeric: bool) -> Any:
    """Stack the labels, or numeric targets, of consecutive rows; a single piece is returned as it is."""
    if len(pieces) == 1:
        return pieces[0]
    if numeric:
        return np.concatenate([np.empty((0, q)), *pieces])
    return csr_array(vstack([csr_array((0, q), dtype=np.int8), *pieces], format="csr"))


def profile_of(source: RowSource | Profile) -> Profile:
    """Return the profile of a source; a profile, which stands for the source in a plan, is returned as it is."""
    return source if isinstance(source, Profile) else source.profile


def unknown_labels(source: RowSource | Profile) -> NDArray[np.int64]:
    """Return the labels that may have unknown entries, ascending; empty for a profile, or before a pass found them."""
    labels = None if isinstance(source, Profile) else source.unknown_labels
    return no_labels() if labels is None else labels
