"""AnnData's encoding of small things in Zarr: data frames, vectors, strings, row numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:  # takes longer to import than a small file to read
    import zarr

DENSE = {"encoding-type": "array", "encoding-version": "0.2.0"}
STRINGS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}

_CHUNK = 1 << 20


def dataframe(*columns: str) -> dict[str, Any]:
    """Attributes of the group of a data frame with an index and these columns."""
    return {
        "encoding-type": "dataframe",
        "encoding-version": "0.2.0",
        "_index": "_index",
        "column-order": list(columns),
    }


def put(group: zarr.Group, name: str, values: NDArray[Any]) -> None:
    """Write a vector of numbers."""
    _create(group, name, len(values), values.dtype)[:] = values


def put_strings(group: zarr.Group, name: str, values: Sequence[str]) -> None:
    """Write a vector of strings."""
    array = group.create_array(
        name,
        shape=(len(values),),
        chunks=(min(len(values), _CHUNK),),
        dtype=str,
        attributes=dict(STRINGS),
    )
    array[:] = np.array(list(values), dtype=object)


def put_row_numbers(top: zarr.Group, n: int) -> None:
    """Write `obs`: a data frame without columns whose index counts rows. A string a row would cost more than labels."""
    obs = top.create_group("obs", attributes=dataframe())
    index = _create(obs, "_index", n, np.dtype(np.int64))
    for start in range(0, n, _CHUNK):
        stop = min(n, start + _CHUNK)
        index[start:stop] = np.arange(start, stop, dtype=np.int64)


def _create(group: zarr.Group, name: str, length: int, dtype: np.dtype[Any]) -> zarr.Array[Any]:
    from zarr.codecs import BloscCodec

    # Row numbers and ranges of many features compress to a fraction, and are read once.
    codec = BloscCodec(cname="zstd", clevel=3, shuffle="shuffle", typesize=dtype.itemsize)
    return group.create_array(
        name,
        shape=(length,),
        chunks=(min(length, _CHUNK),),
        dtype=dtype,
        compressors=codec,
        fill_value=0,
        attributes=dict(DENSE),
    )
