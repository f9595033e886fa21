"""Stores that grow: the same as converted at once, nothing old written again, and never half of it."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import anndata
import fsspec
import numpy as np
import pytest

from mlfs_dask.cluster.resources import current_resources
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.readers.base import LabelSpec
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.storage.append import append
from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import convert, convert_reader
from mlfs_dask.storage.extension import StoreExtension
from mlfs_dask.storage.opening import open_dataset
from mlfs_dask.storage.verify import verify
from tests.storage.memory_reader import make_reader
from tests.storage.stores import rows_of, sample

CUTS = [(60, 61), (60, 100), (7, 93), (93, 100), (1, 2, 3, 50, 100)]


def grow(path: Path, X: Any, Y: Any, cuts: tuple[int, ...], **options: Any) -> Path:
    """A store of the first rows, to which the others are appended in pieces."""
    names = {"feature_names": [f"f{i}" for i in range(X.shape[1])], "label_names": [f"l{i}" for i in range(Y.shape[1])]}
    options.setdefault("partition_bytes", 1500)
    for start, stop in itertools.pairwise((0, *cuts)):
        reader = make_reader(X[start:stop], Y[start:stop], **names)
        extension = StoreExtension(open_dataset(path)) if start else None
        open_reader = functools.partial(lambda reader: reader, reader)
        convert_reader(open_reader, path, workers=1, options=Options(**options), extension=extension)
    return path


@pytest.mark.filterwarnings("ignore:Transforming to str index")
@pytest.mark.parametrize(("cuts", "compressor"), [*((cuts, "none") for cuts in CUTS), (CUTS[1], "zstd")])
@pytest.mark.parametrize("sparse", [False, True])
def test_appended_rows_are_those_of_a_store_converted_at_once(tmp_path, cuts, sparse, compressor):
    X, Y = sample(n=100, sparse=sparse)
    X, Y = X[: cuts[-1]], Y[: cuts[-1]]
    form = {"storage": "sparse" if sparse else "dense", "compressor": compressor}
    grown = open_dataset(grow(tmp_path / "grown.zarr", X, Y, cuts, **form))
    whole = open_dataset(grow(tmp_path / "whole.zarr", X, Y, cuts[-1:], **form))
    for got, want in zip(rows_of(grown.path), (X, Y), strict=True):
        np.testing.assert_array_equal(got, want)
    assert grown.digest == whole.digest
    for name in ("n", "d", "q", "nonzeros", "label_nonzeros", "unknown", "positive", "constant_features", "kinds"):
        assert getattr(grown.schema, name) == getattr(whole.schema, name), name
    for name, values in vars(whole.features).items():
        np.testing.assert_array_equal(getattr(grown.features, name), values, err_msg=name)
    assert verify(grown.path).intact
    adata = anndata.read_zarr(grown.path)
    np.testing.assert_array_equal(adata.X.toarray() if sparse else adata.X, X)
    np.testing.assert_array_equal(adata.obs_names.astype(int), np.arange(len(X)))
    np.testing.assert_array_equal(grown.X.compute().todense() if sparse else grown.X.compute(), X)


def test_full_shards_and_partitions_stay_as_they_are(tmp_path):
    X, Y = sample(n=100, sparse=False)
    path = grow(tmp_path / "a.zarr", X, Y, (60,))
    before = open_dataset(path).schema
    files = {key: (path / key).stat().st_ino for key in before.sizes if key.startswith("X/c/")}
    assert len(files) > 3
    grow_once(path, X[60:], Y[60:])
    after = open_dataset(path).schema
    same = [key for key, inode in files.items() if (path / key).stat().st_ino == inode]
    assert len(same) >= len(files) - 1
    assert {key: after.digests[key] for key in same} == {key: before.digests[key] for key in same}
    count = before.partitions.count
    assert after.partitions.rows[: count + 1] == before.partitions.rows
    assert after.partitions.count > count
    assert after.earlier == ({"digest": before.digest, "partitions": count},)
    assert after.command.startswith(f"{before.command} && ")
    assert not list(tmp_path.glob(".*"))


def grow_once(path: Path, X: Any, Y: Any, **options: Any) -> None:
    dataset = open_dataset(path)
    reader = make_reader(X, Y, feature_names=dataset.feature_names.tolist(), label_names=dataset.label_names.tolist())
    convert_reader(
        lambda: reader, path, workers=1, options=Options(**options), command="more", extension=StoreExtension(dataset)
    )


def test_a_small_store_does_not_grow_by_small_files(tmp_path):
    X, Y = sample(n=600, sparse=False)
    path = grow(tmp_path / "a.zarr", X, Y, (2, 4, 6, 600), partition_bytes=10**6)
    assert sum(key.startswith("X/c/") for key in open_dataset(path).schema.sizes) == 1


ROWS = "height,colour,yes,l0,l1\n1,red,no,1,0\n2,blue,yes,0,1\n3,red,no,1,1\n"


def csv_store(folder: Path, text: str = ROWS, **options: Any) -> Path:
    (folder / "first.csv").write_text(text)
    convert(folder / "first.csv", folder / "a.zarr", labels=LabelSpec(count=2), **options)
    return folder / "a.zarr"


@pytest.mark.parametrize(
    ("text", "column", "message"),
    [
        ("tall,colour,yes,l0,l1\n1,red,no,1,0\n", None, "feature 1 is 'tall'; in the store .*a.zarr it is 'height'"),
        ("height,colour,yes,new,l1\n1,red,no,1,0\n", None, "label 1 is 'new'; in the store .*a.zarr it is 'l0'"),
        ("height,colour,l0,l1\n1,red,1,0\n", None, "feature 3 is not there; in the store .*a.zarr it is 'yes'"),
        ("height,colour,yes,l0,l1\n1,green,no,1,0\n", "colour", "has the values 'green', which this feature does not"),
        ("height,colour,yes,l0,l1\nx,red,no,1,0\n", "height", "its values are {x}; in the store .* they are numbers"),
        ("height,colour,yes,l0,l1\n1.5,red,no,1,0\n", "height", "a value is no whole number, and uint8"),
        ("height,colour,yes,l0,l1\n,red,no,1,0\n", "height", "a value is missing, and uint8"),
        ("height,colour,yes,l0,l1\n300,red,no,1,0\n", "height", "a value is above 255, and uint8"),
        ("height,colour,yes,l0,l1\n1,red,no,7,0\n", "l0", "7"),
        ("height,colour,yes,l0,l1\n", None, "no data row"),
    ],
)
def test_rows_that_do_not_fit_are_refused_and_the_store_stays(tmp_path, text, column, message):
    store = csv_store(tmp_path)
    before = open_dataset(store).schema
    (tmp_path / "more.csv").write_text(text)
    with pytest.raises(DataError, match=message) as caught:
        append(store, tmp_path / "more.csv", labels=LabelSpec(count=2))
    assert "cure:" in str(caught.value)
    if column is not None:
        assert caught.value.column == column
    assert open_dataset(store).schema == before
    assert verify(store).intact
    assert not list(tmp_path.glob(".*"))


def test_texts_have_the_codes_that_they_have_in_the_store(tmp_path):
    store = csv_store(tmp_path)
    for number, text in enumerate(("9,red,yes,1,0\n", "8,blue,no,0,1\n7,red,yes,1,1\n")):
        (tmp_path / f"{number}.csv").write_text(ROWS.partition("\n")[0] + "\n" + text)
        append(store, tmp_path / f"{number}.csv", labels=LabelSpec(count=2))
    (tmp_path / "all.csv").write_text(ROWS + "9,red,yes,1,0\n8,blue,no,0,1\n7,red,yes,1,1\n")
    convert(tmp_path / "all.csv", tmp_path / "whole.zarr", labels=LabelSpec(count=2))
    assert open_dataset(store).digest == open_dataset(tmp_path / "whole.zarr").digest
    np.testing.assert_array_equal(rows_of(store)[0][:, 1:], [[1, 0], [0, 1], [1, 0], [1, 1], [0, 0], [1, 1]])
    assert [Path(source["path"]).name for source in open_dataset(store).schema.sources] == [
        "first.csv",
        "0.csv",
        "1.csv",
    ]


def test_a_feature_may_come_to_hold_other_values_that_its_type_holds(tmp_path):
    store = csv_store(tmp_path, "a,l0,l1\n0,1,0\n1,0,1\n")
    assert open_dataset(store).kinds.tolist() == ["binary"]
    (tmp_path / "more.csv").write_text("a,l0,l1\n7,1,0\n")
    append(store, tmp_path / "more.csv", labels=LabelSpec(count=2))
    assert open_dataset(store).kinds.tolist() == ["integer"]
    assert open_dataset(store).features.maximum.tolist() == [7]


def test_digits_are_lost_only_where_the_type_is_named(tmp_path):
    text = "a,l0,l1\n0.5,1,0\n1.25,0,1\n"
    store = csv_store(tmp_path, text)
    (tmp_path / "more.csv").write_text("a,l0,l1\n0.1,1,0\n")
    with pytest.raises(DataError, match="lose digits as float32, the type of the store") as caught:
        append(store, tmp_path / "more.csv", labels=LabelSpec(count=2))
    assert caught.value.exit_code == 3
    with pytest.raises(UsageError, match="the store holds float32, so appended values cannot be float64"):
        append(store, tmp_path / "more.csv", labels=LabelSpec(count=2), dtype="float64")
    append(store, tmp_path / "more.csv", labels=LabelSpec(count=2), dtype="float32")
    assert rows_of(store)[0].ravel().tolist() == [0.5, 1.25, np.float32(0.1)]
    (tmp_path / "more.csv").write_text("a,l0,l1\n1e300,1,0\n")
    for dtype in (None, "float32"):
        with pytest.raises(
            DataError, match=r"column 'a', value '1e\+300': a value is above 3\.40282e\+38, and float32"
        ):
            append(store, tmp_path / "more.csv", labels=LabelSpec(count=2), dtype=dtype)


def test_a_row_wider_than_the_store_is_refused(tmp_path):
    (tmp_path / "a.svm").write_text("0,1 1:1 3:2\n1 2:5\n")
    convert(tmp_path / "a.svm", tmp_path / "a.zarr")
    (tmp_path / "b.svm").write_text("0 1:1\n")
    append(tmp_path / "a.zarr", tmp_path / "b.svm")  # a narrower file has zeros
    assert rows_of(tmp_path / "a.zarr")[0].tolist() == [[1, 0, 2], [0, 5, 0], [1, 0, 0]]
    for text, message in (("0 4:1\n", "feature number 4, and the store has 3"), ("2 1:1\n", "label number 3, and")):
        (tmp_path / "b.svm").write_text(text)
        with pytest.raises(DataError, match=message):
            append(tmp_path / "a.zarr", tmp_path / "b.svm")


def test_a_store_that_cannot_grow_is_left_alone(tmp_path):
    store = csv_store(tmp_path)
    dataset = open_dataset(store)
    dataset.schema = dataclasses.replace(dataset.schema, checksums={})
    with pytest.raises(DataError, match="in an earlier format, which cannot be appended to"):
        StoreExtension(dataset)


def test_a_store_that_changes_meanwhile_is_left_alone(tmp_path):
    store = csv_store(tmp_path)
    late = StoreExtension(open_dataset(store))
    append(store, tmp_path / "first.csv", labels=LabelSpec(count=2))
    now = open_dataset(store).schema
    X, Y = np.ones((1, 3)), np.ones((1, 2), np.int8)
    names = {"feature_names": ["height", "colour", "yes"], "label_names": ["l0", "l1"]}
    reader = make_reader(X, Y, categories={1: ("blue", "red")}, **names)
    with pytest.raises(DataError, match="the store was replaced while it was read"):
        convert_reader(lambda: reader, store, workers=1, options=Options(), extension=late)
    assert open_dataset(store).schema == now


def test_a_link_to_a_store_stays_a_link(tmp_path):
    store = csv_store(tmp_path)
    (tmp_path / "link.zarr").symlink_to("a.zarr")
    append(tmp_path / "link.zarr", tmp_path / "first.csv", labels=LabelSpec(count=2))
    assert (tmp_path / "link.zarr").is_symlink()
    assert open_dataset(store).schema.n == 6


def test_a_store_at_a_url_grows(tmp_path):
    csv_store(tmp_path)
    url = "memory://append/a.zarr"
    convert(tmp_path / "first.csv", url, labels=LabelSpec(count=2))
    for n in (6, 9):
        append(url, tmp_path / "first.csv", labels=LabelSpec(count=2))
        assert open_dataset(url).schema.n == n
        assert verify(url).intact
    shutil.copy(tmp_path / "first.csv", tmp_path / "again.csv")
    append(tmp_path / "a.zarr", [tmp_path / "first.csv", tmp_path / "again.csv"], labels=LabelSpec(count=2))
    assert open_dataset(url).digest == open_dataset(tmp_path / "a.zarr").digest


KILLED = """
import os, signal, sys
from mlfs_dask.storage import convert, destination
from mlfs_dask.files import publish
from mlfs_dask.storage.append import append
from mlfs_dask.readers.base import LabelSpec

