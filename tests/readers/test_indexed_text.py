"""svmlight and XMLC text, and their numbers."""

from __future__ import annotations

import gzip
import math
import re
import struct
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array, vstack
from sklearn.datasets import load_svmlight_file

from mlfs_dask import runtime
from mlfs_dask.blocks.sparse import as_labels
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.formats import xmlc
from mlfs_dask.formats.detect import open_source
from mlfs_dask.formats.svmlight import open_svmlight
from mlfs_dask.formats.xmlc import open_xmlc
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.readers.indexed_text import IndexedTextReader
from mlfs_dask.readers.parse_float import read_number
from mlfs_dask.readers.text import number_from_text
from mlfs_dask.storage.append import append
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.opening import open_dataset
from tests.readers.reading import check_splits, read_all


def read_sparse(
    reader: IndexedTextReader, part_bytes: int = 1 << 40, batch_bytes: int = 1 << 22
) -> tuple[csr_array, csr_array]:
    X, Y = [], []
    for part in reader.parts(part_bytes):
        for batch in reader.read(part, batch_bytes=batch_bytes):
            assert batch.X.data.all()
            assert batch.X.has_canonical_format
            assert batch.Y.has_canonical_format
            X.append(batch.X)
            Y.append(batch.Y)
    for matrices in (X, Y):
        width = max((m.shape[1] for m in matrices), default=0)
        for m in matrices:
            m.resize((m.shape[0], width))
    return csr_array(vstack(X)), csr_array(vstack(Y))


def read(path: Path, text: str, **keys: str) -> tuple[list[list[float]], list[list[int]]]:
    path.write_text(text)
    X, Y = read_sparse(open_svmlight(str(path), FileSpec(keys=keys)))
    return X.toarray().tolist(), Y.toarray().tolist()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.svm"


UNUSUAL = (
    "\ufeff# comment\r\n\r\n0 qid:7 1:1\t2:2 # note\r\n0  2:2   1:1\r\n0\t1:1 2:2#note\r\n  # comment\r\n"
    "0 1:1.0e0 2:+2.\r\n \r\nqid:3 1:1 2:2\r\n0 1:1 2:00000000000000000000002"
)


@pytest.mark.parametrize(
    ("text", "keys", "X", "Y"),
    [
        ("0,2 1:0.5 3:-2 \n1 2:1e1\n 3:4\n1:1 2:2\n2,0,2\n", {},
         [[0.5, 0, -2], [0, 10, 0], [0, 0, 4], [1, 2, 0], [0, 0, 0]],
         [[1, 0, 1], [0, 1, 0], [0, 0, 0], [0, 0, 0], [1, 0, 1]]),
        ("3, 1,\t0 1:1\n2 2:2\n0 ,3 1:3\n", {}, [[1, 0], [0, 2], [3, 0]], [[1, 1, 0, 1], [0, 0, 1, 0], [1, 0, 0, 1]]),
        (UNUSUAL, {}, [[1, 2]] * 4 + [[0, 0]] + [[1, 2]] * 2, [[1], [1], [1], [1], [0], [0], [1]]),
        ("0 1:nan 2:NaN 3:1\n", {}, [[np.nan, np.nan, 1]], [[1]]),
        ("0 1:1 3:0\n", {}, [[1, 0, 0]], [[1]]),  # a zero widens
        ("0 1:1 3:1\n1 0:5\n", {"feature_base": "0"}, [[0, 1, 0, 1], [5, 0, 0, 0]], [[1, 0], [0, 1]]),
        ("0 1:1 3:1\n1 0:5\n", {"feature_base": "auto"}, [[0, 1, 0, 1], [5, 0, 0, 0]], [[1, 0], [0, 1]]),
        ("0 1:1 3:1\n", {"feature_base": "auto"}, [[1, 0, 1]], [[1]]),
        ("0 1:1\n", {"n_labels": "2", "n_features": "3"}, [[1, 0, 0]], [[1, 0]]),
    ],
)  # fmt: skip
def test_rows(path: Path, text: str, keys: dict[str, str], X: list[list[float]], Y: list[list[int]]) -> None:
    found = read(path, text, **keys)
    np.testing.assert_array_equal(found[0], X)
    assert found[1] == Y


