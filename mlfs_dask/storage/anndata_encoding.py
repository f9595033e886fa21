"""AnnData's encoding of small things in Zarr, as objects of a store: data frames, vectors, strings, row numbers."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.files.chunk_codecs import decode
from mlfs_dask.files.limits import require_memory
from mlfs_dask.files.object_store import ROOT_KEY
from mlfs_dask.storage.array_layout import array_metadata, bytes_codecs, group_metadata
from mlfs_dask.storage.numbered_names import NumberedNames
from mlfs_dask.storage.zarr_format import encoder

Object: TypeAlias = tuple[str, bytes]
"""Key below the root of a store, and content."""

DENSE = {"encoding-type": "array", "encoding-version": "0.2.0"}
STRINGS = {"encoding-type": "string-array", "encoding-version": "0.2.0"}
DICT = {"encoding-type": "dict", "encoding-version": "0.1.0"}

#: Rows of a chunk.
CHUNK = 1 << 20
#: Bytes that are held for each of packed strings: packed, as objects of Python, and as entries of NumPy.
_STRING_BYTES = 20
# Row numbers and ranges of many features compress to a fraction, and are read once.
_COMPRESSOR = "blosc-zstd"


def group(name: str, attributes: Mapping[str, Any]) -> Object:
    """Return a group."""
    return f"{name}/{ROOT_KEY}", group_metadata(attributes)


def dataframe(name: str, *columns: str) -> Object:
    """Return the group of a data frame with an index, `_index`, and these columns."""
    order = {"_index": "_index", "column-order": list(columns)}
    return group(name, {"encoding-type": "dataframe", "encoding-version": "0.2.0", **order})


def vector(name: str, values: NDArray[Any]) -> Iterator[Object]:
    """Yield numbers."""
    yield vector_metadata(name, len(values), values.dtype)
    for start in range(0, len(values), CHUNK):
        yield from vector_chunk(name, start, values[start : start + CHUNK], len(values))


def row_numbers(n: int, *columns: str) -> Iterator[Object]:
    """`obs`: a data frame with these columns whose index counts rows. A string a row would cost more than labels."""
    name = "obs/_index"
    yield dataframe("obs", *columns)
    yield vector_metadata(name, n, np.dtype(np.int64))
    for start in range(0, n, CHUNK):
        yield from vector_chunk(name, start, np.arange(start, min(n, start + CHUNK)), n)


def vector_metadata(name: str, length: int, dtype: np.dtype[Any]) -> Object:
    """Return the metadata of a vector."""
    return f"{name}/{ROOT_KEY}", array_metadata(
        shape=(length,),
        data_type=dtype.name,
        chunks=(min(length, CHUNK),),
        codecs=bytes_codecs(dtype.itemsize, _COMPRESSOR),
        fill_value=0,
        attributes=DENSE,
    )


def vector_chunk(name: str, start: int, values: NDArray[Any], length: int) -> Iterator[Object]:
    """Yield one chunk of a vector, which begins at `start`."""
    if not values.any():
        return  # what is absent is 0
    chunk = np.zeros(min(length, CHUNK), values.dtype.newbyteorder("<"))  # the last one is as long as the others
    chunk[: len(values)] = values
    yield f"{name}/c/{start // CHUNK}", bytes(encoder(_COMPRESSOR)(chunk))


_STRING_CODECS: list[dict[str, Any]] = [
    {"name": "vlen-utf8", "configuration": {}},
    {"name": "zstd", "configuration": {"level": 0, "checksum": False}},
]


def strings(name: str, values: Sequence[str]) -> Iterator[Object]:
    """Yield strings, of any length."""
    import numcodecs

    chunk = min(len(values), CHUNK)
    yield (
        f"{name}/{ROOT_KEY}",
        array_metadata(
            shape=(len(values),),
            data_type="string",
            chunks=(chunk,),
            codecs=_STRING_CODECS,
            fill_value="",
            attributes=STRINGS,
        ),
    )
    texts, pack = numcodecs.VLenUTF8(), numcodecs.Zstd(level=0)
    for start in range(0, len(values), CHUNK):
        stop = min(start + chunk, len(values))
        if isinstance(values, NumberedNames):
            # As numcodecs encodes them: how many there are, then the length and the bytes of each.
            framed = values.framed(start, stop, lambda length: (struct.pack("<I", length), b""))
            encoded: Any = struct.pack("<I", chunk) + framed + bytes(4 * (chunk - stop + start))
        else:
            padded = np.full(chunk, "", object)
            padded[: stop - start] = values[start:stop]
            encoded = texts.encode(padded)
        yield f"{name}/c/{start // CHUNK}", bytes(pack.encode(encoded))


def read_vector(
    read_object: Callable[[str], bytes], name: str, metadata: Mapping[str, Any], length: int
) -> NDArray[Any]:
    """Return numbers or strings as `vector` and `strings` write them.

    Loading zarr-python for them would take a third of the time in which a small store is selected from, and it unpacks
    a chunk into as much memory as the chunk asks for.

    Parameters
    ----------
    read_object : function
        Gives the bytes of an object of the store; raises FileNotFoundError where it is absent.
    name : str
    metadata : mapping
        The array's `zarr.json`.
    length : int
        That it has to have.

    Raises
    ------
    OSError, ValueError, RuntimeError, KeyError
        They are damaged.
    DoesNotFitError
        The system does not have the memory for them.
    """
    dtype = _read_dtype(metadata, length)
    require_memory(f"reading {name}", length * dtype.itemsize)
    values = np.zeros(length, dtype)
    for start in range(0, length, CHUNK):
        part = values[start : start + CHUNK]
        read = read_chunk(read_object, name, metadata, length, start // CHUNK)
        if read is not None:
            part[:] = read[: len(part)]
    return values


def _read_dtype(metadata: Mapping[str, Any], length: int) -> Any:
    """Return the type of a vector, which is cut and coded as ours are."""
    chunk, texts = min(length, CHUNK), metadata["data_type"] == "string"
    layout = metadata["shape"], metadata["chunk_grid"]["configuration"]["chunk_shape"], metadata["fill_value"]
    dtype: Any = np.dtypes.StringDType() if texts else np.dtype(str(metadata["data_type"])).newbyteorder("<")
    codecs = _STRING_CODECS if texts else bytes_codecs(dtype.itemsize, _COMPRESSOR)
    if [*metadata["codecs"]] != codecs or layout != ([length], [chunk], "" if texts else 0):
        raise ValueError(f"an array of {length} entries, as a store has them, was expected")
    return dtype


def read_chunk(
    read_object: Callable[[str], bytes], name: str, metadata: Mapping[str, Any], length: int, number: int
) -> NDArray[Any] | None:
    """Return one chunk of a vector, as long as all; None where all of it is 0. Parameters and errors are
    `read_vector`'s.
    """
    chunk, dtype = min(length, CHUNK), _read_dtype(metadata, length)
    try:
        content = np.frombuffer(read_object(f"{name}/c/{number}"), np.uint8)
    except FileNotFoundError:
        return None
    texts = metadata["data_type"] == "string"
    read = _unpack_strings(name, content) if texts else np.empty(chunk, dtype)
    if not texts:
        decode("blosc", content, read.view(np.uint8))
    if len(read) != chunk:
        raise ValueError(f"part {number} has {len(read)} entries, not {chunk}")
    return read


def _unpack_strings(name: str, content: NDArray[np.uint8]) -> NDArray[Any]:
    """Return the strings of a chunk. Only its header says what they take: that is looked at first."""
    import numcodecs
    import zstandard

    try:
        size = zstandard.frame_content_size(content.data)
    except zstandard.ZstdError as error:
        raise ValueError(str(error)) from None
    if size < 4:
        raise ValueError("it does not say what it holds")
    require_memory(f"reading {name}", size * _STRING_BYTES)
    packed = np.empty(size, np.uint8)
    decode("zstd", content, packed)
    # Each string takes 4 bytes at least: numcodecs makes room for as many as the first 4 bytes say.
    if int(packed[:4].view("<u4")[0]) > size // 4:
        raise ValueError("it says that it holds more strings than it has room for")
    strings: NDArray[Any] = numcodecs.VLenUTF8().decode(packed)
    return strings
