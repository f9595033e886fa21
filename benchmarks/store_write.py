"""Speed of writing a dense X: shards laid down directly, through zarr-python, and a plain file.

    python benchmarks/store_write.py --megabytes 1000

Each way writes the same float32 values in shards of 64 MB with inner chunks of 8 MB, without a compressor,
to the same disk, and is measured with and without waiting for the disk.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import zarr

from mlfs_dask.runtime import peak_rss, reset_peak_rss
from mlfs_dask.storage.array_layout import ArrayLayout
from mlfs_dask.storage.zarr_format import write_shard

COLUMNS = 1000
CHUNK = 2097
SHARD = 8 * CHUNK


def write_plain(folder: Path, values: np.ndarray, rows: int) -> None:
    """One file, nothing but the bytes."""
    with (folder / "plain").open("wb", buffering=0) as file:
        for start in range(0, rows, CHUNK):
            file.write(values[: min(CHUNK, rows - start)].data)


def write_directly(folder: Path, values: np.ndarray, rows: int) -> None:
    """As `mlfs convert` does, digests included."""
    layout = ArrayLayout("X", (rows, COLUMNS), "float32", SHARD, CHUNK)
    for shard in range(layout.shards):
        path = folder / "direct" / layout.shard_key(shard)
        path.parent.mkdir(parents=True)

        def chunks(shard: int = shard) -> Iterator[np.ndarray]:
            for _ in layout.chunks(shard):
                yield values

        write_shard(path, chunks(), slots=SHARD // CHUNK, compressor="none")


def write_through_zarr(folder: Path, values: np.ndarray, rows: int) -> None:
    """A shard at a time, without digests."""
    layout = ArrayLayout("X", (rows, COLUMNS), "float32", SHARD, CHUNK)
    group = zarr.create_group(folder / "zarr")
    (folder / "zarr" / "X").mkdir()
    (folder / "zarr" / "X" / "zarr.json").write_bytes(layout.metadata({}))
    shard = np.concatenate([values] * (SHARD // CHUNK))
    for start in range(0, rows, SHARD):
        stop = min(start + SHARD, rows)
        group["X"][start:stop] = shard[: stop - start]


def measure(write: Callable[[Path, np.ndarray, int], None], folder: Path, rows: int) -> dict[str, float]:
    values = np.random.default_rng(0).normal(size=(CHUNK, COLUMNS)).astype("float32")
    os.sync()
    reset_peak_rss()
    before = peak_rss()
    start = time.perf_counter()
    write(folder, values, rows)
    written = time.perf_counter() - start
    os.sync()
    synced = time.perf_counter() - start
    gigabytes = rows * COLUMNS * 4 / 1e9
    return {
        "gb_per_second": round(gigabytes / written, 2),
        "gb_per_second_on_disk": round(gigabytes / synced, 2),
        "extra_mib": (peak_rss() - before) >> 20,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    arguments = parser.parse_args()
    rows = arguments.megabytes * 10**6 // (4 * COLUMNS)
    results: dict[str, object] = {"python": platform.python_version(), "zarr": zarr.__version__}
    for write in (write_plain, write_directly, write_through_zarr):
        folder = Path(tempfile.mkdtemp(dir=arguments.folder))
        try:
            results[write.__name__] = measure(write, folder, rows)
        finally:
            shutil.rmtree(folder)
    print(json.dumps(results, indent=2))


if __name__ == "__main__":
    main()
