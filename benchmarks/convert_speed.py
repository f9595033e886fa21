"""Whole conversions beside the best library that only reads the same bytes.

    python benchmarks/convert_speed.py conversion    [--folder DIR] [--megabytes 180] [--through "chrt -r 8"]

CSV of several shapes beside `pyarrow.csv.read_csv`, svmlight beside scikit-learn's `load_svmlight_file`, and sparse
ARFF, for which there is no peer. The peers end with a table in memory; a conversion also counts, decides types and
storage, and writes a store of which every chunk has a checksum. Each is a whole process, imports among it, kept to as
many cores as stated; files are warm, and the two sides take turns. On a machine with other work, `--through` names a
command to start each with, and `--lock` a file whose lock is held while one runs.
"""

from __future__ import annotations

import argparse
import compileall
import fcntl
import os
import resource
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from convert_memory import make_file
from measuring import RESULTS, report, warm_pages

import mlfs_dask
import mlfs_dask_cli

CSV = "from pyarrow import csv; csv.read_csv({path!r}, read_options=csv.FileSpec(use_threads={many}))"
SVMLIGHT = "from sklearn.datasets import load_svmlight_file; load_svmlight_file({path!r}, multilabel=True)"
SHAPES = {
    "8 numbers": (8, 1),
    "100 integers": (100, 1),
    "3 000 numbers": (3000, 1),
    "8 numbers, 5 times as long": (8, 5),
}
"""Other tables: columns of features, and length."""
REPEATS = 3
KEYS = ("seconds", "worker_cpu_seconds")


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


@dataclass(frozen=True)
class Stopwatch:
    """How whole processes are timed.

    Attributes
    ----------
    through : sequence of str
        Words before each command.
    lock : Path
        File whose lock is held while a command runs.
    """

    through: Sequence[str]
    lock: Path

    def time(self, command: Sequence[str], cores: int) -> tuple[float, float]:
        """Seconds of a command that is kept to so many cores, and CPU seconds of it and its children."""
        allowed = ",".join(map(str, sorted(os.sched_getaffinity(0))[:cores]))
        with self.lock.open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            started = time.perf_counter()
            subprocess.run(
                [*self.through, "taskset", "-c", allowed, *command],
                check=True,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )
            seconds = time.perf_counter() - started
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return seconds, after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime

    def compare(
        self, path: Path, name: str, labels: int, peer: str | None, cores: Sequence[int]
    ) -> dict[str, dict[str, Any]]:
        """Rows of one file, which is then removed: the peer and `mlfs convert`, on each number of cores."""
        store = path.with_suffix(".zarr")
        rows: dict[str, dict[str, Any]] = {}
        for count in cores:
            on = f"{count} core{'s' * (count > 1)}"
            convert = [sys.executable, "-m", "mlfs_dask", "convert", str(path), str(store), "--quiet"]
            convert += ["--workers", str(count), *(["--n-labels", str(labels)] if labels else [])]
            commands = {f"{name}: mlfs convert, {on}": convert}
            if peer is not None and (count == 1 or peer == CSV):
                code = peer.format(path=str(path), many=count > 1)
                commands = {f"{name}: library, {on}": [sys.executable, "-c", code], **commands}
            found: dict[str, list[tuple[float, float]]] = {row: [] for row in commands}
            for _ in range(REPEATS):
                for row, command in commands.items():
                    shutil.rmtree(store, ignore_errors=True)
                    warm_pages(path)
                    found[row].append(self.time(command, count))
            for row, times in found.items():
                rows[row] = {key: median(each) for key, each in zip(KEYS, zip(*times, strict=True), strict=True)}
                rows[row]["all_seconds"] = [round(seconds, 3) for seconds, _ in times]
            mine = rows[f"{name}: mlfs convert, {on}"]
            mine["MB_per_second"] = path.stat().st_size / 1e6 / mine["seconds"]
            other = rows.get(f"{name}: library, {on}", rows.get(f"{name}: library, 1 core"))
            if other is not None:
                mine["ratio"] = mine["seconds"] / other["seconds"]
        path.unlink()
        shutil.rmtree(store, ignore_errors=True)
        return rows


def main(folder: Path, megabytes: int, through: Sequence[str], lock: Path | None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for package in (mlfs_dask, mlfs_dask_cli):  # as an installer does
        compileall.compile_dir(Path(package.__file__).parent, quiet=1)
    watch = Stopwatch(through, lock or folder / "lock")
    size = megabytes * 10**6
    table, indexed, arff = (folder / f"made.{suffix}" for suffix in ("csv", "svm", "arff"))
    make_file(table, "csv", size)
    rows = watch.compare(table, "csv, 200 numbers", 20, CSV, (1, 2))
    for name, (columns, length) in SHAPES.items():
        make_table(table, size * length, columns, integers="integers" in name)
        rows |= watch.compare(table, f"csv, {name}", 2, CSV, (1, 2))
    make_file(indexed, "svmlight", size)
    rows |= watch.compare(indexed, "svmlight", 0, SVMLIGHT, (1, 2))
    make_sparse_arff(arff, size)
    rows |= watch.compare(arff, "arff", 20, None, (1, 2))
    report(
        "convert_speed",
        RESULTS,
        "conversion",
        f"whole processes on files of {megabytes} MB or as many times that as stated, warm",
        rows,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["conversion"])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--megabytes", type=int, default=180)
    parser.add_argument("--through", type=shlex.split, default=[])
    parser.add_argument("--lock", type=Path)
    arguments = parser.parse_args()
    main(arguments.folder, arguments.megabytes, arguments.through, arguments.lock)
