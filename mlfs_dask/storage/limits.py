"""What a file or a store declares, held against the memory that it may take, before any of it is taken."""

from __future__ import annotations

from mlfs_dask import runtime
from mlfs_dask.errors import DoesNotFitError, parameter


def require_memory(what: str, size: int) -> None:
    """Raise DoesNotFitError for more bytes than this process may hold beside what it holds already.

    Parameters
    ----------
    what : str
        What would take them.
    size : int
    """
    if size < _FEW_BYTES:
        return
    available = max(runtime.memory_limit() - runtime.current_rss(), 0)
    if size > available:
        raise DoesNotFitError(
            what,
            projected=size,
            available=available,
            cure=memory_cure(),
        )


#: Bytes of address space that Arrow takes with its threads. Where it gets no thread, it may end the process: seen under
#: limits of up to 640 MB, on two cores.
_ARROW_BYTES = 768 << 20


def require_arrow() -> None:
    """Raise MemoryError under a limit of address space (`ulimit -v`) in which Arrow cannot work."""
    runtime.require_address_space(_ARROW_BYTES)


def memory_cure() -> str:
    """What to do where others' data takes too much memory."""
    return "check that the data is what it should be, or give more memory with " + parameter("memory_limit")


#: So little that the system need not be asked.
_FEW_BYTES = 1 << 24
