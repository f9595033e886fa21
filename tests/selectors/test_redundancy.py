"""Methods that weigh features against one another: plain twins, published programs, candidates, landmarks, plans."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse as sp

import mlfs_dask
from mlfs_dask import AMI, D2F, GRRO, JMI, MDMR, MICO, MLACO, MRMR, PMU, QPMLFS, SCLS, SPFS, open_dataset
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine import cache as caching
from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources, driver_bytes
from mlfs_dask.selectors import global_information
from mlfs_dask.selectors import greedy as greedy_module
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask.typing import workspace_bytes
from tests.conftest import published
from tests.problems import labelled_problem, real_data
from tests.reference import global_information as twin
from tests.reference import greedy
from tests.reference import spfs as spfs_twin
from tests.storage.memory_reader import make_reader

# ---------------------------------------------------------------- greedy, by pairs


GREEDY = {
    "pmu": (PMU(6), greedy.pmu),
    "d2f": (D2F(6), greedy.d2f),
    "mdmr": (MDMR(6), greedy.mdmr),
    "scls": (SCLS(6), greedy.scls),
    "ami": (AMI(6), greedy.ami),
    "mrmr": (MRMR(6), greedy.mid),
    "mrmr-miq": (MRMR(6, criterion="miq"), greedy.miq),
    "jmi": (JMI(6), greedy.jmi),
}


def selector(name, **parameters):
    return type(GREEDY[name][0])(**{**GREEDY[name][0].get_params(), **parameters})


def greedy_problem(seed=0, n=150, d=9, q=4):
    """Features that repeat one another with errors, and tell of one label or, two together, of another."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.2, 0.6, q)).astype(np.int8)
    X = rng.normal(size=(n, d))
    X[:, 0] += 2 * Y[:, 0]
    X[:, 1] = X[:, 0] + 0.2 * rng.normal(size=n)
    X[:, 2] = rng.random(n) < 0.4
    X[:, 3] = X[:, 2].astype(int) ^ Y[:, 1]
    X[:, 4] = 1.0
    X[:, 5] = rng.random(n) < 0.2 + 0.5 * Y[:, 2]
    return X, Y


@pytest.fixture(params=[1, 64])
def candidates(request, monkeypatch):
    """Candidates of a reading: the one that is needed, and all features."""
    monkeypatch.setattr(greedy_module, "MIN_CANDIDATES", request.param)
    if request.param == 1:
        monkeypatch.setattr(greedy_module.GreedySelector, "_n_candidates", lambda *_: 1)
    return request.param


@pytest.mark.parametrize("name", GREEDY)
def test_greedy_methods_equal_the_plain_twin(name, candidates):
    X, Y = greedy_problem()
    found = selector(name, bins=3).fit(X, Y)
    order, steps = greedy.greedy(X, Y, 6, GREEDY[name][1], bins=3)
    assert found.ranking_[:6].tolist() == order
    assert found.scores_[order] == pytest.approx([step[f] for step, f in zip(steps, order, strict=True)], abs=1e-9)
    rest = [f for f in range(9) if f not in order and f != 4]
    assert found.scores_[rest] == pytest.approx(steps[-1][rest], abs=1e-9)
    assert found.ranking_[6:].tolist() == [*sorted(rest, key=lambda f: (-found.scores_[f], f)), 4]  # which is constant
    assert found.report_.passes == 1 + (5 if candidates == 1 else 1)
    assert found.report_.passes <= found.report_.plan["passes"]


@pytest.mark.filterwarnings("ignore:codes of equal width")
def test_published_programs_on_emotions():
    X, Y = real_data("emotions")
    expected = published("greedy")
    assert PMU(20, binning="equal-width").fit(X, Y).ranking_[:20].tolist() == expected["pmu"].tolist()
    # The programs of the others depart from their papers, which their twins show: the criteria differ in that alone.
    assert greedy.d2f_program(X, Y, 8) == expected["d2f"].tolist()
    assert greedy.ami_program(X, Y, 20) == expected["ami"].tolist()
    for method, first in ((D2F, expected["d2f"][:2]), (AMI, expected["ami"][:1])):
        assert method(2, binning="equal-width").fit(X, Y).ranking_[: len(first)].tolist() == first.tolist()


