"""Recovered labels on disk: values, where they apply, names; opened by anndata; written in pieces; at a URL."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from mlfs_dask.storage import labels_store
from mlfs_dask.storage.labels_store import LabelsStore


def values(n: int = 50, q: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).uniform(-1, 1, size=(n, q))


def create(place: object, **changes: Any) -> LabelsStore:
    options: dict[str, Any] = {"threshold": 0.0, "partition_rows": 7, **changes}
    return LabelsStore.create(str(place), options.pop("n", 50), options.pop("names", ["a", "b", "ü"]), **options)


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are as long as partitions."""
    monkeypatch.setattr(labels_store, "_MIN_CHUNK_BYTES", 0)


@pytest.mark.usefixtures("small_chunks")
@pytest.mark.parametrize("partition_rows", [7, 25, 50])
def test_anndata_opens_it(tmp_path: Path, partition_rows: int) -> None:
    anndata = pytest.importorskip("anndata")
    F = values()
    create(tmp_path / "labels.zarr", partition_rows=partition_rows).write(0, F)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # anndata's own: integer row names
        found = anndata.read_zarr(tmp_path / "labels.zarr")
    assert found.X.dtype == np.float32
    assert np.asarray(found.X) == pytest.approx(F, abs=1e-6)
    assert found.layers["positive"].dtype == np.int8
    assert found.layers["positive"].tolist() == (F > 0).astype(int).tolist()
    assert found.var_names.tolist() == ["a", "b", "ü"]
    assert found.obs_names.tolist() == [str(i) for i in range(50)]


@pytest.mark.parametrize("array", ["X", "layers/positive"])
@pytest.mark.parametrize("byte", [8, -1])
def test_a_flipped_bit_is_found(tmp_path: Path, array: str, byte: int) -> None:
    create(tmp_path / "labels.zarr", partition_rows=50).write(0, values())
    chunk = tmp_path / "labels.zarr" / array / "c/0/0"
    content = bytearray(chunk.read_bytes())
    content[byte] ^= 1
    chunk.write_bytes(content)
    with pytest.raises(ValueError, match=r"[Cc]hecksum"):
        zarr.open_group(tmp_path / "labels.zarr", mode="r")[array][...]


@pytest.mark.parametrize(
    ("n", "q", "partition_rows", "expected"),
    [
        (10**7, 100, 30_000, 30_000),  # 12 MB
        (10**7, 100, 10, 2**20 // 400),
        (10**7, 100, 10**6, 2**25 // 400),
        (50, 3, 7, 50),
        (10**4, 10**7, 5, 1),
    ],
)
def test_a_chunk_is_a_partition_within_bounds_of_its_bytes(
    n: int, q: int, partition_rows: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Nowhere:
        def exists(self) -> bool:
            return False

        def write(self, key: str, content: bytes) -> None:
            pass

    monkeypatch.setattr(labels_store, "open_objects", lambda place: Nowhere())
    monkeypatch.setattr(labels_store, "row_numbers", lambda n: [])
    monkeypatch.setattr(labels_store, "strings", lambda key, names: [])
    found = LabelsStore.create("nowhere", n, range(q), threshold=0.0, partition_rows=partition_rows)  # type: ignore[arg-type]
    assert found.chunk_rows == expected


def test_what_is_there_is_not_overwritten(tmp_path: Path) -> None:
    create(tmp_path / "labels.zarr").write(0, values())
    with pytest.raises(FileExistsError, match=r"labels\.zarr is there already"):
        create(tmp_path / "labels.zarr")
    assert zarr.open_group(tmp_path / "labels.zarr", mode="r")["X"][...].any()


@pytest.mark.usefixtures("small_chunks")
def test_a_url_will_do() -> None:
    F = values()
    store = create("memory://recovered/labels.zarr")
    store.write(0, F[:49])
    store.write(49, F[49:])
    group = zarr.open_group("memory://recovered/labels.zarr", mode="r")
    assert group["X"][...].tolist() == F.astype(np.float32).tolist()
    assert group["layers/positive"][...].sum() == (F > 0).sum()
    with pytest.raises(FileExistsError):
        create("memory://recovered/labels.zarr")
