"""Fits of the exact forms with the defaults of their selectors, and data to fit them on."""

from __future__ import annotations

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.moments import add_zeros, moments_block
from mlfs_dask.selectors.access_mfs import AccessMFS
from mlfs_dask.selectors.mfsir import MFSIR
from mlfs_dask.selectors.smfs import SMFS


class Moments:
    """Moments of the columns of X."""

    def __init__(self, X):
        self.n, d = X.shape
        dense = not sp.issparse(X)
        origin = np.asarray(X[0], float) if dense else np.zeros(d)
        found = moments_block(X, origin)
        if not dense:
            found = add_zeros(found, self.n, origin)
        self.mean, self.m2 = found.mean + origin, found.m2


def labels_of(Y):
    """Y as selectors get it: a csr_array of int8 with 1 and -1."""
    return sp.csr_array(np.asarray(Y, dtype=np.int8))


def fit_mfsir(X, Y, **parameters):
    return MFSIR(**{"weight_steps": 5, **parameters})._fit_exactly(X, labels_of(Y), Moments(X))


def fit_smfs(X, Y, **parameters):
    return SMFS(**parameters)._fit_exactly(X, labels_of(Y), Moments(X))


def fit_access(X, Y, **parameters):
    return AccessMFS(**parameters)._fit_exactly(X, labels_of(Y), Moments(X))
