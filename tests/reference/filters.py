"""The filters by plain loops over features, labels and rows, from their papers' definitions."""

from __future__ import annotations

import math

import numpy as np

from tests.reference.label_entropy import discretise


def br_cc(X, Y):
    """Sum over labels of |Pearson|."""
    scores = np.zeros(X.shape[1])
    for f, x in enumerate(X.T):
        for y in Y.T:
            if x.min() < x.max() and y.min() < y.max():
                scores[f] += abs(np.corrcoef(x, y)[0, 1])
    return scores


def anova_f(X, Y):
    """Sum over labels of the F statistic of the rows with and without the label."""
    scores = np.zeros(X.shape[1])
    for f, x in enumerate(X.T):
        for y in Y.T:
            groups = [x[y == v] for v in (0, 1)]
            if x.min() == x.max() or not all(map(len, groups)):
                continue
            between = sum(len(g) * (g.mean() - x.mean()) ** 2 for g in groups)
            within = sum(((g - g.mean()) ** 2).sum() for g in groups)
            scores[f] += between / (within / (len(x) - 2))
    return scores


def chi2(X, Y, bins=2):
    """Sum over labels of Pearson's χ² of the table of codes and having the label."""
    codes, scores = discretise(X, bins), np.zeros(X.shape[1])
    for f, code in enumerate(codes.T):
        for y in Y.T:
            for c in np.unique(code):
                for v in np.unique(y):
                    expected = (code == c).sum() * (y == v).sum() / len(y)
                    scores[f] += (((code == c) & (y == v)).sum() - expected) ** 2 / expected
    return scores


def ela_chi(X, Y, bins=2):
    """χ² of codes and classes, a row of |L| labels standing for |L| rows of weight 1/|L|."""
    codes, scores = discretise(X, bins), np.zeros(X.shape[1])
    for f, code in enumerate(codes.T):
        table = np.zeros((bins, Y.shape[1]))
        for c, y in zip(code, Y, strict=True):
            for label in np.flatnonzero(y):
                table[c, label] += 1 / y.sum()
        for c in range(bins):
            for label in range(Y.shape[1]):
                expected = table[c].sum() * table[:, label].sum() / table.sum()
                if expected:
                    scores[f] += (table[c, label] - expected) ** 2 / expected
    return scores


def br_or(X, Y, bins=2, smoothing=0.5):
    """Sum over labels of |log odds ratio|, the mean over codes weighted by their rows."""
    codes, scores = discretise(X, bins), np.zeros(X.shape[1])
    for f, code in enumerate(codes.T):
        for y in Y.T:
            if y.min() == y.max() or code.min() == code.max():
                continue
            for c in np.unique(code):
                has, label = code == c, y == 1
                a, b, c_, d = ((one & other).sum() + smoothing for one in (has, ~has) for other in (label, ~label))
                scores[f] += has.mean() * abs(math.log(a * d / (b * c_)))
    return scores
