"""Evaluation folders: written whole, read back to the same values, damage named; finished parts on the way there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.experiment import evaluate
from mlfs_dask.evaluation.job import PartialResults, partial_folder, remove_partial_results
from mlfs_dask.evaluation.results import Evaluation, read_eval, write_eval
from tests.evaluation.evaluations import write_evaluation


@pytest.fixture(scope="module")
def evaluation() -> Evaluation:
    random = np.random.default_rng(0)
    Y = random.integers(0, 2, (30, 2))
    return evaluate(random.normal(size=(30, 4)), ["elc", "label-entropy", "random"], labels=Y, name="NA", folds=2)


def test_written_and_read_again(evaluation: Evaluation, tmp_path: Path) -> None:
    write_eval(str(tmp_path / "e"), evaluation)
    again = read_eval(tmp_path / "e")
    assert sorted(path.name for path in (tmp_path / "e").iterdir()) == [
        "eval.json",
        "fits.csv",
        "rankings.csv",
        "results.csv",
    ]
    for name in ("results", "rankings", "fits"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(evaluation, name), check_exact=True)
    assert again.results["value"].isna().any()  # precision at 3 of two labels
    assert set(again.results["dataset"]) == {"NA"}
    assert again.fits["converged"].isna().any()  # label-entropy has no loop
    assert again.record["kind"] == "eval"
    first = (tmp_path / "e" / "results.csv").read_text().splitlines()[0]
    assert first == "dataset,run,method,classifier,k,repeat,fold,metric,value"


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("eval.json", None, "not a finished evaluation"),
        ("eval.json", "{}", "not the record of an evaluation"),
        ("eval.json", '{"format_version": 1, "kind": "compare"}', "kind is 'compare'"),
        ("eval.json", '{"format_version": 3, "kind": "eval"}', "format_version 3 is newer"),
        ("results.csv", None, "not a finished evaluation"),
        ("results.csv", "a,b\n1,2\n", "damaged"),
        ("fits.csv", "x" * 10, "damaged"),
    ],
)
def test_damage_is_named(evaluation: Evaluation, tmp_path: Path, file: str, text: str | None, message: str) -> None:
    place = tmp_path / "e"
    write_eval(str(place), evaluation)
    if text is None:
        (place / file).unlink()
    else:
        (place / file).write_text(text)
    with pytest.raises(DataError, match=message):
        read_eval(place)


VALUES = {
    2: (0.60, 0.64, 0.62, 0.66),
    4: (0.69, 0.71, 0.73, 0.71),
    6: (0.70, 0.74, 0.72, 0.72),
    8: (0.7, 0.7, 0.7, 0.7),
}


def test_the_fewest_features_within_one_standard_error_of_the_best(tmp_path: Path) -> None:
    """Means .63, .71, .72 and .70 with a standard error of .00816 at the best: .71 is not within it, .712 is."""
    near = {**VALUES, 4: (0.692, 0.712, 0.732, 0.712)}

    def value(run: str, metric: str, k: int, fold: int) -> float | None:
        found = (near if run == "mfsir" else VALUES).get(k, (1.0,) * 4)[fold]
        return found if metric == "macro_f1" else 1 - found

    place = write_evaluation(tmp_path / "e", "a", value, runs=("elc", "mfsir", "all"), grid=(2, 4, 6, 8))
    found = read_eval(place)
    for metric in ("macro_f1", "hamming_loss", None):
        chosen = found.choose_k(metric)
        assert chosen[["run", "classifier", "k", "best_k"]].to_numpy().tolist() == [
            ["elc", "mlknn", 6, 6],
            ["mfsir", "mlknn", 4, 6],
        ]
        assert chosen["standard_error"].tolist() == pytest.approx([0.00816, 0.00816], abs=1e-5)
        assert set(chosen["metric"]) == {metric or "hamming_loss"}
    best = chosen["best_mean"] if metric == "macro_f1" else 1 - chosen["best_mean"]
    assert best.tolist() == pytest.approx([0.72, 0.72])


def test_k_is_not_chosen_by_what_was_not_computed_or_by_one_split(tmp_path: Path) -> None:
    found = read_eval(write_evaluation(tmp_path / "e", "a", lambda run, metric, k, fold: 0.5, folds=1))
    with pytest.raises(UsageError, match="coverage, which was not computed; computed: hamming_loss, macro_f1"):
        found.choose_k("coverage")
    with pytest.raises(UsageError, match="there is a single split; give --folds 5"):
        found.choose_k()


def test_parts_are_taken_up_by_the_same_job_alone(tmp_path: Path) -> None:
    place = partial_folder(str(tmp_path / "a.eval"))
    assert place is not None
    kept = PartialResults(place, {"seed": 1}, resume=True)
    assert kept.load("elc 0 0") is None
    assert not place.exists()  # nothing was saved
    kept.save("elc 0 0", {"ranking": [2, 0]})
    assert PartialResults(place, {"seed": 1}, resume=True).load("elc 0 0") == {"ranking": [2, 0]}
    # A file that was cut off is no part.
    (file,) = [path for path in place.iterdir() if path.name != "job.json"]
    file.write_text('{"ranking": [2')
    assert PartialResults(place, {"seed": 1}, resume=True).load("elc 0 0") is None
    remove_partial_results(str(tmp_path / "a.eval"))
    assert not place.exists()
    for seed, resume in ((2, True), (1, False)):
        PartialResults(place, {"seed": 1}, resume=False).save("elc 0 0", {"ranking": []})
        assert PartialResults(place, {"seed": seed}, resume=resume).load("elc 0 0") is None
    assert partial_folder("s3://bucket/a.eval") is None
