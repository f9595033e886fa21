"""What the iterative selectors tell while they run: every reading, counted to its end, and every iteration."""

from __future__ import annotations

import dask.array as da
import numpy as np
import pytest

from mlfs_dask import runtime
from mlfs_dask.cluster.connect import connect
from mlfs_dask.selection.estimator import get_estimator
from tests.selectors.anchored import hide, problem, quiet
from tests.selectors.test_anchored import MODULES

FIRST = {
    "mfsir": ["moments", "start"],
    "access-mfs": ["moments"],
    "smfs": ["moments", "masses", "start"],
}


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


def events_of(method, lazily):
    X, Y = problem(n=200)
    some = Y if method == "mfsir" else hide(Y, "entries")
    if lazily:
        X, some = da.from_array(X, chunks=(70, -1)), da.from_array(some, chunks=(200, -1))
    events = []
    with runtime.progress_to(events.append), runtime.process_limits(threads=2):
        quiet(MODULES[method].anchored(tol=0.0, max_iter=3), X, some)
    return events


def check(method, events):
    passes = [label for kind, label in told(events) if kind == "pass"]
    assert passes == FIRST[method] + 3 * ["rows"]
    assert [event["number"] for event in events if event["kind"] == "step"] == [1, 2, 3]


@pytest.mark.parametrize("lazily", [False, True])
@pytest.mark.parametrize("method", MODULES)
def test_every_reading_is_counted_to_its_end(method, lazily):
    check(method, events_of(method, lazily))


@pytest.mark.cluster
def test_workers_tell_where_they_are(two_workers):
    with connect(scheduler_file=two_workers, min_workers=2):
        for method in MODULES:
            check(method, events_of(method, lazily=True))


def test_a_loop_that_reports_no_steps_has_no_iterations_to_show() -> None:
    events: list[dict[str, object]] = []
    with runtime.progress_to(events.append):
        get_estimator("qpmlfs")(2).fit(np.eye(8), np.eye(8, 2, dtype=int))
    (fit,) = (event for event in events if event["kind"] == "fit")
    assert fit["max_iterations"] is None
