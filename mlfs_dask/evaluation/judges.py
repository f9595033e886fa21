"""Cheap classifiers and their comparison: what `auto` judges methods by, on rows that were held out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import linalg

from mlfs_dask.blocks.label_order import average_precision
from mlfs_dask.blocks.linear import forward_block
from mlfs_dask.blocks.unknown import at_shares
from mlfs_dask.engine.readings import run_reading
from mlfs_dask.evaluation.column_subset import BLOCK_VALUES, ColumnSubset
from mlfs_dask.evaluation.nearest import count_near, nearest_rows
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.statistics.gram import Gram, scale_gram
from mlfs_dask.statistics.moments import FeatureMoments, Moments
from mlfs_dask.statistics.products import label_products
from mlfs_dask.statistics.scaling import Scaling, standard_scaling

#: Penalty of the ridge regression: the default of scikit-learn, and that of the logistic regression by which features
#: are evaluated (C = 1). Features that are nonzero in a handful of rows, once standardised, mislead nearest neighbours
#: and models with a weak penalty. A strong penalty, such as k or the number of rows, would hide that.
PENALTY = 1.0

#: Nearest rows that predict the labels of a row: the default of ML-kNN.
NEIGHBOURS = 10


def linear_scores(X: Any, Y: Any, X_test: Any, resources: Resources) -> NDArray[np.float64]:
    """Return the scores of labels by ridge regression on standardised features, from the sums of the rows to learn
    from.

    Parameters
    ----------
    X : ndarray or csr_array, shape (n, k)
    Y : csr_array of int8, or float64 array, shape (n, q)
        Labels or numeric targets; unknown entries are at the mean of the known ones.
    X_test : ndarray or csr_array, shape (m, k)
    resources : Resources
        Of this process alone.

    Returns
    -------
    float64 array, shape (m, q)

    Examples
    --------
    >>> from scipy import sparse as sp
    >>> from mlfs_dask.cluster.resources import current_resources
    >>> X, Y = np.array([[0.0], [1.0], [2.0]]), sp.csr_array(np.array([[0], [0], [1]], dtype=np.int8))
    >>> linear_scores(X, Y, np.array([[1.0], [3.0]]), current_resources()).round(3)  # 1/3, and 1/3 + 2 * 1 / (2 + 2/3)
    array([[0.333],
           [1.083]])
    """
    k, rows = X.shape[1], ArrayRows(X, Y)
    products = replace(label_products(rows), compiled=False)
    (sums, gram), _ = run_reading(rows, [products, Gram(k)], resources)
    scaling = standard_scaling(FeatureMoments(sums.n, sums.mean, sums.m2))
    G = scale_gram(gram, scaling.factor)
    G.flat[:: k + 1] += PENALTY
    W = scaling.scale_rows(linalg.solve(G, scaling.scale_rows(sums.products.T), assume_a="pos", overwrite_a=True))
    scores = np.empty((X_test.shape[0], Y.shape[1]))
    forward_block(X_test, W, scaling.centre, scores)
    scores += sums.positives / sums.n
    return scores


def neighbour_scores(X: Any, Y: Any, X_test: Any, resources: Resources) -> NDArray[np.float64]:
    """Return the scores of labels by the nearest rows to learn from, on standardised features.

    The score of a label is (v + p) / (k + 1), where v of the k nearest rows have it and p is its share of all rows to
    learn from, which decides between labels of equal v.

    Parameters
    ----------
    X, Y, X_test, resources
        As of `linear_scores`.

    Returns
    -------
    float64 array, shape (m, q)

    Examples
    --------
    >>> from scipy import sparse as sp
    >>> from mlfs_dask.cluster.resources import current_resources
    >>> X, Y = np.array([[0.0], [1.0], [2.0]]), sp.csr_array(np.array([[0], [0], [1]], dtype=np.int8))
    >>> neighbour_scores(X, Y, np.array([[1.0]]), current_resources()).round(3)  # (1 + 1/3) / (3 + 1)
    array([[0.333]])
    """
    n, k = X.shape
    ((moments,), _) = run_reading(ArrayRows(X, Y), [Moments(k)], resources)
    nearest = nearest_rows(ColumnSubset(X), NEIGHBOURS, standard_scaling(moments), queries=ColumnSubset(X_test))
    positives, unknown = (np.bincount(Y.indices[own], minlength=Y.shape[1]) for own in (Y.data > 0, Y.data < 0))
    shares = positives / np.maximum(n - unknown, 1)
    scores: NDArray[np.float64] = (count_near(nearest, at_shares(Y, shares)) + shares) / (min(NEIGHBOURS, n) + 1)
    return scores


def neighbour_means(
    train: ColumnSubset, Y: NDArray[np.float64], test: ColumnSubset, scaling: Scaling, k: int, threads: int
) -> NDArray[np.float64]:
    """Predict numeric targets by their mean over the k nearest rows to learn from, those where they are known.

    Parameters
    ----------
    train, test : ColumnSubset
    Y : float64 array, shape (n, q)
        NaN for unknown. Without a known entry among the nearest rows, the mean of all known ones is predicted.
    scaling : Scaling
    k, threads : int

    Returns
    -------
    float64 array, shape (m, q)
    """
    nearest = nearest_rows(train, k, scaling, queries=test, threads=threads)
    known = ~np.isnan(Y)
    filled = np.where(known, Y, 0.0)
    every = filled.sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    sums, counts = np.zeros((2, len(nearest), Y.shape[1]))
    for rows in nearest.T:
        sums += filled[rows]
        counts += known[rows]
    means: NDArray[np.float64] = np.where(counts > 0, sums / np.maximum(counts, 1), every)
    return means


def row_precision(truth: Any, scores: NDArray[np.float64]) -> NDArray[np.float64]:
    """Average precision of the known labels of every row; of one label that of the order of the rows, shape (1,).

    Parameters
    ----------
    truth : csr_array of int8, shape (m, q)
    scores : float64 array, shape (m, q)

    Examples
    --------
    >>> from scipy import sparse as sp
    >>> row_precision(sp.csr_array(np.array([[1, 0, -1]], np.int8)), np.array([[0.2, 0.1, 0.9]]))
    array([1.])
    """
    # Labels that are the same in the rows to learn from have the same score but for rounding.
    scores = scores.round(9)
    if scores.shape[1] == 1:
        truth, scores = truth.T.tocsr(), scores.T
    (m, q), parts = scores.shape, []
    step = max(1, BLOCK_VALUES // max(q, 1))
    for low in range(0, m, step):
        entries, of_rows = truth[low : low + step].toarray(), scores[low : low + step]
        unknown = entries < 0
        if unknown.any():  # behind all others
            of_rows = np.where(unknown, -np.inf, of_rows)
        precision = average_precision(entries > 0, of_rows)
        precision[(entries != 0).all(axis=1)] = np.nan  # there is none that it lacks
        parts.append(precision)
    return np.concatenate(parts) if parts else np.empty(0)


def compare(precision: NDArray[np.float64]) -> list[dict[str, float]]:
    """Return the mean of every candidate, compared with the best one.

    Parameters
    ----------
    precision : float64 array, shape (candidates, rows)
        Average precision of every judged row; NaN where it is undefined, for every candidate.

    Returns
    -------
    list of dict
        Of every candidate the mean, how far it is below the best, the standard error of that over the rows, and that
        of the mean. All are 0 where it is undefined for every row.

    Examples
    --------
    >>> compare(np.array([[0.5, 1.0, 0.5, 1.0], [0.5, 1.0, 0.5, 0.5]]))[1]
    {'average_precision': 0.625, 'below_best': 0.125, 'standard_error': 0.125, 'standard_error_of_mean': 0.125}
    """
    defined = precision[:, ~np.isnan(precision).any(axis=0)]
    n = max(defined.shape[1], 1)
    means = defined.sum(axis=1) / n
    below = defined[means.argmax()] - defined
    mean_below = below.sum(axis=1) / n
    errors, own = (
        np.sqrt(np.square(of - mean[:, np.newaxis]).sum(axis=1) / (max(n - 1, 1) * n))
        for of, mean in ((below, mean_below), (defined, means))
    )
    names = ("average_precision", "below_best", "standard_error", "standard_error_of_mean")
    rows = zip(means.tolist(), mean_below.tolist(), errors.tolist(), own.tolist(), strict=True)
    return [dict(zip(names, row, strict=True)) for row in rows]


def tied_with_best(judged: Sequence[Mapping[str, float]]) -> list[int]:
    """Return the candidates that are no more than one standard error of the difference below the best, best first.

    Parameters
    ----------
    judged : sequence of mapping
        Of `compare`.

    Examples
    --------
    >>> rows = [(0.1, 0.02), (0.0, 0.0), (0.01, 0.02)]
    >>> tied_with_best([{"below_best": below, "standard_error": error} for below, error in rows])
    [1, 2]
    """
    below = np.array([row["below_best"] for row in judged])
    order = np.argsort(below, kind="stable")
    return [int(i) for i in order if below[i] <= judged[i]["standard_error"]]
