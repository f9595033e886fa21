"""Choose the defaults of SMFS (α, β) by ML-kNN average precision, rankings learnt on training rows only.

    python benchmarks/smfs_defaults.py                      # all sets; half an hour on two cores
    python benchmarks/smfs_defaults.py emotions birds       # two of them; some minutes
    python benchmarks/smfs_defaults.py --csv results.csv --write docs/smfs_defaults.md

Three folds of five; k = 10 %, 20 %, ..., 90 % of the features. Four states of the training labels: all of them given
as 0/1; 30 % of the rows labelled and 20 % of their positives dropped, as 0/1 (the paper's setting); 30 % of the rows
labelled, the others coded −1; and of those 30 % of the entries coded −1 as well. Test rows are judged by all labels.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
import warnings
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from judging import RANDOM_DRAWS, SETS, Job, Judge, make_store, random_ranking, read_fold, replace_table

from mlfs_dask import LabelEntropy, __version__
from mlfs_dask.selectors.smfs import BETA_SHARE, SMFS

FOLDS = 3

#: α relative to the mean weight of a labelled row, β relative to the least at which P is 0; the first is the default.
GRID = [(1.0, BETA_SHARE), *((1.0, b) for b in (0.01, 0.03, 0.1, 0.3) if b != BETA_SHARE)]
GRID += [(0.1, BETA_SHARE), (10.0, BETA_SHARE)]
STATES = ("given", "missing", "rows", "entries")
COLUMNS = ["set", "fold", "labels", "method", "alpha", "beta", "average_precision", "iterations", "seconds", "positive"]


def hide(Y, state, rng):
    """The training labels in one of the four states."""
    Y = Y.copy()
    if state == "given":
        return Y
    hidden = rng.random(len(Y)) >= 0.3
    if state == "missing":
        Y[(Y == 1) & (rng.random(Y.shape) < 0.2)] = 0
        Y[hidden] = 0
        return Y
    if state == "entries":
        Y[rng.random(Y.shape) < 0.3] = -1
    Y[hidden] = -1
    return Y


def run_job(job: Job) -> list[list[object]]:
    """All settings on one fold; a row of results each."""
    warnings.simplefilter("ignore")  # the table says how many iterations there were
    fold = read_fold(job)
    judge = Judge(fold)
    draws = [judge.mean_precision(random_ranking(fold.X.shape[1], job.fold, draw)) for draw in range(RANDOM_DRAWS)]
    entropy = judge.mean_precision(LabelEntropy(1).fit(fold.X, fold.Y).ranking_)
    rows: list[list[object]] = [
        [job.name, job.fold, "", "random", "", "", f"{np.mean(draws):.5f}", "", "", ""],
        [job.name, job.fold, "given", "label-entropy", "", "", f"{entropy:.5f}", "", "", ""],
    ]
    for state in STATES:
        labels = hide(fold.Y, state, np.random.default_rng([1, job.fold]))
        base = SMFS(1, max_iter=1).fit(fold.X, labels).report_.extra
        for alpha, beta in GRID:
            selector = SMFS(1, alpha=alpha * base["alpha"], beta=beta / BETA_SHARE * base["beta"], max_iter=100)
            started = time.perf_counter()
            selector.fit(fold.X, labels)
            seconds = time.perf_counter() - started
            unknown = labels == -1 if (labels == -1).any() else labels != 1
            rows.append(
                [
                    *(job.name, job.fold, state, "smfs", alpha, beta),
                    f"{judge.mean_precision(selector.ranking_):.5f}",
                    selector.report_.iterations,
                    f"{seconds:.2f}",
                    f"{(selector.labels_[unknown] > 0).mean():.3f}",
                ]
            )
    return rows


def table(rows: list[list[object]], names: list[str]) -> str:
    """Mean average precision by labels, method and set, as Markdown."""
    methods = dict.fromkeys(tuple(str(v) for v in r[2:6]) for r in rows)
    lines = [
        "| labels | method | " + " | ".join(names) + " | mean | iterations (most) | seconds (most) | positive |",
        "|---|---|" + "---:|" * (len(names) + 4),
    ]
    for key in methods:
        state, method, alpha, beta = key
        mine = [r for r in rows if tuple(str(v) for v in r[2:6]) == key]
        means = [np.mean([float(str(r[6])) for r in mine if r[0] == name]) for name in names]
        cells = [f"{m:.4f}" for m in means] + [f"**{np.mean(means):.4f}**"]
        if method == "smfs":
            method = f"SMFS α={alpha} β={beta}"
            for column, form in ((7, ".0f"), (8, ".1f")):
                values = [float(str(r[column])) for r in mine]
                cells.append(f"{np.mean(values):{form}} ({max(values):{form}})")
            cells.append(f"{np.mean([float(str(r[9])) for r in mine]):.2f}")
        else:
            cells += ["", "", ""]
        lines.append(f"| {state} | {method} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="default: all")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--csv", type=Path, help="write every result here")
    parser.add_argument("--write", type=Path, help="replace the table between the markers of this Markdown file")
    options = parser.parse_args()
    names = options.sets or list(SETS)
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[variable] = "1"  # read by the worker processes, one per core
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        stores = {name: make_store(name, Path(folder)) for name in names}
        jobs = [Job(name, stores[name], fold) for name in names for fold in range(FOLDS)]
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            rows = [row for result in pool.map(run_job, jobs) for row in result]
    if options.csv:
        with options.csv.open("w", newline="") as stream:
            csv.writer(stream, lineterminator="\n").writerows([COLUMNS, *rows])
    text = table(rows, names)
    print(text)
    seconds = time.perf_counter() - started
    print(f"\nmlfs-dask {__version__}, NumPy {np.__version__}, {seconds:.0f} s with {options.workers} workers")
    if options.write:
        replace_table(options.write, text)


if __name__ == "__main__":
    main()
