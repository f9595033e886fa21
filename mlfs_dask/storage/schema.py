"""Schema of a store as plain data: the attribute `mlfs` of the root group.

A `StoreSchema` prints as JSON, reads itself back, and refuses what it does not understand. It imports no
Zarr and no Dask: it is checked before anything else of a store is touched.

Layout of a store (Zarr v3, valid AnnData): `X` and `obsm/labels` are each a dense `array` or a `csr_matrix`
group, `obs/_index` holds row numbers, other columns of `obs` what `convert --obs` keeps, `var` the feature names with
`min`, `max`, `kind`, `n_categories`, `n_missing` and `n_nonzero` (absent from older stores), `uns/mlfs` the label names
and the values of the categorical features.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict, get_type_hints

from mlfs_dask.errors import DataError
from mlfs_dask.files.access import access_error
from mlfs_dask.files.json_text import json_reader, parse_json, require_known_format
from mlfs_dask.files.object_store import ROOT_KEY, Objects, attributes_of
from mlfs_dask.files.result_folders import kind_of

NOT_A_STORE = "make a store with `mlfs convert SOURCE... STORE`, or check the path"
_NO_PATTERNS = "name every store: patterns (*, ?, [a-z]) are put in full by a shell, outside quotes, and not in a plan"

FORMAT_VERSION = 1

#: Names of the matrices: arrays, or groups of the arrays `data`, `indices` and `indptr`.
X_NAME, LABELS_NAME = "X", "obsm/labels"

KINDS = ("numeric", "integer", "binary", "categorical")
"""Kinds of feature. binary: only 0 and 1; integer: only whole numbers; categorical: codes 0..K-1."""

STORAGES = ("dense", "sparse")
DTYPES = ("uint8", "int16", "int32", "float32", "float64")
COMPRESSORS = ("none", "zstd", "lz4")

FEATURE_COLUMNS = {
    "names": "var/_index",
    "minimum": "var/min",
    "maximum": "var/max",
    "kind": "var/kind",
    "n_categories": "var/n_categories",
    "n_missing": "var/n_missing",
}

#: Fields that stand in a mapping of their own, and those that stores of earlier versions do not have.
_LABEL_COUNTS = ("unknown", "positive")
_MAY_BE_ABSENT = ("checksums", "earlier", "minus_one", "label_values", "targets")

_DAMAGED = "the store's metadata is damaged: convert the source files again, or restore a copy"


@dataclass(frozen=True)
class Partitions:
    """Row partitions: partition p holds rows `rows[p]` up to `rows[p + 1]`.

    Attributes
    ----------
    rows : tuple of int, length partitions + 1
        From 0 to n, rising.
    nonzeros : tuple of int, length partitions + 1
        Stored values of X before each boundary (rows * d when X is dense).
    label_nonzeros : tuple of int, length partitions + 1
        Stored entries of Y before each boundary (rows * q when Y is dense).
    """

    rows: tuple[int, ...]
    nonzeros: tuple[int, ...]
    label_nonzeros: tuple[int, ...]

    @property
    def count(self) -> int:
        return len(self.rows) - 1


class EarlierState(TypedDict):
    """State of a store before rows were appended: its digest and its number of partitions, the first ones now."""

    digest: str
    partitions: int


@dataclass(frozen=True)
class StoreSchema:
    """Metadata of a store, known without reading an array.

    Attributes
    ----------
    format_version : int
        Layout of the store; newer ones are refused.
    version : str
        mlfs-dask that wrote it.
    created : str
        Time of writing, ISO 8601, UTC.
    command : str
        What made it.
    n, d, q : int
        Rows, features, labels.
    nonzeros, label_nonzeros : int
        Entries of X and Y other than 0 (missing values count as stored), whatever the storage.
    storage, labels_storage : {"dense", "sparse"}
    dtype : str
        Of X; Y is int8.
    compressor : {"none", "zstd", "lz4"}
    partitions : Partitions
    unknown, positive : tuple of int, length q
        Entries -1 and 1 of each label.
    targets : tuple of str
        Columns of `obs` that are numeric targets.
    constant_features : int
        Features with at most one distinct value.
    kinds : dict of str to int
        Number of features of each kind.
    features : dict of str to str
        What is recorded per feature -> path of the array.
    sources : tuple of dict
        path, bytes, sha256 of every source file.
    content : dict of str to str
        Digest of X, labels, names and kinds apart.
    digest : str
        Content digest: equal for equal content, wherever, whenever and from whatever it was made.
    digests : dict of str to str
        Object key -> BLAKE2b-128 of its bytes, for every object but the root's `zarr.json`.
    sizes : dict of str to int
        Object key -> bytes.
    checksums : dict of str to list of int
        Key of every shard -> `digest.Checksum` of its entries, from which content digests of longer arrays are made.
    earlier : tuple of EarlierState
        What the store was before each time that rows were appended to it.
    minus_one : {"unknown", "negative", ""}
        What a label -1 of the sources meant; "" where there was none, and in stores of earlier versions.
    label_values : dict of str to list of str
        "positive", "negative" and "unknown" -> values of labels that were said to be that.
    root_digest : str
        BLAKE2b-128 of the root's `zarr.json` with this value's digits replaced by zeros.
    """

    n: int
    d: int
    q: int
    nonzeros: int
    label_nonzeros: int
    storage: str
    labels_storage: str
    dtype: str
    compressor: str
    partitions: Partitions
    unknown: tuple[int, ...]
    positive: tuple[int, ...]
    constant_features: int
    kinds: dict[str, int]
    version: str
    created: str
    command: str
    sources: tuple[dict[str, Any], ...] = ()
    features: dict[str, str] = field(default_factory=lambda: dict(FEATURE_COLUMNS))
    content: dict[str, str] = field(default_factory=dict)
    digest: str = ""
    digests: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    checksums: dict[str, list[int]] = field(default_factory=dict)
    earlier: tuple[EarlierState, ...] = ()
    minus_one: str = ""
    label_values: dict[str, list[str]] = field(default_factory=dict)
    targets: tuple[str, ...] = ()
    root_digest: str = ""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        self._validate()

    def to_json(self) -> dict[str, Any]:
        """Return the value of the root attribute `mlfs`."""
        document = dataclasses.asdict(self)
        document["label_counts"] = {name: document.pop(name) for name in _LABEL_COUNTS}
        for name in _MAY_BE_ABSENT:
            if not document[name]:
                del document[name]
        return document

    @classmethod
    def from_json(cls, document: object, *, path: str | None = None) -> StoreSchema:
        """Read the attribute `mlfs` back.

        Parameters
        ----------
        document : object
            What the attribute holds.
        path : str, optional
            The store, for messages.

        Raises
        ------
        DataError
            If the format version is unknown, a key is missing, or a value cannot be right.
        """
        if not isinstance(document, Mapping):
            raise DataError(
                "not an mlfs store: the root group has no attribute 'mlfs'",
                file=path,
                cure="make a store with `mlfs convert`",
            )
        version = document.get("format_version")
        if not isinstance(version, int) or isinstance(version, bool) or version < 1:
            raise DataError(
                f"attribute mlfs: format_version must be a whole number from 1, not {version!r}",
                file=path,
                cure=_DAMAGED,
            )
        require_known_format(version, FORMAT_VERSION, file=path)
        try:
            counts = _get(document, "label_counts", _MAPPING)
            partitions = Partitions(**_fields(Partitions, _get(document, "partitions", _MAPPING), "partitions."))
            labels = _fields(cls, counts, "label_counts.", names=_LABEL_COUNTS)
            present = [name for name in _MAY_BE_ABSENT if name in document]
            others = [name for name in _READERS[cls] if name not in ("partitions", *_LABEL_COUNTS, *_MAY_BE_ABSENT)]
            return cls(partitions=partitions, **labels, **_fields(cls, document, names=[*others, *present]))
        except _Malformed as error:
            raise DataError(f"attribute mlfs: {error}", file=path, cure=_DAMAGED) from None

    def _validate(self) -> None:
        for name, value in (("n", self.n), ("d", self.d), ("q", self.q + len(self.targets))):
            _require(value > 0, f"{name} must be positive, not {value}")
        _require(self.storage in STORAGES, f"unknown storage {self.storage!r}")
        _require(self.labels_storage in STORAGES, f"unknown labels_storage {self.labels_storage!r}")
        _require(self.dtype in DTYPES, f"unknown dtype {self.dtype!r}")
        _require(self.compressor in COMPRESSORS, f"unknown compressor {self.compressor!r}")
        stored = self.nonzeros if self.storage == "sparse" else self.n * self.d
        label_stored = self.label_nonzeros if self.labels_storage == "sparse" else self.n * self.q
        boundaries = (
            ("rows", self.partitions.rows, self.n),
            ("nonzeros", self.partitions.nonzeros, stored),
            ("label_nonzeros", self.partitions.label_nonzeros, label_stored),
        )
        for name, offsets, last in boundaries:
            _require(
                len(offsets) >= 2 and offsets[0] == 0 and offsets[-1] == last,
                f"partitions.{name} must run from 0 to {last}, not "
                f"{offsets[0] if offsets else '()'} to {offsets[-1] if offsets else '()'}",
            )
            _require(
                all(a <= b for a, b in itertools.pairwise(offsets)),
                f"partitions.{name} must not fall",
            )
            _require(
                len(offsets) == len(self.partitions.rows),
                f"partitions.{name} has {len(offsets)} offsets, partitions.rows {len(self.partitions.rows)}",
            )
        for name, counts in (("unknown", self.unknown), ("positive", self.positive)):
            _require(
                len(counts) == self.q,
                f"label_counts.{name} has {len(counts)} entries for {self.q} labels",
            )
        said = set(self.label_values) - {"positive", "negative", "unknown"}
        _require(not said, f"label_values has the key {min(said, default='')!r}")
        known = max(map(sum, zip(self.unknown, self.positive, strict=True)), default=0)
        _require(known <= self.n, f"label_counts has {known} entries of a label for {self.n} rows")
        _require(
            self.constant_features <= self.d, f"constant_features is {self.constant_features} of {self.d} features"
        )


class _Malformed(DataError):
    """A key is missing or its value cannot be right; `from_json` adds the file."""


def _require(condition: bool, problem: str) -> None:
    if not condition:
        raise _Malformed(problem)


def _get(document: Mapping[str, Any], key: str, read: Callable[[Any], Any], prefix: str = "") -> Any:
    _require(key in document, f"key {prefix + key!r} is missing")
    try:
        return read(document[key])
    except TypeError as error:
        raise _Malformed(f"key {prefix + key!r} has the wrong form: {error}") from None


def _fields(
    kind: type, document: Mapping[str, Any], prefix: str = "", *, names: Iterable[str] | None = None
) -> dict[str, Any]:
    """Return the fields of a class, read from a mapping."""
    readers = _READERS[kind]
    return {name: _get(document, name, readers[name], prefix) for name in names or readers}


_MAPPING = json_reader(dict[str, Any])
_READERS: dict[type, dict[str, Callable[[Any], Any]]] = {
    kind: {name: json_reader(hint) for name, hint in get_type_hints(kind).items()} for kind in (Partitions, StoreSchema)
}


def read_schema(objects: Objects) -> tuple[StoreSchema, bytes]:
    """Read and check the root metadata.

    Returns
    -------
    schema : StoreSchema
    root : bytes
        The root's `zarr.json` as it lies there.

    Raises
    ------
    DataError
        If there is no store, or its metadata cannot be read.
    """
    try:
        root = objects.read(ROOT_KEY)
    except FileNotFoundError:
        if not objects.exists():
            cure = _NO_PATTERNS if set(objects.path) & set("*?[") else NOT_A_STORE
            raise DataError("there is no such store", file=objects.path, cure=cure) from None
        if (kind := kind_of(objects.exists)) is not None:
            problem = f"this is {kind.what}, not a store"
            raise DataError(problem, file=objects.path, cure="see it with `mlfs report`, or give its store") from None
        raise DataError(f"not an mlfs store: it has no {ROOT_KEY}", file=objects.path, cure=NOT_A_STORE) from None
    except NotADirectoryError:
        raise DataError("a store is a directory, this is a file", file=objects.path, cure=NOT_A_STORE) from None
    except PermissionError as error:
        raise access_error(objects.path, error) from None
    try:
        document = parse_json(root)
    except ValueError as error:
        cure = "restore a copy, or convert the source files again"
        raise DataError(f"{ROOT_KEY} is damaged: {error}", file=objects.path, cure=cure) from None
    return StoreSchema.from_json(attributes_of(document).get("mlfs"), path=objects.path), root
