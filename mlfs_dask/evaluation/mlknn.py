"""ML-kNN (Zhang & Zhou 2007): a label is as likely as the number of nearest rows that have it makes it.

For every label the share of rows that have it, and how often c of the k nearest rows have it where the row itself has
it and where it has not, are counted over the training rows; a new row's posterior follows by Bayes' rule. Equal to the
authors' program: same neighbours (Euclidean, exact, ties by lower index), same counts, same smoothing.

Reference: M.-L. Zhang, Z.-H. Zhou: ML-KNN: A lazy learning approach to multi-label learning. Pattern Recognition 40
(2007) 2038-2048, doi:10.1016/j.patcog.2006.12.019
"""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from scipy import sparse as sp
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels, as_matrix
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.column_subset import BLOCK_VALUES, ColumnSubset, mean_centring
from mlfs_dask.evaluation.nearest import count_near, nearest_rows
from mlfs_dask.selection.labels import label_matrix
from mlfs_dask.statistics.scaling import Scaling


class MLkNN(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Multi-label k nearest neighbours.

    Parameters
    ----------
    n_neighbors : int
        Number of nearest training rows that vote.
    smoothing : float
        Number added to every count; 1 is Laplace's smoothing.
    n_jobs : int, optional
        Threads of the neighbour search (default: the cores of this process). The result does not depend on it.

    Attributes
    ----------
    prior_ : float64 array, shape (q,)
        Probability of each label.
    likelihood_ : float64 array, shape (2, q, n_neighbors + 1)
        Probability that c of the neighbours have a label, for rows without (0) and with the label (1).
    classes_ : list of q arrays, or array
        0 and 1 for every label; the classes if y was one-dimensional.
    n_features_in_ : int

    Notes
    -----
    Labels may be unknown (−1): such an entry enters neither the prior nor the likelihoods, and a neighbour's unknown
    label counts as absent. A label without known entries has the posterior ½.

    Examples
    --------
    >>> X = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [12.0]])
    >>> Y = np.array([[1, 0], [1, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
    >>> MLkNN(n_neighbors=2).fit(X, Y).predict([[1.5], [11.5]])
    array([[1, 0],
           [0, 1]])
    """

    def __init__(self, n_neighbors: int = 10, *, smoothing: float = 1.0, n_jobs: int | None = None) -> None:
        self.n_neighbors = n_neighbors
        self.smoothing = smoothing
        self.n_jobs = n_jobs

    def fit(self, X: Any, y: Any) -> Self:
        """Count over the training rows.

        Parameters
        ----------
        X : array-like, shape (n, d)
            Dense, or SciPy sparse, of finite numbers. Kept.
        y : array-like, shape (n, q) or (n,)
            1, 0, and −1 for unknown. One-dimensional y holds classes, of which a row has one.

        Raises
        ------
        DataError, UsageError
        """
        if y is None:
            raise DataError(
                f"This {type(self).__name__} estimator requires y to be passed, but the target y is None",
                cure="fit(X, Y) with Y of shape (n, q)",
            )
        if self.n_neighbors < 1 or not 0 < self.smoothing < math.inf:
            raise UsageError(
                "n_neighbors must be at least 1, and smoothing finite and above 0; "
                f"got n_neighbors={self.n_neighbors}, smoothing={self.smoothing}"
            )
        X = as_matrix(validate_data(self, X, accept_sparse="csr", dtype=np.float64, ensure_min_samples=2))
        single = not sp.issparse(y) and np.asarray(y).ndim == 1
        if single:
            check_classification_targets(y)
        Y = label_matrix(y)
        if single and Y.shape[1] == 1 and (entries := Y.toarray()).min() <= 0:
            # Two classes are one label, the second: the first is added.
            Y = as_labels(np.hstack([np.where(entries < 0, entries, 1 - entries), entries]))
        if Y.shape[0] != X.shape[0]:
            raise DataError(f"X has {X.shape[0]} rows and y has {Y.shape[0]}", cure="give labels for the same rows")
        rows = ColumnSubset(X)
        self.fit_rows(rows, Y, mean_centring(rows))
        if single:
            self.classes_: Any = np.unique(np.asarray(y))
        return self

    def fit_rows(self, rows: ColumnSubset, Y: sp.csr_array, scaling: Scaling) -> Self:
        """Count over training rows that may lie in a file; a block of them is in memory at a time.

        Parameters
        ----------
        rows : ColumnSubset
            Of length n. Kept.
        Y : csr_array of int8, shape (n, q)
        scaling : Scaling
            What the rows are centred and scaled by.
        """
        self._rows, self._scaling, self._positive = rows, scaling, _positive(Y)
        near = nearest_rows(rows, self.n_neighbors, scaling, threads=self._threads())
        self.prior_, self.likelihood_ = count_likelihoods(near, Y, self.n_neighbors, self.smoothing)
        self.classes_ = [np.array([0, 1])] * Y.shape[1]
        self.n_features_in_ = rows.columns
        return self

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return the posterior of every label, shape (rows, q); of classes, of which a row has one, they add up to
        1.
        """
        check_is_fitted(self)
        X = as_matrix(validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False))
        if sp.issparse(X) != self._rows.sparse:
            X = X.toarray() if sp.issparse(X) else sp.csr_array(X)
        scores = self.score_rows(ColumnSubset(X))
        return scores if isinstance(self.classes_, list) else scores / scores.sum(axis=1, keepdims=True)

    def score_rows(self, rows: ColumnSubset) -> NDArray[np.float64]:
        """Return the posterior of every label for rows as `fit_rows` takes them, shape (rows, q)."""
        near = nearest_rows(self._rows, self.n_neighbors, self._scaling, queries=rows, threads=self._threads())
        return posteriors(near, self._positive, self.prior_, self.likelihood_)

    def predict(self, X: Any) -> NDArray[Any]:
        """1 for every label whose posterior is at least ½, shape (rows, q); of classes the likeliest, shape (rows,)."""
        scores = self.predict_proba(X)
        if isinstance(self.classes_, list):
            return (scores >= 0.5).astype(np.int64)
        predicted: NDArray[Any] = self.classes_[scores.argmax(axis=1)]
        return predicted

    def _threads(self) -> int:
        return self.n_jobs if self.n_jobs and self.n_jobs > 0 else runtime.available_cores()

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.target_tags.multi_output = True
        tags.classifier_tags.multi_label = True
        return tags


def _positive(Y: sp.csr_array) -> sp.csr_array:
    """Return Y with its positive entries alone."""
    if not (Y.data < 0).any():
        return Y
    positive = Y.copy()
    positive.data = np.maximum(positive.data, 0)
    positive.eliminate_zeros()
    return positive


def count_likelihoods(
    near: NDArray[np.int64], Y: sp.csr_array, k: int, smoothing: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the prior (q,) and likelihoods (2, q, k + 1) of the labels, from the neighbours of the training rows."""
    n, q = Y.shape
    positive = _positive(Y)
    known = n - np.bincount(Y.indices[Y.data < 0], minlength=q)
    tables = np.zeros((2, q, k + 1), np.int64)
    step = max(1, BLOCK_VALUES // max(q, 1))
    labels = np.arange(q) * (k + 1)
    for low in range(0, n, step):
        part = slice(low, low + step)
        cells = labels + count_near(near[part], positive)
        truth = Y[part].toarray()
        for value in (0, 1):
            tables[value] += np.bincount(cells[truth == value], minlength=q * (k + 1)).reshape(q, k + 1)
    prior = (smoothing + tables[1].sum(axis=1)) / (2 * smoothing + known)
    likelihood = (smoothing + tables) / (smoothing * (k + 1) + tables.sum(axis=2, keepdims=True))
    return prior, likelihood


def posteriors(
    near: NDArray[np.int64], positive: sp.csr_array, prior: NDArray[np.float64], likelihood: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Return the posterior of every label for rows whose neighbours are given, shape (rows, q)."""
    rows, q = len(near), len(prior)
    result = np.empty((rows, q))
    absent, present = (likelihood * np.stack([1 - prior, prior])[:, :, np.newaxis]).reshape(2, -1)
    table = present / (present + absent)
    labels = np.arange(q) * likelihood.shape[2]
    step = max(1, BLOCK_VALUES // max(q, 1))
    for low in range(0, rows, step):
        part = slice(low, low + step)
        result[part] = table[labels + count_near(near[part], positive)]
    return result
