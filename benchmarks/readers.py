"""Readers beside the libraries that they stand in for: seconds of a core, and bytes held, to see every row once.

    python benchmarks/readers.py [--folder DIR]

Files are made in the folder on first use: X of 50 000 x 500 doubles (191 MiB) as .mat and .npz, and a sparse X of 100
values in each of 100 000 rows as .mat. Each is read in a process of its own; what it holds is its peak less what it
held before. Results are printed.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
from measuring import brief, in_process
from scipy import io
from scipy import sparse as sp

TURNS = 5

READ = """
import time
import numpy as np
import scipy.io
import scipy.sparse
from mlfs_dask import runtime
from mlfs_dask.formats.detect import open_source

def own(path):
    reader = open_source([path])
    for part in reader.parts(2**26):
        for batch in reader.read(part, batch_bytes=2**23):
            pass

def library(path):
    if path.endswith(".npz"):
        with np.load(path) as arrays:
            held = [arrays[name] for name in arrays.files]
    else:
        held = scipy.io.loadmat(path)

runtime.reset_peak_rss()
before, used = runtime.current_rss(), time.process_time()
{kind}({path!r})
facts = {{"seconds": time.process_time() - used, "held_MiB": (runtime.peak_rss() - before) / 2**20}}
"""


def make_files(folder: Path) -> dict[str, Path]:
    """The files by their names, made unless they are there."""
    files = {"dense .mat": folder / "dense.mat", "sparse .mat": folder / "sparse.mat", ".npz": folder / "dense.npz"}
    rng = np.random.default_rng(0)
    arrays: dict[str, Any] = {}
    if not (files["dense .mat"].exists() and files[".npz"].exists()):
        arrays = {"X": rng.random((50_000, 500)), "Y": (rng.random((50_000, 5)) < 0.3).astype(np.uint8)}
        io.savemat(files["dense .mat"], arrays)
        np.savez(files[".npz"], **arrays)
    if not files["sparse .mat"].exists():
        n, values = 100_000, 100
        columns = np.sort(rng.integers(0, 10_000, (n, values)), axis=1)
        X = sp.csr_array((rng.random(n * values), columns.ravel(), np.arange(0, n * values + 1, values)))
        X.sum_duplicates()
        io.savemat(files["sparse .mat"], {"X": X.tocsc(), "Y": (rng.random((n, 5)) < 0.3).astype(np.uint8)})
    return files


def main(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, path in make_files(folder).items():
        for kind in ("own", "library"):
            facts = in_process(READ.format(kind=kind, path=str(path)), repeats=TURNS)
            del facts["peak_worker_MiB"]
            print(f"{name}, {kind}: {brief(facts)}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, default=Path("/tmp/mlfs-benchmarks"))
    main(parser.parse_args().folder)
