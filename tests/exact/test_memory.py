"""What fits say they hold covers what they hold."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.linear import laplacian_gram_bytes
from mlfs_dask.exact import access_mfs, laplacian, mfsir, smfs
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.selectors import get_method
from mlfs_dask.selectors.in_memory import sizes_in_memory
from mlfs_dask.solvers.conjugate_gradients import columns_at_once
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.typing import numbers, workspace_bytes
from tests.exact.fits import Moments, fit_access, fit_mfsir, fit_smfs, labels_of

CASES = {
    "mfsir": (mfsir, fit_mfsir, 5, {"graph": True}),
    "smfs": (smfs, fit_smfs, 15, {}),
    "access-mfs": (access_mfs, fit_access, 6, {"graph": True}),
}


def one_hot(n, d):
    """Rows with one value, so that all pairs tie."""
    return sp.csr_array((np.ones(n), np.arange(n) % d, np.arange(n + 1)), shape=(n, d))


@pytest.mark.parametrize(
    "X",
    [
        np.random.default_rng(0).normal(size=(1500, 3000)),
        sp.random_array((1500, 6000), density=0.02, rng=np.random.default_rng(0), format="csr"),
        one_hot(1100, 900),
    ],
    ids=["dense", "sparse", "ties"],
)
def test_memory_of_laplacian_scores_is_within_what_is_said_to_be_held(X):
    moments = Moments(X)
    laplacian.laplacian_scores(X[:100], moments=Moments(X[:100]), n_neighbors=5, lambda_=None)
    tracemalloc.start()
    laplacian.laplacian_scores(X, moments=moments, n_neighbors=5, lambda_=None)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    sparse = sp.issparse(X)
    sizes = {"n": X.shape[0], "d": X.shape[1], "k": 6, "v": X.nnz if sparse else X.size}
    assert peak <= sum(workspace_bytes(laplacian.workspace(sparse=sparse), sizes).values())


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(
    ("n", "d", "q", "gram_cap", "sparse"),
    [
        (2500, 40, 30, 0, False),
        (300, 1500, 20, 4096, False),
        (600, 3000, 10, 0, True),
        (2000, 1000, 10, 4096, True),
        (1500, 40, 200, 4096, False),
    ],
)
def test_memory_is_within_what_is_said_to_be_held(name, n, d, q, gram_cap, sparse):
    module, fit, k, graph = CASES[name]
    rng = np.random.default_rng(0)
    Y = (rng.random((n, q)) < 0.2).astype(np.int8)
    X = sp.random_array((n, d), density=0.02, rng=rng, format="csr") if sparse else rng.normal(size=(n, d))
    if name != "mfsir":
        Y[rng.random(Y.shape) < 0.3] = -1
    parameters = {"gram_cap": gram_cap, "max_iter": 2} | ({"n_trees": 25} if name == "smfs" else {})
    fit(X[:100], Y[:100], **parameters)  # whatever is imported late is imported now
    tracemalloc.start()
    fit(X, Y, **parameters)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    workspace = module.workspace(sparse=sparse, gram=d <= gram_cap, **graph)
    sizes = {"n": n, "d": d, "q": q, "l": q // 2 + 1, "k": k, "t": 25, "s": 256, "m": max(min(gram_cap, 2048), 1)}
    sizes |= {"v": X.nnz if sparse else n * d, "y": labels_of(Y).nnz}
    sizes["c"] = columns_at_once(q)
    sizes["strips"] = numbers(laplacian_gram_bytes(n, d, X.nnz if sparse else None))
    assert peak <= sum(workspace_bytes(workspace, sizes).values())


@pytest.mark.parametrize("name", ["glfs", "mifs", "mlmlfs", "sfs-bll"])
@pytest.mark.parametrize(("n", "d", "q", "sparse"), [(2500, 40, 30, False), (600, 600, 10, True)])
def test_memory_of_published_forms_is_within_what_is_said_to_be_held(name, n, d, q, sparse):
    rng = np.random.default_rng(0)
    Y = labels_of(rng.random((n, q)) < 0.2)
    X = sp.random_array((n, d), density=0.02, rng=rng, format="csr") if sparse else rng.normal(size=(n, d))
    method = get_method(name)(variant="published", max_iter=2)
    first, found = Moments(X[:100]), Moments(X)
    # Whatever is imported late is imported now.
    method._fit_exactly(X[:100], Y[:100], FeatureMoments(100, first.mean, first.m2))
    moments = FeatureMoments(n, found.mean, found.m2)
    tracemalloc.start()
    method._fit_exactly(X, Y, moments)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    profile = as_rows(X, Y).profile
    workspace, sizes = method._exact_workspace(profile)
    assert peak <= sum(workspace_bytes(workspace, sizes_in_memory(profile) | sizes).values())
