"""A selection from files as they are, beside the same from a store: seconds, cores used, peaks of memory.

    python benchmarks/sources.py [--rows 2000000] [--folder DIR]

One table of float32 with 200 features and 20 labels is written in every form; each is read by `elc`, which takes one
reading, in fresh processes, the pages in memory, the time counted from opening to the ranking. DuckDB sums every column
of the Parquet folder. Results are printed and written to benchmarks/results/sources.json. Needs anndata, duckdb and
polars.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
from pathlib import Path
from typing import Any

import measuring
import numpy as np

D, Q, FILES = 200, 20, 8
FEATURES, LABELS = [f"x{f}" for f in range(D)], [f"y{label}" for label in range(Q)]

SELECT = """
import time, warnings
warnings.simplefilter("ignore")
import h5py, pyarrow.parquet, zarr
import mlfs_dask as mlfs
from mlfs_dask.readers.base import LabelSpec
labels = {labels!r}
selector = mlfs.ELC(20)
{imports}
processor, started = time.process_time(), time.perf_counter()
fitted = selector.fit({opened})
facts = dict(seconds=time.perf_counter() - started, cpu_seconds=time.process_time() - processor)
plan = fitted.report_.plan["peak_worker_bytes"]
facts.update(passes=fitted.report_.passes, planned_MiB=plan / 2**20, best=fitted.ranking_[:20].tolist())
"""
DUCKDB = """
import time, duckdb
duckdb.sql("select 1").fetchall()
processor, started = time.process_time(), time.perf_counter()
sums = ", ".join("sum(" + name + ")" for name in {names!r})
duckdb.sql("select " + sums + " from '{folder}/*.parquet'").fetchall()
facts = dict(seconds=time.perf_counter() - started, cpu_seconds=time.process_time() - processor)
"""


def write(folder: Path, n: int) -> None:
    """The table in every form."""
    import anndata
    import pandas as pd
    import pyarrow as pa
    from pyarrow import parquet
    from scipy import sparse as sp

    import mlfs_dask

    rng = np.random.default_rng(0)
    Y = (rng.random((n, Q), np.float32) < 0.1).astype(np.int8)
    X = rng.standard_normal((n, D), np.float32)
    X[:, :Q] += Y
    adata = anndata.AnnData(X, var=pd.DataFrame(index=FEATURES))
    adata.obsm["labels"] = sp.csr_matrix(Y)
    adata.uns["label_names"] = np.array(LABELS, dtype=object)
    adata.write_h5ad(folder / "plain.h5ad")
    with anndata.settings.override(zarr_write_format=3):
        adata.write_zarr(folder / "others.zarr", chunks=(4096, D))
    (folder / "parquet").mkdir()
    for file, rows in enumerate(np.array_split(np.arange(n), FILES)):
        some = slice(rows[0], rows[-1] + 1)
        columns = [pa.array(np.ascontiguousarray(column)) for column in (*X[some].T, *Y[some].T)]
        parquet.write_table(pa.table(columns, names=[*FEATURES, *LABELS]), folder / "parquet" / f"{file}.parquet")
    mlfs_dask.convert(folder / "plain.h5ad", folder / "store.zarr", dtype="float32")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where the files are made, and stay (default: a temporary one)")
    options = parser.parse_args()
    folder = options.folder or Path(tempfile.mkdtemp(prefix="mlfs-sources-"))
    if not (folder / "store.zarr").exists():
        folder.mkdir(exist_ok=True)
        write(folder, options.rows)
    arrow = "import pyarrow.dataset"
    dataset = f"pyarrow.dataset.dataset({str(folder / 'parquet')!r})"
    polars = "import polars"
    lazy = f"polars.scan_parquet({str(folder / 'parquet')!r})"
    sources = {
        "store": ("store.zarr", "", f"{str(folder / 'store.zarr')!r}"),
        ".h5ad": ("plain.h5ad", "", f"{str(folder / 'plain.h5ad')!r}"),
        "AnnData in Zarr, version 3": ("others.zarr", "", f"{str(folder / 'others.zarr')!r}"),
        "Parquet folder": ("parquet", "", f"{str(folder / 'parquet')!r}, labels"),
        "dataset of Arrow": ("parquet", arrow, f"{dataset}, labels"),
        "LazyFrame": ("parquet", polars, f"{lazy}, labels"),
    }
    rows: dict[str, dict[str, Any]] = {}
    try:
        for name, (place, imports, opened) in sources.items():
            measuring.warm_pages(folder / place)
            code = SELECT.format(labels=LABELS, imports=imports, opened=opened)
            rows[name] = measuring.in_process(code, repeats=options.repeats)
            rows[name]["to_store"] = rows[name]["seconds"] / rows["store"]["seconds"]
            rows[name]["to_store_cpu"] = rows[name]["cpu_seconds"] / rows["store"]["cpu_seconds"]
            assert sorted(rows[name].pop("best")) == list(range(Q)), name
        code = DUCKDB.format(names=[*FEATURES, *LABELS], folder=folder / "parquet")
        rows["DuckDB, sums of the Parquet folder"] = scan = measuring.in_process(code, repeats=options.repeats)
        rows["Parquet folder"]["to_duckdb"] = rows["Parquet folder"]["seconds"] / scan["seconds"]
        rows["Parquet folder"]["to_duckdb_cpu"] = rows["Parquet folder"]["cpu_seconds"] / scan["cpu_seconds"]
    finally:
        if options.folder is None:
            shutil.rmtree(folder)
    described = (
        f"elc on {options.rows:,} x {D} float32, {Q} labels, from opening to the ranking; warm pages, new processes"
    )
    measuring.report("sources", measuring.RESULTS, "sources", described, rows, f"--rows {options.rows}")


if __name__ == "__main__":
    main()
