"""MatrixMarket text: the pair X.mtx Y.mtx, coordinate or array, packed or not.

SciPy parses it, some MiB at a time, each with a header of its own, so that neither text nor matrix is ever in memory as
a whole. Entries in any order are brought into rows through a temporary file.
"""

from __future__ import annotations

import contextlib
import functools
import io
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mlfs_dask.errors import DataError
from mlfs_dask.storage.label_values import DEFAULT_VALUES
from mlfs_dask.storage.limits import filled_temporary_file
from mlfs_dask.storage.readers.base import NAME_KEYS, FileSpec, Format, begins_with, damaged
from mlfs_dask.storage.readers.compressed_io import SMALL_PIECE_BYTES, SourceFile, open_source
from mlfs_dask.storage.readers.label_table import read_labels_in_order
from mlfs_dask.storage.readers.matrix import (
    PIECE_BYTES,
    BandedRows,
    Entries,
    FileArray,
    MatrixReader,
    Pair,
    Rows,
    Sliceable,
    array_rows,
    fortran_rows,
    matrix_reader,
    names_in,
)

_BANNER = re.compile(
    rb"%%MatrixMarket\s+matrix\s+(coordinate|array)\s+(real|double|integer|unsigned-integer|pattern)\s+general\s*",
    re.IGNORECASE,
)
_SIZE = re.compile(rb"\d{1,18}")  # 64-bit integers
_FILLED_LINE = re.compile(rb"[^\s][^\n]*")
_NO_TEXT = re.compile(rb"[^\t\n\r -~]")
_DEFAULTS = FileSpec()


def open_mtx(paths: Sequence[str], options: FileSpec = _DEFAULTS) -> MatrixReader:
    """Open the pair X, Y of MatrixMarket files.

    Parameters
    ----------
    paths : two of them, or X alone
        Local paths or URLs; may be compressed. Each may hold the instances as rows or as columns: whichever makes their
        numbers agree, rows if both do. The labels of X alone are those of the table `labels.xml`, row by row.
    options : FileSpec
        `keys` may hold ``names`` and ``label_names``: ``@FILE``, a name a line.

    Raises
    ------
    DataError
        Not such a file, a matrix of complex numbers or a symmetric one, numbers of rows that disagree.
    """
    matrices = [read_header(path, options) for path in paths]
    if len(paths) == 1:
        assert options.labels.xml is not None
        labels, label_names = read_labels_in_order(options.labels.xml, options.labels, options.storage_options)
        beside = functools.partial(_open_beside, matrices[0], labels)
        names = names_in(options, file=paths[0]) | {"label_names": label_names}
        return matrix_reader(paths[0], beside, options, meaning=DEFAULT_VALUES, **names)
    turned = next(
        ((x, y) for x, y in itertools.product((False, True), repeat=2) if matrices[0].shape[x] == matrices[1].shape[y]),
        (False, False),  # the reader says that they disagree
    )
    opener = functools.partial(_open_pair, matrices, turned)
    return matrix_reader(" ".join(paths), opener, options, **names_in(options, file=paths[0]))


