"""Array files of others that declare what no memory holds: refused before it is taken, or by the system."""

from __future__ import annotations

import json
import pickle
import struct
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
from mlfs_dask.errors import DataError, DoesNotFitError
from mlfs_dask.storage.convert import convert
from mlfs_dask.storage.limits import require_memory
from mlfs_dask.storage.readers.base import ReadOptions
from mlfs_dask.storage.readers.detect import open_source
from tests.storage.readers.reading import read_through

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
        DoesNotFitError,
        "the offsets of 1,000,000,000,000 rows: projected",
    ),
    "elsewhere.h5ad": (lambda p: hdf5(p, raw_values), DataError, "value '/etc/hostname': the values of /X lie in"),
    "virtual.h5ad": (lambda p: hdf5(p, virtual_values), DataError, "value '.': /X is a virtual dataset.*\n.*h5repack"),
    "linked.h5ad": (lambda p: hdf5(p, linked_values), DataError, "other.h5': the values of /other lie in another"),
    "barcodes.h5": (many_names, DoesNotFitError, "all of /matrix/barcodes: projected"),
    "offsets.mat": (mat_7, DoesNotFitError, "all of /X/jc: projected 8,388,608.0 MiB"),
    "name.mat": (lambda p: mat_5(p, long_name), DataError, "take 134,217,728 bytes, not at most 1,024"),
    "values.mat": (lambda p: mat_5(p, more_values), DataError, r"1,073,741,824 x 2 values says that it holds 8"),
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
    runtime.settle()
    runtime.reset_peak_rss()
    before = runtime.current_rss()
    with runtime.process_limits(memory_limit=before + LIMIT), pytest.raises(error, match=problem) as raised:
        read_through(path, ReadOptions(keys=keys))
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

    monkeypatch.setattr("mlfs_dask.storage.readers.matrix.DenseRows.take", refuse)
    with pytest.raises(DoesNotFitError, match=r"x.zarr: rows 1 to 4: more than there is, available .*\n  cure: check"):
        next(reader.read(reader.parts(1 << 20)[0], batch_bytes=1 << 16))
