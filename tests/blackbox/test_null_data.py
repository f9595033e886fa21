"""With `-k auto` features that have nothing to do with the labels are found at the rate that was asked for, no more.

Where every discovery is false, the false discovery rate is the share of the data sets in which there is one.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binom

import mlfs_dask as mlfs

N_DATA_SETS = 200


@pytest.mark.parametrize(("selector_of", "fdr"), [(mlfs.Chi2, 0.25), (mlfs.BRCC, 0.1)])
def test_false_discoveries(selector_of, fdr):
    found = 0
    for seed in range(N_DATA_SETS):
        rng = np.random.default_rng(seed)
        # Features go together, and so do labels; rows of labels that are shuffled leave both as they are.
        X = np.round(rng.normal(size=(60, 8)) + rng.normal(size=(60, 1)), 2)
        Y = (rng.normal(size=(60, 3)) + X.mean(axis=1, keepdims=True) > 0.7).astype(int)
        try:
            selector_of(n_features_to_select="auto", fdr=fdr, random_state=seed).fit(X, rng.permutation(Y))
            found += 1
        except ValueError as error:
            if "no feature is associated with the labels more than by chance" not in str(error):
                raise
    assert binom.ppf(0.0005, N_DATA_SETS, fdr) <= found <= binom.ppf(0.9995, N_DATA_SETS, fdr)
