"""The way of a newcomer: from an empty environment to the chosen features of a file of their own, in seconds.

    python benchmarks/newcomer.py [--wheel dist/mlfs_dask-0.1.0-py3-none-any.whl] [--folder DIR]
    python benchmarks/newcomer.py first  # CPU seconds of first and second commands, in this environment

Makes an environment with `python -m venv`, installs with pip (what it finds in its cache is not downloaded), and runs
the commands of the manual for each of four formats, each file 2 000 rows, 50 features and 3 labels. A command is
a process of its own, the first ones with everything that is compiled on first use. `again` is the last command in an
environment that has run it before. With `first` nothing is installed: each of `FIRST` runs twice with an empty
folder of compiled kernels, and its CPU seconds are kept.
"""

from __future__ import annotations

import argparse
import os
import resource
import shlex
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import measuring

#: What a user has lying about; made by the environment that was installed.
FILES = """
import h5py, numpy as np, pandas as pd
random = np.random.default_rng(0)
X = random.normal(size=(2000, 50)).astype("f4")
Y = (X[:, [3, 7, 12]] + random.normal(size=(2000, 3)) > 0).astype("i1")
features, labels = [f"f{i}" for i in range(50)], ["a", "b", "c"]
table = pd.DataFrame(X, columns=features).assign(**dict(zip(labels, Y.T)))
table.to_csv("t.csv", index=False)
table.to_parquet("t.parquet", index=False)
with open("t.arff", "w") as file:
    file.write("@relation t\\n")
    file.writelines(f"@attribute {name} numeric\\n" for name in features)
    file.writelines(f"@attribute {name} {{0,1}}\\n" for name in labels)
    file.write("@data\\n" + table.to_csv(index=False, header=False))
with open("t.xml", "w") as file:
    names = "".join(f'<label name="{name}"/>' for name in labels)
    file.write(f'<labels xmlns="http://mulan.sourceforge.net/labels">{names}</labels>')
with h5py.File("t.h5ad", "w") as file:
    file.attrs.update({"encoding-type": "anndata", "encoding-version": "0.1.0"})
    file.create_dataset("X", data=X).attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
    for name, index in (("obs", [str(i) for i in range(2000)]), ("var", features)):
        group = file.create_group(name)
        group.attrs.update({"encoding-type": "dataframe", "encoding-version": "0.2.0", "_index": "_index"})
        group.attrs["column-order"] = np.array([], dtype=h5py.string_dtype())
        entry = group.create_dataset("_index", data=index, dtype=h5py.string_dtype())
        entry.attrs.update({"encoding-type": "string-array", "encoding-version": "0.2.0"})
    group = file.create_group("obsm")
    group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    group.create_dataset("labels", data=Y).attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
"""

#: Format -> commands, the last of which chooses.
WAYS = {
    "Parquet": ["select elc t.parquet --label-columns a,b,c -k 10 -o parquet"],
    ".h5ad": ["select elc t.h5ad -k 10 -o h5ad"],
    "CSV": ["convert t.csv csv.zarr --label-columns a,b,c", "select elc csv.zarr -k 10 -o csv"],
    "ARFF and XML": ["convert t.arff arff.zarr --labels t.xml", "select elc arff.zarr -k 10 -o arff"],
}

#: Commands that a newcomer runs first, each of which may compile kernels.
FIRST = {
    "convert an ARFF": "convert t.arff arff.zarr --labels t.xml --force",
    "select with anchors": "select mfsir arff.zarr --graph anchors -k 10 -o anchors --cache none --force",
    "select with adaptive anchors": "select scfs arff.zarr -k 10 -o adaptive --cache none --force",
    "demo": "demo digits --force",
}


def seconds(folder: Path, *words: str | Path) -> float:
    """Wall time of a command, which must end well."""
    started = time.perf_counter()
    subprocess.run([str(word) for word in words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - started


def main(wheel: Path, folder: Path) -> None:
    bin_ = folder / "venv" / "bin"
    rows = {
        "environment": {"seconds": seconds(folder, sys.executable, "-m", "venv", "venv")},
        "pip install": {"seconds": seconds(folder, bin_ / "pip", "install", "-q", f"{wheel.resolve()}[complete]")},
        "mlfs --help": {"seconds": seconds(folder, bin_ / "mlfs", "--help")},
    }
    seconds(folder, bin_ / "python", "-c", FILES)
    chosen = set()
    for name, commands in WAYS.items():
        took = [seconds(folder, bin_ / "mlfs", *shlex.split(command), "--quiet") for command in commands]
        rows[name] = {
            "seconds": sum(took),
            **{word.split()[0]: time for word, time in zip(commands, took, strict=True)},
        }
        chosen.add(frozenset((folder / commands[-1].split()[-1] / "selected.txt").read_text().split()))
    assert len(chosen) == 1, "the same rows, whatever they are written in"
    rows["again"] = {"seconds": seconds(folder, bin_ / "mlfs", *shlex.split(f"{WAYS['CSV'][-1]} --force"), "--quiet")}
    rows["demo"] = {"seconds": seconds(folder, bin_ / "mlfs", "demo", "digits", "--quiet")}
    measuring.report(
        "newcomer",
        measuring.RESULTS,
        "newcomer",
        "From an empty environment to chosen features: 2 000 x 50, 3 labels",
        rows,
    )


def first_and_second(folder: Path) -> None:
    seconds(folder, sys.executable, "-c", FILES)
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    rows: dict[str, dict[str, float]] = {}
    for name, command in FIRST.items():
        os.environ["NUMBA_CACHE_DIR"] = str(folder / f"kernels of {name}")
        for turn in ("bytecode", "first", "second"):
            used = resource.getrusage(resource.RUSAGE_CHILDREN)
            seconds(folder, sys.executable, "-m", "mlfs_dask", *shlex.split(command), "--quiet")
            now = resource.getrusage(resource.RUSAGE_CHILDREN)
            if turn == "bytecode":  # of libraries that this command loads
                os.environ["NUMBA_CACHE_DIR"] += " again"
            else:
                rows.setdefault(name, {})[turn] = now.ru_utime + now.ru_stime - used.ru_utime - used.ru_stime
    text = "CPU seconds of the first and of the second command, without compiled kernels at first: 2 000 x 50, 3 labels"
    measuring.report("newcomer", measuring.RESULTS, "first", text, rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--wheel", type=Path, default=Path(), help="or the folder of the sources")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("what", nargs="?", choices=("newcomer", "first"), default="newcomer")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.folder or Path(temporary)
        first_and_second(folder) if arguments.what == "first" else main(arguments.wheel, folder)
