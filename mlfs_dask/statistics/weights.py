"""Rows that count more or less than once, for methods whose scores are sums over the rows.

A weight of 2 is the row twice, and a weight of 0 is no row. Weights are rounded to multiples of about 2⁻⁵² of their
sum, so that float64 sums of them are exact: what is counted is the same for any chunks and workers, as counts of rows
are.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.rows.contract import Block, DerivedRows, FeatureInfo, Profile, RowSource
from mlfs_dask.typing import HeldArray


def weighted_rows(source: RowSource, sample_weight: Any) -> RowSource:
    """The rows of a source with weights; the source itself where all of them are 1.

    Parameters
    ----------
    source : RowSource
    sample_weight : array-like, shape (n,), or None

    Raises
    ------
    DataError
        A weight is negative or no number, there are not n of them, or all are 0.

    Examples
    --------
    >>> from mlfs_dask.rows.sources import as_rows
    >>> source = as_rows(np.eye(3), np.eye(3))
    >>> weighted_rows(source, [1, 1, 1]) is source
    True
    >>> [(block.X.shape, block.weights) for block in weighted_rows(source, [2, 0, 0.5]).stream(0, 1)]
    [((2, 3), array([2. , 0.5]))]
    """
    if sample_weight is None:
        return source
    n = source.profile.n
    weights = np.asarray(sample_weight, dtype=np.float64)
    if weights.ndim == 0:
        weights = np.full(n, float(weights))
    if weights.shape != (n,):
        raise DataError(
            f"sample_weight must have shape ({n},), a weight for every row; got {weights.shape}",
            cure="give as many weights as rows, or None",
        )
    wrong = ~(np.isfinite(weights) & (weights >= 0))
    if wrong.any():
        row = int(np.flatnonzero(wrong)[0])
        raise DataError(
            f"sample_weight must hold numbers from 0; row {row} has {weights[row]} (counted from 0)",
            cure="give 0 to rows that do not count",
        )
    total = float(weights.sum())
    if total == 0:
        raise DataError("all sample weights are zero", cure="give some rows a weight above 0")
    if (weights == 1).all():
        return source
    return WeightedRows(source, exact_weights(weights, total))


def exact_weights(weights: NDArray[np.float64], total: float) -> NDArray[np.float64]:
    """Weights, shape (m,), rounded so that float64 sums of them up to `total` are exact, whatever their order.

    >>> exact_weights(np.array([0.1, 0.2]), 2.0**51)
    array([0., 0.])
    """
    unit = math.ldexp(1.0, math.frexp(total)[1] - 52)
    return np.rint(weights / unit) * unit


class WeightedRows(DerivedRows):
    """The rows of another source that have a weight above 0, with their weights.

    Parameters
    ----------
    source : RowSource
    weights : float64 array, shape (m,)
        Of m consecutive rows of the source, such that sums of them are exact (`weighted_rows`).
    first : int
        The first of these rows.
    row_offsets : int64 array, shape (partitions + 1,), optional
        Of the weighted rows, where these rows are one partition of more.
    """

    def __init__(
        self,
        source: RowSource,
        weights: NDArray[np.float64],
        *,
        first: int = 0,
        row_offsets: NDArray[np.int64] | None = None,
    ) -> None:
        super().__init__(source)
        self._weights = weights
        self._first = first
        if row_offsets is None:
            counts = [int(np.count_nonzero(weights[low:high])) for low, high in pairwise(source.row_offsets.tolist())]
            row_offsets = np.cumsum([0, *counts], dtype=np.int64)
        self._row_offsets = row_offsets

    @cached_property
    def profile(self) -> Profile:
        whole, n = self._source.profile, int(self._row_offsets[-1])
        share = n / max(whole.n, 1)
        return replace(
            whole,
            n=n,
            nonzeros=math.ceil(whole.nonzeros * share),
            label_nonzeros=math.ceil(whole.label_nonzeros * share),
            # Rows without weight are left out of a copy of their block.
            buffer_bytes=whole.buffer_bytes + (whole.block_bytes if n < whole.n else 0) + 16 * whole.block_rows,
            weight=float(self._weights.sum()),
            arrays=(*whole.arrays, HeldArray("weights of rows", str(len(self._weights)))),
        )

    @property
    def row_offsets(self) -> NDArray[np.int64]:
        return self._row_offsets

    def labels_only(self) -> RowSource:
        return WeightedRows(self._source.labels_only(), self._weights, row_offsets=self._row_offsets)

    @property
    def features(self) -> FeatureInfo:
        known = self._source.features
        if self.profile.n < self._source.profile.n:  # minimum and maximum may be those of rows that do not count
            return FeatureInfo(n_categories=known.n_categories)
        return replace(known, zero_share=None)

    @property
    def label_counts(self) -> None:
        return None  # those of the source are of rows that count once

    @property
    def weights(self) -> NDArray[np.float64]:
        weights = self._weights
        return weights if len(weights) == self.profile.n else weights[weights > 0]

    @cached_property
    def digest(self) -> str | None:
        whole = self._source.digest
        return None if whole is None else digest_of({"source": whole, "weights": self._weights})

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Blocks of partitions first..last-1 in row order."""
        row = int(self._row_offsets[first])
        for block in self._source.stream(first, last):
            low = block.start - self._first
            weights = self._weights[low : low + block.X.shape[0]]
            counted = np.flatnonzero(weights)
            if len(counted) == len(weights):
                yield Block(row, block.X, block.Y, weights)
            elif len(counted):
                yield Block(row, block.X[counted], block.Y[counted], weights[counted])
            row += len(counted)

    def delayed_partition(self, partition: int) -> Any:
        from dask.delayed import delayed

        low, high = (int(row) - self._first for row in self._source.row_offsets[partition : partition + 2])
        return delayed(WeightedRows, pure=False)(
            self._source.delayed_partition(partition),
            self._weights[low:high],
            first=low + self._first,
            row_offsets=self._row_offsets,
        )
