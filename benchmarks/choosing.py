"""Which method for which data: all methods on all sets. What docs/pictures.py draws for docs/explanation/choosing.md.

    python benchmarks/choosing.py                                         # all methods and sets: hours
    python benchmarks/choosing.py emotions yeast --folds 3 --k-grid 10%:50%:20% --classifiers mlknn
    python benchmarks/choosing.py --write --table sets                    # into benchmarks/results/choosing.csv

Rankings are learnt on the training rows and judged on the others, as `mlfs evaluate` does it; everything that is not
said here is its default. Each set is a batch in a folder (--folder), which goes on where it was interrupted, also with
more methods. Sets that another command has put into another folder, with other classifiers for example, stand in the
same table (--join). Nothing is taken from the cache, so that seconds and readings are those of each method alone.
"""

from __future__ import annotations

import argparse
import sys
import warnings
from pathlib import Path

import pandas as pd
from real_sets import SETS, make_store

import mlfs_dask as mlfs
from mlfs_dask.evaluation.comparison import Comparison
from mlfs_dask.selectors import METHODS

METRIC = "average_precision"
RESULTS = Path(__file__).parent / "results" / "choosing.csv"


def run(name: str, options: argparse.Namespace) -> Path:
    """The batch of one set, run as far as it is not done."""
    place = Path(options.folder) / f"{name}.batch"
    without = options.without.split(",")
    plan = {
        "stores": make_store(name, options.folder),
        "methods": [method for method in options.methods.split(",") if method not in without],
        "evaluation": {
            "folds": options.folds,
            "k_grid": options.k_grid,
            "classifiers": options.classifiers.split(","),
            "metrics": [METRIC],
            "subjects": [subject for subject in ("random",) if subject not in without],
        },
    }
    found = mlfs.run_batch(plan, place, resume=True, cache=None)
    if found.failed:
        sys.exit(f"failed: {', '.join(found.failed)}; see {place / 'jobs.csv'}")
    return place


def precisions(comparison: Comparison) -> pd.DataFrame:
    """A row for every classifier, set and method: mean over folds and numbers of features, and what a fit took."""
    times = comparison.times.groupby(["run", "dataset"], as_index=False)[["seconds_mean", "passes_mean"]].mean()
    rows = comparison.means[["classifier", "dataset", "run", "mean"]].merge(times, how="left", on=["run", "dataset"])
    return rows.set_axis(
        ["classifier", "dataset", "method", "average_precision", "seconds", "readings"], axis="columns"
    ).round(4)


def write_rows(rows: pd.DataFrame, file: Path, table: str) -> None:
    """Replace the rows of a table in a CSV file by others."""
    kept = pd.read_csv(file) if file.exists() else pd.DataFrame({"table": []})
    rows = rows.assign(table=table)[["table", *rows.columns]]
    pd.concat([kept[kept["table"] != table], rows]).to_csv(file, index=False)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", choices=[*SETS, []], help="default: all")
    parser.add_argument("--methods", default=",".join(METHODS), help="default: all")
    parser.add_argument("--without", default="", help="methods to leave out, or random features")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--k-grid", default="10%:90%:10%")
    parser.add_argument("--classifiers", default="mlknn,logistic")
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks/choosing"))
    parser.add_argument("--join", type=Path, action="append", default=[], help="a folder with further batches")
    parser.add_argument("--write", action="store_true", help=f"replace the rows of --table in {RESULTS.name}")
    parser.add_argument("--table", default="sets", help="sets, wide, labels, computers")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    places = []
    joined = {folder: sorted(folder.glob("*.batch")) for folder in options.join}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # loops that did not converge are judged as they are
        for name in options.sets or SETS:
            places.append(run(name, options))
            print(f"{name} done", file=sys.stderr, flush=True)
        comparison = mlfs.compare([*places, *(place for batches in joined.values() for place in batches)])
    rows = precisions(comparison)
    for classifier, of in rows.groupby("classifier"):
        print(f"\n{classifier}\n{of.pivot(index='method', columns='dataset', values='average_precision').to_string()}")
    if options.write:
        write_rows(rows, RESULTS, options.table)


if __name__ == "__main__":
    main()
