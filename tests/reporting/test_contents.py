"""Folders told apart."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.reporting.contents import kind_at, read_contents
from mlfs_dask.reporting.page import build
from tests.reporting.conftest import Folders, edited, select


def test_every_kind_is_known(folders: Folders, tmp_path: Path) -> None:
    contents = read_contents([*folders.runs, folders.evaluations[0], folders.comparison])
    assert [run.label for run in contents.runs] == ["elc", "label-entropy"]
    assert {run.dataset for run in contents.runs} == {"tiny"}
    assert len(contents.evaluations) == len(contents.comparisons) == 1
    assert contents.compared() == (contents.comparisons, [])
    with pytest.raises(UsageError, match="nothing to report"):
        read_contents([])
    with pytest.raises(DataError, match=r"there is no run.json, eval.json, compare.json or batch.json in it"):
        kind_at(str(tmp_path))


def test_evaluations_of_the_same_settings_are_compared(folders: Folders, tmp_path: Path) -> None:
    """Two evaluations of one batch, of the same stores and runs."""
    again = [edited(each, tmp_path / each.name, settings={"seed": 1}) for each in folders.evaluations]
    found, notes = read_contents([*folders.evaluations, *again]).compared()
    assert notes == []
    names = [[entry["dataset"] for entry in each.record["datasets"]] for each in found]
    assert names == 2 * [["tiny", "other", "third"]]


def test_a_run_has_the_name_that_evaluations_of_it_have(folders: Folders, tmp_path: Path) -> None:
    """Whatever its folder is called: a method has one name on a page, and one colour."""
    renamed = edited(folders.runs[0], tmp_path / "monday.run", params={"random_state": 3})
    variant = edited(folders.runs[0], tmp_path / "variant", params={"variant": "screen"})
    other = edited(folders.runs[0], tmp_path / "other", params={"lambda_": 0.5})
    screen = {"run": "the screen", "method": "elc", "params": {"variant": "screen"}}
    evaluated = edited(folders.evaluations[0], tmp_path / "eval", runs=[screen])
    contents = read_contents([renamed, variant, other, evaluated])
    assert [run.name for run in contents.runs] == ["elc", "the screen", "elc:lambda=0.5"]
    assert [run.label for run in contents.runs] == [run.name for run in contents.runs]
    assert [run.folder for run in contents.runs] == ["monday.run", "variant", "other"]


def test_labels_say_in_what_runs_differ(folders: Folders, tmp_path: Path) -> None:
    more = select(folders.store, "elc", tmp_path / "more", k=5)
    labels = [run.label for run in read_contents([folders.runs[0], more, folders.runs[1]]).runs]
    assert labels == ["elc, k = 3", "elc, k = 5", "label-entropy"]
    elsewhere = edited(folders.runs[0], tmp_path / "elsewhere", store={"path": "/far/away.zarr"})
    found = read_contents([folders.runs[0], elsewhere]).runs
    assert [run.label for run in found] == ["elc on tiny", "elc on away"]
    assert [run.name for run in found] == ["elc", "elc"]


def test_a_batch_is_its_finished_jobs(folders: Folders, tmp_path: Path) -> None:
    (tmp_path / "batch.json").write_text('{"kind": "batch"}')
    with pytest.raises(DataError, match="damaged: jobs is missing"):
        read_contents([tmp_path])
    (tmp_path / "batch.json").write_text('{"kind": "batch", "jobs": ["two", "failed", "one", "missing"]}')
    with pytest.raises(DataError, match="no job of this batch is finished"):
        read_contents([tmp_path])
    shutil.copytree(folders.runs[0], tmp_path / "jobs" / "one")
    shutil.copytree(folders.evaluations[0], tmp_path / "jobs" / "two")
    (tmp_path / "jobs" / "failed").mkdir()
    contents = read_contents([tmp_path])
    assert [(run.folder, run.dataset) for run in contents.runs] == [("one", "tiny")]
    (tmp_path / "jobs.csv").write_text("job,kind,dataset\none,select,first\ntwo,evaluate,second\n")
    assert [run.dataset for run in read_contents([tmp_path]).runs] == ["first"]  # the name in the batch's plan
    assert len(contents.evaluations) == 1
    (missing,) = contents.missing
    assert "is not complete: 2 of its 4 jobs failed or did not run (failed, missing)" in missing
    sections, notes = build(contents)
    assert sections[0].blocks[0].notes == [missing]  # the first that a page says
    assert missing in notes


def test_a_folder_of_runs_is_its_runs(folders: Folders, tmp_path: Path) -> None:
    """What `mlfs select` writes of several methods."""
    for run in folders.runs:
        shutil.copytree(run, tmp_path / "runs" / run.name)
    assert [run.label for run in read_contents([tmp_path / "runs"]).runs] == ["elc", "label-entropy"]
    with pytest.raises(DataError, match=r"there is no run\.json, eval\.json, compare\.json or batch\.json in it"):
        read_contents([tmp_path])


def test_runs_of_one_folder_name_are_told_apart(folders: Folders, tmp_path: Path) -> None:
    shutil.copytree(folders.runs[0], tmp_path / "b" / "elc")
    contents = read_contents([folders.runs[0], tmp_path / "b" / "elc", tmp_path / "b" / "elc"])
    above = folders.runs[0].parent.name
    assert [run.label for run in contents.runs] == [f"elc ({above}/elc)", "elc (b/elc)", "elc (b/elc′)"]
