"""Rows of files that have not been converted: .h5ad, AnnData-Zarr and Zarr of others, Parquet and Feather.

Any reader whose rows can be read from any row on (`Reader.enterable`) is a source. X comes as the file has it,
block by block; labels are read once beforehand, because what a -1 means follows from all of them. The file is known by
the sizes of its parts and by when they were changed: nobody has read it for a digest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_matrix
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.files.fingerprints import digest_of
from mlfs_dask.files.object_store import AGAIN, ZARR_ROOTS, is_url, local_path
from mlfs_dask.files.sources import Source, examine, require_unchanged
from mlfs_dask.readers.base import Part, Reader
from mlfs_dask.readers.label_values import MINUS_ONE, UNKNOWN, MinusOne
from mlfs_dask.rows.contract import Block, FeatureInfo, Profile, RowSource
from mlfs_dask.rows.covariates import RowColumn
from mlfs_dask.storage.chunking import PARTITION_BYTES
from mlfs_dask.storage.statistics import Statistics
from mlfs_dask.storage.store_reader import BLOCK_BYTES

#: Bytes of an index and of a value of sparse X in `Reader.read`, whose batches are counted with values of 8 bytes.
_INDEX_BYTES, _VALUE_BYTES = 4, 8

#: Size of a part that is a whole file.
_WHOLE_BYTES = 1 << 62


@dataclass(frozen=True)
class FileRows(RowSource):
    """Rows of a file, or of several, as a `RowSource`. Picklable: it holds places and sizes, never data.

    Parameters
    ----------
    reader : Reader
    path : str
        As the user named it.
    sources : tuple of Source
        Its files, as they were when it was opened.
    options : mapping
        For fsspec.
    parts : tuple of Part
        Partitions.
    label_counts : int64 array, shape (3, q)
    minus_one : {"unknown", "negative"}
        What a -1 among the labels means.
    block_bytes : int
    n_categories : int64 array, shape (d,), or None
        Categories of each feature, 0 of numbers. Not sent to workers.
    digest : str or None
        Changes with the files.
    residence : {"storage", "process"}
        As of `RowSource`; "process" where the reader is of this process alone.
    read_feature_names, read_columns : callable
        Give `feature_names` and `columns`. Not sent to workers.
    """

    reader: Reader
    path: str
    sources: tuple[Source, ...]
    options: Mapping[str, Any]
    parts: tuple[Part, ...]
    label_counts: NDArray[np.int64] = field(default_factory=lambda: np.zeros((3, 0), np.int64))
    minus_one: MinusOne = "unknown"
    block_bytes: int = BLOCK_BYTES
    n_categories: NDArray[np.int64] | None = None
    digest: str | None = None
    residence: Literal["storage", "process", "graph"] = "storage"
    read_feature_names: Callable[[], Sequence[str] | None] = lambda: None
    read_columns: Callable[[], Mapping[str, RowColumn]] = dict

    def __reduce__(self) -> tuple[Any, ...]:
        parts = (self.reader, self.path, self.sources, self.options, self.parts, self.label_counts)
        return FileRows, (*parts, self.minus_one, self.block_bytes, None, self.digest)

    @cached_property
    def profile(self) -> Profile:
        reader, offsets, labels = self.reader, self.row_offsets, int(self.label_counts[[0, 2]].sum())
        n, d, q = int(offsets[-1]), reader.header.n_features or 0, self.label_counts.shape[1]
        partition_rows = int(np.diff(offsets).max(initial=1))
        value_bytes = self.dtype.itemsize + _INDEX_BYTES * reader.sparse
        row_bytes = max(1, reader.nonzeros * value_bytes // max(n, 1) if reader.sparse else d * value_bytes)
        rows = max(1, min(partition_rows, self.block_bytes // row_bytes))
        block_bytes = rows * row_bytes
        if reader.sparse:
            block_bytes = min(self.block_bytes, reader.nonzeros * value_bytes + 8)
        y_bytes = rows * (5 * labels // max(n, 1) + 8)
        return Profile(
            n=n,
            d=d,
            q=q,
            sparse=reader.sparse,
            dtype=self.dtype,
            nonzeros=reader.nonzeros if reader.sparse else n * d,
            label_nonzeros=labels,
            partitions=len(self.parts),
            block_rows=rows,
            block_bytes=block_bytes,
            # A block is worked on while the next one is made.
            buffer_bytes=2 * (block_bytes + y_bytes) + reader.held_bytes(self._batch_bytes),
            read_bytes=reader.nonzeros * value_bytes + 5 * labels + 8 * n,
            remote=is_url(self.path),
            foreign=True,
        )

    @cached_property
    def dtype(self) -> np.dtype[Any]:
        """dtype of X in blocks, which kernels take."""
        X: NDArray[Any] = as_matrix(np.empty((0, 1), self.reader.dtype))
        return X.dtype

    @property
    def _batch_bytes(self) -> int:
        """Bytes of a block as readers count them, at 8 bytes a value."""
        index = _INDEX_BYTES * self.reader.sparse
        return self.block_bytes * (_VALUE_BYTES + index) // (self.dtype.itemsize + index)

    @cached_property
    def row_offsets(self) -> NDArray[np.int64]:
        return np.array([*(part.row for part in self.parts), self.reader.header.n_rows], np.int64)

    @cached_property
    def features(self) -> FeatureInfo:
        return FeatureInfo(n_categories=self.n_categories)

    @property
    def feature_names(self) -> Sequence[str] | None:
        return self.read_feature_names()

    @property
    def columns(self) -> Mapping[str, RowColumn]:
        return self.read_columns()

    @cached_property
    def place(self) -> str | None:
        return self.path if self.sources else None

    def require_visible(self) -> None:
        self._require_same("workers read files themselves: give them the same file system at the same path, or a URL")

    def labels_only(self) -> RowSource:
        if not self.profile.q:
            return self  # of no columns a reader tells no rows
        return replace(self, reader=self.reader.only_labels(), n_categories=None, read_feature_names=lambda: None)

    def stream(self, first: int, last: int) -> Iterator[Block]:
        """Yield blocks of partitions first..last-1 in row order."""
        keep_minus_one = self.minus_one == "unknown"
        for part in self.parts[first:last]:
            row = part.row or 0
            for batch in self.reader.read(part, batch_bytes=self._batch_bytes):
                runtime.check_stopped()
                X = as_matrix(batch.X)
                yield Block(
                    row, X if X.dtype == self.dtype else X.astype(self.dtype), _settled(batch.Y, keep_minus_one)
                )
                row += batch.X.shape[0]
        self._require_same(AGAIN)

    def _require_same(self, cure: str) -> None:
        """Raise DataError unless the files are those that were opened."""
        if examine([source.path for source in self.sources], self.options) != list(self.sources):
            raise DataError("it was changed or replaced since it was opened", file=self.path, cure=cure)


def _settled(Y: sp.csr_array, keep_minus_one: bool) -> sp.csr_array:
    """Return the labels of a batch as kernels take them: 1 and -1."""
    data = Y.data
    if (data == MINUS_ONE).any():
        data = np.where(data == MINUS_ONE, np.int8(UNKNOWN if keep_minus_one else 0), data)
    labels = sp.csr_array((data, Y.indices, Y.indptr.astype(np.int32)), shape=Y.shape)
    labels.has_canonical_format = True
    if not keep_minus_one:
        labels.eliminate_zeros()
    return labels


def scan_labels(reader: Reader, declared: MinusOne | None) -> tuple[NDArray[np.int64], MinusOne]:
    """Return the counts of the labels of a file, and what a -1 among them means, from one pass over them.

    Parameters
    ----------
    reader : Reader
    declared : {"unknown", "negative"} or None
        What -1 was said to mean. By default -1 and 1 without any 0 are negative and positive, and -1 beside 0 is
        unknown, as in a conversion.

    Raises
    ------
    DataError
        A label is no label.
    """
    labels, q = reader.only_labels(), reader.header.n_labels or 0
    parts = labels.parts(_WHOLE_BYTES) if q else []
    statistics = Statistics()
    statistics.grow(0, q)
    statistics.rows = reader.header.n_rows or 0
    with runtime.stage("reading labels", len(parts), unit="files") as report_progress:
        for part in parts:
            for batch in labels.read(part, batch_bytes=BLOCK_BYTES):
                runtime.check_stopped()
                statistics.add_labels(batch.Y)
            report_progress()
    meaning = statistics.settle_minus_one(declared)
    unknown, positive = statistics.unknown, statistics.positive
    return np.stack([unknown, statistics.rows - unknown - positive, positive]), meaning


def require_rows(reader: Reader | None, path: str) -> Reader:
    """Return the reader for passes, if its rows can be read from any row on; None: those of the format never can.

    Raises
    ------
    UsageError
    """
    if reader is not None and reader.enterable:
        return reader.pass_reader()
    raise UsageError(
        f"{path}: its rows cannot be read independently: it is text, stored by columns, one packed stream, or"
        " one of two files"
        f"\n  cure: `mlfs convert {path} STORE`, with the options of the labels, and use the store"
    )


def open_rows(
    reader: Reader,
    path: str,
    *,
    declared: MinusOne | None = None,
    options: Mapping[str, Any] | None = None,
    whole: Sequence[Source] = (),
    reading: Any = None,
    **names: Any,
) -> FileRows:
    """Return the rows that a reader gives; their labels are read.

    Parameters
    ----------
    reader : Reader
    path : str
        What the user named; "" where rows come from an object of this process.
    declared : {"unknown", "negative"}, optional
        As of `scan_labels`.
    options : mapping, optional
        For fsspec.
    whole : sequence of Source
        What was there before the reader was opened. It has to be there still when the labels have been read.
    reading : plain values, optional
        How the file is read, which is a part of what it is known by.
    **names
        `read_feature_names` and `read_columns` of `FileRows`.

    Raises
    ------
    DataError
    """
    parts, header = tuple(reader.parts(PARTITION_BYTES)), reader.header
    known = bool(whole) and all(source.modified for source in whole)
    facts = [[source.bytes, source.modified] for source in whole]
    folder = None if is_url(path) or not path else local_path(path)
    sources = tuple(whole)
    if folder is not None and folder.is_dir():
        # Chunks of a Zarr folder are too many to be looked at again and again: who replaces it writes its roots.
        roots = [str(folder / name) for name in ZARR_ROOTS if (folder / name).exists()]
        sources = tuple(examine(roots or [each.path for each in getattr(reader, "readers", [reader])], options))
    categories = None
    if header.categories:
        categories = np.zeros(header.n_features or 0, np.int64)
        for feature, values in header.categories.items():
            categories[feature] = len(values)
    counts, minus_one = scan_labels(reader, declared or header.minus_one)
    require_unchanged(whole, options)
    return FileRows(
        reader,
        path,
        sources,
        dict(options or {}),
        parts,
        counts,
        minus_one,
        BLOCK_BYTES,
        n_categories=categories,
        residence="storage" if path else "process",
        digest=f"changed-{digest_of({'files': facts, 'reading': reading})}" if known else None,
        **names,
    )