@pytest.mark.parametrize(
    ("words", "names", "labels"),
    [
        (["3.0", "1", "+1", "2", ""], ("class=1", "class=2", "class=3"), ["001", "100", "100", "010", None]),
        (["1", "0", "0"], ("class",), ["1", "0", "0"]),
        (["-1", "0", "1"], ("class=-1", "class=0", "class=1"), ["100", "010", "001"]),
        (["7", "7", "-2"], ("class=-2", "class=7"), ["01", "01", "10"]),
    ],
)
def test_classes(path: Path, words: list[str], names: tuple[str, ...], labels: list[str | None]) -> None:
    path.write_text("# a comment\n" + "".join(f"{word} 1:1\n" for word in words))
    reader = open_svmlight(str(path), FileSpec(labels=LabelSpec(classes=True)))
    assert (reader.header.label_names, reader.header.n_labels) == (names, len(names))
    expected = [[-1] * len(names) if row is None else [int(label) for label in row] for row in labels]
    for part_bytes, batch_bytes in ((1 << 40, 1 << 22), (1, 1)):
        X, Y = read_sparse(reader, part_bytes, batch_bytes)
        assert X.toarray().tolist() == [[1]] * len(words)
        assert Y.toarray().tolist() == expected


def test_two_signs_as_classes_are_one_label(tmp_path: Path) -> None:
    (tmp_path / "t.svm").write_text("+1 1:1\n-1 2:1\n-1 1:2\n")
    made = convert(tmp_path / "t.svm", tmp_path / "t.zarr", labels=LabelSpec(classes=True))
    dataset = open_dataset(made.store)
    assert (dataset.label_names.tolist(), dataset.schema.positive, dataset.schema.unknown) == (["class"], (1,), (0,))


def test_classes_of_several_files_and_of_rows_that_are_appended(tmp_path: Path) -> None:
    for name, rows in {"a": "1 1:1\n2 1:1\n", "b": "3 1:1\n", "c": "2 1:1\n", "d": "4 1:1\n"}.items():
        (tmp_path / f"{name}.svm").write_text(rows)
    spec, store = LabelSpec(classes=True), tmp_path / "t.zarr"
    convert([tmp_path / "a.svm", tmp_path / "b.svm"], store, labels=spec)
    append(store, tmp_path / "c.svm", labels=spec)
    dataset = open_dataset(store)
    assert dataset.label_names.tolist() == ["class=1", "class=2", "class=3"]
    assert as_labels(dataset.Y.compute()).toarray().tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0, 1, 0]]
    with pytest.raises(DataError, match="column 'class', value '4': it has a class that is no label of the store"):
        append(store, tmp_path / "d.svm", labels=spec)


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ("a 1:1\n", "line 1, value 'a': the class of the row, a number, was expected"),
        ("1,2 1:1\n", "line 1, value '1,2': the class of the row, a number, was expected"),
        ("".join(f"{i / 7:.4f} 1:1\n" for i in range(1, 40)), "and this one has 39 different numbers"),
    ],
)
def test_what_is_no_class(path: Path, rows: str, problem: str) -> None:
    path.write_text(rows)
    with pytest.raises(DataError, match=problem):
        open_svmlight(str(path), FileSpec(labels=LabelSpec(classes=True)))


def test_a_label_beyond_memory_is_named_with_its_line(path: Path) -> None:
    with runtime.process_limits(memory_limit=1 << 30):
        assert read(path, "0 1:1\n1000 1000:1\n")[0][1][999] == 1
        with pytest.raises(DataError) as caught:
            read(path, "0 1:1\n# comment\n3,2000000000,4 1:1\n1 1:1\n")
    assert str(caught.value) == (
        f"{path}, line 3, value 2000000000: labels are numbers from 0, and so many would take 381,469 MiB of memory, "
        "of which there are 1,024\n"
        "  cure: correct the row, number the labels anew, or give more memory with memory_limit; or, if each row "
        "begins with its class (-1 and +1; 1.0, 2.0, 3.0), say --label-classes: each is a label"
    )


