"""Time, memory, readings and convergence of the iterative selectors, and of what their papers compare with.

    python benchmarks/iterative.py small                       # real sets in process, $MLFS_DATA as in real_sets.py
    python benchmarks/iterative.py large | workers | wide | growth
    python benchmarks/iterative.py compared                    # what the papers compare with
    python benchmarks/iterative.py huge --max-iter 5 --clean   # after `large`, with which it is compared

All but `small` make stores with a planted structure (synthetic.py) in the folder on first use, and fit each of them
with anchors, in a process of its own with new local workers, beside a plain `da.from_zarr` read by the same workers.
mfsir takes no unknown labels: it gets all of them. smfs and access-mfs get those of 30 % of the rows; smfs then reads
nothing in its loop, and as smfs-entries gets 30 % of the entries, with one reading an iteration. Results are printed
and written to benchmarks/results/iterative/NAME.json with the versions and the machine; with --methods the others'
stay as they are; with --rows, for a trial, they are only printed, unless --results names a folder for them.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import statistics
import sys
import time
import warnings
from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from measuring import GIB, RESULTS, bind_workers, brief, in_process, plain_read, warm_pages

from mlfs_dask.selectors import METHODS as ALL
from mlfs_dask.selectors import get_method

METHODS = ("mfsir", "smfs", "access-mfs")

#: What the papers compare with, or name, beside the methods of counts and products.
COMPARED = (
    *("cmfs", "csfs", "fscla", "fssrdm", "glfs", "gmlc", "lassonet", "leda", "lffs", "llsf", "lsmr", "mamfs", "mdfs"),
    *("mifs", "mlaco", "mlmlfs", "rfs", "scfs", "sfam", "sfs-bll", "sfss", "smdr-ic", "smile", "smlfs", "uafs-bh"),
)

#: What is fitted: a method, and a store whose labels are known ("all"), or known of some rows or entries.
CASES = {
    "mfsir": ("mfsir", "all"),
    "smfs": ("smfs", "rows"),
    "access-mfs": ("access-mfs", "rows"),
    "smfs-entries": ("smfs", "entries"),
    **{name: (name, "rows") for name in COMPARED if name in ALL},
}
LABELLED = {
    "all": {"labelled": 1.0},
    "rows": {"labelled": 0.3},
    "entries": {"labelled": 1.0, "labelled_entries": 0.3},
}

_PLANTED = "20 labels, known of 30 % of the rows (mfsir: all; smfs-entries: 30 % of the entries)"
_CPU = (
    "CPU outside is the share of CPU seconds that the driver and its scheduler take; an iteration goes from the end of "
    "one to the end of the next, and a reading, of the loop or of the start where the loop has none, is compared with "
    "a plain da.from_zarr read by the same workers"
)
DESCRIPTIONS = {
    "small": "in process, the first fit of a fresh process, which loads compiled kernels, and a second; defaults; "
    "30 % of the rows labelled; medical as CSR. `auto` takes the exact "
    "graph here. Aims: the seconds of the version before, or a fifth of those of another program. The "
    "authors' program of Access-MFS takes 62 s on yeast, 53 s on scene, 114 s on medical",
    "large": f"{{n:,}} x 200 float32, {_PLANTED}; two workers of 1 GiB. {_CPU}",
    "compared": "{n:,} x 200 float32, 20 labels, known of 30 % of the rows where methods take unknown ones, else of "
    f"all; two workers of 1 GiB. {_CPU}",
    "huge": f"{{n:,}} x 200 float32, {_PLANTED}; two workers of 1 GiB. Ratios are to the rows of `large`; aims: 10 ± "
    "1.5 for an iteration, and peaks within 10 %",
    "workers": f"{{n:,}} x 200 float32, {_PLANTED}; workers of 1 GiB and one thread, each on a core of its own, and "
    "the driver on either. Aim: a speed-up of 1.7",
    "wide": "{n:,} x {d:,} sparse, 75 nonzeros a row, 100 labels, 30 % of the rows labelled (mfsir: all); two workers "
    "of {gib:g} GiB. A d x d array of bytes would have {square:,.0f} MiB",
    "growth": f"n x 100 float32, 10 labels, {_PLANTED.partition(', ')[2]}; two workers of 1 GiB, warm. Slopes are to "
    "the row above, and over all n in the last row of a method",
}

#: What descriptions say of the sizes.
SIZES: dict[str, dict[str, Any]] = {
    "small": {},
    "large": {"n": 2_000_000},
    "huge": {"n": 20_000_000},
    "compared": {"n": 2_000_000},
    "workers": {"n": 2_000_000},
    "wide": {"n": 100_000, "d": 50_000, "square": 50_000**2 / 2**20, "gib": 2},
    "growth": {},
}

KEPT = RESULTS / "iterative"


# ---------------------------------------------------------------------------------------------------------
# One fit


def fitted(
    method: str,
    store: str,
    parameters: dict[str, Any],
    *,
    workers: int = 2,
    memory: int = GIB,
    reads: int = 3,
    bound: bool = False,
    watch: bool = False,
) -> dict[str, Any]:
    """Fit in new local workers and tell what it took.

    Parameters
    ----------
    method, store : str
    parameters : dict
    workers, memory : int
        Worker processes of one thread, and the bytes that each may hold.
    reads : int
        Plain reads, of which the median counts.
    bound : bool
        Keep every worker on a core of its own.
    watch : bool
        Note the largest array that a name in the package stood for, on the driver and on the workers. It takes time.

    Returns
    -------
    dict
        "seconds" of the whole fit; "read_seconds" of a plain read before it; "iteration_seconds", the median time from
        one iteration to the next; "reading_seconds", the median of the loop's reading, or of the one that starts it,
        and "ratio_to_read" of it; "seconds_per_pass" by name; CPU seconds of the workers and of this process, where the
        scheduler is too, and "share_outside", the latter's share; and what the record of the fit tells.
    """
    from mlfs_dask import runtime
    from mlfs_dask.cluster.connect import connect
    from mlfs_dask.selection.estimator import get_estimator
    from mlfs_dask.storage.opening import open_dataset

    warm_pages(Path(store))
    passes: dict[str, list[float]] = defaultdict(list)
    steps: list[float] = []

    def note(event: dict[str, Any]) -> None:
        if event["kind"] == "pass-done":
            passes[event["label"]].append(event["seconds"])
        elif event["kind"] == "step":
            steps.append(time.perf_counter())

    with connect(workers=workers, memory_limit=memory) as client:
        read = plain_read(Path(store))
        for module in ("dask.array", "zarr"):
            client.run(importlib.import_module, module)
        times = []
        for _ in range(reads):
            started = time.perf_counter()
            read(client)
            times.append(time.perf_counter() - started)
        client.restart()  # what the plain read has left in the workers is not the selector's
        client.wait_for_workers(workers)
        if bound:
            bind_workers(client)
        selector = get_estimator(method)(n_features_to_select=10, **parameters)
        if watch:
            client.run(measuring.watch_arrays)
            measuring.watch_arrays()
            # An array of d x d bits, planted in the threads that run tasks and here, is seen.
            size = open_dataset(store).X.shape[1] ** 2 // 8
            names = client.scheduler_info(n_workers=-1)["workers"]
            tasks = [client.submit(measuring.sees_planted_array, size, workers=[w], pure=False) for w in names]
            assert all([measuring.sees_planted_array(size), *client.gather(tasks)]), "arrays are not watched"
        cpu_before = (sum(client.run(time.process_time).values()), time.process_time())
        with warnings.catch_warnings(record=True) as caught, runtime.progress_to(note):
            warnings.simplefilter("always")
            selector.fit(open_dataset(store))
        cpu_workers = sum(client.run(time.process_time).values()) - cpu_before[0]
        cpu_driver = time.process_time() - cpu_before[1]
        facts: dict[str, Any] = {}
        if watch:
            seen = {"driver": measuring.largest_array(), "worker": max(client.run(measuring.largest_array).values())}
            facts = {f"largest_array_{place}": list(found) for place, found in seen.items()}
    took = selector.report_
    read_seconds = statistics.median(times)
    reading = statistics.median(
        passes[next((label for label in ("rows", "start") if label in passes), list(passes)[-1])]
    )
    iterations = [after - before for before, after in pairwise(steps)]
    return {
        "seconds": took.wall_seconds,
        "passes": took.passes,
        "iterations": took.iterations,
        "converged": took.converged,
        "iteration_seconds": statistics.median(iterations) if iterations else None,
        "reading_seconds": reading,
        "read_seconds": read_seconds,
        "ratio_to_read": reading / read_seconds,
        "worker_cpu_seconds": cpu_workers,
        "driver_cpu_seconds": cpu_driver,
        "share_outside": cpu_driver / (cpu_driver + cpu_workers),
        "peak_worker_MiB": took.peak_worker_bytes / 2**20,
        "planned_MiB": took.plan["peak_worker_bytes"] / 2**20,
        "peak_driver_MiB": took.peak_driver_bytes / 2**20,
        "planned_driver_MiB": took.plan["peak_driver_bytes"] / 2**20,
        "tasks": took.tasks,
        "planned_passes": took.plan["passes"],
        "seconds_per_pass": {label: statistics.median(values) for label, values in passes.items()},
        "count_of_passes": {label: len(values) for label, values in passes.items()},
        "objective": took.objective,
        "warnings": [str(w.message) for w in caught],
        "extra": {name: value for name, value in took.extra.items() if not isinstance(value, list)},
        **facts,
    }


def fit_in_process_of_its_own(
    label: str, method: str, store: Path, parameters: dict[str, Any], **how: Any
) -> dict[str, Any]:
    code = f"from iterative import fitted; facts = fitted({method!r}, {str(store)!r}, {parameters!r}, **{how!r})"
    found = in_process(code, repeats=1)
    print(f"  {label}: {brief(found)}", flush=True)
    return found


def cases_with_stores(
    options: argparse.Namespace, name: str, n: int, d: int, q: int, *, nonzeros: int = 0, alone: bool = False
) -> Iterator[tuple[str, str, Path]]:
    """Each case with its method and its store.

    With `alone` there is one of these stores at a time on the disk; with --clean a store goes after its last case.
    """
    from synthetic import make_store

    for kind, labelled in LABELLED.items():
        cases = [case for case in options.methods if CASES[case][1] == kind]
        if not cases:
            continue
        path = options.folder / f"{name}-{n}-{kind}.zarr"
        if alone:
            for other in LABELLED:
                if other != kind:
                    shutil.rmtree(options.folder / f"{name}-{n}-{other}.zarr", ignore_errors=True)
        make_store(path, n, d, q, nonzeros=nonzeros, **labelled)
        for case in cases:
            yield case, CASES[case][0], path
        if options.clean:
            shutil.rmtree(path)


def parameters_of(options: argparse.Namespace, method: str, **others: Any) -> dict[str, Any]:
    """Of a fit with anchors, where the method has them, iterations being bounded where --max-iter is given."""
    bound = {} if options.max_iter is None else {"max_iter": options.max_iter}
    given = {"graph": "anchors", "random_state": 0, **others, **bound}
    return {
        name: value for name, value in given.items() if name in {each.name for each in get_method(method).parameters}
    }


# ---------------------------------------------------------------------------------------------------------
# The benchmarks

SMALL_FIT = """
import sys, time, warnings
import numpy as np
import sklearn.cluster
from mlfs_dask.selection.estimator import get_estimator
from scipy.sparse import csr_array
with np.load({path!r}) as arrays:
    X, Y = arrays["X"], arrays[{labels!r}]
