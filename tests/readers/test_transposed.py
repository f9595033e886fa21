"""Tables with features as rows, and a table of the samples' labels."""

from __future__ import annotations

import shutil
from collections import namedtuple
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers import transposed
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.opening import open_dataset
from tests.readers.reading import check_splits, read_all

RNG = np.random.default_rng(3)
GENES = [f"g{i}" for i in range(40)]
SAMPLES = [f"s{i}" for i in range(7)]
EXPRESSION = pd.DataFrame(RNG.normal(size=(40, 7)).round(3), index=pd.Index(GENES, name="gene"), columns=SAMPLES)
EXPRESSION.iloc[3, 2] = np.nan
PHENOTYPES = pd.DataFrame(
    {"sick": ["1", "0", "", "1", "0", "1"], "kind": ["a", "b", "a", "c", "c", "b"], "age": range(6)},
    index=pd.Index(["s4", "s0", "s2", "zz", "s6", "s1"], name="sample"),
)
SICK = [0, 1, -1, -1, 1, -1, 0]
KINDS = [[0, 1, 0], [0, 1, 0], [1, 0, 0], [-1] * 3, [1, 0, 0], [-1] * 3, [0, 0, 1]]


def options(folder: Path, **labels: object) -> FileSpec:
    PHENOTYPES.to_csv(folder / "phenotypes.csv")
    spec = LabelSpec(xml=str(folder / "phenotypes.csv"), **{"columns": ("sick",), **labels})
    return FileSpec(labels=spec, transpose=True)


def write(folder: Path, name: str, table: pd.DataFrame = EXPRESSION) -> str:
    path = folder / name
    if ".parquet" in name:
        table.to_parquet(path, row_group_size=11)
    elif ".feather" in name:
        table.reset_index().to_feather(path)
    else:
        table.to_csv(path, sep="\t" if ".tsv" in name else ",")
    return str(path)


@pytest.mark.parametrize("name", ["t.csv", "t.csv.gz", "t.tsv", "t.parquet", "t.feather"])
def test_samples_are_rows_and_labels_follow_their_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str
) -> None:
    path, read = write(tmp_path, name), options(tmp_path)
    reader = open_source([path], read)
    assert (reader.header.feature_names, reader.header.label_names) == (tuple(GENES), ("sick",))
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X, EXPRESSION.to_numpy().T)
    assert Y.ravel().tolist() == SICK
    check_splits(reader, sizes=(1, 700))
    table = read.labels.xml
    assert f"{table}: 1 of 6 samples are not in {path}, 'zz' for one: left out" in caplog.messages
    assert f"{path}: 2 of 7 samples are not in {table}: their labels are unknown" in caplog.messages


def test_classes_of_samples(tmp_path: Path) -> None:
    reader = open_source([write(tmp_path, "t.csv")], options(tmp_path, columns=("sick", "kind"), classes=True))
    assert reader.header.label_names == ("sick", "kind=a", "kind=b", "kind=c")
    expected = [[sick, *kind] for sick, kind in zip(SICK, KINDS, strict=True)]
    assert read_all(reader)[1].tolist() == expected


def test_the_file_is_turned_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    whole = transposed.filled_temporary_file
    monkeypatch.setattr(transposed, "filled_temporary_file", lambda *args: made.append(args) or whole(*args))
    monkeypatch.setattr(transposed, "BATCH_BYTES", 100)
    read = options(tmp_path)
    convert(write(tmp_path, "t.csv"), tmp_path / "t.zarr", labels=read.labels, transpose=True, workers=2)
    dataset = open_dataset(tmp_path / "t.zarr")
    np.testing.assert_array_equal(dataset.X.compute(), EXPRESSION.to_numpy().T)
    assert made == [("mlfs-transpose-", 8 * 40 * 7)]


def test_columns_that_are_no_samples(tmp_path: Path) -> None:
    table = EXPRESSION.reset_index().assign(description="a gene")[["gene", "description", *SAMPLES]].set_index("gene")
    for name in ("t.csv", "t.parquet"):
        path = write(tmp_path, name, table)
        with pytest.raises(
            DataError, match=r"column 'description': .*this one holds texts\n  cure: leave it out: --drop 'des"
        ):
            open_source([path], options(tmp_path))
        reader = open_source([path], replace(options(tmp_path), drop=("description",)))
        np.testing.assert_array_equal(read_all(reader)[0], EXPRESSION.to_numpy().T)


@pytest.mark.parametrize("name", ["t.traw", "t.parquet"])
def test_names_stand_in_the_first_column_that_is_not_left_out(tmp_path: Path, name: str) -> None:
    table = EXPRESSION.reset_index().assign(CHR=1, POS=2)[["CHR", "gene", "POS", *SAMPLES]]
    path = str(tmp_path / name)
    table.to_parquet(path) if name == "t.parquet" else table.to_csv(path, sep="\t", index=False)
    reader = open_source([path], replace(options(tmp_path), drop=("CHR", "POS")))
    assert reader.header.feature_names == tuple(GENES)
    np.testing.assert_array_equal(read_all(reader)[0], EXPRESSION.to_numpy().T)


def test_features_that_stand_twice(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv", EXPRESSION.rename(index={"g2": "g1"}))
    with pytest.raises(
        DataError, match=r"value 'g1': two features \(rows\) have the same name.*\n  cure: .*--key names=unique"
    ):
        open_source([path], options(tmp_path))
    reader = open_source([path], replace(options(tmp_path), keys={"names": "unique"}))
    assert reader.header.feature_names[:4] == ("g0", "g1", "g1-1", "g3")


def test_what_finds_no_room_is_refused_with_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transposed, "SMALL_BYTES", 0)
    usage = namedtuple("usage", "free")(2239)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(DoesNotFitError, match="40 features of 7 samples, transposed in a temporary file") as caught:
        open_source([write(tmp_path, "t.csv")], options(tmp_path))
    assert (caught.value.projected, caught.value.available) == (2240, 2239)


def test_without_a_table_of_labels(tmp_path: Path) -> None:
    labels = LabelSpec(columns=("sick",))
    with pytest.raises(UsageError, match="no option says where the labels of the samples are"):
        open_source([write(tmp_path, "t.csv")], FileSpec(labels=labels, transpose=True))
    with pytest.raises(UsageError, match="exclude one another"):
        LabelSpec(xml="phenotypes.csv", count=1)


def test_tables_of_labels_that_do_not_fit(tmp_path: Path) -> None:
    path = write(tmp_path, "t.csv")
    with pytest.raises(
        DataError, match=r"phenotypes.csv, column 'kind', value 'a': a label must be .*\n.*--label-classes"
    ):
        open_source([path], options(tmp_path, columns=("kind",)))
    with pytest.raises(DataError, match="the label 'ill' is none of the 3 columns"):
        open_source([path], options(tmp_path, columns=("ill",)))
    other = write(tmp_path, "u.csv", EXPRESSION.add_prefix("x"))
    with pytest.raises(DataError, match=r"value 's4': no sample of .*u.csv is in the table\n  cure: .*\('xs0'\)"):
        open_source([other], options(tmp_path))
    np.savez(tmp_path / "t.npz", X=np.ones((2, 2)), Y=np.ones((2, 2)))
    with pytest.raises(UsageError, match="npz is no table\n  cure: --transpose goes with csv, feather, parquet, tsv"):
        open_source([str(tmp_path / "t.npz")], FileSpec(transpose=True))
