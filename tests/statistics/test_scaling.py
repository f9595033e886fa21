"""Centring and scaling by algebra."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.statistics.scaling import Scaling, standard_scaling

X = np.array([[1.0, 5.0, -2.0], [3.0, 5.0, 0.0], [5.0, 5.0, 8.0], [7.0, 5.0, 2.0]])
MOMENTS = FeatureMoments(4, X.mean(axis=0), ((X - X.mean(axis=0)) ** 2).sum(axis=0))


def scaled(scaling):
    return (X - scaling.centre) * scaling.factor


def test_standard_features_have_mean_zero_and_deviation_one():
    Z = scaled(standard_scaling(MOMENTS))
    assert Z.mean(axis=0) == pytest.approx([0, 0, 0], abs=1e-15)
    assert Z.std(axis=0) == pytest.approx([1, 0, 1])
    assert (Z[:, 1] == 0).all()


def test_centred_features_keep_their_scale_and_constant_ones_are_zero():
    scaling = standard_scaling(MOMENTS, standardise=False)
    assert scaling.factor.tolist() == [1, 0, 1]
    Z = scaled(scaling)
    assert Z[:, [0, 2]].tolist() == (X - X.mean(axis=0))[:, [0, 2]].tolist()
    assert (Z[:, 1] == 0).all()


def test_scaled_rows_of_w_stand_for_scaled_features():
    W = np.random.default_rng(0).normal(size=(3, 2))
    scaling = standard_scaling(MOMENTS)
    found = scaling.scale_rows(W)
    assert (X - scaling.centre) @ found == pytest.approx(scaled(scaling) @ W)
    assert found.flags.c_contiguous
    assert not np.shares_memory(found, W)


def test_the_scaling_of_some_features():
    scaling = Scaling(np.array([1.0, 2.0, 3.0]), np.array([4.0, 5.0, 6.0]))
    some = scaling.of_columns(np.array([2, 0]))
    assert (some.centre.tolist(), some.factor.tolist()) == ([3, 1], [6, 4])


def test_no_rows_are_scaled_by_nothing():
    scaling = standard_scaling(FeatureMoments(0, np.zeros(2), np.zeros(2)))
    assert scaling.factor.tolist() == [0, 0]


def test_rows_are_scaled_and_sparse_ones_not_centred():
    X, scaling = np.array([[1.0, 0.0], [3.0, 5.0]]), Scaling(np.array([2.0, 5.0]), np.array([2.0, 0.0]))
    assert scaling.apply(X).tolist() == [[-2, 0], [2, 0]]
    assert scaling.apply(sp.csr_array(X)).toarray().tolist() == [[2, 0], [6, 0]]
    assert X.tolist() == [[1, 0], [3, 5]]
