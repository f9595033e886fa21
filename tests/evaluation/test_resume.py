"""Finished parts on disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlfs_dask.evaluation.resume import PartialResults, partial_folder, remove_partial_results


def test_kept_and_found_again(tmp_path: Path) -> None:
    place = partial_folder(str(tmp_path / "a.eval"))
    assert place is not None
    kept = PartialResults(place, {"seed": 1}, resume=True)
    assert kept.load("elc 0 0") is None
    kept.save("elc 0 0", {"ranking": [2, 0]})
    assert PartialResults(place, {"seed": 1}, resume=True).load("elc 0 0") == {"ranking": [2, 0]}
    # A file that was cut off is no part.
    (file,) = [path for path in place.iterdir() if path.name != "job.json"]
    file.write_text('{"ranking": [2')
    assert PartialResults(place, {"seed": 1}, resume=True).load("elc 0 0") is None
    remove_partial_results(str(tmp_path / "a.eval"))
    assert not place.exists()


@pytest.mark.parametrize(("job", "resume"), [({"seed": 2}, True), ({"seed": 1}, False)])
def test_parts_of_another_job_are_not_taken_up(tmp_path: Path, job: dict[str, int], resume: bool) -> None:
    PartialResults(tmp_path / "p", {"seed": 1}, resume=False).save("elc 0 0", {"ranking": []})
    assert PartialResults(tmp_path / "p", job, resume=resume).load("elc 0 0") is None


def test_what_saves_nothing_leaves_nothing(tmp_path: Path) -> None:
    partial_results = PartialResults(tmp_path / "p", {"seed": 1}, resume=False)
    assert partial_results.load("elc 0 0") is None
    assert not (tmp_path / "p").exists()


def test_nothing_is_kept_beside_a_url() -> None:
    assert partial_folder("s3://bucket/a.eval") is None
