"""A selection from AnnData in Zarr, as the anndata library writes it, beside the same from stores: CPU seconds.

    python benchmarks/zarr_sources.py anndata_zarr [--rows 200000] [--repeats 3] [--folder DIR]

Two tables of float32 with 20 labels, 500 dense features, and 2 000 of which 5 % are stored, in chunks and codecs that
anndata chooses: Blosc with LZ4 in version 2, Zstandard in version 3. Beside them stores without a codec, and with
Zstandard.
Each is read by `elc`, in one pass, and by `chi2`, which makes another pass over files for the ranges of the features.
New processes in turns, imports and kernels loaded, the pages in memory, the time counted from opening to the ranking.
Needs anndata.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import measuring
import numpy as np

Q = 20
KINDS = ("dense", "sparse")
SOURCES = ("store", "store, Zstandard", "AnnData, version 2", "AnnData, version 3")
METHODS = ("ELC", "Chi2")

SELECT = """
import time, warnings
warnings.simplefilter("ignore")
import numpy as np, scipy.sparse as sp, zarr
import mlfs_dask as mlfs
import mlfs_dask.formats.anndata, mlfs_dask.readers.zarr_nodes
rng = np.random.default_rng(0)
X, Y = rng.standard_normal((3000, 40)).astype("f4"), (rng.random((3000, 3)) < 0.3).astype("i1")
mlfs.{method}(5).fit(X, Y), mlfs.{method}(5).fit(sp.csr_array(X * (X > 1)), Y)
processor, started = time.process_time(), time.perf_counter()
fitted = mlfs.{method}(20).fit({path!r})
facts = dict(seconds=time.perf_counter() - started, cpu_seconds=time.process_time() - processor)
facts.update(passes=fitted.report_.passes, planned_MiB=fitted.report_.plan["peak_worker_bytes"] / 2**20)
facts.update(best=fitted.ranking_[:20].tolist())
"""


def place_of(folder: Path, kind: str, source: str) -> Path:
    """Path of a table in one form."""
    return folder / f"{kind} {source}.zarr".replace(", ", "-").replace(" ", "-")


def write(folder: Path, n: int) -> None:
    """Both tables in every form."""
    import anndata
    from scipy import sparse as sp

    import mlfs_dask

    rng = np.random.default_rng(0)
    Y = (rng.random((n, Q), np.float32) < 0.1).astype(np.int8)
    for kind in KINDS:
        if kind == "dense":
            X: Any = rng.standard_normal((n, 500), np.float32)
            X[:, :Q] += Y
        else:
            X = sp.random_array((n, 2000), density=0.05, format="csr", dtype=np.float32, rng=rng)
            X.data[:] = np.log1p(rng.poisson(1.5, X.nnz) + 1)  # as counts of genes are kept
        adata = anndata.AnnData(X)
        adata.obsm["labels"] = sp.csr_matrix(Y)
        for version in (2, 3):
            with anndata.settings.override(zarr_write_format=version):
                adata.write_zarr(place_of(folder, kind, f"AnnData, version {version}"))
        plain, packed = place_of(folder, kind, "store"), place_of(folder, kind, "store, Zstandard")
        source = place_of(folder, kind, "AnnData, version 3")
        mlfs_dask.convert(source, plain, dtype="float32")
        mlfs_dask.convert(source, packed, dtype="float32", compressor="zstd")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("name", choices=["anndata_zarr"])
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files are made, and stay (default: a temporary one)")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="mlfs-zarr-"))
    rows: dict[str, dict[str, Any]] = {}
    try:
        if not place_of(folder, KINDS[-1], SOURCES[1]).exists():
            folder.mkdir(exist_ok=True)
            write(folder, options.rows)
        for method in METHODS:
            for kind in KINDS:
                found: dict[str, list[dict[str, Any]]] = {source: [] for source in SOURCES}
                for _ in range(options.repeats):
                    for source, runs in found.items():
                        path = place_of(folder, kind, source)
                        measuring.warm_pages(path)
                        runs.append(measuring.in_process(SELECT.format(method=method, path=str(path)), repeats=1))
                assert len({str(run.pop("best")) for runs in found.values() for run in runs}) == 1
                cpu = {source: median(run["cpu_seconds"] for run in runs) for source, runs in found.items()}
                for source, runs in found.items():
                    rows[f"{method.lower()}, {kind}: {source}"] = {
                        **runs[-1],
                        "cpu_seconds": cpu[source],
                        "all_cpu_seconds": [round(run["cpu_seconds"], 3) for run in runs],
                        "to_store_cpu": cpu[source] / cpu["store"],
                        "to_zstandard_store_cpu": cpu[source] / cpu["store, Zstandard"],
                    }
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    described = (
        f"{options.rows:,} rows, 500 dense features, or 2 000 of which 5 % are stored; warm pages, new processes"
    )
    measuring.report("zarr_sources", measuring.RESULTS, options.name, described, rows, f"--rows {options.rows}")


if __name__ == "__main__":
    main()
