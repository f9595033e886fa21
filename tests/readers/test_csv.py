"""CSV and TSV: bytes -> rows, or line, column and message; splits and memory."""

from __future__ import annotations

import gzip
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.formats import csv as csv_module
from mlfs_dask.formats.csv import open_csv
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.readers.concat import concatenate
from tests.readers.reading import batches_of, check_splits, read_all

LAST = FileSpec(labels=LabelSpec(count=1))
nan = np.nan


def key(**keys: str) -> FileSpec:
    return FileSpec(labels=LabelSpec(count=1), keys=keys)


@pytest.fixture
def write(tmp_path: Path):
    def write_text(text: str | bytes, name: str = "t.csv") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write_text


NUMBERED = "".join(f"{row},{7 - row},{row % 2}\n" for row in range(3))
ROWS: list[tuple[str | bytes, tuple[str, ...] | None, list[list[float]], list[int]]] = [
    ("a,b,sky\n1,2.5,1\n,NA,0\nNaN,?,?\n-1e3,+4, 1\n", ("a", "b"),
     [[1, 2.5], [nan, nan], [nan, nan], [-1000, 4]], [1, 0, -1, 1]),
    *(
        (mark + ending.join([b"", b"a,b", b"1,0", b"", b"2,1"]) + last, ("a",), [[1], [2]], [0, 1])
        for ending in (b"\n", b"\r\n") for last in (b"", ending) for mark in (b"", b"\xef\xbb\xbf")
    ),
    # delimiters and decimal commas
    ("sep=;\na;b;y\n1,5;2;0\n2;3,25;1\n", ("a", "b"), [[1.5, 2], [2, 3.25]], [0, 1]),
    ("sep=,\r\na;1,b,y\r\n1.5,2,0\r\n2,3.25,1\r\n", ("a;1", "b"), [[1.5, 2], [2, 3.25]], [0, 1]),
    ("a;b;y\n1,5;2;0\n2;3,25;1\n", ("a", "b"), [[1.5, 2], [2, 3.25]], [0, 1]),
    ("a|b|y\n1.5|2|0\n2|3.25|1\n", ("a", "b"), [[1.5, 2], [2, 3.25]], [0, 1]),
    ("a\tb\ty\n1.5\t2\t0\n2\t3.25\t1\n", ("a", "b"), [[1.5, 2], [2, 3.25]], [0, 1]),
    ('"a, or so";b;y\n1.5;2;0\n2;3;1\n', ("a, or so", "b"), [[1.5, 2], [2, 3]], [0, 1]),
    (b'\xef\xbb\xbf"SEP=\t"\na\tb,c,d,e\ty\n1.5\t2\t0\n', ("a", "b,c,d,e"), [[1.5, 2]], [0]),
    ("SEX rs1_A y\n1 NA 0\n2 1 1\n", ("SEX", "rs1_A"), [[1, nan], [2, 1]], [0, 1]),
    # names
    ("#a,k,y\n1,2,0\n", ("#a", "k"), [[1, 2]], [0]),
    ('" a ","b","y"\n1,2,0\n', (" a ", "b"), [[1, 2]], [0]),
    (" a , b,y \n1,2,0\n", ("a", "b"), [[1, 2]], [0]),
    ('"3","7","11"\n1,2,0\n2,3,1\n', ("3", "7"), [[1, 2], [2, 3]], [0, 1]),
    ('"3","7","1"\n"1","2","0"\n"2","3","1"\n', None, [[3, 7], [1, 2], [2, 3]], [1, 0, 1]),
    ("1.5,2,0\n3,4,1\n", None, [[1.5, 2], [3, 4]], [0, 1]),
    ("0,1,2\n5,6,1\n", ("0", "1"), [[5, 6]], [1]),
    ("1,2,3\n5,6,1\n", ("1", "2"), [[5, 6]], [1]),
    (pd.DataFrame([[5, 6, 1], [7, 8, 0]]).to_csv(), ("0", "1"), [[5, 6], [7, 8]], [1, 0]),
    (pd.DataFrame([[5, 6, 1], [7, 8, 0], [1, 2, 1]]).to_csv(header=False), None, [[5, 6], [7, 8], [1, 2]], [1, 0, 1]),
    ("id,Unnamed: 1,y\n0,3,1\n1,5,0\n", ("id", "Unnamed: 1"), [[0, 3], [1, 5]], [1, 0]),
    # texts
    ("flag,day,y\ntrue,2020-01-02,TRUE\nfalse,2020-01-01,false\n", ("flag", "day"), [[1, 1], [0, 0]], [1, 0]),
    ("flag,both,y\nYes,Zoo,1\nno,ant,0\n", ("flag", "both"), [[1, 0], [0, 1]], [1, 0]),
    ('a,k,y\n1,"x\n, ""y""",0\n2,5" pipe,1\n3,"a" b,0\n4,"",1\n5,"x, ""\n""",0\n6,6" pipe,1\n', ("a", "k"),
     [[1, 3], [2, 0], [3, 2], [4, nan], [5, 4], [6, 1]], [0, 1, 0, 1, 0, 1]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "names", "X", "Y"), ROWS)
