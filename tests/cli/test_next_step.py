"""Each command names the one that comes next, and that one runs."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from mlfs_dask_cli.main import mlfs
from tests.cli.conftest import Run


def following(done: Result) -> list[str]:
    assert done.exit_code == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if line.startswith("next: ")]
    return shlex.split(line.removeprefix("next: "))


@pytest.fixture
def _terminal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlfs_dask_cli.output.is_terminal", lambda: True)
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("_terminal")
@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["convert", "my table.csv", "t.zarr", "--label-columns", "a,b"], ["plan", "select", "report", "xdg-open"]),
        (["inspect", "t.parquet", "--label-columns", "a,b"], ["plan", "select", "report", "xdg-open"]),
        (["select", "elc,chi2", "tiny.zarr", "-k", "1", "-o", "runs"], ["report", "xdg-open"]),
        (["transform", "tiny.zarr", "run", "chosen.csv"], ["evaluate", "report", "xdg-open"]),
    ],
)
def test_what_comes_next_runs(
    words: list[str], names: list[str], tiny_csv: Path, tiny_store: Path, run: Run, tmp_path: Path
) -> None:
    import pandas as pd

    (tmp_path / "my table.csv").write_bytes(tiny_csv.read_bytes())
    pd.read_csv(tiny_csv).to_parquet("t.parquet")
    Path("tiny.zarr").symlink_to(tiny_store)
    assert run("select", "elc", "tiny.zarr", "-k", "2", "-o", "run", "--quiet").stderr == ""
    done = run(*words)
    for name in names:
        program, *words = following(done)
        if program == "xdg-open":
            assert (name, Path(words[0]).stat().st_size > 1000) == (program, True)
            break
        assert (program, words[0]) == ("mlfs", name)
        done = run(*[word if word != "20" else "2" for word in words], *(["--quick"] if name == "plan" else []))


def test_the_doctor_names_it_and_keeps_to_no_color(tiny_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlfs_dask_cli.output.is_terminal", lambda: True)
    for variables, coloured in (({"NO_COLOR": None}, True), ({"NO_COLOR": "1"}, False)):
        done = CliRunner(env=variables).invoke(mlfs, ["doctor", str(tiny_store)], color=True)
        assert following(done) == ["mlfs", "plan", "elc", str(tiny_store)]
        assert ("\x1b[" in done.stdout) == coloured


def test_it_is_told_to_people_alone(tiny_store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "next: " not in run("inspect", tiny_store).output
    monkeypatch.setattr("mlfs_dask_cli.output.is_terminal", lambda: True)
    assert "next: mlfs plan elc " in run("inspect", tiny_store).stderr
    for option in ("--json", "--quiet"):
        assert "next: " not in run("inspect", tiny_store, option).output
