"""Duplicate labels: which they are, and that a collapsed array has the norms and products of the whole one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.duplicate_labels import duplicate_labels

Y = np.array([[1, 0, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0], [0, 0, 0, 0, 1, 0], [1, 0, 1, 0, 1, 0]], float)
EVERY = np.ones((4, 1), bool)


def test_labels_with_the_same_positives_are_duplicates():
    assert duplicate_labels(sp.csr_array(Y), EVERY).group.tolist() == [0, 1, 0, 2, 3, 1]
    assert duplicate_labels(sp.csr_array(Y[:, ::-1]), EVERY).group.tolist() == [0, 1, 2, 3, 0, 3]


def test_what_is_known_has_to_be_the_same_too():
    known = np.ones((4, 6), bool)
    assert duplicate_labels(sp.csr_array(Y), known).group.tolist() == [0, 1, 0, 2, 3, 1]
    known[1, [1, 2]] = False
    assert duplicate_labels(sp.csr_array(Y), known).distinct
    known[1, 5] = False
    assert duplicate_labels(sp.csr_array(Y), known).group.tolist() == [0, 1, 2, 3, 4, 1]


def test_collapsing_keeps_norms_and_products():
    duplicates = duplicate_labels(sp.csr_array(Y), EVERY)
    F = np.random.default_rng(0).random((7, 4))[:, duplicates.group]
    collapsed = duplicates.collapse(F)
    assert collapsed.shape == (7, 4)
    assert collapsed @ collapsed.T == pytest.approx(F @ F.T)
    assert duplicates.expand(collapsed) == pytest.approx(F)
    products = duplicates.expand_both(collapsed.T @ collapsed)
    assert products == pytest.approx(F.T @ F)
    assert (products[0] == products[2]).all()
    A = np.random.default_rng(1).random((6, 6))
    assert collapsed @ duplicates.collapse_both(A) @ collapsed.T == pytest.approx(F @ A @ F.T)
