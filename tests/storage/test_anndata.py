"""A store is valid AnnData: anndata opens it, eagerly and lazily, and sees the same."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mlfs_dask.storage.opening import open_dataset
from tests.storage.stores import make_store, sample

anndata = pytest.importorskip("anndata")


def dense(M: Any) -> np.ndarray[Any, Any]:
    return M if isinstance(M, np.ndarray) else M.toarray()


@pytest.mark.parametrize("form", ["dense", "sparse"])
@pytest.mark.parametrize("compressor", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("lazily", [False, True])
def test_anndata_opens_it(tmp_path: Path, form: str, compressor: str, lazily: bool) -> None:
    if lazily:
        pytest.importorskip("xarray")
    X, Y = sample(sparse=form == "sparse")
    path = make_store(tmp_path / "out.zarr", X, Y, storage=form, compressor=compressor, partition_bytes=900)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata's own: integer row names, lazy reading is experimental
        read = anndata.experimental.read_lazy if lazily else anndata.read_zarr
        found = read(path)
        values = found.X.compute() if lazily else found.X
        labels = found.obsm["labels"].compute() if lazily else found.obsm["labels"]
    assert found.shape == X.shape
    np.testing.assert_array_equal(dense(values), X)
    np.testing.assert_array_equal(dense(labels), Y)
    dataset = open_dataset(path)
    assert list(found.var_names) == list(dataset.feature_names)
    assert list(map(int, found.obs_names)) == list(range(60))
    np.testing.assert_array_equal(np.asarray(found.var["min"]), dataset.features.minimum)
    np.testing.assert_array_equal(np.asarray(found.var["n_missing"]), dataset.features.n_missing)
    assert set(np.asarray(found.var["kind"])) == {"numeric"}
    assert list(np.asarray(found.uns["mlfs"]["label_names"])) == [f"label {i}" for i in range(20)]


def test_row_offsets_are_64_bit(tmp_path: Path) -> None:
    import zarr

    X, Y = sample(sparse=True)
    group = zarr.open_group(make_store(tmp_path / "out.zarr", X, Y, storage="sparse"), mode="r")
    assert group["X/indptr"].dtype == np.int64
    assert group["X/indices"].dtype == np.int32
    assert group["obsm/labels/indptr"].dtype == np.int64
    assert group["obs/_index"].dtype == np.int64
