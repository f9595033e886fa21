"""CMFS with all latent labels in memory, dense and plain."""

from __future__ import annotations

import numpy as np

from tests.reference.mfsir import factorise
from tests.reference.regressions import norms, standardised


def cmfs(X, Y, *, alpha=10.0, beta=0.1, gamma=0.1, absolute=False, n_latent=None, tol=1e-3, max_iter=60):
    """Scores and the objective of every iteration."""
    X, Y = standardised(X), np.asarray(Y, dtype=float)
    n, q = Y.shape
    V, B = factorise(Y, min(q, max(1, q // 2) if n_latent is None else n_latent))
    k = len(B)
    alpha = alpha * (X**2).sum() / (Y**2).sum()
    _, group, size = np.unique(Y, axis=0, return_inverse=True, return_counts=True)
    group = group.ravel()
    joined = size[group] > 1
    A, offset, U, objective = np.zeros((X.shape[1], k)), np.zeros(X.shape[1]), None, []
    weight = gamma * (1.0 if absolute else 2.0 * norms(X.T @ V).max())
    for i in range(max_iter + 1):
        if i:
            right = (X - offset) @ A + alpha * Y @ B.T + beta * np.where(joined[:, None], U[group], 0.0)
            for row in range(n):
                Q = A.T @ A + alpha * B @ B.T + beta * joined[row] * np.eye(k)
                v = np.maximum(right[row] @ np.linalg.pinv(Q, hermitian=True), 0.0)
                for _ in range(4):
                    for j in range(k):
                        v[j] = max(0.0, v[j] + (right[row, j] - Q[j] @ v) / Q[j, j])
                V[row] = v
            value = ((X - offset - V @ A.T) ** 2).sum() + alpha * ((Y - V @ B) ** 2).sum()
            value += beta * ((V - U[group]) ** 2)[joined].sum() + weight * norms(A).sum()
            objective.append(value)
            if i == max_iter or (i > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]):
                break
        for _ in range(5):
            B = np.maximum(B - (V.T @ V @ B - V.T @ Y) / np.linalg.eigvalsh(V.T @ V)[-1], 0.0)
            B /= norms(B)[:, None]
        centred = V - V.mean(axis=0)
        A = fista(A, X.T @ centred, centred.T @ centred, 0.5 * weight)
        offset = -A @ V.mean(axis=0)
        U = np.stack([np.bincount(group, V[:, j]) / size for j in range(k)], axis=1)
    return norms(A), objective


def fista(A, R, G, weight):
    """Steps of ½ tr AGA' − tr A'R + weight Σ‖a_f‖ with momentum, 50 at most."""

    def objective(A):
        return 0.5 * np.trace(A @ G @ A.T) - np.trace(A.T @ R) + weight * norms(A).sum()

    P, L, momentum = A, np.diag(G).max(), 1.0
    for _ in range(50):
        while True:
            new = P - (P @ G - R) / L
            new = new * np.maximum(1.0 - weight / L / np.maximum(norms(new), 1e-300), 0.0)[:, None]
            D = new - P
            if np.trace(D @ G @ D.T) <= L * (D * D).sum() * (1.0 + 1e-9):
                break
            L *= 2.0
        if objective(new) > objective(A):
            if momentum == 1.0:
                break
            P, momentum = A, 1.0
            continue
        faster = 0.5 * (1.0 + np.sqrt(1.0 + 4.0 * momentum**2))
        P = new + (momentum - 1.0) / faster * (new - A)
        change, A, momentum = np.linalg.norm(new - A), new, faster
        if change <= 1e-3 * np.linalg.norm(A):
            break
    return A