def test_two_features_that_tell_of_a_label_together_are_found():
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, (400, 8))
    Y = np.stack([X[:, 2] ^ X[:, 5], X[:, 2] | (rng.random(400) < 0.3)], axis=1)
    for method in (PMU, D2F, MDMR, JMI):
        assert method(2).fit(X, Y).ranking_[:2].tolist() == [2, 5]


def test_fewer_features_are_the_first_of_more():
    X, Y = greedy_problem()
    for name in GREEDY:
        more = selector(name).fit(X, Y)
        assert selector(name, n_features_to_select=3).fit(X, Y).ranking_[:3].tolist() == more.ranking_[:3].tolist()


def test_one_reading_of_candidates_serves_many_steps(monkeypatch):
    rng = np.random.default_rng(0)
    Y = (rng.random((3000, 12)) < 0.1).astype(np.int8)
    X = sp.csr_array((rng.random((3000, 400)) < 0.03 + 0.3 * Y[:, rng.integers(0, 12, 400)]).astype(np.uint8))
    found = D2F(60).fit(X, Y)
    assert found.report_.extra["candidates"] == 64
    assert found.report_.passes <= 60 // 5
    monkeypatch.setattr(greedy_module, "MIN_CANDIDATES", 400)
    whole = D2F(60).fit(X, Y)
    assert whole.report_.passes == 2
    assert whole.scores_.tobytes() == found.scores_.tobytes()


def test_the_cache_has_all_pairs_after_a_method_that_weighs_all_features(tmp_path, monkeypatch):
    monkeypatch.setattr(greedy_module, "MIN_CANDIDATES", 2)
    X, Y = greedy_problem()
    convert_reader(lambda: make_reader(X, Y), tmp_path / "set.zarr", workers=1)
    expected = AMI(3).fit(X, Y)
    with caching.cache():
        dataset = open_dataset(tmp_path / "set.zarr")
        QPMLFS(3).fit(dataset)
        assert D2F(3).fit(dataset).report_.passes > 0  # needs pairs with labels
        found = AMI(3).fit(dataset)
    assert (found.report_.passes, found.report_.plan["passes"]) == (0, 0)
    assert expected.report_.passes > 1
    assert found.scores_.tobytes() == expected.scores_.tobytes()


@pytest.mark.parametrize(
    ("method", "nonzeros", "remote", "candidates"),
    [
        (D2F, 10**6, False, 64),  # what is looked at in vain would take longer than a reading
        (D2F, 10**7, False, 153),  # (3 · 10⁷ + 10⁶) / (2 000 · 101)
        (D2F, 10**9, False, 500),
        (D2F, 10**6, True, 500),
        (AMI, 10**6, False, 500),  # looks at no label
    ],
)
def test_candidates_are_as_many_as_take_the_time_of_a_reading(method, nonzeros, remote, candidates):
    profile = ArrayRows(np.zeros((10, 2)), as_labels(np.zeros((10, 2)))).profile
    texts = replace(profile, n=10**6, d=2000, q=100, sparse=True, nonzeros=nonzeros, remote=remote, partitions=50)
    plan = method(500).plan(texts, Resources(1, 2, 2**36, 2**36))
    assert f"{candidates} candidates are read at a time" in plan.notes


