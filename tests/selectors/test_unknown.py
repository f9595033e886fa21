"""Unknown labels, of every method: what `unknown` makes of them, in every container."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from tests.selectors.test_matrix import every_method, fit, make, problem


def partly_unknown(Y, share=0.2, seed=0):
    """Y of which some entries are unknown in all labels but the last."""
    unknown = np.random.default_rng(seed).random(Y.shape) < share
    unknown[:, -1] = False
    return np.where(unknown, np.int8(-1), Y)


def containers(X, Y):
    """Rows as arrays, sparse, and as Dask arrays, whose labels are not counted before a reading."""
    yield X, Y
    yield sp.csr_array(X), sp.csr_array(Y)
    yield da.from_array(X, chunks=(17, 4)), da.from_array(Y, chunks=(17, 2))


@every_method
def test_unknown_labels_that_are_negative_are_0_and_refused_ones_an_error(name):
    X, Y = problem()
    unknown = partly_unknown(Y)
    expected = fit(make(name), X, np.maximum(unknown, 0)).scores_
    for rows in containers(X, unknown):
        assert fit(make(name, unknown="negative"), *rows).scores_ == pytest.approx(expected, rel=1e-9, abs=1e-12)
        with pytest.raises(DataError, match=r"unknown='refuse' was given.* column 0 of Y|in column .*counted from 0"):
            fit(make(name, unknown="refuse"), *rows)
    assert (fit(make(name, unknown="refuse"), X, Y).scores_ == fit(make(name), X, Y).scores_).all()
