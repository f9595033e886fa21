"""Neighbour graphs, exact and approximate: seconds, recall and peak memory of one process, each in a fresh one.

Rows have ten hidden factors in all of their features, and noise of half their size. `rows` are 200 features searched by
distance, `points` the 40 dimensions that Access-MFS searches in every iteration, `masses` leaf numbers of 100 trees.

python benchmarks/graphs.py rows|points|masses [--sizes 50000 200000 2000000]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from typing import Any

import numpy as np
from measuring import RESULTS, report

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.primitives import isolation
from mlfs_dask.primitives.graphs import point_graph, row_graph
from mlfs_dask.primitives.rows import ArrayRows
from mlfs_dask.runtime import Resources

#: Rows up to which the exact graph is made, too.
EXACT_ROWS = 50_000

NEIGHBOURS = {"rows": 5, "points": 6, "masses": 15}
DESCRIPTIONS = {
    "rows": "Five nearest rows of 200 features in memory, one process, two threads. Recall on a sample.",
    "points": "Six nearest points of 40 dimensions, as Access-MFS searches them in every iteration, one process, two "
    "threads. Recall on a sample.",
    "masses": "Fifteen rows of least isolation mass, 100 trees, one process, two threads. Recall on a sample.",
}
DIMENSIONS = {"rows": 200, "points": 40, "masses": 50}


def latent(n: int, d: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Rows in blocks, so that nothing larger than the result is held."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((10, d), dtype=np.float32)
    X = np.empty((n, d), dtype=np.float32)
    for low in range(0, n, 10_000):
        rows = min(10_000, n - low)
        X[low : low + rows] = rng.standard_normal((rows, 10), dtype=np.float32) @ directions
        X[low : low + rows] += 0.5 * rng.standard_normal((rows, d), dtype=np.float32)
    return X


def measure(search: str, kind: Any, n: int) -> dict[str, Any]:
    """One graph in this process, with two threads; the peak is what the search adds to the data."""
    here = Resources(1, 2, 2**36, 2**36)
    k = NEIGHBOURS[search]
    X = latent(n, DIMENSIONS[search])
    if search == "masses":
        forest = isolation.grow_forest(X[:25_600], n_trees=100, max_samples=256, seed=0)
        codes = np.stack(
            [s.leaf[t.apply(X)].astype(np.uint8) for t, s in zip(forest.trees, forest.shapes, strict=True)]
        )
        tables = isolation.mass_tables(forest.shapes, codes)
        del X
    held = runtime.current_rss()
    runtime.reset_peak_rss()
    used, started = time.process_time(), time.perf_counter()
    facts: dict[str, Any] = {}
    if search == "rows":
        source = ArrayRows(X, as_labels(np.ones((n, 1), np.int8)))
        facts = row_graph(source, k, here, kind=kind).facts
    elif search == "points":
        Z = X.astype(np.float64)
        facts = point_graph(Z, k, kind=kind, threads=2).facts
    elif kind == "exact":
        isolation.nearest_by_mass(codes, tables, k, here)
    else:
        facts = {"recall": isolation.approximately_by_mass(codes, tables, k, here, seed=0).recall}
    return {
        "seconds": time.perf_counter() - started,
        "cpu_seconds": time.process_time() - used,
        **({"recall": facts["recall"]} if "recall" in facts else {}),
        "added_MiB": (runtime.peak_rss() - held) / 2**20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("search", choices=list(NEIGHBOURS))
    parser.add_argument("--sizes", type=int, nargs="+", default=[50_000, 200_000, 2_000_000])
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(measure(options.search, options.one, options.sizes[0])))
        return
    path = RESULTS / "graphs" / f"{options.search}.json"
    # Sizes that are not measured now stay as they were.
    rows: dict[str, Any] = json.loads(path.read_text())["rows"] if path.exists() else {}
    for n in options.sizes:
        for kind in ("exact", "approximate") if n <= EXACT_ROWS else ("approximate",):
            command = [sys.executable, __file__, options.search, "--one", kind, "--sizes", str(n)]
            done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
            rows[f"{n:,} rows, {kind}"] = json.loads(done.stdout)
            report("graphs", RESULTS / "graphs", options.search, DESCRIPTIONS[options.search], rows)


if __name__ == "__main__":
    main()
