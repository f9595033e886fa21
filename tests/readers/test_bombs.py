"""Files made to hurt, or damaged: sizes that no memory holds, lines without end, pipes, what libraries crash over."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import struct
import subprocess
import sys
import tracemalloc
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import scipy.io
from numpy.lib import format as npy
from scipy import sparse

from mlfs_dask import runtime
from mlfs_dask.errors import DataError, DoesNotFitError, UsageError
from mlfs_dask.files import compressed_io, sources
from mlfs_dask.files.limits import require_memory
from mlfs_dask.formats import csv
from mlfs_dask.formats.detect import open_source
from mlfs_dask.readers import label_table, lines, mulan_xml
from mlfs_dask.readers.base import FileSpec, LabelSpec
from mlfs_dask.readers.mulan_xml import read_mulan_labels
from mlfs_dask.storage.convert import convert
from tests.readers.reading import read_through

X, Y = np.arange(8.0).reshape(4, 2), np.eye(4, 2)
LIMIT = 2**30
#: What a refusal may cost: messages, and the libraries that are loaded on the way.
FEW_BYTES = 64 * 2**20


@pytest.fixture(scope="module", autouse=True)
def _libraries() -> None:
    import zarr

    zarr.open  # noqa: B018 - loaded before memory is measured


def zarr_array(folder: Path, values: np.ndarray[Any, Any], **changes: Any) -> None:
    """An array of version 2 in one chunk, not packed, of which metadata are changed."""
    folder.mkdir(parents=True)
    metadata = {
        "zarr_format": 2,
        "shape": list(values.shape),
        "chunks": list(values.shape),
        "dtype": values.dtype.str,
        "fill_value": 0,
        "order": "C",
        "filters": None,
        "compressor": None,
    }
    (folder / ".zarray").write_text(json.dumps({**metadata, **changes}))
    (folder / ".".join("0" * values.ndim)).write_bytes(values.tobytes())


def zarr_pair(path: Path, **changes: Any) -> Path:
    """X and Y, and what is wrong with X."""
    zarr_array(path / "X", X, **changes)
    zarr_array(path / "Y", Y)
    (path / ".zgroup").write_text('{"zarr_format": 2}')
    return path


def zarr_names(path: Path, **changes: Any) -> Path:
    zarr_array(zarr_pair(path) / "feature_names", np.array(["a", "b"]), **{"fill_value": "", **changes})
    return path


class Payload:
    """What runs as it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("unpickled"),)


def pickled_names(path: Path) -> Path:
    codecs = [{"id": "vlen-utf8"}, {"id": "pickle"}]
    (zarr_names(path, dtype="|O", filters=codecs) / "feature_names/0").write_bytes(pickle.dumps(Payload()))
    return path


def deep_metadata(path: Path) -> Path:
    (zarr_pair(path) / "X/.zattrs").write_text('{"deep": ' + "[" * 100_000 + "]" * 100_000 + "}")
    return path


def hdf5(path: Path, change: Callable[[h5py.File], object]) -> Path:
    with h5py.File(path, "w") as file:
        file["X"], file["obsm/labels"] = X, Y
        change(file)
    return path


def replaced(name: str, shape: tuple[int, ...], **how: Any) -> Callable[[h5py.File], object]:
    """An array without values that says to have this shape."""

    def change(file: h5py.File) -> None:
        if name in file:
            del file[name]
        file.create_dataset(name, shape, "f8", chunks=how.pop("chunks", (1024, 1)), **how)

    return change


def sparse_hdf5(path: Path, kind: str, shape: tuple[int, int], indptr: int) -> Path:
    def change(file: h5py.File) -> None:
        del file["X"]
        file.create_group("X").attrs.update({"encoding-type": kind, "shape": shape})
        file["X/data"], file["X/indices"] = np.ones(0), np.zeros(0, int)
        file.create_dataset("X/indptr", (indptr,), "i8", chunks=(min(indptr, 1024),))

    return hdf5(path, change)


def raw_values(file: h5py.File) -> None:
    del file["X"]
    file.create_dataset("X", X.shape, "f8", external=[("/etc/hostname", 0, X.nbytes)])


