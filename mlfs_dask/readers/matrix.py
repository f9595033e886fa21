"""Rows of matrices that are stored as arrays, in whatever order and compression, a few at a time.

What the array formats share (.npz, .npy, .mat, AnnData, Zarr): each opens pairs of X and Y as `Rows`, and one
`MatrixReader` turns them into batches. A sparse matrix stored by columns is held in memory.
"""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csc_array, csr_array

from mlfs_dask.errors import DataError, DoesNotFitError, MlfsError, require_extra
from mlfs_dask.files.compressed_io import DAMAGE, open_source
from mlfs_dask.files.limits import memory_cure, require_memory
from mlfs_dask.files.object_store import is_url, open_binary, read_text_file
from mlfs_dask.readers.base import UNKNOWN_BYTES, Batch, FileSpec, Header, Part, Reader, damaged, parts_at
from mlfs_dask.readers.hdf5_heap import HeapCheckedFile
from mlfs_dask.readers.label_columns import find_columns
from mlfs_dask.readers.label_values import DEFAULT_VALUES, LabelValues, MinusOne, label_block, sparse_label_block
from mlfs_dask.runtime import memory_limit
from mlfs_dask.typing import Matrix

#: Bytes of a band of rows that is kept while it is cut into batches.
SMALL_BYTES = 16 << 20
#: Bytes of a band of compressed chunks that is kept: those that zarr-python and anndata choose for 2 000 columns.
BAND_BYTES = 64 << 20
#: Bytes of an array that are read at a time, or of entries that are brought into rows.
PIECE_BYTES = 4 << 20


class Rows(Protocol):
    """A matrix that gives consecutive rows.

    Attributes
    ----------
    shape : (n, width)
    stored_bytes : int
        Bytes of the values as stored, for the sizes of parts.
    dtype : dtype
    count : int
        Stored values.
    enterable : bool
        Whether `take` may begin anywhere at no extra cost.
    step : int
        Rows that are stored together: parts begin at multiples of it.
    held_bytes : int
        Bytes that are held between two calls of `take`.
    opened_bytes : int
        Those of them that a conversion has to have beside its batches: a matrix that is held.
    """

    shape: tuple[int, int]
    stored_bytes: int
    dtype: Any
    count: int
    enterable: bool
    step: int
    held_bytes: int
    opened_bytes: int

    def reach(self, start: int, max_bytes: int) -> int:
        """End of the longest run of rows from `start` that `take` gives in `max_bytes`; at least one row."""

    def take(self, start: int, stop: int) -> Matrix:
        """Return rows [start, stop), as stored: any real dtype."""

    def close(self) -> None:
        """Let go of streams and temporary files."""


Pair: TypeAlias = tuple[Rows, Rows]
Opener: TypeAlias = Callable[[], AbstractContextManager[Sequence[Pair]]]


class Sliceable(Protocol):
    """Interface that NumPy, h5py, zarr and the streams of this package share."""

    @property
    def shape(self) -> tuple[int, ...]: ...

    @property
    def dtype(self) -> Any: ...

    def __getitem__(self, key: Any, /) -> Any: ...


#: Bytes of a text as an object of Python, at least.
_TEXT_BYTES = 64


def _declared_chunks(dataset: Any) -> tuple[int, ...]:
    """Return the shape of the chunks of an array of h5py or zarr as its file declares it; none where there are no
    chunks.
    """
    # zarr from 3.4 reads a 0 in the shape as 1, so that every entry is the fill value, and keeps what was stored.
    match getattr(getattr(dataset, "metadata", None), "_stored_document", None):
        case {"chunks": chunks} | {"chunk_grid": {"configuration": {"chunk_shape": chunks}}}:
            return tuple(chunks)
    return tuple(dataset.chunks or ())


