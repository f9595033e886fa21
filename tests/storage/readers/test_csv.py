"""CSV and TSV: kinds, codes, quotes, splits, and what is said of bad rows."""

from __future__ import annotations

import gzip
import re
import signal
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.storage.readers import csv as csv_module
from mlfs_dask.storage.readers.base import LabelSpec, ReadOptions
from mlfs_dask.storage.readers.concat import concatenate
from mlfs_dask.storage.readers.csv import open_csv, open_tsv
from tests.storage.readers.reading import batches_of, check_splits, read_all

LAST = ReadOptions(labels=LabelSpec(count=1))
nan = np.nan


@pytest.fixture
def write(tmp_path: Path):
    def write_text(text: str | bytes, name: str = "t.csv") -> str:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return str(path)

    return write_text


def test_values_names_and_missing(write) -> None:
    reader = open_csv(write("a,b,sky\n1,2.5,1\n,NA,0\nNaN,?,?\n-1e3,+4, 1\n"), LAST)
    assert reader.header.feature_names == ("a", "b")
    assert reader.header.label_names == ("sky",)
    assert (reader.header.n_features, reader.header.n_labels) == (2, 1)
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X, [[1, 2.5], [nan, nan], [nan, nan], [-1000, 4]])
    np.testing.assert_array_equal(Y, [[1], [0], [-1], [1]])


@pytest.mark.parametrize("ending", ["\n", "\r\n"])
@pytest.mark.parametrize("last", [True, False])
@pytest.mark.parametrize("mark", [b"", b"\xef\xbb\xbf"])
def test_line_ends_byte_order_mark_and_blank_lines(write, ending: str, last: bool, mark: bytes) -> None:
    text = ending.join(["", "a,b", "1,0", "", "2,1"]) + (ending if last else "")
    X, Y = read_all(open_csv(write(mark + text.encode()), LAST))
    np.testing.assert_array_equal(X, [[1], [2]])
    np.testing.assert_array_equal(Y, [[0], [1]])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("t.csv", "a;b;y\n1,5;2;0\n2;3,25;1\n"),
        ("t.csv", "a|b|y\n1.5|2|0\n2|3.25|1\n"),
        ("t.tsv", "a\tb\ty\n1.5\t2\t0\n2\t3.25\t1\n"),
        ("t.csv", '"a, or so";b;y\n1.5;2;0\n2;3.25;1\n'),
    ],
)
def test_delimiters_and_decimal_comma(write, name: str, text: str) -> None:
    X, Y = read_all(open_csv(write(text, name), LAST))
    np.testing.assert_array_equal(X, [[1.5, 2], [2, 3.25]])
    np.testing.assert_array_equal(Y, [[0], [1]])


def test_tsv_with_commas_in_names(write) -> None:
    reader = open_tsv(write("a,b,c\td,e\n1\t0\n", "t.txt"), LAST)
    assert reader.header.feature_names == ("a,b,c",)


def test_text_columns_get_sorted_codes_of_the_whole_file(write) -> None:
    # "zebra" comes first and "ant" last, beyond the first batches: codes follow the alphabet.
    values = ["zebra", "cat", "", "cat", "ant"]
    rows = "".join(f"{v},{i},yes\n" for i, v in enumerate(values * 20))
    reader = open_csv(write("kind,x,y\n" + rows), LAST)
    assert reader.header.categories == {0: ("ant", "cat", "zebra")}
    X, Y = read_all(reader, batch_bytes=100)
    np.testing.assert_array_equal(X[:5, 0], [2, 1, nan, 1, 0])
    np.testing.assert_array_equal(X[:, 1], range(100))
    assert (Y == 1).all()
    check_splits(reader)


def test_false_and_true_as_texts_and_dates_as_categories(write) -> None:
    reader = open_csv(write("flag,day,y\ntrue,2020-01-02,TRUE\nfalse,2020-01-01,false\n"), LAST)
    assert reader.header.categories == {0: ("false", "true"), 1: ("2020-01-01", "2020-01-02")}
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X, [[1, 1], [0, 0]])
    np.testing.assert_array_equal(Y, [[1], [0]])


