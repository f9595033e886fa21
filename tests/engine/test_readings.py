"""One reading feeds all statistics; graphs compute nothing until they are asked to; clusters may fail."""

from __future__ import annotations

import errno
import gc
import os
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from types import SimpleNamespace

import dask.array as da
import numpy as np
import pytest
from distributed.utils import key_split_group
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.cluster import workers as cluster_workers
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.cluster.workers import Cluster, cluster_of
from mlfs_dask.engine import graph
from mlfs_dask.engine.graph import build_reading, partitions_of, read_key
from mlfs_dask.engine.plan import ReadingPlan
from mlfs_dask.engine.readings import plan_statistics, run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.engine.tasks import merge_states
from mlfs_dask.errors import ClusterLostError
from mlfs_dask.rows.sources import ArrayRows, as_rows
from mlfs_dask.runtime import PROCESS_BYTES, Resources

HERE = Resources(1, 1, 4 * 2**30, 4 * 2**30)


def test_a_merge_that_runs_twice_gives_the_same():
    statistic = ColumnSums(2, 1)
    partials = [([tuple(np.full(size, value) for size in (2, 1))], {"here": value}) for value in (1, 2)]
    for _ in range(2):
        (state,), peaks = merge_states([statistic], partials)
        assert [part.tolist() for part in state] == [[3, 3], [3]]
        assert peaks["here"] == 2
    assert partials[0][0][0][0].tolist() == [1, 1]


@dataclass(frozen=True)
class ColumnSums(Statistic):
    """Integer sums of X's columns and of Y's."""

    d: int
    q: int
    die: bool = False
    seconds: float = 0.0
    scratch: int = 0

    @property
    def state_bytes(self):
        return 8 * (self.d + self.q)

    def scratch_bytes(self, profile):
        return profile.block_bytes + self.scratch

    def zero(self):
        return (np.zeros(self.d, dtype=np.int64), np.zeros(self.q, dtype=np.int64))

    def add(self, state, block):
        if self.die:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(self.seconds)
        state[0][:] += np.asarray(block.X.sum(axis=0)).ravel().astype(np.int64)
        state[1][:] += np.asarray(block.Y.sum(axis=0)).ravel()

    def finalize(self, state):
        return state


def integers(n=100, d=4, q=3):
    rng = np.random.default_rng(1)
    return rng.integers(0, 9, (n, d)), rng.integers(0, 2, (n, q)).astype(np.int8)


