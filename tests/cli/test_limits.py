"""Limits of the system: open files and memory that it refuses are neither damage of the store nor a fault of mlfs."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mlfs_dask import runtime
from mlfs_dask.errors import DataError
from mlfs_dask_cli.failure import describe_failure
from tests.storage.stores import make_store, sample

#: Limits this process to what it has and a little more, once everything is loaded, and runs `mlfs`.
WITH_LIMITS = """
import os, resource, sys
import mlfs_dask.selectors.elc, mlfs_dask.storage.dataset, scipy.linalg
from mlfs_dask_cli.main import main

limit, extra = sys.argv.pop(1), int(sys.argv.pop(1))
if limit == "files":
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + extra,) * 2)
else:
    pages = int(open("/proc/self/statm").read().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + extra,) * 2)
main()
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    X, Y = sample(sparse=True)
    return make_store(tmp_path_factory.mktemp("limits") / "t.zarr", X, abs(Y))


def limited(limit: str, extra: int, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITH_LIMITS, limit, str(extra), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)


def test_too_many_open_files(store: Path, tmp_path: Path) -> None:
    done = limited("files", 4, "select", "elc", store, "-k", "2", "-o", tmp_path / "run")
    assert done.returncode == 1, done.stderr
    assert "Too many open files" in done.stderr
    assert "cure: raise the limit of open files" in done.stderr
    assert "damaged" not in done.stderr
    assert not (tmp_path / "run").exists()


def test_no_memory(store: Path, tmp_path: Path) -> None:
    done = limited("memory", 0, "select", "elc", store, "-k", "2", "-o", tmp_path / "run")
    assert done.returncode == 4, done.stderr
    assert "the system gave no more memory" in done.stderr
    assert "cure: raise the limit (`ulimit -v unlimited`" in done.stderr
    assert not (tmp_path / "run").exists()


@pytest.mark.nightly  # how much they take changes with them
def test_less_address_space_than_libraries_take(store: Path, tmp_path: Path) -> None:
    """OpenBLAS would try for ever to get memory as it is loaded, and hear neither Ctrl-C nor SIGTERM."""
    command = [sys.executable, "-m", "mlfs_dask", "evaluate", store, "random", "-o", tmp_path / "eval"]
    limited = ["sh", "-c", 'ulimit -v 250000 && exec "$@"', "sh", *map(str, command)]
    with subprocess.Popen(limited, stderr=subprocess.PIPE, text=True) as process:
        try:
            _, printed = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 4, printed
    assert "the system gave no more memory: the address space is limited to 244 MiB" in printed
    assert "cure: raise the limit (`ulimit -v unlimited`" in printed


def caused(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 1.09 MiB"),
        OSError(errno.ENOMEM, "Cannot allocate memory", "/lib"),
        RuntimeError("can't start new thread"),
        ImportError("numpy/random/_common.so: failed to map segment from shared object"),
        caused(DataError("there is no Zarr array"), RuntimeError("can't start new thread")),
        caused(ImportError("SciPy seems to be broken"), ImportError("_x.so: failed to map segment from shared object")),
    ],
)
def test_memory_that_is_refused(error: BaseException) -> None:
    failure = describe_failure(error, ())
    assert failure is not None
    assert failure.exit_code == 4
    assert "the system gave no more memory" in failure.message
    assert failure.message.count("cure: ") == 1


def test_an_error_that_stands_behind_itself() -> None:
    error = ValueError("raised again")
    error.__cause__ = caused(ValueError("between"), error)
    failure = describe_failure(error, ())
    assert failure is not None
    assert failure.kind == "unexpected"


def mlfs(*words: object) -> list[str]:
    return [sys.executable, "-m", "mlfs_dask", *map(str, words)]