def test_a_feature_beyond_memory_is_named_with_its_line(path: Path) -> None:
    text = "0 1:1\n1 2:1 50000000:1 3:1\n1 1:1\n"
    with runtime.process_limits(memory_limit=1 << 30), pytest.raises(DoesNotFitError) as caught:
        read(path, text)
    assert str(caught.value).startswith(f"{path}, line 2: 50,000,000 features, for the index 50000000: projected")
    with runtime.process_limits(memory_limit=1 << 34):
        path.write_text(text)
        assert read_sparse(open_svmlight(str(path), FileSpec()))[0].shape == (3, 50_000_000)


def test_a_count_of_labels_is_their_width(path: Path) -> None:
    path.write_text("0 1:1\n")
    assert read_sparse(open_svmlight(str(path), FileSpec(labels=LabelSpec(count=3))))[1].shape == (1, 3)


@pytest.mark.parametrize(
    ("row", "problem", "value"),
    [
        ("+1 1:1", "label numbers from 0 were expected, and this is none", "+1"),
        ("-1 1:1", "label numbers from 0 were expected, and this is none", "-1"),
        ("3.0 1:1", "label numbers from 0 were expected, and this is none", "3.0"),
        ("1, 1:1", "label numbers from 0 with commas between them were expected, and none follows the comma", "1:1"),
        ("1,x 1:1", "label numbers from 0 with commas", "x"),
        ("99999999999 1:1", "label numbers from 0 below 2147483647 were expected", "99999999999"),
        ("2147483647 1:1", "label numbers from 0 below 2147483647 were expected", "2147483647"),
        ("1 x:1", "a pair index:value was expected", "x:1"),
        ("1 1", "a pair index:value was expected", "1"),
        ("1 2147483649:1", "a feature index below 2147483647 was expected", "2147483649:1"),
        ("1 1:x", "a number was expected", "x"),
        ("1 1:", "a number was expected", ""),
        ("1 1: 1: 1: 1: 1: 1: 1:", "a number was expected", ""),
        ("1 1:1_0", "a number was expected", "1_0"),
        ("1 1:inf", "a finite number was expected", "inf"),
        ("1 0:5", "feature 0 came, but features count from 1\n  cure: if its features count from 0, give --key", "0:5"),
        ("1 2:1 1:1 2:0", "a feature may stand only once in a row", None),
        ("1 2:0 2:0", "a feature may stand only once in a row", None),
    ],
)
def test_refused_row(path: Path, row: str, problem: str, value: str | None) -> None:
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read(path, f"0 1:1\n# comment\n{row}\n0 1:1\n")
    assert (caught.value.file, caught.value.line) == (str(path), 3)
    assert caught.value.value == value
    assert caught.value.cure
    if value in ("+1", "-1", "3.0", "99999999999"):
        assert "say --label-classes" in caught.value.cure


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        (FileSpec(labels=LabelSpec(xml="x.xml")), "svmlight text has no names"),
        (FileSpec(labels=LabelSpec(columns=("a",))), "svmlight text has no names"),
        (FileSpec(drop=("a",)), "svmlight text has no names"),
        (FileSpec(keys={"base": "1"}), "no key 'base'; known are feature_base, n_features, n_labels"),
        (FileSpec(keys={"feature_base": "2"}), "feature_base must be 0, 1 or auto, not '2'"),
        (FileSpec(keys={"n_features": "0"}), "n_features must be a positive whole number, not '0'"),
        (FileSpec(keys={"n_labels": "x"}), "n_labels must be a positive whole number, not 'x'"),
        (FileSpec(keys={"n_features": "3"}), "line 1, value '4:1': a feature index from 1 to 3 was expected"),
        (FileSpec(keys={"n_labels": "2"}), "line 1, value '2': label numbers from 0 to 1 with commas"),
    ],
)
def test_refused_options(path: Path, options: FileSpec, problem: str) -> None:
    path.write_text("2 4:1\n")
    with pytest.raises((UsageError, DataError), match=re.escape(problem)):
        read_sparse(open_svmlight(str(path), options))


def test_empty_file(path: Path) -> None:
    path.write_text("")
    reader = open_svmlight(str(path), FileSpec())
    assert [batch for part in reader.parts(100) for batch in reader.read(part, batch_bytes=100)] == []


