"""NumPy files: one .npz with X and Y, or X and Y in a .npz or .npy of their own; SciPy's save_npz included.

NumPy reads the headers. The values are read here, because `numpy.load` gives a member of an archive whole, also one
that is not compressed: 191 MiB for an X of that size in 0.36 s of a core, where this reader held 26 MiB and took 0.19 s
(`benchmarks/readers.py`).

Dense arrays are read some rows at a time, straight from the file when a member is stored, through the
decompressor when it is deflated. Sparse ones keep `indptr` in memory and slice the rest. Deflated arrays in Fortran
order and CSC matrices are held in memory.
"""

from __future__ import annotations

import contextlib
import functools
import io
import math
import struct
import zipfile
from collections.abc import Callable, Iterator, Sequence
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.files.compressed_io import DAMAGE
from mlfs_dask.files.json_text import parse_categories
from mlfs_dask.files.limits import require_memory
from mlfs_dask.files.object_store import X_KEYS, Y_KEYS
from mlfs_dask.readers.base import ARRAY_KEYS, DEFAULT_SPEC, NAME_KEYS, FileSpec, Format, begins_with, damaged
from mlfs_dask.readers.matrix import (
    CsrRows,
    FileArray,
    MatrixReader,
    Pair,
    Rows,
    damage_in,
    exactly,
    flat_rows,
    fortran_rows,
    matrix_reader,
    names_in,
    no_matrix,
    open_random,
    require_held,
    rows_of_columns,
)

_CSR = ("data", "indices", "indptr", "shape")
_ANY_SPARSE = ("data", "shape", "format")
_OTHER_SPARSE = ("row", "col", "coords", "offsets", "_is_array")
#: NumPy's own limit, which it applies to what it has read.
_MAX_HEADER_BYTES = 10_000


def open_npz(paths: str | Sequence[str], spec: FileSpec = DEFAULT_SPEC) -> MatrixReader:
    """Open one .npz with X and Y, or the pair X, Y of .npz or .npy files.

    Parameters
    ----------
    paths : str, or two of them
    spec : FileSpec
        `keys` may hold ``x`` and ``y``, the names of the arrays; by default X, x, data, features and Y, y,
        labels, target, targets, or the only one there is. A sparse matrix under the key K is five arrays
        K_data, K_indices, K_indptr, K_shape, K_format; without a key, as `scipy.sparse.save_npz` writes it,
        it is X.
        ``names`` and ``label_names`` are arrays of texts, or ``@FILE``; by default `feature_names` and `label_names`.
        Where there is an `unknown_label`, as `mlfs
        transform` writes it, -1 is unknown.

    Raises
    ------
    DataError
        Not such a file, no such array, pickled objects, a sparse format other than CSR and CSC, shapes that
        disagree.
    """
    paths = (paths,) if isinstance(paths, str) else tuple(paths)
    opener = functools.partial(_open_pair, paths, spec)
    if not paths[0].lower().endswith(".npz"):
        names = names_in(spec, file=paths[0])
    else:
        with _Archive.open(paths[0], spec) as archive:
            names = names_in(spec, file=paths[0], texts=archive.texts)
            if "unknown_label" in archive.names:
                names["minus_one"] = "unknown"
            if "categories" in archive.names:
                names["categories"] = parse_categories(str(archive.small("categories")[()]))
    return matrix_reader(" ".join(paths), opener, spec, **names)


def _as_text(name: object) -> str:
    """Return a name; the bytes of an array of type S are UTF-8."""
    return name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else str(name)


def matrices_in(path: str, spec: FileSpec = DEFAULT_SPEC) -> list[str]:
    """Return the keys of the matrices in a file: "" for the unnamed sparse matrix of save_npz, and for a .npy."""
    if not path.lower().endswith(".npz"):
        return [""]
    with _Archive.open(path, spec) as archive:
        return archive.matrices()


@contextlib.contextmanager
def _open_pair(paths: tuple[str, ...], spec: FileSpec) -> Iterator[list[Pair]]:
    with contextlib.ExitStack() as stack:
        opened = [stack.enter_context(_open_file(path, spec)) for path in paths]
        yield [
            (
                opened[0](spec.keys.get("x"), X_KEYS, "X", alone=len(opened) == 2),
                opened[-1](spec.keys.get("y"), Y_KEYS, "Y", alone=len(opened) == 2),
            )
        ]


@contextlib.contextmanager
def _open_file(path: str, spec: FileSpec) -> Iterator[Callable[..., Rows]]:
    """Yield the function that returns the rows of a matrix in a file; parameters are those of `_Archive.rows`."""
    if path.lower().endswith(".npz"):
        with _Archive.open(path, spec) as archive:
            yield archive.rows
    else:
        with open_random(path, spec.storage_options) as file:
            yield lambda key, known, what, *, alone: _dense_rows(
                file, _layout(file, path, "the file"), path=path, what=what
            )


