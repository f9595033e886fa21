"""Limits of the system: open files and memory that it refuses are neither damage of the store nor a fault of mlfs."""

from __future__ import annotations

import errno
import subprocess
import sys
from pathlib import Path

import pytest

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
        caused(ImportError("SciPy seems to be broken"), ImportError("_x.so: failed to map segment from shared object")),
    ],
)
def test_memory_that_is_refused(error: BaseException) -> None:
    failure = describe_failure(error, ())
    assert failure is not None
    assert failure.exit_code == 4
    assert "the system gave no more memory" in failure.message
    assert "cure: " in failure.message


def test_an_error_that_stands_behind_itself() -> None:
    error = ValueError("raised again")
    error.__cause__ = caused(ValueError("between"), error)
    failure = describe_failure(error, ())
    assert failure is not None
    assert failure.kind == "unexpected"
