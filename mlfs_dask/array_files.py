"""Arrays in files: written block by block, mapped rather than read, and the scratch folder that has room for them.

The pages of a mapped file that were touched count as memory of the process until `drop_pages` takes them out. Code that
goes through a mapped array block by block calls it after each block, so that the peak that the system reports (VmHWM)
is the memory that was needed.
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
from numpy.lib import format as npy
from numpy.typing import NDArray

#: Bytes that are written at a time.
BLOCK_BYTES = 2**20

#: Fraction of the free disk that scratch files may take.
DISK_FRACTION = 0.9

#: Files that this process has mapped.
_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def map_file(
    file: IO[bytes], offset: int, shape: tuple[int, ...], fortran: bool, dtype: Any, *, writable: bool = False
) -> NDArray[Any]:
    """An array that lies in a file.

    Parameters
    ----------
    file : binary file
        Open; it may be closed afterwards.
    offset : int
        Where the array begins, in bytes.
    shape : tuple of int
    fortran : bool
        Whether it is Fortran-ordered.
    dtype : dtype
    writable : bool
        Whether what is written to the array goes to the file; by default it can only be read.
    """
    count = math.prod(shape)
    if count == 0:
        return np.empty(shape, dtype)
    mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ)
    _mapped.add(mapped)
    return np.frombuffer(mapped, dtype=dtype, count=count, offset=offset).reshape(shape, order="F" if fortran else "C")


def is_mapped(array: NDArray[Any]) -> bool:
    """Whether an array is mapped from a file."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base.obj if isinstance(base, memoryview) else base, mmap.mmap)


def drop_pages() -> None:
    """Take the pages of all mapped files out of this process; their content stays in the system's cache or on disk."""
    for mapped in list(_mapped):
        mapped.madvise(mmap.MADV_DONTNEED)


def write_array(stream: IO[bytes], array: NDArray[Any]) -> None:
    """Write an array in the format of an .npy file, a block at a time, so that a mapped one is never in memory whole.

    Raises
    ------
    ValueError
        The array holds objects, which would be pickled.
    """
    if array.dtype.hasobject:
        raise ValueError("an array of objects would be pickled, and allow_pickle is never set here")
    if not array.flags.forc:
        array = np.ascontiguousarray(array)
    npy.write_array_header_1_0(stream, npy.header_data_from_array_1_0(array))
    flat = array.reshape(-1, order="A").view(np.uint8) if array.size else array.reshape(-1)
    for low in range(0, array.nbytes, BLOCK_BYTES):
        stream.write(flat[low : low + BLOCK_BYTES].data)
        drop_pages()


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether Fortran-ordered, and dtype of an .npy file; the stream is then at its values.

    Raises
    ------
    ValueError
        The stream holds no such file.
    """
    npy.read_magic(stream)
    shape, fortran, dtype = npy.read_array_header_1_0(stream)
    return shape, fortran, dtype


def scratch_folder() -> Path:
    """Where scratch files go: Dask's `temporary-directory`, or the system's folder for temporary files (TMPDIR)."""
    import dask

    return Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir())


def free_disk(folder: str | Path) -> int:
    """Bytes that scratch files in a folder may take; 0 where it cannot be written to or is a file system in memory."""
    try:
        if not os.access(folder, os.W_OK) or _file_system(Path(folder).resolve()) in ("tmpfs", "ramfs"):
            return 0
        state = os.statvfs(folder)
    except OSError:
        return 0
    return int(state.f_bavail * state.f_frsize * DISK_FRACTION)


def _file_system(folder: Path) -> str:
    """Type of the file system of a folder, as Linux names it; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    mounts = [(Path(fields[1].encode().decode("unicode_escape")), fields[2]) for fields in map(str.split, lines)]
    above = [(len(point.parts), i, kind) for i, (point, kind) in enumerate(mounts) if folder.is_relative_to(point)]
    return max(above)[2] if above else ""
