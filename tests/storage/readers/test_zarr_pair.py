"""Zarr arrays X and Y: two paths or one group, version 2 and 3, sharded, encoded sparse."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import zarr
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.storage.readers.base import ReadOptions
from mlfs_dask.storage.readers.zarr_pair import open_zarr_pair
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
    check(open_zarr_pair(paths))


def test_group_with_shards_and_names(tmp_path: Path) -> None:
    root = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
    root.create_array("x", data=X, chunks=(4, 6), shards=(12, 6))
    root.create_array("labels", data=Y, chunks=(40, 3))
    root.create_array("label_names", shape=(3,), dtype=str)[:] = np.array(["p", "q", "r"])
    reader = open_zarr_pair(str(tmp_path / "t.zarr"))
    assert reader.header.label_names == ("p", "q", "r")
    check(reader)
    starts = [part.start for part in reader.parts(X.nbytes // 3)]
    assert starts == [0, 12, 24, 36], "parts begin with shards"


def test_keys_and_url() -> None:
    root = zarr.open_group("memory://zarr/t.zarr", mode="w")
    root.create_array("a", data=X, chunks=(7, 6))
    root.create_array("b", data=Y, chunks=(7, 3))
    check(open_zarr_pair("memory://zarr/t.zarr", ReadOptions(keys={"x": "a", "y": "b"})))


def test_encoded_sparse_matrix(tmp_path: Path) -> None:
    by_rows = sp.csr_array(np.where(X > 0, X, 0))
    group = zarr.open_group(str(tmp_path / "X.zarr"), mode="w")
    group.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [40, 6]})
    for name in ("data", "indices", "indptr"):
        group.create_array(name, data=getattr(by_rows, name))
    zarr.create_array(str(tmp_path / "Y.zarr"), data=Y)
    reader = open_zarr_pair([str(tmp_path / "X.zarr"), str(tmp_path / "Y.zarr")])
    np.testing.assert_array_equal(read_all(reader)[0], by_rows.toarray())
    check_splits(reader, sizes=(1, 300))


def test_one_label_as_a_vector(tmp_path: Path) -> None:
    root = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
    root.create_array("X", data=X)
    root.create_array("Y", data=Y[:, 0], chunks=(7,))
    np.testing.assert_array_equal(read_all(open_zarr_pair(str(tmp_path / "t.zarr")))[1], Y[:, :1])


def test_no_such_array(tmp_path: Path) -> None:
    zarr.open_group(str(tmp_path / "t.zarr"), mode="w").create_array("X", data=X)
    with pytest.raises(DataError, match="the group has no array 'Y' for Y; it has X") as caught:
        open_zarr_pair(str(tmp_path / "t.zarr"))
    assert "--key y=NAME" in str(caught.value)


def test_three_dimensions_and_other_groups(tmp_path: Path) -> None:
    root = zarr.open_group(str(tmp_path / "t.zarr"), mode="w")
    root.create_array("X", data=np.zeros((2, 3, 4)))
    root.create_array("Y", data=Y)
    with pytest.raises(DataError, match="X has 3 dimensions, rows and columns were expected"):
        open_zarr_pair(str(tmp_path / "t.zarr"))
    root.create_group("inner")
    with pytest.raises(DataError, match="X is encoded as a group without encoding-type"):
        open_zarr_pair(str(tmp_path / "t.zarr"), ReadOptions(keys={"x": "inner"}))


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no Zarr array or group"):
        open_zarr_pair(str(tmp_path / "t.zarr"))
