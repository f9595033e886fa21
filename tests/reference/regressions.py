"""Regressions on all features at once, dense and plain, on the rows themselves."""

from __future__ import annotations

import numpy as np
from scipy import linalg


def norms(A):
    return np.sqrt((A * A).sum(axis=1))


def standardised(X):
    std = X.std(axis=0)
    constant = X.min(axis=0) == X.max(axis=0)
    return np.where(constant, 0.0, (X - X.mean(axis=0)) / np.where(constant, 1.0, std))


def cosines(Y):
    size = np.sqrt((Y * Y).sum(axis=0))
    return np.divide(Y.T @ Y, np.outer(size, size), out=np.zeros((Y.shape[1],) * 2), where=np.outer(size, size) > 0)


def anchor_graph(Z):
    """S, (n, n), of the weights of anchors, (n, m)."""
    return Z @ np.linalg.pinv(np.diag(Z.sum(axis=0))) @ Z.T


def accelerated(G, B, R, weight, prox, penalty, tol, max_iter, start=None):
    """Proximal gradients with momentum, which begins again where the objective would rise.

    Minimises ½ tr W'GW − tr W'B + ½ tr W R W' + the weight of the penalty.
    """

    def objective(W):
        return 0.5 * np.trace(W.T @ (G @ W + W @ R)) - np.trace(W.T @ B) + weight * penalty(W)

    W = V = np.zeros_like(B) if start is None else start
    L, momentum = np.diag(G).max() + np.diag(R).max(), 1.0
    for _ in range(max_iter):
        slope = G @ V - B + V @ R
        while True:
            new = prox(V - slope / L, weight / L)
            D = new - V
            if np.trace(D.T @ (G @ D + D @ R)) <= L * (D * D).sum() * (1.0 + 1e-9):
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
    return W


def reweighted(G, B, gamma, t):
    """The ridge regression with the weights 1/t of features, symmetric, since these lie far apart."""
    root = np.sqrt(t)[:, None]
    return root * np.linalg.solve(root * G * root.T + gamma * np.eye(len(G)), root * B)


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

    return norms(accelerated(X.T @ X, X.T @ y, alpha * R, beta, soft, lambda W: np.abs(W).sum(), tol, max_iter))


def fssrdm(X, Y, *, beta=0.5, gamma=0.1, tol=1e-6, max_iter=200):
    """Scores: the norms of rows of W are touched from above by squares, again and again."""
    Y = np.asarray(Y, dtype=float)
    labelled = (Y != -1).all(axis=1)
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
        W = reweighted(quadratic, A, gamma, t)
        epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
        t = 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2)
        objective.append(np.trace(W.T @ quadratic @ W - 2.0 * W.T @ A) + gamma * (t / 2.0 - epsilon).sum())
        if len(objective) > 1 and objective[-2] - objective[-1] <= tol * np.abs(objective).max():
            break
    return norms(W)


def lsmr(X, Y, Z, *, alpha=0.01, mu=0.1, gamma=0.1, n_neighbors=5, tol=1e-5, max_iter=1000):
    """Scores; Z holds the weights of anchors, (n, m)."""
    Y = np.asarray(Y, dtype=float)
    labelled = (Y != -1).all(axis=1)
    X, Y = standardised(X), Y[labelled]
    L = np.eye(len(X)) - anchor_graph(Z)
    rows, y = X[labelled] - X[labelled].mean(axis=0), Y - Y.mean(axis=0)
    C = cosines(Y)
    R = mu * len(Y) * (np.diag(C.sum(axis=1)) - C)

    def prox(W, threshold):
        size = norms(W)[:, None]
        return np.where(size > threshold, W * (1.0 - threshold / np.where(size > threshold, size, 1.0)), 0.0)

    weight = gamma * norms(rows.T @ y).max()
    G = rows.T @ rows + alpha * n_neighbors * X.T @ L @ X
    return norms(accelerated(G, rows.T @ y, R, weight, prox, lambda W: norms(W).sum(), tol, max_iter))


