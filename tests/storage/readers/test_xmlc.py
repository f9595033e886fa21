"""XMLC text: header `n d q`, labels and features from 0."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.storage.readers.base import LabelSpec, ReadOptions
from mlfs_dask.storage.readers.xmlc import open_xmlc


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


def test_header(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbf 2  4\t3 \n0 0:1\n1 0:1")
    reader = open_xmlc(str(path), ReadOptions())
    header = reader.header
    assert (header.n_rows, header.n_features, header.n_labels, header.feature_names) == (2, 4, 3, None)
    (batch,) = reader.read(reader.parts(1000)[0], batch_bytes=1000)
    assert (batch.X.shape, batch.first_line) == ((2, 4), 2)


@pytest.mark.parametrize("text", ["", "0 1:1\n", "1 2\n", "1 2 3 4\n", "a b c\n", "1 2 3", "x" * 1000])
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
