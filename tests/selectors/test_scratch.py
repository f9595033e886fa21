"""Temporaries of the statistics that fits feed are within what plans count for them, on blocks of several kinds."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine.statistic import Statistic
from mlfs_dask.rows.covariates import Covariates, as_column
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.rows.view import RowView
from mlfs_dask.rows.weights import weighted_rows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors.costs import Reading
from mlfs_dask.selectors.pairs import PairQuestion, pair_statistics
from mlfs_dask.statistics.sample import RowSample

#: Objects of Python, and buffers of NumPy and SciPy that do not grow with the block.
SMALL = 2**19


def rows_of(n, d, stored, q, *, labelled=0.1, dense=False):
    rng = np.random.default_rng(0)
    Y = as_labels((rng.random((n, q)) < labelled).astype(np.int8))
    if dense:
        return ArrayRows(rng.random((n, d), dtype=np.float32), Y)
    columns = np.sort(rng.integers(0, d, (n, stored), dtype=np.int32), axis=1).ravel()
    X = sp.csr_array((rng.random(n * stored, dtype=np.float32), columns, stored * np.arange(n + 1)), shape=(n, d))
    X.sum_duplicates()
    return ArrayRows(X, Y)


KINDS = {
    "wide": lambda: rows_of(2000, 60_000, 40, 80),
    "long": lambda: rows_of(20_000, 1500, 20, 20, labelled=0.3),
    "dense": lambda: rows_of(6000, 60, 60, 20, dense=True),
    "many labels": lambda: rows_of(4000, 300, 20, 200),
}


@pytest.fixture(scope="module")
def kinds():
    return {name: make() for name, make in KINDS.items()}


@pytest.mark.parametrize("weighted", [False, True], ids=["", "weighted"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", ["chi2", "ela-chi", "fimf", "label-entropy", "br-cc", "mfs-f"])
def test_temporaries_of_filters_are_within_the_plan(method, kind, weighted, kinds):
    source = kinds[kind]
    n = source.profile.n
    source = weighted_rows(source, np.linspace(0.5, 1.5, n) if weighted else None)
    cost = get_estimator(method)(10).make_method().cost(source, Resources(1, 1, 2**32, 2**32))
    block = next(iter(source.stream(0, source.profile.partitions)))
    statistics = [each for step in cost.steps if isinstance(step, Reading) for each in step.statistics]
    # Rows that are drawn are its state, which grows.
    statistics = [each for each in statistics if not isinstance(each, RowSample)]
    assert statistics
    for statistic in statistics:
        assert isinstance(statistic, Statistic)
        state = statistic.zero()
        statistic.add(state, block)  # loads what is loaded late
        tracemalloc.start()
        statistic.add(state, block)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert peak <= statistic.scratch_bytes(source.profile) + SMALL, type(statistic)


@pytest.mark.parametrize("kind", ["dense", "many labels"])
def test_temporaries_of_labels_known_of_some_rows_are_within_the_plan(kind, kinds):
    rows = kinds[kind]
    (block,), rng = list(rows.stream(0, rows.profile.partitions)), np.random.default_rng(0)
    n, Y = rows.profile.n, block.Y.toarray()
    Y[rng.random(Y.shape) < 0.4] = -1
    covariates = Covariates(tuple(as_column(f"c{i}", rng.normal(size=n), n) for i in range(5)))
    source = RowView(ArrayRows(block.X, as_labels(Y)), covariates=covariates)
    (block,) = source.stream(0, source.profile.partitions)
    for statistic in pair_statistics(source, PairQuestion("all", 0, "partial", 0.1)):
        state = statistic.zero()
        statistic.add(state, block)
        for work, bound in (
            (lambda: statistic.add(state, block), statistic.scratch_bytes(source.profile)),  # noqa: B023
            (lambda: statistic.finalize(state), statistic.finishing_bytes(source.profile) + statistic.result_bytes),  # noqa: B023
        ):
            tracemalloc.start()
            work()
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert peak <= bound + SMALL, type(statistic)