@settings(max_examples=80, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_equals_scikit_learn_in_any_cutting(tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / "any.svm"
    row = st.tuples(
        st.lists(st.integers(0, 6), max_size=4, unique=True),
        st.dictionaries(st.integers(1, 9), st.floats(allow_nan=False, allow_infinity=False), min_size=1),
    )
    rows = data.draw(st.lists(row, min_size=1, max_size=30))
    path.write_text(
        "\n".join(
            ",".join(map(str, labels)) + " " + " ".join(f"{i}:{v!r}" for i, v in sorted(features.items()))
            for labels, features in rows
        )
    )
    reader = open_svmlight(str(path), FileSpec(keys={"n_features": "9", "n_labels": "7"}))
    X, Y = read_sparse(reader, data.draw(st.integers(1, 300)), data.draw(st.integers(1, 300)))
    X_other, labels = load_svmlight_file(str(path), multilabel=True, n_features=9, zero_based=False)
    np.testing.assert_array_equal(X.toarray(), X_other.toarray())
    assert [sorted(map(int, row)) for row in labels] == [row.nonzero()[0].tolist() for row in Y.toarray()]


def read_text(path: Path, text: str, part_bytes: int = 1 << 40) -> tuple[list[list[float]], list[list[int]]]:
    path.write_bytes(text.encode())
    X, Y = read_all(open_xmlc(str(path), FileSpec()), part_bytes=part_bytes)
    return X.tolist(), Y.tolist()


@pytest.mark.parametrize("part_bytes", [1, 7, 1 << 40])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_xmlc_rows(path: Path, part_bytes: int, end: str) -> None:
    text = "5 4 3\n0,2 0:1 3:0.5 \n 1:2\n1\n \n2 2:7\n".replace("\n", end)
    assert read_text(path, text, part_bytes) == (
        [[1, 0, 0, 0.5], [0, 2, 0, 0], [0, 0, 0, 0], [0, 0, 0, 0], [0, 0, 7, 0]],
        [[1, 0, 1], [0, 0, 0], [0, 1, 0], [0, 0, 0], [0, 0, 1]],
    )


@pytest.mark.parametrize("part_bytes", [1, 1 << 40])
@pytest.mark.parametrize(
    ("text", "features"),
    [
        ("3 4 3\n0 0:1\n\n1 2:7\n", [1, 0, 7]),
        ("3 4 3\n\n0 0:1\n\n", [0, 1, 0]),
        ("2 4 3\n0 0:1\n\n1 2:7\n", [1, 7]),
        ("2 4 3\n0 0:1\n1 2:7\n\n", [1, 7]),
    ],
)
def test_an_empty_line_is_a_row_where_the_first_line_counts_it(
    path: Path, text: str, features: list[float], part_bytes: int
) -> None:
    X, Y = read_text(path, text, part_bytes)
    assert [sum(row) for row in X] == features
    assert [sum(row) for row in Y] == [int(value > 0) for value in features]


def test_header(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf 2  4\t3 \n0 0:1\n1 0:1")
    reader = open_xmlc(str(path), FileSpec())
    header = reader.header
    assert (header.n_rows, header.n_features, header.n_labels, header.feature_names) == (2, 4, 3, None)
    (batch,) = reader.read(reader.parts(1000)[0], batch_bytes=1000)
    assert (batch.X.shape, batch.first_line) == ((2, 4), 2)


@pytest.mark.parametrize("text", ["", "0 1:1\n", "1\n", "1 2 3 4\n", "a b c\n", "1 2 3", "x" * 1000])
def test_no_header(path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"the first line of XMLC text was expected: .*\n.*--format svmlight") as caught:
        read_text(path, text)
    assert (caught.value.line, caught.value.value) == (1, text[:40].strip())


@pytest.mark.parametrize(("rows", "found"), [("0 0:1\n", 1), ("0 0:1\n" * 3, 3), ("", 0)])
def test_row_count(path: Path, rows: str, found: int) -> None:
    with pytest.raises(DataError, match=rf"the header declares 2 rows, the file has {found}\n.*cut off") as caught:
        read_text(path, "2 4 3\n" + rows)
    assert caught.value.file == str(path)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("3 0:1", "label numbers from 0 to 2 with commas between them were expected"),
        ("0 4:1", "a feature index from 0 to 3 was expected"),
        ("0 99999999999:1", "a feature index from 0 to 3 was expected"),
    ],
)
def test_beyond_the_declared_widths(path: Path, row: str, problem: str) -> None:
    with pytest.raises(DataError, match=re.escape(problem)) as caught:
        read_text(path, f"2 4 3\n0 0:1\n{row}\n")
    assert caught.value.line == 3


@pytest.mark.parametrize(
    "options", [FileSpec(labels=LabelSpec(count=1)), FileSpec(drop=("a",)), FileSpec(keys={"x": "y"})]
)
def test_xmlc_options_refused(path: Path, options: FileSpec) -> None:
    with pytest.raises(UsageError, match="XMLC text defines its labels itself"):
        open_xmlc(str(path), options)


X_ROWS = ["0:1.5 3:2", "", "1:1", "", "2:0.25 0:1", " 3:1 "]
Y_ROWS = ["0:1", "2:1.0 0:1", "", "", "1:1", "2:1"]
X = [[1.5, 0, 0, 2], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0.25, 0], [0, 0, 0, 1]]
Y_PAIR = [[1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]


def write_pair(folder: Path, times: int = 1, end: str = "\n", suffix: str = "") -> tuple[str, FileSpec]:
    """Files as the repository has them now: `n d` and `n q`, a row a line, also where it is empty."""
    names = []
    for name, width, rows in (("trn_X_Xf.txt", 4, X_ROWS), ("trn_X_Y.txt", 3, Y_ROWS)):
        text = end.join([f"{6 * times} {width}", *rows * times]) + end
        content = text.encode()
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)
        names.append(str(folder / (name + suffix)))
    return names[0], FileSpec(labels=LabelSpec(xml=names[1]))


