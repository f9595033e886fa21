"""Faults of clusters as a user sees them: our message, and nothing that Dask logs beside it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest
from click.testing import CliRunner

from mlfs_dask.engine.checkpoints import checkpoint_place
from mlfs_dask_cli.main import mlfs

WORDS = ("--graph", "anchors", "--n-anchors", "16", "--n-trees", "10", "--workers", "1", "--memory-limit", "2GiB")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """60 000 rows, of whose 20 labels half are unknown."""
    folder, rng = tmp_path_factory.mktemp("faults"), np.random.default_rng(0)
    X = rng.standard_normal((60_000, 5), np.float32)
    Y = (X[:, :1] + rng.standard_normal((60_000, 20)) > 1).astype(np.int8)
    Y[rng.random(60_000) < 0.5] = -1
    np.save(folder / "X.npy", X)
    np.save(folder / "Y.npy", Y)
    words = ("convert", folder / "X.npy", folder / "Y.npy", folder / "s.zarr", "--partition-size", "100kB")
    assert CliRunner().invoke(mlfs, [str(word) for word in words]).exit_code == 0
    return folder / "s.zarr"


def start(*words: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "mlfs_dask", *map(str, words)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def lines_beside_the_message(stderr: str) -> list[str]:
    return [line for line in stderr.splitlines() if not line.startswith(("mlfs: ", "  cure: ", "  To go on "))]


@pytest.mark.cluster
def test_a_disk_that_is_full_where_workers_write(small_disk: Callable[[str], Path], store: Path) -> None:
    run = small_disk("400k") / "run"
    command = start("select", "smfs", store, "-k", "2", "--max-iter", "1", "-o", run, "--write-labels", *WORDS)
    stderr = command.communicate(timeout=120)[1]
    assert command.returncode == 4, stderr
    assert f"mlfs: {run}: it cannot be written: No space left on device: more than there is, available" in stderr
    assert "\n  cure: check the folder" in stderr
    assert lines_beside_the_message(stderr) == []


@pytest.mark.cluster
def test_workers_that_are_lost(store: Path, tmp_path: Path) -> None:
    words = ("--graph", "anchors", "--max-iter", "100000", "--tol", "0", "--wait", "1", "--quiet")
    words += ("--workers", "1", "--memory-limit", "2GiB", "--checkpoint-every", "0")
    command = start("select", "access-mfs", store, "-k", "2", "-o", tmp_path / "run", *words)
    process = psutil.Process(command.pid)
    deadline = time.monotonic() + 200
    state = Path(checkpoint_place(str(tmp_path / "run"))) / "state.npz"
    while not state.exists() and command.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    while command.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(psutil.NoSuchProcess):
            for child in process.children():
                if any("spawn_main" in word for word in child.cmdline()):  # a worker
                    child.kill()
        time.sleep(0.3)
    stderr = command.communicate(timeout=60)[1]
    assert command.returncode == 5, stderr
    assert lines_beside_the_message(stderr) == []