def check_dataset(dataset: Any, *, file: str) -> Any:
    """Return an array of h5py or zarr, if what it declares lets it be read.

    Raises
    ------
    DataError
        Chunks without entries, pickled objects, values of another dataset, or in another file: somebody else's file
        could name any of this machine.
    DoesNotFitError
        A chunk, which is unpacked whole, takes more memory than there is.
    """
    chunks = _declared_chunks(dataset)
    if min(chunks, default=1) < 1:
        raise damaged(f"{dataset.name} has chunks without entries", file, value=tuple(chunks))
    # Of a Zarr array; h5py has no names of HDF5 filters.
    codecs = (*getattr(dataset, "filters", ()), *getattr(dataset, "compressors", ()))
    if any(getattr(codec, "codec_id", "") == "pickle" for codec in codecs):
        raise DataError(
            f"{dataset.name} holds pickled objects, which are not read because unpickling runs code",
            file=file,
            cure="write it as numbers or as texts",
        )
    # HDF5 looks for them in the file that h5py reads for it, and finds zeros, or other values, or nothing.
    if getattr(dataset, "is_virtual", False):
        raise DataError(
            f"{dataset.name} is a virtual dataset, which refers to values of other datasets",
            file=file,
            value=dataset.virtual_sources()[0].file_name,
            cure="copy its values into an ordinary dataset, for example with h5repack -l CONTI for example",
        )
    # HDF5 names a file of Python by its repr, and what a link leads to by a path.
    holder = dataset.file.filename if hasattr(dataset, "virtual_sources") else "<"
    external = [each[0] for each in getattr(dataset, "external", None) or ()]
    if external or not (holder.startswith("<") or holder == file):
        raise DataError(
            f"the values of {dataset.name} are in another file, which is not read for safety",
            file=file,
            value=external[0] if external else holder,
            cure="write them into one file, with h5repack for example",
        )
    require_memory(f"{file}: a chunk of {dataset.name}", math.prod(chunks) * int(dataset.dtype.itemsize))
    return dataset


def whole(dataset: Any, *, file: str, rows: slice = slice(None)) -> NDArray[Any]:
    """Return all values of an array of h5py or zarr, one that is small by nature, or those of some rows; texts as
    objects.

    Raises
    ------
    DataError, DoesNotFitError
        As `check_dataset`; or all values take more memory than there is.
    """
    check_dataset(dataset, file=file)
    text = hasattr(dataset, "asstr") and dataset.dtype.kind in "OS"
    itemsize = int(dataset.dtype.itemsize)
    count = len(range(*rows.indices(dataset.shape[0]))) * math.prod(dataset.shape[1:]) if dataset.shape else 1
    size = count * (itemsize if dataset.dtype.kind in "buif" else max(itemsize, _TEXT_BYTES))
    require_memory(f"{file}: all of {dataset.name}", size)
    key: Any = rows if dataset.shape else ...
    with damage_in(file, dataset.name):
        return np.asarray(dataset.asstr()[key] if text else dataset[key])


