"""`auto`: against its plain twin; the judge by hand; readings, memory, containers, refusals; the command end to end."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from collections import Counter

import dask.array as da
import numpy as np
import pytest
from click.testing import CliRunner
from scipy import sparse as sp

from mlfs_dask import AutoSelector, convert, open_dataset, runtime
from mlfs_dask.blocks import gates
from mlfs_dask.blocks.label_order import average_precision
from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.engine import cache as caching
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.evaluation import auto
from mlfs_dask.evaluation.judges import compare, linear_scores, neighbour_scores, row_precision
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.selectors import METHODS
from mlfs_dask.selectors.scores import Scores, rank
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask_cli.main import mlfs
from tests.reference import auto as twin
from tests.storage.memory_reader import make_reader

METHODS_OF_SUMS = [name for name in METHODS if get_estimator(name).plain.resamples_rows or name in ("qpmlfs", "spfs")]
CANDIDATES = sorted([*METHODS_OF_SUMS, "ami", "llsf", "scls"])


def problem(seed=0, n=160, d=12, q=4):
    """Labels that follow from features 0..3, two of which are also copied with noise; the others tell nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    X[:, 4:6] = X[:, :2] + 0.3 * rng.normal(size=(n, 2))
    X[:, 7] = np.where(rng.random(n) < 0.8, 0, X[:, 7])
    Y = (X[:, [0, 1, 2, 3]] + 0.5 * rng.normal(size=(n, 4)) > 0.6)[:, :q].astype(np.int8)
    return X, Y


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    path = tmp_path_factory.mktemp("auto") / "set.zarr"
    convert_reader(lambda: make_reader(*problem()), path, workers=1)
    return path


@pytest.mark.filterwarnings("ignore:1 of the 12 features kept does not vary")  # in the rows to learn from
@pytest.mark.parametrize(
    ("k", "judge", "n"),
    [(2, "both", 160), (5, "both", 160), (5, "linear", 160), (5, "neighbours", 160), (12, "both", 40)],
)
def test_equals_the_plain_twin(k, judge, n):
    """Of 40 rows the regression judges 8 features at most."""
    X, Y = problem(n=n)
    methods = ["ami", "elc", "enm", "label-entropy"]
    means, below, errors, ranking = twin.auto(X, Y, k, methods, judge=judge, seed=3)
    found = AutoSelector(k, candidates=",".join(methods), judge=judge, random_state=3).fit(X, Y)
    table = found.report_.extra["judged"]
    assert [row["method"] for row in table] == methods
    assert [row["average_precision"] for row in table] == pytest.approx(means, abs=1e-12)
    assert [row["below_best"] for row in table] == pytest.approx(below, abs=1e-12)
    assert [row["standard_error"] for row in table] == pytest.approx(errors, abs=1e-12)
    assert found.report_.extra["chosen"] == methods[means.argmax()]
    assert np.array_equal(found.ranking_, ranking)


def test_one_candidate_is_that_method():
    X, Y = problem()
    for name in ("ami", "elc", "qpmlfs", "smfs", "spfs"):
        expected = get_estimator(name)(3).fit(X, Y)
        found = AutoSelector(3, candidates=name).fit(X, Y)
        assert np.array_equal(found.scores_, expected.scores_)
        assert np.array_equal(found.ranking_, expected.ranking_)
        assert (found.report_.converged, found.report_.iterations) == (
            expected.report_.converged,
            expected.report_.iterations,
        )


def test_unknown_labels_are_the_share_of_known_rows_to_the_judges_who_judge_by_known_labels():
    X, Y = problem()
    unknown = np.where(np.random.default_rng(0).random(Y.shape) < 0.4, np.int8(-1), Y)
    shares = np.array([y[y >= 0].mean() for y in unknown.T])
    labels, filled = sp.csr_array(unknown), np.where(unknown < 0, shares, unknown)
    Z = (X - X.mean(axis=0)) / X.std(axis=0)
    W = np.linalg.solve(Z.T @ Z + np.eye(12), Z.T @ (filled - shares))
    given = current_resources()
    assert linear_scores(X, labels, X[:9], given) == pytest.approx(Z[:9] @ W + shares)
    near = np.argsort([[((z - other) ** 2).sum() for other in Z] for z in Z[:9]], axis=1)[:, :10]
    assert neighbour_scores(X, labels, X[:9], given) == pytest.approx((filled[near].sum(axis=1) + shares) / 11)
    scores = np.random.default_rng(1).random(Y.shape)
    for some in (range(4), [1]):
        found = row_precision(labels[:, some], scores[:, some])
        pairs = zip(unknown, scores, strict=True) if len(some) > 1 else [(unknown[:, 1], scores[:, 1])]
        for (truth, of_row), precision in zip(pairs, found, strict=True):
            known = truth >= 0
            expected = average_precision(truth[known][np.newaxis] > 0, of_row[known][np.newaxis])
            assert precision == pytest.approx(expected[0], nan_ok=True)


