"""Small objects of a store are what zarr-python would have written, whatever their number of chunks."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest
import zarr
from zarr.codecs import BloscCodec

from mlfs_dask.storage import anndata_encoding
from mlfs_dask.storage.anndata_encoding import DENSE, STRINGS, Object, strings, vector
from mlfs_dask.storage.object_store import LocalObjects


def written(folder: Path, objects: Iterable[Object]) -> zarr.Group:
    """What zarr-python finds in a store of these objects."""
    group = zarr.create_group(folder)
    for key, content in objects:
        LocalObjects(folder).write(key, content)
    return group


def document(folder: Path, name: str) -> dict[str, object]:
    metadata: dict[str, object] = json.loads((folder / name / "zarr.json").read_bytes())
    metadata.pop("storage_transformers", None)  # none, which need not be said
    return metadata


@pytest.mark.parametrize("chunk", [1, 3, 5, 7])
@pytest.mark.parametrize("dtype", ["int8", "int64", "float64"])
def test_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dtype: str, chunk: int) -> None:
    monkeypatch.setattr(anndata_encoding, "CHUNK", chunk)
    values = np.array([3, -1, 0, 7, 2]).astype(dtype)
    found = written(tmp_path / "ours", vector("a/b", values))["a/b"]
    assert found.dtype == values.dtype
    assert found[:].tolist() == values.tolist()
    zarr.create_group(tmp_path / "theirs").create_array(
        "a/b",
        shape=(5,),
        chunks=(min(chunk, 5),),
        dtype=dtype,
        compressors=BloscCodec(cname="zstd", clevel=3, shuffle="shuffle", typesize=values.itemsize),
        fill_value=0,
        attributes=dict(DENSE),
    )
    assert document(tmp_path / "ours", "a/b") == document(tmp_path / "theirs", "a/b")


@pytest.mark.parametrize("chunk", [1, 2, 8])
def test_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(anndata_encoding, "CHUNK", chunk)
    texts = ["sky", "", "Wörter, viele"]
    assert written(tmp_path / "ours", strings("names", texts))["names"][:].tolist() == texts
    zarr.create_group(tmp_path / "theirs").create_array(
        "names", shape=(3,), chunks=(min(chunk, 3),), dtype=str, attributes=dict(STRINGS)
    )
    assert document(tmp_path / "ours", "names") == document(tmp_path / "theirs", "names")
