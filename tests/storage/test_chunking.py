"""Plans are integers: forms, shapes and bytes by hand, and bounds for any input."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.storage.chunking import (
    BATCH_MULTIPLE,
    CHUNK_BYTES,
    CHUNK_NONZEROS,
    MAX_BATCH,
    MAX_PARTITIONS,
    MIN_BATCH,
    PROCESS_BYTES,
    ArrayChunking,
    chunk_store,
    narrowest_dtype,
    plan_conversion,
    plan_workers,
)

MIB = 1 << 20


def test_imports_neither_dask_nor_zarr() -> None:
    code = "import sys, mlfs_dask.storage.chunking; print(sorted({'dask', 'zarr', 'numpy'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


def test_small_data_has_one_partition_no_larger_than_itself() -> None:
    plan = chunk_store(n=593, d=72, q=6, nonzeros=42_556, label_nonzeros=1108, itemsize=8, longest_row=72)
    assert not plan.X.sparse
    assert plan.X.values == ArrayChunking(length=593, chunk=593, shard=593, item_bytes=576)
    assert not plan.Y.sparse
    assert plan.Y.values.shards == 1


def test_large_dense_data() -> None:
    plan = chunk_store(
        n=2_000_000, d=1000, q=100, nonzeros=2 * 10**9, label_nonzeros=6_000_000, itemsize=4, longest_row=1000
    )
    values = plan.X.values
    assert 40e6 <= values.shard * 4000 <= 64.1e6
    assert values.chunk * 4000 <= CHUNK_BYTES
    assert values.shard % values.chunk == 0
    assert plan.Y.sparse


@pytest.mark.parametrize("sparse", [False, True])
def test_the_number_of_partitions_is_bounded(*, sparse: bool) -> None:
    """100 TB: the root metadata name every object."""
    n, nonzeros = (25 * 10**9, 25 * 10**12) if not sparse else (10**11, 125 * 10**11)
    plan = chunk_store(
        n=n,
        d=1000 if not sparse else 10**5,
        q=100,
        nonzeros=nonzeros,
        label_nonzeros=3 * n,
        itemsize=4,
        longest_row=1000,
        partition_bytes=10**6,
    )
    assert plan.X.sparse == sparse
    assert 0.9 * MAX_PARTITIONS <= plan.X.values.shards <= MAX_PARTITIONS


@pytest.mark.parametrize(
    ("nonzeros", "sparse"),
    # d = 100 uint8, n = 100: dense 10 000 bytes, CSR 5 a nonzero + 800.
    [(0, True), (840, True), (841, False), (10_000, False)],
)
def test_sparse_where_csr_takes_at_most_half(nonzeros: int, sparse: bool) -> None:
    plan = chunk_store(n=100, d=100, q=1, nonzeros=nonzeros, label_nonzeros=0, itemsize=1, longest_row=100)
    assert plan.X.sparse is sparse


@pytest.mark.parametrize(("storage", "sparse"), [("dense", False), ("sparse", True)])
def test_storage_on_request(storage: str, sparse: bool) -> None:
    plan = chunk_store(n=10, d=10, q=1, nonzeros=50, label_nonzeros=0, itemsize=8, longest_row=10, storage=storage)
    assert plan.X.sparse is sparse


@given(
    n=st.integers(1, 10**8),
    d=st.integers(1, 10**6),
    q=st.integers(1, 10**5),
    density=st.floats(0, 1),
    itemsize=st.sampled_from([1, 2, 4, 8]),
    partition_bytes=st.integers(1, 10**9),
    storage=st.sampled_from(["auto", "dense", "sparse"]),
)
def test_shapes_for_any_input(
    n: int, d: int, q: int, density: float, itemsize: int, partition_bytes: int, storage: str
) -> None:
    nonzeros = int(n * d * density)
    longest = min(d, nonzeros)
    plan = chunk_store(
        n=n,
        d=d,
        q=q,
        nonzeros=nonzeros,
        label_nonzeros=n * q // 7,
        itemsize=itemsize,
        longest_row=longest,
        storage=storage,
        partition_bytes=partition_bytes,
    )
    for matrix in (plan.X, plan.Y):
        for cut in (matrix.values, matrix.offsets):
            if cut is None:
                continue
            assert 1 <= cut.chunk <= cut.shard
            assert cut.shard % cut.chunk == 0
            assert cut.shards * cut.shard >= cut.length
            assert (cut.shards - 1) * cut.shard < max(cut.length, 1)
            # Padding never exceeds one entry a chunk.
            assert cut.shard <= max(cut.length, 1) + cut.shard // cut.chunk
    values = plan.X.values
    if plan.X.sparse:
        assert values.chunk <= CHUNK_NONZEROS
        assert values.shard >= min(longest, values.length)
    else:
        assert values.chunk == 1 or values.chunk * d * itemsize <= CHUNK_BYTES


def test_bytes_on_disk() -> None:
    # 10 rows of 8 bytes in chunks of 4: 3 chunks with 4 bytes of checksum, 2 shards of 2 chunks with 16 bytes a chunk
    # + 4 each.
    assert ArrayChunking(length=10, chunk=4, shard=8, item_bytes=8).bytes == 3 * (4 * 8 + 4) + 2 * (2 * 16 + 4)


@pytest.mark.parametrize(
    ("low", "high", "integers", "missing", "single", "dtype"),
    [
        (0, 1, True, False, True, "uint8"),
        (0, 255, True, False, True, "uint8"),
        (0, 256, True, False, True, "int16"),
        (-1, 0, True, False, True, "int16"),
        (0, 2**15, True, False, True, "int32"),
        (-(2**15), 0, True, False, True, "int16"),
        (-(2**31), 0, True, False, True, "int32"),
        (0, 2**31, True, False, True, "float32"),
        (0, 2**31 + 1, True, False, False, "float64"),
        (0, 1, True, True, True, "float32"),
        (0, 1, False, False, True, "float32"),
        (0, 1, False, False, False, "float64"),
    ],
)
def test_narrowest_dtype(low: float, high: float, integers: bool, missing: bool, single: bool, dtype: str) -> None:
    found = narrowest_dtype(minimum=low, maximum=high, integers=integers, missing=missing, fits_float32=single)
    assert found == dtype


def test_small_sources_are_read_by_the_calling_process() -> None:
    facts = {"memory_limit": 2**33, "workers": 8, "base_bytes": 60 * MIB}
    assert plan_workers(source_bytes=MAX_BATCH, **facts) == 1
    assert plan_workers(source_bytes=2**31, **facts) == 8
    assert plan_workers(source_bytes=None, **facts) == 8


def test_fewer_processes_where_memory_is_short() -> None:
    limit = 60 * MIB + 2 * (PROCESS_BYTES + BATCH_MULTIPLE * MIB)
    facts = {"workers": 8, "source_bytes": 2**31, "base_bytes": 60 * MIB}
    assert plan_workers(memory_limit=limit, **facts) == 2
    assert plan_workers(memory_limit=limit - 1, **facts) == 1


def test_threads_share_what_a_process_loads() -> None:
    limit = PROCESS_BYTES + 3 * BATCH_MULTIPLE * MIB
    facts = {"workers": 8, "source_bytes": 2**31, "base_bytes": 60 * MIB, "threads": True}
    assert plan_workers(memory_limit=limit, **facts) == 3
    assert plan_workers(memory_limit=limit - 1, **facts) == 2
    # What the reader loads is known only afterwards: then there may be room for the calling thread alone.
    late = plan_conversion(memory_limit=200 * MIB, workers=8, base_bytes=170 * MIB, threads=True)
    assert late.workers == 1
    assert late.total_bytes <= 200 * MIB


@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize("workers", [1, 2, 4])
def test_batches_fill_the_limit(workers: int, threads: bool) -> None:
    limit = (60 + 200 * workers if threads else 300 * workers) * MIB
    plan = plan_conversion(memory_limit=limit, workers=workers, base_bytes=60 * MIB, n_features=1000, threads=threads)
    assert MIN_BATCH <= plan.batch_bytes <= MAX_BATCH
    assert plan.total_bytes <= limit
    assert plan.workers == workers


def test_what_does_not_fit() -> None:
    message = r"one process: projected 187.5 MiB .*\n.*--memory-limit 188MiB"
    with pytest.raises(DoesNotFitError, match=message) as raised:
        plan_conversion(memory_limit=100 * MIB, workers=1, base_bytes=160 * MIB)
    assert raised.value.exit_code == 4
    needed = raised.value.projected
    assert plan_conversion(memory_limit=needed, workers=1, base_bytes=160 * MIB).batch_bytes == MIN_BATCH


@pytest.mark.parametrize(("workers", "threads"), [(1, True), (2, True), (2, False)])
def test_the_table_of_quantiles_is_planned_once(workers: int, threads: bool) -> None:
    """23 numbers of each of 65 536 features are 12 MiB, twice while they are made; of more features none is kept."""
    held = []
    for d in (2**16, 2**16 + 1):
        how = {"workers": workers, "threads": threads, "base_bytes": 60 * MIB, "n_features": d}
        plan = plan_conversion(memory_limit=1 << 40, **how)
        held.append(plan.total_bytes - workers * 200 * d)
    assert held[0] - held[1] == 400 * 2**16
