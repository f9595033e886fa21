"""Chosen columns of all rows: read into memory, or into a scratch file where they do not fit.

The file has no name: it is gone with the array, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.array_files import drop_pages, free_disk, map_file
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.typing import Profile, RowSource


def new_column_file(folder: Path, n: int, k: int, dtype: Any) -> NDArray[Any]:
    """An array of zeros of shape (n, k) that is mapped from a new file in a folder.

    Parameters
    ----------
    folder : Path
    n, k : int
    dtype : dtype

    Raises
    ------
    DoesNotFitError
        The disk has no room for it.
    """
    size = n * k * np.dtype(dtype).itemsize
    with tempfile.TemporaryFile(dir=folder, prefix="mlfs-columns-") as file:
        try:
            # All of the disk space now: writing to a mapped file on a full disk would end the process.
            os.posix_fallocate(file.fileno(), 0, max(size, 1))
        except OSError as error:
            raise DoesNotFitError(
                f"columns of all rows, in the scratch folder {folder}",
                projected=size,
                available=free_disk(folder),
                cure="point TMPDIR to a folder on a disk with more room, or evaluate fewer features (--k-grid)",
            ) from error
        return map_file(file, 0, (n, k), False, dtype, writable=True)


def read_columns(source: RowSource, columns: NDArray[np.int64], out: NDArray[Any], *, threads: int) -> None:
    """Read chosen columns of all rows, in the order asked for, by one reading in this process.

    Parameters
    ----------
    source : RowSource
        One that streams.
    columns : int64 array, shape (k,)
    out : float array, shape (n, k)
        Where they go; may be mapped from a file.
    threads : int
        Partitions that are read at the same time; each holds `reading_bytes`.
    """

    def read(partition: int) -> None:
        for block in source.stream(partition, partition + 1):
            X = block.X[:, columns]
            out[block.start : block.start + X.shape[0]] = X.toarray() if sp.issparse(X) else X
        drop_pages()

    started = time.perf_counter()
    partitions = source.profile.partitions
    runtime.emit("pass", label="chosen columns", partitions=partitions)
    with ThreadPoolExecutor(threads, thread_name_prefix="mlfs-columns") as pool:
        for _ in pool.map(read, range(partitions)):
            runtime.emit("partitions", done=1)
    runtime.emit("pass-done", label="chosen columns", seconds=time.perf_counter() - started)


def reading_bytes(profile: Profile, columns: int) -> int:
    """Bytes that a thread of `read_columns` holds besides what it has read."""
    return profile.buffer_bytes + profile.block_bytes + profile.block_rows * columns * column_dtype(profile).itemsize


def column_dtype(profile: Profile) -> np.dtype[Any]:
    """float32 where X is of float32 or smaller integers, else float64."""
    return np.dtype(np.float32 if profile.itemsize <= 4 else np.float64)
