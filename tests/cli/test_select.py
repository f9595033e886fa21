"""`mlfs select`: several methods in one command, options that would change nothing, and parts of a store."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import mlfs_dask as mlfs
from mlfs_dask.runtime import progress_to
from tests.cli.conftest import Run, RunJson
from tests.storage.stores import make_store

FILES = ("ranking.csv", "selected.txt")


def test_methods_share_a_reading_and_rank_as_they_do_alone(run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    """Equal counts are made once."""
    methods = "chi2,ENM,gmm,label-entropy,br-cc,br-or,ela-chi,anova-f,fisher,mfs-f,mddm,elc"
    events: list[dict[str, Any]] = []
    with progress_to(events.append):
        found = run_json("select", methods, tiny_store, "-k", "40%", "-o", tmp_path / "all", "--cache", tmp_path)
    names = methods.lower().split(",")
    assert [each["method"] for each in found["runs"]] == names
    assert [event["label"] for event in events if event["kind"] == "pass"] == ["shared"]
    jobs = [(e["number"], e["total"], e["name"]) for e in events if e["kind"] == "job"]
    assert jobs == [(number, len(names), name) for number, name in enumerate(names, start=1)]
    assert sorted(found["shared"]["statistics"]) == ["assigned-counts", "cardinality-moments", "counts", "products"]
    assert found["shared"]["bytes_read"] > 0
    assert sorted(path.name for path in (tmp_path / "all").iterdir()) == sorted(names)
    for each in found["runs"]:
        assert (each["passes"], each["run"]) == (0, str(tmp_path / "all" / each["method"]))
        run_json("select", each["method"], tiny_store, "-k", 2, "-o", tmp_path / each["method"])
        for file in FILES:
            alone = (tmp_path / each["method"] / file).read_bytes()
            assert (tmp_path / "all" / each["method"] / file).read_bytes() == alone


def test_an_option_goes_to_the_methods_that_have_it(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    words = ("select", "elc,mfsir,gmm", tiny_store, "-k", 2, "-o", tmp_path / "all", "--seed", 3, "--bins", 4)
    result = run(*words, "--max-iter", 50, "--lambda", 0.5, "--n-latent", 1, "--json")
    elc, mfsir, gmm = json.loads(result.stdout)["runs"]
    assert "--n-latent has no effect on elc, gmm, which has no such option" in result.stderr
    assert (elc["params"]["max_iter"], elc["params"]["lambda_"]) == (50, 0.5)
    assert (mfsir["params"]["max_iter"], mfsir["params"]["lambda_"]) == (50, 0.5)
    assert (mfsir["params"]["n_latent"], mfsir["seed"]) == (1, 3)
    assert (gmm["params"]["bins"], gmm["seed"]) == (4, 3)
    # What was not given is each method's own default.
    assert (elc["params"]["beta"], mfsir["params"]["beta"]) == (None, 1.0)


def test_what_is_complete_is_not_run_again(run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    words = ("select", "elc,gmm", tiny_store, "-k", 2, "-o", tmp_path / "all")
    run_json("select", "gmm", tiny_store, "-k", 2, "-o", tmp_path / "all" / "gmm")
    before = (tmp_path / "all" / "gmm" / "run.json").read_bytes()
    refused = run(*words)
    assert refused.exit_code == 2
    assert "all/gmm holds a run already" in refused.stderr
    assert not (tmp_path / "all" / "elc").exists()
    resumed = run(*words, "--resume")
    assert resumed.exit_code == 0
    assert "all/gmm is complete already" in resumed.stderr
    assert resumed.stdout.count("written") == 2
    assert "read together" not in resumed.stdout
    assert (tmp_path / "all" / "gmm" / "run.json").read_bytes() == before
    assert json.loads((tmp_path / "all" / "elc" / "run.json").read_bytes())["method"] == "elc"
    shown = run(*words, "--force", "--cache", tmp_path).stdout
    assert re.match(r"read together +[\d.]+ \w+ for (products, counts|counts, products)\n", shown)


@pytest.mark.parametrize("option", [("--max-iter", 0), ("--memory-limit", "1MB")])
def test_what_cannot_run_is_refused_before_the_first_method_does(
    run: Run, tiny_store: Path, tmp_path: Path, option: tuple[object, ...]
) -> None:
    result = run("select", "gmm,elc", tiny_store, "-k", 2, "-o", tmp_path / "all", *option)
    assert result.exit_code == (2 if option[0] == "--max-iter" else 4)
    assert not (tmp_path / "all").exists()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("-k 2 --fdr 0.2", "--fdr changes nothing without -k auto or --pairs"),
        ("-k 2 --group-by max", "--group-by changes nothing without --groups"),
        ("-k 2 --strata-by rank", "--strata-by changes nothing without --strata"),
        ("--min-labels 9", "--min-labels is 9, and there are 2 labels"),
        ("-k 2 --keep near,near", "--keep: feature 'near' is chosen twice"),
        ("-k 2 --keep 'y*'", "there is no feature 'y*'"),
        ("-k 2 --strata near", "the column of strata 'near' is not there; the rows have no columns"),
        ("-k 2 --dry-run", "No such option '--dry-run'. mlfs plan METHOD STORE prints"),
    ],
)
def test_options_that_would_change_nothing_are_usage(
    run: Run, tiny_store: Path, tmp_path: Path, options: str, said: str
) -> None:
    result = run("select", "br-cc", tiny_store, *shlex.split(options), "-o", tmp_path / "run")
    assert result.exit_code == 2
    assert said in result.stderr
    assert not (tmp_path / "run").exists()


def test_names_take_patterns_and_excluded_features_have_no_score(run: Run, tmp_path: Path) -> None:
    rows = [f"{i % 2},{i % 3},{i % 5},{i % 7},{i % 2},{(i + 1) % 2}" for i in range(42)]
    (tmp_path / "t.csv").write_text("\n".join(["gene_a,gene_b,age,id,fault_1,fault_2", *rows]) + "\n")
    store = tmp_path / "t.zarr"
    run("convert", tmp_path / "t.csv", store, "--label-columns", "fault_*", "--drop", "i?")
    chosen = run("select", "br-cc", store, "-k", "2", "--exclude", "gene_*", "--keep", "ag?", "-o", tmp_path / "run")
    assert chosen.exit_code == 2  # one feature is left
    result = run("select", "br-cc", store, "-k", "1", "--exclude", "gene_*", "--keep", "ag?", "-o", tmp_path / "run")
    assert result.exit_code == 0, result.stderr
    ranking = (tmp_path / "run" / "ranking.csv").read_text().splitlines()
    assert [line.split(",")[2] for line in ranking] == ["feature_name", "age", "gene_a", "gene_b"]
    assert [line.endswith(",") for line in ranking] == [False, False, True, True]
    told = run("report", tmp_path / "run", "-o", tmp_path / "report.html")
    assert told.exit_code == 0, told.stderr
    assert "nan" not in (tmp_path / "report.html").read_text().lower().replace("nand", "")
    assert run("select", "br-cc", store, "-k", "1", "--labels", "fault_?", "-o", tmp_path / "two").exit_code == 0


def test_a_run_goes_on_only_where_a_run_from_the_start_would_choose_the_same(
    run: Run, tiny_store: Path, tmp_path: Path
) -> None:
    first = tmp_path / "first"
    assert run("select", "mrmr", tiny_store, "-k", "2", "-o", first).exit_code == 0
    chosen = [line.split(",")[2] for line in (first / "ranking.csv").read_text().splitlines()[1:]]
    more = ("select", "mrmr", tiny_store, "-k", "3", "--start", first, "--keep")
    refused = run(*more, chosen[-1], "-o", tmp_path / "other")
    assert refused.exit_code == 2
    assert "a run from the start begins from the features of --keep" in refused.stderr
    assert run(*more, chosen[1], "-o", tmp_path / "same").exit_code == 0


def test_the_store_may_come_first_or_last(run, tiny_store, tmp_path) -> None:
    for words in (("select", tiny_store, "br-cc"), ("plan", tiny_store, "br-cc")):
        assert run(*words, *(["-k", 2, "-o", tmp_path / "run"] if words[0] == "select" else [])).exit_code == 0
    done = run("evaluate", "br-cc", "random", tiny_store, "--dry-run", "--folds", 2, "--k-grid", 2)
    assert done.exit_code == 0, done.stderr


PART = ("--rows", "0:90", "--features", "1:6", "--labels", "label 0,label 2")
JUDGED = ("--folds", "2", "--metrics", "hamming_loss", "--force")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    Y = (rng.random((120, 4)) < 0.4).astype(np.int8)
    X = rng.normal(size=(120, 8))
    X[:, :4] += Y
    return make_store(tmp_path / "a.zarr", X, Y, partition_bytes=1500)


def test_a_part_is_selected_from_resumed_and_transformed(store, run, run_json):
    record = run_json("select", "elc", "a.zarr", "-k", "2", "-o", "run", *PART)
    assert (record["n"], record["d"], record["q"], record["k"]) == (90, 5, 2, 2)
    whole = mlfs.open_dataset(store)
    part = whole.subset(rows="0:90", features="1:6", labels="label 0,label 2")
    assert record["store"]["digest"] == part.digest
    assert record["store"]["subset"] == {
        "of": whole.digest,
        "rows": {"count": 90, "expression": "0:90"},
        "labels": {"count": 2, "expression": "label 0,label 2"},
        "features": {"count": 5, "expression": "1:6"},
    }
    expected = mlfs.ELC(2).fit(part)
    assert record["selected"] == part.feature_names[expected.ranking_[:2]].tolist()
    again = ("select", "elc", "a.zarr", "-k", "2", "-o", "run", "--resume")
    assert "complete already" in run(*again, *PART).stderr
    assert run(*again).exit_code == 2  # of another part: nothing is mixed up, and nothing replaced
    run_json("transform", "a.zarr", "run", "chosen.npz")
    run_json("transform", "a.zarr", "run", "chosen.zarr")
    chosen = mlfs.open_dataset("chosen.zarr")
    assert chosen.feature_names.tolist() == part.feature_names[np.sort(expected.ranking_[:2])].tolist()
    assert chosen.shape == (120, 2)


def test_a_part_is_planned_and_evaluated(store, run_json):
    part, whole = (run_json("plan", "elc", "a.zarr", *rows) for rows in (("--rows", "0:30"), ()))
    assert part["bytes_read"] < whole["bytes_read"]
    record = run_json("evaluate", "a.zarr", "elc", "-o", "eval", "--k-grid", "2", *PART, *JUDGED)["store"]
    assert (record["n"], record["d"], record["q"]) == (90, 5, 2)
    assert record["subset"]["rows"] == {"count": 90, "expression": "0:90"}


def test_rows_of_a_file_and_what_is_not_there(store, run, run_json):
    Path("train.txt").write_text("5\n3\n")
    record = run_json("select", "elc", "a.zarr", "--rows", "train.txt", "-k", "2", "-o", "run")
    assert record["store"]["subset"]["rows"] == {"count": 2, "expression": "train.txt"}
    Path("train.txt").write_text("5\n3\n500\n")
    for part, code, message in (
        (("--rows", "train.txt"), 3, "train.txt, line 3, value '500': there is no row number 500"),
        (("--labels", "label 7"), 2, "there is no label 'label 7'"),
        (
            ("--rows", "cell 7"),
            2,
            "there is no row 'cell 7', and no file 'cell 7'. Rows have no names: give numbers, r",
        ),
    ):
        refused = run("plan", "elc", "a.zarr", *part)
        assert (refused.exit_code, message in refused.stderr) == (code, True), refused.stderr


def test_a_run_of_some_rows_is_judged_on_others(store, run, run_json):
    """A warning where they are, or may be, rows that it was learnt on."""
    Path("train.txt").write_text("\n".join(map(str, range(60))))
    Path("test.txt").write_text("\n".join(map(str, range(60, 120))))
    for name, rows in (("some", "0:60"), ("listed", "train.txt")):
        run_json("select", "label-entropy", "a.zarr", "-k", "2", "-o", name, "--rows", rows)
        for judged, shared in ((("--rows", "60:"), False), (("--rows", "test.txt"), False), ((), True)):
            done = run("evaluate", "a.zarr", name, "-o", "eval", *judged, *JUDGED)
            told = f"{name} was learnt on rows that it is scored on" in done.stderr
            assert (done.exit_code, told, "its results are optimistic" in done.stderr) == (0, shared, shared), (
                done.stderr
            )
    for name, end in (("some", 60), ("listed", 70)):  # of the second nobody knows any more which they were
        Path("train.txt").write_text("\n".join(map(str, range(10, end))))
        done = run("evaluate", "a.zarr", name, "-o", "eval", "--rows", "59:" if end == 60 else "60:", *JUDGED)
        assert (done.exit_code, "its results are optimistic" in done.stderr) == (0, True), done.stderr


def test_a_run_of_some_features_is_judged_on_the_same(store, run, run_json):
    for name, features in (("some", ("--features", "1:6")), ("all", ())):
        run("select", "label-entropy", "a.zarr", "-k", "2", "-o", name, "--labels", "1", *features)
    run_json("evaluate", "a.zarr", "./some", "-o", "eval", "--features", "1:6", *JUDGED)
    refused = run("evaluate", "a.zarr", "./some", "-o", "eval", *JUDGED)
    assert refused.exit_code == 3
    assert "this run ranks 5 features, but the data has 8" in refused.stderr
    assert "cure: choose the features that the run was made from (--features 1:6)" in refused.stderr
    refused = run("evaluate", "a.zarr", "./all", "-o", "eval", "--features", "1:6", *JUDGED)
    assert (refused.exit_code, "cure: leave out --features" in refused.stderr) == (3, True)
