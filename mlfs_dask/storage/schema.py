"""What a store holds, as plain data: the attribute `mlfs` of the root group.

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
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from mlfs_dask.errors import DataError

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


@dataclass(frozen=True)
class StoreSchema:
    """Everything about a store that is known without reading an array.

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
    earlier : tuple of dict
        What the store was before each time that rows were appended to it: `digest`, and how many `partitions` it had,
        which are the first ones now.
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
    earlier: tuple[dict[str, Any], ...] = ()
    minus_one: str = ""
    label_values: dict[str, list[str]] = field(default_factory=dict)
    root_digest: str = ""
    format_version: int = FORMAT_VERSION

    def __post_init__(self) -> None:
        self._validate()

    def to_json(self) -> dict[str, Any]:
        """The value of the root attribute `mlfs`."""
        document = dataclasses.asdict(self)
        document["partitions"] = {key: list(value) for key, value in document["partitions"].items()}
        document["label_counts"] = {
            "unknown": list(document.pop("unknown")),
            "positive": list(document.pop("positive")),
        }
        document["sources"] = list(document["sources"])
        document["earlier"] = list(document["earlier"])
        for key in (
            "checksums",
            "earlier",
            "minus_one",
            "label_values",
        ):  # stores had none before rows could be appended
            if not document[key]:
                del document[key]
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
        if version > FORMAT_VERSION:
            raise DataError(
                f"format_version {version} is newer than {FORMAT_VERSION}, the newest this version reads",
                file=path,
                cure="upgrade mlfs-dask",
            )
        try:
            return cls._from_mapping(document)
        except _Malformed as error:
            raise DataError(f"attribute mlfs: {error}", file=path, cure=_DAMAGED) from None

    @classmethod
    def _from_mapping(cls, document: Mapping[str, Any]) -> StoreSchema:
        partitions = _get(document, "partitions", _mapping)
        counts = _get(document, "label_counts", _mapping)
        return cls(
            format_version=document["format_version"],
            version=_get(document, "version", _text),
            created=_get(document, "created", _text),
            command=_get(document, "command", _text),
            n=_get(document, "n", _count),
            d=_get(document, "d", _count),
            q=_get(document, "q", _count),
            nonzeros=_get(document, "nonzeros", _count),
            label_nonzeros=_get(document, "label_nonzeros", _count),
            storage=_get(document, "storage", _text),
            labels_storage=_get(document, "labels_storage", _text),
            dtype=_get(document, "dtype", _text),
            compressor=_get(document, "compressor", _text),
            partitions=Partitions(
                rows=_get(partitions, "rows", _counts, "partitions."),
                nonzeros=_get(partitions, "nonzeros", _counts, "partitions."),
                label_nonzeros=_get(partitions, "label_nonzeros", _counts, "partitions."),
            ),
            unknown=_get(counts, "unknown", _counts, "label_counts."),
            positive=_get(counts, "positive", _counts, "label_counts."),
            constant_features=_get(document, "constant_features", _count),
            kinds=_get(document, "kinds", _sizes),
            features=_get(document, "features", _texts),
            sources=tuple(_get(document, "sources", _sequence)),
            content=_get(document, "content", _texts),
            digest=_get(document, "digest", _text),
            digests=_get(document, "digests", _texts),
            sizes=_get(document, "sizes", _sizes),
            checksums=_get({"checksums": {}, **document}, "checksums", _lists),
            earlier=tuple(_get({"earlier": [], **document}, "earlier", _states)),
            minus_one=_get({"minus_one": "", **document}, "minus_one", _text),
            label_values=_get({"label_values": {}, **document}, "label_values", _label_values),
            root_digest=_get(document, "root_digest", _text),
        )

    def _validate(self) -> None:
        for name, value in (("n", self.n), ("d", self.d), ("q", self.q)):
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
        known = max(map(sum, zip(self.unknown, self.positive, strict=True)))
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
    except (TypeError, ValueError):
        raise _Malformed(f"key {prefix + key!r} has the wrong form") from None


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _count(value: Any) -> int:
    # Programs that read JSON agree on whole numbers below 2**53; no store comes near.
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise TypeError
    return value


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise TypeError
    return value


def _counts(value: Any) -> tuple[int, ...]:
    return tuple(_count(item) for item in _sequence(value))


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError
    return value


def _texts(value: Any) -> dict[str, str]:
    return {_text(key): _text(item) for key, item in _mapping(value).items()}


def _lists(value: Any) -> dict[str, list[int]]:
    return {_text(key): list(_counts(item)) for key, item in _mapping(value).items()}


def _states(value: Any) -> list[dict[str, Any]]:
    states = [_mapping(state) for state in _sequence(value)]
    return [{"digest": _text(state.get("digest")), "partitions": _count(state.get("partitions"))} for state in states]


def _label_values(value: Any) -> dict[str, list[str]]:
    said = {name: [_text(text) for text in _sequence(texts)] for name, texts in _mapping(value).items()}
    if not said.keys() <= {"positive", "negative", "unknown"}:
        raise TypeError
    return said


def _sizes(value: Any) -> dict[str, int]:
    return {_text(key): _count(item) for key, item in _mapping(value).items()}