name, when, exchanges = sys.argv[1:4]
module = convert if name.startswith("write") else destination if name == "remove" else publish
wanted = getattr(module, name)

def killed(*arguments, **keywords):
    if when == "after":
        wanted(*arguments, **keywords)
    os.kill(os.getpid(), signal.SIGKILL)

setattr(module, name, killed)
if exchanges == "no":
    publish._exchange = lambda new, place: False
append("a.zarr", os.path.abspath("first.csv"), labels=LabelSpec(count=2))
"""


@pytest.mark.parametrize(
    ("function", "when", "exchanges", "appended"),
    [("write_root", "after", "yes", False), ("_exchange", "after", "yes", True), ("remove", "before", "no", True)],
)
def test_a_killed_append_leaves_a_whole_store_and_is_resumed_once(tmp_path, function, when, exchanges, appended):
    store = csv_store(tmp_path)
    arguments = [sys.executable, "-c", KILLED, function, when, exchanges]
    assert subprocess.run(arguments, cwd=tmp_path, check=False).returncode == -signal.SIGKILL
    assert open_dataset(store).schema.n == (6 if appended else 3)
    assert verify(store).intact
    if not appended:
        with pytest.raises(UsageError, match="--resume"):
            append(store, tmp_path / "first.csv", labels=LabelSpec(count=2))
    append(store, tmp_path / "first.csv", labels=LabelSpec(count=2), resume=True)
    assert open_dataset(store).schema.n == 6
    assert verify(store).intact
    assert not list(tmp_path.glob(".*"))


TRASH = """
import os, shutil, signal
from mlfs_dask.files import publish
from mlfs_dask.storage.append import append
from mlfs_dask.readers.base import LabelSpec

