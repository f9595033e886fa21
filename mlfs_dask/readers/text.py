"""Rows of a text file, a line each, that a compiled kernel reads: what ARFF, svmlight and XMLC text have in common.

Held while reading: a block of text and its numbers, about twice the batch size.
"""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array

from mlfs_dask.files.compressed_io import SourceFile
from mlfs_dask.readers import tokens
from mlfs_dask.readers.base import Batch, Header, Part, Reader
from mlfs_dask.readers.lines import (
    NEWLINE,
    UTF8_MARK,
    LineBlock,
    line_blocks,
    line_error,
    split_lines,
)
from mlfs_dask.typing import Matrix

logger = logging.getLogger(__name__)


@dataclass(kw_only=True)
class TextReader(Reader):
    """One text file.

    Attributes
    ----------
    header : Header
    path : str
    source : SourceFile
    data_start, data_line : int
        Byte and number of the line that the rows begin at.
    """

    header: Header
    path: str
    source: SourceFile
    data_start: int = 0
    data_line: int = 1

    def parts(self, part_bytes: int) -> list[Part]:
        """Return byte ranges of about `part_bytes`; one part if the file is compressed."""
        return split_lines(self.source, self.data_start, part_bytes)

    def read(self, part: Part, *, batch_bytes: int) -> Iterator[Batch]:
        """Yield batches of the rows that begin in `part`.

        Raises
        ------
        DataError
            With file, line, column, value and cure.
        """
        line = self.data_line if part.start == self.data_start else None
        # The densest text, `0,0,0`, makes 8 bytes of every 2; beyond 8 MiB a larger block gains no speed.
        block_bytes = min(max(batch_bytes // 4, 1 << 14), 1 << 23)
        for block, p, report in self._unread(part.start, part.stop, block_bytes):
            for X, Y, first in self._rows(block, p, batch_bytes, report):
                passed = int(np.count_nonzero(block.data[p:first] == NEWLINE))
                yield Batch(X, Y, None if line is None else line + passed)
            line = None if line is None else line + int(report[tokens.LINES])

    def _unread(
        self, position: int, stop: int | None, block_bytes: int
    ) -> Iterator[tuple[LineBlock, int, NDArray[np.int64]]]:
        """Yield a block, the byte of it from which on rows are to be read, and the report in which a kernel says how
        far.
        """
        report = np.zeros(tokens.REPORT_FIELDS, dtype=np.int64)
        for block in line_blocks(self.source, position, stop, block_bytes=block_bytes):
            p = len(UTF8_MARK) if block.offset == 0 and bytes(block.data[:3]) == UTF8_MARK else 0
            while p < block.length:
                yield block, p, report
                p = int(report[tokens.POSITION])
        if weights := report[tokens.WEIGHTS]:
            logger.warning("%s: instance weights are not used (%d rows have one)", self.path, weights)

    @abstractmethod
    def _rows(
        self, block: LineBlock, p: int, batch_bytes: int, report: NDArray[np.int64]
    ) -> Iterator[tuple[Matrix, csr_array, int]]:
        """Yield features and labels of some rows of a block from byte `p` on, and the byte where these begin."""

    def _sorted_rows(
        self,
        block: LineBlock,
        row_starts: NDArray[np.int64],
        bounds: NDArray[np.int64],
        columns: NDArray[np.int32],
        values: NDArray[Any],
        width: int,
        *,
        in_order: bool,
        problem: str,
        name_of: Callable[[int], Any],
    ) -> csr_array:
        """Return a canonical CSR array, shape (len(bounds) - 1, width), zeros kept, of entries in the file's order.

        Parameters
        ----------
        block : LineBlock
        row_starts : int64 array
            Byte of the block at which each row begins.
        bounds, columns, values : arrays
            As of a CSR array; the last two may be longer.
        width : int
        in_order : bool
            Whether the columns ascend strictly in every row already.
        problem : str
        name_of : callable
            From a column to what it is called.

        Raises
        ------
        DataError
            With `problem`: a row holds a column twice.
        """
        end = bounds[-1]
        matrix = csr_array((values[:end], columns[:end], bounds), shape=(len(bounds) - 1, width))
        if not in_order:
            matrix.has_sorted_indices = False
            matrix.sort_indices()
            same = np.flatnonzero(matrix.indices[1:] == matrix.indices[:-1])
            row = np.searchsorted(matrix.indptr, same, side="right")
            twice = np.flatnonzero(row == np.searchsorted(matrix.indptr, same + 1, side="right"))
            if twice.size:
                place, column = int(row_starts[row[twice[0]] - 1]), name_of(int(matrix.indices[same[twice[0]]]))
                cure = "keep one of its values"
                raise line_error(self.source, block, place, problem, column=column, cure=cure)
        matrix.has_canonical_format = True
        return matrix


def number_from_text(text: str) -> float | None:
    """`float(text)` for a decimal number, infinite ones and nan included; None for anything else.

    Python's own extensions (`1_000`, other scripts' digits) are no numbers in a file.

    Examples
    --------
    >>> number_from_text("1e400"), number_from_text("1_0"), number_from_text("NaN")
    (inf, None, nan)
    """
    if not text.isascii() or "_" in text:
        return None
    try:
        return float(text)
    except ValueError:
        return None
