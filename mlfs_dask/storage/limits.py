"""What a file or a store declares, held against the memory that there is, before any of it is taken."""

from __future__ import annotations

from mlfs_dask import runtime
from mlfs_dask.errors import DoesNotFitError


def require_memory(what: str, size: int) -> None:
    """Raise DoesNotFitError for more bytes than this process could have.

    Parameters
    ----------
    what : str
        What would take them.
    size : int
    """
    if size < _FEW_BYTES:
        return
    available = runtime.available_memory()
    if size > available:
        raise DoesNotFitError(
            what,
            projected=size,
            available=available,
            cure="check that the data is what it should be, or read it where there is more memory",
        )


#: So little that the system need not be asked.
_FEW_BYTES = 1 << 24
