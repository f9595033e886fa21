"""What fits say they hold covers what they hold."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.rows.sources import as_rows
from mlfs_dask.selectors import get_method
from mlfs_dask.selectors.in_memory import sizes_in_memory
from mlfs_dask.statistics.moments import FeatureMoments
from mlfs_dask.typing import workspace_bytes
from tests.exact.fits import Moments, labels_of


def rows_of(n, d, *, sparse):
    rng = np.random.default_rng(0)
    return sp.random_array((n, d), density=0.02, rng=rng, format="csr") if sparse else rng.normal(size=(n, d))


def labels(n, q):
    return (np.random.default_rng(1).random((n, q)) < 0.2).astype(np.int8)


def check(method, X, Y):
    """What a form holds at most is within its workspace."""
    profile, found = as_rows(X, Y).profile, {n: Moments(X[:n]) for n in (100, X.shape[0])}
    moments = {n: FeatureMoments(n, each.mean, each.m2) for n, each in found.items()}
    workspace, sizes = method._exact_workspace(profile)
    method._fit_exactly(X[:100], Y[:100], moments[100])  # whatever is imported late is imported now
    tracemalloc.start()
    method._fit_exactly(X, Y, moments[X.shape[0]])
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= sum(workspace_bytes(workspace, sizes_in_memory(profile) | sizes).values())


def one_hot(n, d):
    """Rows with one value, so that all pairs tie."""
    return sp.csr_array((np.ones(n), np.arange(n) % d, np.arange(n + 1)), shape=(n, d))


@pytest.mark.parametrize(
    "X",
    [rows_of(1500, 3000, sparse=False), rows_of(1500, 6000, sparse=True), one_hot(1100, 900)],
    ids=["dense", "sparse", "ties"],
)
def test_memory_of_laplacian_scores(X):
    check(get_method("laplacian")(), X, labels_of(labels(X.shape[0], 2)))


@pytest.mark.parametrize("name", ["mfsir", "smfs", "access-mfs"])
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
    Y = labels(n, q)
    if name != "mfsir":
        Y[np.random.default_rng(0).random(Y.shape) < 0.3] = -1
    parameters = {"gram_cap": gram_cap, "max_iter": 2} | ({"n_trees": 25} if name == "smfs" else {})
    check(get_method(name)(**parameters), rows_of(n, d, sparse=sparse), labels_of(Y))


@pytest.mark.parametrize("name", ["glfs", "mifs", "mlmlfs", "sfs-bll"])
@pytest.mark.parametrize(("n", "d", "q", "sparse"), [(2500, 40, 30, False), (600, 300, 10, True)])
def test_memory_of_published_forms(name, n, d, q, sparse):
    method = get_method(name)(variant="published", max_iter=2)
    check(method, rows_of(n, d, sparse=sparse), labels_of(labels(n, q)))
