"""Objects of a store are what zarr-python would have written, valid AnnData, and told apart by their digests."""

from __future__ import annotations

import hashlib
import json
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given
from hypothesis import strategies as st

from mlfs_dask.storage import digest as digest_module
from mlfs_dask.storage import labels_store
from mlfs_dask.storage.digest import Checksum, content_digest, crc32c, join, root_is_intact, seal_root
from mlfs_dask.storage.labels_store import LabelsStore
from mlfs_dask.storage.numbered_names import NumberedNames
from mlfs_dask.storage.opening import open_dataset
from tests.storage.stores import make_store, sample, small_chunks

anndata = pytest.importorskip("anndata")


def dense(M: Any) -> np.ndarray[Any, Any]:
    return M if isinstance(M, np.ndarray) else M.toarray()


@pytest.mark.parametrize(
    ("form", "dtype"), [("dense", "float64"), ("dense", "float32"), ("dense", "int16"), ("sparse", "float64")]
)
@pytest.mark.parametrize("compressor", ["none", "zstd", "lz4"])
@pytest.mark.parametrize("lazily", [False, True])
def test_anndata_opens_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, dtype: str, compressor: str, lazily: bool
) -> None:
    if lazily:
        pytest.importorskip("xarray")
    X, Y = sample(sparse=form == "sparse")
    X = np.rint(9 * np.nan_to_num(X)) if dtype == "int16" else X.astype(dtype).astype(float)
    small_chunks(monkeypatch, 100)
    how = {"storage": form, "dtype": dtype, "compressor": compressor, "partition_bytes": 900}
    path = make_store(tmp_path / "out.zarr", X, Y, **how)
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
    assert set(np.asarray(found.var["kind"])) == {"integer" if dtype == "int16" else "numeric"}
    assert list(np.asarray(found.uns["mlfs"]["label_names"])) == [f"label {i}" for i in range(20)]


def test_row_offsets_are_64_bit(tmp_path: Path) -> None:
    import zarr

    X, Y = sample(sparse=True)
    group = zarr.open_group(make_store(tmp_path / "out.zarr", X, Y, storage="sparse"), mode="r")
    assert group["X/indptr"].dtype == np.int64
    assert group["X/indices"].dtype == np.int32
    assert group["obsm/labels/indptr"].dtype == np.int64
    assert group["obs/_index"].dtype == np.int64


def values(n: int = 50, q: int = 3) -> np.ndarray[Any, Any]:
    return np.random.default_rng(0).uniform(-1, 1, size=(n, q))


def create(place: object, **changes: Any) -> LabelsStore:
    options: dict[str, Any] = {"threshold": 0.0, "partition_rows": 7, **changes}
    n, names = options.pop("n", 50), options.pop("names", ["a", "b", "ü"])
    return LabelsStore.sized(str(place), n, len(names), **options).begin(names)


@pytest.fixture
def short_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chunks are as long as partitions."""
    monkeypatch.setattr(labels_store, "_MIN_CHUNK_BYTES", 0)


@pytest.mark.usefixtures("short_chunks")
@pytest.mark.parametrize("partition_rows", [7, 25, 50])
def test_anndata_opens_recovered_labels(tmp_path: Path, partition_rows: int) -> None:
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
def test_a_chunk_is_a_partition_within_bounds_of_its_bytes(n: int, q: int, partition_rows: int, expected: int) -> None:
    assert LabelsStore.sized("nowhere", n, q, threshold=0.0, partition_rows=partition_rows).chunk_rows == expected


@pytest.mark.usefixtures("short_chunks")
def test_a_url_will_do() -> None:
    F = values()
    store = create("memory://recovered/labels.zarr")
    store.write(0, F[:49])
    store.write(49, F[49:])
    group = zarr.open_group("memory://recovered/labels.zarr", mode="r")
    assert group["X"][...].tolist() == F.astype(np.float32).tolist()
    assert group["layers/positive"][...].sum() == (F > 0).sum()
    with pytest.raises(FileExistsError, match=r"labels\.zarr is there already"):
        create("memory://recovered/labels.zarr")


@given(st.lists(st.binary(max_size=50), max_size=6))
def test_checksums_of_pieces_join(pieces: list[bytes]) -> None:
    whole = b"".join(pieces)
    found = join(map(Checksum.of, pieces))
    assert found == Checksum(len(whole), zlib.crc32(whole), crc32c(whole))
    extended = Checksum()
    for piece in pieces:
        extended = extended.extended(piece)
    assert extended == found


def test_checksums_of_long_pieces_join() -> None:
    first, second = b"\x00" * 3_000_001, b"\xff" * 2**20
    assert Checksum.of(first) + Checksum.of(second) == Checksum.of(first + second)


def test_checksum_as_text_and_json() -> None:
    checksum = Checksum.of(b"123456789")  # the check values of both polynomials
    assert str(checksum) == "9:cbf43926e3069283"
    assert Checksum(*checksum.to_json()) == checksum


def test_content_digest_is_that_of_the_json(monkeypatch: pytest.MonkeyPatch) -> None:
    """Long lists are hashed piece by piece, numbers of one digit and names that are made up without a text for each."""
    monkeypatch.setattr(digest_module, "_PIECE", 7)
    names = NumberedNames("x", 123)
    for numbers in ([*range(10)] * 3, [3, 12, -1], []):
        parts = {"b": {"k": [1, 2], "a": "é"}, "names": list(names), "a": numbers, "text": "q"}
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        expected = hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
        assert content_digest(parts) == expected
        assert content_digest(parts | {"names": names, "a": np.array(numbers, np.int8)}) == expected
    assert content_digest({}) == hashlib.blake2b(b"{}", digest_size=16).hexdigest()
    assert len(content_digest({"name": "\udce9"})) == 32  # a name that was not UTF-8


def test_every_flipped_byte_of_the_root_is_noticed() -> None:
    content = seal_root({"attributes": {"mlfs": {"n": 1, "root_digest": ""}}, "zarr_format": 3})
    start = content.index(b'"root_digest":"') + len(b'"root_digest":"')
    recorded = content[start : start + 32].decode()
    assert root_is_intact(content, recorded)
    for place in range(len(content)):
        if start <= place < start + 32:
            continue
        flipped = bytearray(content)
        flipped[place] ^= 1
        assert not root_is_intact(bytes(flipped), recorded), place
    changed = content.replace(recorded.encode(), b"f" * 32)
    assert not root_is_intact(changed, "f" * 32)
