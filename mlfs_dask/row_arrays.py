"""Arrays with a row for every row of the data, in memory or in files, and the algebra on them block of rows by block.

Labels, latent variables and the vectors of their solvers have n rows each: together they may be many times what the
driver can hold. A `RowSpace` keeps them in memory, or in files that have no name and so are gone with the process,
however it ends. What computes with them goes through `row_blocks`: temporaries are as large as a block, and blocks
are cut by n and the number of columns alone, so that results are the same bits in memory and in files.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.array_files import _mapped, drop_pages
from mlfs_dask.array_files import is_mapped as is_mapped
from mlfs_dask.errors import DoesNotFitError

Array = NDArray[np.float64]

give_back = drop_pages

#: Bytes of a block of rows: it stays in the second-level cache, and a system call for each costs nothing beside it.
BLOCK_BYTES = 2**20

#: Bytes of the columns that a product with a graph holds at a time. Neighbours lie anywhere: the columns are copied
#: into memory, a few at a time, rather than rows fetched from files one by one.
SLAB_BYTES = 64 * 2**20

#: Multiplications of a product with a graph from which it pays to load the compiled one.
COMPILED_PRODUCTS = 10**7

#: Rows of a graph that are made at a time where it lies in files.
GRAPH_ROWS = 2**17

#: Share of the free disk that scratch files may take.
DISK_SHARE = 0.9


class RowSpace:
    """Where arrays of n rows are kept.

    Parameters
    ----------
    folder : path, optional
        Scratch folder for files; None keeps arrays in memory.

    Examples
    --------
    >>> space = RowSpace()
    >>> space.zeros(3, 2).shape
    (3, 2)
    """

    def __init__(self, folder: str | Path | None = None) -> None:
        self.folder = None if folder is None else Path(folder)
        self._free: list[Array] = []

    @property
    def in_files(self) -> bool:
        """Whether arrays are in files."""
        return self.folder is not None

    def empty(self, n: int, columns: int, dtype: Any = np.float64) -> NDArray[Any]:
        """A C-ordered array of shape (n, columns), whatever its values.

        Raises
        ------
        DoesNotFitError
            The disk has no room for it.
        """
        dtype = np.dtype(dtype)
        size = n * columns * dtype.itemsize
        for i, array in enumerate(self._free):
            if array.nbytes == size and array.dtype == dtype:
                return self._free.pop(i).reshape(n, columns)
        if self.folder is None or size == 0:
            return np.empty((n, columns), dtype=dtype)
        return np.frombuffer(self._map(size), dtype=dtype).reshape(n, columns)

    def zeros(self, n: int, columns: int, dtype: Any = np.float64) -> NDArray[Any]:
        """An array of zeros of shape (n, columns)."""
        return fill(self.empty(n, columns, dtype), 0.0)

    def copy(self, source: NDArray[Any]) -> NDArray[Any]:
        """A copy of an array of n rows."""
        return fill(self.empty(len(source), source.shape[1], source.dtype), source)

    def release(self, *arrays: NDArray[Any]) -> None:
        """Take arrays back that nobody uses any more. Files are used again; memory is left to the caller's names."""
        if self.folder is not None:
            self._free += [array for array in arrays if array.nbytes]

    def _map(self, size: int) -> mmap.mmap:
        assert self.folder is not None
        free = free_disk(self.folder)
        if size > free:
            raise no_room(self.folder, size)
        # Without a name from the start where the system has such files, and from before the first byte elsewhere.
        with tempfile.TemporaryFile(dir=self.folder, prefix="mlfs-rows-") as file:
            try:
                # All blocks of the disk now: a mapping that finds the disk full later would end the process.
                os.posix_fallocate(file.fileno(), 0, size)
            except OSError as error:
                raise no_room(self.folder, size) from error
            mapped = mmap.mmap(file.fileno(), size)
        _mapped.add(mapped)
        return mapped


#: The space of small problems.
IN_MEMORY = RowSpace()


def no_room(folder: Path, size: int) -> DoesNotFitError:
    """The error of a scratch folder without room for `size` bytes."""
    return DoesNotFitError(
        f"arrays with a row for every row of the data, in the scratch folder {folder}",
        projected=size,
        available=free_disk(folder),
        cure="point TMPDIR to a folder on a disk with more room, or give the driver's process more memory",
    )


