"""Label columns and label values, as all table and matrix readers take them."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.base import MINUS_ONE, UNKNOWN
from mlfs_dask.storage.readers.label_columns import label_block, sparse_label_block

HOW = {"names": ("sky", "sea"), "file": "f", "place": lambda row: {"row": 10 + row}}


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int16, np.bool_])
def test_label_block(dtype: type) -> None:
    values = np.array([[0, 1], [0, 0], [1, 1]], dtype=dtype)
    for block in (label_block(values, **HOW), sparse_label_block(csr_array(values), **HOW)):
        assert block.dtype == np.int8
        assert block.nnz == 3
        np.testing.assert_array_equal(block.toarray(), values.astype(np.int8))


def test_missing_is_unknown_and_minus_one_is_kept_apart() -> None:
    values = np.array([[np.nan, 1], [-1, 0]])
    expected = [[UNKNOWN, 1], [MINUS_ONE, 0]]
    np.testing.assert_array_equal(label_block(values, **HOW).toarray(), expected)
    np.testing.assert_array_equal(sparse_label_block(csr_array(values), **HOW).toarray(), expected)


def test_explicit_zeros_go() -> None:
    values = csr_array((np.array([0.0, 1.0]), np.array([0, 1]), np.array([0, 1, 2])), shape=(2, 2))
    block = sparse_label_block(values, **HOW)
    assert block.nnz == 1
    np.testing.assert_array_equal(block.toarray(), [[0, 0], [0, 1]])


def test_entries_are_in_order() -> None:
    values = np.random.default_rng(0).choice([0.0, 1.0, -1.0, np.nan], (50, 7))
    block = label_block(values, **HOW)
    fresh = csr_array((block.data, block.indices, block.indptr), shape=block.shape)
    assert fresh.has_canonical_format
    expected = np.select([np.isnan(values), values == -1], [UNKNOWN, MINUS_ONE], values)
    np.testing.assert_array_equal(block.toarray(), expected)


# 257 and -255 are 1 in the last byte.
@pytest.mark.parametrize(
    ("value", "shown"), [(0.5, 0.5), (2.0, 2), (-2.0, -2), (257.0, 257), (-255.0, -255), (np.inf, np.inf)]
)
@pytest.mark.parametrize("names", [("sky", "sea"), None])
def test_bad_label(value: float, shown: float, names: tuple[str, ...] | None) -> None:
    values = np.array([[0, 1], [0, value]])
    for call, matrix in ((label_block, values), (sparse_label_block, csr_array(values))):
        with pytest.raises(DataError, match=r"row 11: a label must be 0 or 1 \(-1 = unknown\)") as caught:
            call(matrix, **HOW | {"names": names})
        assert caught.value.column == ("sea" if names else 2)
        assert repr(caught.value.value) == repr(shown)
