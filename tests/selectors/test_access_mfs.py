"""Access-MFS as a selector, whichever its graph: warnings, refusals, record, progress."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask import AccessMFS
from mlfs_dask.errors import DataError
from mlfs_dask.exact import access_mfs as exact_form
from tests.problems import quiet
from tests.problems import semi_supervised_problem as problem


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_zeros_may_stand_for_unknown_rows(graph):
    X, Y = problem(3)
    Y[(Y == 0).all(axis=1), 0] = 1
    zeros = np.maximum(Y, 0)
    coded = quiet(AccessMFS(graph=graph), X, Y)
    assert quiet(AccessMFS(graph=graph, unknown_labels="zeros"), X, zeros).scores_.tolist() == coded.scores_.tolist()
    assert quiet(AccessMFS(graph=graph, unknown_labels="zeros"), X, Y).scores_.tolist() == coded.scores_.tolist()
    assert quiet(AccessMFS(graph=graph), X, zeros).report_.extra["labelled_rows"] == 70


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_labels_that_are_all_unknown_are_refused(graph):
    X, Y = problem()
    with pytest.raises(DataError, match=r"are known in no row\n.*give labels 1 and 0 for some rows"):
        AccessMFS(graph=graph).fit(X, np.full_like(Y, -1))
    with pytest.raises(DataError, match="no row of Y has a known label that is positive"):
        AccessMFS(graph=graph, unknown_labels="zeros").fit(X, np.zeros_like(Y))


def test_what_the_last_solve_for_w_left_is_told(monkeypatch):
    monkeypatch.setattr(exact_form, "WEIGHT_STEPS", 2)
    X, Y = np.random.default_rng(0).normal(size=(120, 60)), np.random.default_rng(1).integers(0, 2, (120, 3))
    cure = r"in the equation of W\. Give gram_cap at least the number of features"
    with pytest.warns(ConvergenceWarning, match="did not converge in 3"), pytest.warns(ConvergenceWarning, match=cure):
        AccessMFS(graph="exact", gram_cap=0, max_iter=3).fit(X, Y)
