"""Tests of labels and features as SciPy has them, one pair after another."""

import numpy as np
from scipy import stats


def pair_tests(X, Y):
    """(q, d) arrays of effects, statistics and p-values; NaN where feature or label is constant, or -1 is left out."""
    effect, statistic, p = (np.full((Y.shape[1], X.shape[1]), np.nan) for _ in range(3))
    for label in range(Y.shape[1]):
        known = Y[:, label] >= 0
        for feature in range(X.shape[1]):
            x, y = X[known, feature].astype(float), Y[known, label].astype(float)
            if np.ptp(x) and np.ptp(y):
                effect[label, feature], statistic[label, feature], p[label, feature] = pair_test(x, y)
    return effect, statistic, p


def pair_test(x, y):
    n = len(x)
    r, p = stats.pearsonr(x, y)
    t = r * np.sqrt((n - 2) / (1 - r * r)) if abs(r) < 1 else np.inf * r
    skewness = stats.skew(x) * stats.skew(y) / np.sqrt(n)
    score = abs(r) * np.sqrt(n - 1) if abs(skewness) > 0.3 else abs(t)
    if skewness * r > 0 and score > 1 and abs(skewness) > 1e-3:
        p = max(p, 2 * stats.pearson3.sf(score, abs(skewness)))
    if set(np.unique(x)) != {0.0, 1.0}:
        return x[y == 1].mean() - x[y == 0].mean(), t, p
    counts = np.array([[np.sum((x == i) & (y == j)) for i in (0, 1)] for j in (0, 1)])
    odds = counts + 0.5
    effect = np.log(odds[1, 1] * odds[0, 0] / (odds[0, 1] * odds[1, 0]))
    expected = np.outer(counts.sum(1), counts.sum(0)) / n
    if expected.min() < 1 / 0.09:
        law = stats.hypergeom(n, int(x.sum()), int(y.sum()))
        half = law.pmf(counts[1, 1]) / 2
        p = 2 * min(law.sf(counts[1, 1]) + half, law.cdf(counts[1, 1]) - half)
    return effect, t, p


def partial_tests(X, Y):
    """(q, d) arrays of slopes, t and p-values given the other features, label by label: the larger of two p-values."""
    n, d = X.shape
    Z = np.column_stack([np.ones(n), X])
    inverse = np.linalg.inv(Z.T @ Z)
    R = np.corrcoef(X.T)
    slopes, t, p = (np.empty((Y.shape[1], d)) for _ in range(3))
    for label, y in enumerate(Y.T.astype(float)):
        beta = inverse @ Z.T @ y
        squares = ((y - Z @ beta) ** 2).sum()
        slopes[label] = beta[1:]
        t[label] = beta[1:] / np.sqrt(np.diag(inverse)[1:] * squares / (n - d - 1))
        skewness = stats.skew(X) * stats.skew(y) / np.sqrt(n)
        first = [normal_score(value, own) for value, own in zip(t[label], skewness, strict=True)]
        marginal = np.array([pair_test(x, y)[2] for x in X.T])
        r = np.array([stats.pearsonr(x, y)[0] for x in X.T])
        scored = np.sign(r) * np.minimum(np.abs(r) * np.sqrt(n), stats.norm.isf(marginal / 2))
        moved = np.linalg.solve(R, scored)
        left = max(squares / (n * y.var()), 1 - scored @ moved / n)
        second = moved / np.sqrt(np.diag(np.linalg.inv(R)) * left * n / (n - d - 1))
        p[label] = 2 * stats.t.sf(np.minimum(np.abs(first), np.abs(second)), n - d - 1)
    return slopes, t, p


def normal_score(value, skewness):
    if value * skewness <= 0 or abs(value) <= 1 or abs(skewness) <= 1e-3:
        return value
    return np.sign(value) * min(abs(value), stats.norm.isf(stats.pearson3.sf(abs(value), abs(skewness))))
