"""LassoNet of Lemhadri, Ruan, Abraham & Tibshirani (2021), dense and plain, all rows being in the sample."""

from __future__ import annotations

import numpy as np

from tests.reference.draws import column_keys


def nearest(v, u, threshold, M):
    """The projection of one feature: of the numbers of entries that may be cut, the one that fits."""
    u_abs, size = np.sort(np.abs(u))[::-1], np.linalg.norm(v)
    for s in range(len(u) + 1):
        length = max(0.0, size - threshold + M * u_abs[:s].sum()) / (1 + s * M**2)
        above = u_abs[s] if s < len(u) else 0.0
        if above <= M * length:
            break
    return (v * length / size if size else 0 * v), np.sign(u) * np.minimum(np.abs(u), M * length * (size > 0))


def lassonet(
    X,
    Y,
    *,
    n_hidden=100,
    hierarchy=10.0,
    lambda_start=0.5,
    path_multiplier=1.05,
    max_iter=1000,
    batch_size=512,
    seed=0,
):
    """λ at which each feature leaves. Columns differ; they come in the order of their keys."""
    order = np.argsort(column_keys(X.astype(np.float32)))
    Z, Y = ((X - X.mean(axis=0)) / X.std(axis=0))[:, order], np.asarray(Y, dtype=float)
    (n, d), q, h = Z.shape, Y.shape[1], n_hidden
    random = np.random.default_rng(seed)
    rows = random.permutation(n)
    held_out, train = np.sort(rows[: round(0.1 * n)]), np.sort(rows[round(0.1 * n) :])
    n_batches = max(1, round(len(train) / batch_size))
    WA = random.uniform(-1, 1, (d, q + h)) / np.sqrt(d)
    a = random.uniform(-1, 1, h) / np.sqrt(d)
    B, b = random.uniform(-1, 1, (h, q)) / np.sqrt(h), random.uniform(-1, 1, q) / np.sqrt(h)
    parameters = [WA[:, :q].copy(), WA[:, q:].copy(), a, B, b]

    def predict(x):
        W, A, a, B, b = parameters
        hidden = np.maximum(x @ A + a, 0)
        return x @ W + hidden @ B + b, hidden

    def gradients(x, y):
        predicted, hidden = predict(x)
        slope = 2 * (predicted - y) / y.size
        back = (slope @ parameters[3].T) * (hidden > 0)
        return x.T @ slope, x.T @ back, back.sum(axis=0), hidden.T @ slope, slope.sum(axis=0)

    def train_for(strength, epochs, step):
        least, since = np.inf, 0
        for _ in range(epochs):
            batches = [train] if n_batches == 1 else np.array_split(random.permutation(train), n_batches)
            for batch in batches:
                step(gradients(Z[batch], Y[batch]))
                for f in range(d):
                    parameters[0][f], parameters[1][f] = nearest(
                        parameters[0][f], parameters[1][f], 1e-3 * strength, hierarchy
                    )
            loss = np.mean((predict(Z[held_out])[0] - Y[held_out]) ** 2)
            objective = loss + strength * np.linalg.norm(parameters[0], axis=1).sum()
            since += 1
            if objective < 0.99 * least:
                least, since = objective, 0
            if since >= 0.1 * epochs:
                break

    first, second, steps = [0.0] * 5, [0.0] * 5, 0

    def adam(slopes):
        nonlocal steps
        steps += 1
        for i, slope in enumerate(slopes):
            first[i] = 0.9 * first[i] + 0.1 * slope
            second[i] = 0.999 * second[i] + 0.001 * slope**2
            size = np.sqrt(second[i] / (1 - 0.999**steps)) + 1e-8
            parameters[i] = parameters[i] - 1e-3 * first[i] / (1 - 0.9**steps) / size

    train_for(0.0, max_iter, adam)
    velocity, there = [0.0] * 5, np.ones(d, bool)

    def momentum(slopes):
        for i, slope in enumerate(slopes):
            if i < 2:
                slope = slope * there[:, np.newaxis]  # a feature that left does not come back
            velocity[i] = 0.9 * velocity[i] + slope
            if i < 2:
                velocity[i][~there] = 0.0
            parameters[i] = parameters[i] - 1e-3 * velocity[i]

    leaves_at, strength = np.zeros(d), lambda_start
    while there.any():
        train_for(strength, -(-max_iter // 10), momentum)
        left = there & ~parameters[0].any(axis=1)
        leaves_at[left] = strength
        there &= ~left
        strength *= path_multiplier
    scores = np.empty(d)
    scores[order] = leaves_at
    return scores
