"""mFSIR as a selector, whichever its graph: warnings, refusals, record, progress."""

from __future__ import annotations

import pytest

from mlfs_dask import MFSIR
from mlfs_dask.errors import UsageError
from tests.problems import labelled_problem as problem


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"step": "other"}, "step must be 'blockwise' or 'fixed'; got 'other'"),
        ({"alpha": -1}, "alpha must be a non-negative number; got -1"),
        ({"alpha": True}, "alpha must be a non-negative number; got True"),
        ({"beta": float("inf")}, "beta must be a non-negative number; got inf"),
        ({"lambda_": 0}, "lambda_ must be a positive number; got 0"),
        ({"eta": 0.0}, "eta must be a positive number; got 0.0"),
        ({"omega": None}, "omega must be a positive number; got None"),
        ({"tol": -1e-3}, "tol must be a non-negative number; got -0.001"),
        ({"n_latent": 0}, "n_latent must be a whole number of at least 1; got 0"),
        ({"n_latent": 5}, "n_latent is 5, but there are 4 labels; give at most 4"),
        ({"n_neighbors": 2.5}, "n_neighbors must be a whole number of at least 1; got 2.5"),
        ({"weight_steps": 0}, "weight_steps must be a whole number of at least 1; got 0"),
        ({"label_steps": None}, "label_steps must be a whole number of at least 1; got None"),
        ({"gram_cap": -1}, "gram_cap must be a whole number of at least 0; got -1"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0; got -1"),
        ({"random_state": 2**32}, "random_state must be at most 4294967295; got 4294967296"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        MFSIR(3, **parameters).fit(*problem())
