"""Temporaries of every statistic that fits feed are within what plans count for them, on blocks of several kinds."""

from __future__ import annotations

import tracemalloc
import warnings
from collections.abc import Iterator

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.engine import tasks
from mlfs_dask.engine.statistic import SharedState, Statistic
from mlfs_dask.rows.covariates import ArrayColumn
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.rows.view import RowView
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from mlfs_dask.statistics.clusters import ClusterTotals
from mlfs_dask.statistics.counts import Ranges
from mlfs_dask.statistics.missing import MeansOfPresent
from mlfs_dask.statistics.rows_in_memory import RowsInMemory
from mlfs_dask.statistics.sample import RowSample
from mlfs_dask.statistics.targets import TargetSums
from tests.selectors.test_matrix import LOOPS, settings_of

#: Objects of Python, and buffers of NumPy and SciPy that do not grow with the block.
SMALL = 2**19

#: Statistics whose state grows as rows come: plans count the state.
GROWING = (RowSample, RowsInMemory)


def rows_of(n, d, stored, q, *, labelled=0.2, dense=False, unknown=False):
    rng = np.random.default_rng(0)
    Y = (rng.random((n, q)) < labelled).astype(np.int8)
    if unknown:
        Y[rng.random(Y.shape) < 0.2] = -1
        Y[rng.random(n) < 0.2] = -1
    if dense:
        return ArrayRows(rng.random((n, d), dtype=np.float32), as_labels(Y))
    columns = np.sort(rng.integers(0, d, (n, stored), dtype=np.int32), axis=1).ravel()
    ends = stored * np.arange(n + 1, dtype=np.int32)
    X = sp.csr_array((rng.random(n * stored, dtype=np.float32), columns, ends), shape=(n, d))
    X.sum_duplicates()
    return ArrayRows(X, as_labels(Y))


KINDS = {
    "dense": rows_of(5000, 60, 60, 12, dense=True),
    "dense, unknown labels": rows_of(5000, 60, 60, 12, dense=True, unknown=True),
    "long": rows_of(10_000, 300, 20, 20, unknown=True),
    "wide": rows_of(1000, 20_000, 40, 40),
    "many labels": rows_of(4000, 300, 20, 200),
}
ANCHORS = {"graph": "anchors", "n_anchors": 12}

#: Methods whose fits feed each statistic, with parameters.
CASES = [
    ("access-mfs", ANCHORS | {"gram_cap": 0}),
    ("br-cc", {"pairs": "all"}),
    ("br-cc", {"pairs": "all", "covariates": ["feature:0", "feature:1"]}),
    ("br-cc", {"pairs": "all", "clusters": 7}),
    ("br-cc", {"pairs": "all", "clusters": 10**6, "covariates": ["feature:0"]}),  # each row its own cluster
    ("br-cc", {"pairs": "all", "pair_test": "logistic", "covariates": ["feature:0", "feature:1"]}),
    ("chi2", {"pairs": "all"}),
    ("cmfs", {}),
    ("ela-chi", {}),
    ("elc", {"missing": "mean"}),
    ("fimf", {}),
    ("fisher", {}),
    ("glfs", {}),
    ("gmm", {"resamples": 3}),
    ("laplacian", ANCHORS),
    ("leda", {}),
    ("mamfs", {}),
    ("mfsir", ANCHORS | {"gram_cap": 0}),
    ("mico", {"n_landmarks": 4}),
    ("rfs", {}),
    ("sfs-bll", {}),
    ("smfs", ANCHORS),
    ("smfs", ANCHORS | {"gram_cap": 0}),
    ("smile", {}),
    ("smlfs", {}),
    ("spfs", {"n_candidates": 5}),
]

#: Statistics that no fit of rows in memory feeds, and where they are measured.
ELSEWHERE = {
    "ClusterTotals": "below",
    "ContingencyCounts": "tests/statistics/test_counts.py",
    "MeansOfPresent": "below",
    "Ranges": "below",
    "TargetSums": "below",
    "WriteLabels": "tests/statistics/test_write_rows.py",
}

