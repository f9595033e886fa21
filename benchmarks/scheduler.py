"""A scheduler with a thousand workers whose tasks sleep: the real graph of a pass and real messages, without data.

    python benchmarks/scheduler.py                      # 100, 300 and 1 000 workers; some minutes
    python benchmarks/scheduler.py --workers 1000       # these alone; the others' figures stay

The scheduler is a process of its own. Workers are real ones of Dask with a TCP connection each, many in a process, so
that a thousand fit one machine; a task that reads partitions delivers its result so many seconds later, and no thread
waits for that. What is told of a pass: its seconds beside those that the tasks sleep, the CPU seconds of the scheduler
for each task, and for each task beside what it takes in as many seconds without a pass (heartbeats), what of its time
it was busy, its memory, and the CPU seconds of the client. With two cores the workers take the scheduler's place on
them, so that the seconds of a pass are upper limits; the scheduler's CPU seconds are its own. Results are written to
benchmarks/results/scheduler.json.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from load import dense_profile
from measuring import GIB, RESULTS
from scipy.sparse import csr_array

from mlfs_dask.engine.readings import run_reading
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.contract import Block, Profile, RowSource

TERABYTE = 10**12
WORKERS_OF_A_PROCESS, IDLE_SECONDS = 250, 20
# What a worker does many times a second by itself would fill the process that a quarter of a thousand of them share.
QUIET = {
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    "DASK_DISTRIBUTED__WORKER__MEMORY__MONITOR_INTERVAL": "60s",
    "DASK_DISTRIBUTED__ADMIN__TICK__INTERVAL": "60s",
    "DASK_DISTRIBUTED__ADMIN__SYSTEM_MONITOR__INTERVAL": "60s",
}


class SleepingRows(RowSource):
    """Rows of many terabytes, of which every partition takes so many seconds; a run of them yields one row."""

    def __init__(self, profile: Profile, seconds: float) -> None:
        self.profile = profile
        self.row_offsets = np.linspace(0, profile.n, profile.partitions + 1).astype(np.int64)
        self._seconds = seconds

    def stream(self, first: int, last: int) -> Iterator[Block]:
        SleepingThreadPoolExecutor.seconds = (last - first) * self._seconds
        X = np.zeros((1, 1000), np.float32)
        yield Block(int(self.row_offsets[last]) - 1, X, csr_array((1, 100), dtype=np.int8))


class Nothing(Statistic):
    """Sums of as many numbers as are asked for, to which no block adds anything, and parameters that travel.

    The first number counts the runs.
    """

    def __init__(self, numbers: int, parameters: int) -> None:
        self.numbers, self.matrix = numbers, np.zeros(parameters)

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        return [(self.numbers,)]

    def scratch_bytes(self, profile: Profile) -> int:
        return 0

    def add(self, state: Any, block: Block) -> None:
        state[0][0] += 1

    def finalize(self, state: Any) -> float:
        return float(state[0][0])


class SleepingThreadPoolExecutor(ThreadPoolExecutor):
    """Executor that runs a function at once, in the event loop, and delivers its result after `seconds`.

    A thread for each of a thousand workers would wait for the interpreter's lock most of the time. Dask gives tasks the
    context of a thread if the executor is named so.
    """

    seconds = 0.0

    def submit(self, function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        SleepingThreadPoolExecutor.seconds = 0.0
        result = function(*args, **kwargs)
        asyncio.get_running_loop().call_later(SleepingThreadPoolExecutor.seconds, future.set_result, result)
        return future


def usage(dask_scheduler: Any = None) -> dict[str, float]:
    """CPU seconds and memory of the process that runs this."""
    from mlfs_dask.runtime import current_rss

    return {"cpu": time.process_time(), "MiB": current_rss() / 2**20}


async def serve(scheduler_file: str, count: int, first: int) -> None:
    """Run workers in this process until it is ended."""
    from distributed import Worker

    folder = tempfile.mkdtemp(prefix="mlfs-scheduler-")
    workers = [
        Worker(
            scheduler_file=scheduler_file,
            nthreads=1,
            name=first + i,
            local_directory=f"{folder}/{first + i}",
            memory_limit=64 * GIB,  # of which each counts the memory of the whole process
            host="127.0.0.1",
            dashboard=False,
            executor=SleepingThreadPoolExecutor(),
        )
        for i in range(count)
    ]
    await asyncio.gather(*workers)
    gc.freeze()  # a worker that is asked for its memory collects garbage: of all workers of this process, once for each
    await asyncio.gather(*(worker.finished() for worker in workers))


def measure(count: int, source: SleepingRows, numbers: int, parameters: int, seconds: float) -> dict[str, Any]:
    """One pass on a new cluster of so many workers, after one that loads what tasks need."""
    from mlfs_dask.cluster.connect import connect
    from mlfs_dask.cluster.resources import current_resources

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "scheduler.json"
        environment = os.environ | {"OMP_NUM_THREADS": "1", "MLFS_SCHEDULER_FILE": ""}
        start = partial(subprocess.Popen, env=environment, stderr=subprocess.DEVNULL)
        command = [sys.executable, "-m", "dask", "scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard"]
        processes = [start([*command, "--scheduler-file", str(file)])]
        try:
            while not file.exists():
                time.sleep(0.1)
            began = time.perf_counter()
            for first in range(0, count, WORKERS_OF_A_PROCESS):
                share = min(WORKERS_OF_A_PROCESS, count - first)
                command = [sys.executable, __file__, "--serve", str(file), str(share), str(first)]
                processes.append(start(command, env=environment | QUIET))
            with connect(scheduler_file=str(file), min_workers=count, wait=900.0) as client:
                assert client is not None
                joining = time.perf_counter() - began  # with the question what code they run
                resources = current_resources()
                run_reading(
                    SleepingRows(dense_profile(1000, 100, total=TERABYTE, partitions=count), 0.0),
                    [Nothing(1, 1)],
                    resources,
                )
                before, mine = client.run_on_scheduler(usage), usage()
                began = time.perf_counter()
                (found,), record = run_reading(source, [Nothing(numbers, parameters)], resources)
                took = time.perf_counter() - began
                after, mine_after = client.run_on_scheduler(usage), usage()
                time.sleep(IDLE_SECONDS)
                rest = client.run_on_scheduler(usage)["cpu"] - after["cpu"]
                cpu = after["cpu"] - before["cpu"]
                return {
                    "workers": count,
                    "partitions": source.profile.partitions,
                    "tasks": record.tasks,
                    "runs": found,
                    "joining_s": joining,
                    "seconds": took,
                    "sleeping_s": seconds,
                    "scheduler_cpu_s": cpu,
                    "scheduler_cpu_ms_per_task": 1e3 * cpu / record.tasks,
                    "scheduler_cpu_ms_per_task_beside_idle": 1e3 * (cpu - rest * took / IDLE_SECONDS) / record.tasks,
                    "scheduler_busy_share": cpu / took,
                    "scheduler_idle_share": rest / IDLE_SECONDS,
                    "scheduler_MiB": after["MiB"],
                    "client_cpu_s": mine_after["cpu"] - mine["cpu"],
                }
        finally:
            for process in reversed(processes):
                process.terminate()
            for process in processes:
                process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, nargs="+", default=[100, 300, 1000])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=20.0, help="that all partitions of a worker sleep")
    parser.add_argument("--state", type=float, default=0.1, help="MB of a partial result")
    parser.add_argument("--parameters", type=float, default=1.0, help="MB of the parameters of a pass")
    parser.add_argument("--terabytes", type=int, default=100)
    parser.add_argument("--serve", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        file, count, first = options.serve
        asyncio.run(serve(file, int(count), int(first)))
        return
    known = RESULTS / "scheduler.json"
    rows = json.loads(known.read_text())["rows"] if known.exists() else {}
    for count in options.workers:
        each = options.seconds * count / options.partitions
        total = options.terabytes * TERABYTE
        source = SleepingRows(dense_profile(1000, 100, total=total, partitions=options.partitions), each)
        numbers, parameters = (int(megabytes * 125_000) for megabytes in (options.state, options.parameters))
        rows[f"{count:,} workers"] = measure(count, source, numbers, parameters, options.seconds)
        print(rows[f"{count:,} workers"], flush=True)
    measuring.report(
        "scheduler",
        RESULTS,
        "scheduler",
        f"one pass over {options.partitions:,} partitions on a real scheduler and real workers whose tasks sleep, "
        f"{options.seconds:g} s for each worker; partial results of {options.state:g} MB, parameters of "
        f"{options.parameters:g} MB",
        rows,
    )


if __name__ == "__main__":
    main()
