"""`--rows`, `--labels` and `--features` of plan, select, evaluate, and what follows a selection from a part."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mlfs_dask as mlfs
from tests.storage.stores import make_store

PART = ("--rows", "0:90", "--features", "1:6", "--labels", "label 0,label 2")
JUDGED = ("--folds", "2", "--metrics", "hamming_loss", "--force")


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(5)
    Y = (rng.random((120, 4)) < 0.4).astype(np.int8)
    X = rng.normal(size=(120, 8))
    X[:, :4] += Y
    return make_store(tmp_path / "a.zarr", X, Y, partition_bytes=1500)


def test_a_part_is_selected_from_resumed_and_transformed(store, run, run_json):
    record = run_json("select", "elc", "a.zarr", "-k", "2", "-o", "run", *PART)
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
    again = ("select", "elc", "a.zarr", "-k", "2", "-o", "run", "--resume")
    assert "complete already" in run(*again, *PART).stderr
    assert run(*again).exit_code == 2  # of another part: nothing is mixed up, and nothing replaced
    run_json("transform", "a.zarr", "run", "chosen.npz")
    run_json("transform", "a.zarr", "run", "chosen.zarr")
    chosen = mlfs.open_dataset("chosen.zarr")
    assert chosen.feature_names.tolist() == part.feature_names[np.sort(expected.ranking_[:2])].tolist()
    assert chosen.shape == (120, 2)


def test_a_part_is_planned_and_evaluated(store, run_json):
    part, whole = (run_json("plan", "elc", "a.zarr", *rows) for rows in (("--rows", "0:30"), ()))
    assert part["bytes_read"] < whole["bytes_read"]
    record = run_json("evaluate", "a.zarr", "elc", "-o", "eval", "--k-grid", "2", *PART, *JUDGED)["store"]
    assert (record["n"], record["d"], record["q"]) == (90, 5, 2)
    assert record["subset"]["rows"] == {"count": 90, "expression": "0:90"}


def test_rows_of_a_file_and_what_is_not_there(store, run, run_json):
    Path("train.txt").write_text("5\n3\n")
    record = run_json("select", "elc", "a.zarr", "--rows", "train.txt", "-k", "2", "-o", "run")
    assert record["store"]["subset"]["rows"] == {"count": 2, "expression": "train.txt"}
    Path("train.txt").write_text("5\n3\n500\n")
    for part, code, message in (
        (("--rows", "train.txt"), 3, "train.txt, line 3, value '500': there is no row number 500"),
        (("--labels", "label 7"), 2, "there is no label 'label 7'"),
        (
            ("--rows", "cell 7"),
            2,
            "there is no row 'cell 7', and no file 'cell 7'. Rows have no names: give numbers, r",
        ),
    ):
        refused = run("plan", "elc", "a.zarr", *part)
        assert (refused.exit_code, message in refused.stderr) == (code, True), refused.stderr


def test_a_run_of_some_rows_is_judged_on_others(store, run, run_json):
    """A warning where they are, or may be, rows that it was learnt on."""
    Path("train.txt").write_text("\n".join(map(str, range(60))))
    Path("test.txt").write_text("\n".join(map(str, range(60, 120))))
    for name, rows in (("some", "0:60"), ("listed", "train.txt")):
        run_json("select", "label-entropy", "a.zarr", "-k", "2", "-o", name, "--rows", rows)
        for judged, shared in ((("--rows", "60:"), False), (("--rows", "test.txt"), False), ((), True)):
            done = run("evaluate", "a.zarr", name, "-o", "eval", *judged, *JUDGED)
            told = f"{name} was learnt on rows that it is scored on" in done.stderr
            assert (done.exit_code, told, "too good" in done.stderr) == (0, shared, shared), done.stderr
    for name, end in (("some", 60), ("listed", 70)):  # of the second nobody knows any more which they were
        Path("train.txt").write_text("\n".join(map(str, range(10, end))))
        done = run("evaluate", "a.zarr", name, "-o", "eval", "--rows", "59:" if end == 60 else "60:", *JUDGED)
        assert (done.exit_code, "too good" in done.stderr) == (0, True), done.stderr


def test_a_run_of_some_features_is_judged_on_the_same(store, run, run_json):
    for name, features in (("some", ("--features", "1:6")), ("all", ())):
        run("select", "label-entropy", "a.zarr", "-k", "2", "-o", name, "--labels", "1", *features)
    run_json("evaluate", "a.zarr", "./some", "-o", "eval", "--features", "1:6", *JUDGED)
    refused = run("evaluate", "a.zarr", "./some", "-o", "eval", *JUDGED)
    assert refused.exit_code == 3
    assert "this run ranks 5 features, and not those of the data, which has 8" in refused.stderr
    assert "cure: choose the features that the run was made from (--features 1:6)" in refused.stderr
    refused = run("evaluate", "a.zarr", "./all", "-o", "eval", "--features", "1:6", *JUDGED)
    assert (refused.exit_code, "cure: leave out --features" in refused.stderr) == (3, True)
