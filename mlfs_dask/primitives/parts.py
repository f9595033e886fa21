"""Some rows and some columns of a source: the training part of a split, the features that were chosen.

`RowPart` streams chosen rows of any other source, for selectors to learn from. `gather_columns` reads chosen columns of
all rows into this process, once over X.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.fingerprints import digest_of
from mlfs_dask.primitives.passes import PassRecord, State, run_pass
from mlfs_dask.primitives.row_passes import run_row_pass
from mlfs_dask.primitives.rows import count_labels, measure_features
from mlfs_dask.row_arrays import IN_MEMORY, RowSpace
from mlfs_dask.runtime import Resources
from mlfs_dask.typing import Block, FeatureInfo, Matrix, Profile, RowSource


class RowPart:
    """Chosen rows of another source, with labels of their own.

    Parameters
    ----------
    source : RowSource
        One that streams.
    rows : int64 array, shape (m,)
        Rising.
    Y : csr_array of int8, shape (m, q)
        Labels of the chosen rows.
    features : FeatureInfo
        Of the chosen rows (`row_part`).

    Notes
    -----
    A reading of the part reads all of the source. It travels to workers with its labels.
    """

    def __init__(self, source: RowSource, rows: NDArray[np.int64], Y: sp.csr_array, features: FeatureInfo) -> None:
        self._source = source
        self._rows = rows
        self._Y = Y
        self.features = features
        offsets = source.row_offsets
        self.row_offsets: NDArray[np.int64] = np.searchsorted(rows, offsets).astype(np.int64)
        whole = source.profile
        self.profile: Profile = replace(
            whole,
            n=len(rows),
            nonzeros=int(whole.nonzeros * len(rows) / max(whole.n, 1)),
            label_nonzeros=int(Y.nnz),
            # The chosen rows of a block are copied out of it.
            buffer_bytes=whole.buffer_bytes + whole.block_bytes,
        )

    @cached_property
    def digest(self) -> str | None:
        """Of the content, by which statistics are kept (`mlfs_dask.caching`); None where the source has none."""
        whole, Y = getattr(self._source, "digest", None), self._Y
        if whole is None:
            return None
        return digest_of({"source": whole, "rows": self._rows, "labels": [Y.indptr, Y.indices, Y.data]})

    @property
    def place(self) -> str | None:
        """Path or URL of the store that it is a part of."""
        return getattr(self._source, "place", None)

    @property
    def label_counts(self) -> NDArray[np.int64]:
        return count_labels(self._Y)

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Blocks of partitions first..last-1 in row order."""
        for block in self._source.stream(first, last):
            low, high = np.searchsorted(self._rows, (block.start, block.start + block.X.shape[0]))
            if high > low:
                inside = self._rows[low:high] - block.start
                yield Block(int(low), block.X[inside], self._Y[low:high])


