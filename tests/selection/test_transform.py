"""The chosen columns, written as a store and as files."""

from __future__ import annotations

import numpy as np
import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.selection.runs import write_run
from mlfs_dask.selection.transform import write_selected
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.opening import open_dataset

ROWS = np.array([[0, 3, 1, 7], [1, 4, 1, 0], [0, 5, 1, 2], [1, 6, 0, 0], [1, 7, 0, 9]])
LABELS = np.array([[0, 1], [1, 0], [0, 0], [1, 1], [1, 0]])
RANKING = np.array([3, 1, 0, 2])


@pytest.fixture(params=["dense"])
def store(request, tmp_path):
    source = tmp_path / "source.csv"
    lines = ["a,b,c,d,y1,y2", *(",".join(map(str, [*x, *y])) for x, y in zip(ROWS, LABELS, strict=True))]
    source.write_text("\n".join(lines) + "\n")
    # Without .zarr: the name of a store is free.
    path = tmp_path / "a store"
    convert(source, path, labels=LabelSpec(columns=("y1", "y2")), storage=request.param)
    return path


@pytest.fixture
def run(store, tmp_path):
    record = {"k": 2, "d": 4, "store": {"path": str(store), "digest": open_dataset(store).digest}}
    path = tmp_path / "run"
    write_run(str(path), ranking=RANKING, scores=np.arange(4.0), feature_names=list("abcd"), record=record)
    return path


@pytest.mark.parametrize("store", ["dense", "sparse"], indirect=True)
@pytest.mark.parametrize(
    "name",
    [
        *("chosen.zarr", "chosen", "chosen.npz", "chosen.svm", "chosen.parquet", "chosen.arff", "chosen.h5ad"),
        *("chosen.csv", "chosen.svm.gz"),
    ],
)
def test_reads_back_as_the_chosen_columns(store, run, tmp_path, name):
    destination = tmp_path / name
    written = write_selected(str(store), str(run), str(destination))
    assert (written.n, written.k, written.q, written.features) == (5, 2, 2, ["b", "d"])
    assert written.bytes > 0
    again = destination
    if destination.suffix not in ("", ".zarr"):
        again = tmp_path / "again.zarr"
        labels = LabelSpec(xml=str(tmp_path / "chosen.xml")) if destination.suffix == ".arff" else LabelSpec()
        if destination.suffix in (".parquet", ".csv"):
            labels = LabelSpec(columns=("y1", "y2"))
        convert(destination, again, labels=labels)
    dataset = open_dataset(again)
    X, Y = (np.asarray(array.map_blocks(_dense).compute()) for array in (dataset.X, dataset.Y))
    assert X.tolist() == ROWS[:, [1, 3]].tolist()
    assert Y.tolist() == LABELS.tolist()
    if ".svm" not in name:
        assert list(dataset.feature_names) == ["b", "d"]
        assert list(dataset.label_names) == ["y1", "y2"]


def _dense(block):
    return block.todense() if hasattr(block, "todense") else block


@pytest.mark.parametrize(("k", "features"), [(1, ["d"]), (3, ["a", "b", "d"]), (0.5, ["b", "d"]), (4, list("abcd"))])
def test_another_number_of_features(store, run, tmp_path, k, features):
    assert write_selected(str(store), str(run), str(tmp_path / "c.svm"), k=k).features == features
    for impossible in (0, 5):
        with pytest.raises(UsageError, match=f"got {impossible}"):
            write_selected(str(store), str(run), str(tmp_path / "d.svm"), k=impossible)


def test_a_run_of_another_store_is_refused(store, run, tmp_path):
    other = tmp_path / "other.csv"
    other.write_text("a,b,c,d,y1\n1,2,3,4,0\n2,3,4,5,1\n")
    convert(other, tmp_path / "other.zarr", labels=LabelSpec(columns=("y1",)))
    with pytest.raises(DataError, match="made from another store") as caught:
        write_selected(str(tmp_path / "other.zarr"), str(run), str(tmp_path / "c.svm"))
    assert str(store) in str(caught.value)
    assert not (tmp_path / "c.svm").exists()


def test_an_interrupted_store_goes_on(store, run, tmp_path, monkeypatch, caplog):
    whole = tmp_path / "whole.zarr"
    write_selected(str(store), str(run), str(whole))

    def interrupted(*args):
        raise KeyboardInterrupt

    monkeypatch.setattr("mlfs_dask.storage.convert.write_one_shard", interrupted)
    caplog.set_level("INFO", logger="mlfs_dask")
    with pytest.raises(KeyboardInterrupt):
        write_selected(str(store), str(run), str(tmp_path / "c.zarr"))
    monkeypatch.undo()
    assert "keeps what is done, for --resume" in caplog.text
    with pytest.raises(UsageError, match="--resume"):
        write_selected(str(store), str(run), str(tmp_path / "c.zarr"))
    with pytest.raises(UsageError, match="cannot resume"):
        write_selected(str(store), str(run), str(tmp_path / "c.zarr"), k=1, resume=True)
    write_selected(str(store), str(run), str(tmp_path / "c.zarr"), resume=True)
    assert open_dataset(tmp_path / "c.zarr").digest == open_dataset(whole).digest
    assert not (tmp_path / ".c.zarr.wip").exists()


def test_a_store_is_not_written_over_itself(store, run, tmp_path):
    digest = open_dataset(store).digest
    link = tmp_path / "link"
    link.symlink_to(store)
    for destination in (str(store), str(link), f"file://{store}"):
        with pytest.raises(UsageError, match="is both read and written"):
            write_selected(str(store), str(run), destination, force=True)
        with pytest.raises(UsageError, match="is both read and written"):
            convert(store, destination, drop=["a"], force=True)
    assert open_dataset(store).digest == digest