class DenseRows:
    """Rows of a dense matrix.

    Parameters
    ----------
    read : callable
        From first row and end to these rows.
    shape : (n, width)
    dtype : dtype
    chunks : tuple of int, optional
        Rows and columns that are decompressed at once. A band of chunks is kept while it is cut into batches, so that
        they are decompressed once, if it takes at most `BAND_BYTES` or is not much more than one chunk.
    step : int, optional
        Rows that parts are multiples of; a chunk's by default.
    enterable : bool
    close : callable, optional
        Lets go of what is read.
    opened_bytes : int
        See `Rows`.
    """

    def __init__(
        self,
        read: Callable[[int, int], NDArray[Any]],
        shape: tuple[int, ...],
        dtype: Any,
        *,
        chunks: tuple[int, ...] | None = None,
        step: int | None = None,
        enterable: bool = True,
        close: Callable[[], None] = lambda: None,
        opened_bytes: int = 0,
    ) -> None:
        self._read = read
        self.opened_bytes = opened_bytes
        self.close = close
        self.enterable = enterable
        self.shape = (int(shape[0]), int(shape[1]))
        self.dtype = dtype
        self.count = self.shape[0] * self.shape[1]
        self.stored_bytes = self.count * int(dtype.itemsize)
        chunk_rows, chunk_columns = chunks or (1, 1)
        self.step = max(chunk_rows if step is None else step, 1)
        cheap = self.shape[1] <= 2 * chunk_columns or chunk_rows * self.shape[1] * int(dtype.itemsize) <= BAND_BYTES
        self._band_rows = chunk_rows if cheap and chunk_rows > 1 else 0
        self._band: tuple[int, NDArray[Any]] | None = None
        # Of a library that unpacks chunks, those of one row of them are in its hands, packed and unpacked.
        unpacked = chunk_rows * min(self.shape[1], chunk_columns) if chunks else 0
        self.held_bytes = int(dtype.itemsize) * (self._band_rows * self.shape[1] + 2 * unpacked)

    def reach(self, start: int, max_bytes: int) -> int:
        rows = max(1, max_bytes // max(8 * self.shape[1], 1))
        if self._band_rows:  # none of them is read in two batches and dropped between
            beyond = (start + rows) % self._band_rows
            rows = rows - beyond if rows >= self._band_rows else min(rows, self._band_rows - start % self._band_rows)
        return min(start + rows, self.shape[0])

    def take(self, start: int, stop: int) -> Matrix:
        if stop - start >= self._band_rows:
            return self._read(start, stop)
        if self._band is None or not (self._band[0] <= start and stop <= self._band[0] + len(self._band[1])):
            first = start - start % self._band_rows
            last = min(-(-stop // self._band_rows) * self._band_rows, self.shape[0])
            self._band = (first, self._read(first, last))
        first, rows = self._band
        return rows[start - first : stop - first]


def array_rows(
    array: Sliceable, *, turned: bool = False, chunks: tuple[int, ...] | None = None, **how: Any
) -> DenseRows:
    """Return rows (if `turned`, columns) of an array of two dimensions, `chunks` in its own order."""
    order = -1 if turned else 1

    def read(start: int, stop: int) -> NDArray[Any]:
        return np.asarray(array[:, start:stop]).T if turned else np.asarray(array[start:stop])

    return DenseRows(read, array.shape[::order], array.dtype, chunks=chunks and chunks[::order], **how)


def flat_rows(flat: Sliceable, shape: tuple[int, int], **how: Any) -> DenseRows:
    """Return the rows of a matrix that is stored row after row in an array of one dimension."""

    def read(start: int, stop: int) -> NDArray[Any]:
        return np.asarray(flat[start * shape[1] : stop * shape[1]]).reshape(stop - start, shape[1])

    return DenseRows(read, shape, flat.dtype, close=lambda: _close(flat), **how)


def fortran_rows(
    source: Sliceable | Callable[[], Sliceable],
    shape: tuple[int, int],
    dtype: Any,
    *,
    turned: bool = False,
    enterable: bool = False,
    opened_bytes: int = 0,
) -> DenseRows:
    """Return rows (if `turned`, columns) of a matrix that is stored column after column.

    `source` is an array of one dimension, or makes it when a row is first asked for. Rows are fetched in bands of
    `SMALL_BYTES`, because every row of a band costs one read in each column.
    """
    made: list[Sliceable] = []
    n, width = shape

    def read(start: int, stop: int) -> NDArray[Any]:
        if not made:
            made.append(source() if callable(source) else source)
        flat = made[0]
        if turned:
            return np.asarray(flat[start * n : stop * n]).reshape(stop - start, n)
        columns = np.empty((width, stop - start), dtype=dtype)
        for column in range(width):
            columns[column] = flat[column * n + start : column * n + stop]
        return columns.T

    def close() -> None:
        while made:
            _close(made.pop())

    how: dict[str, Any] = {"enterable": enterable, "close": close, "opened_bytes": opened_bytes}
    if turned:
        return DenseRows(read, (width, n), dtype, **how)
    band = max(1, SMALL_BYTES // max(width * dtype.itemsize, 1))
    return DenseRows(read, shape, dtype, chunks=(band, width), step=1, **how)


class ByChunks:
    """An array of one dimension, of whose chunks the last one is kept: the next slice begins in it.

    Parameters
    ----------
    array : Sliceable
        With `chunks`, each of which is unpacked whole.
    """

    def __init__(self, array: Any) -> None:
        self._array = array
        self._step = int(array.chunks[0])
        self._kept: tuple[int, NDArray[Any]] = (0, np.empty(0, array.dtype))
        self.shape, self.dtype = array.shape, array.dtype
        self.held_bytes = 2 * self._step * int(array.dtype.itemsize)

    def __getitem__(self, key: slice, /) -> NDArray[Any]:
        start, stop, _ = key.indices(self.shape[0])
        begin, kept = self._kept
        end = begin + len(kept)
        if begin <= start and stop <= end:
            return kept[start - begin : stop - begin]
        inside = begin <= start < end
        low = end if inside else start - start % self._step
        high = min(-(-stop // self._step) * self._step, self.shape[0])
        values = np.asarray(self._array[low:high])
        last = (high - 1) // self._step * self._step
        self._kept = last, values[last - low :].copy()
        if inside:
            return np.concatenate([kept[start - begin :], values[: stop - low]])
        return values[start - low : stop - low]


def _by_chunks(array: Sliceable) -> Sliceable:
    return ByChunks(array) if getattr(array, "chunks", None) else array


#: Offsets of rows that are held at a time.
_OFFSETS = 2**18


class CsrRows:
    """Rows of a matrix stored by rows: `indptr`, `indices` and `data` sliced as needed."""

    opened_bytes = 0

    def __init__(
        self,
        data: Sliceable,
        indices: Sliceable,
        indptr: Sliceable,
        shape: tuple[int, int],
        *,
        file: str,
        enterable: bool = True,
    ) -> None:
        self._indptr = indptr
        self._offsets_from = 0
        self._offsets: NDArray[np.int64] = np.empty(0, np.int64)
        self._file = file
        self.shape = shape
        self.enterable = enterable
        self.step = 1
        self.dtype, self.count = data.dtype, int(data.shape[0])
        length = int(indptr.shape[0])
        ends = [np.asarray(indptr[at : at + 1]).astype(np.int64) for at in (0, length - 1) if at >= 0]
        counts = [int(end[0]) for end in ends] + [int(indices.shape[0])]
        if length != shape[0] + 1 or counts != [0, self.count, self.count]:
            _close(indptr)
            last = int(ends[-1][0]) if ends else None
            raise _apart(length, last, int(indices.shape[0]), self.count, shape[0], file)
        self._data, self._indices = map(_by_chunks, (data, indices))
        self.stored_bytes = self.count * (int(data.dtype.itemsize) + int(indices.dtype.itemsize))
        self.held_bytes = 8 * min(shape[0] + 1, _OFFSETS)
        self.held_bytes += sum(getattr(each, "held_bytes", 0) for each in (self._data, self._indices, indptr))

    def _offsets_of(self, start: int, stop: int) -> NDArray[np.int64]:
        """Return the offsets of rows start to stop, stop included.

        Raises
        ------
        DataError
            They fall, or lead out of the values.
        """
        begin = self._offsets_from
        if not begin <= start <= stop < begin + len(self._offsets):
            end = min(max(stop, start + _OFFSETS), self.shape[0])
            offsets = np.asarray(self._indptr[start : end + 1]).astype(np.int64)
            if (np.diff(offsets) < 0).any() or offsets[0] < 0 or offsets[-1] > self.count:
                raise _apart(self.shape[0] + 1, int(offsets[-1]), self.count, self.count, self.shape[0], self._file)
            self._offsets_from, self._offsets, begin = start, offsets, start
        return self._offsets[start - begin : stop - begin + 1]

    def reach(self, start: int, max_bytes: int) -> int:
        stop = min(self._offsets_from + len(self._offsets) - 1, self.shape[0])
        if start < self._offsets_from or start >= stop:
            stop = min(start + _OFFSETS, self.shape[0])
        end = start + _reach(self._offsets_of(start, stop), max_bytes)
        if end < stop or stop == self.shape[0]:
            return end
        # The rows that follow may fit, too.
        self._offsets = self._offsets[:0]
        return start + _reach(self._offsets_of(start, min(start + _OFFSETS, self.shape[0])), max_bytes)

    def take(self, start: int, stop: int) -> Matrix:
        indptr = self._offsets_of(start, stop)
        first, last = int(indptr[0]), int(indptr[-1])
        return checked_csr(
            np.asarray(self._data[first:last]),
            np.asarray(self._indices[first:last]),
            indptr - first,
            (stop - start, self.shape[1]),
            file=self._file,
            row=start,
        )

    def close(self) -> None:
        for array in (self._data, self._indices, self._indptr):
            _close(array)


def _reach(indptr: NDArray[np.int64], max_bytes: int) -> int:
    """Return how many of the first sparse rows fit in so many bytes, 12 an entry and 8 a row; at least one row."""
    cost = 12 * indptr + 8 * np.arange(len(indptr))
    rows = int(np.searchsorted(cost, cost[0] + max_bytes, side="right")) - 1
    return max(rows, min(1, len(indptr) - 1))


def _close(array: object) -> None:
    close = getattr(array, "close", None)
    if close is not None:
        close()


def checked_csr(
    data: NDArray[Any],
    indices: NDArray[Any],
    indptr: NDArray[np.int64],
    shape: tuple[int, int],
    *,
    file: str,
    row: int,
) -> csr_array:
    """Return a canonical CSR matrix; DataError for an index outside it. `row` is the first row's number from 0."""
    first = _first_outside(indices, shape[1])
    if first is not None:
        number = row + int(np.searchsorted(indptr, first, side="right"))
        raise _outside(f"row {number}: a column index outside the {shape[1]} columns", indices[first], file)
    matrix = csr_array((data, indices.astype(np.int32, copy=False), indptr), shape=shape)
    matrix.sum_duplicates()
    return matrix


def _first_outside(indices: NDArray[Any], stop: int) -> int | None:
    """Return the place of the first index that is not in [0, stop)."""
    if not indices.size or (indices.min() >= 0 and indices.max() < stop):
        return None
    return int(np.argmax((indices < 0) | (indices >= stop)))


def _outside(problem: str, index: Any, file: str) -> DataError:
    return damaged(f"{problem} of the matrix", file, value=int(index))


def check_compressed(indptr: NDArray[Any], rows: int, indices: int, data: int, *, file: str) -> None:
    """Raise DataError unless the three arrays of a compressed matrix belong together."""
    if (
        len(indptr) != rows + 1
        or indptr[0] != 0
        or indices != data
        or indptr[-1] != data
        or (np.diff(indptr.astype(np.int64, copy=False)) < 0).any()
    ):
        raise _apart(len(indptr), int(indptr[-1]) if len(indptr) else None, indices, data, rows, file)


def _apart(offsets: int, last: int | None, indices: int, data: int, rows: int, file: str) -> DataError:
    """Return the error of inconsistent arrays of a compressed matrix."""
    return damaged(
        f"indptr ({offsets} entries, the last {'none' if last is None else last}), "
        f"indices ({indices}) and data ({data}) do not belong together for {rows} rows or columns",
        file,
    )


def no_matrix(shape: tuple[int, ...], what: str, file: str) -> DataError:
    """Return the error of an array that has no rows and columns."""
    problem = f"{what} has {len(shape)} dimensions, rows and columns were expected"
    return DataError(problem, file=file, value=shape, cure="reshape it to (rows, columns)")


class InMemoryCsrRows:
    """Rows of a sparse matrix that is not stored by rows, which is held in memory once rows are asked for.

    Parameters
    ----------
    make : callable
        Gives the matrix in CSR form; duplicates are summed.
    shape : (n, width)
    count : int
        Entries, as far as that is known.
    dtype : dtype
        Of the values.
    file : str
        For messages.
    """

    enterable = False
    step = 1

    def __init__(
        self, make: Callable[[], csr_array], shape: tuple[int, int], count: int, dtype: Any, *, file: str
    ) -> None:
        self._make, self._file = make, file
        self._rows: CsrRows | None = None
        self.shape = shape
        self.dtype = dtype
        self.count = count
        # Both orders at once, with the offsets of both.
        self.stored_bytes = count * (int(dtype.itemsize) + 8)
        self.held_bytes = self.opened_bytes = 2 * self.stored_bytes + 8 * sum(shape)

    def _held(self) -> CsrRows:
        if self._rows is None:
            require_held(self._file, self.opened_bytes)
            matrix = self._make()
            matrix.sum_duplicates()
            self._rows = CsrRows(matrix.data, matrix.indices, matrix.indptr, self.shape, file=self._file)
        return self._rows

    def reach(self, start: int, max_bytes: int) -> int:
        return self._held().reach(start, max_bytes)

    def take(self, start: int, stop: int) -> Matrix:
        return self._held().take(start, stop)

    def close(self) -> None:
        self._rows = None


def require_held(path: str, size: int) -> None:
    """Raise DoesNotFitError where memory has no room for a matrix that is not stored by rows."""
    require_memory(
        f"{path}: a matrix that is not stored by rows and is held in memory",
        size,
        cure="write it by rows (a sparse one with .tocsr(); in MATLAB with -v7.3, of a sparse one the transpose); or "
        + memory_cure(),
    )


def rows_of_columns(
    data: Sliceable, indices: Sliceable, indptr: NDArray[Any], shape: tuple[int, int], *, file: str
) -> InMemoryCsrRows:
    """Return the rows of a matrix stored by columns (CSC)."""
    check_compressed(indptr, shape[1], int(indices.shape[0]), int(data.shape[0]), file=file)

    def make() -> csr_array:
        return checked_csc(np.asarray(data[:]), np.asarray(indices[:]), indptr, shape, file=file).tocsr()

    return InMemoryCsrRows(make, shape, int(data.shape[0]), data.dtype, file=file)


def checked_csc(
    data: NDArray[Any], indices: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int], *, file: str
) -> csc_array:
    """Return a CSC matrix; DataError for arrays that do not belong together and an index outside it."""
    check_compressed(indptr, shape[1], len(indices), len(data), file=file)
    bad = _first_outside(indices, shape[0])
    if bad is not None:
        raise _outside(f"a row index outside the {shape[0]} rows", indices[bad], file)
    return csc_array((data, indices, indptr), shape=shape)


def exactly(read: Callable[[int], bytes], count: int, *, file: str) -> bytearray:
    """`count` bytes of a stream; DataError if it ends before."""
    buffer = bytearray(count)
    view = memoryview(buffer)
    filled = 0
    while filled < count:
        piece = read(min(count - filled, PIECE_BYTES))
        if not piece:
            raise _cut_off(count - filled, file)
        view[filled : filled + len(piece)] = piece
        filled += len(piece)
    return buffer


def _cut_off(missing: int, file: str) -> DataError:
    return damaged(f"the file is cut off: {missing} bytes of an array are missing", file)


class FileArray:
    """A 1-D array at an offset of a file, or member of an archive, read slice by slice.

    The file is open, and is closed with the array if it is `own`; or a function opens it once a slice is asked for. A
    packed member is unpacked on the way to a slice: slices should ascend.
    """

    def __init__(
        self,
        stream: BinaryIO | Callable[[], BinaryIO],
        offset: int,
        dtype: np.dtype[Any],
        size: int,
        *,
        file: str,
        own: bool = False,
    ) -> None:
        self._stream = stream
        self._offset = offset
        self._file = file
        self._own = own or callable(stream)
        self.dtype = dtype
        self.shape = (size,)

    def __getitem__(self, key: slice, /) -> NDArray[Any]:
        start, stop, _ = key.indices(self.shape[0])
        values = np.empty(stop - start, self.dtype)
        view = values.view(np.uint8)
        if callable(self._stream):
            self._stream = self._stream()
        self._stream.seek(self._offset + start * self.dtype.itemsize)
        filled = 0
        while filled < len(view):
            count = self._stream.readinto(view[filled : filled + PIECE_BYTES])  # type: ignore[attr-defined]
            if not count:
                raise _cut_off(len(view) - filled, self._file)
            filled += count
        return values

    def close(self) -> None:
        if self._own and not callable(self._stream):
            self._stream.close()


def unpacked_array(dataset: Any, *, file: str) -> Any:
    """Return an array of one dimension with the values of an array of h5py that lie in a local file as they are, one
    after the other; any other array as it is.

    h5py reads through a file of Python, in which it has to be kept from heaps of texts without an end, and one of its
    arrays at a time: a quarter as fast, in one thread.
    """
    identifier: Any = getattr(dataset, "id", None)
    offset = None if is_url(file) or not hasattr(identifier, "get_offset") else identifier.get_offset()
    if offset is None or dataset.dtype.kind not in "iuf":
        return dataset
    import h5py

    if not identifier.get_type().equal(h5py.h5t.py_create(dataset.dtype)):
        return dataset  # h5py translates it
    return FileArray(functools.partial(open_binary, file), offset, dataset.dtype, math.prod(dataset.shape), file=file)


@contextlib.contextmanager
def open_random(path: str, storage_options: dict[str, Any]) -> Iterator[BinaryIO]:
    """An uncompressed file or URL that can be sought; errors as in `compressed_io.open_source`."""
    source = open_source(path, storage_options)
    if source.compression is not None:
        raise DataError(
            f"the file is packed with {source.compression}, and its format needs random access",
            file=path,
            cure="unpack it first",
        )
    if source.size == 0:
        raise damaged("the file is empty", path)
    with open_binary(path, storage_options) as file:
        yield file


@contextlib.contextmanager
def damage_in(path: str, what: str) -> Iterator[None]:
    """Say what cannot be read where h5py, zarr or a codec finds a checksum or a chunk to be wrong."""
    try:
        yield
    except MlfsError:
        raise
    except MemoryError as error:  # of libraries, which unpack whatever a chunk holds
        raise DoesNotFitError(
            f"{path}: {what}", projected=None, available=memory_limit(), cure=memory_cure()
        ) from error
    except DAMAGE as error:
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the system's own words: no permission, disk full
        raise damaged(f"{what} cannot be read: {error}", path) from error


@contextlib.contextmanager
def open_hdf5(path: str, storage_options: dict[str, Any]) -> Iterator[Any]:
    """An HDF5 file, local or at a URL."""
    with (
        open_random(path, storage_options) as file,
        hdf5_in(file, path, "it is no HDF5 file, or damaged or cut off") as hdf5,
    ):
        yield hdf5


@contextlib.contextmanager
def hdf5_in(file: Any, path: str, problem: str) -> Iterator[Any]:
    """The HDF5 file in an open one; `problem` is what is wrong where there is none."""
    require_extra("h5py", f"{path}: HDF5")
    import h5py

    try:
        hdf5 = h5py.File(HeapCheckedFile(file, path), "r")
    except MlfsError:
        raise
    except DAMAGE as error:
        raise damaged(f"{problem}: {error}", path) from error
    with hdf5, damage_in(path, "the file"):
        yield hdf5


@contextlib.contextmanager
def opened(opener: Opener) -> Iterator[Sequence[Pair]]:
    """The pairs of a source, closed at the end."""
    with opener() as pairs:
        try:
            yield pairs
        finally:
            for rows in itertools.chain.from_iterable(pairs):
                rows.close()


@dataclass(frozen=True, kw_only=True)
class MatrixReader(Reader):
    """One source of arrays; made by the `open_*` functions. Parts are of rows.

    Attributes
    ----------
    header : Header
    path : str
    opened_bytes : int
        What is held of the source while it is open.
    """

    header: Header
    path: str
    _opener: Opener
    _lengths: tuple[int, ...]
    _stored_bytes: int
    enterable: bool
    _step: int
    dtype: np.dtype[Any]
    sparse: bool
    nonzeros: int
    _held_bytes: int
    _kept: tuple[int, ...] | None = None
    _meaning: LabelValues = DEFAULT_VALUES
    in_threads: bool = False
    opened_bytes: int = 0

    def held_bytes(self, batch_bytes: int) -> int:
        """See `Reader`."""
        return self._held_bytes + 2 * batch_bytes

    def only_labels(self) -> MatrixReader:
        """See `Reader`."""
        return replace(self, header=self.header.labels_only(), sparse=True, nonzeros=0, _kept=())

    def parts(self, part_bytes: int) -> list[Part]:
        """Return ranges of rows that begin at chunks; one part for a matrix that can only be read forward."""
        n = sum(self._lengths)
        if not self.enterable or self._stored_bytes <= part_bytes:
            return parts_at([0], n, rows=True)
        rows = max(1, n * part_bytes // self._stored_bytes)
        rows = max(rows - rows % self._step, self._step)
        return parts_at(range(0, n, rows), n, rows=True)

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of one part, dense or sparse as X is stored. See `Reader.read`."""
        row = part.start
        n = sum(self._lengths)
        stop = n if part.stop is None else part.stop
        with opened(self._opener) as pairs:
            before = 0
            for length, (X, Y) in zip(self._lengths, pairs, strict=True):
                while row < min(stop, before + length):
                    local = row - before
                    end = min(Y.reach(local, batch_bytes), length, stop - before)
                    if self._kept != ():
                        end = min(X.reach(local, batch_bytes), end)
                    if self._meaning.zero_is_unknown:  # what a sparse Y leaves out is written out
                        end = min(end, local + max(1, batch_bytes // (UNKNOWN_BYTES * max(Y.shape[1], 1))))
                    with damage_in(self.path, f"rows {row + 1:,} to {before + end:,}"):
                        features = csr_array((end - local, 0)) if self._kept == () else X.take(local, end)
                        labels = Y.take(local, end)
                    yield Batch(self._features(features, row), self._labels(labels, row))
                    row = before + end
                before += length

    def _features(self, X: Matrix, row: int) -> Matrix:
        self._require_numbers("X", X, "numbers were", "code texts as numbers")
        return X[:, list(self._kept)] if self._kept else X

    def _labels(self, Y: Matrix, row: int) -> csr_array:
        self._require_numbers("Y", Y, "0 and 1 were", "code the labels as 0 and 1 (-1 = unknown)")

        def place(offset: int) -> dict[str, Any]:
            return {"row": row + offset + 1}

        block: Callable[..., csr_array] = label_block if isinstance(Y, np.ndarray) else sparse_label_block
        return block(Y, names=self.header.label_names, file=self.path, place=place, meaning=self._meaning)

    def _require_numbers(self, name: str, matrix: Matrix, expected: str, cure: str) -> None:
        if matrix.dtype.kind not in "buif":
            problem = f"{name} holds {matrix.dtype}, {expected} expected"
            raise DataError(problem, file=self.path, cure=f"{cure} and write the file again")


def names_in(
    spec: FileSpec, *, file: str, texts: Callable[[str], Sequence[str] | None] = lambda name: None
) -> dict[str, Any]:
    """Return the names of features and labels, as `matrix_reader` takes them.

    `texts` gives the texts of an array, None where there is none. The keys ``names`` and ``label_names`` name the
    arrays (by default `feature_names` and `label_names`), or are ``@FILE``, a text file with a name a line.

    Raises
    ------
    DataError
        There is no such array or file.
    """
    found = {}
    for key, usual in (("names", "feature_names"), ("label_names", "label_names")):
        given = spec.keys.get(key, usual)
        if given.startswith("@"):
            try:
                found[usual] = tuple(read_text_file(given[1:]).splitlines())
            except (FileNotFoundError, UnicodeDecodeError) as error:
                raise DataError(f"{key}: it is not UTF-8 text: {error}", file=given[1:], cure="check it") from error
        elif (names := texts(given)) is not None:
            found[usual] = tuple(names)
        elif key in spec.keys:
            raise DataError(
                f"there is no array of texts {given!r}",
                file=file,
                cure=f"correct --key {key}=NAME, or give a file with a name a line: --key {key}=@FILE",
            )
    return found


def matrix_reader(
    path: str,
    opener: Opener,
    spec: FileSpec,
    *,
    feature_names: tuple[str, ...] | None = None,
    label_names: tuple[str, ...] | None = None,
    categories: dict[int, tuple[str, ...]] | None = None,
    minus_one: MinusOne | None = None,
    left_out: Collection[int] = (),
    meaning: LabelValues | None = None,
    without_labels: bool = False,
) -> MatrixReader:
    """Open once, check that the shapes agree, and make the reader.

    `left_out`: indices of features that are left out beside those of `spec.drop`. `meaning`: what the values of Y
    mean, if not as in `spec`. `without_labels`: Y has no column.

    Raises
    ------
    DataError
        X and Y differ in rows, or the pairs or names in width.
    """
    with opened(opener) as pairs:
        for X, Y in pairs:
            if X.shape[0] != Y.shape[0]:
                raise DataError(
                    f"X has {X.shape[0]} rows and Y has {Y.shape[0]}",
                    file=path,
                    cure="give the labels of these rows, one row each",
                )
        d, q = pairs[0][0].shape[1], pairs[0][1].shape[1]
        require_memory(f"{path}: a row of {d:,} features and {q:,} labels", 8 * (d + q))
        for X, Y in pairs[1:]:
            if (X.shape[1], Y.shape[1]) != (d, q):
                raise DataError(
                    f"the first rows have {d} features and {q} labels, later ones {X.shape[1]} and {Y.shape[1]}",
                    file=path,
                    cure="the parts must have the same columns",
                )
        rows = [rows for pair in pairs for rows in pair]
        kinds = {isinstance(X, CsrRows | InMemoryCsrRows) for X, _ in pairs}
        reader = MatrixReader(
            header=Header(
                feature_names=feature_names,
                label_names=label_names,
                categories=categories or {},
                n_features=d,
                n_labels=q,
                n_rows=sum(X.shape[0] for X, _ in pairs),
                minus_one=minus_one,
            ),
            path=path,
            _opener=opener,
            _lengths=tuple(X.shape[0] for X, _ in pairs),
            _stored_bytes=sum(X.stored_bytes for X, _ in pairs),
            enterable=all(r.enterable for r in rows) and len(kinds) == 1,
            dtype=pairs[0][0].dtype if len({X.dtype for X, _ in pairs}) == 1 else np.dtype(np.float64),
            sparse=True in kinds,
            nonzeros=sum(X.count for X, _ in pairs),
            _held_bytes=max(X.held_bytes + Y.held_bytes for X, Y in pairs),
            _step=max(X.step for X, _ in pairs),
            opened_bytes=sum(each.opened_bytes for each in rows),
            _meaning=spec.labels.values if meaning is None else meaning,
        )
    for names, width, what in ((feature_names, d, "feature"), (label_names, q, "label")):
        if names is not None and len(names) != width:
            raise DataError(
                f"{len(names)} {what} names for {width} {what}s",
                file=path,
                cure="give one name for each column",
            )
    if spec.drop or left_out:
        reader = _without_features(reader, d, spec.drop, left_out)
    header = reader.header
    if header.n_rows == 0 or header.n_features == 0 or (q == 0 and not without_labels):
        raise DataError(
            f"nothing to read: {header.n_rows} rows, {header.n_features} features, {q} labels",
            file=path,
            cure="at least one of each is needed",
        )
    return reader


def _without_features(reader: MatrixReader, d: int, drop: Sequence[str], left_out: Collection[int]) -> MatrixReader:
    header = reader.header
    names = header.feature_names or tuple(f"x{feature}" for feature in range(d))
    gone = {*left_out, *find_columns(names, drop, "column to leave out,", file=reader.path)}
    remaining = [feature for feature in range(d) if feature not in gone]
    new = {feature: place for place, feature in enumerate(remaining)}
    return replace(
        reader,
        header=replace(
            header,
            feature_names=tuple(names[feature] for feature in remaining) if header.feature_names else None,
            categories={new[feature]: values for feature, values in header.categories.items() if feature in new},
            n_features=len(remaining),
        ),
        _kept=tuple(remaining),
    )
