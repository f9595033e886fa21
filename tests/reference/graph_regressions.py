"""Regressions on labels that are alike in near rows, by dense algebra, a row at a time."""

from __future__ import annotations

import numpy as np

from tests.reference.access_mfs_anchors import join
from tests.reference.anchors import means_of_rows, row_weights, simplex
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


def label_row(xW, x, y, kappa, b, C, U, z, c, smoothing, adaptive, s):
    """A row's f, its weights g of anchors, and what the graph adds to the objective."""

    def least(g):
        return (xW + b + kappa * y + g @ U) / (1 + kappa + g.sum())

    f = (xW + b + kappa * y) / (1 + kappa)
    if adaptive is not None:
        eta, theta, W = adaptive
        far = eta * ((x - C) ** 2).sum(axis=1) + theta * ((xW - C @ W) ** 2).sum(axis=1)
        for _ in range(3):
            g = c * simplex(far + ((f - U) ** 2).sum(axis=1), s, eta * (x**2).sum() + (f**2).sum())
            f = least(g)
        return f, g, g @ (far + ((f - U) ** 2).sum(axis=1))
    if smoothing is None:
        f = least(c * z)
        return f, c * z, c * z @ ((f - U) ** 2).sum(axis=1)
    for _ in range(12):
        g = c * z / (2 * np.sqrt(((f - U) ** 2).sum(axis=1) + smoothing**2))
        f = least(g)
    return f, g, c * z @ np.sqrt(((f - U) ** 2).sum(axis=1) + smoothing**2)


def settle(XW, F, G, Y, kappa, b, U):
    """F, b and U of least objective, but for rows that are known in part: one system for all of them."""
    (n, q), m = F.shape, len(U)
    free = [i for i in range(n) if len(set(kappa[i])) == 1]
    masses = G.sum(axis=0)
    for label in range(q):
        # Unknowns: b, u_1 ... u_m, f of the free rows.
        size = 1 + m + len(free)
        A, right = np.zeros((size, size)), np.zeros(size)
        A[0, 0], right[0] = n, -XW[:, label].sum() + sum(F[i, label] for i in range(n) if i not in free)
        for a in range(m):
            A[1 + a, 1 + a] = masses[a] or 1.0
            right[1 + a] = sum(G[i, a] * F[i, label] for i in range(n) if i not in free) if masses[a] else U[a, label]
        for place, i in enumerate(free, 1 + m):
            A[place, place] = 1 + kappa[i, label] + G[i].sum()
            right[place] = XW[i, label] + kappa[i, label] * Y[i, label]
            A[place, 0] = A[0, place] = -1.0
            A[place, 1 : 1 + m] = A[1 : 1 + m, place] = -G[i]
        found = np.linalg.solve(A, right)
        b, U, F = b.copy(), U.copy(), F.copy()
        b[label], U[:, label], F[free, label] = found[0], found[1 : 1 + m], found[1 + m :]
    return F, b, U


def graph_regression(
    X,
    Y,
    C,
    *,
    kind,
    alpha=1.0,
    kappa=1000.0,
    gamma=0.1,
    beta=0.1,
    n_shared=None,
    theta=0.0,
    absolute=False,
    n_neighbors=5,
    anchor_neighbors=3,
    tol=1e-4,
    max_iter=100,
):
    """Scores and the objective; `kind` is "squares", "distances" or "adaptive"."""
    X, unknown = standardised(X), np.asarray(Y) < 0
    Y = np.where(unknown, 0.0, Y)
    (n, q), d, c, s = Y.shape, X.shape[1], alpha * n_neighbors, anchor_neighbors
    K, G0 = np.where(unknown, 0.0, kappa), X.T @ X
    W, b = np.zeros((d, q)), Y.sum(axis=0) / np.maximum((~unknown).sum(axis=0), 1)
    U, Z = np.tile(b, (len(C), 1)), row_weights(X, C, s)
    ridge = beta * np.trace(G0) / max(np.count_nonzero(X.any(axis=0)), 1) if kind == "distances" else 0.0
    unit, epsilon, objective, weight = 1.0, 0.0, [], None

    def shared(W):
        wanted = (q + 1) // 2 if n_shared is None else min(n_shared, q)
        left, values, _ = np.linalg.svd(W, full_matrices=False)
        return left[:, :wanted][:, values[:wanted] > 0]

    for i in range(max_iter + 1):
        smoothing = unit if kind == "distances" else None
        adaptive = (unit, theta, W) if kind == "adaptive" else None
        rows = [
            label_row(x @ W, x, y, k, b, C, U, z, c, smoothing, adaptive, s)
            for x, y, k, z in zip(X, Y, K, Z, strict=True)
        ]
        F, G = np.array([f for f, _, _ in rows]), np.array([g for _, g, _ in rows])
        if i:
            value = ((X @ W + b - F) ** 2).sum() + (K * (F - Y) ** 2).sum() + sum(each for _, _, each in rows)
            value += 0.0 if weight is None else weight * (np.sqrt(norms(W) ** 2 + epsilon**2) - epsilon).sum()
            value += ridge * ((W - shared(W) @ shared(W).T @ W) ** 2).sum()
            objective.append(value)
            if (len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]) or i == max_iter:
                return norms(W), objective
        settled, new_b, new_U = settle(X @ W, F, G, Y, K, b, U)
        if not i:
            about = ((F - b) ** 2).sum()
            if kind == "distances":
                unit = 1e-3 * np.sqrt(about / n)
            elif kind == "adaptive":
                means, near = means_of_rows(G, F, U), means_of_rows(G, X, C)
                labels = sum(G[r] @ ((F[r] - means) ** 2).sum(axis=1) for r in range(n))
                unit = labels / sum(G[r] @ ((X[r] - near) ** 2).sum(axis=1) for r in range(n))
                C = near
            b, U = new_b, new_U
            continue
        B = X.T @ (settled - settled.mean(axis=0))
        if weight is None:
            weight = gamma * (1.0 if absolute else 2.0 * norms(B).max())
        Q, quadratic = shared(W), G0
        if kind == "distances":
            quadratic = G0 + ridge * (np.eye(d) - Q @ Q.T)
        elif theta:
            S = G @ np.linalg.pinv(np.diag(G.sum(axis=0))) @ G.T / c
            quadratic = G0 + theta * c * X.T @ (np.eye(n) - S) @ X
        for _ in range(10):
            t = 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2) if epsilon else np.ones(d)
            W, last = reweighted(quadratic, B, weight, t), W
            epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
            if np.linalg.norm(W - last) <= 0.01 * np.linalg.norm(W):
                break
        b, U = new_b, new_U
        if kind == "adaptive":
            C = means_of_rows(G, X, C)
            points = join(np.hstack([np.sqrt(unit) * C, U]))
            C, U = points[:, :d] / np.sqrt(unit), points[:, d:]
    raise AssertionError


