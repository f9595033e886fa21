"""Streaming a store whose arrays zarr-python has written: plain, compressed, local and at a URL."""

from __future__ import annotations

import functools
import http.server
import json
import pickle
import queue
import re
import struct
import threading
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import sparse as sp
from zarr.codecs import BloscCodec, Crc32cCodec, ZstdCodec
from zarr.core.buffer import default_buffer_prototype

from mlfs_dask.errors import DataError
from mlfs_dask.storage.digest import crc32c
from mlfs_dask.storage.object_store import open_objects
from mlfs_dask.storage.store_reader import (
    MAX_REQUESTS,
    REQUESTS,
    ArrayLayout,
    ArrayReader,
    MatrixLayout,
    StoreLocation,
    StoreRows,
)
from mlfs_dask.typing import FeatureInfo

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


def test_sparse_blocks_are_views_of_the_buffers(tmp_path):
    """SciPy copies arrays that it takes for small parts of others."""
    source = make_store(tmp_path, *matrices(), (10, 11, 27), sparse=True)
    for block in source.stream(0, 4):
        if block.X.nnz * 8 > source.block_bytes // 2:
            assert not block.X.indices.flags.owndata
            assert not block.X.data.flags.owndata


def test_dense_labels_are_not_numbered_all_at_once(tmp_path):
    X, Y = np.zeros((50_000, 1), np.float32), np.ones((50_000, 40), np.int8)
    source = make_store(tmp_path, X, Y, (), sparse=False, chunk=50_000, shard=50_000)
    tracemalloc.start()
    try:
        block = next(iter(source.stream(0, 1)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert block.Y.sum() == 40 * block.Y.shape[0]
    # The dense labels, and twice 5 bytes an entry while the parts are put together.
    assert peak < 1.2 * (1 + 2 * 5) * Y.size


class Web(http.server.SimpleHTTPRequestHandler):
    """Ranges of the files of a folder; what was asked for is noted."""

    requested: queue.Queue[str]

    def log_message(self, *_):
        pass

    def do_GET(self):
        self.requested.put(self.path)
        content = Path(self.translate_path(self.path)).read_bytes()
        start, stop = re.fullmatch(r"bytes=(\d*)-(\d*)", self.headers["Range"]).groups()
        part = content[int(start) : int(stop) + 1] if start else content[-int(stop) :]
        self.send_response(206)
        self.send_header("Content-Length", str(len(part)))
        self.end_headers()
        self.wfile.write(part)


@pytest.fixture
def web(tmp_path):
    """Address of a server of the test's folder, and the paths that were asked for."""
    pytest.importorskip("aiohttp", reason="aiohttp is not installed (extra `cloud`)")
    handler = type("Handler", (Web,), {"requested": queue.Queue()})
    serve = functools.partial(handler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), serve) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}", handler.requested
        server.shutdown()
        thread.join()


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
def test_the_next_partition_is_requested_while_one_is_worked_on(tmp_path, web):
    address, requested = web
    X, Y = matrices()
    source = make_store(tmp_path, X, Y, (6, 12, 18), sparse=False, compressors=Crc32cCodec())
    source = replace(source, location=StoreLocation(address, {}))
    blocks = source.stream(0, 4)
    first = next(blocks)
    assert first.X.shape[0] == 3, "half of the partition"
    while requested.get(timeout=20) != "/X/c/1/0":
        pass
    rest = [(block.X.copy(), block.Y.toarray()) for block in blocks]
    assert np.array_equal(np.concatenate([x for x, _ in rest]), X[first.X.shape[0] :])
    assert np.array_equal(np.concatenate([y for _, y in rest]), Y[first.X.shape[0] :])