def test_false_comes_before_true_in_whatever_letters(write) -> None:
    reader = open_csv(write("flag,both,y\nYes,Zoo,1\nno,ant,0\n"), LAST)
    assert reader.header.categories == {0: ("no", "Yes"), 1: ("Zoo", "ant")}
    files = (write("flag,y\nYes,1\n", "a.csv"), write("flag,y\nno,0\n", "b.csv"))
    assert concatenate([open_csv(file, LAST) for file in files]).header.categories == {0: ("no", "Yes")}


def test_categories_by_key(write) -> None:
    text = "code,x,y\n2,1,0\n10,1,1\n"
    options = ReadOptions(labels=LabelSpec(count=1), keys={"categorical": "code"})
    reader = open_csv(write(text), options)
    assert reader.header.categories == {0: ("10", "2")}
    np.testing.assert_array_equal(read_all(reader)[0][:, 0], [1, 0])


def test_quoted_fields_with_delimiters_newlines_and_quotes(write) -> None:
    text = "a,kind,y\n" + '1,"x, or ""so""\nand on",0\n2,"b",1\n' * 30
    reader = open_csv(write(text), LAST)
    assert reader.header.categories == {1: ("b", 'x, or "so"\nand on')}
    check_splits(reader, sizes=(1, 90, 300))
    assert len(reader.parts(100)) > 5


def test_parts_begin_where_records_do(write, monkeypatch: pytest.MonkeyPatch) -> None:
    # Pieces of the scan shorter than a record, so that targets and newlines fall across them.
    monkeypatch.setattr(csv_module, "_SCAN_BYTES", 7)
    text = "a,b,y\n" + "".join(f'{i},"{"q" * (i % 5)}\n{i}",{i % 2}\n' for i in range(60))
    reader = open_csv(write(text), LAST)
    for part_bytes in (1, 13, 40, 200):
        parts = reader.parts(part_bytes)
        assert len(parts) > 2
        X, _ = read_all(reader, part_bytes=part_bytes)
        np.testing.assert_array_equal(X[:, 0], range(60))


def test_a_remote_file_without_quotes_is_split_without_a_scan(tmp_path: Path) -> None:
    import fsspec

    text = "a,y\n" + "".join(f"{i},{i % 2}\n" for i in range(100))
    with fsspec.open("memory://csv/t.csv", "wb") as file:
        file.write(text.encode())
    reader = open_csv("memory://csv/t.csv", LAST)
    assert len(reader.parts(50)) > 5
    np.testing.assert_array_equal(read_all(reader, part_bytes=50)[0][:, 0], range(100))


def test_compressed_is_one_part_and_can_be_resumed(write) -> None:
    text = "a,b,y\n" + "".join(f"{i},{i / 7!r},{i % 2}\n" for i in range(300))
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


def test_batches_keep_to_their_size_when_rows_get_shorter(write) -> None:
    text = "a,b,y\n" + "1.2345678901234567,2.3456789012345678,1\n" * 50 + "1,2,0\n" * 5000
    found = batches_of(open_csv(write(text), LAST), batch_bytes=24 * 100, part_bytes=1 << 40)
    assert max(batch.X.shape[0] for batch in found) <= 201
    assert sum(batch.X.shape[0] for batch in found) == 5050
    assert [batch.first_line for batch in found[:2]] == [2, 2 + found[0].X.shape[0]]


def test_narrow_tables_come_in_shorter_batches(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "_MANY_ROWS", 100)
    reader = open_csv(write("a,b,y\n" + "1,2,0\n" * 5000), LAST)

    def longest(rows: int) -> int:
        return max(batch.X.shape[0] for batch in batches_of(reader, batch_bytes=24 * rows, part_bytes=1 << 40))

    assert 100 <= longest(200) <= 201  # rows shorter than they were counted on may double a batch
    assert 400 <= longest(1600) <= 801
    assert longest(50) <= 101


def test_labels_by_name_number_and_position(write) -> None:
    path = write("1,a,b,c\n7,8,1,0\n")

    def labels(**spec: object) -> tuple[str, ...]:
        return open_csv(path, ReadOptions(labels=LabelSpec(**spec))).header.label_names

    assert labels(columns=("c", "b")) == ("b", "c")
    assert labels(columns=("4",)) == ("c",)
    assert labels(columns=("1",)) == ("1",), "a name goes before a number"
    assert labels(count=2) == ("b", "c")
    assert labels(count=1, first=True) == ("1",)


