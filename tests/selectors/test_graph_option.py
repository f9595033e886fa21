"""The parameter `graph` of the selectors that make a neighbour graph."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import MFSIR, SMFS, AccessMFS
from mlfs_dask.primitives import moving_points, neighbours

SELECTORS = [(MFSIR, {"max_iter": 3}), (SMFS, {"max_iter": 3, "n_trees": 10}), (AccessMFS, {"max_iter": 3})]


def problem(n=120, d=6, q=3):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d))
    Y = (X[:, :q] + 0.3 * rng.normal(size=(n, q)) > 0.5).astype(np.int8)
    Y[:, 0] |= Y.sum(axis=1) == 0
    return X, Y


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("selector", "parameters"), SELECTORS)
def test_few_rows_give_the_same_scores_with_either_graph(selector, parameters):
    X, Y = problem()
    exact, approximate, auto = (
        selector(n_features_to_select=2, graph=graph, **parameters).fit(X, Y)
        for graph in ("exact", "approximate", "auto")
    )
    assert approximate.scores_ == pytest.approx(exact.scores_, rel=1e-9, abs=1e-12)
    assert auto.scores_.tolist() == exact.scores_.tolist()
    assert exact.report_.extra["graph"] == auto.report_.extra["graph"] == {"kind": "exact"}
    facts, notes = approximate.report_.extra["graph"], approximate.report_.plan["notes"]
    if selector is AccessMFS:  # whose graph of few rows is made anew every time, and sooner exactly
        assert facts == {"kind": "exact"}
    else:
        assert (facts["kind"], facts["recall"]) == ("approximate", 1.0)
    assert any(f"{facts['kind']} neighbour graph" in note for note in notes)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize(("selector", "parameters"), SELECTORS)
def test_a_graph_that_misses_neighbours_is_warned_of(selector, parameters, monkeypatch):
    X, Y = problem()
    monkeypatch.setattr(neighbours, "LEAST_RECALL", 1.1)
    monkeypatch.setattr(moving_points, "ALL_PAIRS", 0)
    with pytest.warns(UserWarning, match="holds 100% of the true neighbours"):
        selector(n_features_to_select=2, graph="approximate", **parameters).fit(X, Y)
