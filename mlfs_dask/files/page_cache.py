"""Files and the system's page cache: what is in it is mapped, so that nothing is copied, and what is not is read ahead.

A file that is cut short under a map, or a disk that fails, would end the process by SIGBUS: the handler here puts a
page of zeros in the place of the missing one, and `is_cut` tells of it. Without a user of the array its pages are
released, so that they count as memory of the process no longer than a buffer would.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import signal
import sys
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray


class _Part(mmap.mmap):
    """Pages of a file; `cut` is true once one of them was missing."""

    cut = False


class _Action(ctypes.Structure):
    """The `struct sigaction` of Linux."""

    _fields_ = (
        ("handler", ctypes.c_void_p),
        ("mask", ctypes.c_ubyte * 128),
        ("flags", ctypes.c_int),
        ("restorer", ctypes.c_void_p),
    )


#: Distance of the bytes that are looked for in the page cache; files are read ahead by smaller and evicted by larger
#: pieces.
_PROBE_BYTES = 2**20

#: Maps of this process by their address.
_parts: weakref.WeakValueDictionary[int, _Part] = weakref.WeakValueDictionary()

_SA_SIGINFO = 4
_MAP_FIXED = 16
#: Offset of the address in `siginfo_t` of 64-bit systems.
_ADDRESS = 16

_libc: Any = ctypes.CDLL(None)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, *(ctypes.c_int,) * 3, ctypes.c_long)


def _supply_page(number: int, facts: int, context: int) -> None:
    """Put zeros in the place of a missing page of ours, in the thread that asked for it; other faults stay fatal."""
    address = ctypes.c_size_t.from_address(facts + _ADDRESS).value
    for start, part in list(_parts.items()):
        if start <= address < start + len(part):
            part.cut = True
            how = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_FIXED
            _libc.mmap(address & -mmap.PAGESIZE, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, how, -1, 0)
            return
    _libc.sigaction(number, ctypes.byref(_before), None)


_handler = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)(_supply_page)
_before, _ours = _Action(), _Action(ctypes.cast(_handler, ctypes.c_void_p).value, flags=_SA_SIGINFO)


def _handle_faults() -> None:
    """Install the handler, also where another one was since."""
    global _before
    found = _Action()
    _libc.sigaction(signal.SIGBUS, ctypes.byref(_ours), ctypes.byref(found))
    if found.handler != _ours.handler:
        _before = found


def request_pages(descriptor: int) -> bool:
    """Have the system read a file ahead, unless its beginning is in the page cache; return True if it is not."""
    if sys.platform != "linux":
        return False
    try:
        os.preadv(descriptor, [bytearray(1)], 0, os.RWF_NOWAIT)
        return False
    except OSError:  # also of a file system that cannot tell
        with contextlib.suppress(OSError):
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_WILLNEED)
        return True


def map_cached(descriptor: int, offset: int, size: int) -> NDArray[np.uint8] | None:
    """Return bytes of an open file as they lie in the page cache; None where some do not, or the file ends before.

    What is written to the array is not written to the file.
    """
    if sys.platform != "linux" or offset + size > os.fstat(descriptor).st_size:
        return None
    inside = offset % mmap.PAGESIZE
    try:
        for place in (*range(offset, offset + size, _PROBE_BYTES), offset + size - 1):
            os.preadv(descriptor, [bytearray(1)], place, os.RWF_NOWAIT)
        part = _Part(descriptor, inside + size, access=mmap.ACCESS_COPY, offset=offset - inside)
    except OSError:  # also of a file system that cannot tell
        return None
    pages = np.frombuffer(part, np.uint8)
    _parts[pages.ctypes.data] = part
    _handle_faults()
    return pages[inside:]


def is_cut(array: NDArray[Any]) -> bool:
    """Return True if some of a mapped array was zeros, as its file was cut short or could not be read."""
    base: Any = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, _Part) and base.obj.cut
