"""Laplacian score on either graph: against its plain twin with the n × n graph; labels have no part in it."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from scipy import sparse as sp

from mlfs_dask import LaplacianScore, runtime
from mlfs_dask.blocks.anchors import place_anchors
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.sources import ArrayRows
from tests.reference import filters as twins


def problem(n=200, d=7):
    """Rows in four groups; features 0 and 1 tell the groups, 2 in part, 6 is constant."""
    rng = np.random.default_rng(0)
    groups = rng.integers(0, 4, n)
    X = rng.normal(size=(n, d))
    X[:, 0] = 5 * (groups % 2) + 0.1 * X[:, 0] + 40
    X[:, 1] = 5 * (groups // 2) + 0.1 * X[:, 1]
    X[:, 2] += groups
    X[rng.random(n) < 0.5, 3] = 0
    X[:, 6] = 3.0
    return X, np.full((n, 2), -1)


@pytest.mark.parametrize("parameters", [{}, {"n_anchors": 12, "anchor_neighbors": 2, "random_state": 3}])
def test_equals_the_plain_twin_in_any_container_and_chunking(parameters):
    X, Y = problem()
    m, s, seed = ({"n_anchors": 50, "anchor_neighbors": 3, "random_state": 0} | parameters).values()
    std = np.where(X.std(axis=0) > 0, X.std(axis=0), np.inf)
    dense = place_anchors((X - X.mean(axis=0)) / std, m, seed)
    # Rows of sparse data are not centred, and k-means sees fewer of their digits.
    sparse = place_anchors(sp.csr_array(X / std), m, seed) - X.mean(axis=0) / std
    lazy = da.from_array(X, chunks=((80, 1, 119), (4, 3)))
    for rows, centres in (
        ((X, Y), dense),
        ((lazy, Y), dense),
        ((ArrayRows(X, as_labels(Y), block_bytes=1000), None), dense),
        ((sp.csr_array(X), Y), sparse),
        ((lazy.map_blocks(sp.csr_array), Y), sparse),
    ):
        found = LaplacianScore(3, graph="anchors", **parameters).fit(*rows)
        expected = twins.laplacian(X, twins.anchor_graph(X, centres, s))
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-9)
        assert found.scores_[6] == 0
        assert set(found.ranking_[:2].tolist()) == {0, 1}
        assert found.report_.passes == found.report_.plan["passes"] == 2
        assert found.report_.extra["graph"]["anchors"] == len(centres)


def text(n=300, d=40, seed=3):
    """Counts of words, in documents some of which are empty and others equal: many rows tie."""
    rng = np.random.default_rng(seed)
    X = rng.poisson(0.08, (n, d)).astype(float)
    X[:40] = 0
    X[40:60] = X[60]
    return X


@pytest.mark.parametrize("parameters", [{}, {"n_neighbors": 3, "lambda_": 6.0}, {"n_neighbors": 500}])
@pytest.mark.parametrize("data", [lambda: problem(120)[0], lambda: text(120)], ids=["numbers", "text"])
def test_the_exact_graph_equals_the_plain_twin_in_any_container(data, parameters):
    X = data()
    k, width = parameters.get("n_neighbors", 5), parameters.get("lambda_", None)
    S = twins.nearest_graph(X, k, None if width is None else width**2)
    expected = twins.laplacian(X, S)
    lazy = da.from_array(X, chunks=((80, 1, 39), (4, X.shape[1] - 4)))
    unknown = np.full((len(X), 2), -1)
    for rows in (
        (X,),
        (sp.csr_array(X), unknown),
        (lazy, unknown),
        (ArrayRows(X, as_labels(unknown), block_bytes=1000), None),
    ):
        found = LaplacianScore(3, **parameters).fit(*rows)
        assert found.scores_ == pytest.approx(expected, rel=1e-8, abs=1e-8)
        assert found.report_.extra["graph"] == {"kind": "exact"}
        assert found.report_.passes == found.report_.plan["passes"] == 1


@pytest.mark.parametrize("container", [np.asarray, sp.csr_array])
@pytest.mark.parametrize(
    "data", [text, lambda: problem(300)[0], lambda: np.eye(80)], ids=["text", "numbers", "one-hot"]
)
def test_neither_seed_nor_order_of_rows_or_features_matters_to_the_exact_graph(data, container):
    X = data()
    expected = LaplacianScore(3, random_state=0).fit(container(X)).scores_
    rng = np.random.default_rng(5)
    for seed in range(3):
        rows, columns = rng.permutation(len(X)), rng.permutation(X.shape[1])
        found = LaplacianScore(3, random_state=seed).fit(container(X[rows][:, columns]))
        assert found.scores_ == pytest.approx(expected[columns], rel=1e-9, abs=1e-11)
    assert LaplacianScore(3, random_state=9).fit(container(X)).scores_.tolist() == expected.tolist()


def test_auto_takes_the_exact_graph_of_few_rows_and_anchors_of_more(monkeypatch):
    X, Y = problem()
    monkeypatch.setattr("mlfs_dask.selectors.iterative.EXACT_ROWS", 199)
    assert LaplacianScore(3).fit(X, Y).report_.extra["graph"]["kind"] == "anchors"
    assert LaplacianScore(3, graph="exact").fit(X, Y).report_.extra["graph"]["kind"] == "exact"


def test_an_exact_graph_that_does_not_fit_is_refused_with_the_cure():
    profile = ArrayRows(sp.csr_array((20_000, 100_000)), as_labels(np.zeros((20_000, 1)))).profile
    wide = replace(profile, sparse=False, nonzeros=2 * 10**9)
    with (
        runtime.process_limits(memory_limit=2**32),
        pytest.raises(DoesNotFitError, match="exact graph of laplacian") as e,
    ):
        LaplacianScore(3).plan(wide, runtime.current_resources())
    assert "graph='anchors'" in str(e.value)


@pytest.mark.parametrize(
    "container", [np.asarray, sp.csr_array, pd.DataFrame, lambda X: da.from_array(X, chunks=(20, 3)), np.ndarray.tolist]
)
def test_labels_need_not_be_given(container):
    X, Y = problem()
    found = LaplacianScore(3, random_state=0).fit(container(X))
    assert found.scores_ == pytest.approx(LaplacianScore(3, random_state=0).fit(X, Y).scores_, rel=1e-9)
    assert found.report_.q == 0


def test_scores_are_at_most_1_and_do_not_depend_on_units():
    X, Y = problem()
    for graph in ("anchors", "exact"):
        scores = LaplacianScore(3, graph=graph).fit(X, Y).scores_
        assert scores.min() >= (0 if graph == "anchors" else -1)
        assert scores.max() <= 1
        moved = LaplacianScore(3, graph=graph).fit(X * np.logspace(-3, 3, 7) + 1, Y).scores_
        assert moved == pytest.approx(scores, rel=1e-6)
