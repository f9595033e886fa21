"""What a selection costs, by hand: what the driver holds, readings, the refusal."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.engine.cache import cache
from mlfs_dask.engine.plan import PARAMETER_COPIES
from mlfs_dask.engine.readings import plan_statistics
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import COMPILED_BYTES, PROCESS_BYTES, SKLEARN_BYTES, Resources
from mlfs_dask.selection import timing
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selection.timing import estimate_seconds
from mlfs_dask.selectors import METHODS
from mlfs_dask.selectors.costs import (
    MESSAGE_COPIES,
    ROW_ARRAY_COPIES,
    Asked,
    Cost,
    Plan,
    Reading,
    Readings,
    project,
    require_driver,
)
from mlfs_dask.statistics.moments import Moments
from mlfs_dask.typing import RowArray, workspace_bytes
from tests.selectors.anchored import WITHOUT_GRAM

MIB = 2**20
HERE = Resources(1, 1, 2**40, 2**40)
CLUSTER = Resources(2, 1, 2**40, 2**40, client=object())


@pytest.fixture(autouse=True)
def driver_of_100_mib(monkeypatch):
    """Without this, the resident bytes of the tests themselves."""
    monkeypatch.setattr("mlfs_dask.runtime.driver_bytes", lambda: 100 * MIB)


@dataclass(frozen=True)
class Sized(Statistic):
    """Sizes alone."""

    state: int = 0
    result: int = 0
    parameters: int = 0

    @property
    def state_bytes(self):
        return self.state

    @property
    def result_bytes(self):
        return self.result

    @property
    def parameter_bytes(self):
        return self.parameters

    def scratch_bytes(self, profile):
        return 0

    def zero(self):
        return (np.zeros(1),)

    def add(self, state, block):
        state[0][:] += block.X.sum()

    def finalize(self, state):
        return float(state[0][0])


class Rows(ArrayRows):
    """Rows that a digest names."""

    digest = "0123"
    place = "rows"


def source(kind=ArrayRows, n=12):
    return kind(np.ones((n, 2)), sp.csr_array((n, 1), dtype=np.int8), block_bytes=16)


@pytest.mark.parametrize(
    ("workspace", "terms"),
    [
        ("d q", {"d q": 8 * 10 * 3}),
        ("2 d q", {"2 d q": 8 * 2 * 10 * 3}),
        ("2 q d + n + d q", {"3 d q": 8 * 3 * 10 * 3, "n": 800}),
        ("0.5 d d + 0.125 n q", {"0.5 d d": 400, "0.125 n q": 300}),
        ("12 + 2 z d", {"buffers": 96}),  # nothing is said of what there is none of
        ("", {}),
    ],
)
def test_bytes_of_a_workspace(workspace, terms):
    assert workspace_bytes(workspace, {"n": 100, "d": 10, "q": 3, "z": 0}) == terms


def test_an_unknown_size_is_an_error():
    with pytest.raises(KeyError, match="z"):
        workspace_bytes("d z", {"d": 10})


M = {"m": MIB // 8}


@pytest.mark.parametrize(
    "steps", [["m", "3 m", "2 m"], ["3 m"], ["", "2 m + m"], [Reading("sums", (), workspace="3 m")]]
)
def test_the_largest_workspace_counts(steps):
    plan = project(Cost(steps, M), source(), HERE)
    assert plan.peak_driver_bytes == (100 + 3) * MIB
    assert plan.arrays == {"3 m": 3 * MIB}
    assert (plan.passes, plan.bytes_read) == (len(plan.readings), 0)
    assert json.loads(json.dumps(plan.to_dict()))["arrays"] == plan.arrays


class Compiled(Sized):
    compiled = True


@pytest.mark.parametrize("own", [False, True])
def test_kernels_that_a_reading_loads_stay_with_this_process(own):
    here = replace(HERE, compiled_bytes=30 * MIB)
    steps = ["m", Reading("first", (Compiled(5 * MIB),)), Reading("second", (Compiled(6 * MIB),)), "8 m"]
    plan = project(Cost(steps, M, compiled=own), source(), here)
    assert plan.peak_driver_bytes == (100 + 30 + 8) * MIB
    plan = project(Cost(["8 m", *steps[1:3], "m"], M, compiled=own), source(), here)
    assert plan.peak_driver_bytes == (100 + 30 + 8) * MIB if own else (100 + 30 + 6 + 2) * MIB
    # The workers load theirs; of this process they are none.
    plan = project(Cost(steps, M), source(), CLUSTER)
    assert plan.peak_driver_bytes == (100 + 8) * MIB


def test_in_this_process_the_driver_holds_what_the_reading_does():
    statistic = Sized(state=10 * MIB, result=5 * MIB, parameters=2 * MIB)
    sums = Reading("sums", (statistic,), workspace="m")
    plan = project(Cost([sums, "m"], M), source(), HERE)
    reading = 10 + 5 + 2  # at the end the result is beside the state
    assert plan.readings["sums"].peak_worker_bytes == PROCESS_BYTES + reading * MIB
    assert plan.peak_driver_bytes == (100 + reading + 1) * MIB
    assert plan.peak_worker_bytes == plan.peak_driver_bytes, "they are one process"
    assert project(Cost([sums, "51 m"], M), source(), HERE).peak_driver_bytes == (100 + 51) * MIB


def test_arrays_of_the_rows_are_on_the_workers_and_on_their_way():
    """The driver has made them before."""
    rows = RowArray("chosen rows", MIB)
    plain = replace(source().profile, partitions=1)
    for resources, on_worker, on_driver in ((HERE, 0, 0), (CLUSTER, PARAMETER_COPIES, ROW_ARRAY_COPIES)):
        small, large = (
            project(Cost([Reading("sums", (Sized(),))]), replace(plain, arrays=arrays), resources)
            for arrays in ((), (rows,))
        )
        assert large.arrays == {"chosen rows": MIB}
        assert large.readings["sums"].peak_worker_bytes - small.readings["sums"].peak_worker_bytes == on_worker * MIB
        assert large.peak_driver_bytes - small.peak_driver_bytes == on_driver * MIB
    with pytest.raises(DoesNotFitError):
        project(
            Cost([Reading("sums", (Sized(),))]),
            replace(plain, arrays=(rows,)),
            replace(CLUSTER, memory_limit=int((PROCESS_BYTES + 2 * MIB) / 0.8)),
        )


def test_the_cure_is_enough_for_all_readings():
    readings = [Reading("small", (Sized(400 * MIB),)), Reading("large", (Sized(600 * MIB),)), Reading("no", (Sized(),))]
    with pytest.raises(DoesNotFitError) as caught:
        project(Cost(readings), source(), replace(CLUSTER, memory_limit=512 * MIB))
    enough = int(caught.value.cure.split("--memory-limit ")[1].split("MiB")[0]) * MIB
    project(Cost(readings), source(), replace(CLUSTER, memory_limit=enough))


def test_with_a_cluster_the_driver_holds_messages():
    statistic = Sized(state=10 * MIB, result=5 * MIB, parameters=2 * MIB)
    cost = Cost([Reading("sums", (statistic, statistic), workspace="m")], M)
    plan = project(cost, source(), CLUSTER)
    assert plan.peak_driver_bytes == (100 + 1 + MESSAGE_COPIES * 2 * 7) * MIB
    assert plan.peak_worker_bytes == plan_statistics(source(), [statistic, statistic], CLUSTER).peak_worker_bytes


@pytest.mark.parametrize("resources", [HERE, CLUSTER])
def test_libraries_of_the_driver_count_once(resources, monkeypatch):
    monkeypatch.setattr("mlfs_dask.runtime.driver_compiled_bytes", lambda: COMPILED_BYTES)
    bare = project(Cost([""]), source(), resources).peak_driver_bytes
    full = project(Cost([""], compiled=True, loads_sklearn=True), source(), resources).peak_driver_bytes
    assert full - bare == COMPILED_BYTES + SKLEARN_BYTES
    if resources is HERE:  # a reading loads in this process what the driver has loaded
        cost = Cost([Reading("rows", (Compiled(),))], compiled=True, loads_sklearn=True)
        assert project(cost, source(), HERE).peak_driver_bytes == full
    loaded = replace(resources, compiled_bytes=0, sklearn_bytes=0)
    monkeypatch.setattr("mlfs_dask.runtime.driver_compiled_bytes", lambda: 0)
    assert project(Cost([""], compiled=True, loads_sklearn=True), source(), loaded).peak_driver_bytes == bare


def test_passes_tasks_and_bytes_add_up_over_all_times():
    rows = source()
    rows.profile = replace(rows.profile, read_bytes=1000)
    once = plan_statistics(rows, [Sized()], HERE)
    cost = Cost([Reading("first", (Sized(),)), "", Reading("loop", (Sized(),), times=50, typical=(3, 7))])
    plan = project(cost, rows, HERE)
    assert (plan.passes, plan.tasks, plan.bytes_read) == (51, 51 * once.tasks, 51_000)
    assert plan.typical_passes == (4, 8)
    assert plan.typical_bytes_read == (4_000, 8_000)
    assert plan.readings == {"first": once, "loop": once}


def test_what_is_typical_is_never_more_than_the_most():
    plan = project(Cost([Reading("loop", (Sized(),), times=5, typical=(3, 70))]), source(), HERE)
    assert (plan.passes, plan.typical_passes) == (5, (3, 5))
    plan = project(Cost([Reading("once", (Sized(),))]), source(), HERE)
    assert (plan.typical_passes, plan.typical_bytes_read) == (None, None)


def test_readings_in_the_cache_cost_nothing(tmp_path):
    rows = source(Rows)
    cost = Cost([Reading("moments", (Moments(2),)), Reading("more", (Moments(2), Sized()))])
    with cache(tmp_path):
        readings = Readings(rows, HERE, project(cost, rows, HERE), Asked(1))
        assert readings.plan.passes == 2
        expected = readings.run("moments", Moments(2))
        plan = project(cost, rows, HERE)
        assert plan.passes == 1
        assert plan.readings["moments"].tasks == plan.readings["moments"].bytes_read == 0
        again = Readings(rows, HERE, plan, Asked(1))
        assert [vars(found).keys() for found in again.run("moments", Moments(2))] == [vars(expected[0]).keys()]
        assert again.records[0].tasks == 0
        # Of a reading whose statistics are kept in part, the rest is read.
        found, total = again.run("more", Moments(2), Sized())
        assert (found.mean.tolist(), total) == ([1, 1], 24)
        assert again.records[1].tasks > 0
    assert project(cost, rows, HERE).passes == 2


def test_a_reading_planned_from_the_cache_is_read_where_the_cache_has_lost_it(tmp_path):
    rows, cost = source(Rows), Cost([Reading("moments", (Moments(2),))])
    with cache(tmp_path):
        Readings(rows, HERE, project(cost, rows, HERE), Asked(1)).run("moments", Moments(2))
        plan = project(cost, rows, HERE)
    readings = Readings(rows, HERE, plan, Asked(1))
    (found,) = readings.run("moments", Moments(2))
    assert (plan.passes, found.mean.tolist(), readings.records[0].tasks > 0) == (0, [1, 1], True)


def test_what_is_planned_is_what_runs():
    rows = source(n=60)
    plan = project(Cost([Reading("sums", (Sized(),))]), rows, replace(HERE, threads_per_worker=2))
    events = []
    readings = Readings(rows, replace(HERE, threads_per_worker=2), plan, Asked(1))
    with runtime.progress_to(events.append):
        assert readings.run("sums", Sized()) == [120.0]
        readings.run("not planned", Sized())
    assert [event["label"] for event in events if event["kind"] == "pass"] == ["sums", "not planned"]
    assert [record.tasks for record in readings.records] == [plan.tasks, plan.tasks]
    fewer = replace(plan, readings={"sums": replace(plan.readings["sums"], runs=((0, 60),), tasks=2)})
    readings = Readings(rows, HERE, fewer, Asked(1))
    assert readings.run("sums", Sized()) == [120.0]
    assert readings.records[0].tasks == 2


def test_the_refusal_names_the_largest_arrays():
    plan = project(Cost(["a + 3000 b + 20 c + 40 d + e"], dict.fromkeys("abcd", MIB // 8) | {"e": 7}), source(), HERE)
    with pytest.raises(DoesNotFitError) as caught:
        require_driver(plan, replace(HERE, driver_limit=2**30), "elc in the driver process")
    text = str(caught.value)
    assert text.startswith(
        "elc in the driver process (largest arrays: 3000 b 3,000 MiB, 40 d 40 MiB, 20 c 20 MiB): projected 3,161.0 MiB"
    )
    cure = "run the command on a machine with more memory, or select on fewer labels or features"
    assert f"cure: give a larger --memory-limit, {cure}" in text
    with pytest.raises(DoesNotFitError, match=f"cure: {cure}"):  # a limit of workers is not that of the driver
        require_driver(plan, replace(HERE, driver_limit=2**30, client=object()), "elc in the driver process")
    assert caught.value.projected == 3161 * MIB + 56
    with pytest.raises(DoesNotFitError, match=r"the loop \(largest.*\n  cure: use --gram-cap 0"):
        require_driver(plan, replace(HERE, driver_limit=0), "the loop", cure="use --gram-cap 0")
    assert require_driver(plan, replace(HERE, driver_limit=plan.peak_driver_bytes), "elc") is plan
    bare = Plan(0, 0, 0, 0, 2 * MIB, arrays={"small": 5})
    with pytest.raises(DoesNotFitError, match=r"^elc: projected"):
        require_driver(bare, replace(HERE, driver_limit=MIB), "elc")


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_in_process_as_many_threads_read_as_fit_beside_the_arrays(threads):
    resources = Resources(1, 3, 2**40, 0, process_bytes=PROCESS_BYTES)
    cost = Cost([Reading("rows", (Sized(state=100 * MIB),), workspace="50 m")], M)
    alone = plan_statistics(source(), cost.steps[0].statistics, replace(resources, threads_per_worker=threads))
    limit = 100 * MIB + 50 * MIB + alone.peak_worker_bytes - PROCESS_BYTES
    plan = project(cost, source(), replace(resources, driver_limit=limit))
    assert plan.readings["rows"].threads == threads
    assert plan.peak_driver_bytes == limit
    assert plan.notes == (() if threads == 3 else (f"memory is short: {threads} of 3 threads read",))
    less = project(cost, source(), replace(resources, driver_limit=limit - 1))
    assert less.readings["rows"].threads == max(threads - 1, 1)


def test_where_all_is_in_the_cache_memory_is_not_called_short(tmp_path):
    rows, cost = source(Rows), Cost([Reading("moments", (Moments(2),))])
    with cache(tmp_path):
        Readings(rows, HERE, project(cost, rows, HERE), Asked(1)).run("moments", Moments(2))
        plan = project(cost, rows, replace(HERE, threads_per_worker=4))
    assert (plan.passes, plan.notes) == (0, ())


# ---------------------------------------------------------------- seconds of a plan


class OneBlock(ArrayRows):
    """Rows of which only the first block may be read."""

    def stream(self, first, last):
        yield next(super().stream(first, last))
        raise AssertionError("more than one block was read")


def one_block(sparse=False, n=400, d=30, q=6):
    rng = np.random.default_rng(0)
    X = np.where(rng.random((n, d)) < 0.3, rng.normal(size=(n, d)), 0).astype(np.float32)
    Y = sp.csr_array((rng.random((n, q)) < 0.3).astype(np.int8))
    return OneBlock(sp.csr_array(X) if sparse else X, Y, block_bytes=8192)


@pytest.mark.parametrize(("gram_cap", "sparse"), [(4096, False), (10, True)], ids=["dense", "sparse"])
@pytest.mark.parametrize("method", METHODS)
def test_every_method_is_measured_on_one_block(method, gram_cap, sparse, monkeypatch):
    """Every statistic is, and counted as half a second."""
    measure = timing._seconds_of_add
    monkeypatch.setattr(timing, "_seconds_of_add", lambda *given: 0.5 if measure(*given) > 0 else 0.0)
    selector = get_estimator(method)(5)
    for name, value in (
        ("n_candidates", gram_cap),
        ("n_landmarks", gram_cap),
        ("gram_cap", gram_cap),
        ("graph", "anchors"),
    ):
        if hasattr(selector, name) and (name != "gram_cap" or method in WITHOUT_GRAM):  # others refuse more
            selector.set_params(**{name: value})
    rows = one_block(sparse)
    plan = selector.plan(rows, HERE)
    timed = estimate_seconds(selector.make_question().method_cost, rows, HERE, plan)
    once = 0.5 * 400 / next(rows.stream(0, 1)).X.shape[0]
    assert timed.seconds >= once * plan.passes
    assert replace(timed, seconds=None, typical_seconds=None, notes=timed.notes[:-1]) == plan
    if timed.typical_seconds is not None:
        few, many = timed.typical_seconds
        assert once * plan.typical_passes[0] <= few <= many <= timed.seconds


def test_resamples_in_a_block_of_which_a_resample_has_no_row():
    """Of the one row that is fed first, some resample has none: no warning of the logarithm of 0."""
    rows = one_block(n=8)
    selector = get_estimator("enm")(3, resamples=20)
    estimate_seconds(selector.make_question().method_cost, rows, HERE, selector.plan(rows, HERE))  # warnings are errors


@pytest.fixture
def seconds(monkeypatch):
    """Seconds of readings in which a statistic takes half a second a block, and reading it nothing."""
    monkeypatch.setattr(timing, "_seconds_of_add", lambda statistic, block: 0.5)
    monkeypatch.setattr("time.perf_counter", lambda: 0.0)
    monkeypatch.setattr("mlfs_dask.runtime.available_cores", lambda: 2)

    def estimated(*steps, resources=HERE):
        rows, cost = one_block(), Cost(list(steps))
        timed = estimate_seconds(lambda *_: cost, rows, resources, project(cost, rows, resources))
        return timed.seconds, timed.typical_seconds

    return estimated


def test_readings_add_up(seconds):
    block = next(one_block().stream(0, 1)).X.shape[0]
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
    rows = one_block()
    rows.residence = "graph"
    selector = get_estimator("elc")(5)
    plan = selector.plan(one_block(), HERE)
    assert estimate_seconds(selector.make_question().method_cost, rows, HERE, plan) is plan
