"""Columns of rows: what `convert --obs` keeps in a store's `obs`, and how a pass finds them again."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.readers.obs import ObsColumns
from mlfs_dask.storage.anndata_encoding import CHUNK, Object, group, strings, vector_chunk, vector_metadata
from mlfs_dask.storage.digest import content_digest, new_hash

if TYPE_CHECKING:
    from mlfs_dask.storage.dataset import Store

Array = NDArray[np.float64]


class ObsWriter:
    """The columns of a store's `obs` as objects, a chunk of each in memory.

    Parameters
    ----------
    columns : ObsColumns
    n : int
        Rows of the store.

    Attributes
    ----------
    digest : str
        Of names and values, when all objects have been given.
    """

    def __init__(self, columns: ObsColumns, n: int) -> None:
        self.columns = columns
        self.n = n
        self.digest = ""

    def objects(self) -> Iterator[Object]:
        """Yield objects below the root of the store.

        Raises
        ------
        DataError
            There are not n rows: the file was changed meanwhile.
        """
        columns, n = self.columns, self.n
        arrays: list[tuple[str, np.dtype[Any]]] = []
        for name in columns.names:
            values = columns.categories.get(name)
            if values is None:
                arrays.append((f"obs/{name}", np.dtype(np.float64)))
            else:
                categorical = {"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False}
                yield group(f"obs/{name}", categorical)
                yield from strings(f"obs/{name}/categories", values)
                arrays.append((f"obs/{name}/codes", np.dtype(np.int32)))
        for array, dtype in arrays:
            yield vector_metadata(array, n, dtype)
        digests = [new_hash() for _ in arrays]
        row = 0
        for chunk in _chunks(columns.recoded(columns.categories), len(arrays)):
            for at, (array, dtype) in enumerate(arrays):
                column = chunk[:, at]
                if dtype.kind == "i":
                    column = np.where(np.isnan(column), -1.0, column)
                stored = np.ascontiguousarray(column.astype(dtype))
                digests[at].update(stored.tobytes())
                yield from vector_chunk(array, row, stored, n)
            row += len(chunk)
        if row != n:
            raise DataError(
                f"columns of {row:,} rows were read for {n:,} rows",
                cure="a file was changed meanwhile: convert it again",
            )
        categories = {name: list(values) for name, values in columns.categories.items()}
        contents = [digest.hexdigest() for digest in digests]
        self.digest = content_digest({"names": list(columns.names), "categories": categories, "values": contents})


def _chunks(blocks: Iterator[Array], width: int) -> Iterator[Array]:
    """Yield the same rows, `CHUNK` at a time."""
    held = np.empty((CHUNK, width))
    filled = 0
    for block in blocks:
        start = 0
        while start < len(block):
            some = min(CHUNK - filled, len(block) - start)
            held[filled : filled + some] = block[start : start + some]
            filled, start = filled + some, start + some
            if filled == CHUNK:
                yield held
                filled = 0
    if filled:
        yield held[:filled]


def stored_columns(dataset: Store) -> ObsColumns:
    """Return the columns of the rows of a store."""
    columns, n = dataset.obs, dataset.schema.n

    def blocks() -> Iterator[Array]:
        for start in range(0, n, CHUNK):
            values = []
            for column in columns.values():
                each = column.between(start, min(start + CHUNK, n)).astype(np.float64)
                values.append(each if column.categories is None else np.where(each < 0, np.nan, each))
            yield np.column_stack(values)

    categories = {name: tuple(each.categories) for name, each in columns.items() if each.categories is not None}
    return ObsColumns(tuple(columns), categories, blocks)
