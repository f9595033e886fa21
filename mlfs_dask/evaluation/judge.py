"""What classifiers make of chosen columns: values of every metric for every number of features."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp

from mlfs_dask.evaluation.metrics import Judged, compute_metrics
from mlfs_dask.evaluation.protocols import Settings
from mlfs_dask.typing import Matrix

if TYPE_CHECKING:
    from mlfs_dask.evaluation.experiment import Part
    from mlfs_dask.evaluation.table import Table

#: Values of rows that are judged, in float64, that are scaled and predicted at a time.
_BLOCK_VALUES = 2**24


def judging_bytes(settings: Settings, table: Table, columns: int, train: int, test: int) -> int:
    """Bytes held in this process while columns are judged, labels included.

    Parameters
    ----------
    settings : Settings
    table : Table
    columns : int
        Most columns.
    train, test : int
        Most rows of a training part, and most that are judged.
    """
    train = min(train, settings.max_train_rows or train)
    itemsize = 4 if table.source.profile.itemsize <= 4 else 8
    as_read = itemsize * table.n * columns
    # Training rows in float64: scaled, and a second time around zero or as the classifier copies them.
    learning = 3 * 8 * train * columns + 40 * train * settings.n_neighbors
    block = 3 * 8 * min(_BLOCK_VALUES, test * columns)
    # Scores, their order, the truth and what was predicted.
    judging = 40 * test * table.q
    labels = 27 * int(table.Y.nnz) + 24 * table.n
    return as_read + learning + block + judging + labels


class Judge:
    """Fits the classifiers of the settings and computes their metrics.

    Attributes
    ----------
    warnings : list of str
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.warnings: list[str] = []

    def values(self, X: Matrix, part: Part, ks: list[int], Y: sp.csr_array, seed: int) -> list[list[Any]]:
        """[classifier, k, metric, value] for the first k columns of X, for every k; None where undefined.

        Parameters
        ----------
        X : ndarray or csr_array, shape (n, columns)
            Columns in the order of a ranking.
        part : Part
        ks : list of int
        Y : csr_array, shape (n, q)
            True labels.
        seed : int
        """
        truth = Y[part.test].toarray()
        rows: list[list[Any]] = []
        for k in ks:
            # The columns of the grid's largest k were read; all others are their beginning.
            train = _first(X, part.classifier_rows, k)
            scaling = _scaling(train) if self._settings.scale == "standard" else None
            train = _scaled(train, scaling)
            for name in self._settings.classifiers:
                classifier = self._make(name, seed)
                classifier.fit(train, part.classifier_Y)
                self._note(name, k, classifier)
                scores = self._scores(classifier, X, part.test, k, scaling)
                judged = Judged(truth, scores, (scores >= 0.5).astype(np.int8))
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # what is undefined is told by being empty
                    found = compute_metrics(judged, self._settings.metrics)
                rows += [[name, k, metric, None if np.isnan(v) else v] for metric, v in found.items()]
        return rows

    def _make(self, name: str, seed: int) -> Any:
        settings = self._settings
        if name == "mlknn":
            from mlfs_dask.evaluation.mlknn import MLkNN

            return MLkNN(settings.n_neighbors, smoothing=settings.smoothing)
        from mlfs_dask.evaluation.logistic import BinaryRelevanceLogistic

        solver = "exact" if name == "logistic" else "sgd"
        return BinaryRelevanceLogistic(settings.C, solver=solver, random_state=seed)

    def _note(self, name: str, k: int, classifier: Any) -> None:
        missed = getattr(classifier, "not_converged_", 0)
        if missed:
            self.warnings.append(f"{name} with {k} features: {missed} labels did not converge")

    def _scores(self, classifier: Any, X: Matrix, rows: NDArray[np.int64], k: int, scaling: Any) -> NDArray[np.float64]:
        step = max(1, _BLOCK_VALUES // max(k, 1))
        pieces = [
            classifier.predict_proba(_scaled(_first(X, rows[low : low + step], k), scaling))
            for low in range(0, len(rows), step)
        ]
        return pieces[0] if len(pieces) == 1 else np.concatenate(pieces)


def _first(X: Matrix, rows: NDArray[np.int64], k: int) -> Matrix:
    """The first k columns of some rows as float64."""
    return X[rows][:, :k].astype(np.float64)


def _scaling(train: Matrix) -> Any:
    from sklearn.preprocessing import StandardScaler

    # Sparse rows are not centred: it would make them dense, and changes neither distances nor what a model can fit.
    return StandardScaler(with_mean=not sp.issparse(train)).fit(train)


def _scaled(X: Matrix, scaling: Any) -> Matrix:
    return X if scaling is None else scaling.transform(X, copy=False)
