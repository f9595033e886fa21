"""What methods draw by, so that no order of rows or columns and no cut has a part in it: in plain NumPy, once more."""

from __future__ import annotations

import math

import numpy as np


def mix(x):
    """The last step of SplitMix64."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


def column_keys(X):
    """Keys of columns by their values: two rounds over columns and one over rows; 0 for those that do not vary."""
    X = np.where(np.ptp(X, axis=0) > 0, X, 0).astype(float) + 0.0
    bits = X.view(np.uint64)

    def mixed(keys):
        return np.where(X == 0, np.uint64(0), mix(bits + keys))

    of_rows = mixed(mixed(np.uint64(0)).sum(axis=0, dtype=np.uint64)).sum(axis=1, dtype=np.uint64)
    return mixed(of_rows[:, np.newaxis]).sum(axis=0, dtype=np.uint64)


def shuffled_places(n, m, key):
    """For rows 0 to n - 1 a place of m; each m rows in turn have them all."""
    random, multiplier = np.random.default_rng(key), m
    while math.gcd(multiplier, m) > 1:
        multiplier = int(random.integers(1, m + 1))
    turns = np.arange(-(-n // m), dtype=np.uint64) + np.uint64(1)
    shifts = (mix(turns * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key)) % np.uint64(m)).astype(int)
    return np.array([(multiplier * (i % m) + shifts[i // m]) % m for i in range(n)])


def largest_eigenvalue(X, Z):
    """Of Z'Z, from above: the largest in the span of drawn directions, their images, the images of these and so on.

    Columns of X that vary are drawn for by their keys.
    """
    varies = np.ptp(X, axis=0) > 0
    if not varies.any():
        return 0.0
    places = np.unique(np.where(varies, column_keys(X), np.iinfo(np.uint64).max), return_inverse=True)[1]
    drawn = np.random.default_rng(0).normal(size=(places.max() + 1, 16))[places] * varies[:, np.newaxis]
    A, K = Z.T @ Z, np.linalg.qr(drawn[:, : len(set(places[varies]))])[0]
    while True:
        values, vectors = np.linalg.eigh(K.T @ A @ K)
        top = K @ vectors[:, -1]
        residual = np.linalg.norm(A @ top - values[-1] * top)
        images = A @ K
        new, sizes, _ = np.linalg.svd(images - K @ (K.T @ images), full_matrices=False)
        new = new[:, sizes > 1e-10 * np.linalg.norm(images)]
        if residual <= 1e-2 * values[-1] or not new.shape[1]:
            return max(values[-1], 0.0) + residual
        K = np.linalg.qr(np.hstack([K, new]))[0]
