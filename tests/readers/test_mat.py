"""MATLAB files of version 5 and 7.3: names, orientation, values, sparse matrices, damage."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import scipy.io
from scipy import sparse as sp

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, DoesNotFitError
from mlfs_dask.formats.mat import open_mat
from mlfs_dask.readers.base import FileSpec
from tests.readers.reading import batches_of, check_splits, read_all

RNG = np.random.default_rng(5)
X = np.where(RNG.random((23, 4)) < 0.5, RNG.normal(size=(23, 4)), 0)
Y = RNG.integers(0, 2, size=(23, 3)).astype(np.float64)


def save_5(path: Path, variables: dict[str, object], *, compressed: bool = True) -> str:
    scipy.io.savemat(path, variables, do_compression=compressed)
    return str(path)


def save_7(path: Path, variables: dict[str, object]) -> str:
    """As MATLAB writes -v7.3: transposed data sets, CSC and structures in groups, cells as references."""

    def write(file: h5py.Group, variables: dict[str, object]) -> None:
        for name, values in variables.items():
            if isinstance(values, dict):
                group = file.create_group(name)
                group.attrs["MATLAB_class"] = np.bytes_("struct")
                write(group, values)
            elif isinstance(values, np.ndarray) and values.dtype == object:
                texts = {f"{name}{at}": text for at, text in enumerate(values)}
                write(file.file.require_group("#refs#"), texts)
                references = [[file.file[f"#refs#/{text}"].ref] for text in texts]
                file.create_dataset(name, data=references, dtype=h5py.ref_dtype)
                file[name].attrs["MATLAB_class"] = np.bytes_("cell")
            elif sp.issparse(values):
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

    with h5py.File(path, "w", userblock_size=512) as file:
        write(file, variables)
    return str(path)


SAVE = {
    "5": save_5,
    "5 uncompressed": lambda path, variables: save_5(path, variables, compressed=False),
    "7.3": save_7,
}


@pytest.fixture(params=SAVE)
def save(request: pytest.FixtureRequest, tmp_path: Path):
    return lambda **variables: SAVE[request.param](tmp_path / "t.mat", variables)


def check(path: str, options: FileSpec = FileSpec(), *, labels: np.ndarray = Y) -> None:  # noqa: B008
    reader = open_mat(path, options)
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], labels)
    check_splits(reader, sizes=(1, 150))


LABELS_4 = RNG.integers(0, 2, size=(23, 4)).astype(float)
TRAIN, TEST = slice(None, 9), slice(9, None)


def halves(*names: str) -> dict[str, object]:
    return dict(zip(names, (X[TRAIN], Y[TRAIN].T, X[TEST], Y[TEST].T), strict=True))


@pytest.mark.parametrize(
    ("variables", "keys", "labels"),
    [
        ({"data": X, "target": Y}, {}, Y),
        ({"dataset": X, "class": Y}, {}, Y),
        ({"X": X, "Y": Y}, {}, Y),
        ({"x": X, "labels": Y}, {}, Y),
        ({"Data": X, "Target": Y}, {}, Y),
        ({"train_data": X, "train_target": Y}, {}, Y),
        ({"data": X, "target": Y.T}, {}, Y),  # labels by columns
        ({"data": X.T, "target": Y.T}, {}, Y),  # everything by columns
        ({"data": X, "target": LABELS_4.T}, {}, LABELS_4),  # rows of X are instances where both would fit
        (halves("train_data", "train_target", "test_data", "test_target"), {}, Y),
        (halves("data_train", "label_train", "data_test", "label_test"), {}, Y),
        (halves("X_train", "Y_train", "X_test", "Y_test"), {}, Y),
        ({"A": X[:9], "B": X[9:], "left": Y[:9], "right": Y[9:], "note": "text"}, {"x": "A,B", "y": "left,right"}, Y),
    ],
)
def test_variables(save, variables: dict[str, object], keys: dict[str, str], labels: np.ndarray) -> None:
    check(save(**variables), FileSpec(keys=keys), labels=labels)


def test_sparse(save) -> None:
    path = save(data=sp.csc_matrix(X), target=sp.csc_matrix(Y.T))
    check(path)
    assert sp.issparse(batches_of(open_mat(path), batch_bytes=1 << 20, part_bytes=1 << 20)[0].X)


def test_joined_train_and_test_rows_are_told(save, caplog: pytest.LogCaptureFixture) -> None:
    path = save(train_data=X[:3], train_target=Y[:3], test_data=X[3:], test_target=Y[3:])
    open_mat(path)
    shapes = [f"{len(rows)}x{X.shape[1]}" for rows in (X[:3], X[3:])]
    assert caplog.messages == [
        f"{path}: the rows of train_data ({shapes[0]}) come first, behind them those of test_data ({shapes[1]})"
    ]


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int16", "float32", "float64"])
def test_integer_types(save, dtype: str) -> None:
    values = np.arange(92).reshape(23, 4).astype(dtype)
    np.testing.assert_array_equal(read_all(open_mat(save(X=values, Y=Y)))[0], values)


def test_a_square_label_matrix(save) -> None:
    square = RNG.integers(0, 2, size=(4, 4)).astype(float)
    path = save(data=X[:4], target=square)
    with pytest.raises(DataError, match=r"variable target is square \(4x4\)") as caught:
        open_mat(path)
    assert "--key orientation=rows if each row is an instance, --key orientation=columns" in str(caught.value)
    for orientation, expected in (("rows", square), ("columns", square.T)):
        _, found = read_all(open_mat(path, FileSpec(keys={"orientation": orientation})))
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


def test_fields_of_structures(save) -> None:
    names = np.array(["a", "b", "c", "d"], dtype=object)
    structure = {"note": "text", "A": {"X": X, "names": names}, "Y": sp.csc_array(Y)}
    path = save(data=structure, other=Y)
    keys = {"x": "data/A/X", "y": "data/Y", "names": "data/A/names"}
    check(path, FileSpec(keys=keys))
    assert open_mat(path, FileSpec(keys=keys)).header.feature_names == tuple("abcd")
    with pytest.raises(DataError, match=r"no variable 'data/Z'; there are data/.*data/Y 23x3.*, other 23x3"):
        open_mat(path, FileSpec(keys={"x": "data/Z", "y": "other"}))
    with pytest.raises(DataError, match=r"variable data/A: it is a struct(.|\n)*--key x=STRUCTURE/FIELD"):
        open_mat(path, FileSpec(keys={"x": "data/A", "y": "other"}))


def test_bad_keys(save) -> None:
    path = save(data=X, target=Y)
    with pytest.raises(DataError, match="no variable 'Z'; there are data 23x4, target 23x3"):
        open_mat(path, FileSpec(keys={"x": "Z"}))
    with pytest.raises(DataError, match="value 'up': orientation is rows or columns"):
        open_mat(path, FileSpec(keys={"orientation": "up"}))
    with pytest.raises(DataError, match="no number of rows agrees with --key orientation=columns"):
        open_mat(path, FileSpec(keys={"orientation": "columns"}))


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


def test_a_variable_that_memory_does_not_hold(tmp_path: Path) -> None:
    path = save_5(tmp_path / "t.mat", {"X": np.zeros((4 << 20, 4)), "Y": np.zeros((4 << 20, 1), np.uint8)})
    reader = open_mat(path)
    assert reader.opened_bytes == pytest.approx((4 * 8 + 1) * (4 << 20), rel=0.01)
    runtime.measure_memory()
    with (
        runtime.process_limits(memory_limit=runtime.current_rss() + (64 << 20)),
        pytest.raises(DoesNotFitError, match=r"t.mat: a matrix .* is held in memory: projected 128(.|\n)*-v7\.3"),
    ):
        read_all(reader)


def packed(content: bytearray) -> bytes:
    content[3000:3100] = bytes(100)
    return bytes(content)


@pytest.mark.parametrize(
    ("save", "change", "problem"),
    [
        ("5", lambda content: content[:-40], "the file is cut off: 40 bytes are missing"),
        ("5 uncompressed", lambda content: content[:-40], "the file is cut off: 40 bytes are missing"),
        ("5", packed, "a compressed variable is damaged|unpacks to more than it says"),
        ("7.3", lambda content: content[:1000], "the file is damaged or cut off"),
        ("5", lambda content: b"x" * 1000, r"no MATLAB file of version 5 or 7\.3"),
    ],
)
def test_damage(tmp_path: Path, save: str, change: Callable[[bytearray], bytes], problem: str) -> None:
    path = tmp_path / "t.mat"
    SAVE[save](path, {"data": np.random.default_rng(5).normal(size=(500, 4)), "target": np.zeros((500, 3))})
    path.write_bytes(change(bytearray(path.read_bytes())))
    with pytest.raises(DataError, match=problem):
        read_all(open_mat(str(path)))
