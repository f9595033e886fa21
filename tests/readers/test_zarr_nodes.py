"""Chunks of local Zarr arrays, read beside zarr-python."""

from pathlib import Path
from typing import Any

import numcodecs
import numpy as np
import pytest
import zarr
from scipy import sparse as sp

from mlfs_dask.errors import DataError
from mlfs_dask.readers import zarr_nodes
from mlfs_dask.readers.base import FileSpec
from mlfs_dask.readers.matrix import CsrRows, DenseRows, array_rows
from mlfs_dask.readers.zarr_nodes import LocalChunks, direct_chunks, open_node

X = np.random.default_rng(0).standard_normal((40, 5)).astype("f4")
DIRECT: dict[str, dict[str, Any]] = {
    "2, Blosc": {"zarr_format": 2, "compressors": numcodecs.Blosc()},
    "2, Zstandard": {"zarr_format": 2, "compressors": numcodecs.Zstd()},
    "2, plain": {"zarr_format": 2, "compressors": None},
    "3, Blosc": {"compressors": zarr.codecs.BloscCodec()},
    "3, Zstandard": {"compressors": zarr.codecs.ZstdCodec()},
    "3, plain": {"compressors": None},
    "3, other keys": {"chunk_key_encoding": {"name": "v2", "separator": "."}},
}
OTHERS: dict[str, dict[str, Any]] = {
    "packed twice": {"compressors": [zarr.codecs.ZstdCodec(), zarr.codecs.Crc32cCodec()]},
    "gzip": {"compressors": zarr.codecs.GzipCodec()},
    "shards": {"shards": (14, 4)},
    "turned": {"filters": zarr.codecs.TransposeCodec(order=(1, 0))},
    "large end first": {"serializer": zarr.codecs.BytesCodec(endian="big")},
    "large end first in version 2": {"zarr_format": 2, "dtype": ">f4"},
    "by columns": {"zarr_format": 2, "order": "F"},
    "filtered": {"zarr_format": 2, "filters": numcodecs.Delta("<f4")},
}


def stored(folder: Path, values: np.ndarray = X, *, chunks: tuple[int, ...] = (7, 2), **how: Any) -> Any:
    made = zarr.create_array(
        folder / "x.zarr", shape=values.shape, chunks=chunks, fill_value=3, **{"dtype": values.dtype, **how}
    )
    made[:] = values
    return open_node(str(folder / "x.zarr"), FileSpec())


@pytest.fixture
def unpacked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Bytes of every chunk that is unpacked."""
    sizes: list[int] = []

    def decode(compressor: str, content: Any, out: Any) -> None:
        sizes.append(len(out))
        original(compressor, content, out)

    original = zarr_nodes.decode
    monkeypatch.setattr(zarr_nodes, "decode", decode)
    return sizes


@pytest.mark.parametrize("chunks", [(7, 2), (7, 5), (64, 8), (1, 1)])
@pytest.mark.parametrize("how", DIRECT.values(), ids=DIRECT)
def test_any_rows_are_those_of_the_array(tmp_path: Path, how: dict[str, Any], chunks: tuple[int, int]) -> None:
    direct = direct_chunks(stored(tmp_path, chunks=chunks, **how))
    assert isinstance(direct, LocalChunks)
    for start, stop in ((0, 40), (0, 7), (3, 5), (5, 9), (6, 30), (28, 40), (0, 1), (12, 12), (39, 99)):
        np.testing.assert_array_equal(direct[start:stop], X[start:stop])


@pytest.mark.filterwarnings("ignore::zarr.errors.ZarrUserWarning")
@pytest.mark.parametrize("how", OTHERS.values(), ids=OTHERS)
def test_other_forms_are_left_to_the_library(tmp_path: Path, how: dict[str, Any]) -> None:
    array = stored(tmp_path, **how)
    assert direct_chunks(array) is array


def test_absent_chunks_have_the_fill_value_and_damaged_ones_are_refused(tmp_path: Path) -> None:
    array = stored(tmp_path)
    (tmp_path / "x.zarr/c/1/0").unlink()
    expected = X.copy()
    expected[7:14, :2] = 3
    np.testing.assert_array_equal(direct_chunks(array)[:], expected)
    (tmp_path / "x.zarr/c/2/1").write_bytes(b"no frame")
    with pytest.raises(Exception, match="decompression error"):
        direct_chunks(array)[:]
    (tmp_path / "x.zarr/c/2/1").unlink()
    (tmp_path / "x.zarr/c/2/1").symlink_to("/etc/hostname")
    with pytest.raises(DataError, match="c/2/1 is a link to a file outside the folder"):
        direct_chunks(array)[:]


@pytest.mark.parametrize("batch_bytes", [40, 150, 200, 280, 500, 4000])
def test_rows_in_their_order_unpack_every_chunk_once(tmp_path: Path, unpacked: list[int], batch_bytes: int) -> None:
    rows: DenseRows = array_rows(direct_chunks(stored(tmp_path)), chunks=(7, 2))
    start = 0
    while start < 40:
        stop = rows.reach(start, batch_bytes)
        np.testing.assert_array_equal(rows.take(start, stop), X[start:stop])
        start = stop
    assert unpacked == [7 * 2 * 4] * (6 * 3)


def test_rows_of_a_sparse_matrix_unpack_every_chunk_once(tmp_path: Path, unpacked: list[int]) -> None:
    matrix = sp.csr_array(np.where(X > 0, X, 0))
    arrays = []
    for name in ("data", "indices", "indptr"):
        (tmp_path / name).mkdir()
        arrays.append(direct_chunks(stored(tmp_path / name, getattr(matrix, name), chunks=(16,))))
    rows, start = CsrRows(*arrays, matrix.shape, file="x.zarr"), 0
    unpacked.clear()  # of the first and the last offset, whose chunk is kept
    while start < 40:
        stop = rows.reach(start, 150)
        np.testing.assert_array_equal(rows.take(start, stop).toarray(), matrix[start:stop].toarray())
        start = stop
    assert len(unpacked) == 2 * -(-matrix.nnz // 16) + 2
