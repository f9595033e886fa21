"""`mlfs append` end to end."""

from __future__ import annotations

import json

from click.testing import CliRunner

from mlfs_dask_cli.main import mlfs

ROWS = "a,b,l0,l1\n1,2,1,0\n2,3,0,1\n3,4,1,1\n"


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(mlfs, list(arguments))
    return result.exit_code, result.stdout, result.stderr


def test_rows_are_appended_and_the_whole_store_is_summed_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.csv").write_text(ROWS)
    (tmp_path / "b.csv").write_text(ROWS.replace("1,2,1,0", "9,9,1,0"))
    assert run("convert", "a.csv", "s.zarr", "--label-columns", "l0,l1", "--quiet")[0] == 0
    code, out, _ = run("append", "s.zarr", "b.csv", "a.csv", "--label-columns", "l0,l1", "--json", "--quiet")
    summary = json.loads(out)
    assert code == 0
    assert (summary["n"], summary["d"], summary["q"], len(summary["sources"])) == (9, 2, 2, 3)
    assert summary["command"].endswith(
        "s.zarr --label-columns l0,l1 --quiet && mlfs append s.zarr b.csv a.csv --label-columns l0,l1 --json --quiet"
    )
    assert run("inspect", "s.zarr", "--verify")[0] == 0
    code, out, _ = run("append", "s.zarr", "a.csv", "--label-columns", "l1,l0")
    assert code == 0  # columns are told by name, and come in the order of the file
    code, _, err = run("append", "s.zarr", "a.csv", "--label-columns", "l1")
    assert code == 3
    assert "feature 3 is 'l0'" in err
    assert "is not there" in err
    (tmp_path / ".s.zarr.wip").mkdir()
    (tmp_path / ".s.zarr.wip" / "job.json").write_text("{}")
    for force, expected in (((), 2), (("--force",), 0)):
        assert run("append", "s.zarr", "a.csv", "--label-columns", "l0,l1", *force)[0] == expected
    assert "cannot be int16" in run("append", "s.zarr", "a.csv", "--dtype", "int16")[2]
    assert run("append", "none.zarr", "a.csv")[0] == 3
    assert run("append", "s.zarr", "none.csv", "--label-columns", "l0,l1")[0] == 3
    assert run("append", "s.zarr", "a.csv", "--label-columns", "l0", "--n-labels", "2")[0] == 2