def test_rows(write, text: str | bytes, names: tuple[str, ...] | None, X: Any, Y: list[int]) -> None:
    reader = open_csv(write(text), LAST)
    assert reader.header.feature_names == names
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1][:, 0], Y)


@pytest.mark.parametrize(
    ("text", "options", "features", "labels"),
    [
        ("a,b,c\td,e\n1\t0\n", LAST, ("a,b,c",), ("d,e",)),
        ("1\ta\tb\tc\n7\t8\t1\t0\n", FileSpec(LabelSpec(columns=("c", "b"))), ("1", "a"), ("b", "c")),
        ("1\ta\tb\tc\n7\t8\t1\t0\n", FileSpec(LabelSpec(columns=("4",))), ("1", "a", "b"), ("c",)),
        ("1\ta\tb\tc\n7\t8\t1\t0\n", FileSpec(LabelSpec(columns=("1",))), ("a", "b", "c"), ("1",)),
        ("1\ta\tb\tc\n7\t8\t1\t0\n", FileSpec(LabelSpec(count=1, first=True)), ("a", "b", "c"), ("1",)),
        ("id\ta\tnote\ty\nr1\t1\tx\t0\n", FileSpec(LabelSpec(count=1), drop=("id", "note")), ("a",), ("y",)),
        ("a\t\ty\n1\t5\t0\n", FileSpec(LabelSpec(count=1), drop=("2",)), ("a",), ("y",)),
        ("\ta\ty\n" + NUMBERED.replace(",", "\t"), FileSpec(LabelSpec(columns=("3",))), ("a",), ("y",)),
        ("a\ty\t\n1\t0\t\n", FileSpec(LabelSpec(columns=("y",))), ("a",), ("y",)),
    ],
)
def test_columns(write, text: str, options: FileSpec, features: tuple[str, ...], labels: tuple[str, ...]) -> None:
    reader = open_csv(write(text, "t.tsv"), options)
    assert (reader.header.feature_names, reader.header.label_names) == (features, labels)