def test_the_method_that_held_out_rows_favour_among_those_of_labels_known_of_some():
    X, Y = problem(n=240)
    unknown = np.where(np.random.default_rng(0).random(Y.shape) < 0.4, np.int8(-1), Y)
    unknown[:, 0] = Y[:, 0]
    for labels, chosen in ((unknown, {0, 1, 2, 3}), (unknown[:, [1]], {1})):
        k = len(chosen)
        given = {"candidates": "br-cc,chi2,elc,mrmr"}
        expected = AutoSelector(k, **given).fit(X, labels)
        assert set(expected.ranking_[:k].tolist()) == chosen
        for rows in ((sp.csr_array(X), sp.csr_array(labels)), (da.from_array(X), da.from_array(labels))):
            found = AutoSelector(k, **given).fit(*rows)
            assert found.scores_ == pytest.approx(expected.scores_)
            assert found.report_.extra["tied"] == expected.report_.extra["tied"]
            assert found.report_.passes <= found.report_.plan["passes"]


def sample_of(rows, monkeypatch):
    """Draw samples of so many rows."""
    monkeypatch.setattr(auto, "JUDGED_ROWS", rows // auto.FOLDS)
    monkeypatch.setattr("mlfs_dask.blocks.row_draws.FEWEST_ROWS", rows // auto.FOLDS)


def test_methods_of_more_readings_learn_from_a_sample_of_all_rows(store):
    found = AutoSelector(3, candidates="ami").fit(open_dataset(store)).report_
    assert [row["method"] for row in found.extra["judged"]] == ["ami"]
    assert get_estimator("ami")(3).fit(open_dataset(store)).report_.passes == 2
    assert (found.passes, found.plan["passes"]) == (1, 1)


def test_methods_of_more_readings_are_left_out_where_the_sample_has_not_all_rows(store, monkeypatch):
    sample_of(100, monkeypatch)
    found = AutoSelector(3, candidates="ami,enm").fit(open_dataset(store)).report_.extra
    assert found["left_out"] == {"ami": "it takes 2 passes over this data"}
    assert [row["method"] for row in found["judged"]] == ["enm"]


def test_candidates_are_the_filters_and_those_beside_them():
    X, Y = problem()
    found = AutoSelector(3).fit(X, Y).report_.extra
    assert sorted(row["method"] for row in found["judged"]) == CANDIDATES
    assert found["judged_rows"] == len(X)
    assert found["left_out"] == {}


@pytest.mark.parametrize("form", [np.asarray, sp.csr_array], ids=["dense", "sparse"])
def test_the_judges_are_ridge_regression_with_a_penalty_of_1_and_ten_nearest_rows(form, monkeypatch):
    rng = np.random.default_rng(0)
    units = 10.0 ** np.arange(4)
    X, new = (1e3 + units * rng.normal(size=(n, 4)) for n in (30, 6))
    Y = (rng.random((30, 3)) < 0.4).astype(np.int8)
    X[:, 2] = 5.0
    std = np.where(np.arange(4) == 2, np.inf, X.std(axis=0))
    Z, Z_new = (X - X.mean(axis=0)) / std, (new - X.mean(axis=0)) / std
    W = np.linalg.solve(Z.T @ Z + np.eye(4), Z.T @ (Y - Y.mean(axis=0)))
    data = form(X), sp.csr_array(Y), form(new), current_resources()
    assert linear_scores(*data) == pytest.approx(Y.mean(axis=0) + Z_new @ W, rel=1e-8, abs=1e-8)
    distances = np.square(Z_new[:, None] - Z).sum(axis=-1)
    expected = np.array([(Y[np.argsort(row)[:10]].sum(axis=0) + Y.mean(axis=0)) / 11 for row in distances])
    assert neighbour_scores(*data) == pytest.approx(expected, rel=1e-12)
    monkeypatch.setattr(gates, "COMPILED_PAIRS", 0)
    assert neighbour_scores(*data) == pytest.approx(expected, rel=1e-12)


def test_candidates_are_compared_row_by_row():
    rng = np.random.default_rng(0)
    best, other = rng.random(400) + 0.1, rng.random(400)
    undefined = np.full((2, 5), np.nan)
    lower, upper = compare(np.hstack([np.stack([other, best]), undefined]))
    assert upper == {
        "average_precision": pytest.approx(best.mean()),
        "below_best": 0.0,
        "standard_error": 0.0,
        "standard_error_of_mean": pytest.approx(best.std(ddof=1) / 20),
    }
    assert lower["below_best"] == pytest.approx((best - other).mean())
    assert lower["standard_error"] == pytest.approx((best - other).std(ddof=1) / 20)


@pytest.mark.parametrize("rows", [0, 3])
def test_where_no_row_tells_all_are_alike(rows):
    nothing = dict.fromkeys(("average_precision", "below_best", "standard_error", "standard_error_of_mean"), 0.0)
    assert compare(np.full((2, rows), np.nan)) == [nothing] * 2


def test_of_methods_that_tie_the_mean_rank_decides_and_seeds_matter_little():
    """Features come in groups that say the same: methods choose many of a group or few, and are as good by turns."""
    rng = np.random.default_rng(3)
    groups = rng.normal(size=(250, 8))
    X = np.repeat(groups, 5, axis=1) + 0.6 * rng.normal(size=(250, 40))
    X[:, ::3] = np.exp(X[:, ::3])
    Y = (groups @ rng.normal(size=(8, 4)) + 2 * rng.normal(size=(250, 4)) > 0).astype(np.int8)
    candidates = "ami,elc,enm,scls"
    fits = [AutoSelector(10, candidates=candidates, random_state=seed).fit(X, Y) for seed in range(4)]
    assert len({fit.report_.extra["chosen"] for fit in fits}) > 1
    alone = {name: set(get_estimator(name)(10).fit(X, Y).ranking_[:10]) for name in candidates.split(",")}

    def overlap(choices):
        return np.mean([len(a & b) / 10 for a, b in itertools.combinations(choices, 2)])

    for fit in fits:
        assert fit.report_.extra["tied"][0] == fit.report_.extra["chosen"]
        assert np.array_equal(fit.ranking_, rank(fit.scores_))
    found = overlap([set(fit.ranking_[:10]) for fit in fits])
    assert found > overlap([alone[fit.report_.extra["chosen"]] for fit in fits]) + 0.1


def test_where_no_row_tells_the_first_candidate_is_taken():
    X, Y = problem(n=20)
    found = AutoSelector(3, candidates="enm,gmm").fit(X, np.zeros_like(Y) + (np.arange(20) < 10)[:, None])
    assert found.report_.extra["chosen"] == "enm"


def test_what_the_method_that_is_taken_tells_is_kept_apart():
    X, Y = problem()
    found = AutoSelector(3, candidates="ami").fit(X, Y).report_.extra
    assert found["extra_of_chosen"] == {"candidates": X.shape[1], "chosen_in_turn": 3}
    assert "candidates" not in found


def test_a_method_that_misses_the_features_of_the_labels_is_not_taken(monkeypatch):
    X, Y = problem(n=400)
    backwards = get_estimator("enm").plain.score

    def worst(self, readings):
        outcome = backwards(self, readings)
        return auto.replace(outcome, scores=-outcome.scores)

    monkeypatch.setattr(get_estimator("enm").plain, "score", worst)
    found = AutoSelector(4, candidates="enm,elc").fit(X, Y)
    assert found.report_.extra["chosen"] == "elc"
    assert set(np.flatnonzero(found.support_)) == set(np.flatnonzero(get_estimator("elc")(4).fit(X, Y).support_))


def test_the_features_that_are_judged_are_the_first_of_the_ranking(monkeypatch):
    X, Y = problem()
    expected = AutoSelector(4, candidates="enm").fit(X, Y).report_.extra["judged"]
    by_score = get_estimator("enm").plain.score

    def with_ranking(self, readings):
        scores = by_score(self, readings).scores
        return Scores(-scores, ranking=rank(scores))

    monkeypatch.setattr(get_estimator("enm").plain, "score", with_ranking)
    assert AutoSelector(4, candidates="enm").fit(X, Y).report_.extra["judged"] == expected


def test_of_very_many_features_the_first_are_judged(monkeypatch):
    X, Y = problem()
    expected = AutoSelector(4, candidates="ami,enm").fit(X, Y).report_.extra["judged"]
    monkeypatch.setattr(auto, "GRAM_CAP", 4)
    found = AutoSelector(8, candidates="ami,elc,enm").fit(X, Y)
    judged = {row["method"]: row["average_precision"] for row in found.report_.extra["judged"]}
    assert [judged[row["method"]] for row in expected] == [row["average_precision"] for row in expected]
    assert found.support_.sum() == 8


def test_of_few_rows_no_more_features_are_chosen_in_turn_than_are_judged(monkeypatch):
    asked, score = [], get_estimator("ami").plain.score

    def score_and_record(self, readings):
        asked.append((readings.source.profile.n, readings.asked.k))
        return score(self, readings)

    monkeypatch.setattr(get_estimator("ami").plain, "score", score_and_record)
    monkeypatch.setattr(auto, "FIRST_ROWS", 8)
    monkeypatch.setattr(auto, "FINALISTS", 1)
    AutoSelector(12, candidates="ami,enm", budget=np.inf).fit(*problem(n=40))
    assert asked[0] == (8, 8)


def test_a_single_label_orders_the_rows():
    X, Y = problem(q=1)
    found = AutoSelector(1, candidates="elc,enm").fit(X, Y[:, 0])
    assert found.ranking_[0] == 0
    assert all(0.5 < row["average_precision"] <= 1 for row in found.report_.extra["judged"])
    assert found.report_.extra["judged_rows"] == len(X)


def test_one_reading_of_a_store_and_two_of_a_dask_array(store):
    X, Y = problem()
    dataset = open_dataset(store)
    lazy = da.from_array(X, chunks=(50, -1)), da.from_array(Y, chunks=(50, -1))
    for data, readings in (((dataset,), 1), (lazy, 2)):
        events = []
        with runtime.progress_to(events.append):
            report = AutoSelector(3).fit(*data).report_
        read = itertools.takewhile(lambda event: event["kind"] != "stage", events)
        assert [event["kind"] for event in read].count("pass") == readings
        assert (report.passes, report.plan["passes"]) == (readings, readings)
    stages = [event["label"] for event in events if event["kind"] == "stage"]
    assert stages == [f"judging {count} methods by 128 rows" for count in (19, 10, 5, 4, 4)]
    fits = sum(event["parts"] for event in events if event["kind"] == "stage")
    assert [event["kind"] for event in events].count("parts") == fits == 42


def test_statistics_in_the_cache_are_those_of_its_candidates(store, tmp_path):
    dataset = open_dataset(store)
    with caching.cache(tmp_path):
        AutoSelector(3).fit(dataset)
        found = {name: get_estimator(name)(3).fit(dataset).report_.passes for name in METHODS_OF_SUMS}
        again = AutoSelector(2).fit(dataset)
    assert set(found.values()) == {0}
    assert again.report_.passes == 0
    assert np.array_equal(again.scores_, AutoSelector(2).fit(dataset).scores_)


def test_a_seed_draws_the_sample_and_its_parts(store, monkeypatch):
    sample_of(100, monkeypatch)
    dataset = open_dataset(store)
    found = [AutoSelector(3, random_state=seed).fit(dataset).report_.extra for seed in (0, 0, 1)]
    assert found[0] == found[1]
    assert found[0]["judged"] != found[2]["judged"]
    # A fifth of 100 sampled rows is enough.
    assert [each["judged_rows"] for each in found] == [20] * 3
    assert AutoSelector().make_question().is_random


def test_rows_beyond_the_sample_count_in_the_ranking(store, monkeypatch):
    sample_of(100, monkeypatch)
    X, Y = problem()
    found = AutoSelector(3, candidates="enm").fit(open_dataset(store))
    assert found.scores_ == pytest.approx(get_estimator("enm")(3).fit(X, Y).scores_)


def test_what_does_not_fit_one_reading_is_left_out(monkeypatch):
    sample_of(250, monkeypatch)
    rng = np.random.default_rng(0)
    X = sp.random_array((300, 2_000), density=0.02, rng=rng, format="csr")
    Y = (rng.random((300, 400)) < 0.05).astype(np.int8)
    # The counts with all labels have 3 MiB, and the products 6 MiB.
    with runtime.process_limits(memory_limit=int((runtime.driver_bytes() + 22 * 2**20) / 0.8), threads=1):
        found = AutoSelector(5, candidates="elc,enm,label-entropy").fit(X, Y).report_
    assert found.extra["left_out"] == {"elc": "it does not fit the memory", "enm": "it takes 3 passes over this data"}
    assert [row["method"] for row in found.extra["judged"]] == ["label-entropy"]
    assert found.plan["notes"][1:] == [f"{name} is left out: {why}" for name, why in found.extra["left_out"].items()]
    assert found.passes == 1


def test_where_nothing_fits_the_job_is_refused():
    X, Y = problem(n=300, d=2_000, q=4)
    with (
        runtime.process_limits(memory_limit=int((runtime.driver_bytes() + 2**20) / 0.8), threads=1),
        pytest.raises(DoesNotFitError),
    ):
        AutoSelector(5).fit(X, Y)


MEMORY = """
import sys

import numpy as np

from mlfs_dask import runtime
from mlfs_dask import AutoSelector

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(8_000, 400)), (rng.random((8_000, 60)) < 0.2).astype(np.int8)
selector = AutoSelector(40, candidates=sys.argv[1])
selector.fit(X[:200], Y[:200])  # loads what has to be loaded
before = runtime.driver_bytes()
report = selector.fit(X, Y).report_
print(report.peak_driver_bytes - before, report.plan["peak_driver_bytes"] - before)
"""


@pytest.mark.parametrize("candidates", ["enm,label-entropy", "ami,scls"])
def test_the_memory_of_fits_and_judge_is_planned(candidates):
    """In a process of its own: what others have held and freed changes what this one holds."""
    ran = subprocess.run([sys.executable, "-c", MEMORY, candidates], capture_output=True, text=True, check=True)
    measured, planned = map(int, ran.stdout.split())
    assert 0.4 * planned <= measured <= planned


def test_a_feature_that_candidates_refuse_is_named(tmp_path):
    values = ",".join(f"v{i}" for i in range(300))
    header = ["@relation r", "@attribute x numeric", f"@attribute gene {{{values}}}", "@attribute y {0,1}", "@data"]
    rows = [f"{i},v{i},{i % 2}" for i in range(20)]
    (tmp_path / "data.arff").write_text("\n".join(header + rows))
    convert(tmp_path / "data.arff", tmp_path / "data.zarr", labels=LabelSpec(columns=("y",)))
    with pytest.raises(DataError, match="column 'gene': a categorical feature has 300 values"):
        AutoSelector(1).fit(tmp_path / "data.zarr")


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ("elc,smf", "candidates names 'smf', which is no method that can be judged.*smfs"),
        ("auto", "candidates names 'auto'"),
        ("", "candidates names ''"),
        ("enn", "enm"),
    ],
)
def test_candidates_that_cannot_be_judged_are_refused(candidates, message):
    with pytest.raises(UsageError, match=message):
        AutoSelector(3, candidates=candidates).fit(*problem())


