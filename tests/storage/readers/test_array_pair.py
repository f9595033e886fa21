"""Arrays X and Y of Zarr and HDF5: two paths or one group, version 2 and 3, sharded, encoded sparse."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest
import zarr
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.array_pair import open_array_pair
from mlfs_dask.storage.readers.base import ReadOptions
from mlfs_dask.storage.readers.detect import open_source
from tests.storage.readers.reading import check_splits, read_all

RNG = np.random.default_rng(7)
X = RNG.normal(size=(40, 6))
Y = RNG.integers(-1, 2, size=(40, 3)).astype(np.int8)


def check(reader: object) -> None:
    found = read_all(reader)
    np.testing.assert_array_equal(found[0], X)
    np.testing.assert_array_equal(found[1], Y)
    check_splits(reader, sizes=(1, 300))


@pytest.mark.parametrize("version", [2, 3])
def test_pair_of_arrays(tmp_path: Path, version: int) -> None:
    paths = [str(tmp_path / "X.zarr"), str(tmp_path / "Y.zarr")]
    for path, values, chunk in zip(paths, (X, Y), (7, 11), strict=True):
        zarr.create_array(path, data=values, chunks=(chunk, 2), zarr_format=version)
    check(open_array_pair(paths))


def test_group_with_shards_and_names(tmp_path: Path) -> None:
    root = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
    root.create_array("x", data=X, chunks=(4, 6), shards=(12, 6))
    root.create_array("labels", data=Y, chunks=(40, 3))
    root.create_array("label_names", shape=(3,), dtype=str)[:] = np.array(["p", "q", "r"])
    reader = open_array_pair(str(tmp_path / "t.zarr"))
    assert reader.header.label_names == ("p", "q", "r")
    check(reader)
    starts = [part.start for part in reader.parts(X.nbytes // 3)]
    assert starts == [0, 12, 24, 36], "parts begin with shards"


def test_keys_and_url() -> None:
    root = zarr.open_group("memory://zarr/t.zarr", mode="w")
    root.create_array("a", data=X, chunks=(7, 6))
    root.create_array("b", data=Y, chunks=(7, 3))
    check(open_array_pair("memory://zarr/t.zarr", ReadOptions(keys={"x": "a", "y": "b"})))


def test_encoded_sparse_matrix(tmp_path: Path) -> None:
    by_rows = sp.csr_array(np.where(X > 0, X, 0))
    group = zarr.open_group(str(tmp_path / "X.zarr"), mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [40, 6]})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(by_rows, name))
    zarr.create_array(str(tmp_path / "Y.zarr"), data=Y)
    reader = open_array_pair([str(tmp_path / "X.zarr"), str(tmp_path / "Y.zarr")])
    np.testing.assert_array_equal(read_all(reader)[0], by_rows.toarray())
    check_splits(reader, sizes=(1, 300))


@pytest.mark.parametrize("form", ["zarr 2", "zarr 3", "netcdf"])
@pytest.mark.filterwarnings("ignore::zarr.errors.UnstableSpecificationWarning")
def test_scaled_and_missing_values_as_xarray_has_them(tmp_path: Path, form: str) -> None:
    xarray = pytest.importorskip("xarray")
    values, bands, tags = X.round(2) + 270, [f"b{i}" for i in range(6)], ["hot", "cold", "wet"]
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
    depth = open_source([path], ReadOptions(keys={"x": "depth"}))
    assert depth.dtype == np.float32
    np.testing.assert_array_equal(read_all(depth)[0], values.astype("f4"))


def test_one_label_as_a_vector(tmp_path: Path) -> None:
    root = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
    root.create_array("X", data=X)
    root.create_array("Y", data=Y[:, 0], chunks=(7,))
    np.testing.assert_array_equal(read_all(open_array_pair(str(tmp_path / "t.zarr")))[1], Y[:, :1])


def test_no_such_array(tmp_path: Path) -> None:
    zarr.open_group(str(tmp_path / "t.zarr"), mode="w").create_array("X", data=X)
    with pytest.raises(DataError, match="the group has no array 'Y' for Y; it has X") as caught:
        open_array_pair(str(tmp_path / "t.zarr"))
    assert "--key y=NAME" in str(caught.value)


def test_three_dimensions_and_other_groups(tmp_path: Path) -> None:
    root = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
    root.create_array("X", data=np.zeros((2, 3, 4)))
    root.create_array("Y", data=Y)
    with pytest.raises(DataError, match="X has 3 dimensions, rows and columns were expected"):
        open_array_pair(str(tmp_path / "t.zarr"))
    root.create_group("inner")
    with pytest.raises(DataError, match="X is encoded as a group without encoding-type"):
        open_array_pair(str(tmp_path / "t.zarr"), ReadOptions(keys={"x": "inner"}))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no Zarr array or group"):
        open_array_pair(str(tmp_path / "t.zarr"))
