"""Some rows, features and labels of a row source, as a row source, without a copy."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import count_labels
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.rows.contract import Block, DerivedRows, FeatureInfo, Profile, RowSource
from mlfs_dask.typing import HeldArray

Columns: TypeAlias = NDArray[np.int64] | None


class RowMask:
    """Chosen rows in one bit a row, where their numbers would take eight bytes each.

    Parameters
    ----------
    rows : int64 array, shape (m,)
        Distinct.
    n : int
        Rows in all.

    Attributes
    ----------
    bits : uint8 array, shape (ceil(n / 8),)

    Examples
    --------
    >>> rows = RowMask(np.array([2, 3, 9]), 12)
    >>> len(rows), rows.bits.nbytes, rows.between(3, 10)
    (3, 2, array([3, 9]))
    """

    def __init__(self, rows: NDArray[np.int64], n: int) -> None:
        mask = np.zeros(n, dtype=bool)
        mask[rows] = True
        self.bits = np.packbits(mask)
        self._length = len(rows)

    def __len__(self) -> int:
        return self._length

    def between(self, first: int, last: int) -> NDArray[np.int64]:
        """Numbers of the chosen rows among first..last-1, rising."""
        skipped = first % 8
        bits = np.unpackbits(self.bits[first // 8 : -(-last // 8)], count=last - first + skipped)
        return first + np.flatnonzero(bits[skipped:])


Rows: TypeAlias = range | RowMask


class RowSubset(DerivedRows):
    """Chosen rows, features and labels of another source.

    Parameters
    ----------
    source : RowSource
        One that streams.
    rows : int64 array, shape (m,), RowMask, range, or None
        Rising; None for all.
    features, labels : int64 array, optional
        Chosen columns of X and Y, rising; all by default.
    Y : csr_array of int8, shape (m, q), optional
        Labels of the chosen rows, in place of those of the source.
    known : FeatureInfo, optional
        Of the chosen rows and features. By default, of chosen rows only the kinds of features are known.

    Notes
    -----
    Partitions without chosen rows are not read. It travels to workers with the mask of its rows, and with its labels,
    if it has any.
    """

    def __init__(
        self,
        source: RowSource,
        rows: NDArray[np.int64] | Rows | None = None,
        *,
        features: Columns = None,
        labels: Columns = None,
        Y: sp.csr_array | None = None,
        known: FeatureInfo | None = None,
    ) -> None:
        super().__init__(source)
        self._rows = rows = RowMask(rows, source.profile.n) if isinstance(rows, np.ndarray) else rows
        self._columns = features
        self._labels = labels
        self._Y = Y
        self._known = known
        if source.residence == "graph":
            self.residence = "process"
        whole = source.profile
        offsets = source.row_offsets
        self._row_offsets: NDArray[np.int64] = offsets if rows is None else offsets_of(rows, offsets)
        n = whole.n if rows is None else len(rows)
        d, q = (size if chosen is None else len(chosen) for size, chosen in ((whole.d, features), (whole.q, labels)))
        nonzeros = int(whole.nonzeros * (n / max(whole.n, 1)) * (d / max(whole.d, 1)))
        weights = self.weights
        known_labels = int(whole.label_nonzeros * (n / max(whole.n, 1)) * (q / max(whole.q, 1)))
        read = int(np.diff(offsets)[np.diff(self._row_offsets) > 0].sum())
        self._profile = replace(
            whole,
            n=n,
            d=d,
            q=q,
            nonzeros=nonzeros if whole.sparse else n * d,
            label_nonzeros=known_labels if Y is None else int(Y.nnz),
            # What is chosen of a block is copied out of it.
            buffer_bytes=whole.buffer_bytes + whole.block_bytes,
            read_bytes=whole.read_bytes * read // max(whole.n, 1),
            weight=None if weights is None else float(weights.sum()),
            arrays=(*whole.arrays, *self._held_arrays()),
        )

    @property
    def profile(self) -> Profile:
        return self._profile

    def _held_arrays(self) -> list[HeldArray]:
        rows, Y = self._rows, self._Y
        arrays = [HeldArray("chosen rows", str(rows.bits.nbytes), "u1")] if isinstance(rows, RowMask) else []
        if Y is not None:
            nbytes = Y.data.nbytes + Y.indices.nbytes + Y.indptr.nbytes
            arrays.append(HeldArray("labels of chosen rows", str(nbytes), "u1"))
        return arrays

    @property
    def row_offsets(self) -> NDArray[np.int64]:
        return self._row_offsets

    @property
    def features(self) -> FeatureInfo:
        if self._known is not None:
            return self._known
        info = self._source.features
        if self._rows is not None:
            info = FeatureInfo(n_categories=info.n_categories)
        if self._columns is None:
            return info
        return FeatureInfo(**{k: None if v is None else v[self._columns] for k, v in vars(info).items()})

    @property
    def digest(self) -> str | None:
        return self._digest

    @cached_property
    def _digest(self) -> str | None:
        whole, Y = self._source.digest, self._Y
        if whole is None:
            return None
        rows = self._rows
        return digest_of(
            {
                "source": whole,
                "rows": rows.bits if isinstance(rows, RowMask) else rows and [rows.start, rows.stop, rows.step],
                "columns": [self._columns, self._labels],
                "labels": None if Y is None else [Y.indptr, Y.indices, Y.data],
            }
        )

    @property
    def weights(self) -> NDArray[np.float64] | None:
        weights = self._source.weights
        return weights if weights is None or self._rows is None else weights[numbers_of(self._rows)]

    def labels_only(self) -> RowSource:
        labels = self._source.labels_only()
        features = self._columns if labels is self._source else None
        return RowSubset(labels, self._rows, features=features, labels=self._labels, Y=self._Y)

    @property
    def label_counts(self) -> NDArray[np.int64] | None:
        if self._Y is not None:
            return count_labels(self._Y, self.weights)
        counts = self._source.label_counts
        if self._rows is not None or counts is None or self._labels is None:
            return counts if self._rows is None else None
        return counts[:, self._labels]

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Blocks of partitions first..last-1 in row order."""
        chosen = np.diff(self._row_offsets[first : last + 1]) > 0
        edges = np.flatnonzero(np.diff(np.concatenate([[0], chosen, [0]])))
        for start, stop in edges.reshape(-1, 2):  # runs of partitions with chosen rows
            row = int(self._row_offsets[first + int(start)])
            for block in self._source.stream(first + int(start), first + int(stop)):
                part = self._chosen(block, row)
                if part.X.shape[0]:
                    yield part
                row += part.X.shape[0]

    def _chosen(self, block: Block, row: int) -> Block:
        """What is chosen of a block of the source; its first row is number `row` of the chosen ones."""
        start, X, Y, weights = block
        if self._rows is not None:
            inside = numbers_between(self._rows, start, start + X.shape[0]) - start
            start, X = row, X[inside]
            Y = Y[inside] if self._Y is None else self._Y[row : row + len(inside)]
            weights = None if weights is None else weights[inside]
        if self._columns is not None:
            X = X[:, self._columns] if sp.issparse(X) else X.take(self._columns, axis=1)
        if self._labels is not None and self._Y is None:
            Y = Y[:, self._labels]
        return Block(start, X, Y, weights)

    def all_labels(self) -> sp.csr_array:
        """Y of all chosen rows, as int8, read without X."""
        Y = self._source.all_labels()  # type: ignore[attr-defined]  # of a store
        Y = Y if self._rows is None else Y[numbers_of(self._rows)]
        return Y if self._labels is None else Y[:, self._labels]


