"""CSR arrays as the tokenizers write them (file order, zeros included) made canonical."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import csr_array


class RepeatedIndexError(ValueError):
    """A row holds one column twice; `row` counts from 0 in the arrays given."""

    def __init__(self, row: int, column: int) -> None:
        super().__init__(f"row {row} holds column {column} twice")
        self.row = row
        self.column = column


def sorted_rows(
    bounds: NDArray[np.int64],
    columns: NDArray[np.int32],
    values: NDArray[Any],
    width: int,
    *,
    in_order: bool,
) -> csr_array:
    """Return CSR array of shape (len(bounds) - 1, width) with sorted rows; zeros are kept.

    Parameters
    ----------
    in_order : bool
        Whether the columns ascend strictly in every row already.

    Raises
    ------
    RepeatedIndexError
    """
    matrix = csr_array((values, columns, bounds), shape=(len(bounds) - 1, width))
    if not in_order:
        matrix.has_sorted_indices = False
        matrix.sort_indices()
        same = np.flatnonzero(matrix.indices[1:] == matrix.indices[:-1])
        row = np.searchsorted(matrix.indptr, same, side="right")
        same = same[row == np.searchsorted(matrix.indptr, same + 1, side="right")]
        if len(same):
            first = int(same[0])
            raise RepeatedIndexError(
                int(np.searchsorted(matrix.indptr, first, side="right")) - 1,
                int(matrix.indices[first]),
            )
    matrix.has_canonical_format = True
    return matrix


def with_defaults(matrix: csr_array, defaults: Mapping[int, int]) -> csr_array:
    """Return the defaults of columns that a row does not list; holds rows * len(defaults) bytes more."""
    if not defaults:
        return matrix
    columns = np.fromiter(defaults, np.int32)
    values = np.fromiter(defaults.values(), matrix.dtype)
    place = np.full(matrix.shape[1], -1, dtype=np.int32)
    place[columns] = np.arange(len(columns), dtype=np.int32)
    row_of = np.repeat(np.arange(matrix.shape[0]), np.diff(matrix.indptr))
    place_of = place[matrix.indices]
    absent = np.ones((matrix.shape[0], len(columns)), dtype=bool)
    absent[row_of[place_of >= 0], place_of[place_of >= 0]] = False
    rows, places = np.nonzero(absent)
    filled = csr_array(
        (
            np.concatenate([matrix.data, values[places]]),
            (np.concatenate([row_of, rows]), np.concatenate([matrix.indices, columns[places]])),
        ),
        shape=matrix.shape,
    )
    filled.has_canonical_format = True  # the conversion from coordinates sorts
    return filled


def without_zeros(matrix: csr_array) -> csr_array:
    """Return the same matrix; its explicit zeros are removed in place."""
    if not matrix.data.all():
        matrix.eliminate_zeros()
    return matrix