def test_candidates_may_be_written_as_on_the_command_line():
    found = AutoSelector(3, candidates="ELC, label_entropy,elc").fit(*problem())
    assert [row["method"] for row in found.report_.extra["judged"]] == ["elc", "label-entropy"]


def test_the_command_end_to_end(store, tmp_path):
    words = ["select", "auto", str(store), "-k", "3", "-o", str(tmp_path / "run"), "--cache", "none"]
    done = CliRunner().invoke(mlfs, [*words, "--candidates", "elc,enm,gmm"])
    assert done.exit_code == 0, done.output
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    judged = record["extra"]["judged"]
    columns = {"method", "average_precision", "below_best", "standard_error", "standard_error_of_mean"}
    assert [set(row) for row in judged] == [columns | {"learnt_rows", "judged_rows"}] * 3
    assert record["params"]["candidates"] == "elc,enm,gmm"
    assert record["passes"] == record["plan"]["passes"] == 1
    best = max(judged, key=lambda row: row["average_precision"])
    assert record["extra"]["chosen"] == best["method"]
    assert record["extra"]["standard_error"] == best["standard_error_of_mean"]
    words = " ".join(done.output.split())
    assert f"{best['method']} {best['average_precision']:.4f} ± {best['standard_error_of_mean']:.4f}" in words
    second = min((row for row in judged if row is not best), key=lambda row: row["below_best"])
    assert record["extra"]["runner_up"] == second
    assert f"{second['method']} {second['below_best']:.4f} ± {second['standard_error']:.4f} below" in words
    assert len((tmp_path / "run" / "selected.txt").read_text().split()) == 3
    planned = CliRunner().invoke(mlfs, ["plan", "auto", str(store), "--json", "--cache", "none"])
    assert planned.exit_code == 0, planned.output
    assert "judges " in planned.output


