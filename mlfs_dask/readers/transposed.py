"""Tables with features as rows and samples as columns, as gene expression has them, and a table of the samples' labels.

The file is read twice: for the names of its rows, and for its values, which go through a temporary file of 8 bytes each
(in TMPDIR), from which samples are read; it is made once a process.
"""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import weakref
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.files.limits import filled_temporary_file
from mlfs_dask.readers.base import BATCH_BYTES, FileSpec, LabelSpec
from mlfs_dask.readers.label_columns import numbered_apart, repeated_name
from mlfs_dask.readers.label_table import read_label_table
from mlfs_dask.readers.label_values import DEFAULT_VALUES
from mlfs_dask.readers.matrix import (
    SMALL_BYTES,
    FileArray,
    MatrixReader,
    Pair,
    Sliceable,
    array_rows,
    fortran_rows,
    matrix_reader,
)
from mlfs_dask.readers.table import TableReader


def open_transposed(path: str, spec: FileSpec, open_table: Callable[..., Any]) -> MatrixReader:
    """Open a table with features as rows; `labels.xml` of `spec` is the table of the samples.

    `open_table` opens a table of its format.

    Raises
    ------
    UsageError
        No table of labels.
    DataError
        A column that is no number, a feature that stands twice, a table of labels that does not fit.
    DoesNotFitError
        The temporary file finds no room.
    """
    labels = spec.labels
    if labels.xml is None:
        raise UsageError(
            f"{path}: rows are features, and no option says where the labels of the samples are\n"
            "  cure: --label-file FILE.csv, a table with the names of the samples in its first column, and "
            "--label-columns NAMES of it"
        )
    alone = replace(spec, labels=LabelSpec(), keys={k: v for k, v in spec.keys.items() if k != "names"})
    table = open_table(path, alone)
    samples = table.header.feature_names
    if samples is None:
        raise DataError("a header row with the names of the samples was expected", file=path, line=1, cure="write one")
    names = tuple(name for some in table.row_names() for name in some)
    names = _distinct(names, spec, path)
    n, d = len(samples), len(names)
    _require_room(path, n, d)
    Y, label_names = read_label_table(labels.xml, samples, labels, spec.storage_options, file=path, row="sample")
    reader = matrix_reader(
        path,
        _Opener(table, Y, (n, d)),
        replace(spec, drop=()),
        feature_names=names,
        label_names=label_names,
        meaning=DEFAULT_VALUES,
    )
    return replace(reader, in_threads=True)


def _distinct(names: tuple[str, ...], spec: FileSpec, path: str) -> tuple[str, ...]:
    if spec.keys.get("names") == "unique":
        return numbered_apart(names)
    twice = repeated_name(names)
    if twice is not None:
        raise DataError(
            "two features (rows) have the same name",
            file=path,
            value=twice,
            cure="rename one, or number repeated names: --key names=unique",
        )
    return names


def _require_room(path: str, n: int, d: int) -> None:
    """Raise DoesNotFitError where the temporary file finds no room."""
    projected, folder = 8 * n * d, tempfile.gettempdir()
    free = shutil.disk_usage(folder).free
    if projected > max(SMALL_BYTES, free):
        raise DoesNotFitError(
            f"{path}: {d:,} features of {n:,} samples, transposed in a temporary file in {folder}",
            projected=projected,
            available=free,
            cure="make room there, set the variable TMPDIR to a folder of a larger disk, or convert fewer columns",
        )


@dataclass
class _Opener:
    """Samples and their labels; the temporary file stays open for the next one who reads in this process."""

    table: TableReader
    Y: NDArray[np.float64]
    shape: tuple[int, int]
    _turned: Sliceable | None = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_turned": None}

    @contextlib.contextmanager
    def __call__(self) -> Iterator[list[Pair]]:
        n, d = self.shape
        yield [(fortran_rows(self._values, (n, d), np.dtype(np.float64)), array_rows(self.Y))]

    def _values(self) -> Sliceable:
        """Return all values, feature after feature."""
        if self._turned is None:
            n, d = self.shape
            with filled_temporary_file("mlfs-transpose-", 8 * n * d) as spool:
                for rows in self.table.rows_of_numbers(BATCH_BYTES):
                    spool.write(np.ascontiguousarray(rows).data)
            if spool.tell() != 8 * n * d:
                raise DataError(
                    "the file has changed since it was opened",
                    file=self.table.path,
                    cure="convert again, from a file that nobody writes to",
                )
            weakref.finalize(self, spool.close)
            self._turned = FileArray(spool, 0, np.dtype(np.float64), n * d, file=self.table.path)
        return self._turned
