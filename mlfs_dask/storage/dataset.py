"""A store, opened: lazy X and Y, names, and what is known of features and labels without a pass.

Opening reads the root metadata and looks at the sizes of the objects; names and ranges are read when they are
first asked for, of a remote store with the sizes if they are small; rows only when something is computed.
`Dataset.rows` is what passes read from; X and Y are for everything else that speaks Dask.
"""

from __future__ import annotations

import contextlib
import errno
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.blocks.codes import TABLE_SHARES, zero_share
from mlfs_dask.blocks.sparse import count_labels
from mlfs_dask.errors import DataError, MlfsError, UsageError, number_of
from mlfs_dask.files.access import access_error, fault_of
from mlfs_dask.files.json_text import parse_categories, parse_json
from mlfs_dask.files.object_store import ROOT_KEY, Objects, RemoteObjects, is_url, is_web, local_path, open_objects
from mlfs_dask.redaction import redact
from mlfs_dask.rows.contract import FeatureInfo
from mlfs_dask.rows.covariates import MAX_CATEGORIES, RowColumn, RowSpan
from mlfs_dask.rows.row_mask import RowMask, row_numbers
from mlfs_dask.rows.view import RowView
from mlfs_dask.storage.anndata_encoding import CHUNK, read_chunk, read_vector
from mlfs_dask.storage.array_layout import ArrayLayout
from mlfs_dask.storage.digest import new_hash, root_is_intact
from mlfs_dask.storage.schema import KINDS, StoreSchema, read_schema
from mlfs_dask.storage.store_reader import (
    MatrixLayout,
    StoreLocation,
    StoreRows,
)
from mlfs_dask.storage.subset_spec import Chosen, choose_columns, choose_rows
from mlfs_dask.storage.writer import QUANTILES

if TYPE_CHECKING:
    import dask.array as da

_CURE = "restore a copy, or convert the source files again"

#: Bytes of names and ranges that are requested with the sizes of a remote store's objects.
_SMALL_BYTES = 4 << 20

#: Chunks of a column that a process holds: its threads read rows that are apart.
MAX_RECENT = 4