def test_methods_in_one_command_share_its_reading(store, tmp_path):
    words = ["select", "auto,chi2,elc", str(store), "-k", "3", "--json"]
    done = CliRunner().invoke(mlfs, [*words, "-o", str(tmp_path / "all"), "--cache", str(tmp_path)])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert [run["passes"] for run in found["runs"]] == [0, 0, 0]
    alone = AutoSelector(3).fit(open_dataset(store)).report_.extra
    assert found["runs"][0]["extra"]["judged"] == alone["judged"]


def test_methods_that_hold_all_rows_are_left_out_of_a_sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(auto, "JUDGED_ROWS", 20)
    monkeypatch.setattr("mlfs_dask.blocks.row_draws.FEWEST_ROWS", 20)
    rng = np.random.default_rng(0)
    Y = rng.integers(0, 2, (300, 2))
    X = np.hstack([rng.normal(size=(300, 6)), Y + 0.3 * rng.normal(size=(300, 2))])
    found = AutoSelector(2, candidates="enm,mfsir").fit(X, Y).report_.extra
    assert found["left_out"] == {"mfsir": "it holds all rows in memory"}


def test_values_whose_squares_are_infinite_are_refused() -> None:
    rng = np.random.default_rng(0)
    X, Y = rng.normal(size=(60, 8)), rng.integers(0, 2, (60, 2))
    X[:, 5] *= 1e160
    with pytest.raises(DataError, match=r"those above 1e150 scaled") as caught:
        AutoSelector(2).fit(X, Y)
    assert caught.value.column is not None
    assert "5" in str(caught.value)


