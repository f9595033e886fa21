"""A store that rows are appended to: what new rows must agree with, and how old and new become one store.

What was written stays as it is. A Zarr array is cut into shards of equal length, so of each array the last shard, if it
is not full, is written again with the first new entries; an array of a single shard is cut anew, so that a small store
does not grow by thousands of small files. Old partitions keep their rows, and new rows have partitions of their own:
statistics of the old ones stay valid (`mlfs_dask.engine.cache`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.readers.base import BOOLEAN_SPELLINGS, Header, Reader
from mlfs_dask.readers.classes import classes_of_store
from mlfs_dask.readers.concat import ConcatReader, check_categories, check_names
from mlfs_dask.readers.label_values import MinusOne
from mlfs_dask.readers.obs import ObsColumns, joined
from mlfs_dask.readers.table import TableReader
from mlfs_dask.storage.anndata_encoding import DENSE
from mlfs_dask.storage.array_layout import ArrayLayout
from mlfs_dask.storage.chunking import StoreChunking, chunk_store
from mlfs_dask.storage.dataset import Store
from mlfs_dask.storage.digest import Checksum
from mlfs_dask.storage.obs import stored_columns
from mlfs_dask.storage.schema import KINDS, Partitions, StoreSchema
from mlfs_dask.storage.spool import SpooledRows
from mlfs_dask.storage.statistics import Statistics, limits_of
from mlfs_dask.storage.store_reader import StoreRows, read_entries

_CURE = "make its columns agree with those of the store"
_ANEW = "convert all files together to a new store"


class StoreExtension:
    """An opened store that rows are appended to.

    Parameters
    ----------
    dataset : Store

    Raises
    ------
    DataError
        The store was made by a version whose stores cannot grow.
    """

    def __init__(self, dataset: Store) -> None:
        self.dataset = dataset
        self.schema: StoreSchema = dataset.schema
        schema = self.schema
        written_alike = all(
            json.loads(replace(layout, compressor=schema.compressor).metadata(DENSE)) == dataset.array_metadata(key)
            for key, layout in self.old_arrays.items()
        )
        if schema.checksums and written_alike:
            return
        raise DataError(
            f"this store was made by mlfs-dask {schema.version} in an earlier format, which cannot be appended to",
            file=dataset.path,
            cure=_ANEW,
        )

    # ------------------------------------------------------------------ what new rows must agree with

    @cached_property
    def header(self) -> Header:
        """Names and values of categorical features, as a file of the same columns would declare them."""
        schema, dataset = self.schema, self.dataset
        return Header(
            feature_names=tuple(map(str, dataset.feature_names)),
            label_names=tuple(map(str, dataset.label_names))[: schema.q],
            categories=dict(dataset.categories),
            n_features=schema.d,
            n_labels=schema.q,
        )

    @property
    def minus_one(self) -> MinusOne | None:
        """Meaning of -1 in the labels of the stored rows, as far as the store records it."""
        if self.schema.minus_one == "negative":
            return "negative"
        return "unknown" if self.schema.minus_one or any(self.schema.unknown) else None

    def match(self, reader: Reader) -> Reader:
        """Return the same file, read as rows of this store.

        Raises
        ------
        DataError
            Names, widths or values of categorical features differ from those of the store.
        """
        store = f"the store {self.dataset.path}"
        reader = self._with_classes(reader, store)
        ours, paths = self._header_like(reader.header), (store, reader.path)
        for what in ("feature", "label"):
            check_names(ours, reader.header, what, paths=paths, cure=_CURE)
        reader = self._with_categories(reader)
        theirs = replace(reader.header, categories=reader.header.recorded_categories)
        check_categories(self.header, theirs, paths=paths, cure="declare the values of the store in its order")
        # The categories of the file, too, count: those that mean false and true are not recorded in the store.
        minus_one = reader.header.minus_one or self.minus_one
        header = replace(self.header, categories=reader.header.categories, minus_one=minus_one)
        readers = reader.readers if isinstance(reader, ConcatReader) else (reader,)
        return ConcatReader(header, readers)

    def _header_like(self, theirs: Header) -> Header:
        """Return the header of the store, without names that it was given because its files had none."""
        header, d, q = self.header, self.schema.d, self.schema.q
        if theirs.feature_names is None and header.feature_names == tuple(f"x{i}" for i in range(d)):
            header = replace(header, feature_names=None)
        if theirs.label_names is None and header.label_names == tuple(f"y{i}" for i in range(q)):
            header = replace(header, label_names=None)
        return header

    def _with_classes(self, reader: Reader, store: str) -> Reader:
        """Return a reader that finds classes in its rows, with those of the store."""
        if isinstance(reader, ConcatReader):
            readers = [self._with_classes(each, store) for each in reader.readers]
            names, n_labels = readers[0].header.label_names, readers[0].header.n_labels
            return ConcatReader(replace(reader.header, label_names=names, n_labels=n_labels), readers)
        matched: Reader = classes_of_store(reader, self.header.label_names or (), store)
        return matched

    def _with_categories(self, reader: Reader) -> Reader:
        """Return a reader that finds texts in its rows, with the codes that they have in the store."""
        if isinstance(reader, ConcatReader):
            readers = [self._with_categories(each) for each in reader.readers]
            return ConcatReader(replace(reader.header, categories=readers[0].header.categories), readers)
        if not isinstance(reader, TableReader):
            return reader
        ours = self.header.categories
        texts = {feature: set(values) for feature, values in reader.header.categories.items()}
        lacking = [feature for feature in ours if feature not in texts]
        texts |= reader.distinct(lacking) if lacking else {}
        binary = self.dataset.kinds == "binary"
        codes = {}
        for feature, found in texts.items():
            if feature in ours:
                self._refuse_new_texts(reader, feature, found - set(ours[feature]))
                codes[feature] = ours[feature]
            elif binary[feature]:
                codes[feature] = tuple(false_and_true(found))
        return reader.with_categories(codes)

    def _refuse_new_texts(self, reader: Reader, feature: int, new: set[str]) -> None:
        if not new:
            return
        shown = ", ".join(repr(text) for text in sorted(new)[:10])
        raise DataError(
            f"it has the values {shown}, which this feature does not have in the store",
            file=reader.path,
            column=str(self.dataset.feature_names[feature]),
            cure=f"correct them, or {_ANEW}",
        )

    def joined_obs(self, new: ObsColumns, path: str) -> ObsColumns:
        """Return the columns of the rows of the store and, after them, of those of the file at `path`.

        Raises
        ------
        DataError
            A column is numbers here and categories there.
        """
        old = stored_columns(self.dataset)
        return joined([old, new], paths=[f"the store {self.dataset.path}", path])

    def check_widths(self, new: Statistics, path: str) -> None:
        """Refuse rows that are wider than the store, with DataError; `path` is where they come from."""
        schema = self.schema
        for what, ours, theirs in (("feature", schema.d, new.n_features), ("label", schema.q, new.n_labels)):
            if theirs > ours:
                raise DataError(
                    f"a row has {what} number {theirs}, and the store has {ours} {what}s", file=path, cure=_CURE
                )

    def check_values(self, new: Statistics, path: str, *, dtype: str | None) -> None:
        """Refuse rows whose values the type of the store cannot hold.

        Parameters
        ----------
        new : Statistics
            Of the new rows.
        path : str
            Where they come from.
        dtype : str or None
            What the user asked for: the type of a store of float32 says that digits may be lost.

        Raises
        ------
        DataError
        """
        dtype_of_store = self.schema.dtype
        not_held = new.first_not_held(dtype_of_store)
        if not_held is not None:
            lowest, highest = limits_of(dtype_of_store)
            problem = {
                "missing": "a value is missing",
                "fraction": "a value is no whole number",
                "below": f"a value is below {lowest:g}",
                "above": f"a value is above {highest:g}",
            }[not_held.fault]
            raise DataError(
                f"{problem}, and {dtype_of_store}, the type of the store, cannot hold it",
                file=path,
                column=str(self.dataset.feature_names[not_held.feature]),
                value=None if not_held.value is None else f"{not_held.value:g}",
                cure=_ANEW,
            )
        if dtype_of_store == "float32" and not new.fits_float32 and dtype != dtype_of_store:
            raise DataError(
                f"values lose digits as {dtype_of_store}, the type of the store",
                file=path,
                cure=f"pass --dtype {dtype_of_store} to have them rounded, or {_ANEW}",
            )

    def statistics(self) -> Statistics:
        """Return the statistics of the old rows, as far as the store records them.

        Recorded ranges include zeros, and so no zero is counted beside them.
        """
        schema, info = self.schema, self.dataset.features
        assert info.minimum is not None
        assert info.maximum is not None
        assert info.n_missing is not None
        old = Statistics()
        old.grow(schema.d, schema.q)
        old.rows, old.nonzeros, old.label_nonzeros = schema.n, schema.nonzeros, schema.label_nonzeros
        empty = np.isnan(info.minimum)
        old.minimum = np.where(empty, np.inf, info.minimum)
        old.maximum = np.where(empty, -np.inf, info.maximum)
        old.missing = info.n_missing.copy()
        counted = self.dataset.n_nonzero
        old.stored = schema.n - old.missing if counted is None else counted.copy()
        old.integers = (self.dataset.kinds != KINDS[0]) | empty
        old.fits_float32 = schema.dtype != "float64"
        old.positive, old.unknown = np.array(schema.positive, np.int64), np.array(schema.unknown, np.int64)
        return old

    # ------------------------------------------------------------------ how the arrays grow

    @cached_property
    def old_arrays(self) -> dict[str, ArrayLayout]:
        """Layouts of the arrays of the store, by key."""
        rows = self.dataset.store_rows
        return {layout.key: layout for layout in (*rows.X.arrays, *rows.Y.arrays)}

    def chunk(self, rows: Statistics, partition_bytes: int) -> StoreChunking:
        """Cut rows as a store of their own, in the form of this one."""
        schema = self.schema
        return chunk_store(
            **rows.sizes(),
            dtype=schema.dtype,
            compressor=schema.compressor,
            storage=schema.storage,
            labels_storage=schema.labels_storage,
            partition_bytes=partition_bytes,
        )

    def extended(self, merged: Statistics, partition_bytes: int) -> StoreChunking:
        """Return the cut of old and new rows together."""
        anew = self.chunk(merged, partition_bytes)
        arrays = {
            name: cut if (old := self.old_arrays[name]).shards <= 1 else replace(old, shape=cut.shape)
            for name, cut in anew.arrays.items()
        }
        return StoreChunking(arrays, anew.bytes)

    def kept_objects(self, layouts: Sequence[ArrayLayout]) -> dict[str, Checksum]:
        """Return the key -> checksum of the shards that stay as they are: the full ones of arrays whose shards keep
        their size.
        """
        keys = [
            layout.shard_key(shard)
            for layout in layouts
            if (old := self.old_arrays[layout.key]).shard_rows == layout.shard_rows
            for shard in range(old.shape[0] // old.shard_rows)
        ]
        return {key: Checksum(*self.schema.checksums[key]) for key in keys}

    def partitions(self, new: Partitions) -> Partitions:
        """Return the old partitions followed by those of the new rows."""

        def joined(old: tuple[int, ...], more: tuple[int, ...]) -> tuple[int, ...]:
            return (*old, *(old[-1] + offset for offset in more[1:]))

        old = self.schema.partitions
        return Partitions(
            rows=joined(old.rows, new.rows),
            nonzeros=joined(old.nonzeros, new.nonzeros),
            label_nonzeros=joined(old.label_nonzeros, new.label_nonzeros),
        )

    def require_unchanged(self) -> None:
        """Raise DataError if the store was changed since it was opened: by an append that ended just now."""
        self.dataset.store_rows.location.require_unchanged()


def false_and_true(texts: set[str]) -> list[str]:
    """Return the texts of which one may be missing, false first, where they mean false and true; else as they are,
    sorted.

    Examples
    --------
    >>> false_and_true({"Yes"}), false_and_true({"red"})
    (['no', 'Yes'], ['red'])
    """
    spelt = {text.lower() for text in texts}
    for pair in BOOLEAN_SPELLINGS:
        if spelt <= pair and len(spelt) == len(texts):
            return sorted(texts | (pair - spelt), key=str.lower)
    return sorted(texts)


class ExtendedRows:
    """Old and new rows as `write_one_shard` asks for them: entries of arrays, counted through both.

    Parameters
    ----------
    old : StoreRows
    new : SpooledRows
    """

    def __init__(self, old: StoreRows, new: SpooledRows) -> None:
        self._location = old.location
        self._arrays = {layout.key: layout for layout in (*old.X.arrays, *old.Y.arrays)}
        self._new = new

    def close(self) -> None:
        self._new.close()

    def fill(self, name: str, start: int, out: NDArray[Any]) -> None:
        """Fill `out` as `SpooledRows.fill` does."""
        layout = self._arrays[name]
        length = layout.shape[0]
        old = min(max(length - start, 0), len(out))
        if old:
            out[:old] = read_entries(self._location, layout, start, start + old)
        if old == len(out):
            return
        matrix, _, array = name.rpartition("/")
        first, more = max(start - length, 0), out[old:]
        if array == "indptr":  # the offset of the first new row is the last of the old ones
            self._new.fill(name, first + 1, more)
            more += self._arrays[f"{matrix}/data"].shape[0]
        else:
            self._new.fill(name, first, more)