def open_store(store: str | Path, *, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Open a store.

    Parameters
    ----------
    store : path or URL
    storage_options : mapping, optional
        Of obstore (s3:, gs:, az:, https:) or of the file system of fsspec.

    Returns
    -------
    Store

    Raises
    ------
    DataError
        If there is no store, its format is newer than this version, its root metadata is damaged, or some of it is
        missing or cut off.

    Notes
    -----
    Damage within other objects is found when they are read, or by `mlfs inspect --verify`: that means reading
    everything.
    """
    dataset, objects = _open_root(store, storage_options)
    expected = dataset.schema.sizes
    if is_web(objects.path):
        # Each takes a request. What they say is in the root metadata, too.
        expected = {key: size for key, size in expected.items() if not key.endswith(ROOT_KEY)}
    try:
        if isinstance(objects, RemoteObjects):
            present, dataset._contents = objects.look(expected, _small_objects(dataset.schema))
        else:
            present = objects.sizes(expected)
    except PermissionError as error:
        raise access_error(objects.path, error) from None
    _check_objects(expected, present, objects.path)
    return dataset


def open_metadata(store: str | Path, *, storage_options: Mapping[str, Any] | None = None) -> Store:
    """Open a store for what its metadata says; whether the rest is there is not looked at.

    Parameters
    ----------
    store, storage_options
        As in `open_store`.

    Raises
    ------
    DataError
        If there is no store, its format is newer than this version, or its root metadata is damaged.
    """
    return _open_root(store, storage_options)[0]


def _open_root(store: str | Path, storage_options: Mapping[str, Any] | None) -> tuple[Store, Objects]:
    objects = open_objects(store, storage_options)
    schema, root = read_schema(objects)
    if not root_is_intact(root, schema.root_digest):
        raise DataError(f"{ROOT_KEY} is damaged: it differs from what was written", file=objects.path, cure=_CURE)
    try:
        metadata = dict(parse_json(root)["consolidated_metadata"]["metadata"])
    except (KeyError, TypeError, ValueError) as error:
        problem = f"{ROOT_KEY} is damaged: it has no metadata of arrays"
        raise DataError(problem, file=objects.path, cure=_CURE) from error
    path = objects.path if is_url(store) else str(local_path(store).absolute())
    location = StoreLocation(path, dict(storage_options or {}), schema.root_digest)
    return Store(location, schema, metadata), objects


def _small_objects(schema: StoreSchema) -> list[str]:
    """Return the keys of the names, ranges and kinds, if they are small."""
    keys = [key for key in schema.sizes if key.startswith(("var/", "uns/")) and not key.endswith(ROOT_KEY)]
    return keys if sum(schema.sizes[key] for key in keys) <= _SMALL_BYTES else []


def _check_objects(expected: Mapping[str, int], present: Mapping[str, int | None], path: str) -> None:
    # zarr reads a missing chunk as zeros: a store that was cut off half-way must not be opened.
    missing = [key for key in expected if key not in present and key != ROOT_KEY]
    cut = [key for key, size in expected.items() if present.get(key, size) not in (size, None)]
    if not missing and not cut:
        return
    problems = []
    if missing:
        problems.append(f"{number_of(len(missing), 'object')} missing: {_some(missing)}")
    if cut:
        problems.append(f"{number_of(len(cut), 'object')} not of the recorded size: {_some(cut)}")
    raise DataError(f"the store is incomplete: {'; '.join(problems)}", file=path, cure=_CURE)


def _some(keys: list[str]) -> str:
    return ", ".join(keys[:5]) + (", ..." if len(keys) > 5 else "")


@dataclass(frozen=True)
class StoredColumn(RowColumn):
    """A column of a store's `obs`, read a chunk at a time where it is needed."""

    name: str
    categories: Sequence[str] | None
    location: StoreLocation
    length: int
    _store: list[Store] = field(default_factory=list, repr=False, compare=False)
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

    def read(self, place: RowSpan) -> NDArray[Any]:
        return self.between(place.start, place.stop)[place.inside]

    def between(self, start: int, stop: int) -> NDArray[Any]:
        """Return the values of rows start..stop-1 of the store."""
        pieces = [
            self._chunk(number)[max(start - number * CHUNK, 0) : stop - number * CHUNK]
            for number in range(start // CHUNK, -(-stop // CHUNK))
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate([np.empty(0, np.int32), *pieces])

    def distinct(self, most: int) -> NDArray[np.float64]:
        if not self._found or MAX_CATEGORIES < len(self._found[0]) <= most:
            self._found.clear()
            found = np.empty(0)
            for start in range(0, self.length, CHUNK):
                values = self.between(start, min(start + CHUNK, self.length))
                found = np.union1d(found, values[np.isfinite(values)])
                if len(found) > most:
                    break
            self._found.append(found)
        return self._found[0]

    def _chunk(self, number: int) -> NDArray[Any]:
        found = self._recent.get(number)
        if found is not None:
            return found
        if not self._store:
            self._store.append(open_metadata(self.location.path, storage_options=self.location.options))
        values = self._store[0].obs_chunk(self.name, number)
        while len(self._recent) >= MAX_RECENT:
            self._recent.pop(next(iter(self._recent)), None)
        self._recent[number] = values
        return values


def target_columns(columns: Mapping[str, RowColumn], names: Sequence[str], path: str) -> tuple[RowColumn, ...]:
    """Return the columns of the rows that are numeric targets.

    Raises
    ------
    DataError
        A column holds texts.
    """
    found = tuple(columns[name] for name in names)
    for column in found:
        if column.categories is not None:
            raise DataError(
                "a numeric target must be numbers, and this column holds texts",
                file=path,
                column=column.name,
                value=next(iter(column.categories), ""),
                cure="leave missing values empty; classes are labels (--label-columns with --label-classes)",
            )
    return found


class Dataset(ABC):
    """Rows with labels and names, from a store, a file or a part of one; made by `open_dataset`.

    Attributes
    ----------
    path : str
    rows : RowSource
        Rows for passes.
    feature_names, label_names : array of str, shape (d,) and (q,)
    kinds : array of str, shape (d,)
        numeric, integer, binary or categorical.
    categories : dict of int to tuple of str
        Values of each categorical feature, by its index, in the order of their codes.
    label_counts : int64 array, shape (3, q)
        Unknown, negative and positive entries of each label.
    """

    path: str
    rows: Any  # a RowSource; attributes here, which data sets read when they are first asked for
    feature_names: Any
    label_names: Any
    kinds: Any
    categories: Any

    @property
    @abstractmethod
    def digest(self) -> str | None:
        """Digest of the content; None if changes cannot be detected."""

    @cached_property
    def X(self) -> da.Array:
        """Dask array, shape (n, d), with one block per partition: ndarray, or `sparse.GCXS` compressed on rows."""
        return self._lazy("X", "feature_names")

    @cached_property
    def Y(self) -> da.Array:
        """Dask array of int8, shape (n, q): 1, 0, -1 = unknown; blocks like those of X."""
        return self._lazy("Y", "label_names")

    def _lazy(self, which: Literal["X", "Y"], names: str) -> da.Array:
        from mlfs_dask.storage.arrays import lazy_matrix  # a pass over `rows` needs no dask.array

        return lazy_matrix(self.rows, which, self._names_reader(names), sparse_labels=self._sparse_labels)

    @property
    def _sparse_labels(self) -> bool:
        """True if blocks of Y are sparse."""
        return not self.rows.profile.numeric

    def _names_reader(self, attribute: str) -> Callable[[], NDArray[Any]]:
        """Return a function that reads `feature_names` or `label_names`; it travels with lazy arrays."""
        return partial(getattr, self, attribute)

    @property
    def shape(self) -> tuple[int, int]:
        """(n, d), as of X."""
        return self.rows.profile.n, self.rows.profile.d

    @property
    def label_counts(self) -> NDArray[np.int64]:
        counts = self.rows.label_counts
        if counts is None:
            labels = self.rows.labels_only()
            counts = np.zeros((3, labels.profile.q), np.int64)
            for block in labels.stream(0, labels.profile.partitions):
                counts += count_labels(block.Y)
        return np.asarray(counts)

    def feature_column(self, name: str) -> list[str]:
        """Return the texts of a column of `var`, one for each feature, empty where missing.

        Raises
        ------
        UsageError
            There is no such column, or none at all.
        """
        raise UsageError(
            f"{self.path} has no columns of features, such as {name!r}; an .h5ad file or AnnData-Zarr keeps them in var"
            "\n  cure: name that file in its place, or write feature,group a line into a file"
        )

    def subset(
        self, *, rows: Chosen | None = None, labels: Chosen | None = None, features: Chosen | None = None
    ) -> Dataset:
        """Return the data set of chosen rows, labels and features, without copying data.

        Parameters
        ----------
        rows : str, slice, range, sequence of int or mask, optional
            ``"0:100000"``, ``"::10"``, the path of a file of row numbers; all by default.
        labels, features : str, slice, range, sequence of str or int, or mask, optional
            Names or numbers, ``"0:10"``, or the path of a file of names; all by default.

        Returns
        -------
        Dataset
            The subset, in the order of the whole, with its own digest.

        Raises
        ------
        UsageError
            A chosen row, label or feature does not exist, or the selection is empty.
        DataError
            A file of rows or names is invalid.
        """
        return DatasetSubset(self, rows, labels, features)

    @property
    def subset_record(self) -> dict[str, Any] | None:
        """The `subset` entry of run.json: parent digest and selections; None for a full dataset."""
        return None

    @property
    def reading_record(self) -> dict[str, Any]:
        """The `reading` entry of run.json: arguments of `open_dataset` for a file; empty for a store."""
        return {}

    def may_share_rows(self, record: Mapping[str, Any]) -> bool:
        """Return True if another part of the same dataset shares rows with this part, or may share them.

        Parameters
        ----------
        record : mapping
            Record of the other part in `run.json`: digest and selections.
        """
        return True


class Store(Dataset):
    """An opened store; made by `open_store`.

    Attributes
    ----------
    schema : StoreSchema
    rows : StoreRows
    """

    def __init__(self, location: StoreLocation, schema: StoreSchema, metadata: Mapping[str, Any]) -> None:
        self._location = location
        self._metadata = metadata
        self._contents: dict[str, bytes] = {}  # of small objects, until they are asked for
        self.path = location.path
        self.schema = schema

    def __repr__(self) -> str:
        n, d, q = self.schema.n, self.schema.d, self.schema.q
        of_rows = number_of(len(self.schema.targets), "target") if self.schema.targets else f"{q:,} labels"
        return f"<Dataset {redact(self.path)}: {n:,} rows, {d:,} features, {of_rows}, {self.schema.storage}>"

    @property
    def digest(self) -> str:
        """Content digest: equal for equal content, wherever it lies."""
        return str(self.rows.digest) if self.schema.targets else self.schema.digest

    @property
    def shape(self) -> tuple[int, int]:
        return self.schema.n, self.schema.d

    @property
    def label_counts(self) -> NDArray[np.int64]:
        return super().label_counts if self.schema.targets else self._stored_label_counts

    @property
    def _stored_label_counts(self) -> NDArray[np.int64]:
        unknown = np.array(self.schema.unknown, np.int64)
        positive = np.array(self.schema.positive, np.int64)
        return np.stack([unknown, self.schema.n - unknown - positive, positive])

    @cached_property
    def feature_names(self) -> NDArray[Any]:
        return self._read("var/_index", self.schema.d)

    @cached_property
    def label_names(self) -> NDArray[Any]:
        names = self._read("uns/mlfs/label_names", self.schema.q)
        return np.array([*names, *self.schema.targets], dtype=object) if self.schema.targets else names

    @cached_property
    def kinds(self) -> NDArray[Any]:
        """Array of str, shape (d,): numeric, integer, binary or categorical."""
        values, codes = self._read("var/kind/categories", len(KINDS)), self._read("var/kind/codes", self.schema.d)
        if not np.isin(codes, np.arange(len(KINDS))).all():
            raise DataError("var/kind/codes is damaged: it has an unknown kind", file=self.path, cure=_CURE)
        kinds: NDArray[Any] = values[codes]
        return kinds

    @cached_property
    def categories(self) -> dict[int, tuple[str, ...]]:
        """Feature index -> its values in the order of their codes."""
        text = str(self._read("uns/mlfs/categories", 1)[0])
        try:
            return parse_categories(text)
        except ValueError as error:
            raise DataError(f"uns/mlfs/categories is damaged: {error}", file=self.path, cure=_CURE) from error

    @cached_property
    def features(self) -> FeatureInfo:
        """Ranges, categories and missing values of each feature, counted when the store was made."""
        nonzero = self.n_nonzero
        return FeatureInfo(
            minimum=self._read("var/min", self.schema.d),
            maximum=self._read("var/max", self.schema.d),
            n_categories=self._read("var/n_categories", self.schema.d),
            n_missing=self.n_missing,
            zero_share=None if nonzero is None else zero_share(self.schema.n - self.n_missing, nonzero),
        )

    @cached_property
    def n_missing(self) -> NDArray[np.int64]:
        """Missing values of each feature, shape (d,)."""
        return self._read("var/n_missing", self.schema.d)

    @cached_property
    def n_nonzero(self) -> NDArray[np.int64] | None:
        """Values of each feature that are neither 0 nor missing, shape (d,); None in stores of earlier versions."""
        return self._read("var/n_nonzero", self.schema.d) if "var/n_nonzero" in self._metadata else None

    @cached_property
    def _quantiles(self) -> NDArray[np.float64] | None:
        """`RowSource.quantiles`; None in stores of earlier versions, or whose rows were appended."""
        length = self.schema.d * len(TABLE_SHARES)
        if self._metadata.get(QUANTILES, {}).get("shape") != [length]:
            return None
        return self._read(QUANTILES, length).reshape(self.schema.d, -1)

    @cached_property
    def obs(self) -> dict[str, StoredColumn]:
        """Columns of the rows of the whole store by name: covariates and strata (`convert --obs`)."""
        attributes = self._metadata.get("obs", {}).get("attributes", {})
        columns = {}
        for name in attributes.get("column-order", ()):
            texts = f"obs/{name}/categories"
            values = None
            if texts in self._metadata:
                values = tuple(map(str, self._read(texts, self._metadata[texts]["shape"][0])))
            columns[name] = StoredColumn(name, values, self._location, self.schema.n, [self])
        return columns

    def obs_chunk(self, name: str, number: int) -> NDArray[Any]:
        """Return chunk `number` of a column of `obs`: numbers, NaN where missing; or codes, negative where missing."""
        key = f"obs/{name}/codes" if f"obs/{name}/codes" in self._metadata else f"obs/{name}"
        n = self.schema.n
        with self._damage_of(key):
            metadata = self._metadata[key]
            values = read_chunk(self._read_object, key, metadata, n, number)
            if values is None:
                return np.zeros(min(n, CHUNK), metadata["data_type"])
            return values

    def _read(self, key: str, length: int) -> NDArray[Any]:
        with self._damage_of(key):
            return read_vector(self._read_object, key, self._metadata[key], length)

    @contextlib.contextmanager
    def _damage_of(self, key: str) -> Iterator[None]:
        """Errors of reading an object as errors of the store."""
        try:
            yield
        except (OSError, ValueError, RuntimeError, KeyError, TypeError, AttributeError) as error:
            if fault_of(error) in ("not allowed", "unavailable"):
                raise access_error(self.path, error) from error
            self._location.require_unchanged()
            raise DataError(f"{key} is damaged: {error}", file=self.path, cure=_CURE) from error

    def _read_object(self, key: str) -> bytes:
        """Return the bytes of a small object, which have to be those that were written.

        Raises
        ------
        FileNotFoundError
            There is none: all its values are 0.
        """
        if key not in self.schema.digests:
            raise FileNotFoundError(errno.ENOENT, "no such object", key)
        content = self._contents.pop(key, None)
        if content is None:
            content = open_objects(self._location.path, self._location.options).read(key)
        digest = new_hash()
        digest.update(content)
        if digest.hexdigest() != self.schema.digests[key]:
            raise ValueError("it differs from what was written")
        return content

    @cached_property
    def rows(self) -> StoreRows | RowView:
        """Rows for passes (`mlfs_dask.rows.contract.RowSource`), with the targets of the store if it has any."""
        if not self.schema.targets:
            return self.store_rows
        return RowView(self.store_rows, target_columns=target_columns(self.obs, self.schema.targets, self.path))

    @cached_property
    def store_rows(self) -> StoreRows:
        """All rows of the store."""
        schema, partitions = self.schema, self.schema.partitions
        n, labels_storage = schema.n, schema.labels_storage
        return StoreRows(
            location=self._location,
            X=self._matrix("X", (n, schema.d), schema.storage, partitions.nonzeros[-1], schema.dtype),
            Y=self._matrix("obsm/labels", (n, schema.q), labels_storage, partitions.label_nonzeros[-1], "int8"),
            row_offsets=np.array(partitions.rows, np.int64),
            nonzero_offsets=np.array(partitions.nonzeros, np.int64),
            label_offsets=np.array(partitions.label_nonzeros, np.int64),
            features=self.features,
            label_counts=self._stored_label_counts,
            read_quantiles=lambda: self._quantiles,
            read_columns=lambda: self.obs,
            read_feature_names=lambda: self.feature_names.tolist(),
            digest=self.schema.digest,
            earlier=tuple((state["digest"], state["partitions"]) for state in self.schema.earlier),
        )

    def _matrix(self, name: str, shape: tuple[int, int], storage: str, stored: int, dtype: str) -> MatrixLayout:
        if storage == "dense":
            return MatrixLayout(shape, dense=self.layout(name, shape, dtype))
        return MatrixLayout(
            shape,
            data=self.layout(f"{name}/data", (stored,), dtype),
            indices=self.layout(f"{name}/indices", (stored,), "int32"),
            indptr=self.layout(f"{name}/indptr", (shape[0] + 1,), "int64"),
        )

    def array_metadata(self, key: str) -> Any:
        """Return the metadata of an array; None if there is no such array."""
        return self._metadata.get(key)

    def layout(self, key: str, shape: tuple[int, ...], dtype: str) -> ArrayLayout:
        """Return the layout of an array, from the consolidated metadata: no Zarr and no further object is needed.

        Raises
        ------
        DataError
            There is no such array, or one of another shape or type, or cut in a way that no store has.
        """
        try:
            layout = ArrayLayout.of(key, self._metadata[key])
        except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
            raise DataError(
                f"the metadata of {key} is missing or damaged ({error!r})", file=self.path, cure=_CURE
            ) from None
        now = (layout.shape, layout.data_type)
        if now != (shape, dtype):
            raise DataError(
                f"{key} has shape {now[0]} and type {now[1]}, not {shape} and {dtype}", file=self.path, cure=_CURE
            )
        return layout

    @property
    def _sparse_labels(self) -> bool:
        return not self.schema.targets and self.schema.labels_storage == "sparse"

    def _names_reader(self, attribute: str) -> Callable[[], NDArray[Any]]:
        return partial(_names, self._location, attribute)


class DatasetSubset(Dataset):
    """Subset of a data set, by rows, labels and features, made by `Dataset.subset`. `path` is that of the whole."""

    def __init__(self, whole: Dataset, rows: Chosen | None, labels: Chosen | None, features: Chosen | None) -> None:
        self.path = whole.path
        self._whole = whole
        n = whole.shape[0]
        chosen = None if rows is None else choose_rows(rows, n)
        self._rows = RowMask(chosen, n) if isinstance(chosen, np.ndarray) else chosen
        self._features = None if features is None else choose_columns(features, whole.feature_names.tolist(), "feature")
        self._labels = None if labels is None else choose_columns(labels, whole.label_names.tolist(), "label")
        parts = {"rows": rows, "labels": labels, "features": features}
        self._given = {name: value if isinstance(value, str) else None for name, value in parts.items()}

    def __repr__(self) -> str:
        profile = self.rows.profile
        return f"<{profile.n:,} rows, {profile.d:,} features, {profile.q:,} labels of {self._whole!r}>"

    @property
    def digest(self) -> str | None:
        return self.rows.digest

    def feature_column(self, name: str) -> list[str]:
        column = self._whole.feature_column(name)
        return column if self._features is None else [column[f] for f in self._features.tolist()]

    @property
    def reading_record(self) -> dict[str, Any]:
        return self._whole.reading_record

    @property
    def subset_record(self) -> dict[str, Any]:
        record: dict[str, Any] = {"of": self._whole.subset_record or self._whole.digest}
        for name, chosen in (("rows", self._rows), ("labels", self._labels), ("features", self._features)):
            if chosen is not None:
                record[name] = {"count": len(chosen), "expression": self._given[name]}
        return record

    def may_share_rows(self, record: Mapping[str, Any]) -> bool:
        subset = record.get("subset") or {}
        if self._rows is None or "rows" not in subset or subset["of"] != self._whole.digest:
            return True
        try:
            other = DatasetSubset(self._whole, **expressions(subset))
        except MlfsError:
            return True
        # Another digest: it was chosen in Python, or its file has changed. Nothing tells which rows it had.
        if other.digest != record["digest"] or other._rows is None:
            return True
        return bool(np.isin(row_numbers(self._rows), row_numbers(other._rows)).any())

    @cached_property
    def feature_names(self) -> NDArray[Any]:
        return _part(self._whole.feature_names, self._features)

    @cached_property
    def label_names(self) -> NDArray[Any]:
        return _part(self._whole.label_names, self._labels)

    @cached_property
    def kinds(self) -> NDArray[Any]:
        return _part(self._whole.kinds, self._features)

    @cached_property
    def categories(self) -> dict[int, tuple[str, ...]]:
        categories: dict[int, tuple[str, ...]] = self._whole.categories
        if self._features is None:
            return categories
        return {i: categories[f] for i, f in enumerate(self._features.tolist()) if f in categories}

    @cached_property
    def features(self) -> FeatureInfo:
        return self.rows.features

    @cached_property
    def rows(self) -> RowView:
        return RowView(self._whole.rows, self._rows, features=self._features, labels=self._labels)

    @property
    def _sparse_labels(self) -> bool:
        return self._whole._sparse_labels

    def _names_reader(self, attribute: str) -> Callable[[], NDArray[Any]]:
        read = self._whole._names_reader(attribute)
        chosen = self._features if attribute == "feature_names" else self._labels
        return lambda: _part(read(), chosen)


def expressions(subset: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the expressions that selected the rows, labels and features of a part, as far as they are recorded."""
    return {what: (subset.get(what) or {}).get("expression") for what in ("rows", "labels", "features")}


def _part(values: NDArray[Any], chosen: NDArray[np.int64] | None) -> NDArray[Any]:
    return values if chosen is None else values[chosen]


def _names(location: StoreLocation, attribute: str) -> NDArray[Any]:
    """Return the names of the columns of X or Y of a store, which is opened for them: its arrays travel without."""
    names: NDArray[Any] = getattr(open_store(location.path, storage_options=location.options), attribute)
    return names
