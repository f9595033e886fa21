"""AnnData's encoding in HDF5: what `mlfs transform` writes as .h5ad, and columns that are added to a data frame.

h5py is enough for it; the anndata library is not needed.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import require_extra
from mlfs_dask.storage.anndata_encoding import DENSE, DICT, STRINGS
from mlfs_dask.typing import Matrix

if TYPE_CHECKING:
    from h5py import Group

_CHUNK = 1 << 16
DATAFRAME = {"encoding-type": "dataframe", "encoding-version": "0.2.0"}
_CSR = {"encoding-type": "csr_matrix", "encoding-version": "0.1.0"}


class _WrittenFile(io.FileIO):
    """A file that keeps the first failure to write for `require_written`, and drops what is written after it.

    HDF5 goes on where a data set that is let go of cannot be written, and may end the process where a file that could
    not be written is closed: it is not told.
    """

    failure: OSError | None = None

    def write(self, content: Any) -> int:
        left = memoryview(content).cast("B")
        written = len(left)
        try:
            while left and self.failure is None:
                left = left[super().write(left) :]
        except OSError as error:
            self.failure = error
        return written

    def truncate(self, size: int | None = None) -> int:
        try:
            return super().truncate(size) if self.failure is None else size or 0
        except OSError as error:
            self.failure = error
            return size or 0

    def require_written(self) -> None:
        """Raise OSError if something could not be written."""
        if self.failure is not None:
            raise self.failure


@contextlib.contextmanager
def written_hdf5(path: Path, mode: Literal["w", "r+"]) -> Iterator[tuple[Any, _WrittenFile]]:
    """An HDF5 file to write to, and the file that tells whether it was written.

    Raises
    ------
    OSError
        Something could not be written.
    """
    require_extra("h5py", f"{path}: HDF5")
    import h5py

    with _WrittenFile(path, f"{mode.removesuffix('+')}+") as file:
        try:
            with h5py.File(file, mode) as root:
                yield root, file
        except Exception:
            file.require_written()  # what HDF5 says then is of no use
            raise
        file.require_written()


def add_group(parent: Group, name: str, attributes: dict[str, str]) -> Group:
    """A group of an encoding."""
    group = parent.create_group(name)
    group.attrs.update(attributes)
    return group


def add_strings(parent: Group, name: str, values: Sequence[str] | range) -> None:
    """Strings; a few of a long sequence are made at a time."""
    import h5py

    texts = parent.create_dataset(name, (len(values),), h5py.string_dtype())
    texts.attrs.update(STRINGS)
    for start in range(0, len(values), _CHUNK):
        part = values[start : start + _CHUNK]
        texts[start : start + len(part)] = [str(value) for value in part]


def add_dataframe(parent: Group, name: str, index: Sequence[str] | range) -> Group:
    """A data frame without columns."""
    frame = add_group(parent, name, {**DATAFRAME, "_index": "_index"})
    add_strings(frame, "_index", index)
    set_columns(frame, ())
    return frame


def set_columns(frame: Group, names: Iterable[str]) -> None:
    """Say which columns a data frame has, in order."""
    import h5py

    # An empty list has no type of its own.
    frame.attrs.create("column-order", list(names), dtype=h5py.string_dtype())


class MatrixWriter:
    """A matrix that is written block after block, dense or CSR as its first block is.

    Parameters
    ----------
    parent : Group
    name : str
    first : ndarray or csr_array
        For its form and type.
    shape : (n, width)
    """

    def __init__(self, parent: Group, name: str, first: Matrix, shape: tuple[int, int]) -> None:
        self._row = 0
        self._indptr: NDArray[np.int64] | None = None
        if isinstance(first, np.ndarray):
            self._data = parent.create_dataset(name, shape, first.dtype)
            self._data.attrs.update(DENSE)
            return
        self._group = add_group(parent, name, _CSR)
        self._group.attrs["shape"] = np.array(shape)
        self._indptr = np.zeros(shape[0] + 1, np.int64)
        grows: dict[str, Any] = {"shape": (0,), "maxshape": (None,), "chunks": (_CHUNK,)}
        self._data = self._group.create_dataset("data", dtype=first.dtype, **grows)
        self._indices = self._group.create_dataset("indices", dtype=np.int32, **grows)

    def write(self, block: Matrix) -> None:
        """The next rows."""
        row, stop = self._row, self._row + block.shape[0]
        if self._indptr is None:
            self._data[row:stop] = block
        else:
            block = csr_array(block)
            stored = int(self._indptr[row])
            self._indptr[row + 1 : stop + 1] = stored + block.indptr[1:]
            for array, values in ((self._data, block.data), (self._indices, block.indices)):
                array.resize((stored + block.nnz,))
                array[stored:] = values
        self._row = stop

    def finish(self) -> None:
        """To be called behind the last block."""
        if self._indptr is not None:
            self._group.create_dataset("indptr", data=self._indptr)


def add_root(file: Group) -> None:
    """The parts that every AnnData has, but for X, obs and var."""
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    for name in ("layers", "obsm", "obsp", "varm", "varp", "uns", "uns/mlfs"):
        add_group(file, name, DICT)
