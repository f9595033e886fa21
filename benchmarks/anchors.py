"""Average precision of ML-kNN on what the iterative methods choose with anchors, beside the exact graphs.

    python benchmarks/anchors.py quality                  # both graphs at the defaults, real sets
    python benchmarks/anchors.py quality emotions birds   # two of them, a minute or two
    python benchmarks/anchors.py repeated                 # what is worse with anchors there, on other folds
    python benchmarks/anchors.py grid                     # anchors and neighbours a row, four sets

`mlfs.evaluate` judges: five folds of a fixed seed, k = 10, 30, 50 and 70 % of the features; the value of a fold is the
mean over k, so that both graphs are compared fold by fold. Labels are known of all training rows, or of 30 % of them
(not for mfsir, which takes no unknown labels); classifiers learn from all labels, so that the choice alone is judged.
Where labelled rows are known in all labels, the graph of smfs has no part in its choice: it is also told 0 for all that
is unknown, with 20 % of the positives missing, as in its paper.

A cell (a set, a method, labels, a graph) runs in a process of its own, and leaves a file in the folder: an interrupted
program goes on where it was. Before a cell is judged, one fit of the whole set is timed; where it takes longer than
--fit-limit, or judging longer than --judge-limit, the cell is left out and the table says why. Results are printed and
written to benchmarks/results/iterative/anchors-NAME.json. Sets are read from $MLFS_DATA, as in real_sets.py.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from real_sets import SETS, make_store
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask.selection.estimator import get_estimator

KEPT = measuring.RESULTS / "iterative"

JUDGED = {"folds": 5, "k_grid": "10%,30%,50%,70%", "metrics": ["average_precision"]}

STATES: dict[str, dict[str, Any]] = {
    "all": {},
    "rows": {"labelled_rows": 0.3, "classifier_labels": "full"},
    "missing": {"labelled_rows": 0.3, "missing_labels": 0.2, "hidden_as": "zero", "classifier_labels": "full"},
}
STATE_NAMES = {"all": "all labels", "rows": "30 % of the rows", "missing": "20 % of positives missing"}

#: Methods, and what they are told of the labels.
QUALITY = (
    ("mfsir", "all"),
    ("smfs", "all"),
    ("smfs", "rows"),
    ("smfs", "missing"),
    ("access-mfs", "all"),
    ("access-mfs", "rows"),
)
GRID = (("mfsir", "all"), ("smfs", "missing"), ("access-mfs", "all"), ("access-mfs", "rows"))

GRID_SETS = ("emotions", "birds", "yeast", "scene")
GRID_ANCHORS = (100, 300, 1000)
GRID_NEIGHBORS = (1, 3, 5)

DESCRIPTIONS = {
    "quality": "ML-kNN average precision, mean over k = 10, 30, 50, 70 % of the features and five folds; difference of "
    "anchors to exact in points, ± its standard error over folds, or over sets in the rows of means. Seconds and "
    "iterations are means of the fits on training rows, in process",
    "repeated": "The cells of the table above that are worse with anchors by more than two standard errors, judged "
    "again on five folds of each of REPEATS other splits, with as many other draws of the anchors; ± is over all folds",
    "grid": "The same with m anchors, of which a row belongs to s. m is at most a quarter of the training rows: 118 on "
    "emotions, 129 on birds, 483 on yeast, 481 on scene. The difference is the mean over the sets that have a value, ± "
    "the standard error that the folds of these sets give it",
}


@dataclass(frozen=True)
class Cell:
    """What one process judges. Anchors and neighbours are 0 for the exact graph."""

    dataset: str
    method: str
    state: str
    graph: str
    n_anchors: int = 0
    anchor_neighbors: int = 0
    repeats: int = 0  #: splits of seeds 1, 2, ... in place of the one of seed 0

    @property
    def key(self) -> str:
        """Name of its file."""
        anchors = f".m{self.n_anchors}.s{self.anchor_neighbors}" if self.graph == "anchors" else ""
        again = f".r{self.repeats}" if self.repeats else ""
        return f"{self.dataset}.{self.method}.{self.state}.{self.graph}{anchors}{again}"

    @property
    def params(self) -> dict[str, Any]:
        """What the selector is told."""
        if self.graph == "exact":
            return {"graph": "exact"}
        return {"graph": "anchors", "n_anchors": self.n_anchors, "anchor_neighbors": self.anchor_neighbors}


def with_defaults(dataset: str, method: str, state: str) -> Cell:
    """The cell with as many anchors and neighbours as the method has by default."""
    defaults = get_estimator(method)().get_params()
    return Cell(dataset, method, state, "anchors", defaults["n_anchors"], defaults["anchor_neighbors"])


# ---------------------------------------------------------------------------------------------------------
# In a process of its own


def fit_once(cell: Cell, store: str) -> dict[str, Any]:
    """Seconds of one fit on all rows, with labels as the cell has them."""
    dataset = mlfs.open_dataset(store)
    X, Y = (array.compute() for array in (dataset.X, dataset.Y))
    X = sp.csr_array(X.to_scipy_sparse()) if hasattr(X, "to_scipy_sparse") else X
    Y = np.array(Y.todense() if hasattr(Y, "todense") else Y, dtype=np.int8)
    if cell.state != "all":
        Y[np.random.default_rng(0).random(len(Y)) >= STATES[cell.state]["labelled_rows"]] = (
            0 if cell.state == "missing" else -1
        )
    selector = get_estimator(cell.method)(10, random_state=0, **cell.params)
    started = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        selector.fit(X, Y)
    return {"fit_seconds": time.perf_counter() - started}


def judge(cell: Cell, store: str) -> dict[str, Any]:
    """Values of every fold, means over k, and what the fits took."""
    told = ",".join(f"{name}={value}" for name, value in cell.params.items())
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        splits = {"seed": 1, "repeats": cell.repeats} if cell.repeats else {"seed": 0}
        found = mlfs.evaluate(store, f"{cell.method}:{told}", **JUDGED, **splits, **STATES[cell.state])
    fits = found.fits
    return {
        "values": found.results.groupby(["repeat", "fold"])["value"].mean().tolist(),
        "seconds": float(fits["seconds"].mean()),
        "iterations": float(fits["iterations"].mean()),
        "most_iterations": int(fits["iterations"].max()),
        "not_converged": int((~fits["converged"].astype(bool)).sum()),
    }


# ---------------------------------------------------------------------------------------------------------
# Cells, kept


def run(cell: Cell, options: argparse.Namespace) -> dict[str, Any]:
    """The result of a cell, from its file where it is there; what was left out under other limits is tried again."""
    path = options.folder / "cells" / f"{cell.key}.json"
    limits = [options.fit_limit, options.judge_limit]
    if path.exists():
        found: dict[str, Any] = json.loads(path.read_text())
        if "skipped" not in found or found["limits"] == limits:
            return found
    if options.finished:
        return {"skipped": "not run"}
    store = make_store(cell.dataset, options.folder)
    found = {}
    for part, limit in (("fit_once", options.fit_limit), ("judge", options.judge_limit)):
        command = [sys.executable, __file__, "cell", "--cell", json.dumps([part, asdict(cell), store])]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=limit)
        except subprocess.TimeoutExpired:
            what = "a fit" if part == "fit_once" else "judging"
            found = {"skipped": f"{what} takes more than {limit:g} s", "limits": limits}
            break
        if done.returncode:
            sys.exit(f"{cell.key}: {done.stderr}")
        found |= json.loads(done.stdout.splitlines()[-1])
    path.parent.mkdir(exist_ok=True)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(found, indent=1) + "\n")
    partial.replace(path)
    told = found.get("skipped") or f"{np.mean(found['values']):.4f}, {found['seconds']:.2f} s a fit"
    print(f"  {cell.key}: {told}", flush=True)
    return found


def quality(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Exact beside anchors, set by set, and means over the sets that have both."""
    rows = kept_rows(options, "quality", others=True) if options.merge else {}
    for name in options.sets or [name for name in SETS if name != "delicious"]:
        for method, state in QUALITY:
            cell = with_defaults(name, method, state)
            exact, anchors = run(replace(cell, graph="exact"), options), run(cell, options)
            rows[f"{method}, {STATE_NAMES[state]}, {name}"] = beside(exact, anchors)
    ordered: dict[str, dict[str, Any]] = {}
    for method, state in QUALITY:
        start = f"{method}, {STATE_NAMES[state]}, "
        own = {label: row for label, row in rows.items() if label.startswith(start)}
        ordered |= own
        if found := [row for row in own.values() if "difference" in row]:
            means = {name: float(np.mean([row[name] for row in found])) for name in ("exact", "anchors")}
            ordered[f"{start}mean of {len(found)}"] = {**means, **spread([row["difference"] for row in found])}
    return ordered


