"""mFSIR as a selector, whichever its graph: warnings, refusals, record, progress."""

from __future__ import annotations

import contextlib
import json

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp
from sklearn.exceptions import ConvergenceWarning

from mlfs_dask import MFSIR, runtime
from mlfs_dask.errors import DataError, UsageError
from tests.problems import labelled_problem as problem
from tests.reference import mfsir as twin


def test_order_of_rows_does_not_matter():
    X, Y = problem(2)
    order = np.random.default_rng(0).permutation(len(X))
    assert MFSIR(4).fit(X[order], Y[order]).scores_ == pytest.approx(MFSIR(4).fit(X, Y).scores_, rel=1e-8)


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_planted_features_are_found(graph):
    rng = np.random.default_rng(3)
    Y = (rng.random((500, 5)) < 0.3).astype(int)
    X = rng.normal(size=(500, 60))
    planted = [7, 19, 23, 42, 55]
    X[:, planted] += 2 * Y
    for parameters in ({}, {"gram_cap": 0}, {"beta": 0}, {"n_latent": 5}):
        assert sorted(MFSIR(5, graph=graph, **parameters).fit(X, Y).ranking_[:5].tolist()) == planted


@pytest.mark.parametrize("label", [0, 1])
def test_a_label_that_never_or_always_occurs(label):
    X, Y = problem()
    Y[:, 1] = label
    never = pytest.warns(UserWarning, match=r"1 of 4 labels has no positive row \(column 1 of Y")
    with never if label == 0 else contextlib.nullcontext():
        found = MFSIR(3).fit(X, Y)
    scores, _, _ = twin.mfsir(X, Y)
    assert found.scores_ == pytest.approx(scores, rel=1e-6, abs=1e-12)
    assert found.ranking_[0] in (0, 2, 3)


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_every_iteration_is_in_the_record_and_in_the_progress(graph):
    X, Y = problem()
    told = []
    with runtime.progress_to(told.append):
        report = MFSIR(3, graph=graph).fit(X, Y).report_
    steps = [event for event in told if event["kind"] == "step"]
    assert [event["objective"] for event in steps] == report.objective
    assert len(report.extra["residual"]) == report.iterations
    # With anchors W moves between iterations.
    assert len(report.extra["step"]) == report.iterations - (graph == "anchors")
    assert report.converged is True
    assert report.extra["rho"] >= 80  # trace and rank of nine standardised features
    json.dumps(report.to_dict(), allow_nan=False)


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_unknown_labels_are_refused_wherever_they_are_found(graph):
    X, Y = problem()
    Y[3, 1] = -1
    message = r"mfsir has no support for missing labels, and Y holds 1 unknown .* column 1 of Y \(counted from 0\)"
    for x, y in ((X, Y), (X, sp.csr_array(Y)), (da.from_array(X, chunks=(20, -1)), da.from_array(Y, chunks=(20, -1)))):
        with pytest.raises(DataError, match=message):
            MFSIR(3, graph=graph).fit(x, y)


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


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_a_loop_cut_short_warns(graph):
    with pytest.warns(ConvergenceWarning, match=r"did not converge in 2 iterations .* Increase max_iter, or tol"):
        found = MFSIR(3, graph=graph, max_iter=2).fit(*problem())
    assert found.report_.converged is False
    assert found.report_.iterations == 2
