"""What fits say they hold covers what they hold."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.linear import laplacian_gram_bytes
from mlfs_dask.rows.sources import as_rows
from mlfs_dask.selectors import access_mfs, get_method, laplacian, mfsir, smfs
from mlfs_dask.selectors.in_memory import sizes_in_memory
from mlfs_dask.solvers.conjugate_gradients import columns_at_once
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.typing import numbers, workspace_bytes
from tests.exact.fits import Moments, fit_access, fit_mfsir, fit_smfs, labels_of


def rows_of(n, d, *, sparse):
    rng = np.random.default_rng(0)
    return sp.random_array((n, d), density=0.02, rng=rng, format="csr") if sparse else rng.normal(size=(n, d))


def labels(n, q):
    return (np.random.default_rng(1).random((n, q)) < 0.2).astype(np.int8)


def check(fit, X, Y, workspace, sizes):
    """What a fit holds at most is within its workspace."""
    fit(X[:100], Y[:100])  # whatever is imported late is imported now
    tracemalloc.start()
    fit(X, Y)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= sum(workspace_bytes(workspace, sizes).values())


def one_hot(n, d):
    """Rows with one value, so that all pairs tie."""
    return sp.csr_array((np.ones(n), np.arange(n) % d, np.arange(n + 1)), shape=(n, d))


@pytest.mark.parametrize(
    "X",
    [rows_of(1500, 3000, sparse=False), rows_of(1500, 6000, sparse=True), one_hot(1100, 900)],
    ids=["dense", "sparse", "ties"],
)
def test_memory_of_laplacian_scores(X):
    def fit(X, Y):
        laplacian.laplacian_scores(X, moments=moments[len(Y)], n_neighbors=5, lambda_=None)

    moments, sparse = {n: Moments(X[:n]) for n in (100, X.shape[0])}, sp.issparse(X)
    sizes = {"n": X.shape[0], "d": X.shape[1], "k": 6, "v": X.nnz if sparse else X.size}
    check(fit, X, np.empty((X.shape[0], 0)), laplacian.exact_workspace(sparse=sparse), sizes)


FORMS = {
    "mfsir": (mfsir, fit_mfsir, 5, {"graph": True}),
    "smfs": (smfs, fit_smfs, 15, {}),
    "access-mfs": (access_mfs, fit_access, 6, {"graph": True}),
}


@pytest.mark.parametrize("name", FORMS)
@pytest.mark.parametrize(
    ("n", "d", "q", "gram_cap", "sparse"),
    [
        (2500, 40, 30, 0, False),
        (200, 600, 20, 4096, False),
        (600, 3000, 10, 0, True),
        (800, 500, 10, 4096, True),
        (1500, 40, 200, 4096, False),
    ],
)
def test_memory_of_exact_forms(name, n, d, q, gram_cap, sparse):
    module, fit, k, graph = FORMS[name]
    X, Y = rows_of(n, d, sparse=sparse), labels(n, q)
    if name != "mfsir":
        Y[np.random.default_rng(0).random(Y.shape) < 0.3] = -1
    parameters = {"gram_cap": gram_cap, "max_iter": 2} | ({"n_trees": 25} if name == "smfs" else {})
    sizes = {"n": n, "d": d, "q": q, "l": q // 2 + 1, "k": k, "t": 25, "s": 256, "m": max(min(gram_cap, 2048), 1)}
    sizes |= {"v": X.nnz if sparse else n * d, "y": labels_of(Y).nnz, "c": columns_at_once(q)}
    sizes["strips"] = numbers(laplacian_gram_bytes(n, d, X.nnz if sparse else None))
    workspace = module.exact_workspace(sparse=sparse, gram=d <= gram_cap, **graph)
    check(lambda X, Y: fit(X, Y, **parameters), X, Y, workspace, sizes)


@pytest.mark.parametrize("name", ["glfs", "mifs", "mlmlfs", "sfs-bll"])
@pytest.mark.parametrize(("n", "d", "q", "sparse"), [(2500, 40, 30, False), (600, 300, 10, True)])
def test_memory_of_published_forms(name, n, d, q, sparse):
    X, Y = rows_of(n, d, sparse=sparse), labels_of(labels(n, q))
    method, profile = get_method(name)(variant="published", max_iter=2), as_rows(X, Y).profile
    found = {rows: Moments(X[:rows]) for rows in (100, n)}
    moments = {rows: FeatureMoments(rows, each.mean, each.m2) for rows, each in found.items()}
    workspace, sizes = method._exact_workspace(profile)
    sizes = sizes_in_memory(profile) | sizes
    check(lambda X, Y: method._fit_exactly(X, Y, moments[Y.shape[0]]), X, Y, workspace, sizes)
