"""Interaction information with pairs of labels, and the labels that stand for pairs."""

from __future__ import annotations

import tracemalloc

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.contingency import with_label_pairs


def test_pairs_of_labels_are_those_that_rows_have_both_of():
    Y = sp.csr_array(np.array([[1, 1, 1], [1, -1, 1], [0, 1, 0], [0, 0, 0]], dtype=np.int8))
    assert with_label_pairs(Y, (1,)) is Y
    found = with_label_pairs(Y, (0, 1, 2))
    assert found.dtype == np.int8
    assert found[:, :3].toarray().tolist() == Y.toarray().tolist()
    assert found[:, 3:].toarray().tolist() == [[1, 1, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0]]
    assert with_label_pairs(Y[:0], (0, 2)).shape == (0, 4)
    unsorted = sp.csr_array((np.ones(2, np.int8), [2, 0], [0, 2]), shape=(1, 3))
    assert with_label_pairs(unsorted, (0, 2)).toarray().tolist() == [[1, 0, 1, 1]]


def test_pairs_take_the_memory_of_those_that_rows_have():
    """Not that of rows times all pairs of labels, here 125 MB."""
    labels = np.concatenate([np.eye(500, dtype=np.int8)] * 2)
    labels[:, 0] = 1
    Y = sp.csr_array(labels)
    tracemalloc.start()
    try:
        found = with_label_pairs(Y, tuple(range(500)))
        assert tracemalloc.get_traced_memory()[1] < 2**20
    finally:
        tracemalloc.stop()
    assert found.shape == (1000, 500 + 124_750)
    assert found[:, 500:].sum() == 998