class _Layout(NamedTuple):
    """Layout in a .npy header; `offset` is the first byte of the values."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    offset: int

    @property
    def size(self) -> int:
        """Values."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        return self.size * self.dtype.itemsize


def _layout(stream: BinaryIO, path: str, name: str) -> _Layout:
    try:
        first = npy.read_magic(stream) == (1, 0)
        said = exactly(stream.read, 2 if first else 4, file=path)
        length = int.from_bytes(said, "little")
        if length > _MAX_HEADER_BYTES:
            raise ValueError(f"its header has {length:,} bytes, not at most {_MAX_HEADER_BYTES:,}")
        header = io.BytesIO(said + exactly(stream.read, length, file=path))
        shape, fortran, dtype = (npy.read_array_header_1_0 if first else npy.read_array_header_2_0)(header)
        if min(shape, default=0) < 0:
            raise ValueError(f"its shape is {shape}")
    except DataError:
        raise
    except DAMAGE as error:
        raise DataError(
            f"{name} is no NumPy array: {error}", file=path, cure="write it with numpy.save or savez"
        ) from error
    if dtype.hasobject:
        raise DataError(
            f"{name} holds Python objects, which are not read because unpickling runs code",
            file=path,
            cure="save arrays of numbers or of fixed-width texts: astype(float), astype(str)",
        )
    return _Layout(shape, fortran and len(shape) > 1, dtype, stream.tell())


class _Archive:
    """An open .npz."""

    def __init__(self, path: str, file: BinaryIO, archive: zipfile.ZipFile) -> None:
        self._path = path
        self._file = file
        self._zip = archive
        self._members = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
        self.names = set(self._members)

    @classmethod
    @contextlib.contextmanager
    def open(cls, path: str, spec: FileSpec) -> Iterator[_Archive]:
        with open_random(path, spec.storage_options) as file:
            try:
                archive = zipfile.ZipFile(file)
            except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError, OSError) as error:
                raise DataError(
                    f"it is no .npz file: {error}", file=path, cure="write it with numpy.savez or save_npz"
                ) from error
            with archive, damage_in(path, "the archive"):
                yield cls(path, file, archive)

    def matrices(self) -> list[str]:
        """Return the keys of sparse matrices, the unnamed one as "", and of arrays that are matrices by shape or by
        name.
        """
        prefixes = [name.removesuffix("shape") for name in self._members if name.endswith("shape")]
        # Of all that save_npz writes: a form that is not read is refused by its name, as what it is.
        sparse = [
            p for p in prefixes if any(all(p + f in self.names for f in fields) for fields in (_CSR, _ANY_SPARSE))
        ]
        taken = {p + field for p in sparse for field in (*_CSR, *_ANY_SPARSE, *_OTHER_SPARSE)}
        dense = [
            name
            for name in self._members
            if name not in taken
            and name not in ("feature_names", "label_names", "categories")
            and (len(self._layout(name).shape) in (1, 2) or name in (*X_KEYS, *Y_KEYS))
        ]
        return [prefix.removesuffix("_") for prefix in sparse] + dense

    def texts(self, name: str) -> list[str] | None:
        """Return an array of texts; None where there is none."""
        return list(map(_as_text, self.small(name).ravel().tolist())) if name in self.names else None

    def small(self, name: str) -> NDArray[Any]:
        """Return a whole small array."""
        layout = self._checked_layout(name)
        require_memory(f"{self._path}: the array {name}", layout.bytes)
        with self._zip.open(self._members[name]) as stream:
            return npy.read_array(stream, allow_pickle=False)

    def rows(self, key: str | None, known: Sequence[str], what: str, *, alone: bool) -> Rows:
        """Return the matrix under `key`, or else under the first of `known` there is, or else the only one."""
        matrices = self.matrices()
        if key is None:
            key = next((name for name in known if name in matrices), None)
        if key is None and "" in matrices and (alone or what == "X"):
            key = ""
        if key is None and alone and len(matrices) == 1:
            key = matrices[0]
        if key is None or key not in matrices:
            there = ", ".join(repr(name) if name else "a sparse matrix" for name in matrices) or "none"
            problem = f"no array {key!r} for {what}" if key else f"no array for {what}"
            raise DataError(
                f"{problem}; arrays there: {there}",
                file=self._path,
                cure=f"name it {known[0]}, or give its name with --key {what.lower()}=NAME",
            )
        prefix = f"{key}_" if key else ""
        if key not in self.names:
            return self._sparse_rows(prefix)
        layout = self._checked_layout(key)
        if not self._is_stored(key):
            shape = _two_dimensions(layout.shape, self._path, what)
            if not layout.fortran:
                return flat_rows(self._flat(key), shape, enterable=False)
            whole = functools.partial(self._whole, key, layout)
            return fortran_rows(whole, shape, layout.dtype, opened_bytes=layout.bytes)
        return _dense_rows(self._file, self._stored_layout(key), path=self._path, what=what)

    def _sparse_rows(self, prefix: str) -> Rows:
        stored_kind = self.small(prefix + "format").item() if prefix + "format" in self.names else b"csr"
        kind = stored_kind.decode() if isinstance(stored_kind, bytes) else str(stored_kind)
        if kind not in ("csr", "csc"):
            raise DataError(
                f"a sparse matrix in {kind} format, csr (or csc) was expected",
                file=self._path,
                cure="save it with scipy.sparse.save_npz(path, matrix.tocsr())",
            )
        shape = tuple(int(size) for size in self.small(prefix + "shape"))
        indptr = self.small(prefix + "indptr")
        data, indices = self._flat(prefix + "data"), self._flat(prefix + "indices")
        if len(shape) != 2:
            raise DataError("a sparse array of two dimensions was expected", file=self._path, value=shape)
        if kind == "csc":
            return rows_of_columns(data, indices, indptr, shape, file=self._path)
        stored = self._is_stored(prefix + "data") and self._is_stored(prefix + "indices")
        return CsrRows(data, indices, indptr, shape, file=self._path, enterable=stored)

    def _flat(self, name: str) -> FileArray:
        layout = self._checked_layout(name)
        if self._is_stored(name):
            offset = self._stored_layout(name).offset
            return FileArray(self._file, offset, layout.dtype, layout.size, file=self._path)
        stream, layout = self._open(name)
        return FileArray(stream, layout.offset, layout.dtype, layout.size, file=self._path, own=True)

    def _whole(self, name: str, layout: _Layout) -> NDArray[Any]:
        """Return all values of a compressed array stored by columns."""
        require_held(self._path, layout.bytes)
        return np.frombuffer(exactly(self._open(name)[0].read, layout.bytes, file=self._path), layout.dtype)

    def _is_stored(self, name: str) -> bool:
        return self._members[name].compress_type == zipfile.ZIP_STORED

    def _layout(self, name: str) -> _Layout:
        with self._zip.open(self._members[name]) as stream:
            return _layout(cast(BinaryIO, stream), self._path, name)

    def _checked_layout(self, name: str) -> _Layout:
        """Return the layout of a member that is as long as the archive says; nothing is unpacked."""
        layout = self._layout(name)
        missing = layout.offset + layout.bytes - self._members[name].file_size
        if missing > 0:
            raise damaged(
                f"{name} is cut off: {missing:,} bytes of its {layout.bytes:,} are missing",
                self._path,
                value=layout.shape,
            )
        return layout

    def _stored_layout(self, name: str) -> _Layout:
        """Return the layout with `offset` counted in the archive: a local header precedes the data."""
        start = self._members[name].header_offset
        self._file.seek(start + 26)
        name_length, extra_length = struct.unpack("<HH", self._file.read(4))
        layout = self._layout(name)
        return layout._replace(offset=start + 30 + name_length + extra_length + layout.offset)

    def _open(self, name: str) -> tuple[BinaryIO, _Layout]:
        """Stream of a member, behind its header, and what that says."""
        stream = cast(BinaryIO, self._zip.open(self._members[name]))
        return stream, _layout(stream, self._path, name)


