"""Each command end to end on a tiny store: that its options arrive, what it prints, and what it refuses."""

from __future__ import annotations

import csv
import gzip
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from mlfs_dask.doctor import Check
from mlfs_dask.runtime import progress_to
from mlfs_dask.selection.runs import read_run
from mlfs_dask.selectors import get_method
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask_cli.main import mlfs
from mlfs_dask_cli.select import select
from tests.cli.conftest import Run, RunJson
from tests.storage.stores import make_store

# convert


def test_options_of_a_conversion(run: Run, run_json: RunJson, tmp_path: Path) -> None:
    lines = [f"{row},{row % 7},{row % 5},x,0,{(-1, 0, 1)[row % 3]},{(0, 1, 1)[row % 3]}" for row in range(3000)]
    (tmp_path / "t.csv").write_text("\n".join(['one,two,age,id,"x, y",l,"m, n"', *lines]) + "\n")
    (tmp_path / "names.txt").write_text("m, n\n")
    words = ("convert", tmp_path / "t.csv", tmp_path / "t.zarr", "--format", "csv", "--label-columns", "l")
    words += ("--label-columns", f"@{tmp_path / 'names.txt'}", "--labels-negative", "-1", "--labels-unknown", "0")
    words += (
        "--drop",
        'id,"x, y"',
        "--obs",
        "age",
        "--dtype",
        "float32",
        "--storage",
        "sparse",
        "--compressor",
        "zstd",
    )
    made = run_json(*words, "--partition-size", "8KiB", "--workers", "2", "--memory-limit", "12GB")
    assert (made["n"], made["d"], made["q"], made["partitions"] > 1) == (3000, 2, 2, True)
    assert (made["storage"], made["dtype"], made["compressor"]) == ("sparse", "float32", "zstd")
    assert (made["positive_labels"], made["unknown_labels"]) == (1000 + 2000, 1000 + 1000)
    dataset = open_dataset(tmp_path / "t.zarr")
    assert (dataset.feature_names.tolist(), dataset.label_names.tolist()) == (["one", "two"], ["l", "m, n"])
    assert list(dataset.rows.columns) == ["age"]
    assert run(*words, "--memory-limit", "1KiB", "--force").exit_code == 4


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        (["--label-columns", "c", "--label-classes"], ["c=x", "c=x;y"]),
        (["--n-labels", "1", "--label-separator", ";"], ["c=x", "c=y"]),
        (["--n-labels", "2", "--drop", "c"], ["b", "d"]),
        (["--n-labels", "2", "--labels-first", "--drop", "c"], ["a", "b"]),
    ],
)
def test_where_labels_are(run: Run, tmp_path: Path, words: list[str], labels: list[str]) -> None:
    (tmp_path / "t.csv").write_text("a,b,d,c\n1,0,1,x\n0,1,0,x;y\n1,1,0,x\n")
    done = run("convert", tmp_path / "t.csv", tmp_path / "t.zarr", *words)
    assert done.exit_code == 0, done.stderr
    assert open_dataset(tmp_path / "t.zarr").label_names.tolist() == labels


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--labels", "a.xml", "--n-labels", "3"], "exclude one another"),
        (["--label-separator", ""], "--label-separator is the text between two tags, and cannot be empty"),
        (["--labels-first"], "--labels-first needs --n-labels"),
        (["--labels-unknown", "-1", "--labels-negative", "-1"], "the label '-1' cannot be both negative and unknown"),
        (["--label-columns", "@absent.txt"], "there is no file 'absent.txt'"),
        (["--key", "X"], "'X' is not of the form NAME=VALUE"),
        (["--n-labels", "0"], "--n-labels"),
    ],
)
def test_convert_refusals(run: Run, words: list[str], message: str) -> None:
    result = run("convert", "a.arff", "a.zarr", *words)
    assert result.exit_code == 2
    assert message in result.stderr


