"""Columns of rows: what `convert --obs` keeps in a store's `obs`, and how a reading finds them again."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.rows.covariates import MAX_CATEGORIES, Place, RowColumn
from mlfs_dask.storage.anndata_encoding import CHUNK, Object, group, strings, vector_chunk, vector_metadata
from mlfs_dask.storage.digest import content_digest, new_hash
from mlfs_dask.storage.store_reader import StoreLocation

if TYPE_CHECKING:
    from mlfs_dask.storage.dataset import Dataset

Array = NDArray[np.float64]


@dataclass(frozen=True)
class ObsColumns:
    """Columns of the rows of some files, or of a store.

    Attributes
    ----------
    names : tuple of str
    categories : dict of str to tuple of str
        Values of the columns that are categories, in the order of their codes.
    blocks : callable
        Gives an iterator of (rows, columns) blocks of float64: numbers and codes, NaN where missing.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]
    blocks: Callable[[], Iterator[Array]] = field(repr=False)

    def recoded(self, categories: Mapping[str, tuple[str, ...]]) -> Iterator[Array]:
        """Blocks with the codes that values have in `categories`, of which these are some."""
        codes = {}
        for name, values in self.categories.items():
            if categories[name][: len(values)] != values:
                place = {value: float(code) for code, value in enumerate(categories[name])}
                codes[self.names.index(name)] = np.array([place[value] for value in values])
        for block in self.blocks():
            for column, table in codes.items():
                known = ~np.isnan(block[:, column])
                block[known, column] = table[block[known, column].astype(np.int64)]
            yield block


def joined(pieces: Sequence[ObsColumns], *, paths: Sequence[str]) -> ObsColumns:
    """The columns of several files, or of a store and of files, one after the other.

    New values of a category come after the known ones. A column that is numbers here and categories there is refused.

    Raises
    ------
    DataError
    """
    first = pieces[0]
    categories = dict(first.categories)
    for piece, path in zip(pieces[1:], paths[1:], strict=True):
        for name in first.names:
            if (name in piece.categories) != (name in first.categories):
                words = ("numbers", "categories")
                raise DataError(
                    f"it is {words[name in piece.categories]}, and {words[name in first.categories]} in {paths[0]}",
                    file=path,
                    column=name,
                    cure="make the columns of rows agree",
                )
            known = categories.get(name, ())
            new = sorted(set(piece.categories.get(name, ())) - set(known))
            if new:
                categories[name] = (*known, *new)

    def blocks() -> Iterator[Array]:
        for piece in pieces:
            yield from piece.recoded(categories)

    return ObsColumns(first.names, categories, blocks)


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
        """Objects below the root of the store.

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
    """The same rows, `CHUNK` at a time."""
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


@dataclass(frozen=True)
class StoredColumn(RowColumn):
    """A column of a store's `obs`, read a chunk at a time where it is needed."""

    name: str
    categories: Sequence[str] | None
    location: StoreLocation
    length: int
    _store: list[Dataset] = field(default_factory=list, repr=False, compare=False)
    _recent: dict[int, NDArray[Any]] = field(default_factory=dict, repr=False, compare=False)
    _found: list[NDArray[np.float64]] = field(default_factory=list, repr=False, compare=False)

    @property
    def nbytes(self) -> int:  # type: ignore[override]
        """Bytes of the chunks that a process holds of it."""
        return min(self.length, MAX_RECENT * CHUNK) * (8 if self.categories is None else 4)

    @property
    def identity(self) -> Any:
        return [self.name, self.categories and list(self.categories)]

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_store": [], "_recent": {}, "_found": []}

    def read(self, place: Place) -> NDArray[Any]:
        return self.between(place.start, place.stop)[place.inside]

    def between(self, start: int, stop: int) -> NDArray[Any]:
        """Values of rows start..stop-1 of the store."""
        pieces = [
            self._chunk(number)[max(start - number * CHUNK, 0) : stop - number * CHUNK]
            for number in range(start // CHUNK, -(-stop // CHUNK))
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.int32), *pieces])

    def distinct(self) -> NDArray[np.float64]:
        if not self._found:
            found = np.empty(0)
            for start in range(0, self.length, CHUNK):
                values = self.between(start, min(start + CHUNK, self.length))
                found = np.union1d(found, values[np.isfinite(values)])
                if len(found) > MAX_CATEGORIES:
                    break
            self._found.append(found)
        return self._found[0]

    def _chunk(self, number: int) -> NDArray[Any]:
        found = self._recent.get(number)
        if found is not None:
            return found
        if not self._store:
            from mlfs_dask.storage.dataset import open_metadata  # a worker opens the store for it

            self._store.append(open_metadata(self.location.path, storage_options=self.location.options))
        values = self._store[0].obs_chunk(self.name, number)
        while len(self._recent) >= MAX_RECENT:
            self._recent.pop(next(iter(self._recent)), None)
        self._recent[number] = values
        return values


def stored_columns(dataset: Dataset) -> ObsColumns:
    """The columns of the rows of a store."""
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


#: Chunks of a column that a process holds: its threads read rows that are apart.
MAX_RECENT = 4


def read_obs(paths: Sequence[str], names: Sequence[str], options: Any, format: str | None) -> ObsColumns:
    """The columns of rows of files, in the order of `names`; they are read when blocks are asked for.

    Parameters
    ----------
    paths : sequence of str
    names : sequence of str
    options : ReadOptions
        Of the conversion.
    format : str or None

    Raises
    ------
    DataError
        A column is not there.
    UsageError
        The format has no columns of rows.
    """
    from mlfs_dask.storage.readers.detect import open_source, resolve_sources

    files, found = resolve_sources(paths, options, format)
    if found in ("h5ad", "anndata"):
        from mlfs_dask.storage.readers.anndata import obs_of

        return joined([obs_of(file, names, options) for file in files], paths=files)
    reader = open_source(list(paths), options=replace(options, only_obs=True), format=format)
    order = [list(reader.header.feature_names or ()).index(name) for name in names]
    known = reader.header.categories

    def blocks() -> Iterator[Array]:
        for part in reader.parts(1 << 62):
            for batch in reader.read(part, batch_bytes=_BATCH_BYTES):
                yield np.asarray(batch.X, dtype=np.float64)[:, order]

    categories = {name: known[column] for name, column in zip(names, order, strict=True) if column in known}
    return ObsColumns(tuple(names), categories, blocks)


#: Bytes of a batch of columns of rows.
_BATCH_BYTES = 8 << 20
