"""Regressions on all features at once, dense and plain, on the rows themselves."""

from __future__ import annotations

import numpy as np


def norms(A):
    return np.sqrt((A * A).sum(axis=1))


def standardised(X):
    std = X.std(axis=0)
    constant = X.min(axis=0) == X.max(axis=0)
    return np.where(constant, 0.0, (X - X.mean(axis=0)) / np.where(constant, 1.0, std))


def cosines(Y):
    size = np.sqrt((Y * Y).sum(axis=0))
    return np.divide(Y.T @ Y, np.outer(size, size), out=np.zeros((Y.shape[1],) * 2), where=np.outer(size, size) > 0)


def llsf(X, Y, *, alpha=0.1, beta=0.1, correlation="shifted", variant="corrected", ridge=0.1, tol=1e-5, max_iter=1000):
    """Scores: proximal gradients with momentum, which begins again where the objective would rise."""
    Y = np.asarray(Y, dtype=float)
    some = Y.any(axis=0)
    R = np.where(np.outer(some, some), 1.0 - cosines(Y), 0.0)

    def soft(W, threshold):
        return np.sign(W) * np.maximum(np.abs(W) - threshold, 0.0)

    if variant == "published":
        W = before = np.linalg.solve(X.T @ X + ridge * np.eye(X.shape[1]), X.T @ Y)
        L = np.sqrt(2.0 * (np.linalg.norm(X.T @ X, 2) ** 2 + np.linalg.norm(alpha * R, 2) ** 2))
        old = new = 1.0
        last = 0.0
        for _ in range(max_iter):
            V = W + (old - 1.0) / new * (W - before)
            before, old, new = W, new, (1.0 + np.sqrt(4.0 * new**2 + 1.0)) / 2.0
            W = soft(V - (X.T @ (X @ V - Y) + alpha * V @ R) / L, beta / L)
            loss = ((X @ W - Y) ** 2).sum() + alpha * np.trace(W @ R @ W.T) + beta * np.count_nonzero(W)
            if abs(last - loss) <= 1e-4 or loss <= 0:
                break
            last = loss
        return norms(W)
    X, y = standardised(X), Y - Y.mean(axis=0)
    if correlation == "laplacian":
        R = np.diag(cosines(Y).sum(axis=1)) - cosines(Y)
    else:
        R = R - np.linalg.eigvalsh(R)[0] * np.eye(len(R))
    alpha, beta = alpha * len(X), beta * np.abs(X.T @ y).max()

    def objective(W):
        return 0.5 * ((X @ W - y) ** 2).sum() + 0.5 * alpha * np.trace(W @ R @ W.T) + beta * np.abs(W).sum()

    W = V = np.zeros((X.shape[1], y.shape[1]))
    L, momentum = (X * X).sum(axis=0).max() + alpha * np.diag(R).max(), 1.0
    for _ in range(max_iter):
        slope = X.T @ (X @ V - y) + alpha * V @ R
        while True:
            new = soft(V - slope / L, beta / L)
            D = new - V
            if ((X @ D) ** 2).sum() + alpha * np.trace(D @ R @ D.T) <= L * (D * D).sum():
                break
            L *= 2.0
        if objective(new) > objective(W):
            if momentum == 1.0:
                break
            V, momentum = W, 1.0
            continue
        faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        V = new + (momentum - 1.0) / faster * (new - W)
        change, W, momentum = np.linalg.norm(new - W), new, faster
        if change <= tol * np.linalg.norm(W):
            break
    return norms(W)


def fssrdm(X, Y, *, beta=0.5, gamma=0.1, tol=1e-6, max_iter=200):
    """Scores: the norms of rows of W are touched from above by squares, again and again."""
    Y = np.asarray(Y, dtype=float)
    labelled = (Y >= 0).all(axis=1)
    X, Y = standardised(X[labelled]), Y[labelled]
    C = cosines(Y)
    F = Y @ (C / np.maximum(C.sum(axis=1, keepdims=True), 1.0))
    F = F - F.mean(axis=0)
    G, A = X.T @ X, X.T @ F
    largest = np.linalg.eigvalsh(F.T @ X @ np.linalg.pinv(G, rcond=1e-12) @ X.T @ F)[-1]
    gamma = gamma * 2.0 * norms(A).max()
    quadratic = G - beta / largest * A @ A.T
    t, epsilon, objective = np.ones(len(G)), 0.0, []
    for _ in range(max_iter):
        root = np.sqrt(t)
        W = root[:, None] * np.linalg.solve(
            root[:, None] * quadratic * root + gamma * np.eye(len(G)), root[:, None] * A
        )
        epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
        t = 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2)
        objective.append(np.trace(W.T @ quadratic @ W - 2.0 * W.T @ A) + gamma * (t / 2.0 - epsilon).sum())
        if len(objective) > 1 and objective[-2] - objective[-1] <= tol * np.abs(objective).max():
            break
    return norms(W)
