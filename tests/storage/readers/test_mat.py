"""MATLAB files of version 5 and 7.3: names, orientation, values, sparse matrices, damage."""

from __future__ import annotations

import json
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers import matrix
from mlfs_dask.storage.readers.base import MINUS_ONE, ReadOptions
from mlfs_dask.storage.readers.mat import open_mat
from tests.conftest import data_folder
from tests.storage.readers.reading import batches_of, check_splits, dense, read_all

RNG = np.random.default_rng(5)
X = np.where(RNG.random((23, 4)) < 0.5, RNG.normal(size=(23, 4)), 0)
Y = RNG.integers(0, 2, size=(23, 3)).astype(np.float64)


def save_5(path: Path, variables: dict[str, object], *, compressed: bool = True) -> str:
    scipy.io.savemat(path, variables, do_compression=compressed)
    return str(path)


def save_7(path: Path, variables: dict[str, object]) -> str:
    """As MATLAB writes -v7.3: transposed data sets, CSC in groups."""
    with h5py.File(path, "w", userblock_size=512) as file:
        for name, values in variables.items():
            if sp.issparse(values):
                columns = sp.csc_array(values)
                group = file.create_group(name)
                group.attrs["MATLAB_class"] = np.bytes_("double")
                group.attrs["MATLAB_sparse"] = np.uint64(values.shape[0])
                group["data"], group["ir"] = columns.data, columns.indices.astype(np.uint64)
                group["jc"] = columns.indptr.astype(np.uint64)
            elif isinstance(values, str):
                data = file.create_dataset(name, data=np.frombuffer(values.encode("utf-16le"), np.uint16))
                data.attrs["MATLAB_class"] = np.bytes_("char")
            else:
                array = np.ascontiguousarray(np.asarray(values).T)
                data = file.create_dataset(name, data=array, chunks=True if array.size else None)
                data.attrs["MATLAB_class"] = np.bytes_("double")
    return str(path)


SAVE = {
    "5": save_5,
    "5 uncompressed": lambda path, variables: save_5(path, variables, compressed=False),
    "7.3": save_7,
}


@pytest.fixture(params=SAVE)
def save(request: pytest.FixtureRequest, tmp_path: Path):
    return lambda **variables: SAVE[request.param](tmp_path / "t.mat", variables)


def check(path: str, options: ReadOptions = ReadOptions(), *, labels: np.ndarray = Y) -> None:  # noqa: B008
    reader = open_mat(path, options)
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], labels)
    check_splits(reader, sizes=(1, 150))


@pytest.mark.parametrize(
    "names",
    [("data", "target"), ("dataset", "class"), ("X", "Y"), ("x", "labels"), ("Data", "Target")],
)
def test_names(save, names: tuple[str, str]) -> None:
    check(save(**{names[0]: X, names[1]: Y}))


def test_labels_by_columns(save) -> None:
    check(save(data=X, target=Y.T))


def test_everything_by_columns(save) -> None:
    check(save(data=X.T, target=Y.T))


def test_rows_of_x_are_instances_where_both_would_fit(save) -> None:
    labels = RNG.integers(0, 2, size=(23, 4)).astype(float)
    check(save(data=X, target=labels.T), labels=labels)


@pytest.mark.parametrize("spool", [False, True])
def test_sparse(save, spool: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if spool:
        monkeypatch.setattr(matrix, "SMALL_BYTES", 100)
        monkeypatch.setattr(matrix, "_PIECE_BYTES", 64)
    path = save(data=sp.csc_matrix(X), target=sp.csc_matrix(Y.T))
    check(path)
    assert sp.issparse(batches_of(open_mat(path), batch_bytes=1 << 20, part_bytes=1 << 20)[0].X)


def test_large_variables_go_through_files(save, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix, "SMALL_BYTES", 100)
    monkeypatch.setattr(matrix, "_PIECE_BYTES", 64)
    check(save(data=X, target=Y.T))


@pytest.mark.parametrize(
    "names",
    [
        ("train_data", "train_target", "test_data", "test_target"),
        ("data_train", "label_train", "data_test", "label_test"),
        ("X_train", "Y_train", "X_test", "Y_test"),
    ],
)
def test_train_rows_come_before_test_rows(save, names: tuple[str, ...]) -> None:
    check(save(**dict(zip(names, (X[:9], Y[:9].T, X[9:], Y[9:].T), strict=True))))


def test_joined_train_and_test_rows_are_told(save, caplog: pytest.LogCaptureFixture) -> None:
    path = save(train_data=X[:3], train_target=Y[:3], test_data=X[3:], test_target=Y[3:])
    open_mat(path)
    shapes = [f"{len(rows)}x{X.shape[1]}" for rows in (X[:3], X[3:])]
    assert caplog.messages == [
        f"{path}: the rows of train_data ({shapes[0]}) come first, behind them those of test_data ({shapes[1]})"
    ]


def test_train_alone(save) -> None:
    check(save(train_data=X, train_target=Y))


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32", "float64"])
def test_integer_types(save, dtype: str) -> None:
    values = np.arange(92).reshape(23, 4).astype(dtype)
    np.testing.assert_array_equal(read_all(open_mat(save(X=values, Y=Y)))[0], values)


def test_keys(save) -> None:
    path = save(A=X[:9], B=X[9:], left=Y[:9], right=Y[9:], note="text")
    check(path, ReadOptions(keys={"x": "A,B", "y": "left,right"}))


def test_a_square_label_matrix(save) -> None:
    square = RNG.integers(0, 2, size=(4, 4)).astype(float)
    path = save(data=X[:4], target=square)
    with pytest.raises(DataError, match=r"variable target is square \(4x4\)") as caught:
        open_mat(path)
    assert "--key orientation=rows if each row is an instance, --key orientation=columns" in str(caught.value)
    for orientation, expected in (("rows", square), ("columns", square.T)):
        _, found = read_all(open_mat(path, ReadOptions(keys={"orientation": orientation})))
        np.testing.assert_array_equal(found, expected)


def test_a_square_part_is_settled_by_the_other(save) -> None:
    path = save(train_data=X[:3], train_target=Y[:3].T, test_data=X[3:], test_target=Y[3:].T)
    np.testing.assert_array_equal(read_all(open_mat(path))[1], Y)


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"A": X, "B": Y}, "no variables with the names of data and labels; there are A 23x4, B 23x3"),
        ({"A": X, "B": Y}, "--key x=NAME --key y=NAME"),
        ({"data": X, "target": Y[:20]}, "data is 23x4 and target 20x3: no number of rows agrees"),
        ({"data": X, "target": np.full((23, 3), 2.0)}, "value 2: row 1: a label must be 0 or 1"),
        ({"data": "some text", "target": Y}, "variable data: it is a char, not a numeric matrix"),
        ({"data": np.zeros((0, 4)), "target": np.zeros((0, 3))}, "nothing to read|it is a variable without values"),
    ],
)
def test_bad_contents(save, variables: dict[str, object], said: str) -> None:
    with pytest.raises(DataError) as caught:
        read_all(open_mat(save(**variables)))
    assert any(part in str(caught.value) for part in said.split("|"))


