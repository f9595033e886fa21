"""What goes wrong with data that people have: exit code, place, value and cure of every message."""

from __future__ import annotations

import json
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.files.limits import filled_temporary_file
from mlfs_dask_cli.main import mlfs
from tests.cli.conftest import Run, RunJson

CSV = "f1,f2,sky,sea\n1,2,0,1\n2,1,1,0\n3,3,1,1\n"


@pytest.fixture
def store(tmp_path: Path, run_json: RunJson) -> Path:
    return converted(run_json, tmp_path, CSV)


def converted(run_json: RunJson, folder: Path, text: str, labels: str = "sky,sea") -> Path:
    (folder / "in.csv").write_text(text)
    run_json("convert", folder / "in.csv", folder / "t.zarr", "--label-columns", labels)
    return folder / "t.zarr"


ARFF = "@relation r\n@attribute f1 numeric\n@attribute sky {0,1}\n@attribute sea {0,1}\n@data\n1,0,1\n2,1,0\n"
XML = '<labels xmlns="http://mulan.sourceforge.net/labels"><label name="sky"/><label name="seaa"/></labels>'


@pytest.mark.parametrize(
    ("text", "problem", "cure"),
    [
        (None, "in.csv: there is no such file", "check the path"),
        (CSV.replace("2,1,1,0", "2,1,0.5,0"), "in.csv, line 3, column 'sky', value 0.5: a label must be 0 or 1", "bin"),
        (ARFF, "in.xml, value 'seaa': the label 'seaa' is no attribute of", "did you mean 'sea'"),
    ],
    ids=["absent", "csv", "arff"],
)
def test_a_source_is_told_with_place_and_cure_and_leaves_nothing(
    text: str | None, problem: str, cure: str, run: Run, tmp_path: Path
) -> None:
    source, labels = tmp_path / "in.csv", ("--label-columns", "sky,sea")
    if text == ARFF:
        source, labels = tmp_path / "in.arff", ("--labels", str(tmp_path / "in.xml"))
        (tmp_path / "in.xml").write_text(XML)
    if text is not None:
        source.write_text(text)
    before = sorted(tmp_path.iterdir())
    done = run("convert", source, tmp_path / "t.zarr", *labels)
    assert done.exit_code == 3
    told, told_cure = done.stderr.split("\n  cure: ")
    assert problem in told
    assert cure in told_cure
    assert sorted(tmp_path.iterdir()) == before


