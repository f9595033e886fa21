"""Seconds of a plan: what is measured runs for every method, and adds up as it should. No test on seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS, timing
from mlfs_dask.selectors.costs import Cost, Reading, project
from mlfs_dask.selectors.timing import estimate_seconds
from mlfs_dask.statistics.moments import Moments
from tests.selectors.anchored import WITHOUT_GRAM

HERE = Resources(1, 1, 2**40, 2**40)
CLUSTER = Resources(2, 1, 2**40, 2**40, client="workers")


class OneBlock(ArrayRows):
    """Rows of which only the first block may be read."""

    def stream(self, first, last):
        yield next(super().stream(first, last))
        raise AssertionError("more than one block was read")


def source(sparse=False, n=400, d=30, q=6):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, d)) < 0.3, rng.normal(size=(n, d)), 0).astype(np.float32)
    Y = sp.csr_array((rng.random((n, q)) < 0.3).astype(np.int8))
    return OneBlock(sp.csr_array(X) if sparse else X, Y, block_bytes=8192)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
@pytest.mark.parametrize("gram_cap", [4096, 10])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_measured_on_one_block(method, gram_cap, sparse, monkeypatch):
    """Every statistic is, and counted as half a second."""
    measure = timing._seconds
    monkeypatch.setattr(timing, "_seconds", lambda *given: 0.5 if measure(*given) > 0 else 0.0)
    selector = get_estimator(method)(5)
    for name, value in (
        ("n_candidates", gram_cap),
        ("n_landmarks", gram_cap),
        ("gram_cap", gram_cap),
        ("graph", "anchors"),
    ):
        if hasattr(selector, name) and (name != "gram_cap" or method in WITHOUT_GRAM):  # others refuse more
            selector.set_params(**{name: value})
    rows = source(sparse)
    plan = selector.plan(rows, HERE)
    timed = estimate_seconds(selector.make_method().cost, rows, HERE, plan)
    once = 0.5 * 400 / next(rows.stream(0, 1)).X.shape[0]
    assert timed.seconds >= once * plan.passes
    assert replace(timed, seconds=None, typical_seconds=None, notes=timed.notes[:-1]) == plan
    if timed.typical_seconds is not None:
        few, many = timed.typical_seconds
        assert once * plan.typical_passes[0] <= few <= many <= timed.seconds


def test_resamples_in_a_block_of_which_a_resample_has_no_row():
    """Of the one row that is fed first, some resample has none: no warning of the logarithm of 0."""
    rows = source(n=8)
    selector = get_estimator("enm")(3, resamples=20)
    estimate_seconds(selector.make_method().cost, rows, HERE, selector.plan(rows, HERE))  # warnings are errors


@pytest.fixture
def seconds(monkeypatch):
    """Seconds of readings in which a statistic takes half a second a block, and reading it nothing."""
    monkeypatch.setattr(timing, "_seconds", lambda statistic, block: 0.5)
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr("mlfs_dask.runtime.available_cores", lambda: 2)

    def estimated(*steps, resources=HERE):
        rows, cost = source(), Cost(list(steps))
        timed = estimate_seconds(lambda *_: cost, rows, resources, project(cost, rows, resources))
        return timed.seconds, timed.typical_seconds

    return estimated


def test_readings_add_up(seconds):
    block = next(source().stream(0, 1)).X.shape[0]
    once = 0.5 * 400 / block
    assert seconds(Reading("moments", (Moments(30),)), "") == (once, None)
    assert seconds(Reading("two", (Moments(30), Moments(30)))) == (2 * once, None)
    loop = Reading("rows", (Moments(30),), times=10, typical=(2, 4))
    assert seconds(loop) == (10 * once, (2 * once, 4 * once))


@pytest.mark.parametrize(
    ("resources", "parallel"),
    [
        (replace(HERE, threads_per_worker=2), 2),
        (replace(HERE, threads_per_worker=8), 2),
        (replace(CLUSTER, workers=1), 1),
        (CLUSTER, 2),
        (replace(CLUSTER, workers=4), 2),
    ],
)
def test_threads_share_the_blocks_as_far_as_there_are_cores(seconds, resources, parallel):
    reading = Reading("moments", (Moments(30),))
    assert seconds(reading, resources=resources)[0] == seconds(reading)[0] / parallel


def test_blocks_of_dask_arrays_are_not_computed():
    rows = source()
    rows.residence = "graph"
    selector = get_estimator("elc")(5)
    plan = selector.plan(source(), HERE)
    assert estimate_seconds(selector.make_method().cost, rows, HERE, plan) is plan