def test_bad_keys(save) -> None:
    path = save(data=X, target=Y)
    with pytest.raises(DataError, match="no variable 'Z'; there are data 23x4, target 23x3"):
        open_mat(path, ReadOptions(keys={"x": "Z"}))
    with pytest.raises(DataError, match="value 'up': orientation is rows or columns"):
        open_mat(path, ReadOptions(keys={"orientation": "up"}))
    with pytest.raises(DataError, match="no number of rows agrees with --key orientation=columns"):
        open_mat(path, ReadOptions(keys={"orientation": "columns"}))


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.array([[1 + 2j]]), "it holds complex numbers"),
        ({"a": 1}, "it is a struct, not a numeric matrix"),
        (np.array([[X, X]], dtype=object), "it is a cell, not a numeric matrix"),
        (np.zeros((2, 3, 4)), "its shape is 2x3x4, rows and columns were expected"),
    ],
)
def test_variables_that_are_no_matrices(tmp_path: Path, value: object, said: str) -> None:
    with pytest.raises(DataError, match=f"variable data: {said}"):
        open_mat(save_5(tmp_path / "t.mat", {"data": value, "target": Y}))


@pytest.mark.parametrize("compressed", [True, False])
def test_cut_off(tmp_path: Path, compressed: bool) -> None:
    path = tmp_path / "t.mat"
    save_5(path, {"data": X, "target": Y}, compressed=compressed)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(DataError, match="the file is cut off: 40 bytes are missing"):
        open_mat(str(path))


def test_damaged(tmp_path: Path) -> None:
    path = tmp_path / "t.mat"
    save_5(path, {"data": RNG.normal(size=(500, 4)), "target": np.zeros((500, 3))})
    data = bytearray(path.read_bytes())
    data[3000:3100] = bytes(100)
    path.write_bytes(data)
    with pytest.raises(DataError, match="a compressed variable is damaged"):
        read_all(open_mat(str(path)))


def test_cut_off_hdf5(tmp_path: Path) -> None:
    path = Path(save_7(tmp_path / "t.mat", {"data": X, "target": Y}))
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(DataError, match="the file is damaged or cut off"):
        open_mat(str(path))


def test_other_files(tmp_path: Path) -> None:
    (tmp_path / "t.mat").write_bytes(b"x" * 1000)
    with pytest.raises(DataError, match=r"no MATLAB file of version 5 or 7\.3"):
        open_mat(str(tmp_path / "t.mat"))


def real_files() -> list[tuple[str, str]]:
    listing = data_folder() / "datasets.json"
    if not listing.exists():
        return []
    sets = json.loads(listing.read_text())["datasets"]
    return [(s["name"], f["file"]) for s in sets for f in s["files"] if f["file"].endswith(".mat")]


@pytest.mark.parametrize(("name", "file"), real_files() or [pytest.param("any", "any")])
def test_real_files(data_set, name: str, file: str) -> None:
    folder = data_set(name)
    facts = next(s for s in json.loads((data_folder() / "datasets.json").read_text())["datasets"] if s["name"] == name)
    found = batches_of(open_mat(str(folder / file)), batch_bytes=8 << 20, part_bytes=1 << 40)
    d = facts["d"] - (name == "genbase")  # this file leaves the row identifier out
    assert sum(batch.X.shape[0] for batch in found) == facts["n"]
    assert {batch.X.shape[1] for batch in found} == {d}
    assert {batch.Y.shape[1] for batch in found} == {facts["L"]}
    assert sum(np.count_nonzero(dense(batch.X)) for batch in found) == facts["nnz_X"]
    assert sum(np.count_nonzero(batch.Y.data == 1) for batch in found) == facts["nnz_Y"]
    assert {int(value) for batch in found for value in batch.Y.data} <= {1, MINUS_ONE}
