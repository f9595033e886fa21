"""Resources as measured, peaks, progress."""

from __future__ import annotations

import contextlib
import os
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import dask.array as da
import numpy as np
import pytest
import threadpoolctl
from scipy import linalg

import mlfs_dask
from mlfs_dask import runtime
from mlfs_dask.cluster.connect import connect
from mlfs_dask.cluster.resources import current_resources


def in_new_process(code):
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.split()


@pytest.mark.nightly  # other versions of glibc may keep other amounts
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc alone keeps and gives back")
def test_freed_memory_is_given_back_before_kernels_are_loaded_and_kept_afterwards():
    code = """
import numpy as np, mlfs_dask.runtime as r
for load in (False, True):
    if load:
        import mlfs_dask.blocks.nearest_compiled
    before = r.current_rss()
    block, behind = np.ones(2**24), np.ones(2**10)
    del block
    freed = r.current_rss()
    r.prepare_for_kernels()
    print((freed - before) >> 20, (r.current_rss() - before) >> 20)
"""
    kept = {"MALLOC_MMAP_THRESHOLD_": str(2**30), "MALLOC_TRIM_THRESHOLD_": str(2**30), "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | kept, capture_output=True, text=True, check=True
    )
    first, second, third, fourth = map(int, done.stdout.split())
    # Of 128 MiB; some lie where memory was free before.
    assert first >= 120 > 4 > second
    assert third >= 120 <= fourth


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc alone keeps and gives back")
def test_freed_memory_is_kept_in_a_block_and_given_back_after_it():
    code = """
import threading
import numpy as np, mlfs_dask.runtime as r
def free(count):
    blocks, behind = [np.ones(2**22) for _ in range(count)], np.ones(2**10)
before = r.current_rss()
with r.freed_memory_kept():
    for run in (lambda: free(4), threading.Thread(target=free, args=(8,)).start):
        run()
        for thread in threading.enumerate()[1:]:
            thread.join()
        print((r.current_rss() - before) >> 20)
print((r.current_rss() - before) >> 20)
"""
    here, in_a_thread, after = map(int, in_new_process(code))
    assert 120 <= here < 140
    assert 250 <= in_a_thread < 280
    assert after < 16


def test_peak_follows_what_is_held():
    # In a process of its own: another test's freed memory would be used again, and nothing would grow.
    code = """
import mmap, mlfs_dask.runtime as r
r.reset_peak_rss()
before = r.peak_rss()
held = mmap.mmap(-1, 40 * 2**20)
held.write(b"1" * len(held))
print(r.peak_rss() - before, r.current_rss() - before)
held.close()
r.reset_peak_rss()
print(r.peak_rss() - before)
"""
    peak, current, after = (int(text) / 2**20 for text in in_new_process(code))
    assert peak > 35
    assert current > 35
    assert after < 20


class Interruption(BaseException):
    """As KeyboardInterrupt, which would end the tests."""


@pytest.mark.parametrize("look", [runtime.check_stopped, lambda: runtime.emit("parts", done=1)], ids=["look", "event"])
def test_tasks_end_where_the_with_block_is_left_by_an_exception(look):
    """Those that run at their next look or event, those that wait without having begun."""
    begun = threading.Semaphore(0)
    ended, futures = [], []

    def task():
        begun.release()
        try:
            for _ in range(10**9):
                look()
                threading.Event().wait(0.001)
        except runtime.StoppedError:
            ended.append(threading.current_thread().name)
            raise

    def interrupted():
        with runtime.progress_to(lambda event: None), runtime.TaskThreads(2, "mlfs-test") as pool:
            futures.extend(pool.submit(task) for _ in range(5))
            begun.acquire()
            begun.acquire()
            raise Interruption

    with pytest.raises(Interruption):
        interrupted()
    assert len(ended) == 2
    assert all(name.startswith("mlfs-test") for name in ended)
    assert [future.cancelled() for future in futures] == [False, False, True, True, True]
    runtime.check_stopped()  # nothing in any other thread


@pytest.mark.cluster
def test_what_a_worker_has_freed_is_not_counted_with_it():
    with connect(workers=1, memory_limit=2**30) as client:
        fresh = current_resources().process_bytes
        client.run(eval, "len([bytes(50_000) for _ in range(2000)])")
        assert max(client.run(runtime.current_rss).values()) > fresh + 60 * 2**20, "freed memory stays with the worker"
        assert current_resources().process_bytes < fresh + 20 * 2**20


def bytes_of_kernels():
    """What the compiled kernels add to a new process on this machine."""
    return int(
        in_new_process("from mlfs_dask.cluster import resources as r; print(r.current_resources().compiled_bytes)")[0]
    )


