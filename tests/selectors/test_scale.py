"""Units and origins of features change no score of a method that standardises them; and two rows are data, too."""

from __future__ import annotations

import contextlib
import warnings

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from tests.selectors.test_matrix import settings_of

#: Methods whose published score has the units of the features, or whose draws act like another seed for other values.
IN_UNITS = {"gmlc", "lassonet"}


def problem():
    rng = np.random.default_rng(0)
    Y = (rng.random((80, 3)) < 0.4).astype(np.int8)
    X = np.round(1024 * rng.normal(size=(80, 8)) * (rng.random((80, 8)) < 0.7)) / 1024
    X[:, :3] += Y
    Y[rng.random(Y.shape) < 0.3] = -1
    return X, Y


def scores(name, X, Y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return get_estimator(name)(2, **settings_of(name)).fit(X, Y).scores_


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize("name", [name for name in METHODS if name not in IN_UNITS])
def test_features_may_have_any_unit(name, container):
    """Powers of two, which round nothing: 1e-18 for all, and one for each."""
    X, Y = problem()
    expected = scores(name, container(X), Y)
    for units in (2.0**-60, 2.0 ** np.linspace(-60, 60, X.shape[1]).round()):
        np.testing.assert_allclose(scores(name, container(X * units), Y), expected, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", ["anova-f", "br-cc", "elc", "mddm"])
def test_features_may_be_far_from_zero_where_few_labels_are_known(name):
    X, Y = problem()
    Y[8:] = -1
    np.testing.assert_allclose(scores(name, X + 2.0**40, Y), scores(name, X, Y), rtol=1e-9)


@pytest.mark.parametrize("name", METHODS)
def test_two_rows_of_which_one_is_labelled_give_numbers_or_an_error_in_the_data(name):
    """Sums of squares that are rounding may be below 0; their roots made a RuntimeWarning of `leda`."""
    X, Y = np.array([[3.0, 7.0], [4.0, 0.0]]), np.array([[1, 0], [-1, 0]], np.int8)
    with contextlib.suppress(DataError):
        assert np.isfinite(scores(name, X, Y)).all()
