"""Files that somebody made to hurt, or that were damaged: lines without end, pipes, sizes that cannot be.

The files in the folder `findings` are of `benchmarks/fuzz.py`: libraries crashed over them, or asked for any amount of
memory.
"""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path

import h5py
import numpy as np
import pytest
from numpy.lib import format as npy

from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.storage import sources
from mlfs_dask.storage.readers import compressed_io, csv, label_table, lines, mulan_xml
from mlfs_dask.storage.readers.base import LabelSpec, ReadOptions
from mlfs_dask.storage.readers.detect import open_source
from mlfs_dask.storage.readers.mulan_xml import read_mulan_labels
from tests.storage.readers.reading import read_through


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_mutated_inputs_of_every_kind_are_read_or_refused() -> None:
    fuzz = Path(__file__).parents[3] / "benchmarks" / "fuzz.py"
    done = subprocess.run([sys.executable, fuzz, "--count", "200"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


LONG = b"1" * 3_000_000
ARFF = b"@relation r\n@attribute f numeric\n@attribute y {0,1}\n@data\n"
FILES = {
    "x.arff": (b"@relation ", "a line is longer than 1 MiB"),
    "y.arff": (ARFF + b"1,0\n", "line 6: a line is longer than 1 MiB"),
    "x.svm": (b"0 1:1\n0 1:", "line 2: a line is longer than 1 MiB"),
    "x.xmlc": (b"2 2 2\n0 1:1\n0 1:", "line 3: a line is longer than 1 MiB"),
    "x.csv": (b"f,y\n1,0\n", "line 3: a line is longer than 1 MiB"),
    "y.csv": (b"", "line 1: a line is longer than 1 MiB"),
    "z.csv": (b"f,y\n" + b"1,0\n" * 10_000, "line 10002: a line is longer than 1 MiB"),
    "x.tsv": (b"f\ty\n", "line 2: a line is longer than 1 MiB"),
}


@pytest.fixture(autouse=True)
def _short_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (compressed_io, "LONGEST_LINE"),
        (lines, "LONGEST_LINE"),
        (csv, "LONGEST_LINE"),
        (csv, "SAMPLE_BYTES"),
        (mulan_xml, "_MAX_BYTES"),
        (label_table, "_MAX_TABLE_BYTES"),
    ):
        monkeypatch.setattr(module, name, 1 << 20)


@pytest.mark.parametrize("name", FILES)
def test_a_line_without_end(tmp_path: Path, name: str) -> None:
    start, problem = FILES[name]
    path = tmp_path / f"{name}.gz"
    path.write_bytes(gzip.compress(start + LONG))
    labels = LabelSpec() if name in ("x.svm", "x.xmlc") else LabelSpec(count=1)
    with pytest.raises(DataError, match=problem):
        read_through(path, ReadOptions(labels=labels))


def test_an_xml_file_without_end(tmp_path: Path) -> None:
    path = tmp_path / "x.xml.gz"
    path.write_bytes(gzip.compress(b'<labels><label name="' + LONG))
    with pytest.raises(DataError, match="a file of labels has at most 1 MiB"):
        read_mulan_labels(str(path))


@pytest.mark.parametrize(
    "name", ["x.csv", "x.arff", "x.svm", "x.npz", "x.npy", "x.mtx", "x.mat", "x.h5ad", "x.parquet"]
)
def test_a_pipe(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    os.mkfifo(path)
    names = [str(path)]
    if name in ("x.npy", "x.mtx"):
        names.append(str(tmp_path / f"y{path.suffix}"))
        os.mkfifo(names[1])
    by_columns = LabelSpec(count=1) if name in ("x.csv", "x.arff", "x.parquet") else LabelSpec()
    with pytest.raises(DataError, match="it is a pipe, a socket or a device, a file was expected"):
        open_source(names, ReadOptions(labels=by_columns))
    (source,) = sources.examine([path])
    with pytest.raises(DataError, match="it is a pipe, a socket or a device, a file was expected"):
        sources.sha256(source)


FINDINGS = Path(__file__).with_name("findings")


@pytest.mark.parametrize("name", sorted(path.name for path in FINDINGS.iterdir() if path.suffix != ".csv"))
def test_findings(name: str) -> None:
    labels = LabelSpec(columns=("sky", "sea")) if name.endswith(("feather", "parquet")) else LabelSpec()
    keys = {"labels": str(FINDINGS / "group.csv")} if name.endswith(".h5") else {}
    with pytest.raises(DataError, match=r"damaged|cut off|cannot be read"):
        read_through(FINDINGS / name, ReadOptions(labels=labels, keys=keys))


@pytest.mark.parametrize("byte", [b"\0", b"\x7f", b"\xff"])
def test_bytes_over_which_scipy_crashes(tmp_path: Path, byte: bytes) -> None:
    for name in "xy":
        start = b"%%MatrixMarket matrix array integer general\n4 1\n1\n0\n1\n0"
        (tmp_path / f"{name}.mtx").write_bytes(start + byte)
    with pytest.raises(DataError, match=rf"x.mtx, line 6: a byte {byte[0]} in the text"):
        read_pair(tmp_path / "x.mtx", tmp_path / "y.mtx")


def read_pair(*paths: Path) -> None:
    reader = open_source([str(path) for path in paths])
    for _ in reader.read(reader.parts(1 << 20)[0], batch_bytes=1 << 16):
        pass


@pytest.mark.parametrize("width", [10**12, 2**62, 10**400], ids=["10^12", "2^62", "10^400"])
def test_rows_that_are_not_there(tmp_path: Path, width: int) -> None:
    with (tmp_path / "x.npy").open("wb") as file:
        npy.write_array_header_1_0(file, {"descr": "<f8", "fortran_order": False, "shape": (4, width)})
    np.save(tmp_path / "y.npy", np.ones((4, 1)))
    with pytest.raises(DataError, match="the file is cut off"):
        read_pair(tmp_path / "x.npy", tmp_path / "y.npy")


@pytest.mark.parametrize("width", [10**12, 10**17])
def test_rows_that_no_memory_holds(tmp_path: Path, width: int) -> None:
    (tmp_path / "x.mtx").write_text(f"%%MatrixMarket matrix coordinate real general\n4 {width} 1\n1 1 1\n")
    (tmp_path / "y.mtx").write_text("%%MatrixMarket matrix array integer general\n4 1\n1\n0\n1\n0\n")
    with pytest.raises(DoesNotFitError, match=f"a row of {width:,} features and 1 labels"):
        read_pair(tmp_path / "x.mtx", tmp_path / "y.mtx")


DIGITS = "1" * 5000
"""More than Python makes a number of."""


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("x.svm", f"0 {DIGITS}:1\n", "a feature index below"),
        ("x.svm", f"0 1:1\n0 {'0' * 5000}:1\n1 1:1\n", "feature 0 came, but features count from 1"),
        ("x.xmlc", f"1 2 2\n0 {DIGITS}:1\n", "a feature index from 0 to 1 was expected"),
        ("x.arff", f"@relation 'r: -C {DIGITS}'\n@attribute a {{0,1}}\n@data\n1\n", "nothing tells which"),
        ("x.csv", "a,b\n1,0\n", "the label '1111"),
    ],
)
def test_numbers_of_thousands_of_digits(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    labels = LabelSpec(columns=(DIGITS,)) if name == "x.csv" else LabelSpec()
    keys = {"feature_base": "1"} if "feature 0" in problem else {}
    with pytest.raises((DataError, UsageError), match=problem):
        read_through(tmp_path / name, ReadOptions(labels=labels, keys=keys))


def test_sizes_beyond_64_bits(tmp_path: Path) -> None:
    for name, text in (
        ("x.xmlc", f"2 {10**19} 2\n0 1:1\n1 0:1\n"),
        ("x.mtx", f"%%MatrixMarket matrix array integer general\n4 {10**400}\n1\n"),
        ("y.mtx", "%%MatrixMarket matrix array integer general\n1 1\n1\n"),
    ):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="rows, features and labels"):
        read_through(tmp_path / "x.xmlc", ReadOptions())
    with pytest.raises(DataError, match="numbers of rows and columns were expected"):
        read_pair(tmp_path / "x.mtx", tmp_path / "y.mtx")


