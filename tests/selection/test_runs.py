"""Run folders: written whole or not at all, and read back to the same bits."""

from __future__ import annotations

import csv
import json
import math

import fsspec
import numpy as np
import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.selection import runs as results
from mlfs_dask.selection.runs import finished_run, read_run, write_run
from mlfs_dask.storage.labels_store import LabelsStore

NAMES = ["plain", 'quoted "name"', "comma, blank", "ünïcode", "line\nbreak"]
SCORES = np.array([0.1, 1 / 3, -2.5e-300, np.nextafter(1.0, 2.0), 0.0])
RANKING = np.array([3, 1, 0, 4, 2])


def record(**changes):
    return {
        "method": "elc",
        "params": {"beta": None, "lambda_": 0.1},
        "store": {"path": "x.zarr", "digest": "abc"},
        "d": 5,
        "k": 2,
        **changes,
    }


def write(path, **changes):
    arguments = {
        "ranking": RANKING,
        "scores": SCORES,
        "feature_names": NAMES,
        "record": record(),
        **changes,
    }
    write_run(str(path), **arguments)


def test_files_are_as_promised(tmp_path):
    run = tmp_path / "deep" / "run"
    write(run)
    assert sorted(file.name for file in run.iterdir()) == ["ranking.csv", "run.json", "selected.txt"]
    with (run / "ranking.csv").open(newline="") as stream:
        header, *rows = csv.reader(stream)
    assert header == ["rank", "feature_index", "feature_name", "score"]
    assert rows[0] == ["1", "3", "ünïcode", "1.0000000000000002"]
    assert [row[2] for row in rows] == [NAMES[index] for index in RANKING]
    assert (run / "selected.txt").read_text() == 'ünïcode\nquoted "name"\n'
    assert json.loads((run / "run.json").read_text()) == record()
    assert [p.name for p in run.parent.iterdir()] == ["run"]


def test_reads_back_to_the_same_bits(tmp_path):
    write(tmp_path / "run")
    run = read_run(str(tmp_path / "run"))
    assert run.ranking.tolist() == RANKING.tolist()
    assert run.scores.tobytes() == SCORES[RANKING].tobytes()
    assert run.feature_names == [NAMES[index] for index in RANKING]
    assert run.k == 2
    assert run.record == record()


def test_columns_of_replicates_come_back_and_others_do_not(tmp_path):
    share = np.array([0.1, 0.2, 0.3, 0.4, 0.5])
    write(tmp_path / "run", columns={"selection_frequency": share, "note": np.array(list("abcde"))})
    found = read_run(str(tmp_path / "run")).replicates
    assert {name: values.tolist() for name, values in found.items()} == {"selection_frequency": share[RANKING].tolist()}
    file = tmp_path / "run" / "ranking.csv"
    file.write_text(file.read_text().replace(",0.4,", ",much,"))
    with pytest.raises(DataError, match=r"line 2.*much"):
        read_run(str(tmp_path / "run"))


def test_a_line_break_in_a_name_does_not_make_two_lines(tmp_path):
    write(tmp_path / "run", record=record(k=5))
    assert (tmp_path / "run" / "selected.txt").read_text().splitlines()[3] == "line\\nbreak"


def test_the_record_is_strict_json(tmp_path):
    values = {"objective": [math.inf, math.nan, 1.0], "count": np.int64(3), "array": np.arange(2)}
    write(tmp_path / "run", record=record(**values))
    text = (tmp_path / "run" / "run.json").read_text()
    found = json.loads(text, parse_constant=pytest.fail)
    assert found["objective"] == [None, None, 1.0]
    assert (found["count"], found["array"]) == (3, [0, 1])


def test_at_a_url_the_record_comes_last(monkeypatch):
    memory = fsspec.filesystem("memory")
    url = "memory://results-test/run"
    written = []
    pipe = type(memory).pipe_file

    def note(self, path, value, **kwargs):
        written.append(path.rsplit("/", 1)[1])
        return pipe(self, path, value, **kwargs)

    monkeypatch.setattr(type(memory), "pipe_file", note)
    try:
        write(url)
        assert written == ["ranking.csv", "selected.txt", "run.json"]
        assert read_run(url).record == record()
        with pytest.raises(UsageError, match="holds a run already"):
            write(url)
        write(url, record=record(method="other"), force=True)
        assert read_run(url).record["method"] == "other"
    finally:
        memory.rm("/results-test", recursive=True)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        ("run.json", None, "no run.json here, so this is not a finished run"),
        ("ranking.csv", None, "no ranking.csv here"),
        ("run.json", "{", "this is not the record of a run"),
        ("run.json", '{"k": 2}', "this is not the record of a run"),
        ("run.json", '{"k": 2, "d": Infinity}', "this is not the record of a run"),
        ("ranking.csv", "a,b\n", "expected the columns rank, feature_index"),
        (
            "ranking.csv",
            "rank,feature_index,feature_name,score\n2,0,a,1\n",
            "line 2: rank 2 where 1 was expected",
        ),
        ("ranking.csv", "rank,feature_index,feature_name,score\n1,0,a,much\n", "line 2: could not convert"),
        ("ranking.csv", "rank,feature_index,feature_name,score\n1,0,a,1\n", "expected each of 5 features"),
    ],
)
def test_damage_is_named(tmp_path, file, text, message):
    run = tmp_path / "run"
    write(run)
    if text is None:
        (run / file).unlink()
    else:
        (run / file).write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        read_run(str(run))
    assert "mlfs select -o" in str(caught.value)


def test_only_the_same_run_is_finished(tmp_path):
    path = str(tmp_path / "run")
    same = {"method": "elc", "params": record()["params"], "digest": "abc"}
    assert finished_run(path, **same) is None
    write(path)
    assert finished_run(path, **same) is not None
    for change in ({"method": "enm"}, {"params": {"beta": 1.0}}, {"digest": "abd"}):
        assert finished_run(path, **{**same, **change}) is None


VALUES = np.array([[0.5, -1.0], [0.25, 1.0]])


def recovered(write=None):
    write = write or (lambda store: store.write(0, VALUES))
    return lambda path: write(LabelsStore.sized(path, 2, 2, threshold=0.3, partition_rows=2).begin(["a", "b"]))


@pytest.mark.parametrize("place", ["local", "memory://runs/labels"])
def test_recovered_labels_come_and_go_with_their_run(tmp_path, place):
    import zarr

    path = str(tmp_path / "run") if place == "local" else place
    assert not results.has_labels(path)
    write(path, write_labels=recovered())
    assert results.has_labels(path)
    group = zarr.open_group(f"{path}/labels.zarr", mode="r")
    assert group["X"][...].tolist() == VALUES.tolist()
    assert group["layers/positive"][...].tolist() == [[1, 0], [0, 1]]
    assert group["var/_index"][...].tolist() == ["a", "b"]
    assert read_run(path).k == 2
    write(path, force=True)
    assert not results.has_labels(path)


def test_labels_that_break_off_at_a_url_leave_no_finished_run():
    """A run is finished when its record is there, and the record of the run before was removed first."""

    def half(store):
        store.write(0, VALUES)
        raise KeyboardInterrupt

    path = "memory://runs/halfway"
    write(path)
    with pytest.raises(KeyboardInterrupt):
        write(path, write_labels=recovered(half), force=True)
    with pytest.raises(DataError, match=r"no run\.json here"):
        read_run(path)
    write(path, write_labels=recovered())
    assert read_run(path).k == 2
