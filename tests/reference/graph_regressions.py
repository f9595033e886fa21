"""Regressions on labels that are alike in near rows, by dense algebra, a row at a time."""

from __future__ import annotations

import numpy as np

from tests.reference.regressions import norms, reweighted, standardised


def neighbour_graph(points, k):
    """Binary graph of the k nearest rows, those as far as the k-th sharing what is left; half where one-sided."""
    D = ((points[:, None, :] - points[None, :, :]) ** 2).sum(axis=2)
    S = np.zeros(D.shape)
    for i, row in enumerate(D):
        others = np.delete(np.arange(len(D)), i)
        last = np.sort(row[others])[k - 1]
        nearer = [j for j in others if row[j] < last]
        tied = [j for j in others if row[j] == last]
        S[i, nearer] = 1.0
        S[i, tied] = (k - len(nearer)) / len(tied)
    return (S + S.T) / 2


def mdfs_steps(X, Y, L, L_0, W, *, alpha, beta, gamma, tol, max_iter, weights=None, inner=1):
    """W, the first F, the last one, and the objective; the Laplacians of rows and labels are given.

    F solves (L + αH + αI) F + β F L_0 = α (HXW + Y), by the eigenvectors of both sides. `weights` gives 1/D of the next
    step of W from W.
    """
    n, H = len(X), np.eye(len(X)) - 1.0 / len(X)
    s, E = np.linalg.eigh(L + alpha * H + alpha * np.eye(n))
    t, V = np.linalg.eigh(beta * L_0)
    G = X.T @ H @ X
    weights = weights or (lambda W: 2.0 * np.sqrt(norms(W) ** 2 + 2.0**-52))
    first, objective = None, []
    for _ in range(max_iter):
        F = E @ ((E.T @ (alpha * (H @ X @ W + Y)) @ V) / (s[:, None] + t)) @ V.T
        first = F if first is None else first
        if callable(gamma):
            gamma = gamma(F)
        for _ in range(inner):
            W, before = reweighted(alpha * G, alpha * X.T @ H @ F, gamma, weights(W)), W
            if np.linalg.norm(W - before) <= 0.01 * np.linalg.norm(W):
                break
        value = np.trace(F.T @ L @ F) + alpha * (((H @ (X @ W - F)) ** 2).sum() + ((F - Y) ** 2).sum())
        value += gamma * np.sqrt(norms(W) ** 2 + 2.0**-52).sum()
        objective.append(value + beta * np.trace(F @ L_0 @ F.T))
        if len(objective) > 1 and abs(objective[-2] - objective[-1]) <= tol * objective[-2]:
            break
    return W, first, F, objective


def mdfs(
    X,
    Y,
    Z,
    *,
    alpha=1.0,
    beta=1.0,
    gamma=0.1,
    absolute=False,
    label_neighbors=None,
    n_neighbors=5,
    tol=1e-5,
    max_iter=200,
):
    """Scores; Z holds the weights of anchors, (n, m)."""
    X, Y = standardised(X), np.asarray(Y, dtype=float)
    n, q = Y.shape
    L = n_neighbors * (np.eye(n) - Z @ np.linalg.pinv(np.diag(Z.sum(axis=0))) @ Z.T)
    k = min(5, q - 2) if label_neighbors is None else min(label_neighbors, q - 1)
    S = neighbour_graph(Y.T, k) / k if k > 0 else np.zeros((q, q))
    epsilon = []

    def weights(W):
        if not W.any():
            return np.ones(len(W))
        epsilon.extend([] if epsilon else [1e-6 * np.sqrt((norms(W) ** 2).mean())])
        return 2.0 * np.sqrt(norms(W) ** 2 + epsilon[0] ** 2)

    return norms(
        mdfs_steps(
            X,
            Y,
            L,
            np.diag(S.sum(axis=1)) - S,
            np.zeros((X.shape[1], q)),
            alpha=alpha,
            beta=beta,
            gamma=gamma if absolute else lambda F: gamma * 2.0 * alpha * norms(X.T @ (F - F.mean(axis=0))).max(),
            tol=tol,
            max_iter=max_iter,
            weights=weights,
            inner=10,
        )[0]
    )
