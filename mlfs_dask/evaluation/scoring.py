"""Scores of classifiers on selected columns: values of every metric for every number of features.

What is held is planned first. Columns that do not fit in memory are in a scratch file; where the training part of a
logistic regression does not fit either, it is fitted by stochastic gradients, block by block. ML-kNN's neighbours are
exact; among so many rows that each search would take very long, they are those of a sample (`SEARCH_WORK`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.errors import DoesNotFitError, parameter
from mlfs_dask.evaluation.column_file import reading_bytes
from mlfs_dask.evaluation.column_subset import ColumnSubset, mean_centring, missing_fill, unit_variance_scaling
from mlfs_dask.evaluation.inputs import SplitInputs
from mlfs_dask.evaluation.judges import linear_scores, neighbour_means
from mlfs_dask.evaluation.metrics import Predictions, compute_metrics, metrics_bytes
from mlfs_dask.evaluation.nearest import search_bytes
from mlfs_dask.evaluation.protocols import Settings
from mlfs_dask.evaluation.table import Table
from mlfs_dask.files.array_files import free_disk, scratch_folder
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.scaling import Scaling
from mlfs_dask.typing import Matrix

#: Multiplications of one fit and prediction of ML-kNN beyond which it learns from a sample, unless `max_train_rows` is
#: given: some minutes on two cores. Fewer columns than `MIN_COLUMNS` cost as much as these.
SEARCH_WORK = 4 * 10**12
MIN_COLUMNS = 64

#: Core seconds of a multiplication, for the minutes that a warning names.
_CORE_SECONDS = 6e-11

#: Pages of mapped columns that count as memory of the process at a time, and blocks of rows of a classifier.
_BLOCK_BYTES = 64 * 2**20


@dataclass(frozen=True)
class ScoringPlan:
    """Memory plan of this process while columns are scored.

    Attributes
    ----------
    held_bytes : int
        Labels included, without what the process held before.
    folder : Path or None
        Where a file holds the columns; None: they are in memory.
    exact_logistic : bool
        False: `logistic` is fitted by stochastic gradients, since its training part does not fit.
    knn_rows : int or None
        Training rows from which ML-kNN learns, drawn at random; None: all that it is given.
    """

    held_bytes: int
    folder: Path | None
    exact_logistic: bool
    knn_rows: int | None


def plan_scoring(
    settings: Settings, table: Table, columns: int, train: int, test: int, resources: Resources
) -> ScoringPlan:
    """Plan for so many columns.

    Parameters
    ----------
    settings : Settings
    table : Table
    columns : int
        Most columns.
    train, test : int
        Most training rows and most test rows of a split.
    resources : Resources

    Raises
    ------
    DoesNotFitError
    """
    train = min(train, settings.max_train_rows or train)
    whole = table.source.profile
    as_read = whole.float_dtype.itemsize * table.n * columns
    knn_rows = None
    if settings.max_train_rows is None and "mlknn" in settings.classifiers:
        most = searchable_rows(test, columns)
        knn_rows = most if most < train else None
    threads = runtime.own_resources(resources).threads_per_worker
    knn = search_bytes(columns, settings.n_neighbors, (knn_rows or train) + test, threads=threads)
    reading = 0 if table.held else threads * reading_bytes(whole, columns)
    positives = int(table.Y.size)  # of sparse labels the stored entries
    always = 8 * test * table.q + 27 * positives + 24 * table.n + _BLOCK_BYTES  # scores and labels
    metrics = metrics_bytes(test * table.q, positives)
    room = resources.driver_limit - runtime.driver_bytes()

    def needed(exact_logistic: bool) -> int:
        fits = [knn] if {"mlknn", "knn"} & {*settings.classifiers} else []
        if "ridge" in settings.classifiers or ("logistic" in settings.classifiers and exact_logistic):
            fits.append(3 * 8 * train * columns)
        return always + max([*fits, metrics, reading])

    folder = None if table.held else scratch_folder()
    for exact_logistic in (True, False):
        besides = needed(exact_logistic)
        if as_read + besides <= room:
            return ScoringPlan(as_read + besides, None, exact_logistic, knn_rows)
        if folder is not None and besides <= room and as_read <= free_disk(folder):
            return ScoringPlan(besides, folder, exact_logistic, knn_rows)
    raise DoesNotFitError(
        f"scoring {columns:,} columns of {table.n:,} rows with {table.q:,} labels",
        projected=besides + (as_read if table.held else 0) + runtime.driver_bytes(),
        available=resources.driver_limit,
        cure=f"score fewer features ({parameter('k_grid')}) or leave out `all`, let classifiers learn from fewer rows "
        f"({parameter('max_train_rows')}), or run on a machine with more memory"
        + ("" if folder is None else f"; the columns themselves may take a file of {as_read:,} bytes in {folder}"),
    )


def searchable_rows(test: int, columns: int) -> int:
    """Return the number t of training rows whose search, t (t + test) pairs times columns, is at most `SEARCH_WORK`.

    >>> searchable_rows(200_000, 50)
    169258
    """
    pairs = SEARCH_WORK / max(columns, MIN_COLUMNS)
    return int(math.sqrt(pairs + (test / 2) ** 2) - test / 2)


def search_minutes(train: int, test: int, columns: int, threads: int) -> int:
    """Return the approximate minutes of search of one fit and prediction of ML-kNN.

    >>> search_minutes(800_000, 200_000, 50, 2)
    26
    """
    work = train * (train + test) * max(columns, MIN_COLUMNS)
    return max(1, round(work * _CORE_SECONDS / threads / 60))


class Scorer:
    """Fits the classifiers of the settings and computes their metrics.

    Parameters
    ----------
    settings : Settings
    centred : bool
        Whether standardised columns are centred, too: those of dense data, however they are held here.

    Attributes
    ----------
    warnings : list of str
    """

    def __init__(self, settings: Settings, *, centred: bool) -> None:
        self._settings = settings
        self._centred = centred
        self.warnings: list[str] = []

    def values(
        self,
        X: Matrix,
        part: SplitInputs,
        ks: list[int],
        Y: sp.csr_array,
        seed: int,
        plan: ScoringPlan,
        resources: Resources,
    ) -> list[list[Any]]:
        """[classifier, k, metric, value] for the first k columns of X, for every k; None where undefined.

        Parameters
        ----------
        X : ndarray or csr_array, shape (n, columns)
            Columns in the order of a ranking.
        part : SplitInputs
        ks : list of int
        Y : csr_array, shape (n, q)
            True labels.
        seed : int
        plan : ScoringPlan
        resources : Resources
        """
        truth = Y[part.test]
        fill = None
        if self._settings.missing != "error":
            train, test = (ColumnSubset(X, rows, max(ks)) for rows in (part.classifier_rows, part.test))
            fill = missing_fill(train, test, self._settings.missing)
        found: list[list[Any]] = []
        for k in ks:
            # The columns of the grid's largest k were read; all others are their beginning.
            train, test = (ColumnSubset(X, rows, k, fill=fill) for rows in (part.classifier_rows, part.test))
            standard = self._settings.scale == "standard"
            scaling = unit_variance_scaling(train, centred=self._centred) if standard else None
            for name in self._settings.classifiers:
                scores = self._scores(name, train, test, part.classifier_Y, scaling, seed, plan, resources)
                metrics = compute_metrics(Predictions(truth, scores), self._settings.metrics)
                found += [[name, k, metric, None if np.isnan(v) else v] for metric, v in metrics.items()]
        return found

    def _scores(
        self,
        name: str,
        train: ColumnSubset,
        test: ColumnSubset,
        Y: sp.csr_array,
        scaling: Scaling | None,
        seed: int,
        plan: ScoringPlan,
        resources: Resources,
    ) -> NDArray[np.float64]:
        settings, k = self._settings, train.columns
        threads = runtime.own_resources(resources).threads_per_worker
        if name == "ridge":
            return linear_scores(_whole(train, None), Y, _whole(test, None), runtime.own_resources(resources))
        if name == "knn":
            return neighbour_means(train, Y, test, scaling or mean_centring(train), settings.n_neighbors, threads)
        if name == "mlknn":
            return self._knn_scores(train, test, Y, scaling or mean_centring(train), seed, plan.knn_rows, threads)
        from mlfs_dask.evaluation.logistic import BinaryRelevanceLogistic

        exact = name == "logistic" and plan.exact_logistic
        model = BinaryRelevanceLogistic(settings.C, random_state=seed, n_jobs=threads)
        if exact:
            model.fit(_whole(train, scaling), Y)
        else:
            model.fit_rows(train, Y, scaling)
        if model.not_converged_:
            self.warnings.append(f"{name} with {k} features: {model.not_converged_} labels did not converge")
        scores = np.empty((len(test), Y.shape[1]))
        for start, block in test.blocks():
            scores[start : start + block.shape[0]] = model.predict_proba(_scaled(block, scaling))
        return scores

    def _knn_scores(
        self,
        train: ColumnSubset,
        test: ColumnSubset,
        Y: sp.csr_array,
        scaling: Scaling,
        seed: int,
        knn_rows: int | None,
        threads: int,
    ) -> NDArray[np.float64]:
        from mlfs_dask.evaluation.mlknn import MLkNN

        settings = self._settings
        if knn_rows is not None and len(train) > knn_rows:
            drawn = np.sort(np.random.default_rng([seed, 2]).choice(len(train), knn_rows, replace=False))
            train, Y = train.take(drawn), Y[drawn]
        model = MLkNN(settings.n_neighbors, smoothing=settings.smoothing, n_jobs=threads)
        return model.fit_rows(train, Y, scaling).score_rows(test)


def _whole(rows: ColumnSubset, scaling: Scaling | None) -> Matrix:
    """Return all of the rows in memory, as float64; standardised by `scaling`."""
    pieces = [_scaled(X, scaling) for _, X in rows.blocks()]
    return sp.csr_array(sp.vstack(pieces, format="csr")) if rows.sparse else np.concatenate(pieces)


def _scaled(X: Matrix, scaling: Scaling | None) -> Matrix:
    return X.astype(np.float64) if scaling is None else scaling.apply(X)
