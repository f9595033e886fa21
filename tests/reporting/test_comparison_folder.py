"""Comparison folders."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path

import pandas as pd
import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.evaluation.comparison import FRAMES, compare
from mlfs_dask.reporting.comparison_folder import read_comparison, write_comparison
from tests.reporting.conftest import Folders


def test_what_is_written(folders: Folders) -> None:
    names = {str(path.relative_to(folders.comparison)) for path in folders.comparison.rglob("*") if path.is_file()}
    stems = ["hamming_loss.mlknn", "macro_f1.mlknn"]
    expected = {"compare.json", "tests.json", *(f"{name}.csv" for name in FRAMES)}
    expected |= {f"tables/{stem}.csv" for stem in stems}
    kinds = ("curves", "nemenyi", "bonferroni-dunn")
    expected |= {f"figures/{kind}.{stem}.svg" for kind in kinds for stem in stems}
    assert names == expected | {"figures/stability.svg"}


def test_a_comparison_reads_back(folders: Folders) -> None:
    comparison = compare(folders.evaluations, control="elc")
    back = read_comparison(folders.comparison)
    for name in FRAMES:
        pd.testing.assert_frame_equal(
            getattr(back, name), getattr(comparison, name), check_dtype=False, check_exact=True
        )
    assert back.record == json.loads(json.dumps(comparison.record))
    assert back.tests == json.loads(json.dumps(comparison.tests))
    assert back.tests[0]["friedman"]["f"] == math.inf


def test_an_earlier_comparison_is_kept_without_force(folders: Folders, tmp_path: Path) -> None:
    comparison = compare(folders.evaluations[:1])
    write_comparison(tmp_path / "cmp", comparison)
    with pytest.raises(UsageError, match="holds a comparison already; --force replaces it"):
        write_comparison(tmp_path / "cmp", comparison)
    with pytest.raises(UsageError, match=r"is not a comparison \(no compare.json in it\)"):
        write_comparison(folders.runs[0], comparison, force=True)
    with pytest.raises(UsageError, match="is written to a local folder"):
        write_comparison("memory://cmp", comparison)
    assert [path.name for path in tmp_path.iterdir()] == ["cmp"]


def test_a_failure_leaves_nothing(folders: Folders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from mlfs_dask.reporting import comparison_folder

    def fail(*args: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(comparison_folder, "write_figure", fail)
    with pytest.raises(KeyboardInterrupt):
        write_comparison(tmp_path / "cmp", compare(folders.evaluations))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("compare.json", None, "no compare.json here, so this is not a finished comparison"),
        ("compare.json", '{"kind": "eval"}', "not the record of a comparison"),
        ("compare.json", "{", "damaged"),
        ("compare.json", '{"kind": "compare", "format_version": 99}', "format_version 99 is newer than 1"),
        ("means.csv", None, "missing or damaged"),
        ("ranks.csv", "a,b\n1,2\n", "damaged: expected the columns metric, classifier, run"),
        ("tests.json", "[", "damaged"),
    ],
)
def test_damaged_folders(folders: Folders, tmp_path: Path, name: str, text: str | None, message: str) -> None:
    place = tmp_path / "cmp"
    shutil.copytree(folders.comparison, place)
    if text is None:
        (place / name).unlink()
    else:
        (place / name).write_text(text)
    with pytest.raises(DataError, match=message):
        read_comparison(place)
