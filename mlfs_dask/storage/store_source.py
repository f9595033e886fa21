"""A store of ours, read as `mlfs select` reads it: every chunk by its checksum, offsets and indices by their range."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.blocks.sparse import columns_of_block
from mlfs_dask.errors import UsageError
from mlfs_dask.formats.detect import open_resolved, resolve_sources
from mlfs_dask.readers.base import Batch, FileSpec, Header, Part, Reader, parts_at
from mlfs_dask.readers.label_columns import find_columns
from mlfs_dask.storage.dataset import Store, open_store
from mlfs_dask.typing import Matrix


@dataclass(frozen=True)
class StoreReader(Reader):
    """Rows of a store with some of its features. Parts are of rows.

    Parameters
    ----------
    dataset : Store
    columns : int array
        Features, rising.
    """

    dataset: Store
    columns: NDArray[np.int64]

    @property
    def path(self) -> str:  # type: ignore[override]
        return self.dataset.path

    @property
    def header(self) -> Header:  # type: ignore[override]
        dataset, columns = self.dataset, self.columns.tolist()
        categories = dataset.categories
        return Header(
            feature_names=tuple(map(str, dataset.feature_names[self.columns])),
            label_names=tuple(map(str, dataset.label_names))[: dataset.schema.q],
            categories={new: categories[old] for new, old in enumerate(columns) if old in categories},
            n_features=len(columns),
            n_labels=dataset.schema.q,
            n_rows=dataset.schema.n,
            minus_one="unknown",
        )

    def parts(self, part_bytes: int) -> list[Part]:
        """Return runs of partitions."""
        rows = self.dataset.store_rows
        offsets = rows.row_offsets.tolist()
        together = max(1, part_bytes * (len(offsets) - 1) // max(rows.profile.read_bytes, 1))
        return parts_at(offsets[:-1:together], offsets[-1], rows=True)

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of one part. See `Reader.read`."""
        rows = self.dataset.store_rows
        position = part.start
        stop = self.dataset.schema.n if part.stop is None else part.stop
        first = int(np.searchsorted(rows.row_offsets, position, side="right")) - 1
        last = int(np.searchsorted(rows.row_offsets, stop, side="left"))
        for block in rows.stream(first, last):
            X = block.X if len(self.columns) == block.X.shape[1] else columns_of_block(block.X, self.columns)
            end = block.start + X.shape[0]
            while position < end:
                low = position - block.start
                high = low + _rows_in(X, low, batch_bytes)
                position = block.start + high
                labels = block.Y[low:high]
                labels.eliminate_zeros()
                Y = csr_array((labels.data, labels.indices, labels.indptr.astype(np.int64)), shape=labels.shape)
                yield Batch(X[low:high].astype(np.float64), Y)  # a copy: the next block overwrites this one


def _rows_in(X: Matrix, low: int, batch_bytes: int) -> int:
    """Return rows from `low` on that take about `batch_bytes` as a batch; at least one."""
    left = int(X.shape[0]) - low
    if isinstance(X, np.ndarray):
        return min(max(1, batch_bytes // (8 * max(int(X.shape[1]), 1))), left)
    rows = int(np.searchsorted(X.indptr, X.indptr[low] + batch_bytes // 12, side="right")) - 1 - low
    return min(max(1, rows), left)


def open_sources(sources: Sequence[str], spec: FileSpec) -> Reader:
    """Return the reader of files or stores; errors as of `formats.detect.open_source`."""
    paths, known = resolve_sources(sources, spec)
    if known.name == "anndata" and not spec.keys and spec.labels.columns is None:
        known = replace(known, open=partial(known.open, open_store=_open_store))
    return open_resolved(sources, paths, known, spec)


def _open_store(path: str, spec: FileSpec) -> StoreReader:
    """Return the reader of a store, without the columns to leave out."""
    if not spec.labels.values.is_default:
        raise UsageError(
            f"{path} is a store, whose labels are 1, 0 and unknown\n  cure: give the meaning of label values "
            "when you convert"
        )
    dataset = open_store(path, storage_options=spec.storage_options)
    names: Any = tuple(map(str, dataset.feature_names))
    dropped = find_columns(names, spec.drop, "column to leave out,", file=path)
    return StoreReader(dataset, np.delete(np.arange(len(names)), dropped))
