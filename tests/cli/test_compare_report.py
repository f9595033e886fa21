"""`mlfs compare` and `mlfs report`, with the library replaced and end to end."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from click.testing import Result

from mlfs_dask.reporting.contents import read_contents
from mlfs_dask.reporting.pairs import pairs_section
from tests.evaluation.evaluations import steady, write_evaluation

Run = Callable[..., Result]
MEANS = {"elc": 0.8, "random": 0.5}


@pytest.fixture(scope="module")
def evaluations(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    place = tmp_path_factory.mktemp("evaluations")
    return [
        write_evaluation(place / f"{name}.eval", name, steady(MEANS, seed=seed), runs=list(MEANS), grid=[2])
        for seed, name in enumerate("ab")
    ]


def test_compare_passes_its_options_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlfs_dask.evaluation import comparison

    calls: list[Any] = []

    def stop(*args: Any, **kwargs: Any) -> None:
        calls.append((args, kwargs))
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison, "compare", stop)
    run(
        "compare",
        "x",
        "y",
        "-o",
        tmp_path / "cmp",
        "--run",
        "b",
        "--run",
        "a",
        "--control",
        "a",
        "-k",
        5,
        "--alpha",
        0.1,
    )
    assert calls == [((("x", "y"),), {"runs": ("b", "a"), "control": "a", "k": 5, "alpha": 0.1})]


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


def test_compare_as_json(run_json: Callable[..., Any], evaluations: list[Path], tmp_path: Path) -> None:
    found = run_json("compare", *evaluations, "-o", tmp_path / "cmp")
    assert found["datasets"] == ["a", "b"]
    # All data sets rank alike: F is infinite, which JSON has not.
    assert found["tests"][0]["friedman"]["f"] is None
    assert "tests.json" in found["files"]


def test_report_passes_its_options_on(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlfs_dask.reporting import page

    calls: list[Any] = []

    def fake(*args: Any, **kwargs: Any) -> dict[str, Any]:
        calls.append((args, kwargs))
        return {"page": "p", "bytes": 1, "figures": 0, "notes": []}

    monkeypatch.setattr(page, "report", fake)
    words = [
        "x",
        "y",
        "-o",
        "p",
        "--title",
        "T",
        "--metric",
        "m",
        "--image-shape",
        "8x4",
        "--figures",
        "f",
        "--no-data",
    ]
    assert run("report", *words, "--force", "--in-process").exit_code == 0
    keywords = {"title": "T", "metrics": ("m",), "image_shape": (8, 4), "figures": "f", "data": False, "force": True}
    assert calls == [((("x", "y"), "p"), keywords)]


def test_report_end_to_end(run: Run, evaluations: list[Path], tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    result = run("report", *evaluations, "-o", page, "--in-process")
    assert result.exit_code == 0, result.stderr
    assert f"written  {page}" in result.stdout
    assert "Feature selection on a, b" in page.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["compare", "-o", "c"], 2, "Missing argument 'EVAL...'"),
        (["compare", "absent", "-o", "c"], 3, "no eval.json here"),
        (["report", "absent", "-o", "p.html", "--in-process"], 3, "none of run.json, eval.json"),
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
    shown = [(row[0].text, row[1].text) for row in table_of_pairs.rows]
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
    assert "there is no evaluation here, of which the metric 'blah' could be shown" in refused.stderr
    assert not (tmp_path / "page.html").exists()


def test_a_limit_of_memory_without_a_unit_asks_for_one(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    refused = run("select", "elc", tiny_store, "-k", "2", "-o", tmp_path / "run", "--memory-limit", "20")
    assert refused.exit_code == 2
    assert "'20' are bytes, in which no process runs; give a unit, as in 20GiB" in refused.stderr
