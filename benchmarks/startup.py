"""Whole time of `mlfs select` beside that of its pass: what starting, importing and writing take.

python benchmarks/startup.py STORE... prints, for every store and method, the median of the runs' whole times and of
their passes (`wall_seconds` of run.json), with the pages of the store in memory and without a cache of statistics.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measuring import warm_pages


def select(method: str, store: Path, options: list[str]) -> tuple[float, float]:
    """Seconds of the command and of its fit."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["select", method, str(store), "-k", "5", "-o", f"{folder}/run", "--cache", "none", "--quiet", *options]
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "mlfs_dask", *words], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - started
        return seconds, json.loads(Path(folder, "run", "run.json").read_text())["wall_seconds"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stores", metavar="STORE", nargs="+", type=Path)
    parser.add_argument("--methods", default="elc,label-entropy", help="names, with commas between them")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--options", default="", help="further options of the command, as '--workers 2'")
    arguments = parser.parse_args()
    packages = ("mlfs-dask", "numpy", "scipy", "scikit-learn", "dask", "distributed", "zarr")
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in packages)
    print(f"Python {platform.python_version()}, {versions}")
    for store in arguments.stores:
        for method in arguments.methods.split(","):
            warm_pages(store)
            select(method, store, arguments.options.split())  # bytecode and libraries are in memory from now on
            found = [select(method, store, arguments.options.split()) for _ in range(arguments.repeats)]
            command, fit = (statistics.median(seconds) for seconds in zip(*found, strict=True))
            least = min(whole - inside for whole, inside in found)
            print(
                f"{method}, {store.name}: {command:.2f} s, its pass {fit:.2f} s; beside it {command - fit:.2f} s, "
                f"at least {least:.2f} s"
            )


if __name__ == "__main__":
    main()
