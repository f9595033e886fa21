"""SPFS by forward selection (Zhao et al. 2013) with the similarity of all pairs of rows."""

from __future__ import annotations

import numpy as np


def similarity(Y):
    """K_ij before it is scaled: 1/n_l summed over the labels that rows i and j share; labels may be of a share."""
    n = len(Y)
    K = np.zeros((n, n))
    for label in range(Y.shape[1]):
        rows = np.flatnonzero(Y[:, label])
        for i in rows:
            for j in rows:
                K[i, j] += Y[i, label] * Y[j, label] / Y[:, label].sum()
    return K


def normalise(X):
    """Features centred and of norm 1."""
    centred = X - X.mean(axis=0)
    return centred / np.linalg.norm(centred, axis=0)


def spfs(X, Y):
    """The order in which features are chosen, and by how much each lowers ‖R‖²."""
    F, R = normalise(X), similarity(Y)
    centre = np.eye(len(R)) - 1 / len(R)
    R *= np.trace(F @ F.T) / np.trace(centre @ R @ centre)
    order, falls = [], []
    while len(order) < X.shape[1]:
        left = [f for f in range(X.shape[1]) if f not in order]
        residuals = [np.sum((R - np.outer(F[:, f], F[:, f])) ** 2) for f in left]
        best = left[int(np.argmin(residuals))]
        falls.append(np.sum(R**2) - min(residuals))
        R = R - np.outer(F[:, best], F[:, best])
        order.append(best)
    return order, falls