@pytest.mark.parametrize("suffix", ["", ".gz"])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_features_and_labels_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, end: str, suffix: str) -> None:
    monkeypatch.setattr(xmlc, "_INDEX_ROWS", 5)
    path, options = write_pair(tmp_path, 7, end, suffix)
    reader = open_source([path], options)
    assert (reader.header.n_rows, reader.header.n_features, reader.header.n_labels) == (42, 4, 3)
    assert len(reader.parts(1)) == (1 if suffix else 9)
    found = read_all(reader)
    assert (found[0].tolist(), found[1].tolist()) == (X * 7, Y_PAIR * 7)
    check_splits(reader, sizes=(1, 100))


def test_labels_apart_of_three_values(tmp_path: Path) -> None:
    path, options = write_pair(tmp_path)
    reader = open_source([path], replace(options, labels=replace(options.labels, unknown=("0",))))
    assert read_all(reader)[1].tolist() == [[label or -1 for label in row] for row in Y_PAIR]


def test_features_without_their_labels(tmp_path: Path) -> None:
    path, options = write_pair(tmp_path)
    with pytest.raises(
        UsageError, match="features and labels are in two files\n  cure: say which file holds the labels"
    ):
        open_source([path])
    (tmp_path / "old.txt").write_text("6 4 3\n" + "0 0:1\n" * 6)
    with pytest.raises(DataError, match="two numbers were expected in the first line"):
        open_source([str(tmp_path / "old.txt")], options)


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("trn_X_Y.txt", "5 3\n" + "\n" * 5, "trn_X_Y.txt, line 1: it declares 5 rows, and .*trn_X_Xf.txt 6"),
        ("trn_X_Y.txt", "6 3\n0:1\n1:1\n", "the header declares 6 rows, the file has 2"),
        ("trn_X_Y.txt", "6 3\n" + "0:1\n" * 7, "the header declares 6 rows, the file has more"),
        ("trn_X_Y.txt", "6 3\n0:1\n\n0:3\n\n\n\n", "trn_X_Y.txt, line 4, column 1, value 3: a label must be 0 or 1"),
        ("trn_X_Y.txt", "6 3\n0:1\n\n3:1\n\n\n\n", "trn_X_Y.txt, line 4, value '3:1': a feature index from 0 to 2"),
        ("trn_X_Y.txt", "6 3\n0:1\n2\n3:1\n\n\n\n", "trn_X_Y.txt, line 3, value '2': pairs index:value alone were"),
        ("trn_X_Xf.txt", "6 4\n0:1\n\n0:x\n\n\n\n", "trn_X_Xf.txt, line 4, column 0, value 'x': a number was expected"),
    ],
)
def test_pairs_that_do_not_fit(tmp_path: Path, name: str, text: str, problem: str) -> None:
    path, options = write_pair(tmp_path)
    (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match=problem):
        read_all(open_source([path], options))