def test_loaded_kernels_are_not_counted_again():
    code = """
import mlfs_dask.runtime as r
from mlfs_dask.cluster.resources import current_resources
print(current_resources().compiled_bytes)
import mlfs_dask.blocks.counts_compiled
print(current_resources().compiled_bytes)
"""
    assert in_new_process(code) == [str(bytes_of_kernels()), "0"]


def test_kernels_that_are_not_in_the_cache_of_numba_have_to_be_compiled(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    assert bytes_of_kernels() == runtime.COMPILED_BYTES + runtime.COMPILING_BYTES
    (tmp_path / "blocks").mkdir()
    (tmp_path / "blocks" / "counts_compiled.count_lanes-21.py311.nbi").touch()
    assert bytes_of_kernels() == runtime.COMPILED_BYTES


def test_what_kernels_add_to_a_process_is_what_plans_say():
    code = """
import numpy as np, mlfs_dask, mlfs_dask.runtime as r
from mlfs_dask.blocks import gates
from mlfs_dask.blocks.sparse import as_labels
gates.COMPILED_VALUES = 0
X, Y = np.ones((4, 2), np.float32), as_labels(np.eye(4, 2))
mlfs_dask.LabelEntropy(1).fit
before = r.current_rss()
mlfs_dask.LabelEntropy(1, bins=4).fit(X, Y)
print(r.current_rss() - before)
"""
    in_new_process(code)  # the first one may have to compile; afterwards the code comes from Numba's cache
    (added,) = in_new_process(code)
    # How much of LLVM's library counts with a process depends on how the system keeps its pages: 68 MiB, and 124 of a
    # library that has just been installed.
    assert 0.65 * runtime.COMPILED_BYTES < int(added) < 1.35 * runtime.COMPILED_BYTES + (56 << 20)


def test_what_trees_add_to_a_process_is_what_plans_say():
    code = """
import numpy as np, mlfs_dask.runtime as r
from mlfs_dask.blocks.forest import grow_forest
from mlfs_dask.cluster.resources import current_resources
before = r.current_rss()
print(current_resources().sklearn_bytes)
grow_forest(np.random.default_rng(0).normal(size=(300, 10)), n_trees=100, max_samples=256, seed=0)
print(r.current_rss() - before)
print(current_resources().sklearn_bytes)
"""
    planned, added, then = map(int, in_new_process(code))
    assert (planned, then) == (runtime.SKLEARN_BYTES, 0)
    assert 0.75 * planned < added < 1.1 * planned


@pytest.mark.cluster
def test_loaded_kernels_of_workers_are_not_counted_again():
    from mlfs_dask.cluster.connect import connect

    def load():
        import mlfs_dask.blocks.counts_compiled  # noqa: F401

    with connect(workers=2, memory_limit=600 * 2**20) as client:
        assert current_resources().compiled_bytes == bytes_of_kernels()
        addresses = list(client.scheduler_info(n_workers=-1)["workers"])
        client.run(load, workers=addresses[:1])
        assert current_resources().compiled_bytes == bytes_of_kernels()
        client.run(load)
        assert current_resources().compiled_bytes == 0


# ---------------------------------------------------------------- control groups


@pytest.fixture
def machine(tmp_path):
    """A made-up /proc and /sys: files by name, and the process's control groups."""

    def make(groups="", **files):
        files = {**{name.replace(" ", "/"): text for name, text in files.items()}, "proc/self/cgroup": groups}
        for name, text in files.items():
            file = tmp_path / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        return str(tmp_path)

    return make


V2, V1 = "sys/fs/cgroup", "sys/fs/cgroup/cpu"


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, 8),
        ("0::/\n", {f"{V2}/cpu.max": "max 100000\n"}, 8),
        ("0::/\n", {f"{V2}/cpu.max": "200000 100000\n"}, 2),
        ("0::/\n", {f"{V2}/cpu.max": "150000 100000\n"}, 2),  # one and a half
        ("0::/\n", {f"{V2}/cpu.max": "5000 100000\n"}, 1),
        ("0::/\n", {f"{V2}/cpu.max": "3200000 100000\n"}, 8),  # more than the process may run on
        ("0::/job/step\n", {f"{V2}/job/cpu.max": "300000 100000", f"{V2}/job/step/cpu.max": "max 100000"}, 3),
        ("0::/job/step\n", {f"{V2}/job/cpu.max": "300000 100000", f"{V2}/job/step/cpu.max": "20000 10000"}, 2),
        ("0::/job\n", {f"{V2}/other/cpu.max": "100000 100000"}, 8),
        ("0::/../job\n", {f"{V2}/cpu.max": "400000 100000", f"{V2}/job/cpu.max": "100000 100000"}, 4),
        ("4:cpu,cpuacct:/\n", {f"{V1}/cpu.cfs_quota_us": "-1\n", f"{V1}/cpu.cfs_period_us": "100000\n"}, 8),
        # A container of version 1 names a folder that only its host has.
        ("4:cpu:/docker/1\n", {f"{V1}/cpu.cfs_quota_us": "250000\n", f"{V1}/cpu.cfs_period_us": "100000\n"}, 3),
        (
            "9:memory:/b\n4:cpuacct,cpu:/a\n0::/\n",
            {
                f"{V1}/a/cpu.cfs_quota_us": "50000",
                f"{V1}/a/cpu.cfs_period_us": "10000",
                f"{V1}/b/cpu.cfs_quota_us": "10000",
                f"{V1}/b/cpu.cfs_period_us": "10000",
            },
            5,
        ),
        ("0::/\n", {f"{V2}/cpu.max": "nonsense\n"}, 8),
    ],
)
def test_cores_within_the_quota_of_every_control_group(machine, monkeypatch, groups, files, expected):
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)))
    assert runtime.available_cores(machine(groups, **files)) == expected


