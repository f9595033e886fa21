"""Sources of rows from arrays: NumPy, SciPy sparse, pandas and Dask arrays.

Arrays in memory are streamed as views in this process; Dask arrays give one task per row chunk, with the chunk's blocks
as arguments. Stores have a faster source of their own (`mlfs_dask.storage.store_reader`).
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.codes import edge_rows, quantile_table, zero_share
from mlfs_dask.blocks.missing import count_nonzero_block
from mlfs_dask.blocks.sparse import as_labels, as_matrix, as_targets, count_labels
from mlfs_dask.errors import DataError
from mlfs_dask.rows.contract import Block, FeatureInfo, Profile, RowSource
from mlfs_dask.typing import Array, Matrix

if TYPE_CHECKING:
    import dask.array as da

#: Bytes of X per block: large enough to hide the cost of a kernel call, small enough for caches.
BLOCK_BYTES = 8 * 2**20


def as_rows(X: Any, Y: Any = None, *, numeric: bool = False) -> RowSource:
    """Return a source of the rows of X and Y, for any supported container.

    Parameters
    ----------
    X : ndarray, SciPy sparse, DataFrame, dask Array (dense, GCXS, COO or SciPy blocks), Dataset or RowSource
        Shape (n, d).
    Y : like X, optional
        Shape (n, q). None when X carries its labels (a Dataset or RowSource).
    numeric : bool
        True if Y holds numeric targets, NaN for unknown, instead of labels.

    Raises
    ------
    DataError
        If X and Y differ in their numbers of rows, or have chunks of unknown size.
    """
    if Y is None:
        rows = X if isinstance(X, RowSource) else getattr(X, "rows", None)
        if isinstance(rows, RowSource):
            return rows
        raise DataError("no labels were given: X is an array and Y is None", cure="fit(X, Y)")
    if any(_is_dask(array) and np.isnan(sum(sum(axis) for axis in array.chunks)) for array in (X, Y)):
        raise DataError(
            "the Dask array has chunks of unknown size",
            cure="call X.compute_chunk_sizes() before fit, or make it with dataframe.to_dask_array(lengths=True)",
        )
    if X.shape[0] != Y.shape[0]:
        raise DataError(f"X has {X.shape[0]} rows and Y has {Y.shape[0]}", cure="give labels for the same rows")
    shortcut = _store_rows(X, Y)
    if shortcut is not None:
        return shortcut
    if _is_dask(X) or _is_dask(Y):
        return DaskRows(X, Y, numeric=numeric)
    return ArrayRows(as_matrix(X), as_targets(Y) if numeric else as_labels(Y))


def _is_dask(array: Any) -> bool:
    module = sys.modules.get("dask.array")
    return module is not None and isinstance(array, module.Array)


def _store_rows(X: Any, Y: Any) -> RowSource | None:
    """Return the source of the store, if X and Y are the unmodified arrays of one opened store."""
    layers = []
    for array in (X, Y):
        if not _is_dask(array):
            return None
        layers.append(getattr(array.dask.layers.get(array.name), "rows", None))
    return layers[0] if layers[0] is not None and layers[0] is layers[1] else None


class ArrayRows(RowSource):
    """Source of rows in arrays in memory.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, d)
    Y : csr_array of int8, or float64 array, shape (n, q)
        Labels or numeric targets.
    block_bytes : int
        Bytes of X per block.
    n_categories : int64 array, shape (d,), optional
        Kind of each feature, if known (`FeatureInfo`).

    Attributes
    ----------
    matrix : ndarray or csr_array
        X.
    """

    residence = "process"

    def __init__(
        self,
        X: Matrix,
        Y: Any,
        *,
        block_bytes: int = BLOCK_BYTES,
        n_categories: NDArray[np.int64] | None = None,
    ) -> None:
        self.matrix = X
        self._Y = Y
        self._n_categories = n_categories
        n, d = X.shape
        nonzeros = int(X.nnz) if sp.issparse(X) else n * d
        value_bytes = X.dtype.itemsize + 4 * sp.issparse(X)  # a sparse value has a column index
        row_bytes = max(1, nonzeros * value_bytes // max(n, 1))
        self._block_rows = max(1, min(n, block_bytes // row_bytes))
        largest = self._block_rows * d * value_bytes
        if isinstance(X, sp.csr_array):
            edges = X.indptr[np.r_[0 : n : self._block_rows, n]]
            largest = value_bytes * int(np.diff(edges).max(initial=0))
        self.profile = Profile(
            n=n,
            d=d,
            q=Y.shape[1],
            sparse=sp.issparse(X),
            dtype=X.dtype,
            nonzeros=nonzeros,
            label_nonzeros=int(np.size(Y) if isinstance(Y, np.ndarray) else Y.nnz),
            numeric=isinstance(Y, np.ndarray),
            partitions=max(1, -(-n // self._block_rows)),
            block_rows=self._block_rows,
            block_bytes=largest,
            buffer_bytes=0,
            read_bytes=0,
        )
        partitions = range(self.profile.partitions)
        self.row_offsets = np.array([*(i * self._block_rows for i in partitions), n], dtype=np.int64)

    @cached_property
    def features(self) -> FeatureInfo:
        return replace(measure_features(self.matrix), n_categories=self._n_categories)

    @cached_property
    def quantiles(self) -> Array:
        return quantile_table(self.matrix, self.features, rows=edge_rows(self.profile))

    @cached_property
    def label_counts(self) -> NDArray[np.int64]:
        return count_labels(self._Y)

    def labels_only(self) -> RowSource:
        return ArrayRows(sp.csr_array((self.profile.n, 0)), self._Y)

    def stream(self, first: int, last: int) -> Iterator[Block]:
        rows = self._block_rows
        for i in range(first, last):
            part = slice(i * rows, min((i + 1) * rows, self.profile.n))
            if part.start == 0 and part.stop == self.profile.n:
                yield Block(0, self.matrix, self._Y)
            else:
                yield Block(part.start, self.matrix[part], self._Y[part])


class DaskRows(RowSource):
    """Source of rows in Dask arrays; every row chunk of X is a partition, and Y is split likewise.

    Parameters
    ----------
    X, Y : dask Array, or one of them an array in memory
        The task of a row chunk joins its column chunks.
    numeric : bool
        True if Y holds numeric targets.
    """

    residence = "graph"

    def __init__(self, X: Any, Y: Any, *, numeric: bool = False) -> None:
        import dask.array as da

        if not _is_dask(X):
            X = da.from_array(as_matrix(X), chunks=(Y.chunks[0], -1), asarray=False)
        if not _is_dask(Y):
            Y = da.from_array(as_targets(Y) if numeric else as_labels(Y), chunks=(X.chunks[0], -1), asarray=False)
        self.X: da.Array = X
        self.Y: da.Array = Y
        self.meta_is_sparse = not isinstance(X._meta, np.ndarray)
        n, d = (int(s) for s in X.shape)
        rows = max(X.chunks[0], default=0)
        itemsize = X.dtype.itemsize
        # The density of uncomputed blocks is unknown: dense is the safe assumption for memory.
        block_bytes = rows * d * (itemsize + 4 * self.meta_is_sparse)
        self.profile = Profile(
            n=n,
            d=d,
            q=int(Y.shape[1]),
            sparse=self.meta_is_sparse,
            dtype=X.dtype,
            nonzeros=n * d,
            label_nonzeros=n * int(Y.shape[1]),
            partitions=max(1, len(X.chunks[0])),
            block_rows=int(rows),
            block_bytes=int(block_bytes),
            buffer_bytes=int(block_bytes) + int(rows) * int(Y.shape[1]) * (8 if numeric else 1),
            read_bytes=0,
            numeric=numeric,
        )
        self._x_blocks = X.to_delayed()
        self._y_blocks = Y.to_delayed()
        self.row_offsets = np.cumsum((0, *X.chunks[0]))
        self._y_bounds = np.cumsum((0, *Y.chunks[0]))

    def labels_only(self) -> RowSource:
        import dask.array as da

        no_features = da.zeros((self.profile.n, 0), chunks=(self.X.chunks[0], (0,)))
        return DaskRows(no_features, self.Y, numeric=self.profile.numeric)

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Yield blocks, computed in order by the default scheduler; passes use `delayed_partition`."""
        for i in range(first, last):
            yield from self.delayed_partition(i).compute().stream(i, i + 1)

    def delayed_partition(self, partition: int) -> Any:
        """Return a delayed `ChunkRows` of one row chunk."""
        from dask.delayed import delayed

        start, stop = self.row_offsets[partition : partition + 2]
        first = int(np.searchsorted(self._y_bounds, start, side="right")) - 1
        first = min(first, len(self._y_bounds) - 2)  # an empty chunk of X after the last row
        last = max(int(np.searchsorted(self._y_bounds, stop, side="left")), first + 1)
        return delayed(ChunkRows, pure=False)(
            self.profile,
            self.row_offsets,
            partition,
            int(self._y_bounds[first]),
            list(self._x_blocks[partition]),
            [list(row) for row in self._y_blocks[first:last]],
        )


