"""NumPy files: dense and sparse, stored and deflated, in both orders, in one file and in pairs."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers import matrix
from mlfs_dask.storage.readers.base import ReadOptions
from mlfs_dask.storage.readers.detect import open_source
from mlfs_dask.storage.readers.npz import open_npz
from tests.storage.readers.reading import batches_of, check_splits, read_all

RNG = np.random.default_rng(4)
X = np.where(RNG.random((37, 5)) < 0.4, RNG.normal(size=(37, 5)), 0)
X[3, 2] = np.nan
Y = RNG.integers(-1, 2, size=(37, 3)).astype(np.int8)
SAVE: dict[str, Callable[..., None]] = {"stored": np.savez, "deflated": np.savez_compressed}


def check(reader: object, *, splits: bool = True) -> None:
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], Y)
    if splits:
        check_splits(reader, sizes=(1, 200))


@pytest.mark.parametrize("how", SAVE)
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("keys", [("X", "Y"), ("x", "y"), ("data", "target"), ("features", "labels")])
def test_dense(tmp_path: Path, how: str, order: str, keys: tuple[str, str]) -> None:
    path = tmp_path / "t.npz"
    SAVE[how](path, **{keys[0]: np.asarray(X, order=order), keys[1]: np.asarray(Y, order=order)})
    reader = open_npz(str(path))
    check(reader, splits=keys[0] == "X")
    assert (len(reader.parts(300)) > 1) == (how == "stored")


def test_large_members_go_through_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "SMALL_BYTES", 100)
    monkeypatch.setattr(matrix, "PIECE_BYTES", 64)
    for order in ("C", "F"):
        np.savez_compressed(tmp_path / "t.npz", X=np.asarray(X, order=order), Y=Y)
        check(open_npz(str(tmp_path / "t.npz")))


@pytest.mark.parametrize("dtype", ["float32", ">f8", "int16", "uint8", "bool", "float16"])
def test_types(tmp_path: Path, dtype: str) -> None:
    values = np.nan_to_num(X).astype(dtype)
    np.savez(tmp_path / "t.npz", X=values, Y=Y)
    np.testing.assert_array_equal(read_all(open_npz(str(tmp_path / "t.npz")))[0], values)


@pytest.mark.parametrize("compressed", [True, False])
@pytest.mark.parametrize("kind", ["csr_array", "csc_array", "csr_matrix"])
def test_sparse_pair(tmp_path: Path, kind: str, compressed: bool) -> None:
    for name, values in (("X", X), ("Y", Y)):
        sp.save_npz(tmp_path / f"{name}.npz", getattr(sp, kind)(values), compressed=compressed)
    reader = open_npz([str(tmp_path / "X.npz"), str(tmp_path / "Y.npz")])
    check(reader)
    assert sp.issparse(batches_of(reader, batch_bytes=1 << 20, part_bytes=1 << 20)[0].X)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_pair(tmp_path: Path, order: str) -> None:
    np.save(tmp_path / "X.npy", np.asarray(X, order=order))
    np.save(tmp_path / "Y.npy", np.asarray(Y, order=order))
    reader = open_npz([str(tmp_path / "X.npy"), str(tmp_path / "Y.npy")])
    check(reader)
    assert len(reader.parts(300)) > 1


def test_mixed_pair_with_one_label_as_a_vector(tmp_path: Path) -> None:
    sp.save_npz(tmp_path / "X.npz", sp.csr_array(X))
    np.save(tmp_path / "Y.npy", Y[:, 0])
    reader = open_source([str(tmp_path / "X.npz"), str(tmp_path / "Y.npy")])
    np.testing.assert_array_equal(read_all(reader)[1], Y[:, :1])


def test_url() -> None:
    import fsspec

    for order in ("C", "F"):
        for name, values in (("X", X), ("Y", Y)):
            with fsspec.open(f"memory://npz/{name}.npy", "wb") as file:
                np.save(file, np.asarray(values, order=order))
        check(open_npz(["memory://npz/X.npy", "memory://npz/Y.npy"]), splits=False)


@pytest.mark.parametrize(
    ("arrays", "options", "names", "labels"),
    [
        ({"left": X, "right": Y, "feature_names": np.array([*"abcde"]), "label_names": np.array([*"pqr"])},
         ReadOptions(keys={"x": "left", "y": "right"}, drop=("b",)), ("a", "c", "d", "e"), ("p", "q", "r")),
        ({"X": X, "Y": Y}, ReadOptions(drop=("x1",)), None, None),
        ({"X": X, "Y": Y, "feature_names": np.array(["é".encode(), b"b", b"c", b"d", b"e"])},
         ReadOptions(drop=("b",)), ("é", "c", "d", "e"), None),
    ],
)  # fmt: skip
def test_names_and_columns_left_out(tmp_path: Path, arrays: Any, options: ReadOptions, names: Any, labels: Any) -> None:
    reader = open_npz(saved(tmp_path, **arrays), options)
    assert (reader.header.feature_names, reader.header.label_names) == (names, labels)
    assert (reader.header.n_features, reader.header.n_labels, reader.header.n_rows) == (4, 3, 37)
    np.testing.assert_array_equal(read_all(reader)[0], np.delete(X, 1, axis=1))


def saved(tmp_path: Path, **arrays: object) -> str:
    np.savez(tmp_path / "t.npz", **arrays)
    return str(tmp_path / "t.npz")


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"A": X, "B": Y}, "there: 'A', 'B'\n  cure: name it X, or say which it is with --key x=NAME"),
        ({"X": X}, "no array for Y; arrays there: 'X'"),
        ({"X": X, "Y": Y[:30]}, "X has 37 rows and Y has 30"),
        ({"X": X, "Y": Y, "feature_names": np.array(["a"])}, "1 feature names for 5 features"),
        ({"X": X, "Y": Y, "label_names": np.array(["a"])}, "1 label names for 3 labels"),
        ({"X": X[0], "Y": Y}, "X has 1 dimensions, rows and columns were expected"),
        ({"X": np.zeros((2, 3, 4)), "Y": Y}, "value (2, 3, 4): X has 3 dimensions, rows and columns were expected"),
        ({"X": X[:0], "Y": Y[:0]}, "nothing to read: 0 rows, 5 features, 3 labels"),
        ({"X": X.astype(str), "Y": Y}, "X holds <U32, numbers were expected"),
        ({"X": X.astype(complex), "Y": Y}, "X holds complex128, numbers were expected"),
        ({"X": X, "Y": Y.astype(str)}, "Y holds <U4, 0 and 1 were expected"),
        ({"X": X, "Y": Y * 0.5}, "a label must be 0 or 1"),
        ({"X": X.astype(object), "Y": Y}, "X holds Python objects, which are not read because unpickling runs code"),
    ],
)  # fmt: skip
def test_bad_contents(tmp_path: Path, arrays: dict[str, object], said: str) -> None:
    with pytest.raises(DataError) as caught:
        read_all(open_npz(saved(tmp_path, **arrays)))
    assert said in str(caught.value)
    assert "t.npz" in str(caught.value)


def test_bad_label_names_row_and_label(tmp_path: Path) -> None:
    labels = Y.astype(float)
    labels[20, 1] = 0.5
    path = saved(tmp_path, X=X, Y=labels, label_names=np.array(["p", "q", "r"]))
    with pytest.raises(DataError, match=r"column 'q', value 0\.5: row 21: a label") as caught:
        read_all(open_npz(path), batch_bytes=300)
    assert caught.value.column == "q"


def test_a_key_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no array 'Z' for X; arrays there: 'X', 'Y'"):
        open_npz(saved(tmp_path, X=X, Y=Y), ReadOptions(keys={"x": "Z"}))


def edited(change: Callable[[bytes], bytes], how: str = "stored") -> Callable[[Path], list[str]]:
    def write(folder: Path) -> list[str]:
        SAVE[how](folder / "t.npz", **{"é": X, "Y": Y} if how == "stored" else {"X": X, "Y": Y})
        (folder / "t.npz").write_bytes(change((folder / "t.npz").read_bytes()))
        return [str(folder / "t.npz")]

    return write


def cut_off_npy(order: str) -> Callable[[Path], list[str]]:
    def write(folder: Path) -> list[str]:
        np.save(folder / "X.npy", np.asarray(X, order=order))
        np.save(folder / "Y.npy", Y)
        (folder / "X.npy").write_bytes((folder / "X.npy").read_bytes()[:-100])
        return [str(folder / "X.npy"), str(folder / "Y.npy")]

    return write


def not_numpy(folder: Path) -> list[str]:
    (folder / "X.npy").write_bytes(b"hello")
    return [str(folder / "X.npy")] * 2


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (edited(lambda content: content[:-200]), r"it is no \.npz file"),
        (edited(lambda content: content[:-200], "deflated"), r"it is no \.npz file"),
        (edited(lambda content: content.replace("é".encode(), b"\xff\xff")), "'utf-8' codec can't decode byte 0xff"),
        (edited(gzip.compress), "packed with gzip, and its format has to be entered in the middle"),
        (edited(lambda content: b""), "the file is empty"),
        (cut_off_npy("C"), "the file is cut off: 100 bytes of an array are missing"),
        (cut_off_npy("F"), "the file is cut off: 100 bytes of an array are missing"),
        (not_numpy, "the file is no NumPy array"),
    ],
)
def test_damage(tmp_path: Path, write: Callable[[Path], list[str]], problem: str) -> None:
    paths = write(tmp_path)
    with pytest.raises(DataError, match=problem):
        read_all(open_npz(paths if len(paths) == 2 else paths[0]))


def test_damaged_member(tmp_path: Path) -> None:
    path = tmp_path / "t.npz"
    np.savez_compressed(path, X=RNG.normal(size=(1000, 5)), Y=np.zeros((1000, 2), np.int8))
    data = bytearray(path.read_bytes())
    data[5000:5100] = bytes(100)
    path.write_bytes(data)
    with pytest.raises(DataError, match=r"rows 901 to 1,000 cannot be read: Bad CRC-32 for file 'X.npy'"):
        read_all(open_npz(str(path)), batch_bytes=4000)


@pytest.mark.parametrize("form", ["coo", "dia", "bsr"])
@pytest.mark.parametrize("array", [sp.csr_matrix, sp.csr_array])
def test_another_sparse_form_is_named(tmp_path: Path, form: str, array: Any) -> None:
    sp.save_npz(tmp_path / "x.npz", array(np.eye(4)).asformat(form))
    np.savez(tmp_path / "y.npz", Y=np.ones((4, 1)))
    with pytest.raises(DataError, match=rf"x\.npz: a sparse matrix in {form} format, csr \(or csc\) was expected"):
        open_source([str(tmp_path / "x.npz"), str(tmp_path / "y.npz")])