def test_long_cells_take_no_more_memory_than_short_ones(tmp_path: Path) -> None:
    """As many rows as numbers of a batch, each as long as the first, would be 120 MiB here."""
    path = tmp_path / "x.csv"
    path.write_text("f,y\n" + f"{'1' * 30_000},1\n" * 3)
    tracemalloc.start()
    read_through(path, ReadOptions(labels=LabelSpec(count=1)))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 25


def test_a_heap_of_texts_without_end(tmp_path: Path) -> None:
    """HDF5 would step through zeros for ever, and hear no Ctrl-C."""
    path = tmp_path / "x.h5ad"
    with h5py.File(path, "w") as file:
        file["X"], file["obsm/labels"] = np.ones((2, 2)), np.ones((2, 1))
        file["var/_index"] = ["a", "b"]
    content = bytearray(path.read_bytes())
    first = content.index(b"GCOL") + 16
    content[first : first + 64] = bytes(64)
    path.write_bytes(content)
    with pytest.raises(DataError, match=f"a heap of texts at byte {first - 16:,} holds an object of no size"):
        read_through(path, ReadOptions())


def test_a_chunk_that_no_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with h5py.File(tmp_path / "x.h5ad", "w") as file:
        file.create_dataset("X", (2**28, 1), "f8", chunks=(2**28, 1), compression="gzip")
        file["obsm/labels"] = np.ones((1, 1))
    monkeypatch.setattr("mlfs_dask.runtime.available_memory", lambda: 2**30)
    with pytest.raises(DoesNotFitError, match=r"x\.h5ad: a chunk of /X: projected 2,048"):
        read_through(tmp_path / "x.h5ad", ReadOptions())
