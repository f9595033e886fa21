"""Sparse matrices whose arrays do not belong together are refused before a compiled loop sees them."""

from __future__ import annotations

import re

import numpy as np
import pytest
import sparse
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels, as_matrix, indices_fault, offsets_fault
from mlfs_dask.errors import DataError


def ones(kind):
    return sp.csr_array(np.ones((4, 4), dtype=np.int8)).asformat(kind)


@pytest.mark.parametrize("value", [2**30, -1])
@pytest.mark.parametrize("part", ["indices", "indptr"])
@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "gcxs"])
@pytest.mark.parametrize("read", [as_matrix, as_labels])
def test_arrays_that_do_not_belong_together(read, kind, part, value):
    matrix = sparse.GCXS.from_scipy_sparse(ones("csr")) if kind == "gcxs" else ones(kind)
    getattr(matrix, part)[1 if kind == "bsr" and part == "indptr" else -1] = value
    with pytest.raises(DataError, match=r"the sparse matrix is damaged: .*\n  cure: make it again"):
        read(matrix)


@pytest.mark.parametrize("value", [2**30, -1])
def test_coordinates_outside(value):
    matrix = ones("coo")
    matrix.coords[1][3] = value
    with pytest.raises(DataError, match="the sparse matrix is damaged: "):
        as_matrix(matrix)


def test_whole_matrices_stay_what_they_are():
    for kind in ("csr", "csc", "bsr", "coo"):
        matrix = ones(kind)
        np.testing.assert_array_equal(as_matrix(matrix).toarray(), np.ones((4, 4)))
        assert matrix.format == kind


@pytest.mark.parametrize(
    ("indptr", "indices", "fault"),
    [
        ([0, 0, 0], [], None),
        ([0, 2, 2, 4], [0, 2, 0, 1], None),
        ([0, 0, 4, 4], [0, 1, 2, 3], None),
        ([0, 2, 2, 4], [2, 0, 0, 1], "row 0 "),
        ([0, 2, 2, 4], [0, 2, 1, 1], "row 2 "),
        ([0, 0, 4, 4], [0, 1, 1, 3], "row 1 "),
        ([0, 2, 2, 4], [0, 2, 0, 4], r"row 2 .* index 4, of 4 columns"),
        ([0, 2, 2, 4], [0, -1, 0, 1], r"row 0 .* index -1, of 4 columns"),
    ],
)
def test_indices(indptr, indices, fault):
    found = indices_fault(np.array(indptr), np.array(indices, dtype=np.int32), 4)
    assert (found is None) == (fault is None)
    assert fault is None or re.search(fault, str(found))


def test_offsets():
    assert offsets_fault(np.array([3, 3, 9]), 3, 9) is None
    assert offsets_fault(np.array([3, 9, 8]), 3, 9) == "the offsets of row 1 (counted from 0) fall from 9 to 8"
    assert offsets_fault(np.array([3, 3, 9]), 3, 10) == "the row offsets run from 3 to 9, not from 3 to 10"
