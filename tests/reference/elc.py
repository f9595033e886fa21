"""ELC (Wang et al. 2020) by dense algebra and plain loops, in the paper's order and letters."""

from __future__ import annotations

import math

import numpy as np


def standardise(X):
    """Zero mean and unit population standard deviation; a constant column becomes zero."""
    Z = np.array(X, dtype=np.float64)
    for f in range(Z.shape[1]):
        if (Z[:, f] == Z[0, f]).all():
            Z[:, f] = 0
        else:
            # Subtracting a value of the column first keeps the digits of one far from zero.
            shifted = Z[:, f] - Z[0, f]
            shifted = shifted - shifted.mean()
            Z[:, f] = shifted / math.sqrt((shifted**2).mean())
    return Z


def similarity(Y, kernel="gaussian"):
    """S of Appendix B, or of the authors' program, label by label."""
    Y = np.asarray(Y, dtype=float)
    q = Y.shape[1]
    distance = np.array([[((Y[:, i] - Y[:, j]) ** 2).sum() for j in range(q)] for i in range(q)])
    if kernel == "exponential":
        return np.exp(-np.sqrt(distance)) / (2 * np.sqrt(distance).mean())
    width = distance.mean()
    S = np.zeros((q, q))
    for i in range(q):
        for j in range(q):
            if Y[:, i] @ Y[:, j] != 0:
                S[i, j] = math.exp(-distance[i, j] / (2 * width)) if width else 1.0
    return S


def screen(Z, Y, S):
    """Eq. 1 for W with the single feature f, without tr(S'S)."""
    n = len(Z)
    values = []
    for f in range(Z.shape[1]):
        y_hat = (Z[:, [f]].T @ Y) / n  # 1 x q
        values.append(((y_hat.T @ y_hat - S) ** 2).sum() - (S**2).sum())
    return np.array(values)


def factor(S, n):
    """Γ* = nΦΣ^{1/2} of S without its negative eigenvalues; the first of an eigenvector's largest entries positive."""
    values, vectors = np.linalg.eigh(S)
    columns = []
    for i in reversed(range(len(S))):
        phi = vectors[:, i]
        largest = next(v for v in phi if abs(v) >= (1 - 1e-6) * np.abs(phi).max())
        columns.append(math.copysign(1, largest) * phi * math.sqrt(max(values[i], 0)))
    return n * np.array(columns).T


def smallest(r, k, order):
    """Indicator of the k smallest, ties (to nine digits of the largest) by `order`."""
    unit = np.abs(r).max() * 1e-9 or 1.0
    best = sorted(range(len(r)), key=lambda f: (round(r[f] / unit), order.index(f)))[:k]
    p = np.zeros(len(r))
    p[best] = 1
    return p


def shrink(M, threshold):
    """Eq. 8, row by row."""
    U = np.zeros_like(M)
    for i, row in enumerate(M):
        norm = math.sqrt(row @ row)
        if norm > threshold:
            U[i] = (norm - threshold) * row / norm
    return U


def elc(
    X,
    Y,
    k,
    *,
    variant="corrected",
    kernel="gaussian",
    lambda_=0.1,
    beta=1.0,
    mask_iter=200,
    tol=1e-3,
    gap_tol=1e-3,
    max_iter=5000,
):
    """Scores, and the loop's p, W, U, objective (None where there is no loop)."""
    Z, Y = standardise(X), np.asarray(Y, dtype=float)
    n, d = Z.shape
    q = Y.shape[1]
    S = similarity(Y, kernel)
    value = screen(Z, Y, S)
    constant = (Z == 0).all(axis=0)
    value[constant] = value.max() + 1
    if variant == "screen":
        return -value, None
    if constant.any():  # left out of the loop, and last in the ranking
        scores, p = np.full(d, -1.0), np.zeros(d)
        some = {
            "kernel": kernel,
            "lambda_": lambda_,
            "beta": beta,
            "mask_iter": mask_iter,
            "tol": tol,
            "gap_tol": gap_tol,
        }
        varying = np.flatnonzero(~constant)
        scores[varying], loop = elc(
            np.asarray(X)[:, varying], Y, min(k, len(varying)), variant=variant, max_iter=max_iter, **some
        )
        p[varying] = loop[0]
        return scores, (p, *loop[1:])
    A, Gamma = Y.T @ Z, factor(S, n)
    C = A.T @ Gamma
    radius = np.linalg.eigvalsh(A.T @ A)[-1]
    tau = 1 / radius
    W, V = np.zeros((d, q)), np.zeros((d, q))
    if variant == "published":
        V += 1 / d
    else:
        beta, lambda_ = beta * radius, lambda_ * max(np.linalg.norm(C[f]) for f in range(d))
    order = [int(f) for f in np.argsort(np.rint(value / (np.abs(value).max() * 1e-12)), kind="stable")]
    sign = 1 if variant == "published" else -1
    p = smallest(value, k, order)
    objective = []
    for t in range(1, max_iter + 1):
        U = shrink(W + sign * V / beta, lambda_ / beta)
        P = np.diag(p)
        Omega = P @ A.T @ (A @ P @ W - Gamma)
        W_old, W = W, tau / (beta * tau + 1) * (beta * U + V + (W - tau * Omega) / tau)
        r = np.array([(A[:, f] @ A[:, f]) * (W[f] @ W[f]) - 2 * W[f] @ C[f] for f in range(d)])
        p_old = p
        step, size = np.linalg.norm(W - W_old), np.linalg.norm(W)
        V = V - beta * (W - U)
        if variant == "published":
            p = smallest(r, k, order)
            tau = 1 / max(np.linalg.norm(row) for row in A.T @ A @ V)
            objective.append(0.5 * np.linalg.norm(A @ np.diag(p) @ W - Gamma) ** 2)
            if t > 1 and step <= 1e-4:
                break
            continue
        objective.append(0.5 * np.linalg.norm(A @ P @ W - Gamma) ** 2 + lambda_ * np.linalg.norm(U, axis=1).sum())
        if t <= mask_iter:
            p = smallest(r, k, order)
        if (p == p_old).all() and step <= tol * size and np.linalg.norm(W - U) <= gap_tol * size:
            break
    scores = np.zeros(d)
    scores[p == 1] = 1 + unit(-r[p == 1])
    scores[p == 0] = unit(-value[p == 0]) / 2
    return scores, (p, W, U, objective)


def unit(values):
    """Values moved to [0, 1]."""
    if len(values) == 0 or values.max() == values.min():
        return np.zeros(len(values))
    return (values - values.min()) / (values.max() - values.min())


def redundancy(X, Y, chosen):
    """Eq. 16, pair by pair."""
    Z, Y = standardise(X), np.asarray(Y, dtype=float)
    q, k = Y.shape[1], len(chosen)

    def rho(f, c):
        deviation = Y[:, c].std()
        return 0.0 if deviation == 0 else (Z[:, f] * (Y[:, c] - Y[:, c].mean())).mean() / deviation

    total = sum(rho(i, c) ** 2 * rho(j, c) ** 2 for i in chosen for j in chosen for c in range(q))
    return total / (k * (k - 1) * q)


def residual_correlation(X, Y, chosen):
    """Eq. 17."""
    Z, Y = standardise(X)[:, chosen], np.asarray(Y, dtype=float)
    n, k = Z.shape
    return ((Y.T @ Z @ Z.T @ Y / n**2 - similarity(Y)) ** 2).sum() / (k * (k - 1))
