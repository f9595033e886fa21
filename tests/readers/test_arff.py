"""ARFF: what real files do, what the format allows, what is refused and how."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy.sparse import issparse

from mlfs_dask.blocks import gates
from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.formats.arff import open_arff
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers.arff_rows import ArffReader
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.readers.label_values import MINUS_ONE, UNKNOWN
from tests.readers.reading import batches_of, check_splits, dense

NAN = np.nan


LAST = LabelSpec(count=1)


def table_of(reader: ArffReader, part_bytes: int = 1 << 40, batch_bytes: int = 1 << 22) -> SimpleNamespace:
    """A whole file: dense X with NaN, dense Y with -1."""
    batches, header = batches_of(reader, batch_bytes=batch_bytes, part_bytes=part_bytes), reader.header
    sparse = any(issparse(batch.X) for batch in batches)
    assert all(batch.X.data.all() for batch in batches if issparse(batch.X))
    X = np.concatenate([np.empty((0, header.n_features)), *(dense(batch.X) for batch in batches)])
    Y = np.concatenate([np.empty((0, header.n_labels), np.int8), *(batch.Y.toarray() for batch in batches)])
    return SimpleNamespace(header=header, X=X, Y=Y, sparse=sparse)


def read(path: Path, spec: LabelSpec = LAST, drop: tuple[str, ...] = ()) -> SimpleNamespace:
    return table_of(open_source([str(path)], FileSpec(labels=spec, drop=drop)))


@pytest.fixture(autouse=True, params=["plain rows by Python", "all rows by the kernel"])
def size_from_which_rows_are_compiled(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "COMPILED_TEXT", 0 if "kernel" in request.param else gates.COMPILED_TEXT)


@pytest.fixture
def write(tmp_path: Path):  # type: ignore[no-untyped-def]
    def write(text: str | bytes, name: str = "data.arff") -> Path:
        path = tmp_path / name
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return write


def arff(attributes: list[str], rows: list[str], relation: str = "r") -> str:
    return "\n".join([f"@relation {relation}", *(f"@attribute {a}" for a in attributes), "@data", *rows, ""])


# ---- which attributes are labels ----

FOUR = ["a {0,1}", "b integer [0, 1]", "c real[0,1]", "d{0, 1}"]


@pytest.mark.parametrize(
    ("relation", "spec", "labels"),
    [
        ("'R: -C 1'", LabelSpec(), "a"),
        ("'R: -C -1' % a comment after it", LabelSpec(), "d"),
        ('"R: -split-number 7 -C 2"', LabelSpec(), "ab"),
        ("R: -C 2 % the text 'not closed", LabelSpec(), "ab"),
        ("-C -3", LabelSpec(), "bcd"),
        ("'R: -C 1'", LabelSpec(count=2), "cd"),
        ("r", LabelSpec(count=2, first=True), "ab"),
        ("r", LabelSpec(columns=("c", "a")), "ac"),
        # of KEEL
        ("r\n@inputs b, c\n@outputs a, d", LabelSpec(), "ad"),
        ("r\n@input a,b,c\n@output d", LabelSpec(), "d"),
        ("r\n@outputs a, d", LabelSpec(count=1), "d"),
        ("'R: -C 1'\n@outputs d", LabelSpec(), "a"),
    ],
)
def test_labels_are_found(write: Any, relation: str, spec: LabelSpec, labels: str) -> None:
    table = read(write(arff(FOUR, ["1,0,0,1", "0,0,1,1"], relation)), spec)
    rows = {"a": [1, 0], "b": [0, 0], "c": [0, 1], "d": [1, 1]}
    assert table.header.label_names == tuple(labels)
    assert table.Y.T.tolist() == [rows[name] for name in labels]
    assert table.header.feature_names == tuple(sorted(set("abcd") - set(labels)))
    assert table.X.T.tolist() == [rows[name] for name in sorted(set("abcd") - set(labels))]


@pytest.mark.parametrize("name", ["data.dat", "data"])
def test_keel_is_known_by_its_header(write: Any, name: str) -> None:
    assert read(write(arff(FOUR, ["1,0,0,1"], "r\n@outputs a, d"), name), LabelSpec()).header.label_names == ("a", "d")


def xml(*names: str) -> str:
    return "<labels>" + "".join(f'<label name="{name}"/>' for name in names) + "</labels>"


def test_xml_tells_which_and_the_file_tells_the_order(write: Any) -> None:
    labels = write(xml("d", "b"), "labels.xml")
    table = read(write(arff(FOUR, ["1,0,0,1"], "'R: -C 2'")), LabelSpec(xml=str(labels)))
    assert table.header.label_names == ("b", "d")  # and not -C, which lies here
    assert table.Y.tolist() == [[0, 1]]


def test_names_match_in_any_spelling(write: Any) -> None:
    data = write(
        arff(
            ["x numeric", r"TAG_m\'usica {0,1}", r"'Swainson\'s Thrush' {0,1}", r"'a\'b' {0,1}", "TAG_??? {0,1}"],
            ["5,0,1,0,1"],
        )
    )
    labels = write(xml(r"TAG_m\'usica", "Swainson's Thrush", r"a\'b", "TAG_???"), "labels.xml")
    table = read(data, LabelSpec(xml=str(labels)))
    assert table.header.label_names == (r"TAG_m\'usica", "Swainson's Thrush", "a'b", "TAG_???")
    assert table.Y.tolist() == [[0, 1, 0, 1]]


def test_xml_name_that_is_not_there(write: Any) -> None:
    data = write(arff(["x numeric", "amazed-surprised {0,1}"], ["1,0"]))
    labels = write(xml("amazed-suprised", "other"), "labels.xml")
    with pytest.raises(DataError) as caught:
        read(data, LabelSpec(xml=str(labels)))
    assert str(caught.value) == (
        f"{labels}, value 'amazed-suprised': the label 'amazed-suprised' (and 1 more) is no attribute of "
        f"{data}\n  cure: did you mean 'amazed-surprised'"
    )


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (FileSpec(LabelSpec(columns=("zebra",))), r"the label 'zebra' is no attribute.*\n.*belong together"),
        (FileSpec(), r"no option says which.*\n.*--label-file FILE.xml, --label-columns"),
        (FileSpec(LabelSpec(count=4)), "--n-labels asks for 4 labels; the file has 4 attributes"),
        (FileSpec(LabelSpec(count=0)), "--n-labels asks for 0 labels; the file has 4 attributes"),
        (FileSpec(LabelSpec(count=9, first=True)), "--n-labels asks for 9 labels; the file has 4 attributes"),
        (FileSpec(LabelSpec(columns=tuple("abcd"))), "0 features and 4 labels are left; at least one of each"),
        (FileSpec(keys={"sheet": "1"}), "ARFF files have no key 'sheet'"),
    ],
)
def test_options_that_do_not_fit(write: Any, options: FileSpec, problem: str) -> None:
    with pytest.raises((DataError, UsageError), match=problem):
        open_arff(str(write(arff(FOUR, []))), options)


# ---- the header ----


def test_header_with_everything_legal(write: Any) -> None:
    text = (
        "\ufeff% a comment first\r\n\r\n  @RELATION 'a b: -C -2' % why\r\n"
        "%\r\n@Attribute\t'two words'\tREAL\r\n"
        '@ATTRIBUTE "say \\"hi\\"" Integer % note\r\n'
        "@attribute 7 NUMERIC\r\n@attribute / numeric\r\n@attribute - numeric\r\n@attribute l=10 numeric\r\n"
        "@attribute TAG_c# numeric\r\n@attribute größe numeric\r\n"
        "@attribute kind{ 'x y' , b,\"c\\'d\" }% note\r\n"
        "@attribute y {YES, NO}\r\n@attribute z\t{0,\t1}\r\n\r\n@DATA % go\r\n"
        "1,2,3,4,5,6,7,8,'x y',YES,1"
    )
    table = read(write(text), LabelSpec())
    assert table.header.feature_names == (
        "two words", 'say "hi"', "7", "/", "-", "l=10", "TAG_c#", "größe", "kind",
    )  # fmt: skip
    assert table.header.label_names == ("y", "z")
    assert table.header.categories == {8: ("x y", "b", "c'd")}
    assert table.X.tolist() == [[1, 2, 3, 4, 5, 6, 7, 8, 0]]
    assert table.Y.tolist() == [[1, 1]]


def test_a_no_break_space_is_no_blank(write: Any) -> None:
    table = read(
        write(
            "@relation r\n@attribute a\xa0b real\n@attribute\tk  {x\xa0y,\tz}\n@attribute y {0,1}\n@data\n1,x\xa0y,0\n"
        )
    )
    assert table.header.feature_names == ("a\xa0b", "k")
    assert table.header.categories == {1: ("x\xa0y", "z")}
    np.testing.assert_array_equal(table.X, [[1, 0]])


def test_names_that_are_no_utf8_are_latin1(write: Any) -> None:
    text = arff(["größe {süß,b}", "y {0,1}"], ["süß,1", "b,0", "'süß',1"]).encode("latin-1")
    table = read(write(text))
    assert table.header.feature_names == ("größe",)
    assert table.header.categories == {0: ("süß", "b")}
    assert table.X.tolist() == [[0], [1], [0]]


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("", None, "the file is empty"),
        ("@relation r\n@attribute a numeric\n", 2, "an ARFF file has a line @data"),
        ("@relation r\n@data\n", 2, "no @attribute was declared"),
        ("a,b\n1,2\n", 1, "a header line begins with @relation"),
        ("@relation r\n@attribute a\n@data\n", 2, "an attribute has a name and a type"),
        ("@relation r\n@attribute\n@data\n", 2, "an attribute has a name and a type"),
        ("@relation r\n@attribute a {x,y\n@data\n", 2, "list of values {value, value} is malformed"),
        ("@relation r\n@attribute a {}\n@data\n", 2, "list of values {value, value} is malformed"),
        ("@relation r\n@attribute a relational\n@data\n", 2, "numeric, real, integer, {value, value}, string"),
        ("@relation r\n@attribute a date 'yyyy-QQ'\n@data\n", 2, "or one that is not supported"),
        ("@relation r\n@attribute a date 'yyyy-MM y'\n@data\n", 2, "the date format has a part twice"),
        ("@attribute a real\n%\n@attribute 'a' real\n@data\n", 3, "declared in line 1 already"),
    ],
)
def test_malformed_header(write: Any, text: str, line: int | None, problem: str) -> None:
    path = write(text)
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read(path)
    assert (caught.value.file, caught.value.line) == (str(path), line)


def test_utf16_is_named(write: Any) -> None:
    with pytest.raises(DataError, match=r"UTF-8 text was expected, this is UTF-16\n.*save the file as UTF-8"):
        read(write(arff(FOUR, []).encode("utf-16")))


def test_text_attribute_can_be_left_out(write: Any) -> None:
    data = write(arff(["x numeric", "note string", "y {0,1}"], ["1,'some, text',0", "2,?,1"]))
    with pytest.raises(DataError) as caught:
        read(data)
    assert str(caught.value) == (
        f"{data}, line 3, column 'note': a string attribute can be no feature\n  cure: leave it out: --drop 'note'"
    )
    table = read(data, drop=("note",))
    assert table.header.feature_names == ("x",)
    assert table.X.tolist() == [[1], [2]]
    with pytest.raises(DataError, match=r"the column to leave out, 'nota' is no attribute.*\n.*'note'"):
        read(data, drop=("nota",))


def test_attributes_left_out_of_sparse_rows(write: Any) -> None:
    data = write(arff(["id {k1,k2}", "x numeric", "s string", "y {0,1}"], ["{0 k2,1 4,2 'a b',3 1}", "{0 k9}"]))
    table = read(data, drop=("id", "s"))
    assert table.X.tolist() == [[4], [0]]
    assert table.Y.tolist() == [[1], [0]]


@pytest.mark.parametrize(
    ("declared", "problem"),
    [
        ("string", "a string attribute can be no label"),
        ("date", "a date attribute can be no label"),
        ("{red,green}", "a label is numeric or {0,1}; this one is declared {red, green}"),
        ("{2,10,1,7,3,4,5,6,8}", "this one is declared {2, 10, 1, 7, 3, 4, 5, 6, ...}"),
    ],
)
def test_attribute_that_can_be_no_label(write: Any, declared: str, problem: str) -> None:
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read(write(arff(["x numeric", f"y {declared}"], [])))
    assert (caught.value.line, caught.value.column) == (3, "y")


# ---- values ----


@pytest.mark.parametrize(
    ("declared", "false", "true"),
    [
        ("{0,1}", "0", "1"),
        ("{1,0}", "0", "1"),
        ("{YES, NO}", "NO", "YES"),
        ("{no,yes}", "no", "yes"),
        ("{FALSE,TRUE}", "FALSE", "TRUE"),
        ("{t,f}", "f", "t"),
    ],
)
def test_false_and_true_in_any_spelling(write: Any, declared: str, false: str, true: str) -> None:
    attributes = [f"x {declared}", "n numeric", f"y {declared}"]
    dense = read(write(arff(attributes, [f"{false},1,{true}", f"{true},1,{false}", "?,1,?"])))
    assert dense.X[:, 0].tolist()[:2] == [0, 1]
    assert np.isnan(dense.X[2, 0])
    assert dense.Y[:, 0].tolist() == [1, 0, -1]
    assert dense.header.categories == {0: (false, true)}
    # In a sparse row the FIRST declared value stands for what is absent.
    first = float(declared[1:].startswith(true))
    rows = [f"{{0 {false},2 {true}}}", f"{{0 {true},2 {false}}}", "{1 3}", "{0 ?,2 ?}", "{}"]
    sparse = read(write(arff(attributes, rows)))
    assert sparse.sparse
    np.testing.assert_array_equal(sparse.X[:, 0], [0, 1, first, NAN, first])
    assert sparse.X[:, 1].tolist() == [0, 0, 3, 0, 0]
    assert sparse.Y[:, 0].tolist() == [1, 0, first, -1, first]


@pytest.mark.parametrize(
    ("attributes", "rows", "X", "Y", "categories"),
    [
        (["place {2,10,1,7}"], ["1,0", "2,0", "7,1", "'10',1", "?,0"], [[2], [0], [3], [1], [NAN]], [0, 0, 1, 1, 0],
         {0: ("2", "10", "1", "7")}),
        (["place {2,10,1,7}"], ["{0 7}", "{1 1}"], [[3], [0]], [0, 1], {0: ("2", "10", "1", "7")}),
        (["x real", "k {a,b,c}"], ["?,?,?", "nan,b,1", "NaN , ? , 0"], [[NAN, NAN], [NAN, 1], [NAN, NAN]], [-1, 1, 0],
         {1: ("a", "b", "c")}),
        (["x real [0, 9]", "k {a,b,c}"], ["<null>,<null>,<null>", "1, <null> ,0"], [[NAN, NAN], [1, NAN]], [-1, 0],
         {1: ("a", "b", "c")}),  # KEEL
        (["x real", "k {a,b}"], ["{0 0,1 a,2 0}", "{}", "{ }", "{0 -0.0}"], [[0, 0]] * 4, [0] * 4, {1: ("a", "b")}),
        ([r"k {'it\'s', 'a,b', 'x\ty', 'c}d', \'}"],
         [r"'it\'s',0", r'"it\'s",0', "'a,b',1", r"'x\ty',0", "'c}d',0", r"\',1"],
         [[0], [0], [1], [2], [3], [4]], [0, 0, 1, 0, 0, 1], {0: ("it's", "a,b", "x\ty", "c}d", r"\'")}),
        ([r"k {'a\\b', 'ab'}"], [r"'a\b',0", r"'a\\b',0"], [[1], [0]], [0, 0], {0: ("a\\b", "ab")}),
        (["id {k1,k2}", "x numeric"], ["{0 k2,1 4,2 1}", "{1 3}"], [[1, 4], [0, 3]], [1, 0], {0: ("k1", "k2")}),
    ],
)  # fmt: skip
def test_values(write: Any, attributes: list[str], rows: list[str], X: Any, Y: list[int], categories: Any) -> None:
    table = read(write(arff([*attributes, "y {0,1}"], rows)))
    np.testing.assert_array_equal(table.X, X)
    assert table.Y[:, 0].tolist() == Y
    assert table.header.categories == categories


@pytest.mark.parametrize(
    ("declared", "texts", "Y"),
    [
        ("{1}", ["1", "?"], [1, -1]),
        ("{0}", ["0", "?"], [0, -1]),
        ("numeric", ["1", "0", "?", "1.0", "0.0", "NaN", "'1'"], [1, 0, -1, 1, 0, -1, 1]),
    ],
)
def test_labels(write: Any, declared: str, texts: list[str], Y: list[int]) -> None:
    table = read(write(arff(["x real", f"y {declared}"], [f"1,{text}" for text in texts])))
    assert table.Y[:, 0].tolist() == Y


def test_minus_one_is_read_as_it_stands(write: Any) -> None:
    attributes = ["f {-1,1}", "x real", "l {-1,1}", "m {'+1','-1',0}", "y numeric"]
    labels = LabelSpec(count=3)
    rows = [(-1, -1, "'-1'"), (1, "+1", "+1"), ("?", 0, "-1.0"), ("-1", "?", 0)]
    dense = open_arff(write(arff(attributes, [f"-1,3,{a},{b},{c}" for a, b, c in rows])), FileSpec(labels=labels))
    (batch,) = dense.read(dense.parts(1 << 20)[0], batch_bytes=1 << 20)
    assert batch.X[:, 0].tolist() == [0, 0, 0, 0]
    expected = [[MINUS_ONE, MINUS_ONE, MINUS_ONE], [1, 1, 1], [UNKNOWN, 0, MINUS_ONE], [MINUS_ONE, UNKNOWN, 0]]
    assert batch.Y.toarray().tolist() == expected
    # In a sparse row the value declared first stands for what is absent.
    rows = ["{1 3}", "{2 1,3 0}", "{2 ?,3 -1,4 -1}"]
    sparse = open_arff(write(arff(attributes, rows)), FileSpec(labels=labels))
    (batch,) = sparse.read(sparse.parts(1 << 20)[0], batch_bytes=1 << 20)
    assert batch.Y.toarray().tolist() == [[MINUS_ONE, 1, 0], [1, 0, 0], [UNKNOWN, MINUS_ONE, MINUS_ONE]]


@pytest.fixture
def far_from_greenwich() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "Pacific/Auckland")
        time.tzset()
        yield
    time.tzset()


@pytest.mark.usefixtures("far_from_greenwich")
def test_dates_are_seconds(write: Any) -> None:
    attributes = [
        "a date", "b date yyyy-MM-dd", "c date 'dd.MM.yy HH:mm:ss.SSS' % note",
        'd date "yyyy-MM-dd HH:mmXXX"', "y {0,1}",
    ]  # fmt: skip
    row = "2001-01-01T12:00:00,'1970-01-02','02.01.70 00:00:01.500',\"1970-01-01 01:00+01:00\",1"
    table = read(write(arff(attributes, [row, "?,?,?,?,0"])))
    np.testing.assert_array_equal(table.X, [[978350400, 86400, 86401.5, 0], [NAN] * 4])


@pytest.mark.parametrize(
    ("rows", "X"),
    [
        (["1,a,0", "", "% comment", "   ", "\t1 ,\ta , 0 ", "1,a,0 % comment", "1\ta\t0", "1 a 0", "1,'a',0", '1,"a",0',
          "1,a,0, {5}", "1,a,0 {5.5} % weighty", "  % comment"], [[1, 0, 0]] * 9),
        (["{0 1,1 b,2 1}", "", "% comment", " { 0 1 , 1 b , 2 1 } ", "\t{0\t1,1\tb,\t2\t1}\t", "{2 1,0 1,1 b}",
          "{1 'b',2 \"1\",0 1.0} % comment", "{0 1,1 b,2 1}, {5}", "{0 1,1 b,2 1} {5}"], [[1, 1, 1]] * 7),
    ],
)  # fmt: skip
def test_rows_written_in_unusual_ways(write: Any, caplog: pytest.LogCaptureFixture, rows: list[str], X: Any) -> None:
    with caplog.at_level(logging.WARNING):
        table = read(write("\r\n".join(arff(["x real", "k {a,b}", "y {0,1}"], rows).split("\n"))))
    assert np.hstack([table.X, table.Y]).tolist() == X
    assert "instance weights are not used (2 rows have one)" in caplog.text


@pytest.mark.parametrize("declared", ["'?',a", "?,a", "'?','long one',a"])
@pytest.mark.parametrize("rows", ["{},1\n", "{{0 {}}}\n"])
def test_a_question_mark_is_a_value_in_quotes_alone(write: Any, declared: str, rows: str) -> None:
    text = "".join(rows.format(value) for value in ("?", "'?'", '"?"', "a"))
    table = read(write(f"@relation r\n@attribute t {{{declared}}}\n@attribute y {{0,1}}\n@data\n{text}"))
    last = len(declared.split(",")) - 1
    np.testing.assert_array_equal(table.X[:, 0], [NAN, 0, 0, last])


def test_many_values_of_many_lengths_are_looked_up(write: Any) -> None:
    values = [f"v{i:x}" for i in range(3000)]
    order = np.random.default_rng(3).permutation(3000)
    path = write(arff([f"k {{{', '.join(values)}}}", "y {0,1}"], [f"{values[i]},0" for i in order]))
    assert read(path).X[:, 0].tolist() == order.tolist()
    check_splits(open_arff(str(path), FileSpec(labels=LAST)), sizes=(1 << 12, 1 << 14))


def test_no_rows(write: Any) -> None:
    assert read(write(arff(FOUR, []).rstrip("\n"))).X.shape == (0, 3)
    assert read(write(arff(FOUR, ["% nothing", ""]))).X.shape == (0, 3)


# ---- what is refused ----

DENSE = ["x real", "k {a,b}", "y {0,1}"]


@pytest.mark.parametrize(
    ("row", "problem", "column", "value"),
    [
        ("1,a", "a row of 3 values was expected, this one has 2", None, None),
        ("1,a % 0", "a row of 3 values was expected, this one has 2", None, None),
        ("1,a,0,1,'x y'", "a row of 3 values was expected, this one has 5", None, None),
        ("1,a,0,", "a row of 3 values was expected, this one has 4", None, None),
        ("1,,0", "a value was expected, nothing stands here", "k", None),
        ("1,a,", "a value was expected, nothing stands here", "y", None),
        (",a,0", "a value was expected, nothing stands here", "x", None),
        ("one,a,0", "a number was expected", "x", "one"),
        ("1_0,a,0", "a number was expected", "x", "1_0"),
        ("0x10,a,0", "a number was expected", "x", "0x10"),
        ("-,a,0", "a number was expected", "x", "-"),
        ("inf,a,0", "a finite number was expected", "x", "inf"),
        ("-1e400,a,0", "a finite number was expected", "x", "-1e400"),
        ("1,c,0", "the value is not among those declared in line 3, {a, b}", "k", "c"),
        ("1,aa,0", "the value is not among those declared in line 3, {a, b}", "k", "aa"),
        ("1,'?',0", "the value is not among those declared in line 3, {a, b}", "k", "'?'"),
        ("1,a,2", "the value is not among those declared in line 4, {0, 1}", "y", "2"),
        ("1,a,0.5", "the value is not among those declared in line 4, {0, 1}", "y", "0.5"),
        ("1,'a,0", "the quote is not closed", "k", "'a,0"),
        ("1,'a'b,0", "a comma was expected after the value", "k", "b,0"),
        ("{0 1}", "the first row is dense, this one is sparse", None, "{0 1}"),
        ("{3 1}", "an attribute index from 0 to 2 was expected", None, "3 1}"),
        ("{-1 1}", "an attribute index from 0 to 2 was expected", None, "-1 1}"),
        ("{4294967296 1}", "an attribute index from 0 to 2 was expected", None, "4294967296 1}"),
        ("{0 1,}", "an attribute index from 0 to 2 was expected", None, "}"),
        ("{0}", "a value was expected after the index", "x", "}"),
        ("{0 1, 1}", "a value was expected after the index", "k", "}"),
        ("{0 1 1 b}", "a comma or } was expected after the value", "x", "1 b}"),
        ("{0 1", "the row ends without }", None, None),
        ("{0 1,", "the row ends without }", None, None),
        ("{0 1} 2", "nothing but a weight {number} may follow", None, "2"),
        ("{0 1},", "nothing but a weight {number} may follow", None, None),
        ("1,a,0", "the first row is sparse, this one is dense", None, "1,a,0"),
        ("{0 1,0 2}", "an attribute may stand only once in a sparse row", "x", None),
        ("{2 1,0 1,2 0}", "an attribute may stand only once in a sparse row", "y", None),
        ("{0 0,1 b,0 0}", "an attribute may stand only once in a sparse row", "x", None),
        ("{0 1,0 2,0 3,0 4}", "an attribute may stand only once in a sparse row", "x", None),
        ("{2 2}", "a label is 0 or 1", "y", "2"),
        ("{2 0.5}", "a label is 0 or 1", "y", "0.5"),
        ("{2 -2}", "a label is 0 or 1", "y", "-2"),
        ("{2 yes}", "a label is 0 or 1", "y", "yes"),
        ("{1 c}", "the value is not among those declared in line 3, {a, b}", "k", "c"),
        ("{0 1e999}", "a finite number was expected", "x", "1e999"),
    ],
)
def test_refused_row(write: Any, row: str, problem: str, column: str | None, value: str | None) -> None:
    sparse = (row[0] == "{") != ("the first row is" in problem)
    first = "{0 1}" if sparse else "1,a,0"
    path = write(
        arff(["x real", "k {a,b}", f"y {'numeric' if sparse else '{0,1}'}"], [first, "% comment", "", row, first])
    )
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read(path)
    error = caught.value
    assert (error.file, error.line, error.column, error.value) == (str(path), 9, column, value)
    assert error.cure


def test_impossible_date(write: Any) -> None:
    with pytest.raises(DataError, match=r"a date like 2001-02-03 was expected\n.*format in line 2") as caught:
        read(write(arff(["x date yyyy-MM-dd", "y {0,1}"], ["2001-02-30,0"])))
    assert (caught.value.line, caught.value.value) == (5, "2001-02-30")


def test_long_values_are_shortened_in_errors(write: Any) -> None:
    with pytest.raises(DataError) as caught:
        read(write(arff(DENSE, [f"{'z' * 500},a,0"])))
    assert caught.value.value == "z" * 37 + "..."


def test_error_in_a_later_part_names_the_line_of_the_file(write: Any) -> None:
    rows = ["% comment" if i % 7 == 0 else f"{i},a,0" for i in range(9000)]
    rows[8000], rows[8500] = "400,a,9", "one,a,0"
    reader = open_arff(str(write(arff(DENSE, rows))), FileSpec(labels=LAST))
    (*_, part) = reader.parts(50_000)
    assert part.start > 0
    with pytest.raises(DataError) as caught:
        list(reader.read(part, batch_bytes=1))
    assert (caught.value.line, caught.value.column, caught.value.value) == (8006, "y", "9")


# ---- parts, batches ----


def test_many_values_absent_that_mean_one_come_in_small_batches(write: Any) -> None:
    attributes = [f"x{i} {{YES,NO}}" for i in range(200)] + ["y {1,0}"]
    reader = open_arff(str(write(arff(attributes, ["{3 NO}"] * 1000))), FileSpec(labels=LabelSpec(count=1)))
    (part,) = reader.parts(1 << 30)
    batches = list(reader.read(part, batch_bytes=1 << 18))
    assert sum(b.X.shape[0] for b in batches) == 1000
    assert max(b.X.nnz * 12 for b in batches) <= 1 << 18
    assert all(b.X.sum() == 199 * b.X.shape[0] and b.Y.sum() == b.X.shape[0] for b in batches)


KINDS = {
    "real": st.one_of(
        st.none(), st.floats(allow_nan=False, allow_infinity=False), st.integers(-(10**25), 10**25), st.just(0)
    ),
    "{0,1}": st.sampled_from([None, 0, 1]),
    "{YES, NO}": st.sampled_from([None, 0, 1]),
    "{'a b',b,'c,d',\"e'f\"}": st.sampled_from([None, 0, 1, 2, 3]),
}
SPELLINGS: dict[str, list[str]] = {
    "{0,1}": ["0", "1"],
    "{YES, NO}": ["NO", "YES"],
    "{'a b',b,'c,d',\"e'f\"}": ["'a b'", "b", "'c,d'", r"'e\'f'"],
}
ABSENT = {"real": 0, "{0,1}": 0, "{YES, NO}": 1, "{'a b',b,'c,d',\"e'f\"}": 0}


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_table_in_any_layout_and_cutting(tmp_path: Path, data: st.DataObject) -> None:
    draw = data.draw
    kinds = [*draw(st.lists(st.sampled_from(list(KINDS)), min_size=1, max_size=5)), "{0,1}", "{YES, NO}"]
    rows = draw(st.lists(st.tuples(*(KINDS[kind] for kind in kinds)), max_size=25))
    sparse = draw(st.booleans())
    end = draw(st.sampled_from(["\n", "\r\n"]))
    lines = []
    for row in rows:
        texts = [
            "?" if v is None else repr(v) if kind == "real" else SPELLINGS[kind][v]
            for kind, v in zip(kinds, row, strict=True)
        ]
        blank = draw(st.sampled_from(["", " ", "\t "]))
        if sparse:
            entries = [
                f"{i} {text}"
                for i, (kind, v, text) in enumerate(zip(kinds, row, texts, strict=True))
                if v != ABSENT[kind] or draw(st.booleans())
            ]
            if draw(st.booleans()):
                entries.reverse()
            lines.append("{" + f"{blank},{blank}".join(entries) + "}")
        else:
            lines.append(f"{blank},{blank}".join(texts))
        lines += draw(st.sampled_from([[], [], ["% , ' {"], [""], [" "]]))
    text = arff([f"a{i} {kind}" for i, kind in enumerate(kinds)], lines)
    if draw(st.booleans()):
        text = text.rstrip("\n")
    path = tmp_path / "any.arff"
    path.write_bytes(text.replace("\n", end).encode())
    reader = open_arff(str(path), FileSpec(labels=LabelSpec(count=2)))
    table = table_of(reader, draw(st.integers(1, 400)), draw(st.integers(1, 2000)))
    expected = np.array([[NAN if v is None else float(v) for v in row] for row in rows])
    if rows:
        np.testing.assert_array_equal(table.X, expected[:, :-2])
        np.testing.assert_array_equal(table.Y, np.nan_to_num(expected[:, -2:], nan=-1))
    else:
        assert not len(table.X)