def mifs_published(X, Y, S, *, gamma, step, alpha=1.0, beta=0.1, n_latent=None, tol=1e-5, max_iter=200):
    """Scores; S is the graph of the rows."""
    X = standardised(X) * np.sqrt((len(X) - 1) / len(X))
    (n, d), q = X.shape, Y.shape[1]
    k = round(0.3 * q) if n_latent is None else n_latent
    L, D = np.diag(S.sum(axis=1)) - S, np.ones(d)
    rng, objective = np.random.default_rng(0), []
    W, V, B = rng.random((d, k)), rng.random((n, k)), rng.random((k, q))
    for _ in range(max_iter):
        XW, DW = X @ W, D[:, None] * W
        V = V - step * (V - XW + alpha * (V @ B - Y) @ B.T + beta * L @ V)
        B = B - step * V.T @ (V @ B - Y)
        W = W - step * (X.T @ (XW - V) + gamma * DW)
        D = 0.5 / np.sqrt(norms(W) ** 2 + np.finfo(float).eps)
        value = ((X @ W - V) ** 2).sum() + alpha * ((Y - V @ B) ** 2).sum() + beta * np.trace(V.T @ L @ V)
        objective.append(value + gamma * norms(W).sum())
        if len(objective) > 1 and abs(objective[-1] - objective[-2]) < tol * max(1.0, objective[-2]):
            break
    return norms(W)


def mifs(X, Y, Z, *, n_latent=None, **parameters):
    """Scores; Z holds the weights of anchors, (n, m)."""
    k = Y.shape[1] if n_latent is None else n_latent
    return lffs(X, Y, Z, mu=0.0, delta=0.0, n_latent=k, **parameters)


def lffs(
    X,
    Y,
    Z,
    *,
    alpha=1.0,
    beta=0.1,
    mu=0.01,
    delta=0.1,
    gamma=0.1,
    absolute=False,
    n_latent=None,
    n_neighbors=5,
    tol=1e-5,
    max_iter=200,
):
    """Scores; the latent labels of all rows are held, and Z, the weights of anchors, (n, m)."""
    C = cosines(np.asarray(Y, dtype=float))
    X, Y = standardised(X), Y - np.mean(Y, axis=0)
    (n, d), q = X.shape, Y.shape[1]
    k = min(q, max(1, q // 2) if n_latent is None else n_latent)
    L, R = n_neighbors * (np.eye(n) - anchor_graph(Z)), mu * n * (np.diag(C.sum(axis=1)) - C)
    G = X.T @ X + delta * n * (X.T @ X / n) ** 2
    B = np.linalg.eigh(alpha**2 / (1.0 + alpha) * Y.T @ Y - R)[1][:, ::-1][:, :k].T
    pull = np.linalg.eigvalsh(R)[-1] * np.eye(q) - R
    W, t, epsilon, weight, objective = np.zeros((d, k)), np.ones(d), 0.0, None, []
    for _ in range(max_iter):
        V = np.linalg.solve((1.0 + alpha) * np.eye(n) + beta * L, X @ W + alpha * Y @ B.T)
        for _ in range(20):
            P, _, Q = np.linalg.svd(alpha * V.T @ Y + B @ pull, full_matrices=False)
            B, last = P @ Q, B
            if np.linalg.norm(B - last) <= 0.01 * np.linalg.norm(B):
                break
        weight = gamma * (1.0 if absolute else 2.0 * norms(X.T @ V).max()) if weight is None else weight
        for _ in range(10):
            W, before = reweighted(G, X.T @ V, weight, t), W
            epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
            t = 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2)
            if np.linalg.norm(W - before) <= 0.01 * np.linalg.norm(W):
                break
        value = np.trace(W.T @ G @ W - 2.0 * W.T @ X.T @ V) + (V**2).sum() + alpha * ((Y - V @ B) ** 2).sum()
        value += beta * np.trace(V.T @ L @ V) + np.trace(B @ R @ B.T)
        objective.append(value + weight * (t / 2.0 - epsilon).sum())
        if len(objective) > 1 and objective[-2] - objective[-1] <= tol * objective[-2]:
            break
    return norms(W)


def sfss(X, Y, Z, *, mu=1.0, gamma=0.1, absolute=False, n_neighbors=5, tol=1e-5, max_iter=200):
    """Scores; the labels of all rows are held, and Z, the weights of anchors, (n, m)."""
    Y = np.asarray(Y, dtype=float)
    X, (n, q) = standardised(X), Y.shape
    known = (Y != -1).all(axis=1)
    L = n_neighbors * (np.eye(n) - Z @ np.linalg.pinv(np.diag(Z.sum(axis=0))) @ Z.T)
    H = np.eye(n) - 1.0 / n
    system = L + mu * H  # of F: tr F'LF + μ‖H(XW − F)‖²
    F = np.where(known[:, None], Y, 0.0)
    W, t, epsilon, weight, objective = np.zeros((X.shape[1], q)), np.ones(X.shape[1]), 0.0, None, []
    for _ in range(max_iter):
        if not known.all():
            right = mu * (X @ W)[~known] - system[np.ix_(~known, known)] @ Y[known]
            F[~known] = np.linalg.solve(system[np.ix_(~known, ~known)], right)
        weight = gamma * (1.0 if absolute else 2.0 * mu * norms(X.T @ F).max()) if weight is None else weight
        for _ in range(10):
            W, before = reweighted(X.T @ X, X.T @ F, weight / mu, t), W
            epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
            t = 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2)
            if np.linalg.norm(W - before) <= 0.01 * np.linalg.norm(W):
                break
        value = np.trace(F.T @ L @ F) + mu * ((X @ W - H @ F) ** 2).sum()
        objective.append(value + weight * (t / 2.0 - epsilon).sum())
        if len(objective) > 1 and objective[-2] - objective[-1] <= tol * objective[-2]:
            break
    return norms(W)


