"""Parquet: row groups, nulls, texts and dictionaries."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from pyarrow import feather, parquet

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, DoesNotFitError
from mlfs_dask.formats import parquet as parquet_module
from mlfs_dask.formats.parquet import open_parquet
from mlfs_dask.readers.base import FileSpec, LabelSpec
from tests.readers.reading import check_splits, read_all

LAST = FileSpec(labels=LabelSpec(count=1))
nan = np.nan


def save(tmp_path: Path, group: int = 10, **columns: object) -> str:
    parquet.write_table(pa.table(columns), tmp_path / "t.parquet", row_group_size=group)
    return str(tmp_path / "t.parquet")


def save_feather(tmp_path: Path, group: int = 10, compression: str = "lz4", **columns: object) -> str:
    feather.write_feather(pa.table(columns), tmp_path / "t.feather", chunksize=group, compression=compression)
    return str(tmp_path / "t.feather")


def test_rows_in_any_split(tmp_path: Path) -> None:
    values = np.arange(95) / 7
    reader = open_parquet(save(tmp_path, a=values, b=np.arange(95), y=np.arange(95) % 2), LAST)
    assert len(reader.parts(1)) == 10
    assert len(reader.parts(1 << 30)) == 1
    assert reader.header.feature_names == ("a", "b")
    assert reader.header.n_rows == 95
    check_splits(reader)
    np.testing.assert_array_equal(read_all(reader)[0][:, 0], values)


@pytest.mark.parametrize("compression", ["lz4", "uncompressed"])
@pytest.mark.parametrize("small", [1 << 24, 500])
def test_feather_is_read_as_parquet_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compression: str, small: int
) -> None:
    monkeypatch.setattr(parquet_module, "SMALL_BYTES", small)
    monkeypatch.setattr(runtime, "give_back_freed_memory", lambda: None)  # takes long here, and changes no value
    columns = {
        "a": pa.array([None, *np.arange(94) / 7]),
        "s": np.array(["c", "a", "b"])[np.arange(95) % 3],
        "k": pa.array(np.array(["u", "v"])[np.arange(95) % 2]).dictionary_encode(),
        "y": pa.array(np.arange(95) % 2 == 1),
        "z": np.array(["no", "yes"])[np.arange(95) % 2],
    }
    options = FileSpec(labels=LabelSpec(count=2))
    expected = read_all(open_parquet(save(tmp_path, **columns), options))
    reader = open_parquet(save_feather(tmp_path, compression=compression, **columns), options)
    assert reader.header == open_parquet(str(tmp_path / "t.parquet"), options).header
    assert len(reader.parts(1)) == 10
    for found, wanted in zip(read_all(reader), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)
    check_splits(reader, sizes=(1, 300) if small > 500 else (300, 900))


def test_the_index_of_a_pandas_table_is_no_feature(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "t.parquet"
    table = pd.DataFrame({"a": [1, 2], "y": [0, 1]}, index=["r1", "r2"])
    for name, stored in ((None, "__index_level_0__"), ("patient", "patient")):
        table.rename_axis(name).to_parquet(path)
        caplog.clear()
        assert open_parquet(str(path), LAST).header.feature_names == ("a",)
        assert caplog.messages == [f"{path}: column {stored!r} is the index of a pandas table: it is left out"]
        for drop in ((), (stored,)):
            X, Y = read_all(open_parquet(str(path), FileSpec(labels=LabelSpec(columns=("y",)), drop=drop)))
            assert (X.tolist(), Y.tolist()) == ([[1.0], [2.0]], [[0], [1]])
    table.reset_index(drop=True).to_parquet(path)
    assert open_parquet(str(path), LAST).header.feature_names == ("a",)


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", ["", "Unnamed: 0"])
def test_row_numbers_without_a_name_are_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, name: str, first: int
) -> None:
    path = save(tmp_path, **{name: np.arange(25) + first, "a": np.arange(25) / 4, "y": np.arange(25) % 2})
    reader = open_parquet(path, LAST)
    assert caplog.messages == [f"{path}: column {name!r} has no name and holds row numbers: it is left out"]
    assert (reader.header.feature_names, reader.header.label_names) == (("a",), ("y",))
    np.testing.assert_array_equal(read_all(reader)[0][:, 0], np.arange(25) / 4)


def test_a_column_without_name_and_values_is_left_out(tmp_path: Path) -> None:
    empty = save(tmp_path, **{"a": np.arange(3), "y": [0, 1, 0], "": [None, None, None]})
    assert open_parquet(empty, LAST).header.label_names == ("y",)


def test_many_columns_go_through_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet_module, "SMALL_BYTES", 1000)
    columns = {f"f{i}": np.arange(95) * i / 7 for i in range(6)}
    texts = np.array(["c", "a", "b"])[np.arange(95) % 3]
    path = save(
        tmp_path, group=30, **columns, s=texts, y=np.arange(95) % 2, z=np.array(["no", "yes"])[np.arange(95) % 2]
    )
    reader = open_parquet(path, FileSpec(labels=LabelSpec(count=2)))
    taken = []
    whole = parquet_module._runs
    monkeypatch.setattr(parquet_module, "_runs", lambda *how: [taken.append(n) or n for n in whole(*how)])
    X, Y = read_all(reader, batch_bytes=200)
    assert len(taken) > 8, "several runs of columns in each of four row groups"
    assert sum(taken) == 4 * 9
    np.testing.assert_array_equal(X[:, :6], np.column_stack(list(columns.values())))
    np.testing.assert_array_equal(X[:, 6], [2, 0, 1] * 31 + [2, 0])
    np.testing.assert_array_equal(Y, np.column_stack([np.arange(95) % 2] * 2))
    check_splits(reader, sizes=(200, 600))


def test_types_and_nulls(tmp_path: Path) -> None:
    path = save(
        tmp_path,
        i=pa.array([1, None, 3], pa.int8()),
        f=pa.array([1.5, nan, None], pa.float32()),
        b=pa.array([True, False, None]),
        d=pa.array([Decimal("1.25"), None, Decimal("2.50")]),
        n=pa.array([None, None, None]),
        y=pa.array([True, False, None]),
        z=pa.array([1.0, nan, 0.0]),
    )
    X, Y = read_all(open_parquet(path, FileSpec(labels=LabelSpec(columns=("y", "z")))))
    np.testing.assert_array_equal(X, [[1, 1.5, 1, 1.25, nan], [nan, nan, 0, nan, nan], [3, nan, nan, 2.5, nan]])
    np.testing.assert_array_equal(Y, [[1, 1], [0, -1], [-1, 0]])


def test_codes_are_the_sorted_texts_of_all_row_groups(tmp_path: Path) -> None:
    texts = ["zebra", "cat", None, "ant"] * 10
    path = save(
        tmp_path,
        group=3,
        s=texts,
        t=pa.array(texts).dictionary_encode(),
        y=["yes", "no", None, "1"] * 10,
    )
    reader = open_parquet(path, LAST)
    assert reader.header.categories == {0: ("ant", "cat", "zebra"), 1: ("ant", "cat", "zebra")}
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X[:4], [[2, 2], [1, 1], [nan, nan], [0, 0]])
    np.testing.assert_array_equal(Y[:4, 0], [1, 0, -1, 1])
    check_splits(reader)
    code = (
        "import sys; from mlfs_dask.readers.base import LabelSpec, FileSpec; "
        "from mlfs_dask.formats.parquet import open_parquet; "
        f"reader = open_parquet({path!r}, FileSpec(labels=LabelSpec(count=1))); "
        "print(sum(len(batch.X) for part in reader.parts(1) for batch in reader.read(part, batch_bytes=1 << 20))); "
        "print('pandas' in sys.modules)"
    )
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.split() == ["40", "False"]


@pytest.mark.parametrize("save", [save, save_feather])
def test_categories_that_no_row_has(tmp_path: Path, save: Callable[..., str]) -> None:
    """A dictionary may hold more than the rows use, as that of a pandas column some of whose rows were left out."""
    column = pa.DictionaryArray.from_arrays(pa.array([0, 1, None, 0]), ["b", "a", "unused"])
    reader = open_parquet(save(tmp_path, c=column, y=[0, 1, 1, 0]), LAST)
    assert reader.header.categories == {0: ("a", "b")}
    np.testing.assert_array_equal(read_all(reader)[0][:, 0], [1, 0, nan, 1])
    save(tmp_path, c=np.array(["a", "b", "new", "b"]), y=[0, 1, 1, 0])
    with pytest.raises(DataError, match="column 'c', value 'new': a text that the first pass over the column did not"):
        read_all(reader)


def ordered(rows: list[str | None], order: list[str]) -> pa.Array:
    return pa.Array.from_pandas(pd.Categorical(rows, categories=order, ordered=True))


@pytest.mark.parametrize("save", [save, save_feather])
def test_an_ordered_dictionary_keeps_its_order(tmp_path: Path, save: Callable[..., str]) -> None:
    order = ["low", "mid", "never", "high"]
    size = pd.Categorical([None, "high", "low", "mid", "high"], categories=order, ordered=True)
    path = save(
        tmp_path,
        group=2,
        s=pa.Array.from_pandas(size),
        b=ordered(["yes", "no", "yes", "no", "yes"], ["yes", "no"]),
        y=[0, 1, 1, 0, 1],
    )
    reader = open_parquet(path, LAST)
    assert reader.header.categories == {0: tuple(order), 1: ("no", "yes")}, "true stays 1"
    X, _ = read_all(reader)
    np.testing.assert_array_equal(X[:, 0], np.where(size.codes < 0, nan, size.codes))
    np.testing.assert_array_equal(X[:, 1], [1, 0, 1, 0, 1])
    check_splits(reader)


def test_an_order_that_row_groups_do_not_give(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Without a dictionary in the file, or with several, the order that comes out depends on the rows that are read."""
    said = "column 's' is ordered, but its row groups do not say in which order: its texts are sorted"
    rows = ["low", "high", "mid", "low"]
    table = pa.table({"s": ordered(rows, ["low", "mid", "high"]), "y": [0, 1, 1, 0]})
    path = tmp_path / "t.parquet"
    parquet.write_table(table, path, use_dictionary=False)
    several = tmp_path / "several.parquet"
    with parquet.ParquetWriter(several, table.schema) as writer:
        for order in (["low", "mid", "high"], ["high", "low", "mid"]):
            writer.write_table(pa.table({"s": ordered(rows, order), "y": [0, 1, 1, 0]}))
    for file in (path, several):
        caplog.clear()
        reader = open_parquet(str(file), LAST)
        assert caplog.messages == [f"{file}: {said}"]
        assert reader.header.categories == {0: ("high", "low", "mid")}
        np.testing.assert_array_equal(read_all(reader)[0][:4, 0], [1, 0, 2, 1])


