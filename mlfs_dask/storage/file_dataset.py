"""A file, opened as a data set: rows where they lie, labels, names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.files.object_store import is_url, local_path
from mlfs_dask.files.sources import examine
from mlfs_dask.formats.anndata import open_anndata_matrix
from mlfs_dask.formats.detect import obs_names, open_resolved, read_obs, resolve_sources
from mlfs_dask.readers.base import FileSpec, Header, LabelSpec
from mlfs_dask.readers.batches import open_batches, scan_of
from mlfs_dask.redaction import redact
from mlfs_dask.rows.covariates import RowColumn, SourceColumn
from mlfs_dask.rows.view import RowView
from mlfs_dask.storage.dataset import Dataset, target_columns
from mlfs_dask.storage.file_rows import FileRows, open_rows, require_rows
from mlfs_dask.storage.numbered_names import NumberedNames


class FileDataset(Dataset):
    """A file, or a folder of them, whose rows are read where they lie; made by `open_file`.

    Attributes
    ----------
    rows : FileRows, or RowView
        With targets a view, whose Y holds them.
    """

    rows: FileRows | RowView

    def __init__(self, rows: FileRows, header: Header, spec: FileSpec) -> None:
        self.path = rows.path
        self.rows = rows
        self._header = header
        self._spec = spec

    def __repr__(self) -> str:
        profile = self.rows.profile
        form = "sparse" if profile.sparse else "dense"
        sizes = f"{profile.n:,} rows, {profile.d:,} features, {profile.q:,} labels"
        return f"<Dataset {redact(self.path)}: {sizes}, {form}>"

    @property
    def digest(self) -> str | None:
        return self.rows.digest

    @cached_property
    def feature_names(self) -> NDArray[Any]:
        return _names(self._header.feature_names, "x", self.rows.profile.d)

    @cached_property
    def label_names(self) -> NDArray[Any]:
        names = _names(self._header.label_names, "y", self.rows.profile.q - len(self._spec.targets))
        return np.array([*names, *self._spec.targets], dtype=object)

    @property
    def reading_record(self) -> dict[str, Any]:
        return self._spec.record

    def feature_column(self, name: str) -> list[str]:
        files, known = resolve_sources([self.path], self._spec)
        if known.var_column is None:
            return super().feature_column(name)
        return list(known.var_column(files[0], name, self._spec))

    @cached_property
    def kinds(self) -> NDArray[Any]:
        """Array of str, shape (d,): categorical, or numeric, which may be whole numbers as well."""
        return np.array(["categorical" if f in self.categories else "numeric" for f in range(self.shape[1])], object)

    @property
    def categories(self) -> dict[int, tuple[str, ...]]:
        return dict(self._header.categories)


def _names(names: tuple[str, ...] | None, letter: str, count: int) -> NDArray[Any]:
    return np.array(NumberedNames(letter, count)[:] if names is None else names, dtype=object)


class FileColumns(Mapping[str, RowColumn]):
    """Columns of the rows of a file beside features and labels, each read when it is asked for.

    They are those of `obs`, or of a table the columns that are dropped. A column is held as 8 bytes a row, or 4 of
    categories, and read in batches.
    """

    def __init__(self, path: str, spec: FileSpec, n: int) -> None:
        self._place = path, spec
        self._n = n

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return obs_names(*self._place)

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, name: str) -> RowColumn:
        if name not in self._names:
            raise KeyError(name)
        path, spec = self._place
        columns = read_obs([path], replace(spec, obs=(name,)))
        categories = columns.categories.get(name)
        values: NDArray[Any] = np.empty(self._n, np.float64 if categories is None else np.int32)
        row = 0
        for block in columns.blocks():
            some = block[: self._n - row, 0]
            values[row : row + len(some)] = some if categories is None else np.where(np.isnan(some), -1, some)
            row += len(block)
        if row != self._n:
            raise DataError(
                f"column {name!r} has {row:,} rows, and {self._n:,} were there when it was opened",
                file=path,
                cure="run the same command again, once nothing writes to it",
            )
        return SourceColumn(name, values, categories)


def open_scan(table: Any, columns: Sequence[str] | None, *, what: str) -> FileRows:
    """Return the rows of a LazyFrame of polars or a dataset of Arrow, which every pass reads anew, in their order.

    Parameters
    ----------
    table : polars.LazyFrame or pyarrow.dataset.Dataset
    columns : sequence of str, or None
        Its columns that are labels; None: it has none.
    what : str
        What it is, for messages.

    Raises
    ------
    DataError, UsageError
    """
    labels = LabelSpec(columns=None if columns is None else tuple(columns))
    reader = open_batches(scan_of(table), FileSpec(labels=labels), what=what)
    return open_rows(reader, "", read_feature_names=lambda: reader.header.feature_names)


def open_backed(adata: Any) -> FileRows:
    """Return the rows of AnnData whose X lies in a file, without labels.

    Parameters
    ----------
    adata : AnnData
        Backed, and no view.

    Raises
    ------
    DataError, UsageError
    """
    path = str(adata.filename)
    whole = examine([path])
    reader = require_rows(open_anndata_matrix(path, tuple(map(str, adata.var_names))), path)
    return open_rows(reader, path, whole=whole, read_feature_names=lambda: reader.header.feature_names)


def open_file(path: str, spec: FileSpec) -> FileDataset:
    """Open a file whose rows can be read where they lie. Its labels are read.

    Raises
    ------
    DataError
        There is no such file, or it is damaged; a label is no label.
    UsageError
        Its rows cannot be read by themselves; nothing says what the labels are.
    """
    path = path if is_url(path) else str(local_path(path).absolute())
    whole = examine([path], spec.storage_options)
    files, known = resolve_sources([path], spec)
    reader = require_rows(open_resolved([path], files, known, spec) if known.in_place(files[0]) else None, path)
    dataset: FileDataset
    rows = open_rows(
        reader,
        path,
        declared=spec.labels.values.minus_one,
        options=spec.storage_options,
        whole=whole,
        reading={"labels": repr(spec.labels), "format": spec.format, "keys": spec.keys, "drop": spec.drop},
        read_feature_names=lambda: dataset.feature_names.tolist(),
        read_columns=lambda: FileColumns(path, spec, reader.header.n_rows or 0),
    )
    dataset = FileDataset(rows, reader.header, spec)
    if spec.targets:
        dataset.rows = RowView(rows, target_columns=target_columns(rows.columns, spec.targets, path))
    return dataset