def csfs(X, Y, *, alpha=0.1, absolute=False, tol=1e-4, max_iter=45):
    """Scores: the labels of all rows are held."""
    Y = np.asarray(Y, dtype=float)
    unknown = Y < 0
    X = standardised(X)
    G, d = X.T @ X, X.shape[1]
    W = np.zeros((d, Y.shape[1]))
    b = (Y == 1).sum(axis=0) / np.maximum((~unknown).sum(axis=0), 1)
    t, epsilon, objective = None, 0.0, []
    for i in range(max_iter + 1):
        P = X @ W + b
        F = np.where(unknown, np.clip(P, 0.0, 1.0), Y)
        if i:
            objective.append(((P - F) ** 2).sum() + alpha * (np.sqrt(norms(W) ** 2 + epsilon**2) - epsilon).sum())
            if (len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]) or i == max_iter:
                break
        else:
            alpha = alpha * (1.0 if absolute else 2.0 * norms(X.T @ (F - F.mean(axis=0))).max())
        for _ in range(10):
            t = 2.0 * np.sqrt(norms(W) ** 2 + epsilon**2) if epsilon else np.ones(d)
            W, before = reweighted(G, X.T @ (F - F.mean(axis=0)), alpha, t), W
            epsilon = epsilon or 1e-6 * np.sqrt((norms(W) ** 2).mean())
            if np.linalg.norm(W - before) <= 0.01 * np.linalg.norm(W):
                break
        b = F.mean(axis=0)
    return norms(W)


def smile(X, Y, Z, *, smoothing=0.5, alpha=0.35, ridge=0.1, n_neighbors=5):
    """Scores; Z holds the weights of anchors, (n, m)."""
    Y = np.asarray(Y, dtype=float)
    labelled = (Y != -1).all(axis=1)
    X, Y = standardised(X), Y[labelled]
    N = Y.T @ Y
    C = (N + smoothing) / (np.diag(N)[:, None] + 2.0 * smoothing)
    filled = np.where(Y > 0, 1.0, Y @ C)
    filled = np.where(Y > 0, 1.0, filled / np.maximum(filled.sum(axis=1, keepdims=True), 1e-300))
    L = np.eye(len(X)) - anchor_graph(Z)
    rows = X[labelled] - X[labelled].mean(axis=0)
    G = rows.T @ rows
    system = G + alpha * n_neighbors * X.T @ L @ X + ridge * np.trace(G) / (X != 0).any(axis=0).sum() * np.eye(len(G))
    return norms(np.linalg.solve(system, rows.T @ (filled - filled.mean(axis=0))))


