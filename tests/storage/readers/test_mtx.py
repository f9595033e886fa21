"""MatrixMarket, as SciPy and others write it: both forms, any order of entries, packed, damaged."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse as sp
from scipy.io import mmwrite

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.storage.readers import matrix, mtx
from mlfs_dask.storage.readers.detect import open_source
from mlfs_dask.storage.readers.mtx import open_mtx
from tests.storage.readers.reading import check_splits, read_all

RNG = np.random.default_rng(3)
X = np.where(RNG.random((41, 6)) < 0.4, RNG.normal(size=(41, 6)), 0)
Y = RNG.integers(0, 2, (41, 3)).astype(np.int8)
BANNER = "%%MatrixMarket matrix coordinate real general\n"


def save(folder: Path, **matrices: object) -> list[str]:
    for name, values in matrices.items():
        mmwrite(folder / f"{name}.mtx", values, comment="a comment", precision=17, symmetry="general")
    return [str(folder / f"{name}.mtx") for name in matrices]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mtx, "PIECE_BYTES", 100)
    monkeypatch.setattr(matrix, "SMALL_BYTES", 300)


@pytest.mark.parametrize("form", [np.asarray, sp.coo_array, sp.csc_array])
@pytest.mark.parametrize("labels", [np.asarray, sp.coo_array])
@pytest.mark.usefixtures("small")
def test_pairs(tmp_path: Path, form, labels) -> None:
    reader = open_source(save(tmp_path, X=form(X), Y=labels(Y)))
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], Y)
    check_splits(reader, sizes=(1, 150))


@pytest.mark.parametrize(("turn_x", "turn_y"), [(False, False), (True, False), (False, True), (True, True)])
def test_instances_are_rows_or_columns_whichever_agree_and_rows_where_both_do(tmp_path: Path, turn_x, turn_y) -> None:
    saved = save(tmp_path, X=X.T if turn_x else X, Y=Y.T if turn_y else Y)
    for found, expected in zip(read_all(open_mtx(saved)), (X, Y), strict=False):
        np.testing.assert_array_equal(found, expected)
    square = np.triu(np.ones((6, 6), np.int8))
    _, labels, *_ = read_all(open_mtx(save(tmp_path, X=X[:6], Y=square)))
    np.testing.assert_array_equal(labels, square)


@pytest.mark.usefixtures("small")
def test_entries_in_any_order_and_layout(tmp_path: Path) -> None:
    entries = sp.coo_array(X)
    order = RNG.permutation(entries.nnz)
    rows = [f" {entries.row[i] + 1}\t{entries.col[i] + 1}  {float(entries.data[i])!r}\r\n" for i in order]
    rows.insert(5, "\n   \n")
    text = f"{BANNER.upper().replace('MATRIXMARKET', 'MatrixMarket')}%c\n\n41 6 {entries.nnz}\n{''.join(rows)}\n\n"
    (tmp_path / "X.mtx.gz").write_bytes(gzip.compress(text.encode()))
    (_, y) = save(tmp_path, other=X, Y=Y)
    np.testing.assert_array_equal(read_all(open_mtx([str(tmp_path / "X.mtx.gz"), y]))[0], X)


def test_a_pattern_has_ones(tmp_path: Path) -> None:
    pattern = BANNER.replace("real", "pattern")
    (tmp_path / "Y.mtx").write_text(f"{pattern}41 3 2\n41 3\n1 2\n")
    found = read_all(open_mtx([*save(tmp_path, X=X), str(tmp_path / "Y.mtx")]))[1]
    assert np.argwhere(found).tolist() == [[0, 1], [40, 2]]


@pytest.mark.parametrize("turned", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("form", [np.asarray, sp.coo_array])
def test_instances_as_columns(tmp_path: Path, turned: tuple[bool, bool], form) -> None:
    x, y = (form(values.T if turn else values) for values, turn in zip((X, Y), turned, strict=True))
    found = read_all(open_mtx(save(tmp_path, X=x, Y=y)))
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], Y)


def test_pairs_that_do_not_agree_and_single_files(tmp_path: Path) -> None:
    x, y = save(tmp_path, X=X, Y=Y[:30])
    with pytest.raises(DataError, match="X has 41 rows and Y has 30"):
        open_mtx([x, y])
    with pytest.raises(UsageError, match="holds one matrix, and 1 file came"):
        open_source([x])


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("1 2 3\n", 1, "a header like %%MatrixMarket matrix coordinate real general was expected"),
        (BANNER.replace("general", "symmetric") + "2 2 1\n1 1 1\n", 1, "a header like"),
        (BANNER.replace("real", "complex") + "2 2 1\n1 1 1 1\n", 1, "a header like"),
        (BANNER + "%\n2 2\n", 3, "numbers of rows, columns and entries were expected"),
        (BANNER + "2 2 3\n1 1 1\n2 2 1\n", 2, "3 entries were announced, there are 2"),
        (BANNER + "2 2 1\n1 1 1\n2 2 1\n", 2, "1 entries were announced, there are 2"),
        (BANNER + "%\n2 2 2\n1 1 1\n3 1 1\n", 5, "an entry cannot be read: Row index out of bounds"),
        (BANNER + "2 2 2\n1 1 1\n2 1 x\n", 4, "an entry cannot be read: Invalid floating-point value"),
    ],
)
def test_damage(tmp_path: Path, text: str, line: int, problem: str) -> None:
    (tmp_path / "X.mtx").write_text(text)
    with pytest.raises(DataError, match=problem) as caught:
        read_all(open_mtx([str(tmp_path / "X.mtx"), *save(tmp_path, Y=Y[:2])]))
    assert (caught.value.line, bool(caught.value.cure)) == (line, True)