#: Methods of which no array has the features squared, which would take seconds.
WIDE = ("br-cc", "chi2", "ela-chi", "elc", "fimf", "fisher", "label-entropy", "mico", "spfs")


def subclasses(of: type) -> Iterator[type]:
    for each in of.__subclasses__():
        yield each
        yield from subclasses(each)


@pytest.fixture
def measured(monkeypatch):
    """For each statistic that a fit feeds: what it and those that it is made of allocate, and what is planned."""
    sources, inside, found = [], [], []
    report = tasks._report_partitions
    monkeypatch.setattr(tasks, "_report_partitions", lambda source, *a: sources.append(source) or report(source, *a))

    def measuring(add):
        def measure(self, state, block):
            if inside or not sources or isinstance(self, (SharedState, *GROWING)):
                return add(self, state, block)
            inside.append(self)
            tracemalloc.start()
            add(self, state, block)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            inside.clear()
            kinds = [self]
            while isinstance(kinds[-1], Statistic) and hasattr(kinds[-1], "statistic"):
                kinds.append(kinds[-1].statistic)
            if not isinstance(kinds[-1], GROWING):
                found.append(({type(each) for each in kinds}, peak, self.scratch_bytes(sources[-1].profile)))
            return None

        return measure

    for each in subclasses(Statistic):
        if "add" in vars(each) and not getattr(vars(each)["add"], "__isabstractmethod__", False):
            monkeypatch.setattr(each, "add", measuring(vars(each)["add"]))
    return found


seen: set[type] = set()


@pytest.mark.parametrize(("name", "parameters"), CASES, ids=[" ".join([n, *map(str, p)]) for n, p in CASES])
def test_temporaries_are_within_the_plan(name, parameters, measured):
    for kind, source in KINDS.items():
        if source.profile.d > 100 and name not in WIDE and (source.profile.d > 300 or name == "mamfs"):
            continue
        few = {"max_iter": 1} if name in LOOPS else {}
        own = {option: value for option, value in parameters.items() if option != "clusters"}
        columns = (
            {"clusters": np.arange(source.profile.n) % parameters["clusters"]} if len(own) < len(parameters) else {}
        )
        estimator = get_estimator(name)(**{"n_features_to_select": 4} | settings_of(name) | few | own)
        with warnings.catch_warnings(), runtime.process_limits(threads=1):
            warnings.simplefilter("ignore", UserWarning)
            for _ in range(2):  # the first one loads what is loaded late
                measured.clear()
                estimator.fit(source, **columns)
        assert measured
        for classes, peak, planned in measured:
            assert peak <= planned + SMALL, (kind, [each.__name__ for each in classes])
            seen.update(classes)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "make",
    [
        lambda p: MeansOfPresent(p.d),
        lambda p: Ranges(p.d, p.q),
        lambda p: ClusterTotals(7, p.d, p.q),
        lambda p: TargetSums(p.q),
    ],
    ids=["means", "ranges", "clusters", "targets"],
)
def test_temporaries_of_readings_before_the_first(make, kind):
    clusters = ArrayColumn("c", np.arange(KINDS[kind].profile.n) % 7, [f"c{i}" for i in range(7)])
    source = RowView(KINDS[kind], clusters=clusters)
    statistic = make(source.profile)
    (block,) = source.stream(0, source.profile.partitions)
    if isinstance(statistic, TargetSums):
        block = block._replace(Y=block.Y.toarray().astype(float))
    state = statistic.zero()
    for _ in range(2):
        tracemalloc.start()
        statistic.add(state, block)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
    assert peak <= statistic.scratch_bytes(source.profile) + SMALL


def test_no_statistic_goes_unmeasured():
    for name in METHODS:
        get_estimator(name)
    own = {
        each
        for each in subclasses(Statistic)
        if "scratch_bytes" in vars(each) and each.__module__.startswith("mlfs_dask.")
    }
    assert {each.__name__ for each in own - seen} <= {"SharedState", "RowSample", "RowsInMemory", *ELSEWHERE}
