"""CMFS: its twin's objective, rows of one label set, features and their opposites, what no d × d matrix means."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import CMFS
from mlfs_dask.blocks.label_sets import LabelSets, frequent_label_sets, label_set_keys
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.runtime import Resources, driver_bytes
from tests.reference.cmfs import cmfs
from tests.selectors.anchored import larger, problem, quiet


@pytest.mark.parametrize("parameters", [{}, {"n_latent": 2, "beta": 5.0}, {"alpha": 1.0, "gamma": 0.5}], ids=str)
def test_equals_the_plain_twin_and_its_objective_falls(parameters):
    for seed in range(2):
        X, Y = problem(seed)
        found = quiet(CMFS(3, **parameters), X, Y)
        scores, objective = cmfs(X, Y, **parameters)
        assert found.report_.objective == pytest.approx(objective, rel=1e-9)
        assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-8)
        assert found.report_.passes == 2 + len(objective)
        assert (np.diff(objective) <= 1e-6 * objective[0]).all()


def test_a_feature_and_its_opposite_in_other_units_score_alike():
    X, Y = problem(2)
    other = X.copy()
    other[:, 1] = 40.0 - 3.0 * X[:, 1]
    other[:, 4] += 100.0
    assert quiet(CMFS(3), other, Y).scores_ == pytest.approx(quiet(CMFS(3), X, Y).scores_, rel=1e-7, abs=1e-9)


def test_the_graph_joins_rows_of_one_label_set():
    X, Y = problem(3)
    none, some, more = (
        quiet(CMFS(3, **given), X, Y)
        for given in ({"beta": 0.0}, {"beta": 20.0, "n_label_sets": 1}, {"beta": 20.0, "n_label_sets": 16})
    )
    assert some.report_.extra["label_sets"] == 1 < more.report_.extra["label_sets"]
    for found in (some, more):
        assert np.abs(found.scores_ - none.scores_).max() > 1e-4 * none.scores_.max()
    assert np.abs(more.scores_ - some.scores_).max() > 1e-4 * none.scores_.max()


def test_label_sets_are_told_apart_and_counted():
    Y = sp.csr_array(np.array([[1, 0, 1], [0, 1, 0], [1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 1, 0], [1, 1, 1]], np.int8))
    keys = label_set_keys(Y)
    assert [keys.tolist().index(key) for key in keys] == [0, 1, 0, 3, 1, 1, 6]
    assert frequent_label_sets(Y, 5).tolist() == sorted([keys[0], keys[1]])
    assert frequent_label_sets(Y, 1).tolist() == [keys[1]]
    Z = LabelSets(frequent_label_sets(Y, 5)).members(Y)
    assert Z.sum(axis=1).tolist() == [1, 1, 1, 0, 1, 1, 0]
    assert (Z @ Z.T).toarray()[0].tolist() == [1, 0, 1, 0, 0, 0, 0]
    assert LabelSets(np.empty(0, np.uint64)).members(Y).shape == (7, 0)


def test_nothing_has_as_many_numbers_as_there_are_pairs_of_features():
    wide = as_rows(sp.random_array((40, 50_000), density=1e-3, format="csr", rng=0), np.eye(40, 5, dtype=int))
    plan = CMFS(2).plan(larger(wide.profile, 100_000), Resources(1, 1, 2**32, 2**32))
    assert plan.peak_driver_bytes - driver_bytes() < 2**30
