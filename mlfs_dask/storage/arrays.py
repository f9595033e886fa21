"""X and Y of a store as lazy Dask arrays, one block per partition."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, Literal

import dask.array as da
import numpy as np
import sparse
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_matrix, columns_of_block
from mlfs_dask.rows.contract import RowSource
from mlfs_dask.rows.row_mask import Rows, offsets_of, row_numbers_between
from mlfs_dask.rows.view import Columns, RowView
from mlfs_dask.storage.store_reader import MatrixLayout, StoreLocation, StoreRows, read_block


class StoreLayer(MaterializedLayer):
    """The graph of an untouched array of a store or a file; it has the rows that passes read faster, and the names."""

    def __init__(self, mapping: dict[Any, Any], rows: RowSource, names: Callable[[], NDArray[Any]]) -> None:
        super().__init__(mapping)
        self.rows = rows
        self._names = names

    @property
    def column_names(self) -> NDArray[Any]:
        """Names of the columns, read from the store: the graph travels without them."""
        return self._names()


class SubsetLayer(MaterializedLayer):
    """The graph of chosen rows and columns of such an array."""

    def __init__(self, mapping: dict[Any, Any], rows: RowView, whole: Any, columns: Columns) -> None:
        super().__init__(mapping)
        self.rows = rows
        self._whole = whole
        self._columns = columns

    @property
    def column_names(self) -> NDArray[Any]:
        names: NDArray[Any] = self._whole.column_names
        return names if self._columns is None else names[self._columns]


def lazy_matrix(
    rows: StoreRows,
    matrix: MatrixLayout,
    stored: tuple[int, ...],
    name: str,
    *,
    column_names: Callable[[], NDArray[Any]],
) -> da.Array:
    """Return a Dask array over one matrix of a store.

    Parameters
    ----------
    rows : StoreRows
        Of the same store; X and Y of one store hold the same object.
    matrix : MatrixLayout
        X or Y.
    stored : tuple of int, length partitions + 1
        Its stored entries before each partition.
    name : str
        Of the array; the same for the same content at the same place.
    column_names : callable
        Gives the names of the columns.

    Returns
    -------
    dask Array, shape (n, columns)
        Blocks are ndarray, or GCXS compressed on rows when stored sparse.
    """
    boundaries = [int(row) for row in rows.row_offsets]
    graph: dict[Any, Any] = {
        (name, part, 0): (_load, rows.location, matrix, part, row_range, stored_range)
        for part, (row_range, stored_range) in enumerate(
            zip(itertools.pairwise(boundaries), itertools.pairwise(stored), strict=True)
        )
    }
    chunks = (tuple(np.diff(boundaries).tolist()), (matrix.shape[1],))
    layout = matrix.dense or matrix.data
    assert layout is not None
    dtype = np.dtype(layout.dtype)
    meta = np.empty((0, 0), dtype) if matrix.dense else _gcxs(_empty(dtype), (0, 0))
    return da.Array(
        HighLevelGraph({name: StoreLayer(graph, rows, column_names)}, {name: set()}),
        name,
        chunks=chunks,
        dtype=dtype,
        meta=meta,
    )


def streamed_matrix(rows: RowSource, which: Literal["X", "Y"], column_names: Callable[[], NDArray[Any]]) -> da.Array:
    """Return X or Y of rows that stream, as a Dask array with a block a partition.

    Parameters
    ----------
    rows : RowSource
        X and Y of the same rows hold the same object.
    which : {"X", "Y"}
    column_names : callable
        Gives the names of the columns.

    Returns
    -------
    dask Array, shape (n, columns)
        Blocks are ndarray, or GCXS compressed on rows where they are sparse.
    """
    profile, source = rows.profile, rows if which == "X" else rows.labels_only()
    name = f"mlfs-{which}-{tokenize(rows.digest, rows.place, rows.row_offsets, profile.d)}"
    graph: dict[Any, Any] = {(name, i, 0): (_streamed, source, which, i) for i in range(profile.partitions)}
    sparse_blocks = not profile.numeric if which == "Y" else profile.sparse
    of_labels = np.dtype(np.float64 if profile.numeric else np.int8)
    dtype = of_labels if which == "Y" else profile.dtype
    return da.Array(
        HighLevelGraph({name: StoreLayer(graph, rows, column_names)}, {name: set()}),
        name,
        chunks=(tuple(np.diff(rows.row_offsets).tolist()), (profile.q if which == "Y" else profile.d,)),
        dtype=dtype,
        meta=_gcxs(_empty(dtype), (0, 0)) if sparse_blocks else np.empty((0, 0), dtype),
    )


def _streamed(rows: RowSource, which: Literal["X", "Y"], partition: int) -> Any:
    blocks = [getattr(block, which).copy() for block in rows.stream(partition, partition + 1)]
    if isinstance(blocks[0], np.ndarray):
        return np.concatenate(blocks)
    whole = sp.csr_array(sp.vstack(blocks, format="csr"))
    return _gcxs((whole.data, whole.indices, whole.indptr), whole.shape)


def chosen_blocks(
    whole: da.Array,
    source: RowView,
    rows: Rows | None,
    columns: Columns,
    name: str,
) -> da.Array:
    """Return chosen rows and columns of a lazy matrix, block by block.

    Parameters
    ----------
    whole : dask Array
        With one block of columns.
    source : RowView
        The same rows, which passes read faster.
    rows : range, RowMask or None
    columns : int array or None
        Rising; None for all.
    name : str
    """
    bounds = np.cumsum((0, *whole.chunks[0]))
    inside = bounds if rows is None else offsets_of(rows, bounds)
    chosen = [
        None if rows is None else row_numbers_between(rows, start, stop) - start
        for start, stop in itertools.pairwise(bounds.tolist())
    ]
    graph: dict[Any, Any] = {
        (name, part, 0): (_choose, (whole.name, part, 0), each, columns) for part, each in enumerate(chosen)
    }
    width = whole.shape[1] if columns is None else len(columns)
    layers = whole.dask.layers
    layer = SubsetLayer(graph, source, layers[whole.name], columns)
    return da.Array(
        HighLevelGraph({**layers, name: layer}, {**whole.dask.dependencies, name: {whole.name}}),
        name,
        chunks=(tuple(np.diff(inside).tolist()), (width,)),
        dtype=whole.dtype,
        meta=whole._meta,
    )


def _choose(block: Any, rows: NDArray[np.int64] | None, columns: NDArray[np.int64] | None) -> Any:
    if columns is not None:
        block = columns_of_block(block, columns)
    if rows is None:
        return block
    if isinstance(block, np.ndarray):
        return block[rows]
    chosen = as_matrix(block)[rows]
    return _gcxs((chosen.data, chosen.indices, chosen.indptr), chosen.shape)


def _empty(dtype: np.dtype[Any]) -> tuple[Any, Any, Any]:
    return np.empty(0, dtype), np.empty(0, np.int32), np.zeros(1, np.int64)


def _load(
    location: StoreLocation,
    matrix: MatrixLayout,
    partition: int,
    rows: tuple[int, int],
    stored: tuple[int, int],
) -> Any:
    block = read_block(location, matrix, partition, rows, stored)
    if matrix.dense is not None:
        return block
    return _gcxs(block, (rows[1] - rows[0], matrix.shape[1]))


def _gcxs(arrays: tuple[Any, Any, Any], shape: tuple[int, int]) -> sparse.GCXS:
    data, indices, indptr = arrays
    # SciPy wants both index arrays of one type and would copy them; a block has fewer than 2^31 entries.
    return sparse.GCXS((data, indices, indptr.astype(indices.dtype)), shape=shape, compressed_axes=(0,))
