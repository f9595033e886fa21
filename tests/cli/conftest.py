"""A tiny store, and a way to run commands in the test's own process."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from mlfs_dask_cli.main import mlfs

Run = Callable[..., Result]
RunJson = Callable[..., Any]


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stores are shared by the tests: what one keeps beside them would change what the next one reads."""
    monkeypatch.setenv("MLFS_CACHE", "none")


@pytest.fixture
def run() -> Run:
    """Run `mlfs` with the words given; the result has `exit_code`, `stdout` and `stderr`."""

    def invoke(*words: object) -> Result:
        return CliRunner().invoke(mlfs, [str(word) for word in words])

    return invoke


@pytest.fixture
def run_json(run: Run) -> RunJson:
    """Run `mlfs ... --json`, which must succeed, and parse what stands on standard output."""

    def invoke(*words: object) -> Any:
        result = run(*words, "--json")
        assert result.exit_code == 0, result.stderr
        return json.loads(result.stdout)

    return invoke


@pytest.fixture(scope="session")
def tiny_csv(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """40 rows; `same` equals the label `a`, `near` mostly, `noise` and `flat` tell nothing; a comma in a name."""
    rows = ['same,near,noise,"noise, too",flat,a,b']
    for row in range(40):
        a, b = row % 2, int(row % 5 == 0)
        rows.append(f"{a},{a if row % 10 else 1 - a},{row * 7 % 11},{row * 3 % 13},4,{a},{b}")
    path = tmp_path_factory.mktemp("tiny") / "tiny.csv"
    path.write_text("\n".join(rows) + "\n")
    return path


@pytest.fixture(scope="session")
def tiny_store(tiny_csv: Path) -> Path:
    """The store of `tiny_csv`: n = 40, d = 5, q = 2."""
    from mlfs_dask.readers.base import LabelSpec
    from mlfs_dask.storage.convert import convert

    store = tiny_csv.with_suffix(".zarr")
    convert(tiny_csv, store, labels=LabelSpec(columns=("a", "b")))
    return store