publish.shutil.rmtree = lambda *arguments, **keywords: os.kill(os.getpid(), signal.SIGKILL)
append("a.zarr", "first.csv", labels=LabelSpec(count=2))
"""


def test_an_append_that_is_done_is_not_resumed(tmp_path, monkeypatch):
    """Not by the command that did it, and not after a kill in its very last step."""
    monkeypatch.chdir(tmp_path)
    csv_store(tmp_path)
    assert subprocess.run([sys.executable, "-c", TRASH], check=False).returncode == -signal.SIGKILL
    assert len(list(tmp_path.glob("..*.part"))) == 1
    for _ in range(2):
        append("a.zarr", "first.csv", labels=LabelSpec(count=2), resume=True)
        assert open_dataset("a.zarr").schema.n == 6
        assert not list(tmp_path.glob(".*"))
    append("a.zarr", "first.csv", labels=LabelSpec(count=2), resume=True, command="append a.zarr first.csv --quiet -v")
    with pytest.raises(UsageError, match="it is the same, but the command is another\n  cure: leave --resume out"):
        append(
            "a.zarr", "first.csv", labels=LabelSpec(count=2), resume=True, command="append a.zarr first.csv --drop x"
        )
    assert open_dataset("a.zarr").schema.n == 6
    Path("first.csv").write_text(ROWS.replace("1,red", "2,red"))  # as many bytes
    append("a.zarr", "first.csv", labels=LabelSpec(count=2), resume=True)
    assert open_dataset("a.zarr").schema.n == 9
    append("a.zarr", "first.csv", labels=LabelSpec(count=2))
    assert open_dataset("a.zarr").schema.n == 12


def test_sources_at_a_url_are_not_appended_twice_by_resume(tmp_path):
    store, url = csv_store(tmp_path), "memory://append-again/first.csv"
    with fsspec.open(url, "w") as file:
        file.write(ROWS)
    append(store, url, labels=LabelSpec(count=2), resume=True)
    with pytest.raises(UsageError, match="it lies at a URL, and is not compared\n  cure: leave --resume out"):
        append(store, url, labels=LabelSpec(count=2), resume=True)
    assert open_dataset(store).schema.n == 6


@pytest.mark.parametrize(
    ("first", "meaning"), [("1,1\n2,-1\n", "negative"), ("1,1\n2,-1\n3,0\n", "unknown"), ("1,1\n2,0\n", "")]
)
def test_what_minus_one_meant_is_recorded(tmp_path, caplog, first, meaning):
    """Rows whose labels are all -1 do not tell it."""
    for name, rows in {"a": first, "b": "4,-1\n5,-1\n", "c": "6,1\n7,-1\n"}.items():
        (tmp_path / f"{name}.csv").write_text("a,l\n" + rows)
    store = tmp_path / "a.zarr"
    convert(tmp_path / "a.csv", store, labels=LabelSpec(count=1))
    assert open_dataset(store).schema.minus_one == meaning
    caplog.clear()
    for name, unknown in (("b", 2), ("c", 3)):
        append(store, tmp_path / f"{name}.csv", labels=LabelSpec(count=1))
        before = int(meaning == "unknown")
        assert sum(open_dataset(store).schema.unknown) == (0 if meaning == "negative" else before + unknown)
    assert [message[:22] for message in caplog.messages] == ([] if meaning else ["all labels are -1, so "])
    before = sum(open_dataset(store).schema.unknown)
    append(store, tmp_path / "b.csv", labels=LabelSpec(count=1, unknown=("-1",)))
    assert sum(open_dataset(store).schema.unknown) == before + 2


def test_a_categorical_column_without_a_value_is_missing_throughout(tmp_path):
    store = csv_store(tmp_path, "height,colour,l0,l1\n1.5,red,1,0\n2,blue,0,1\n")
    (tmp_path / "more.csv").write_text("height,colour,l0,l1\n1,,1,0\n2,NA,0,1\n")
    append(store, tmp_path / "more.csv", labels=LabelSpec(count=2))
    np.testing.assert_array_equal(rows_of(store)[0][:, 1], [1, 0, np.nan, np.nan])
    assert open_dataset(store).categories == {1: ("blue", "red")}


def test_the_same_rows_twice_are_told(tmp_path, caplog: pytest.LogCaptureFixture) -> None:
    """As by a job that is started again after it was done."""
    store, labels = tmp_path / "s.zarr", LabelSpec(xml=str(tmp_path / "labels.xml"))
    Path(labels.xml).write_text('<labels><label name="y"></label></labels>')
    for name, rows in {"a": "1,2,0\n3,4,1\n", "b": "5,6,0\n", "copy": "5,6,0\n"}.items():
        (tmp_path / f"{name}.csv").write_text(f"f,g,y\n{rows}")
    convert(tmp_path / "a.csv", store, labels=labels)
    append(store, tmp_path / "b.csv", labels=labels)
    assert not caplog.messages  # the file of labels is the same each time
    append(store, tmp_path / "copy.csv", labels=labels)
    (told,) = caplog.messages
    assert told == (
        f"{tmp_path}/copy.csv has the content of {tmp_path}/b.csv, whose rows were in the store: it has them twice now"
    )
    with pytest.raises(UsageError, match="is both read and written"):
        append(store, store)
    assert open_dataset(store).shape == (4, 2)


def test_the_exact_graph_of_a_store_that_grew_is_planned_for_all_rows(tmp_path):
    X, Y = sample(n=100, sparse=False)
    stores = [grow(tmp_path / f"{i}.zarr", X, Y, cuts) for i, cuts in enumerate([(90, 100), (100,)])]
    mfsir = get_estimator("mfsir")(graph="exact")
    grown, whole = (mfsir.plan(open_dataset(store).rows, current_resources()) for store in stores)
    assert (grown.bytes_read, grown.tasks) == (whole.bytes_read, whole.tasks)