def share_of_ones(margins, share):
    """Which of some entries are 1: those with the largest margins, but no two that are as large differ."""
    order = np.argsort(-margins, kind="stable")
    falling = margins[order]
    counts = [
        0,
        *(i for i in range(1, len(order)) if falling[i - 1] - falling[i] > 1e-9 * np.abs(margins).max()),
        len(order),
    ]
    ones = np.zeros(len(margins))
    ones[order[: min(counts, key=lambda i: abs(i - share * len(order)))]] = 1.0
    return ones


def sfs_bll_steps(
    X,
    Y,
    C,
    *,
    threshold="prior",
    alpha=0.2,
    kappa=10.0,
    gamma=0.3,
    absolute=False,
    n_neighbors=10,
    anchor_neighbors=3,
    tol=1e-4,
    max_iter=100,
):
    """Scores, the objective and the labels of all rows, of which the shares of ones follow."""
    X, unknown = standardised(X), np.asarray(Y) < 0
    Y = np.where(unknown, 0.0, Y)
    (n, q), d, c = Y.shape, X.shape[1], alpha * n_neighbors
    K, share = np.where(unknown, 0.0, kappa), Y.sum(axis=0) / np.maximum((~unknown).sum(axis=0), 1)
    Z, W, b = row_weights(X, C, anchor_neighbors), np.zeros((d, q)), share
    # Labels that are real, where W = 0, at rest in the graph.
    U = np.tile(b, (len(C), 1))
    F = (b + K * Y + c * Z @ U) / (1.0 + K + c)
    unit = np.sqrt(((F - b) ** 2).sum() / n)
    _, b, U = settle(X @ W, F, c * Z, Y, K, b, U)
    weight, epsilon, objective = None, 0.0, []
    for _ in range(max_iter):
        P, omega = X @ W + b, np.ones(n)
        for _ in range(3):
            margins = omega[:, None] * (2 * P - 1) + K * (2 * Y - 1) + c * (2 * Z @ U - 1)
            F = (margins >= 0).astype(float)
            for label in range(q if threshold == "prior" else 0):
                rows = unknown[:, label]
                F[rows, label] = share_of_ones(margins[rows, label], share[label]) if rows.any() else 0.0
            lengths = np.sqrt(((P - F) ** 2).sum(axis=1) + (1e-3 * unit) ** 2)
            omega = unit / lengths
        value = 2 * unit * lengths.sum() + (K * (F - Y) ** 2).sum()
        value += c * sum(Z[i] @ ((F[i] - U) ** 2).sum(axis=1) for i in range(n))
        objective.append(value + (weight or 0.0) * (np.sqrt(norms(W) ** 2 + epsilon**2) - epsilon).sum())
        if len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]:
            break
        if len(objective) == max_iter:
            break
        S = np.diag(omega)
        mean, target = omega @ X / omega.sum(), omega @ F / omega.sum()
        G, B = (X - mean).T @ S @ (X - mean), (X - mean).T @ S @ (F - target)
        B[:, (share == 0) | (share == 1)] = 0.0
        if weight is None:
            weight = gamma * (1.0 if absolute else 2.0 * norms(B).max())
        for _ in range(10):
            t = 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2) if epsilon else np.ones(d)
            W, last = reweighted(G, B, weight, t), W
            epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
            if np.linalg.norm(W - last) <= 0.01 * np.linalg.norm(W):
                break
        b, U = target - mean @ W, means_of_rows(Z, F, U)
    return norms(W), objective, F


