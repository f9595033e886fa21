"""Seconds that plans tell of fits to real sets, beside what the fits take.

    python benchmarks/plan_seconds.py    [--methods auto] [--sets emotions,medical] [--folder DIR]

Both are measured one after the other, nothing comes from the cache, and libraries are loaded before.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

from real_sets import make_store, markdown

import mlfs_dask as mlfs
from mlfs_dask.runtime import current_resources
from mlfs_dask.selectors import get_method
from mlfs_dask.selectors.timing import estimate_seconds


def row(method: str, name: str, folder: Path) -> list[str]:
    """Method, set, and seconds as planned (typical ones where there are) and as taken."""
    dataset = mlfs.open_dataset(make_store(name, folder))
    selector = get_method(method)()
    selector.fit(dataset)
    resources = current_resources()
    plan = selector.plan(dataset.rows, resources)
    planned = estimate_seconds(selector.cost, dataset.rows, resources, plan)
    typical = planned.typical_seconds or (planned.seconds or 0.0,)
    started = time.perf_counter()
    selector.fit(dataset)
    return [method, name, " to ".join(f"{value:.2f}" for value in typical), f"{time.perf_counter() - started:.2f}"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--methods", default="auto")
    parser.add_argument("--sets", default="emotions,medical")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = [row(m, s, options.folder) for m in options.methods.split(",") for s in options.sets.split(",")]
    print(markdown(["method", "set", "planned, s", "taken, s"], rows))


if __name__ == "__main__":
    main()