if {sparse}:
    X = csr_array(X)
selector = get_estimator({method!r})(n_features_to_select=10, **{parameters!r})
started = time.perf_counter()
selector.fit(X, Y)
seconds = time.perf_counter() - started
took = selector.report_
started = time.perf_counter()
selector.fit(X, Y)
facts = dict(seconds=seconds, again_seconds=time.perf_counter() - started, iterations=took.iterations,
             passes=took.passes, converged=took.converged, objective=took.objective)
"""

#: Seconds within which each set is to be fitted.
TARGETS = {
    "mfsir": {"yeast": 0.11, "scene": 0.18, "medical": 1.0},
    "smfs": {"yeast": 0.84, "scene": 0.83, "medical": 0.96},
    "access-mfs": {"yeast": 0.65, "scene": 0.65, "medical": 4.4},
}

#: A fifth of the seconds that programs of the authors, or of third parties, took on emotions on another machine.
PROGRAMS = {
    "csfs": 0.136,
    "glfs": 0.061,
    "lassonet": 11.8,
    "llsf": 0.014,
    "mamfs": 2.3,
    "mdfs": 0.97,
    "mifs": 0.045,
    "mlaco": 0.33,
    "mlmlfs": 1.8,
    "rfs": 0.008,
    "sfs-bll": 0.15,
    "smdr-ic": 0.21,
    "smile": 0.045,
    "uafs-bh": 0.98,
}


def small(options: argparse.Namespace) -> None:
    """Real sets in process, the first fit of a fresh process; with anchors too, for which there is no aim.

    What the papers compare with is fitted to emotions.
    """
    from real_sets import make_store

    from mlfs_dask import open_dataset

    rows: dict[str, dict[str, Any]] = {}
    for name, sparse in (("yeast", False), ("scene", False), ("medical", True), ("emotions", False)):
        methods = [method for method in options.methods if (method in COMPARED) == (name == "emotions")]
        if not methods:
            continue
        path = options.folder / f"{name}.npz"
        if not path.exists():
            dataset = open_dataset(make_store(name, options.folder))
            X, Y = (array.compute() for array in (dataset.X, dataset.Y))
            X, Y = (array.todense() if hasattr(array, "todense") else array for array in (X, Y))
            hidden = np.random.default_rng(0).random(len(Y)) >= 0.3
            labels = Y.astype(np.int8)
            labels[hidden] = -1
            np.savez(path, X=X, all=Y, some=labels)
        for method in methods:
            for graph in ("auto", "anchors") if method in METHODS else ("auto",):
                label = f"{method}, {name}" if graph == "auto" else f"{method}, {name}, anchors"
                code = SMALL_FIT.format(
                    path=str(path),
                    method=method,
                    labels="all" if CASES[method][1] == "all" else "some",
                    parameters=parameters_of(options, method, graph=graph),
                    sparse=sparse,
                )
                row = rows[label] = in_process(code, repeats=options.repeats)
                if graph == "auto":
                    row["target_seconds"] = TARGETS[method][name] if method in METHODS else PROGRAMS.get(method)
                print(f"  {label}: {brief(row)}", flush=True)
    finish(options, "small", rows)


def large(options: argparse.Namespace) -> None:
    """2 000 000 x 200 dense."""
    n = options.rows or SIZES["large"]["n"]
    rows = {}
    for case, method, store in cases_with_stores(options, "large", n, 200, 20):
        rows[case] = fit_in_process_of_its_own(case, method, store, parameters_of(options, method))
    finish(options, "large", rows, n=n)


def compared(options: argparse.Namespace) -> None:
    """2 000 000 x 200 dense, the methods with which the papers compare."""
    n = options.rows or SIZES["compared"]["n"]
    rows = {}
    for case, method, store in cases_with_stores(options, "large", n, 200, 20):
        rows[case] = fit_in_process_of_its_own(case, method, store, parameters_of(options, method), reads=1)
        keep(options, "compared", rows, n=n)  # a case takes long
    finish(options, "compared", rows, n=n)


def huge(options: argparse.Namespace) -> None:
    """20 000 000 x 200 dense, 16 GB: ten times the rows of `large` and `compared`, one of which must be there."""
    n = options.rows or SIZES["huge"]["n"]
    paths = [path for name in ("large", "compared") if (path := options.results / f"{name}.json").exists()]
    if not paths:
        sys.exit(f"{options.results} has no results: run `large` or `compared` first")
    small_rows = {case: row for path in paths for case, row in json.loads(path.read_text())["rows"].items()}
    rows = {}
    for case, method, store in cases_with_stores(options, "huge", n, 200, 20, alone=True):
        row = rows[case] = fit_in_process_of_its_own(case, method, store, parameters_of(options, method), reads=1)
        for ratio, column in (
            ("iteration_ratio", "iteration_seconds"),
            ("reading_ratio", "reading_seconds"),
            ("peak_ratio", "peak_worker_MiB"),
            ("driver_peak_ratio", "peak_driver_MiB"),
        ):
            before = small_rows.get(case, {}).get(column)
            row[ratio] = row[column] / before if before and row[column] is not None else None
        keep(options, "huge", rows, n=n)  # a case takes long
    finish(options, "huge", rows, n=n)


def workers(options: argparse.Namespace) -> None:
    """One worker against two, each bound to a core of its own."""
    n = options.rows or SIZES["workers"]["n"]
    rows = {}
    for case, method, store in cases_with_stores(options, "large", n, 200, 20):
        found = {}
        for count in (1, 2):
            label = f"{case}, {count} worker{'s' * (count > 1)}"
            parameters = parameters_of(options, method, max_iter=5 if options.max_iter is None else options.max_iter)
            found[count] = rows[label] = fit_in_process_of_its_own(
                label, method, store, parameters, workers=count, bound=True
            )
        found[2]["speedup"] = found[1]["seconds"] / found[2]["seconds"]
        found[2]["reading_speedup"] = found[1]["reading_seconds"] / found[2]["reading_seconds"]
        print(f"  {case}: speed-up {found[2]['speedup']:.2f}", flush=True)
    finish(options, "workers", rows, n=n)


def wide(options: argparse.Namespace) -> None:
    """100 000 x 50 000 sparse, above the Gram cap: no array on driver or workers comes near d x d."""
    n, d = options.rows or SIZES["wide"]["n"], SIZES["wide"]["d"]
    rows = {}
    for case, method, store in cases_with_stores(options, "wide", n, d, 100, nonzeros=75):
        parameters, memory = parameters_of(options, method), int(options.memory * GIB)
        found = fit_in_process_of_its_own(case, method, store, parameters, memory=memory)
        # Watching takes the driver as long as its work: arrays are watched in another fit, of few iterations.
        few = parameters_of(options, method, max_iter=3)
        watched = fit_in_process_of_its_own(f"{case}, watched", method, store, few, memory=memory, watch=True)
        # Whatever there was for a moment was part of a process, so the peaks bound it too: not even d x d bits.
        for place in ("driver", "worker"):
            largest = watched[f"largest_array_{place}"][0]
            assert largest < d * d / 8, f"{case}: an array of {largest:,} bytes on a {place}"
            found[f"largest_array_{place}_MiB"] = largest / 2**20
        assert found["peak_worker_MiB"] < d * d / 2**20, f"{case}: {found['peak_worker_MiB']:,.0f} MiB on a worker"
        rows[case] = found
    finish(options, "wide", rows, n=n, gib=options.memory)


#: What grows, or should not, by the column that tells.
SLOPES = {
    "log_log_slope": "seconds",
    "reading_slope": "reading_seconds",
    "memory_slope": "peak_worker_MiB",
    "driver_memory_slope": "peak_driver_MiB",
}


def growth(options: argparse.Namespace) -> None:
    """Rows from 100 000 to 1 600 000."""
    sizes = [options.rows, 2 * options.rows] if options.rows else [100_000 * 2**i for i in range(5)]
    rows: dict[str, dict[str, Any]] = {}
    for n in sizes:
        for case, method, store in cases_with_stores(options, "growth", n, 100, 10):
            label = f"{case}, n = {n:,}"
            rows[label] = fit_in_process_of_its_own(label, method, store, parameters_of(options, method))
    for case in options.methods:
        of_case = [rows[f"{case}, n = {n:,}"] for n in sizes]
        for name, column in SLOPES.items():
            logarithms = np.log([row[column] for row in of_case])
            for i in range(1, len(sizes)):
                step = np.log(sizes[i] / sizes[i - 1])
                of_case[i][name] = float((logarithms[i] - logarithms[i - 1]) / step)
            over_all = rows.setdefault(f"{case}, all n", {})
            over_all[name] = float(np.polyfit(np.log(sizes), logarithms, 1)[0])
        print(f"  {case}: {brief(rows[f'{case}, all n'])}", flush=True)
    finish(options, "growth", rows)


def finish(options: argparse.Namespace, name: str, rows: dict[str, dict[str, Any]], **facts: Any) -> None:
    """Keep the results of a whole benchmark, and say so where they are not kept."""
    if not keep(options, name, rows, **facts):
        print(f"{describe(name, **facts)}: not kept")


def keep(options: argparse.Namespace, name: str, rows: dict[str, dict[str, Any]], **facts: Any) -> bool:
    """Keep results; those of cases that were not run stay as they are. False for trials, which are not kept."""
    if options.rows and options.results == KEPT:
        return False
    path = options.results / f"{name}.json"
    if path.exists():
        rows = {**json.loads(path.read_text())["rows"], **rows}
    ordered = {label: rows[label] for label in sorted(rows, key=place)}
    told = "" if options.max_iter is None else f"--max-iter {options.max_iter}"
    measuring.report("iterative", options.results, name, describe(name, **facts), ordered, told)
    return True


def describe(name: str, **facts: Any) -> str:
    """What a benchmark measures, at its full size but for what is given."""
    return DESCRIPTIONS[name].format(**{**SIZES[name], **facts})


def place(label: str) -> int:
    """Rows are in the order of CASES."""
    return list(CASES).index(label.split(",")[0])


if __name__ == "__main__":
    benchmarks = {f.__name__: f for f in (small, large, compared, huge, workers, wide, growth)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=benchmarks)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--methods", nargs="+", choices=list(CASES), help="default: all that the benchmark has")
    parser.add_argument("--max-iter", type=int, help="most iterations (workers: 5, others: the methods' defaults)")
    parser.add_argument("--rows", type=int, help="another number of rows, for a trial")
    parser.add_argument("--memory", type=float, default=SIZES["wide"]["gib"], help="GiB of a worker of `wide`")
    parser.add_argument("--repeats", type=int, default=3, help="fits of `small`, of which the median counts")
    parser.add_argument("--results", type=Path, default=KEPT, help="where NAME.json is written")
    parser.add_argument("--clean", action="store_true", help="delete every store after its last fit")
    arguments = parser.parse_args()
    if arguments.methods is None:
        cases, compared_here = ([case for case in CASES if (case in COMPARED) == which] for which in (False, True))
        arguments.methods = {
            "small": (*METHODS, *compared_here),
            "wide": METHODS,
            "compared": compared_here,
        }.get(arguments.name, cases)
    elif arguments.name == "small" and "smfs-entries" in arguments.methods:
        parser.error("`small` has no smfs-entries")
    arguments.folder.mkdir(parents=True, exist_ok=True)
    benchmarks[arguments.name](arguments)
    sys.exit()
