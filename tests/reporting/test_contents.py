"""Folders told apart."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.reporting.contents import kind_of, read_contents
from tests.reporting.conftest import Folders


def test_every_kind_is_known(folders: Folders) -> None:
    contents = read_contents([*folders.runs, folders.evaluations[0], folders.comparison])
    assert [run.label for run in contents.runs] == ["elc", "label-entropy"]
    assert {run.dataset for run in contents.runs} == {"tiny"}
    assert len(contents.evaluations) == len(contents.comparisons) == 1
    assert contents.compared() == (contents.comparisons, [])


def test_evaluations_alone_are_compared(folders: Folders) -> None:
    (comparison,), notes = read_contents(folders.evaluations).compared()
    assert notes == []
    assert [entry["dataset"] for entry in comparison.record["datasets"]] == ["tiny", "other", "third"]


def test_a_batch_is_its_finished_jobs(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text('{"kind": "batch"}')
    with pytest.raises(DataError, match="damaged: 'jobs'"):
        read_contents([tmp_path])
    (tmp_path / "batch.json").write_text('{"kind": "batch", "jobs": ["two", "failed", "one", "missing"]}')
    with pytest.raises(DataError, match="no job of this batch is finished"):
        read_contents([tmp_path])
    shutil.copytree(folders.runs[0], tmp_path / "jobs" / "one")
    shutil.copytree(folders.evaluations[0], tmp_path / "jobs" / "two")
    (tmp_path / "jobs" / "failed").mkdir()
    contents = read_contents([tmp_path])
    assert [run.label for run in contents.runs] == ["one"]
    assert len(contents.evaluations) == 1


def test_evaluations_of_the_same_settings_are_compared(folders: Folders, tmp_path: Path) -> None:
    """Two evaluations of one batch, of the same stores and runs."""
    again = []
    for folder in folders.evaluations:
        other = shutil.copytree(folder, tmp_path / folder.name)
        record = json.loads((other / "eval.json").read_text())
        (other / "eval.json").write_text(json.dumps({**record, "settings": {"seed": 1}}))
        again.append(other)
    found, notes = read_contents([*folders.evaluations, *again]).compared()
    assert notes == []
    assert [[entry["dataset"] for entry in each.record["datasets"]] for each in found] == 2 * [
        ["tiny", "other", "third"]
    ]


def test_runs_of_one_name_are_told_apart(folders: Folders, tmp_path: Path) -> None:
    shutil.copytree(folders.runs[0], tmp_path / "b" / "elc")
    contents = read_contents([folders.runs[0], tmp_path / "b" / "elc", tmp_path / "b" / "elc"])
    assert [run.label for run in contents.runs] == [f"{folders.runs[0].parent.name}/elc", "b/elc", "b/elc′"]


def test_what_is_no_folder_of_ours(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="nothing to report"):
        read_contents([])
    with pytest.raises(DataError, match=r"none of run.json, eval.json, compare.json and batch.json is here"):
        kind_of(str(tmp_path))
