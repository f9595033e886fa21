"""NumPy, Zarr, HDF5 and MatrixMarket: both forms and orders, one file and pairs, in bands and streams, damage."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fsspec
import h5py
import numpy as np
import pytest
import zarr
from scipy import sparse as sp
from scipy.io import mmwrite
from scipy.sparse import csr_array, random_array

from mlfs_dask.errors import DataError, UsageError
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers import matrix
from mlfs_dask.readers.base import FileSpec
from mlfs_dask.readers.encoded import dense_rows
from mlfs_dask.readers.matrix import (
    CsrRows,
    Rows,
    array_rows,
    rows_of_columns,
)
from tests.readers.reading import batches_of, check_splits, read_all

RNG = np.random.default_rng(4)
X = np.where(RNG.random((37, 5)) < 0.4, RNG.normal(size=(37, 5)), 0)
Y = RNG.integers(-1, 2, size=(37, 3)).astype(np.int8)
WITH_NAN = X.copy()
WITH_NAN[3, 2] = np.nan
KEYS = ("X", "Y")
SAVE: dict[str, Callable[..., None]] = {"stored": np.savez, "deflated": np.savez_compressed}

Write = Callable[[Path], list[str]]


def npz(how: str = "stored", order: Any = "C", keys: tuple[str, str] = KEYS, x: Any = X) -> Write:
    def write(folder: Path) -> list[str]:
        SAVE[how](folder / "t.npz", **{keys[0]: np.asarray(x, order=order), keys[1]: np.asarray(Y, order=order)})
        return [str(folder / "t.npz")]

    return write


def pair(suffix: str, save: Callable[[str, Any], object], form: Any, labels: Any = None, place: str = "") -> Write:
    def write(folder: Path) -> list[str]:
        paths = [f"{place or folder}/{name}.{suffix}" for name in KEYS]
        save(paths[0], form(X))
        save(paths[1], (labels or form)(Y))
        return paths

    return write


def save_npy(path: str, values: Any) -> None:
    with fsspec.open(path, "wb") as file:
        np.save(file, values)


def save_mtx(path: str, values: Any) -> None:
    mmwrite(path, values, comment="a comment", precision=17, symmetry="general")


def save_zarr(path: str, values: Any, **how: Any) -> None:
    if not sp.issparse(values):
        zarr.create_array(path, data=values, **how)
        return
    group = zarr.open_group(path, mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": values.shape})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(values, name))


def zarr_group(folder: Path) -> list[str]:
    root = zarr.open_group(str(folder / "t.zarr"), mode="w")
    root.create_array("x", data=X, chunks=(4, 5), shards=(12, 5))
    root.create_array("labels", data=Y, chunks=(37, 3))
    return [str(folder / "t.zarr")]


ORDERS: dict[str, Any] = {"C": np.asarray, "F": np.asfortranarray}
FORMS: dict[str, Write] = {
    **{f"npz {how} {order}": npz(how, order) for how in SAVE for order in ORDERS},
    **{f"npz {' '.join(keys)}": npz(keys=keys) for keys in (("x", "y"), ("data", "target"), ("features", "labels"))},
    **{
        f"npz {kind} {'packed' if packed else 'plain'}": pair(
            "npz", lambda path, values, packed=packed: sp.save_npz(path, values, compressed=packed), getattr(sp, kind)
        )
        for kind in ("csr_array", "csc_array", "csr_matrix")
        for packed in (True, False)
    },
    **{f"npy {order}": pair("npy", save_npy, form) for order, form in ORDERS.items()},
    **{f"npy {order} url": pair("npy", save_npy, form, place="memory://arrays") for order, form in ORDERS.items()},
    **{
        f"mtx {form.__name__} {labels.__name__}": pair("mtx", save_mtx, form, labels)
        for form in (np.asarray, sp.coo_array, sp.csc_array)
        for labels in (np.asarray, sp.coo_array)
    },
    **{
        f"mtx turned {x.__name__} {y.__name__}": pair("mtx", save_mtx, lambda M, x=x: x(M.T), lambda M, y=y: y(M))
        for x in (np.asarray, sp.coo_array)
        for y in (np.asarray, np.transpose)
    },
    "mtx turned labels": pair("mtx", save_mtx, np.asarray, np.transpose),
    **{
        f"zarr {version}": pair(
            "zarr",
            lambda path, values, version=version: save_zarr(path, values, chunks=(7, 2), zarr_format=version),
            np.asarray,
        )
        for version in (2, 3)
    },
    "zarr csr": pair("zarr", save_zarr, sp.csr_array, np.asarray),
    "zarr url": pair("zarr", lambda path, values: save_zarr(path, values, chunks=(7, 2), overwrite=True), np.asarray,
                     place="memory://arrays"),
    "zarr group": zarr_group,
}  # fmt: skip
ONE_PART = ("packed", "deflated", "mtx", "csc")


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Matrices of a few hundred bytes go through files, in pieces."""
    monkeypatch.setattr(matrix, "SMALL_BYTES", 100)
    monkeypatch.setattr(matrix, "BAND_BYTES", 100)
    monkeypatch.setattr(matrix, "PIECE_BYTES", 64)


