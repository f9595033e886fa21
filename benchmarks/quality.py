"""Average precision of ML-kNN on what the methods choose: their defaults, and the neighbours of these, as batches.

    python benchmarks/quality.py methods                      # every method's defaults, all sets
    python benchmarks/quality.py elc emotions birds           # λ, β and mask_iter of ELC on two sets; some minutes
    python benchmarks/quality.py methods --write benchmarks/results/quality.md

Five folds; k = 10 %, 20 %, ..., 90 % of the features; everything else as `mlfs evaluate` does it. Rankings are learnt
on the training rows and judged on the others. The batches lie in a folder (--folder) and go on where they were
interrupted. The defaults of every method have to do better than random features on average, or the program ends with 1.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pandas as pd
from real_sets import QUICK, SETS, make_store, markdown, replace_table
from scipy import sparse as sp

import mlfs_dask as mlfs
from mlfs_dask.evaluation.results import read_eval, write_eval
from mlfs_dask.evaluation.simulation import as_unknown, simulate
from mlfs_dask.solvers.row_sparse_regression import BETA_FRACTION

JUDGED = {"folds": 5, "k_grid": "10%:90%:10%", "metrics": ["average_precision"]}

#: Sets of all tables.
NAMES = QUICK

#: Permutations of the features for every fold, as so many repeats with folds of their own.
RANDOM_REPEATS = 5

#: States of the training labels that methods see. Classifiers learn from all of them: the choice alone is judged.
STATES: dict[str, dict[str, Any]] = {
    "all labels": {},
    "30 % of the rows labelled": {"labelled_rows": 0.3, "classifier_labels": "full"},
    "30 % labelled, 20 % of their positives missing, as 0": {
        "labelled_rows": 0.3,
        "missing_labels": 0.2,
        "hidden_as": "zero",
        "classifier_labels": "full",
    },
    "40 % of the rows labelled": {"labelled_rows": 0.4, "classifier_labels": "full"},
}
ALL_LABELS, FEW_ROWS, MISSING, SOME_ROWS = STATES


@dataclass(frozen=True)
class Table:
    """Entries of `methods` in a plan, for a store and a state; and the states.

    The first entry stands for the defaults, with which the others are compared; where `over_random`, all of them are
    defaults, and are compared with random features. With `over_methods`, a row is the mean over methods.
    """

    methods: Callable[[str, str], Sequence[Any]]
    states: Sequence[str] = (ALL_LABELS,)
    over_random: bool = False
    over_methods: bool = False
    judged: Callable[[str], Mapping[str, Any]] = lambda name: JUDGED
    sets: Sequence[str] = NAMES

    def row_of(self, run: str) -> str:
        """The row that a run counts in: its settings alone where methods are averaged over."""
        return run.partition(" ")[2] if self.over_methods else run


def defaults(*methods: str) -> Callable[[str, str], Sequence[Any]]:
    """Methods as they are."""
    return lambda store, state: methods


def variants(method: str, *settings: Mapping[str, Any]) -> Callable[[str, str], Sequence[Any]]:
    """A method's defaults and others; "q" stands for the number of labels."""

    def entries(store: str, state: str) -> list[Any]:
        q = mlfs.open_dataset(store).Y.shape[1]
        return [method] + [
            entry(method, setting, {name: q if value == "q" else value for name, value in setting.items()})
            for setting in settings
        ]

    return entries


def entry(method: str, told: Mapping[str, Any], params: Mapping[str, Any]) -> dict[str, Any]:
    """An entry with a name that says how it differs from the defaults."""
    name = " ".join(f"{name.strip('_')}={value}" for name, value in told.items())
    return {"method": method, "name": f"{method} {name}", "params": params}


