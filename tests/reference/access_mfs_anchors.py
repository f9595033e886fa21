"""Access-MFS with an anchor graph by dense algebra, a row at a time, in the paper's letters; anchors are given."""

from __future__ import annotations

import numpy as np

from tests.reference.access_mfs import (
    EPSILON,
    alike,
    half_squared_distances,
    inverse_root,
    laplacian,
    simplex_rows,
    standardise,
)
from tests.reference.anchors import means_of_rows, row_weights, spread


def weights(M, R):
    """Eq. 14, max tr(W'M) with W'RW = I, through the singular vectors of R^{-1/2}M."""
    used = np.diag(R) > 0
    half = np.zeros(R.shape)
    half[np.ix_(used, used)] = inverse_root(R[np.ix_(used, used)])
    left, sigma, right = np.linalg.svd(half @ M, full_matrices=False)
    good = sigma > 1e-5 * sigma[0]
    return half @ left[:, good] @ right[good]


def label_graph(F, k_p, mu):
    """μL_p of Eq. 25."""
    q = F.shape[1]
    if mu == 0 or q < 2:
        return np.zeros((q, q))
    return mu * laplacian(simplex_rows(half_squared_distances(F.T), k_p, share=True)[0])


def predict(xW, y, kappa, b, coupling, theta, U, T, s, turns=3):
    """A row's f and z: f of θ = 0, and then z and f in turn (Eqs. 17 and 21)."""
    q = len(y)
    f = np.linalg.solve(np.eye(q) + np.diag(kappa) + coupling, xW + b + kappa * y)
    z = np.zeros(len(U))
    for _ in range(turns if len(U) else 0):
        z = row_weights(np.r_[f, xW][np.newaxis], np.c_[U, T], s)[0]
        system = (1 + theta) * np.eye(q) + np.diag(kappa) + coupling
        f = np.linalg.solve(system, xW + b + kappa * y + theta * z @ U)
    return f, z


def settle(F, Z, known, b, U, coupling, theta):
    """b and U at rest with the rows that follow from them: b = mean f_i, U = Λ⁻¹Z'F, as one system.

    A row moves by (δb + θ z_i'δU) ((1 + θ + κ)I + coupling)⁻¹; κ is the known fraction of the labels that differ, of
    all rows of which half of them is known, and of all others.
    """
    (n, q), m = F.shape, len(U)
    level = 1 + theta if m else 1.0
    mostly = 2 * known.sum(axis=1) >= known.shape[1]
    kappa = [known[mostly == group].mean() if (mostly == group).any() else 0.0 for group in (False, True)]
    A = [np.linalg.inv((level + kappa[int(group)]) * np.eye(q) + coupling) for group in mostly]
    masses = np.r_[n, Z.sum(axis=0)]
    x = np.vstack([b, U])
    left, right = np.zeros((m + 1, q, m + 1, q)), np.zeros((m + 1, q))
    for i in range(n):
        one, moved = np.r_[1.0, Z[i]], np.r_[1.0, theta * Z[i]]
        left -= np.einsum("a,b,jk->ajbk", one, moved, A[i].T)
        right += np.outer(one, F[i] - moved @ x @ A[i])
    for a in range(m + 1):
        left[a, :, a] += masses[a] * np.eye(q)
        if masses[a] == 0:  # which keeps what it has
            left[a], right[a] = 0.0, x[a]
            left[a, :, a] = np.eye(q)
    size = (m + 1) * q
    x = np.linalg.solve(left.reshape(size, size), right.ravel()).reshape(m + 1, q)
    return x[0], x[1:]


def join(anchors):
    """Anchors of which those nearer than half of the digits are one."""
    joined, reach = anchors.copy(), 2.0**-26 * np.abs(anchors).max(initial=0)
    for b in range(len(anchors)):
        for a in range(b):
            if np.linalg.norm(anchors[a] - anchors[b]) <= reach:
                joined[b] = joined[a]
                break
    return joined


def access_mfs(
    X,
    Y,
    place,
    *,
    lambda_=1.0,
    theta=1.0,
    mu=1.0,
    k_p=5,
    anchor_neighbors=5,
    unknown_labels="coded",
    scale=True,
    inner_iterations=1,
    tol=1e-6,
    max_iter=100,
):
    """Scores, F, the objective of every iteration, and (W, b, U, T, Z).

    ``place(points)`` gives the first anchors among [f_i, x_iW]. Y holds 1, 0 and −1 for unknown.
    """
    X = standardise(X) if scale else X - X.mean(axis=0)
    n, d = X.shape
    known = np.asarray(Y) >= 0
    if unknown_labels == "zeros":
        known = known & (Y == 1).any(axis=1)[:, np.newaxis]
    Y = (np.asarray(Y) == 1).astype(float)
    q = Y.shape[1]
    same = alike(Y, known)
    different = [j for j in range(q) if not same[:j, j].any()]
    gram = X.T @ X

    W = weights(X.T @ Y, gram + lambda_ * np.eye(d)) @ same
    W[~X.any(axis=0)] = 0
    b, coupling = Y.mean(axis=0), label_graph(Y, k_p, mu)
    U = T = np.zeros((0, q))
    if theta > 0:
        F = np.array([predict(X[i] @ W, Y[i], known[i], b, coupling, 0.0, U, T, 0)[0] for i in range(n)]) @ same
        points = place(np.c_[F, X @ W])
        U, T = points[:, :q], points[:, q:]

    objective = []
    while True:
        rows = [predict(X[i] @ W, Y[i], known[i], b, coupling, theta, U, T, anchor_neighbors) for i in range(n)]
        F, Z = np.array([f for f, _ in rows]) @ same, np.array([z for _, z in rows]).reshape(n, len(U))
        best_U, best_T = means_of_rows(Z, F, U), means_of_rows(Z, X @ W, T)
        L_p = label_graph(F, k_p, mu)

        value = ((X @ W - (F - F.mean(axis=0))) ** 2).sum()
        value += (known * (F - Y) ** 2).sum()
        value += lambda_ * np.sqrt((W**2).sum(axis=1) + EPSILON).sum()
        if theta > 0:
            value += theta * (spread(Z, F, best_U) + spread(Z, X @ W, best_T))
        value += np.trace(F @ L_p @ F.T)
        objective.append(value)
        done = len(objective) > 1 and abs(objective[-1] - objective[-2]) <= tol * abs(objective[-2])
        if done or not W.any() or len(objective) == max_iter:
            return np.sqrt((W**2).sum(axis=1)), F, objective, (W, b, U, T, Z)

        ZX, masses = Z.T @ X, Z.sum(axis=0)
        used = masses > 0
        smooth = theta * (gram - ZX[used].T @ np.diag(1 / masses[used]) @ ZX[used]) if theta > 0 else 0.0
        for _ in range(inner_iterations):
            before = W
            D = np.diag(1 / (2 * np.sqrt((W**2).sum(axis=1) + EPSILON)))  # Eq. 9
            W = weights(X.T @ (F - F.mean(axis=0)), gram + lambda_ * D + smooth) @ same  # Eq. 14
            W[~X.any(axis=0)] = 0
            if np.linalg.norm(W - before) <= 1e-6 * np.linalg.norm(W):
                break
        T = means_of_rows(Z, X @ W, best_T)
        b, U = settle(F, Z, known[:, different], b, U, coupling, theta)
        U, T = np.hsplit(join(np.c_[U, T]), 2)
        coupling = L_p
