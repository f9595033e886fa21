"""RFS as its paper and its authors' program have it, dense and plain: weights of rows and of features in turn."""

from __future__ import annotations

import numpy as np


def norms(A):
    return np.sqrt((A * A).sum(axis=1))


def rfs(X, Y, *, gamma=0.1, absolute=False, variant="corrected", tol=1e-4, max_iter=45):
    """Scores, objective of every iteration, and whether it converged.

    Parameters
    ----------
    X : array, shape (n, d)
    Y : 0/1 array, shape (n, q)
    """
    Y = np.asarray(Y, dtype=float)
    n, d = X.shape
    published = variant == "published"
    std = X.std(axis=0, ddof=1 if published else 0)
    constant = X.min(axis=0) == X.max(axis=0)
    X = np.where(constant, 0.0, (X - X.mean(axis=0)) / np.where(constant, 1.0, std))
    e = np.sqrt(np.finfo(float).eps) if published else 0.05
    W, b = np.zeros((d, Y.shape[1])), Y.mean(axis=0)
    s = np.ones(n) if published else 0.5 / np.sqrt(norms(b - Y) ** 2 + e**2)
    if not published and not absolute:
        gamma = gamma * 2.0 * norms(X.T @ (s[:, None] * (Y - b))).max()
    t, epsilon, objective, converged = None, None, [], False
    for _ in range(max_iter):
        if published:
            A = np.hstack([np.ones((n, 1)), X])
            size = norms(np.vstack([b, W]))
            t = np.full(d + 1, 1.0 / gamma) if t is None else 2.0 * np.sqrt(size**2 + (e / gamma) ** 2)
            V = np.linalg.solve(A.T @ (s[:, None] * A) + gamma * np.diag(1.0 / t), A.T @ (s[:, None] * Y))
            b, W = V[0], V[1:]
        else:
            x, y = s @ X / s.sum(), s @ Y / s.sum()
            G, B = (X - x).T @ (s[:, None] * (X - x)), (X - x).T @ (s[:, None] * (Y - y))
            for _ in range(10):
                t = np.ones(d) if epsilon is None else 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2)
                before, root = W, np.sqrt(t)
                # Symmetric, since weights of features lie far apart.
                W = root[:, None] * np.linalg.solve(root[:, None] * G * root + gamma * np.eye(d), root[:, None] * B)
                epsilon = 1e-6 * np.sqrt((norms(W) ** 2).mean()) if epsilon is None else epsilon
                if np.linalg.norm(W - before) <= 0.01 * np.linalg.norm(W):
                    break
            b = y - x @ W
        size = np.sqrt(norms(X @ W + b - Y) ** 2 + e**2)
        length = norms(np.vstack([b, W])) if published else np.sqrt(norms(W) ** 2 + epsilon**2) - epsilon
        objective.append(size.sum() + gamma * length.sum())
        s = 0.5 / size
        if len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]:
            converged = True
            break
    return norms(W), objective, converged
