"""The iterative selectors with X'X formed and without it: what each costs, and how often they read the data.

    python benchmarks/gram.py cap | readings    [--folder DIR] [--methods NAME ...] [--features D ...] [--sets NAME ...]

`cap` fits stores of a planted structure with more and more features, dense and sparse, both ways, each fit in a process
of its own: the default of `gram_cap` is from there. `readings` fits real sets ($MLFS_DATA, as in real_sets.py) both
ways and counts: what plans call typical is from there. All with anchors. Results are printed and written to
benchmarks/results/iterative/NAME.json with the versions and the machine.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from iterative import KEPT, METHODS, cases_with_stores, place
from measuring import brief, in_process, warm_pages
from real_sets import QUICK, SETS, make_store

from mlfs_dask import open_dataset, runtime
from mlfs_dask.selection.estimator import get_estimator

#: Rows of the stores of `cap`, their labels, and the features of dense and of sparse ones (75 nonzeros a row).
ROWS, LABELS = 5_000, 20
FEATURES = (512, 1024, 2048)

#: What keeps the search for landmarks, which is the same both ways, and the loop of many iterations short.
SHORT: dict[str, dict[str, Any]] = {"smfs": {"n_trees": 25}, "mfsir": {}, "access-mfs": {"max_iter": 10}}

DESCRIPTIONS = {
    "cap": f"{ROWS:,} rows, {LABELS} labels; sparse rows have 75 nonzeros. In process, a fit of a fresh process each; "
    "access-mfs makes 10 iterations. Not formed means for smfs: of all features but one, or of 2,048 at a time",
    "readings": "Readings of X until the loop ends, the defaults with anchors. Rows or entries: 30 % of the rows, or "
    "of all entries, are known",
}

FIT = """
import time, warnings
from mlfs_dask import open_dataset
from mlfs_dask.selection.estimator import get_estimator
warnings.simplefilter("ignore")
dataset = open_dataset({store!r})
selector = get_estimator({method!r})(n_features_to_select=10, graph="anchors", random_state=0, **{parameters!r})
used, started = time.process_time(), time.perf_counter()
selector.fit(dataset)
seconds, used = time.perf_counter() - started, time.process_time() - used
took = selector.report_
facts = dict(
    seconds=seconds,
    cpu_seconds=used,
    iterations=took.iterations,
    passes=took.passes,
    converged=took.converged,
)
facts["peak_worker_MiB"] = took.peak_driver_bytes / 2**20
"""


def cap(options: argparse.Namespace) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for kind, nonzeros in (("dense", 0), ("sparse", 75)):
        for d in options.features:
            stores = cases_with_stores(options, f"gram-{kind}-{d}", ROWS, d, LABELS, nonzeros=nonzeros)
            for _, method, store in stores:
                warm_pages(store)
                for formed in (True, False):
                    label = f"{method}, {kind}, {d:,} features, X'X {'formed' if formed else 'not formed'}"
                    parameters = {**SHORT[method], "gram_cap": cap_of(method, d, formed)}
                    code = FIT.format(store=str(store), method=method, parameters=parameters)
                    rows[label] = in_process(code, repeats=1)
                    print(f"  {label}: {brief(rows[label])}", flush=True)
    finish(options, "cap", rows)


def readings(options: argparse.Namespace) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for name in options.sets:
        dataset = open_dataset(make_store(name, options.folder))
        X, Y = (array.compute() for array in (dataset.X, dataset.Y))
        X, Y = (array.todense() if hasattr(array, "todense") else array for array in (X, Y))
        for method in options.methods:
            for state, labels in states(method, np.asarray(Y, dtype=np.int8)).items():
                for way in ("X'X formed", "X'X not formed"):
                    label = f"{method}, {name}, {state}, {way}"
                    cap = cap_of(method, X.shape[1], way == "X'X formed")
                    selector = get_estimator(method)(
                        n_features_to_select=10, graph="anchors", random_state=0, gram_cap=cap
                    )
                    passes: Counter[str] = Counter()

                    def note(event: dict[str, Any], passes: Counter[str] = passes) -> None:
                        if event["kind"] == "pass-done":
                            passes[event["label"]] += 1

                    with warnings.catch_warnings(), runtime.progress_to(note):
                        warnings.simplefilter("ignore")
                        took = selector.fit(X, labels).report_
                    rows[label] = {
                        "passes": took.passes,
                        "iterations": took.iterations,
                        "converged": took.converged,
                        "count_of_passes": dict(passes),
                    }
                    print(f"  {label}: {brief(rows[label])}", flush=True)
    finish(options, "readings", rows)


def states(method: str, Y: np.ndarray) -> dict[str, np.ndarray]:
    """Labels that a method takes: known for all rows, for some rows, for some entries."""
    rng = np.random.default_rng(0)
    rows, entries = Y.copy(), Y.copy()
    rows[rng.random(len(Y)) >= 0.3] = -1
    entries[rng.random(Y.shape) >= 0.3] = -1
    return {
        "mfsir": {"all": Y},
        "smfs": {"rows": rows, "entries": entries},
        "access-mfs": {"all": Y, "rows": rows},
    }[method]


def finish(options: argparse.Namespace, name: str, rows: dict[str, dict[str, Any]]) -> None:
    """Keep the results; those of methods that were not run stay as they are."""
    path = options.results / f"{name}.json"
    if path.exists():
        rows = {**json.loads(path.read_text())["rows"], **rows}
    ordered = {label: rows[label] for label in sorted(rows, key=place)}
    measuring.report("gram", path.parent, name, DESCRIPTIONS[name], ordered)


def cap_of(method: str, d: int, formed: bool) -> int:
    """A cap by which X'X is formed, or not: smfs then has it of 2048 features at most, and of not all."""
    if formed:
        return d
    return min(2048, d - 1) if method == "smfs" else 0


if __name__ == "__main__":
    benchmarks = {f.__name__: f for f in (cap, readings)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=benchmarks)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--features", nargs="+", type=int, default=FEATURES, help="of `cap`")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=QUICK, help="of `readings`")
    parser.add_argument("--results", type=Path, default=KEPT, help="where NAME.json is written")
    parser.set_defaults(clean=False)
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    benchmarks[arguments.name](arguments)
