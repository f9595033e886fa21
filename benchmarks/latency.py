"""Selections from a store behind a web server that answers every request 50 ms late, beside the same store on disk.

    python benchmarks/latency.py object-store    [--folder DIR] [--delay SECONDS]

The server is a process of its own on the loopback interface; the stores are made in the folder on first use (1 GB and
0.5 GB). What the server and the client spend on the bytes themselves is in the row without a delay; `get_ranges` is
obstore alone, which is given the ranges of all chunks of X, shard by shard, by as many threads as the selection has.
Results are printed and written to benchmarks/results/object-store.json.
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
import http.server, itertools, os, re, sys, time

folder, port, delay = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
requests = itertools.count()

class Late(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_GET(self):
        if self.path == "/requests":
            content = str(next(requests)).encode()
            self.answer(200, len(content))
            self.wfile.write(content)
            return
        next(requests)
        time.sleep(delay)
        try:
            file = open(folder + self.path, "rb")
        except OSError:
            self.answer(404, 0)
            return
        with file:
            size = os.fstat(file.fileno()).st_size
            asked = re.fullmatch(r"bytes=(\\d*)-(\\d*)", self.headers.get("Range", ""))
            start, stop = 0, size
            if asked and asked[1]:
                start, stop = int(asked[1]), min(int(asked[2] or size) + 1, size)
            elif asked:
                start = size - int(asked[2])
            self.answer(206 if asked else 200, stop - start, f"bytes {start}-{stop - 1}/{size}")
            while self.command == "GET" and start < stop:
                start += os.sendfile(self.connection.fileno(), file.fileno(), start, stop - start)

    do_HEAD = do_GET

    def answer(self, status, length, part=None):
        self.send_response(status)
        self.send_header("Content-Length", str(length))
        if status == 206:
            self.send_header("Content-Range", part)
        self.end_headers()
        self.wfile.flush()

class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 128

Server(("127.0.0.1", port), Late).serve_forever()
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


def object_store(folder: Path, delay: float, repeats: int, rows_of_dense: int) -> None:
    """Selections from disk, from the server, and from the server when every answer is late."""
    from synthetic import make_store

    dense = f"dense-{rows_of_dense}.zarr"
    make_store(folder / dense, rows_of_dense, 1000, 100)
    make_store(folder / "sparse.zarr", 1_000_000, 100_000, 100, nonzeros=60)
    jobs = {
        "elc, dense": (dense, "elc", {}),
        "label-entropy, 8 codes, dense": (dense, "label-entropy", {"bins": 8, "n_promising_labels": 1.0}),
        "label-entropy, sparse": ("sparse.zarr", "label-entropy", {"n_promising_labels": 0.2}),
    }
    rows: dict[str, dict[str, Any]] = {}
    with served(folder, 0.0) as near, served(folder, delay) as far:
        late = f"server, {1000 * delay:.0f} ms late"
        for store in (dense, "sparse.zarr"):
            rows[f"get_ranges, {store}, {late}"] = in_process(
                RANGES.format(url=f"{far}/{store}", store=str(folder / store)), repeats=repeats
            )
        for job, (store, method, parameters) in jobs.items():
            warm_pages(folder / store)
            for place, root in {"disk": folder, "server": near, late: far}.items():
                code = FIT.format(url=f"{root}/{store}", method=method, parameters=parameters)
                before = requests(near) + requests(far)
                rows[f"{job}, {place}"] = row = in_process(code, repeats=repeats)
                if place != "disk":
                    row["requests"] = (requests(near) + requests(far) - before) // (2 * repeats)
                    row["ratio_to_disk"] = row["seconds"] / rows[f"{job}, disk"]["seconds"]
                if root == far:
                    row["ratio_to_server"] = row["seconds"] / rows[f"{job}, server"]["seconds"]
                    row["ratio_to_get_ranges"] = row["seconds"] / rows[f"get_ranges, {store}, {late}"]["seconds"]
    report(
        "object-store",
        f"{rows_of_dense:,} x 1 000 float32, 1 000 000 x 100 000 sparse (0.3 GB), in process with two threads, opening "
        "counted; the web server has the same two cores",
        rows,
        f"--delay {delay:g} --repeats {repeats} --rows {rows_of_dense}",
    )


#: All chunks of X, as their shards' indices give them, which are read from disk beforehand.
RANGES = """
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
import numpy as np
from obstore.store import HTTPStore
import mlfs_dask

layouts = mlfs_dask.open_dataset({store!r}).rows.X.arrays
shards = []
for layout in layouts:
    for path in sorted(Path({store!r}, layout.key, "c").rglob("*")):
        if path.is_file():
            content = path.read_bytes()
            index = np.frombuffer(content[-layout.index_bytes : -4], "<u8").reshape(-1, 2)
            index = index[index[:, 0] != 2**64 - 1].astype(int)
            key = path.relative_to({store!r}).as_posix()
            shards.append((key, index[:, 0].tolist(), index.sum(axis=1).tolist()))
remote = HTTPStore.from_url({url!r}, client_options={{"allow_http": True}})
for _ in range(2):
    started = time.perf_counter()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda shard: remote.get_ranges(shard[0], starts=shard[1], ends=shard[2]), shards))
    facts = {{"seconds": time.perf_counter() - started}}
"""

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
    parser.add_argument("--rows", type=int, default=250_000, help="of the dense store")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    object_store(arguments.folder, arguments.delay, arguments.repeats, arguments.rows)