def propagated(Y, S, alpha):
    """Labels of all rows, divided by their sum in labelled ones; S is the graph of the rows, (n, n)."""
    labelled = (Y != -1).all(axis=1)
    known = np.where(labelled[:, None], Y, 0.0)
    known = known / np.maximum(known.sum(axis=1, keepdims=True), 1.0)
    A = np.diag(np.where(labelled, 0.0, alpha))
    return np.linalg.solve(np.eye(len(Y)) - A @ S, (np.eye(len(Y)) - A) @ known)


def leda(X, Y, Z, *, propagation=0.99, ridge=0.1):
    """Scores: directions of a discriminant analysis, each with the root of its eigenvalue."""
    X, F = standardised(X), propagated(np.asarray(Y, dtype=float), anchor_graph(Z), propagation)
    w, N = F.sum(axis=1), F.sum(axis=0)
    m = w @ X / w.sum()
    between = sum(N[j] * np.outer(mean - m, mean - m) for j, mean in enumerate(F.T @ X / N[:, None]))
    total = (X - m).T @ np.diag(w) @ (X - m)
    total += ridge * np.trace(total) / (X != 0).any(axis=0).sum() * np.eye(len(total))
    values, V = linalg.eigh(between, total)
    return norms(V * np.sqrt(np.maximum(values, 0.0)))


def smdr_ic(
    X,
    Y,
    Z,
    *,
    lambda_=1.0,
    alpha=0.3,
    beta=0.3,
    mu=0.5,
    propagation=0.99,
    n_neighbors=10,
    absolute=False,
    tol=1e-5,
    max_iter=1000,
):
    """Scores; the target is projected rows, and W = W₁ + W₂."""
    Y = np.asarray(Y, dtype=float)
    labelled = (Y != -1).all(axis=1)
    X, F = standardised(X), propagated(Y, anchor_graph(Z), propagation)
    F[~labelled] = F[~labelled] @ cosines(Y[labelled])
    F = F - F.mean(axis=0)
    G = X.T @ X
    values, P = linalg.eigh(X.T @ F @ F.T @ X, mu * G + (1.0 - mu) * np.eye(len(G)))
    P = P[:, ::-1][:, : Y.shape[1]]
    T = X @ P[:, values[::-1][: Y.shape[1]] > 1e-10 * values[-1]]
    L = n_neighbors * (np.eye(len(X)) - anchor_graph(Z))
    alpha = alpha * (1.0 if absolute else np.abs(X.T @ T).max())
    beta = beta * (1.0 if absolute else norms(X.T @ T).max())
    d = len(G)

    def prox(W, step):
        size = norms(W[d:])[:, None]
        rows = np.where(size > beta * step, W[d:] * (1.0 - beta * step / np.where(size > 0, size, 1.0)), 0.0)
        return np.vstack([np.sign(W[:d]) * np.maximum(np.abs(W[:d]) - alpha * step, 0.0), rows])

    def penalty(W):
        return alpha * np.abs(W[:d]).sum() + beta * norms(W[d:]).sum()

    system, target = np.tile(G + lambda_ * X.T @ L @ X, (2, 2)), np.tile(X.T @ T, (2, 1))
    W = accelerated(system, target, np.zeros((T.shape[1],) * 2), 1.0, prox, penalty, tol, max_iter)
    return norms(W[:d] + W[d:])


