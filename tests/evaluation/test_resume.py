"""Finished parts on disk."""

from __future__ import annotations

from pathlib import Path

from mlfs_dask.evaluation.resume import PartialResults, partial_folder, remove_partial_results


def test_parts_are_taken_up_by_the_same_job_alone(tmp_path: Path) -> None:
    place = partial_folder(str(tmp_path / "a.eval"))
    assert place is not None
    kept = PartialResults(place, {"seed": 1}, resume=True)
    assert kept.load("elc 0 0") is None
    assert not place.exists()  # nothing was saved
    kept.save("elc 0 0", {"ranking": [2, 0]})
    assert PartialResults(place, {"seed": 1}, resume=True).load("elc 0 0") == {"ranking": [2, 0]}
    # A file that was cut off is no part.
    (file,) = [path for path in place.iterdir() if path.name != "job.json"]
    file.write_text('{"ranking": [2')
    assert PartialResults(place, {"seed": 1}, resume=True).load("elc 0 0") is None
    remove_partial_results(str(tmp_path / "a.eval"))
    assert not place.exists()
    for seed, resume in ((2, True), (1, False)):
        PartialResults(place, {"seed": 1}, resume=False).save("elc 0 0", {"ranking": []})
        assert PartialResults(place, {"seed": seed}, resume=resume).load("elc 0 0") is None
    assert partial_folder("s3://bucket/a.eval") is None
