"""MLMLFS as its authors' program has it, and with its errors corrected, dense and plain; labels are −1 and 1."""

from __future__ import annotations

import numpy as np

from tests.reference.regressions import norms, reweighted, standardised


def published(X, Y, S, *, alpha=0.01, lambda_=0.1, p=1.0, tol=1e-4, max_iter=45):
    """Scores; S is the graph of the rows."""
    X = standardised(X) * np.sqrt((len(X) - 1) / len(X))
    known, T, e = Y >= 0, np.where(Y > 0, 1.0, -1.0), np.finfo(float).eps
    rng, L = np.random.default_rng(0), np.diag(S.sum(axis=1)) - S
    W, b = rng.random((X.shape[1], Y.shape[1])), rng.random(Y.shape[1])
    F, h, objective = np.where(known, T, 0.0), np.ones(X.shape[1]), []
    s = 0.5 / np.sqrt(norms(X @ W + b - F) ** 2 + e)
    for _ in range(max_iter):
        x, f = X - s @ X / s.sum(), F - s @ F / s.sum()
        right = x.T @ (s[:, None] * f) + alpha * x.T @ L @ F
        W = np.linalg.solve(x.T @ (s[:, None] * x) + alpha * x.T @ L @ x + lambda_ * np.diag(h), right)
        h = 0.5 * p * (norms(W) ** 2 + e) ** (0.5 * p - 1.0)
        s = 0.5 / np.sqrt(norms(X @ W + b - F) ** 2 + e)
        b = (s @ F - s @ X @ W) / s.sum()
        P = X @ W + b
        F = np.where(known, T, np.clip(P, -1.0, 1.0))
        objective.append(norms(P - F).sum() + alpha * np.trace(P.T @ L @ P) + lambda_ * (norms(W) ** p).sum())
        if len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * abs(objective[-2]):
            break
    return norms(W)


def corrected(X, Y, Z, *, alpha=0.01, lambda_=0.1, absolute=False, p=1.0, n_neighbors=5, tol=1e-4, max_iter=45):
    """Scores; the labels of all rows are held, and Z, the weights of anchors, (n, m)."""
    X, Y = standardised(X), np.asarray(Y, dtype=float)
    smooth = alpha * n_neighbors * X.T @ (X - Z @ np.linalg.pinv(np.diag(Z.sum(axis=0))) @ Z.T @ X)
    some = (Y >= 0).any(axis=1)
    X, Y, e, d = X[some], Y[some], 0.05, X.shape[1]
    known = Y >= 0
    share = (Y == 1).sum(axis=0) / np.maximum(known.sum(axis=0), 1)
    varies = (share > 0) & (share < 1)
    W, b, t, epsilon, power, weight, objective = np.zeros((d, Y.shape[1])), 2.0 * share - 1.0, None, 0.0, 1.0, 0.0, []
    for i in range(max_iter + 1):
        P = X @ W + b
        F = np.where(known, 2.0 * Y - 1.0, np.clip(P, -1.0, 1.0))
        size = np.sqrt(norms(P - F) ** 2 + e**2)
        s = 0.5 / size
        if i:
            power = p
            penalty = ((norms(W) ** 2 + epsilon**2) ** (0.5 * p) - epsilon**p).sum()
            objective.append(size.sum() + np.trace(W.T @ smooth @ W) + weight * penalty)
            if i == max_iter or (i > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]):
                break
        else:
            slope = (X.T @ (s[:, None] * (F - b)))[:, varies]
            weight = lambda_ if absolute else lambda_ * 2.0 * norms(slope).max()
        x, f = s @ X / s.sum(), s @ F / s.sum()
        G, B = (X - x).T @ (s[:, None] * (X - x)) + smooth, (X - x).T @ (s[:, None] * (F - f))
        B[:, ~varies] = 0.0
        for _ in range(10):
            t = 2.0 / power * (norms(W) ** 2 + epsilon**2) ** (1.0 - 0.5 * power) if epsilon else np.ones(d)
            W, before = reweighted(G, B, weight, t), W
            epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
            if np.linalg.norm(W - before) <= 0.01 * np.linalg.norm(W):
                break
        b = f - x @ W
    return norms(W)