def test_columns_left_out(write) -> None:
    path = write("id,a,note,y\nr1,1,x,0\nr2,2,y,1\n")
    reader = open_csv(path, ReadOptions(labels=LabelSpec(count=1), drop=("id", "note")))
    assert reader.header.feature_names == ("a",)
    assert reader.header.categories == {}
    np.testing.assert_array_equal(read_all(reader)[0], [[1], [2]])


LEFT_OUT = "{}: column {} has no name and holds {}: it is left out"


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("name", ["", '""', "Unnamed: 0"])
def test_row_numbers_without_a_name_are_left_out(
    write, caplog: pytest.LogCaptureFixture, first: int, name: str
) -> None:
    rows = "".join(f"{first + row},{7 - row},{row % 2}\n" for row in range(5))
    path = write(f"{name},a,y\n{rows}")
    reader = open_csv(path, LAST)
    assert caplog.messages == [LEFT_OUT.format(path, 1, "row numbers")]
    assert (reader.header.feature_names, reader.header.label_names) == (("a",), ("y",))
    np.testing.assert_array_equal(read_all(reader)[0], [[7], [6], [5], [4], [3]])
    # Numbers count the columns that are in the file.
    numbered = open_csv(path, ReadOptions(labels=LabelSpec(columns=("3",))))
    assert numbered.header.label_names == ("y",)
    with pytest.raises(DataError, match="2 labels asked for; the file has 2 columns"):
        open_csv(path, ReadOptions(labels=LabelSpec(count=2)))


@pytest.mark.parametrize("labels", [LabelSpec(count=1), LabelSpec(columns=("y",))])
def test_a_trailing_delimiter_is_no_column(write, caplog: pytest.LogCaptureFixture, labels: LabelSpec) -> None:
    path = write("a,y,\n1,0,\n2,1,\n")
    reader = open_csv(path, ReadOptions(labels=labels))
    assert caplog.messages == [LEFT_OUT.format(path, 3, "nothing")]
    assert (reader.header.feature_names, reader.header.label_names) == (("a",), ("y",))
    np.testing.assert_array_equal(read_all(reader)[1], [[0], [1]])


def test_a_nameless_column_is_empty_to_the_end(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "SAMPLE_BYTES", 64)
    rows = "1,2,,0\n" * 50
    assert read_all(open_csv(write("a,b,,y\n" + rows + "1,2,NA,0\n"), LAST))[0].shape == (51, 2)
    path = write("a,b,,y\n" + rows + "1,2,7,0\n")
    error = error_of(path)
    assert (error.line, error.column, error.value) == (52, 3, "7")
    assert "the column has no name and is empty in the rows before, and is not here" in str(error)
    assert "name it, or leave it out: --drop 3" in str(error)
    for labels in (LabelSpec(count=1), LabelSpec(columns=("y",))):
        reader = open_csv(path, ReadOptions(labels=labels, drop=("3",)))
        assert read_all(reader)[0].shape == (51, 2)


def test_quoted_numbers_are_names_where_rows_are_not_quoted(write) -> None:
    reader = open_csv(write('"3","7","11"\n1,2,0\n2,3,1\n'), LAST)
    assert (reader.header.feature_names, reader.header.label_names) == (("3", "7"), ("11",))
    assert open_csv(write('"3","7","1"\n"1","2","0"\n"2","3","1"\n'), LAST).header.feature_names is None


def test_blanks_around_names(write) -> None:
    assert open_csv(write('" a ","b","y"\n1,2,0\n'), LAST).header.feature_names == (" a ", "b")
    assert open_csv(write(" a , b,y \n1,2,0\n"), LAST).header.feature_names == ("a", "b")


ROW_NAMES = "the names of rows, as R writes them"