def test_convert_and_inspect(run: Run, run_json: RunJson, tiny_csv: Path, tmp_path: Path) -> None:
    store = tmp_path / "t.zarr"
    made = run_json("convert", tiny_csv, store, "--label-columns", "a,b")
    assert (made["n"], made["d"], made["q"], made["labels_never_positive"]) == (40, 5, 2, 0)
    shown = run_json("inspect", store, "--verify")
    assert shown["digest"] == made["digest"]
    assert shown["command"].startswith(f"mlfs convert {tiny_csv} {store} --label-columns a,b")
    assert shown["constant_features"] == 1
    assert shown["label_cardinality"] == pytest.approx((20 + 8) / 40)
    assert shown["verified"]["objects"] > 5
    text = run("inspect", store, "--verify").stdout
    assert "features (d)       5 (1 constant)" in text
    assert "intact: " in text

    refused = run("convert", tiny_csv, store, "--label-columns", "a")
    assert refused.exit_code == 2
    assert "--force" in refused.stderr
    assert run_json("convert", tiny_csv, store, "--label-columns", "a", "--force")["q"] == 1


def test_convert_of_standard_input(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, text in enumerate((b"x,a\n1,0\n2,1\n", gzip.compress(b"0 1:5\n1 2:3\n"))):
        store = tmp_path / f"{number}.zarr"
        monkeypatch.setenv("TMPDIR", str(tmp_path))
        words = ("convert", "-", str(store), "--progress", "none", *(("--n-labels", "1") * (not number)))
        command = [sys.executable, "-m", "mlfs_dask", *words]
        done = subprocess.run(command, input=text, capture_output=True, check=False)
        assert (done.returncode, done.stderr) == (0, b"")
        assert open_dataset(store).shape == ((2, 1), (2, 2))[number]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["0.zarr", "1.zarr"]
    assert '"path":"standard input"' in (store / "zarr.json").read_text()
    command = [sys.executable, "-m", "mlfs_dask", "convert", "-", str(store), "--n-labels", "1", "--force"]
    wrong = subprocess.run(command, input=b"x,a\n1,0\n2,b\n", capture_output=True, text=False, check=False)
    assert (wrong.returncode, wrong.stderr.splitlines()[0][:36]) == (3, b"mlfs: standard input, line 3, column")
    refused = run("convert", "-", tmp_path / "t.zarr", "--resume")
    assert (refused.exit_code, "standard input cannot be read again" in refused.stderr) == (2, True)


def test_minus_one_is_said_and_settled(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,a,b\n1,-1,1\n2,1,-1\n3,1,1\n")
    words = ("convert", tmp_path / "t.csv", tmp_path / "t.zarr", "--n-labels", "2")
    said = run(*words)
    warning = "labels are -1 and 1 and never 0, so -1 is taken as negative; give --labels-unknown -1"
    assert (said.stdout + said.stderr).count(warning) == 1
    assert warning in said.stderr
    assert run(*words, "--force", "--quiet").stderr == ""
    settled = run(*words, "--labels-unknown", "-1", "--force")
    assert (settled.exit_code, "-1" in settled.stderr) == (0, False)
    assert open_dataset(tmp_path / "t.zarr").rows.label_counts[0].tolist() == [1, 1]


def test_three_values_of_labels_are_told(run: Run, tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("x,a,b\n1,-1,1\n2,1,0\n3,0,0\n")
    words = ("convert", tmp_path / "t.csv", tmp_path / "t.zarr", "--n-labels", "2")
    taken = run(*words)
    assert "if -1 means negative, say --labels-negative -1, and --labels-unknown 0 if 0 means unknown" in taken.stderr
    assert "2 positive, 3 negative, 1 unknown" in taken.stdout
    # Said of -1 alone, it leaves 0 negative, too: not without a word.
    half = run(*words, "--force", "--labels-negative", "-1")
    assert "-1 (1 entries) and 0 (3) are both taken as negative; give --labels-unknown 0" in half.stderr
    said = run(*words, "--force", "--labels-negative", "-1", "--labels-unknown", "0")
    assert (said.exit_code, "taken" in said.stderr) == (0, False)
    assert "2 positive, 1 negative, 3 unknown" in said.stdout
    assert "2 positive, 1 negative, 3 unknown" in run("inspect", tmp_path / "t.zarr").stdout
    assert run(*words, "--force", "--labels-negative", "-1", "--labels-unknown", "-1").exit_code == 2


def test_features_as_rows_and_classes_of_the_samples(run: Run, tmp_path: Path) -> None:
    (tmp_path / "expr.csv").write_text("gene,s1,s2,s3\nA,1,2,3\nB,0.5,0,1\n")
    (tmp_path / "phenotypes.csv").write_text("sample,kind,age\ns3,b,7\ns1,a,8\ns2,c,9\n")
    words = ("convert", tmp_path / "expr.csv", tmp_path / "t.zarr", "--transpose", "--label-columns", "kind")
    assert run(*words).exit_code == 2
    table = ("--labels", tmp_path / "phenotypes.csv")
    assert run(*words, *table).exit_code == 3  # classes, which are not asked for
    made = run(*words, *table, "--label-classes")
    assert (made.exit_code, "3 positive, 6 negative, 0 unknown" in made.stdout) == (0, True)
    dataset = open_dataset(tmp_path / "t.zarr")
    assert (dataset.feature_names.tolist(), dataset.label_names.tolist()) == (
        ["A", "B"],
        ["kind=a", "kind=b", "kind=c"],
    )
    assert dataset.X.compute().tolist() == [[1, 0.5], [2, 0], [3, 1]]
    assert [source["path"][-14:] for source in dataset.schema.sources][1:] == ["phenotypes.csv"]


# append


def test_rows_are_appended_and_the_whole_store_is_summed_up(
    run: Run, run_json: RunJson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = "a,b,l0,l1\n1,2,1,0\n2,3,0,1\n3,4,1,1\n"
    (tmp_path / "a.csv").write_text(rows)
    (tmp_path / "b.csv").write_text(rows.replace("1,2,1,0", "9,9,1,0"))
    labels = ("--label-columns", "l0,l1")
    run_json("convert", "a.csv", "s.zarr", *labels)
    summary = run_json("append", "s.zarr", "b.csv", "a.csv", *labels)
    assert (summary["n"], summary["d"], summary["q"], len(summary["sources"])) == (9, 2, 2, 3)
    appended = "mlfs append s.zarr b.csv a.csv --label-columns l0,l1 --json"
    assert summary["command"].endswith(f"s.zarr --label-columns l0,l1 --json && {appended}")
    run_json("inspect", "s.zarr", "--verify")
    run_json("append", "s.zarr", "a.csv", "--label-columns", "l1,l0")  # told by name, in the order of the file
    wrong = run("append", "s.zarr", "a.csv", "--label-columns", "l1")
    assert (wrong.exit_code, "feature 3 is 'l0'" in wrong.stderr, "is not there" in wrong.stderr) == (3, True, True)
    (tmp_path / ".s.zarr.wip").mkdir()
    (tmp_path / ".s.zarr.wip" / "job.json").write_text("{}")
    for force, code in (((), 2), (("--force",), 0)):
        assert run("append", "s.zarr", "a.csv", *labels, *force).exit_code == code
    assert "cannot be int16" in run("append", "s.zarr", "a.csv", "--dtype", "int16").stderr
    assert run("append", "none.zarr", "a.csv").exit_code == 3
    assert run("append", "s.zarr", "none.csv", *labels).exit_code == 3
    assert run("append", "s.zarr", "a.csv", "--label-columns", "l0", "--n-labels", "2").exit_code == 2


# methods


def test_methods(run: Run, run_json: RunJson) -> None:
    listed = {method["name"]: method for method in run_json("methods")["methods"]}
    assert {"elc", "enm", "gmm", "label-entropy"} <= set(listed)
    for name, method in listed.items():
        for field in ("title", "description", "paper", "doi", "supervision", "passes", "memory", "options"):
            if field != "doi" or "doi:" in get_method(name).__doc__:  # not all papers have one
                assert method[field], (name, field)
        assert "----" not in method["description"]
        if method["paper"].startswith("after "):
            text = "The paper's text was not available; the method computes the following."
            assert text in " ".join(method["description"].split())
        command = select.get_command(click.Context(select), name)
        assert command is not None
        taken = {flag for param in command.params for flag in param.opts}
        options = {option["option"] for option in method["options"]}
        assert options <= taken - {"--random-state"}, name
    bins = next(option for option in listed["label-entropy"]["options"] if option["option"] == "--bins")
    assert (bins["type"], bins["default"]) == ("int", 2)
    shown = " ".join(run("methods", "lsmr").stdout.split())
    assert "Minimises ‖XW + 1b' − Y‖² + α tr (XW)'L(XW) + μ n tr W L_Y W'" in shown
    lines = run("methods").stdout.splitlines()
    assert [line.split()[0] for line in lines[: len(listed)]] == sorted(listed)  # a line each
    assert any(line.startswith("label-entropy ") and line.endswith("Entropy-based label selection") for line in lines)
    text = run("methods", "-v").stdout
    assert "label-entropy  Entropy-based label selection" in text
    assert "--bins 2" in text


# plan and select


def test_options_of_a_selection(run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    words = ("select", "label-entropy", tiny_store, "-k", "0.5", "-o", tmp_path / "run", "--seed", "7", "--force")
    words += ("--n-promising-labels", "2", "--bins", "4", "--binning", "quantile", "--missing", "code")
    record = run_json(*words, "--resamples", "30")
    asked = {"n_features_to_select": 0.5, "n_promising_labels": 2, "order": "descending", "bins": 4}
    asked |= {"binning": "quantile", "missing": "code", "resamples": 30, "random_state": 7}
    assert asked.items() <= record["params"].items()
    assert (record["k"], record["seed"]) == (2, 7)
    assert record["command"].startswith(f"mlfs select label-entropy {tiny_store} -k 0.5 ")
    assert record["started"].endswith("+00:00")


def test_plan_then_select(run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    planned = run_json("plan", "enm", tiny_store)
    out = tmp_path / "run"
    result = run_json("select", "enm", tiny_store, "-k", "2", "-o", out)
    assert (planned["passes"], planned["tasks"]) == (result["passes"], result["tasks"]) == (1, result["tasks"])
    assert planned["bytes_read"] == result["bytes_read"] > 0
    run = read_run(str(out))
    assert result["selected"] == run.feature_names[:2]
    assert "near" in result["selected"]
    assert run.record == {name: value for name, value in result.items() if name not in ("run", "selected")}
    with (out / "ranking.csv").open(newline="") as stream:
        assert {row["feature_name"] for row in csv.DictReader(stream)} == {
            *("same", "near", "noise", "noise, too", "flat")
        }
    assert (out / "selected.txt").read_text().splitlines() == result["selected"]
    for field in (
        *("method", "params", "store", "n", "d", "q", "k", "seed", "passes", "tasks", "bytes_read"),
        *("wall_seconds", "plan", "peak_worker_bytes", "peak_driver_bytes", "iterations", "converged"),
        *("objective", "versions", "started"),
    ):
        assert field in run.record, field
    assert run.record["store"]["digest"] == open_dataset(tiny_store).digest
    assert run.record["command"].startswith(f"mlfs select enm {tiny_store} ")


def test_a_taken_place_is_refused_before_anything_runs(
    run: Run, tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("mine")
    monkeypatch.setattr("mlfs_dask.cluster.connect.connect", lambda **_: pytest.fail("connected"))
    result = run("select", "elc", tiny_store, "-k", "2", "-o", tmp_path / "file")
    assert result.exit_code == 2


def test_plan_counts_the_driver(run: Run, tiny_store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mlfs_dask.runtime.available_memory", lambda: 10 * 2**20)
    result = run("plan", "elc", tiny_store, "--workers", "1", "--memory-limit", "1GiB")
    assert result.exit_code == 4
    assert "elc in the driver process" in result.stderr


def test_plan_for_people(run: Run, run_json: RunJson, tiny_store: Path) -> None:
    words = ("--workers", "2", "--memory-limit", "2GiB", "--threads-per-worker", "3")
    text = run("plan", "elc", tiny_store, "--quick", *words).stdout
    profile = open_dataset(tiny_store).rows.profile
    planned = run_json("plan", "elc", tiny_store, "--quick", *words)
    arrays = planned["arrays"]
    assert sum(arrays.values()) >= arrays["results"] + 16 * profile.q * profile.d  # A and its sums
    for name, nbytes in arrays.items():
        assert re.search(rf"peak on the driver .*\n(.*\n)*  {re.escape(name)} +{nbytes} B\n", text)
    assert re.search(r"passes over X +1\n", text)
    assert "2 workers of 2 GiB, 3 threads each" in text


def test_plan_tells_seconds_unless_it_has_to_be_quick(run: Run, run_json: RunJson, tiny_store: Path) -> None:
    assert re.search(r"\nseconds +about [0-9.]+\n", run("plan", "label-entropy", tiny_store).stdout)
    loop = ("mfsir", tiny_store, "--graph", "anchors")
    looped = run("plan", *loop).stdout
    assert re.search(r"\nseconds +typically [0-9.e-]+( to [0-9.e-]+)?, at most [0-9.,e-]+\n", looped)
    found = run_json("plan", *loop)
    few, many = found["typical_seconds"]
    assert 0 < few <= many <= found["seconds"]
    quick = run_json("plan", *loop, "--quick")
    assert quick["seconds"] is quick["typical_seconds"] is None
    assert re.search(r"\nseconds +not measured\n", run("plan", *loop, "--quick").stdout)


def test_plan_of_a_loop_tells_the_most_and_what_is_typical(run: Run, tiny_store: Path) -> None:
    where = ("--in-process", "--graph", "anchors", "--quick")
    text = run("plan", "access-mfs", tiny_store, *where).stdout
    found = json.loads(run("plan", "access-mfs", tiny_store, *where, "--json").stdout)
    few, many = found["typical_passes"]
    assert 1 < few < many < found["passes"] == 1 + 200
    assert f"typically {few:,} to {many:,}, at most {found['passes']:,}\n" in text
    assert f"at most {found['tasks']:,}" in text
    assert f", at most {found['bytes_read']:,}" in text
    assert found["typical_bytes_read"][0] < found["typical_bytes_read"][1] < found["bytes_read"]


@pytest.mark.parametrize("command", ["plan", "select"])
def test_what_does_not_fit_is_refused_before_it_runs(run: Run, tiny_store: Path, tmp_path: Path, command: str) -> None:
    out = tmp_path / "run"
    words = ["-k", "2", "-o", out, "--in-process"] if command == "select" else ["--workers", "2"]
    result = run(command, "elc", tiny_store, *words, "--memory-limit", "20MiB", "--json")
    assert result.exit_code == 4
    error = json.loads(result.stdout)["error"]
    assert error["projected"] > error["available"] > 0
    assert "--memory-limit" in error["cure"]
    assert not out.exists()


@pytest.mark.parametrize("graph", ["anchors", "exact"])
def test_recovered_labels_are_written_on_request(
    run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path, graph: str
) -> None:
    import zarr

    from mlfs_dask import SMFS

    words = ("select", "smfs", tiny_store, "-k", "2", "-o", tmp_path / "run", "--in-process", "--n-trees", "10")
    words += ("--graph", graph)
    run_json(*words)
    assert not (tmp_path / "run/labels.zarr").exists()
    assert "nothing was run" in run(*words, "--resume").stderr
    # A finished run without them is not what was asked for.
    record = run_json(*words, "--resume", "--write-labels")
    group = zarr.open_group(tmp_path / "run/labels.zarr", mode="r")
    assert group["layers/positive"].shape == (record["n"], record["q"])
    assert group["var/_index"][...].tolist() == ["a", "b"]
    dataset = open_dataset(tiny_store)
    expected = SMFS(2, n_trees=10, graph=graph).fit(dataset).recover_labels(dataset)  # type: ignore[arg-type]
    assert group["X"][...] == pytest.approx(expected, abs=1e-6)
    assert group["layers/positive"][...].tolist() == (expected > SMFS.plain.label_threshold).astype(int).tolist()
    assert "nothing was run" in run(*words, "--resume", "--write-labels").stderr
    refused = run("select", "elc", tiny_store, "-k", "2", "-o", tmp_path / "other", "--write-labels")
    assert refused.exit_code == 2
    assert "No such option" in refused.stderr


def test_labels_that_could_not_be_written_are_refused_before_the_fit(
    run: Run, run_json: RunJson, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    n, q = 50_000, 40
    store = make_store(tmp_path / "s.zarr", rng.normal(size=(n, 4)), (rng.random((n, q)) < 0.1).astype(np.int8))
    words = ("smfs", store, "-k", "2", "--graph", "anchors")
    fit, labels = (run_json("plan", *words, "--quick", *more) for more in ((), ("--write-labels",)))
    assert (fit["passes"] + 1, fit["tasks"] < labels["tasks"]) == (labels["passes"], True)
    # A chunk has all rows: it is held as it is found, as it is put together, and as it is written.
    least = 24 * n * q
    assert labels["peak_driver_bytes"] > fit["peak_driver_bytes"] + least
    assert run_json("plan", *words, "--write-labels")["seconds"] > 0  # tried, and nothing is written
    limit = str((fit["peak_driver_bytes"] + labels["peak_driver_bytes"]) * 5 // 8)
    assert run("plan", *words, "--quick", "--memory-limit", limit).exit_code == 0
    refused = run("select", *words, "-o", tmp_path / "run", "--memory-limit", limit, "--write-labels")
    assert refused.exit_code == 4
    assert "cure: " in refused.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["s.zarr"]


@pytest.fixture
def parted_store(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """90 rows in partitions of 18, some labels unknown; a chunk of recovered labels has rows of two partitions."""
    rng = np.random.default_rng(0)
    Y = (rng.random((90, 3)) < 0.4).astype(np.int8)
    X = rng.normal(size=(90, 9))
    X[:, :3] += Y
    Y[rng.random(Y.shape) < 0.3] = -1
    path = make_store(tmp_path_factory.mktemp("parted") / "s.zarr", X, Y, partition_bytes=20 * 72)
    assert np.diff(open_dataset(path).rows.row_offsets).tolist() == [18] * 5
    monkeypatch.setattr("mlfs_dask.storage.labels_store._MIN_CHUNK_BYTES", 25 * 4 * 3)
    return path


WRITE_LABELS = ("-k", "2", "--graph", "anchors", "--n-trees", "10", "--max-iter", "3", "--write-labels")


@pytest.mark.cluster
def test_workers_write_the_labels_that_they_recover(
    run_json: RunJson, parted_store: Path, two_workers: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import zarr

    words = ("select", "smfs", parted_store, *WRITE_LABELS)
    run_json(*words, "-o", tmp_path / "here", "--in-process")

    def refuse(*_: object) -> None:
        raise AssertionError("labels of rows in the client")

    monkeypatch.setattr("mlfs_dask.storage.labels_store.LabelsStore.write", refuse)
    run_json(*words, "-o", tmp_path / "there", "--scheduler-file", two_workers, "--min-workers", "2")
    here, there = (zarr.open_group(tmp_path / name / "labels.zarr", mode="r") for name in ("here", "there"))
    assert here["X"].chunks == there["X"].chunks == (25, 3)
    assert there["X"][...] == pytest.approx(here["X"][...], abs=1e-6)
    assert np.ptp(there["X"][...], axis=0).all()
    assert there["layers/positive"][...].tolist() == here["layers/positive"][...].tolist()
    assert len(list((tmp_path / "there/labels.zarr/X/c").iterdir())) == 4
    assert sorted(path.name for path in tmp_path.iterdir()) == ["here", "there"]


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.cluster)])
def test_interrupted_labels_leave_no_run_and_can_be_resumed(
    run: Run,
    run_json: RunJson,
    parted_store: Path,
    tmp_path: Path,
    request: pytest.FixtureRequest,
    workers: int,
) -> None:
    import zarr

    where: tuple[object, ...] = ("--in-process",)
    if workers:
        where = ("--scheduler-file", request.getfixturevalue("two_workers"), "--min-workers", workers)
    words = ("select", "smfs", parted_store, *WRITE_LABELS, "-o", tmp_path / "run", "--checkpoint-every", "0", *where)
    written: list[Path] = []

    def interrupt(event: dict[str, Any]) -> None:
        # The reading of labels has ended, and its folder is not renamed yet.
        if (event["kind"], event.get("label")) == ("pass-done", "labels"):
            written.extend(tmp_path.glob(".run.*/run/labels.zarr/X/c/*/0"))
            raise KeyboardInterrupt

    with progress_to(interrupt):
        stopped = run(*words, "--quiet")
    assert stopped.exit_code == 130, stopped.stderr
    assert len(written) == 4
    assert [path.name for path in tmp_path.iterdir()] == [".run.checkpoint"]
    resumed = run_json(*words, "--resume")
    assert resumed["iterations"] == 3
    assert zarr.open_group(tmp_path / "run/labels.zarr", mode="r")["X"].shape == (90, 3)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_labels_without_a_positive_row_are_told_and_recorded(run: Run, tiny_csv: Path, tmp_path: Path) -> None:
    head, *rows = tiny_csv.read_text().splitlines()
    (tmp_path / "t.csv").write_text("\n".join([f"{head},sea,sky", *(f"{row},0,0" for row in rows)]) + "\n")
    labels = ("--label-columns", "a,b,sea,sky")
    assert run("convert", tmp_path / "t.csv", tmp_path / "t.zarr", *labels).exit_code == 0
    words = ("select", "smfs", tmp_path / "t.zarr", "-k", "2", "-o", tmp_path / "run", "--in-process")
    told = ": 2 of 4 labels have no known positive row ('sea' and 'sky'). "

    shown = run(*words)
    assert shown.exit_code == 0
    assert shown.stderr.count(told) == 1
    warnings = read_run(str(tmp_path / "run")).record["warnings"]
    assert [told in text for text in warnings].count(True) == 1
    assert all(f"mlfs: {text}\n" in shown.stderr for text in warnings)
    assert told not in run(*words, "--force", "--quiet").stderr
    assert read_run(str(tmp_path / "run")).record["warnings"] == warnings


def test_select_keeps_and_replaces(run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    words = ("select", "label-entropy", tiny_store, "-o", out)
    first = run_json(*words, "-k", "2")
    stamp = (out / "run.json").stat().st_mtime_ns
    refused = run(*words, "-k", "2")
    assert refused.exit_code == 2
    assert "holds a run already; --force replaces it" in refused.stderr
    again = run(*words, "-k", "2", "--resume")
    assert again.exit_code == 0
    assert "is complete already; nothing was run" in again.stderr
    assert (out / "run.json").stat().st_mtime_ns == stamp
    other = run(*words, "-k", "3", "--resume")
    assert other.exit_code == 2
    assert run_json(*words, "-k", "3", "--force")["k"] == 3
    assert first["k"] == 2


def test_auto_chooses_k_and_the_ranking_has_what_replicates_say(
    run_json: RunJson, tiny_store: Path, tmp_path: Path
) -> None:
    words = ("enm", tiny_store, "-k", "auto", "--resamples", "10", "--fdr", "0.3")
    planned = run_json("plan", *words)
    assert planned["passes"] == 2
    result = run_json("select", *words, "-o", tmp_path / "run", "--seed", "1")
    assert result["passes"] == 2
    assert result["bytes_read"] == planned["bytes_read"]
    assert result["params"]["n_features_to_select"] == "auto"
    assert result["selected"][:1] == ["same"]
    assert result["k"] == len(result["selected"]) < 5
    rows = list(csv.DictReader((tmp_path / "run" / "ranking.csv").read_text().splitlines()))
    assert list(rows[0])[4:] == ["q_value", "rank_low", "rank_high", "selection_frequency"]
    assert sum(float(row["q_value"]) <= 0.3 for row in rows) == result["k"]
    assert (rows[0]["rank_low"], rows[0]["rank_high"], rows[0]["selection_frequency"]) == ("1", "1", "1.0")
    assert read_run(str(tmp_path / "run")).k == result["k"]
    again = run_json("select", *words, "-o", tmp_path / "run", "--seed", "1", "--resume")
    assert again == {**result, "selected": again["selected"]}
    moved = run_json("transform", tiny_store, tmp_path / "run", tmp_path / "chosen.zarr")
    assert moved["k"] == result["k"]


def test_what_is_printed_beside_the_result(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    words = ("select", "elc", tiny_store, "-k", "1", "--seed", "3", "-o")
    assert "--seed has no effect" in run(*words, tmp_path / "told").stderr
    assert "mlfs: products: " in run(*words, tmp_path / "logged", "-v").stderr
    quiet = run(*words, tmp_path / "quiet", "--quiet")
    assert (quiet.stderr, "kept" in quiet.stdout) == ("", True)


def test_nothing_to_discover_is_an_error_and_leaves_no_run(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    words = ("--n-promising-labels", "0", "-k", "auto", "-o", tmp_path / "run")  # the bound depends on no row's labels
    result = run("select", "label-entropy", tiny_store, *words)
    assert result.exit_code == 3
    assert "no feature is associated with the labels more than by chance" in result.stderr
    assert "cure: keep a given number of features (-k)" in result.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("command", ["select", "plan"])
@pytest.mark.parametrize(
    ("method", "why"),
    [
        ("access-mfs", "would have to learn again from every shuffle of the labels"),
        ("laplacian", "does not look at labels"),
    ],
)
def test_auto_is_refused_where_shuffled_labels_cannot_tell(
    run: Run, tiny_store: Path, tmp_path: Path, method: str, why: str, command: str
) -> None:
    place = ("-o", tmp_path / "run") if command == "select" else ()
    result = run(command, method, tiny_store, "-k", "auto", *place)
    assert result.exit_code == 2
    assert f"-k cannot be 'auto' with {method}, which {why}" in result.stderr
    assert f"mlfs evaluate STORE {method} --choose-k" in result.stderr


# transform


def test_transform(run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "run"
    run_json("select", "label-entropy", tiny_store, "-k", "2", "-o", out)
    result = run_json("transform", tiny_store, out, tmp_path / "t.zarr")
    assert (result["n"], result["k"], result["q"]) == (40, 2, 2)
    assert set(result["features"]) == set((out / "selected.txt").read_text().splitlines())
    assert run_json("inspect", tmp_path / "t.zarr")["command"].startswith(f"mlfs transform {tiny_store} ")
    text = run("transform", tiny_store, out, tmp_path / "t.svm", "-k", "1").stdout
    assert f"{tmp_path / 't.svm'}: 40 rows, 1 features, 2 labels" in text
    assert run("transform", tiny_store, out, tmp_path / "t.svm").exit_code == 2
    assert run_json("transform", tiny_store, out, tmp_path / "t.svm", "--force")["k"] == 2


# doctor


@pytest.mark.parametrize(
    ("checks", "code"),
    [
        ([Check("a", "ok", ""), Check("b", "warn", "hm", "do this")], 0),
        ([Check("a", "fail", "bad", "do this"), Check("b", "ok", "")], 1),
        ([Check("cluster", "fail", "gone", "start it")], 5),
        ([Check("store", "fail", "absent", "make one")], 3),
    ],
)
def test_doctor_exit_codes(run: Run, monkeypatch: pytest.MonkeyPatch, checks: list[Check], code: int) -> None:
    monkeypatch.setattr("mlfs_dask.doctor.examine", lambda store, **options: iter(checks))
    result = run("doctor", "--json")
    assert result.exit_code == code
    found = json.loads(result.stdout)
    assert found["ok"] is (code == 0)
    settings, *others = found["checks"]
    assert settings["name"] == "settings"
    assert [check["status"] for check in others] == [check.status for check in checks]
    text = run("doctor").stdout
    assert ("cure: " in text) is any(check.cure for check in checks)


def test_doctor_end_to_end(
    run: Run, run_json: RunJson, tiny_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, free_port: int
) -> None:
    found = run_json("doctor", "--in-process")
    assert found["ok"] is True
    assert found["checks"][-1]["name"] == "a tiny job"
    assert run("doctor", tmp_path / "absent.zarr", "--in-process").exit_code == 3
    assert run("doctor", "--scheduler", f"tcp://127.0.0.1:{free_port}", "--wait", "1").exit_code == 5
    monkeypatch.setattr("mlfs_dask.doctor.check_job", lambda place, _: Check("a tiny job", "ok", place))
    assert f"a tiny job: {tmp_path}" in run("doctor", tiny_store, "--in-process", "--directory", tmp_path).stdout


# of every command


def test_a_lost_cluster_leaves_no_run(run: Run, tiny_store: Path, tmp_path: Path, free_port: int) -> None:
    address = f"tcp://127.0.0.1:{free_port}"
    words = ("select", "elc", tiny_store, "-k", "2", "-o", tmp_path / "run", "--scheduler", address, "--wait", "1")
    result = run(*words, "--json")
    assert result.exit_code == 5
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "cluster_lost"
    assert address in error["message"]
    assert "--resume" in error["message"]
    assert list(tmp_path.iterdir()) == []


def test_cures_of_files_name_options_of_every_command_that_reads_files() -> None:
    """--obs and --transpose, which `convert` alone has, are named where they were given."""
    told = {"--obs", "--transpose"}
    for file in [*Path("mlfs_dask/readers").glob("*.py"), *Path("mlfs_dask/formats").glob("*.py")]:
        for text in re.findall(r'"[^"\n]*"', file.read_text(encoding="utf-8")):
            told |= set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text)) - {"--long"}  # of xz
    for name in ("convert", "append", "inspect", "select", "plan", "evaluate", "transform"):
        command = mlfs.get_command(click.Context(mlfs), name)
        if isinstance(command, click.Group):
            command = command.get_command(click.Context(command), "elc")
        assert command is not None
        has = {option for param in command.get_params(click.Context(command)) for option in param.opts}
        assert told - has <= {"--obs", "--transpose"}, name