def test_missing_values_in_features(run: Run, run_json: RunJson, tmp_path: Path) -> None:
    store = converted(run_json, tmp_path, CSV.replace("2,1,1,0", "nan,1,1,0"))
    assert re.search(r"missing values +1 in 1 feature\n", run("inspect", store).stdout)
    # The store knows how many values are missing: nothing is read.
    for path in (store / "X").rglob("c/**/*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    for words in (("plan", "elc", store, "-k", "1"), ("select", "elc", store, "-k", "1", "-o", tmp_path / "run")):
        done = run(*words)
        assert done.exit_code == 3
        assert "column 'f1': X contains NaN: 1 missing value in 1 feature" in done.stderr
        assert "fill" in done.stderr.split("\n  cure: ")[1]


def test_unknown_labels(run: Run, run_json: RunJson, tmp_path: Path) -> None:
    store = converted(run_json, tmp_path, CSV.replace("2,1,1,0", "2,1,1,?"))
    done = run("select", "elc", store, "-k", "1", "-o", tmp_path / "run", "--unknown", "refuse")
    assert done.exit_code == 3
    assert "first in label 'sea', column 1 of Y (counted from 0)" in done.stderr
    assert "--unknown refuse was given" in done.stderr


@pytest.mark.parametrize("method", ["label-entropy", "br-cc", "elc", "mfsir", "smfs"])
def test_a_label_that_never_occurs_changes_nothing(method: str, run_json: RunJson, tmp_path: Path) -> None:
    store = converted(run_json, tmp_path, "f1,f2,sky,sea\n1,2,0,0\n2,1,1,0\n3,3,1,0\n1,3,0,0\n")
    words = ("select", method, store, "-k", "1", "-o")
    assert run_json(*words, tmp_path / "both")["selected"] == ["f1"]
    assert run_json(*words, tmp_path / "one", "--labels", "sky")["selected"] == ["f1"]


def test_damage_of_what_inspect_reads_is_listed(run: Run, run_json: RunJson, tmp_path: Path) -> None:
    store = converted(run_json, tmp_path, CSV.replace("2,1,1,0", "nan,1,1,0"))
    for key in ("X/c/0/0", "var/n_missing/c/0"):
        path = store / key
        path.write_bytes(path.read_bytes()[::-1])
    done = run("inspect", store, "--verify")
    assert done.exit_code == 3
    assert "2 damaged: X/c/0/0, var/n_missing/c/0\n" in done.stderr
    done = run("inspect", store)
    assert done.exit_code == 3
    assert "var/n_missing is damaged" in done.stderr


def test_a_store_that_is_cut_off(run: Run, store: Path, tmp_path: Path) -> None:
    shard = store / "X" / "c" / "0" / "0"
    shard.write_bytes(shard.read_bytes()[:10])
    done = run("select", "elc", store, "-k", "1", "-o", tmp_path / "run")
    assert done.exit_code == 3
    assert "the store is incomplete: 1 object not of the recorded size: X/c/0/0" in done.stderr
    assert "restore a copy, or convert the source files again" in done.stderr
    verified = run("inspect", store, "--verify")
    assert (verified.exit_code, "1 damaged: X/c/0/0" in verified.stderr) == (3, True)
    root = store / "zarr.json"
    root.write_bytes(root.read_bytes()[:500])
    cut = run("inspect", store)
    assert (cut.exit_code, "zarr.json is damaged" in cut.stderr) == (3, True)


@pytest.mark.parametrize("command", [("inspect",), ("plan", "elc"), ("select", "elc", "-k", "1", "-o", "run")])
def test_a_store_of_a_later_version(command: tuple[str, ...], run: Run, store: Path) -> None:
    root = store / "zarr.json"
    document = json.loads(root.read_text())
    document["attributes"]["mlfs"]["format_version"] = 99
    root.write_text(json.dumps(document))
    done = run(*command, store)
    assert done.exit_code == 3
    assert "format_version 99 is newer than 1, the newest this version reads\n  cure: upgrade mlfs-dask" in done.stderr


@pytest.mark.parametrize(
    ("k", "message"),
    [
        ("3", "between 1 and the number of features, 2; got 3"),
        ("0", "at least 1; got 0"),
        ("-1", "at least 1; got -1"),
        ("1.5", "'1.5' is no share of the features: it lies between 0 and 100%"),
        ("many", "neither a count (20) nor a share"),
    ],
)
def test_counts_that_cannot_be_kept(k: str, message: str, run: Run, store: Path, tmp_path: Path) -> None:
    done = run("select", "elc", store, "-k", k, "-o", tmp_path / "run")
    assert done.exit_code == 2
    assert "n_features_to_select" not in done.stderr
    assert message in done.stderr
    assert not (tmp_path / "run").exists()


def test_k_of_a_transform(run: Run, run_json: RunJson, store: Path, tmp_path: Path) -> None:
    run_json("select", "label-entropy", store, "-k", "1", "-o", tmp_path / "run")
    done = run("transform", store, tmp_path / "run", tmp_path / "chosen.svm", "-k", "9")
    assert done.exit_code == 2
    assert "mlfs: -k must be between 1 and the number of features, 2; got 9." in done.stderr


@pytest.mark.cluster
def test_more_workers_than_partitions(run_json: RunJson, store: Path, two_workers: Path, tmp_path: Path) -> None:
    from mlfs_dask.storage.opening import open_dataset

    assert open_dataset(store).rows.profile.partitions == 1
    words = ("select", "label-entropy", store, "-k", "1", "-o")
    here = run_json(*words, tmp_path / "here")
    there = run_json(*words, tmp_path / "there", "--scheduler-file", two_workers, "--min-workers", "2")
    assert there["selected"] == here["selected"]


def test_a_full_disk(small_disk: Callable[[str], Path], run: Run, store: Path, tmp_path: Path) -> None:
    full_disk = small_disk("200k")
    values = np.random.default_rng(0).normal(size=(3000, 20))
    lines = [",".join(map(repr, row)) + ",1" for row in values.tolist()]
    (tmp_path / "big.csv").write_text("\n".join([",".join(f"f{i}" for i in range(20)) + ",y", *lines]) + "\n")
    done = run("convert", tmp_path / "big.csv", full_disk / "t.zarr", "--label-columns", "y", "--json")
    error = json.loads(done.stdout)["error"]
    assert (done.exit_code, error["kind"]) == (4, "does_not_fit")
    assert error["available"] < 100_000
    assert "the disk is full" in done.stderr
    assert done.stderr.count("--resume") == 1
    shutil.rmtree(full_disk / ".t.zarr.wip")
    (full_disk / "other").write_bytes(b"x" * 195 * 1024)
    done = run("select", "elc", store, "-k", "1", "-o", full_disk / "run")
    assert done.exit_code == 4
    assert "run: it cannot be written: No space left on device: more than there is, available" in done.stderr
    assert [path.name for path in full_disk.iterdir()] == ["other"]
    done = run("select", "elc,enm", store, "-k", "1", "-o", full_disk / "deep" / "runs")
    assert done.exit_code == 4
    assert [path.name for path in full_disk.iterdir()] == ["other"]


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("convert", "", "t.zarr", "--n-labels", "1"), "'SOURCE...': it is empty, and names no place."),
        (("convert", "in.csv", "", "--n-labels", "1"), "'STORE': it is empty, and names no place."),
        (("append", "t.zarr", "", "--n-labels", "1"), "'SOURCE...': it is empty, and names no place."),
        (("transform", "t.zarr", "run", ""), "'DEST': it is empty, and names no place."),
        (
            ("convert", "in.csv", "/", "--n-labels", "1", "--force"),
            "'/' is not a path for a store\n  cure: give the path",
        ),
        (("convert", "in.csv", "new.zarr", "--label-columns", "sky\nsea"), "a,b,c on one line, or @FILE with a name"),
        (("convert", "in.csv", "new.zarr", "--n-labels", "1", "--drop", "f1\nf2"), "a,b,c on one line, or @FILE with"),
    ],
)
def test_names_that_are_none(
    store: Path, run: Run, words: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(store.parent)
    before = sorted(store.parent.rglob("*"))
    done = run(*words)
    assert done.exit_code == 2, done.stderr
    assert told in done.stderr
    assert sorted(store.parent.rglob("*")) == before


def test_a_full_folder_of_temporary_files(
    small_disk: Callable[[str], Path], run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = small_disk("1m")
    monkeypatch.setattr(tempfile, "tempdir", str(disk))
    (disk / "other").write_bytes(bytes(500_000))
    done = CliRunner().invoke(
        mlfs, ["convert", "-", str(tmp_path / "t.zarr"), "--n-labels", "1", "--json"], input=b"x" * 3_000_000
    )
    error = json.loads(done.stdout)["error"]
    assert (done.exit_code, error["kind"]) == (4, "does_not_fit")
    assert error["projected"] > error["available"] > 300_000
    assert f"a temporary file in {disk}: projected" in done.stderr
    assert "set the variable TMPDIR to a folder of a larger disk" in done.stderr
    with (
        pytest.raises(DoesNotFitError, match="a temporary file in") as caught,
        filled_temporary_file("mlfs-", 80_000_000) as file,
    ):
        file.write(bytes(80_000_000))
    assert caught.value.projected == 80_000_000
    assert caught.value.available == error["available"]
    assert [path.name for path in disk.iterdir()] == ["other"]


@pytest.mark.parametrize("place", ["run", "var/deep/run"])
@pytest.mark.parametrize(
    "words",
    [
        ("convert", "{store}/../in.csv", "{place}.zarr", "--label-columns", "sky,sea"),
        ("select", "elc", "{store}", "-k", "1", "-o", "{place}"),
        ("transform", "{store}", "{run}", "{place}.npz"),
        ("transform", "{store}", "{run}", "{place}.zarr"),
        ("evaluate", "{store}", "random", "--folds", "2", "-o", "{place}"),
        ("report", "{run}", "-o", "{place}.html"),
        ("report", "{run}", "-o", "{store}/../page.html", "--figures", "{place}"),
        ("report", "{run}", "-o", "{store}/../page.html", "--figures", "{store}"),
        ("select", "elc", "{store}", "-k", "1", "-o", "{store}/../r", "--cache", "{place}"),
        ("select", "elc", "{store}", "-k", "1", "-o", "{store}/../r", "--cache", "{store}"),
        ("batch", "{store}/../plan.yaml", "-o", "{place}"),
        ("batch", "{store}/../plan.yaml", "-o", "{place}", "--force"),
    ],
)
def test_nothing_is_written_into_a_store(
    store: Path, tmp_path: Path, run: Run, run_json: RunJson, words: tuple[str, ...], place: str
) -> None:
    if "{run}" in words:
        run_json("select", "elc", store, "-k", "1", "-o", tmp_path / "run")
    (tmp_path / "plan.yaml").write_text("stores: t.zarr\nmethods: elc\nk: 1\n")
    before = sorted(store.rglob("*"))
    result = run(*(word.format(store=store, run=tmp_path / "run", place=store / place) for word in words))
    assert result.exit_code == 2, result.stderr
    assert f"is inside the store {store}, which must not change\n  cure: give another place" in result.stderr
    assert sorted(store.rglob("*")) == before


@pytest.mark.parametrize("folder", ["run", "evaluation", "comparison"])
def test_nothing_is_written_into_a_folder_that_would_be_replaced_with_it(
    tmp_path: Path, run: Run, run_json: RunJson, folder: str
) -> None:
    header, *rows = CSV.splitlines()
    store = converted(run_json, tmp_path, "\n".join([header, *rows * 5]) + "\n")
    run_json("select", "elc", store, "-k", "1", "-o", tmp_path / "run")
    run_json("evaluate", store, "elc", "random", "--folds", "2", "-o", tmp_path / "evaluation", "--n-neighbors", "2")
    run_json("compare", tmp_path / "evaluation", "-o", tmp_path / "comparison")
    (tmp_path / "plan.yaml").write_text("stores: t.zarr\nmethods: elc\nk: 1\n")
    before = sorted(tmp_path.rglob("*"))
    place, results = tmp_path / folder / "inner", tmp_path / "run"
    for words in (
        ("convert", tmp_path / "in.csv", f"{place}.zarr", "--label-columns", "sky,sea"),
        ("select", "elc", store, "-k", "1", "-o", place),
        ("select", "elc", store, "-k", "1", "-o", place / "deep"),
        ("select", "elc", store, "-k", "1", "-o", tmp_path / "r", "--cache", place),
        ("transform", store, results, f"{place}.zarr"),
        ("transform", store, results, f"{place}.csv"),
        ("evaluate", store, "random", "--folds", "2", "-o", place),
        ("compare", tmp_path / "evaluation", "-o", place),
        ("report", results, "-o", f"{place}.html"),
        ("report", results, "-o", tmp_path / "page.html", "--figures", tmp_path / folder),
        ("batch", tmp_path / "plan.yaml", "-o", place),
    ):
        for force in ([], ["--force"]):
            result = run(*words, *force)
            assert result.exit_code == 2, (words, result.stderr)
            article = "an" if folder == "evaluation" else "a"
            assert f"{tmp_path / folder} is {article} {folder} itself, and replacing that would" in result.stderr
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("file", "place", "value", "told"),
    [
        ("t.zarr/zarr.json", "attributes", 3, "no Zarr array or group"),
        ("comparison/compare.json", "datasets", [127], "datasets: 0: a mapping was expected, not 127"),
        ("comparison/tests.json", 0, {}, "is missing"),
        ("evaluation/eval.json", "splits", [], "splits: a mapping was expected, not []"),
        ("run/run.json", "objective", [3, "x"], "objective: 1: a number was expected, not 'x'"),
        ("run/run.json", "k", 1.5, "k: a whole number was expected, not 1.5"),
        ("t.parquet", b"mlfs", b'{"labels": 3}', "labels: a list was expected, not 3"),
        ("t.parquet", b"mlfs", b"1" * 5000, "what mlfs says of the table is damaged: Exceeds the limit"),
        ("t.parquet", b"pandas", b'{"index_columns": 3}', "index_columns: a list was expected, not 3"),
    ],
)
def test_metadata_of_another_type(
    tmp_path: Path, run: Run, run_json: RunJson, file: str, place: Any, value: Any, told: str
) -> None:
    rows = CSV.partition("\n")[2]
    store = converted(run_json, tmp_path, CSV + 5 * rows)
    run_json("select", "elc", store, "-k", "1", "-o", tmp_path / "run")
    if file.startswith(("comparison", "evaluation")):
        run_json(
            "evaluate", store, "elc", "random", "--folds", "2", "-o", tmp_path / "evaluation", "--n-neighbors", "2"
        )
        run_json("compare", tmp_path / "evaluation", "-o", tmp_path / "comparison")
    run_json("transform", store, tmp_path / "run", tmp_path / "t.parquet")
    path = tmp_path / file
    if path.suffix == ".parquet":
        table = pq.read_table(path)
        pq.write_table(table.replace_schema_metadata({place: value}), path)
    else:
        document = json.loads(path.read_text())
        document[place] = value
        path.write_text(json.dumps(document))
    folder = path.parent if path.suffix == ".json" else path
    commands = {"zarr.json": ("inspect",), "t.parquet": ("inspect",)}.get(
        path.name, ("report", "-o", tmp_path / "page.html")
    )
    result = run(commands[0], folder, *commands[1:])
    assert result.exit_code == 3, result.output
    assert told in result.stderr