@pytest.mark.parametrize(
    ("text", "options", "categories", "said"),
    [
        ("code,x,y\n2,1,0\n10,1,1\n", key(categorical="code"), {0: ("10", "2")}, None),
        ('a,b,y\n5,1,0\n"1,234",2,1\n', key(categorical="a"), {0: ("1,234", "5")}, None),
        ('a,b,y\n5,1,0\n"1,234",2,1\n', key(categorical="1"), {0: ("1,234", "5")}, None),
        # Sizes 1, 2 and "none" may be categories, and a missing measurement: nobody but the user knows.
        ("a,b,y\n1,x,0\n2,1,1\nn.d.,z,0\n", LAST, {0: ("1", "2", "n.d."), 1: ("1", "x", "z")},
         "'a' is read as categories: besides 2 different numbers it holds 'n.d.'; in a column of measurements leave"),
        ("a,y\n1,0\n2,1\nn.d.,0\n", key(categorical="a"), {0: ("1", "2", "n.d.")}, None),
        # Codes with some letters among them are categories.
        ("a,y\n" + "".join(f"{i:02},0\n" for i in range(44)) + "".join(f"V{i},1\n" for i in range(6)), LAST,
         {0: (*(f"{i:02}" for i in range(44)), *(f"V{i}" for i in range(6)))}, "besides 44 different numbers it holds"),
        ("a,y\n5,0\n1_0,0\n", LAST, {0: ("1_0", "5")}, None),
        (",a,y\n" + NUMBERED, LAST, {}, "column 1 has no name and holds row numbers: it is left out"),
        ('"",a,y\n' + NUMBERED, LAST, {}, "column 1 has no name and holds row numbers: it is left out"),
        ("Unnamed: 0,a,y\n1,7,0\n2,6,1\n", LAST, {}, "column 1 has no name and holds row numbers: it is left out"),
        ("a,y,\n1,0,\n2,1,\n", LAST, {}, "column 3 has no name and holds nothing: it is left out"),
        ("1.5,2,0\n3,4,1\n", LAST, {}, "no header row: the first line holds numbers and is read as data"),
        ("1.5,2,0\n3,4,1\n", key(header="TRUE"), {}, None),
        ("1.5,2,0\n3,4,1\n", key(header="0"), {}, None),
    ],
)  # fmt: skip
def test_categories_and_what_is_told(
    write, caplog: pytest.LogCaptureFixture, text: str, options: FileSpec, categories: Any, said: str | None
) -> None:
    reader = open_csv(write(text), options)
    assert reader.header.categories == categories
    assert len(caplog.messages) == (said is not None)
    assert (said or "") in caplog.text


MARKED = {
    "3": ["$1,234.50", "$999", "$-2"],
    "EUR": ["1.234,50 €", "999 €", "-2 €"],
    "unit": ["1234.5 mg/L", "999 mg/L", "\u22122mg/L"],
    "percent": ["1234.5%", "999 %", "-2%"],
    "blanks": ["1 234,5", "999", "-2"],
    "Fortran": ["1.2345D+03", "999d0", "-0.2D1"],
    "swiss": ["1'234.5", "999", "-2"],
}


@pytest.mark.parametrize("texts", MARKED.values(), ids=MARKED)
@pytest.mark.parametrize("form", ["csv", "parquet"])
def test_numbers_with_marks_are_numbers(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, form: str, texts: list[str]
) -> None:
    table = pd.DataFrame({"a": [*texts, None], "y": [0, 1, 0, 1]})
    path = str(tmp_path / f"t.{form}")
    (table.to_csv if form == "csv" else table.to_parquet)(path, index=False)
    reader = open_source([path], LAST)
    assert read_all(reader)[0][:, 0].tolist() == pytest.approx([1234.5, 999, -2, np.nan], nan_ok=True)
    assert "column 'a' holds numbers as texts" in caplog.text
    as_categories = open_source([path], replace(LAST, keys={"categorical": "a"}))
    assert set(as_categories.header.categories[0]) == set(texts)


def error_of(path: str, options: FileSpec = LAST, **how: int) -> DataError:
    with pytest.raises(DataError) as caught:
        read_all(open_csv(path, options), **how)
    assert caught.value.cure
    return caught.value


