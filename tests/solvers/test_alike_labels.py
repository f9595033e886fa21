"""Labels known alike: who they are, and that a folded array has the norms and products of the whole one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import row_arrays
from mlfs_dask.row_arrays import RowSpace
from mlfs_dask.solvers.alike_labels import AlikeLabels, alike_labels

Y = np.array([[1, 0, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0], [1, 0, 1, 0, 1, 0]], float)
EVERY = np.ones((4, 1), bool)


@pytest.mark.parametrize("block_bytes", [1, 2**20])
def test_labels_with_the_same_positives_are_alike(monkeypatch, block_bytes):
    monkeypatch.setattr(row_arrays, "BLOCK_BYTES", block_bytes)
    assert alike_labels(sp.csr_array(Y), EVERY).group.tolist() == [0, 1, 0, 2, 3, 1]
    assert alike_labels(sp.csr_array(Y[:, ::-1]), EVERY).group.tolist() == [0, 1, 2, 3, 0, 3]


def test_what_is_known_has_to_be_the_same_too():
    known = np.ones((4, 6), bool)
    assert alike_labels(sp.csr_array(Y), known).group.tolist() == [0, 1, 0, 2, 3, 1]
    known[1, [1, 2]] = False
    assert alike_labels(sp.csr_array(Y), known).distinct
    known[1, 5] = False
    assert alike_labels(sp.csr_array(Y), known).group.tolist() == [0, 1, 2, 3, 4, 1]


def test_few_rows_and_labels():
    assert alike_labels(sp.csr_array((0, 3)), np.ones((0, 1), bool)).group.tolist() == [0, 0, 0]
    assert alike_labels(sp.csr_array((5, 1)), np.ones((5, 1), bool)).distinct


@pytest.mark.parametrize("in_files", [False, True])
def test_folding_keeps_norms_and_products(tmp_path, in_files):
    space = RowSpace(tmp_path if in_files else None)
    alike = alike_labels(sp.csr_array(Y), EVERY)
    F = np.random.default_rng(0).random((7, 4))[:, alike.group]
    folded = alike.fold(F)
    assert folded.shape == (7, 4)
    assert folded @ folded.T == pytest.approx(F @ F.T)
    assert alike.unfold(folded, space) == pytest.approx(F)
    products = alike.unfold_both(folded.T @ folded)
    assert products == pytest.approx(F.T @ F)
    assert (products[0] == products[2]).all()
    A = np.random.default_rng(1).random((6, 6))
    assert folded @ alike.fold_both(A) @ folded.T == pytest.approx(F @ A @ F.T)


def test_folding_labels_keeps_what_is_known():
    known = np.ones((4, 6), bool)
    known[2, [0, 2]] = False
    alike = alike_labels(sp.csr_array(Y), known)
    folded, kept = alike.fold_labels(sp.csr_array(Y), known)
    assert folded.toarray() == pytest.approx(alike.fold(Y))
    assert kept.tolist() == known[:, [0, 1, 3, 4]].tolist()
    assert alike.fold_labels(sp.csr_array(Y), EVERY)[1] is EVERY


def test_distinct_labels_are_left_as_they_are():
    alike = AlikeLabels(np.arange(3))
    A, B, known = np.ones((3, 3)), sp.csr_array(np.eye(3)), np.ones((3, 3), bool)
    assert alike.fold(A) is alike.unfold(A) is alike.fold_both(A) is alike.unfold_both(A) is A
    assert alike.fold_labels(B, known) == (B, known)
