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
