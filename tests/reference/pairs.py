"""Tests of labels and features as SciPy has them, one pair after another."""

import numpy as np
from scipy import optimize, stats


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
    kurtosis = stats.kurtosis(x) * stats.kurtosis(y) / n
    score = abs(r) * np.sqrt(n - 1) if abs(skewness) > 0.3 or kurtosis > 0.3 else abs(t)
    p = max(p, 2 * heavy_tail(score, skewness * np.sign(r), kurtosis))
    if set(np.unique(x)) != {0.0, 1.0}:
        return x[y == 1].mean() - x[y == 0].mean(), t, p
    counts = np.array([[np.sum((x == i) & (y == j)) for i in (0, 1)] for j in (0, 1)])
    odds = counts + 0.5
    effect = np.log(odds[1, 1] * odds[0, 0] / (odds[0, 1] * odds[1, 0]))
    expected = np.outer(counts.sum(1), counts.sum(0)) / n
    if effect * r < 0:
        effect = (counts[1, 1] - expected[1, 1]) / stats.hypergeom(n, int(x.sum()), int(y.sum())).var()
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
        kurtosis = stats.kurtosis(X) * stats.kurtosis(y) / n
        first = [normal_score(*each) for each in zip(t[label], skewness, kurtosis, strict=True)]
        marginal = np.array([pair_test(x, y)[2] for x in X.T])
        r = np.array([stats.pearsonr(x, y)[0] for x in X.T])
        scored = np.sign(r) * np.minimum(np.abs(r) * np.sqrt(n), stats.norm.isf(marginal / 2))
        moved = np.linalg.solve(R, scored)
        left = max(squares / (n * y.var()), 1 - scored @ moved / n)
        second = moved / np.sqrt(np.diag(np.linalg.inv(R)) * left * n / (n - d - 1))
        p[label] = 2 * stats.t.sf(np.minimum(np.abs(first), np.abs(second)), n - d - 1)
    return slopes, t, p


def normal_score(value, skewness, kurtosis):
    tail = heavy_tail(abs(value), skewness * np.sign(value), kurtosis)
    return np.sign(value) * min(abs(value), stats.norm.isf(min(tail, 0.5)))


def heavy_tail(score, skewness, kurtosis):
    """P(score or more) of a law with these cumulants; 0 where that of t is as large."""
    if not score > 1 or np.isinf(score) or max(abs(skewness), kurtosis) <= 1e-3:
        return 0.0
    if kurtosis <= 1.5 * skewness**2:
        return stats.pearson3.sf(score, skewness) if skewness > 0 else 0.0
    # The difference of two gamma variables of one scale, at the saddlepoint of its cumulants' generating function.
    scale = np.sqrt(kurtosis / 6)
    right, left = (1 + skewness / (2 * scale)) / scale**2 / 2, (1 - skewness / (2 * scale)) / scale**2 / 2
    if kurtosis > 10:
        return stats.gamma.sf(score + (right - left) * scale, right, scale=scale)

    def generating(s):
        return -right * np.log(1 - scale * s) - left * np.log(1 + scale * s) - (right - left) * scale * s

    def slope(s):
        return right * scale / (1 - scale * s) - left * scale / (1 + scale * s) - (right - left) * scale

    s = optimize.brentq(lambda s: slope(s) - score, 0, (1 - 1e-13) / scale, xtol=1e-15, rtol=1e-14)
    w = np.sqrt(2 * (s * score - generating(s)))
    v = s * scale * np.sqrt(right / (1 - scale * s) ** 2 + left / (1 + scale * s) ** 2)
    return stats.norm.sf(w) + stats.norm.pdf(w) * (1 / v - 1 / w)


def shuffled_within(x, Y, strata):
    """(2, q) arrays of z and p-values of a feature, labels being shuffled within strata: Mantel and Haenszel's."""
    found = []
    for y in Y.T:
        covariance, variance, third, fourth, second = 0.0, 0.0, 0.0, 0.0, 0.0
        for stratum in np.unique(strata):
            rows = (strata == stratum) & (y >= 0)
            own, label, n = x[rows] - x[rows].mean(), y[rows] - y[rows].mean(), rows.sum()
            covariance += own @ label
            variance += (own @ own) * (label @ label) / (n - 1)
            second += n * own.var() * label.var()
            third += n * np.mean(own**3) * np.mean(label**3)
            cumulants = [np.mean(each**4) - 3 * each.var() ** 2 for each in (own, label)]
            fourth += n * cumulants[0] * cumulants[1]
        z = covariance / np.sqrt(variance)
        tail = heavy_tail(abs(z), third / second**1.5 * np.sign(z), fourth / second**2)
        found.append((z, 2 * max(stats.norm.sf(abs(z)), tail)))
    return np.array(found).T
