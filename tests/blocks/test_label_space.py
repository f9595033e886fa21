"""Label similarity, correlations and the diagnostics R and C, by hand and against the plain twin."""

from __future__ import annotations

import math

import numpy as np
import pytest

from mlfs_dask.blocks.label_space import (
    label_correlations,
    label_similarity,
    redundancy,
    residual_correlation,
    standardised_products,
)
from tests.reference import elc as twin


def problem(seed=0):
    rng = np.random.default_rng(seed)
    Y = (rng.random((40, 4)) < [0.5, 0.3, 0.2, 0.0]).astype(int)
    X = rng.normal(size=(40, 5)) + Y[:, :1]
    X[:, 3] = 2.5
    return X, Y


def similarity(Y):
    return label_similarity(Y.T @ Y, Y.sum(axis=0))


def test_similarity_equals_the_twin():
    _, Y = problem()
    assert similarity(Y) == pytest.approx(twin.similarity(Y))


def test_labels_that_never_meet_have_no_similarity():
    S = similarity(np.array([[1, 0], [0, 1], [1, 0]]))
    assert S[0, 1] == S[1, 0] == 0.0
    assert S.diagonal().tolist() == [1.0, 1.0]


def test_a_label_that_never_occurs_has_none_with_itself():
    assert similarity(np.array([[1, 0], [1, 0]]))[1].tolist() == [0.0, 0.0]


@pytest.mark.parametrize("Y", [np.ones((3, 1), int), np.ones((3, 2), int)])
def test_labels_that_are_all_equal(Y):
    assert (similarity(Y) == 1.0).all()


def test_similarity_need_not_be_positive_semidefinite():
    # Two labels that never meet, each close to a third (a fourth, far from all, sets the scale).
    Y = np.array([[1, 0, 1, 0]] * 9 + [[0, 1, 1, 0]] * 9 + [[0, 0, 0, 1]] * 90)
    assert np.linalg.eigvalsh(similarity(Y))[0] < 0


def test_correlations_equal_those_of_numpy():
    X, Y = problem()
    A = Y.T.astype(float) @ twin.standardise(X)
    found = label_correlations(A, Y.sum(axis=0), len(X))
    for c in range(3):
        for f in (0, 1, 2, 4):
            assert found[c, f] == pytest.approx(np.corrcoef(Y[:, c], X[:, f])[0, 1])
    assert not found[3].any()  # a label that never occurs
    assert not found[:, 3].any()  # a constant feature


def test_standardising_is_division_and_constants_are_zero():
    products = np.array([[2.0, 3.0], [4.0, 1e-9]])
    found = standardised_products(products, np.array([2.0, 0.0]))
    assert found.tolist() == [[1.0, 0.0], [2.0, 0.0]]
    assert found is products


@pytest.mark.parametrize("chosen", [[0, 1], [0, 1, 2, 3], [4, 2, 0]])
def test_diagnostics_equal_the_twin(chosen):
    X, Y = problem()
    A = Y.T.astype(float) @ twin.standardise(X)
    correlations = label_correlations(A, Y.sum(axis=0), len(X))
    assert redundancy(correlations, chosen) == pytest.approx(twin.redundancy(X, Y, chosen))
    found = residual_correlation(A, similarity(Y), len(X), chosen)
    assert found == pytest.approx(twin.residual_correlation(X, Y, chosen))


def test_the_constant_of_eq_17_is_one_over_n_to_the_fourth_outside():
    X, Y = problem()
    A, n = Y.T.astype(float) @ twin.standardise(X), len(X)
    outside = ((A @ A.T - n**2 * similarity(Y)) ** 2).sum() / n**4 / (5 * 4)
    assert residual_correlation(A, similarity(Y), n, np.ones(5, bool)) == pytest.approx(outside)


def test_one_feature_has_no_pairs():
    assert math.isnan(redundancy(np.ones((1, 3)), [0]))
    assert math.isnan(residual_correlation(np.ones((1, 3)), np.ones((1, 1)), 3, [0]))
