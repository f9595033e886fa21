"""Runs compared over data sets: means, ties, ranks, tests, gaps."""

from __future__ import annotations

import math
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.comparison import Comparison, compare
from mlfs_dask.evaluation.results import read_eval
from tests.evaluation.evaluations import steady, write_evaluation

GOOD = {"elc": 0.8, "mfsir": 0.795, "random": 0.5}


@pytest.fixture
def three(tmp_path: Path) -> list[Path]:
    """Three data sets: elc and mfsir are close, random is far behind."""
    return [write_evaluation(tmp_path / name, name, steady(GOOD, seed=seed)) for seed, name in enumerate("abc")]


def only(comparison: Comparison, metric: str, dataset: str) -> dict[str, Any]:
    rows = comparison.means[(comparison.means["metric"] == metric) & (comparison.means["dataset"] == dataset)]
    return {row.run: row for row in rows.itertuples()}


def test_means_are_over_folds_of_means_over_k(tmp_path: Path) -> None:
    table = {2: [0.1, 0.3], 4: [0.3, 0.7]}
    folder = write_evaluation(tmp_path / "a", "a", lambda run, metric, k, fold: table[k][fold], folds=2)
    found = only(compare([folder]), "macro_f1", "a")["elc"]
    assert (found.mean, found.n_folds) == (pytest.approx(0.35), 2)
    assert found.std == pytest.approx(np.std([0.2, 0.5], ddof=1))
    at_four = only(compare([folder], k=4), "macro_f1", "a")["elc"]
    assert at_four.mean == pytest.approx(0.5)


def test_ties_are_by_the_paired_t_test(three: list[Path]) -> None:
    found = only(compare(three), "macro_f1", "a")
    assert found["elc"].best
    assert not found["random"].best
    assert not found["random"].tied
    assert found["random"].p_value < 1e-4
    loose = only(compare(three, alpha=1e-12), "macro_f1", "a")
    assert loose["random"].tied


def test_lower_is_better_where_the_metric_says_so(three: list[Path]) -> None:
    comparison = compare(three)
    for metric in ("hamming_loss", "macro_f1"):
        ranks = comparison.ranks[comparison.ranks["metric"] == metric].set_index("run")["average_rank"]
        assert ranks["random"] == 3.0
        assert ranks[["elc", "mfsir"]].sum() == 3.0


def test_friedman_and_differences(three: list[Path]) -> None:
    comparison = compare(three, control="elc")
    for test in comparison.tests:
        table = comparison.means[comparison.means["metric"] == test["metric"]].pivot(
            index="dataset", columns="run", values="mean"
        )
        assert test["friedman"]["chi2"] == pytest.approx(stats.friedmanchisquare(*table.to_numpy().T).statistic)
        assert test["nemenyi_difference"] == pytest.approx(2.3437 * math.sqrt(3 * 4 / (6 * 3)), abs=1e-3)
        assert test["bonferroni_dunn_difference"] == pytest.approx(2.2414 * math.sqrt(3 * 4 / (6 * 3)), abs=1e-3)
        assert np.array(test["nemenyi_p_values"]).shape == (3, 3)
        assert test["control"] == "elc"


def test_win_tie_loss(three: list[Path]) -> None:
    wins = compare(three).wins
    row = wins[(wins["metric"] == "hamming_loss") & (wins["run"] == "elc") & (wins["other"] == "random")].iloc[0]
    assert (row["win"], row["tie"], row["loss"]) == (3, 0, 0)
    back = wins[(wins["metric"] == "hamming_loss") & (wins["run"] == "random") & (wins["other"] == "elc")].iloc[0]
    assert (back["win"], back["tie"], back["loss"]) == (0, 0, 3)


def test_few_runs_and_data_sets_have_fewer_tests(three: list[Path]) -> None:
    two_runs, one_run = (compare(three, runs=runs) for runs in (["random", "elc"], ["elc"]))
    one_set = compare(three[:1])
    (test, *_) = two_runs.tests
    assert (test["runs"], test["nemenyi_p_values"]) == (["random", "elc"], None)
    assert test["wilcoxon_p_value"] == pytest.approx(0.25)
    assert "two runs: the Wilcoxon signed-rank test is the stronger one." in two_runs.notes
    assert one_run.ranks.empty
    assert one_run.notes == ["no ranks: there is one run only."]
    assert all(test["friedman"] is None and test["nemenyi_difference"] is None for test in one_set.tests)
    assert one_set.notes == ["no test of ranks: Friedman's test compares over data sets, and there is one."]
    row = one_set.times.iloc[0]
    assert (row["fits"], row["seconds_mean"], row["peak_worker_bytes"]) == (4, 2.0, 2**21)


