"""Time, memory, readings and convergence of the iterative selectors: mfsir, smfs and access-mfs.

    python benchmarks/iterative.py small | medium | wide | large | growth    [--folder DIR] [--methods NAME ...]

`small` fits real sets in process ($MLFS_DATA, as in real_sets.py). The others make stores with a planted structure
(synthetic.py) in the folder on first use, and fit each of them in a process of its own with new local workers, beside
a plain `da.from_zarr` read by the same workers. mfsir takes no unknown labels: it gets the same rows with all of them.
Results are printed and written to benchmarks/results/iterative/NAME.json with the versions and the machine; with
--rows, for a trial with fewer rows, they are only printed; with --methods the others' stay as they are.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
import warnings
from collections import defaultdict
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from measuring import GIB, RESULTS, in_process, plain_read, warm_pages

METHODS = ("mfsir", "smfs", "access-mfs")

report = partial(measuring.report, "iterative", RESULTS / "iterative")


# ---------------------------------------------------------------------------------------------------------
# One fit


def fitted(
    method: str, store: str, parameters: dict[str, Any], *, workers: int = 2, memory: int = GIB, watch: bool = False
) -> dict[str, Any]:
    """Fit in new local workers and tell what it took.

    Parameters
    ----------
    method, store : str
    parameters : dict
    workers, memory : int
        Worker processes of one thread, and the bytes that each may hold.
    watch : bool
        Note the largest array that a name in the package stood for, on the driver and on the workers. It takes time.

    Returns
    -------
    dict
        "seconds" of the whole fit, "read_seconds" of a plain read before it (median of three), "seconds_per_pass":
        medians by kind of pass, "ratio_to_read" of a forward or backward one, and what the record of the fit tells.
    """
    from mlfs_dask import runtime
    from mlfs_dask.cluster import connect
    from mlfs_dask.selectors import get_method
    from mlfs_dask.storage.dataset import open_dataset

    warm_pages(Path(store))
    passes: dict[str, list[float]] = defaultdict(list)

    def note(event: dict[str, Any]) -> None:
        if event["kind"] in ("pass-done", "stage-done"):
            passes[event["label"].partition(", ")[0]].append(event["seconds"])

    with connect(workers=workers, memory_limit=memory) as client:
        read = plain_read(Path(store))
        times = []
        for _ in range(3):
            started = time.perf_counter()
            read(client)
            times.append(time.perf_counter() - started)
        reading = statistics.median(times)
        client.restart()  # what the plain read has left in the workers is not the selector's
        client.wait_for_workers(workers)
        selector = get_method(method)(n_features_to_select=10, **parameters)
        if watch:
            client.run(measuring.watch_arrays)
            measuring.watch_arrays()
            # An array of d x d bits, planted in the threads that run tasks and here, is seen.
            size = open_dataset(store).X.shape[1] ** 2 // 8
            names = client.scheduler_info()["workers"]
            tasks = [client.submit(measuring.sees_planted_array, size, workers=[w], pure=False) for w in names]
            assert all([measuring.sees_planted_array(size), *client.gather(tasks)]), "arrays are not watched"
        with warnings.catch_warnings(record=True) as caught, runtime.progress_to(note):
            warnings.simplefilter("always")
            selector.fit(open_dataset(store))
        facts: dict[str, Any] = {}
        if watch:
            seen = {"driver": measuring.largest_array(), "worker": max(client.run(measuring.largest_array).values())}
            facts = {f"largest_array_{place}": list(found) for place, found in seen.items()}
    took = selector.report_
    graph = took.extra.get("graph") or {}
    regression = [s for label in REGRESSION for s in passes.get(label, [])]
    return {
        "seconds": took.wall_seconds,
        "read_seconds": reading,
        "ratio_to_read": statistics.median(regression) / reading if regression else None,
        "seconds_per_pass": {label: statistics.median(values) for label, values in passes.items()},
        "count_of_passes": {label: len(values) for label, values in passes.items()},
        "search_seconds": sum(s for label, values in passes.items() if label.split(":")[0] in SEARCHES for s in values),
        "passes": took.passes,
        "tasks": took.tasks,
        "iterations": took.iterations,
        "converged": took.converged,
        **({"graph": graph["kind"]} if graph else {}),
        **({"recall": graph["recall"]} if "recall" in graph else {}),
        "peak_worker_MiB": took.peak_worker_bytes / 2**20,
        "planned_MiB": took.plan["peak_worker_bytes"] / 2**20,
        "peak_driver_MiB": took.peak_driver_bytes / 2**20,
        "planned_driver_MiB": took.plan["peak_driver_bytes"] / 2**20,
        "planned_passes": took.plan["passes"],
        "objective": took.objective,
        "warnings": [str(w.message) for w in caught],
        "extra": {name: value for name, value in took.extra.items() if not isinstance(value, list)},
        **facts,
    }


#: What labels of searches for neighbours begin with, and the passes of a loop's regression.
SEARCHES = ("neighbours", "near points", "masses")
REGRESSION = ("X W", "X'R", "X'X W", "X W and X'R", "X W and X'X W")


def fit_in_process_of_its_own(method: str, store: Path, parameters: dict[str, Any], **how: Any) -> dict[str, Any]:
    code = f"from iterative import fitted; facts = fitted({method!r}, {str(store)!r}, {parameters!r}, **{how!r})"
    found = in_process(code, repeats=1)
    print(f"  {method}: {brief(found)}", flush=True)
    return found


def brief(facts: dict[str, Any]) -> str:
    """Facts without lists, on one line."""
    return ", ".join(
        f"{name} {value:,.4g}" if isinstance(value, float) else f"{name} {value}"
        for name, value in facts.items()
        if name not in ("objective", "extra", "all_seconds")
    )


def stores_of(folder: Path, name: str, n: int, d: int, q: int, nonzeros: int = 0) -> dict[str, Path]:
    """Rows of which 30 % are labelled for the semi-supervised methods, and their labelled twin for mfsir."""
    from synthetic import make_store

    some = make_store(folder / f"{name}-{n}-some.zarr", n, d, q, nonzeros=nonzeros, labelled=0.3)
    every = make_store(folder / f"{name}-{n}-all.zarr", n, d, q, nonzeros=nonzeros, labelled=1.0)
    return {"mfsir": every, "smfs": some, "access-mfs": some}


# ---------------------------------------------------------------------------------------------------------
# The benchmarks

SMALL_FIT = """
import sys, time, warnings
import numpy as np
from mlfs_dask.selectors import get_method
from scipy.sparse import csr_array
with np.load({path!r}) as arrays:
    X, Y = arrays["X"], arrays["Y"]
