"""Checks of declared sizes against the available memory, before anything is allocated; errors of full disks."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from mlfs_dask import runtime
from mlfs_dask.errors import DISK_FULL, DoesNotFitError, parameter

COLUMN_BYTES = 200
"""Bytes per feature or label: counts of a part beside those of the whole, and the names while they are written."""


def require_memory(what: str, size: int, *, cure: str | None = None) -> None:
    """Raise DoesNotFitError for more bytes than this process may hold beside what it holds already.

    Parameters
    ----------
    what : str
        What would take them.
    size : int
    cure : str, optional
        By default `memory_cure`.
    """
    if size < _FEW_BYTES:
        return
    available = max(runtime.memory_limit() - runtime.current_rss(), 0)
    if size > available:
        raise DoesNotFitError(
            what,
            projected=size,
            available=available,
            cure=cure or memory_cure(),
        )


#: Bytes of address space that Arrow takes with its threads. Where it gets no thread, it may end the process: seen under
#: limits of up to 640 MB, on two cores.
_ARROW_BYTES = 768 << 20


def require_arrow() -> None:
    """Raise MemoryError under a limit of address space (`ulimit -v`) in which Arrow cannot work."""
    runtime.require_address_space(_ARROW_BYTES)


def memory_cure() -> str:
    """Return the cure for data that needs too much memory."""
    return "check that the data is what it should be, or give more memory with " + parameter("memory_limit")


def full_disk(what: str, folder: str | Path, projected: int, *, cure: str) -> DoesNotFitError:
    """Return the error where the disk of a folder is full, and what was written there has been removed.

    Parameters
    ----------
    what : str
        What was to be written.
    folder : str or Path
    projected : int
        Bytes that it takes as far as that is known. There was no room for it: what is free would not be all of it.
    cure : str
    """
    free = shutil.disk_usage(folder).free
    return DoesNotFitError(what, projected=projected if projected > free else None, available=free, cure=cure)


def full_temporary_folder(projected: int) -> DoesNotFitError:
    """Return the error where the disk of temporary files is full."""
    folder = tempfile.gettempdir()
    cure = "make room there, or set the variable TMPDIR to a folder of a larger disk"
    return full_disk(f"a temporary file in {folder}", folder, projected, cure=cure)


@contextlib.contextmanager
def filled_temporary_file(prefix: str, size: int) -> Iterator[BinaryIO]:
    """A temporary file that the block fills with `size` bytes; it stays open if the block ends well.

    Raises
    ------
    DoesNotFitError
        Its disk is full.
    """
    file = cast(BinaryIO, tempfile.TemporaryFile(prefix=prefix))  # noqa: SIM115 - stays open
    try:
        yield file
        file.flush()
    except BaseException as error:
        with contextlib.suppress(OSError):  # what could not be written cannot be written now
            file.close()
        if isinstance(error, OSError) and error.errno in DISK_FULL:
            raise full_temporary_folder(size) from error
        raise


#: So little that the system need not be asked.
_FEW_BYTES = 1 << 24