def test_fewer_candidates_are_planned_where_memory_is_short():
    profile = ArrayRows(np.zeros((10, 2)), as_labels(np.zeros((10, 2)))).profile
    wide = replace(
        profile, n=10**6, d=10_000, q=100, sparse=True, nonzeros=10**8, label_nonzeros=3 * 10**6, partitions=50
    )
    two = Resources(2, 1, 2**31, 2**34, client=object())
    plan = D2F(100).plan(wide, two)
    assert plan.peak_worker_bytes <= 0.8 * two.memory_limit
    assert "100 candidates are read at a time" in plan.notes
    assert plan.typical_passes == (3, 2 + 12)  # ranges, relevances, and pairs
    few = D2F(100).plan(wide, replace(two, memory_limit=2**29))
    assert few.peak_worker_bytes <= 0.8 * 2**29
    assert "100 candidates" not in few.notes[-1]
    count = int(few.notes[-1].split()[0])
    # Every chosen feature has been a candidate, and no fifth of k is exceeded.
    assert few.typical_passes == (2 + -(-99 // count), 2 + min(20, 3 * -(-99 // count) + 9))
    with pytest.raises(DoesNotFitError):
        D2F(100).plan(replace(wide, q=10_000), replace(two, memory_limit=2**28))


def test_the_plan_of_pmu_says_what_is_counted():
    X, Y = greedy_problem()
    source = ArrayRows(X, as_labels(Y), block_bytes=2000)
    plan = PMU(5).plan(source, current_resources())
    assert (list(plan.readings), plan.passes) == (["counts", "pairs"], 2)
    assert PMU(5).fit(source).report_.passes == 2
    assert plan.notes[0] == "counts of 4 of 4 labels and of 6 pairs of labels"
    assert not any("candidates" in note for note in AMI(1).plan(source, current_resources()).notes)


# ---------------------------------------------------------------- all pairs, or landmarks

GLOBAL = (GRRO, MICO, QPMLFS)


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


def test_published_scores_of_grro_on_emotions():
    X, Y = real_data("emotions")
    given = published("grro")
    for alpha, beta, scores in list(zip(given["alpha"], given["beta"], given["scores"], strict=True))[:2]:
        found = GRRO(10, alpha=alpha, beta=beta, binning="quantile").fit(X, Y)
        assert found.scores_ == pytest.approx(scores, rel=1e-9, abs=1e-13)


@pytest.mark.parametrize("n_landmarks", [None, 20])
@pytest.mark.parametrize("method", GLOBAL)
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
    for method in GLOBAL:
        found, all_landmarks = method(3).fit(X, Y), method(3, n_landmarks=7).fit(X, Y)
        assert found.scores_.tobytes() == all_landmarks.scores_.tobytes()
        assert found.report_.passes == all_landmarks.report_.passes == 1


@pytest.mark.parametrize("method", GLOBAL)
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
@pytest.mark.parametrize("method", GLOBAL)
def test_the_described_memory_of_the_driver_is_that_of_the_plan(method, n_landmarks):
    X, Y = problem()
    cost = (
        method(3, n_landmarks=n_landmarks).make_question().method_cost(ArrayRows(X, as_labels(Y)), current_resources())
    )
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


@pytest.mark.parametrize("method", GLOBAL)
def test_the_plan_refuses_what_does_not_fit(method):
    _, Y = problem()
    wide = ArrayRows(sp.csr_array((100, 40_000)), as_labels(Y[:1].repeat(100, axis=0)))
    small = Resources(2, 1, 2**29, driver_bytes() + 2**31, client=object())
    with pytest.raises(DoesNotFitError, match=r"one pass on a worker(.|\n)*fewer than 40,000 .*n_landmarks"):
        method(3, n_landmarks=40_000).plan(wide, small)
    with pytest.raises(DoesNotFitError, match=r"in the driver process(.|\n)*fewer than 4,000 .*n_landmarks"):
        method(3, n_landmarks=4000).plan(wide, small)
    plan = method(3, n_landmarks=2000).plan(wide, small)
    assert plan.passes > 2
    assert plan.peak_worker_bytes <= 2**29
    assert plan.peak_driver_bytes <= small.driver_limit


# ---------------------------------------------------------------- SPFS


def spfs_problem(n=90, d=12, q=4, seed=0):
    """Features of which the first go with labels, and some repeat others with noise."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < rng.uniform(0.1, 0.6, q)).astype(np.int8)
    X = rng.normal(size=(n, d))
    X[:, :q] += 1.5 * Y
    X[:, q : 2 * q] = X[:, :q] + 0.3 * rng.normal(size=(n, q))
    return np.where(rng.random((n, d)) < 0.5, X, 0.0), Y


def test_with_a_label_a_row_the_similarity_is_that_of_classes():
    X, _ = spfs_problem()
    classes = np.arange(len(X)) % 3
    Y = (classes[:, np.newaxis] == np.arange(3)).astype(np.int8)
    shared = classes[:, np.newaxis] == classes
    assert spfs_twin.similarity(Y) == pytest.approx(shared / shared.sum(axis=1))
    assert SPFS(3).fit(X, Y).ranking_.tolist() == spfs_twin.spfs(X, Y)[0]


def test_copies_come_late_and_constant_features_last():
    X, Y = spfs_problem()
    X[:, 11] = X[:, 0]
    X[:, 5] = 3.0
    found = SPFS(3).fit(X, Y)
    alone = SPFS(3).fit(np.delete(X, 11, axis=1), Y)
    assert found.ranking_[0] == alone.ranking_[0]
    assert found.ranking_.tolist().index(11) > found.ranking_.tolist().index(0) + 3
    assert found.ranking_[-1] == 5
    assert found.report_.extra["constant_features"] == 1


def test_first_places_do_not_depend_on_the_number_of_candidates():
    X, Y = spfs_problem(d=30)
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
    X, Y = spfs_problem()
    source = ArrayRows(sp.csr_array(X), as_labels(Y))
    for n_candidates, readings in ((12, ["products"]), (5, ["products", "candidates"])):
        selector = SPFS(3, n_candidates=n_candidates)
        plan = selector.plan(source, current_resources())
        assert list(plan.readings) == readings
        # X'X of the candidates is what the second pass gives, and its squares are beside it.
        gram = 8 * n_candidates**2
        assert (plan.arrays["2 d q"], plan.arrays["m m"]) == (8 * 2 * 4 * 12, gram)
        assert plan.arrays.get("later") == (gram if "candidates" in readings else None)
        assert selector.fit(source).report_.passes == plan.passes == len(readings)


# ---------------------------------------------------------------- MLACO


@pytest.mark.parametrize(("key", "parameters"), [("raw", {}), ("first_version", {"n_ants": 50, "tour_length": 1 / 6})])
def test_the_published_form_has_the_pheromone_of_the_authors_on_emotions(key, parameters):
    X, Y = real_data("emotions")
    found = MLACO(14, variant="published", random_state=1, **parameters).fit(X, Y)
    expected = published("mlaco")[key]
    assert found.scores_ == pytest.approx(expected, abs=1e-11)
    assert found.ranking_.tolist() == np.argsort(-expected, kind="stable").tolist()


def test_linear_functions_of_a_feature_are_one_feature_to_the_ants():
    X, Y = labelled_problem(0)
    X = X[:, :8]  # the last is constant
    alone = MLACO(3).fit(X, Y).scores_
    assert len(set(alone)) == 8
    found = MLACO(3).fit(np.column_stack([2.5 - X[:, 1], X, X[:, 3] * 3 + 1, X[:, 0]]), Y).scores_
    assert found[[0, *range(1, 9), 9, 10]].tolist() == [alone[1], *alone, alone[3], alone[0]]


def test_a_correlation_of_next_to_nothing_attracts_no_more_than_one_of_nothing():
    X, Y = labelled_problem(1)
    X = X[:, :8]
    X = X - X.mean(axis=0)
    X[:, 5] -= X[:, 6] * (X[:, 6] @ X[:, 5]) / (X[:, 6] @ X[:, 6])
    near = X.copy()
    near[:, 5] += 1e-9 * X[:, 6]
    order = np.argsort(-np.abs(np.corrcoef(X, Y, rowvar=False)[:8, 8:]).max(axis=1))
    X, near = X[:, order], near[:, order]  # to both forms alike, but for the floor
    (exact, of_near), (expected, other) = (
        [MLACO(1, variant=variant).fit(rows, Y).scores_ for rows in (X, near)] for variant in ("corrected", "published")
    )
    assert exact == pytest.approx(expected, abs=1e-9)
    assert of_near == pytest.approx(expected, abs=1e-6)
    assert other != pytest.approx(expected, abs=1e-3)
