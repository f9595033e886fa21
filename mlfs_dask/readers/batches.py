"""Tables that give their rows in Arrow batches, again and again: a LazyFrame of polars, a dataset of Arrow.

They are read piece by piece where pieces cost no more than the whole: row groups of Parquet in a dataset, and rows of a
LazyFrame that polars takes out of Parquet without what stands before them. Any other table is one piece.
"""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from mlfs_dask.errors import DataError
from mlfs_dask.readers.base import SCAN_ROWS, Batch, FileSpec, Header, Part, parts_at, sort_categories
from mlfs_dask.readers.label_columns import unique_names
from mlfs_dask.readers.table import TableReader, choose_columns, is_text, narrowest

#: Rows of a piece of a LazyFrame: with as many, eight pieces take the processor as long as the whole.
_PIECE_ROWS = 1 << 18


class Scan(NamedTuple):
    """Source of batches of a table: its schema, pieces and batches.

    Attributes
    ----------
    schema : pyarrow.Schema
    starts : tuple of int
        The first row of each piece, and n.
    ahead_bytes : int
        Bytes that the library may read ahead of the batch that is worked on.
    read : callable
        From names of columns, a number of rows and a piece to batches of it, with about as many rows.
    """

    schema: Any
    starts: tuple[int, ...]
    ahead_bytes: int
    read: Callable[[Sequence[str], int, int], Iterator[Any]]


#: Bytes that a library reads ahead of the batch that is worked on, or all of a smaller table. Nothing tells how much it
#: is; of Parquet in row groups of 200 MB it was 0.6 GB with Arrow and 1.7 GB with polars (`benchmarks/sources.py`).
ARROW_AHEAD, POLARS_AHEAD = 1 << 30, 2 << 30


