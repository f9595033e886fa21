"""SPFS: against its plain twin, chunks and containers, and what it does above the limit of candidates."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask import SPFS
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import current_resources
from tests.reference import spfs as twin


def problem(n=90, d=12, q=4, seed=0):
    """Features of which the first go with labels, and some repeat others with noise."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.1, 0.6, q)).astype(np.int8)
    X = rng.normal(size=(n, d))
    X[:, :q] += 1.5 * Y
    X[:, q : 2 * q] = X[:, :q] + 0.3 * rng.normal(size=(n, q))
    return np.where(rng.random((n, d)) < 0.5, X, 0.0), Y


def test_with_a_label_a_row_the_similarity_is_that_of_classes():
    X, _ = problem()
    classes = np.arange(len(X)) % 3
    Y = (classes[:, np.newaxis] == np.arange(3)).astype(np.int8)
    shared = classes[:, np.newaxis] == classes
    assert twin.similarity(Y) == pytest.approx(shared / shared.sum(axis=1))
    assert SPFS(3).fit(X, Y).ranking_.tolist() == twin.spfs(X, Y)[0]


def test_copies_come_late_and_constant_features_last():
    X, Y = problem()
    X[:, 11] = X[:, 0]
    X[:, 5] = 3.0
    found = SPFS(3).fit(X, Y)
    alone = SPFS(3).fit(np.delete(X, 11, axis=1), Y)
    assert found.ranking_[0] == alone.ranking_[0]
    assert found.ranking_.tolist().index(11) > found.ranking_.tolist().index(0) + 3
    assert found.ranking_[-1] == 5
    assert found.report_.extra["constant_features"] == 1


def test_first_places_do_not_depend_on_the_number_of_candidates():
    X, Y = problem(d=30)
    X = X[:, ::-1]  # the last ones go with labels
    whole = SPFS(3).fit(X, Y).ranking_
    found = SPFS(3, n_candidates=10).fit(X, Y)
    places = found.report_.extra["exact_places"]
    assert places >= 3
    assert found.ranking_[:places].tolist() == whole[:places].tolist()
    assert sorted(found.ranking_.tolist()) == list(range(30))
    scales = found.report_.extra["score_scales"]
    assert [scale["features"] for scale in scales] == [10, 20]
    assert found.scores_[found.ranking_[:10]].min() > found.scores_[found.ranking_[10:]].max()


def test_the_plan_has_the_readings_and_the_arrays():
    X, Y = problem()
    source = ArrayRows(sp.csr_array(X), as_labels(Y))
    for n_candidates, readings in ((12, ["products"]), (5, ["products", "candidates"])):
        selector = SPFS(3, n_candidates=n_candidates)
        plan = selector.plan(source, current_resources())
        assert list(plan.readings) == readings
        assert (plan.arrays["2 d q"], plan.arrays["2 m m"]) == (8 * 2 * 4 * 12, 8 * 2 * n_candidates**2)
        assert selector.fit(source).report_.passes == plan.passes == len(readings)


def test_labels_that_are_unknown_or_tell_nothing():
    X, Y = problem()
    Y[3, 1] = -1
    with pytest.raises(DataError, match="unknown='refuse' was given, and Y holds 1 unknown"):
        SPFS(3, unknown="refuse").fit(X, Y)
    with pytest.warns(UserWarning, match="spfs cannot rank the features: the only label is the same"):
        SPFS(3).fit(X, np.zeros((len(X), 1), np.int8))
