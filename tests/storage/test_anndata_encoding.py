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
from mlfs_dask.storage.anndata_encoding import DENSE, STRINGS, Object, dataframe, row_numbers, strings, vector
from mlfs_dask.storage.numbered_names import NumberedNames
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
    monkeypatch.setattr(anndata_encoding, "_CHUNK", chunk)
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


def test_chunks_of_zeros_are_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(anndata_encoding, "_CHUNK", 2)
    keys = [key for key, _ in vector("a", np.array([0.0, 0.0, np.nan, 0.0, 0.0]))]
    assert keys == ["a/zarr.json", "a/c/1"]


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000])
def test_names_that_are_made_up_are_encoded_as_texts_are(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(anndata_encoding, "_CHUNK", chunk)
    names = NumberedNames("x", 123)
    assert list(strings("a", names)) == list(strings("a", list(names)))


@pytest.mark.parametrize("chunk", [1, 2, 8])
def test_texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(anndata_encoding, "_CHUNK", chunk)
    texts = ["sky", "", "Wörter, viele"]
    assert written(tmp_path / "ours", strings("names", texts))["names"][:].tolist() == texts
    zarr.create_group(tmp_path / "theirs").create_array(
        "names", shape=(3,), chunks=(min(chunk, 3),), dtype=str, attributes=dict(STRINGS)
    )
    assert document(tmp_path / "ours", "names") == document(tmp_path / "theirs", "names")


@pytest.mark.parametrize("n", [1, 4, 5])
def test_row_numbers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, n: int) -> None:
    monkeypatch.setattr(anndata_encoding, "_CHUNK", 2)
    group = written(tmp_path / "ours", row_numbers(n))
    assert group["obs/_index"][:].tolist() == list(range(n))
    assert dict(group["obs"].attrs) == json.loads(dataframe("obs")[1])["attributes"]


def test_row_numbers_take_little_room() -> None:
    content = dict(row_numbers(1 << 20))["obs/_index/c/0"]
    assert len(content) < 1 << 15
