"""The schema of a store from the statistics of its rows: storage, type, names, kinds and chunks."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from mlfs_dask.errors import DataError
from mlfs_dask.readers.base import Reader
from mlfs_dask.readers.label_columns import repeated
from mlfs_dask.readers.label_values import MinusOne
from mlfs_dask.storage.array_layout import ArrayLayout
from mlfs_dask.storage.chunking import StoreChunking, chunk_store
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.extension import StoreExtension
from mlfs_dask.storage.numbered_names import NumberedNames
from mlfs_dask.storage.schema import KINDS
from mlfs_dask.storage.statistics import Statistics
from mlfs_dask.storage.writer import Names


@dataclass(frozen=True)
class InferredSchema:
    """Inferred shape, type, chunks and names of a store, and the meaning of -1.

    `minus_one_of_sources` is "" where no label is -1 and nobody has said what it would mean. `new_chunking` cuts the
    rows of the sources, `chunking` all rows of the store: where rows are appended, the two differ.
    """

    n: int
    d: int
    q: int
    dtype: str
    minus_one: MinusOne
    minus_one_of_sources: MinusOne | Literal[""]
    chunking: StoreChunking
    new_chunking: StoreChunking
    names: Names
    statistics: Statistics
    constant_features: int
    warnings: list[str]

    @property
    def layouts(self) -> list[ArrayLayout]:
        """The arrays of the store, X's first."""
        return list(self.chunking.arrays.values())


def _feature_names(reader: Reader, d: int) -> Sequence[str]:
    if reader.header.feature_names is not None:
        names = list(reader.header.feature_names)
        if len(names) != d:
            raise DataError(
                f"rows have {d} features but there are {len(names)} feature names",
                file=reader.path,
                cure="give one name for each feature",
            )
        return names
    return NumberedNames("x", d)


def _check_unique(names: Sequence[str], what: str, path: str) -> None:
    twice = None if isinstance(names, NumberedNames) else repeated(names)
    if twice:
        raise DataError(
            f"two {what}s have the same name (the {what}s number {twice[0] + 1} and {twice[1] + 1})",
            file=path,
            column=names[twice[1]],
            cure="rename one of them",
        )


def infer_schema(
    statistics: Statistics, reader: Reader, options: Options, extension: StoreExtension | None = None
) -> InferredSchema:
    """Return storage, type, names, kinds and chunks of the store, from the statistics of all rows.

    Of a store that becomes longer, `extension`, storage, type and chunks stay; what it records of its rows is added to
    the statistics of the new ones.

    Raises
    ------
    DataError
        There are no rows, features or labels, or the names do not fit.
    """
    header = reader.header
    statistics.grow(header.n_features or 0, header.n_labels or 0)
    if extension is not None:
        extension.check_widths(statistics, reader.path)
    n, d, q = statistics.rows, statistics.n_features, statistics.n_labels
    for count, what, cure in (
        (n, "rows", "check that the file is whole"),
        (d, "features", "check which columns are labels"),
        (q + len(options.file.targets), "labels", "name them: --label-file, --label-columns, --n-labels, or --targets"),
    ):
        if count == 0:
            raise DataError(f"there are no {what}", file=reader.path, cure=cure)
    feature_names = _feature_names(reader, d)
    label_names = header.label_names or NumberedNames("y", q)
    if len(label_names) != q:
        raise DataError(
            f"rows have {q} labels but there are {len(label_names)} label names",
            file=reader.path,
            cure="give one name for each label",
        )
    _check_unique(feature_names, "feature", reader.path)
    _check_unique(label_names, "label", reader.path)
    warnings = []
    minus_ones = int(statistics.minus_ones.sum())
    said = options.file.labels.values.minus_one
    declared = said or header.minus_one
    zeros = n * q - statistics.label_nonzeros
    beside = "all labels are -1" if minus_ones == statistics.rows * q else "labels are -1 beside 0 and 1"
    minus_one = statistics.settle_minus_one(declared)
    if minus_ones and declared is None:
        warnings.append(
            "labels are -1 and 1 and never 0, so -1 is taken as negative; give --labels-unknown -1 if it means unknown"
            if minus_one == "negative"
            else f"{beside}, so -1 is taken as unknown ({minus_ones:,} entries); "
            "if -1 means negative, say --labels-negative -1, and --labels-unknown 0 if 0 means unknown"
        )
    counts = {
        "positive": int(statistics.positive.sum()),
        "negative": n * q - statistics.label_nonzeros,
        "unknown": int(statistics.unknown.sum()),
    }
    for what, count in counts.items():
        if count == 0 and (values := getattr(options.file.labels.values, what)):
            warnings.append(f"no label is {' or '.join(values)}, which --labels-{what} names: check its spelling")
    if minus_ones and zeros and said == "negative":
        warnings.append(
            f"-1 ({minus_ones:,} entries) and 0 ({zeros:,}) are both taken as negative; give --labels-unknown 0 "
            "if 0 means unknown"
        )
    if extension is not None:
        extension.check_values(statistics, reader.path, dtype=options.dtype)
        new_chunking = extension.chunk(statistics, options.partition_bytes)
        statistics.merge(extension.statistics())
        n = statistics.rows
    minimum, maximum = statistics.ranges()
    dtype = options.dtype or statistics.narrowest_dtype()
    if extension is not None:
        dtype = extension.schema.dtype
        chunking = extension.extended(statistics, options.partition_bytes)
    else:
        _check_dtype(statistics, dtype, feature_names, reader.path)
        warnings += _rounded_integers(statistics, feature_names, minimum, maximum, dtype)
        chunking = new_chunking = chunk_store(
            **statistics.sizes(),
            dtype=dtype,
            compressor=options.compressor,
            storage=options.storage,
            partition_bytes=options.partition_bytes,
        )
    # Rounding keeps the order of values: these are the ranges of what is stored.
    minimum, maximum = (bound.astype(dtype).astype(np.float64) for bound in (minimum, maximum))
    kinds, n_categories, categories = _kinds(statistics, reader, minimum, maximum)
    with np.errstate(invalid="ignore"):
        constant = int(((minimum == maximum) | np.isnan(minimum)).sum())
    return InferredSchema(
        n=n,
        d=d,
        q=q,
        dtype=dtype,
        minus_one=minus_one,
        minus_one_of_sources=minus_one if minus_ones or declared else "",
        chunking=chunking,
        new_chunking=new_chunking,
        names=Names(
            features=feature_names,
            labels=label_names,
            kinds=kinds,
            minimum=minimum,
            maximum=maximum,
            n_categories=n_categories,
            n_missing=statistics.missing,
            n_nonzero=statistics.stored if extension is None or extension.dataset.n_nonzero is not None else None,
            quantiles=None,
            categories=categories,
        ),
        statistics=statistics,
        constant_features=constant,
        warnings=warnings
        + [
            f"feature {feature_names[feature]!r} has a different value in each of the {n} rows: it seems to "
            "identify rows, and says nothing about new ones; leave it out with "
            f"--drop {shlex.quote(feature_names[feature])}"
            for feature, seen in sorted(statistics.seen.items())
            if n > 1 and seen.sum() == n and kinds[feature] == KINDS.index("categorical")
        ],
    )


