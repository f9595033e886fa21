"""GRRO, MICO and QPMLFS: against plain twins and the authors' program; landmarks, chunks, plans and refusals."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask import GRRO, MICO, QPMLFS
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources, current_resources, driver_bytes
from mlfs_dask.selectors import global_information
from mlfs_dask.storage.readers.base import LabelSpec
from mlfs_dask.typing import workspace_bytes
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


@pytest.mark.parametrize("n_landmarks", [None, 20])
@pytest.mark.parametrize("method", METHODS)
def test_copies_of_a_feature_are_ranked_by_their_index(method, n_landmarks):
    X, Y = problem(n=200, d=12, q=3)
    X = np.hstack([X, X[:, ::-1], X])
    found = method(3, n_landmarks=n_landmarks).fit(X, Y)
    assert found.scores_[:12].tolist() == found.scores_[12:24][::-1].tolist() == found.scores_[24:].tolist()
    places = np.argsort(found.ranking_)
    assert (places[:12] < places[12:24][::-1]).all()
    assert (places[12:24][::-1] < places[24:]).all()


def landmarks_of(R, count):
    return np.sort(np.argsort(-R.sum(axis=1), kind="stable")[:count])


@pytest.mark.parametrize("bins", [2, 4])
@pytest.mark.parametrize("r", [4, 10])
def test_grro_with_landmarks_equals_the_plain_twin(r, bins):
    X, Y = problem(d=10)
    R, Q, _ = twin.tables(X, Y, bins)
    np.fill_diagonal(Q, 1.0)
    Q = twin.low_rank(Q, landmarks_of(R, r))
    for alpha, beta in ((100.0, 0.1), (0.5, 3.0)):
        found = GRRO(3, alpha=alpha, beta=beta, bins=bins, n_landmarks=r).fit(X[:, ::-1], Y)
        expected = twin.weights_of_grro(R, Q, Y, alpha=alpha, beta=beta)
        assert found.scores_[::-1] == pytest.approx(expected, rel=1e-9)


def test_simplex_methods_with_landmarks_equal_the_plain_twin():
    X, Y = problem(d=10)
    R, Q, S = twin.tables(X, Y)
    r = R.sum(axis=1)
    Q = twin.low_rank(Q, landmarks_of(R, 4))
    found = QPMLFS(3, tol=1e-13, n_landmarks=4).fit(X, Y)
    share = Q.mean() / (Q.mean() + r.mean())
    x = twin.least(lambda W: twin.qpmlfs_objective(W[:, 0], r, Q, share), (10, 1))[:, 0]
    assert found.report_.extra["alpha"] == pytest.approx(share, rel=1e-9)
    assert np.maximum(found.scores_, 0) == pytest.approx(x, abs=1e-5)
    assert found.report_.objective[-1] == pytest.approx(twin.qpmlfs_objective(x, r, Q, share), rel=1e-9)
    found = MICO(3, tol=1e-13, n_landmarks=4).fit(X, Y)
    W = twin.least(lambda W: twin.mico_objective(W, R, Q, S, 1.0, 1.0), R.shape)
    assert np.maximum(found.scores_, 0) == pytest.approx(W.sum(axis=1), abs=1e-4)
    assert found.report_.objective[-1] == pytest.approx(twin.mico_objective(W, R, Q, S, 1.0, 1.0), rel=1e-8)
    assert found.report_.extra["landmarks"] == 4


def test_where_every_feature_is_a_landmark_nothing_is_approximated():
    X, Y = problem()
    _, Q, _ = twin.tables(X, Y)
    assert twin.low_rank(Q, np.arange(7)) == pytest.approx(Q, rel=1e-9)
    for method in METHODS:
        found, all_landmarks = method(3).fit(X, Y), method(3, n_landmarks=7).fit(X, Y)
        assert found.scores_.tobytes() == all_landmarks.scores_.tobytes()
        assert found.report_.passes == all_landmarks.report_.passes == 1


@pytest.mark.parametrize("method", METHODS)
def test_readings_of_landmarks_are_as_many_as_memory_needs_and_change_no_bit(method, monkeypatch):
    X, Y = problem(d=10)
    expected = method(3, n_landmarks=5).fit(X, Y)
    assert expected.report_.passes == expected.report_.plan["passes"] == 2
    monkeypatch.setattr(global_information, "partners_of_a_reading", lambda *_, **__: 2)
    found = method(3, n_landmarks=5).fit(X, Y)
    assert found.report_.passes == found.report_.plan["passes"] == 4
    assert found.scores_.tobytes() == expected.scores_.tobytes()


def test_of_many_features_some_are_landmarks():
    source = ArrayRows(sp.csr_array((20, 4097)), as_labels(problem(n=20)[1]))
    plan = QPMLFS(3).plan(source, current_resources())
    assert list(plan.readings) == ["information", "landmarks"]
    assert plan.arrays["2 d r"] == 8 * 2 * 1024 * 4097
    assert plan.notes[0] == "information of 1,024 x 4,097 features: 1,024 are landmarks"
    source = ArrayRows(sp.csr_array((20, 4096)), as_labels(problem(n=20)[1]))
    assert list(QPMLFS(3).plan(source, current_resources()).readings) == ["information"]


@pytest.mark.parametrize("n_landmarks", [None, 4])
@pytest.mark.parametrize("method", METHODS)
def test_the_described_memory_of_the_driver_is_that_of_the_plan(method, n_landmarks):
    X, Y = problem()
    cost = method(3, n_landmarks=n_landmarks).make_method().cost(ArrayRows(X, as_labels(Y)), current_resources())
    last = [workspace_bytes(step, dict.fromkeys(cost.sizes, 1)) for step in cost.steps if isinstance(step, str)][-2:]
    held = dict.fromkeys(("f f", "d r", "r r", "d q"), 0)
    for terms in last:
        for term, nbytes in terms.items():
            letters = term.lstrip("0123456789. ")
            held[letters] = max(held.get(letters, 0), nbytes / 8)
    formed, low_rank = method.plain.memory.split("driver, ")[1].split("; with")
    if n_landmarks is None:
        quarters = " + d²/4" * (held["f f"] % 1 == 0.25)
        assert f"({held['f f'] // 1:g} d²{quarters} + {held['d q']:g} q d)" in formed
    else:
        assert f"({held['d r']:g} r d + {held['r r']:g} r² + {held['d q']:g} q d)" in low_rank


@pytest.mark.parametrize("method", METHODS)
def test_the_plan_refuses_what_does_not_fit(method):
    _, Y = problem()
    wide = ArrayRows(sp.csr_array((100, 40_000)), as_labels(Y[:1].repeat(100, axis=0)))
    small = Resources(2, 1, 2**29, driver_bytes() + 2**31, client=object())
    with pytest.raises(DoesNotFitError, match=r"one reading on a worker(.|\n)*fewer than 40,000 .*n_landmarks"):
        method(3, n_landmarks=40_000).plan(wide, small)
    with pytest.raises(DoesNotFitError, match=r"in the driver process(.|\n)*fewer than 4,000 .*n_landmarks"):
        method(3, n_landmarks=4000).plan(wide, small)
    plan = method(3, n_landmarks=2000).plan(wide, small)
    assert plan.passes > 2
    assert plan.peak_worker_bytes <= 2**29
    assert plan.peak_driver_bytes <= small.driver_limit
