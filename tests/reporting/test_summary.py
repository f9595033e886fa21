"""What a page says first."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

from mlfs_dask.evaluation.comparison import Comparison, compare
from mlfs_dask.reporting.contents import read_contents
from mlfs_dask.reporting.figures import Styles
from mlfs_dask.reporting.summary import leading_case, summary
from mlfs_dask.reporting.tables import Block
from tests.evaluation.evaluations import METRICS, steady, write_evaluation
from tests.reporting.conftest import MEANS, Folders, edited, select


def block(comparison: Comparison, runs: list[Path] | None = None, metric: str = "macro_f1") -> Block:
    labelled = read_contents(runs).runs if runs else []
    (found,) = summary(labelled, [comparison], [metric], Styles())
    return found


def test_one_data_set(folders: Folders) -> None:
    comparison = compare(folders.evaluations[:1])
    found = block(comparison, folders.runs)
    means = comparison.means[comparison.means["metric"] == "macro_f1"].set_index("run")
    elc, entropy, random, all_ = (means["mean"][run] for run in MEANS)
    assert found.texts[0] == (
        f"elc is the best of 2 methods on tiny: macro F1 ↑ {elc:.3f} ± {means['std']['elc']:.3f}, mean over "
        f"4 folds and k = 2 and 4. It is {elc - entropy:.3f} better than label-entropy, {elc - random:.3f} better than "
        f"random features and {all_ - elc:.3f} worse than all features."
    )
    assert found.texts[1] == "It is also the best method by 1 of the 1 other metrics."
    assert found.texts[2] == "Learning one ranking took 2.000 s with elc and 2.000 s with label-entropy."
    assert found.texts[3].startswith("Its run on all 40 rows took ")
    assert "1 pass (" in found.texts[3]
    (note,) = found.notes
    assert note.startswith("elc keeps 3 of 6 features: ")
    quality, seconds, chosen = found.figures
    assert quality.data["run"].tolist() == ["elc", "label-entropy", "random", "all"]
    assert seconds.data["run"].tolist()[:2] == ["elc", "label-entropy"]
    assert list(chosen.data.columns) == ["feature", "elc", "label-entropy"]


def test_what_a_test_does_not_tell_apart_is_not_significant(tmp_path: Path) -> None:
    means = {"elc": 0.8, "mfsir": 0.799}
    evaluation = write_evaluation(tmp_path / "e", "e", steady(means), runs=list(means))
    text = block(compare([evaluation])).texts[0]
    assert " (not significant). Significance is that of paired t-tests over the folds, α = 0.05." in text


def test_data_sets_that_lack_a_method_are_left_out(tmp_path: Path) -> None:
    """As in a batch that was interrupted."""
    means = {"elc": 0.6, "enm": 0.5}
    whole = [write_evaluation(tmp_path / name, name, steady(means), runs=list(means)) for name in ("a", "b")]
    short = write_evaluation(tmp_path / "c", "c", steady(means), runs=["enm"])
    (text, *_) = block(compare([*whole, short])).texts
    assert text.startswith("elc is the best of 2 methods on 2 data sets (a and b) by macro F1")
    assert "elc 1.00 and enm 2.00" in text
    assert text.endswith("Not every method was evaluated on c, left out here.")
    (text, *_) = block(compare([whole[0], short])).texts
    assert text.startswith("elc is the best of 2 methods on a: macro F1")
    assert text.count("c, left out here.") == 1


def test_of_a_data_set_that_lacks_a_method_neither_features_nor_seconds_count(tmp_path: Path) -> None:
    means = {"elc": 0.6, "enm": 0.5}
    whole = write_evaluation(tmp_path / "a", "a", steady(means), runs=list(means))
    short = write_evaluation(tmp_path / "b", "b", steady(means), runs=["enm"], grid=(3, 7))
    fits = pd.read_csv(short / "fits.csv")
    fits["seconds"] *= 10
    fits.to_csv(short / "fits.csv", index=False)
    text, _, seconds, *_ = block(compare([short, whole])).texts
    assert "mean over 4 folds and k = 2 and 4." in text
    assert seconds == "Learning one ranking took 2.000 s with elc and 2.000 s with enm."


@pytest.mark.parametrize(
    ("n_runs", "rest"), [(6, "; with 1 other it took 2.000 s."), (8, "; with 3 others it took 2.000 s.")]
)
def test_of_many_methods_the_best_are_timed_by_name(tmp_path: Path, n_runs: int, rest: str) -> None:
    means = {f"run{i}": 0.9 - 0.1 * i for i in range(n_runs)}
    (time,) = (
        text
        for text in block(compare([write_evaluation(tmp_path / "e", "e", steady(means), runs=list(means))])).texts
        if text.startswith("Learning one ranking")
    )
    assert time.endswith(f"2.000 s with run3 and 2.000 s with run4{rest}")


def test_several_data_sets(folders: Folders) -> None:
    comparison = compare(folders.evaluations)
    found = block(comparison)
    text = found.texts[0]
    assert text.startswith(
        "elc is the best of 2 methods on 3 data sets (other, third and tiny) by macro F1 ↑, and the methods do differ "
        "(Friedman's test, p = "
    )
    assert "). Average ranks: elc 1.00, label-entropy 2.00 and random 3.00. It is on average 0.0" in text
    assert found.texts[-1] == ("Which features it chooses: run mlfs select elc, and name its folder here too.")
    behind = found.figures[0].data
    assert (behind[behind["run"] == "elc"]["value"] == 0).all()
    assert (behind[behind["run"] == "all"]["value"] < 0).all()
    assert behind["dataset"].nunique() == 3


def test_random_features_are_no_method(tmp_path: Path) -> None:
    means = {"random": 0.9, "elc": 0.5}
    text = block(compare([write_evaluation(tmp_path / "e", "e", steady(means), runs=list(means))])).texts[0]
    assert text.startswith("Random features are better than every method here. elc is the one method on e: ")
    assert "worse than random features" in text
    alone = write_evaluation(tmp_path / "f", "f", steady(means), runs=["random"])
    assert block(compare([alone])).texts == ["No method was evaluated here that selects features."]


def test_the_metric_that_stands_for_all(tmp_path: Path, folders: Folders) -> None:
    comparison = compare(folders.evaluations[:1])
    text = block(comparison, metric="hamming_loss").texts[0]
    assert text.startswith("elc is the best of 2 methods on tiny: Hamming loss ↓ 0.")
    assert "better than random features" in text
    assert leading_case(comparison, []).metric == "hamming_loss"
    assert leading_case(comparison, ["macro_f1", "hamming_loss"]).metric == "macro_f1"
    metrics = [*METRICS, {"name": "average_precision", "title": "Average precision", "better": "higher"}]
    usual = write_evaluation(tmp_path / "e", "e", steady(MEANS), runs=list(MEANS), metrics=metrics)
    assert leading_case(compare([usual]), []).metric == "average_precision"


def test_runs_of_the_same_average_rank_go_by_their_means(tmp_path: Path) -> None:
    """The first by rank would otherwise be worse than the second by what is shown beside it."""
    values = {"x": {"elc": 0.6, "mfsir": 0.5}, "y": {"elc": 0.5, "mfsir": 0.9}}
    folders = [write_evaluation(tmp_path / d, d, steady(values[d]), runs=["elc", "mfsir"]) for d in values]
    text = block(compare(folders)).texts[0]
    assert text.startswith(
        "mfsir is the best of 2 methods on 2 data sets (x and y) by macro F1 ↑, but that may be chance"
    )
    assert "Average ranks: mfsir 1.50 and elc 1.50. It is on average 0.1" in text
    assert "better than elc." in text


def test_runs_without_an_evaluation(folders: Folders, tmp_path: Path) -> None:
    (found,) = summary(read_contents(folders.runs).runs, [], [], Styles())
    agreed, unknown = found.texts
    assert agreed.startswith("2 runs on tiny agree on these features: ")
    assert unknown == "How good these features are is not known here; the command mlfs evaluate tells."
    assert [note.split(" keeps ")[0] for note in found.notes] == ["elc", "label-entropy"]
    (figure,) = found.figures
    assert figure.name == "chosen-elc"
    (alone,) = summary(read_contents(folders.runs[:1]).runs, [], [], Styles())
    assert alone.texts[0].startswith("elc keeps 3 of 6 features: ")
    assert alone.figures[0].title == "elc: best features"
    assert summary([], [], [], Styles()) == []
    cached = edited(folders.runs[0], tmp_path / "run", passes=0, bytes_read=0, peak_worker_bytes=0)
    (found,) = summary(read_contents([cached]).runs, [], [], Styles())
    assert found.texts[0].endswith(" s and read no row: what it needs of them was in the cache.")


@pytest.mark.filterwarnings("ignore:.* features? kept do")
@pytest.mark.parametrize(("k", "words"), [(2, "near"), (6, " and 1 more.")])
def test_a_sentence_names_few_features(folders: Folders, tmp_path: Path, k: int, words: str) -> None:
    run = select(folders.store, "label-entropy", tmp_path / "run", k=k)
    (found,) = summary(read_contents([run]).runs, [], [], Styles())
    assert words in found.texts[0]