class CountingRows(ArrayRows):
    """Counts how often every partition is opened."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.opened = []

    def stream(self, first, last):
        self.opened += range(first, last)
        return super().stream(first, last)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_one_reading_feeds_all_statistics(threads):
    X, Y = integers()
    source = CountingRows(X, sp.csr_array(Y), block_bytes=320)
    assert source.profile.partitions == 10
    resources = Resources(1, threads, 4 * 2**30, 4 * 2**30)
    results, record = run_reading(source, [ColumnSums(4, 3), ColumnSums(4, 3)], resources)
    for x_sums, y_sums in results:
        assert x_sums.tolist() == X.sum(axis=0).tolist()
        assert y_sums.tolist() == Y.sum(axis=0).tolist()
    assert sorted(source.opened) == list(range(10))
    with runtime.process_limits(threads=threads):
        assert runtime.finishing_threads() == threads
    assert record.tasks == plan_statistics(source, [ColumnSums(4, 3)] * 2, resources).tasks


class TellingSums(ColumnSums):
    """Tells of every block, with the thread that has it."""

    def add(self, state, block):
        runtime.emit("block", rows=block.X.shape[0], thread=threading.get_ident())
        super().add(state, block)


def test_progress_of_threads_reaches_whoever_called_the_pass():
    X, Y = integers()
    resources = Resources(1, 2, 4 * 2**30, 4 * 2**30)
    meet = threading.Barrier(2, timeout=60)

    def work(rows):
        events = []
        source = CountingRows(X[:rows], sp.csr_array(Y[:rows]), block_bytes=320)
        with runtime.progress_to(events.append):
            meet.wait()
            run_reading(source, [TellingSums(4, 3)], resources)
            meet.wait()
        told = {kind: [event for event in events if event["kind"] == kind] for kind in ("block", "partitions")}
        threads = {event["thread"] for event in told["block"]}
        assert threading.get_ident() not in threads
        return sum(event["rows"] for event in told["block"]), sum(event["done"] for event in told["partitions"])

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, (100, 40))) == [(100, 10), (40, 4)]


@pytest.mark.parametrize(("size", "tight", "held"), [(10, False, 5), (10, True, 3), (100, False, 3)])
def test_threads_hold_as_many_states_as_planned(size, tight, held):
    alive, most = 0, 0

    class Counted:
        """A state that knows how many others there are."""

        def __init__(self):
            nonlocal alive, most
            alive += 1
            most = max(most, alive)

        def __del__(self):
            nonlocal alive
            alive -= 1

    class Large(ColumnSums):
        state_bytes = size * 2**20
        result_bytes = 0

        def scratch_bytes(self, profile):
            return 0

        def zero(self):
            return Counted()

        def add(self, state, block):
            time.sleep(0.001)

        def merge(self, into, other):
            time.sleep(0.02)  # the others read on

        def finalize(self, state):
            return None

    X, Y = integers()
    source = ArrayRows(X, sp.csr_array(Y), block_bytes=32)
    limit = int((PROCESS_BYTES + 3 * Large.state_bytes) / 0.8) + 2 if tight else 2**40
    resources = Resources(1, 3, limit, 2**40)
    plan = plan_statistics(source, [Large(4, 3)], resources)
    run_reading(source, [Large(4, 3)], resources)
    assert plan.peak_worker_bytes == PROCESS_BYTES + held * Large.state_bytes
    assert 3 <= most <= held


@pytest.mark.parametrize("fan_in", [2, 8])
def test_graph_has_the_planned_tasks(fan_in):
    X, Y = integers()
    source = CountingRows(X, sp.csr_array(Y), block_bytes=320)
    statistics = [ColumnSums(4, 3)]
    plan = replace(plan_statistics(source, statistics, HERE), fan_in=fan_in, runs=tuple((i, i + 1) for i in range(10)))
    graph = build_reading(source, statistics, plan)
    named = list(graph.__dask_graph__())
    reading = [key for key in named if partitions_of(key) is not None]
    assert len(reading) == 10
    assert len({key_split_group(key) for key in reading}) == 1  # which the scheduler hands out as workers become free
    assert partitions_of(read_key(3, 7, "0f0f")) == (3, 7)
    assert sum("finalize_states" in str(key) for key in named) == 1
    (sums,), _ = graph.compute(scheduler="sync")
    assert sums[1].tolist() == Y.sum(axis=0).tolist()


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("residence", ["process", "storage"])
def test_an_interrupted_pass_stops_with_the_blocks_at_hand(residence):
    """Ctrl-C reaches the main thread alone; the threads that read must not go on to the end."""
    X, Y = integers(1000)
    source = ArrayRows(X, sp.csr_array(Y), block_bytes=320)
    source.residence = residence
    read = []
    interrupter = threading.Timer(0.3, signal.pthread_kill, (threading.main_thread().ident, signal.SIGINT))

    class Watched(ColumnSums):
        def add(self, state, block):
            read.append(block.start)
            super().add(state, block)

    statistics, resources = [Watched(4, 3, seconds=0.1)], Resources(1, 3, 2**32, 2**32)
    plan = replace(plan_statistics(source, statistics, resources), runs=((0, 34), (34, 67), (67, 100)))
    interrupter.start()
    with pytest.raises(KeyboardInterrupt):
        run_reading(source, statistics, resources, plan=plan)
    assert 3 <= len(read) < 20  # of 100
    interrupter.join()
    at_the_end = len(read)
    time.sleep(0.3)
    assert len(read) == at_the_end


def test_every_chunk_of_a_dask_array_is_computed_once():
    X, Y = integers()
    computed = []

    def watch(block, block_info=None):
        computed.append(block_info[0]["chunk-location"])
        return block

    lazy = da.from_array(X, chunks=(10, 2)).map_blocks(watch, dtype=X.dtype, meta=X[:0, :0])
    run_reading(as_rows(lazy, Y), [ColumnSums(4, 3)], HERE)
    assert sorted(computed) == [(i, j) for i in range(10) for j in range(2)]


@pytest.fixture(scope="module")
def client():
    from mlfs_dask.cluster.connect import connect

    with connect(workers=2, memory_limit=800 * 2**20) as client:
        yield client


class FullDisk(ColumnSums):
    """Statistic: none; it finds no room for a file."""

    def add(self, state, block):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "labels")


class SlowRows(ArrayRows):
    """Rows in memory that travel to the workers, as a store's do."""

    residence = "storage"


