"""mFSIR (Mansouri, Benabdeslem & Benkabou) by dense algebra and plain loops, in the paper's order and letters."""

from __future__ import annotations

import math

import numpy as np

from tests.reference.draws import largest_eigenvalue
from tests.reference.elc import standardise


def affinity(X, p=5, width=None):
    """Eq. 6: heat kernel between a row and its p nearest, or the nearest's; ties go to the lower index."""
    n = len(X)
    distance = np.array([[((X[i] - X[j]) ** 2).sum() for j in range(n)] for i in range(n)])
    if width is None:
        width = math.sqrt(distance.mean())
    near = [[j for j in np.argsort(distance[i], kind="stable") if j != i][:p] for i in range(n)]
    S = np.zeros((n, n))
    for i in range(n):
        for j in near[i]:
            S[i, j] = S[j, i] = math.exp(-distance[i, j] / width**2) if width else 1.0
    return S


def factorise(Y, most):
    """V, B >= 0 with Y near VB, rows of B of norm 1: the parts of one sign of every singular pair."""
    U, s, T = np.linalg.svd(np.asarray(Y, dtype=float), full_matrices=False)
    V, B = [], []
    for j in range(most):
        if j >= len(s) or s[j] <= 1e-6 * s[0]:
            break
        u, t = U[:, j], T[j]
        up = np.linalg.norm(np.maximum(u, 0)) * np.linalg.norm(np.maximum(t, 0))
        down = np.linalg.norm(np.minimum(u, 0)) * np.linalg.norm(np.minimum(t, 0))
        first = t[(np.abs(t) >= (1 - 1e-6) * np.abs(t).max()).argmax()]
        # Parts of equal size: the sign of a singular pair is arbitrary, and its first largest entry decides.
        if first < 0 if abs(up - down) <= 1e-9 * max(up, down) else up < down:
            u, t = -u, -t
        u, t = np.maximum(u, 0), np.maximum(t, 0)
        V.append(s[j] * np.linalg.norm(t) * u)
        B.append(t / np.linalg.norm(t))
    if not V:
        return np.zeros((len(Y), 1)), np.eye(1, np.shape(Y)[1])
    return np.array(V).T, np.array(B)


def on_sphere(B):
    """Every row at the nearest place where it is non-negative and has norm 1."""
    B = np.array(B)
    for j in range(len(B)):
        positive = np.maximum(B[j], 0)
        norm = np.linalg.norm(positive)
        B[j] = positive / norm if norm > 0 else np.eye(len(B[j]))[np.argmax(B[j])]
    return B


def objective(Z, Y, L, G, H, V, B, alpha, beta):
    """Eq. 8."""
    return ((Z @ (G * H) - V) ** 2).sum() + alpha * ((Y - V @ B) ** 2).sum() + beta * np.trace(V.T @ L @ V)


def mfsir(
    X,
    Y,
    *,
    alpha=1.0,
    beta=1.0,
    n_latent=None,
    n_neighbors=5,
    lambda_=None,
    step="blockwise",
    eta=None,
    omega=1e-5,
    weight_steps=5,
    label_steps=5,
    tol=1e-3,
    max_iter=100,
    random_state=0,
    standardised=False,
):
    """Scores, the objective after every iteration, and (G, H, V, B)."""
    Z = np.asarray(X, dtype=float) if standardised else standardise(X)
    Y = np.asarray(Y, dtype=float)
    n, d = Z.shape
    q = Y.shape[1]
    most = q // 2 + 1 if n_latent is None else n_latent
    S = affinity(Z, n_neighbors, lambda_) if beta else np.zeros((n, n))
    degree = S.sum(axis=1)
    L = np.diag(degree) - S  # after Eq. 5

    if step == "fixed":
        weight_steps = label_steps = 1
        seeds = np.random.SeedSequence(random_state).spawn(4)
        shapes = ((d, most), (d, most), (n, most), (most, q))
        G, H, V, B = (
            np.random.default_rng(seed).uniform(-omega, omega, size=shape)
            for seed, shape in zip(seeds, shapes, strict=True)
        )
    else:
        V, B = factorise(Y, most)
        G, H = np.ones((d, V.shape[1])), np.zeros((d, V.shape[1]))

    rho = largest_eigenvalue(X, Z)  # the step is 1 / ρ
    if step == "fixed" and eta is None:
        eta = 0.5 / max(rho, 1 + alpha + 2 * beta * degree.max(), alpha * np.linalg.eigvalsh(Y.T @ Y)[-1])

    def gradient():
        return 2 * Z.T @ (Z @ (G * H) - V)

    values = []
    for t in range(max_iter):
        for _ in range(weight_steps):
            if step == "fixed":
                G = G - eta * H * gradient()  # Eqs. 9 and 10
                H = H - eta * G * gradient()
                continue
            if H.any() and rho:
                G = G - H * gradient() / (2 * rho * (H**2).max())
            if G.any() and rho:
                H = H - G * gradient() / (2 * rho * (G**2).max())
        for _ in range(label_steps):
            slope = 2 * ((V - Z @ (G * H)) + alpha * (V @ B - Y) @ B.T + beta * L @ V)
            if step == "fixed":
                V = np.maximum(V - eta * slope, 0)
                B = np.maximum(B - eta * 2 * alpha * V.T @ (V @ B - Y), 0)
                continue
            own = 2 * (1 + alpha * np.linalg.eigvalsh(B @ B.T)[-1] + 2 * beta * degree)  # of every row of V
            V = np.maximum(V - slope / own[:, np.newaxis], 0)
            if alpha and V.any():
                slope = 2 * alpha * V.T @ (V @ B - Y)
                B = on_sphere(B - slope / (2 * alpha * np.linalg.eigvalsh(V.T @ V)[-1]))
        values.append(objective(Z, Y, L, G, H, V, B, alpha, beta))
        if step != "fixed" and t and abs(values[-1] - values[-2]) <= tol * values[-2]:
            break
    return np.linalg.norm(G * H, axis=1), values, (G, H, V, B)
