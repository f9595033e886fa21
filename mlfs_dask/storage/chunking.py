"""Plans of a conversion in integers alone: shapes of chunks and shards, and bytes that will be needed.

Everything follows from counts (n, d, q, nonzeros), item sizes and the memory bound, before an array of the
store is touched. This module imports neither Dask nor Zarr.

A partition is what one task of a pass reads: 64 MB by default. Dense arrays are cut by rows. Sparse arrays
are cut by nonzeros, since that is what costs memory: a partition is the rows that START within one shard.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.files.limits import COLUMN_BYTES
from mlfs_dask.storage.array_layout import CHUNK_BYTES, ArrayLayout, itemsize_of
from mlfs_dask.storage.schema import LABELS_NAME, X_NAME

PARTITION_BYTES = 64_000_000
"""Default bytes of X and Y in one partition."""

MAX_PARTITIONS = 100_000
"""Most partitions of one conversion. The root metadata name every object, in some hundred bytes, and whoever opens the
store reads and holds them (`benchmarks/load.py partitions`)."""

CHUNK_NONZEROS = 1 << 18
"""Most nonzeros in one inner chunk of a sparse array: 1 MiB of indices. Blocks begin and end within chunks, and a chunk
is read whole, as its checksum is of all of it."""

SMALL_CHUNK_BYTES = 1 << 20
"""Bytes of one inner chunk of row offsets and of dense labels."""

INDEX_BYTES = 4
OFFSET_BYTES = 8

PROCESS_BYTES = 190 << 20
"""Memory of a worker process apart from its batches: interpreter, NumPy, SciPy, and the libraries or compiled
tokenizers of a format (measured 130 to 180 MiB)."""

MARGIN_BYTES = 24 << 20
"""What else a reading process comes to hold after its first batch (measured 20 MiB, of the smallest file too): one
inner chunk while it writes, the libraries that write, and memory that is free but not returned."""

MAX_QUANTILE_FEATURES = 2**16
"""Most features of which a store keeps a table of quantiles."""

QUANTILE_BYTES = 400
"""Bytes per feature of the table of quantiles: 23 numbers, twice while it is made, by the calling process. The drawn
rows that it is made of are a few batches."""

BATCH_MULTIPLE = 14
"""Bytes a process holds per byte of batch, measured at most 13: text, parsed columns, the batch, its narrow copy."""

MAX_BATCH = 16 << 20
MIN_BATCH = 256 << 10


@dataclass(frozen=True)
class StoreChunking:
    """Forms of X and Y in a store, and its bytes on disk.

    Attributes
    ----------
    arrays : mapping of str to ArrayLayout
        The arrays by name, X's first: one of rows, or values, column indices and row offsets of a sparse matrix.
    bytes : int
        Without a compressor, names and metadata included roughly.
    """

    arrays: Mapping[str, ArrayLayout]
    bytes: int

    def is_sparse(self, matrix: str) -> bool:
        """Return True if `matrix`, X or the labels, is sparse."""
        return matrix not in self.arrays

    def values(self, matrix: str) -> ArrayLayout:
        """Return the rows of X or the labels, or their nonzeros where they are sparse."""
        return self.arrays[f"{matrix}/data" if self.is_sparse(matrix) else matrix]


def chunk_store(
    *,
    n: int,
    d: int,
    q: int,
    nonzeros: int,
    label_nonzeros: int,
    dtype: str,
    longest_row: int,
    storage: str = "auto",
    labels_storage: str = "auto",
    partition_bytes: int = PARTITION_BYTES,
    compressor: str = "none",
) -> StoreChunking:
    """Choose storage forms, chunks and shards.

    X is sparse when its CSR form takes at most half the bytes of its dense form; Y when that is smaller at all.

    Parameters
    ----------
    n, d, q : int
        Rows, features, labels; positive.
    nonzeros, label_nonzeros : int
        Entries other than 0.
    dtype : str
        Of X.
    longest_row : int
        Nonzeros of the fullest row, so that every shard begins at least one row.
    storage, labels_storage : {"auto", "dense", "sparse"}
    partition_bytes : int
        Bytes of X and Y that a partition should have; more where there would be more than `MAX_PARTITIONS`.
    compressor : {"none", "zstd", "lz4"}

    Returns
    -------
    StoreChunking

    Examples
    --------
    >>> plan = chunk_store(n=593, d=72, q=6, nonzeros=42556, label_nonzeros=1108, dtype="float64", longest_row=72)
    >>> plan.is_sparse("X"), plan.values("X").shards, plan.values("X").chunk_rows
    (False, 1, 593)
    """
    itemsize = itemsize_of(dtype)
    csr_bytes = nonzeros * (itemsize + INDEX_BYTES) + OFFSET_BYTES * n
    sparse = 2 * csr_bytes <= n * d * itemsize if storage == "auto" else storage == "sparse"
    label_csr_bytes = label_nonzeros * (1 + INDEX_BYTES) + OFFSET_BYTES * n
    labels_sparse = label_csr_bytes < n * q if labels_storage == "auto" else labels_storage == "sparse"
    labels_sparse |= not q  # beside numeric targets there may be no label
    label_bytes = label_csr_bytes if labels_sparse else n * q
    total = (csr_bytes if sparse else n * d * itemsize) + label_bytes
    partitions = max(1, -(-total // max(partition_bytes, -(-total // MAX_PARTITIONS))))

    def cut(name: str, shape: tuple[int, ...], dtype: str, shards: int, chunk_bytes: int, min_shard: int = 1) -> None:
        """Cut an array into about `shards` equal shards, of `min_shard` rows or more, of equal chunks."""
        layout = ArrayLayout(name, shape, dtype, 1, 1, compressor)
        if shape[0]:
            target = max(-(-shape[0] // max(shards, 1)), min(min_shard, shape[0]))
            chunks = -(-target // max(1, chunk_bytes // layout.row_bytes))
            chunk = -(-target // chunks)
            layout = replace(layout, shard_rows=chunk * chunks, chunk_rows=chunk)
        arrays[name] = layout

    def cut_sparse(name: str, entries: int, dtype: str, shards: int, min_shard: int = 1) -> None:
        """Cut values and indices alike, and the row offsets."""
        cut(f"{name}/data", (entries,), dtype, shards, CHUNK_NONZEROS * itemsize_of(dtype), min_shard)
        arrays[f"{name}/indices"] = replace(arrays[f"{name}/data"], key=f"{name}/indices", data_type="int32")
        cut(f"{name}/indptr", (n + 1,), "int64", -(-(n + 1) * OFFSET_BYTES // PARTITION_BYTES), SMALL_CHUNK_BYTES)

    arrays: dict[str, ArrayLayout] = {}
    if sparse:
        cut_sparse(X_NAME, nonzeros, dtype, partitions, longest_row)
    else:
        cut(X_NAME, (n, d), dtype, partitions, CHUNK_BYTES)
    # Readers slice the labels by offsets, so their shards need not follow the partitions: few, large files.
    if labels_sparse:
        shards = -(-label_nonzeros * (1 + INDEX_BYTES) // PARTITION_BYTES)
        cut_sparse(LABELS_NAME, label_nonzeros, "int8", shards)
    else:
        cut(LABELS_NAME, (n, q), "int8", -(-n * q // PARTITION_BYTES), SMALL_CHUNK_BYTES)
    stored = sum(array.stored_bytes for array in arrays.values())
    return StoreChunking(arrays, stored + 100 * d + 50 * q + n // 2 + 65536)


@dataclass(frozen=True)
class ConversionPlan:
    """Number of workers of a conversion and size of their batches.

    Attributes
    ----------
    workers : int
        Reading and writing threads or processes; 1 means the calling thread itself.
    batch_bytes : int
        Bytes of one batch of rows, as its reader measures them.
    total_bytes : int
        Projected peak of the whole process tree.
    """

    workers: int
    batch_bytes: int
    total_bytes: int


def plan_workers(
    *,
    memory_limit: int,
    workers: int,
    source_bytes: int | None,
    base_bytes: int,
    n_features: int = 0,
    reader_bytes: int = 0,
    threads: bool = False,
) -> int:
    """Return the number of workers that read and write.

    Parameters
    ----------
    memory_limit : int
        Bytes for the whole process tree.
    workers : int
        Workers wanted; fewer are planned where each would not get a useful batch, and the calling thread
        works alone when the source is small.
    source_bytes : int or None
        Bytes of the source files, if known.
    base_bytes : int
        What the calling process holds, with the source opened.
    n_features : int
        Features, if known; 0 otherwise.
    reader_bytes : int
        What an open file takes in each worker.
    threads : bool
        Workers are threads of the calling process, which loads the reader's libraries once.

    Examples
    --------
    >>> plan_workers(memory_limit=2**30, workers=2, source_bytes=2**31, base_bytes=80 << 20)
    2
    >>> plan_workers(memory_limit=200 << 20, workers=2, source_bytes=2**31, base_bytes=80 << 20)
    1
    """
    if source_bytes is not None and source_bytes <= 2 * MAX_BATCH:
        return 1
    useful = COLUMN_BYTES * n_features + reader_bytes + BATCH_MULTIPLE * (1 << 20)
    shared, own = (max(base_bytes, PROCESS_BYTES), 0) if threads else (base_bytes, PROCESS_BYTES)
    return max(1, min(workers, (memory_limit - shared) // (own + useful)))


def plan_conversion(
    *,
    memory_limit: int,
    workers: int,
    base_bytes: int,
    n_features: int = 0,
    reader_bytes: int = 0,
    threads: bool = False,
) -> ConversionPlan:
    """Return the size of the batches.

    Parameters
    ----------
    memory_limit : int
        Bytes for the whole process tree.
    workers : int
        From `plan_workers`.
    base_bytes : int
        What the calling process holds. If it reads itself: after a first small batch, with which libraries and
        compiled tokenizers come.
    n_features : int
        Features, if known; 0 otherwise.
    reader_bytes : int
        What an open file takes in each worker.
    threads : bool
        Workers are threads of the calling process.

    Raises
    ------
    DoesNotFitError
        If the smallest batch does not fit.
    """
    extra = COLUMN_BYTES * n_features + reader_bytes
    held = base_bytes
    base_bytes += QUANTILE_BYTES * n_features if n_features <= MAX_QUANTILE_FEATURES else 0
    if workers > 1 and not threads:
        share = (memory_limit - base_bytes) // workers
        fixed = PROCESS_BYTES + extra
        batch = min(MAX_BATCH, (share - fixed) // BATCH_MULTIPLE)
        return ConversionPlan(workers, batch, base_bytes + workers * (fixed + BATCH_MULTIPLE * batch))
    fixed = base_bytes + workers * (MARGIN_BYTES + extra)
    batch = min(MAX_BATCH, (memory_limit - fixed) // (workers * BATCH_MULTIPLE))
    if batch < MIN_BATCH and workers > 1:
        return plan_conversion(
            memory_limit=memory_limit, workers=1, base_bytes=held, n_features=n_features, reader_bytes=reader_bytes
        )
    if batch < MIN_BATCH:
        needed = fixed + BATCH_MULTIPLE * MIN_BATCH
        raise DoesNotFitError(
            "converting with one process",
            projected=needed,
            available=memory_limit,
            cure=f"pass --memory-limit {math.ceil(needed / 2**20)}MiB or more",
        )
    return ConversionPlan(workers, batch, fixed + workers * BATCH_MULTIPLE * batch)