@pytest.mark.parametrize(("delimiter", "quote"), [(" ", '"'), ("\t", '"'), ("\t", ""), (",", '"')])
def test_row_names_of_write_table_are_left_out(
    write, caplog: pytest.LogCaptureFixture, delimiter: str, quote: str
) -> None:
    """R: write.table(data.frame(a = c(7, 6.5), b = c(NA, 2), y = 0:1, row.names = c("r1", "r2")), sep = ...)."""
    table = '"a" "b" "y"\n"r1" 7 NA 0\n"r2" 6.5 2 1\n'.replace(" ", delimiter).replace('"', quote)
    path = write(table)
    reader = open_csv(path, LAST)
    assert caplog.messages == [LEFT_OUT.format(path, 1, ROW_NAMES)]
    assert (reader.header.feature_names, reader.header.label_names) == (("a", "b"), ("y",))
    X, Y = read_all(reader)
    np.testing.assert_array_equal(X, [[7, np.nan], [6.5, 2]])
    np.testing.assert_array_equal(Y, [[0], [1]])
    short = write(table + delimiter.join(("r3", "5", "1\n")))
    with pytest.raises(DataError, match=r"line 4.*4 fields were expected, as in the header; this row has 3"):
        read_all(open_csv(short, LAST))


@pytest.mark.parametrize("rows", ["1,0,\n2,1,\n", "1,5,0\n1,6,1\n", ",5,0\n1,6,1\n"])
def test_a_field_too_many_is_no_row_name_where_it_may_be_something_else(write, rows: str) -> None:
    """A delimiter at the end; names that are there twice, or empty."""
    with pytest.raises(DataError, match="2 fields were expected, as in the header; this row has 3"):
        read_all(open_csv(write("a,y\n" + rows), LAST))


def test_what_data_frames_of_arrays_write(write) -> None:
    frame = pd.DataFrame([[5, 6, 1], [7, 8, 0]])
    reader = open_csv(write(frame.to_csv()), LAST)
    assert (reader.header.feature_names, reader.header.label_names) == (("0", "1"), ("2",))
    frame = pd.DataFrame([[5, 6, 1], [7, 8, 0], [1, 2, 1]])
    reader = open_csv(write(frame.to_csv(header=False)), LAST)
    np.testing.assert_array_equal(read_all(reader)[0], [[5, 6], [7, 8], [1, 2]])


@pytest.mark.parametrize("values", [(0, 2, 3), (5, 6, 7), ("a", "b", "c"), (0, "", 2)])
def test_data_without_a_name_is_refused(write, values: tuple[object, ...]) -> None:
    path = write("a,,y\n" + "".join(f"1,{value},0\n" for value in values))
    with pytest.raises(DataError, match="column 2: the column has no name") as caught:
        open_csv(path, LAST)
    assert "cure: name it, or leave it out: --drop 2" in str(caught.value)
    assert open_csv(path, ReadOptions(labels=LabelSpec(count=1), drop=("2",))).header.feature_names == ("a",)


def test_a_named_column_of_row_numbers_is_a_feature(write, caplog: pytest.LogCaptureFixture) -> None:
    reader = open_csv(write("id,Unnamed: 1,y\n0,3,1\n1,5,0\n2,4,1\n"), LAST)
    assert reader.header.feature_names == ("id", "Unnamed: 1")
    assert caplog.messages == []


@pytest.mark.parametrize("columns", [("y", "y"), ("y", "4"), ("z", "y", "z")])
def test_a_label_that_is_named_twice(write, columns: tuple[str, ...]) -> None:
    path = write("a,b,z,y\n1,2,0,1\n")
    with pytest.raises(DataError, match=f"value '{columns[-1]}': the label is named twice"):
        open_csv(path, ReadOptions(labels=LabelSpec(columns=columns)))


def test_a_first_line_of_numbers_is_a_row(write, caplog: pytest.LogCaptureFixture) -> None:
    path = write("1.5,2,0\n3,4,1\n")
    reader = open_csv(path, LAST)
    assert "no header row" in caplog.text
    assert reader.header.feature_names is None
    np.testing.assert_array_equal(read_all(reader)[0], [[1.5, 2], [3, 4]])
    asked = ReadOptions(labels=LabelSpec(count=1), keys={"header": "yes"})
    assert open_csv(path, asked).header.feature_names == ("1.5", "2")


@pytest.mark.parametrize("names", ["0,1,2", "1,2,3"])
def test_numbered_columns_are_names(write, names: str) -> None:
    assert open_csv(write(names + "\n5,6,1\n"), LAST).header.label_names == (names[-1],)


def error_of(path: str, options: ReadOptions = LAST, **how: int) -> DataError:
    with pytest.raises(DataError) as caught:
        read_all(open_csv(path, options), **how)
    return caught.value


