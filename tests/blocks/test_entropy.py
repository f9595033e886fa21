"""Entropies and informations by hand."""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.entropy import entropy_of_counts, information
from mlfs_dask.blocks.pair_scores import Counts


def test_entropy_of_one_state_is_exactly_zero():
    for n in range(1, 2000):
        assert entropy_of_counts(np.array([[n], [0]]), n)[0] == 0.0


def test_information_of_independent_features_is_exactly_zero():
    # Every combination equally often: the three entropies cancel but for rounding.
    joint = np.array([[[7]], [[7]], [[7]]])
    assert information(Counts(joint, np.full((3, 1, 1), 21), np.array([[21]]), 63))[0, 0] == 0.0


def test_information_does_not_depend_on_what_is_beside_it():
    rng = np.random.default_rng(3)
    n = 1000
    joint = rng.integers(0, 100, (4, 5, 37))
    marginal = joint.max(axis=1, keepdims=True) + rng.integers(0, 100, (4, 1, 37))
    counts = Counts(joint, marginal, rng.integers(1, n, (5, 1)), n)
    whole = information(counts)
    for f in range(37):
        alone = information(counts.tile(np.arange(5), slice(f, f + 1)))
        assert np.array_equal(alone[:, 0], whole[:, f])