def bits(value: float) -> bytes:
    return struct.pack("d", value)


def converted(text: str) -> tuple[bool, float, int]:
    return read_number(np.frombuffer(text.encode() + b",", dtype=np.uint8).copy(), 0)  # type: ignore[no-any-return]


def check(text: str, *, may_decline: bool) -> None:
    exact, value, end = converted(text)
    assert exact or may_decline, text
    if exact:
        assert bits(value) == bits(float(text)), text
        assert end == len(text)


@settings(max_examples=400)
@given(st.floats(allow_nan=False, allow_infinity=False, allow_subnormal=False))
@example(0.1)
@example(1.7976931348623157e308)
@example(-0.0)
@example(2.2250738585072014e-308)
def test_shortest_form_of_any_float(value: float) -> None:
    # What other programs write: 17 digits and less. The extremes of the range are left to Python.
    check(repr(value), may_decline=not 1e-300 < abs(value) < 1e300 and value != 0)
    check(f"{value:.17g}", may_decline=True)
    check(f"{value:.6f}", may_decline=True)


@settings(max_examples=400)
@given(
    sign=st.sampled_from(["", "-", "+"]),
    whole=st.text("0123456789", max_size=20),
    fraction=st.text("0123456789", max_size=20),
    exponent=st.one_of(st.none(), st.integers(-400, 400)),
)
def test_any_decimal(sign: str, whole: str, fraction: str, exponent: int | None) -> None:
    text = f"{sign}{whole or '0'}.{fraction}" + ("" if exponent is None else f"e{exponent:+}")
    check(text, may_decline=True)


@settings(max_examples=300)
@given(st.integers(2**52, 2**53 - 1), st.integers(-60, 10))
def test_halves_between_two_floats_round_to_even(mantissa: int, power: int) -> None:
    # The decimal lies exactly half-way, where a truncated product cannot decide.
    from fractions import Fraction

    value = Fraction(2 * mantissa + 1) * Fraction(2) ** power
    text = str(value.numerator) if value.denominator == 1 else None
    if text is None:
        digits = value.numerator * 5 ** (value.denominator.bit_length() - 1)
        text = f"{digits}e-{value.denominator.bit_length() - 1}"
    check(text, may_decline=True)


def test_few_numbers_are_left_to_python() -> None:
    rng = np.random.default_rng(0)
    values = rng.standard_normal(20_000) * 10.0 ** rng.integers(-200, 200, 20_000)
    assert all(converted(repr(float(value)))[0] for value in values)


@pytest.mark.parametrize("text", ["", "-", "+", ".", "e5", "1e", "1e+", "-.e1", "nan", "inf", "x1"])
def test_no_number(text: str) -> None:
    assert not converted(text)[0]


ZEROS = "0" * 25


@pytest.mark.parametrize(
    "text",
    ["1.", ".5", "-.5e-3", "+7", "007", "1E5", "0e999", f"{ZEROS}1", f"0.{ZEROS}17", f"0.{ZEROS}", f"-{ZEROS}"],
)
def test_unusual_numbers(text: str) -> None:
    check(text, may_decline=False)


@pytest.mark.parametrize("text", ["1e400", "-1e400", "1e-400", "5e-324", "1" * 25, f"1.{ZEROS}1"])
def test_left_to_python(text: str) -> None:
    assert not converted(text)[0]
    assert number_from_text(text) == float(text)


def test_number_from_text() -> None:
    assert [number_from_text(text) for text in ("1_0", "١", "0x1")] == [None] * 3
    assert math.isnan(number_from_text("nAn") or 0.0)