#: Measures the peak memory of a command, in KiB.
MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:]).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(code)
"""
UNPACKED = 2**30


def zstd_bomb(folder: Path) -> Path:
    """A chunk of 64 bytes as a frame of 128 KiB blocks of zeros, each of which takes 4 bytes."""
    blocks = UNPACKED // 2**17
    block = (1 << 1 | 2**17 << 3).to_bytes(3, "little") + b"\0"
    last = (1 | 1 << 1 | 2**17 << 3).to_bytes(3, "little") + b"\0"
    path = folder / "x.zarr"
    write_zarr(path, (4, 2), {"id": "zstd", "level": 1})
    (path / "X/0.0").write_bytes(b"\x28\xb5\x2f\xfd\xe0" + UNPACKED.to_bytes(8, "little") + block * (blocks - 1) + last)
    return path


def deflate_bomb(folder: Path) -> Path:
    """A chunk of 64 bytes as blocks of zeros."""
    packer = zlib.compressobj()
    first, block = (packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    path = folder / "x.h5ad"
    with h5py.File(path, "w") as file:
        file["obsm/labels"] = np.eye(4, 2)
        X = file.create_dataset("X", (4, 2), "f8", chunks=(4, 2), compression="gzip")
        X.id.write_direct_chunk((0, 0), first + block * (UNPACKED // 2**20) + packer.flush())
    return path


def dictionary_bomb(folder: Path) -> Path:
    """A categorical column of one text, whose copies the system has no memory for."""
    texts = pa.DictionaryArray.from_arrays(pa.array([0] * 8, pa.int32()), pa.array(["a" * (UNPACKED // 3)]))
    path = folder / "x.parquet"
    pq.write_table(pa.table({**dict.fromkeys("fgh", texts), "y": [0, 1] * 4}), path, compression="zstd")
    return path


def write_zarr(path: Path, shape: tuple[int, int], compressor: dict[str, object] | None) -> None:
    for name, width in (("X", shape[1]), ("Y", 2)):
        (path / name).mkdir(parents=True)
        metadata = {"zarr_format": 2, "shape": [shape[0], width], "chunks": [4, 2], "dtype": "<f8", "order": "C"}
        metadata |= {"fill_value": 1, "filters": None, "compressor": compressor if name == "X" else None}
        (path / name / ".zarray").write_text(json.dumps(metadata))
    (path / ".zgroup").write_text('{"zarr_format": 2}')


DOORS = {
    "convert": ("convert", "FILE", "out"),
    "select": ("select", "elc", "FILE", "-k", 1, "-o", "out"),
    "plan": ("plan", "elc", "FILE"),
    "evaluate": ("evaluate", "FILE", "random", "--folds", 2, "--n-neighbors", 1, "-o", "out"),
    "inspect": ("inspect", "FILE"),
}


def through(door: str, path: Path, *words: object) -> list[str]:
    """A command that reads a file."""
    return mlfs(
        *(str(word).replace("FILE", str(path)).replace("out", str(path.parent / "out")) for word in DOORS[door]), *words
    )


@pytest.mark.parametrize(
    ("bomb", "door"),
    [
        *((bomb, door) for bomb in (zstd_bomb, deflate_bomb) for door in ("convert", "select", "evaluate")),
        *((dictionary_bomb, door) for door in ("convert", "plan", "inspect")),
    ],
)
def test_what_unpacks_to_more(tmp_path: Path, bomb: Callable[[Path], Path], door: str) -> None:
    """Its library unpacks all of it; the system refuses the memory."""
    path = bomb(tmp_path)
    table = ("--label-columns", "y") if path.suffix == ".parquet" else ()
    limit = 768 if door == "evaluate" else 256  # classifiers are planned before the file is read
    command = through(door, path, "--memory-limit", f"{limit}MiB", *table)
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, timeout=200)
    assert done.returncode in (3, 4), done.stderr
    assert f"mlfs: {path}: " in done.stderr
    assert "cure: " in done.stderr
    assert int(done.stdout.splitlines()[-1]) << 10 < (limit << 20) + runtime.UNTOUCHED_BYTES + 2**28 + 2**26
    assert not (tmp_path / "out").exists()


def chunk(folder: Path, put: Callable[[Path], object]) -> tuple[Path, tuple[str, ...]]:
    """Zarr with another thing in the place of a chunk."""
    path = folder / "x.zarr"
    write_zarr(path, (4, 2), None)
    put(path / "X/0.0")
    return path, ()


def names(folder: Path, put: Callable[[Path], object]) -> tuple[Path, tuple[str, ...]]:
    path, _ = chunk(folder, lambda place: place.write_bytes(bytes(64)))
    put(folder / "names.txt")
    return path, ("--keep", f"@{folder / 'names.txt'}")


def metadata(folder: Path) -> tuple[Path, tuple[str, ...]]:
    """The root of a store, of 6 GiB that lie nowhere."""
    (folder / "x.zarr").mkdir()
    with (folder / "x.zarr/zarr.json").open("wb") as file:
        file.truncate(6 << 30)
    return folder / "x.zarr", ()


def secret(place: Path) -> None:
    (place.parents[2] / "secret").write_bytes(bytes(64))
    place.symlink_to("../../secret")


@pytest.mark.parametrize(
    ("make", "code", "problem"),
    [
        (lambda folder: chunk(folder, os.mkfifo), 3, "it is a pipe, a socket or a device"),
        (
            lambda folder: chunk(folder, lambda place: place.symlink_to("/dev/zero")),
            3,
            "is a link to a file outside the folder",
        ),
        (lambda folder: chunk(folder, secret), 3, "is a link to a file outside the folder"),
        (lambda folder: names(folder, os.mkfifo), 3, "it is a pipe, a socket or a device"),
        (lambda folder: names(folder, lambda place: place.write_bytes(b"x" * (200 << 20))), 3, "a line is longer than"),
        (metadata, 4, "zarr.json: projected 6,144.0 MiB"),
    ],
)
def test_what_is_no_file_or_has_no_end(
    tmp_path: Path, make: Callable[[Path], tuple[Path, tuple[str, ...]]], code: int, problem: str
) -> None:
    path, words = make(tmp_path)
    command = through("select", path, "--memory-limit", "512MiB", *words)
    done = subprocess.run([sys.executable, "-c", MEASURED, *command], capture_output=True, text=True, timeout=100)
    assert done.returncode == code, done.stderr
    assert problem in done.stderr
    assert int(done.stdout.splitlines()[-1]) < 400 << 10


@pytest.mark.usefixtures("interruptible")
def test_interrupted_while_it_reads_what_has_no_end(tmp_path: Path) -> None:
    write_zarr(tmp_path / "x.zarr", (10**6, 10**4), None)
    command = mlfs("convert", tmp_path / "x.zarr", tmp_path / "s.zarr", "--workers", "1")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            while not (tmp_path / ".s.zarr.wip/stage").exists() and process.poll() is None:
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, printed = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130, printed
    assert "interrupted" in printed


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["x.csv", "x.parquet"])
def test_less_address_space_than_arrow_takes(tmp_path: Path, name: str) -> None:
    """It ends the process where it gets no thread."""
    table = pd.DataFrame({"f": [1.0, 2, 3], "y": [0, 1, 1]})
    table.to_csv(tmp_path / name, index=False) if name == "x.csv" else table.to_parquet(tmp_path / name)
    command = mlfs("convert", tmp_path / name, tmp_path / "s.zarr", "--n-labels", "1")
    limited = ["sh", "-c", 'ulimit -v 270000 && exec "$@"', "sh", *command]
    done = subprocess.run(limited, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 4, done.stderr
    assert "the address space is limited to 263 MiB, and the libraries of this command take 768 MiB" in done.stderr
