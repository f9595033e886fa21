"""XMLC text: header `n d q`, labels and features from 0."""

from __future__ import annotations

import gzip
import re
from dataclasses import replace
from pathlib import Path

import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.storage.readers import xmlc
from mlfs_dask.storage.readers.base import LabelSpec, ReadOptions
from mlfs_dask.storage.readers.detect import open_source
from mlfs_dask.storage.readers.xmlc import open_xmlc
from tests.storage.readers.reading import check_splits, read_all


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data.txt"


def read(path: Path, text: str, part_bytes: int = 1 << 40) -> tuple[list[list[float]], list[list[int]]]:
    path.write_bytes(text.encode())
    reader = open_xmlc(str(path), ReadOptions())
    assert reader.header.n_rows is not None
    batches = [b for part in reader.parts(part_bytes) for b in reader.read(part, batch_bytes=1 << 20)]
    return (
        [row for batch in batches for row in batch.X.toarray().tolist()],
        [row for batch in batches for row in batch.Y.toarray().tolist()],
    )


@pytest.mark.parametrize("part_bytes", [1, 7, 1 << 40])
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_rows(path: Path, part_bytes: int, end: str) -> None:
    text = "5 4 3\n0,2 0:1 3:0.5 \n 1:2\n1\n \n2 2:7\n".replace("\n", end)
    assert read(path, text, part_bytes) == (
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
    X, Y = read(path, text, part_bytes)
    assert [sum(row) for row in X] == features
    assert [sum(row) for row in Y] == [int(value > 0) for value in features]


def test_header(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf 2  4\t3 \n0 0:1\n1 0:1")
    reader = open_xmlc(str(path), ReadOptions())
    header = reader.header
    assert (header.n_rows, header.n_features, header.n_labels, header.feature_names) == (2, 4, 3, None)
    (batch,) = reader.read(reader.parts(1000)[0], batch_bytes=1000)
    assert (batch.X.shape, batch.first_line) == ((2, 4), 2)


@pytest.mark.parametrize("text", ["", "0 1:1\n", "1\n", "1 2 3 4\n", "a b c\n", "1 2 3", "x" * 1000])
def test_no_header(path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"the first line of XMLC text was expected: .*\n.*--format svmlight") as caught:
        read(path, text)
    assert (caught.value.line, caught.value.value) == (1, text[:40].strip())


@pytest.mark.parametrize(("rows", "found"), [("0 0:1\n", 1), ("0 0:1\n" * 3, 3), ("", 0)])
def test_row_count(path: Path, rows: str, found: int) -> None:
    with pytest.raises(DataError, match=rf"the header declares 2 rows, the file has {found}\n.*cut off") as caught:
        read(path, "2 4 3\n" + rows)
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
        read(path, f"2 4 3\n0 0:1\n{row}\n")
    assert caught.value.line == 3


@pytest.mark.parametrize(
    "options", [ReadOptions(labels=LabelSpec(count=1)), ReadOptions(drop=("a",)), ReadOptions(keys={"x": "y"})]
)
def test_refused_options(path: Path, options: ReadOptions) -> None:
    with pytest.raises(UsageError, match="XMLC text says itself which labels it has"):
        open_xmlc(str(path), options)


X_ROWS = ["0:1.5 3:2", "", "1:1", "", "2:0.25 0:1", " 3:1 "]
Y_ROWS = ["0:1", "2:1.0 0:1", "", "", "1:1", "2:1"]
X = [[1.5, 0, 0, 2], [0, 0, 0, 0], [0, 1, 0, 0], [0, 0, 0, 0], [1, 0, 0.25, 0], [0, 0, 0, 1]]
Y_PAIR = [[1, 0, 0], [1, 0, 1], [0, 0, 0], [0, 0, 0], [0, 1, 0], [0, 0, 1]]


def write_pair(folder: Path, times: int = 1, end: str = "\n", suffix: str = "") -> tuple[str, ReadOptions]:
    """Files as the repository has them now: `n d` and `n q`, a row a line, also where it is empty."""
    names = []
    for name, width, rows in (("trn_X_Xf.txt", 4, X_ROWS), ("trn_X_Y.txt", 3, Y_ROWS)):
        text = end.join([f"{6 * times} {width}", *rows * times]) + end
        content = text.encode()
        (folder / (name + suffix)).write_bytes(gzip.compress(content) if suffix else content)
        names.append(str(folder / (name + suffix)))
    return names[0], ReadOptions(labels=LabelSpec(xml=names[1]))


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
        UsageError, match="features and labels lie in two files\n  cure: say which file holds the labels"
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