def test_a_run_that_is_absent_leaves_the_data_set_out(three: list[Path], tmp_path: Path) -> None:
    short = write_evaluation(tmp_path / "d", "d", steady(GOOD), runs=["elc", "random"])
    comparison = compare([*three, short])
    assert {test["n_datasets"] for test in comparison.tests} == {3}
    assert {tuple(test["left_out"]) for test in comparison.tests} == {("d",)}
    assert "d: mfsir was not evaluated; the data set is left out of all ranks." in comparison.notes
    assert set(only(comparison, "macro_f1", "d")) == {"elc", "random"}
    assert math.isnan(only(comparison, "macro_f1", "d")["elc"].rank)


def test_undefined_values_are_left_out_and_told(tmp_path: Path) -> None:
    values = steady(GOOD)

    def value(run: str, metric: str, k: int, fold: int) -> float | None:
        return None if metric == "macro_f1" and fold == 1 and k == 2 else values(run, metric, k, fold)

    comparison = compare([write_evaluation(tmp_path / "a", "a", value)])
    found = only(comparison, "macro_f1", "a")["elc"]
    assert (found.n_folds, found.n_undefined) == (3, 1)
    assert "macro_f1 on a is undefined in 1 of 4 folds, which are left out of its means." in comparison.notes
    assert only(comparison, "hamming_loss", "a")["elc"].n_undefined == 0
    nowhere = write_evaluation(tmp_path / "b", "b", lambda *case: None if case[1] == "macro_f1" else values(*case))
    comparison = compare([nowhere])
    assert set(comparison.ranks["metric"]) == {"hamming_loss"}
    assert any(note.startswith("macro_f1 (mlknn): no ranks: no data set") for note in comparison.notes)


def test_all_features_are_shown_and_not_ranked(tmp_path: Path) -> None:
    folder = write_evaluation(
        tmp_path / "a", "a", steady({"elc": 0.7, "mfsir": 0.6, "all": 0.9}), runs=["all", "elc", "mfsir"]
    )
    comparison = compare([folder])
    found = only(comparison, "macro_f1", "a")
    assert found["all"].mean > found["elc"].mean
    assert not found["all"].best
    assert found["elc"].best
    assert set(comparison.ranks["run"]) == {"elc", "mfsir"}
    with pytest.raises(UsageError, match="keeps all features and is not ranked"):
        compare([folder], control="all")


def test_stability_per_k(tmp_path: Path) -> None:
    sets = {"elc": [[0, 1, 2, 3], [0, 2, 1, 3]], "mfsir": [[5, 6, 7, 8]] * 2}
    folder = write_evaluation(
        *(tmp_path / "a", "a", steady(GOOD)),
        runs=["elc", "mfsir"],
        folds=2,
        rankings=sets,  # that end before the sixth feature
        finished=["mfsir"],
        grid=(2, 4, 6),
    )
    comparison = compare([folder])
    rows = [(row.run, row.k, row.kuncheva, row.jaccard, row.n_sets) for row in comparison.stability.itertuples()]
    assert rows == [("elc", 2, pytest.approx((10 - 4) / 16), pytest.approx(1 / 3), 2), ("elc", 4, 1.0, 1.0, 2)]
    assert "a: mfsir was finished beforehand, one ranking for all folds: no stability of it." in comparison.notes