def test_cores_of_this_process(monkeypatch):
    assert 1 <= runtime.available_cores() <= len(os.sched_getaffinity(0))
    monkeypatch.setattr(runtime, "available_cores", lambda: 7)
    assert current_resources().threads_per_worker == 7


MEMORY = "sys/fs/cgroup/memory"


def held(folder, limit, used, **more):
    """Files of a control group of version 2 in a folder of it."""
    files = {"max": limit, "current": used, **more}
    return {f"{V2}/{folder}memory.{name}": str(text) for name, text in files.items()}


@pytest.mark.parametrize(
    ("groups", "files", "expected"),
    [
        ("", {}, 9_000_000),
        ("0::/\n", held("", 5_000_000, 2_000_000), 3_000_000),
        ("0::/\n", held("", "max\n", 2_000_000), 9_000_000),
        # The outer group is nearly full, whatever the inner one may hold.
        ("0::/job/step\n", held("job/", 8_000_000, 7_000_000) | held("job/step/", 6_000_000, 2_000_000), 1_000_000),
        # Files that were read once are dropped when somebody needs the room.
        (
            "0::/job\n",
            held("job/", 6_000_000, 5_500_000, stat="anon 10\ninactive_file 3000000\nactive_file 20\n"),
            3_500_000,
        ),
        (
            "7:cpuset,memory:/slurm\n",
            {
                f"{MEMORY}/slurm/memory.limit_in_bytes": "4000000",
                f"{MEMORY}/slurm/memory.usage_in_bytes": "3000000",
                f"{MEMORY}/slurm/memory.stat": "inactive_file 1\ntotal_inactive_file 500000\n",
            },
            1_500_000,
        ),
        ("", {f"{MEMORY}/memory.limit_in_bytes": str(2**63 - 4096), f"{MEMORY}/memory.usage_in_bytes": "1"}, 9_000_000),
    ],
)
def test_memory_that_every_control_group_leaves(machine, monkeypatch, groups, files, expected):
    monkeypatch.setattr(runtime, "current_rss", lambda: 1024)
    zeros = "".join(f"{name}: 0 kB\n" for name in ("Buffers", "Cached", "Shmem", "Active", "Inactive", "Slab"))
    meminfo = f"MemTotal: 99999 kB\nMemFree: 10 kB\nMemAvailable: {9_000_000 // 1000} kB\n{zeros}"
    root = machine(groups, **files, **{"proc/meminfo": meminfo})
    monkeypatch.setattr("psutil.PROCFS_PATH", f"{root}/proc")
    left = 9000 * 1024 if expected == 9_000_000 else expected
    assert runtime.available_memory(root) == left + 1024


# ---------------------------------------------------------------- threads, progress


def in_two_threads(function):
    """What a function gives that is called in two threads, with 0 and 1, and a barrier that both can wait at."""
    barrier = threading.Barrier(2, timeout=60)
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda number: function(number, barrier.wait), range(2)))


def test_threads_of_a_user_do_not_get_each_others_events_and_limits():
    def work(number, meet):
        events = []
        with (
            runtime.progress_to(events.append),
            runtime.process_limits(memory_limit=10**9 + number),
            runtime.process_limits(threads=5 + number),
        ):
            meet()
            runtime.emit("step", number=number)
            found = current_resources()
            meet()
        return [event["number"] for event in events], found.memory_limit, found.threads_per_worker

    outside = []
    with runtime.progress_to(outside.append):
        assert in_two_threads(work) == [([0], 10**9, 5), ([1], 10**9 + 1, 6)]
    assert outside == []
    assert current_resources().memory_limit not in (10**9, 10**9 + 1)