def kept_rows(options: argparse.Namespace, table: str, *, others: bool) -> dict[str, dict[str, Any]]:
    """Rows of a kept table, of the sets that are asked for or of the others."""
    kept = json.loads((options.results / f"anchors-{table}.json").read_text())["rows"]
    asked = options.sets or list(SETS)
    names = [name for name in SETS if (name in asked) != others]
    return {label: row for label, row in kept.items() if label.rpartition(", ")[2] in names}


def beside(exact: dict[str, Any], anchors: dict[str, Any]) -> dict[str, Any]:
    """Both in one row: means, the difference fold by fold in points, and what the fits took."""
    row: dict[str, Any] = {}
    for graph, found in (("exact", exact), ("anchors", anchors)):
        if "skipped" in found:
            row["skipped"] = "; ".join(filter(None, (row.get("skipped"), f"{graph}: {found['skipped']}")))
            continue
        row[graph] = float(np.mean(found["values"]))
        row[f"{graph}_seconds"], row[f"{graph}_iterations"] = found["seconds"], found["iterations"]
    if "skipped" not in row:
        row |= spread((100 * np.subtract(anchors["values"], exact["values"])).tolist())
    return row


def spread(points: Sequence[float]) -> dict[str, float | None]:
    """Mean of differences and its standard error."""
    error = float(np.std(points, ddof=1) / np.sqrt(len(points))) if len(points) > 1 else None
    return {"difference": float(np.mean(points)), "error": error}


