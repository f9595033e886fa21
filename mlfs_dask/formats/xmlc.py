"""XMLC text (Extreme Classification Repository): a first line `n d q`, then svmlight-like rows from 0.

Labels and features count from 0; a row without labels begins with a blank. An empty line is a row without anything
where the first line counts it, and none elsewhere. The newer form has features and labels in two files of a row a line,
with first lines `n d` and `n q`; they are read side by side.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.files.compressed_io import PIECE_BYTES, SourceFile, open_source
from mlfs_dask.formats.svmlight import is_word
from mlfs_dask.readers.base import UNKNOWN_BYTES, Batch, FileSpec, Format, Header, Part, Reader, parts_at
from mlfs_dask.readers.label_values import DEFAULT_VALUES, LabelValues, sparse_label_block
from mlfs_dask.readers.lines import NEWLINE, UTF8_MARK

if TYPE_CHECKING:
    from mlfs_dask.readers.indexed_text import IndexedTextReader

_HEADER = re.compile(rb"\s*(\d{1,18})\s+(\d{1,18})(?:\s+(\d{1,18}))?\s*")  # 64-bit integers
_LONGEST_HEADER = 200
#: Rows between two places whose bytes are remembered: a row is found by passing so many lines.
_INDEX_ROWS = 1 << 14
_AS_LABELS = "say which file holds the labels, as in mlfs convert trn_X_Xf.txt trn.zarr --label-file trn_X_Y.txt"


def open_xmlc(path: str, spec: FileSpec) -> IndexedTextReader | PairedTextReader:
    """Open XMLC text and read its header; `header.n_rows` is what the file declares.

    Parameters
    ----------
    path : str
    spec : FileSpec
        `labels.xml` is the file of the labels where they lie apart.

    Raises
    ------
    DataError
        The first line is neither `n d q` nor, beside a file of labels, `n d`.
    UsageError
        Labels or columns are named, which this format cannot do; nothing tells where the labels are.
    """
    from mlfs_dask.readers.indexed_text import IndexedTextReader, fills_unknown  # loads Numba

    labels = spec.labels
    if labels.columns is not None or labels.count is not None or labels.classes or spec.drop or spec.keys:
        raise UsageError(
            f"{path}: XMLC text defines its labels itself and has no names and no keys\n"
            "  cure: leave out the label options, --drop and keys"
        )
    source, start, numbers = _open(path, spec)
    if labels.xml is not None:
        return _open_pair(source, start, numbers, labels.xml, spec)
    if len(numbers) == 2:
        raise UsageError(
            f"{path}: the first line has two numbers: features and labels are in two files\n  cure: {_AS_LABELS}"
        )
    n_rows, n_features, n_labels = numbers
    return IndexedTextReader(
        header=Header(
            feature_names=None,
            label_names=None,
            n_features=n_features,
            n_labels=n_labels,
            n_rows=n_rows,
        ),
        path=path,
        source=source,
        feature_base=0,
        base_cure="XMLC features count from 0",
        data_start=start,
        data_line=2,
        fills_unknown=fills_unknown(labels, n_labels, path),
        every_line=_count_lines(source, start) == n_rows,
    )


def _count_lines(source: SourceFile, start: int) -> int:
    """Return lines from a place on, from one pass."""
    count, ends_line = 0, True
    with source.open(start) as stream:
        while piece := stream.read(PIECE_BYTES):
            count += piece.count(b"\n")
            ends_line = piece.endswith(b"\n")
    return count + (not ends_line)


def _open(path: str, spec: FileSpec) -> tuple[SourceFile, int, tuple[int, ...]]:
    """Return a file, where its rows begin, and the numbers of its first line."""
    source = open_source(path, spec.storage_options)
    with source.open() as stream:
        line = stream.readline(_LONGEST_HEADER)
    match = _HEADER.fullmatch(line.removeprefix(UTF8_MARK))
    if not match or not line.endswith(b"\n"):
        raise DataError(
            "the first line of XMLC text was expected: rows, features and labels, as in 7395 1836 159 (or two of them, "
            "if features and labels are in two files)",
            file=path,
            line=1,
            value=line[:40].decode("utf-8", "replace").strip(),
            cure="use --format svmlight if the file has no such line",
        )
    return source, len(line), tuple(int(group) for group in match.groups() if group is not None)


def _open_pair(
    source: SourceFile, start: int, numbers: tuple[int, ...], labels_path: str, spec: FileSpec
) -> PairedTextReader:
    labels, labels_start, labels_numbers = _open(labels_path, spec)
    for file, found in ((source, numbers), (labels, labels_numbers)):
        if len(found) != 2:
            raise DataError(
                "two numbers were expected in the first line, of rows and of columns: features and labels are in "
                "two files",
                file=file.path,
                line=1,
                value=" ".join(map(str, found)),
                cure="leave --label-file out if one file holds both",
            )
    if numbers[0] != labels_numbers[0]:
        raise DataError(
            f"it declares {labels_numbers[0]:,} rows, and {source.path} {numbers[0]:,}",
            file=labels_path,
            line=1,
            cure="give the files of the same rows",
        )
    header = Header(None, None, n_features=numbers[1], n_labels=labels_numbers[1], n_rows=numbers[0])
    return PairedTextReader(
        header=header,
        path=source.path,
        X=_rows_alone(source, start, numbers[1]),
        Y=_rows_alone(labels, labels_start, labels_numbers[1]),
        offsets=(_index(source, start, numbers[0]), _index(labels, labels_start, numbers[0])),
        meaning=spec.labels.values,
    )


def _rows_alone(source: SourceFile, start: int, width: int) -> IndexedTextReader:
    """Return the rows of nothing but index:value, of which a line may hold none."""
    from mlfs_dask.readers.indexed_text import IndexedTextReader  # loads Numba

    return IndexedTextReader(
        header=Header(None, None, n_features=width, n_labels=1),
        path=source.path,
        source=source,
        feature_base=0,
        base_cure="columns count from 0",
        data_start=start,
        data_line=2,
        every_line=True,
    )


def _index(source: SourceFile, start: int, n: int) -> tuple[int, ...]:
    """Return bytes at which every `_INDEX_ROWS`-th row begins, from one pass; of a compressed file only the first.

    Raises
    ------
    DataError
        There are fewer rows than declared, or more that hold something.
    """
    offsets, line, position = [start], 0, start
    ends_line = True
    with source.open(start) as stream:
        while line < n and (piece := stream.read(PIECE_BYTES)):
            ends = np.flatnonzero(np.frombuffer(piece, np.uint8) == NEWLINE)
            first = -line % _INDEX_ROWS or _INDEX_ROWS
            offsets += [position + int(end) + 1 for end in ends[first - 1 :: _INDEX_ROWS].tolist()]
            ends_line = piece.endswith(b"\n")
            line += len(ends)
            position += len(piece)
            if line >= n:
                last = int(ends[len(ends) - 1 - (line - n)]) + 1
                rest = piece[last:] + stream.read(PIECE_BYTES)
                if rest.strip():
                    raise _count_differs(source.path, n, "more")
                return tuple(offsets[: -(-n // _INDEX_ROWS)]) if source.enterable else (start,)
    if line + (not ends_line) != n:
        raise _count_differs(source.path, n, f"{line + (not ends_line):,}")
    return tuple(offsets[: -(-n // _INDEX_ROWS)]) if source.enterable else (start,)


def _count_differs(path: str, n: int, found: str) -> DataError:
    return DataError(
        f"the header declares {n:,} rows, the file has {found}",
        file=path,
        line=1,
        cure="correct the header, or fetch the file again: it may be cut off",
    )


@dataclass(frozen=True)
class PairedTextReader(Reader):
    """Rows of two files, features in one and labels in the other. Parts are of rows.

    Holds two batches, and a place of each file for every 16 384 rows.
    """

    header: Header
    path: str
    X: IndexedTextReader
    Y: IndexedTextReader
    offsets: tuple[tuple[int, ...], tuple[int, ...]]
    meaning: LabelValues = DEFAULT_VALUES

    @property
    def n(self) -> int:
        assert self.header.n_rows is not None
        return self.header.n_rows

    def parts(self, part_bytes: int) -> list[Part]:
        """Return runs of rows of about `part_bytes`; one part if a file is compressed."""
        if min(map(len, self.offsets)) < -(-self.n // _INDEX_ROWS):
            return parts_at([0], self.n, rows=True)
        starts, last = [0], self.offsets[0][0]
        for number, offset in enumerate(self.offsets[0]):
            if offset - last >= part_bytes:
                starts.append(number * _INDEX_ROWS)
                last = offset
        return parts_at(starts, self.n, rows=True)

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of one part. See `Reader.read`."""
        row = part.start
        stop = self.n if part.stop is None else part.stop
        assert self.header.n_labels is not None
        step = self.n
        if self.meaning.zero_is_unknown:  # labels that are not listed are written out
            step = max(1, batch_bytes // (UNKNOWN_BYTES * self.header.n_labels))
        for X, Y in self._aligned(row, batch_bytes):
            wanted = min(X.shape[0], stop - row)
            for first in range(0, wanted, step):
                last = min(first + step, wanted)
                yield Batch(X[first:last], self._labels(Y[first:last], row + first))
            row += wanted
            if row >= stop:
                return

    def _aligned(self, row: int, batch_bytes: int) -> Iterator[tuple[csr_array, csr_array]]:
        """Yield the same rows of both files, from `row` on, which come from each in runs of other lengths."""
        X_runs, Y_runs = (self._rows(which, row, batch_bytes) for which in (0, 1))
        X, Y = next(X_runs, None), next(Y_runs, None)
        while X is not None and Y is not None:
            count = min(X.shape[0], Y.shape[0])
            yield X[:count], Y[:count]
            X = X[count:] if count < X.shape[0] else next(X_runs, None)
            Y = Y[count:] if count < Y.shape[0] else next(Y_runs, None)

    def _labels(self, Y: csr_array, row: int) -> csr_array:
        return sparse_label_block(
            Y, names=None, file=self.Y.path, place=lambda offset: {"line": row + offset + 2}, meaning=self.meaning
        )

    def _rows(self, which: int, row: int, batch_bytes: int) -> Iterator[csr_array]:
        """Yield the rows of one file from `row` on."""
        reader, offsets = (self.X, self.Y)[which], self.offsets[which]
        known = min(row // _INDEX_ROWS, len(offsets) - 1)
        passed = row - known * _INDEX_ROWS
        for batch in reader.read(Part(0, offsets[known], None), batch_bytes=batch_bytes):
            rows = batch.X
            if passed:
                rows, passed = rows[min(passed, rows.shape[0]) :], max(passed - rows.shape[0], 0)
            if rows.shape[0]:
                yield csr_array(rows)


def _head(content: bytes, lines: list[str]) -> bool:
    words = lines[0].split() if lines else []
    if not all(word.isdecimal() for word in words):
        return False
    following = [word for line in lines[1:2] for word in line.split()]
    return len(words) == 3 or (len(words) == 2 and all(":" in word and is_word(word) for word in following))


FORMATS = (
    Format(
        name="xmlc",
        title="XMLC text: header `n d q`, or `n d` and labels apart",
        open=open_xmlc,
        suffixes=(".xmlc",),
        keys=None,
        head=_head,
        order=-1,
        in_place=lambda path: False,
    ),
)