def virtual_values(file: h5py.File) -> None:
    file.move("X", "other")
    layout = h5py.VirtualLayout(X.shape, "f8")
    layout[:] = h5py.VirtualSource(".", "other", X.shape)
    file.create_virtual_dataset("X", layout)


def linked_values(file: h5py.File) -> None:
    file.move("X", "other")
    file["X"] = h5py.ExternalLink("other.h5", "other")


def many_names(path: Path) -> Path:
    def change(file: h5py.File) -> None:
        file["matrix/data"], file["matrix/indices"], file["matrix/indptr"] = X.ravel(), [0, 1] * 4, [0, 2, 4, 6, 8]
        file["matrix/shape"], file["matrix/features/name"] = (2, 4), [b"a", b"b"]
        file.create_dataset("matrix/barcodes", (10**12,), h5py.string_dtype(), chunks=(1024,))

    (path.with_name("labels.csv")).write_text("cell,sky\nc0,1\n")
    return hdf5(path, change)


def mat_7(path: Path) -> Path:
    def change(file: h5py.File) -> None:
        del file["X"]
        file.create_group("X").attrs["MATLAB_sparse"] = 4
        file.create_dataset("X/jc", (2**40,), "u8", chunks=(1024,))
        file["Y"] = Y

    return hdf5(path, change)


def mat_5(path: Path, change: Callable[[bytearray], bytes]) -> Path:
    """A file of version 5 whose only variable is packed and changed."""
    scipy.io.savemat(path, {"X": X, "Y": Y}, do_compression=False)
    content = path.read_bytes()
    size = struct.unpack("<I", content[132:136])[0]
    packed = zlib.compress(change(bytearray(content[128 : 136 + size])))
    path.write_bytes(content[:128] + struct.pack("<II", 15, len(packed)) + packed + content[136 + size :])
    return path


def long_name(element: bytearray) -> bytes:
    """Flags take 16 bytes behind the tag, dimensions 16; then the tag of the name says 128 MiB, and they are there."""
    return bytes(element[:40]) + struct.pack("<II", 1, 2**27) + bytes(2**27)


def more_values(element: bytearray) -> bytes:
    element[32:36] = struct.pack("<i", 2**30)
    return bytes(element)


def negative_shape(element: bytearray) -> bytes:
    element[32:36] = struct.pack("<i", -4)
    return bytes(element)