def cut_off(folder: Path, save: Callable[..., str] = save) -> str:
    path = Path(save(folder, a=np.arange(100), y=np.arange(100) % 2))
    path.write_bytes(path.read_bytes()[:-20])
    return str(path)


def old_feather(folder: Path) -> str:
    (folder / "t.feather").write_bytes(b"FEA1 and more")
    return str(folder / "t.feather")


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (lambda folder: save(folder, when=pa.array([0, 1], pa.timestamp("s")), y=[0, 1]),
         r"a column of type timestamp.* is neither number nor text\n  cure: leave it out: --drop 'when'"),
        (lambda folder: save(folder, id=list("abcda"), y=[0, 1, 0, 1, 1]),
         "column 'id': a categorical column may hold 3 different texts"),
        (lambda folder: save(folder, a=pa.array([], pa.int8()), y=pa.array([], pa.int8())), "the table has no rows"),
        (lambda folder: save(folder, **{"a": np.arange(3), "": [1, 2, 4], "y": [0, 1, 0]}),
         "column 2: the column has no name"),
        (cut_off, "it is no Parquet file, or cut off"),
        (lambda folder: cut_off(folder, save_feather), "it is no Feather file, or cut off"),
        (old_feather, "it is Feather of version 1"),
    ],
)  # fmt: skip
def test_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, write: Callable[[Path], str], problem: str) -> None:
    monkeypatch.setattr("mlfs_dask.readers.table.MAX_CATEGORIES", 3)
    with pytest.raises(DataError, match=problem):
        open_parquet(write(tmp_path), LAST)