def numbers_between(rows: Rows, first: int, last: int) -> NDArray[np.int64]:
    """Numbers of the chosen rows among first..last-1, rising.

    >>> numbers_between(range(1, 10, 3), 2, 8)
    array([4, 7])
    """
    if isinstance(rows, RowMask):
        return rows.between(first, last)
    low, high = offsets_of(rows, np.array([first, last]))
    return np.asarray(rows[low:high], np.int64)


def numbers_of(rows: Rows) -> NDArray[np.int64]:
    """Numbers of all chosen rows, rising."""
    return np.asarray(rows, np.int64) if isinstance(rows, range) else rows.between(0, 8 * len(rows.bits))


def offsets_of(rows: Rows, bounds: NDArray[np.int64]) -> NDArray[np.int64]:
    """How many of the chosen rows come before each bound, where the bounds rise from 0.

    >>> offsets_of(range(1, 10, 3), np.array([0, 1, 2, 9])), offsets_of(RowMask(np.array([4, 6]), 9), np.array([0, 5]))
    (array([0, 0, 1, 3]), array([0, 1]))
    """
    if isinstance(rows, range):
        return np.clip(-(-(bounds - rows.start) // rows.step), 0, len(rows)).astype(np.int64)
    counts = [len(rows.between(first, last)) for first, last in pairwise(bounds.tolist())]
    return np.cumsum([0, *counts], dtype=np.int64)