def npz(path: Path, header: bytes, **others: Any) -> Path:
    np.savez(path, Y=Y, **others)
    with zipfile.ZipFile(path, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("X.npy", header)
    return path


def npy_header(shape: tuple[int, ...]) -> bytes:
    text = repr({"descr": "<f8", "fortran_order": False, "shape": shape}).encode()
    return npy.magic(1, 0) + struct.pack("<H", len(text)) + text


def wide_npz(path: Path) -> Path:
    matrix = sparse.csr_matrix(X)
    fields = {f"X_{name}": getattr(matrix, name) for name in ("data", "indices", "indptr")}
    np.savez(path, Y=Y, **fields, X_shape=(4, 2**62))
    return path


BOMBS: dict[str, tuple[Callable[[Path], Path], type[Exception], str]] = {
    "chunk.zarr": (lambda p: zarr_pair(p, chunks=[2**27, 2]), DoesNotFitError, "a chunk of /X: projected 2,048.0 MiB"),
    "huge_chunk.zarr": (lambda p: zarr_pair(p, chunks=[2**62, 2]), DoesNotFitError, "a chunk of /X: projected"),
    "empty_chunk.zarr": (lambda p: zarr_pair(p, chunks=[0, 2]), DataError, "value .0, 2.: /X has chunks without"),
    "names.zarr": (lambda p: zarr_names(p, shape=[10**12]), DoesNotFitError, "all of /feature_names: projected"),
    "pickle.zarr": (pickled_names, DataError, "/feature_names holds pickled objects"),
    "deep.zarr": (deep_metadata, DataError, "recursion|nested|Stack overflow"),
    "chunk.h5ad": (
        lambda p: hdf5(p, replaced("X", (2**28, 1), chunks=(2**28, 1), compression="gzip")),
        DoesNotFitError,
        "a chunk of /X: projected 2,048.0 MiB",
    ),
    "offsets.h5ad": (
        lambda p: sparse_hdf5(p, "csr_matrix", (2**62, 2), 2**40),
        DoesNotFitError,
        "all of /X/indptr: projected 8,388,608.0 MiB",
    ),
    "rows.h5ad": (
        lambda p: sparse_hdf5(p, "csc_matrix", (10**12, 2), 3),
        DataError,
        "X has 1000000000000 rows and Y has 4",
    ),
    "elsewhere.h5ad": (lambda p: hdf5(p, raw_values), DataError, "value '/etc/hostname': the values of /X are in"),
    "virtual.h5ad": (lambda p: hdf5(p, virtual_values), DataError, "value '.': /X is a virtual dataset.*\n.*h5repack"),
    "linked.h5ad": (lambda p: hdf5(p, linked_values), DataError, "other.h5': the values of /other are in another file"),
    "barcodes.h5": (many_names, DoesNotFitError, "all of /matrix/barcodes: projected"),
    "offsets.mat": (mat_7, DoesNotFitError, "all of /X/jc: projected 8,388,608.0 MiB"),
    "name.mat": (lambda p: mat_5(p, long_name), DataError, "an element of 134,217,728 bytes is longer than"),
    "values.mat": (
        lambda p: mat_5(p, more_values),
        DataError,
        r"value \(1073741824, 2\): variable X: its shape cannot be",
    ),
    "negative.mat": (
        lambda p: mat_5(p, negative_shape),
        DataError,
        r"value \(-4, 2\): variable X: its shape cannot be",
    ),
    "tail.mat": (lambda p: mat_5(p, lambda e: bytes(e) + bytes(2**27)), DataError, "unpacks to more than it says"),
    "header.npz": (
        lambda p: npz(p, npy.magic(2, 0) + struct.pack("<I", 2**27) + b" " * 2**27),
        DataError,
        "its header has 134,217,728 bytes, not at most 10,000",
    ),
    "shape.npz": (
        lambda p: npz(p, npy_header((2**62, 2))),
        DataError,
        r"value \(4611686018427387904, 2\): X is cut off",
    ),
    "negative.npz": (lambda p: npz(p, npy_header((-4, 2))), DataError, r"its shape is \(-4, 2\)"),
    "wide.npz": (wide_npz, DoesNotFitError, "a row of 4,611,686,018,427,387,904 features"),
}


# So zarr from 3.4 announces that it reads a 0 as 1.
@pytest.mark.filterwarnings("ignore:Array .* The stored chunk shape .0, 2. is invalid")
@pytest.mark.parametrize("name", BOMBS)
def test_a_declaration_that_no_memory_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    make, error, problem = BOMBS[name]
    path = make(tmp_path / name)
    keys = {"labels": str(tmp_path / "labels.csv")} if name.endswith(".h5") else {}
    runtime.measure_memory()
    runtime.reset_peak_rss()
    before = runtime.current_rss()
    with runtime.process_limits(memory_limit=before + LIMIT), pytest.raises(error, match=problem) as raised:
        read_through(path, FileSpec(keys=keys))
    assert str(path) in str(raised.value)
    assert "cure:" in str(raised.value)
    assert runtime.peak_rss() - before < FEW_BYTES
    assert not (tmp_path / "unpickled").exists()


def test_what_the_process_holds_is_not_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """A notebook of 3 GiB that may hold 4 has 1 GiB for a chunk."""
    monkeypatch.setattr(runtime, "current_rss", lambda: 3 * LIMIT)
    with runtime.process_limits(memory_limit=4 * LIMIT):
        require_memory("a chunk", LIMIT)
        with pytest.raises(DoesNotFitError, match=r"a chunk: projected 1,024.0 MiB .*, available 1,024.0 MiB"):
            require_memory("a chunk", LIMIT + 1)


def test_rows_that_are_stored_nowhere(tmp_path: Path) -> None:
    """Missing chunks are zeros, and any number of them takes no room in the source; staged, a row takes 8 bytes."""
    path = tmp_path / "x.h5ad"
    hdf5(path, lambda file: [replaced(name, (10**15, 2))(file) for name in ("X", "obsm/labels")])
    with pytest.raises(DoesNotFitError, match=r"staging rows in .*: projected 7,629,394,531\.3 MiB"):
        convert(path, tmp_path / "s.zarr", workers=1)


def test_memory_that_a_library_asks_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever refuses it, the message says which file and which rows took it."""
    path = zarr_pair(tmp_path / "x.zarr")
    reader = open_source([str(path)])

    def refuse(*_: object) -> None:
        raise MemoryError

    monkeypatch.setattr("mlfs_dask.readers.matrix.DenseRows.take", refuse)
    with pytest.raises(DoesNotFitError, match=r"x.zarr: rows 1 to 4: more than there is, available .*\n  cure: check"):
        next(reader.read(reader.parts(1 << 20)[0], batch_bytes=1 << 16))


@pytest.mark.nightly
@pytest.mark.timeout(7200)
def test_mutated_inputs_of_every_kind_are_read_or_refused() -> None:
    fuzz = Path(__file__).parents[2] / "benchmarks" / "fuzz.py"
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
        read_through(path, FileSpec(labels=labels))


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
        open_source(names, FileSpec(labels=by_columns))
    (source,) = sources.examine([path])
    with pytest.raises(DataError, match="it is a pipe, a socket or a device, a file was expected"):
        sources.sha256(source)


FINDINGS = Path(__file__).with_name("findings")


@pytest.mark.parametrize("name", sorted(path.name for path in FINDINGS.iterdir() if path.suffix != ".csv"))
def test_findings(name: str) -> None:
    labels = LabelSpec(columns=("sky", "sea")) if name.endswith(("feather", "parquet")) else LabelSpec()
    keys = {"labels": str(FINDINGS / "group.csv")} if name.endswith(".h5") else {}
    with pytest.raises(DataError, match=r"damaged|cut off|cannot be read"):
        read_through(FINDINGS / name, FileSpec(labels=labels, keys=keys))


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
        ("x.arff", f"@relation 'r: -C {DIGITS}'\n@attribute a {{0,1}}\n@data\n1\n", "no option says which"),
        ("x.csv", "a,b\n1,0\n", "the label '1111"),
    ],
)
def test_numbers_of_thousands_of_digits(tmp_path: Path, name: str, text: str, problem: str) -> None:
    (tmp_path / name).write_text(text)
    labels = LabelSpec(columns=(DIGITS,)) if name == "x.csv" else LabelSpec()
    keys = {"feature_base": "1"} if "feature 0" in problem else {}
    with pytest.raises((DataError, UsageError), match=problem):
        read_through(tmp_path / name, FileSpec(labels=labels, keys=keys))


def test_sizes_beyond_64_bits(tmp_path: Path) -> None:
    for name, text in (
        ("x.xmlc", f"2 {10**19} 2\n0 1:1\n1 0:1\n"),
        ("x.mtx", f"%%MatrixMarket matrix array integer general\n4 {10**400}\n1\n"),
        ("y.mtx", "%%MatrixMarket matrix array integer general\n1 1\n1\n"),
    ):
        (tmp_path / name).write_text(text)
    with pytest.raises(DataError, match="rows, features and labels"):
        read_through(tmp_path / "x.xmlc", FileSpec())
    with pytest.raises(DataError, match="numbers of rows and columns were expected"):
        read_pair(tmp_path / "x.mtx", tmp_path / "y.mtx")


def test_long_cells_take_no_more_memory_than_short_ones(tmp_path: Path) -> None:
    """As many rows as numbers of a batch, each as long as the first, would be 120 MiB here."""
    path = tmp_path / "x.csv"
    path.write_text("f,y\n" + f"{'1' * 30_000},1\n" * 3)
    tracemalloc.start()
    read_through(path, FileSpec(labels=LabelSpec(count=1)))
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
        read_through(path, FileSpec())
