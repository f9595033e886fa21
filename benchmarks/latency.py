"""Selections from a store behind a web server that answers every request 50 ms late, beside the same store on disk.

    python benchmarks/latency.py object-store    [--folder DIR] [--delay SECONDS]

The server is a process of its own on the loopback interface; the stores are made in the folder on first use (1 GB and
0.5 GB). What the server and the client spend on the bytes themselves is in the row without a delay. Results are printed
and written to benchmarks/results/object-store.json.
"""

from __future__ import annotations

import argparse
import contextlib
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import measuring
from measuring import in_process, warm_pages

report = partial(measuring.report, "latency", measuring.RESULTS)

#: Answers with files of a folder, or ranges of them, each after a delay; the path /requests tells how many there were.
SERVER = """
import asyncio, sys
from aiohttp import web

folder, port, delay = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
requests = 0

@web.middleware
async def late(request, handler):
    global requests
    if request.path == "/requests":
        return web.Response(text=str(requests))
    requests += 1
    await asyncio.sleep(delay)
    return await handler(request)

app = web.Application(middlewares=[late])
app.router.add_static("/", folder)
web.run_app(app, host="127.0.0.1", port=port, print=None, access_log=None)
"""


@contextlib.contextmanager
def served(folder: Path, delay: float) -> Iterator[str]:
    """URL of a folder behind a server that waits `delay` seconds before each answer."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, "-c", SERVER, str(folder), str(port), str(delay)])
    try:
        while True:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", port), timeout=1).close()
                break
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


def object_store(folder: Path, delay: float, repeats: int) -> None:
    """Selections from disk, from the server, and from the server when every answer is late."""
    from synthetic import make_store

    make_store(folder / "dense.zarr", 250_000, 1000, 100)
    make_store(folder / "sparse.zarr", 1_000_000, 100_000, 100, nonzeros=60)
    jobs = {
        "elc, dense": ("dense.zarr", "elc", {}),
        "label-entropy, 8 codes, dense": ("dense.zarr", "label-entropy", {"bins": 8, "n_promising_labels": 1.0}),
        "label-entropy, sparse": ("sparse.zarr", "label-entropy", {"n_promising_labels": 0.2}),
    }
    rows: dict[str, dict[str, Any]] = {}
    with served(folder, 0.0) as near, served(folder, delay) as far:
        for job, (store, method, parameters) in jobs.items():
            warm_pages(folder / store)
            places = {"disk": folder, "server": near, f"server, {1000 * delay:.0f} ms late": far}
            for place, root in places.items():
                code = FIT.format(url=f"{root}/{store}", method=method, parameters=parameters)
                before = requests(near) + requests(far)
                rows[f"{job}, {place}"] = row = in_process(code, repeats=repeats)
                if place != "disk":
                    row["requests"] = (requests(near) + requests(far) - before) // (2 * repeats)
                    row["ratio_to_disk"] = row["seconds"] / rows[f"{job}, disk"]["seconds"]
                if root == far:
                    row["ratio_to_server"] = row["seconds"] / rows[f"{job}, server"]["seconds"]
    report(
        "object-store",
        "250 000 x 1 000 float32 (1 GB) and 1 000 000 x 100 000 sparse (0.3 GB), in process with two threads, opening "
        "counted; the web server has the same two cores",
        rows,
        f"--delay {delay:g} --repeats {repeats}",
    )


FIT = """
import time, warnings
import mlfs_dask
from mlfs_dask.selection.estimator import get_estimator
warnings.simplefilter("ignore")
selector = get_estimator({method!r})
for _ in range(2):  # kernels and libraries are loaded by the first
    started = time.perf_counter()
    report = selector(10, **{parameters!r}).fit(mlfs_dask.open_dataset({url!r})).report_
    facts = {{"seconds": time.perf_counter() - started, "passes": report.passes}}
facts["planned_MiB"] = report.plan["peak_worker_bytes"] / 2**20
"""


def requests(url: str) -> int:
    """How many requests a server has had."""
    with urllib.request.urlopen(f"{url}/requests") as answer:
        return int(answer.read())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["object-store"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks/object-store"))
    parser.add_argument("--delay", type=float, default=0.05, help="seconds")
    parser.add_argument("--repeats", type=int, default=3, help="processes, of which the median counts")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    object_store(arguments.folder, arguments.delay, arguments.repeats)
