"""10x Genomics .h5, as Cell Ranger writes it: cells are rows, and a table says the labels of each by its barcode.

The matrix is read with h5py, some rows at a time; the table of labels is held in memory.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.redaction import redact
from mlfs_dask.storage.readers.base import LabelSpec, ReadOptions
from mlfs_dask.storage.readers.compressed_io import format_suffix, open_source
from mlfs_dask.storage.readers.encoded import is_array, texts_of
from mlfs_dask.storage.readers.label_columns import LABEL_CURE, unique_names
from mlfs_dask.storage.readers.matrix import (
    CsrRows,
    DenseRows,
    MatrixReader,
    Pair,
    check_dataset,
    matrix_reader,
    open_hdf5,
    whole,
)

logger = logging.getLogger(__name__)

_NAMES = ("features/name", "gene_names")
_IDS = ("features/id", "genes")
#: It is held in memory: 10 million cells and their labels.
_MAX_TABLE_BYTES = 1 << 28
#: Texts in small letters that are labels beside numbers; pandas writes them.
_BOOLEANS = {"true": "1", "false": "0"}
_DEFAULTS = ReadOptions()


def open_tenx(path: str, options: ReadOptions = _DEFAULTS) -> MatrixReader:
    """Open a 10x .h5 file.

    Features have their names, or their ids where a name stands twice.

    Parameters
    ----------
    path : str
    options : ReadOptions
        `keys` must hold ``labels``: a CSV or TSV file whose first column has the barcodes, in any order, and whose
        others are the labels. A cell that is not in it has unknown labels.

    Raises
    ------
    DataError
        Not such a file, a table without any of its barcodes, or with one of them twice, or with texts as labels.
    UsageError
        No table of labels.
    """
    if "labels" not in options.keys or options.labels != LabelSpec():
        raise UsageError(
            f"{path}: a 10x file has no labels\n  cure: --key labels=FILE.csv, a table of barcodes and labels, and no "
            "other option of labels"
        )
    with open_hdf5(path, options.storage_options) as root:
        matrix = _matrix(root, path)
        names, barcodes = _features(matrix, path), texts_of(matrix["barcodes"], file=path)
    labels, label_names = _read_labels(options, barcodes, path)
    return matrix_reader(
        path,
        functools.partial(_open_pair, path, options, labels),
        feature_names=names,
        label_names=label_names,
        drop=options.drop,
    )


def _matrix(root: Any, path: str) -> Any:
    """The group of the matrix: `matrix`, or before Cell Ranger 3 that of the only genome."""
    groups = [node for node in root.values() if not is_array(node) and "barcodes" in node and "indptr" in node]
    if len(groups) != 1:
        raise DataError(
            f"a 10x file has one matrix with barcodes, this one has {len(groups)}",
            file=path,
            cure="give a file like filtered_feature_bc_matrix.h5; AnnData is named .h5ad, MATLAB .mat",
        )
    return groups[0]


def _features(matrix: Any, path: str) -> tuple[str, ...]:
    found = [texts_of(matrix[key], file=path) for keys in (_NAMES, _IDS) for key in keys if key in matrix]
    distinct = next((names for names in found if len(set(names)) == len(names)), None)
    if distinct is None:
        raise DataError("the features have neither names nor ids that differ", file=path, cure="write the file again")
    return distinct


def _read_labels(
    options: ReadOptions, barcodes: tuple[str, ...], path: str
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Labels of the cells in the order of the file, NaN where the table does not have one."""
    import pandas as pd

    source = options.keys["labels"]
    with open_source(source, options.storage_options).open() as stream:
        text = stream.read(_MAX_TABLE_BYTES + 1)
        if len(text) > _MAX_TABLE_BYTES:
            raise DataError(
                f"a table of labels has at most {_MAX_TABLE_BYTES >> 20} MiB",
                file=source,
                cure="leave out columns that are no labels",
            )
        how: dict[str, Any] = {"sep": "\t" if format_suffix(source) in (".tsv", ".tab") else ",", "dtype": str}
        try:
            header = pd.read_csv(io.BytesIO(text), header=None, nrows=1, keep_default_na=False, **how)
            table = pd.read_csv(io.BytesIO(text), index_col=0, na_values=["?"], **how)
        except (ValueError, UnicodeDecodeError) as error:
            raise DataError(
                f"it is no table: {error}", file=source, cure="give a CSV file with a header row"
            ) from error
    unique_names(header.iloc[0].tolist(), file=source, line=1)
    table.index = table.index.astype(str)
    if not table.index.is_unique:
        raise DataError(
            "the barcode stands twice",
            file=source,
            value=table.index[table.index.duplicated()][0],
            cure="keep one row of each cell",
        )
    for name in table.columns:
        texts = table[name].str.strip().str.lower()
        numbers = pd.to_numeric(texts.replace(_BOOLEANS), errors="coerce")
        no_number = texts.notna() & numbers.isna()
        if no_number.any():
            raise DataError(
                "a column of labels holds texts",
                file=source,
                column=str(name),
                value=table[name][no_number].iloc[0],
                cure=LABEL_CURE,
            )
        table[name] = numbers
    missing = len(barcodes) - int(table.index.isin(barcodes).sum())
    if missing == len(barcodes):
        raise DataError(f"no barcode of {path} is in the table", file=source, cure="barcodes stand in its first column")
    if missing:
        logger.warning(
            "%s: %d of %d cells are not in %s: their labels are unknown",
            redact(path),
            missing,
            len(barcodes),
            redact(source),
        )
    return table.reindex(list(barcodes)).to_numpy(np.float64), tuple(map(str, table.columns))


@contextlib.contextmanager
def _open_pair(path: str, options: ReadOptions, labels: NDArray[np.float64]) -> Iterator[list[Pair]]:
    with open_hdf5(path, options.storage_options) as root:
        matrix = _matrix(root, path)
        d, n = map(int, whole(matrix["shape"], file=path))
        # Columns of features x cells are rows of cells x features.
        indptr = whole(matrix["indptr"], file=path)
        data, indices = (check_dataset(matrix[name], file=path) for name in ("data", "indices"))
        yield [(CsrRows(data, indices, indptr, (n, d), file=path), DenseRows(labels))]