def check(reader: Any, x: Any = X, y: Any = Y) -> None:
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], x)
    np.testing.assert_array_equal(found[1], y)


@pytest.mark.parametrize("size", ["as it is", "small"])
@pytest.mark.parametrize("form", FORMS)
def test_rows(tmp_path: Path, request: pytest.FixtureRequest, form: str, size: str) -> None:
    if size == "small":
        request.getfixturevalue("small")
    reader = open_source(FORMS[form](tmp_path))
    check(reader)
    check_splits(reader, sizes=(1, 200) if size == "as it is" else (150, 300))
    sparse = any(word in form for word in ("csr", "csc", "coo_array")) and "turned asarray" not in form
    assert sp.issparse(batches_of(reader, batch_bytes=1 << 20, part_bytes=1 << 20)[0].X) == (
        sparse and "mtx asarray" not in form
    )
    if not any(word in form for word in ONE_PART):
        assert len(reader.parts(300)) > 1


def test_parts_begin_with_shards(tmp_path: Path) -> None:
    reader = open_source(zarr_group(tmp_path))
    assert [part.start for part in reader.parts(X.nbytes // 3)] == [0, 12, 24, 36]


@pytest.mark.parametrize("dtype", ["float32", ">f8", "int16", "uint8", "bool", "float16"])
def test_types(tmp_path: Path, dtype: str) -> None:
    check(open_source(npz(x=X.astype(dtype))(tmp_path)), X.astype(dtype))


@pytest.mark.parametrize("suffix", ["npz", "npy", "zarr"])
def test_missing_values_and_one_label_as_a_vector(tmp_path: Path, suffix: str) -> None:
    paths = [str(tmp_path / f"X.{suffix}"), str(tmp_path / "Y.npy")]
    np.save(paths[1], Y[:, 0])
    if suffix == "npz":
        sp.save_npz(paths[0], sp.csr_array(WITH_NAN))
    elif suffix == "npy":
        np.save(paths[0], WITH_NAN)
    else:
        root = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
        root.create_array("a", data=WITH_NAN)
        root.create_array("b", data=Y[:, 0], chunks=(7,))
        paths = [str(tmp_path / "t.zarr")]
    keys = {"x": "a", "y": "b"} if suffix == "zarr" else {}
    check(open_source(paths, FileSpec(keys=keys)), WITH_NAN, Y[:, :1])


@pytest.mark.parametrize(
    ("arrays", "options", "names", "labels"),
    [
        ({"left": X, "right": Y, "feature_names": np.array([*"abcde"]), "label_names": np.array([*"pqr"])},
         FileSpec(keys={"x": "left", "y": "right"}, drop=("b",)), ("a", "c", "d", "e"), ("p", "q", "r")),
        ({"X": X, "Y": Y}, FileSpec(drop=("x1",)), None, None),
        ({"X": X, "Y": Y, "feature_names": np.array(["é".encode(), b"b", b"c", b"d", b"e"])},
         FileSpec(drop=("b",)), ("é", "c", "d", "e"), None),
    ],
)  # fmt: skip
def test_names_and_columns_left_out(tmp_path: Path, arrays: Any, options: FileSpec, names: Any, labels: Any) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    reader = open_source([str(tmp_path / "t.npz")], options)
    assert (reader.header.feature_names, reader.header.label_names) == (names, labels)
    assert (reader.header.n_features, reader.header.n_labels, reader.header.n_rows) == (4, 3, 37)
    check(reader, np.delete(X, 1, axis=1))


HALVES = Y.astype(float)
HALVES[20, 1] = 0.5


@pytest.mark.parametrize(
    ("arrays", "keys", "said"),
    [
        ({"A": X, "B": Y}, {}, "there: 'A', 'B'\n  cure: name it X, or give its name with --key x=NAME"),
        ({"X": X, "A": Y, "B": Y}, {}, "no array for Y; arrays there: 'X', 'A', 'B'"),
        ({"X": X, "Y": Y}, {"x": "Z"}, "no array 'Z' for X; arrays there: 'X', 'Y'"),
        ({"X": X, "Y": Y[:30]}, {}, "X has 37 rows and Y has 30"),
        ({"X": X, "Y": Y, "feature_names": np.array(["a"])}, {}, "1 feature names for 5 features"),
        ({"X": X, "Y": Y, "label_names": np.array(["a"])}, {}, "1 label names for 3 labels"),
        ({"X": X[0], "Y": Y}, {}, "X has 1 dimensions, rows and columns were expected"),
        ({"X": np.zeros((2, 3, 4)), "Y": Y}, {}, "value (2, 3, 4): X has 3 dimensions, rows and columns were expected"),
        ({"X": X[:0], "Y": Y[:0]}, {}, "nothing to read: 0 rows, 5 features, 3 labels"),
        ({"X": X.astype(str), "Y": Y}, {}, "X holds <U32, numbers were expected"),
        ({"X": X.astype(complex), "Y": Y}, {}, "X holds complex128, numbers were expected"),
        ({"X": X, "Y": Y.astype(str)}, {}, "Y holds <U4, 0 and 1 were expected"),
        ({"X": X, "Y": HALVES, "label_names": np.array([*"pqr"])}, {}, "column 'q', value 0.5: row 21: a label must"),
        ({"X": X.astype(object), "Y": Y}, {}, "X holds Python objects, which are not read because unpickling runs"),
    ],
)  # fmt: skip
def test_bad_contents(tmp_path: Path, arrays: dict[str, Any], keys: dict[str, str], said: str) -> None:
    np.savez(tmp_path / "t.npz", **arrays)
    with pytest.raises(DataError) as caught:
        read_all(open_source([str(tmp_path / "t.npz")], FileSpec(keys=keys)), batch_bytes=300)
    assert said in str(caught.value)
    assert "t.npz" in str(caught.value)


def edited(change: Callable[[bytes], bytes], how: str = "stored", write: Write | None = None) -> Write:
    def edit(folder: Path) -> list[str]:
        paths = (write or npz(how, keys=("é", "Y")))(folder)
        Path(paths[0]).write_bytes(change(Path(paths[0]).read_bytes()))
        return paths

    return edit


def large(folder: Path) -> list[str]:
    np.savez_compressed(folder / "t.npz", X=RNG.normal(size=(1000, 5)), Y=np.zeros((1000, 2), np.int8))
    return [str(folder / "t.npz")]


@pytest.mark.parametrize(
    ("write", "problem"),
    [
        (edited(lambda content: content[:-200]), r"it is no \.npz file"),
        (edited(lambda content: content[:-200], "deflated"), r"it is no \.npz file"),
        (edited(lambda content: content.replace("é".encode(), b"\xff\xff")), "'utf-8' codec can't decode byte 0xff"),
        (edited(gzip.compress), "packed with gzip, and its format needs random access"),
        (edited(lambda content: b""), "the file is empty"),
        (edited(lambda content: content[:5000] + bytes(100) + content[5100:], write=large),
         r"rows 901 to 1,000 cannot be read: Bad CRC-32 for file 'X.npy'"),
        *((edited(lambda content: content[:-100], write=FORMS[f"npy {order}"]),
           "the file is cut off: 100 bytes of an array are missing") for order in ORDERS),
        (edited(lambda content: b"hello", write=FORMS["npy C"]), "the file is no NumPy array"),
    ],
)  # fmt: skip
def test_damage(tmp_path: Path, write: Write, problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        read_all(open_source(write(tmp_path)), batch_bytes=4000)


@pytest.mark.parametrize("form", ["coo", "dia", "bsr"])
@pytest.mark.parametrize("array", [sp.csr_matrix, sp.csr_array])
def test_another_sparse_form_is_named(tmp_path: Path, form: str, array: Any) -> None:
    sp.save_npz(tmp_path / "x.npz", array(np.eye(4)).asformat(form))
    np.savez(tmp_path / "y.npz", Y=np.ones((4, 1)))
    with pytest.raises(DataError, match=rf"x\.npz: a sparse matrix in {form} format, csr \(or csc\) was expected"):
        open_source([str(tmp_path / "x.npz"), str(tmp_path / "y.npz")])


# Zarr and HDF5


@pytest.mark.parametrize("form", ["zarr 2", "zarr 3", "netcdf"])
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_scaled_and_missing_values_as_xarray_has_them(tmp_path: Path, form: str) -> None:
    xarray = pytest.importorskip("xarray")
    values, bands, tags = X.round(2) + 270, [f"b{i}" for i in range(5)], ["hot", "cold", "wet"]
    values[3, 1] = np.nan
    labels = np.where(Y < 0, np.nan, Y)
    arrays = {
        "X": (values, {"dtype": "int16", "scale_factor": 0.01, "add_offset": 270.0, "_FillValue": -32768}),
        "Y": (labels, {"dtype": "int8", "_FillValue": -9}),
        "depth": (values, {"dtype": "float32", "_FillValue": np.float32(1e20)}),
    }
    path = str(tmp_path / ("t.nc" if form == "netcdf" else "t.zarr"))
    if form == "netcdf":
        with h5py.File(path, "w") as file:
            for key, names in (("band", bands), ("label", tags)):
                file[key] = names
                file[key].make_scale(key)
            for key, (plain, how) in arrays.items():
                packed = (plain - how.pop("add_offset", 0)) / how.get("scale_factor", 1)
                packed = packed if how["dtype"] == "float32" else packed.round()
                file[key] = np.where(np.isnan(plain), how["_FillValue"], packed).astype(how.pop("dtype"))
                file[key].attrs.update(how | ({"add_offset": 270.0} if key == "X" else {}))
                file[key].dims[1].attach_scale(file["label" if key == "Y" else "band"])
    else:
        sizes = {"X": "band", "Y": "label", "depth": "band"}
        table = xarray.Dataset(
            {key: (("row", sizes[key]), plain) for key, (plain, _) in arrays.items()},
            coords={"band": bands, "label": tags},
        )
        how = {key: encoding for key, (_, encoding) in arrays.items()}
        table.to_zarr(path, zarr_format=int(form[-1]), encoding=how, consolidated=False)
        np.testing.assert_array_equal(xarray.open_zarr(path, consolidated=False)["X"], values.round(2))
    reader = open_source([path])
    assert [list(reader.header.feature_names), list(reader.header.label_names)] == [bands, tags]
    found = read_all(reader)
    np.testing.assert_allclose(found[0], values, rtol=1e-12)
    np.testing.assert_array_equal(found[1], np.where(np.isnan(labels), -1, labels))
    check_splits(reader, sizes=(1, 300))
    depth = open_source([path], FileSpec(keys={"x": "depth"}))
    assert depth.dtype == np.float32
    np.testing.assert_array_equal(read_all(depth)[0], values.astype("f4"))


@pytest.mark.parametrize(
    ("arrays", "keys", "said"),
    [
        (None, {}, "there is no Zarr array or group"),
        ({"X": X}, {}, r"the group has no array 'Y' for Y; it has X(.|\n)*--key y=NAME"),
        ({"X": np.zeros((2, 3, 4)), "Y": Y}, {}, "X has 3 dimensions, rows and columns were expected"),
        ({"X/inner": X, "Y": Y}, {}, "X is encoded as a group without encoding-type"),
    ],
)
def test_groups_that_do_not_fit(tmp_path: Path, arrays: Any, keys: dict[str, str], said: str) -> None:
    if arrays is not None:
        root = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
        for name, values in arrays.items():
            root.create_array(name, data=values)
    with pytest.raises(DataError, match=said):
        open_source([str(tmp_path / "t.zarr")], FileSpec(keys=keys))


# MatrixMarket

BANNER = "%%MatrixMarket matrix coordinate real general\n"


def save(folder: Path, **matrices: object) -> list[str]:
    for name, values in matrices.items():
        save_mtx(str(folder / f"{name}.mtx"), values)
    return [str(folder / f"{name}.mtx") for name in matrices]


def test_a_matrix_that_fits_both_ways_has_instances_as_rows(tmp_path: Path) -> None:
    square = np.triu(np.ones((5, 5), np.int8))
    check(open_source(save(tmp_path, X=X[:5], Y=square)), X[:5], square)


@pytest.mark.usefixtures("small")
def test_entries_in_any_order_and_layout(tmp_path: Path) -> None:
    entries = sp.coo_array(X)
    order = RNG.permutation(entries.nnz)
    rows = [f" {entries.row[i] + 1}\t{entries.col[i] + 1}  {float(entries.data[i])!r}\r\n" for i in order]
    rows.insert(5, "\n   \n")
    text = f"{BANNER.upper().replace('MATRIXMARKET', 'MatrixMarket')}%c\n\n37 5 {entries.nnz}\n{''.join(rows)}\n\n"
    (tmp_path / "X.mtx.gz").write_bytes(gzip.compress(text.encode()))
    (_, y) = save(tmp_path, other=X, Y=Y)
    np.testing.assert_array_equal(read_all(open_source([str(tmp_path / "X.mtx.gz"), y]))[0], X)


def test_a_pattern_has_ones(tmp_path: Path) -> None:
    pattern = BANNER.replace("real", "pattern")
    (tmp_path / "Y.mtx").write_text(f"{pattern}37 3 2\n37 3\n1 2\n")
    found = read_all(open_source([*save(tmp_path, X=X), str(tmp_path / "Y.mtx")]))[1]
    assert np.argwhere(found).tolist() == [[0, 1], [36, 2]]


def test_fractions_in_an_integer_mtx_are_kept(tmp_path: Path) -> None:
    (tmp_path / "X.mtx").write_text("%%MatrixMarket matrix coordinate Integer general\n2 2 2\n1 1 1.5\n2 2 -3\n")
    found = read_all(open_source([str(tmp_path / "X.mtx"), *save(tmp_path, Y=Y[:2])]))[0]
    np.testing.assert_array_equal(found, [[1.5, 0], [0, -3]])


def test_pairs_that_do_not_agree_and_single_files(tmp_path: Path) -> None:
    x, y = save(tmp_path, X=X, Y=Y[:30])
    with pytest.raises(DataError, match="X has 37 rows and Y has 30"):
        open_source([x, y])
    with pytest.raises(UsageError, match="holds one matrix, and 1 file came"):
        open_source([x])


@pytest.mark.parametrize(
    ("text", "line", "problem"),
    [
        ("1 2 3\n", 1, "a header like %%MatrixMarket matrix coordinate real general was expected"),
        (BANNER.replace("general", "symmetric") + "2 2 1\n1 1 1\n", 1, "a header like"),
        (BANNER.replace("real", "complex") + "2 2 1\n1 1 1 1\n", 1, "a header like"),
        (BANNER + "%\n2 2\n", 3, "numbers of rows, columns and entries were expected"),
        (BANNER + "2 2 3\n1 1 1\n2 2 1\n", 2, "Truncated file. Expected another 1 lines"),
        (BANNER + "2 2 1\n1 1 1\n2 2 1\n", 4, "Too many lines in file"),
        (BANNER + "%\n2 2 2\n1 1 1\n3 1 1\n", 5, "an entry cannot be read: Row index out of bounds"),
        (BANNER + "2 2 2\n1 1 1\n2 1 x\n", 4, "an entry cannot be read: Invalid floating-point value"),
    ],
)
def test_damaged_text(tmp_path: Path, text: str, line: int, problem: str) -> None:
    (tmp_path / "X.mtx").write_text(text)
    with pytest.raises(DataError, match=problem) as caught:
        read_all(open_source([str(tmp_path / "X.mtx"), *save(tmp_path, Y=Y[:2])]))
    assert (caught.value.line, bool(caught.value.cure)) == (line, True)


# Rows of matrices stored by columns, in bands, in streams


def rows_in_steps(rows: Rows, max_bytes: int) -> tuple[np.ndarray, list[int]]:
    start, blocks, stops = 0, [], []
    while start < rows.shape[0]:
        stop = rows.reach(start, max_bytes)
        assert start < stop <= rows.shape[0]
        block = rows.take(start, stop)
        blocks.append(block if isinstance(block, np.ndarray) else block.toarray())
        stops.append(stop)
        start = stop
    return np.vstack(blocks), stops


def test_csr_rows_keep_to_the_bytes() -> None:
    by_rows = csr_array(random_array((200, 50), density=0.2, rng=1))
    rows = CsrRows(by_rows.data, by_rows.indices, by_rows.indptr, (200, 50), file="f")
    found, stops = rows_in_steps(rows, 1000)
    np.testing.assert_array_equal(found, by_rows.toarray())
    starts = [0, *stops[:-1]]
    cost = 12 * (by_rows.indptr[stops] - by_rows.indptr[starts]) + 8 * (np.array(stops) - starts)
    assert cost.max() <= 1000
    assert len(stops) > 10


class Counted:
    """An array that counts how often a row is read."""

    def __init__(self, array: np.ndarray) -> None:
        self.array, self.shape, self.dtype = array, array.shape, array.dtype
        self.reads = np.zeros(len(array), dtype=int)

    def __getitem__(self, key: slice) -> np.ndarray:
        self.reads[key] += 1
        return self.array[key]


def test_a_chunk_is_read_once() -> None:
    array = Counted(np.arange(700.0).reshape(100, 7))
    rows = array_rows(array, chunks=(30, 7))
    found, stops = rows_in_steps(rows, 7 * 8 * 4)
    np.testing.assert_array_equal(found, array.array)
    assert len(stops) == 3 * 8 + 3, "batches of 4 rows, or as many as are left of a chunk"
    assert array.reads.max() == 1


@pytest.mark.parametrize("indptr", [[0, 1], [0, 2, 1], [1, 1, 2], [0, 1, 3]])
def test_arrays_that_do_not_belong_together(indptr: list[int]) -> None:
    with pytest.raises(DataError, match="do not belong together for 2 rows or columns"):
        CsrRows(np.ones(2), np.array([0, 1]), np.array(indptr), (2, 2), file="f")
    with pytest.raises(DataError, match="do not belong together"):
        rows_of_columns(np.ones(2), np.array([0, 1]), np.array(indptr), (2, 2), file="f")


@pytest.mark.parametrize("bad", [5, -1])
def test_indices_outside_the_matrix(bad: int) -> None:
    rows = CsrRows(np.ones(2), np.array([0, bad]), np.array([0, 1, 2]), (2, 5), file="f")
    with pytest.raises(DataError, match="row 2: a column index outside the 5 columns of the matrix"):
        rows.take(0, 2)
    columns = rows_of_columns(np.ones(2), np.array([0, bad]), np.array([0, 1, 2]), (5, 2), file="f")
    with pytest.raises(DataError, match="a row index outside the 5 rows of the matrix"):
        columns.reach(0, 100)


@pytest.mark.parametrize(
    ("dtype", "how", "as_it_lies"),
    [
        ("<f4", {}, True),
        (">f8", {"userblock_size": 512}, True),
        ("<u2", {"chunks": (5, 3)}, False),
        ("bool", {}, False),  # which HDF5 has as an enumeration
    ],
)
def test_values_of_hdf5_that_lie_as_they_are_need_no_library(tmp_path, dtype, how, as_it_lies) -> None:
    values = (np.arange(60).reshape(20, 3) % 7).astype(dtype)
    chunks = how.pop("chunks", None)
    with h5py.File(tmp_path / "a.h5", "w", **how) as file:
        file.create_dataset("x", data=values, chunks=chunks)
    with h5py.File(tmp_path / "a.h5") as file:
        assert isinstance(matrix.unpacked_array(file["x"], file=str(tmp_path / "a.h5")), matrix.FileArray) == as_it_lies
        rows = dense_rows(file["x"], file=str(tmp_path / "a.h5"), what="X")
        found, _ = rows_in_steps(rows, 100)
        rows.close()
    np.testing.assert_array_equal(found, values)
