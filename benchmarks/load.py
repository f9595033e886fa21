"""Many partitions, many selections one after the other, several clients on one cluster, and what follows for 100 TB.

    python benchmarks/load.py partitions | length | clients | estimate    [--folder DIR] [--minutes M]

`partitions` reads the same rows in 10 partitions and in 10 000; `length` makes selections for M minutes on one cluster
and looks at memory, open files and disk; `clients` has four processes select at the same time; `estimate` reckons from
the figures of `partitions` and of `passes.py workers`. Results are written to benchmarks/results/NAME.json.
"""

from __future__ import annotations

import argparse
import json
import pickle
import statistics
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import measuring
import numpy as np
from measuring import GIB, RESULTS, selection

if TYPE_CHECKING:
    from mlfs_dask.rows.contract import Profile
    from mlfs_dask.selectors.costs import Plan

report = partial(measuring.report, "load", RESULTS)

PARTITIONS = 10_000
ITERATIVE = {"graph": "anchors", "max_iter": 5, "tol": 0.0}


def store_of(folder: Path, partitions: int) -> Path:
    """1 000 000 x 10 uint8-sized rows in about so many partitions."""
    from synthetic import SyntheticReader

    from mlfs_dask.storage.conversion_options import Options
    from mlfs_dask.storage.convert import convert_reader

    path = folder / f"partitions-{partitions}.zarr"
    if not path.exists():
        reader = SyntheticReader(1_000_000, 10, 5)
        options = Options(partition_bytes=45 * 1_000_000 // partitions)
        convert_reader(lambda: reader, path, options=options, resume=False, force=True)
    return path


def partitions(folder: Path) -> None:
    """The same rows in few and in many partitions: seconds for each, and what the client holds."""
    from mlfs_dask.cluster.connect import connect
    from mlfs_dask.runtime import current_rss
    from mlfs_dask.storage.opening import open_dataset

    rows: dict[str, dict[str, Any]] = {}
    for count in (10, PARTITIONS):
        store = store_of(folder, count)
        started = time.perf_counter()
        dataset = open_dataset(store)
        source = dataset.store_rows
        opening = time.perf_counter() - started
        found = source.profile.partitions
        with connect(workers=2, memory_limit=GIB) as client:
            for name, options in (("elc", {}), ("mfsir, 5 iterations", ITERATIVE)):
                fit = selection(name.split(",")[0], store, **options)
                fit(client)  # kernels are loaded
                before, seconds = current_rss(), []
                for _ in range(2):
                    started = time.perf_counter()
                    facts = fit(client)
                    seconds.append(time.perf_counter() - started)
                rows[f"{name}, {found:,} partitions"] = {
                    "seconds": statistics.median(seconds),
                    "passes": facts["passes"],
                    "tasks": facts["tasks"],
                    "opening_seconds": opening,
                    "client_growth_MiB": (current_rss() - before) / 2**20,
                    "metadata_MiB": (store / "zarr.json").stat().st_size / 2**20,
                    "source_MiB": len(pickle.dumps(source)) / 2**20,
                    "partitions": found,
                }
    for name in ("elc", "mfsir, 5 iterations"):
        few, many = (row for label, row in rows.items() if label.startswith(name))
        extra = many["seconds"] - few["seconds"] - many["opening_seconds"] + few["opening_seconds"]
        many["ms_per_partition"] = 1e3 * extra / (many["passes"] * (many["partitions"] - few["partitions"]))
    report("partitions", "1 000 000 x 10 rows, the same in 10 and in 10 000 partitions; two workers of 1 GiB", rows)


def usage(folder: str | None = None) -> dict[str, float]:
    """Memory without what is free in it, open files and threads of this process, and bytes of a folder."""
    from mlfs_dask.runtime import measure_memory

    files = [path for path in Path(folder).rglob("*") if path.is_file()] if folder else []
    return {
        "MiB": measure_memory()[0] / 2**20,
        "files": sum(1 for _ in Path("/proc/self/fd").iterdir()),
        "threads": sum(1 for _ in Path("/proc/self/task").iterdir()),
        "disk_MiB": sum(path.stat().st_size for path in files) / 2**20,
    }


def length(folder: Path, minutes: float) -> None:
    """Selections one after the other on one cluster: what its processes hold after a tenth of the time and at last."""
    from synthetic import make_store

    from mlfs_dask.cluster.connect import connect

    dense = make_store(folder / "length-dense.zarr", 40_000, 100, 10)
    sparse = make_store(folder / "length-sparse.zarr", 40_000, 5_000, 10, nonzeros=30)
    jobs = [
        (name, store, options)
        for store in (dense, sparse)
        for name, options in (("elc", {}), ("label-entropy", {}), ("mfsir", ITERATIVE))
    ]
    seen: list[dict[str, dict[str, float]]] = []
    with connect(workers=2, memory_limit=GIB) as client:
        workers = client.scheduler_info(n_workers=-1)["workers"]
        started = time.monotonic()
        while time.monotonic() - started < 60 * minutes:
            for name, store, options in jobs:
                selection(name, store, **options)(client)
            looks = {"client": usage()}
            for number, (address, facts) in enumerate(sorted(workers.items()), start=1):
                place = facts["local_directory"]
                looks[f"worker {number}"] = client.run(usage, place, workers=[address])[address]
            seen.append(looks)
    rows = {}
    early, late = seen[: max(1, len(seen) // 10)][-1], seen[-1]
    for process in late:
        rows[process] = {"selections": len(jobs) * len(seen)}
        for what in late[process]:
            rows[process] |= {f"{what}_early": early[process][what], f"{what}_late": late[process][what]}
    report(
        "length",
        f"selections one after the other for {minutes:g} minutes: elc, label-entropy and mfsir (5 iterations) on a "
        "dense and a sparse store; two workers of 1 GiB; after the first tenth of the time, and at the end. What grows "
        "in the client is the scheduler of these workers: Dask keeps spans and groups of all tasks, some tens of KiB "
        "a selection",
        rows,
        f"--minutes {minutes:g}",
    )


CLIENT = """
import json, sys, time
import mlfs_dask
from mlfs_dask.cluster.connect import connect
from mlfs_dask.selection.estimator import get_estimator
with connect(scheduler_file=sys.argv[1]) as client:
    started = time.time()
    scores = get_estimator("elc")(10).fit(mlfs_dask.open_dataset(sys.argv[2])).ranking_.tolist()
    print(json.dumps([started, time.time(), scores]))
"""


def clients(folder: Path) -> None:
    """Four processes that select at the same time on one cluster of two workers, and one alone."""
    from synthetic import make_store

    store = make_store(folder / "clients.zarr", 500_000, 200, 20)
    place = folder / "scheduler.json"
    place.unlink(missing_ok=True)
    words = [sys.executable, "-m", "dask"]
    options = ["--scheduler-file", place, "--no-dashboard"]
    worker = [*words, "worker", *options, "--nthreads", "1", "--memory-limit", "1GiB"]
    scheduler = [*words, "scheduler", "--host", "127.0.0.1", "--port", "0", *options]
    processes = [subprocess.Popen(command) for command in (scheduler, worker, worker)]
    rows: dict[str, dict[str, Any]] = {}
    rankings = []
    try:
        for count in (1, 1, 4):  # the first one loads the kernels
            command = [sys.executable, "-c", CLIENT, str(place), str(store)]
            running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(count)]
            answers = [json.loads(process.communicate()[0].splitlines()[-1]) for process in running]
            rankings += [ranking for _, _, ranking in answers]
            seconds = max(end for _, end, _ in answers) - min(start for start, _, _ in answers)
            rows[f"{count} client{'s' * (count > 1)}"] = {"seconds": seconds, "seconds_a_selection": seconds / count}
    finally:
        for process in reversed(processes):
            process.terminate()
            process.wait()
    rows["4 clients"]["same_ranking"] = all(ranking == rankings[0] for ranking in rankings)
    report(
        "clients", "elc on 500 000 x 200 (400 MB); one scheduler and two workers of 1 GiB, each client a process", rows
    )


TERABYTES, WORKERS = (100, 10_000), 1000
#: Method, features, labels, and parameters: those of the stores on which the seconds were measured.
LARGE_JOBS: dict[str, tuple[str, int, int, dict[str, Any]]] = {
    "elc": ("elc", 1000, 100, {}),
    "mfsir": ("mfsir", 200, 20, {"graph": "anchors"}),
    "access-mfs": ("access-mfs", 200, 20, {"graph": "anchors"}),
}


def dense_profile(d: int, q: int, *, total: int, partitions: int) -> Profile:
    """The profile of as many bytes of dense float32."""
    from mlfs_dask.rows.contract import Profile
    from mlfs_dask.storage.array_layout import CHUNK_BYTES

    n = total // (4 * d)
    return Profile(
        n=n,
        d=d,
        q=q,
        sparse=False,
        dtype=np.dtype(np.float32),
        nonzeros=n * d,
        label_nonzeros=3 * n,
        partitions=partitions,
        block_rows=CHUNK_BYTES // (4 * d),
        block_bytes=CHUNK_BYTES,
        buffer_bytes=2 * CHUNK_BYTES,
        read_bytes=total,
    )


def planned(method: str, d: int, q: int, parameters: dict[str, Any], *, total: int, partitions: int) -> Plan:
    """The plan of a job on as many bytes of dense float32, on `WORKERS` workers of one core and 1 GiB."""
    from mlfs_dask.runtime import Resources
    from mlfs_dask.selection.estimator import get_estimator

    profile = dense_profile(d, q, total=total, partitions=partitions)
    resources = Resources(WORKERS, 1, GIB, 16 * GIB, client=object())
    plan: Plan = get_estimator(method)(n_features_to_select=10, **parameters).plan(profile, resources)
    return plan


def estimate(folder: Path) -> None:
    """100 TB and 10 PB of dense float32 on 1 000 workers of one core, from what was measured."""
    from mlfs_dask.storage.chunking import MAX_PARTITIONS, PARTITION_BYTES

    def table(name: str) -> dict[str, dict[str, Any]]:
        rows: dict[str, dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text())["rows"]
        return rows

    elc = table("workers")["elc dense, 1 worker"]["seconds"]
    loops, large, scheduler = (
        table("iterative/workers"),
        table("iterative/large"),
        table("scheduler")[f"{WORKERS:,} workers"],
    )
    many = next(
        row for label, row in table("partitions").items() if row["partitions"] > 1000 and label.startswith("elc")
    )
    rows = {}
    for terabytes in TERABYTES:
        total = terabytes * 10**12
        partitions = -(-total // max(PARTITION_BYTES, total // MAX_PARTITIONS))
        for name, job in LARGE_JOBS.items():
            plan = planned(*job, total=total, partitions=partitions)
            tasks = plan.tasks / plan.passes
            passes = 1 if name == "elc" else large[name]["passes"]
            bytes_a_second = 8e9 / elc if name == "elc" else 1.6e9 / loops[f"{name}, 1 worker"]["reading_seconds"]
            reading = total / WORKERS / bytes_a_second
            scheduling = scheduler["scheduler_cpu_ms_per_task"] * tasks / 1e3
            rows[f"{name}, {terabytes:,} TB"] = {
                "hours": passes * max(reading, scheduling) / 3600,
                "passes": passes,
                "reading_s": reading,
                "scheduler_s": scheduling,
                "tasks_a_reading": tasks,
                "partitions": partitions,
                "task_GB": total / tasks / 1e9,
                "metadata_MiB": many["metadata_MiB"] * partitions / many["partitions"],
                "opening_seconds": many["opening_seconds"] * partitions / many["partitions"],
                "source_MiB": many["source_MiB"] * partitions / many["partitions"],
                "store_GB_a_second": WORKERS * bytes_a_second / 1e9,
            }
    report(
        "estimate",
        f"dense float32 on {WORKERS:,} workers of one core, reckoned from the tables workers, iterative/workers, "
        "iterative/large (passes), partitions and scheduler, for a store that delivers as fast as a warm disk to every "
        "worker. A pass takes what its workers or the scheduler take, whichever is more",
        rows,
    )


if __name__ == "__main__":
    benchmarks = {f.__name__: f for f in (partitions, length, clients, estimate)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=benchmarks)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--minutes", type=float, default=60.0)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    more = {"minutes": arguments.minutes} if arguments.name == "length" else {}
    benchmarks[arguments.name](arguments.folder, **more)
