"""ReliefF (Kononenko 1994) of label sets by loops over rows, classes and neighbours; every row is drawn once."""

from __future__ import annotations

import numpy as np


def prune(Y, min_rows):
    """Rows whose label set has enough rows, and their label sets."""
    sets = [tuple(row) for row in Y.tolist()]
    kept = [i for i in range(len(sets)) if sets.count(sets[i]) >= min_rows]
    return kept, [sets[i] for i in kept]


def relieff(X, Y, *, n_neighbors, min_rows, nominal=()):
    """Weights of the features; those in `nominal` differ by 1 or not at all."""
    spread = X.max(axis=0) - X.min(axis=0)
    kept, classes = prune(Y, min_rows)
    X = X[kept]
    n, d = X.shape

    def diff(i, j):
        different = np.abs(X[i] - X[j]) / np.where(spread > 0, spread, 1)
        for f in nominal:
            different[f] = X[i, f] != X[j, f]
        return different

    share = {c: classes.count(c) / n for c in set(classes)}
    weights = np.zeros(d)
    for i in range(n):
        for c in share:
            others = [j for j in range(n) if j != i and classes[j] == c]
            far = {j: round(diff(i, j).sum(), 9) for j in others}
            k = min(n_neighbors, len(others))
            last = sorted(far.values())[:k][-1:]
            nearer, ties = [j for j in others if [far[j]] < last], [j for j in others if [far[j]] == last]
            factor = -1.0 if c == classes[i] else share[c] / (1 - share[classes[i]])
            for j in nearer + ties:
                part = 1 if j in nearer else (k - len(nearer)) / len(ties)
                weights += factor * part * diff(i, j) / (n * k)
    return weights