def copies(n=1300):
    """Labels of three features, of which the first has the most copies: filters choose copies alone."""
    rng = np.random.default_rng(5)
    X = rng.normal(size=(n, 24))
    X[:, 3:12] = X[:, [0]] + 0.2 * rng.normal(size=(n, 9))
    return X, (X[:, :3] + [0.1, 0.8, 0.8] * rng.normal(size=(n, 3)) > 0.5).astype(np.int8)


def test_the_better_half_learns_from_twice_as_many_rows():
    found = AutoSelector(3, budget=np.inf).fit(*copies()).report_.extra
    rows = {row["method"]: (row["learnt_rows"], row["judged_rows"]) for row in found["judged"]}
    assert sorted(rows) == CANDIDATES
    # 512 of the first 1 040; then the first, the first two, and all five fifths.
    assert Counter(rows.values()) == {(512, 260): 9, (1040, 260): 5, (1040, 520): 1, (1040, 1300): 4}
    assert set(found["tied"]) <= {name for name, each in rows.items() if each == (1040, 1300)}
    assert found["budget_ended"] is False


class Clock:
    """Seconds that pass from one look to the next."""

    def __init__(self, step):
        self.now, self.step = 0.0, step

    def __call__(self):
        self.now += self.step
        return self.now


def test_without_the_clock_the_answer_is_that_of_the_data_and_the_seed(monkeypatch):
    X, Y = copies()
    expected = AutoSelector(3, budget=np.inf).fit(X, Y)
    monkeypatch.setattr(auto, "perf_counter", Clock(0.1))
    found = AutoSelector(3, budget=1000).fit(X, Y)
    assert found.report_.extra == expected.report_.extra
    assert np.array_equal(found.scores_, expected.scores_)


@pytest.mark.parametrize(
    ("budget", "rows"),
    [
        (0, [32]),  # at least one
        (1.5, [32, 32]),
        (6.5, [32, 32, 32, 64, 64]),  # two of the four of the second trial
        (5.5, [32, 32, 32, 32, 32]),  # one alone is not compared
    ],
)
def test_at_the_end_of_the_budget_the_best_so_far_is_taken(budget, rows, monkeypatch):
    """A second passes before each candidate but the first."""
    monkeypatch.setattr(auto, "perf_counter", Clock(1.0))
    names = ["chi2", "enm", "elc", "gmm", "fimf"]
    with pytest.warns(UserWarning, match=f"the budget of {budget:g} s ended .* Give a larger budget"):
        found = AutoSelector(3, candidates=",".join(names), budget=budget).fit(*problem()).report_.extra
    judged = {row["method"]: row["judged_rows"] for row in found["judged"]}
    assert sorted(judged.values()) == rows
    assert list(judged) == names[: len(rows)]
    assert {judged[name] for name in found["tied"]} == {max(rows)}
    assert found["left_out"] == dict.fromkeys(names[len(rows) :], "the budget ended before it")
    assert found["budget_ended"] is True
