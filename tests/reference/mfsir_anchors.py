"""mFSIR with an anchor graph by dense algebra, a row at a time, in the paper's letters; anchors are given."""

from __future__ import annotations

import numpy as np

from tests.reference.anchors import means_of_rows, row_weights, spread
from tests.reference.draws import largest_eigenvalue
from tests.reference.elc import standardise
from tests.reference.mfsir import factorise, on_sphere


def latent_row(r, Q, sweeps):
    """v'Qv − 2r'v over v >= 0: the solution without the bound, cut off, and coordinate descent from there."""
    v = np.maximum(np.linalg.solve(Q, r), 0.0)
    for _ in range(sweeps):
        for j in range(len(v)):
            v[j] = max(0.0, v[j] + (r[j] - Q[j] @ v) / Q[j, j])
    return v


def objective(Z, X, Y, W, V, B, U, alpha, gamma):
    """Eq. 8, its last term being that of the anchors."""
    fit = ((X @ W - V) ** 2).sum()
    return fit + alpha * ((Y - V @ B) ** 2).sum() + (gamma * spread(Z, V, U) if gamma else 0.0)


def mfsir(
    X,
    Y,
    centres,
    gamma,
    *,
    alpha=1.0,
    n_latent=None,
    anchor_neighbors=3,
    weight_steps=5,
    label_steps=5,
    bound=False,
    sweeps=4,
    tol=1e-3,
    max_iter=100,
):
    """Scores, the objective after every iteration, and (W, V, B, U, Z).

    `centres` are of standardised rows, γ = βc; `bound` lowers a bound of the objective that needs no X'X.
    """
    raw, X, Y = X, standardise(X), np.asarray(Y, dtype=float)
    n, d = X.shape
    Z = row_weights(X, centres, anchor_neighbors) if gamma else np.zeros((n, 1))
    V, B = factorise(Y, Y.shape[1] // 2 + 1 if n_latent is None else n_latent)
    G, H = np.ones((d, V.shape[1])), np.zeros((d, V.shape[1]))
    rho = largest_eigenvalue(raw, X)
    U = means_of_rows(Z, V)
    values = []
    while True:
        for _ in range(label_steps if alpha and V.any() else 0):
            B = on_sphere(B - V.T @ (V @ B - Y) / np.linalg.eigvalsh(V.T @ V)[-1])
        W0, image = G * H, X.T @ (X @ (G * H))

        def gradient(W, W0=W0, image=image, V=V):
            product = image + rho * (W - W0) if bound else X.T @ (X @ W)
            return 2 * (product - X.T @ V)

        for _ in range(weight_steps):
            if H.any() and rho:
                G = G - H * gradient(G * H) / (2 * rho * (H**2).max())
            if G.any() and rho:
                H = H - G * gradient(G * H) / (2 * rho * (G**2).max())

        W = G * H
        Q = (1 + gamma) * np.eye(len(B)) + alpha * B @ B.T
        V = np.array([latent_row(W.T @ X[i] + alpha * B @ Y[i] + gamma * U.T @ Z[i], Q, sweeps) for i in range(n)])
        values.append(objective(Z, X, Y, W, V, B, U, alpha, gamma))
        settled = len(values) > 1 and abs(values[-1] - values[-2]) <= tol * values[-2]
        if settled or len(values) == max_iter:
            return np.linalg.norm(W, axis=1), values, (W, V, B, U, Z)
        U = means_of_rows(Z, V, U)
