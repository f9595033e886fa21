"""Several methods in one command: one reading, a run folder each."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from mlfs_dask.runtime import progress_to

Run = Callable[..., Result]
RunJson = Callable[..., Any]

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


def test_an_option_goes_to_the_methods_that_have_it(run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    words = ("select", "elc,mfsir,gmm", tiny_store, "-k", 2, "-o", tmp_path / "all", "--seed", 3, "--bins", 4)
    elc, mfsir, gmm = run_json(*words, "--max-iter", 50, "--lambda", 0.5, "--n-latent", 1)["runs"]
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
