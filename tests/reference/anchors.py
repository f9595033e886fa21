"""Anchor graphs by sorting all distances, a row at a time: what the twins of the anchored forms share."""

from __future__ import annotations

import itertools

import numpy as np
from scipy import sparse as sp
from sklearn.cluster import KMeans


def place(X, m):
    """Centres of k-means on standardised rows, and the mean and deviation of the features.

    The rows are not centred where fewer than half of their values are not 0.
    """
    mean, deviation = X.mean(axis=0), np.where(np.ptp(X, axis=0) > 0, X.std(axis=0), np.inf)
    sparse = 2 * np.count_nonzero(X) < X.size
    points = (X if sparse else X - mean) / deviation
    centres = means_of_clusters(points, m, sparse)
    return (centres - mean / deviation if sparse else centres), mean, deviation


def means_of_clusters(points, m, sparse=False):
    """Of scikit-learn's clusters of points in single precision, in their order; equal ones once."""
    single = points.astype(np.float32)
    labels = KMeans(m, n_init=1, max_iter=25, random_state=0).fit(sp.csr_array(single) if sparse else single).labels_
    centres = np.array([points[labels == i].mean(axis=0) for i in np.unique(labels)])
    return centres[np.sort(np.unique(centres, axis=0, return_index=True)[1])]


def simplex(distances, s, size=0.0):
    """Weights of the s nearest anchors of a row, which reach zero at the next one; where all are as near, equal ones.

    `size` is that of the numbers of which the distances are differences.
    """
    m = len(distances)
    s = min(s, max(m - 1, 1))
    order = np.argsort(distances, kind="stable")
    z = np.zeros(m)
    if m == 1:
        z[0] = 1.0
        return z
    near, last = order[:s], distances[order[s]]
    gaps = last - distances[near]
    if gaps.sum() <= 1e-12 * s * (size + abs(last)):
        z[near] = 1.0 / s
    else:
        z[near] = gaps / gaps.sum()
    return z


def combination(points, x, ridge=1e-3):
    """Weights of the points, not negative and of sum 1, that give x again best; by the faces of the simplex."""
    apart = points - x
    G = apart @ apart.T
    G = G + ridge * np.trace(G) / len(G) * np.eye(len(G))
    best, least = None, np.inf
    for r in range(1, len(G) + 1):
        for face in itertools.combinations(range(len(G)), r):
            inside = G[np.ix_(face, face)]
            z = np.linalg.lstsq(inside, np.ones(r), rcond=None)[0] if inside.any() else np.ones(r)
            z = z / z.sum()
            if (z >= 0).all() and z @ inside @ z < least:
                best, least = np.zeros(len(G)), z @ inside @ z
                best[list(face)] = z
    return best


def row_weights(points, centres, s, combined=False):
    """Z, shape (n, m)."""
    Z = np.zeros((len(points), len(centres)))
    for i, x in enumerate(points):
        if combined:
            near = np.argsort(((x - centres) ** 2).sum(axis=1), kind="stable")[: min(s, max(len(centres) - 1, 1))]
            Z[i, near] = combination(centres[near], x)
            continue
        Z[i] = simplex(((x - centres) ** 2).sum(axis=1), s, (x**2).sum())
    return Z


def means_of_rows(Z, V, before=None):
    """U = Λ⁻¹Z'V; an anchor without rows keeps what it had, or has 0."""
    U = np.zeros((Z.shape[1], V.shape[1])) if before is None else before.copy()
    for a, mass in enumerate(Z.sum(axis=0)):
        if mass > 0:
            U[a] = Z[:, a] @ V / mass
    return U


def spread(Z, V, U):
    """Σ_i Σ_a z_ia ‖v_i − u_a‖²."""
    return sum(Z[i] @ ((V[i] - U) ** 2).sum(axis=1) for i in range(len(V)))
