"""The non-negative start of V and B: unit rows of B, parts of one sign, few labels, none; duplicate labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy import sparse as sp

from mlfs_dask.blocks import factorisation
from mlfs_dask.blocks.duplicate_labels import duplicate_labels
from tests.reference.mfsir import factorise


def nonnegative_factors(Y, most):
    """V and B."""
    T, B = factorisation.nonnegative_factors(Y, most)
    return np.maximum(Y @ T, 0.0), B


def labels(seed, n=30, q=5):
    rng = np.random.default_rng(seed)
    return (rng.random((n, q)) < rng.uniform(0.1, 0.7, q)).astype(np.int8)


@settings(max_examples=50)
@given(st.integers(0, 10**6), st.integers(1, 7), st.integers(1, 7))
@example(3, 3, 2)  # a pair whose two parts have the same size
def test_equals_the_singular_vectors_of_the_twin(seed, q, most):
    Y = labels(seed, q=q)
    V, B = nonnegative_factors(sp.csr_array(Y), most)
    expected_V, expected_B = factorise(Y, most)
    assert V.shape == expected_V.shape
    assert (V >= 0).all()
    assert (B >= 0).all()
    assert np.linalg.norm(B, axis=1) == pytest.approx(1)
    gaps = np.diff(np.linalg.svd(Y.astype(float), compute_uv=False))
    if len(gaps) == 0 or gaps.max() < -1e-6:  # vectors of equal values are arbitrary
        assert pytest.approx(expected_V, abs=1e-6) == V
        assert pytest.approx(expected_B, abs=1e-6) == B


def test_labels_that_never_meet_are_found_exactly():
    Y = np.repeat(np.eye(3, dtype=np.int8), [5, 3, 2], axis=0)
    V, B = nonnegative_factors(sp.csr_array(Y), 3)
    assert pytest.approx(Y) == V @ B
    assert pytest.approx(np.eye(3)) == B


@pytest.mark.parametrize("n", [0, 4])
def test_no_label_occurs(n):
    V, B = nonnegative_factors(sp.csr_array((n, 3), dtype=np.int8), 2)
    assert V.shape == (n, 1)
    assert not V.any()
    assert B.tolist() == [[1, 0, 0]]


def test_of_equal_parts_the_same_is_taken_whatever_the_sign_of_the_vector(monkeypatch):
    Y = sp.csr_array(np.array([[1, 0], [0, 1], [1, 1]], dtype=np.int8))  # second pair: (1, -1)
    first = nonnegative_factors(Y, 2)
    eigh = np.linalg.eigh
    monkeypatch.setattr(np.linalg, "eigh", lambda A: (eigh(A)[0], -eigh(A)[1]))
    for one, other in zip(first, nonnegative_factors(Y, 2), strict=True):
        assert one == pytest.approx(other, abs=1e-12)
    assert first[1][1].tolist() == pytest.approx([1, 0])


# ---------------------------------------------------------------- duplicate labels


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
