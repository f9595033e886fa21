"""10x Genomics .h5 and folders, as Cell Ranger writes them: cells are rows, and a table says the labels by barcodes.

The matrix of a file is read with h5py, some rows at a time, that of a folder (`matrix.mtx`) as MatrixMarket text; names
and the table of labels are held in memory.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
from collections import Counter
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError, number_of
from mlfs_dask.files.compressed_io import PIECE_BYTES, open_source
from mlfs_dask.files.limits import require_memory
from mlfs_dask.formats.mtx import open_pair, read_header
from mlfs_dask.readers.base import DEFAULT_SPEC, FileSpec, Format, damaged
from mlfs_dask.readers.encoded import is_array, texts_of
from mlfs_dask.readers.label_columns import repeated_name
from mlfs_dask.readers.label_table import read_label_table
from mlfs_dask.readers.label_values import DEFAULT_VALUES
from mlfs_dask.readers.matrix import (
    CsrRows,
    MatrixReader,
    Pair,
    array_rows,
    check_dataset,
    matrix_reader,
    open_hdf5,
    whole,
)
from mlfs_dask.redaction import redact

logger = logging.getLogger(__name__)

_NAMES = ("features/name", "gene_names")
_IDS = ("features/id", "genes")
_TYPES = "features/feature_type"
_GENES = "Gene Expression"


def open_tenx(path: str, spec: FileSpec = DEFAULT_SPEC) -> MatrixReader:
    """Open a 10x .h5 file, or a folder of `matrix.mtx`, `features.tsv` (or `genes.tsv`) and `barcodes.tsv`.

    Features have their names, or their ids where a name stands twice. Beside genes, those of other types (antibodies,
    guides) are left out, unless they are asked for.

    Parameters
    ----------
    path : str
    spec : FileSpec
        `keys` must hold ``labels``: a CSV or TSV file whose first column has the barcodes, in any order, and whose
        others are the labels, or those of `labels.columns`. A cell that is not in it has unknown labels.
        ``feature_types``: types of features, separated by commas, or ``all`` (default: Gene Expression, where there
        are genes).

    Raises
    ------
    DataError
        Not such a file, a table without any of its barcodes, or with one of them twice, or with texts as labels.
    UsageError
        No table of labels.
    """
    if "labels" not in spec.keys or spec.labels.xml or spec.labels.count:
        raise UsageError(
            f"{path}: a 10x file has no labels\n  cure: --key labels=FILE.csv, a table of barcodes and labels, and of "
            "other options of labels --label-columns alone"
        )
    if file := in_folder(path, "matrix.mtx"):
        types, found, barcodes = _folder_names(path, spec)
        opener = functools.partial(open_pair, read_header(file, spec), turned=(True, False))
    else:
        with open_hdf5(path, spec.storage_options) as root:
            matrix = _matrix(root, path)
            types = texts_of(matrix[_TYPES], file=path) if _TYPES in matrix else None
            found = [texts_of(matrix[key], file=path) for key in (*_NAMES, *_IDS) if key in matrix]
            barcodes = texts_of(matrix["barcodes"], file=path)
        opener = functools.partial(_open_pair, path, spec)
    left_out = _left_out(types, spec, path)
    names = _features(found, left_out, path)
    labels, label_names = read_label_table(
        spec.keys["labels"], barcodes, spec.labels, spec.storage_options, file=path, row="barcode"
    )
    return matrix_reader(
        path,
        functools.partial(opener, labels),
        spec,
        feature_names=names,
        label_names=label_names,
        left_out=left_out,
        meaning=DEFAULT_VALUES,
    )


def in_folder(path: str, *names: str) -> str | None:
    """Return the first of these files that is in a folder, packed or not; None where there is no such folder or
    file.
    """
    files = (Path(path, name + packed) for name in names for packed in ("", ".gz"))
    return next((str(file) for file in files if file.is_file()), None)


def _folder_names(path: str, spec: FileSpec) -> tuple[tuple[str, ...] | None, list[tuple[str, ...]], Sequence[str]]:
    """Return the types of the features, if any; their names, and their ids; barcodes."""
    features = _columns(path, spec, "features.tsv", "genes.tsv")
    types = features[2] if len(features) > 2 else None
    return types, features[1::-1], _columns(path, spec, "barcodes.tsv")[0]


def _columns(folder: str, spec: FileSpec, *names: str) -> list[tuple[str, ...]]:
    """Return the columns of a file of a folder, whose fields are separated by tabs."""
    path = in_folder(folder, *names)
    if path is None:
        raise DataError(f"a folder of 10x holds {names[0]}", file=folder, cure="fetch all files of the folder")
    content = bytearray()
    with open_source(path, spec.storage_options).open() as stream:
        while piece := stream.read(PIECE_BYTES):
            content += piece
            require_memory(f"{path}: its names", 8 * len(content))
    if not content.strip():
        raise damaged("the file is empty", path)
    try:
        return list(zip(*(line.split("\t") for line in content.decode().splitlines()), strict=True))
    except ValueError as error:  # UnicodeDecodeError among them
        raise damaged(f"a table of names was expected: {error}", path) from error


def _matrix(root: Any, path: str) -> Any:
    """Return the group of the matrix: `matrix`, or before Cell Ranger 3 that of the only genome."""
    groups = [node for node in root.values() if not is_array(node) and "barcodes" in node and "indptr" in node]
    if len(groups) != 1:
        raise DataError(
            f"a 10x file has one matrix with barcodes, this one has {len(groups)}",
            file=path,
            cure="give a file like filtered_feature_bc_matrix.h5; AnnData is named .h5ad, MATLAB .mat",
        )
    return groups[0]


def _left_out(types: Sequence[str] | None, spec: FileSpec, path: str) -> frozenset[int]:
    """Return the features of types that are not wanted."""
    asked = spec.keys.get("feature_types", "")
    if types is None:
        if asked:
            raise DataError(
                "the file does not say the types of its features", file=path, cure="leave out feature_types"
            )
        return frozenset()
    counts = Counter(types)
    wanted = set(counts)
    if asked and asked.lower() != "all":
        known = {kind.lower(): kind for kind in counts}
        try:
            wanted = {known[kind.strip().lower()] for kind in asked.split(",")}
        except KeyError as error:
            raise DataError(
                "no feature has this type",
                file=path,
                value=error.args[0],
                cure=f"the types are {', '.join(sorted(counts))}; or leave out feature_types",
            ) from error
    elif not asked and _GENES in counts:
        wanted = {_GENES}
    for kind in sorted(set(counts) - wanted):
        logger.warning(
            "%s: %s of type %s left out (--key feature_types=all keeps them)",
            redact(path),
            number_of(counts[kind], "feature"),
            f"{kind!r} is" if counts[kind] == 1 else f"{kind!r} are",
        )
    return frozenset(feature for feature, kind in enumerate(types) if kind not in wanted)


def _features(found: Sequence[tuple[str, ...]], left_out: Collection[int], path: str) -> tuple[str, ...]:
    for names in found:
        if repeated_name([name for feature, name in enumerate(names) if feature not in left_out]) is None:
            return names
    raise DataError("the features have neither names nor ids that differ", file=path, cure="write the file again")


@contextlib.contextmanager
def _open_pair(path: str, spec: FileSpec, labels: NDArray[np.float64]) -> Iterator[list[Pair]]:
    with open_hdf5(path, spec.storage_options) as root:
        matrix = _matrix(root, path)
        d, n = map(int, whole(matrix["shape"], file=path))
        # Columns of features x cells are rows of cells x features.
        indptr = whole(matrix["indptr"], file=path)
        data, indices = (check_dataset(matrix[name], file=path) for name in ("data", "indices"))
        yield [(CsrRows(data, indices, indptr, (n, d), file=path), array_rows(labels))]


def is_folder(path: str) -> bool:
    """Return True for a folder of Cell Ranger."""
    # False where the folder may not be read.
    return any(os.path.isfile(f"{path}/barcodes.tsv{packed}") for packed in ("", ".gz"))  # noqa: PTH113


def _is_group(root: Any) -> bool:
    return hasattr(root, "filename") and any(not is_array(node) and "barcodes" in node for node in root.values())


FORMATS = (
    Format(
        name="10x",
        title="10x Genomics .h5, or a folder of matrix.mtx",
        open=open_tenx,
        keys=("labels", "feature_types"),
        group=_is_group,
        folder=is_folder,
        in_place=lambda path: not is_folder(path),
    ),
)
