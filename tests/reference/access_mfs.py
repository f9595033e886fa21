"""Access-MFS (Huang et al. 2024) by dense algebra, in the paper's order and letters; rows of X are samples."""

from __future__ import annotations

import math

import numpy as np

EPSILON = 1e-8


def standardise(X):
    """Zero mean and unit population standard deviation; a constant column becomes zero."""
    Z = np.array(X, dtype=np.float64)
    for f in range(Z.shape[1]):
        shifted = Z[:, f] - Z[0, f]
        shifted = shifted - shifted.mean()
        deviation = math.sqrt((shifted**2).mean())
        Z[:, f] = 0.0 if (Z[:, f] == Z[0, f]).all() else shifted / deviation
    return Z


def simplex_rows(M, k, share=False):
    """Eqs. 21 and 25 (with their minus): weights of the k nearest, ties by index; and Σ of α times squared weights.

    Where the k + 1 nearest are all as near, k of them have the weight, or all that are as near share it.
    """
    m = len(M)
    k = min(k, max(m - 2, min(m - 1, 1)))
    S, penalty = np.zeros((m, m)), 0.0
    for i in range(m if k else 0):
        order = [j for j in np.argsort(M[i], kind="stable") if j != i]
        near = order[:k]
        total = k * M[i, order[k]] - M[i, near].sum() if m - 1 > k else 0.0
        if total <= 1e-12 and share and m - 1 > k:
            near = [j for j in order if M[i, j] <= M[i, order[k]] + 1e-12]
        S[i, near] = (M[i, order[k]] - M[i, near]) / total if total > 1e-12 else 1 / len(near)
        penalty += total / 2 * (S[i] ** 2).sum()
    return S, penalty


def laplacian(S):
    S = (S + S.T) / 2
    return np.diag(S.sum(axis=1)) - S


def half_squared_distances(Z):
    return 0.5 * ((Z[:, np.newaxis] - Z) ** 2).sum(axis=2)


def inverse_root(R):
    values, vectors = np.linalg.eigh(R)
    return (vectors / np.sqrt(values)) @ vectors.T


def alike(Y, U):
    """Projection on what is the same for all labels of which the same is known, (q, q)."""
    q = Y.shape[1]
    same = np.array([[(Y[:, i] == Y[:, j]).all() and (U[:, i] == U[:, j]).all() for i in range(q)] for j in range(q)])
    return same / same.sum(axis=0)


def update_W(X, F, L_s, D, lambda_, theta):
    """One turn of Algorithm 1: Eq. 14 through the singular vectors of B (Eq. 13)."""
    R = X.T @ X + lambda_ * np.diag(D) + theta * X.T @ L_s @ X  # X is centred
    half = inverse_root(R)
    B = half @ X.T @ (F - F.mean(axis=0))
    V_l, sigma, V_r = np.linalg.svd(B, full_matrices=False)
    good = sigma > 1e-5 * sigma[0]  # the compact decomposition
    A = V_l[:, good] @ V_r[good]
    return half @ A


def update_F(X, W, Y, U, L_s, L_p, theta, mu):
    """Eq. 17; U holds the known entries, (n, q)."""
    n, q = Y.shape
    H = np.eye(n) - 1 / n
    C = X @ W + U * Y
    if (U[:, :1] == U).all():
        values, E = np.linalg.eigh(theta * L_s + H + np.diag(U[:, 0]))
        sigma, E_p = np.linalg.eigh(L_p)
        return E @ ((E.T @ C @ E_p) / (values[:, np.newaxis] + mu * sigma)) @ E_p.T
    whole = mu * np.kron(np.eye(n), L_p.T) + np.diag(U.ravel()) + np.kron(theta * L_s + H, np.eye(q))
    return np.linalg.solve(whole, C.ravel()).reshape(n, q)


def access_mfs(
    X,
    Y,
    *,
    lambda_=1.0,
    theta=1.0,
    mu=1.0,
    k_s=5,
    k_p=5,
    inner_iterations=1,
    settled=1e-6,
    tol=1e-6,
    max_iter=100,
    seed=0,
):
    """Scores, F and the objective after every iteration; Y holds 1, 0 and -1 for unknown."""
    X = standardise(X)
    d = X.shape[1]
    U = (Y >= 0).astype(float)
    Y = (Y == 1).astype(float)
    q = Y.shape[1]
    same = alike(Y, U)
    W = np.random.default_rng(seed).standard_normal((d, q)) / math.sqrt(d) @ same
    F, D = Y.copy(), np.ones(d)

    def graphs():
        S, alpha_term = simplex_rows(half_squared_distances(F) + half_squared_distances(X @ W), k_s)
        P, beta_term = simplex_rows(half_squared_distances(F.T), k_p, share=True)
        return laplacian(S), laplacian(P), theta * alpha_term + mu * beta_term

    L_s, L_p, _ = graphs()
    objective, penalty = [], []
    for _ in range(max_iter):
        for _ in range(inner_iterations):
            before = W
            W = update_W(X, F, L_s, D, lambda_, theta) @ same
            D = 1 / (2 * np.sqrt((W**2).sum(axis=1) + EPSILON))
            if np.linalg.norm(W - before) <= settled * np.linalg.norm(W):
                break
        F = update_F(X, W, Y, U, L_s, L_p, theta, mu) @ same  # by which only rounding changes
        L_s, L_p, terms = graphs()
        penalty.append(terms)

        value = ((X @ W - (F - F.mean(axis=0))) ** 2).sum()
        value += (U * (F - Y) ** 2).sum()
        value += lambda_ * np.sqrt((W**2).sum(axis=1) + EPSILON).sum()
        value += theta * (np.trace(F.T @ L_s @ F) + np.trace(W.T @ X.T @ L_s @ X @ W))
        value += mu * np.trace(F @ L_p @ F.T)
        objective.append(value)
        if len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * abs(objective[-2]):
            break
    return np.sqrt((W**2).sum(axis=1)), F, objective, penalty
