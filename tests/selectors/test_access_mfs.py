"""Access-MFS as a selector, whichever its graph: warnings, refusals, record, progress."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask import AccessMFS, runtime
from mlfs_dask.errors import DataError, UsageError
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
def test_every_iteration_is_in_the_record_and_in_the_progress(graph):
    events = []
    with runtime.progress_to(events.append):
        report = AccessMFS(graph=graph).fit(*problem()).report_
    steps = [event for event in events if event["kind"] == "step"]
    assert [event["number"] for event in steps] == list(range(1, report.iterations + 1))
    assert [event["objective"] for event in steps] == report.objective
    # With anchors W moves between iterations.
    assert len(report.extra["step"]) == len(report.extra["rank"]) == report.iterations - (graph == "anchors")
    assert abs(report.objective[-1] - report.objective[-2]) <= 1e-6 * report.objective[-1]
    json.dumps(report.to_dict())


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_labels_that_are_all_unknown_are_refused(graph):
    X, Y = problem()
    with pytest.raises(DataError, match=r"no row of Y has a known label\n.*give labels 1 and 0 for some rows"):
        AccessMFS(graph=graph).fit(X, np.full_like(Y, -1))
    with pytest.raises(DataError, match="no row of Y has a known label that is positive"):
        AccessMFS(graph=graph, unknown_labels="zeros").fit(X, np.zeros_like(Y))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"variant": "new"}, "variant must be 'corrected' or 'published_code'; got 'new'"),
        ({"unknown_labels": "no"}, "unknown_labels must be 'coded' or 'zeros'; got 'no'"),
        ({"standardise": "yes"}, "standardise must be true or false; got 'yes'"),
        ({"lambda_": -1}, "lambda_ must be a non-negative number; got -1"),
        ({"theta": "a"}, "theta must be a non-negative number; got 'a'"),
        ({"mu": float("nan")}, "mu must be a non-negative number; got nan"),
        ({"tol": None}, "tol must be a non-negative number; got None"),
        ({"solver_tol": 0.0}, "solver_tol must be a number from 1e-12 to 0.1; got 0.0"),
        ({"solver_tol": 0.5}, "solver_tol must be a number from 1e-12 to 0.1; got 0.5"),
        ({"k_s": 0}, "k_s must be a whole number of at least 1; got 0"),
        ({"k_p": 1.5}, "k_p must be a whole number of at least 1; got 1.5"),
        ({"inner_iterations": 0}, "inner_iterations must be a whole number of at least 1; got 0"),
        ({"gram_cap": -1}, "gram_cap must be a whole number of at least 0; got -1"),
        ({"max_iter": True}, "max_iter must be a whole number of at least 1; got True"),
        ({"random_state": -1}, "random_state must be a whole number of at least 0; got -1"),
    ],
)
def test_impossible_parameters_are_refused(parameters, message):
    with pytest.raises(UsageError, match=message):
        AccessMFS(3, **parameters).fit(*problem())


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_a_loop_cut_short_warns(graph):
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 2 iterations .* Increase max_iter, or tol"):
        found = AccessMFS(graph=graph, max_iter=2).fit(*problem())
    assert found.report_.converged is False
    assert found.report_.iterations == 2


def test_what_the_last_solve_for_w_left_is_told(monkeypatch):
    monkeypatch.setattr(exact_form, "WEIGHT_STEPS", 2)
    X, Y = np.random.default_rng(0).normal(size=(120, 60)), np.random.default_rng(1).integers(0, 2, (120, 3))
    cure = r"in the equation of W\. Give gram_cap at least the number of features"
    with pytest.warns(ConvergenceWarning, match="did not converge in 3"), pytest.warns(ConvergenceWarning, match=cure):
        AccessMFS(graph="exact", gram_cap=0, max_iter=3).fit(X, Y)
