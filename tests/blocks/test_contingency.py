"""Scores from contingency tables: against SciPy's statistics of the same tables; tables in which nothing varies."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse as sp
from scipy import stats

from mlfs_dask.blocks.contingency import AssignedChiSquare, ChiSquare, OddsRatio, PairInteraction, with_label_pairs
from mlfs_dask.blocks.entropy import mutual_information


def tables(codes=3, p=4, w=5, n=200, seed=0):
    """(joint, marginal, positives, n) of random codes and labels; label 2 never occurs, and label 3 always does."""
    rng = np.random.default_rng(seed)
    code = rng.integers(0, codes, (n, w))
    Y = rng.random((n, p)) < 0.3
    Y[:, 2], Y[:, 3] = False, True
    has = np.stack([code == c for c in range(codes)])
    joint = np.einsum("cif,ip->cpf", has.astype(np.int64), Y.astype(np.int64))
    return joint, has.sum(axis=1), Y.sum(axis=0), n


def test_chi_square_is_that_of_scipy():
    joint, marginal, positives, n = tables()
    found = ChiSquare()(joint, marginal, positives, n)
    for f in range(5):
        expected = 0.0
        for label in (0, 1):
            table = np.stack([joint[:, label, f], marginal[:, f] - joint[:, label, f]])
            expected += stats.chi2_contingency(table, correction=False).statistic
        assert found[f] == pytest.approx(expected, rel=1e-12)


def test_assigned_chi_square_is_that_of_scipy_over_labels_that_occur():
    joint = np.random.default_rng(1).random((3, 4, 5))
    joint[:, 2] = 0
    found = AssignedChiSquare()(joint, np.ones((3, 5)), joint.sum(axis=0)[:, 0], 1.0)
    expected = stats.chi2_contingency(joint[:, [0, 1, 3], 0]).statistic
    assert found[0] == pytest.approx(expected, rel=1e-12)
    assert AssignedChiSquare()(0 * joint, np.ones((3, 5)), np.zeros(4), 9.0).tolist() == [0.0] * 5


def test_odds_ratio_is_that_of_scipy():
    joint, marginal, positives, n = tables(codes=2)
    found = OddsRatio(2.0)(joint, marginal, positives, n)
    for f in range(5):
        expected = 0.0
        for label in (0, 1):
            a = joint[1, label, f]
            table = [[a, marginal[1, f] - a], [positives[label] - a, n - marginal[1, f] - positives[label] + a]]
            expected += abs(np.log(stats.contingency.odds_ratio(np.array(table) + 2, kind="sample").statistic))
        assert found[f] == pytest.approx(expected, rel=1e-12)


@pytest.mark.parametrize("formula", [ChiSquare(), OddsRatio(0.5)], ids=str)
def test_features_of_one_code_and_labels_of_one_value_add_nothing(formula):
    joint, marginal, positives, n = tables(codes=1)
    assert formula(joint, marginal, positives, n).tolist() == [0.0] * 5
    joint, marginal, positives, n = tables()
    assert np.array_equal(formula(joint, marginal, positives, n), formula(joint[:, :2], marginal, positives[:2], n))


def test_without_pairs_interaction_is_the_sum_of_informations():
    joint, marginal, positives, n = tables()
    shared, _ = mutual_information(joint, marginal, positives, n)
    for chosen in ((), (1,)):
        formula = PairInteraction(4, chosen).with_labels(positives, n)
        assert formula(joint, marginal, positives, n) == pytest.approx(shared.sum(axis=0))


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