def test_ragged_row(write) -> None:
    # Behind the sample, and behind a quoted newline: the line is still right.
    rows = '1,"two\nlines",0\n' * 40
    error = error_of(write("a,b,y\n" + rows + "7,8\n"), part_bytes=100, batch_bytes=50)
    assert (error.line, error.value) == (82, "7,8")
    assert error.problem == "3 fields were expected, as in the header; this row has 2"
    assert "quote a field that holds the delimiter ','" in str(error)


def test_text_after_the_sample(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "SAMPLE_BYTES", 64)
    error = error_of(write("a,b,y\n" + "1,2,0\n" * 50 + "1,oops,0\n"))
    assert (error.line, error.column, error.value) == (52, "b", "oops")
    assert "a number was expected, as in the rows before" in str(error)
    assert "--key categorical=b" in str(error)


@pytest.mark.parametrize(("value", "shown"), [("0.5", 0.5), ("2", 2), ("-3", -3), ("maybe", "maybe")])
def test_bad_label(write, value: str, shown: object) -> None:
    error = error_of(write("a,b,sky\n1,2,1\n\n1,2," + value + "\n"))
    assert (error.line, error.column, error.value) == (4, "sky", shown)
    assert "a label must be 0 or 1 (-1 = unknown)" in str(error)
    assert "binarise the column" in str(error)


def test_bad_label_after_the_sample(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "SAMPLE_BYTES", 64)
    error = error_of(write("a,y\n" + "1,0\n" * 50 + "1,maybe\n"))
    assert (error.line, error.column, error.value) == (52, "y", "maybe")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (b"", "the file is empty"),
        (b"\n \n", "nothing but blank lines"),
        (b"a,b,y\n", "a header row and no rows after it"),
        (b"a,b,a\n1,2,0\n", "line 1, column 'a': columns 1 and 3 have the same name"),
        ("a,b\n1,0\n".encode("utf-16"), "the text is UTF-16"),
        (b"a,\xe9,y\n1,2,0\n", "line 1, value b'\\xe9': the text is not UTF-8"),
        (b"a,k,y\n1,x,0\n1,\xe9,0\n", "line 3, value b'\\xe9': the text is not UTF-8"),
        (b"only\n1\n", "check the delimiter"),
    ],
)
def test_bad_files(write, text: bytes, said: str) -> None:
    assert said in str(error_of(write(text)))


def test_an_unclosed_quote_does_not_take_all_memory(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "LONGEST_LINE", 1 << 14)
    monkeypatch.setattr(csv_module, "SAMPLE_BYTES", 64)
    path = write("a,k,y\n" + "1,x,0\n" * 50 + '1,"x,0\n' + "1,x,0\n" * 20000)
    assert "line 52: a quoted field is longer than" in str(error_of(path))


@pytest.mark.parametrize(
    ("rows", "line"),
    [
        ("a,k,y\n" + "1,x,0\n" * 50 + '1,"x,0\n' + "1,x,0\n" * 50, 52),
        ("a,k,y\n" + '1,"x",0\n' * 50 + '1,"x,0\n' + '1,"x",0\n' * 50, 52),
        ('a,k,y\n1,"x\nz",0\n' + '1,"x ""y",0\n' * 50 + '1,"x ""y,0\n1,"x",0\n' + '1,"x",0\n' * 50, 54),
        ("a,k,y\n" + '1,"x",0\n' * 50 + '"1,x,0\n' + "1,x,0\n" * 50, 52),
        ('a,"k,y\n' + "1,x,0\n" * 50, 1),
        ('\na,"k,y\n' + '1,"x",0\n' * 51, 2),
    ],
)
def test_an_unclosed_quote_is_told_where_it_opens(write, rows: str, line: int) -> None:
    assert f"line {line}: a quoted field begins here that is not closed" in str(error_of(write(rows)))


def test_quotes_that_look_unclosed(write) -> None:
    rows = '1,"x\n, ""y""",0\n2,5" pipe,1\n3,"a" b,0\n4,"",1\n5,"x, ""\n""",0\n6,6" pipe,1\n'
    reader = open_csv(write("a,k,y\n" + rows), LAST)
    assert reader.header.categories[1] == ('5" pipe', '6" pipe', "a b", 'x\n, "y"', 'x, "\n"')


