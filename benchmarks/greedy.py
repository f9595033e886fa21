"""Readings, time and memory of the greedy selectors: k = 100 of 10 000 sparse 0/1 features for 100 labels.

    python benchmarks/greedy.py greedy    [--rows 1000000] [--methods d2f,jmi] [--folder DIR]

Rows are texts about topics, which are the labels (`planted`), or have features and labels that are independent
(`noise`): then no feature stands out, and the next choices are hard to foresee. The aim is at most k/5 = 20 readings,
on two workers of 2 GiB. Stores are made in the folder on first use; every figure is measured in a new cluster. Results
are printed as a table and written to benchmarks/results/greedy.json with the versions and the machine.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import measuring
import numpy as np
from measuring import GIB, in_cluster, plain_read, selection
from scipy.sparse import csr_array
from synthetic import PlantedReader, SyntheticReader

from mlfs_dask.storage.conversion_options import Options
from mlfs_dask.storage.convert import convert_reader

D, Q, K, NONZEROS = 10_000, 100, 100, 50

#: Method and parameters of every row of the table.
METHODS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: (name, {}) for name in ("pmu", "d2f", "mdmr", "jmi", "scls", "ami", "mrmr")},
    "mrmr miq": ("mrmr", {"criterion": "miq"}),
}


class WordReader(PlantedReader):
    """Planted texts whose features are 1 where the word is there."""

    def _texts(self, rng: np.random.Generator, rows: int) -> tuple[csr_array, np.ndarray]:
        X, Y = super()._texts(rng, rows)
        X.data[:] = 1
        return X, Y


def make_store(folder: Path, kind: str, n: int) -> Path:
    """The store of that kind and so many rows, made unless it is there."""
    path = folder / f"greedy-{kind}-{n}.zarr"
    if not path.exists():
        readers: dict[str, Callable[..., SyntheticReader]] = {"planted": WordReader, "noise": SyntheticReader}
        reader = readers[kind](n, D, Q, nonzeros=NONZEROS)
        convert_reader(lambda: reader, path, options=Options(compressor="none"), resume=False, force=True)
    return path


def greedy(folder: Path, n: int, methods: list[str]) -> None:
    """Methods on both stores, beside a plain read by the same workers; rows of other methods are kept."""
    description = (
        f"{n:,} x {D:,} sparse 0/1, {NONZEROS} nonzeros a row, {Q} labels of cardinality 2 to 3, k = {K}, for which at "
        f"most {K // 5} passes are the aim; two workers of 2 GiB"
    )
    rows: dict[str, dict[str, Any]] = {}
    path = measuring.RESULTS / "greedy.json"
    if path.exists() and (kept := json.loads(path.read_text()))["description"] == description:
        rows = kept["rows"]
    for kind in ("planted", "noise"):
        store = make_store(folder, kind, n)
        rows[f"da.from_zarr read, {kind}"] = in_cluster(plain_read(store), store, memory=2 * GIB, repeats=1)
        for label in methods:
            name, parameters = METHODS[label]
            fit = selection(name, store, k=K, **parameters)
            rows[f"{label}, {kind}"] = in_cluster(fit, store, memory=2 * GIB, repeats=1)
            measuring.report("greedy", measuring.RESULTS, "greedy", description, rows, f"--rows {n}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=["greedy"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--methods", default=",".join(METHODS))
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    greedy(arguments.folder, arguments.rows, arguments.methods.split(","))
