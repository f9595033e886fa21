"""Neighbour graphs, exact and approximate: seconds, CPU, recall and memory, each in a process or cluster of its own.

    python benchmarks/graphs.py rows|texts|points|masses [--only WORD ...] [--folder DIR]

`rows` and `texts` search stores (synthetic.py, made on first use) with two local workers, beside scikit-learn's and
Faiss's exact searches of the same rows in memory. `points` are the 40 dimensions that Access-MFS searches in every
iteration, `masses` leaf numbers of 100 trees, both in one process with two threads. With --only, of the cases those
whose name has one of the words; the others' results stay as they are.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import GIB, RESULTS, report, warm_pages

DESCRIPTIONS = {
    "rows": "Five nearest rows by distance; a cluster of two workers that reads a store, or peers with two threads "
    "that hold the rows as float32. Recall on a sample. Other work ran meanwhile: compare CPU seconds.",
    "texts": "Five nearest rows of sparse rows, 75 of 50 000 features each; a cluster of two workers that reads a "
    "store, or a peer with two threads that holds the rows. Recall on a sample. Other work ran meanwhile: compare CPU "
    "seconds.",
    "points": "Six nearest points of 40 dimensions, as Access-MFS searches them in every iteration; one process, two "
    "threads. Recall on a sample. Other work ran meanwhile: compare CPU seconds.",
    "masses": "Fifteen rows of least isolation mass, 100 trees; one process, two threads. Recall on a sample. Other "
    "work ran meanwhile: compare CPU seconds.",
}
NEIGHBOURS = {"rows": 5, "texts": 5, "points": 6, "masses": 15}


@dataclass(frozen=True)
class Case:
    """One search: of n rows of d features, by whom, on workers of so many bytes."""

    n: int
    d: int
    by: str
    memory: int = GIB

    def __str__(self) -> str:
        return f"{self.n:,} x {self.d:,}, {self.by}"


CASES = {
    "rows": [
        *(Case(50_000, 500, by) for by in ("exact", "approximate", "Faiss IndexFlatL2", "scikit-learn brute")),
        *(Case(200_000, 500, by) for by in ("exact", "approximate", "Faiss IndexFlatL2")),
        Case(2_000_000, 200, "approximate", 2 * GIB),
    ],
    "texts": [
        *(Case(20_000, 50_000, by) for by in ("exact", "approximate", "scikit-learn brute")),
        *(Case(100_000, 50_000, by) for by in ("exact", "approximate")),
    ],
    "points": [
        *(Case(50_000, 40, by) for by in ("exact", "approximate")),
        *(Case(n, 40, "approximate") for n in (200_000, 2_000_000)),
    ],
    "masses": [
        *(Case(50_000, 50, by) for by in ("exact", "approximate")),
        *(Case(n, 50, "approximate") for n in (200_000, 2_000_000)),
    ],
}


def planned_bytes(plan: Any) -> int:
    """What the driver is to hold at most, beside what it holds before."""
    from mlfs_dask import runtime

    return max(phase.held + phase.row_bytes for phase in plan.phases) + plan.compiled * runtime.COMPILED_BYTES


def latent(n: int, d: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Rows of ten hidden factors, and noise of half their size; in blocks, so that no more than the result is held."""
    rng = np.random.default_rng(0)
    directions = rng.standard_normal((10, d), dtype=np.float32)
    X = np.empty((n, d), dtype=np.float32)
    for low in range(0, n, 10_000):
        rows = min(10_000, n - low)
        X[low : low + rows] = rng.standard_normal((rows, 10), dtype=np.float32) @ directions
        X[low : low + rows] += 0.5 * rng.standard_normal((rows, d), dtype=np.float32)
    return X


def store_of(search: str, case: Case, folder: Path) -> Path:
    from synthetic import make_store

    nonzeros = 75 if search == "texts" else 0
    path = folder / f"graph-{search}-{case.n}-{case.d}.zarr"
    return make_store(path, case.n, case.d, 100 if nonzeros else 20, nonzeros=nonzeros, labelled=1.0)