if {sparse}:
    X = csr_array(X)
selector = get_method({method!r})(n_features_to_select=10, **{parameters!r})
started = time.perf_counter()
selector.fit(X, Y)
seconds = time.perf_counter() - started
took = selector.report_
facts = dict(seconds=seconds, iterations=took.iterations, passes=took.passes, converged=took.converged,
             objective=took.objective)
"""

#: Seconds within which each set and method is to be fitted, and what the authors' program of Access-MFS takes.
TARGETS = {
    ("access-mfs", "yeast"): 3.0,
    ("access-mfs", "scene"): 5.0,
    ("access-mfs", "medical"): 5.0,
    **{(method, name): 3.0 for method in ("mfsir", "smfs") for name in ("yeast", "scene", "medical")},
}
AUTHORS = {"yeast": 62, "scene": 53, "medical": 114}


def small(options: argparse.Namespace) -> None:
    """Real sets in process, the first fit of a fresh process."""
    from real_sets import make_store

    from mlfs_dask import open_dataset

    rows: dict[str, dict[str, Any]] = {}
    for name, sparse in (("yeast", False), ("scene", False), ("medical", True)):
        path = options.folder / f"{name}.npz"
        if not path.exists():
            dataset = open_dataset(make_store(name, options.folder))
            X, Y = (array.compute() for array in (dataset.X, dataset.Y))
            X, Y = (array.todense() if hasattr(array, "todense") else array for array in (X, Y))
            hidden = np.random.default_rng(0).random(len(Y)) >= 0.3
            labels = Y.astype(np.int8)
            labels[hidden] = -1
            np.savez(path, X=X, all=Y, some=labels)
        for method in options.methods:
            parameters = {"random_state": 0}
            code = SMALL_FIT.format(path=str(path), method=method, parameters=parameters, sparse=sparse)
            code = code.replace('arrays["Y"]', 'arrays["all"]' if method == "mfsir" else 'arrays["some"]')
            row = rows[f"{method}, {name}"] = in_process(code, repeats=3)
            row["target_seconds"] = TARGETS[method, name]
            print(f"  {method}, {name}: {brief(row)}", flush=True)
    finish(
        options,
        "small",
        "in process, the first fit of a fresh process, imports apart; defaults (access-mfs: λ = θ = μ = 1, to 1e-6); "
        "30 % of the rows labelled, of mfsir all; medical as CSR; the authors' program of Access-MFS takes "
        + ", ".join(f"{seconds} s on {name}" for name, seconds in AUTHORS.items()),
        rows,
    )


def medium(options: argparse.Namespace) -> None:
    """200 000 x 500 dense."""
    n = options.rows or 200_000
    stores = stores_of(options.folder, "medium", n, 500, 20)
    rows = {}
    for method in options.methods:
        rows[method] = fit_in_process_of_its_own(method, stores[method], options.parameters)
        if method == "mfsir":  # by default its graph is approximate from some 90 000 rows of 500 features
            exact = {**options.parameters, "graph": "exact"}
            rows["mfsir, exact graph"] = fit_in_process_of_its_own(method, stores[method], exact)
    description = f"{n:,} x 500 float32, 20 labels, 30 % of the rows labelled (mfsir: all); two workers of 1 GiB"
    finish(options, "medium", description, rows)


def large(options: argparse.Namespace) -> None:
    """2 000 000 x 200 dense."""
    n = options.rows or 2_000_000
    stores = stores_of(options.folder, "large", n, 200, 20)
    rows = {}
    for method in options.methods:
        rows[method] = fit_in_process_of_its_own(method, stores[method], options.parameters, memory=2 * GIB)
    description = f"{n:,} x 200 float32, 20 labels, 30 % of the rows labelled (mfsir: all); two workers of 2 GiB"
    finish(options, "large", description, rows)


def wide(options: argparse.Namespace) -> None:
    """100 000 x 50 000 sparse, above the Gram cap: no array on driver or workers comes near d x d."""
    n, d = options.rows or 100_000, 50_000
    stores = stores_of(options.folder, "wide", n, d, 100, nonzeros=75)
    rows = {}
    for method in options.methods:
        found = fit_in_process_of_its_own(method, stores[method], options.parameters, watch=True)
        # Whatever there was for a moment was part of a process, so the peaks bound it too: not even d x d bits.
        least = min(d * d, n * n) / 8
        for place in ("driver", "worker"):
            largest = found[f"largest_array_{place}"][0]
            assert largest < least, f"{method}: an array of {largest:,} bytes on a {place}"
            found[f"largest_array_{place}_MiB"] = largest / 2**20
        assert found["peak_worker_MiB"] < d * d / 2**20, f"{method}: {found['peak_worker_MiB']:,.0f} MiB on a worker"
        rows[method] = found
    description = (
        f"{n:,} x {d:,} sparse, 75 nonzeros a row, 100 labels, 30 % of the rows labelled (mfsir: all); two workers of "
        f"1 GiB. A d x d array of bytes would have {d * d / 2**20:,.0f} MiB"
    )
    finish(options, "wide", description, rows)


def growth(options: argparse.Namespace) -> None:
    """Rows from 25 000 to 200 000 in partitions of one size; approximate graphs, exact ones take n² steps."""
    parameters = {"graph": "approximate", "max_iter": 20, **options.parameters}
    sizes = [options.rows] if options.rows else [25_000, 50_000, 100_000, 200_000]
    rows: dict[str, dict[str, Any]] = {}
    for method in options.methods:
        for n in sizes:
            store = stores_of(options.folder, "growth", n, 100, 10)[method]
            rows[f"{method}, n = {n:,}"] = fit_in_process_of_its_own(method, store, parameters)
        for small, large in pairwise(sizes):
            before, row = rows[f"{method}, n = {small:,}"], rows[f"{method}, n = {large:,}"]
            for slope, column in (
                ("log_log_slope", "seconds"),
                ("memory_slope", "peak_worker_MiB"),
                ("driver_memory_slope", "peak_driver_MiB"),
            ):
                row[slope] = float(np.log(row[column] / before[column]) / np.log(large / small))
    description = (
        "n x 100 float32, 10 labels, 30 % of the rows labelled (mfsir: all); approximate graphs; at most 20 "
        "iterations, so that access-mfs makes as many for every n; two workers of 1 GiB, warm"
    )
    finish(options, "growth", description, rows)


def finish(options: argparse.Namespace, name: str, description: str, rows: dict[str, dict[str, Any]]) -> None:
    """Keep the results of a whole benchmark; those of methods that were not run stay as they are."""
    if options.rows:
        print(f"{description}: not kept")
        return
    path = RESULTS / "iterative" / f"{name}.json"
    if path.exists():
        rows = {**json.loads(path.read_text())["rows"], **rows}
    report(name, description, {label: rows[label] for label in sorted(rows, key=place)})


def place(label: str) -> int:
    """Rows are in the order of METHODS."""
    return METHODS.index(label.split(",")[0])


if __name__ == "__main__":
    benchmarks = {f.__name__: f for f in (small, medium, wide, large, growth)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=benchmarks)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--rows", type=int, help="another number of rows; results are then not kept")
    parser.set_defaults(parameters={})
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    benchmarks[arguments.name](arguments)
    sys.exit()
