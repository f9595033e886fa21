"""Rows of several sources in sequence."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property

import numpy as np

from mlfs_dask.errors import DataError
from mlfs_dask.rows.contract import Block, FeatureInfo, RowSource


class JoinedRows(RowSource):
    """Rows of several sources of equal width, in sequence.

    Parameters
    ----------
    sources : sequence of RowSource
        Sources that can be streamed; all dense or all sparse.
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
        self.row_offsets = np.concatenate([*pieces, starts[-1:]]).astype(np.int64)
        sums = ("n", "nonzeros", "label_nonzeros", "partitions", "read_bytes")
        most = ("block_rows", "block_bytes", "buffer_bytes")
        self.profile = replace(
            profiles[0],
            dtype=np.result_type(*(profile.dtype for profile in profiles)),
            **{name: sum(getattr(profile, name) for profile in profiles) for name in sums},
            **{name: max(getattr(profile, name) for profile in profiles) for name in most},
            remote=any(profile.remote for profile in profiles),
        )
        self.residence = sources[0].residence if len({s.residence for s in sources}) == 1 else "process"

    @cached_property
    def features(self) -> FeatureInfo:
        # The value ranges of a part do not hold for all rows; the kinds of features are equal in all sources.
        return FeatureInfo(n_categories=self._sources[0].features.n_categories)

    def labels_only(self) -> RowSource:
        return JoinedRows([source.labels_only() for source in self._sources])

    def require_visible(self) -> None:
        for source in self._sources:
            source.require_visible()

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Yield the blocks of partitions first..last-1 in row order."""
        for number, source in enumerate(self._sources):
            low, high = int(self._first[number]), int(self._first[number + 1])
            if first < high and last > low:
                for block in source.stream(max(first, low) - low, min(last, high) - low):
                    yield block._replace(start=block.start + int(self._starts[number]))
