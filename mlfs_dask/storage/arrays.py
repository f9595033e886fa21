"""X and Y of a data set as lazy Dask arrays, one block per partition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal
from uuid import uuid4

import dask.array as da
import numpy as np
import sparse
from dask.base import tokenize
from dask.highlevelgraph import HighLevelGraph, MaterializedLayer
from numpy.typing import NDArray

from mlfs_dask.rows.contract import RowSource


class RowsLayer(MaterializedLayer):
    """The graph of an untouched X or Y of a data set; it has the rows that passes read faster, and the names."""

    def __init__(self, mapping: dict[Any, Any], rows: RowSource, names: Callable[[], NDArray[Any]]) -> None:
        super().__init__(mapping)
        self.rows = rows
        self._names = names

    @property
    def column_names(self) -> NDArray[Any]:
        """Names of the columns, which are read where they are asked for: the graph of a store travels without them."""
        return self._names()


def lazy_matrix(
    rows: RowSource, which: Literal["X", "Y"], column_names: Callable[[], NDArray[Any]], *, sparse_labels: bool
) -> da.Array:
    """Return X or Y of rows that stream, as a Dask array with a block a partition.

    Parameters
    ----------
    rows : RowSource
        X and Y of the same rows hold the same object.
    which : {"X", "Y"}
    column_names : callable
        Gives the names of the columns.
    sparse_labels : bool
        Form of the blocks of Y.

    Returns
    -------
    dask Array, shape (n, columns)
        Blocks are ndarray, or GCXS compressed on rows where they are sparse.
    """
    profile, source = rows.profile, rows if which == "X" else rows.labels_only()
    dtype, width, is_sparse = profile.dtype, profile.d, profile.sparse
    if which == "Y":
        dtype, width, is_sparse = np.dtype(np.float64 if profile.numeric else np.int8), profile.q, sparse_labels
    # Nothing says that rows without a digest are the same as others: their blocks must not take these others' place.
    identity = uuid4().hex if rows.digest is None else tokenize(rows.digest, rows.place, rows.row_offsets, profile.d)
    name = f"mlfs-{which}-{identity}"
    empty = np.empty(0, dtype), np.empty(0, np.int32), np.zeros(1, np.int64)
    meta = _gcxs(*empty, (0, 0)) if is_sparse else np.empty((0, 0), dtype)
    # Every task has the rows from one key: a mask of chosen rows is sent once.
    graph: dict[Any, Any] = {f"rows-{name}": source}
    graph |= {(name, i, 0): (_block, f"rows-{name}", which, i, width, meta) for i in range(profile.partitions)}
    return da.Array(
        HighLevelGraph({name: RowsLayer(graph, rows, column_names)}, {name: set()}),
        name,
        chunks=(tuple(np.diff(rows.row_offsets).tolist()), (width,)),
        dtype=dtype,
        meta=meta,
    )


def _block(rows: RowSource, which: Literal["X", "Y"], partition: int, width: int, meta: Any) -> Any:
    """Return X or Y of a partition, in the form of `meta`."""
    first, stop = rows.row_offsets[partition : partition + 2].tolist()
    blocks = ((block.start - first, getattr(block, which)) for block in rows.stream(partition, partition + 1))
    if not isinstance(meta, np.ndarray):
        pieces: list[tuple[NDArray[Any], ...]] = [(np.empty(0, meta.dtype), np.empty(0, np.int32), np.zeros(1, int))]
        pieces += ((block.data.copy(), block.indices.copy(), np.diff(block.indptr)) for _, block in blocks)
        data, indices, counts = (np.concatenate(arrays) for arrays in zip(*pieces, strict=True))
        return _gcxs(data, indices, np.cumsum(counts), (stop - first, width))
    values = np.empty((stop - first, width), meta.dtype)
    for row, block in blocks:
        values[row : row + block.shape[0]] = block if isinstance(block, np.ndarray) else block.toarray()
    return values


def _gcxs(data: Any, indices: Any, indptr: Any, shape: tuple[int, int]) -> sparse.GCXS:
    # SciPy wants both index arrays of one type and would copy them; a block has fewer than 2^31 entries.
    return sparse.GCXS((data, indices, indptr.astype(indices.dtype)), shape=shape, compressed_axes=(0,))
