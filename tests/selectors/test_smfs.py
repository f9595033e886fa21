"""SMFS as a selector, whichever its graph: warnings, refusals, record, progress."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask import SMFS, runtime
from mlfs_dask.errors import DataError, UsageError
from tests.problems import problem_with_equal_rows as problem

SMALL = {"n_neighbors": 5, "n_trees": 12, "max_samples": 32}


def hidden(Y, entries=0.3):
    """Y of which half of the rows, and some entries, are unknown."""
    rng = np.random.default_rng(1)
    return np.where((rng.random((len(Y), 1)) < 0.5) | (rng.random(Y.shape) < entries), np.int8(-1), Y)


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_iterations_are_told_and_recorded(tmp_path, graph):
    import json

    X, Y = problem()
    events = []
    with runtime.progress_to(events.append):
        report = SMFS(3, graph=graph, **SMALL).fit(X, hidden(Y)).report_
    steps = [event for event in events if event["kind"] == "step"]
    assert [s["objective"] for s in steps] == report.objective
    assert [s["number"] for s in steps] == list(range(1, report.iterations + 1))
    extra = json.loads(json.dumps(report.to_dict(), allow_nan=False))["extra"]
    assert extra["step"] == [s["step"] for s in steps]
    assert extra["step"][-1] <= 1e-4
    assert extra["constant_features"] == 1
    positive = hidden(Y) == 1
    weights = positive @ (1 / positive.sum(axis=0))
    share = 1 / 3 if graph == "anchors" else 1
    assert extra["alpha"] == pytest.approx(share * weights[weights > 0].mean())


@pytest.mark.parametrize("graph", ["exact", "anchors"])
@pytest.mark.parametrize(("gram_cap", "typical"), [(4096, (2, 23)), (4, (4, 45))])
def test_what_is_typical_depends_on_the_gram_cap(graph, gram_cap, typical):
    """With few features at a time there are more iterations."""
    X, Y = problem()
    events = []
    with runtime.progress_to(events.append):
        report = SMFS(3, graph=graph, gram_cap=gram_cap, **SMALL).fit(X, hidden(Y)).report_
    (begun,) = [event for event in events if event["kind"] == "fit"]
    assert begun["typical_iterations"] == typical
    if graph == "anchors":
        few, many = report.plan["typical_passes"]
        assert few <= report.passes <= many
        assert f"{typical[0]} to {typical[1]} iterations" in report.plan["notes"][0]


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_penalty_beyond_the_largest_useful_one_leaves_nothing(graph):
    X, Y = problem()
    with pytest.warns(UserWarning, match=r"SMFS went to P = 0: beta is too large\. Scores are what is left of P"):
        SMFS(3, graph=graph, beta=1e9, unknown_labels="coded", **SMALL).fit(X, Y)


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_no_positive_label_at_all_is_told(graph):
    X, Y = problem()
    with pytest.warns(UserWarning, match="SMFS cannot rank the features: no row has a known positive label"):
        found = SMFS(3, graph=graph, **SMALL).fit(X, np.where(Y == 1, -1, 0))
    assert not found.scores_.any()
    with pytest.raises(DataError, match=r"no row of Y has a positive label\n  cure: give labels 1 and 0"):
        SMFS(3, graph=graph, **SMALL).fit(X, np.zeros_like(Y))
    with pytest.raises(DataError, match="no label of any row is known"):
        SMFS(3, graph=graph, **SMALL).fit(X, np.full_like(Y, -1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": -1.0}, "alpha must be a non-negative number; got -1.0"),
        ({"beta": float("nan")}, "beta must be a non-negative number; got nan"),
        ({"tol": None}, "tol must be a non-negative number; got None"),
        ({"n_neighbors": 0}, "n_neighbors must be a whole number of at least 1; got 0"),
        ({"n_trees": 1.5}, "n_trees must be a whole number of at least 1; got 1.5"),
        ({"max_samples": 2**17}, "max_samples must be a whole number from 1 to 65536; got 131072"),
        ({"unknown_labels": "some"}, "unknown_labels must be 'auto', 'coded' or 'zeros'; got 'some'"),
        ({"consistency": "yes"}, "consistency must be 'observed' or 'none'; got 'yes'"),
        ({"standardise": 2}, "standardise must be true or false; got 2"),
        ({"gram_cap": -1}, "gram_cap must be a whole number of at least 0; got -1"),
        ({"max_iter": 0}, "max_iter must be a whole number of at least 1; got 0"),
        ({"inner_iterations": 0}, "inner_iterations must be a whole number of at least 1; got 0"),
        ({"random_state": -3}, "random_state must be a whole number of at least 0; got -3"),
    ],
)
def test_parameters_are_checked(options, message):
    with pytest.raises(UsageError) as error:
        SMFS(3, **options).fit(*problem())
    assert message in str(error.value)


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_a_loop_cut_short_warns(graph):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ConvergenceWarning, match=r"SMFS did not converge in 1 iteration\. Increase max_iter\.$"):
            SMFS(3, graph=graph, max_iter=1, **SMALL).fit(*problem())


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_the_seed_settles_the_forest(graph):
    X, Y = problem()
    one, again, other, first, zero = (
        SMFS(3, graph=graph, random_state=seed, **SMALL).fit(X, Y) for seed in (1, 1, 2, None, 0)
    )
    assert one.scores_.tolist() == again.scores_.tolist() != other.scores_.tolist()
    assert first.scores_.tolist() == zero.scores_.tolist()
    assert one.report_.seed == 1