STRAY = "a,y\n" + "".join("n.d.,0\n" if i == 20 else f"{i / 7:.3f},{i % 2}\n" for i in range(50))
LONG = "1,2,0\n" * 50
QUOTED = '1,"x",0\n' * 50
UNCLOSED = "a quoted field begins here that is not closed"
LABEL = "a label must be 0 or 1 (-1 = unknown)"
ERRORS: list[tuple[str | bytes, int | None, Any, Any, tuple[str, ...]]] = [
    (b"", None, None, None, ("the file is empty",)),
    (b"\n \n", None, None, None, ("nothing but blank lines",)),
    (b"a,b,y\n", None, None, None, ("there is a header row but no data row",)),
    (b"a b y\n1  2 0\n", 2, None, "1  2 0", ("3 fields were expected", "tr -s ' '")),
    (b"only\n1\n", None, None, None, ("check the delimiter",)),
    (b"a,b,a\n1,2,0\n", 1, "a", None, ("columns 1 and 3 have the same name",)),
    ("a,b\n1,0\n".encode("utf-16"), 1, None, None, ("the text is UTF-16",)),
    (b"a,\xe9,y\n1,2,0\n", 1, None, b"\xe9", ("the text is not UTF-8",)),
    (b"a,k,y\n1,x,0\n1,\xe9,0\n", 3, None, b"\xe9", ("the text is not UTF-8", "iconv -f latin1")),
    ("a,y\r1,0\r2,1\r", 1, None, None, ("lines end with CR alone",)),
    ("a,y\n1,0\n2,\0\n", 3, None, None, ("the text holds NUL bytes",)),
    ("# made by us\na,k,y\n1,2,0\n", 1, None, "# made by us",
     ("the file begins with a comment, a header row of column names was expected", "grep -v '^#'")),
    ("# a, b\n# c, d\na,y\n1,0\n", 1, None, "# a,b", ("the file begins with a comment",)),
    # rows that are ragged, behind a quoted newline and behind the sample
    ("a,b,y\n" + '1,"two\nlines",0\n' * 40 + "7,8\n", 82, None, "7,8",
     ("3 fields were expected, as in the header; this row has 2", "quote a field that holds the delimiter ','")),
    *((f"a,y\n{row}\n", 2, None, row, ("2 fields were expected, as in the header; this row has 3",))
      for row in ("1,0,", "r1,5,0", ",5,0")),
    # values
    ("a,b,y\n" + LONG + "1,oops,0\n", 52, "b", "oops",
     ("a number was expected, as in the rows before", "--key categorical=b")),
    *(("a,b,sky\n1,2,1\n\n1,2," + value + "\n", 4, "sky", shown, (LABEL, "binarise the column"))
      for value, shown in (("0.5", 0.5), ("2", 2), ("-3", -3), ("maybe", "maybe"))),
    ("a,b,y\n" + LONG + "1,2,maybe\n", 52, "y", "maybe", (LABEL,)),
    ("a,b,,y\n" + "1,2,,0\n" * 50 + "1,2,7,0\n", 52, 3, "7",
     ("the column has no name and is empty in the rows before, and is not here", "--drop 3")),
    *(("a,,y\n" + "".join(f"1,{value},0\n" for value in values), None, 2, None,
       ("the column has no name", "name it, or leave it out: --drop 2"))
      for values in ((0, 2, 3), (5, 6, 7), "abc", (0, "", 2))),
    # measurements that a text would make categories
    *((f'a,b,y\n5,1,0\n"{text}",2,1\n"{more}",3,1\n', 3, "a", text, (said, "--key categorical=a"))
      for text, more, said in (
          ("1,234", "12,000", "numbers that can be read in two ways: 2 of its 3 different values"),
          ("15%", "3%", "numbers with and without a mark"), ("$3", "$4", "numbers with and without a mark"))),
    (STRAY, 22, "a", "n.d.", ("a few texts among many different numbers: 1 of its 50 different values",)),
    # quotes
    ("a,k,y\n" + "1,x,0\n" * 50 + '1,"x,0\n' + "1,x,0\n" * 50, 52, None, None, (UNCLOSED, 'written twice ("")')),
    ("a,k,y\n" + QUOTED + '1,"x,0\n' + QUOTED, 52, None, None, (UNCLOSED,)),
    ('a,k,y\n1,"x\nz",0\n' + '1,"x ""y",0\n' * 50 + '1,"x ""y,0\n1,"x",0\n' + QUOTED, 54, None, None, (UNCLOSED,)),
    ("a,k,y\n" + QUOTED + '"1,x,0\n' + "1,x,0\n" * 50, 52, None, None, (UNCLOSED,)),
    ('a,"k,y\n' + LONG, 1, None, None, (UNCLOSED,)),
    ('\na,"k,y\n' + QUOTED + '1,"x",0\n', 2, None, None, (UNCLOSED,)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "line", "column", "value", "said"), ERRORS)
