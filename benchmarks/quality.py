"""Average precision of ML-kNN on what every method chooses, its defaults beside their neighbours.

    python benchmarks/quality.py                           # all sets and methods; about half an hour on one core
    python benchmarks/quality.py emotions birds            # two of them; a minute
    python benchmarks/quality.py --methods mfsir --write docs/quality.md

Five folds; k = 10 %, 20 %, ..., 90 % of the features; features standardised with the training rows' moments; ML-kNN
with 10 neighbours and smoothing 1. Rankings are learnt on the training rows and judged on the others. All labels of the
training rows are given, or, where a setting says "labelled", those of a share of the rows, drawn at random; the others
are unknown (-1). Each method's first setting is its defaults; they have to do better than random features on average,
with all labels and with fewer, or the program ends with 1. With --write the lines of other methods stay as they are.
"""

from __future__ import annotations

import argparse
import csv
import os
import sys
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from judging import (
    FOLDS,
    RANDOM_DRAWS,
    SETS,
    Job,
    Judge,
    make_store,
    random_ranking,
    read_fold,
    replace_table,
    table_of,
)

from mlfs_dask import __version__
from mlfs_dask.selectors import METHODS, get_method

#: What is tried of each method, the defaults first. "q" stands for the number of labels, and "labelled" for the share
#: of the training rows whose labels are given.
SETTINGS: dict[str, list[dict[str, Any]]] = {
    "label-entropy": [{}],
    "mfsir": [
        {},
        {"alpha": 0.1},
        {"alpha": 10},
        {"alpha": 100},
        {"beta": 0},
        {"beta": 0.1},
        {"beta": 10},
        {"n_latent": 1},
        {"n_latent": "q"},
        {"n_neighbors": 15},
        {"tol": 1e-2},
        {"tol": 1e-4, "max_iter": 500},
        {"gram_cap": 0},
        {"step": "fixed", "max_iter": 200, "random_state": 0},
    ],
    "smfs": [{}, {"labelled": 0.3}],
    "access-mfs": [{}, {"labelled": 0.3}, {"labelled": 0.3, "lambda_": 0.1}, {"labelled": 0.3, "lambda_": 10}],
}


@dataclass(frozen=True)
class Result:
    """One ranking, judged."""

    set: str
    fold: int
    method: str
    setting: str
    average_precision: float
    seconds: float = 0.0
    iterations: int = 0
    passes: int = 0
    converged: bool | None = None


def run_job(methods: list[str], job: Job) -> list[Result]:
    """Random features and all settings of the methods on one fold."""
    fold = read_fold(job)
    judge = Judge(fold)
    d, q = fold.X.shape[1], fold.Y.shape[1]
    results = [
        Result(job.name, job.fold, "random", "", judge.mean_precision(random_ranking(d, job.fold, draw)))
        for draw in range(RANDOM_DRAWS)
    ]
    for method in methods:
        for setting in SETTINGS[method]:
            given = {name: q if value == "q" else value for name, value in setting.items()}
            Y = with_labels(fold.Y, given.pop("labelled", 1.0), job.fold)
            selector = get_method(method)(1, **given)
            started = time.perf_counter()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the table says what did not converge
                selector.fit(fold.X, Y)
            seconds = time.perf_counter() - started
            report = selector.report_
            results.append(
                Result(
                    *(job.name, job.fold, method),
                    " ".join(f"{name}={value}" for name, value in setting.items()),
                    judge.mean_precision(selector.ranking_),
                    seconds,
                    report.iterations,
                    report.passes,
                    report.converged,
                )
            )
    return results


def with_labels(Y: np.ndarray, share: float, fold: int) -> np.ndarray:
    """Labels of a share of the rows, the others unknown; with a smaller share a part of the same rows."""
    Y = Y.copy()
    Y[np.random.default_rng([1, fold]).random(len(Y)) >= share] = -1
    return Y


def table(results: list[Result], names: list[str]) -> list[str]:
    """Mean average precision by method and set, and what it took, as lines of Markdown."""
    columns = ["method", *names, "mean", "iterations (most)", "passes (most)", "not converged"]
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "---:|" * (len(columns) - 1)]
    for method, setting in dict.fromkeys((r.method, r.setting) for r in results):
        mine = [r for r in results if (r.method, r.setting) == (method, setting)]
        means = [np.mean([r.average_precision for r in mine if r.set == name]) for name in names]
        cells = [f"{method} {setting}".strip(), *(f"{m:.4f}" for m in means), f"**{np.mean(means):.4f}**"]
        if method == "random":
            cells += [""] * 3
        else:
            for values in ([r.iterations for r in mine], [r.passes for r in mine]):
                cells.append(f"{np.mean(values):.0f} ({max(values)})" if max(values) else "")
            loops = [r for r in mine if r.converged is not None]
            cells.append(f"{sum(not r.converged for r in loops)}/{len(loops)}" if loops else "")
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def merged(new: list[str], old: list[str]) -> list[str]:
    """The new lines, and those of the old table that are about other methods."""
    if old[:1] != new[:1]:
        return new
    method = {line: line.split("|")[1].split()[0] for line in [*new[2:], *old[2:]]}
    fresh = {method[line] for line in new[2:]}
    lines = [*new[2:], *(line for line in old[2:] if method[line] not in fresh)]
    order = ["random", *SETTINGS]
    return [*new[:2], *sorted(lines, key=lambda line: order.index(method[line]))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="default: all")
    here = [method for method in SETTINGS if method in METHODS]
    parser.add_argument("--methods", nargs="+", choices=here, default=here)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--csv", type=Path, help="write every result here")
    parser.add_argument("--write", type=Path, help="replace the table between the markers of this Markdown file")
    options = parser.parse_args()
    names = options.sets or list(SETS)
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[variable] = "1"  # read by the worker processes
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        stores = {name: make_store(name, Path(folder)) for name in names}
        jobs = [Job(name, stores[name], fold) for name in names for fold in range(FOLDS)]
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            results = [r for found in pool.map(partial(run_job, options.methods), jobs) for r in found]
    if options.csv:
        with options.csv.open("w", newline="") as stream:
            writer = csv.writer(stream, lineterminator="\n")
            writer.writerow(Result.__dataclass_fields__)
            writer.writerows(vars(r).values() for r in results)
    lines = table(results, names)
    print("\n".join(lines))
    seconds = time.perf_counter() - started
    print(f"\nmlfs-dask {__version__}, NumPy {np.__version__}, {seconds:.0f} s with {options.workers} workers")
    if options.write:
        replace_table(options.write, "\n".join(merged(lines, table_of(options.write))))

    def mean(method: str, setting: str = "") -> float:
        chosen = [r for r in results if r.method == method and r.setting == setting]
        return float(np.mean([np.mean([r.average_precision for r in chosen if r.set == name]) for name in names]))

    defaults = [
        (r.method, r.setting)
        for r in results
        if r.method != "random" and not r.setting.replace("labelled=", "").strip("0123456789.")
    ]
    worse = [" ".join(run) for run in dict.fromkeys(defaults) if mean(*run) <= mean("random")]
    if worse:
        sys.exit(f"no better than random features: {', '.join(worse)}")


if __name__ == "__main__":
    main()
