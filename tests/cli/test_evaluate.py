"""`mlfs evaluate`: end to end."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from mlfs_dask.evaluation.results import read_eval
from tests.cli.conftest import Run, RunJson


def test_options(run_json: RunJson) -> None:
    found = run_json(
        *("evaluate", "--print-protocol", "--classifier", "mlknn,logistic", "--classifier", "sgd"),
        *("--n-neighbors", 3, "--smoothing", 0.5, "-C", 2, "--scale", "none", "--metrics", "one_error, coverage"),
        *("--k-grid", "1:3:1", "--split", "holdout", "--folds", 4, "--repeats", 2, "--test-size", 0.3),
        *("--missing-labels", 0.1, "--labelled-rows", 0.5, "--hidden-as", "zero", "--unlabelled-test"),
        *("--classifier-labels", "full", "--max-train-rows", 9, "--missing", "median", "--seed", 7),
    )
    assert found == {
        "classifiers": ["mlknn", "logistic", "sgd"],
        "n_neighbors": 3,
        "smoothing": 0.5,
        "C": 2.0,
        "scale": "none",
        "metrics": ["one_error", "coverage"],
        "k_grid": "1:3:1",
        "split": "holdout",
        "folds": 4,
        "repeats": 2,
        "test_size": 0.3,
        "missing_labels": 0.1,
        "labelled_rows": 0.5,
        "hidden_as": "zero",
        "unlabelled_test": True,
        "classifier_labels": "full",
        "max_train_rows": 9,
        "seed": 7,
        "missing": "median",
    }


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["all", "--split", "holdout", "--repeats", 2], "k = 1 (all: 5); 20% held out, 2 times; written"),
        (["random", "--split", "stratified", "--folds", 2], "k = 1; 2 stratified folds; written"),
        (["random", "--test-store", ""], "k = 1; the given split; written"),
    ],
)
def test_splits_are_told_in_words(run: Run, tiny_store: Path, tmp_path: Path, words: list[Any], told: str) -> None:
    words = [tiny_store if word == "" else word for word in words]
    assert told in run("evaluate", tiny_store, *words, "--k-grid", 1, "-o", tmp_path / "e").stdout


def test_the_help_names_all_protocols(run: Run) -> None:
    from mlfs_dask.evaluation.protocols import PROTOCOLS

    told = " ".join(run("evaluate", "--help").stdout.split()).replace("- ", "-")  # a line may end behind a hyphen
    assert f"{', '.join(list(PROTOCOLS)[:-1])} or {list(PROTOCOLS)[-1]};" in told


def test_end_to_end(run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    place, finished = tmp_path / "e", tmp_path / "tiny.elc"
    run_json("select", "elc", tiny_store, "-k", 2, "-o", finished)
    words = ("evaluate", tiny_store, "elc", finished, "random", "--k-grid", "1,2", "--folds", "2", "-o", place)
    words += ("--name", "small")
    result = run(*words)
    assert result.exit_code == 0, result.stderr
    assert "means over k = 1, 2; 2 folds; written" in result.stdout
    assert "mlfs: tiny.elc was learnt on all rows" in result.stderr
    with (place / "results.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert {row["run"] for row in rows} == {"elc", "tiny.elc", "random"}
    assert {row["dataset"] for row in rows} == {"small"}
    assert len(rows) == 3 * 2 * 2 * 13
    record = json.loads((place / "eval.json").read_text())
    assert record["command"].startswith("mlfs evaluate ")
    assert len(record["warnings"]) == 1
    # A place that is taken; what is complete already; and the same again.
    assert run(*words).exit_code == 2
    again = run(*words, "--resume")
    assert again.exit_code == 0
    assert "complete already" in again.stderr
    for other in (("--folds", "3"), ("chi2",)):  # another evaluation is not done
        again = run(*words, *other, "--resume")
        assert (again.exit_code, "holds an evaluation already" in again.stderr) == (2, True)
    shown = run_json(*words, "--force")
    assert shown["eval"] == str(place)
    first = next(m for m in shown["means"] if m["metric"] == "hamming_loss")
    assert (first["run"], first["k"], first["count"]) == ("elc", 1, 2)
    assert not list(tmp_path.glob(".e.partial"))


def test_what_is_planned_and_printed(run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    plan = run_json("evaluate", tiny_store, "elc", "all", "--k-grid", "2", "--dry-run")
    assert (plan["fits"], plan["splits"], plan["k"]) == (5, 5, [2])
    assert plan["judging_bytes"] > 0
    part = ("--rows", "0:30", "--test-store", tiny_store)  # of what is learnt from alone
    plan = run_json("evaluate", tiny_store, "elc", *part, "--k-grid", "2", "--dry-run")
    assert (plan["train_rows"], plan["test_rows"]) == (30, 40)
    assert not list(tmp_path.iterdir())
    settings = run_json("evaluate", "--protocol", "elc-2020", "--folds", "3", "--print-protocol")
    assert (settings["folds"], settings["k_grid"]) == (3, "10%:90%:10%")
    text = run("evaluate", "--protocol", "smfs-2020", "--print-protocol").stdout
    assert "missing_labels" in text
    assert "four such experiments" in text


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["elk"], 2, "Did you mean elc"),
        ([], 2, "give a STORE and one or more CANDIDATEs"),
        (["elc", "--protocol", "mfsr"], 2, "Did you mean mfsir"),
        (["elc", "--k-grid", "x"], 2, "--k-grid x"),
        (["elc", "--test-size", "2"], 2, "--test-size must be a positive number below 1; got 2.0"),
        (["elc", "--folds", "99"], 2, "--folds must be from 2 to the 40 rows"),
        (["elc", "--n-neighbors", "33"], 2, "--n-neighbors is 33, and the smallest training part has 32 rows; give"),
        (["ELC:variant=odd"], 2, "mlfs: variant must be one of corrected, published, screen; got 'odd'"),
        (["elc:max-iter=0"], 2, "mlfs: max_iter must be a whole number of at least 1; got 0"),
        (
            ["elc", "--split-file", "folds.txt", "--split", "kfold"],
            2,
            "--split-file gives the split, so --split kf",
        ),
        (
            ["elc", "--split-file", "folds.txt", "--repeats", "2"],
            2,
            "so --repeats 2 would have no effect; leave one",
        ),
        (
            ["elc", "--test-store", "{store}", "--folds", "3"],
            2,
            "--test-store gives the split, so --folds 3 would",
        ),
        (["elc", "--test-store", "{store}", "--test-size", "0.5"], 2, "so --test-size 0.5 would have no effect"),
        (["elc", "--split-file", "none.txt"], 3, "cannot be read"),
        (["elc", "--repeats", "1000000000"], 4, "5,000,000,000 splits of 40 rows: projected"),
        (["elc", "--clusters", "none.txt"], 2, "none.txt"),
        (["elc", "--workers", "2", "--in-process"], 2, "--workers and --in-process name different places"),
        (["elc", "--cache", "s3://bucket/c"], 2, "must be a local folder"),
        (["elc", "--performance-report", "r.html"], 2, "--performance-report"),
        (["elc", "--memory-limit", "1MiB"], 4, "the labels of all rows: projected"),
    ],
)
def test_exit_codes(
    run: Run,
    tiny_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    words: list[str],
    code: int,
    message: str,
) -> None:
    if "folds.txt" in words:
        monkeypatch.chdir(tiny_store.parent)
        Path("folds.txt").write_text("0\n1\n" * 20)
    words = [word.format(store=tiny_store) for word in words]
    result = run("evaluate", tiny_store, *words, "-o", tmp_path / "e")
    assert (result.exit_code, message in result.stderr) == (code, True), result.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_killed_evaluation_goes_on(tiny_store: Path, tmp_path: Path) -> None:
    place = tmp_path / "e"
    words = ["evaluate", str(tiny_store), "elc", "random", "--k-grid", "2", "--repeats", "3", "--metrics", "one_error"]
    command = [sys.executable, "-m", "mlfs_dask", *words, "-o", str(place), "--resume", "--quiet"]
    process = subprocess.Popen(command, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    kept = tmp_path / ".e.partial"
    until = time.monotonic() + 120
    while len(list(kept.glob("*.json"))) < 3 and time.monotonic() < until and process.poll() is None:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    assert not place.exists()
    finished = next(path for path in kept.glob("*.json") if '"values"' in path.read_text())
    document = json.loads(finished.read_text())
    document["values"][0][-1] = 0.125  # of which it is seen again: no metric of these rows has it
    finished.write_text(json.dumps(document))
    watched = subprocess.run([*command, "--progress", "none"], capture_output=True, text=True, check=False)
    assert watched.returncode == 0, watched.stderr
    assert not kept.exists()
    results = read_eval(place).results
    assert len(results) == 2 * 3 * 5
    assert 0.125 in results["value"].to_numpy()


def test_k_is_chosen_and_recorded(run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    words = ("evaluate", tiny_store, "label-entropy", "random", "--k-grid", "1:3:1", "--folds", 3, "--choose-k")
    printed = run(*words, "-o", tmp_path / "e")
    assert printed.exit_code == 0
    record = json.loads((tmp_path / "e" / "eval.json").read_text())
    assert [(choice["run"], choice["metric"]) for choice in record["chosen_k"]] == [
        ("label-entropy", "average_precision"),
        ("random", "average_precision"),
    ]
    choice = record["chosen_k"][0]
    assert choice["k"] in (1, 2, 3)
    assert f"label-entropy, mlknn: k = {choice['k']}, the fewest features within one standard error" in printed.stdout
    again = run_json(*words, "-o", tmp_path / "e", "--resume")
    assert again["chosen_k"] == record["chosen_k"]
    plain = run_json(*words[:-1], "-o", tmp_path / "plain")
    assert "chosen_k" not in plain


def test_one_split_chooses_no_k(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    result = run("evaluate", tiny_store, "elc", "--split", "holdout", "--choose-k", "-o", tmp_path / "e")
    assert result.exit_code == 2
    assert "there is a single split" in result.stderr
    assert not (tmp_path / "e").exists()


def test_categories_of_test_rows_are_those_of_the_rows_to_learn_from(run: Run, tmp_path: Path) -> None:
    """Codes count the values of a file: without a red row, green is another number."""
    colours = ["blue", "green", "red"] * 20
    for name, rows in (("train", range(60)), ("same", range(30)), ("fewer", [i for i in range(60) if i % 3])):
        lines = [f"{i % 7},{colours[i]},{i % 2}" for i in rows]
        (tmp_path / f"{name}.csv").write_text("\n".join(["size,colour,y", *lines]) + "\n")
        run("convert", tmp_path / f"{name}.csv", tmp_path / f"{name}.zarr", "--label-columns", "y")
    asked = ("evaluate", tmp_path / "train.zarr", "br-cc", "--k-grid", "1", "--n-neighbors", "3", "-o")
    assert run(*asked, tmp_path / "eval", "--test-store", tmp_path / "same.zarr").exit_code == 0
    refused = run(*asked, tmp_path / "other", "--test-store", tmp_path / "fewer.zarr")
    assert refused.exit_code == 3
    assert "feature 'colour' has other values there ('blue', 'green', 'red'; 'green', 'red')" in refused.stderr
    assert "mlfs append" in refused.stderr
    (tmp_path / "more.csv").write_text("size,colour,y\n1,blue,0\n2,green,1\n3,red,2\n")
    for name in ("train", "more"):
        run("convert", tmp_path / f"{name}.csv", tmp_path / f"{name}.c.zarr", "--label-columns", "y", "--label-classes")
    asked = ("evaluate", tmp_path / "train.c.zarr", "br-cc", "--k-grid", "1", "-o", tmp_path / "other")
    refused = run(*asked, "--test-store", tmp_path / "more.c.zarr")
    assert refused.exit_code == 3
    assert "label 'y=0' is in the test rows alone" in refused.stderr
    assert not (tmp_path / "other").exists()
