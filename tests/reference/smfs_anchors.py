"""SMFS with landmarks by isolation mass: dense algebra, a row at a time, in the paper's letters; masses are given."""

from __future__ import annotations

import numpy as np

from tests.reference.anchors import simplex
from tests.reference.elc import standardise
from tests.reference.smfs import known_entries


def landmark_masses(trees, X, landmarks):
    """ξ of Eq. 2 of every row with every landmark: rows in the deepest node that both pass, summed over the trees."""
    xi = np.zeros((X.shape[0], len(landmarks)))
    for tree in trees:
        passed = np.asarray(tree.decision_path(X).todense(), dtype=bool)
        there = np.asarray(tree.decision_path(X[landmarks]).todense(), dtype=bool)
        mass = passed.sum(axis=0)
        for i in range(len(xi)):
            for a in range(len(landmarks)):
                xi[i, a] += mass[passed[i] & there[a]].min()
    return xi


def best_values(Y, Z, told, q):
    """U that is best for the told rows and for the others, whose labels are U'z_i: by turns, until nothing moves.

    An anchor that no told row reaches, nor through other rows, has −1.
    """
    m = Z.shape[1]
    reached = Z[told].sum(axis=0) > 0
    while True:
        rows = told | (Z[:, reached] > 0).any(axis=1)
        more = reached | (Z[rows] > 0).any(axis=0)
        if (more == reached).all():
            break
        reached = more
    U = np.full((m, q), -1.0)
    system = np.zeros((m, m))
    right = np.zeros((m, q))
    for i in range(len(Z)):
        system += np.diag(Z[i])
        if told[i]:
            right += np.outer(Z[i], Y[i])
        else:
            system -= np.outer(Z[i], Z[i])
    if reached.any():
        U[reached] = np.linalg.lstsq(system[np.ix_(reached, reached)], right[reached], rcond=1e-13)[0]
    return np.clip(U, -1, 1)


def smfs(
    X,
    Y,
    xi,
    Z=None,
    *,
    anchor_neighbors=5,
    alpha=None,
    beta=None,
    unknown_labels="auto",
    scale=True,
    inner=None,
    tol=1e-4,
    max_iter=45,
):
    """Scores, the objective of every iteration, (P, Y, U, Z); `xi` are masses with landmarks, unless Z is given."""
    X = standardise(X) if scale else np.where(np.std(X, axis=0) > 1e-12, X, 0.0)
    Y = np.asarray(Y)
    (n, d), q = X.shape, Y.shape[1]
    known = known_entries(Y, unknown_labels)
    told = known.any(axis=1)
    waits = (told & ~known.all(axis=1)).any()  # P for Y
    c = [sum(Y[:, j] == 1) for j in range(q)]
    s = np.array([sum(1 / c[j] for j in range(q) if Y[i, j] == 1) for i in range(n)])  # Eq. 7
    Z = np.array([simplex(row, anchor_neighbors) for row in xi]) if Z is None else Z
    alpha = (s[s > 0].mean() if s.any() else 1.0) / 3 if alpha is None else alpha

    F = np.where(Y == 1, 1.0, -1.0)
    U = np.full((Z.shape[1], q), -1.0)
    for a in range(Z.shape[1]):
        if Z[:, a].any():
            U[a] = Z[:, a] @ F / Z[:, a].sum()
    F = np.where(known, F, Z @ U)  # Eq. 4
    U = best_values(F, Z, told, q)
    system, B = X.T @ np.diag(s) @ X, X.T @ np.diag(s) @ F
    beta = 0.1 * 2 * np.sqrt((B**2).sum(axis=1)).max() if beta is None else beta
    D, P, epsilon, objective = np.full(d, 1 / (2 * np.sqrt(q))), np.zeros((d, q)), None, []
    while True:
        for _ in range(inner or 10):
            before = P
            P = np.zeros((d, q))
            some = np.isfinite(D)
            A = system[np.ix_(some, some)] + beta * np.diag(D[some])
            P[some] = np.linalg.lstsq(A, B[some], rcond=1e-13)[0]  # Eq. 10
            norms = np.sqrt((P**2).sum(axis=1))
            epsilon = epsilon or 1e-6 * np.sqrt((norms**2).mean())
            with np.errstate(divide="ignore"):
                D = 1 / (2 * np.sqrt(norms**2 + epsilon**2))  # Eq. 9
            if beta == 0 or (inner is None and np.linalg.norm(P - before) <= 0.01 * np.linalg.norm(P)):
                break
        for i in range(n):
            if s[i] + alpha > 0:
                free = (s[i] * X[i] @ P + alpha * Z[i] @ U) / (s[i] + alpha)
                F[i] = np.where(known[i], F[i], np.clip(free, -1, 1))
        value = (s * ((X @ P - F) ** 2).sum(axis=1)).sum()
        value += beta * (np.sqrt(norms**2 + epsilon**2) - epsilon).sum()
        for i in range(n):
            of_anchors = Z[i] @ ((F[i] if told[i] else Z[i] @ U) - U) ** 2
            value += alpha * of_anchors.sum()
        objective.append(value)
        scale = value if waits else (s * (F**2).sum(axis=1)).sum()
        change = abs(objective[-1] - objective[-2]) / max(scale, 1e-300) if len(objective) > 1 else 1.0
        if change <= tol or len(objective) == max_iter:
            return norms, objective, (P, F, U, Z)
        U, B = best_values(F, Z, told, q), X.T @ np.diag(s) @ F
