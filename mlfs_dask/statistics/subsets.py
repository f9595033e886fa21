"""Some rows and some columns of a source: the training part of a split, the features that were chosen.

`row_subset` gives chosen rows of any other source, for selectors to learn from. `read_rows` reads all rows, or chosen
columns of them, into this process, once over X.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.engine.readings import ReadingRecord, run_reading
from mlfs_dask.engine.statistic import State, Statistic
from mlfs_dask.errors import DataError
from mlfs_dask.files.array_files import drop_pages
from mlfs_dask.rows.contract import Block, FeatureInfo, Profile, RowSource
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.rows.subset import RowSubset
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.codes import quantile_table
from mlfs_dask.statistics.counts import code_statistics
from mlfs_dask.typing import Matrix


class TrainingRows(RowSubset):
    """Chosen rows of another source, with labels of their own."""

    def __init__(
        self,
        source: RowSource,
        rows: NDArray[np.int64],
        Y: sp.csr_array,
        features: FeatureInfo | None = None,
        quantiles: NDArray[np.float64] | None = None,
    ) -> None:
        super().__init__(source, rows, Y=Y, known=features or FeatureInfo())
        self._own_labels = Y
        self._quantiles = quantiles

    @property
    def quantiles(self) -> NDArray[np.float64] | None:
        return self._quantiles

    def labels_only(self) -> RowSource:
        return ArrayRows(sp.csr_array((self.profile.n, 0)), self._own_labels)


class JoinedRows(RowSource):
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
        self._row_offsets: NDArray[np.int64] = np.concatenate([*pieces, starts[-1:]]).astype(np.int64)
        sums = ("n", "nonzeros", "label_nonzeros", "partitions", "read_bytes")
        most = ("block_rows", "block_bytes", "buffer_bytes")
        self._profile = replace(
            profiles[0],
            dtype=np.result_type(*(profile.dtype for profile in profiles)),
            **{name: sum(getattr(profile, name) for profile in profiles) for name in sums},
            **{name: max(getattr(profile, name) for profile in profiles) for name in most},
            remote=any(profile.remote for profile in profiles),
        )
        self.residence = sources[0].residence if len({s.residence for s in sources}) == 1 else "process"

    @property
    def profile(self) -> Profile:
        return self._profile

    @property
    def row_offsets(self) -> NDArray[np.int64]:
        return self._row_offsets

    @property
    def features(self) -> FeatureInfo:
        # Ranges of all rows are those of no part; kinds are those of the first source.
        return FeatureInfo(n_categories=self._sources[0].features.n_categories)

    def labels_only(self) -> RowSource:
        return JoinedRows([source.labels_only() for source in self._sources])

    def require_visible(self) -> None:
        for source in self._sources:
            source.require_visible()

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Blocks of partitions first..last-1 in row order."""
        for number, source in enumerate(self._sources):
            low, high = int(self._first[number]), int(self._first[number + 1])
            if first < high and last > low:
                for block in source.stream(max(first, low) - low, min(last, high) - low):
                    yield block._replace(start=block.start + int(self._starts[number]))


def row_subset(
    source: RowSource, rows: NDArray[np.int64], Y: sp.csr_array, resources: Resources
) -> tuple[TrainingRows, ReadingRecord]:
    """Chosen rows as a source, their ranges and quantiles measured by one reading.

    Those that a store keeps are those of all rows; bins made from them would have seen the rows that are judged.
    What kind a feature is (categories, 0/1) is kept.

    Raises
    ------
    DoesNotFitError, ClusterLostError
    """
    blind = TrainingRows(source, rows, Y)
    ((ranges, _), drawn), record = run_reading(blind, code_statistics(blind.profile), resources, label="training rows")
    features = replace(ranges, n_categories=source.features.n_categories)
    return TrainingRows(source, rows, Y, features, quantile_table(drawn.X, features)), record


class RowsInMemory(Statistic):
    """Statistic: all rows in the memory of the process that reads them; never sent.

    Its states are lists of pieces, in the order in which they were read.

    Parameters
    ----------
    profile : Profile
    columns : int array, shape (k,), or None
        Features to keep, in this order; None for all.
    out : float array, shape (n, k), or None
        Where dense rows go; it may be mapped from a file. None: sparse rows are kept as they are.
    """

    state_bytes = 0
    result_bytes = 0

    def __init__(self, profile: Profile, columns: NDArray[np.integer[Any]] | None, out: Matrix | None) -> None:
        self.profile = profile
        self.columns = columns
        self.out = out

    def scratch_bytes(self, profile: Profile) -> int:
        width = profile.d if self.columns is None else len(self.columns)
        return profile.block_bytes + 8 * profile.block_rows * width

    def zero(self) -> State:
        return []

    def add(self, state: State, block: Block) -> None:
        X = block.X if self.columns is None else block.X[:, self.columns]
        # Blocks are views of buffers that the next block overwrites.
        if self.out is None:
            state.append((block.start, sp.csr_array(X, copy=True), block.Y.copy()))
            return
        self.out[block.start : block.start + X.shape[0]] = X.toarray() if sp.issparse(X) else X
        state.append((block.start, None, block.Y.copy()))
        drop_pages()

    def merge(self, into: State, other: State) -> None:
        into.extend(other)

    def finalize(self, state: State) -> tuple[Matrix, sp.csr_array]:
        """X, shape (n, k), and Y, shape (n, q)."""
        pieces = sorted(state, key=lambda piece: int(piece[0]))
        Y = _stacked([Y for _, _, Y in pieces], self.profile.q, np.int8)
        if self.out is not None:
            return self.out, Y
        return _stacked([X for _, X, _ in pieces], self.profile.d, np.float64), Y


def read_rows(
    source: RowSource,
    resources: Resources,
    *,
    columns: NDArray[np.integer[Any]] | None = None,
    out: Matrix | None = None,
    label: str = "rows",
) -> tuple[Matrix, sp.csr_array, ReadingRecord]:
    """All rows in the memory of this process, by one reading that this process makes itself.

    Parameters
    ----------
    source : RowSource
    resources : Resources
    columns : int array, shape (k,), optional
        Features to keep, in this order; X is dense then. All by default, dense or sparse as the source is.
    out : float array, shape (n, k), optional
        Where the dense rows go; a new array by default.
    label : str
        What the progress line calls this reading.

    Returns
    -------
    X : ndarray or csr_array, shape (n, d) or (n, k)
        Dense: of `Profile.float_dtype`.
    Y : csr_array of int8, shape (n, q)
    record : ReadingRecord

    Raises
    ------
    DoesNotFitError
    """
    profile = source.profile
    if out is None and not (profile.sparse and columns is None):
        width = profile.d if columns is None else len(columns)
        out = np.empty((profile.n, width), profile.float_dtype)
    statistic = RowsInMemory(profile, columns, out)
    ((X, Y),), record = run_reading(source, [statistic], runtime.own_resources(resources), label=label)
    return X, Y, record if resources.client is None else replace(record, peak_worker_bytes=0)


def _stacked(pieces: list[sp.csr_array], columns: int, dtype: Any) -> sp.csr_array:
    if not pieces:
        return sp.csr_array((0, columns), dtype=dtype)
    joined = pieces[0] if len(pieces) == 1 else sp.csr_array(sp.vstack(pieces, format="csr"))
    joined.has_canonical_format = True
    return joined
