"""Seconds of the classifiers of `mlfs evaluate`.

    python benchmarks/judging.py delicious [--folder DIR]   # ML-kNN and the metrics
    python benchmarks/judging.py density                    # classifiers on sparse and on dense columns
    python benchmarks/judging.py passes [--folder DIR]      # passes over a store of 12 methods and 2 folds
    python benchmarks/judging.py auto [--folder DIR]        # CPU seconds of `auto`

`delicious` has 16 105 rows, 500 features and 983 labels. One split: four fifths of the rows are learnt from, the
others judged. The set is read from $MLFS_DATA (default: ../shared/data beside the repository) and converted into DIR,
which is not timed. `auto` chooses a tenth of the features of yahoo-arts, without a limit of time.
`passes` is of yeast, of which nothing is held: passes by their names, bytes read, CPU seconds.
`density` is of random 0/1 features: from which density on dense columns are faster.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from real_sets import make_store, markdown
from scipy import sparse as sp
from sklearn.preprocessing import StandardScaler

import mlfs_dask as mlfs
from mlfs_dask import runtime
from mlfs_dask.evaluation import table
from mlfs_dask.evaluation.column_subset import ColumnSubset, mean_centring, unit_variance_scaling
from mlfs_dask.evaluation.experiment import evaluate
from mlfs_dask.evaluation.logistic import BinaryRelevanceLogistic
from mlfs_dask.evaluation.metrics import Predictions, compute_metrics
from mlfs_dask.evaluation.nearest import nearest_rows
from mlfs_dask.runtime import available_cores

#: Filters and others of one pass, one that chooses in turn, and one with a loop.
METHODS = ["chi2", "br-cc", "br-or", "gmm", "enm", "fisher", "anova-f", "mddm", "elc", "label-entropy", "scls", "mfsir"]


def timed(function: Callable[[], Any]) -> tuple[float, Any]:
    started = time.perf_counter()
    found = function()
    return time.perf_counter() - started, found


def seconds(X: Any, Y: np.ndarray, train: np.ndarray, test: np.ndarray) -> list[float]:
    """Of the fit, the posteriors, and all metrics."""
    model = mlfs.MLkNN()
    fit, _ = timed(lambda: model.fit(X[train], Y[train]))
    predict, scores = timed(lambda: model.predict_proba(X[test]))
    metrics, _ = timed(lambda: compute_metrics(Predictions(Y[test], scores)))
    return [fit, predict, metrics]


def delicious(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    dataset = mlfs.open_dataset(make_store("delicious", folder))
    X, Y = (np.asarray(a.todense() if hasattr(a, "todense") else a) for a in (dataset.X.compute(), dataset.Y.compute()))
    order = np.random.default_rng(0).permutation(len(X))
    train, test = np.sort(order[len(X) // 5 :]), np.sort(order[: len(X) // 5])
    forms = {
        "standardised": StandardScaler().fit(X[train]).transform(X),
        "as they are": X,
        "sparse": sp.csr_array(X),
    }
    rows = []
    for name, form in forms.items():
        rows.append([name, *(f"{value:.1f}" for value in seconds(form, Y, train, test))])
    print(markdown(["features", "fit, s", "predict, s", "metrics, s"], rows))
    print(f"\n{len(train):,} rows learnt from, {len(test):,} judged, {available_cores()} cores")


def density() -> None:
    random, threads = np.random.default_rng(0), available_cores()
    rows = []
    for n, d in ((1000, 50), (1000, 500), (8000, 50), (8000, 500), (8000, 2000)):
        for share in (0.02, 0.05, 0.1, 0.2, 0.3):
            X = sp.csr_array(random.random((n, d)) < share, dtype=np.float64)
            Y = (X[:, :20].sum(axis=1)[:, np.newaxis] + random.normal(size=(n, 8)) > 1).astype(np.int8)
            seconds = []
            for subset in (ColumnSubset(X), ColumnSubset(X.toarray())):
                scaled = unit_variance_scaling(subset, centred=False).apply(subset.read(0, n).astype(np.float64))
                nearest_rows(subset, 10, mean_centring(subset), threads=threads)  # compiled loops are loaded
                seconds += [
                    timed(lambda subset=subset: nearest_rows(subset, 10, mean_centring(subset), threads=threads))[0],
                    timed(lambda X=scaled, Y=Y: BinaryRelevanceLogistic(n_jobs=threads).fit(X, Y))[0],
                ]
            rows.append([f"{n} x {d}", f"{share:.0%}", *(f"{each:.3f}" for each in seconds)])
    header = ["features", "density", "neighbours, sparse", "logistic, sparse", "neighbours, dense", "logistic, dense"]
    print(markdown(header, rows))


def passes(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    dataset = mlfs.open_dataset(make_store("yeast", folder))
    table._HELD_FRACTION = 0.0
    names: Counter[str] = Counter()
    started = time.process_time()
    with runtime.progress_to(lambda event: names.update([event["label"]] if event["kind"] == "pass" else [])):
        found = evaluate(dataset, METHODS, folds=2, k_grid="20", metrics=("hamming_loss",))
    taken = time.process_time() - started
    rows = [[name, str(count)] for name, count in names.items()]
    print(markdown(["pass", "number"], [*rows, ["all", str(names.total())]]))
    size = found.fits["bytes_read"].sum() / dataset.rows.profile.read_bytes
    print(f"\nrankings read the store {size:.1f} times; {taken:.1f} CPU seconds")


def auto(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    dataset = mlfs.open_dataset(make_store("yahoo-arts", folder))
    started = time.process_time()
    fitted = mlfs.AutoSelector(0.1, budget=float("inf"), random_state=0).fit(dataset)
    taken, k = time.process_time() - started, int(fitted.support_.sum())
    print(f"{k:,} of {len(fitted.support_):,} features by {fitted.report_.extra['tied']}: {taken:.1f} CPU seconds")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("delicious", "density", "passes", "auto"))
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    options = parser.parse_args()
    if options.part == "delicious":
        delicious(options.folder)
    elif options.part == "passes":
        passes(options.folder)
    elif options.part == "auto":
        auto(options.folder)
    else:
        density()


if __name__ == "__main__":
    main()