@pytest.mark.cluster
def test_pass_on_worker_processes(client):
    X, Y = integers(1000)
    source = SlowRows(X, sp.csr_array(Y), block_bytes=320)
    statistic = ColumnSums(4, 3)
    object.__setattr__(statistic, "edges", np.zeros(2 * 10**6))  # Dask warns from 10 MB, and warnings are errors
    resources = current_resources()
    assert (resources.workers, resources.threads_per_worker) == (2, 1)
    assert resources.memory_limit == 800 * 2**20
    assert runtime.finishing_threads() == 1  # the workers have other tasks
    events = []
    with runtime.progress_to(events.append):
        (sums,), record = run_reading(source, [statistic], resources)
        deadline = time.monotonic() + 60
        while sum(e.get("done", 0) for e in events) < 100 and time.monotonic() < deadline:
            time.sleep(0.05)
    assert sums[0].tolist() == X.sum(axis=0).tolist()
    assert sums[1].tolist() == Y.sum(axis=0).tolist()
    assert 50 * 2**20 < record.peak_worker_bytes < 800 * 2**20
    assert sum(e["done"] for e in events if e["kind"] == "partitions") == 100


@pytest.mark.cluster
def test_workers_keep_nothing_of_a_pass_that_was_waited_for(client, monkeypatch):
    """Errors of waiting with a timeout hold frames, and those hold the future, until Python collects them."""
    X, Y = integers(10)
    monkeypatch.setattr(cluster_workers, "LOOK_SECONDS", 0.1)
    gc.disable()
    try:
        for _ in range(3):
            run_reading(SlowRows(X, sp.csr_array(Y)), [ColumnSums(4, 3, seconds=0.5)], current_resources())
        deadline = time.monotonic() + 30
        while (kept := client.run_on_scheduler(_count_tasks)) and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        gc.enable()
    assert kept == 0


@pytest.mark.cluster
def test_a_result_that_is_long_on_its_way(client, monkeypatch):
    """The client looks after its workers meanwhile; nothing is cancelled, and the next pass has its result too."""
    X, Y = integers(10)
    monkeypatch.setattr(cluster_workers, "LOOK_SECONDS", 0.05)

    transfers = client._gather_semaphore

    async def occupy():
        for _ in range(5):
            await transfers.acquire()

    async def free():
        for _ in range(5):
            transfers.release()

    for _ in range(2):
        client.sync(occupy)
        later = threading.Timer(1, client.sync, (free,))
        later.start()
        (sums,), _ = run_reading(SlowRows(X, sp.csr_array(Y)), [ColumnSums(4, 3)], current_resources())
        later.join()
        assert sums[0].tolist() == X.sum(axis=0).tolist()


def _count_tasks(dask_scheduler):
    return len(dask_scheduler.tasks)


@pytest.mark.cluster
def test_a_worker_that_dies_once_goes_unnoticed(client):
    X, Y = integers(2000)
    source = SlowRows(X, sp.csr_array(Y), block_bytes=320)
    resources = current_resources()
    pids = list(client.run(os.getpid).values())
    killer = threading.Timer(0.7, os.kill, (pids[0], signal.SIGKILL))
    killer.start()
    (sums,), _ = run_reading(source, [ColumnSums(4, 3, seconds=0.01)], resources)
    killer.join()
    assert sums[0].tolist() == X.sum(axis=0).tolist()
    client.wait_for_workers(2, timeout=60)
    assert set(client.run(os.getpid).values()) != set(pids)


class LargeSums(ColumnSums):
    """A partial result of it has as many bytes as a merge of many would take long for."""

    state_bytes = 16 * 2**20


class WaitingRows(SlowRows):
    """Records which process reads which partitions; all but the first two wait until two processes read."""

    def __init__(self, *args, folder):
        super().__init__(*args, block_bytes=320)
        self._folder = folder
        self.profile = replace(self.profile, read_bytes=2**40)

    def readers(self):
        """How many tasks every process has begun."""
        return Counter(file.name.split()[0] for file in self._folder.iterdir())

    def stream(self, first, last):
        early = self.readers().total() < 2
        (self._folder / f"{os.getpid()} {first}").touch()
        deadline = time.monotonic() + 60
        while not early and len(self.readers()) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.02)
        yield from super().stream(first, last)


@pytest.mark.cluster
def test_a_worker_that_joins_in_a_pass_gets_its_share(tmp_path):
    """Of the 64 tasks one worker begins with two."""
    from mlfs_dask.cluster.connect import connect

    X, Y = integers(640)
    source = WaitingRows(X, sp.csr_array(Y), folder=tmp_path)

    def join(event):
        if event["kind"] == "partitions":
            client.cluster.scale(2)

    with connect(workers=1, memory_limit=800 * 2**20) as client, runtime.progress_to(join):
        (sums,), _ = run_reading(source, [LargeSums(4, 3)], current_resources())
    assert sums[0].tolist() == X.sum(axis=0).tolist()
    assert source.readers().total() == 64
    assert min(source.readers().values()) >= 16, source.readers()