class ChunkRows(RowSource):
    """Source of one row chunk of `DaskRows`, whose blocks other tasks have computed.

    Parameters
    ----------
    profile : Profile
    row_offsets : int64 array, shape (partitions + 1,)
        Row offsets of the whole source.
    partition : int
    y_start : int
        Row of the whole source at which the blocks of Y begin.
    x : list of blocks
        Column chunks.
    y : list of lists of blocks
        Row chunks of column chunks.
    """

    residence = "process"

    def __init__(
        self,
        profile: Profile,
        row_offsets: NDArray[np.int64],
        partition: int,
        y_start: int,
        x: list[Any],
        y: list[list[Any]],
    ) -> None:
        self.profile = profile
        self.row_offsets = row_offsets
        self._partition = partition
        start, stop = (int(bound) for bound in row_offsets[partition : partition + 2])
        X = [as_matrix(piece) for piece in x]
        self._X = X[0] if len(X) == 1 else _join_columns(X)
        if profile.numeric:
            Y: Any = np.vstack([np.hstack([as_targets(piece) for piece in row]) for row in y])
        else:
            rows = [[as_labels(piece) for piece in row] for row in y]
            Y = sp.csr_array(sp.vstack([r[0] if len(r) == 1 else sp.hstack(r) for r in rows], format="csr"))
        self._Y = Y[start - y_start : stop - y_start]

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Yield the rows of the chunk as the block of partition `first`."""
        if self._X.shape[0]:
            yield Block(int(self.row_offsets[self._partition]), self._X, self._Y)


def _join_columns(pieces: list[Matrix]) -> Matrix:
    if any(sp.issparse(p) for p in pieces):
        joined = sp.csr_array(sp.hstack(pieces, format="csr"))
        joined.sort_indices()
        return joined
    return np.concatenate(pieces, axis=1)


def measure_features(X: Matrix) -> FeatureInfo:
    """Return the minimum, maximum, missing values and share of zeros of every column of a matrix in memory.

    A column without values has minimum and maximum 0.
    """
    n, d = X.shape
    if n == 0:
        low = high = np.zeros(d)
        n_missing = np.zeros(d, dtype=np.int64)
    elif sp.issparse(X):
        n_missing = np.bincount(X.indices[np.isnan(X.data)], minlength=d)
        columns = X.tocsc()
        low, high = (each.toarray().astype(np.float64) for each in (columns.nanmin(axis=0), columns.nanmax(axis=0)))
    else:
        n_missing = np.isnan(X).sum(axis=0) if X.dtype.kind == "f" else np.zeros(d, dtype=np.int64)
        if n_missing.any():
            low = np.fmin.reduce(X, axis=0).astype(np.float64)
            high = np.fmax.reduce(X, axis=0).astype(np.float64)
        else:
            low, high = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    empty = ~(np.isfinite(low) & np.isfinite(high)) & (n_missing == n)
    low = np.where(empty, 0.0, low)
    high = np.where(empty, 0.0, high)
    # NaN counts as nonzero.
    share = zero_share(n - n_missing, count_nonzero_block(X) - n_missing)
    return FeatureInfo(low, high, None, n_missing.astype(np.int64), share)