def test_damaged_pages(tmp_path: Path) -> None:
    path = Path(save(tmp_path, group=1000, a=np.random.default_rng(0).normal(size=1000), y=np.arange(1000) % 2))
    data = bytearray(path.read_bytes())
    data[4:400] = b"\xff" * 396
    path.write_bytes(data)
    reader = open_parquet(str(path), LAST)
    with pytest.raises(DataError, match="the file is damaged"):
        read_all(reader)


@pytest.mark.parametrize("content", ["{", "[1]", '"text"', '{"index_columns": 5}', b"\xff"])
def test_damaged_words_of_pandas(tmp_path: Path, content: str | bytes) -> None:
    table = pa.table({"a": [1, 2], "y": [0, 1]}).replace_schema_metadata({"pandas": content})
    parquet.write_table(table, tmp_path / "t.parquet")
    with pytest.raises(DataError, match=r"t\.parquet: what pandas says of the table is damaged: .*\n  cure: "):
        open_parquet(str(tmp_path / "t.parquet"), FileSpec(labels=LabelSpec(count=1)))


def test_what_many_columns_take_is_planned_and_refused_as_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save(tmp_path, 1, **{f"c{column}": [0.0, 1.0] * 10 for column in range(1000)})
    reader = open_parquet(path, LAST)
    metadata = parquet.read_metadata(path)
    assert reader.held_bytes(1 << 16) > 1000 * metadata.num_columns * metadata.num_row_groups
    assert metadata.serialized_size > 1 << 21
    monkeypatch.setattr(runtime, "memory_limit", lambda: 1 << 20)
    with pytest.raises(DoesNotFitError, match="what it says of its columns: projected"):
        open_parquet(path, LAST)
    monkeypatch.undo()
    monkeypatch.setattr(
        parquet.ParquetFile, "__init__", Mock(side_effect=OSError("Couldn't deserialize thrift: std::bad_alloc"))
    )
    with pytest.raises(DoesNotFitError, match="or give more memory"):
        open_parquet(path, LAST)