def in_cluster(search: str, case: Case, store: Path) -> dict[str, Any]:
    """A graph of a store by two workers; peaks of the workers, and what it adds to the driver."""
    from mlfs_dask import open_dataset, runtime
    from mlfs_dask.cluster import connect
    from mlfs_dask.primitives.graphs import plan_row_graph, row_graph

    k = NEIGHBOURS[search]
    kind: Any = case.by
    warm_pages(store)
    rows = open_dataset(store).rows
    with connect(workers=2, memory_limit=case.memory) as client:
        resources = runtime.current_resources()
        plan = plan_row_graph(rows, k, resources, kind=kind)
        held = runtime.current_rss()
        runtime.reset_peak_rss()
        used = sum(client.run(time.process_time).values())
        used_here, started = time.process_time(), time.perf_counter()
        found = row_graph(rows, k, resources, kind=kind)
        return {
            "seconds": time.perf_counter() - started,
            "worker_cpu_seconds": sum(client.run(time.process_time).values()) - used,
            "driver_cpu_seconds": time.process_time() - used_here,
            **({"recall": found.facts["recall"]} if "recall" in found.facts else {}),
            "peak_worker_MiB": max(r.peak_worker_bytes for r in found.records) / 2**20,
            "planned_MiB": max(p.peak_worker_bytes for p in plan.passes) / 2**20,
            "added_MiB": (runtime.peak_rss() - held) / 2**20,
            "planned_added_MiB": planned_bytes(plan) / 2**20,
            "passes": len(found.records),
            **found.facts,
        }


def by_peer(search: str, case: Case, store: Path) -> dict[str, Any]:
    """The same rows in memory, by another program's exact search."""
    from mlfs_dask import open_dataset

    X = open_dataset(store).X.compute(scheduler="sync")
    k = NEIGHBOURS[search] + 1  # rows are among their own neighbours
    used, started = time.process_time(), time.perf_counter()
    if case.by.startswith("Faiss"):
        import faiss

        faiss.omp_set_num_threads(2)
        index = faiss.IndexFlatL2(case.d)
        index.add(X)
        index.search(X, k)
    else:
        from sklearn.neighbors import NearestNeighbors

        X = X.tocsr() if hasattr(X, "tocsr") else X
        NearestNeighbors(n_neighbors=k, algorithm="brute").fit(X).kneighbors(X)
    return {"seconds": time.perf_counter() - started, "worker_cpu_seconds": time.process_time() - used}


def in_process(search: str, case: Case) -> dict[str, Any]:
    """A search in memory with two threads; the peak is what it adds to the data."""
    from mlfs_dask import runtime
    from mlfs_dask.blocks import forest as forests
    from mlfs_dask.primitives import isolation
    from mlfs_dask.primitives.graphs import point_graph
    from mlfs_dask.runtime import Resources

    here = Resources(1, 2, 2**36, 2**36)
    k, n = NEIGHBOURS[search], case.n
    kind: Any = case.by
    X = latent(n, case.d)
    if search == "masses":
        forest = forests.grow_forest(X[:25_600], n_trees=100, max_samples=256, seed=0)
        codes = np.ascontiguousarray(forest.leaf_numbers(X).T)
        tables = forests.mass_tables(forest.shapes, codes)
        del X
    else:
        Z = X.astype(np.float64)
        del X
    held = runtime.current_rss()
    runtime.reset_peak_rss()
    used, started = time.process_time(), time.perf_counter()
    facts: dict[str, Any] = {}
    if search == "points":
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
        **facts,
    }


def measure(search: str, case: Case, folder: Path) -> dict[str, Any]:
    if search in ("points", "masses"):
        return in_process(search, case)
    store = store_of(search, case, folder)
    if case.by in ("exact", "approximate"):
        return in_cluster(search, case, store)
    return by_peer(search, case, store)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("search", choices=list(CASES))
    parser.add_argument("--only", nargs="+", metavar="WORD", default=[""])
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--case", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    cases = CASES[options.search]
    if options.case is not None:
        print(json.dumps(measure(options.search, cases[options.case], options.folder)))
        return
    path = RESULTS / "graphs" / f"{options.search}.json"
    rows: dict[str, Any] = json.loads(path.read_text())["rows"] if path.exists() else {}
    for number, case in enumerate(cases):
        if not any(word in str(case) for word in options.only):
            continue
        command = [sys.executable, __file__, options.search, "--case", str(number), "--folder", str(options.folder)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        rows[str(case)] = json.loads(done.stdout)
        print(case, rows[str(case)], flush=True)
        ordered = {str(each): rows[str(each)] for each in cases if str(each) in rows}
        report("graphs", RESULTS / "graphs", options.search, DESCRIPTIONS[options.search], ordered)


if __name__ == "__main__":
    main()