class JoinedRows:
    """The rows of several sources of the same width, one source after another.

    Parameters
    ----------
    sources : sequence of RowSource
        Ones that stream; all dense or all sparse.
    """

    def __init__(self, sources: Sequence[RowSource]) -> None:
        self._sources = tuple(sources)
        profiles = [source.profile for source in sources]
        if len({profile.sparse for profile in profiles}) > 1:
            raise DataError(
                "some of the rows are stored dense and some sparse",
                cure="convert all files with the same --storage",
            )
        starts = np.cumsum([0, *(profile.n for profile in profiles)])
        self._first = np.cumsum([0, *(profile.partitions for profile in profiles)])
        self._starts = starts
        pieces = [source.row_offsets[:-1] + start for source, start in zip(sources, starts[:-1], strict=True)]
        self.row_offsets: NDArray[np.int64] = np.concatenate([*pieces, starts[-1:]]).astype(np.int64)
        sums = ("n", "nonzeros", "label_nonzeros", "partitions", "read_bytes")
        most = ("itemsize", "block_rows", "block_bytes", "buffer_bytes")
        self.profile: Profile = replace(
            profiles[0],
            **{name: sum(getattr(profile, name) for profile in profiles) for name in sums},
            **{name: max(getattr(profile, name) for profile in profiles) for name in most},
        )
        self.in_memory = all(getattr(source, "in_memory", False) for source in sources)
        # Ranges of all rows are those of no part; kinds are those of the first source.
        self.features = FeatureInfo(n_categories=sources[0].features.n_categories)

    label_counts = None

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Blocks of partitions first..last-1 in row order."""
        for number, source in enumerate(self._sources):
            low, high = int(self._first[number]), int(self._first[number + 1])
            if first < high and last > low:
                for block in source.stream(max(first, low) - low, min(last, high) - low):
                    yield block._replace(start=block.start + int(self._starts[number]))


@dataclass(frozen=True)
class _Ranges:
    """Minimum, maximum and missing values of each feature of a dense or sparse source."""

    d: int

    @property
    def state_bytes(self) -> int:
        return 32 * self.d

    result_bytes = 0

    def scratch_bytes(self, profile: Profile) -> int:
        return profile.block_bytes

    def zero(self) -> State:
        return np.full(self.d, np.inf), np.full(self.d, -np.inf), np.zeros(self.d, np.int64), np.zeros(1, np.int64)

    def add(self, state: State, block: Block) -> None:
        found = measure_features(block.X)
        low, high, missing, rows = state
        assert found.minimum is not None
        assert found.maximum is not None
        empty = found.n_missing == block.X.shape[0]
        np.minimum(low, np.where(empty, np.inf, found.minimum), out=low)
        np.maximum(high, np.where(empty, -np.inf, found.maximum), out=high)
        missing += found.n_missing
        rows += block.X.shape[0]

    def merge(self, into: State, other: State) -> None:
        np.minimum(into[0], other[0], out=into[0])
        np.maximum(into[1], other[1], out=into[1])
        into[2][:] += other[2]
        into[3][:] += other[3]

    def finalize(self, state: State) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.int64]]:
        low, high, missing, rows = state
        empty = missing == rows
        return np.where(empty, 0.0, low), np.where(empty, 0.0, high), missing


def row_part(
    source: RowSource, rows: NDArray[np.int64], Y: sp.csr_array, resources: Resources
) -> tuple[RowPart, PassRecord]:
    """Chosen rows as a source, their ranges measured by one reading.

    The ranges that a store keeps are those of all rows; bins made from them would have seen the rows that are judged.
    What kind a feature is (categories, 0/1) is kept.

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    blind = RowPart(source, rows, Y, FeatureInfo())
    ((low, high, missing),), record = run_pass(blind, [_Ranges(source.profile.d)], resources, label="training rows")
    features = FeatureInfo(low, high, source.features.n_categories, missing)
    return RowPart(source, rows, Y, features), record


@dataclass(frozen=True)
class _Columns:
    """Chosen columns of every row: given out row by row when dense, as pieces of a matrix when sparse."""

    columns: NDArray[np.int64]
    dtype: str

    state_bytes = 0
    result_bytes = 0

    @property
    def outputs(self) -> list[tuple[int, str]]:
        return [(len(self.columns), self.dtype)]

    def scratch_bytes(self, profile: Profile) -> int:
        return profile.block_rows * len(self.columns) * np.dtype(self.dtype).itemsize + profile.block_bytes

    def zero(self) -> State:
        return ()

    def add_rows(self, state: State, block: Block, inputs: Any, outputs: Any) -> None:
        chosen = block.X[:, self.columns]
        outputs[0][...] = chosen.toarray() if sp.issparse(chosen) else chosen

    def merge(self, into: State, other: State) -> None:
        pass

    def finalize(self, state: State) -> None:
        return None


def gather_columns(
    source: RowSource,
    columns: NDArray[np.integer[Any]],
    resources: Resources,
    *,
    space: RowSpace = IN_MEMORY,
    label: str = "chosen columns",
) -> tuple[Matrix, PassRecord]:
    """Chosen columns of all rows, in the order asked for, dense, by one reading.

    Parameters
    ----------
    source : RowSource
    columns : int array, shape (k,)
    resources : Resources
    space : RowSpace
        Where they go: memory, or a file.
    label : str
        What the progress line calls this pass.

    Returns
    -------
    float32 or float64 array, shape (n, k), and the record of the pass
        float32 where X is of float32 or smaller integers.

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    dtype = "f4" if source.profile.itemsize <= 4 else "f8"
    statistic = _Columns(np.asarray(columns, np.int64), dtype)
    out = [space.empty(source.profile.n, len(columns), dtype)] if space.in_files else None
    (X,), _, record = run_row_pass(source, statistic, resources, out=out, label=label)
    return X, record