def test_only_shared_numbers_of_features_are_compared(tmp_path: Path) -> None:
    one = write_evaluation(tmp_path / "1", "a", steady(GOOD), runs=["elc"], grid=[2, 4, 6])
    two = write_evaluation(tmp_path / "2", "a", steady(GOOD), runs=["mfsir"], grid=[4, 6, 8])
    comparison = compare([one, two])
    assert set(comparison.curves["k"]) == {4, 6}
    assert "a: the runs have different numbers of features; compared at the 2 that all share." in comparison.notes
    three = write_evaluation(tmp_path / "3", "a", steady(GOOD), runs=["random"], grid=[8])
    with pytest.raises(UsageError, match="share no number of features"):
        compare([one, three])
    with pytest.raises(UsageError, match=r"elc on 'a' was not evaluated at k = 8; there are 2, 4, 6, 8\."):
        compare([one, two], k=8)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"splits": {"kind": "kfold", "folds": 4, "repeats": 1, "test_size": None, "seed": 1}},
            "do not have the same splits",
        ),
        ({"simulation": {"missing": 0.2}}, "do not have the same simulation"),
        ({"store": {"digest": "other", "d": 10}}, "do not have the same store"),
        ({}, "the run 'elc' on 'a' is in two of the evaluations, with mlknn; give one of them"),
        (
            {"runs": [{"run": "elc", "method": "elc", "params": {"C": 2}}]},
            "the run 'elc' has different parameters in two evaluations of 'a'",
        ),
    ],
)
def test_what_cannot_be_paired_is_refused(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    one = write_evaluation(tmp_path / "1", "a", steady(GOOD), runs=["elc"])
    two = write_evaluation(tmp_path / "2", "a", steady(GOOD), runs=["elc"], record=change)
    with pytest.raises(UsageError, match=message):
        compare([one, two])


def test_another_classifier_may_have_judged_the_same_runs_in_an_evaluation_of_its_own(tmp_path: Path) -> None:
    value = steady(GOOD)
    both = write_evaluation(tmp_path / "0", "a", value, classifiers=["mlknn", "logistic"])
    one, two = (
        write_evaluation(tmp_path / classifier, "a", value, classifiers=[classifier])
        for classifier in ("mlknn", "logistic")
    )
    together, apart = compare([both]), compare([one, two])
    keys = ["metric", "classifier", "dataset", "run"]
    pd.testing.assert_frame_equal(
        *(each.means.sort_values(keys, ignore_index=True) for each in (apart, together)), check_like=True
    )
    pd.testing.assert_frame_equal(apart.stability, together.stability)
    assert apart.record["classifiers"] == ["mlknn", "logistic"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda three: compare([]), "nothing to compare"),
        (lambda three: compare(three, runs=["elk"]), r"no run 'elk' here\. Did you mean elc\?"),
        (lambda three: compare(three, runs=["elc"], control="mfsir"), "no run 'mfsir' here"),
        (lambda three: compare(three, alpha=1.0), "alpha must lie between 0 and 1"),
    ],
)
def test_wrong_questions(three: list[Path], call: Callable[[list[Path]], Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        call(three)


def test_a_batch_stands_for_its_evaluations(three: list[Path], tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    for folder in three:
        shutil.copytree(folder, batch / "jobs" / folder.name)
    (batch / "batch.json").write_text('{"kind": "batch", "jobs": ["c", "a", "b", "d"]}')
    (batch / "jobs" / "d").mkdir()  # not finished
    found = compare([batch])
    assert [entry["dataset"] for entry in found.record["datasets"]] == ["c", "a", "b"]  # in the order of the plan
    assert found.ranks.equals(compare(three).ranks)
    assert found.notes == [
        "batch is not complete: 1 of its 4 jobs failed or did not run (d), and what they would show is missing; "
        "jobs.csv says why."
    ]
    (batch / "batch.json").write_text('{"kind": "batch", "jobs": ["c", "a", "b"]}')
    assert compare([batch]).notes == []
    shutil.rmtree(batch / "jobs")
    with pytest.raises(DataError, match="no evaluation of this batch is finished"):
        compare([batch])


@pytest.mark.parametrize("k", [2, 4])
def test_stability_is_of_the_rankings_for_that_many_features(three: list[Path], k: int) -> None:
    first = read_eval(three[0])
    rows = [
        {"dataset": "a", "run": "elc", "repeat": 0, "fold": fold, "k": learnt, "rank": rank, "feature_index": feature}
        for fold in (0, 1)
        for learnt in (2, 4)
        # The choices of two are the same in both folds, those of four differ by two features of eight.
        for rank, feature in enumerate(range(2) if learnt == 2 else range(2 * fold, 2 * fold + 4), start=1)
    ]
    found = compare([replace(first, rankings=pd.DataFrame(rows))]).stability
    (jaccard,) = found.query("run == 'elc' and k == @k")["jaccard"]
    assert jaccard == pytest.approx({2: 1.0, 4: 2 / 6}[k])
