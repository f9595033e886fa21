"""Seconds of a plan: what is measured runs for every method, and adds up as it should. No test on seconds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selectors import METHODS, get_method, timing
from mlfs_dask.selectors.costs import Cost, Reading, Work, project
from mlfs_dask.selectors.timing import MESSAGE_RATE, TASK_SECONDS, estimate_seconds
from mlfs_dask.statistics.moments import Moments

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
def test_every_method_is_measured_on_one_block(method, gram_cap, sparse):
    selector = get_method(method)(5)
    for name, value in (
        ("n_candidates", gram_cap),
        ("n_landmarks", gram_cap),
        ("gram_cap", gram_cap),
        ("graph", "anchors"),
    ):
        if hasattr(selector, name):
            selector.set_params(**{name: value})
    rows = source(sparse)
    plan = selector.plan(rows, HERE)
    timed = estimate_seconds(selector.cost, rows, HERE, plan)
    assert timed.seconds > 0
    assert replace(timed, seconds=None, typical_seconds=None) == plan
    if timed.typical_seconds is not None:
        few, many = timed.typical_seconds
        assert 0 < few <= many <= timed.seconds


class Planned:
    """A selector that is only planned."""

    def __init__(self, *steps):
        self.steps = steps

    def cost(self, source, resources):
        return Cost(list(self.steps))


def test_resamples_of_a_slow_block_in_which_a_resample_has_no_row(monkeypatch):
    """Of the one row that is fed, some resample has none: no warning of the logarithm of 0."""
    monkeypatch.setattr(timing, "BLOCK_SECONDS", -1.0)
    rows = source(n=8)
    selector = get_method("enm")(3, resamples=20)
    assert estimate_seconds(selector.cost, rows, HERE, selector.plan(rows, HERE)).seconds > 0


@pytest.fixture
def speeds(monkeypatch):
    """A row takes 1/8 s in a statistic, and its result 1 s; libraries load in 3 s; reading and the fit take no time."""
    monkeypatch.setattr(timing, "FIT_SECONDS", 0.0)
    monkeypatch.setattr(timing, "_measure", lambda statistic, block: timing._Speed(3.0, 0.125, 1.0))
    monkeypatch.setattr(timing, "_product_rate", lambda: 1e9)
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr("mlfs_dask.runtime.available_cores", lambda: 2)


def seconds(steps, resources):
    selector, rows = Planned(*steps), source()
    plan = project(selector.cost(rows, resources), rows, resources)
    timed = estimate_seconds(selector.cost, rows, resources, plan)
    return timed.seconds, timed.typical_seconds


@pytest.mark.usefixtures("speeds")
def test_readings_and_work_add_up():
    once = 400 / 8 + 1.0
    assert seconds([Reading("moments", (Moments(30),))], HERE) == (once + 3.0, None)
    assert seconds(["work", Work("solve", 2 * 10**9)], HERE) == (2.0, None)
    loop = Reading("rows", (Moments(30),), times=10, typical=(2, 4), flops=10**9)
    assert seconds([loop], HERE) == (10 * (once + 1) + 3, (2 * (once + 1) + 3, 4 * (once + 1) + 3))
    assert seconds([Work("loop", 10**9, times=10, typical=(2, 40))], HERE) == (10.0, (2.0, 10.0))
    # Two statistics in one reading; what the same one takes again is known, and loaded.
    both = [Reading("two", (Moments(30), Moments(30)))]
    assert seconds(both, HERE) == (2 * once + 3.0, None)


def test_what_a_fit_takes_of_the_smallest_data_is_in_every_estimate(monkeypatch, speeds):
    monkeypatch.setattr(timing, "FIT_SECONDS", 0.5)
    loop = Work("loop", 10**9, times=10, typical=(2, 4))
    assert seconds([loop], HERE) == (10.5, (2.5, 4.5))


@pytest.mark.usefixtures("speeds")
def test_what_work_feeds_from_rows_in_memory_is_measured():
    once = 100 / 8 + 1.0
    work = Work("fits", 10**9, times=5, typical=(2, 3), statistics=(Moments(30), Moments(30)), rows=100)
    assert seconds([work], HERE) == (5 * (2 * once + 1) + 3.0, (2 * (2 * once + 1) + 3.0, 3 * (2 * once + 1) + 3.0))


def test_work_that_is_no_product_is_tried_on_a_block(monkeypatch, speeds):
    clock = iter(range(0, 1000, 3))
    given = []
    trial = Work("neighbours", times=2, trial=lambda block: (lambda: given.append(block), 5.0))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(clock)))  # whatever is timed takes 3 s
    assert seconds([trial], HERE) == (2 * 5 * 3.0, None)
    (block,) = given
    assert 0 < len(block.X) < 400


def test_what_the_first_trial_loads_is_loaded_once(monkeypatch, speeds):
    now = [0.0]
    taken = iter([0.75, 0.25])

    def work():
        now[0] += next(taken)

    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    trial = Work("neighbours", times=2, trial=lambda block: (work, 5.0))
    assert seconds([trial], HERE) == (2 * 5 * 0.25 + 0.5, None)


@pytest.mark.usefixtures("speeds")
@pytest.mark.parametrize(("workers", "parallel"), [(1, 1), (2, 2), (4, 2)])
def test_workers_share_the_rows_as_far_as_there_are_cores(workers, parallel):
    steps = [Reading("moments", (Moments(30),))]
    resources = replace(CLUSTER, workers=workers)
    rows = source()
    (plan,) = project(Cost(steps), rows, resources).readings.values()
    states = len(plan.runs) * Moments(30).state_bytes / parallel + Moments(30).result_bytes
    found, _ = seconds(steps, resources)
    assert found == pytest.approx(50 / parallel + 1 + 3 + plan.tasks * TASK_SECONDS + states / MESSAGE_RATE)


def test_blocks_of_dask_arrays_are_not_computed():
    rows = source()
    rows.residence = "graph"
    selector = get_method("elc")(5)
    plan = selector.plan(source(), HERE)
    assert estimate_seconds(selector.cost, rows, HERE, plan) is plan
