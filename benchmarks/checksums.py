"""What checking costs: passes that compare every chunk with its CRC-32C, and offsets and column indices, and ones that
do not.

    python benchmarks/checksums.py [--folder DIR]

Stores of 0.5 GB are made in the folder on first use. The two kinds take turns in one process, warm, with one thread for
every core; what is added is the median over the pairs, and `cpu_seconds` are those of the pass on all threads, which
other work on the machine changes less. Results are printed and written to benchmarks/results/checksums.json.
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path
from typing import Any

from measuring import RESULTS, in_process, report, warm_pages

PAIRS = 16

PASS = """
import time
from mlfs_dask.selectors import get_method
from mlfs_dask.storage import store_reader
from mlfs_dask.storage.dataset import open_dataset

checks = store_reader.ArrayReader._read_checked, store_reader.indices_fault, store_reader.offsets_fault
no_checks = (
    lambda self, shard, chunk, offset, out: self._read_at(offset, out),
    lambda *arguments, **options: None,
    lambda *arguments, **options: None,
)

def run(kind):
    store_reader.ArrayReader._read_checked, store_reader.indices_fault, store_reader.offsets_fault = kind
    dataset = open_dataset({store!r})
    used, started = time.process_time(), time.perf_counter()
    get_method({method!r})(n_features_to_select=10, **{parameters}).fit(dataset)
    return time.perf_counter() - started, time.process_time() - used

run(checks)  # loads the kernels
pairs = [(run(checks), run(no_checks)) for _ in range({pairs})]
facts = {{"pairs": pairs, "seconds": pairs[0][0][0]}}
"""


def compare(store: Path, method: str, **parameters: Any) -> dict[str, Any]:
    """Seconds of a pass with the checks and without, and what the checks add."""
    warm_pages(store)
    code = PASS.format(method=method, parameters=parameters, store=str(store), pairs=PAIRS)
    pairs = in_process(code, repeats=1)["pairs"]
    facts: dict[str, Any] = {}
    for place, name in enumerate(("seconds", "cpu_seconds")):
        checked, plain = ([kind[place] for kind in kinds] for kinds in zip(*pairs, strict=True))
        facts |= {name: statistics.median(checked), f"{name}_unchecked": statistics.median(plain)}
        facts[f"{name}_added"] = statistics.median(a / b - 1 for a, b in zip(checked, plain, strict=True))
    return facts


def main(folder: Path) -> None:
    from synthetic import make_store

    folder.mkdir(parents=True, exist_ok=True)
    dense = make_store(folder / "checks-dense.zarr", 125_000, 1000, 100)
    sparse = make_store(folder / "checks-sparse.zarr", 500_000, 100_000, 100, nonzeros=60)
    rows = {
        "label-entropy, 8 codes, dense": compare(dense, "label-entropy", bins=8, n_promising_labels=1.0),
        "elc, dense": compare(dense, "elc"),
        "label-entropy, sparse": compare(sparse, "label-entropy", n_promising_labels=1.0),
        "elc, sparse": compare(sparse, "elc"),
    }
    report(
        "checksums",
        RESULTS,
        "checksums",
        "125 000 x 1 000 float32, and 500 000 x 100 000 sparse with 60 nonzeros a row; 100 labels; warm",
        rows,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    main(parser.parse_args().folder)