@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_a_line_that_names_the_separator(write, mark: str) -> None:
    reader = open_csv(write(mark + "sep=;\r\na,b;c;y\r\n1,5;2;0\r\n2;3;1\r\n"), LAST)
    assert reader.header.feature_names == ("a,b", "c")
    np.testing.assert_array_equal(read_all(reader)[0], [[1.5, 2], [2, 3]])
    assert "line 4" in str(error_of(write(mark + "sep=;\na;c;y\n1;2;0\n2;1\n")))
    bare = open_csv(write(mark + "sep=;\n1;2;0\n3;4;1\n"), LAST)
    np.testing.assert_array_equal(read_all(bare)[0], [[1, 2], [3, 4]])


@pytest.mark.parametrize("text", ["# made by us\na,k,y\n1,2,0\n", "# a, b\n# c, d\na,y\n1,0\n"])
def test_comments_before_the_header(write, text: str) -> None:
    said = str(error_of(write(text)))
    assert "line 1" in said
    assert "the file begins with a comment, a header row of column names was expected" in said
    assert "grep -v '^#'" in said


def test_a_header_that_begins_like_a_comment(write) -> None:
    assert open_csv(write("#a,k,y\n1,2,0\n"), LAST).header.feature_names == ("#a", "k")


def test_nothing_tells_the_labels(write) -> None:
    with pytest.raises(UsageError, match="nothing tells which columns are labels") as caught:
        open_csv(write("a,y\n1,0\n"))
    for option in ("--labels FILE.xml", "--label-columns", "--n-labels"):
        assert option in str(caught.value)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (ReadOptions(LabelSpec(columns=("skyy",))), "the label 'skyy' is none of the 3 columns"),
        (ReadOptions(LabelSpec(columns=("skyy",))), "the closest names are 'sky'"),
        (ReadOptions(LabelSpec(columns=("9",))), "numbers counted from 1"),
        (ReadOptions(LabelSpec(count=3)), "3 labels asked for; the file has 3 columns"),
        (ReadOptions(LabelSpec(count=1), drop=("a", "b")), "0 features and 1 label are left"),
        (ReadOptions(LabelSpec(count=1), drop=("z",)), "the column to leave out, 'z' is none"),
        (ReadOptions(LabelSpec(count=1), keys={"categorical": "z"}), "the column of categories 'z'"),
    ],
)
def test_columns_that_are_not_there(write, options: ReadOptions, said: str) -> None:
    assert said in str(error_of(write("a,b,sky\n1,2,0\n"), options))


def test_another_column_than_the_only_one(write) -> None:
    error = error_of(write("# a comment\nx\n1\n"), ReadOptions(LabelSpec(columns=("sky",))))
    assert "the label 'sky' is not the only column, '# a comment'" in str(error)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ("a,y\r1,0\r2,1\r", 1, "lines end with CR alone"),
        ("a,y\n1,0\n2,\0\n", 3, "the text holds NUL bytes"),
    ],
)
def test_texts_of_other_systems(write, text: str, line: int, said: str) -> None:
    error = error_of(write(text))
    assert (error.line, said in str(error)) == (line, True)
    assert error.cure


def test_thousands_with_commas_are_no_categories(write) -> None:
    path = write('a,b,y\n5,1,0\n"1,234",2,1\n"2,000,000.5",3,1\n')
    error = error_of(path)
    assert (error.line, error.column, error.value) == (3, "a", "1,234")
    assert "2 of its 3 different values are no numbers" in str(error)
    asked = open_csv(path, ReadOptions(LabelSpec(count=1), keys={"categorical": "a"}))
    assert asked.header.categories == {0: ("1,234", "2,000,000.5", "5")}


def test_measurements_with_a_stray_text_are_no_categories(write) -> None:
    rows = [f"{i / 7:.3f},{i % 2}" for i in range(49)]
    path = write("a,y\n" + "\n".join([*rows[:20], "n.d.,0", *rows[20:]]) + "\n")
    error = error_of(path)
    assert (error.line, error.column, error.value) == (22, "a", "n.d.")
    assert "a few texts among many different numbers: 1 of its 50 different values" in str(error)
    assert "--key categorical=a" in str(error)
    for keys in ({"categorical": "a"}, {"categorical": "1"}):
        assert len(open_csv(path, ReadOptions(LabelSpec(count=1), keys=keys)).header.categories[0]) == 50
    # Codes with some letters among them are categories, and so are few values of any kind.
    write("a,y\n" + "\n".join([*rows[:44], *(f"V{i},1" for i in range(6))]) + "\n")
    assert len(open_csv(path, LAST).header.categories[0]) == 50
    write("a,y\n" + "\n".join([*rows[:30], "n.d.,0"]) + "\n")
    assert len(open_csv(path, LAST).header.categories[0]) == 31


