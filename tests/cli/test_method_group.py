"""Methods on the command line: their names, help, options, and how messages spell these."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlfs_dask as mlfs
from mlfs_dask.batch.spec import read_spec
from mlfs_dask.errors import UsageError
from mlfs_dask.evaluation.candidates import read_candidate
from mlfs_dask.selection.estimator import get_estimator
from tests.cli.conftest import Run, RunJson


@pytest.mark.parametrize("command", ["select", "plan"])
def test_the_help_of_a_group_shows_what_every_method_has(run: Run, command: str) -> None:
    shown = run(command, "-h").stdout
    assert shown == run(command, "--help").stdout
    for option in ("--workers", "--memory-limit", "--scheduler", "--cache", "--json"):
        assert f"\n  {option} " in shown
    assert "access-mfs, ami" in shown
    assert "--lambda" not in shown
    assert "\n  -k K " in shown
    assert ("\n  -o RUN " in shown) == (command == "select")


def test_the_help_of_a_method_has_sections_defaults_and_bounds(run: Run) -> None:
    shown = run("help", "select", "elc").stdout
    assert shown == run("select", "elc", "--help").stdout
    headings = ["Options", "Options of elc", "Options of every method", "Rows, labels and features to use"]
    headings += ["Labels and columns of files", "Workers, memory and cache", "Output"]
    assert [line[:-1] for line in shown.splitlines() if line.endswith(":") and line[0] != " "] == headings
    words = " ".join(shown.split())
    assert "--fdr FLOAT False discovery rate: expected share of false features" in words
    assert "those that --pairs calls significant. [default: 0.1; 0<x<1]" in words  # in Python `pairs`
    assert "--keep NAMES Features" in words
    assert "--lambda FLOAT Weight of the row-sparse penalty." in words  # whose default, None, needs no typing
    assert max(map(len, shown.splitlines())) <= 80


def test_the_help_of_several_methods_has_the_options_of_all(run: Run) -> None:
    shown = run("select", "elc,mfsir", "-h").stdout
    for option in ("--variant", "--n-anchors", "--max-iter", "--checkpoint-every", "-k K"):
        assert f"\n  {option} " in shown
    assert shown.count("--max-iter INT") == 1
    assert "--graph anchors|exact|auto" in shown  # as it has to be typed
    assert "Embedding label correlations: Wang et al. 2020" in shown
    # Where the defaults differ none is shown.
    assert "[default: 5000; x>=1]" in " ".join(run("select", "elc", "-h").stdout.split())
    assert "default: 5000" not in " ".join(shown.split())


def test_a_value_that_one_of_several_methods_refuses_names_that_method(run: Run, tiny_store: Path) -> None:
    words = (tiny_store, "-k", "1", "-o", "run", "--missing", "code")
    said = "--missing must be one of error, mean, median; got 'code'."
    assert f"{said} (elc)\n" in run("select", "enm,elc", *words).stderr
    assert f"{said}\n" in run("select", "elc", *words).stderr


def test_one_method_is_described_with_its_citation_and_the_help_of_its_options(run: Run, run_json: RunJson) -> None:
    shown = run("methods", "ELC").stdout
    assert shown.startswith("elc  Embedding label correlations\n")
    assert "10.3390/app10228093" in shown
    assert '--mask-iter int (default: 200; x>=0)\n      Number of iterations of "corrected"' in shown
    assert "mfsir" not in shown
    assert max(map(len, shown.splitlines())) <= 100
    assert "there is no method 'elk'. Did you mean elc" in run("methods", "elk").stderr
    described = run_json("methods", "elc")
    assert (described["name"], described["doi"]) == ("elc", "10.3390/app10228093")


def test_names_of_methods_may_be_in_capitals_everywhere(
    run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path
) -> None:
    assert get_estimator("Label_Entropy").plain.method == "label-entropy"
    assert run_json("plan", "ELC", tiny_store)["passes"] == 1
    assert run_json("select", "ELC", tiny_store, "-k", "50%", "-o", tmp_path / "run")["method"] == "elc"
    candidate = read_candidate("ELC:lambda=0.5")
    assert (candidate.run, candidate.method) == ("elc:lambda=0.5", "elc")
    (job,) = read_spec({"stores": [str(tiny_store)], "methods": ["ELC"], "k": [2]}).jobs
    assert (job.point.run, job.point.method) == ("elc", "elc")


@pytest.mark.parametrize(
    ("method", "options", "message"),
    [
        ("elc", ("--lambda", "-1"), "mlfs: --lambda must be a non-negative number; got -1.0"),
        ("elc", ("--max-iter", "0"), "mlfs: --max-iter must be a whole number of at least 1; got 0"),
        ("enm", ("--bins", "1"), "mlfs: --bins must be a whole number from 2 to"),
        ("mfsir", ("--step", "fixed", "--graph", "anchors"), "--step fixed is a published form, which has the exact"),
        ("mfsir", ("--n-latent", "9"), "mlfs: --n-latent is 9, but there are 2 labels"),
        ("elc", ("--workers", "0"), "mlfs: --workers must be at least 1; it is 0"),
        ("elc", ("--in-process", "--workers", "2"), "mlfs: --workers and --in-process name different places"),
        ("gmm", ("-k", "auto", "--fdr", "0"), "mlfs: --fdr must be a positive number below 1; got 0.0"),
        ("mfsir", ("-k", "auto"), "mlfs: -k cannot be 'auto' with mfsir"),
        ("mfsir", ("--seed", "-1"), "--seed must be a whole number of at least 0; got -1"),
        ("elc", ("--performance-report", "r.html"), "--performance-report"),
        ("elc", ("-k", "6"), "mlfs: -k must be between 1 and the number of features, 5; got 6"),
    ],
)
def test_errors_name_options_as_they_are_typed(
    run: Run, tiny_store: Path, tmp_path: Path, method: str, options: tuple[str, ...], message: str
) -> None:
    result = run("select", method, tiny_store, "-k", 2, "-o", tmp_path / "run", *options)
    assert result.exit_code == 2
    assert message in result.stderr


def test_warnings_name_options_as_they_are_typed(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    result = run("select", "elc", tiny_store, "-k", 2, "-o", tmp_path / "run", "--max-iter", "3")
    assert "Increase --max-iter, or --beta." in result.stderr


def test_python_keeps_its_names() -> None:
    X, Y = np.eye(4), np.array([[0], [1], [0], [1]])
    with pytest.raises(UsageError, match=r"^lambda_ must be"):
        mlfs.ELC(1, lambda_=-1.0).fit(X, Y)
    with pytest.raises(UsageError, match=r"^n_features_to_select must be"):
        mlfs.ELC(9).fit(X, Y)
    with pytest.raises(UsageError, match=r"^step='fixed' .* give graph='exact'"):
        mlfs.MFSIR(1, step="fixed", graph="anchors").fit(X, Y)