def _rounded_integers(
    statistics: Statistics,
    names: Sequence[str],
    minimum: np.ndarray[Any, Any],
    maximum: np.ndarray[Any, Any],
    dtype: str,
) -> list[str]:
    """Return a line for features of whole numbers that are too large to be told apart in the type of X, or of what
    is read.
    """
    if np.dtype(dtype).kind != "f":
        return []
    with np.errstate(invalid="ignore"):
        largest = np.maximum(-minimum, maximum)
        if dtype == "float32" and not statistics.fits_float32:
            rounding, digits, large = "float32", 24, largest > 2.0**24
        else:
            # Files are read as float64: 2^53 may have been the number after it.
            rounding, digits, large = "float64", 53, largest >= 2.0**53
    large &= statistics.integers
    first = np.flatnonzero(large)[:3].tolist()
    if not first:
        return []
    shown = ", ".join(repr(names[feature]) for feature in first) + (", ..." if large.sum() > len(first) else "")
    return [
        f"{large.sum()} of the features ({shown}) hold whole numbers beyond 2^{digits}, which {rounding} rounds; "
        + ("leave --dtype out to keep them" if rounding == "float32" else "leave identifiers out with --drop")
    ]


def _check_dtype(statistics: Statistics, dtype: str, names: Sequence[str], path: str) -> None:
    not_held = statistics.first_not_held(dtype)
    if not_held is None:
        return
    low, high = (float(bound[not_held.feature]) for bound in statistics.ranges())
    problem = {
        "missing": f"{dtype} cannot hold missing values, and there are some",
        "fraction": f"{dtype} cannot hold fractions, and there are some",
    }.get(not_held.fault, f"values run from {min(low, 0):g} to {max(high, 0):g}, beyond {dtype}")
    raise DataError(
        problem,
        file=path,
        column=names[not_held.feature],
        cure="leave --dtype out: the narrowest type that loses no digit is chosen",
    )


def _kinds(
    statistics: Statistics,
    reader: Reader,
    minimum: np.ndarray[Any, Any],
    maximum: np.ndarray[Any, Any],
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any], dict[int, tuple[str, ...]]]:
    with np.errstate(invalid="ignore"):
        empty = np.isnan(minimum)
        binary = statistics.integers & (minimum >= 0) & (maximum <= 1)
    kinds = np.where(
        binary, KINDS.index("binary"), np.where(statistics.integers & ~empty, KINDS.index("integer"), 0)
    ).astype(np.int8)
    n_categories = np.where(binary, 2, 0).astype(np.int64)
    for feature, values in reader.header.categories.items():
        if len(values) > 2:
            kinds[feature] = KINDS.index("categorical")
            n_categories[feature] = len(values)
    return kinds, n_categories, reader.header.recorded_categories
