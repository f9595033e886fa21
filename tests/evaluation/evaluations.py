"""Small evaluations as `mlfs evaluate` leaves them, with values that a test states."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

METRICS = (
    {"name": "hamming_loss", "title": "Hamming loss", "better": "lower"},
    {"name": "macro_f1", "title": "macro F1", "better": "higher"},
)


LEARNT = ("training part", "finished run")


def write_evaluation(
    folder: Path,
    dataset: str,
    value: Callable[[str, str, int, int], float | None],
    *,
    runs: Sequence[str] = ("elc", "mfsir", "random"),
    metrics: Iterable[Mapping[str, str]] = METRICS,
    classifiers: Sequence[str] = ("mlknn",),
    grid: Sequence[int] = (2, 4),
    folds: int = 4,
    d: int = 10,
    rankings: Mapping[str, Sequence[Sequence[int]]] | None = None,
    finished: Sequence[str] = (),
    record: Mapping[str, Any] | None = None,
) -> Path:
    """Write an EVAL folder.

    Parameters
    ----------
    value : callable (run, metric, k, fold) -> float or None
        None is undefined. The run `all` is asked at k = d alone.
    rankings : mapping of run -> one list of features a fold, optional
        By default those of fold 0 shifted by the fold for `random`, and 0, 1, 2, ... for the others.
    finished : sequence of runs
        Learnt beforehand.
    """
    folder.mkdir(parents=True)
    most = max(grid)
    results = [
        (dataset, run, run.split(":")[0], classifier, k, 0, fold, metric["name"], value(run, metric["name"], k, fold))
        for run in runs
        for classifier in classifiers
        for k in ([d] if run == "all" else grid)
        for fold in range(folds)
        for metric in metrics
    ]
    learnt = [
        (dataset, run, 0, fold, most, rank, feature)
        for run in runs
        for fold in range(folds)
        for rank, feature in enumerate(_ranking(run, fold, d, rankings)[: d if run == "all" else most], start=1)
    ]
    fits = [
        (dataset, run, 0, fold, most, 0.5 + fold, 1, 1000, 3, True, 2**20, 2**21)
        for run in runs
        for fold in range(folds)
    ]
    taken = "seconds,passes,bytes_read,iterations,converged,peak_driver_bytes,peak_worker_bytes"
    for name, rows, columns in (
        ("results", results, "dataset,run,method,classifier,k,repeat,fold,metric,value"),
        ("rankings", learnt, "dataset,run,repeat,fold,k,rank,feature_index"),
        ("fits", fits, f"dataset,run,repeat,fold,k,{taken}"),
    ):
        pd.DataFrame(rows, columns=columns.split(",")).to_csv(folder / f"{name}.csv", index=False)
    written = {
        "format_version": 2,
        "kind": "eval",
        "store": {"path": f"{dataset}.zarr", "digest": f"digest of {dataset}", "n": 100, "d": d, "q": 3},
        "runs": [
            {"run": run, "method": run.split(":")[0], "params": {}, "learnt": LEARNT[run in finished]} for run in runs
        ],
        "protocol": None,
        "classifiers": list(classifiers),
        "classifier_params": {},
        "settings": {},
        "splits": {"kind": "kfold", "folds": folds, "repeats": 1, "test_size": None, "seed": 0},
        "simulation": None,
        "k_grid": [{"k": k, "share": None} for k in grid],
        "metrics": [dict(metric) for metric in metrics],
        "warnings": [],
        "versions": {"mlfs-dask": "0"},
        "wall_seconds": 1.0,
        **(record or {}),
    }
    (folder / "eval.json").write_text(json.dumps(written))
    return folder


def steady(means: Mapping[str, float], *, spread: float = 0.01, seed: int = 0) -> Callable[..., float]:
    """Values of a run around its mean; a metric, k and fold shifts all runs alike, and each a little by itself."""
    random = np.random.default_rng(seed)
    noise: dict[tuple[Any, ...], float] = {}

    def value(run: str, metric: str, k: int, fold: int) -> float:
        shared = noise.setdefault((metric, k, fold), random.normal())
        own = noise.setdefault((run, metric, k, fold), random.normal())
        level = 1 - means[run] if metric == "hamming_loss" else means[run]
        return float(level + spread * (shared + 0.1 * own))

    return value


def _ranking(run: str, fold: int, d: int, rankings: Mapping[str, Sequence[Sequence[int]]] | None) -> Sequence[int]:
    if rankings is not None and run in rankings:
        return rankings[run][fold]
    return np.roll(np.arange(d), 3 * fold).tolist() if run == "random" else list(range(d))