@dataclass(frozen=True, kw_only=True)
class BatchReader(TableReader):
    """A table that is read piece by piece; made by `open_batches`. Parts are of rows."""

    _scan: Scan

    enterable: bool = True

    def held_bytes(self, batch_bytes: int) -> int:
        """See `Reader`."""
        longest = int(np.diff(self._scan.starts).max(initial=0))
        return 4 * batch_bytes + min(8 * longest * len(self._names), self._scan.ahead_bytes)

    def parts(self, part_bytes: int) -> list[Part]:
        """Return runs of pieces of about `part_bytes`, 8 bytes a value."""
        starts, rows = [0], max(1, part_bytes // max(1, 8 * len(self._names)))
        for start, stop in itertools.pairwise(self._scan.starts):
            if stop - starts[-1] > rows and start > starts[-1]:
                starts.append(start)
        return parts_at(starts, self._scan.starts[-1], rows=True)

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield the rows of a part, from its first. See `Reader.read`.

        Raises
        ------
        DataError
            There are more or fewer than there were.
        """
        columns = (*self._features, *self._labels)
        names = [self._names[column] for column in columns]
        rows, row = max(1, batch_bytes // self._row_bytes_held(len(columns))), part.start
        for piece in range(self._scan.starts.index(part.start), self._scan.starts.index(part.stop)):
            first, last = self._scan.starts[piece : piece + 2]
            for batch in self._scan.read(names, rows, piece):
                for offset in range(0, batch.num_rows, rows):
                    some = batch.slice(offset, rows)
                    X, Y = self._matrices([some], lambda at, row=row: {"row": row + at + 1})  # type: ignore[misc]
                    row += some.num_rows
                    yield Batch(X, Y)
            if row != last:
                raise DataError(
                    f"it gave {row - first:,} rows, and {last - first:,} before",
                    file=self.path,
                    cure="give a table that gives the same rows each time, or convert it to a store",
                )

    def _arrow_name(self, column: int) -> str:
        return self._names[column]

    def _text_batches(self, columns: Sequence[int]) -> Iterator[Any]:
        for column in columns:
            for piece in range(len(self._scan.starts) - 1):
                yield from self._scan.read([self._names[column]], SCAN_ROWS, piece)


def open_batches(scan: Scan, spec: FileSpec, *, what: str) -> BatchReader:
    """Return a reader of a table by batches.

    Parameters
    ----------
    scan : Scan
    spec : FileSpec
        `labels` by columns; without them all columns are features.
    what : str
        What it is, for messages.

    Raises
    ------
    DataError
        A column of a type that is neither number nor text; an unknown label column.
    """
    schema, n = scan.schema, scan.starts[-1]
    names = tuple(schema.names)
    unique_names(names, file=what)
    features, labels = list(range(len(names))), list[int]()
    if spec.labels.names_columns:
        features, labels = choose_columns(names, spec, ignored=(), file=what)
    reader = BatchReader(
        header=Header.of_columns(names, features, labels, n_rows=n),
        path=what,
        _names=names,
        _features=tuple(features),
        _labels=tuple(labels),
        _texts=frozenset(column for column in (*features, *labels) if is_text(schema.field(column), what)),
        _meaning=spec.labels.values,
        dtype=narrowest(schema.field(column).type for column in features),
        _scan=scan,
    )
    texts = [place for place, column in enumerate(features) if column in reader._texts]
    categories = {place: sort_categories(values) for place, values in reader.distinct(texts).items()}
    return reader.with_categories(categories) if categories else reader


def scan_of(table: Any) -> Scan:
    """Return the batches of a LazyFrame of polars or a dataset of Arrow."""
    return _scan_of_frame(table) if hasattr(table, "collect_schema") else _scan_of_dataset(table)


def _scan_of_dataset(dataset: Any) -> Scan:
    import pyarrow.dataset as arrow

    ahead: dict[str, Any] = {"batch_readahead": 2, "fragment_readahead": 1}
    pieces, counts = [dataset], None
    if isinstance(getattr(dataset, "format", None), arrow.ParquetFileFormat):
        # Whole row groups would be held otherwise, packed and unpacked.
        ahead["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
            pre_buffer=False, use_buffered_stream=True, buffer_size=1 << 16
        )
        with contextlib.suppress(ValueError):  # a filter of the dataset would be none of its pieces
            pieces = [group for fragment in dataset.get_fragments() for group in fragment.split_by_row_group()]
            # Their own `count_rows` counts the rows of the whole file.
            counts = [sum(info.num_rows for info in group.row_groups) for group in pieces]
            ahead["schema"] = dataset.schema  # which files may lack columns of
    counts = [int(dataset.count_rows())] if counts is None else counts
    starts = [0, *itertools.accumulate(counts)]

    def read(names: Sequence[str], rows: int, piece: int) -> Iterator[Any]:
        batches: Iterator[Any] = pieces[piece].to_batches(columns=list(names), batch_size=rows, **ahead)
        return batches

    return Scan(dataset.schema, tuple(starts), ARROW_AHEAD, read)


def _scan_of_frame(frame: Any) -> Scan:
    import polars as pl

    oldest = pl.CompatLevel.oldest()
    empty = pl.DataFrame(schema=frame.collect_schema())
    n = int(frame.select(pl.len()).collect().item())
    # Rows in the middle are cheap where polars asks Parquet alone for them: nothing is sliced after it was read.
    plan = frame.slice(1, 1).explain()
    cheap = "SLICE[" not in plan and plan.count("SCAN") == plan.count("Parquet SCAN") > 0
    starts = (*range(0, max(n, 1), _PIECE_ROWS if cheap else max(n, 1)), n)

    def read(names: Sequence[str], rows: int, piece: int) -> Iterator[Any]:
        first, last = starts[piece : piece + 2]
        some = frame.select(list(names))
        some = some if len(starts) == 2 else some.slice(first, last - first)
        for batch in some.collect_batches(chunk_size=rows, maintain_order=True):
            yield from batch.to_arrow(compat_level=oldest).to_batches()

    return Scan(empty.to_arrow(compat_level=oldest).schema, starts, POLARS_AHEAD, read)
