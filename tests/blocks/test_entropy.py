"""Entropies and informations by hand."""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.entropy import entropy_of_counts, mutual_information


def test_entropy_of_one_state_is_exactly_zero():
    for n in range(1, 2000):
        assert entropy_of_counts(np.array([[n], [0]]), n)[0] == 0.0


def test_information_of_independent_features_is_exactly_zero():
    # Every combination equally often: the three entropies cancel but for rounding.
    joint = np.array([[[7]], [[7]], [[7]]])
    information, _ = mutual_information(joint, np.array([[21], [21], [21]]), np.array([21]), 63)
    assert information[0, 0] == 0.0


def test_information_does_not_depend_on_what_is_beside_it():
    rng = np.random.default_rng(3)
    n = 1000
    joint = rng.integers(0, 100, (4, 5, 37))
    marginal = joint.max(axis=1) + rng.integers(0, 100, (4, 37))
    positives = rng.integers(1, n, 5)
    whole, _ = mutual_information(joint, marginal, positives, n)
    for f in range(37):
        alone, _ = mutual_information(joint[:, :, f : f + 1], marginal[:, f : f + 1], positives, n)
        assert np.array_equal(alone[:, 0], whole[:, f])