@dataclass(frozen=True)
class _Matrix:
    """What the header of a file says; entries begin at byte `start`, in line `line`."""

    source: SourceFile
    coordinate: bool
    kind: str
    shape: tuple[int, int]
    entries: int
    start: int
    line: int

    def blocks(self) -> Iterator[Any]:
        """The entries as SciPy parses them: runs of lines as COO matrices, or as columns of values."""
        from scipy.io import mmread

        form = "coordinate" if self.coordinate else "array"
        parsed, line = 0, self.line
        with self.source.open(self.start) as stream:
            while text := stream.read(PIECE_BYTES):
                text += stream.readline(SMALL_PIECE_BYTES)
                text = text if text.endswith(b"\n") else text + b"\n"
                odd = _NO_TEXT.search(text)
                if odd:  # SciPy's parser crashes over such bytes
                    raise damaged(
                        f"a byte {odd[0][0]} in the text",
                        self.source.path,
                        line=line + text.count(b"\n", 0, odd.start()),
                    )
                count = len(_FILLED_LINE.findall(text))
                shape = f"{self.shape[0]} {self.shape[1]} {count}" if self.coordinate else f"{count} 1"
                head = f"%%MatrixMarket matrix {form} {self.kind} general\n{shape}\n".encode()
                try:
                    if count:
                        yield mmread(io.BytesIO(head + text), spmatrix=False)
                except (ValueError, OverflowError) as error:
                    match = re.match(r"Line (\d+): (.*)", str(error))
                    raise DataError(
                        f"an entry cannot be read: {match[2] if match else error}",
                        file=self.source.path,
                        line=line + int(match[1]) - 3 if match else None,
                        cure="correct the line, or write the file again with scipy.io.mmwrite",
                    ) from error
                parsed, line = parsed + count, line + text.count(b"\n")
        if parsed != self.entries:
            raise damaged(
                f"{self.entries:,} entries were announced, there are {parsed:,}", self.source.path, line=self.line - 1
            )

    def rows(self, *, turned: bool) -> Rows:
        """Its rows, or its columns."""
        if not self.coordinate:
            return fortran_rows(self._values, self.shape, np.dtype(np.float64), turned=turned)
        (n, width), stored, file = self.shape, self.source.size, self.source.path
        shape = (width, n) if turned else (n, width)
        pieces = functools.partial(self._pieces, turned=turned)  # the text is read twice
        return BandedRows(pieces, shape, self.entries, np.float64, stored_bytes=stored, file=file)

    def _pieces(self, *, turned: bool) -> Iterator[Entries]:
        for block in self.blocks():
            yield (block.col, block.row, block.data) if turned else (block.row, block.col, block.data)

    def _values(self) -> Sliceable:
        """All values, column after column, in a temporary file."""
        with filled_temporary_file("mlfs-array-", 8 * self.entries) as spool:
            for block in self.blocks():
                spool.write(np.asarray(block, np.float64).tobytes())
        return FileArray(spool, 0, np.dtype(np.float64), self.entries, file=self.source.path, own=True)


@contextlib.contextmanager
def open_turned(matrix: _Matrix, labels: NDArray[np.float64]) -> Iterator[list[Pair]]:
    """A matrix whose columns are rows of the data, and their labels."""
    yield [(matrix.rows(turned=True), array_rows(labels))]


@contextlib.contextmanager
def _open_beside(matrix: _Matrix, labels: NDArray[np.float64]) -> Iterator[list[Pair]]:
    n, width = matrix.shape
    yield [(matrix.rows(turned=n != len(labels) == width), array_rows(labels))]


def read_header(path: str, options: FileSpec) -> _Matrix:
    """Read what a file says of its matrix."""
    source = open_source(path, options.storage_options)
    with source.open() as stream:
        banner = stream.readline(SMALL_PIECE_BYTES)
        match = _BANNER.fullmatch(banner)
        if match is None:
            raise DataError(
                "a header like %%MatrixMarket matrix coordinate real general was expected",
                file=path,
                line=1,
                value=banner[:60].decode("utf-8", "replace").strip(),
                cure="save a real matrix in full with scipy.io.mmwrite(path, matrix, symmetry='general')",
            )
        start, line = len(banner), 1
        while True:
            text = stream.readline(SMALL_PIECE_BYTES)
            start, line = start + len(text), line + 1
            if not text or (text.strip() and not text.startswith(b"%")):
                break
    coordinate = match[1].lower() == b"coordinate"
    sizes = text.split()
    if len(sizes) != 2 + coordinate or not all(map(_SIZE.fullmatch, sizes)):
        raise damaged(
            f"numbers of rows{', columns and entries' if coordinate else ' and columns'} were expected",
            path,
            line=line,
            value=text[:60].decode("utf-8", "replace").strip(),
        )
    n, width = int(sizes[0]), int(sizes[1])
    entries = int(sizes[2]) if coordinate else n * width
    return _Matrix(source, coordinate, match[2].decode().lower(), (n, width), entries, start, line + 1)


@contextlib.contextmanager
def _open_pair(matrices: Sequence[_Matrix], turned: tuple[bool, bool]) -> Iterator[list[Pair]]:
    yield [(matrices[0].rows(turned=turned[0]), matrices[1].rows(turned=turned[1]))]


FORMATS = (
    Format(
        name="mtx",
        title="MatrixMarket, a pair X.mtx Y.mtx",
        open=open_mtx,
        suffixes=(".mtx",),
        keys=NAME_KEYS,
        head=begins_with(b"%%MatrixMarket"),
        in_place=lambda path: False,
        has_label_array=True,
        is_matrix=lambda path, spec: True,
    ),
)
