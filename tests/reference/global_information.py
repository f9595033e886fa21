"""GRRO, MICO and QPMLFS from plain loops over pairs, a dense linear system, and SciPy's general minimiser; in bits."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import minimize

from tests.reference.label_entropy import discretise, entropy


def information(a, b):
    """I(a; b) of two sequences of states, in bits."""
    return (entropy(a) + entropy(b) - entropy(a * (b.max() + 1) + b)) / math.log(2)


def equal_frequency(X):
    """0 up to the value in the middle of the sorted ones, 1 above it."""
    return (np.sort(X, axis=0)[(len(X) + 1) // 2 - 1] < X).astype(int)


def tables(X, Y, bins=2, codes=None):
    """R = I(f; l), Q = I(f; g) with entropies on its diagonal, and S = I(l; m)."""
    F = (discretise(np.asarray(X, dtype=float), bins) if codes is None else codes).T
    L = np.asarray(Y, dtype=int).T
    R, Q, S = (np.array([[information(a, b) for b in right] for a in left]) for left, right in ((F, L), (F, F), (L, L)))
    return R, Q, S


def distances(Y):
    """Cosine distances between the columns of Y."""
    q = Y.shape[1]
    D = np.zeros((q, q))
    for i in range(q):
        for j in range(q):
            size = math.sqrt(float(Y[:, i] @ Y[:, i]) * float(Y[:, j] @ Y[:, j]))
            D[i, j] = 1 - float(Y[:, i] @ Y[:, j]) / size if size else 0.0
    return D


def grro(X, Y, *, alpha=100.0, beta=0.1, bins=2, codes=None):
    """Row sums of W, where ½‖W − R‖² + α/2 tr(W'QW) + β/2 tr(W D W') has no slope."""
    R, Q, _ = tables(X, Y, bins, codes)
    np.fill_diagonal(Q, 1.0)
    return weights_of_grro(R, Q, Y, alpha=alpha, beta=beta)


def low_rank(Q, landmarks):
    """C P^+ C' with the diagonal of Q, where C and P are Q's columns of landmarks and their rows of it."""
    C = Q[:, landmarks]
    approximation = C @ np.linalg.pinv(C[landmarks], hermitian=True) @ C.T
    return approximation + np.diag(np.maximum(np.diag(Q) - np.diag(approximation), 0.0))


def weights_of_grro(R, Q, Y, *, alpha, beta):
    """Row sums of W, as `grro`."""
    d, q = R.shape
    D = distances(np.asarray(Y, dtype=int))
    system = np.kron(np.eye(d) + alpha * Q, np.eye(q)) + np.kron(np.eye(d), beta * D.T)
    return np.linalg.solve(system, R.ravel()).reshape(d, q).sum(axis=1)


def mico_objective(W, R, Q, S, alpha, beta):
    """What MICO minimises, by sums over pairs."""
    d, q = R.shape
    value = -sum(W[f, j] * R[f, j] for f in range(d) for j in range(q))
    value += 0.5 * alpha * sum(W[f, j] * Q[f, g] * W[g, j] for f in range(d) for g in range(d) for j in range(q))
    pairs = [(i, j) for i in range(q) for j in range(i)]
    return value + 0.5 * beta * sum(S[i, j] * np.sum((W[:, i] - W[:, j]) ** 2) for i, j in pairs)


def qpmlfs_objective(x, r, Q, alpha):
    """What QPMLFS minimises."""
    return 0.5 * (1 - alpha) * x @ Q @ x - alpha * r @ x


def least(objective, shape):
    """Where an objective is least among weights that are not negative, and of which each column sums to 1."""
    d, c = shape
    sums = {"type": "eq", "fun": lambda w: w.reshape(shape).sum(axis=0) - 1}
    found = minimize(
        lambda w: objective(w.reshape(shape)),
        np.full(d * c, 1 / d),
        method="SLSQP",
        bounds=[(0, None)] * (d * c),
        constraints=sums,
        options={"ftol": 1e-14, "maxiter": 2000},
    )
    return found.x.reshape(shape)
