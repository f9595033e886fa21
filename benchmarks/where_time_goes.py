"""Where the time of the counting pass goes, by py-spy and the Dask performance report.

    python benchmarks/where_time_goes.py    [--folder DIR]    (needs py-spy and bokeh)

Two workers of 1 GiB read the store of `passes.py dense`, once by `da.from_zarr` and once by label-entropy, warm. py-spy
samples all threads of both workers 250 times a second; what waits is left out, and the share of an activity is that of
the other samples. The shares go to benchmarks/results/where_time_goes.json, and the performance reports of Dask into
the folder, beside the store.
"""

from __future__ import annotations

import argparse
import collections
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

RATE = 250
SPY = f"py-spy record --format raw --rate {RATE} --threads --nonblocking --duration 600".split()

#: What a sample is counted as: the first entry of which a frame of the stack, innermost first, holds the words.
ACTIVITIES = {
    "counting (compiled kernel)": ("blocks/counts",),
    "products (compiled kernel)": ("statistics/products", "blocks/products"),
    "reading files, checksums": ("mlfs_dask/storage/", "zarr/storage/_local", "fsspec/implementations/local", "crc32c"),
    "Zarr, apart from reading files": ("zarr/",),
    "Dask and its network": ("distributed/", "dask/", "tornado/", "asyncio/"),
}

#: Innermost frames of threads that wait for something to do.
WAITS = ("Condition.wait ", "EpollSelector.select ", "_worker (concurrent/futures/thread.py:8", "(threading.py:")


def record(folder: Path, name: str, function: Callable[[Any], Any]) -> dict[str, Any]:
    """Run `function(client)` in a new cluster under both profilers."""
    import os

    from distributed import performance_report

    from mlfs_dask.cluster.connect import connect

    with connect(workers=2, memory_limit=2**30) as client:
        function(client)  # loads the kernels
        pids = client.run(os.getpid).values()
        files = [folder / f"{name}-{i}.txt" for i in range(2)]
        spies = [
            subprocess.Popen(
                [*SPY, "--pid", str(pid), "--output", str(file)],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            for pid, file in zip(pids, files, strict=True)
        ]
        time.sleep(1.5)
        started = time.perf_counter()
        with performance_report(filename=str(folder / f"{name}.html")):
            function(client)
        seconds = time.perf_counter() - started
        for spy in spies:
            spy.send_signal(2)
        for spy in spies:
            spy.wait()
    return {"seconds": seconds, **shares("\n".join(file.read_text().rstrip() for file in files))}


def shares(samples: str) -> dict[str, Any]:
    """Samples that did something, by activity and by innermost function.

    >>> shares("a (zarr/core/x.py:1);read (zarr/storage/_local.py:7) 3\\nmain;EpollSelector.select (selectors.py:4) 9")[
    ...     "activities"
    ... ]
    {'reading files, checksums': 1.0}
    """
    activities: collections.Counter[str] = collections.Counter()
    innermost: collections.Counter[str] = collections.Counter()
    for line in samples.splitlines():
        stack, _, count = line.rpartition(" ")
        frames = stack.split(";")
        if not stack or any(word in frames[-1] for word in WAITS):
            continue
        found = next(
            (
                activity
                for frame in reversed(frames)
                for activity, words in ACTIVITIES.items()
                if any(word in frame for word in words)
            ),
            "everything else",
        )
        activities[found] += int(count)
        innermost[frames[-1]] += int(count)
    total = sum(activities.values())
    return {
        "samples": total,
        "activities": {name: round(count / total, 3) for name, count in activities.most_common()},
        "innermost": {name: round(count / total, 3) for name, count in innermost.most_common(8)},
    }


def main(folder: Path) -> None:
    from measuring import RESULTS, plain_read, selection, warm_pages
    from synthetic import make_store

    folder.mkdir(parents=True, exist_ok=True)
    store = make_store(folder / "dense.zarr", 2_000_000, 1000, 100)
    warm_pages(store)
    jobs = {
        "da.from_zarr read": plain_read(store),
        "label-entropy, 8 codes": selection("label-entropy", store, bins=8, n_promising_labels=1.0),
        "elc": selection("elc", store),
    }
    rows = {label: record(folder, label.split(",")[0].replace(" ", "-"), job) for label, job in jobs.items()}
    (RESULTS / "where_time_goes.json").write_text(json.dumps(rows, indent=1) + "\n")
    print(json.dumps(rows, indent=1))


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent))
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    main(parser.parse_args().folder)
