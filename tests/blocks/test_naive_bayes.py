"""Naive Bayes of codes: against loops over rows, and even odds."""

from __future__ import annotations

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.naive_bayes import UNIT, bayes_terms, count_mistakes


def test_terms_are_those_of_loops():
    rng = np.random.default_rng(0)
    n_codes = np.array([2, 3, 3])
    codes, Y = np.stack([rng.integers(0, c, 40) for c in n_codes], axis=1), rng.random((40, 2)) < 0.4
    joint, marginal = np.zeros((3, 2, 3)), np.zeros((3, 1, 3))
    for row, labels in zip(codes, Y, strict=True):
        for f, c in enumerate(row):
            marginal[c, 0, f] += 1
            joint[c, labels, f] += 1
    terms = bayes_terms(joint, marginal, Y.sum(axis=0).astype(float), 40.0, n_codes)
    for f in range(3):
        for label in range(2):
            with_label, without = codes[Y[:, label], f], codes[~Y[:, label], f]
            for c in range(n_codes[f]):
                shares = [((own == c).sum() + 1) / (len(own) + n_codes[f]) for own in (with_label, without)]
                assert abs(terms.codes[c, label, f] / UNIT - np.log(shares[0] / shares[1])) < 1e-9
    assert (terms.codes == np.rint(terms.codes)).all()


def test_even_odds_predict_no_label_in_any_order_of_the_features():
    """Counts that mirror each other cancel to nothing, not to a rounding error."""
    joint = np.array([[[7.0, 2.0, 5.0, 4.0]], [[2.0, 7.0, 4.0, 5.0]]])
    marginal = joint + joint[:, :, [1, 0, 3, 2]]
    terms = bayes_terms(joint, marginal, np.array([9.0]), 18.0, np.full(4, 2))
    for order in ([0, 1, 2, 3], [2, 0, 3, 1], [3, 2, 1, 0]):
        first = terms.codes[0, :, order]  # a row that has the first code of all features
        assert count_mistakes(sp.csc_array(np.ones((1, 4))), np.array([[False]]), terms.prior, first) == 0
        assert count_mistakes(sp.csc_array(np.ones((1, 4))), np.array([[True]]), terms.prior, first) == 1
        assert count_mistakes(sp.csc_array(np.ones((1, 4))), np.array([[False]]), terms.prior + 1, first) == 1
