"""Scratch file for selected columns of all rows, if they do not fit in memory.

The file has no name: it is gone with the array, however the process ends.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DoesNotFitError, parameter
from mlfs_dask.files.array_files import free_disk, map_file
from mlfs_dask.rows.contract import Profile


def new_column_file(folder: Path, n: int, k: int, dtype: Any) -> NDArray[Any]:
    """Return an array of zeros of shape (n, k) that is mapped from a new file in a folder.

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
                cure="point TMPDIR to a folder on a disk with more room, or evaluate fewer features "
                f"({parameter('k_grid')})",
            ) from error
        return map_file(file, (n, k), dtype)


def reading_bytes(profile: Profile, columns: int) -> int:
    """Return bytes that a thread holds that reads columns by `read_rows`, besides what it has read."""
    return profile.buffer_bytes + profile.block_bytes + profile.block_rows * columns * profile.float_dtype.itemsize