def test_chunks_of_a_remote_shard_may_lie_in_any_order():
    X, Y = matrices()
    source = make_store("memory://reversed", X, Y, (10,), sparse=False, compressors=Crc32cCodec())
    objects = open_objects("memory://reversed")
    for shard in range(5):
        content = objects.read(f"X/c/{shard}/0")
        size = 3 * 5 * 4 + 4
        index = np.frombuffer(content[2 * size : -4], "<u8").reshape(2, 2)[::-1].tobytes()
        mirrored = content[size : 2 * size] + content[:size] + index
        objects.write(f"X/c/{shard}/0", mirrored + struct.pack("<I", crc32c(index)))
    found, _ = collect(source)
    assert np.array_equal(found, X)


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda content: content[:3] + bytes([content[3] ^ 1]) + content[4:], "chunk 0 of shard 1 differs"),
        (lambda content: content[:-1] + b"x", "the index of shard 1 differs"),
        (lambda content: content[:20], "shard 1 ends before its index"),
        (None, "X/c/1/0 is missing"),
    ],
    ids=["values", "index", "cut", "absent"],
)
def test_damage_of_a_remote_shard_is_named(damage, said):
    place = f"memory://damaged-{said}"
    source = make_store(place, *matrices(), (6, 12), sparse=False, compressors=Crc32cCodec())
    objects = open_objects(place)
    if damage is None:
        objects.filesystem.rm_file(f"{objects.root}/X/c/1/0")
    else:
        objects.write("X/c/1/0", damage(objects.read("X/c/1/0")))
    with pytest.raises(DataError, match=f"the store is damaged: .*{said}.*in partition 1 "):
        collect(source)


@pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("codecs", ["checksums", "zstd with checksums"])
def test_neighbouring_chunks_come_in_one_request(tmp_path, web, codecs):
    address, requested = web
    X, Y = matrices(n=60)
    source = make_store(tmp_path, X, Y, (20, 40), sparse=True, shard=30, compressors=CODECS[codecs])
    found, _ = collect(replace(source, location=StoreLocation(address, {})))
    assert np.array_equal(found, X)
    paths = [requested.get() for _ in range(requested.qsize())]
    shards = -(-source.X.data.shape[0] // 30)
    for key in ("data", "indices"):
        # Ten chunks each, and an index.
        assert sorted(path for path in paths if path.startswith(f"/X/{key}/")) == sorted(
            f"/X/{key}/c/{shard}" for shard in range(shards) for _ in range(2)
        )


def test_damage_within_a_request_is_told_of_its_own_partition():
    source = make_store("memory://within", *matrices(), (6, 12), sparse=False, shard=30, compressors=Crc32cCodec())
    objects = open_objects("memory://within")
    content = bytearray(objects.read("X/c/0/0"))
    content[2 * (3 * 5 * 4 + 4)] ^= 1
    objects.write("X/c/0/0", bytes(content))
    with pytest.raises(DataError, match="chunk 2 of shard 0 differs from its checksum, in partition 1 "):
        collect(source)


def test_what_is_requested_ahead_is_planned(tmp_path):
    X, Y = matrices()
    near = make_store(tmp_path, X, Y, (10,), sparse=False, compressors=Crc32cCodec())
    far = replace(near, location=StoreLocation("memory://nowhere", {}))
    labels = (2 + 2 - 1) * (3 * 3)
    # All 10 chunks of X, two of Y, one request more that is read from, and one in pieces; of the local store a chunk.
    assert far.window(far.X.dense) == (MAX_REQUESTS, 2), "a shard each"
    assert far.profile.buffer_bytes - near.profile.buffer_bytes == (10 + 2 - 1) * (3 * 5 * 4) + labels
    assert (far.profile.remote, near.profile.remote) == (True, False)
    tall = replace(far.X.dense, shape=(2**30, 5), shard_rows=2**21, chunk_rows=2**15)
    near, far = (replace(each, X=MatrixLayout(tall.shape, dense=tall)) for each in (near, far))
    assert far.window(tall) == (REQUESTS, 12)
    ahead = (REQUESTS + 2) * 12 * tall.chunk_bytes  # what is on the way, what is read from, what is joined
    assert far.profile.buffer_bytes - near.profile.buffer_bytes == ahead - tall.chunk_bytes + labels


def test_few_requests_for_much_are_on_the_way(tmp_path):
    X, Y = matrices()
    dense = make_store(tmp_path / "dense", X, Y, (10,), sparse=False)
    wide = replace(dense.X.dense, shard_rows=2**23, chunk_rows=2**23)
    assert replace(dense, X=MatrixLayout(wide.shape, dense=wide)).window(wide) == (2, 1)
    sparse = make_store(tmp_path / "sparse", X, Y, (10,), sparse=True)
    data, indices = (replace(each, chunk_rows=2**18, shard_rows=2**24) for each in (sparse.X.data, sparse.X.indices))
    sparse = replace(sparse, X=replace(sparse.X, data=replace(data, dtype="|u1"), indices=indices))
    # Four times as many bytes of indices as of values, for the same chunks.
    assert sparse.window(sparse.X.data) == sparse.window(sparse.X.indices) == (REQUESTS, 6)
    assert sparse.window(sparse.X.indptr) == (2, 1)


def test_a_row_longer_than_a_block(tmp_path):
    X = np.ones((4, 50), dtype=np.float32)
    source = make_store(tmp_path, X, np.ones((4, 2), np.int8), (2,), sparse=True, block_bytes=16)
    found, _ = collect(source)
    assert np.array_equal(found, X)


def test_workers_get_places_not_data(tmp_path):
    X, Y = matrices()
    source = make_store(tmp_path, X, Y, (10,), sparse=False)
    source = StoreRows(**{**vars(source), "driver_features": FeatureInfo(np.zeros(10**6))})
    text = pickle.dumps(source)
    assert len(text) < 4000
    found_X, _ = collect(pickle.loads(text))
    assert np.array_equal(found_X, X)


def test_profile_counts_bytes(tmp_path):
    X, Y = matrices()
    dense = make_store(tmp_path / "dense", X, Y, (10,), sparse=False).profile
    assert (dense.n, dense.d, dense.q, dense.partitions) == (29, 5, 3, 2)
    assert dense.read_bytes == X.nbytes + Y.nbytes
    sparse = make_store(tmp_path / "sparse", X, Y, (10,), sparse=True).profile
    assert sparse.nonzeros == np.count_nonzero(X)
    assert sparse.label_nonzeros == np.count_nonzero(Y)
    assert sparse.read_bytes == 8 * sparse.nonzeros + 8 * 29 + 5 * sparse.label_nonzeros + 8 * 29


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


@pytest.mark.parametrize("cut", [0, 3, 30, 60])
def test_a_shard_cut_short_is_damage(tmp_path, cut):
    X, Y = matrices()
    source = make_store(tmp_path, X, Y, (10,), sparse=False)
    shard = tmp_path / "X/c/0/0"
    shard.write_bytes(shard.read_bytes()[:cut])
    with pytest.raises(DataError, match="the store is damaged") as caught:
        collect(source)
    assert "mlfs inspect --verify" in str(caught.value)
    assert str(tmp_path) in str(caught.value)


@pytest.mark.parametrize("compressors", [None, "auto"], ids=["raw", "compressed"])
def test_an_absent_shard_is_damage_not_zeros(tmp_path, compressors):
    X, Y = matrices()
    source = make_store(tmp_path, X, Y, (10,), sparse=False, compressors=compressors)
    (tmp_path / "X/c/1/0").unlink()
    with pytest.raises(DataError, match="the store is damaged"):
        collect(source)


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


def test_leaving_early_stops_reading(tmp_path):
    X, Y = matrices()
    source = make_store(tmp_path, X, Y, (10, 20), sparse=False)
    blocks = source.stream(0, 3)
    next(blocks)
    blocks.close()
    assert not any(t.name.startswith("mlfs-read") for t in threading.enumerate())
