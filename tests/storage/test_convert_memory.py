"""A conversion stays under its memory limit, however large the file (see benchmarks/convert_memory.py)."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.opening import open_dataset

MIB = 1 << 20

# One conversion in a process of its own, after a tiny one that compiles what is not compiled yet.
SCRIPT = """
import json, sys
from pathlib import Path
from mlfs_dask import runtime
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.readers.base import LabelSpec

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


@pytest.mark.parametrize("suffix", ["csv", "svm"])
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
