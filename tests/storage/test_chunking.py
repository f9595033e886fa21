"""Plans of a conversion: forms, shapes and bytes by hand, bounds for any input, and the memory that is measured."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.storage.chunking import (
    CHUNK_BYTES,
    CHUNK_NONZEROS,
    MAX_PARTITIONS,
    MIN_BATCH,
    chunk_store,
    plan_conversion,
)
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.opening import open_dataset

MIB = 1 << 20


def test_imports_neither_dask_nor_zarr() -> None:
    code = "import sys, mlfs_dask.storage.chunking; print(sorted({'dask', 'zarr', 'numpy'} & set(sys.modules)))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize("sparse", [False, True])
def test_the_number_of_partitions_is_bounded(*, sparse: bool) -> None:
    """100 TB: the root metadata name every object."""
    n, d, nonzeros = (10**11, 10**5, 125 * 10**11) if sparse else (25 * 10**9, 1000, 25 * 10**12)
    how = {"q": 100, "label_nonzeros": 3 * n, "dtype": "float32", "longest_row": 1000, "partition_bytes": 10**6}
    plan = chunk_store(n=n, d=d, nonzeros=nonzeros, **how)
    assert plan.is_sparse("X") == sparse
    assert 0.9 * MAX_PARTITIONS <= plan.values("X").shards <= MAX_PARTITIONS


@pytest.mark.parametrize(
    ("nonzeros", "sparse"),
    # d = 100 uint8, n = 100: dense 10 000 bytes, CSR 5 a nonzero + 800.
    [(0, True), (840, True), (841, False), (10_000, False)],
)
def test_sparse_where_csr_takes_at_most_half(nonzeros: int, sparse: bool) -> None:
    plan = chunk_store(n=100, d=100, q=1, nonzeros=nonzeros, label_nonzeros=0, dtype="uint8", longest_row=100)
    assert plan.is_sparse("X") is sparse


SIZES = {
    "n": st.integers(1, 10**8),
    "d": st.integers(1, 10**6),
    "q": st.integers(1, 10**5),
    "dtype": st.sampled_from(["uint8", "int16", "float32", "float64"]),
    "partition_bytes": st.integers(1, 10**9),
    "storage": st.sampled_from(["auto", "dense", "sparse"]),
}


@given(sizes=st.fixed_dictionaries(SIZES), density=st.floats(0, 1))
def test_shapes_for_any_input(sizes: dict[str, Any], density: float) -> None:
    n, d, itemsize = sizes["n"], sizes["d"], np.dtype(sizes["dtype"]).itemsize
    nonzeros = int(n * d * density)
    longest = min(d, nonzeros)
    plan = chunk_store(nonzeros=nonzeros, label_nonzeros=n * sizes["q"] // 7, longest_row=longest, **sizes)
    for cut in plan.arrays.values():
        assert 1 <= cut.chunk_rows <= cut.shard_rows
        assert cut.shard_rows % cut.chunk_rows == 0
        assert cut.shards * cut.shard_rows >= cut.shape[0]
        assert (cut.shards - 1) * cut.shard_rows < max(cut.shape[0], 1)
        # Padding never exceeds one entry a chunk.
        assert cut.shard_rows <= max(cut.shape[0], 1) + cut.shard_rows // cut.chunk_rows
    values = plan.values("X")
    if plan.is_sparse("X"):
        assert values.chunk_rows <= CHUNK_NONZEROS
        assert values.shard_rows >= min(longest, values.shape[0])
    else:
        assert values.chunk_rows == 1 or values.chunk_rows * d * itemsize <= CHUNK_BYTES


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


# One conversion in a process of its own, after a tiny one that compiles what is not compiled yet.
SCRIPT = """
import json, sys
from pathlib import Path
from mlfs_dask import runtime
from mlfs_dask.storage.convert import convert
from mlfs_dask.readers.base import LabelSpec

source, store, limit = sys.argv[1], sys.argv[2], int(sys.argv[3])
labels = LabelSpec(count=5) if source.endswith("csv") else LabelSpec()
runtime.reset_peak_rss()
made = convert(source, store, labels=labels, workers=1, memory_limit=limit)
print(json.dumps([runtime.peak_rss(), made.projected_bytes, made.schema.n]))
"""


def write_file(path: Path, blocks: int) -> int:
    """Rows of 50 values, repeated; returns the number of rows."""
    generator = np.random.default_rng(0)
    lines = []
    for _ in range(2000):
        values = generator.normal(size=50)
        if path.suffix == ".csv":
            lines.append(",".join(f"{v:.5f}" for v in values) + ",0,1,0,0,1")
        else:
            columns = np.sort(generator.choice(3000, 50, replace=False)) + 1
            lines.append("1,3 " + " ".join(f"{c}:{v:.5f}" for c, v in zip(columns, values, strict=True)))
    block = "\n".join(lines) + "\n"
    header = ",".join([*(f"f{i}" for i in range(50)), *(f"y{i}" for i in range(5))]) + "\n"
    with path.open("w") as file:
        file.write(header if path.suffix == ".csv" else "")
        for _ in range(blocks):
            file.write(block)
    return 2000 * blocks


def peak(source: Path, store: Path, limit: int) -> tuple[int, int, int]:
    shown = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(source), str(store), str(limit)], capture_output=True, text=True, check=False
    )
    assert shown.returncode == 0, shown.stderr
    measured, projected, n = json.loads(shown.stdout)
    return measured, projected, n


@pytest.mark.parametrize("suffix", ["csv", pytest.param("svm", marks=pytest.mark.nightly)])
def test_peak_does_not_grow_with_the_file(tmp_path: Path, suffix: str) -> None:
    if suffix == "csv":
        pytest.importorskip("pyarrow")
    small, large = tmp_path / f"small.{suffix}", tmp_path / f"large.{suffix}"
    write_file(small, 1)
    rows = write_file(large, 70)
    peak(small, tmp_path / "warm.zarr", 512 * MIB)  # compiles once
    base, _, _ = peak(small, tmp_path / "small.zarr", 512 * MIB)
    # How many pages of LLVM are in memory, 70 to 130 MiB, is the kernel's choice: the limit goes with what is held.
    limit = base + 48 * MIB
    measured, projected, n = peak(large, tmp_path / "large.zarr", limit)
    assert n == rows
    assert projected <= limit
    assert measured <= limit
    # 70 times the file (its values alone are 56 MB), and no more than the batches that the plan allows.
    assert large.stat().st_size > 50 * MIB
    assert measured - base < 100 * MIB


def test_features_without_names_take_a_few_dozen_bytes_each(tmp_path: Path) -> None:
    """Names are made up where they are written, and no list of millions of texts or numbers is held."""
    d = 1 << 20
    (tmp_path / "wide.svm").write_text(f"0 1:1 {d}:1\n1 2:1 {d}:2\n")
    tracemalloc.start()
    try:
        made = convert(tmp_path / "wide.svm", tmp_path / "wide.zarr", workers=1, memory_limit=1 << 32)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    names = open_dataset(made.store).feature_names
    assert (len(names), names[0], names[-1]) == (d, "x0", f"x{d - 1}")
    assert peak < 160 * d
