"""The iterative selectors with X'X formed and without it: what each costs, and how often they read the data.

    python benchmarks/gram.py cap | readings    [--folder DIR] [--methods NAME ...] [--features D ...] [--sets NAME ...]

`cap` fits stores of a planted structure with more and more features, dense and sparse, both ways, each fit in a process
of its own: the default of `gram_cap` is from there. `readings` fits real sets ($MLFS_DATA, as in real_sets.py) both
ways and counts: what plans call typical is from there. Results are printed and written to
benchmarks/results/iterative/NAME.json with the versions and the machine.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path
from typing import Any

import dask.array as da
import measuring
import numpy as np
from iterative import METHODS, SEARCHES, place, stores_of
from measuring import RESULTS, in_process, warm_pages
from real_sets import SETS, make_store

from mlfs_dask import open_dataset
from mlfs_dask.selectors import get_method

#: Rows of the stores of `cap`, their labels, and the features of dense and of sparse ones (75 nonzeros a row).
ROWS, LABELS = 5_000, 20
FEATURES = (512, 1024, 2048)

#: Ways in which a method may have its d × d matrix.
BOTH = ("X'X formed", "X'X not formed")
WAYS = {"mfsir": BOTH, "smfs": BOTH, "access-mfs": ("in memory", *BOTH)}

#: Sets on which a fit without X'X takes minutes, features being many and alike.
LONG = (("access-mfs", "medical"), ("access-mfs", "enron"))

#: What keeps the search for neighbours, which is the same both ways, and the loop of many iterations short.
SHORT = {"smfs": {"n_trees": 25}, "mfsir": {"graph": "approximate"}, "access-mfs": {"max_iter": 10}}

FIT = """
import time, warnings
from collections import defaultdict
from mlfs_dask import open_dataset, runtime
from mlfs_dask.selectors import get_method
warnings.simplefilter("ignore")
searches = {searches!r}
spent = defaultdict(float)
def note(event):
    if event["kind"] in ("pass-done", "stage-done"):
        spent[event["label"].split(":")[0]] += event["seconds"]
dataset = open_dataset({store!r})
selector = get_method({method!r})(n_features_to_select=10, random_state=0, **{parameters!r})
with runtime.progress_to(note):
    used, started = time.process_time(), time.perf_counter()
    selector.fit(dataset)
    seconds, used = time.perf_counter() - started, time.process_time() - used
took = selector.report_
facts = dict(
    seconds=seconds,
    search_seconds=sum(spent[label] for label in searches),
    cpu_seconds=used,
    iterations=took.iterations,
    passes=took.passes,
    converged=took.converged,
)
facts["peak_worker_MiB"] = took.peak_driver_bytes / 2**20
"""


def cap(options: argparse.Namespace) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for method in options.methods:
        for kind, nonzeros in (("dense", 0), ("sparse", 75)):
            for d in options.features:
                stores = stores_of(options.folder, f"gram-{kind}-{d}", ROWS, d, LABELS, nonzeros=nonzeros)
                warm_pages(stores[method])
                for formed in (True, False):
                    label = f"{method}, {kind}, {d:,} features, X'X {'formed' if formed else 'not formed'}"
                    parameters = {**SHORT[method], "gram_cap": cap_of(method, d, formed)}
                    rows[label] = fitted(stores[method], method, parameters)
                    tell(label, rows[label])
    finish(
        options,
        "cap",
        f"{ROWS:,} rows, {LABELS} labels; sparse rows have 75 nonzeros. In process, one fit of a fresh process each; "
        "the search for neighbours is the same both ways; access-mfs makes 10 iterations, and a new graph in each. Not "
        "formed means for smfs: of all features but one, or of 2,048 at a time",
        rows,
    )


def readings(options: argparse.Namespace) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for name in options.sets:
        dataset = open_dataset(make_store(name, options.folder))
        X, Y = (array.compute() for array in (dataset.X, dataset.Y))
        X, Y = (array.todense() if hasattr(array, "todense") else array for array in (X, Y))
        for method in options.methods:
            for state, labels in states(method, np.asarray(Y, dtype=np.int8)).items():
                for way in WAYS[method]:
                    if way == "X'X not formed" and (method, name) in LONG:
                        continue
                    label = f"{method}, {name}, {state}, {way}"
                    cap = cap_of(method, X.shape[1], way != "X'X not formed")
                    selector = get_method(method)(n_features_to_select=10, random_state=0, gram_cap=cap)
                    # Of a Dask array, as of a store, X'LX would be a reading and more.
                    source = X if way == "in memory" else da.from_array(X, chunks=-1)
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")
                        took = selector.fit(source, labels).report_
                    rows[label] = {
                        "passes": took.passes,
                        "iterations": took.iterations,
                        "converged": took.converged,
                    }
                    if "expansions" in took.extra:
                        rows[label]["widenings"] = float(np.mean(took.extra["expansions"]))
                    tell(label, rows[label])
    finish(
        options,
        "readings",
        "Readings of X until the loop ends, at the defaults. Of access-mfs each time that the space of W is widened "
        "takes two; in memory, R is factorised with the graph of rows. Rows or entries: 30 % of the rows, or of all "
        "entries, are known",
        rows,
    )


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


def finish(options: argparse.Namespace, name: str, description: str, rows: dict[str, dict[str, Any]]) -> None:
    """Keep the results; those of methods that were not run stay as they are."""
    path = RESULTS / "iterative" / f"{name}.json"
    if path.exists():
        rows = {**json.loads(path.read_text())["rows"], **rows}
    measuring.report("gram", path.parent, name, description, {label: rows[label] for label in sorted(rows, key=place)})


def cap_of(method: str, d: int, formed: bool) -> int:
    """A cap by which X'X is formed, or not: smfs then has it of 2048 features at most, and of not all."""
    if formed:
        return d
    return min(2048, d - 1) if method == "smfs" else 0


def fitted(store: Path, method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    code = FIT.format(store=str(store), method=method, parameters=parameters, searches=SEARCHES)
    return in_process(code, repeats=1)


def tell(label: str, facts: dict[str, Any]) -> None:
    print(
        f"  {label}: " + ", ".join(f"{key} {value:,.4g}" for key, value in facts.items() if key != "all_seconds"),
        flush=True,
    )


if __name__ == "__main__":
    benchmarks = {f.__name__: f for f in (cap, readings)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=benchmarks)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--features", nargs="+", type=int, default=FEATURES, help="of `cap`")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=[name for name in SETS if name != "delicious"])
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    benchmarks[arguments.name](arguments)
