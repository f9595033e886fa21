"""CSR arrays as the tokenizers write them (file order, zeros included) made canonical."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.sparse import csr_array


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