def smlfs(
    X, Y, *, alpha=0.01, beta=0.1, gamma=0.1, absolute=False, p=1.0, n_neighbors=5, tol=1e-4, max_iter=40, steps=200
):
    """Scores: the quadratic that touches the logistic loss from above is moved to the last W, again and again."""
    Y = np.asarray(Y, dtype=float)
    labelled = (Y != -1).all(axis=1)
    X, Y = standardised(X), Y[labelled]
    D = ((X[:, :, None] - X[:, None, :]) ** 2).sum(axis=0)
    np.fill_diagonal(D, np.inf)
    near = np.argsort(D.astype(np.float32), axis=1, kind="stable")[:, :n_neighbors]
    distances = np.take_along_axis(D, near, axis=1)
    S = np.zeros_like(D)
    np.put_along_axis(S, near, np.exp(-distances / distances.mean()), axis=1)
    S = np.maximum(S, S.T)
    n = len(Y)
    L = 2.0 * alpha * n * (np.diag(S.sum(axis=1)) - S)
    R = 2.0 * beta * n * (np.diag(cosines(Y).sum(axis=1)) - cosines(Y))
    X = X[labelled] - X[labelled].mean(axis=0)
    G, W, weights = X.T @ X / 4.0, np.zeros((X.shape[1], Y.shape[1])), np.ones(X.shape[1])
    epsilon, objective = None, []
    b = np.log(Y.mean(axis=0) / (1.0 - Y.mean(axis=0)))
    gamma = gamma * (1.0 if absolute else norms(X.T @ (Y - Y.mean(axis=0))).max())
    for i in range(max_iter + 1):
        A = X @ W + b
        if i:
            epsilon = 0.1 * np.sqrt((norms(W) ** 2).mean()) if epsilon is None else epsilon
            penalty = ((norms(W) + epsilon) ** p - epsilon**p).sum()
            loss = (np.log1p(np.exp(A)) - Y * A).sum()
            objective.append(loss + (W * (L @ W + W @ R)).sum() / 2.0 + gamma * penalty)
            if (len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]) or i == max_iter:
                break
            weights = p * (norms(W) + epsilon) ** (p - 1.0)
        residual = 1.0 / (1.0 + np.exp(-A)) - Y

        def prox(W, step, least=weights):
            size, least = norms(W)[:, None], (step * least)[:, None]
            return np.where(size > least, W * (1.0 - least / np.where(size > 0, size, 1.0)), 0.0)

        def weighted(W, least=weights):
            return (least * norms(W)).sum()

        W = accelerated(G + L, G @ W - X.T @ residual, R, gamma, prox, weighted, 1e-3, steps, W)
        b = b - 4.0 / n * residual.sum(axis=0)
    return norms(W)


def glfs(
    X,
    Y,
    groups,
    label_groups,
    *,
    alpha=0.2,
    beta=0.1,
    gamma=0.1,
    absolute=False,
    lambda_=0.4,
    tol=1e-4,
    max_iter=38,
    steps=200,
):
    """Scores; the latent labels of all rows are held, and the groups of rows, (n,), and of labels, (q,), are given."""
    X, Y = standardised(X), np.asarray(Y, dtype=float)
    (n, d), q = X.shape, Y.shape[1]
    m = np.array([Y[groups == g].mean(axis=0) for g in groups])
    C = [(1.0 - lambda_) * np.eye(q) + lambda_ * cosines(Y[groups == g]) for g in groups]
    size = norms(Y) * norms(m)
    a = alpha * np.where(size > 0, (Y * m).sum(axis=1) / np.where(size > 0, size, 1.0), 0.0)
    members = [label_groups == h for h in np.unique(label_groups)]
    W, b, weights, objective = np.zeros((2 * d, q)), Y.mean(axis=0), (0.0, 0.0), []

    def penalty(W):
        return weights[0] * np.abs(W[:d]).sum() + weights[1] * sum(norms(W[d:, h]).sum() for h in members)

    def prox(W, step):
        new = np.sign(W) * np.maximum(np.abs(W) - weights[0] * step, 0.0)
        for h in members:
            length = norms(W[d:, h])[:, None]
            least = weights[1] * step
            new[d:, h] = np.where(length > least, W[d:, h] * (1.0 - least / np.where(length > 0, length, 1.0)), 0.0)
        return new

    for i in range(max_iter):
        P = X @ (W[:d] + W[d:]) + b
        Z = np.array(
            [
                np.linalg.solve((1.0 + a[r]) * np.eye(q) + C[r] @ C[r], P[r] + a[r] * m[r] + C[r] @ Y[r])
                for r in range(n)
            ]
        )
        loss = ((P - Z) ** 2).sum() + (a[:, None] * (Z - m) ** 2).sum()
        loss += sum(((Z[r] @ C[r] - Y[r]) ** 2).sum() for r in range(n))
        objective.append(loss + 2.0 * penalty(W))
        if (i and abs(objective[-1] - objective[-2]) <= tol * objective[-2]) or i == max_iter - 1:
            break
        b = Z.mean(axis=0)
        B = X.T @ (Z - b)
        if not i:
            largest = np.abs(B).max(), max(norms(B[:, h]).max() for h in members)
            weights = [s * (0.5 if absolute else each) for s, each in zip((beta, gamma), largest, strict=True)]
        G, R = np.tile(X.T @ X, (2, 2)), np.zeros((q, q))
        W = accelerated(G, np.tile(B, (2, 1)), R, 1.0, prox, penalty, 1e-3, steps, W)
    return norms(W[:d] + W[d:])


