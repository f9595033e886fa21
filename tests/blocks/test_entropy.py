"""Entropies and informations by hand."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.blocks.entropy import entropy_of_counts, mutual_information


def test_entropy_by_hand():
    counts = np.array([[1, 4, 2], [3, 0, 2]])
    expected = [-(0.25 * np.log(0.25) + 0.75 * np.log(0.75)), 0.0, np.log(2)]
    assert entropy_of_counts(counts, 4) == pytest.approx(expected, rel=1e-14)


def test_entropy_of_one_state_is_exactly_zero():
    for n in range(1, 2000):
        assert entropy_of_counts(np.array([[n], [0]]), n)[0] == 0.0


def test_information_of_a_copy_is_its_entropy():
    joint = np.array([[[0]], [[3]]])  # the label is there exactly where the code is 1
    information, entropy = mutual_information(joint, np.array([[5], [3]]), np.array([3]), 8)
    assert information[0, 0] == pytest.approx(entropy[0], rel=1e-14)
    assert entropy[0] > 0


def test_information_of_independent_features_is_exactly_zero():
    # Every combination equally often: the three entropies cancel but for rounding.
    joint = np.array([[[7]], [[7]], [[7]]])
    information, _ = mutual_information(joint, np.array([[21], [21], [21]]), np.array([21]), 63)
    assert information[0, 0] == 0.0


def test_information_by_hand():
    # n = 4, code (0, 0, 1, 1), label (0, 1, 1, 1): H(f) = log 2, H(f, l) = log 4 - (2 log 2) / 4.
    joint = np.array([[[1]], [[2]]])
    information, _ = mutual_information(joint, np.array([[2], [2]]), np.array([3]), 4)
    label = -(0.25 * np.log(0.25) + 0.75 * np.log(0.75))
    both = np.log(4) - 2 * np.log(2) / 4
    assert information[0, 0] == pytest.approx(np.log(2) + label - both, rel=1e-12)


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
