"""Chunks of Zarr arrays, unpacked into buffers of the size that they have to have."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

#: Versions, flags and item size; bytes unpacked; bytes of a block; bytes packed.
_BLOSC_HEADER = struct.Struct("<4sIII")


def decode(compressor: str, content: NDArray[np.uint8], out: NDArray[np.uint8]) -> None:
    """Unpack one chunk, which has to fill `out`: however much it says that it holds, nothing more is allocated.

    Parameters
    ----------
    compressor : {"none", "zstd"} or str
        Any other is Blosc's.
    content : uint8 array
        Stored bytes.
    out : uint8 array

    Raises
    ------
    ValueError, RuntimeError
        It is damaged, or holds more or less.
    """
    if compressor == "none":
        out[:] = content
        return
    import numcodecs  # takes a while to load

    if compressor == "zstd":
        import zstandard

        codec = numcodecs.Zstd()
        try:
            declared = zstandard.frame_content_size(content.data)
        except zstandard.ZstdError as error:
            raise ValueError(f"no frame of Zstandard: {error}") from None
        if declared == -1:  # not said: numcodecs then stops at the end of `out`, and asks for all of it
            declared = len(out)
    else:
        codec = numcodecs.Blosc()
        header = content[: _BLOSC_HEADER.size].tobytes()
        _, declared, _, stored = _BLOSC_HEADER.unpack(header.ljust(_BLOSC_HEADER.size, b"\0"))
        if stored != len(content):  # Blosc believes it, and reads as far
            raise ValueError(f"it says that it takes {stored} bytes, and takes {len(content)}")
    if declared != len(out):
        raise ValueError(f"it says that it holds {declared} bytes, and has to hold {len(out)}")
    codec.decode(content, out=out)
