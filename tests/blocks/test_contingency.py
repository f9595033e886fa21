"""Scores from contingency tables: against SciPy's statistics of the same tables; tables in which nothing varies."""

from __future__ import annotations

import tracemalloc

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.contingency import with_label_pairs


def tables(codes=3, p=4, w=5, n=200, seed=0):
    """(joint, marginal, positives, n) of random codes and labels; label 2 never occurs, and label 3 always does."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, codes, (n, w))
    Y = rng.random((n, p)) < 0.3
    Y[:, 2], Y[:, 3] = False, True
    has = np.stack([code == c for c in range(codes)])
    joint = np.einsum("cif,ip->cpf", has.astype(np.int64), Y.astype(np.int64))
    return joint, has.sum(axis=1), Y.sum(axis=0), n


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
