"""What checking costs: passes that compare every chunk with its CRC-32C, and offsets and column indices by their range,
and ones that do not.

    python benchmarks/checksums.py [--folder DIR]

Stores of 0.25 GB are made in the folder on first use; then it takes a minute or two. The two kinds take turns in one
process, warm, with one thread for every core, and each is first in every second pair. What is added is the median over
the pairs, with the quartiles beside it; of the processor it is that of all threads, which other work on the machine
changes less. The last rows are CRC-32C alone, of 256 KiB again and again, by the package that is used and by the one
that Zarr brings. The tables are put into benchmarks/results/benchmarks.md, and the figures beside it into
checksums.json.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from measuring import RESULTS, in_process, report, warm_pages
from real_sets import replace_table

PAIRS = 12
CRC_BYTES, CRC_TURNS = 256 * 2**10, 3000

PASS = """
import time
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask.storage import store_reader
from mlfs_dask.storage.opening import open_dataset

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
    get_estimator({method!r})(n_features_to_select=10, **{parameters}).fit(dataset)
    return time.perf_counter() - started, time.process_time() - used

run(checks)  # loads the kernels
pairs = []
for number in range({pairs}):
    kinds = (checks, no_checks) if number % 2 else (no_checks, checks)
    found = {{kind is checks: run(kind) for kind in kinds}}
    pairs.append((found[True], found[False]))
facts = {{"pairs": pairs, "seconds": pairs[0][0][0]}}
"""


def compare(store: Path, method: str, **parameters: Any) -> dict[str, Any]:
    """Seconds of a reading with the checks and without, and the share that the checks add: its quartiles."""
    warm_pages(store)
    code = PASS.format(method=method, parameters=parameters, store=str(store), pairs=PAIRS)
    pairs = np.array(in_process(code, repeats=1)["pairs"])
    facts: dict[str, Any] = {}
    for place, name in enumerate(("seconds", "cpu_seconds")):
        checked, plain = pairs[:, 0, place], pairs[:, 1, place]
        facts |= {name: float(np.median(checked)), f"{name}_unchecked": float(np.median(plain))}
        facts[f"{name}_added"] = np.quantile(checked / plain - 1, (0.25, 0.5, 0.75)).tolist()
    return facts


def crc_rate(function: Callable[[bytes], int]) -> dict[str, Any]:
    """GB a second of a checksum, of bytes in the processor's cache."""
    content = np.random.default_rng(0).bytes(CRC_BYTES)
    rates = []
    for _ in range(CRC_TURNS):
        started = time.perf_counter()
        function(content)
        rates.append(CRC_BYTES / (time.perf_counter() - started) / 1e9)
    return {"GB_s": np.quantile(rates, (0.25, 0.5, 0.75)).tolist()}


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The rows as Markdown."""
    lines = ["| pass | time | quartiles | processor | quartiles |", "| --- | ---: | ---: | ---: | ---: |"]
    for name, facts in rows.items():
        if "GB_s" in facts:
            continue
        cells = []
        for kind in ("seconds_added", "cpu_seconds_added"):
            low, middle, high = facts[kind]
            cells += [f"{middle:+.1%}", f"{low:+.1%} to {high:+.1%}"]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    lines += ["", "| CRC-32C alone | GB/s | quartiles |", "| --- | ---: | ---: |"]
    for name, facts in rows.items():
        if "GB_s" in facts:
            low, middle, high = facts["GB_s"]
            lines.append(f"| {name} | {middle:.0f} | {low:.0f} to {high:.0f} |")
    return "\n".join(lines)


def main(folder: Path) -> None:
    import google_crc32c
    from synthetic import make_store

    from mlfs_dask.storage.digest import crc32c

    folder.mkdir(parents=True, exist_ok=True)
    dense = make_store(folder / "checksums-dense.zarr", 62_500, 1000, 100)
    sparse = make_store(folder / "checksums-sparse.zarr", 500_000, 20_000, 100, nonzeros=60)
    rows = {
        "elc, dense": compare(dense, "elc", variant="screen"),
        "label-entropy, 8 codes, dense": compare(dense, "label-entropy", bins=8, n_promising_labels=1.0),
        "elc, sparse": compare(sparse, "elc", variant="screen"),
        "label-entropy, sparse": compare(sparse, "label-entropy", n_promising_labels=1.0),
        "fastcrc": crc_rate(crc32c),
        "google-crc32c": crc_rate(google_crc32c.value),
    }
    report(
        "checksums",
        RESULTS,
        "checksums",
        "62 500 x 1 000 float32, and 500 000 x 20 000 sparse with 60 nonzeros a row; 100 labels; warm",
        rows,
    )
    replace_table(Path(__file__).parent / "results" / "benchmarks.md", "checksums", table(rows))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    arguments = parser.parse_args()
    main(arguments.folder)
