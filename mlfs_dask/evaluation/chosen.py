"""Chosen columns of chosen rows, block by block, from memory or from a file: what classifiers learn from and judge.

The columns of all rows are read once (`evaluation.table`); training parts and judged rows are views of them that are
copied a block at a time. Blocks are cut by the number of columns alone, so that results are the same bits wherever the
columns are. Neighbours are searched as in `primitives.neighbours`, but among other rows than those that ask, too.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.neighbours import SCRATCH_BYTES
from mlfs_dask.primitives import neighbours
from mlfs_dask.primitives.linear import Scaling
from mlfs_dask.primitives.neighbours import FEWEST_ROWS, Neighbours, Search
from mlfs_dask.primitives.plan import split_evenly
from mlfs_dask.row_arrays import give_back, is_mapped
from mlfs_dask.typing import Block, FeatureInfo, Matrix, Profile

#: Values of a block of rows, and rows that it has at least: a few tiles of the search.
_BLOCK_VALUES = 2**20
_BLOCK_ROWS = 1024

#: Bytes of the rows, as float64, that a thread of a search holds at most while all others pass by.
GROUP_BYTES = 64 * 2**20


class ChosenRows:
    """The first columns of some rows of a matrix, as a row source without labels.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, columns)
        Columns in the order of a ranking; in memory, or mapped from a file.
    rows : int64 array, optional
        Which rows, in this order; all of them.
    columns : int, optional
        How many of the columns; all of them.
    """

    in_memory = True
    features = FeatureInfo()
    label_counts = None

    def __init__(self, X: Matrix, rows: NDArray[np.int64] | None = None, columns: int | None = None) -> None:
        self._X = X
        self._rows = rows
        self._columns = int(X.shape[1]) if columns is None else columns
        self._mapped = not sp.issparse(X) and is_mapped(X)
        n = int(X.shape[0]) if rows is None else len(rows)
        step = max(_BLOCK_VALUES // max(self._columns, 1) // _BLOCK_ROWS, 1) * _BLOCK_ROWS
        self.row_offsets: NDArray[np.int64] = np.append(np.arange(0, n, step), n).astype(np.int64)
        block_rows = min(step, n)
        sparse = sp.issparse(X)
        nonzeros = int(X.nnz * n / max(X.shape[0], 1)) if sparse else n * self._columns
        block_bytes = X.dtype.itemsize * (nonzeros // max(n, 1) + 1 if sparse else self._columns) * block_rows
        self.profile = Profile(
            n=n,
            d=self._columns,
            q=1,
            sparse=sparse,
            itemsize=X.dtype.itemsize,
            nonzeros=nonzeros,
            label_nonzeros=0,
            partitions=len(self.row_offsets) - 1,
            block_rows=block_rows,
            block_bytes=block_bytes,
            buffer_bytes=block_bytes,
            read_bytes=0,
        )

    def __len__(self) -> int:
        return self.profile.n

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Blocks first..last-1."""
        for i in range(first, last):
            low, high = int(self.row_offsets[i]), int(self.row_offsets[i + 1])
            if high == low:
                continue
            rows = slice(low, high) if self._rows is None else self._rows[low:high]
            X = self._X[rows][:, : self._columns]
            if self._mapped:
                X = np.array(X)
                give_back()
            yield Block(low, X, sp.csr_array((high - low, 1), dtype=np.int8))

    def blocks(self) -> Iterator[Block]:
        """All blocks."""
        return self.stream(0, self.profile.partitions)

    def take(self, rows: NDArray[np.int64]) -> ChosenRows:
        """Some of these rows."""
        return ChosenRows(self._X, rows if self._rows is None else self._rows[rows], self._columns)


def standard(rows: ChosenRows) -> Scaling:
    """Zero mean and unit variance over these rows; a constant column stays as it is, but for its mean.

    Sparse rows are not centred: it would make them dense, and changes neither distances nor what a model can fit.
    """
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not rows.profile.sparse)
    for block in rows.blocks():
        scaler.partial_fit(block.X.astype(np.float64))
    centre = np.zeros(rows.profile.d) if rows.profile.sparse else scaler.mean_
    return Scaling(centre, 1 / scaler.scale_)


def centred(rows: ChosenRows) -> Scaling:
    """Dense rows around zero, where a search has most digits; sparse ones as they are."""
    total = np.zeros(rows.profile.d)
    if not rows.profile.sparse:
        for block in rows.blocks():
            total += block.X.sum(axis=0, dtype=np.float64)
    return Scaling(total / max(len(rows), 1), np.ones(rows.profile.d))


def scaled(X: Matrix, scaling: Scaling) -> Matrix:
    """A block as float64, centred and scaled."""
    return Search(1, scaling).scaled(X)


def nearest_rows(
    rows: ChosenRows, k: int, scaling: Scaling, *, queries: ChosenRows | None = None, threads: int = 1
) -> Neighbours:
    """The k nearest of some rows, exactly: to each of themselves, or to each of other rows.

    Parameters
    ----------
    rows : ChosenRows
        Of length n.
    k : int
        At most n neighbours are found, or n − 1 of the rows themselves, which are not their own neighbours.
    scaling : Scaling
        Distances are between centred and scaled rows.
    queries : ChosenRows, optional
        Rows whose neighbours are looked for; by default the rows themselves.
    threads : int
        Groups of rows that are searched at the same time; each holds one (`search_bytes`).

    Returns
    -------
    Neighbours
        The same for any number of threads, and wherever the rows are.

    Examples
    --------
    >>> rows = ChosenRows(np.array([[0.0], [1.0], [3.0]]))
    >>> nearest_rows(rows, 1, centred(rows)).indices.ravel()
    array([1, 0, 1])
    >>> nearest_rows(rows, 2, centred(rows), queries=ChosenRows(np.array([[2.5]]))).indices
    array([[2, 1]])
    """
    asking = rows if queries is None else queries
    k = min(k, len(rows) - (queries is None))
    if k < 1 or len(asking) == 0:
        return Neighbours(np.empty((len(asking), max(k, 0)), np.int64), np.empty((len(asking), max(k, 0))))
    height = max(1, GROUP_BYTES // (8 * max(rows.profile.nonzeros // len(rows), 1)))
    groups = max(-(-len(asking) // height), min(threads, len(asking) // FEWEST_ROWS), 1)
    runs = split_evenly(len(asking), groups)
    return neighbours.nearest_rows(rows, k, scaling, runs, asking=queries, threads=threads)


def search_bytes(profile: Profile, k: int, asking: int, *, threads: int) -> int:
    """Bytes that `nearest_rows` holds for so many rows that ask, its result included."""
    group = 2 * min(GROUP_BYTES * threads, 8 * asking * max(profile.nonzeros // max(profile.n, 1), 1))
    return 16 * k * asking + group + threads * (16 * _BLOCK_VALUES + 24 * _BLOCK_ROWS * profile.d + SCRATCH_BYTES)
