"""Plain twin of `auto`: cross-validation as its documentation has it, dense, with scikit-learn's metric."""

from __future__ import annotations

import warnings

import numpy as np
from scipy.stats import rankdata
from sklearn.linear_model import Ridge
from sklearn.metrics import label_ranking_average_precision_score
from sklearn.neighbors import NearestNeighbors

from mlfs_dask.selection.estimator import get_estimator
from tests.reference.draws import shuffled_places


def auto(X, Y, k, methods, *, judge="both", seed=0, folds=5):
    """Mean average precision of every method, how far it is below the best, the standard error; and the ranking."""
    n = len(X)
    part = shuffled_places(n, folds, seed)
    precision = np.full((len(methods), n), np.nan)
    for fold in range(folds):
        test = np.flatnonzero(part == fold)
        train = np.flatnonzero(part != fold)
        for row, method in zip(precision, methods, strict=True):
            brief = {"max_iter": 30} if method in ("elc", "llsf", "qpmlfs") else {}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # it has not converged
                chosen = get_estimator(method)(k, **brief).fit(X[train], Y[train]).ranking_[: min(k, len(train))]
            mean, std = X[np.ix_(train, chosen)].mean(axis=0), X[np.ix_(train, chosen)].std(axis=0)
            std[std == 0] = 1.0
            Z = (X[:, chosen] - mean) / std
            few = Z[:, : len(train) // 4]
            linear = Ridge(alpha=1.0, solver="cholesky").fit(few[train], Y[train]).predict(few[test])
            nearest = NearestNeighbors(n_neighbors=10).fit(Z[train]).kneighbors(Z[test], return_distance=False)
            shares = (Y[train][nearest].sum(axis=1) + Y[train].mean(axis=0)) / 11
            judges = {"linear": [linear], "neighbours": [shares], "both": [linear, shares]}[judge]
            for i, *scores in zip(test, *judges, strict=True):
                if 0 < Y[i].sum() < Y.shape[1]:
                    row[i] = np.mean([label_ranking_average_precision_score(Y[[i]], own[None]) for own in scores])
    defined = precision[:, ~np.isnan(precision[0])]
    means = defined.mean(axis=1)
    below = defined[means.argmax()] - defined
    mean_below, error = below.mean(axis=1), below.std(axis=1, ddof=1) / np.sqrt(defined.shape[1])
    fits = [get_estimator(methods[i])(k).fit(X, Y) for i in np.flatnonzero(mean_below <= error)]
    if len(fits) == 1:
        return means, mean_below, error, fits[0].ranking_
    ranks = []
    for fit in fits:
        scores = np.where(np.ptp(X, axis=0) > 0, fit.scores_, -np.inf)
        by_score = np.array_equal(fit.ranking_, np.argsort(-scores, kind="stable"))
        ranks.append(rankdata(-scores) if by_score else np.argsort(fit.ranking_) + 1.0)
    # Sums in another order differ in their last digits.
    return means, mean_below, error, np.argsort(np.round(np.mean(ranks, axis=0), 9), kind="stable")
