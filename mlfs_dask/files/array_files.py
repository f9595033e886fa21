"""Arrays mapped from scratch files, and the scratch folder.

Touched pages of a mapped file count as memory of the process until `drop_pages` releases them. Code that walks a mapped
array block by block calls it after each block, so that the peak memory reported by the system (VmHWM) is the memory
that the computation needs.
"""

from __future__ import annotations

import math
import mmap
import os
import tempfile
import weakref
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

#: Fraction of the free disk space available to scratch files.
DISK_FRACTION = 0.9

#: Files mapped by this process.
_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def map_file(file: IO[bytes], shape: tuple[int, ...], dtype: Any) -> NDArray[Any]:
    """Return an array mapped from a file; writing to the array writes to the file.

    Parameters
    ----------
    file : binary file
        Open for reading and writing, and large enough; it may be closed afterwards.
    shape : tuple of int
    dtype : dtype
    """
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype)
    mapped = mmap.mmap(file.fileno(), 0)
    _mapped.add(mapped)
    return np.frombuffer(mapped, dtype=dtype, count=count).reshape(shape)


def is_mapped(array: NDArray[Any]) -> bool:
    """Return True if an array is mapped from a file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def drop_pages() -> None:
    """Release the pages of all mapped files; their content stays in the system's cache or on disk."""
    for mapped in list(_mapped):
        mapped.madvise(mmap.MADV_DONTNEED)


def scratch_folder() -> Path:
    """Return the scratch folder: Dask's `temporary-directory`, or the system's temporary folder (TMPDIR)."""
    import dask

    return Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir())


def free_disk(folder: str | Path) -> int:
    """Return the bytes available to scratch files in a folder; 0 if it is read-only or on a file system in memory."""
    try:
        if not os.access(folder, os.W_OK) or _file_system(Path(folder).resolve()) in ("tmpfs", "ramfs"):
            return 0
        status = os.statvfs(folder)
    except OSError:
        return 0
    return int(status.f_bavail * status.f_frsize * DISK_FRACTION)


def _file_system(folder: Path) -> str:
    """Return the type of a folder's file system, as Linux names it; empty if the system does not tell."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    mounts = [(Path(fields[1].encode().decode("unicode_escape")), fields[2]) for fields in map(str.split, lines)]
    parents = [(len(point.parts), i, kind) for i, (point, kind) in enumerate(mounts) if folder.is_relative_to(point)]
    return max(parents)[2] if parents else ""
