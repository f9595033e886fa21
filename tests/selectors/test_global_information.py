"""GRRO, MICO and QPMLFS: against plain twins and the authors' program; candidates, chunks, plans and refusals."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.primitives.row_sources import ArrayRows
from mlfs_dask.runtime import Resources, current_resources, driver_bytes
from mlfs_dask.selectors.global_information import GRRO, MICO, QPMLFS
from mlfs_dask.storage.readers.base import LabelSpec
from tests.conftest import published
from tests.reference import global_information as twin

METHODS = (GRRO, MICO, QPMLFS)


def problem(n=80, d=7, q=3, seed=0):
    """Features of which the first go with labels, and the next repeat them with noise."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < [0.3, 0.5, 0.4, 0.2][:q]).astype(np.int8)
    X = rng.normal(size=(n, d))
    X[:, :q] += 2 * Y
    X[:, q : 2 * q] = X[:, :q] + 0.5 * rng.normal(size=(n, q))
    return np.where(rng.random((n, d)) < 0.7, X, 0.0), Y


@pytest.mark.parametrize("bins", [2, 4])
def test_grro_equals_the_plain_twin(bins):
    X, Y = problem()
    for alpha, beta in ((100.0, 0.1), (0.5, 3.0)):
        found = GRRO(3, alpha=alpha, beta=beta, bins=bins).fit(X, Y)
        assert found.scores_ == pytest.approx(twin.grro(X, Y, alpha=alpha, beta=beta, bins=bins), rel=1e-9)


def test_grro_cuts_0_1_features_by_frequency_as_its_program_does(tmp_path):
    X, Y = problem(n=9)
    X[:, 0] = [1, 1, 1, 0, 1, 1, 0, 0, 1]  # more than half of the rows: the program makes it constant
    X[:, 1] = [1, 0, 1, 0, 1, 1, 0, 0, 0]
    expected = twin.grro(X, Y, codes=twin.equal_frequency(X))
    lines = [",".join([*"abcdefg", "x", "y", "z"])]
    lines += [",".join(map(repr, [*x, *y])) for x, y in zip(X.tolist(), Y.tolist(), strict=True)]
    (tmp_path / "data.csv").write_text("\n".join(lines))
    mlfs_dask.convert(tmp_path / "data.csv", tmp_path / "data.zarr", labels=LabelSpec(count=3))
    dataset = mlfs_dask.open_dataset(tmp_path / "data.zarr")
    assert dataset.rows.features.n_categories.tolist() == [2, 2, 0, 0, 0, 0, 0]  # a store says so, an array does not
    for given in ((X, Y), (sp.csr_array(X), Y), (dataset,)):
        found = GRRO(3, binning="quantile").fit(*given)
        assert found.scores_ == pytest.approx(expected, rel=1e-9, abs=1e-13)
        assert GRRO(3).fit(*given).scores_ == pytest.approx(twin.grro(X, Y), rel=1e-9)


def test_mico_equals_the_plain_twin():
    X, Y = problem()
    R, Q, S = twin.tables(X, Y)
    W = twin.least(lambda W: twin.mico_objective(W, R, Q, S, 1.5, 0.8), R.shape)
    found = MICO(3, alpha=1.5, beta=0.8, tol=1e-13).fit(X, Y)
    weights = W.sum(axis=1)
    assert np.maximum(found.scores_, 0) == pytest.approx(weights, abs=1e-4)
    assert found.report_.objective[-1] == pytest.approx(twin.mico_objective(W, R, Q, S, 1.5, 0.8), rel=1e-8)
    assert found.report_.converged


@pytest.mark.parametrize("alpha", [None, 0.5])
def test_qpmlfs_equals_the_plain_twin(alpha):
    X, Y = problem()
    R, Q, _ = twin.tables(X, Y)
    r = R.sum(axis=1)
    share = Q.mean() / (Q.mean() + r.mean()) if alpha is None else alpha
    x = twin.least(lambda W: twin.qpmlfs_objective(W[:, 0], r, Q, share), (7, 1))[:, 0]
    found = QPMLFS(3, alpha=alpha, tol=1e-13).fit(X, Y)
    assert found.report_.extra["alpha"] == pytest.approx(share)
    assert np.maximum(found.scores_, 0) == pytest.approx(x, abs=1e-5)
    assert found.report_.objective[-1] == pytest.approx(twin.qpmlfs_objective(x, r, Q, share), rel=1e-9)


def test_features_without_weight_are_ranked_by_what_it_would_cost():
    X, Y = problem()
    R, _, _ = twin.tables(X, Y)
    found = QPMLFS(1, alpha=1.0).fit(X, Y)  # relevance alone: one feature has all the weight
    relevance = R.sum(axis=1)
    assert found.ranking_.tolist() == np.argsort(-relevance, kind="stable").tolist()
    assert found.scores_[found.ranking_[1:]] == pytest.approx(np.sort(relevance)[-2::-1] - relevance.max())
    assert found.report_.extra["weighted_features"] == 1