@pytest.mark.parametrize("texts", [("3,7", "12,1"), ("-0,5", "1", "2"), ("1,5", "1,234")])
def test_quoted_decimal_commas_are_no_categories(write, texts: tuple[str, ...]) -> None:
    path = write("a,b,y\n" + "".join(f'"{text}",{i},{i % 2}\n' for i, text in enumerate(texts * 3)))
    error = error_of(path)
    assert (error.line, error.column, error.value) == (2, "a", texts[0])
    assert "numbers with commas in them" in str(error)
    asked = open_csv(path, ReadOptions(LabelSpec(count=1), keys={"categorical": "a"}))
    assert asked.header.categories == {0: tuple(sorted(texts))}


@pytest.mark.parametrize("text", ["15%", "−1.5", "7 %"])
def test_what_a_person_reads_as_a_number_is_told(write, caplog: pytest.LogCaptureFixture, text: str) -> None:
    open_csv(write(f"a,b,y\n{text},1,0\n3,2,1\n"), LAST)
    (told,) = caplog.messages
    assert f"column 'a' is taken for categories: {text!r} and the like are no numbers here" in told


def test_a_header_is_there_or_not(write) -> None:
    path = write("1,2,0\n3,4,1\n5,6,0\n")
    for word, names in {"no": None, "0": None, "yes": ("1", "2"), "TRUE": ("1", "2")}.items():
        assert open_csv(path, ReadOptions(LabelSpec(count=1), keys={"header": word})).header.feature_names == names
    with pytest.raises(UsageError, match="header must be yes or no, not 'banana'"):
        open_csv(path, ReadOptions(LabelSpec(count=1), keys={"header": "banana"}))


def test_few_numbers_with_a_text_are_categories_and_told(write, caplog: pytest.LogCaptureFixture) -> None:
    """Sizes 1, 2, 3 and "none" may be categories, and a missing measurement: nobody but the user knows."""
    path = write("a,b,y\n1,x,0\n2,1,1\nn.d.,z,0\n3,2,1\n")
    reader = open_csv(path, LAST)
    assert reader.header.categories == {0: ("1", "2", "3", "n.d."), 1: ("1", "2", "x", "z")}
    (told,) = caplog.messages  # as many texts as numbers in b: categories
    assert "column 'a' is taken for categories: beside 3 different numbers it holds 'n.d.';" in told
    assert "--key categorical=a" in told
    caplog.clear()
    open_csv(path, ReadOptions(LabelSpec(count=1), keys={"categorical": "a"}))
    assert not caplog.messages


def test_too_many_categories(write, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(csv_module, "MAX_CATEGORIES", 3)
    error = error_of(write("id,y\n" + "".join(f"r{i},0\n" for i in range(4))))
    assert error.column == "id"
    assert "may hold 3 different texts" in str(error)


def test_a_file_that_changes_is_noticed(write) -> None:
    path = write("k,y\na,0\nb,1\n")
    reader = open_csv(path, LAST)
    write("k,y\na,0\nc,1\n")
    with pytest.raises(DataError, match=re.compile("value 'c': a text that was not there", re.DOTALL)):
        read_all(reader)


@pytest.mark.parametrize("handler", [signal.default_int_handler, signal.SIG_IGN, lambda number, frame: None])
def test_arrow_keeps_off_signals_that_the_program_answers(write, monkeypatch: pytest.MonkeyPatch, handler) -> None:
    switched: list[bool] = []
    monkeypatch.setattr("pyarrow.enable_signal_handlers", switched.append)
    monkeypatch.setattr(signal, "getsignal", lambda number: handler)
    read_all(open_csv(write("a,b\n1,0\n2,1\n"), LAST))
    assert set(switched) == (set() if handler is signal.default_int_handler else {False})
