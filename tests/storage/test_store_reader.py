"""Streaming a store that zarr-python wrote: plain, compressed, local and at a URL; chunks are requested ahead."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import fsspec
import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

from mlfs_dask.errors import DataError
from mlfs_dask.rows.contract import FeatureInfo
from mlfs_dask.storage.chunking import CHUNK_BYTES
from mlfs_dask.storage.object_store import open_objects
from mlfs_dask.storage.read_ahead import ChunksAhead, Window
from mlfs_dask.storage.store_reader import (
    ArrayLayout,
    ArrayReader,
    MatrixLayout,
    StoreLocation,
    StoreRows,
)

CODECS = {
    "raw": None,
    "checksums": [Crc32cCodec()],
    "zstd": [ZstdCodec()],
    "zstd with checksums": [ZstdCodec(), Crc32cCodec()],
    "blosc with checksums": [BloscCodec(cname="lz4"), Crc32cCodec()],
}


def layout_of(array, name):
    (metadata,) = array.metadata.to_buffer_dict(default_buffer_prototype()).values()
    return ArrayLayout.of(name, json.loads(metadata.to_bytes()))


def sharded(**changes):
    """Metadata of an array that the reader takes, with changes by the path to a value."""
    inner = {
        "chunk_shape": [2, 2],
        "codecs": [{"name": "bytes", "configuration": {"endian": "little"}}],
        "index_codecs": [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}],
        "index_location": "end",
    }
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": [8, 2],
        "data_type": "float32",
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8, 2]}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "/"}},
        "fill_value": 0,
        "codecs": [{"name": "sharding_indexed", "configuration": inner | changes.pop("inner", {})}],
    }
    return document | changes


def large(rows, width):
    """Chunks of so many rows and columns of float32, one in a shard."""
    grid = {"name": "regular", "configuration": {"chunk_shape": [rows, width]}}
    return {"shape": [rows, width], "chunk_grid": grid, "inner": {"chunk_shape": [rows, width]}}


BIG_ENDIAN = [{"name": "bytes", "configuration": {"endian": "big"}}]


@pytest.mark.parametrize(
    "changes",
    [
        {"inner": {"codecs": BIG_ENDIAN}},
        {"inner": {"codecs": [{"name": "transpose", "configuration": {"order": [1, 0]}}, *BIG_ENDIAN]}},
        {"inner": {"index_codecs": [*BIG_ENDIAN, {"name": "crc32c"}], "index_location": "start"}},
        {"inner": {"index_codecs": BIG_ENDIAN}},
        {"inner": {"chunk_shape": [2, 1]}},
        {"data_type": "complex64"},
        {"fill_value": 1},
        {"chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}}},
        large(CHUNK_BYTES // 8 + 1, 2),
    ],
    ids=str,
)
def test_an_array_whose_bytes_mean_something_else_is_not_read(changes):
    for taken in ({}, large(CHUNK_BYTES // 8, 2), large(1, CHUNK_BYTES)):
        assert ArrayLayout.of("X", sharded(**taken)).shard_rows
    with pytest.raises((ValueError, DataError, KeyError)):
        ArrayLayout.of("X", sharded(**changes))


def write_array(group, name, values, *, chunk, shard, compressors=None):
    array = group.create_array(
        name,
        shape=values.shape,
        chunks=(chunk, *values.shape[1:]),
        shards=(shard, *values.shape[1:]),
        dtype=values.dtype,
        compressors=compressors,
        fill_value=0,
        config={"write_empty_chunks": True},
    )
    array[...] = values
    return layout_of(array, name)


def write_matrix(group, name, matrix, *, sparse, chunk, shard, compressors=None):
    options = {"chunk": chunk, "shard": shard, "compressors": compressors}
    if not sparse:
        return MatrixLayout(matrix.shape, dense=write_array(group, name, matrix, **options))
    csr = sp.csr_array(matrix)
    if not csr.nnz:
        csr = sp.csr_array((np.zeros(1, csr.dtype), [0], [0] + [1] * csr.shape[0]), shape=csr.shape)
    part = group.create_group(name)
    layouts = {
        key: write_array(part, key, values, **options)
        for key, values in (
            ("data", csr.data),
            ("indices", csr.indices.astype(np.int32)),
            ("indptr", csr.indptr.astype(np.int64)),
        )
    }
    named = {key: ArrayLayout(**{**vars(layout), "key": f"{name}/{key}"}) for key, layout in layouts.items()}
    return MatrixLayout(matrix.shape, **named)


def make_store(path, X, Y, cuts, *, sparse, chunk=3, shard=6, compressors=None, options=None, block_bytes=64):
    group = zarr.open_group(path, mode="w", storage_options=options)
    x = write_matrix(group, "X", X, sparse=sparse, chunk=chunk, shard=shard, compressors=compressors)
    y = write_matrix(group, "labels", Y, sparse=sparse, chunk=chunk, shard=shard, compressors=compressors)
    rows = np.array([0, *cuts, len(X)], dtype=np.int64)

    def stored(matrix):
        per_row = (matrix != 0).sum(axis=1) if sparse else np.full(len(matrix), matrix.shape[1])
        return np.concatenate(([0], np.cumsum(per_row)))[rows]

    return StoreRows(
        StoreLocation(str(path), options or {}),
        x,
        y,
        rows,
        stored(X),
        stored(Y),
        FeatureInfo(),
        np.zeros((3, Y.shape[1]), dtype=np.int64),
        block_bytes,
    )


def matrices(n=29, d=5, q=3, seed=0):
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < 0.6, rng.normal(size=(n, d)), 0).astype(np.float32)
    X[6:12] = 0  # a whole shard of zeros
    return X, rng.choice([0, 0, 1, -1], (n, q)).astype(np.int8)


def collect(source, first=0, last=None):
    last = source.profile.partitions if last is None else last
    xs, ys, at = [], [], int(source.row_offsets[first])
    for block in source.stream(first, last):
        assert block.start == at
        assert block.Y.has_canonical_format
        at += block.X.shape[0]
        xs.append(block.X.toarray() if sp.issparse(block.X) else block.X.copy())
        ys.append(block.Y.toarray())
    assert at == source.row_offsets[last]
    return np.concatenate(xs), np.concatenate(ys)


@pytest.mark.parametrize("sparse", [False, True])
@pytest.mark.parametrize("codecs", CODECS)
@pytest.mark.parametrize("place", ["local", "memory"])
def test_blocks_are_the_rows(tmp_path, sparse, codecs, place):
    X, Y = matrices()
    store = tmp_path if place == "local" else f"memory://{tmp_path.name}"
    source = make_store(store, X, Y, (10, 11, 27), sparse=sparse, compressors=CODECS[codecs])
    layout = source.X.data if sparse else source.X.dense
    assert layout.compressor == {"raw": "none", "checksums": "none"}.get(codecs, codecs.split()[0])
    assert layout.checksums == codecs.endswith("checksums")
    found_X, found_Y = collect(source)
    assert np.array_equal(found_X, X)
    assert np.array_equal(found_Y, Y)
    part_X, _ = collect(source, 1, 3)
    assert np.array_equal(part_X, X[10:27])
    assert np.array_equal(source.all_labels().toarray(), Y)


DAMAGE = {
    "values": (lambda content: content[:3] + bytes([content[3] ^ 1]) + content[4:], "chunk 0 of shard 1 differs"),
    "index": (lambda content: content[:-1] + b"x", "the index of shard 1 differs"),
    "cut": (lambda content: content[:20], "shard 1 ends before its index|shard 1 .*cut"),
    "empty": (lambda content: b"", "shard 1 ends before its index|shard 1 .*cut"),
    "absent": (None, "X/c/1/0 is missing|No such file .*X/c/1/0"),
}


@pytest.mark.parametrize("damage", DAMAGE)
@pytest.mark.parametrize("place", ["local", "memory"])
def test_damage_of_a_shard_is_named(tmp_path, place, damage):
    """An absent one is no shard of zeros."""
    change, said = DAMAGE[damage]
    store = str(tmp_path) if place == "local" else f"memory://damaged-{damage}"
    source = make_store(store, *matrices(), (6, 12), sparse=False, compressors=Crc32cCodec())
    objects = open_objects(store)
    if change is None:
        fsspec.filesystem("file" if place == "local" else "memory").rm_file(f"{store}/X/c/1/0")
    else:
        objects.write("X/c/1/0", change(objects.read("X/c/1/0")))
    with pytest.raises(DataError, match=f"the store is damaged: .*({said}).*in partition 1 ") as caught:
        collect(source)
    assert "mlfs inspect --verify" in str(caught.value)
    assert store in str(caught.value)


def test_damage_within_a_request_is_told_of_its_own_partition():
    source = make_store("memory://within", *matrices(), (6, 12), sparse=False, shard=30, compressors=Crc32cCodec())
    objects = open_objects("memory://within")
    content = bytearray(objects.read("X/c/0/0"))
    content[2 * (3 * 5 * 4 + 4)] ^= 1
    objects.write("X/c/0/0", bytes(content))
    with pytest.raises(DataError, match="chunk 2 of shard 0 differs from its checksum, in partition 1 "):
        collect(source)


@settings(max_examples=40)
@given(st.data())
def test_any_rows_of_any_chunks(tmp_path_factory, data):
    n, width = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    chunk = data.draw(st.integers(1, 8))
    shard = chunk * data.draw(st.integers(1, 4))
    values = np.arange(1, n * width + 1, dtype=np.int32).reshape(n, width)
    values[data.draw(st.lists(st.integers(0, n - 1)))] = 0
    folder = tmp_path_factory.mktemp("chunks")
    compressors = data.draw(st.sampled_from(list(CODECS.values())))
    group = zarr.open_group(folder, mode="w")
    layout = write_array(group, "a", values, chunk=chunk, shard=shard, compressors=compressors)
    reader = ArrayReader(StoreLocation(str(folder), {}), layout)
    for _ in range(3):
        start = data.draw(st.integers(0, n))
        stop = data.draw(st.integers(start, n))
        out = np.full((stop - start, width), -1, dtype=np.int32)
        reader.read(start, stop, out)
        assert np.array_equal(out, values[start:stop])
    reader.close()


@pytest.mark.parametrize("sparse", [False, True])
def test_every_chunk_is_read_once(tmp_path, monkeypatch, sparse):
    """Also those within which blocks end, and of which checksums need all."""
    import os

    X, Y = matrices(n=60)
    source = make_store(tmp_path, X, Y, (), sparse=sparse, shard=30, compressors=Crc32cCodec(), block_bytes=200)
    assert (source.X.data or source.X.dense).checksums
    offsets = []
    plain = os.preadv

    def preadv(descriptor, buffers, offset):
        offsets.append((Path(f"/proc/self/fd/{descriptor}").readlink(), offset))
        return plain(descriptor, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)
    found_X, found_Y = collect(source)
    assert np.array_equal(found_X, X)
    assert np.array_equal(found_Y, Y)
    assert len(offsets) == len(set(offsets))


def test_absent_inner_chunks_are_zeros(tmp_path):
    values = np.zeros((8, 2), dtype=np.int32)
    values[2] = 7
    group = zarr.open_group(tmp_path, mode="w")
    array = group.create_array("a", shape=(8, 2), chunks=(2, 2), shards=(8, 2), dtype="i4", compressors=None)
    array[...] = values
    reader = ArrayReader(StoreLocation(str(tmp_path), {}), layout_of(array, "a"))
    out = np.full((8, 2), -1, dtype=np.int32)
    reader.read(0, 8, out)
    reader.close()
    assert np.array_equal(out, values)


def test_requests_overlap_and_are_bounded():
    """Shards of 4 chunks; the index of a shard is its number."""
    together, requested = threading.Barrier(3), []

    def read(index, shard, first, last):
        requested.append((shard, first))
        together.wait(20)
        return [np.array([index.result() * 4 + chunk]) for chunk in range(first, last)]

    chunks = ChunksAhead(4, lambda shard: shard, read, Window(3, 1))
    chunks.expect(0, 9)
    assert chunks._ahead[-1].result(20) == [[2]]
    assert sorted(requested) == [(0, 0), (0, 1), (0, 2)], "no more than that until one is taken"
    assert [chunks.take() for _ in range(9)] == [[number] for number in range(9)]
    assert len(requested) == 9
    chunks.expect(1, 4)  # another place
    assert chunks.take() == [1]
    chunks.close()
