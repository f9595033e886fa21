"""How many features to keep, and how far ranks can be trusted, from shuffled and resampled rows."""

from __future__ import annotations

from dataclasses import replace

import dask.array as da
import numpy as np
import pytest
from scipy import sparse as sp
from sklearn.base import clone

from mlfs_dask import ELC, ENM, FIMF, GMM, MDDM, FisherScore, LabelEntropy
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError, DoesNotFitError
from mlfs_dask.evaluation.statistics import stability
from mlfs_dask.rows.sources import ArrayRows
from mlfs_dask.runtime import Resources
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors.costs import Readings, require_driver
from mlfs_dask.selectors.one_reading import q_values
from mlfs_dask.selectors.scores import rank_stability
from mlfs_dask.statistics import resampling as replicates
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask.storage.opening import open_dataset
from tests.storage.memory_reader import make_reader

SELECTORS = [
    *(LabelEntropy(), LabelEntropy(n_promising_labels=1.0, bins=3), ENM(), GMM(), ELC(), ELC(variant="screen")),
    *(FIMF(), FisherScore(), MDDM(constraint="subspace")),
]


def problem(seed=0, n=300, d=40, q=4, planted=6, effect=1.2):
    """Rows of `planted` features that depend on one label each; the others are normal, correlated, and some 0/1."""
    rng = np.random.default_rng(seed)
    Y = (rng.random((n, q)) < 0.3).astype(np.int8)
    Y[:, 1] |= Y[:, 0] & (rng.random(n) < 0.5)
    X = rng.normal(size=(n, d)) + 0.5 * rng.normal(size=(n, 1))
    X[:, d // 2 :] = X[:, d // 2 :] > 1
    X[:, :planted] += effect * Y[:, np.arange(planted) % q]
    return X, Y


def test_q_values_by_hand():
    statistic = np.array([9.0, 5.0, 5.0, 1.0])
    null = np.array([[2.0, 0.0, 1.0, 5.0], [3.0, 3.0, 0.5, 0.5]])
    # p-values (1 + how many of 8 are as large) / 9: 1, 2, 2 and 6 of nine; then 4 p / rank, falling from the end.
    assert q_values(statistic, null) == pytest.approx([8 / 27, 8 / 27, 8 / 27, 6 / 9])


@pytest.mark.parametrize("selector", SELECTORS, ids=str)
def test_planted_features_are_counted(selector):
    X, Y = problem(n=1000)
    found = clone(selector).set_params(n_features_to_select="auto", random_state=1).fit(X, Y)
    k = found.report_.k
    assert k == np.count_nonzero(found.q_values_ <= 0.1) == found.support_.sum()
    assert found.report_.params["n_features_to_select"] == "auto"
    if selector.plain.method in ("enm", "elc"):
        assert found.support_[:6].all()
        assert 6 <= k <= 9


@pytest.mark.parametrize("selector", [LabelEntropy(binning="equal-width"), ELC()], ids=str)
def test_auto_keeps_the_discovered_features_although_others_have_better_scores(selector):
    X, Y = problem(n=1000, effect=0.8)
    fitted = clone(selector).set_params(n_features_to_select="auto", random_state=1).fit(X, Y)
    discovered, k = fitted.q_values_ <= 0.1, fitted.report_.k
    assert fitted.scores_[discovered].min() < fitted.scores_[~discovered].max()
    assert fitted.support_.tolist() == discovered.tolist()
    assert sorted(fitted.ranking_[:k]) == np.flatnonzero(discovered).tolist()
    for part in (fitted.ranking_[:k], fitted.ranking_[k:]):
        assert (np.diff(fitted.scores_[part]) <= 0).all()


@pytest.mark.parametrize(
    ("selector", "planted"),
    [(ENM(), 6), (LabelEntropy(n_promising_labels=2), 0), (ELC(variant="screen"), 6)],
    ids=str,
)
def test_the_false_discovery_rate_is_at_most_what_was_asked_for(selector, planted):
    """200 data sets; with all features independent it is the share of data sets in which any is discovered.

    The standard error of a rate of 0.1 is 0.021; with labels that are not shuffled it would be 1.
    """
    false = []
    for seed in range(200):
        X, Y = problem(seed, n=80, planted=planted)
        try:
            fitted = clone(selector).set_params(n_features_to_select="auto", random_state=seed).fit(X, Y)
        except DataError:
            false.append(0.0)
            continue
        discovered = np.flatnonzero(fitted.q_values_ <= 0.1)
        false.append((discovered >= planted).mean())
    assert np.mean(false) <= 0.1 + 2.5 * 0.021


def test_the_false_discovery_rate_holds_with_labels_from_a_pool(monkeypatch):
    monkeypatch.setattr(replicates, "POOL_ROWS", 256)
    monkeypatch.setattr("mlfs_dask.blocks.row_draws.FEWEST_ROWS", 1)
    false = 0
    for seed in range(120):
        try:
            ENM("auto", random_state=seed).fit(*problem(seed, n=1000, planted=0, d=20))
            false += 1
        except DataError:
            continue
    assert false / 120 <= 0.1 + 2.5 * 0.027


def test_a_rate_that_needs_more_shuffles_than_memory_holds_is_refused(monkeypatch):
    X, Y = problem()
    made = []
    begin = replicates.Resampled.__init__

    def counted(self, *arguments):
        made.append(self)
        begin(self, *arguments)

    monkeypatch.setattr(replicates.Resampled, "__init__", counted)
    for fdr in (1e-9, 1e-5):
        with pytest.raises(DoesNotFitError) as refused:
            ELC("auto", fdr=fdr).plan(ArrayRows(X, sp.csr_array(Y)), Resources(1, 1, 2**30, 2**24))
        assert refused.value.projected > refused.value.available
        assert "give a larger fdr" in refused.value.cure
    assert len(made) < 100


def test_no_discovery_is_an_error_with_a_cure():
    X, Y = problem(planted=0)
    with pytest.raises(DataError) as error:
        ENM("auto", fdr=0.001).fit(X, Y)
    assert "no feature is associated with the labels more than by chance at a false discovery rate of 0.001" in str(
        error.value
    )
    assert "raise the rate (fdr)" in str(error.value)


def test_intervals_hold_the_ranks_that_very_many_rows_would_give():
    """240 intervals of features whose effects differ; ranks are whole numbers, so more than nine of ten hold theirs."""
    inside, width, often = [], [], []
    for seed in range(40):
        rng = np.random.default_rng(seed)
        Y = (rng.random((400, 1)) < 0.4).astype(np.int8)
        X = rng.normal(size=(400, 12))
        X[:, :6] += Y * np.linspace(2, 0.5, 6)
        fitted = ENM(6, resamples=60, random_state=seed).fit(X, Y)
        low, high = fitted.rank_intervals_[:6].T
        inside.append((low <= np.arange(1, 7)) & (np.arange(1, 7) <= high))
        width.append(high - low)
        often.append(fitted.selection_frequency_)
    assert np.mean(inside) >= 0.9
    assert np.mean(width, axis=0).round(1).tolist() == pytest.approx([0.6, 1.0, 1.3, 1.3, 1.2, 1.9], abs=0.4)
    assert np.mean(often, axis=0)[:4].min() > 0.95
    assert np.mean(often, axis=0)[6:].max() < 0.2


def test_ranks_by_hand():
    scores = np.array([[3.0, 2.0, 1.0]] * 18 + [[1.0, 2.0, 3.0]] + [[1.0, 2.0, 2.0]])
    intervals, frequency, _, _ = rank_stability(scores, 1)
    # Of 20 resamples the lowest and the highest rank of each feature are left out.
    assert intervals.tolist() == [[1, 3], [2, 2], [2, 3]]
    assert frequency.tolist() == [0.9, 0.05, 0.05]


@pytest.mark.parametrize("selector", [LabelEntropy(n_promising_labels=2), ENM(), ELC(variant="screen")], ids=str)
def test_the_same_for_any_container_cut_and_threads(selector, tmp_path):
    X, Y = problem()
    X = X.astype(np.float32)
    selector = clone(selector).set_params(n_features_to_select="auto", resamples=5, random_state=4)
    expected = clone(selector).fit(X, Y)
    convert_reader(lambda: make_reader(X, Y), tmp_path / "s.zarr", options=Options(partition_bytes=5000))
    dataset = open_dataset(tmp_path / "s.zarr")
    assert dataset.rows.profile.partitions > 3
    exact = selector.plain.method != "elc"
    for arguments in (
        (sp.csr_array(X), Y),
        (da.from_array(X, chunks=(37, 11)), da.from_array(Y, chunks=(50, -1))),
        (ArrayRows(X, as_labels(Y), block_bytes=999),),
        (dataset,),
    ):
        found = clone(selector).fit(*arguments)
        assert found.q_values_.tolist() == expected.q_values_.tolist()
        assert found.rank_intervals_.tolist() == expected.rank_intervals_.tolist() or not exact
        assert np.abs(found.rank_intervals_ - expected.rank_intervals_).max() <= 1
        assert found.report_.k == expected.report_.k


def test_the_labels_are_read_once_and_the_features_once(tmp_path):
    X, Y = problem()
    convert_reader(lambda: make_reader(X.astype(np.float32), Y), tmp_path / "s.zarr")
    dataset = open_dataset(tmp_path / "s.zarr")
    report = ENM("auto", resamples=5).fit(dataset).report_
    assert report.passes == 2
    assert report.bytes_read == report.plan["bytes_read"]
    assert report.bytes_read == dataset.rows.profile.read_bytes + dataset.rows.label_bytes
    assert ENM(3, resamples=5).fit(dataset).report_.bytes_read == dataset.rows.profile.read_bytes


def peak_of_readings(plan):
    return max(reading.peak_worker_bytes for reading in plan.readings.values())


@pytest.mark.parametrize("selector", [ENM("auto", resamples=6), ELC("auto", resamples=6)], ids=str)
def test_what_does_not_fit_is_read_in_parts(selector):
    X, Y = problem(d=400)
    source = ArrayRows(X, as_labels(Y), block_bytes=10_000)
    whole = clone(selector).fit(source)
    wide = Resources(1, 1, 2**33, 2**33)
    loose = selector.plan(source, wide)
    assert len(loose.readings) == 2
    spare = peak_of_readings(loose) - wide.process_bytes
    tight = replace(wide, memory_limit=int((wide.process_bytes + 0.4 * spare) / 0.8))
    plan = require_driver(selector.plan(source, tight), tight, "here")
    assert len(plan.readings) > 3
    assert plan.passes == len(plan.readings)
    assert peak_of_readings(plan) <= 0.8 * tight.memory_limit
    question = selector.make_question()
    readings = Readings(source, tight, plan, question.asked(X.shape[1]))
    outcome = question.method.score(readings)
    assert len(readings.records) == len(plan.readings)
    assert outcome.discovered.tolist() == whole.support_.tolist()
    assert outcome.q_values.tolist() == whole.q_values_.tolist()
    intervals, frequency, _, _ = rank_stability(outcome.resampled_scores, whole.report_.k)
    assert intervals.tolist() == whole.rank_intervals_.tolist()
    assert frequency.tolist() == whole.selection_frequency_.tolist()


def test_a_plan_says_what_replicates_cost():
    X, Y = problem(n=2000)
    source = ArrayRows(X, as_labels(Y))
    here = Resources(1, 1, 2**33, 2**33)
    plans = [ENM(k, resamples=b).plan(source, here) for k, b in ((5, 0), (5, 50), ("auto", 0))]
    assert [plan.passes for plan in plans] == [1, 1, 2]
    assert "for 0 shuffles and 50 resamples of the rows too" in plans[1].notes[0]
    assert "for 10 shuffles and 0 resamples" in plans[2].notes[0]
    assert plans[0].peak_worker_bytes < plans[2].peak_worker_bytes < plans[1].peak_worker_bytes
    assert plans[1].arrays["2 d resamples"] == 2 * 8 * 50 * 40
    assert ENM("auto", fdr=0.03).make_question().asked(40).shuffles == 34


def test_a_geometric_mean_leaves_out_labels_that_a_resample_lacks():
    """A label of three rows is absent from one resample in twenty: it must not make all its scores 0."""
    X, Y = problem(n=200, planted=6)
    Y = np.hstack([Y, np.zeros((200, 8), dtype=np.int8)])
    for label in range(4, 12):
        Y[3 * label : 3 * label + 3, label] = 1
    found = GMM(3, resamples=40, random_state=0).fit(X, Y)
    source = ArrayRows(X, as_labels(Y))
    question, here = GMM(3, resamples=40, random_state=0).make_question(), Resources(1, 1, 2**33, 2**33)
    readings = Readings(source, here, question.plan(source, here), question.asked(source.profile.d))
    scores = question.method.score(readings)
    assert scores.resampled_scores.any(axis=1).all()
    assert found.rank_intervals_[:, 0].max() > 1


@pytest.mark.parametrize("method", ["br-cc", "fisher"])
def test_rank_intervals_of_copies_differ_by_their_order_alone(method):
    for seed in range(10):
        rng = np.random.default_rng(seed)
        X = rng.normal(size=(600, 9))
        X[:, 8] = X[:, 0]
        Y = (X[:, :3] + rng.normal(size=(600, 3)) > 0.6).astype(int)
        intervals = get_estimator(method)(9, resamples=20, random_state=0).fit(X, Y).rank_intervals_
        assert (intervals[8] == intervals[0] + 1).all()


def test_every_two_resamples_are_all_rows():
    X, Y = problem()
    block = next(ArrayRows(X, as_labels(Y)).stream(0, 1))
    resampling = replicates.Resampling(0, 4, seed=3)
    halves = [resampling.replicate(block, i).X for i in range(1, 5)]
    for pair in (halves[:2], halves[2:]):
        assert sorted(map(tuple, np.concatenate(pair))) == sorted(map(tuple, X))
        assert 120 < len(pair[0]) < 180
    assert len(halves[0]) != len(halves[2]) or (halves[0] != halves[2]).any()


def test_stability_is_the_mean_agreement_of_pairs_and_its_error_is_that_of_many_fits():
    rng = np.random.default_rng(0)
    made = []
    for _ in range(300):
        scores = rng.normal(size=(30, 40)) + np.linspace(3, 0, 40)
        made.append(rank_stability(scores, 8))
    sets = [set(np.argsort(-of, kind="stable")[:8].tolist()) for of in scores]
    assert made[-1].agreement == pytest.approx(stability(sets, 40).kuncheva)
    spread = np.std([each.agreement for each in made])
    assert np.mean([each.error for each in made]) == pytest.approx(spread, rel=0.15)


def test_a_record_tells_how_many_features_would_be_chosen_often_by_chance():
    """The bound holds in the mean over null data, where every choice is by chance; without it all are counted."""
    often, told = [], []
    for seed in range(40):
        X, Y = problem(seed, planted=0, d=110)
        found = get_estimator("br-cc")(10, resamples=40, random_state=seed).fit(X, Y).report_.extra["stability"]
        often.append(found["chosen_often"])
        told.append(found["falsely_chosen"])
    assert np.mean(often) <= told[0] == max(told) < 1
    assert "falsely_chosen" not in get_estimator("br-cc")(11, resamples=40).fit(X, Y).report_.extra["stability"]
    assert "falsely_chosen" not in get_estimator("br-cc")(10, resamples=38).fit(X, Y).report_.extra["stability"]
