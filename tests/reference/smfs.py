"""SMFS (Xu & Zhao 2020) by dense algebra and plain loops, in the paper's order and letters."""

from __future__ import annotations

import numpy as np
from sklearn.ensemble import IsolationForest

from tests.reference.anchors import combination


def grow_trees(X, n_trees, max_samples, seed):
    """The trees of scikit-learn's isolation forest on float32 rows."""
    samples = min(max_samples, X.shape[0])
    forest = IsolationForest(n_estimators=n_trees, max_samples=samples, random_state=seed).fit(X)
    return [estimator.tree_ for estimator in forest.estimators_]


def isolation_masses(trees, X):
    """ξ of Eq. 2 for all pairs: the share of rows in the deepest node that two rows both pass, mean over trees."""
    n = len(X)
    xi = np.zeros((n, n))
    for tree in trees:
        passed = np.asarray(tree.decision_path(X).todense(), dtype=bool)  # (rows, nodes)
        mass = passed.sum(axis=0)
        for i in range(n):
            for j in range(n):
                xi[i, j] += mass[passed[i] & passed[j]].min()
    return xi / (len(trees) * n)


def neighbour_weights(xi, k):
    """W of Eq. 3 over the k rows of least ξ, ties by lower index."""
    n = len(xi)
    W = np.zeros((n, n))
    for i in range(n):
        others = [j for j in np.argsort(np.round(xi[i], 12), kind="stable") if j != i][:k]
        e = np.exp(-xi[i, others])
        W[i, others] = e / e.sum()
    return W


def structure_of_distances(X, k, structure):
    """W over the k nearest rows of standardised X: softmax of −distance, or weights that give the row again."""
    n = len(X)
    W = np.zeros((n, n))
    for i in range(n):
        distances = np.sqrt(((X - X[i]) ** 2).sum(axis=1))
        others = [j for j in np.argsort(distances, kind="stable") if j != i][:k]
        e = np.exp(distances[others[0]] - distances[others])
        W[i, others] = e / e.sum() if structure == "distance" else combination(X[others], X[i])
    return W


def known_entries(Y, unknown_labels):
    """Which entries are known: those that are not −1, or, where zeros are missing, the ones."""
    coded = unknown_labels == "coded" or (unknown_labels == "auto" and (Y == -1).any())
    return Y != -1 if coded else Y == 1


def smfs(
    X,
    Y,
    W,
    *,
    alpha=None,
    beta=None,
    unknown_labels="auto",
    consistency="observed",
    standardise=True,
    inner=None,
    iterations=30,
):
    """Scores, P, Y and the objective after every iteration of Algorithm 1."""
    X, Y = np.array(X, dtype=float), np.asarray(Y)
    n, d = X.shape
    q = Y.shape[1]
    X[:, X.std(axis=0) <= 1e-12] = 0.0
    if standardise:
        X = X - X.mean(axis=0)
        sd = X.std(axis=0)
        X = np.array([X[:, f] / sd[f] if sd[f] > 1e-12 else 0 * X[:, f] for f in range(d)]).T
    known = known_entries(Y, unknown_labels)
    c = [sum(Y[:, j] == 1) for j in range(q)]
    s = np.array([sum(1 / c[j] for j in range(q) if Y[i, j] == 1) for i in range(n)])  # Eq. 7
    S = np.diag(s)
    F = np.where(Y == 1, 1.0, -1.0)
    expected = W @ F
    for i in range(n):
        if known[i].any():
            F[i] = np.where(known[i], F[i], expected[i])  # Eq. 4
    free = np.ones_like(known) if consistency == "none" else ~known
    alpha = s[s > 0].mean() if alpha is None else alpha
    M = (np.eye(n) * W.any(axis=1) - W).T @ (np.eye(n) * W.any(axis=1) - W)
    system = S + alpha * M
    if beta is None:
        # The first P is found from Y as it is when the loop begins.
        Y0 = F if (free & (s > 0)[:, None]).any() else recover(F, free, system, np.zeros((n, q)))
        beta = 0.1 * 2 * np.sqrt(((X.T @ S @ Y0) ** 2).sum(axis=1)).max()
    D = np.full(d, 1 / (2 * np.sqrt(q)))
    P, epsilon, objective = np.zeros((d, q)), None, []
    for _ in range(iterations):
        for _ in range(inner or 10):
            P_old = P
            P = np.zeros((d, q))
            some = np.isfinite(D)
            A = X[:, some].T @ S @ X[:, some] + beta * np.diag(D[some])
            P[some] = np.linalg.lstsq(A, X[:, some].T @ S @ F, rcond=1e-12)[0]  # Eq. 10
            norms = np.sqrt((P**2).sum(axis=1))
            epsilon = 1e-6 * np.sqrt((norms**2).mean()) if epsilon is None else epsilon
            with np.errstate(divide="ignore"):
                D = 1 / (2 * np.sqrt(norms**2 + epsilon**2))  # Eq. 9
            if inner is None and np.linalg.norm(P - P_old) <= 0.01 * np.linalg.norm(P):
                break
        F = recover(F, free, system, S @ X @ P)  # Eq. 13
        fit = (S @ (X @ P - F) ** 2).sum()
        smooth = (np.sqrt(norms**2 + epsilon**2) - epsilon).sum()
        objective.append(fit + alpha * np.trace(F.T @ M @ F) + beta * smooth)  # Eq. 6
    return norms, P, F, objective


def recover(F, free, system, right):
    """The free entries of each column solve the system, the known ones being moved to the right; within [−1, 1]."""
    F = F.copy()
    for j in range(F.shape[1]):
        u = free[:, j]
        if u.any():
            b = right[u, j] - system[np.ix_(u, ~u)] @ F[~u, j]
            # Where the system is singular the solution nearest to the start.
            step = np.linalg.lstsq(system[np.ix_(u, u)], b - system[np.ix_(u, u)] @ F[u, j], rcond=1e-12)[0]
            F[u, j] = np.clip(F[u, j] + step, -1, 1)
    return F
