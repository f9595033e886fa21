"""Seconds of ML-kNN on delicious (16 105 rows, 500 features, 983 labels), and of the metrics.

    python benchmarks/judging.py [--folder DIR]

One split: four fifths of the rows are learnt from, the others judged. The set is read from $MLFS_DATA (default:
../shared/data beside the repository) and converted into DIR, which is not timed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from real_sets import make_store, markdown
from scipy import sparse as sp
from sklearn.preprocessing import StandardScaler

import mlfs_dask as mlfs
from mlfs_dask.evaluation.metrics import Predictions, compute_metrics
from mlfs_dask.runtime import available_cores


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    dataset = mlfs.open_dataset(make_store("delicious", options.folder))
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


if __name__ == "__main__":
    main()
