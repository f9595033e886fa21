"""Whole conversions beside the best library that only reads the same bytes.

    python benchmarks/convert_speed.py conversion    [--folder DIR] [--megabytes 180]

CSV of several shapes beside `pyarrow.csv.read_csv`, svmlight beside scikit-learn's `load_svmlight_file`, and sparse
ARFF, for which there is no peer. The peers end with a table in memory; a conversion also counts, decides types and
storage, and writes a store of which every chunk has a checksum. Each is a whole process, imports among it, kept to as
many cores as stated; files are warm.
"""

from __future__ import annotations

import argparse
import os
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

CSV = "from pyarrow import csv; csv.read_csv({path!r}, read_options=csv.ReadOptions(use_threads={many}))"
SVMLIGHT = "from sklearn.datasets import load_svmlight_file; load_svmlight_file({path!r}, multilabel=True)"
SHAPES = {"8 numbers": 8, "100 integers": 100, "3 000 numbers": 3000}
"""Other tables: columns of features."""


def make_table(path: Path, size: int, columns: int, *, integers: bool) -> None:
    """CSV of at least `size` bytes: features, then two labels."""
    random = np.random.default_rng(0)
    rows = max(400, 500_000 // columns)
    values = random.integers(0, 256, (rows, columns)) if integers else random.normal(size=(rows, columns))
    form = "{}" if integers else "{:.6f}"
    labels = random.integers(0, 2, (rows, 2)).tolist()
    lines = [",".join([*map(form.format, row), *map(str, y)]) for row, y in zip(values.tolist(), labels, strict=True)]
    block = "\n".join(lines) + "\n"
    with path.open("w") as file:
        file.write(",".join([*(f"f{i}" for i in range(columns)), "label0", "label1"]) + "\n")
        for _ in range(-(-size // len(block))):
            file.write(block)


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


def timed(command: list[str], *, cores: int, before: Any, repeats: int = 3) -> dict[str, Any]:
    """Median seconds of a command that is kept to so many cores, and CPU seconds of it and its children."""
    allowed = sorted(os.sched_getaffinity(0))[:cores]
    command = ["taskset", "-c", ",".join(map(str, allowed)), *command]
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


def compare(path: Path, name: str, labels: int, peer: str | None, cores: tuple[int, ...]) -> dict[str, dict[str, Any]]:
    """Rows of one file: the peer and `mlfs convert`, on each number of cores."""
    store = path.with_suffix(".zarr")
    options = ["--n-labels", str(labels)] if labels else []

    def clear() -> None:
        shutil.rmtree(store, ignore_errors=True)
        warm_pages(path)

    rows: dict[str, dict[str, Any]] = {}
    for count in cores:
        on = f"{count} core{'s' * (count > 1)}"
        if peer is not None and (count == 1 or peer == CSV):
            code = peer.format(path=str(path), many=count > 1)
            rows[f"{name}: library, {on}"] = other = timed([sys.executable, "-c", code], cores=count, before=clear)
        command = [sys.executable, "-m", "mlfs_dask", "convert", str(path), str(store), *options]
        mine = timed([*command, "--workers", str(count), "--quiet"], cores=count, before=clear)
        mine["MB_per_second"] = path.stat().st_size / 1e6 / mine["seconds"]
        if peer is not None:
            mine["ratio"] = mine["seconds"] / other["seconds"]
        rows[f"{name}: mlfs convert, {on}"] = mine
    path.unlink()
    shutil.rmtree(store, ignore_errors=True)
    return rows


def main(folder: Path, megabytes: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    size = megabytes * 10**6
    table, indexed, arff = (folder / f"made.{suffix}" for suffix in ("csv", "svm", "arff"))
    make_file(table, "csv", size)
    rows = compare(table, "csv, 200 numbers", 20, CSV, (1, 2))
    for name, columns in SHAPES.items():
        make_table(table, size, columns, integers="integers" in name)
        rows |= compare(table, f"csv, {name}", 2, CSV, (2,))
    make_file(indexed, "svmlight", size)
    rows |= compare(indexed, "svmlight", 0, SVMLIGHT, (1, 2))
    make_sparse_arff(arff, size)
    rows |= compare(arff, "arff", 20, None, (1, 2))
    report("convert_speed", RESULTS, "conversion", f"whole processes on files of {megabytes} MB, warm", rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["conversion"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--megabytes", type=int, default=180)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.megabytes)
