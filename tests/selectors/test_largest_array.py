"""Above the Gram cap nothing of the size of X'X appears, not even for a moment and not even in bytes."""

from __future__ import annotations

import tracemalloc
import warnings

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.selection.estimator import get_estimator


@pytest.mark.parametrize("method", ["mfsir", "smfs", "access-mfs"])
def test_the_peak_of_all_arrays_is_below_one_byte_for_each_pair_of_features(method):
    n, d, q = 200, 5_000, 3
    rng = np.random.default_rng(0)
    X = sp.random_array((n, d), density=0.01, rng=rng, format="csr")
    Y = (rng.random((n, q)) < 0.3).astype(int)
    if method != "mfsir":
        Y[rng.random(n) >= 0.3] = -1
    few = {"n_trees": 20} if method == "smfs" else {}
    selector = get_estimator(method)(n_features_to_select=10, gram_cap=500, max_iter=4, **few)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # four iterations are too few to converge
        get_estimator(method)(n_features_to_select=1, max_iter=1).fit(X[:, :20], Y)  # loads what has to be loaded
        tracemalloc.start()
        try:
            selector.fit(X, Y)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert selector.report_.extra["gram"] is False
    assert peak < d * d