def test_blas_has_its_threads_again_when_the_last_one_has_left():
    linalg.eigh(np.linalg.eigh(np.eye(2))[1])  # NumPy and SciPy each have a BLAS

    def threads():
        return {pool["num_threads"] for pool in threadpoolctl.threadpool_info() if pool["user_api"] == "blas"}

    def work(number, meet):
        with contextlib.ExitStack() as stack:
            if number == 0:
                stack.enter_context(runtime.one_blas_thread())
            meet()
            if number == 1:
                stack.enter_context(runtime.one_blas_thread())
            meet()
            if number == 0:
                stack.close()
            meet()
            found = threads()
            meet()
        return found

    with threadpoolctl.threadpool_limits(3):
        assert threads() == {3}
        assert in_two_threads(work) == [{1}, {1}], "the second is still inside"
        assert threads() == {3}


def test_a_blas_that_is_loaded_inside_is_limited_too(monkeypatch):
    monkeypatch.setenv("OPENBLAS_NUM_THREADS", "3")
    found = in_new_process(
        "import sys, threadpoolctl\n"
        "from mlfs_dask import runtime\n"
        "def tell():\n"
        "    print({pool['num_threads'] for pool in threadpoolctl.threadpool_info() if pool['user_api'] == 'blas'})\n"
        "with runtime.one_blas_thread():\n"
        "    assert 'scipy.linalg' not in sys.modules\n"
        "    from scipy import linalg\n"
        "    with runtime.one_blas_thread():\n"
        "        tell()\n"
        "    tell()\n"
        "tell()\n"
    )
    assert found == ["{1}", "{1}", f"{{{min(3, len(os.sched_getaffinity(0)))}}}"]


def test_our_threads_work_for_whoever_hands_out_their_tasks():
    first, second = [], []
    with runtime.ThreadPool(2) as pool:
        meet = threading.Barrier(2, timeout=60)

        def task(number):
            meet.wait()  # both at the same time
            with runtime.progress_to(second.append):
                runtime.emit("step", number=number)

        with runtime.progress_to(first.append):
            list(pool.map(task, range(2)))
        pool.submit(runtime.emit, "step", number=2).result()
    assert sorted(event["number"] for event in first) == [0, 1]
    assert sorted(event["number"] for event in second) == [0, 1], "what a task sets ends with it"


def test_a_function_may_run_in_its_context_in_two_threads_at_once():
    events, meet = [], threading.Barrier(2, timeout=60)

    def both(number):
        meet.wait()
        runtime.emit("step", number=number)
        meet.wait()

    with runtime.progress_to(events.append):
        held = runtime.in_context(both)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(held, range(2)))
    assert sorted(event["number"] for event in events) == [0, 1]


def test_events_reach_every_sink_in_order():
    first, second = [], []
    with runtime.progress_to(first.append), runtime.progress_to(second.append):
        runtime.emit("step", number=1)
        runtime.emit_from_task("partitions", done=2)
    runtime.emit("step", number=2)
    assert first == second == [{"kind": "step", "number": 1}, {"kind": "partitions", "done": 2}]


def test_a_stage_is_told_from_its_beginning_to_its_end(monkeypatch):
    events, clock = [], iter([3.0, 5.5])
    monkeypatch.setattr(runtime.time, "perf_counter", lambda: next(clock))
    with runtime.progress_to(events.append), runtime.stage("ranking", 2, unit="blocks") as done:
        done()
        done()
    assert events[0] == {"kind": "stage", "label": "ranking", "parts": 2, "unit": "blocks"}
    assert events[1:3] == [{"kind": "parts", "done": 1}] * 2
    assert events[3] == {"kind": "stage-done", "label": "ranking", "seconds": 2.5}
    events.clear()
    monkeypatch.undo()
    with runtime.progress_to(events.append), pytest.raises(ZeroDivisionError), runtime.stage("ranking"):
        _ = 1 / 0
    assert [event["kind"] for event in events] == ["stage"], "it was not done"


def test_a_fit_in_python_logs_how_far_it_is(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "LOG_SECONDS", 0)
    X, Y = np.random.default_rng(0).random((60, 4)), np.arange(120).reshape(60, 2) // 3 % 2
    with caplog.at_level("INFO", logger="mlfs_dask"):
        mlfs_dask.BRCC(n_features_to_select=2).fit(da.from_array(X, chunks=(20, 4)), Y)
    assert any(re.fullmatch(r"\w+: [12] of 3 partitions", text) for text in caplog.messages), caplog.messages
    assert any("tasks" in text for text in caplog.messages)
