"""The iterative selectors with X'X formed and without it: what each costs, and how often they read the data.

    python benchmarks/gram.py cap | readings | predicted [--folder DIR] [--methods NAME ...] [--features D ...]
                              [--sets NAME ...]

`cap` fits stores of a planted structure with more and more features, dense and sparse, both ways, each fit in a process
of its own: the default of `gram_cap` is from there. `readings` fits real sets ($MLFS_DATA, as in real_sets.py) both
ways and counts: what plans call typical is from there. `predicted` fits real sets, and planted rows, with predicted
sums between passes and without (`steps_per_pass=1`, `stop="objective"`), and prints passes of the loop, the objective
relative to that without and the pass that reaches it, agreement of the rankings, and average precision; of `uafs-bh`
also the agreement with the ranking at the end of the loop without (`tol=1e-7`). All with anchors. Results are
printed and written to benchmarks/results/iterative/NAME.json with the versions and the machine.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from iterative import KEPT, METHODS, cases_with_stores, place
from measuring import brief, in_process, warm_pages
from real_sets import QUICK, SETS, make_store
from scipy.sparse import csr_array
from scipy.stats import spearmanr
from sklearn.metrics import label_ranking_average_precision_score
from sklearn.neighbors import NearestNeighbors

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
    "predicted": "Passes of the loop with predicted sums and without, objective and rankings relative to these. "
    "Labels: smfs 30 % of the entries, access-mfs 30 % of the rows, others all. Precision by 10 nearest rows, 3 folds",
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
        X, Y = arrays_of(name, options.folder)
        for method in options.methods:
            for state, labels in states(method, Y).items():
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


#: Methods with predicted sums, and what lets a loop without go on to its end.
PREDICTED, END = (*METHODS, "smlfs", "uafs-bh"), {"tol": 1e-7, "max_iter": 400}

#: Rows of the planted set of `predicted`.
PLANTED = "planted", 20_000


def predicted(options: argparse.Namespace) -> None:
    rows: dict[str, dict[str, Any]] = {}
    for name in (*options.sets, PLANTED[0]):
        X, Y = planted(PLANTED[1]) if name == PLANTED[0] else arrays_of(name, options.folder)
        k = max(1, X.shape[1] // 5)
        for method in options.methods:
            labels = list(states(method, Y).values())[-1]  # smfs: entries, access-mfs: rows
            found, before = {}, {"steps_per_pass": 1, "stop": "objective"}
            ways: dict[str, dict[str, Any]] = {"before": before, "now": {}}
            if method == "uafs-bh":
                ways["end"] = before | END
            for way, parameters in ways.items():
                graph = {"graph": "anchors"} if method in METHODS else {}
                selector = get_estimator(method)(k, random_state=0, **graph, **parameters)
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    started = time.process_time()
                    selector.fit(csr_array(X) if np.mean(X != 0) < 0.3 else X, labels)
                found[way] = selector, time.process_time() - started
            before, now, *_ = (each.report_ for each, _ in found.values())
            scores = [each.scores_ for each, _ in found.values()]
            reached = (i + 1 for i, value in enumerate(now.objective) if value <= before.objective[-1])
            best = [set(np.argsort(-each, kind="stable")[:k]) for each in scores]
            label = f"{method}, {name}"
            rows[label] = {
                "passes_before": before.iterations,
                "passes": now.iterations,
                "steps": 1 + int(sum(now.extra.get("steps", []))),
                "rises": int(sum(now.extra.get("rose", []))),
                "objective": now.objective[-1] / before.objective[-1] - 1.0,
                "passes_to_objective_before": next(reached, None),
                "spearman": agreement(*scores[:2]),
                "best_fifth": len(best[0] & best[1]) / k,
                "precision_before": precision(X, Y, scores[0]),
                "precision": precision(X, Y, scores[1]),
                "cpu_seconds_before": found["before"][1],
                "cpu_seconds": found["now"][1],
            }
            if "end" in found:
                rows[label]["spearman_to_end_before"] = agreement(scores[0], scores[2])
                rows[label]["spearman_to_end"] = agreement(scores[1], scores[2])
            print(f"  {label}: {brief(rows[label])}", flush=True)
    finish(options, "predicted", rows)


def agreement(scores: np.ndarray, others: np.ndarray) -> float:
    """Spearman's correlation of two rankings."""
    return float(spearmanr(scores, others).statistic)


def arrays_of(name: str, folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """X and Y of a real set, dense."""
    dataset = open_dataset(make_store(name, folder))
    X, Y = (array.compute() for array in (dataset.X, dataset.Y))
    X, Y = (array.todense() if hasattr(array, "todense") else array for array in (X, Y))
    return np.asarray(X), np.asarray(Y, dtype=np.int8)


def planted(n: int) -> tuple[np.ndarray, np.ndarray]:
    """n rows of 200 features and 20 labels that follow 8 hidden factors."""
    rng = np.random.default_rng(11)
    hidden = rng.normal(size=(n, 8))
    X = hidden @ (rng.normal(size=(8, 200)) * (rng.random((8, 200)) < 0.3)) + rng.normal(size=(n, 200))
    S = hidden @ rng.normal(size=(8, 20)) + rng.normal(size=(n, 20))
    return X.astype(np.float32), (S.std(axis=0) * rng.uniform(0.3, 1.8, 20) < S).astype(np.int8)


def precision(X: np.ndarray, Y: np.ndarray, scores: np.ndarray) -> float:
    """Label-ranking average precision of the 10 nearest rows, three folds, the best 10, 20 and 30 % of the features.

    Features were chosen with all rows: to compare, not to report.
    """
    rng = np.random.default_rng(5)
    kept = rng.permutation(len(X))[:6000]
    X, Y = X[kept].astype(np.float64), Y[kept]
    X = (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0)
    fold, some, found = rng.integers(0, 3, len(X)), Y.any(axis=1), []
    for share in (0.1, 0.2, 0.3):
        best = np.argsort(-scores, kind="stable")[: max(1, int(X.shape[1] * share))]
        for number in range(3):
            train, test = fold != number, (fold == number) & some
            near = NearestNeighbors(n_neighbors=10).fit(X[train][:, best])
            votes = Y[train][near.kneighbors(X[test][:, best], return_distance=False)].mean(axis=1)
            found.append(label_ranking_average_precision_score(Y[test], votes + 1e-9 * Y[train].mean(axis=0)))
    return float(np.mean(found))


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
    }.get(method, {"all": Y})


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
    benchmarks = {f.__name__: f for f in (cap, readings, predicted)}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=benchmarks)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--methods", nargs="+", choices=PREDICTED, help="default: all")
    parser.add_argument("--features", nargs="+", type=int, default=FEATURES, help="of `cap`")
    parser.add_argument("--sets", nargs="+", choices=SETS, default=QUICK, help="of `readings` and `predicted`")
    parser.add_argument("--results", type=Path, default=KEPT, help="where NAME.json is written")
    parser.set_defaults(clean=False)
    arguments = parser.parse_args()
    arguments.methods = arguments.methods or (PREDICTED if arguments.name == "predicted" else METHODS)
    arguments.folder.mkdir(parents=True, exist_ok=True)
    benchmarks[arguments.name](arguments)
