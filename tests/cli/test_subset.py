"""`--rows`, `--labels` and `--features` of plan, select, evaluate, and what follows a selection from a part."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import mlfs_dask as mlfs
from mlfs_dask_cli.main import mlfs as command
from tests.storage.stores import make_store

PART = ("--rows", "0:90", "--features", "1:6", "--labels", "label 0,label 2")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, list(arguments))
    return result.exit_code, result.stdout, result.stderr


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    Y = (rng.random((120, 4)) < 0.4).astype(np.int8)
    X = rng.normal(size=(120, 8))
    X[:, :4] += Y
    return make_store(tmp_path / "a.zarr", X, Y, partition_bytes=1500)


def test_a_part_is_selected_from_resumed_and_transformed(store):
    code, out, err = run("select", "elc", "a.zarr", "-k", "2", "-o", "run", *PART, "--json", "--quiet")
    assert code == 0, err
    record = json.loads(out)
    assert (record["n"], record["d"], record["q"], record["k"]) == (90, 5, 2, 2)
    whole = mlfs.open_dataset(store)
    part = whole.subset(rows="0:90", features="1:6", labels="label 0,label 2")
    assert record["store"]["digest"] == part.digest
    assert record["store"]["subset"] == {
        "of": whole.digest,
        "rows": {"count": 90, "expression": "0:90"},
        "labels": {"count": 2, "expression": "label 0,label 2"},
        "features": {"count": 5, "expression": "1:6"},
    }
    expected = mlfs.ELC(2).fit(part)
    assert record["selected"] == part.feature_names[expected.ranking_[:2]].tolist()
    _, _, err = run("select", "elc", "a.zarr", "-k", "2", "-o", "run", *PART, "--resume")
    assert "complete already" in err
    code, _, _ = run("select", "elc", "a.zarr", "-k", "2", "-o", "run", "--resume", "--quiet")
    assert code == 2  # of another part: nothing is mixed up, and nothing replaced
    code, out, err = run("transform", "a.zarr", "run", "chosen.npz", "--json")
    assert code == 0, err
    code, out, err = run("transform", "a.zarr", "run", "chosen.zarr", "--json", "--quiet")
    assert code == 0, err
    chosen = mlfs.open_dataset("chosen.zarr")
    assert chosen.feature_names.tolist() == part.feature_names[np.sort(expected.ranking_[:2])].tolist()
    assert chosen.shape == (120, 2)


def test_a_part_is_planned_and_evaluated(store):
    _, out, _ = run("plan", "elc", "a.zarr", "--json", "--cache", "none")
    whole = json.loads(out)
    code, out, _ = run("plan", "elc", "a.zarr", "--rows", "0:30", "--json", "--cache", "none")
    assert code == 0
    assert json.loads(out)["bytes_read"] < whole["bytes_read"]
    grid = ("--k-grid", "2", "--folds", "2", "--metrics", "hamming_loss", "--json", "--quiet")
    code, out, err = run("evaluate", "a.zarr", "elc", "-o", "eval", *PART, *grid)
    assert code == 0, err
    record = json.loads(out)["store"]
    assert (record["n"], record["d"], record["q"]) == (90, 5, 2)
    assert record["subset"]["rows"] == {"count": 90, "expression": "0:90"}


def test_rows_of_a_file_and_what_is_not_there(store):
    Path("train.txt").write_text("5\n3\n500\n")
    code, _, err = run("plan", "elc", "a.zarr", "--rows", "train.txt")
    assert code == 3
    assert "line 3" in err
    assert "there is no row number 500" in err
    Path("train.txt").write_text("5\n3\n")
    code, out, _ = run("select", "elc", "a.zarr", "--rows", "train.txt", "-k", "2", "-o", "run", "--json")
    assert json.loads(out)["store"]["subset"]["rows"] == {"count": 2, "expression": "train.txt"}
    code, _, err = run("plan", "elc", "a.zarr", "--labels", "label 7")
    assert code == 2
    assert "there is no label 'label 7'" in err
    code, _, err = run("plan", "elc", "a.zarr", "--rows", "cell 7")
    assert code == 2
    assert (
        "there is no row 'cell 7', and no file 'cell 7'. Rows have no names: give numbers, ranges as 0:100, or" in err
    )


JUDGED = ("--folds", "2", "--metrics", "hamming_loss", "--force")


def test_a_run_of_some_rows_is_judged_on_others(store):
    """A warning where they are, or may be, rows that it was learnt on."""
    Path("train.txt").write_text("\n".join(map(str, range(60))))
    Path("test.txt").write_text("\n".join(map(str, range(60, 120))))
    for name, rows in (("some", "0:60"), ("listed", "train.txt")):
        code, _, err = run("select", "label-entropy", "a.zarr", "-k", "2", "-o", name, "--rows", rows)
        assert code == 0, err
        for others in ("60:", "test.txt"):
            code, _, err = run("evaluate", "a.zarr", name, "-o", "eval", "--rows", others, *JUDGED)
            assert (code, "too good" in err) == (0, False), err
        for shared in ((), ("--rows", "59:")):
            code, _, err = run("evaluate", "a.zarr", name, "-o", "eval", *shared, *JUDGED)
            assert code == 0, err
            assert f"{name} was learnt on rows that it is scored on" in err
    Path("train.txt").write_text("\n".join(map(str, range(10, 70))))  # nobody knows any more which they were
    code, _, err = run("evaluate", "a.zarr", "listed", "-o", "eval", "--rows", "60:", *JUDGED)
    assert (code, "too good" in err) == (0, True), err


def test_a_run_of_some_features_is_judged_on_the_same(store):
    for name, features in (("some", ("--features", "1:6")), ("all", ())):
        run("select", "label-entropy", "a.zarr", "-k", "2", "-o", name, "--labels", "1", *features)
    code, _, err = run("evaluate", "a.zarr", "./some", "-o", "eval", "--features", "1:6", *JUDGED)
    assert code == 0, err
    code, _, err = run("evaluate", "a.zarr", "./some", "-o", "eval", *JUDGED)
    assert code == 3
    assert "this run ranks 5 features, and not those of the data, which has 8" in err
    assert "cure: choose the features that the run was made from (--features 1:6)" in err
    code, _, err = run("evaluate", "a.zarr", "./all", "-o", "eval", "--features", "1:6", *JUDGED)
    assert code == 3
    assert "cure: leave out --features" in err
