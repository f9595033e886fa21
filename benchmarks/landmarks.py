"""What landmarks make of grro, mico and qpmlfs, on sets whose features all fit: how much of the exact ranking is kept.

    python benchmarks/landmarks.py [--folder DIR] [--sets NAME ...] [--landmarks R ...] [--write PAGE]

For each method and number of landmarks the share of the first k features that are among the first k of the exact
form; beside it that of the alternative of the same memory and less, which weighs the same most relevant features alone
and ranks the others below them by relevance. Sets as in real_sets.py ($MLFS_DATA).
"""

from __future__ import annotations

import argparse
import time
import warnings
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from real_sets import make_store, markdown, replace_table

from mlfs_dask import LabelEntropy, open_dataset
from mlfs_dask.selection.estimator import get_estimator

METHODS = ("grro", "mico", "qpmlfs")
KS = (20, 50, 100, 200, 500)


def restricted(store: str, method: str, relevant: NDArray[np.int64], count: int) -> NDArray[np.int64]:
    """Ranking of the most relevant features by the exact form of a method, and of the others by their relevance."""
    best = np.sort(relevant[:count])
    chosen = np.isin(np.arange(len(relevant)), best)  # a mask: names of bibtex's features are numbers
    fitted = get_estimator(method)(n_landmarks=count).fit(open_dataset(store).subset(features=chosen))
    return np.concatenate([best[fitted.ranking_], relevant[count:]])


def overlaps(ranking: NDArray[np.int64], exact: NDArray[np.int64]) -> list[str]:
    """Shares of the first k that both have."""
    return [f"{len(np.intersect1d(ranking[:k], exact[:k])) / k:.2f}" for k in KS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    parser.add_argument("--sets", nargs="+", default=["enron", "bibtex"])
    parser.add_argument("--landmarks", nargs="+", type=int, default=[64, 256])
    parser.add_argument("--write", type=Path, help="file whose table is replaced")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")

    rows: list[list[str]] = []
    for name in arguments.sets:
        store = make_store(name, arguments.folder)
        # All labels count alike, as in the relevance that landmarks are chosen by.
        relevant = LabelEntropy(n_promising_labels=1.0).fit(open_dataset(store)).ranking_
        for method in METHODS:
            started = time.perf_counter()
            exact = get_estimator(method)().fit(open_dataset(store))
            rows.append([f"*{name}*, {method}", "exact", *["1.00"] * len(KS), f"{time.perf_counter() - started:.1f}"])
            for r in arguments.landmarks:
                started = time.perf_counter()
                found = get_estimator(method)(n_landmarks=r).fit(open_dataset(store)).ranking_
                took = f"{time.perf_counter() - started:.1f}"
                rows.append(["", f"{r} landmarks", *overlaps(found, exact.ranking_), took])
                alone = restricted(store, method, relevant, r)
                rows.append(["", f"{r} features alone", *overlaps(alone, exact.ranking_), ""])
    table = markdown(["set and method", "form", *[f"k = {k}" for k in KS], "seconds"], rows)
    print(table)
    if arguments.write:
        replace_table(arguments.write, "landmarks", table)


if __name__ == "__main__":
    main()
