"""SMFS as a selector, whichever its graph: warnings, refusals, record, progress."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask import SMFS, runtime
from mlfs_dask.errors import DataError
from tests.problems import problem_with_equal_rows as problem

SMALL = {"n_neighbors": 5, "n_trees": 12, "max_samples": 32}


def hidden(Y, entries=0.3):
    """Y of which half of the rows, and some entries, are unknown."""
    rng = np.random.default_rng(1)
    return np.where((rng.random((len(Y), 1)) < 0.5) | (rng.random(Y.shape) < entries), np.int8(-1), Y)


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
def test_no_positive_label_at_all_is_told(graph):
    X, Y = problem()
    with pytest.warns(UserWarning, match="SMFS cannot rank the features: no row has a known positive label"):
        found = SMFS(3, graph=graph, **SMALL).fit(X, np.where(Y == 1, -1, 0))
    assert not found.scores_.any()
    with pytest.raises(DataError, match=r"no row of Y has a positive label\n  cure: give labels 1 and 0"):
        SMFS(3, graph=graph, **SMALL).fit(X, np.zeros_like(Y))
    with pytest.raises(DataError, match="are known in no row"):
        SMFS(3, graph=graph, **SMALL).fit(X, np.full_like(Y, -1))


@pytest.mark.parametrize("graph", ["exact", "anchors"])
def test_the_seed_settles_the_forest(graph):
    X, Y = problem()
    one, again, other, first, zero = (
        SMFS(3, graph=graph, random_state=seed, **SMALL).fit(X, Y) for seed in (1, 1, 2, None, 0)
    )
    assert one.scores_.tolist() == again.scores_.tolist() != other.scores_.tolist()
    assert first.scores_.tolist() == zero.scores_.tolist()
    assert one.report_.seed == 1
