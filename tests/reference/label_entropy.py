"""Lee & Kim (2016) and González-López et al. (2020) by plain loops over pairs of feature and label."""

from __future__ import annotations

import math

import numpy as np


def entropy(values):
    """Entropy of a sequence of states, in natural logarithms."""
    _, counts = np.unique(values, return_counts=True)
    shares = counts / counts.sum()
    return -sum(p * math.log(p) for p in shares)


def discretise(X, bins, binning="auto"):
    """Codes of every column; a value on an edge belongs below it."""
    codes = np.zeros(X.shape, dtype=int)
    for f in range(X.shape[1]):
        for edge in edges(X[:, f], bins, binning):
            codes[:, f] += X[:, f] > edge
    return codes


def edges(column, bins, binning):
    """Edges of one column: of equal width, at quantiles, or around a zero that most values are."""
    low, high = column.min(), column.max()
    if low == high:
        return []
    if set(column) == {0, 1}:
        return [0]
    if binning == "equal-width":
        return [(low * (bins - j) + high * j) / bins for j in range(1, bins)]
    if binning == "auto" and (column == 0).sum() * 2 > len(column):
        others = column[column != 0]
        inner = [quantile(others, j, bins - 1) for j in range(1, bins - 1)]
        around = [column[column < 0].max()] if low < 0 else []
        around += [0] if high > 0 else []
        return sorted({edge for edge in [*inner, *around] if edge < high})
    found = sorted({q for j in range(1, bins) if (q := quantile(column, j, bins)) < high})
    if binning == "auto" and not found:
        shares = [(j, b) for b in range(2, 9) for j in range(1, b)] + [(1, 100), (99, 100)]
        finer = [q for j, b in shares if (q := quantile(column, j, b)) < high]
        found = [max(finer, default=(low + high) / 2)]
    return found


def quantile(values, j, bins):
    """The smallest value that at least j/bins of the values do not exceed."""
    return np.sort(values)[-(-j * len(values) // bins) - 1]


def informations(X, Y, bins):
    """M(f; l) as a (d, q) table."""
    codes = discretise(np.asarray(X, dtype=float), bins)
    table = np.zeros((X.shape[1], Y.shape[1]))
    for f in range(X.shape[1]):
        for label in range(Y.shape[1]):
            joint = codes[:, f] * 2 + Y[:, label]
            table[f, label] = entropy(codes[:, f]) + entropy(Y[:, label]) - entropy(joint)
    table[np.abs(table) < 1e-13] = 0.0  # rounding, which the geometric mean would blow up
    return table


def label_entropy(X, Y, *, n_promising_labels, bins=2, order="descending"):
    """Algorithm 1, line 9: M(f; l) over the promising labels, min(H(f), H(l)) over the others."""
    Y = np.asarray(Y)
    q = Y.shape[1]
    p = n_promising_labels
    if isinstance(p, float):
        p = math.ceil(p * q - 1e-9)
    H_l = [entropy(Y[:, label]) for label in range(q)]
    sign = 1 if order == "ascending" else -1
    order = sorted(range(q), key=lambda label: (sign * H_l[label], label))
    table = informations(X, Y, bins)
    codes = discretise(np.asarray(X, dtype=float), bins)
    scores = []
    for f in range(X.shape[1]):
        H_f = entropy(codes[:, f])
        exact = sum(table[f, label] for label in order[:p])
        bound = sum(min(H_f, H_l[label]) for label in order[p:])
        scores.append(exact + bound)
    return np.array(scores)


def enm(X, Y, *, bins=2):
    """Euclidean norm of the informations."""
    return np.sqrt((informations(X, np.asarray(Y), bins) ** 2).sum(axis=1))


def gmm(X, Y, *, bins=2):
    """Geometric mean of the informations, over labels that differ between rows."""
    Y = np.asarray(Y)
    table = informations(X, Y[:, Y.min(axis=0) < Y.max(axis=0)], bins)
    return table.prod(axis=1) ** (1 / table.shape[1])