def uafs_bh_steps(X, C, *, mu=1.0, n_bits=8, gamma=0.1, absolute=False, anchor_neighbors=3, tol=1e-4, max_iter=100):
    """Scores, the objective and the bits of all rows."""
    X = standardised(X)
    n, d = X.shape
    Z = row_weights(X, C, anchor_neighbors)
    masses = Z.sum(axis=0)
    inverse = np.divide(1.0, masses, out=np.zeros(len(C)), where=masses > 0)
    # Anchors as the eigenvectors of their graph see them, which a little of their covariance puts in order.
    mean = masses @ C / n
    graph = Z.T @ Z - np.outer(masses, masses) / n
    cloud = np.diag(masses) @ (C - mean) @ (C - mean).T @ np.diag(masses)
    graph += 1e-3 * cloud / (masses @ ((C - mean) ** 2).sum(axis=1))
    half = np.diag(np.sqrt(inverse))
    values = half @ np.linalg.eigh(half @ graph @ half)[1][:, ::-1][:, :n_bits]
    U = np.full((len(C), n_bits), 0.5)
    U[:, : values.shape[1]] += 0.5 * values / values[np.abs(values).argmax(axis=0), range(values.shape[1])]
    W, b, weight, epsilon, objective = np.zeros((d, n_bits)), np.full(n_bits, 0.5), None, 0.0, []
    while True:
        P = X @ W + b
        margins = (2 * P - 1) + mu * (2 * Z @ U - 1)
        F = np.stack([share_of_ones(column, 0.5) for column in margins.T], axis=1)
        value = ((P - F) ** 2).sum() + mu * sum(Z[i] @ ((F[i] - U) ** 2).sum(axis=1) for i in range(n))
        objective.append(value + (weight or 0.0) * (np.sqrt(norms(W) ** 2 + epsilon**2) - epsilon).sum())
        ended = len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]
        if ended or len(objective) == max_iter:
            return norms(W), objective, F
        B = X.T @ (F - F.mean(axis=0))
        if weight is None:
            weight = gamma * (1.0 if absolute else 2.0 * norms(B).max())
        for _ in range(10):
            t = 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2) if epsilon else np.ones(d)
            W, last = reweighted(X.T @ X, B, weight, t), W
            epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
            if np.linalg.norm(W - last) <= 0.01 * np.linalg.norm(W):
                break
        b, U = F.mean(axis=0), means_of_rows(Z, F, U)


def sfs_bll_program(X, Y, *, kappa, beta, gamma, rho, n_neighbors, max_iter, codes=None):
    """Scores by the authors' passes, from codes that are drawn as the method draws them."""
    std = X.std(axis=0, ddof=1)
    X = (X - X.mean(axis=0)) / np.where(std > 0, std, 1.0)
    n, d = X.shape
    labelled = (np.asarray(Y) >= 0).all(axis=1)[:, None]
    Y = np.where(labelled, Y, 0.0)
    D = ((X[:, None] - X[None]) ** 2).sum(axis=2)
    np.fill_diagonal(D, np.inf)
    S = np.zeros((n, n))
    for i in range(n):
        for j in np.argsort(D[i], kind="stable")[: min(n_neighbors, n - 1)]:
            S[i, j] = X[i] @ X[j] / np.sqrt((X[i] @ X[i]) * (X[j] @ X[j]))
    S = np.maximum(S, S.T)
    L = np.diag(S.sum(axis=1)) - S
    B = F = (np.random.default_rng(0).standard_normal(Y.shape) > 0).astype(float) if codes is None else codes
    G, W, w = np.zeros(Y.shape), np.zeros((d, Y.shape[1])), np.ones(n)
    for _ in range(max_iter):
        penalty = gamma * np.diag(0.5 / np.sqrt((W**2).sum(axis=1) + np.finfo(float).eps))
        W = np.linalg.solve(X.T @ (w[:, None] * X) + penalty, X.T @ (w[:, None] * B))
        G = G + rho * (B - F)
        residuals = norms(X @ W - B)
        w = residuals.sum() / residuals
        B = (np.where(labelled, np.sign(kappa * Y + rho * F - G), np.sign(F - G / rho)) + 1) / 2
        system = 2 * L + np.diag(rho + kappa * labelled[:, 0] + 2 * beta * w)
        F = np.linalg.solve(system, rho * B + G + kappa * labelled * Y + 2 * beta * w[:, None] * (X @ W))
    return norms(W), B