def repeated(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Other splits of what `quality` has found worse by more than two standard errors."""
    rows = kept_rows(options, "repeated", others=True) if options.merge else {}
    for label, row in kept_rows(options, "quality", others=False).items():
        if "difference" not in row or row["difference"] >= -2 * row["error"]:
            continue
        method, state, name = label.split(", ")
        state = next(key for key, words in STATE_NAMES.items() if words == state)
        cell = replace(with_defaults(name, method, state), repeats=options.repeats)
        exact = replace(cell, graph="exact", n_anchors=0, anchor_neighbors=0)
        row = beside(run(exact, options), run(cell, options))
        rows[label] = {key: value for key, value in row.items() if not key.endswith("_seconds")}
    return rows


def grid(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """A row for the exact graph, and one for every m and s."""
    names = options.sets or GRID_SETS
    rows: dict[str, dict[str, Any]] = {}
    for method, state in GRID:
        for label, cells in grid_cells(method, state, names):
            found = [run(cell, options) for cell in cells]
            values = {
                name: float(np.mean(each["values"])) if "values" in each else None
                for name, each in zip(names, found, strict=True)
            }
            if not any(values.values()):
                continue
            row = rows[f"{method}, {STATE_NAMES[state]}, {label}"] = {"of_sets": values}
            if all(value is not None for value in values.values()):
                row["mean"] = float(np.mean(list(values.values())))
            if label == "exact":
                exact = found
            both = [
                spread((100 * np.subtract(one["values"], other["values"])).tolist())
                for one, other in zip(found, exact, strict=True)
                if label != "exact" and "values" in one and "values" in other
            ]
            if both:
                row["difference"] = float(np.mean([each["difference"] for each in both]))
                row["error"] = float(np.linalg.norm([each["error"] or 0.0 for each in both])) / len(both)
    return rows


def grid_cells(method: str, state: str, names: Sequence[str]) -> Iterator[tuple[str, list[Cell]]]:
    """Labels of rows and their cells, the exact graph first."""
    yield "exact", [Cell(name, method, state, "exact") for name in names]
    for m in GRID_ANCHORS:
        for s in GRID_NEIGHBORS:
            yield f"m = {m}, s = {s}", [Cell(name, method, state, "anchors", m, s) for name in names]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=[*DESCRIPTIONS, "cell"], metavar="{quality,repeated,grid}")
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="default: all, or those of the grid")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks/anchors"))
    parser.add_argument("--fit-limit", type=float, default=60.0, help="seconds of one fit, imports included")
    parser.add_argument("--judge-limit", type=float, default=1800.0, help="seconds of judging one cell")
    parser.add_argument("--repeats", type=int, default=3, help="other splits of `repeated`")
    parser.add_argument("--finished", action="store_true", help="run nothing: the table of the cells in the folder")
    parser.add_argument("--merge", action="store_true", help="not `grid`: keep the rows of the sets that are not named")
    parser.add_argument("--results", type=Path, default=KEPT, help="where anchors-NAME.json is written")
    parser.add_argument("--cell", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.cell is not None:
        part, cell, store = json.loads(options.cell)
        print(json.dumps({"fit_once": fit_once, "judge": judge}[part](Cell(**cell), store)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    rows = {"quality": quality, "repeated": repeated, "grid": grid}[options.table](options)
    described = DESCRIPTIONS[options.table].replace("REPEATS", str(options.repeats))
    measuring.report("anchors", options.results, f"anchors-{options.table}", described, rows)


if __name__ == "__main__":
    main()