@pytest.mark.cluster
def test_a_part_that_always_kills_its_worker_is_explained(client):
    X, Y = integers()
    source = SlowRows(X, sp.csr_array(Y))
    resources = current_resources()
    with pytest.raises(ClusterLostError) as caught:
        run_reading(source, [ColumnSums(4, 3, die=True)], resources)
    message = str(caught.value)
    assert "4 workers died while partition 0 was read, the last one tls://127.0.0.1:" in message
    assert "was killed by signal 9 (SIGKILL)" in message
    assert "projected peak " in message
    assert "MiB of the 800 MiB that a worker has" in message
    assert "--memory-limit" in message
    assert caught.value.exit_code == 5
    client.wait_for_workers(2, timeout=60)


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ClusterLostError("4 workers died"), "4 workers died"),
        (AttributeError("no such function"), "no worker can take part"),
    ],
)
def test_that_workers_died_is_said_where_those_in_their_places_do_not_answer(error, shown, monkeypatch):
    class Silent:
        refused = ()

        def restriction(self):
            return {}

        def workers(self):
            raise ClusterLostError("no worker can take part")

    def fail(*arguments):
        raise error

    monkeypatch.setattr(graph, "cluster_of", lambda client: Silent())
    monkeypatch.setattr(graph, "_compute_on_cluster", fail)
    resources = replace(Resources(1, 1, 2**30, 2**30), client=SimpleNamespace(status="running"))
    with pytest.raises(ClusterLostError, match=shown):
        graph.compute_graph(as_rows(*integers()), lambda: None, ReadingPlan(((0, 1),), 1, 1, 1, 0, 0), resources)


@pytest.mark.cluster
def test_a_cluster_that_has_lost_every_worker_is_given_up_in_time(start_dask, tmp_path, monkeypatch):
    from dask.delayed import delayed

    from mlfs_dask.cluster.connect import connect

    file = tmp_path / "scheduler.json"
    start_dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", file)
    worker = start_dask("worker", "--scheduler-file", file, "--nthreads", 1, "--memory-limit", "1GiB")
    with connect(scheduler_file=str(file), wait=77):
        resources = current_resources()
        cluster = cluster_of(resources.client)
        assert cluster.wait == 77
        address = resources.client.scheduler.address
        monkeypatch.setattr(cluster, "wait", 0.5)
        killer = threading.Timer(1, worker.kill)
        killer.start()
        looks, look = [], Cluster.check_silent_workers

        def counted(*arguments):
            looks.append(look(*arguments))
            return looks[-1]

        monkeypatch.setattr(Cluster, "check_silent_workers", counted)
        source, plan = ArrayRows(*integers()[:1], sp.csr_array(integers()[1])), ReadingPlan(((0, 1),), 1, 1, 1, 0, 0)
        with pytest.raises(ClusterLostError) as caught:
            graph.compute_graph(source, lambda: delayed(time.sleep)(70), plan, resources)
        # It looks every 0.25 s for workers, and 0.5 s without any are too long.
        assert 1 <= sum(not found for found in looks) <= 4
    message = str(caught.value)
    assert "every worker went away while a pass was running, and none came back within 0.5 s" in message
    assert f"dask worker {address}" in message
    assert "--wait SECONDS" in message
    assert caught.value.exit_code == 5


@pytest.mark.cluster
def test_a_scheduler_that_is_restarted_is_no_loss_of_workers(start_dask, free_port, monkeypatch):
    from dask.delayed import delayed

    from mlfs_dask.cluster.connect import connect

    monkeypatch.setattr(cluster_workers, "TOLD_SECONDS", 60.0)
    address = ("--host", "127.0.0.1", "--port", free_port)
    scheduler = start_dask("scheduler", *address)
    start_dask("worker", f"tcp://127.0.0.1:{free_port}", "--nthreads", 1, "--memory-limit", "1GiB")
    with connect(scheduler=f"tcp://127.0.0.1:{free_port}", wait=20):
        resources = current_resources()

        def restart():
            scheduler.kill()
            scheduler.wait()
            start_dask("scheduler", *address)

        threading.Timer(1, restart).start()
        source, plan = ArrayRows(*integers()[:1], sp.csr_array(integers()[1])), ReadingPlan(((0, 1),), 1, 1, 1, 0, 0)
        with pytest.raises(ClusterLostError) as caught:
            graph.compute_graph(source, lambda: delayed(time.sleep)(70), plan, resources)
    assert str(caught.value).startswith(f"the scheduler at tcp://127.0.0.1:{free_port} was restarted")


@pytest.mark.cluster
def test_a_system_error_of_a_task_is_no_lost_connection(client):
    """As in this process: a full disk where a task writes, say."""
    X, Y = integers()
    with pytest.raises(OSError, match="No space left on device") as caught:
        run_reading(SlowRows(X, sp.csr_array(Y)), [FullDisk(4, 3)], current_resources())
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "labels")
