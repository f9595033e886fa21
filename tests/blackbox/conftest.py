"""Commands as a user runs them, in this process or in one of their own, and small data.

Nothing in this folder imports what lies below `mlfs_dask`: the tests know commands, files and public names alone, so
that they stay as they are whatever is rebuilt inside. `test_imports.py` checks it.
"""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

from mlfs_dask_cli.main import mlfs

# What one test has counted must not spare the next one its reading; a test of the cache says --cache.
ENVIRONMENT = {"MLFS_CACHE": "none"}


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Commands set the log up for a process of their own."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("mlfs_dask")]
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).handlers[:]) for name in names}
    yield
    for name, (level, handlers) in before.items():
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).handlers[:] = handlers


@pytest.fixture(scope="session")
def run() -> Callable[..., Result]:
    """Run `mlfs WORDS` in this process: `exit_code`, `stdout`, `stderr`. With `code`, it must end with that one."""

    def invoke(*words: object, code: int | None = 0) -> Result:
        result = CliRunner().invoke(mlfs, [str(word) for word in words], env=ENVIRONMENT)
        assert code is None or result.exit_code == code, f"exit code {result.exit_code}\n{result.output}"
        return result

    return invoke


@pytest.fixture(scope="session")
def start() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """Start `mlfs WORDS` in a process of its own, with `env` beside what the tests have; what runs on is killed."""
    processes: list[subprocess.Popen[str]] = []

    def process(*words: object, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
        environment = {**os.environ, **ENVIRONMENT, **(env or {})}
        command = [sys.executable, "-m", "mlfs_dask", *map(str, words)]
        pipe = subprocess.PIPE
        processes.append(subprocess.Popen(command, env=environment, stdout=pipe, stderr=pipe, text=True))
        return processes[-1]

    yield process
    for each in processes:
        each.kill()
        each.communicate()


@pytest.fixture(scope="session")
def run_process(start: Callable[..., subprocess.Popen[str]]) -> Callable[..., Result]:
    """Run `mlfs WORDS` in a process of its own: `returncode`, `stdout`, `stderr`."""

    def invoke(
        *words: object, code: int | None = 0, env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        process = start(*words, env=env)
        stdout, stderr = process.communicate(timeout=200)
        assert code is None or process.returncode == code, f"exit code {process.returncode}\n{stdout}{stderr}"
        return subprocess.CompletedProcess(process.args, process.returncode, stdout, stderr)

    return invoke


@pytest.fixture(scope="session")
def small_store(run: Callable[..., Result]) -> Callable[..., Path]:
    """Write counts drawn with `seed` to an .npz file, and convert it to the store PLACE, of partitions of 512 bytes.

    A third of the values is not zero. The first label is positive where the first feature is large, the others where
    two features are larger than two others.
    """

    def make(place: Path, *options: object, n: int = 120, d: int = 12, q: int = 3, seed: int = 0) -> Path:
        rng = np.random.default_rng(seed)
        X = rng.integers(0, 9, (n, d)) * (rng.random((n, d)) < 1 / 3)
        Y = np.stack([X[:, j] + X[:, (j + q) % d] * (j > 0) > 1 + j for j in range(q)], axis=1).astype(np.int8)
        source = place.with_suffix(".npz")
        np.savez(source, X=X.astype(np.float32), Y=Y)
        run("convert", source, place, "--partition-size", "512", "--quiet", *options)
        return place

    return make


@pytest.fixture(scope="session")
def failing_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """`failing_calls.c`, compiled; the test is skipped where there is no compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler for the library that has calls fail")
    source = Path(__file__).with_name("failing_calls.c")
    library = tmp_path_factory.mktemp("failing") / "failing_calls.so"
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source, "-ldl"], check=True)
    return library
