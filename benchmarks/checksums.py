"""What checking costs: passes that compare every chunk with its CRC-32C, and offsets and column indices, and ones that
do not.

    python benchmarks/checksums.py [--folder DIR]

Stores of 2 GB (dense) and 1 GB (sparse) are made in the folder on first use. Each figure is the median of fresh
processes, warm, the two kinds in turn, with one thread for every core; `cpu_seconds` are those of the pass on all
threads, which other work on the machine changes less. Results are printed and written to
benchmarks/results/checksums.json.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from measuring import RESULTS, in_process, report, warm_pages

REPEATS = 5

PASS = """
import time
import numpy as np
from mlfs_dask.selectors import get_method
from mlfs_dask.storage import store_reader
from mlfs_dask.storage.dataset import open_dataset

def read_unchecked(self, shard, chunk, offset, out):
    self._read_at(offset, out)

if not {checked}:
    store_reader.ArrayReader._read_checked = read_unchecked
    store_reader.indices_fault = store_reader.offsets_fault = lambda *arguments, **options: None
get_method({method!r})(n_features_to_select=10, **{parameters}).fit(open_dataset({small!r}))  # loads the kernels
dataset = open_dataset({store!r})
used, started = time.process_time(), time.perf_counter()
get_method({method!r})(n_features_to_select=10, **{parameters}).fit(dataset)
facts = {{"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - used}}
"""


def compare(store: Path, small: Path, method: str, **parameters: Any) -> dict[str, Any]:
    """Seconds of a pass with the checks and without, and what the checks add."""
    warm_pages(store)
    runs: dict[bool, list[dict[str, Any]]] = {True: [], False: []}
    for _ in range(REPEATS):
        for checked, found in runs.items():
            code = PASS.format(
                checked=checked, method=method, parameters=parameters, store=str(store), small=str(small)
            )
            found.append(in_process(code, repeats=1))
    facts: dict[str, Any] = {}
    for name in ("seconds", "cpu_seconds"):
        checked, plain = (statistics.median(run[name] for run in runs[kind]) for kind in (True, False))
        facts |= {name: checked, f"{name}_unchecked": plain, f"{name}_added": checked / plain - 1}
    return facts


def main(folder: Path) -> None:
    from synthetic import make_store

    folder.mkdir(parents=True, exist_ok=True)
    dense = make_store(folder / "checks-dense.zarr", 500_000, 1000, 100)
    sparse = make_store(folder / "checks-sparse.zarr", 2_000_000, 100_000, 100, nonzeros=60)
    small_dense = make_store(folder / "checks-small-dense.zarr", 20_000, 1000, 100)
    small_sparse = make_store(folder / "checks-small-sparse.zarr", 100_000, 100_000, 100, nonzeros=60)
    rows = {
        "label-entropy, 8 codes, dense": compare(dense, small_dense, "label-entropy", bins=8, n_promising_labels=1.0),
        "elc, dense": compare(dense, small_dense, "elc"),
        "label-entropy, sparse": compare(sparse, small_sparse, "label-entropy", n_promising_labels=1.0),
        "elc, sparse": compare(sparse, small_sparse, "elc"),
    }
    report(
        "checksums",
        RESULTS,
        "checksums",
        "500 000 x 1 000 float32 (2 GB), and 2 000 000 x 100 000 sparse with 60 nonzeros a row; 100 labels; warm",
        rows,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    main(parser.parse_args().folder)
