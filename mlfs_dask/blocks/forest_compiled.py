"""Compiled kernel of `forest`: rows go down the trees eight at a time, so that their steps overlap."""

from __future__ import annotations

import numpy as np

from mlfs_dask.blocks.compiling import njit


@njit()
def walk(X, features, thresholds, children, leaves, depth, out):  # type: ignore[no-untyped-def]  # pragma: no cover
    """Write the leaf numbers of rows X, float32 (rows, d), to out (rows, trees); others as in `forest.Forest`."""
    rows = X.shape[0]
    whole = rows - rows % 8
    for t in range(len(depth)):
        feature, threshold, child, leaf = features[t], thresholds[t], children[t], leaves[t]
        for i in range(0, whole, 8):
            a = b = c = d = e = f = g = h = np.int32(0)
            for _ in range(depth[t]):
                a = child[a] + np.int32(X[i, feature[a]] > threshold[a])
                b = child[b] + np.int32(X[i + 1, feature[b]] > threshold[b])
                c = child[c] + np.int32(X[i + 2, feature[c]] > threshold[c])
                d = child[d] + np.int32(X[i + 3, feature[d]] > threshold[d])
                e = child[e] + np.int32(X[i + 4, feature[e]] > threshold[e])
                f = child[f] + np.int32(X[i + 5, feature[f]] > threshold[f])
                g = child[g] + np.int32(X[i + 6, feature[g]] > threshold[g])
                h = child[h] + np.int32(X[i + 7, feature[h]] > threshold[h])
            out[i, t], out[i + 1, t], out[i + 2, t], out[i + 3, t] = leaf[a], leaf[b], leaf[c], leaf[d]
            out[i + 4, t], out[i + 5, t], out[i + 6, t], out[i + 7, t] = leaf[e], leaf[f], leaf[g], leaf[h]
        for i in range(whole, rows):
            node = np.int32(0)
            for _ in range(depth[t]):
                node = child[node] + np.int32(X[i, feature[node]] > threshold[node])
            out[i, t] = leaf[node]