def smfs_variants(store: str, state: str) -> list[Any]:
    """SMFS with α and β as multiples of what its defaults are on this set, with labels in this state."""
    dataset = mlfs.open_dataset(store)
    X, Y = (np.asarray(a.todense() if hasattr(a, "todense") else a) for a in dask.compute(dataset.X, dataset.Y))
    shown = STATES[state]
    shares = {name: shown[name] for name in ("missing_labels", "labelled_rows") if name in shown}
    seen = simulate(sp.csr_array(Y.astype(np.int8)), random=np.random.default_rng(0), **shares)
    labels = seen.Y if shown.get("hidden_as") == "zero" else as_unknown(seen.Y, seen.labelled)
    found = mlfs.SMFS(1, max_iter=1).fit(X, labels.toarray()).report_.extra
    # A weight of a row is one by the rows with its labels: larger in a training part.
    alpha, beta = found["alpha"] * JUDGED["folds"] / (JUDGED["folds"] - 1), found["beta"] / BETA_FRACTION
    return [
        "smfs",
        *(entry("smfs", {"beta": share}, {"beta": share * beta}) for share in (0.01, 0.03, 0.3)),
        *(entry("smfs", {"alpha": factor}, {"alpha": factor * alpha}) for factor in (0.1, 10)),
    ]


TABLES = {
    "methods": Table(
        defaults("label-entropy", "enm", "gmm", "elc", "mfsir", "smfs", "access-mfs"),
        states=(ALL_LABELS, FEW_ROWS),
        over_random=True,
    ),
    "access-mfs": Table(
        variants(
            "access-mfs",
            {"lambda_": 0.1},
            {"lambda_": 10.0},
            {"theta": 0.0},
            {"theta": 10.0},
            {"mu": 0.0},
            {"mu": 10.0},
            {"theta": 0.0, "mu": 0.0},
        ),
        states=(FEW_ROWS,),
    ),
    "elc": Table(
        variants(
            "elc",
            {"variant": "screen"},
            {"variant": "published"},
            {"lambda_": 0.01},
            {"lambda_": 0.3},
            {"beta": 0.1},
            {"beta": 10.0},
            {"mask_iter": 0},
            {"mask_iter": 1000},
        )
    ),
    "smfs": Table(smfs_variants, states=(ALL_LABELS, MISSING, FEW_ROWS)),
    "mfsir": Table(
        variants(
            "mfsir",
            {"alpha": 0.1},
            {"alpha": 10.0},
            {"beta": 0.0},
            {"beta": 10.0},
            {"n_latent": 1},
            {"n_latent": "q"},
            {"tol": 1e-2},
            {"gram_cap": 0},
            {"step": "fixed", "max_iter": 200},
        )
    ),
    "sfs-bll": Table(
        lambda store, state: [
            *variants("sfs-bll", *({"gamma": gamma} for gamma in (0.1, 0.2, 0.3, 0.5, 1.0)))(store, state),
            "rfs",
        ],
        states=(SOME_ROWS,),
        judged=lambda name: JUDGED | {"k_grid": "10%"},
    ),
}


#: Codes of the methods that count: of equal width and of equal shares of the rows, and the default's.
CODES = (("equal-width", 2), ("quantile", 2), ("auto", 2), ("auto", 3), ("auto", 5), ("auto", 8))

#: Sets with features that are not 0/1, which alone have codes to choose.
NUMERIC = (
    "emotions",
    "birds",
    "yeast",
    "scene",
    "yahoo-arts",
    "yahoo-business",
    "yahoo-education",
    "yahoo-computers-5000",
)


def coded(store: str, state: str) -> list[Any]:
    """Methods that count, with every kind of codes."""
    return [
        entry(method, params, params)
        for method in ("chi2", "label-entropy", "fimf", "mrmr")
        for params in ({"binning": binning, "bins": bins} for binning, bins in CODES)
    ]


def codes_table(classifier: str) -> Table:
    """Codes compared by a classifier, over methods."""

    def judged(name: str) -> dict[str, Any]:
        grid = "100" if name.startswith("yahoo") else "10%:70%:20%"
        return {"folds": 3, "k_grid": grid, "metrics": ["average_precision"], "classifiers": [classifier]}

    return Table(coded, over_methods=True, judged=judged, sets=NUMERIC)


TABLES |= {"codes": codes_table("mlknn"), "codes-logistic": codes_table("logistic")}


