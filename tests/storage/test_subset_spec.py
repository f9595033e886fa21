"""Which rows, features and labels are meant."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.storage.subset_spec import choose_columns, choose_rows


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("0:100000", range(20)),
        ("::10", range(0, 20, 10)),
        ("5", [5]),
        ("-1", [19]),
        ("-2:", [18, 19]),
        ("3, 0:2, 1", [0, 1, 3]),
        (slice(None, None, -7), [5, 12, 19]),
        (range(2, 5), [2, 3, 4]),
        ([4, 2], [2, 4]),
        (np.arange(20) % 9 == 0, [0, 9, 18]),
    ],
)
def test_rows_by_number(given, expected):
    assert np.asarray(choose_rows(given, 20)).tolist() == list(expected)


def test_a_range_takes_no_memory():
    assert choose_rows("0:999999999999:2", 10**12) == range(0, 999999999999, 2)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("20", "there is no row number 20; they are numbered from 0 to 19"),
        ("-21", "there is no row number -21"),
        ("30:40", "no row is chosen; there are 20"),
        ("", "no row is chosen"),
        ("::0", "the step of '::0' must be positive"),
        ("a == 1", "there is no row 'a == 1', and no file 'a == 1'. Rows have no names: give numbers, ranges as 0:100"),
        ("0:3,train,txt", "there is no row 'train', and no file '0:3,train,txt'"),
        ("x" * 300, "there is no row 'x+', and no file"),
        (["a"], r"there is no row 'a'\. Rows"),
        ([3, 3], "row 3 is chosen twice"),
        ([True, False], "a mask of rows needs 20 entries"),
    ],
)
def test_rows_that_are_not_there(given, message):
    with pytest.raises(UsageError, match=message):
        choose_rows(given, 20)


def test_rows_of_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.txt").write_text("7\n\n3\n")
    for given in ("train.txt", "@train.txt", str(tmp_path / "train.txt")):
        assert choose_rows(given, 20).tolist() == [3, 7]
    for text, message in (
        ("7\n3\n7\n", "line 3.*this row stands in line 1 already"),
        ("7\n99\n", "line 2.*there is no row number 99"),
        ("7\nx\n", "line 2.*there is no row 'x'"),
    ):
        (tmp_path / "train.txt").write_text(text)
        with pytest.raises(DataError, match=message):
            choose_rows("train.txt", 20)
    with pytest.raises(DataError, match=r"the file of rows cannot be read: .*No such file") as refused:
        choose_rows("@none.txt", 20)
    assert str(refused.value).endswith("cure: give a text file with one row a line")


def test_a_file_of_rows_takes_a_few_bytes_a_row(tmp_path):
    n = 20_000
    (tmp_path / "train.txt").write_text("\n".join(map(str, range(n))))
    tracemalloc.start()
    try:
        assert len(choose_rows(f"@{tmp_path}/train.txt", n)) == n
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 64 * n


def test_columns_by_name_number_range_and_file(tmp_path):
    names = ["a", "b,c", "0", "1:2", "sky"]
    assert choose_columns("sky,a", names, "label").tolist() == [0, 4]
    assert choose_columns('"b,c"', names, "label").tolist() == [1]
    assert choose_columns("0", names, "label").tolist() == [2]  # a name before a number
    assert choose_columns("1:2", names, "label").tolist() == [3]
    assert choose_columns("1,3:", names, "label").tolist() == [1, 3, 4]
    assert choose_columns(["sky", 0], names, "label").tolist() == [2, 4]
    (tmp_path / "names").write_text("b,c\nsky\n")
    assert choose_columns(f"@{tmp_path}/names", names, "label").tolist() == [1, 4]
    with pytest.raises(UsageError, match=r"there is no label 'skye', and no file 'skye'\. Did you mean sky\?"):
        choose_columns("skye", names, "label")
