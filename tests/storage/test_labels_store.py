"""Recovered labels on disk: values, where they apply, names; opened by anndata; in shards; at a URL."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import zarr

from mlfs_dask.storage import recovered
from mlfs_dask.storage.recovered import write_recovered_labels


def values(n=50, q=3):
    return np.random.default_rng(0).uniform(-1, 1, size=(n, q))


def test_anndata_opens_them(tmp_path):
    anndata = pytest.importorskip("anndata")
    F = values()
    write_recovered_labels(str(tmp_path / "labels.zarr"), F, ["a", "b", "ü"], threshold=0.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata's own: integer row names
        found = anndata.read_zarr(tmp_path / "labels.zarr")
    assert found.X.dtype == np.float32
    assert np.asarray(found.X) == pytest.approx(F, abs=1e-6)
    assert found.layers["positive"].tolist() == (F > 0).astype(int).tolist()
    assert found.var_names.tolist() == ["a", "b", "ü"]
    assert found.obs_names.tolist() == [str(i) for i in range(50)]


def test_shards_are_few_and_threshold_is_kept(tmp_path, monkeypatch):
    monkeypatch.setattr(recovered, "_CHUNK_BYTES", 12 * 7)
    monkeypatch.setattr(recovered, "_SHARD_CHUNKS", 3)
    F = values()
    write_recovered_labels(str(tmp_path / "labels.zarr"), F, ["a", "b", "c"], threshold=0.5)
    group = zarr.open_group(tmp_path / "labels.zarr", mode="r")
    assert group["X"].chunks == (7, 3)
    assert group["X"].shards == (21, 3)
    assert group["X"][...] == pytest.approx(F, abs=1e-6)
    assert group["layers/positive"][...].tolist() == (F > 0.5).astype(int).tolist()
    assert group.attrs["mlfs"] == {"threshold": 0.5}
    assert len(list((tmp_path / "labels.zarr/X/c").iterdir())) == 3


def test_what_is_there_is_not_overwritten(tmp_path):
    place = str(tmp_path / "labels.zarr")
    write_recovered_labels(place, values(), ["a", "b", "c"], threshold=0.0)
    with pytest.raises(FileExistsError):
        write_recovered_labels(place, values(), ["a", "b", "c"], threshold=0.0)


def test_a_url_will_do():
    write_recovered_labels("memory://recovered/labels.zarr", values(), ["a", "b", "c"], threshold=0.0)
    group = zarr.open_group("memory://recovered/labels.zarr", mode="r")
    assert group["layers/positive"][...].sum() == (values() > 0).sum()