def test_published_scores_of_grro_on_emotions(data_set):
    lines = (data_set("emotions") / "emotions.arff").read_text().splitlines()
    values = np.array([line.split(",") for line in lines if line[:1].isdigit() or line[:1] == "-"], float)
    given = published("grro")
    for alpha, beta, scores in list(zip(given["alpha"], given["beta"], given["scores"], strict=True))[:2]:
        found = GRRO(10, alpha=alpha, beta=beta, binning="quantile").fit(values[:, :72], values[:, 72:])
        assert found.scores_ == pytest.approx(scores, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("n_candidates", [4096, 4])
@pytest.mark.parametrize("method", METHODS)
def test_neither_chunks_nor_containers_change_a_bit(method, n_candidates):
    X, Y = problem()
    expected = method(3, n_candidates=n_candidates).fit(X, Y)
    lazy, lazy_Y = da.from_array(X, chunks=((30, 1, 49), (3, 4))), da.from_array(Y, chunks=((30, 1, 49), -1))
    containers = (sp.csr_array(X), lazy, lazy.map_blocks(sp.csr_array), X[::-1])
    for container, labels in zip(containers, (Y, lazy_Y, lazy_Y, Y[::-1]), strict=True):
        found = method(3, n_candidates=n_candidates).fit(container, labels)
        assert found.scores_.tobytes() == expected.scores_.tobytes()


@pytest.mark.parametrize("method", METHODS)
def test_copies_of_a_feature_are_ranked_by_their_index(method):
    X, Y = problem(n=200, d=12, q=3)
    X = np.hstack([X, X[:, ::-1], X])
    found = method(3).fit(X, Y)
    assert found.scores_[:12].tolist() == found.scores_[12:24][::-1].tolist() == found.scores_[24:].tolist()
    places = np.argsort(found.ranking_)
    assert (places[:12] < places[12:24][::-1]).all()
    assert (places[12:24][::-1] < places[24:]).all()


@pytest.mark.parametrize("method", METHODS)
def test_above_the_limit_the_best_features_alone_are_candidates(method):
    X, Y = problem(d=10)
    X = X[:, ::-1]  # the last ones go with labels
    relevance = twin.tables(X, Y)[0].sum(axis=1)
    best = np.sort(np.argsort(-relevance, kind="stable")[:6])
    found = method(3, n_candidates=6).fit(X, Y)
    alone = method(3).fit(X[:, best], Y)
    assert found.scores_[best].tobytes() == alone.scores_.tobytes()
    others = np.setdiff1d(np.arange(10), best)
    assert found.ranking_[6:].tolist() == others[np.argsort(-relevance[others], kind="stable")].tolist()
    assert [scale["features"] for scale in found.report_.extra["score_scales"]] == [6, 4]
    assert found.report_.passes == 2
    assert alone.report_.passes == 1


@pytest.mark.parametrize("method", METHODS)
def test_the_described_memory_of_the_driver_is_that_of_the_plan(method):
    X, Y = problem()
    arrays = method(3).cost(ArrayRows(X, as_labels(Y)), current_resources()).arrays
    for letters, described in (("m m", "m²"), ("q d", "q d")):
        held = sum(int(a.shape.split()[0]) if a.shape != letters else 1 for a in arrays if a.shape.endswith(letters))
        assert f"{held} {described}" in method.memory.split("driver: ")[1]


@pytest.mark.parametrize("method", METHODS)
def test_the_plan_has_the_readings_and_what_candidates_take(method):
    X, Y = problem()
    source = ArrayRows(X, as_labels(Y))
    for n_candidates, readings in ((7, ["information"]), (4, ["information", "candidates"])):
        plan = method(3, n_candidates=n_candidates).plan(source, current_resources())
        assert list(plan.readings) == readings
        assert plan.arrays["information of candidates with one another"] == 16 * n_candidates**2
    wide = ArrayRows(sp.csr_array((100, 40_000)), as_labels(Y[:1].repeat(100, axis=0)))
    small = Resources(2, 1, 2**29, driver_bytes() + 2**30, client=object())
    with pytest.raises(DoesNotFitError, match=r"one pass on a worker(.|\n)*fewer than 40,000 .*n_candidates"):
        method(3, n_candidates=40_000).plan(wide, small)
    with pytest.raises(DoesNotFitError, match=r"in the driver process(.|\n)*fewer than 2,000 .*n_candidates"):
        method(3, n_candidates=2000).plan(wide, replace(small, driver_limit=2**26))
    assert method(3, n_candidates=2000).plan(wide, small).passes == 2


def test_refusals_and_warnings():
    X, Y = problem()
    with pytest.raises(UsageError, match=r"alpha must be a number from 0 to 1; got 1\.5"):
        QPMLFS(3, alpha=1.5).fit(X, Y)
    with pytest.warns(UserWarning, match=r"mico did not converge in 2 iterations \(gap"):
        MICO(3, max_iter=2).fit(X, Y)
    with pytest.warns(UserWarning, match="grro can tell no feature from another: the only label is the same"):
        GRRO(3).fit(X, np.zeros((len(X), 1), np.int8))
    Y[3, 1] = -1
    with pytest.raises(DataError, match="no support for missing labels"):
        GRRO(3).fit(X, Y)
