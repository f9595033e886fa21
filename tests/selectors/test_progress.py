"""What the iterative selectors tell while they run: every reading and every long step, counted to its end."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from mlfs_dask import MFSIR, SMFS, AccessMFS, runtime
from mlfs_dask.cluster import connect
from mlfs_dask.primitives import isolation
from tests.selectors.test_graph_option import problem

SELECTORS = {
    "mfsir": (MFSIR, {"max_iter": 3}),
    "smfs": (SMFS, {"max_iter": 3, "n_trees": 10}),
    "access-mfs": (AccessMFS, {"max_iter": 3}),
}

#: Stages that each method tells, by graph.
SEARCHED = {
    "mfsir": ["near points: centres", "near points: lists", "principal components"],
    "smfs": ["near points: centres", "forest: growing", "masses: ranking", "masses: true neighbours of a sample"],
    "access-mfs": ["near points: centres", "near points: ranking"],
}
SOLVED = {"mfsir": "latent labels", "smfs": "recovered labels", "access-mfs": "predicted labels"}


def told(events):
    """Labels of all passes and stages, each of which must have been told to its end: (kind, label) in order."""
    labels, open_label, expected, done = [], None, None, 0
    for event in events:
        kind = event["kind"]
        if kind in ("pass", "stage"):
            assert open_label is None, f"{event['label']} begins within {open_label}"
            open_label, expected, done = event["label"], event["partitions" if kind == "pass" else "parts"], 0
            labels.append((kind, open_label))
        elif kind in ("partitions", "parts"):
            assert labels[-1][0] == {"partitions": "pass", "parts": "stage"}[kind]
            done += event["done"]
        elif kind in ("pass-done", "stage-done"):
            assert (event["label"], f"{labels[-1][0]}-done") == (open_label, kind)
            assert done == expected or expected is None, (open_label, done, expected)
            open_label = None
    assert open_label is None
    return labels


@pytest.fixture
def partly_known():
    X, Y = problem(n=2600, d=8)
    hidden = np.random.default_rng(1).random(len(Y)) < 0.5
    return X, Y, np.where(hidden[:, np.newaxis], -1, Y).astype(np.int8)


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("graph", ["exact", "approximate"])
@pytest.mark.parametrize("method", SELECTORS)
def test_every_reading_and_every_search_is_counted_to_its_end(method, graph, partly_known, monkeypatch):
    X, Y, hidden = partly_known
    monkeypatch.setattr(isolation, "COMPILED_WORK", 0)  # as for many rows
    make, parameters = SELECTORS[method]
    events = []
    with runtime.progress_to(events.append), runtime.process_limits(threads=2):
        selector = make(n_features_to_select=2, graph=graph, **parameters).fit(X, Y if method == "mfsir" else hidden)
    labels = told(events)
    stages = {label for kind, label in labels if kind == "stage"}
    assert SOLVED[method] in stages
    assert ("near points: centres" in stages) == (graph == "approximate")
    if graph == "approximate":
        assert stages >= set(SEARCHED[method])
    elif method == "smfs":
        assert "masses: comparing all rows" in stages
    # What is told as a reading is one: of a search, as many as it has groups of rows.
    assert len([kind for kind, _ in labels if kind == "pass"]) <= selector.report_.passes


@pytest.mark.cluster
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
def test_workers_tell_where_they_are(partly_known, monkeypatch):
    X, Y, hidden = partly_known
    monkeypatch.setattr(isolation, "COMPILED_WORK", 0)
    expected = {"mfsir": ("pass", "neighbours"), "smfs": ("stage", "masses: comparing all rows")}
    with connect(workers=2, memory_limit=2**30):
        for method, label in expected.items():
            make, parameters = SELECTORS[method]
            lazy = (da.from_array(A, chunks=(700, -1)) for A in (X, Y if method == "mfsir" else hidden))
            events = []
            with runtime.progress_to(events.append):
                make(n_features_to_select=2, graph="exact", **parameters).fit(*lazy)
            assert label in told(events)
