"""SMFS (Xu & Zhao 2020) by dense algebra and plain loops, in the paper's order and letters."""

from __future__ import annotations

import numpy as np


def isolation_masses(trees, X):
    """ξ of Eq. 2 for all pairs: the share of rows in the deepest node that two rows both pass, mean over trees."""
    n = len(X)
    xi = np.zeros((n, n))
    for tree in trees:
        passed = np.asarray(tree.decision_path(X).todense(), dtype=bool)  # (rows, nodes)
        mass = passed.sum(axis=0)
        for i in range(n):
            for j in range(n):
                xi[i, j] += mass[passed[i] & passed[j]].min()
    return xi / (len(trees) * n)
