"""Whole conversions beside the best library that only reads the same bytes.

    python benchmarks/convert_speed.py conversion    [--folder DIR] [--megabytes 180]

CSV beside `pyarrow.csv.read_csv`, svmlight beside scikit-learn's `load_svmlight_file`, and sparse ARFF, for which there
is no peer. The peers end with a table in memory; a conversion also counts, decides types and storage, and writes a
store of which every chunk has a checksum. Each is a process of its own, files warm, on as many processes as stated.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from convert_memory import make_file
from measuring import RESULTS, report, warm_pages

PEERS = {
    "csv": "from pyarrow import csv; csv.read_csv({path!r}, read_options=csv.ReadOptions(use_threads={many}))",
    "svmlight": "from sklearn.datasets import load_svmlight_file; load_svmlight_file({path!r}, multilabel=True)",
}


def make_sparse_arff(path: Path, size: int) -> None:
    """Sparse ARFF of at least `size` bytes: 1 000 numeric features, 40 of them nonzero in a row, 20 labels."""
    random = np.random.default_rng(0)
    lines = []
    for _ in range(4000):
        columns = np.sort(random.choice(1000, 40, replace=False))
        labels = np.sort(random.choice(20, 3, replace=False)) + 1000
        pairs = [f"{c} {v:.6f}" for c, v in zip(columns, random.random(40), strict=True)]
        lines.append("{" + ",".join([*pairs, *(f"{label} 1" for label in labels)]) + "}")
    block = "\n".join(lines) + "\n"
    with path.open("w") as file:
        file.write("@relation made\n" + "".join(f"@attribute f{i} numeric\n" for i in range(1000)))
        file.write("".join(f"@attribute label{i} {{0,1}}\n" for i in range(20)) + "@data\n")
        for _ in range(-(-size // len(block))):
            file.write(block)


def timed(command: list[str], *, before: Any, repeats: int = 3) -> dict[str, Any]:
    """Median seconds of a command, and CPU seconds of it and its children."""
    seconds, cpu = [], []
    for _ in range(repeats):
        before()
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        started = time.perf_counter()
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds.append(time.perf_counter() - started)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime)
    return {"seconds": median(seconds), "worker_cpu_seconds": median(cpu)}


def main(folder: Path, megabytes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    size = megabytes * 10**6
    rows: dict[str, dict[str, Any]] = {}
    for form, suffix in (("csv", "csv"), ("svmlight", "svm"), ("arff", "arff")):
        path, store = folder / f"made.{suffix}", folder / f"made-{suffix}.zarr"
        make_sparse_arff(path, size) if form == "arff" else make_file(path, form, size)
        options = [] if form == "svmlight" else ["--label-columns", ",".join(f"label{i}" for i in range(20))]

        def clear(path: Path = path, store: Path = store) -> None:
            shutil.rmtree(store, ignore_errors=True)
            warm_pages(path)

        for workers in (1, 2):
            label = f"{workers} process{'es' * (workers > 1)}"
            if form in PEERS and (workers == 1 or form == "csv"):
                code = PEERS[form].format(path=str(path), many=workers > 1)
                peer = timed([sys.executable, "-c", code], before=clear)
                rows[f"{form}: library, {workers} core{'s' * (workers > 1)}"] = peer
            command = [sys.executable, "-m", "mlfs_dask", "convert", str(path), str(store), *options]
            mine = timed([*command, "--workers", str(workers), "--quiet"], before=clear)
            mine["MB_per_second"] = path.stat().st_size / 1e6 / mine["seconds"]
            if form in PEERS:
                mine["ratio"] = mine["seconds"] / peer["seconds"]
            rows[f"{form}: mlfs convert, {label}"] = mine
        path.unlink()
        shutil.rmtree(store, ignore_errors=True)
    report("convert_speed", RESULTS, "conversion", f"whole processes on files of {megabytes} MB, warm", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["conversion"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--megabytes", type=int, default=180)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.megabytes)
