"""Labels from a table beside the data: its first column names rows, in any order, and others are their labels."""

from __future__ import annotations

import io
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, require_extra
from mlfs_dask.files.compressed_io import format_suffix, read_small
from mlfs_dask.files.limits import require_memory
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.readers.classes import ClassColumn, CodedLabels
from mlfs_dask.readers.label_columns import find_label_columns, is_nameless, unique_names
from mlfs_dask.readers.label_values import bad_label, entries_of, numbers_of
from mlfs_dask.redaction import redact

logger = logging.getLogger(__name__)

#: It is held in memory: 10 million rows and their labels.
_MAX_TABLE_BYTES = 1 << 28


def read_label_table(
    source: str, rows: Sequence[str], labels: LabelSpec, storage_options: dict[str, Any], *, file: str, row: str
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the labels of the named rows, and names of the labels.

    Parameters
    ----------
    source : str
        CSV or TSV.
    rows : sequence of str
        Names of the rows of the data, in its order.
    labels : LabelSpec
        `columns` are the labels (default: all but the first), which may hold classes or tags.
    storage_options : dict
    file, row : str
        For messages: the data, and what it calls a row.

    Returns
    -------
    ndarray of float64, shape (rows, q)
        1, 0, -1, and NaN where the label is unknown: also where the table lacks the row.
    tuple of str

    Raises
    ------
    DataError
        It is no table, has none of the rows, one of them twice, or something else than labels.
    """
    index, values, label_names = _named_labels(source, labels, storage_options, row=row)
    _tell_differences(index, rows, source, file, row)
    require_memory(f"{source}: {len(label_names):,} labels of {len(rows):,} rows", 16 * len(label_names) * len(rows))
    places = index.get_indexer(list(rows))
    matrix = np.full((len(rows), len(label_names)), np.nan)
    matrix[places >= 0] = values[places[places >= 0]]
    return matrix, label_names


def read_labels_in_order(
    source: str, labels: LabelSpec, storage_options: dict[str, Any]
) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the labels of all rows of a table, as `read_label_table` gives them, and their names.

    A first column without a name holds names of rows, which data without such names cannot be joined by.
    """
    table = _read(source, storage_options)
    if labels.columns is None and is_nameless(str(table.columns[0])):
        table = table.iloc[:, 1:]
    return _labels_in(table, labels, source)


@dataclass(frozen=True)
class LabelTable(CodedLabels):
    """A column of keys, each of which names a row of a table of labels.

    Attributes
    ----------
    name : str
    codes : dict of str to int
        Row of every key.
    label_names : tuple of str
    """

    has_all: ClassVar[bool] = False

    name: str
    codes: Mapping[str, int]
    label_names: tuple[str, ...]
    table: csr_array

    @classmethod
    def read(cls, source: str, labels: LabelSpec, storage_options: dict[str, Any]) -> LabelTable:
        """Return the table in a file; errors are those of `read_label_table`."""
        assert labels.key is not None
        index, values, names = _named_labels(source, labels, storage_options, row="key")
        # What is in no row of the table is unknown.
        table = csr_array(entries_of(np.vstack([values, np.full((1, len(names)), np.nan)])))
        return cls(labels.key, {key: place for place, key in enumerate(index)}, names, table)


def _named_labels(
    source: str, labels: LabelSpec, storage_options: dict[str, Any], *, row: str
) -> tuple[Any, NDArray[np.float64], tuple[str, ...]]:
    """Return the names of rows in the first column of a table, as an index of pandas, and labels with their names."""
    table = _read(source, storage_options)
    # R's `write.table` gives names of rows no header. As an index they would be read as numbers: 7 for 007.
    table = table.set_index(table.columns[0]) if type(table.index).__name__ == "RangeIndex" else table
    table.index = table.index.astype(str)
    if not table.index.is_unique:
        raise DataError(
            f"the {row} stands twice",
            file=source,
            value=table.index[table.index.duplicated()][0],
            cure=f"keep one row of each {row}",
        )
    return (table.index, *_labels_in(table, labels, source))


def _labels_in(table: Any, labels: LabelSpec, source: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    names = [str(name) for name in table.columns]
    chosen = list(range(len(names)))
    if labels.columns is not None:
        chosen = find_label_columns(names, labels.columns, file=source)
    if not chosen:
        raise DataError("the table has no columns of labels", file=source, cure="put them after the first column")
    found = [_labels_of(table.iloc[:, column], names[column], labels, source) for column in sorted(chosen)]
    label_names = tuple(name for _, some in found for name in some)
    require_memory(f"{source}: {len(label_names):,} labels of {len(table):,} rows", 16 * len(label_names) * len(table))
    return np.column_stack([block for block, _ in found]), label_names


def _read(source: str, storage_options: dict[str, Any]) -> Any:
    require_extra("pandas", f"{source}: a table of labels")
    import pandas as pd

    cure = "leave out columns that are not labels"
    text = read_small(source, storage_options, _MAX_TABLE_BYTES, what="a table of labels", cure=cure)
    tabs = format_suffix(source) in (".tsv", ".tab") or (format_suffix(source) == ".txt" and b"\t" in text[:4096])
    how: dict[str, Any] = {"sep": "\t" if tabs else ",", "dtype": str, "keep_default_na": False}
    try:
        header = pd.read_csv(io.BytesIO(text), header=None, nrows=1, **how)
        table = pd.read_csv(io.BytesIO(text), **how)
    except (ValueError, UnicodeDecodeError) as error:
        raise DataError(f"it is not a table: {error}", file=source, cure="give a CSV file with a header row") from error
    unique_names(header.iloc[0].tolist(), file=source, line=1)
    if table.index.nlevels > 1:  # as R writes it, rows have one name more than the header
        raise DataError("rows have more cells than the header has names", file=source, cure="give each column one name")
    return table


def _tell_differences(index: Any, rows: Sequence[str], source: str, file: str, row: str) -> None:
    """Say which rows of one are not in the other."""
    extra = ~index.isin(list(rows))
    missing = len(rows) - int((~extra).sum())
    if missing == len(rows):
        raise DataError(
            f"no {row} of {file} is in the table",
            file=source,
            value=index[0] if len(index) else None,
            cure=f"each {row} stands in its first column, as in the data ({rows[0]!r})",
        )
    if extra.any():
        logger.warning(
            "%s: %d of %d %ss are not in %s, %r for one: left out",
            redact(source),
            extra.sum(),
            len(index),
            row,
            redact(file),
            index[extra][0],
        )
    if missing:
        logger.warning(
            "%s: %d of %d %ss are not in %s: their labels are unknown",
            redact(file),
            missing,
            len(rows),
            row,
            redact(source),
        )


def _labels_of(column: Any, name: str, labels: LabelSpec, source: str) -> tuple[NDArray[np.float64], tuple[str, ...]]:
    """Return the labels of one column, shape (rows, labels), and their names."""
    texts = [str(text) for text in column.unique().tolist()]
    if labels.classes:
        classes = ClassColumn.of(name, texts, labels.separator, labels.values, file=source)
        return numbers_of(classes.labels(column.map(classes.codes).to_numpy(np.float64)).toarray()), classes.label_names
    meanings = {text: labels.values.of_text(text) for text in texts}
    for text, meaning in meanings.items():
        if meaning is None:
            bad_label(text, 0, names=[name], file=source, meaning=labels.values)
    return column.map(meanings).to_numpy(np.float64)[:, None], (name,)