def test_errors(
    write,
    monkeypatch: pytest.MonkeyPatch,
    text: str | bytes,
    line: int | None,
    column: Any,
    value: Any,
    said: tuple[str, ...],
) -> None:
    if LONG in str(text) or ",,y" in str(text):  # what stands behind the sample
        monkeypatch.setattr(csv_module, "SAMPLE_BYTES", 64)
    error = error_of(write(text), part_bytes=100, batch_bytes=50)
    assert (error.line, error.column, error.value) == (line, column, value)
    for words in said:
        assert words in str(error)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (FileSpec(LabelSpec(columns=("skyy",))), "the label 'skyy' is none of the 3 columns"),
        (FileSpec(LabelSpec(columns=("skyy",))), "did you mean 'sky'"),
        (FileSpec(LabelSpec(columns=("9",))), "numbers counted from 1"),
        (FileSpec(LabelSpec(columns=("sky", "3"))), "value '3': the label is named twice"),
        (FileSpec(LabelSpec(columns=("sky", "b", "sky"))), "value 'sky': the label is named twice"),
        (FileSpec(LabelSpec(count=3)), "3 labels asked for; the file has 3 columns"),
        (FileSpec(LabelSpec(count=1), drop=("a", "b")), "0 features and 1 label are left"),
        (FileSpec(LabelSpec(count=1), drop=("z",)), "the column to leave out, 'z' is none"),
        (
            FileSpec(LabelSpec(columns=("sky",)), drop=("3",)),
            "column 'sky': it is both a label and a column to leave out",
        ),
        (key(categorical="z"), "the column of categories 'z'"),
        (key(header="banana"), "header must be yes or no, not 'banana'"),
        (FileSpec(), "no option says which columns are labels"),
        (FileSpec(), "--label-columns NAMES, --n-labels K"),
    ],
)
def test_options_that_do_not_fit(write, options: FileSpec, said: str) -> None:
    with pytest.raises((DataError, UsageError)) as caught:
        open_csv(write("a,b,sky\n1,2,0\n"), options)
    assert said in str(caught.value)


def test_false_comes_before_true_in_several_files(write) -> None:
    files = (write("flag,y\nYes,1\n", "a.csv"), write("flag,y\nno,0\n", "b.csv"))
    assert concatenate([open_csv(file, LAST) for file in files]).header.categories == {0: ("no", "Yes")}


def test_codes_are_those_of_the_whole_file(write) -> None:
    # "zebra" comes first and "ant" last, beyond the first batches: codes follow the alphabet.
    values = ["zebra", 'c, or ""so""\nand on', "", "cat", "ant"]
    rows = "".join(f'"{v}",{i},yes\n' for i, v in enumerate(values * 12))
    reader = open_csv(write("kind,x,y\n" + rows), LAST)
    assert reader.header.categories == {0: ("ant", 'c, or "so"\nand on', "cat", "zebra")}
    np.testing.assert_array_equal(read_all(reader, batch_bytes=100)[0][:5, 0], [3, 1, nan, 2, 0])
    check_splits(reader, sizes=(1, 300))


