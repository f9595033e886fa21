"""Choose the defaults of ELC (λ, β, mask_iter) by ML-kNN average precision, rankings learnt on training rows only.

    python benchmarks/elc_defaults.py                      # all sets; some ten minutes on two cores
    python benchmarks/elc_defaults.py emotions birds       # two of them; under a minute
    python benchmarks/elc_defaults.py --write docs/elc_defaults.md

Five folds; k = 10 %, 20 %, ..., 90 % of the features; features standardised with the training rows' moments; ML-kNN
with 10 neighbours and smoothing 1. Beside ELC: random features, the screen (Eq. 1), and entropy-based label selection.
Data sets are read from $MLFS_DATA (default: ../shared/data beside the repository) and converted to stores first.
"""

from __future__ import annotations

import argparse
import csv
import os
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import numpy as np
from judging import (
    FOLDS,
    RANDOM_DRAWS,
    SETS,
    Job,
    Judge,
    kept_counts,
    make_store,
    random_ranking,
    read_fold,
    replace_table,
)

from mlfs_dask import ELC, LabelEntropy, __version__
from mlfs_dask.blocks.label_space import label_similarity, standardised_products
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.primitives.products import LabelProducts
from mlfs_dask.selectors.elc import GAP_TOL, label_factor, screen_order, screen_scores
from mlfs_dask.solvers.padm import best_mask, solve_corrected
from mlfs_dask.typing import Block

#: (λ, β, mask_iter); the first is the default.
GRID = [
    (0.1, 1.0, 200),
    (0.01, 1.0, 200),
    (0.03, 1.0, 200),
    (0.3, 1.0, 200),
    (0.1, 0.1, 200),
    (0.3, 0.1, 200),
    (0.1, 10.0, 200),
    (0.1, 1.0, 0),
    (0.1, 1.0, 50),
    (0.1, 1.0, 1000),
]
COLUMNS = ["set", "fold", "k", "method", "lambda_", "beta", "mask_iter", "average_precision", "iterations", "gap"]


def run_job(job: Job) -> list[list[object]]:
    """All methods on one fold; a row of results each."""
    rows_of_fold = read_fold(job)
    judge = Judge(rows_of_fold)
    X, Y = rows_of_fold.X, rows_of_fold.Y
    d = X.shape[1]

    statistic = LabelProducts(d, Y.shape[1])
    state = statistic.zero()
    statistic.add(state, Block(0, X, as_labels(Y)))
    sums = statistic.finalize(state)
    A = standardised_products(sums.products.copy(), sums.std)
    S = label_similarity(sums.pairs, sums.positives)
    Gamma = label_factor(S, sums.n)
    varying = np.flatnonzero(sums.m2 > 0)
    screen = screen_scores(A[:, varying], S, sums.n)
    order = screen_order(screen)

    entropy = LabelEntropy(1).fit(X, Y).ranking_
    rows: list[list[object]] = []

    def note(k, method, chosen, *, setting=("", "", ""), iterations="", gap=""):
        rows.append([job.name, job.fold, k, method, *setting, f"{judge.precision(chosen):.5f}", iterations, gap])

    for k in kept_counts(d):
        for draw in range(RANDOM_DRAWS):
            note(k, "random", random_ranking(d, job.fold, draw)[:k])
        note(k, "label-entropy", entropy[:k])
        kept = min(k, len(varying))
        start = best_mask(screen, kept, order)
        note(k, "screen", varying[start])
        for lambda_, beta, mask_iter in GRID:
            found = solve_corrected(
                A[:, varying], Gamma, start, order, lambda_=lambda_, beta=beta, mask_iter=mask_iter,
                tol=1e-3, gap_tol=GAP_TOL, max_iter=5000,
            )  # fmt: skip
            note(
                k,
                "elc",
                varying[found.mask],
                setting=(lambda_, beta, mask_iter),
                iterations=len(found.objective),
                gap=f"{found.gap[-1]:.1e}",
            )
    return rows


def describe(method: str, setting: tuple[str, ...]) -> str:
    return method if method != "elc" else f"ELC λ={setting[0]} β={setting[1]} mask_iter={setting[2]}"


def table(rows: list[list[object]], names: list[str]) -> str:
    """Mean average precision by method and set, and how the loop ended, as Markdown."""
    methods = dict.fromkeys((str(r[3]), tuple(str(v) for v in r[4:7])) for r in rows)
    lines = [
        "| method | " + " | ".join(names) + " | mean | iterations (most) | largest gap | not converged |",
        "|---|" + "---:|" * (len(names) + 4),
    ]
    for method, setting in methods:
        mine = [r for r in rows if r[3] == method and tuple(str(v) for v in r[4:7]) == setting]
        means = [np.mean([float(str(r[7])) for r in mine if r[0] == name]) for name in names]
        cells = [f"{m:.4f}" for m in means] + [f"**{np.mean(means):.4f}**"]
        if method == "elc":
            iterations = [int(str(r[8])) for r in mine]
            gaps = [float(str(r[9])) for r in mine]
            cells += [f"{np.mean(iterations):.0f} ({max(iterations)})", f"{max(gaps):.0e}"]
            cells += [f"{sum(g > GAP_TOL or i >= 5000 for g, i in zip(gaps, iterations, strict=True))}/{len(gaps)}"]
        else:
            cells += ["", "", ""]
        lines.append(f"| {describe(method, setting)} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="default: all")
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--csv", type=Path, help="write every result here")
    parser.add_argument("--write", type=Path, help="replace the table between the markers of this Markdown file")
    options = parser.parse_args()
    names = options.sets or list(SETS)
    assert ELC().mask_iter == GRID[0][2]
    for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):
        os.environ[variable] = "1"  # read by the worker processes, one per core
    started = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        stores = {name: make_store(name, Path(folder)) for name in names}
        jobs = [Job(name, stores[name], fold) for name in names for fold in range(FOLDS)]
        with ProcessPoolExecutor(options.workers, mp_context=get_context("spawn")) as pool:
            rows = [row for result in pool.map(run_job, reversed(jobs)) for row in result]
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
