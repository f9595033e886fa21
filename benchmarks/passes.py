"""Time and memory of the one-pass selectors, beside what users would write themselves and a plain read of the store.

    python benchmarks/passes.py dense | sparse | wide | growth | workers | peers | reads | unknown | small [--folder D]

Stores are made in the folder on first use (dense 8 GB, sparse 1.6 GB). Every figure is measured in a fresh cluster
or process; `cold` means that the store's pages were dropped from the cache just before. Results are printed as a
table and written to benchmarks/results/NAME.json with the versions and the machine.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from measuring import (
    GIB,
    bind_workers,
    drop_pages,
    in_cluster,
    in_process,
    plain_read,
    selection,
    shards_of,
    warm_pages,
)

report = partial(measuring.report, "passes", measuring.RESULTS)


def dense(folder: Path) -> None:
    """Counting and ELC on 8 GB, beside a plain read by the same workers, cold and warm."""
    from synthetic import make_store

    store = make_store(folder / "dense.zarr", 2_000_000, 1000, 100)
    rows = {}
    for cold in (False, True):
        state = "cold" if cold else "warm"
        rows[f"da.from_zarr read, {state}"] = in_cluster(plain_read(store), store, cold=cold)
        rows[f"label-entropy, 8 codes, 100 labels, {state}"] = in_cluster(
            selection("label-entropy", store, bins=8, binning="equal-width", n_promising_labels=1.0), store, cold=cold
        )
        rows[f"elc, {state}"] = in_cluster(selection("elc", store), store, cold=cold)
        base = rows[f"da.from_zarr read, {state}"]["seconds"]
        for label in rows:
            if label.endswith(state):
                rows[label]["ratio_to_read"] = rows[label]["seconds"] / base
    report("dense", "2 000 000 x 1 000 float32 (8 GB), 100 labels of cardinality 3; two workers of 1 GiB", rows)


def sparse(folder: Path) -> None:
    """Counting 1 000 labels on 100 000 sparse features."""
    from synthetic import make_store

    store = make_store(folder / "sparse.zarr", 5_000_000, 100_000, 1000, nonzeros=60)
    rows = {}
    for cold in (False, True):
        state = "cold" if cold else "warm"
        read = rows[f"da.from_zarr read, {state}"] = in_cluster(plain_read(store), store, cold=cold)
        run = rows[f"label-entropy, 200 of 1 000 labels, {state}"] = in_cluster(
            selection("label-entropy", store, n_promising_labels=0.2), store, cold=cold
        )
        run["ratio_to_read"] = run["seconds"] / read["seconds"]
    report("sparse", "5 000 000 x 100 000 sparse, 60 nonzeros a row, 1 000 labels; two workers of 1 GiB", rows)


def wide(folder: Path) -> None:
    """A million features and ten thousand labels."""
    from synthetic import make_store

    store = make_store(folder / "wide.zarr", 200_000, 1_000_000, 10_000, nonzeros=100)
    rows = {}
    for promising, memory in ((100, 2), (100, 1), (1000, 2)):
        rows[f"label-entropy, {promising} promising labels, two workers of {memory} GiB"] = in_cluster(
            selection("label-entropy", store, n_promising_labels=promising),
            store,
            memory=memory * GIB,
            repeats=1,
        )
    report("wide", "200 000 x 1 000 000 sparse, 100 nonzeros a row, 10 000 labels; tables tiled over features", rows)


def growth(folder: Path) -> None:
    """Rows from 10^5 to 10^7."""
    from synthetic import make_store

    rows = {}
    sizes = [10**5, 3 * 10**5, 10**6, 3 * 10**6, 10**7]
    for n in sizes:
        store = make_store(folder / f"growth-{n}.zarr", n, 200, 20)
        rows[f"n = {n:,}"] = in_cluster(selection("label-entropy", store, n_promising_labels=1.0), store)
    seconds = [rows[f"n = {n:,}"]["seconds"] for n in sizes]
    for i in range(1, len(sizes)):
        slope = np.log(seconds[i] / seconds[i - 1]) / np.log(sizes[i] / sizes[i - 1])
        rows[f"n = {sizes[i]:,}"]["log_log_slope"] = float(slope)
    report("growth", "n x 200 float32, 20 labels, 2 codes; two workers of 1 GiB, warm", rows)


def workers(folder: Path) -> None:
    """One worker against two, each bound to one core of its own."""
    from synthetic import make_store

    dense_store = make_store(folder / "dense.zarr", 2_000_000, 1000, 100)
    sparse_store = make_store(folder / "sparse.zarr", 5_000_000, 100_000, 1000, nonzeros=60)
    jobs = {
        "label-entropy dense": (dense_store, "label-entropy", {"bins": 8, "n_promising_labels": 1.0}),
        "elc dense": (dense_store, "elc", {}),
        "label-entropy sparse": (sparse_store, "label-entropy", {"n_promising_labels": 0.2}),
    }
    rows = {}
    for label, (store, method, parameters) in jobs.items():
        fit = selection(method, store, **parameters)
        times = {}
        for count in (1, 2):
            found = in_cluster(bound_to_cores(fit), store, workers=count, loaded=True)
            times[count] = found["seconds"]
            rows[f"{label}, {count} worker{'s' * (count > 1)}"] = found
        rows[f"{label}, 2 workers"]["speedup"] = times[1] / times[2]
    report(
        "workers",
        "stores of `dense` and `sparse`; workers of 1 GiB on one core each, warm, kernels loaded",
        rows,
    )


def bound_to_cores(function: Callable[[Any], dict[str, Any]]) -> Callable[[Any], dict[str, Any]]:
    """`function` with worker i of the cluster on core i alone."""

    def run(client: Any) -> dict[str, Any]:
        bind_workers(client)
        return function(client)

    return run


def peers(folder: Path) -> None:
    """The same scores by what users would write themselves."""
    from synthetic import make_store

    rows = {}
    store = make_store(folder / "dense.zarr", 2_000_000, 1000, 100)
    rows["dask.array, 8 GB, 2 codes"] = in_cluster(dask_array_scores(store), store, repeats=2)
    rows["label-entropy, 8 GB, 2 codes"] = in_cluster(
        selection("label-entropy", store, keep_scores=True, binning="equal-width", n_promising_labels=1.0),
        store,
        repeats=2,
    )
    compare(rows["label-entropy, 8 GB, 2 codes"], rows["dask.array, 8 GB, 2 codes"])

    million = make_store(folder / "million.zarr", 1_000_000, 1000, 100)
    arrays = folder / "million"
    export_arrays(million, arrays)
    for cold in (False, True):
        state = "cold" if cold else "warm"

        def prepare(cold: bool = cold) -> None:
            for path in (million, arrays):
                drop_pages(path) if cold else warm_pages(path)

        rows[f"NumPy over a memory map, 1 M x 1 000, {state}"] = in_process(
            f"from peers import blocked_numpy; facts = blocked_numpy({str(arrays)!r})", before=prepare
        )
        rows[f"label-entropy in process, 1 M x 1 000, {state}"] = in_process(
            f"from peers import ours; facts = ours({str(million)!r})", before=prepare
        )
        compare(
            rows[f"label-entropy in process, 1 M x 1 000, {state}"],
            rows[f"NumPy over a memory map, 1 M x 1 000, {state}"],
        )

    wide_store = make_store(folder / "wide-million.zarr", 1_000_000, 100_000, 100, nonzeros=60)
    for kind in ("scipy_product", "ours"):
        rows[f"{kind}, 1 M x 100 000 sparse"] = in_process(
            f"from peers import {kind}; facts = {kind}({str(wide_store)!r})", before=lambda: warm_pages(wide_store)
        )
    compare(rows["ours, 1 M x 100 000 sparse"], rows["scipy_product, 1 M x 100 000 sparse"])
    report("peers", "the same scores by other means; each in its own process or cluster, in one run", rows)


def dask_array_scores(store: Path) -> Callable[[Any], dict[str, Any]]:
    """Thresholds first, then counts by `dask.array` alone, on the same store and workers."""

    def run(client: Any) -> dict[str, Any]:
        from peers import dask_array

        return {"scores": dask_array(store).tolist()}

    return run


def compare(mine: dict[str, Any], theirs: dict[str, Any]) -> None:
    """Replace the scores of two rows by their largest difference, and note the ratio of their times."""
    mine["largest_difference"] = float(np.abs(np.subtract(mine.pop("scores"), theirs.pop("scores"))).max())
    mine["ratio"] = mine["seconds"] / theirs["seconds"]


def export_arrays(store: Path, folder: Path) -> None:
    """X.npy and Y.npy of a dense store."""
    if (folder / "Y.npy").exists():
        return
    from mlfs_dask.storage.opening import open_dataset

    folder.mkdir(exist_ok=True)
    rows = open_dataset(store).rows
    profile = rows.profile
    X = np.lib.format.open_memmap(folder / "X.npy", "w+", np.float32, (profile.n, profile.d))
    Y = np.zeros((profile.n, profile.q), dtype=np.int8)
    for block in rows.stream(0, profile.partitions):
        X[block.start : block.start + len(block.X)] = block.X
        Y[block.start : block.start + len(block.X)] = block.Y.toarray()
    X.flush()
    np.save(folder / "Y.npy", Y)


def reads(folder: Path) -> None:
    """CPU seconds of selections beside tensorstore's read with a sum (needs tensorstore); cold, seconds beside dd."""
    from synthetic import make_store

    store = make_store(folder / "dense.zarr", 2_000_000, 1000, 100)
    read = in_process(
        f"from peers import tensorstore_sum; facts = tensorstore_sum({str(store)!r})",
        before=partial(warm_pages, store),
        repeats=2,
    )
    rows = {"tensorstore, read with a sum": read}
    methods: dict[str, tuple[str, dict[str, Any]]] = {
        "chi2": ("chi2", {}),
        "br-cc": ("br-cc", {}),
        "elc, variant screen": ("elc", {"variant": "screen"}),
        "label-entropy, 8 codes": (
            "label-entropy",
            {"bins": 8, "binning": "equal-width", "n_promising_labels": 1.0},
        ),
    }
    for label, (method, parameters) in methods.items():
        row = rows[label] = in_process(
            selecting(store, method, **parameters), before=partial(warm_pages, store), repeats=2
        )
        row["ratio"] = row["cpu_seconds"] / read["cpu_seconds"]
    for label, work in (("sum of mapped shards", "sum"), ("checksums of mapped shards", "checksum")):
        row = rows[label] = in_process(
            f"from peers import over_shards; facts = over_shards({str(store)!r}, {work!r})",
            before=partial(warm_pages, store),
            repeats=2,
        )
        row["ratio"] = row["cpu_seconds"] / read["cpu_seconds"]
    times = []
    cold: dict[str, dict[str, Any]] = {}
    for label, (method, parameters) in methods.items():
        # Disks of rented machines are not always as fast: each method has a dd before it.
        drop_pages(store)
        started = time.perf_counter()
        for shard in shards_of(store):
            subprocess.run(["dd", f"if={shard}", "of=/dev/null", "bs=4M", "status=none"], check=True)
        times.append(time.perf_counter() - started)
        cold[f"{label}, cold"] = in_process(selecting(store, method, cold=True, **parameters), repeats=3)
    dd = sorted(times)[len(times) // 2]
    rows["dd of the shards, cold"] = {"seconds": dd, "all_seconds": [round(seconds, 3) for seconds in times]}
    rows |= {label: {**row, "ratio": row["seconds"] / dd} for label, row in cold.items()}
    report(
        "reads", "2 000 000 x 1 000 float32 (8 GB), 100 labels; one process, two threads, from opening to scores", rows
    )


def selecting(store: Path, method: str, *, cold: bool = False, **parameters: Any) -> str:
    """Code for `in_process`: a selection from opening to scores."""
    return f"from peers import select; facts = select({str(store)!r}, {method!r}, {parameters!r}, cold={cold})"


def unknown(folder: Path) -> None:
    """Selections where 40 % of the entries of Y are unknown, beside the same rows with all of them."""
    from synthetic import make_store

    rows = {}
    for form, d, nonzeros in (("dense", 1000, 0), ("sparse", 100_000, 60)):
        for method in ("chi2", "br-cc"):
            for share in (0.0, 0.4):
                path = folder / f"unknown-{form}-{share}.zarr"
                how: dict[str, Any] = {"nonzeros": nonzeros, "labelled": 1.0, "labelled_entries": 1 - share}
                store = make_store(path, 500_000, d, 100, **how)
                rows[f"{method}, {form}, {share:.0%} unknown"] = in_process(
                    selecting(store, method), before=partial(warm_pages, store)
                )
            both = [rows[f"{method}, {form}, {share} unknown"] for share in ("0%", "40%")]
            both[1]["ratio"] = both[1]["cpu_seconds"] / both[0]["cpu_seconds"]
    report(
        "unknown", "500 000 rows, 1 000 dense or 100 000 sparse features (60 a row), 100 labels; in process, warm", rows
    )


def labels(folder: Path) -> None:
    """Selections with many labels, of which a row has one, beside the same with two."""
    from synthetic import make_store

    rows = {}
    for form, d, nonzeros, counts in (("dense", 1000, 0, (2, 100)), ("sparse", 100_000, 60, (2, 100, 1000))):
        for method in ("chi2", "br-cc"):
            for q in counts:
                store = make_store(folder / f"labels-{form}-{q}.zarr", 500_000, d, q, cardinality=1, nonzeros=nonzeros)
                row = rows[f"{method}, {form}, {q} labels"] = in_process(
                    selecting(store, method), before=partial(warm_pages, store)
                )
                row["ratio"] = row["cpu_seconds"] / rows[f"{method}, {form}, 2 labels"]["cpu_seconds"]
    report(
        "labels",
        "500 000 rows, 1 000 dense or 100 000 sparse features (60 a row), one label a row; in process, warm",
        rows,
    )


def small(folder: Path) -> None:
    """Small data in a fresh process: the first fit after import."""
    code = """
import time, sys
import numpy as np
import mlfs_dask as mlfs
{setup}
started = time.perf_counter()
mlfs.{name}(n_features_to_select=10).fit(X, Y)
facts = {{"seconds": time.perf_counter() - started, "numba": "numba" in sys.modules}}
"""
    setup = """
rng = np.random.default_rng(0)
X = rng.normal(size=(593, 72)); Y = (rng.random((593, 6)) < 0.3).astype(int)
mlfs.LabelEntropy, mlfs.ELC
"""
    rows = {
        f"{name}, 593 x 72 x 6": in_process(code.format(setup=setup, name=name), repeats=5)
        for name in ("LabelEntropy", "ELC")
    }
    times = []
    for _ in range(5):
        started = time.perf_counter()
        subprocess.run([sys.executable, "-m", "mlfs_dask", "--help"], capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    rows["mlfs --help"] = {"seconds": statistics.median(times)}
    report("small", "in process, no cluster: the first fit of a fresh process, imports apart", rows)


if __name__ == "__main__":
    benchmarks = {f.__name__: f for f in (dense, sparse, wide, growth, workers, peers, reads, labels, unknown, small)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=benchmarks)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    benchmarks[arguments.name](arguments.folder)