def test_parts_begin_where_records_do(write, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces of the scan shorter than a record, so that targets and newlines fall across them.
    monkeypatch.setattr(csv_module, "PIECE_BYTES", 7)
    text = "a,b,y\n" + "".join(f'{i},"{"q" * (i % 5)}\n{i}",{i % 2}\n' for i in range(60))
    reader = open_csv(write(text), LAST)
    for part_bytes in (1, 13, 200):
        assert len(reader.parts(part_bytes)) > 2
        np.testing.assert_array_equal(read_all(reader, part_bytes=part_bytes)[0][:, 0], range(60))


def test_a_remote_file_without_quotes_is_split_without_a_scan() -> None:
    import fsspec

    text = "a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(100))
    with fsspec.open("memory://csv/t.csv", "wb") as file:
        file.write(text.encode())
    reader = open_csv("memory://csv/t.csv", LAST)
    assert len(reader.parts(50)) > 5
    np.testing.assert_array_equal(read_all(reader, part_bytes=50)[0][:, 0], range(100))


def test_compressed_is_one_part_and_can_be_resumed(write) -> None:
    text = "a,b,y\n" + "".join(f"{i},{i / 7!r},{i % 2}\n" for i in range(100))
    reader = open_csv(write(gzip.compress(text.encode()), "t.csv.gz"), LAST)
    assert len(reader.parts(10)) == 1
    check_splits(reader, sizes=(1, 500))


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.lists(
        st.tuples(
            st.floats(allow_infinity=False) | st.none(),
            st.sampled_from(["a", "b,c", 'd"e', "f\ng", None]),
            st.sampled_from([0, 1, None]),
        ),
        min_size=1,
        max_size=40,
    ),
    batch_bytes=st.integers(1, 500),
    part_bytes=st.integers(1, 500),
)
def test_any_split_gives_the_table(write, rows, batch_bytes: int, part_bytes: int) -> None:
    def field(value: object) -> str:
        text = "" if value is None else repr(value) if isinstance(value, float) else str(value)
        return '"' + text.replace('"', '""') + '"' if set(text) & set(',"\n') else text

    lines = ["1,a,0", *(",".join(map(field, row)) for row in rows)]
    path = write("x,kind,y\n" + "\n".join(lines) + "\n")
    X, Y = read_all(open_csv(path, LAST), batch_bytes=batch_bytes, part_bytes=part_bytes)
    kinds = sorted({"a", *(row[1] for row in rows if row[1] is not None)})
    expected = [[1.0, 0.0]] + [
        [nan if x is None else x, nan if kind is None else kinds.index(kind)] for x, kind, _ in rows
    ]
    np.testing.assert_array_equal(X, expected)
    np.testing.assert_array_equal(Y[1:, 0], [-1 if y is None else y for _, _, y in rows])


def test_batches_keep_to_their_size(write, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "a,b,y\n" + "1.2345678901234567,2.3456789012345678,1\n" * 50 + "1,2,0\n" * 5000
    found = batches_of(open_csv(write(text), LAST), batch_bytes=24 * 100, part_bytes=1 << 40)
    assert max(batch.X.shape[0] for batch in found) <= 201
    assert sum(batch.X.shape[0] for batch in found) == 5050
    assert [batch.first_line for batch in found[:2]] == [2, 2 + found[0].X.shape[0]]
    monkeypatch.setattr(csv_module, "SCAN_ROWS", 100)
    reader = open_csv(write("a,b,y\n" + "1,2,0\n" * 5000), LAST)

    def longest(rows: int) -> int:
        return max(batch.X.shape[0] for batch in batches_of(reader, batch_bytes=24 * rows, part_bytes=1 << 40))

    assert 100 <= longest(200) <= 201  # rows shorter than they were counted on may double a batch
    assert 400 <= longest(1600) <= 801
    assert longest(50) <= 101


def test_an_unclosed_quote_does_not_take_all_memory(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "LONGEST_LINE", 1 << 14)
    monkeypatch.setattr(csv_module, "SAMPLE_BYTES", 64)
    path = write("a,k,y\n" + "1,x,0\n" * 50 + '1,"x,0\n' + "1,x,0\n" * 20000)
    assert "line 52: a quoted field is longer than" in str(error_of(path))


def test_a_file_that_changes_is_noticed(write) -> None:
    reader = open_csv(write("k,y\na,0\nb,1\n"), LAST)
    write("k,y\na,0\nc,1\n")
    with pytest.raises(DataError, match="column 'k', value 'c': a text that the first pass over the column did not"):
        read_all(reader)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN, lambda number, frame: None])
def test_arrow_keeps_off_signals_that_the_program_answers(write, monkeypatch: pytest.MonkeyPatch, handler) -> None:
    switched: list[bool] = []
    monkeypatch.setattr("pyarrow.enable_signal_handlers", switched.append)
    monkeypatch.setattr(signal, "getsignal", lambda number: handler)
    read_all(open_csv(write("a,b\n1,0\n2,1\n"), LAST))
    assert set(switched) == (set() if handler is signal.default_int_handler else {False})
