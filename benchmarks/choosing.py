"""Which method for which data: all methods on all sets. What docs/pictures.py draws for docs/explanation/choosing.md.

    python benchmarks/choosing.py                                         # all methods and sets: hours
    python benchmarks/choosing.py emotions yeast --folds 3 --k-grid 10%:50%:20% --classifiers mlknn
    python benchmarks/choosing.py --write --table sets                    # into benchmarks/results/choosing.csv
    OMP_NUM_THREADS=1 python benchmarks/choosing.py emotions --cpu        # seconds are CPU seconds of one fit

Rankings are learnt on the training rows and judged on the others, as `mlfs evaluate` does it; everything that is not
said here is its default. Each set is a batch in a folder (--folder), which goes on where it was interrupted, also with
more methods. Sets that another command has put into another folder, with other classifiers for example, stand in the
same table (--join). Nothing is taken from the cache, so that seconds and readings are those of each method alone.
With --cpu the seconds are those that this process spends on a fit to all rows for a tenth of the features, instead of
those of the jobs: they do not depend on other work. They are infinite where a fit takes more than --limit seconds.
`auto` has no limit of time.
"""

from __future__ import annotations

import argparse
import signal
import sys
import time
import warnings
from pathlib import Path

import pandas as pd
from real_sets import SETS, make_store

import mlfs_dask as mlfs
from mlfs_dask.evaluation.comparison import Comparison
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS

METRIC = "average_precision"
RESULTS = Path(__file__).parent / "results" / "choosing.csv"


def run(name: str, options: argparse.Namespace) -> Path:
    """The batch of one set, run as far as it is not done."""
    place = Path(options.folder) / f"{name}.batch"
    without = options.without.split(",")
    plan = {
        "stores": make_store(name, options.folder),
        "methods": [
            {"method": method, "name": method, "params": {"budget": float("inf")}} if method == "auto" else method
            for method in options.methods.split(",")
            if method not in without
        ],
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


class OutOfTimeError(Exception):
    """Raised in a fit that takes too long."""


def out_of_time(*_: object) -> None:
    raise OutOfTimeError


def fit_seconds(name: str, store: str, methods: list[str], limit: float) -> pd.DataFrame:
    """CPU seconds of a fit of each method to all rows, for a tenth of the features; the first one loads kernels."""
    data = mlfs.open_dataset(store)
    k = data.X.shape[1] // 10
    seconds = {}
    signal.signal(signal.SIGVTALRM, out_of_time)
    for method in ["spfs", *methods]:
        selector = get_estimator(method)(k, **({"budget": float("inf")} if method == "auto" else {}))
        started = time.process_time()
        signal.setitimer(signal.ITIMER_VIRTUAL, limit)
        try:
            selector.fit(data)
            seconds[method] = round(time.process_time() - started, 3)
        except OutOfTimeError:
            seconds[method] = float("inf")
        finally:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    return pd.DataFrame({"dataset": name, "method": list(seconds), "seconds": list(seconds.values())})


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
    parser.add_argument("--cpu", action="store_true", help="CPU seconds of a fit, in place of those of the jobs")
    parser.add_argument("--limit", type=float, default=120.0, help="CPU seconds of a fit, with --cpu")
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
    if options.cpu:
        judged = rows.loc[rows["method"].isin(METHODS)].groupby("dataset")["method"].unique()
        measured = [
            fit_seconds(name, make_store(name, options.folder), list(methods), options.limit)
            for name, methods in judged.items()
        ]
        rows = rows.drop(columns="seconds").merge(pd.concat(measured), how="left", on=["dataset", "method"])
    for classifier, of in rows.groupby("classifier"):
        print(f"\n{classifier}\n{of.pivot(index='method', columns='dataset', values='average_precision').to_string()}")
    if options.write:
        write_rows(rows, RESULTS, options.table)


if __name__ == "__main__":
    main()
