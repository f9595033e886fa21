"""Binary relevance by logistic regression: one scikit-learn model a label, whatever the others are."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression, SGDClassifier

from mlfs_dask import runtime
from mlfs_dask.errors import DataError
from mlfs_dask.evaluation.column_subset import ColumnSubset
from mlfs_dask.selection.labels import label_matrix
from mlfs_dask.statistics.scaling import Scaling


@dataclass
class BinaryRelevanceLogistic:
    """A logistic regression for every label.

    Parameters
    ----------
    C : float
        Inverse of the L2 penalty's weight.
    max_iter : int
        Most iterations of the exact solver.
    epochs : int
        Times that the stochastic solver sees every row.
    random_state : int, optional
        Of the stochastic solver's order.
    n_jobs : int, optional
        Threads among which the exact solver shares the labels out; one by default.

    Attributes
    ----------
    models_ : list of q models or floats
        A label that has one class only is a constant: its share of positives.
    not_converged_ : int
        Labels for which `max_iter` was reached.

    Notes
    -----
    Rows whose label is unknown (−1) are left out for that label. A label without known rows has the probability ½.
    """

    C: float = 1.0
    max_iter: int = 1000
    epochs: int = 5
    random_state: int | None = None
    n_jobs: int | None = None

    def fit(self, X: Any, y: Any) -> Self:
        """Fit one model a label.

        Parameters
        ----------
        X : ndarray or sparse, shape (n, d)
            Standardised by the caller.
        y : array-like, shape (n, q)
            1, 0, and −1 for unknown.
        """
        Y = label_matrix(y)
        if X.shape[0] != Y.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and y has {Y.shape[0]}", cure="give labels for the same rows")
        columns = sp.csc_array(Y)

        def fit_label(label: int) -> Any:
            return self._fit_label(X, columns[:, [label]].toarray().ravel())

        # The solver's products are small, and in turn of NumPy's and of SciPy's BLAS, whose threads would wait for one
        # another: labels are what is shared out among threads.
        with (
            runtime.stage("fitting logistic regressions", Y.shape[1], unit="labels") as done,
            runtime.one_blas_thread(),
            warnings.catch_warnings(),
            runtime.TaskThreads(min(self.n_jobs or 1, Y.shape[1]), "mlfs-logistic") as pool,
        ):
            warnings.simplefilter("ignore", ConvergenceWarning)  # counted, and reported once for all labels
            self.models_: list[Any] = []
            for model in pool.map(fit_label, range(Y.shape[1])):
                self.models_.append(model)
                done()
        models = [model for model in self.models_ if not isinstance(model, float)]
        self.not_converged_ = sum(int(model.n_iter_.max() >= self.max_iter) for model in models)
        return self

    def _fit_label(self, X: Any, y: NDArray[np.int8]) -> Any:
        runtime.check_stopped()
        known = y >= 0
        constant = _constant(int(known.sum()), int((y == 1).sum()))
        if constant is not None:
            return constant
        # A weight of 0 leaves a row out without a copy of the others.
        return LogisticRegression(C=self.C, max_iter=self.max_iter).fit(X, y == 1, None if known.all() else known)

    def fit_rows(self, rows: ColumnSubset, Y: sp.csr_array, scaling: Scaling | None) -> Self:
        """Fit all labels by the stochastic solver over rows that may lie in a file, a block in memory at a time.

        Parameters
        ----------
        rows : ColumnSubset
            Of length n; read once for every epoch, the blocks in random order.
        Y : csr_array of int8, shape (n, q)
        scaling : Scaling, optional
            What the rows are centred and scaled by.
        """
        n, q = Y.shape
        self.not_converged_ = 0
        known = n - np.bincount(Y.indices[Y.data < 0], minlength=q)
        positives = np.bincount(Y.indices[Y.data > 0], minlength=q)
        self.models_ = []
        for there, positive in zip(known.tolist(), positives.tolist(), strict=True):
            constant = _constant(there, positive)
            # The penalty of LogisticRegression is 1/C in sum, that of SGDClassifier a row.
            alpha = 1 / (self.C * max(there, 1))
            self.models_.append(
                SGDClassifier("log_loss", alpha=alpha, average=True, random_state=self.random_state)
                if constant is None
                else constant
            )
        random = np.random.default_rng(self.random_state)
        for _ in range(self.epochs):
            for number in random.permutation(rows.n_blocks):
                start, X = rows.block(int(number))
                truth = Y[start : start + X.shape[0]].toarray()
                self._fit_block(X if scaling is None else scaling.apply(X), truth)
        return self

    def _fit_block(self, X: Any, truth: NDArray[np.int8]) -> None:
        for label, model in enumerate(self.models_):
            if isinstance(model, float):
                continue
            y = truth[:, label]
            there = y >= 0
            if there.all():
                model.partial_fit(X, y, classes=np.array([0, 1]))
            elif there.any():
                model.partial_fit(X[there], y[there], classes=np.array([0, 1]))

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the probability of every label, shape (rows, q)."""
        columns = [
            np.full(X.shape[0], model) if isinstance(model, float) else model.predict_proba(X)[:, 1]
            for model in self.models_
        ]
        return np.stack(columns, axis=1)


def _constant(known: int, positives: int) -> float | None:
    """Return the constant prediction of a label: ½ without known rows, the class if there is only one."""
    if known == 0:
        return 0.5
    return float(positives > 0) if positives in (0, known) else None
