"""MatrixMarket text: the pair X.mtx Y.mtx, coordinate or array, packed or not.

SciPy parses it; the matrix is held in memory.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError
from mlfs_dask.files.compressed_io import SMALL_PIECE_BYTES, SourceFile, open_source
from mlfs_dask.readers.base import DEFAULT_SPEC, NAME_KEYS, FileSpec, Format, begins_with, damaged
from mlfs_dask.readers.label_table import read_labels_in_order
from mlfs_dask.readers.label_values import DEFAULT_VALUES
from mlfs_dask.readers.matrix import (
    InMemoryCsrRows,
    MatrixReader,
    Pair,
    Rows,
    array_rows,
    fortran_rows,
    matrix_reader,
    names_in,
    require_held,
)

_BANNER = re.compile(
    rb"%%MatrixMarket\s+matrix\s+(coordinate|array)\s+(real|double|integer|unsigned-integer|pattern)\s+general\s*",
    re.IGNORECASE,
)
_SIZE = re.compile(rb"\d{1,18}")  # 64-bit integers
_NO_TEXT = re.compile(rb"[^\t\n\r -~]")


def open_mtx(paths: Sequence[str], spec: FileSpec = DEFAULT_SPEC) -> MatrixReader:
    """Open the pair X, Y of MatrixMarket files.

    Parameters
    ----------
    paths : two of them, or X alone
        Local paths or URLs; may be compressed. Each may hold the instances as rows or as columns: whichever makes their
        numbers agree, rows if both do. The labels of X alone are those of the table `labels.xml`, row by row.
    spec : FileSpec
        `keys` may hold ``names`` and ``label_names``: ``@FILE``, a name a line.

    Raises
    ------
    DataError
        Not such a file, a matrix of complex numbers or a symmetric one, numbers of rows that disagree.
    """
    matrices = [read_header(path, spec) for path in paths]
    if len(paths) == 1:
        assert spec.labels.xml is not None
        labels, label_names = read_labels_in_order(spec.labels.xml, spec.labels, spec.storage_options)
        n, width = matrices[0].shape
        beside = functools.partial(open_pair, matrices[0], labels, (n != len(labels) == width, False))
        names = names_in(spec, file=paths[0]) | {"label_names": label_names}
        return matrix_reader(paths[0], beside, spec, meaning=DEFAULT_VALUES, **names)
    turned = next(
        ((x, y) for x, y in itertools.product((False, True), repeat=2) if matrices[0].shape[x] == matrices[1].shape[y]),
        (False, False),  # the reader says that they disagree
    )
    opener = functools.partial(open_pair, matrices[0], matrices[1], turned)
    return matrix_reader(" ".join(paths), opener, spec, **names_in(spec, file=paths[0]))


@dataclass(frozen=True)
class Matrix:
    """Header of a file; `line` is its last line."""

    source: SourceFile
    coordinate: bool
    shape: tuple[int, int]
    entries: int
    line: int

    def rows(self, *, turned: bool) -> Rows:
        """Return the rows of the matrix, or its columns."""
        (n, width), dtype, file = self.shape, np.dtype(np.float64), self.source.path
        if self.coordinate:
            shape = (width, n) if turned else (n, width)
            return InMemoryCsrRows(functools.partial(self._sparse, turned), shape, self.entries, dtype, file=file)
        return fortran_rows(self._values, self.shape, dtype, turned=turned, opened_bytes=2 * 8 * self.entries)

    def _sparse(self, turned: bool) -> csr_array:
        matrix = self._parsed()
        return csr_array((matrix.T if turned else matrix).astype(np.float64, copy=False))

    def _values(self) -> NDArray[np.float64]:
        """Return all values, column after column."""
        require_held(self.source.path, 2 * 8 * self.entries)
        return np.asarray(self._parsed(), np.float64).ravel(order="F")

    def _parsed(self) -> Any:
        from scipy.io import mmread

        with self.source.open() as stream:
            try:
                return mmread(_CheckedText(stream, self.source.path), spmatrix=False)
            except (ValueError, OverflowError) as error:
                match = re.match(r"Line (\d+): (.*)", str(error))
                raise DataError(
                    f"an entry cannot be read: {match[2] if match else error}",
                    file=self.source.path,
                    line=int(match[1]) if match else self.line,
                    cure="correct the line, or write the file again with scipy.io.mmwrite",
                ) from error


class _CheckedText:
    """Text for SciPy's parser, which crashes on bytes that are no text and drops fractions of an integer matrix."""

    def __init__(self, stream: BinaryIO, path: str) -> None:
        self._stream, self._path, self._line = stream, path, 1
        self._banner = re.sub(rb"(?i)(unsigned-)?integer", b"real", stream.readline(SMALL_PIECE_BYTES))

    def read(self, count: int) -> bytes:
        text, self._banner = self._banner or self._stream.read(count), b""
        odd = _NO_TEXT.search(text)
        if odd:
            line = self._line + text.count(b"\n", 0, odd.start())
            raise damaged(f"a byte {odd[0][0]} in the text", self._path, line=line)
        self._line += text.count(b"\n")
        return text


def read_header(path: str, spec: FileSpec) -> Matrix:
    """Read what a file says of its matrix."""
    source = open_source(path, spec.storage_options)
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
        line = 1
        while True:
            text = stream.readline(SMALL_PIECE_BYTES)
            line += 1
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
    return Matrix(source, coordinate, (n, width), entries, line)


@contextlib.contextmanager
def open_pair(X: Matrix, Y: Matrix | NDArray[np.float64], turned: tuple[bool, bool]) -> Iterator[list[Pair]]:
    """The rows of a matrix, or its columns if `turned`, and their labels: those of a second one, or an array."""
    labels = Y.rows(turned=turned[1]) if isinstance(Y, Matrix) else array_rows(Y)
    yield [(X.rows(turned=turned[0]), labels)]


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
        takes_label_table=True,
        is_matrix=lambda path, spec: True,
    ),
)
