"""The first half of a conversion: batches of rows become raw arrays in a working directory.

Each part of the source has one file of arrays, appended batch by batch, and a journal that is written when the part
is finished, with the checksum of every batch. A part that was interrupted is read again, and bytes that a power cut
has lost are noticed. Values are kept in the narrowest type that loses no digit of the part so far, rows in the smaller
of dense and CSR form.

`SpooledRows` reads any run of rows or nonzeros back, whatever the batches were, holding one batch at most.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import zipfile
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError
from mlfs_dask.files.json_text import parse_json
from mlfs_dask.readers.base import Batch, Part, Reader
from mlfs_dask.readers.label_values import MINUS_ONE, UNKNOWN, MinusOne
from mlfs_dask.storage.chunking import INDEX_BYTES, OFFSET_BYTES
from mlfs_dask.storage.digest import crc32c
from mlfs_dask.storage.schema import LABELS_NAME
from mlfs_dask.storage.statistics import Statistics
from mlfs_dask.typing import Matrix

_ALIGNMENT = 8


@dataclass(frozen=True)
class SpooledBatch:
    """Location and shape of one batch in its part's file.

    Attributes
    ----------
    offset, end : int
        First byte, and the one behind the last.
    rows, width, label_width : int
        Shape of X and of Y.
    nonzeros, label_nonzeros, minus_ones : int
        `minus_ones` of the `label_nonzeros` are `MINUS_ONE`.
    arrays : dict of str to (int, str, int)
        First byte, dtype and entries of each array: `data` of X, with `indptr` and `indices` where it is sparse, and
        the same of Y, which always is, behind `label_`.
    checksum : int
        CRC-32C of the bytes.
    """

    offset: int
    end: int
    rows: int
    width: int
    label_width: int
    nonzeros: int
    label_nonzeros: int
    minus_ones: int
    arrays: dict[str, tuple[int, str, int]]
    checksum: int

    @property
    def sparse(self) -> bool:
        """True if X is in CSR form."""
        return "indptr" in self.arrays


def data_path(directory: Path, part: int) -> Path:
    return directory / f"{part:06d}.bin"


def journal_path(directory: Path, part: int) -> Path:
    return directory / f"{part:06d}.json"


def statistics_path(directory: Path, part: int) -> Path:
    return directory / f"{part:06d}.npz"


def read_journal(directory: Path, part: int) -> list[SpooledBatch] | None:
    """Return batches of a part; None unless it is finished."""
    try:
        records = parse_json(journal_path(directory, part).read_bytes())
        return [SpooledBatch(**record) for record in records]
    except (FileNotFoundError, ValueError, TypeError):
        return None


def spool_part(
    reader: Reader, part: Part, directory: Path, *, batch_bytes: int, on_batch: Callable[[int], None]
) -> None:
    """Read one part of the source into the working directory, unless an earlier conversion has finished it.

    Parameters
    ----------
    reader : Reader
    part : Part
    directory : Path
        Of the staged parts.
    batch_bytes : int
        Bytes of one batch; a few times that is held.
    on_batch : callable
        Called with the number of rows after every batch; may raise to stop.

    Raises
    ------
    DataError
        If the data is invalid.
    """
    if _is_finished(directory, part.index):
        return
    # Two values need no watching: only a feature of many can identify rows.
    statistics = Statistics(
        {feature: len(values) for feature, values in reader.header.categories.items() if len(values) > 2}
    )
    batches: list[SpooledBatch] = []
    rows = end = 0
    with data_path(directory, part.index).open("wb") as data:
        for batch in reader.read(part, batch_bytes=batch_bytes):
            count = _row_count(batch, reader.path)
            if not count:
                continue
            X, Y, nonzeros = canonical(batch, reader.path, statistics)
            _check_finite(X, statistics, reader, part, rows, batch)
            rows += count
            batches.append(_append(data, end, X, Y, dtype=statistics.narrowest_dtype(), nonzeros=nonzeros))
            del X, Y, batch
            end = batches[-1].end
            on_batch(count)
    temporary = statistics_path(directory, part.index).with_suffix(".tmp")
    statistics.save(temporary)
    temporary.replace(statistics_path(directory, part.index))
    temporary.write_text(json.dumps([dataclasses.asdict(batch) for batch in batches]))
    temporary.replace(journal_path(directory, part.index))


def _is_finished(directory: Path, part: int) -> bool:
    """Return True if a part was read to its end and its file has the checksums of its journal."""
    batches = read_journal(directory, part)
    if batches is None:
        return False
    try:
        Statistics.load(statistics_path(directory, part))
        with data_path(directory, part).open("rb") as file:
            return all(crc32c(file.read(batch.end - batch.offset)) == batch.checksum for batch in batches)
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        return False


def _row_count(batch: Batch, path: str) -> int:
    rows = int(batch.X.shape[0])
    if batch.Y.shape[0] != rows:
        raise DataError(
            f"{rows} rows of features but {batch.Y.shape[0]} rows of labels",
            file=path,
            line=batch.first_line,
            cure="give features and labels of the same rows",
        )
    return rows


def canonical(batch: Batch, path: str, statistics: Statistics) -> tuple[Matrix, csr_array, int]:
    """Return X without -0 and odd NaNs; CSR sorted, without repeats and explicit zeros; Y likewise; both counted.

    A dense X that owns its memory is changed in place: each tile of it is tidied and counted while it is in the
    cache, since more passes over memory than one would take longer than parsing short texts.

    Returns
    -------
    X : float ndarray or csr_array, shape (rows, d)
        The smaller of the two forms.
    Y : csr_array of int8, shape (rows, q)
    nonzeros : int
        Of X, missing values among them.
    """
    X: Matrix = batch.X
    X = X.astype(np.float64, copy=False)
    Y = csr_array(batch.Y)
    if Y.nnz:
        if not Y.has_canonical_format:
            Y = Y.astype(np.int64)
            Y.sum_duplicates()
            Y.data = np.sign(Y.data)  # a label listed twice is one label
        _check_labels(Y, batch, path)
        Y.eliminate_zeros()
    before = statistics.nonzeros
    with np.errstate(invalid="ignore"):
        if isinstance(X, np.ndarray):
            if not (X.flags.owndata and X.flags.c_contiguous and X.flags.writeable):
                X = np.array(X, order="C")
            statistics.add_dense(X, tidy=True)
            csr_bytes = (statistics.nonzeros - before) * (X.itemsize + INDEX_BYTES) + OFFSET_BYTES * len(X)
            if 2 * csr_bytes <= X.nbytes:
                X = csr_array(X)
        else:
            X = csr_array(X)
            if not X.has_canonical_format:
                X = X.copy()
                X.sum_duplicates()
            if np.count_nonzero(X.data) < X.nnz:
                X = X.copy()
                X.eliminate_zeros()
            X.data = _plain(X.data)
            statistics.add_sparse(X)
        statistics.add_labels(Y)
    return X, Y, statistics.nonzeros - before


def _plain(values: NDArray[np.floating[Any]]) -> NDArray[np.floating[Any]]:
    # -0 and 0 are the same number, and so are all NaNs: equal content must have equal bytes.
    values = values + 0.0
    holes = np.isnan(values)
    if holes.any():
        values[holes] = np.nan
    return values


def _check_labels(Y: csr_array, batch: Batch, path: str) -> None:
    wrong = ~np.isin(Y.data, (1, 0, UNKNOWN, MINUS_ONE))
    if wrong.any():
        entry = int(np.argmax(wrong))
        row = int(np.searchsorted(Y.indptr, entry, side="right")) - 1
        raise DataError(
            f"labels must be 0 or 1 (-1 = unknown), not {Y.data[entry]}",
            file=path,
            line=None if batch.first_line is None else batch.first_line + row,
            column=f"label {int(Y.indices[entry]) + 1}",
            cure="binarise the labels",
        )


def _check_finite(
    X: Matrix,
    statistics: Statistics,
    reader: Reader,
    part: Part,
    part_rows: int,
    batch: Batch,
) -> None:
    infinite = (statistics.maximum == np.inf) & (statistics.stored > 0)
    infinite |= (statistics.minimum == -np.inf) & (statistics.stored > 0)
    if not infinite.any():
        return
    values = X if isinstance(X, np.ndarray) else X.data
    entry = int(np.argmax(np.isinf(values)))
    if isinstance(X, np.ndarray):
        row, column = divmod(entry, X.shape[1])
    else:
        row = int(np.searchsorted(X.indptr, entry, side="right")) - 1
        column = int(X.indices[entry])
    names = reader.header.feature_names
    # Text formats mostly know the line.
    place = "" if batch.first_line is not None or part.row is None else f" (row {part.row + part_rows + row + 1})"
    raise DataError(
        f"a feature must be a finite number or missing{place}",
        file=reader.path,
        line=None if batch.first_line is None else batch.first_line + row,
        column=names[column] if names is not None else column + 1,
        value=float(values.flat[entry]),
        cure="replace infinite values, or leave the field empty (missing)",
    )


def _append(data: IO[bytes], offset: int, X: Matrix, Y: csr_array, *, dtype: str, nonzeros: int) -> SpooledBatch:
    is_dense = isinstance(X, np.ndarray)
    with np.errstate(over="ignore", invalid="ignore"):
        arrays = {"data": np.ascontiguousarray((X if is_dense else X.data).astype(dtype, copy=False))}
    for letter, matrix in [("label_", Y)] if is_dense else [("", X), ("label_", Y)]:
        arrays[f"{letter}indptr"] = matrix.indptr.astype(np.int64)
        arrays[f"{letter}indices"] = matrix.indices.astype(np.int32)
    arrays["label_data"] = Y.data.astype(np.int8)
    places, end, checksum = {}, offset, 0
    for name, array in arrays.items():
        content = array.reshape(-1).view(np.uint8).data
        padding = bytes(-content.nbytes % _ALIGNMENT)
        data.write(content)
        data.write(padding)
        checksum = crc32c(padding, crc32c(content, checksum))
        places[name] = end, array.dtype.name, array.size
        end += content.nbytes + len(padding)
    return SpooledBatch(
        offset=offset,
        end=end,
        rows=X.shape[0],
        width=X.shape[1],
        label_width=Y.shape[1],
        nonzeros=nonzeros,
        label_nonzeros=Y.nnz,
        minus_ones=int(np.count_nonzero(Y.data == MINUS_ONE)),
        arrays=places,
        checksum=checksum,
    )


class SpooledRows:
    """All staged batches in the order of the source, read by rows or by nonzeros.

    Holds a few integers per batch, and for each thread the last batch that it had to convert from dense to CSR, and
    the labels of the last one in which -1 had to be settled.

    Parameters
    ----------
    directory : Path
        Of the staged parts.
    parts : int
    minus_one : {"unknown", "negative"}
        What a -1 of the source means among the labels.
    """

    def __init__(self, directory: Path, parts: int, *, minus_one: MinusOne = "unknown") -> None:
        self._directory = directory
        self._minus_one = minus_one
        self._batches: list[SpooledBatch] = []
        self._files: list[int] = []
        for part in range(parts):
            batches = read_journal(directory, part)
            if batches is None:
                raise RuntimeError(f"part {part} is not finished")
            self._batches += batches
            self._files += [part] * len(batches)
        self._rows = _offsets(batch.rows for batch in self._batches)
        self._nonzeros = _offsets(batch.nonzeros for batch in self._batches)
        self._label_nonzeros = _offsets(
            batch.label_nonzeros - batch.minus_ones * (minus_one == "negative") for batch in self._batches
        )
        self._of_thread = threading.local()
        self._opened: set[IO[bytes]] = set()

    @property
    def n(self) -> int:
        """Rows."""
        return self._rows[-1]

    def close(self) -> None:
        while self._opened:
            self._opened.pop().close()
        self._of_thread = threading.local()

    def __enter__(self) -> SpooledRows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self, index: int, name: str, start: int, stop: int) -> NDArray[Any]:
        """Return entries start..stop of one array of one batch."""
        out = np.empty(stop - start, self._batches[index].arrays[name][1])
        self._read_into(index, name, start, out)
        return out

    def _read_into(self, index: int, name: str, start: int, out: NDArray[Any]) -> None:
        offset = self._batches[index].arrays[name][0]
        part = self._files[index]
        file = self._file(part)
        file.seek(offset + start * out.itemsize)
        view = memoryview(out.reshape(-1).view(np.uint8))  # type: ignore[arg-type]
        done = 0
        while done < view.nbytes:
            got = os.readv(file.fileno(), [view[done:]])
            if not got:
                raise OSError(f"{data_path(self._directory, part)} is shorter than its journal says")
            done += got

    def _file(self, part: int) -> IO[bytes]:
        """Return the open file of a part: one for each thread, which has a position of its own in it."""
        of_thread = self._of_thread
        if getattr(of_thread, "part", None) != part:
            if hasattr(of_thread, "file"):
                self._opened.discard(of_thread.file)
                of_thread.file.close()
            of_thread.part, of_thread.file = part, data_path(self._directory, part).open("rb", buffering=0)
            self._opened.add(of_thread.file)
        file: IO[bytes] = of_thread.file
        return file

    def _runs(self, offsets: list[int], start: int, stop: int) -> Iterator[tuple[int, int, int, int]]:
        """(batch, first, last, place of first in the run) of every batch that holds some of start..stop."""
        index = max(bisect_right(offsets, start) - 1, 0)
        while index < len(self._batches) and offsets[index] < stop:
            first = max(start, offsets[index])
            last = min(stop, offsets[index + 1])
            if first < last:
                yield index, first - offsets[index], last - offsets[index], first - start
            index += 1

    def fill(self, name: str, start: int, out: NDArray[Any]) -> None:
        """Fill `out` with entries of an array of the store.

        Parameters
        ----------
        name : str
            X or the labels, whose entries are rows, or `data`, `indices` or `indptr` of either.
        start : int
            First entry.
        out : array, shape (entries,) or (rows, columns)

        Raises
        ------
        DataError
            If a value other than 0 becomes 0 in the type of `out`; `column` is the number of its feature.
        """
        labels, array = name.startswith(LABELS_NAME), name.rpartition("/")[2]
        if array in ("data", "indices"):
            self._fill_nonzeros(array, start, out, labels=labels)
        elif array == "indptr":
            self._fill_offsets(start, out, labels=labels)
        else:
            self._fill_rows(start, out, labels=labels)

    def _fill_rows(self, start: int, out: NDArray[Any], *, labels: bool) -> None:
        for index, first, last, place in self._runs(self._rows, start, start + len(out)):
            batch = self._batches[index]
            rows = out[place : place + last - first]
            if not labels and not batch.sparse:
                if batch.width == out.shape[1] and batch.arrays["data"][1] == out.dtype.name:
                    self._read_into(index, "data", first * batch.width, rows)
                    continue
                values = self._read(index, "data", first * batch.width, last * batch.width)
                rows[:, : batch.width] = values.reshape(-1, batch.width)
                rows[:, batch.width :] = 0
                if (entry := _first_vanished(values, rows[:, : batch.width].reshape(-1))) is not None:
                    raise _vanished(values[entry], rows.dtype, entry % batch.width)
                continue
            indptr = self._csr_entries(index, "indptr", first, last + 1, labels=labels)
            columns, values = (
                self._csr_entries(index, array, int(indptr[0]), int(indptr[-1]), labels=labels)
                for array in ("indices", "data")
            )
            row_of = np.repeat(np.arange(last - first), np.diff(indptr))
            rows[:] = 0
            rows[row_of, columns] = values
            if (entry := _first_vanished(values, rows[row_of, columns])) is not None:
                raise _vanished(values[entry], rows.dtype, columns[entry])

    def _fill_nonzeros(self, array: str, start: int, out: NDArray[Any], *, labels: bool) -> None:
        for index, first, last, place in self._runs(self._stored(labels), start, start + len(out)):
            there = slice(place, place + last - first)
            out[there] = values = self._csr_entries(index, array, first, last, labels=labels)
            if array == "data" and (entry := _first_vanished(values, out[there])) is not None:
                column = self._csr_entries(index, "indices", first + entry, first + entry + 1, labels=labels)[0]
                raise _vanished(values[entry], out.dtype, column)

    def _fill_offsets(self, start: int, out: NDArray[np.int64], *, labels: bool) -> None:
        before = self._stored(labels)
        for index, first, last, place in self._runs(self._rows, start, start + len(out)):
            there = slice(place, place + last - first)
            out[there] = self._csr_entries(index, "indptr", first, last, labels=labels)
            out[there] += before[index]
        if start + len(out) == self._rows[-1] + 1:
            out[-1] = before[-1]

    def sparse(self, start: int, count: int, d: int, dtype: Any) -> csr_array:
        """Return the rows of X from `start`, shape (count, d)."""
        indptr = np.empty(count + 1, np.int64)
        self._fill_offsets(start, indptr, labels=False)
        data, indices = np.empty(indptr[-1] - indptr[0], dtype), np.empty(indptr[-1] - indptr[0], np.int32)
        self._fill_nonzeros("data", int(indptr[0]), data, labels=False)
        self._fill_nonzeros("indices", int(indptr[0]), indices, labels=False)
        return csr_array((data, indices, indptr - indptr[0]), shape=(count, d))

    def _stored(self, labels: bool) -> list[int]:
        """Return the entries of X or Y before each batch, and of all."""
        return self._label_nonzeros if labels else self._nonzeros

    def _csr_entries(self, index: int, array: str, start: int, stop: int, *, labels: bool) -> NDArray[Any]:
        """Return entries start..stop of `data`, `indices` or `indptr` of one batch's X or Y."""
        batch = self._batches[index]
        if batch.minus_ones if labels else not batch.sparse:
            matrix = self._settled_labels(index) if labels else self._as_csr(index)
            entries: NDArray[Any] = getattr(matrix, array)[start:stop]
            return entries
        return self._read(index, f"label_{array}" if labels else array, start, stop)

    def _as_csr(self, index: int) -> csr_array:
        of_thread = self._of_thread
        if getattr(of_thread, "converted", None) != index:
            batch = self._batches[index]
            values = self._read(index, "data", 0, batch.rows * batch.width)
            of_thread.converted, of_thread.csr = index, csr_array(values.reshape(batch.rows, batch.width))
        return of_thread.csr

    def _settled_labels(self, index: int) -> csr_array:
        of_thread = self._of_thread
        if getattr(of_thread, "settled", None) != index:
            batch = self._batches[index]
            names = ("label_data", "label_indices", "label_indptr")
            data, indices, indptr = (self._read(index, name, 0, batch.arrays[name][2]) for name in names)
            shape = (batch.rows, batch.label_width)
            labels = csr_array((data, indices, indptr), shape=shape)
            labels.data[labels.data == MINUS_ONE] = UNKNOWN if self._minus_one == "unknown" else 0
            labels.eliminate_zeros()
            of_thread.settled, of_thread.labels = index, labels
        return of_thread.labels

    def rows_of_nonzeros(self, positions: Sequence[int]) -> list[int]:
        """Return the first row whose nonzeros start at or after each position, for rising positions."""
        rows = []
        for position in positions:
            # The batch before may end with empty rows that start exactly here.
            index = max(bisect_right(self._nonzeros, position - 1) - 1, 0)
            row = self._rows[-1]
            while index < len(self._batches):
                indptr = np.empty(self._batches[index].rows, np.int64)
                self._fill_offsets(self._rows[index], indptr, labels=False)
                found = int(np.searchsorted(indptr, position))
                if found < len(indptr):
                    row = self._rows[index] + found
                    break
                index += 1
            rows.append(row)
        return rows

    def offsets_at(self, rows: Sequence[int], name: str) -> list[int]:
        """Return the row offsets of X or of the labels at some rows (0..n)."""
        offsets = []
        for row in rows:
            out = np.empty(1, np.int64)
            self.fill(f"{name}/indptr", row, out)
            offsets.append(int(out[0]))
        return offsets


def _first_vanished(values: NDArray[Any], stored: NDArray[Any]) -> int | None:
    """Return the first entry other than 0 that became 0 in a narrower type; None where there is none."""
    if values.dtype.kind != "f" or stored.dtype.itemsize >= values.dtype.itemsize:
        return None
    entries = np.flatnonzero((stored == 0) & (values != 0))
    return int(entries[0]) if entries.size else None


def _vanished(value: float, dtype: np.dtype[Any], column: int) -> DataError:
    return DataError(
        f"a nonzero value becomes 0 as {dtype.name}",
        column=int(column),
        value=f"{value:g}",
        cure="leave --dtype out",
    )


def _offsets(sizes: Iterator[int]) -> list[int]:
    offsets = [0]
    for size in sizes:
        offsets.append(offsets[-1] + size)
    return offsets
