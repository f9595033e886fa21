"""`mlfs compare` and `mlfs report`."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mlfs_dask.reporting.contents import read_contents
from mlfs_dask.reporting.features import pairs_section, rankings_section
from mlfs_dask.reporting.figures import Styles
from tests.cli.conftest import Run, RunJson
from tests.evaluation.evaluations import steady, write_evaluation

MEANS = {"elc": 0.8, "random": 0.5}


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("evaluations")
    return [
        write_evaluation(place / f"{name}.eval", name, steady(MEANS, seed=seed), runs=list(MEANS), grid=[2])
        for seed, name in enumerate("ab")
    ]


def test_compare_end_to_end(run: Run, evaluations: list[Path], tmp_path: Path) -> None:
    result = run("compare", *evaluations, "-o", tmp_path / "cmp")
    assert result.exit_code == 0, result.stderr
    assert "macro F1 ↑" in result.stdout
    assert "Friedman chi2 2.00" in result.stdout
    assert "note: two runs: the Wilcoxon signed-rank test is the stronger one." in result.stdout
    assert (tmp_path / "cmp" / "compare.json").is_file()
    again = run("compare", *evaluations, "-o", tmp_path / "cmp")
    assert again.exit_code == 2
    assert "holds a comparison already" in again.stderr


def test_compare_as_json(run_json: RunJson, evaluations: list[Path], tmp_path: Path) -> None:
    found = run_json("compare", *evaluations, "-o", tmp_path / "cmp")
    assert found["datasets"] == ["a", "b"]
    # All data sets rank alike: F is infinite, which JSON has not.
    assert found["tests"][0]["friedman"]["f"] is None
    assert "tests.json" in found["files"]
    words = ("--run", "random", "--run", "elc", "--control", "elc", "-k", 2, "--alpha", 0.1, "--force")
    found = run_json("compare", *evaluations, "-o", tmp_path / "cmp", *words)
    assert [run["run"] for run in found["runs"]] == ["random", "elc"]
    assert {(test["control"], test["alpha"]) for test in found["tests"]} == {("elc", 0.1)}
    assert json.loads((tmp_path / "cmp" / "compare.json").read_text())["k"] == 2


def test_report_end_to_end(run: Run, evaluations: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("report", *evaluations, "-o", page, "--in-process")
    assert result.exit_code == 0, result.stderr
    assert f"written  {page}" in result.stdout
    assert "Feature selection on a, b" in page.read_text(encoding="utf-8")
    words = ("--title", "A heading", "--metric", "macro_f1", "--figures", tmp_path / "drawn", "--force")
    assert run("report", *evaluations, "-o", page, *words).exit_code == 0
    text = page.read_text(encoding="utf-8")
    assert ("<h1>A heading</h1>" in text, "Hamming loss" in text) == (True, False)
    assert list((tmp_path / "drawn").glob("*.svg"))


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["compare", "-o", "c"], 2, "Missing argument 'EVAL...'"),
        (["compare", "absent", "-o", "c"], 3, "no eval.json here"),
        (["report", "absent", "-o", "p.html", "--in-process"], 3, "absent: there is no such folder"),
        (["report", "absent", "-o", "p.html", "--in-process", "--workers", "2"], 2, "name different places"),
        (
            ["report", "x", "-o", "p", "--image-shape", "8by8"],
            2,
            "'8by8' is no shape of an image; write rows x columns",
        ),
    ],
)
def test_refusals(
    run: Run, words: list[str], code: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    result = run(*words)
    assert result.exit_code == code
    assert message in result.stderr


def test_pairs_whose_p_values_are_too_small_for_numbers_are_told_apart(run: Run, tmp_path: Path) -> None:
    """Twenty features go with one label so surely that every p is 0, and one with the other label."""
    a, b = np.arange(4000) % 2, np.arange(4000) % 3 == 0
    columns = [np.where(np.arange(4000) % 89 < flipped, 1 - a, a) for flipped in range(1, 21)]
    table = np.column_stack([*columns[::-1], np.where(np.arange(4000) % 11 < 4, ~b, b), a, b]).astype(int)
    names = [*(f"flipped{number}" for number in range(20, 0, -1)), "of_b", "a", "b"]
    np.savetxt(tmp_path / "t.csv", table, "%d", ",", header=",".join(names), comments="")
    run("convert", tmp_path / "t.csv", tmp_path / "t.zarr", "--n-labels", 2)
    assert run("select", "br-cc", tmp_path / "t.zarr", "-k", 21, "--pairs", "all", "-o", tmp_path / "r").exit_code == 0
    (block,) = pairs_section(read_contents([tmp_path / "r"]).runs).blocks
    ((table_of_pairs,), (picture,)) = block.tables, block.figures
    shown = [tuple(row[:2]) for row in table_of_pairs.rows]
    best = [f"flipped{number}" for number in range(1, 4)]
    assert [feature for feature, label in shown if label == "a"] == best
    assert ("of_b", "b") in shown
    strength = picture.data.set_index("feature")["a"]
    assert (strength.drop("of_b").sort_values(ascending=False).index == [f"flipped{i}" for i in range(1, 21)]).all()
    assert strength.drop("of_b").is_unique


def test_a_metric_of_runs_alone_is_refused(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    assert run("select", "elc", tiny_store, "-k", "2", "-o", tmp_path / "run").exit_code == 0
    refused = run("report", tmp_path / "run", "--metric", "blah", "-o", tmp_path / "page.html")
    assert refused.exit_code == 2
    assert "there is no evaluation with the metric 'blah'" in refused.stderr
    refused = run("report", tmp_path / "run", "--image-shape", "4x6", "-o", tmp_path / "page.html")
    assert "an image of 4x6 has 24 pixels, elc has 5 features" in refused.stderr
    assert not (tmp_path / "page.html").exists()
    for words, shown in (((), True), (("--no-data", "--force"), False)):
        assert run("report", tmp_path / "run", "-o", tmp_path / "page.html", *words).exit_code == 0
        assert ('id="labels"' in (tmp_path / "page.html").read_text()) == shown


def test_features_that_say_the_same_are_listed(run: Run, tmp_path: Path) -> None:
    rows = np.arange(60)
    table = np.column_stack([rows % 7, rows % 7 + (rows == 0), rows % 5, rows % 7 > 2]).astype(int)
    np.savetxt(tmp_path / "t.csv", table, "%d", ",", header="one,same,other,y", comments="")
    run("convert", tmp_path / "t.csv", tmp_path / "t.zarr", "--n-labels", 1)
    for k in ("1", "2"):
        words = ("-k", k, "--redundancy", "0.9", "-o", tmp_path / k)
        assert run("select", "br-cc", tmp_path / "t.zarr", *words).exit_code == 0
    first, second = rankings_section(read_contents([tmp_path / "1", tmp_path / "2"]).runs, Styles(), None, ()).blocks
    ((chosen,),) = ([row[3] for row in table.rows] for table in first.tables)
    assert chosen == "same (1.00)"
    ((chosen,),) = ([row[3] for row in table.rows] for table in second.tables)
    assert chosen == "same (1.00, chosen)"
