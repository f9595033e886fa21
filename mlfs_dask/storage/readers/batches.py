"""Tables that give their rows in Arrow batches, again and again, and nothing from the middle: a LazyFrame of polars, a
dataset of Arrow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.base import Batch, Header, Part, ReadOptions, sort_categories
from mlfs_dask.storage.readers.label_columns import unique_names
from mlfs_dask.storage.readers.parquet import is_text, narrowest
from mlfs_dask.storage.readers.table import TableReader, choose_columns

#: From names of columns and a number of rows to batches of these, with about as many rows.
Scan = Callable[[Sequence[str], int], Iterator[Any]]

_SCAN_ROWS = 1 << 16

#: Bytes that a library reads ahead of the batch that is worked on, or all of a smaller table. Nothing tells how much it
#: is; of Parquet in row groups of 200 MB it was 0.6 GB with Arrow and 1.7 GB with polars (`benchmarks/sources.py`).
ARROW_AHEAD, POLARS_AHEAD = 1 << 30, 2 << 30


@dataclass(frozen=True, kw_only=True)
class BatchReader(TableReader):
    """A table that is read from its first row to its last; made by `open_batches`. Positions are rows."""

    _scan: Scan
    _n: int
    _ahead_bytes: int

    enterable: ClassVar[bool] = True
    sparse: ClassVar[bool] = False

    @property
    def nonzeros(self) -> int:
        """See `RowReader`."""
        return self._n * len(self._features)

    def row_of(self, position: int) -> int:
        """See `RowReader`."""
        return position

    def held_bytes(self, batch_bytes: int) -> int:
        """See `RowReader`."""
        return 4 * batch_bytes + min(8 * self._n * len(self._names), self._ahead_bytes)

    def only_labels(self) -> BatchReader:
        """See `RowReader`."""
        return replace(self, header=self.header.labels_only(), _features=())

    def parts(self, part_bytes: int) -> list[Part]:
        """All rows, which come in their order alone."""
        return [Part(0, 0, self._n)]

    def read(self, part: Part, *, batch_bytes: int, start: int | None = None) -> Iterator[Batch]:
        """See `Reader.read`."""
        for batch in self.blocks(part, batch_bytes=batch_bytes, start=start):
            yield batch._replace(X=batch.X.astype(float, copy=False))

    def blocks(self, part: Part, *, batch_bytes: int, start: int | None = None) -> Iterator[Batch]:
        """All rows, from the first. See `RowReader.blocks`.

        Raises
        ------
        DataError
            There are more or fewer than there were.
        """
        columns = (*self._features, *self._labels)
        rows, row = max(1, batch_bytes // self._row_bytes_held(len(columns))), 0
        for batch in self._scan([self._names[column] for column in columns], rows):
            for first in range(0, batch.num_rows, rows):
                some = batch.slice(first, rows)
                X, Y = self._matrices([some], lambda offset, row=row: {"row": row + offset + 1})  # type: ignore[misc]
                row += some.num_rows
                yield Batch(X, Y, row)
        if row != self._n:
            raise DataError(
                f"it gave {row:,} rows, and {self._n:,} before",
                file=self.path,
                cure="give a table that gives the same rows each time, or convert it to a store",
            )

    def _arrow_name(self, column: int) -> str:
        return self._names[column]

    def _text_batches(self, columns: Sequence[int]) -> Iterator[Any]:
        for column in columns:
            yield from self._scan([self._names[column]], _SCAN_ROWS)


def open_batches(scan: Scan, schema: Any, n: int, ahead_bytes: int, options: ReadOptions, *, what: str) -> BatchReader:
    """A reader of a table by batches.

    Parameters
    ----------
    scan : callable
    schema : pyarrow.Schema
    n : int
        Rows.
    ahead_bytes : int
        Bytes that the library may read ahead.
    options : ReadOptions
        `labels` by columns; without them all columns are features.
    what : str
        What it is, for messages.

    Raises
    ------
    DataError
        A column of a type that is neither number nor text; an unknown label column.
    """
    names = tuple(schema.names)
    unique_names(names, file=what)
    features, labels = list(range(len(names))), list[int]()
    if options.labels.names_columns:
        features, labels = choose_columns(names, options, ignored=(), file=what)
    reader = BatchReader(
        header=Header.of_columns(names, features, labels, n_rows=n),
        path=what,
        _names=names,
        _features=tuple(features),
        _labels=tuple(labels),
        _texts=frozenset(column for column in (*features, *labels) if is_text(schema.field(column), what)),
        _meaning=options.labels.values,
        dtype=narrowest(schema.field(column).type for column in features),
        _scan=scan,
        _n=n,
        _ahead_bytes=ahead_bytes,
    )
    texts = [place for place, column in enumerate(features) if column in reader._texts]
    categories = {place: sort_categories(values) for place, values in reader.distinct(texts).items()}
    return reader.with_categories(categories) if categories else reader


def scan_of(table: Any) -> tuple[Scan, Any, int, int]:
    """How a LazyFrame of polars or a dataset of Arrow is read: its batches, schema and rows, and bytes read ahead."""
    if not hasattr(table, "collect_schema"):
        import pyarrow.dataset as arrow

        ahead: dict[str, Any] = {"batch_readahead": 2, "fragment_readahead": 1}
        if isinstance(getattr(table, "format", None), arrow.ParquetFileFormat):
            # Whole row groups would be held otherwise, packed and unpacked.
            ahead["fragment_scan_options"] = arrow.ParquetFragmentScanOptions(
                pre_buffer=False, use_buffered_stream=True, buffer_size=1 << 16
            )

        def read_dataset(names: Sequence[str], rows: int) -> Iterator[Any]:
            batches: Iterator[Any] = table.to_batches(columns=list(names), batch_size=rows, **ahead)
            return batches

        return read_dataset, table.schema, int(table.count_rows()), ARROW_AHEAD
    import polars as pl

    oldest = pl.CompatLevel.oldest()

    def read_frame(names: Sequence[str], rows: int) -> Iterator[Any]:
        for frame in table.select(list(names)).collect_batches(chunk_size=rows, maintain_order=True):
            yield from frame.to_arrow(compat_level=oldest).to_batches()

    empty = pl.DataFrame(schema=table.collect_schema())
    n = int(table.select(pl.len()).collect().item())
    return read_frame, empty.to_arrow(compat_level=oldest).schema, n, POLARS_AHEAD