def judge(table: str, name: str, state: str, folder: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Results and fits of one set and state, every row with its state."""
    store = make_store(name, folder)
    place = folder / table / f"{name}.{list(STATES).index(state)}"
    place.parent.mkdir(exist_ok=True)
    plan = {
        "stores": store,
        "methods": TABLES[table].methods(store, state),
        "evaluation": {**TABLES[table].judged(name), **STATES[state]},
    }
    found = mlfs.run_batch(plan, place, resume=True)
    if found.failed:
        sys.exit(f"failed: {', '.join(found.failed)}; see {place / 'jobs.csv'}")
    fits = pd.concat([read_eval(place / "jobs" / job).fits for job in found.results["job"].unique()])
    return found.results.assign(state=state), fits.assign(state=state)


def judge_random(table: str, name: str, folder: Path) -> float:
    """Mean with random features."""
    judged = TABLES[table].judged(name)
    place = folder / ("random" if judged is JUDGED else f"random-{table}") / name
    if not place.exists():
        place.parent.mkdir(exist_ok=True)
        write_eval(str(place), mlfs.evaluate(make_store(name, folder), "random", repeats=RANDOM_REPEATS, **judged))
    return float(read_eval(place).results["value"].mean())


def difference(values: Sequence[float], others: Sequence[float]) -> str:
    """Mean difference in points, its standard error over sets, and on how many sets it is above and below 0."""
    points = 100 * (np.array(values) - np.array(others))
    error = f" ± {points.std(ddof=1) / np.sqrt(len(points)):.1f}" if len(points) > 1 else ""
    return f"{points.mean():+.1f}{error} ({(points > 0.05).sum()}/{(points < -0.05).sum()})"


def cost(fits: pd.DataFrame) -> list[str]:
    """Iterations, and how many did not converge."""
    taken = fits["iterations"].dropna()
    iterations = f"{taken.mean():.0f} ({taken.max():.0f})" if taken.max() else ""
    loops = fits["converged"].dropna().astype(bool)
    return [iterations, f"{(~loops).sum()}/{len(loops)}" if len(loops) else ""]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", choices=TABLES)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="default: all")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks/quality"))
    parser.add_argument("--write", type=Path, help="replace the table of that name in this Markdown file")
    options = parser.parse_args()
    table = TABLES[options.table]
    names = options.sets or list(table.sets)
    options.folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the table says what did not converge
        random = [judge_random(options.table, name, options.folder) for name in names]
        parts = []
        for name in names:
            parts += [judge(options.table, name, state, options.folder) for state in table.states]
            print(f"{name} done", file=sys.stderr, flush=True)
    results, fits = (pd.concat(frames) for frames in zip(*parts, strict=True))
    results["run"], fits["run"] = (frame["run"].map(table.row_of) for frame in (results, fits))
    means = results.groupby(["state", "run", "dataset"])["value"].mean()

    against = "random" if table.over_random else "first row" if table.over_methods else "defaults"
    header = ["method", *names, "mean", f"over {against}, points", "iterations (most)"]
    header.append("not converged")
    rows = [["random", *(f"{value:.4f}" for value in random), f"**{np.mean(random):.4f}**", "", "", ""]]
    worse = []
    for state in table.states:
        if len(table.states) > 1:
            rows.append([f"*{state}*", *[""] * (len(header) - 1)])
        runs = list(dict.fromkeys(results[results["state"] == state]["run"]))
        first = [means[state, runs[0], name] for name in names]
        for run in runs:
            values = [means[state, run, name] for name in names]
            mine = fits[(fits["state"] == state) & (fits["run"] == run)]
            others = random if table.over_random else first
            told = "" if others is first and run == runs[0] else difference(values, others)
            cells = [f"{value:.4f}" for value in values]
            rows.append([run, *cells, f"**{np.mean(values):.4f}**", told, *cost(mine)])
            if (table.over_random or (run == runs[0] and not table.over_methods)) and np.mean(values) <= np.mean(
                random
            ):
                worse.append(f"{run} ({state})")
    text = markdown(header, rows)
    print(text)
    if options.write:
        replace_table(options.write, options.table, text)
    if worse:
        sys.exit(f"no better than random features: {', '.join(worse)}")


if __name__ == "__main__":
    main()
