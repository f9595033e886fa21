"""Statistics kept between commands: a second selection with another k or λ reads nothing, and says so."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, RunJson


@pytest.mark.parametrize(
    ("method", "first", "second"),
    [
        ("elc", ["-k", 2], ["-k", 3, "--lambda", 0.3]),
        ("label-entropy", ["-k", 2], ["-k", 3]),
    ],
)
def test_a_second_selection_reads_nothing(
    run: Run,
    run_json: RunJson,
    tiny_store: Path,
    tmp_path: Path,
    method: str,
    first: list[object],
    second: list[object],
) -> None:
    cache = ("--cache", tmp_path / "cache", "--in-process")

    def runs(name: str) -> Any:
        return json.loads((tmp_path / name / "run.json").read_text())

    planned = run_json("plan", method, tiny_store, *second[2:], *cache)
    assert planned["passes"] == 1
    run_json("select", method, tiny_store, *first, "-o", tmp_path / "first", *cache)
    assert runs("first")["passes"] == 1
    assert "from_cache" not in runs("first")["extra"]
    planned = run_json("plan", method, tiny_store, *second[2:], *cache)
    assert (planned["passes"], planned["tasks"], planned["bytes_read"]) == (0, 0, 0)
    shown = run("select", method, tiny_store, *second, "-o", tmp_path / "second", *cache)
    assert shown.exit_code == 0, shown.stderr
    kind = "products" if method == "elc" else "counts"
    assert f"from the cache  {kind}" in shown.stdout
    assert re.search(r"^passes +none: nothing was read$", shown.stdout, re.MULTILINE)
    assert re.search(r"^peak +[\d.]+ [MG]iB on the driver$", shown.stdout, re.MULTILINE)
    record = runs("second")
    assert (record["passes"], record["tasks"], record["bytes_read"]) == (0, 0, 0)
    assert record["extra"]["from_cache"] == [kind]
    run_json("select", method, tiny_store, *second, "-o", tmp_path / "alone", "--cache", "none", "--in-process")
    assert runs("alone")["passes"] == 1
    for file in ("ranking.csv", "selected.txt"):
        assert (tmp_path / "second" / file).read_bytes() == (tmp_path / "alone" / file).read_bytes()


def test_a_loop_without_readings_reads_for_its_graph_alone_the_second_time(
    run_json: RunJson, tiny_store: Path, tmp_path: Path
) -> None:
    """The labels of the rows are known whole, so that the loop of SMFS reads nothing."""
    words = ("select", "smfs", tiny_store, "--unknown-labels", "coded", "--graph", "anchors", "--in-process")
    cached = (*words, "--cache", tmp_path / "cache")
    first = run_json(*cached, "-k", 2, "-o", tmp_path / "first")
    assert first["passes"] == 3
    other = run_json(*cached, "-k", 3, "--beta", 0.5, "-o", tmp_path / "second")
    assert (other["passes"], other["bytes_read"]) == (2, first["bytes_read"] * 2 // 3)
    assert other["extra"]["from_cache"] == ["moments", "labels", "rows"]
    assert run_json(*words, "-k", 3, "--beta", 0.5, "-o", tmp_path / "alone")["passes"] == 3
    assert (tmp_path / "second/ranking.csv").read_bytes() == (tmp_path / "alone/ranking.csv").read_bytes()


def test_the_cache_is_beside_the_store_unless_told_otherwise(
    run_json: RunJson, tiny_csv: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "own.zarr"
    run_json("convert", tiny_csv, store, "--label-columns", "a,b")
    run_json("select", "elc", store, "-k", 2, "-o", tmp_path / "off", "--in-process")
    assert not (tmp_path / "own.zarr.cache").exists()  # MLFS_CACHE=none, as for all tests here
    monkeypatch.delenv("MLFS_CACHE")
    run_json("select", "elc", store, "-k", 2, "-o", tmp_path / "on", "--in-process")
    assert [path.name.split("-")[0] for path in (tmp_path / "own.zarr.cache").glob("*-*")] == ["products"]


def test_a_size_bounds_the_cache(run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    words = ("--cache", tmp_path / "cache", "--cache-size", 10, "--in-process")
    for name in ("first", "second"):
        assert run_json("select", "elc", tiny_store, "-k", 2, "-o", tmp_path / name, *words)["passes"] == 1