def scratch_folder() -> Path:
    """Where scratch files go: Dask's `temporary-directory`, or the system's folder for temporary files (TMPDIR)."""
    import dask

    return Path(dask.config.get("temporary-directory", None) or tempfile.gettempdir())


def free_disk(folder: str | Path) -> int:
    """Bytes that scratch files in a folder may take; 0 where the folder cannot be used or is itself in memory."""
    try:
        if not os.access(folder, os.W_OK) or _file_system(Path(folder).resolve()) in ("tmpfs", "ramfs"):
            return 0
        state = os.statvfs(folder)
    except OSError:
        return 0
    return int(state.f_bavail * state.f_frsize * DISK_SHARE)


def _file_system(folder: Path) -> str:
    """Type of the file system of a folder, as Linux names it; empty where the system does not tell."""
    try:
        lines = Path("/proc/self/mounts").read_text().splitlines()
    except OSError:
        return ""
    mounts = [(Path(fields[1].encode().decode("unicode_escape")), fields[2]) for fields in map(str.split, lines)]
    above = [(len(point.parts), i, kind) for i, (point, kind) in enumerate(mounts) if folder.is_relative_to(point)]
    return max(above)[2] if above else ""


# ---------------------------------------------------------------------------------------------------------
# Blocks of rows


def block_rows(columns: int) -> int:
    """Rows of a block of arrays with so many columns."""
    return max(1, BLOCK_BYTES // (8 * max(columns, 1)))


def row_blocks(n: int, columns: int) -> Iterator[slice]:
    """Rows 0..n-1, a block at a time; when a block is done, pages of files that it touched are given back.

    >>> list(row_blocks(3, 1))
    [slice(0, 3, None)]
    """
    step = block_rows(columns)
    for low in range(0, n, step):
        yield slice(low, min(low + step, n))
        if n > step:
            give_back()


def narrowed(array: Array, columns: int) -> Array:
    """The first n * columns numbers of an array as one of shape (n, columns): a narrower array in the same place."""
    return array.reshape(-1)[: len(array) * columns].reshape(len(array), columns)


def keep_columns(array: Array, kept: NDArray[Any], held: int) -> Array:
    """Some columns of an array, moved together at its beginning.

    Parameters
    ----------
    array : float64 array, shape (n, c)
        C-ordered; overwritten.
    kept : int or bool array
        Which columns.
    held : int
        By how many columns blocks are cut.
    """
    flat = array.reshape(-1)
    columns = int(np.count_nonzero(kept)) if kept.dtype == bool else len(kept)
    into = flat[: len(array) * columns].reshape(len(array), columns)
    for part in row_blocks(len(array), held):
        # Fancy indexing copies, and what is written lies before all that is yet to be read.
        into[part] = array[part][:, kept]
    return into


# ---------------------------------------------------------------------------------------------------------
# Algebra. Sums run over blocks in order.


def fill(A: NDArray[Any], source: NDArray[Any] | float) -> NDArray[Any]:
    """A number, or the values of another array, in A."""
    for part in row_blocks(*A.shape):
        A[part] = source[part] if isinstance(source, np.ndarray) else source
    return A


def take_columns(A: NDArray[Any], columns: NDArray[np.intp] | slice) -> NDArray[Any]:
    """Some columns, copied into memory."""
    taken = np.empty((len(A), np.arange(A.shape[1])[columns].size), dtype=A.dtype)
    for part in row_blocks(*A.shape):
        taken[part] = A[part][:, columns]
    return taken


def column_sums(A: Array) -> Array:
    """Σ of every column, shape (c,)."""
    total = np.zeros(A.shape[1])
    for part in row_blocks(*A.shape):
        total += A[part].sum(axis=0)
    return total


def column_dots(A: Array, B: Array) -> Array:
    """a_j'b_j for every column, shape (c,)."""
    total = np.zeros(A.shape[1])
    for part in row_blocks(*A.shape):
        total += np.einsum("ij,ij->j", A[part], B[part])
    return total


def inner(A: Array, B: Array) -> Array:
    """A'B, shape (a, b)."""
    total = np.zeros((A.shape[1], B.shape[1]))
    for part in row_blocks(len(A), max(A.shape[1], B.shape[1])):
        total += A[part].T @ B[part]
    return total


def multiply(A: Array, M: Array, out: Array) -> Array:
    """A M into `out`, which may be A itself, or its beginning (`narrowed`) where M is narrower."""
    for part in row_blocks(len(A), A.shape[1]):
        out[part] = A[part] @ M
    return out


def add(A: Array, B: Array, factor: float = 1.0) -> Array:
    """A + factor · B, in A."""
    for part in row_blocks(*A.shape):
        A[part] += B[part] if factor == 1.0 else factor * B[part]
    return A


def centre(A: Array) -> Array:
    """A less the mean of every column, in A."""
    mean = column_sums(A) / max(len(A), 1)
    for part in row_blocks(*A.shape):
        A[part] -= mean
    return A


def graph_rows(graph: sp.csr_array, part: slice) -> sp.csr_array:
    """Some consecutive rows of a graph."""
    if part.start == 0 and part.stop == graph.shape[0]:
        return graph
    low, high = int(graph.indptr[part.start]), int(graph.indptr[part.stop])
    indptr = graph.indptr[part.start : part.stop + 1] - graph.indptr[part.start]
    shape = (part.stop - part.start, graph.shape[1])
    return sp.csr_array((graph.data[low:high], graph.indices[low:high], indptr), shape=shape)


def neighbour_graph(indices: NDArray[Any], values: NDArray[Any], space: RowSpace = IN_MEMORY) -> sp.csr_array:
    """The directed graph of k neighbours a row and what their edges weigh, both (n, k): a canonical (n, n) csr_array.

    Examples
    --------
    >>> neighbour_graph(np.array([[1], [0]]), np.array([[4.0], [0.0]])).nnz
    2
    """
    n, k = indices.shape
    kind = np.int32 if n * max(k, 1) < 2**31 else np.int64
    columns, data = space.empty(n, k, kind), space.empty(n, k, values.dtype)
    for part in row_blocks(n, 2 * k):
        order = np.argsort(indices[part], axis=1)
        columns[part] = np.take_along_axis(indices[part], order, axis=1)
        data[part] = np.take_along_axis(values[part], order, axis=1)
    return _unpruned(columns.reshape(-1), data.reshape(-1), k * np.arange(n + 1, dtype=kind), (n, n))


def graph_of(
    S: sp.csr_array,
    combine: Callable[[sp.csr_array, sp.csr_array, slice], sp.csr_array],
    space: RowSpace = IN_MEMORY,
    *,
    room: int | None = None,
) -> sp.csr_array:
    """A graph made from S and S', block of rows by block.

    Parameters
    ----------
    S : csr_array, shape (n, n)
        Canonical.
    combine : function
        Gives some rows of the graph from those of S, those of S', and which they are.
    space : RowSpace
        Where the graph is kept.
    room : int, optional
        Entries that the graph has at most; as many as S and S' by default.

    Notes
    -----
    Holds `GRAPH_ROWS` rows beside S and the graph, and goes through S once for each of these blocks.

    Examples
    --------
    >>> S = neighbour_graph(np.array([[1], [2], [0]]), np.array([[1.0], [3.0], [5.0]]))
    >>> graph_of(S, lambda forward, backward, part: forward + backward).toarray()
    array([[0., 1., 5.],
           [1., 0., 3.],
           [5., 3., 0.]])
    """
    n = S.shape[0]
    room = 2 * S.nnz if room is None else room
    kind = np.int32 if room < 2**31 else np.int64
    columns, data = space.empty(room, 1, kind).reshape(-1), space.empty(room, 1, S.dtype).reshape(-1)
    indptr = np.zeros(n + 1, kind)
    filled = 0
    blocks = range(0, n, GRAPH_ROWS)
    with runtime.stage("graph", len(blocks), unit="blocks") as done:
        for low in blocks:
            part = slice(low, min(low + GRAPH_ROWS, n))
            block = combine(graph_rows(S, part), _pointing_at(S, part), part)
            block.sort_indices()
            end = filled + block.nnz
            columns[filled:end], data[filled:end] = block.indices, block.data
            indptr[part.start + 1 : part.stop + 1] = filled + block.indptr[1:]
            filled = end
            give_back()
            done()
    return _unpruned(columns[:filled], data[:filled], indptr, (n, n))


def graph_bytes(n: int, k: int) -> tuple[int, int, int]:
    """What a graph of k neighbours a row takes: memory while it is made, rows' bytes meanwhile, and those that stay."""
    graph = 24 * n * k + 16 * n
    scratch = 70 * k * n if n <= GRAPH_ROWS else 140 * k * GRAPH_ROWS  # measured, of S + S' and of the larger of both
    return scratch, 28 * n * k + 8 * n + graph, graph


def product_compiles(n: int, k: int, columns: int) -> bool:
    """Whether products with a graph of k neighbours a row, pointing both ways, load compiled kernels."""
    return 2 * n * k * columns >= COMPILED_PRODUCTS


def _pointing_at(S: sp.csr_array, part: slice) -> sp.csr_array:
    """Some rows of S'."""
    n = S.shape[0]
    if part.start == 0 and part.stop == n:
        return sp.csr_array(S.T.tocsr())
    found: list[tuple[NDArray[Any], NDArray[Any], NDArray[Any]]] = []
    for rows in row_blocks(n, max(1, 2 * S.nnz // n)):
        low, high = int(S.indptr[rows.start]), int(S.indptr[rows.stop])
        near = S.indices[low:high]
        at = np.flatnonzero((near >= part.start) & (near < part.stop))
        origin = np.searchsorted(S.indptr, low + at, side="right") - 1
        found.append((near[at] - part.start, origin, S.data[low:high][at]))
    to, origin, data = (np.concatenate(arrays) for arrays in zip(*found, strict=True))
    return sp.csr_array((data, (to, origin)), shape=(part.stop - part.start, n))


def _unpruned(columns: NDArray[Any], data: NDArray[Any], indptr: NDArray[Any], shape: tuple[int, int]) -> sp.csr_array:
    """A canonical csr_array of arrays that stay what they are: SciPy would copy those that fill little of a file."""
    graph = sp.csr_array(shape, dtype=data.dtype)
    graph.indices, graph.data, graph.indptr = columns, data, indptr
    graph.has_canonical_format = True
    return graph


def slab_bytes(n: int, columns: int) -> int:
    """What `graph_product` holds at most."""
    return 8 * n * min(columns, max(1, SLAB_BYTES // (8 * max(n, 1))))


def graph_product(graph: sp.csr_array, V: Array, out: Array) -> Array:
    """S V into `out`, S being sparse of shape (n, n), V and `out` of shape (n, c) and not the same.

    Notes
    -----
    Holds nothing for V in memory; for V in a file `SLAB_BYTES`, or one column if that is more. Many rows are shared
    out among the cores of this process: neighbours lie anywhere, so that it is memory that each waits for.
    """
    n, c = V.shape
    if not is_mapped(V):
        _add_neighbours(graph, V, out)
        return out
    width = max(1, SLAB_BYTES // (8 * max(n, 1)))
    for low in range(0, c, width):
        columns = slice(low, min(low + width, c))
        _add_neighbours(graph, take_columns(V, columns), out[:, columns])
    return out


def _add_neighbours(graph: sp.csr_array, V: Array, out: Array) -> None:
    n, c = V.shape
    if graph.nnz * c < COMPILED_PRODUCTS:
        for part in row_blocks(n, c):
            out[part] = graph_rows(graph, part) @ V
        return
    from mlfs_dask.blocks.graph_compiled import add_neighbours

    step = block_rows(c)

    def run(low: int) -> None:
        add_neighbours(graph.indptr, graph.indices, graph.data, V, low, min(low + step, n), out)
        give_back()

    with ThreadPoolExecutor(len(os.sched_getaffinity(0)), thread_name_prefix="mlfs-graph") as pool:
        list(pool.map(run, range(0, n, step)))