def published_glfs(
    X,
    Y,
    groups,
    label_groups,
    *,
    alpha=0.2,
    beta=1.0,
    gamma=10.0,
    lambda_=0.4,
    tol=1e-3,
    max_iter=200,
    start=None,
):
    """Scores, W, M, latent labels and objective of the authors' program, with its matrices of all rows of a group."""
    X, Y = standardised(X) * np.sqrt((len(X) - 1) / len(X)), np.asarray(Y, dtype=float)
    (n, d), q = X.shape, Y.shape[1]
    draw = np.random.default_rng(0)
    W, M = (draw.random((d, q)), draw.random((d, q))) if start is None else start
    H, G = np.eye(n) - 1.0 / n, X.T @ X
    L = np.sqrt(2.0) * np.linalg.norm(G, 2)
    before, Z, old, new, objective = W, Y, 1.0, 1.0, []
    for _ in range(max_iter):
        V = W + (old - 1.0) / new * (W - before)
        V -= (G @ (V + M) - X.T @ Z) / L
        before, W = W, np.sign(V) * np.maximum(np.abs(V) - beta / L, 0.0)
        old, new = new, (1.0 + np.sqrt(4.0 * new**2 + 1.0)) / 2.0
        M = M.copy()
        for h in np.unique(label_groups):
            D = np.diag(1.0 / (2.0 * norms(M[:, label_groups == h]) + np.finfo(float).eps))
            M[:, label_groups == h] = np.linalg.solve(G + gamma * D, X.T @ (Z - X @ W)[:, label_groups == h])
        Z, loss = np.empty((n, q)), 0.0
        for g in np.unique(groups):
            rows = np.flatnonzero(groups == g)
            m, y, centring = Y[rows].mean(axis=0), Y[rows], H[: len(rows), : len(rows)]
            C = (1.0 - lambda_) * np.eye(q) + lambda_ * cosines(y)
            size = norms(y) * np.linalg.norm(m)
            a = alpha * np.where(size > 0, y @ m / np.where(size > 0, size, 1.0), 0.0)
            right = centring @ X[rows] @ (W + M) + np.outer(a, m) + y @ C.T
            Z[rows] = linalg.solve_sylvester(centring + np.diag(a), C @ C.T, right)
            loss += (a[:, None] * (Z[rows] - m) ** 2).sum() + ((Z[rows] @ C - y) ** 2).sum()
        loss += ((H @ (X @ (W + M) - Z)) ** 2).sum() + beta * np.count_nonzero(W) + gamma * norms(M).sum()
        objective.append(loss)
        if len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * objective[-2]:
            break
    return norms(W + M), W, M, Z, objective
