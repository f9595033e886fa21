"""Evaluation folders: written whole, read back to the same values, damage named."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.experiment import evaluate
from mlfs_dask.evaluation.results import Evaluation, read_eval, write_eval


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


def test_a_place_that_is_taken_is_kept(evaluation: Evaluation, tmp_path: Path) -> None:
    place = tmp_path / "e"
    write_eval(str(place), evaluation)
    with pytest.raises(UsageError, match="holds an evaluation already"):
        write_eval(str(place), evaluation)
    write_eval(str(place), evaluation, force=True)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").write_text("")
    with pytest.raises(UsageError, match="is not an evaluation"):
        write_eval(str(tmp_path / "other"), evaluation, force=True)
    assert {path.name for path in tmp_path.iterdir()} == {"e", "other"}


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("eval.json", None, "not a finished evaluation"),
        ("eval.json", "{}", "no record of an evaluation"),
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


def test_means(evaluation: Evaluation) -> None:
    means = evaluation.means()
    mine = evaluation.results.query("run == 'elc' and k == 2 and metric == 'hamming_loss'")["value"]
    row = means.query("run == 'elc' and k == 2 and metric == 'hamming_loss'").iloc[0]
    assert (row["mean"], row["count"]) == (pytest.approx(mine.mean()), 2)
    json.dumps(evaluation.record)
