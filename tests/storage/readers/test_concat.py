"""Several files as one: what has to agree, and what is united."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.base import Header, LabelSpec, ReadOptions
from mlfs_dask.storage.readers.concat import concatenate
from mlfs_dask.storage.readers.csv import open_csv
from mlfs_dask.storage.readers.detect import open_source
from mlfs_dask.storage.readers.parquet import open_parquet
from tests.storage.readers.reading import check_splits, read_all

LAST = ReadOptions(labels=LabelSpec(count=1))


@dataclass(frozen=True)
class Fake:
    """A reader of which only the header is asked."""

    path: str
    header: Header

    def parts(self, part_bytes: int) -> list:
        raise NotImplementedError

    def read(self, part: object, *, batch_bytes: int) -> object:
        raise NotImplementedError


def header(**changes: object) -> Header:
    facts = {
        "feature_names": ("a", "b"),
        "label_names": ("y",),
        "n_features": 2,
        "n_labels": 1,
        "n_rows": 5,
        "categories": {1: ("no", "yes")},
    }
    return Header(**facts | changes)


def joined(*headers: Header) -> Header:
    return concatenate([Fake(f"file{i}", h) for i, h in enumerate(headers)]).header


def test_one_file_is_itself() -> None:
    one = Fake("file", header())
    assert concatenate([one]) is one


def test_headers_that_agree() -> None:
    assert joined(header(), header(), header()) == header(n_rows=15)
    assert joined(header(), header(n_rows=None)).n_rows is None


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"feature_names": ("a", "c")}, "file1: feature 2 is 'c'; in file0 it is 'b'"),
        ({"feature_names": ("a", "b", "c")}, "file1: feature 3 is 'c'; in file0 it is not there"),
        ({"feature_names": ("a",)}, "file1: feature 2 is not there; in file0 it is 'b'"),
        ({"feature_names": None}, "file1: it has no feature names, file0 has them"),
        ({"label_names": ("z",)}, "file1: label 1 is 'z'; in file0 it is 'y'"),
        (
            {"categories": {1: ("yes", "no")}},
            "file1, column 'b': its values are {yes, no}; in file0 they are {no, yes}",
        ),
        ({"categories": {}}, "file1, column 'b': its values are numbers; in file0 they are {no, yes}"),
        (
            {"categories": {1: tuple("abcdefghijkl")}},
            "its values are {a, b, c, d, e, f, g, h, i, j, ... 12 in all}",
        ),
    ],
)
def test_the_first_difference_is_named(change: dict[str, object], said: str) -> None:
    with pytest.raises(DataError) as caught:
        joined(header(), header(**change))
    assert said in str(caught.value)
    assert caught.value.cure


def test_widths_without_names() -> None:
    bare = {"feature_names": None, "label_names": None, "categories": {}}
    with pytest.raises(DataError, match="file1: it has 3 features, file0 has 2"):
        joined(header(**bare), header(**bare, n_features=3))
    open_width = joined(header(**bare), header(**bare, n_features=None))
    assert open_width.n_features is None, "only the rows tell"


@pytest.fixture
def files(tmp_path: Path):
    def write(*texts: str):
        paths = [tmp_path / f"{i}.csv" for i in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return concatenate([open_csv(str(path), LAST) for path in paths])

    return write


def test_found_categories_are_united(files) -> None:
    reader = files("k,y\nc,0\na,1\n", "k,y\nb,0\nc,1\n", "k,y\n2,0\n10,1\n")
    assert reader.header.categories == {0: ("10", "2", "a", "b", "c")}
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X[:, 0], [4, 2, 3, 4, 1, 0])
    np.testing.assert_array_equal(Y[:, 0], [0, 1] * 3)


@pytest.fixture
def tables(tmp_path: Path):
    def write(*orders: list[str] | None):
        paths = [tmp_path / f"{i}.parquet" for i in range(len(orders))]
        for path, order in zip(paths, orders, strict=True):
            rows = order[::-1] if order else ["low", "high"]
            column = pd.Categorical(rows, categories=order, ordered=order is not None)
            pd.DataFrame({"k": column, "y": [0, *[1] * (len(rows) - 1)]}).to_parquet(path)
        return concatenate([open_parquet(str(path), LAST) for path in paths])

    return write


def test_the_order_of_categories_that_files_give_is_kept(tables) -> None:
    reader = tables(["low", "high"], ["low", "mid", "high"], None)
    assert reader.header.categories == {0: ("low", "mid", "high")}
    np.testing.assert_array_equal(read_all(reader)[0][:, 0], [2, 0, 2, 1, 0, 0, 2])


@pytest.mark.parametrize(
    ("orders", "said"),
    [
        (
            [["low", "high"], ["high", "low"]],
            r"1\.parquet, column 'k': its values are {high, low}; in .*0\.parquet they",
        ),
        (
            [None, ["low", "mid"]],
            r"0\.parquet, column 'k': its values are {high, low}; in .*1\.parquet they are {low, mid}",
        ),
    ],
)
def test_orders_of_categories_that_differ(tables, orders: list[list[str] | None], said: str) -> None:
    with pytest.raises(DataError, match=said):
        tables(*orders)


def test_any_split(files) -> None:
    texts = ["x,y\n" + "".join(f"{100 * i + j},{j % 2}\n" for j in range(30)) for i in range(3)]
    reader = files(*texts)
    assert len({part.start for part in reader.parts(40)}) == len(reader.parts(40)) > 6
    check_splits(reader, sizes=(1, 60))


def test_names_that_differ_between_files(files) -> None:
    with pytest.raises(DataError, match=r"1\.csv: feature 1 is 'z'; in .*0\.csv it is 'x'"):
        files("x,y\n1,0\n", "z,y\n1,0\n")


@pytest.mark.parametrize("form", ["csv", "parquet"])
@pytest.mark.parametrize("files", [1, 2])
@pytest.mark.parametrize("most", [100_000, 25])
def test_a_column_with_a_text_of_its_own_in_every_row_is_left_out(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, form: str, files: int, most: int
) -> None:
    monkeypatch.setattr("mlfs_dask.storage.readers.table.MAX_CATEGORIES", most)
    table = pd.DataFrame({"id": [f"s{row}" for row in range(80)], "x": np.arange(80) / 4, "y": np.arange(80) % 2})
    paths = [str(tmp_path / f"{number}.{form}") for number in range(files)]
    for path, rows in zip(paths, np.array_split(np.arange(80), files), strict=True):
        getattr(table.iloc[rows], f"to_{form}")(path, index=False)
    reader = open_source(paths, LAST)
    assert reader.header.feature_names == ("x",)
    assert "column 'id' has a text of its own in every row: it is left out" in caplog.text
    np.testing.assert_array_equal(read_all(reader)[0][:, 0], table["x"])
    if most > 80:
        assert open_source(paths, replace(LAST, keys={"categorical": "id"})).header.feature_names == ("id", "x")


@pytest.mark.parametrize("most", [100_000, 25])
def test_texts_that_stand_in_two_files_identify_no_row(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    monkeypatch.setattr("mlfs_dask.storage.readers.table.MAX_CATEGORIES", most)
    texts = [f"s{row}" for row in range(24 if most > 25 else 40)]
    pd.DataFrame({"id": texts, "y": 1}).to_csv(tmp_path / "0.csv", index=False)
    pd.DataFrame({"id": texts[:22] * 2, "y": 0}).to_csv(tmp_path / "1.csv", index=False)
    paths = [str(tmp_path / f"{number}.csv") for number in range(2)]
    if most > 25:
        assert open_source(paths, LAST).header.feature_names == ("id",)
    else:
        with pytest.raises(DataError, match="column 'id': a categorical column may hold 25 different texts"):
            open_source(paths, LAST)


@pytest.mark.parametrize("form", ["csv", "parquet", "feather"])
def test_files_without_rows_are_left_out(tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str) -> None:
    table = pd.DataFrame({"x": [1.5, 2.5], "kind": ["a", "b"], "y": [0, 1]})
    paths = [str(tmp_path / f"{number}.{form}") for number in range(3)]
    for path, rows in zip(paths, (0, 2, 0), strict=True):
        getattr(table[:rows], f"to_{form}")(path, **({"index": False} if form == "csv" else {}))
    X, Y = read_all(open_source(paths, LAST))
    assert (X.tolist(), Y.tolist()) == ([[1.5, 0], [2.5, 1]], [[0], [1]])
    assert [text.partition(": ")[2] for text in caplog.messages] == ["it has no rows, and is left out"] * 2
    with pytest.raises(DataError, match="no rows"):
        open_source(paths[::2], LAST)


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ([[2023] * 2, [2024] * 2], None),
        ([["2023"] * 2, ["2024"] * 2], None),
        ([[2023] * 2, [2024, 2023]], "column 'year', value 2023: the folder says 2024"),
    ],
)
def test_a_column_of_folders_may_stand_in_the_files_too(
    tmp_path: Path, values: list[list[object]], problem: str | None
) -> None:
    for year, column in zip((2023, 2024), values, strict=True):
        (tmp_path / f"year={year}").mkdir()
        table = pd.DataFrame({"x": [0.5, 1.5], "y": [0, 1], "year": column})
        table.to_parquet(tmp_path / f"year={year}" / "0.parquet")
    if problem is not None:
        with pytest.raises(DataError, match=problem):
            open_source([str(tmp_path)], LAST)
        return
    reader = open_source([str(tmp_path)], LAST)
    assert (reader.header.feature_names, reader.header.label_names) == (("x", "year"), ("y",))
    codes = np.unique([value for column in values for value in column], return_inverse=True)[1]
    numbers = codes if isinstance(values[0][0], str) else np.concatenate(values)
    assert read_all(reader)[0][:, 1].tolist() == numbers.tolist()
