"""Fits of the exact forms with the defaults of their selectors, and data to fit them on."""

from __future__ import annotations

import numpy as np
from scipy import sparse as sp

from mlfs_dask.blocks.moments import add_zeros, moments_block
from mlfs_dask.exact import access_mfs, mfsir, smfs

MFSIR = {
    "alpha": 1.0,
    "beta": 1.0,
    "n_neighbors": 5,
    "lambda_": None,
    "step": "blockwise",
    "eta": None,
    "omega": 1e-5,
    "weight_steps": 5,
    "label_steps": 5,
    "gram_cap": 4096,
    "tol": 1e-3,
    "max_iter": 100,
    "random_state": None,
}

SMFS = {
    "alpha": None,
    "beta": None,
    "structure": "density",
    "n_neighbors": 15,
    "n_trees": 100,
    "max_samples": 256,
    "unknown_labels": "auto",
    "consistency": "observed",
    "standardise": True,
    "inner_iterations": None,
    "gram_cap": 4096,
    "tol": 1e-4,
    "max_iter": 45,
    "random_state": None,
}

ACCESS = {
    "variant": "corrected",
    "lambda_": 1.0,
    "theta": 1.0,
    "mu": 1.0,
    "k_s": 5,
    "k_p": 5,
    "unknown_labels": "coded",
    "standardise": True,
    "inner_iterations": 1,
    "solver_tol": None,
    "gram_cap": 4096,
    "tol": 1e-6,
    "max_iter": 100,
    "random_state": None,
}


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
    given = {**MFSIR, "n_latent": Y.shape[1] // 2 + 1, **parameters}
    return mfsir.fit(X, labels_of(Y), moments=Moments(X), **given)


def fit_smfs(X, Y, **parameters):
    return smfs.fit(X, labels_of(Y), moments=Moments(X), **{**SMFS, **parameters})


def fit_access(X, Y, **parameters):
    return access_mfs.fit(X, labels_of(Y), moments=Moments(X), **{**ACCESS, **parameters})
