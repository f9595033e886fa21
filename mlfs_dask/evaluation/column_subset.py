"""Chosen columns and rows of a matrix, block by block, for fitting and scoring classifiers.

The columns of all rows are read once (`evaluation.table`), into memory or into a file. Training rows and test rows are
subsets of them, and a block of a subset is copied at a time. The number of columns alone decides where blocks end, so
that results are the same bits in memory and from a file.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.missing import fill_block
from mlfs_dask.errors import DataError, number_of
from mlfs_dask.files.array_files import drop_pages, is_mapped
from mlfs_dask.rows.contract import Block
from mlfs_dask.statistics.missing import MeansOfPresent
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Matrix

#: Values of a block of rows, and the least number of its rows.
BLOCK_VALUES = 2**20
BLOCK_ROWS = 1024


class ColumnSubset:
    """The first columns of some rows of a matrix.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, columns)
        Columns in the order of a ranking; in memory, or mapped from a file.
    rows : int64 array, optional
        Which rows, in this order (default: all).
    columns : int, optional
        How many of the columns (default: all).
    fill : float64 array, shape (columns of X,), optional
        What takes the places of missing values.

    Attributes
    ----------
    columns : int
    sparse : bool
    offsets : int64 array, shape (blocks + 1,)
        First row of every block, and the number of rows.

    Examples
    --------
    >>> subset = ColumnSubset(np.arange(6).reshape(3, 2), np.array([2, 0]), 1)
    >>> len(subset), subset.read(0, 2).ravel()
    (2, array([4, 0]))
    """

    def __init__(
        self,
        X: Matrix,
        rows: NDArray[np.int64] | None = None,
        columns: int | None = None,
        *,
        fill: NDArray[np.float64] | None = None,
    ) -> None:
        self._X = X
        self._rows = rows
        self._fill = fill
        self._mapped = not sp.issparse(X) and is_mapped(X)
        self.columns = int(X.shape[1]) if columns is None else columns
        self.sparse = bool(sp.issparse(X))
        n = int(X.shape[0]) if rows is None else len(rows)
        step = max(BLOCK_VALUES // max(self.columns, 1) // BLOCK_ROWS, 1) * BLOCK_ROWS
        self.offsets: NDArray[np.int64] = np.append(np.arange(0, n, step), n).astype(np.int64)

    def __len__(self) -> int:
        return int(self.offsets[-1])

    @property
    def n_blocks(self) -> int:
        """Number of blocks."""
        return len(self.offsets) - 1

    @property
    def values_per_row(self) -> int:
        """Values that a row holds; where rows are sparse, on average over all rows of X."""
        return int(self._X.nnz // max(self._X.shape[0], 1)) + 1 if self.sparse else self.columns

    def read(self, low: int, high: int) -> Matrix:
        """Return rows low..high-1, copied where X is mapped from a file."""
        rows = slice(low, high) if self._rows is None else self._rows[low:high]
        X = self._X[rows][:, : self.columns]
        if self._mapped:
            X = np.array(X)
            drop_pages()
        return X if self._fill is None else fill_block(X, self._fill[: self.columns])

    def column(self, f: int) -> NDArray[np.float64]:
        """Return one column of all rows."""
        X = (
            self._X[:, [f]]
            if self._rows is None
            else self._X[self._rows][:, [f]]
            if self.sparse
            else self._X[self._rows, f]
        )
        return np.asarray(X.toarray() if self.sparse else X, dtype=np.float64).ravel()

    def block(self, number: int) -> tuple[int, Matrix]:
        """Return the first row of a block, and its rows."""
        low, high = self.offsets[number : number + 2].tolist()
        return low, self.read(low, high)

    def blocks(self) -> Iterator[tuple[int, Matrix]]:
        """Yield all blocks in order, as `block` gives them."""
        return map(self.block, range(self.n_blocks))

    def take(self, rows: NDArray[np.int64]) -> ColumnSubset:
        """Return some of these rows."""
        return ColumnSubset(self._X, rows if self._rows is None else self._rows[rows], self.columns, fill=self._fill)


def missing_fill(train: ColumnSubset, test: ColumnSubset, missing: str) -> NDArray[np.float64] | None:
    """Return the fill values of the columns: mean or median over the rows of `train`, 0 for a column without values.

    Parameters
    ----------
    train, test : ColumnSubset
        Of the same columns.
    missing : {"mean", "median"}

    Returns
    -------
    float64 array, shape (columns,), or None where nothing is missing in either
    """
    (fill, missing_in_train), (_, missing_in_test) = (_means_of_present(subset) for subset in (train, test))
    if not missing_in_train.any() and not missing_in_test.any():
        return None
    if missing == "median":
        for f in np.flatnonzero((missing_in_train + missing_in_test > 0) & (missing_in_train < len(train))):
            values = train.column(int(f))
            fill[f] = np.median(values[~np.isnan(values)])
    return fill


def _means_of_present(subset: ColumnSubset) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the means of the values that are there, and how many are missing, of every column."""
    statistic = MeansOfPresent(subset.columns)
    state = statistic.zero()
    for start, X in subset.blocks():
        statistic.add(state, Block(start, X, sp.csr_array((X.shape[0], 0), dtype=np.int8)))
    means = statistic.finalize(state)
    return means.mean, means.n_missing


def unit_variance_scaling(subset: ColumnSubset, *, centred: bool) -> Scaling:
    """Return the scaling to unit variance over these rows and, if `centred`, zero mean; constant columns keep theirs.

    Centring changes neither distances nor what a model can fit.
    """
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler(with_mean=not subset.sparse)
    with np.errstate(over="ignore", invalid="ignore"):
        for _, X in subset.blocks():
            scaler.partial_fit(X.astype(np.float64))
    if not np.isfinite(scaler.scale_).all():
        raise DataError(
            f"the variance of {number_of(int((~np.isfinite(scaler.scale_)).sum()), 'feature')} is not finite",
            cure="values above 1e150 have to be scaled",
        )
    centre = scaler.mean_ if centred else np.zeros(subset.columns)
    return Scaling(centre, 1 / scaler.scale_)


def mean_centring(subset: ColumnSubset) -> Scaling:
    """Zero mean over these rows, where distances have the most digits; sparse rows stay as they are."""
    total = np.zeros(subset.columns)
    if not subset.sparse:
        for _, X in subset.blocks():
            total += X.sum(axis=0, dtype=np.float64)
    return Scaling(total / max(len(subset), 1), np.ones(subset.columns))