def _two_dimensions(shape: tuple[int, ...], path: str, what: str) -> tuple[int, int]:
    if len(shape) == 1 and what == "Y":
        return shape[0], 1
    if len(shape) != 2:
        raise no_matrix(shape, what, path)
    return shape[0], shape[1]


def _dense_rows(file: BinaryIO, layout: _Layout, *, path: str, what: str) -> Rows:
    """Return the rows of an uncompressed array in an open file."""
    shape = _two_dimensions(layout.shape, path, what)
    missing = layout.offset + layout.bytes - file.seek(0, 2)
    if missing > 0:
        raise damaged(f"the file is cut off: {missing:,} bytes of an array are missing", path, value=layout.shape)
    flat = FileArray(file, layout.offset, layout.dtype, shape[0] * shape[1], file=path)
    if not layout.fortran:
        return flat_rows(flat, shape)
    return fortran_rows(flat, shape, flat.dtype, enterable=True)


FORMATS = (
    Format(
        name="npz",
        title="NumPy .npz, dense, or sparse by SciPy",
        open=open_npz,
        suffixes=(".npz",),
        keys=ARRAY_KEYS,
        head=begins_with(b"PK\x03\x04"),
        has_label_array=True,
        is_matrix=lambda path, spec: len(matrices_in(path, spec)) == 1,
    ),
    Format(
        name="npy",
        title="NumPy .npy, a pair X.npy Y.npy",
        open=open_npz,
        suffixes=(".npy",),
        keys=NAME_KEYS,
        head=begins_with(b"\x93NUMPY"),
        in_place=lambda path: False,
        has_label_array=True,
        is_matrix=lambda path, spec: True,
    ),
)
