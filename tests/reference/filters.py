"""The filters by plain loops over features, labels and rows, from their papers' definitions."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import linalg

from tests.reference.anchors import row_weights
from tests.reference.label_entropy import discretise, entropy


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
        table = np.zeros((code.max() + 1, Y.shape[1]))
        for c, y in zip(code, Y, strict=True):
            for label in np.flatnonzero(y):
                table[c, label] += 1 / y.sum()
        for c in range(len(table)):
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


def scatters(x, Y):
    """(about the mean of all rows, about that of the labels' rows, within the labels), each row once for a label."""
    groups = [x[y == 1] for y in Y.T if y.any()]
    mean = np.concatenate(groups).mean()
    about_rows = sum(len(g) * (g.mean() - x.mean()) ** 2 for g in groups)
    between = sum(len(g) * (g.mean() - mean) ** 2 for g in groups)
    return about_rows, between, sum(((g - g.mean()) ** 2).sum() for g in groups)


def fisher(X, Y):
    """Scatter of the labels' means over that within the labels."""
    found = [scatters(x, Y) for x in X.T]
    return np.array([about / within if within else 0.0 for about, _, within in found])


def mfs_f(X, Y):
    """((n − K) / (K − 1)) S_b / S_w."""
    n, K = len(Y), int(Y.any(axis=0).sum())
    found = [scatters(x, Y) for x in X.T]
    return np.array([(n - K) / (K - 1) * between / within if within else 0.0 for _, between, within in found])


def mddm(X, Y, constraint="projection", n_components=None, mu=0.5, standardise=True):
    """Norms of the rows of P L^(1/2), P and L from the generalised eigenproblem of d × d matrices."""
    n, d = X.shape
    H = np.eye(n) - 1 / n
    std = X.std(axis=0)
    Z = H @ X / np.where((std > 0) & standardise, std, 1)
    S = Z.T @ H @ Y @ Y.T @ H @ Z
    C = np.eye(d) if constraint == "projection" else mu * Z.T @ Z + (1 - mu) * np.eye(d)
    values, P = linalg.eigh(S, C)
    kept = np.argsort(-values)[: n_components or Y.shape[1]]
    values = np.where(values > 1e-9 * values.max(), values, 0)  # there are no more directions than labels
    return np.sqrt((P[:, kept] ** 2 * values[kept]).sum(axis=1))


def gmlc(X, Y):
    """f'HYY'Hf."""
    H = np.eye(len(X)) - 1 / len(X)
    return np.diag(X.T @ H @ Y @ Y.T @ H @ X)


def fimf(X, Y, bins=2, n_interacting_labels=10):
    """Σ M(f; l) − Σ over pairs of the labels of largest entropy of M(l; l') − M(l; l' | f)."""
    codes = discretise(X, bins)
    H = [entropy(y) for y in Y.T]
    chosen = sorted(range(len(H)), key=lambda label: (-H[label], label))[:n_interacting_labels]
    scores = np.zeros(X.shape[1])
    for f, code in enumerate(codes.T):
        H_f = entropy(code)
        for label, y in enumerate(Y.T):
            scores[f] += H_f + H[label] - entropy(code * 2 + y)
        for i, j in itertools.combinations(chosen, 2):
            a, b = Y[:, i], Y[:, j]
            shared = H[i] + H[j] - entropy(2 * a + b)
            given = entropy(code * 2 + a) + entropy(code * 2 + b) - H_f - entropy(code * 4 + 2 * a + b)
            scores[f] -= shared - given
    return scores


def nearest_graph(X, k, width=None):
    """S_ij = exp(−d²/width) where either of two standardised rows is among the k nearest of the other; ties share."""
    std = X.std(axis=0)
    points = (X - X.mean(axis=0)) / np.where(std > 0, std, 1)
    n = len(X)
    squares = np.array([[((points[i] - points[j]) ** 2).sum() for j in range(n)] for i in range(n)])
    member = np.zeros((n, n))
    for i in range(n):
        others = np.delete(np.arange(n), i)
        last = np.sort(squares[i, others])[min(k, n - 1) - 1]
        nearer = [j for j in others if squares[i, j] < last - 1e-9 * (1 + last)]
        tied = [j for j in others if abs(squares[i, j] - last) <= 1e-9 * (1 + last)]
        member[i, nearer] = 1.0
        member[i, tied] = (min(k, n - 1) - len(nearer)) / len(tied)
    return np.maximum(member, member.T) * np.exp(-squares / (squares.mean() if width is None else width))


def anchor_graph(X, centres, s):
    """S = ZΛ⁻¹Z' of given anchors among standardised rows."""
    std = X.std(axis=0)
    Z = row_weights((X - X.mean(axis=0)) / np.where(std > 0, std, 1), centres, s)
    return Z @ np.diag(1 / Z.sum(axis=0)) @ Z.T


def laplacian(X, S):
    """1 − f'Lf / f'Df of the features, centred by the degrees, with a graph S of the rows."""
    std = X.std(axis=0)
    D = np.diag(S.sum(axis=1))
    scores = np.zeros(X.shape[1])
    for f, x in enumerate(X.T):
        if std[f]:
            centred = x - x @ D.sum(axis=1) / D.sum()
            scores[f] = 1 - centred @ (D - S) @ centred / (centred @ D @ centred)
    return scores
