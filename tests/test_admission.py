"""Which workers take part: real schedulers and workers, some of which run other code, are frozen, or come late."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
import pytest

import mlfs_dask as mlfs
from mlfs_dask import admission, runtime
from mlfs_dask.cluster import connect
from mlfs_dask.errors import ClusterLostError

StartDask = Callable[..., "subprocess.Popen[bytes]"]

pytestmark = pytest.mark.cluster

PACKAGE = Path(mlfs.__file__).parent


@pytest.fixture
def scheduler_file(tmp_path: Path, start_dask: StartDask) -> Path:
    file = tmp_path / "scheduler.json"
    start_dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", file)
    return file


@pytest.fixture
def start_worker(scheduler_file: Path, start_dask: StartDask) -> Callable[..., subprocess.Popen[bytes]]:
    """Start a worker; `preload` is a program that it runs first."""

    def start(preload: Path | None = None) -> subprocess.Popen[bytes]:
        options = [] if preload is None else ["--preload", preload]
        return start_dask("worker", "--scheduler-file", scheduler_file, "--nthreads", 1, *options)

    return start


@pytest.fixture
def other_code(tmp_path: Path) -> Path:
    """What makes a worker load a copy of the package with one more comment."""
    copy = tmp_path / "other"
    shutil.copytree(PACKAGE, copy / "mlfs_dask", ignore=shutil.ignore_patterns("__pycache__"))
    with (copy / "mlfs_dask" / "blocks" / "entropy.py").open("a") as file:
        file.write("# altered\n")
    preload = tmp_path / "preload.py"
    preload.write_text(
        "import sys\n"
        f"sys.path.insert(0, {str(copy)!r})\n"
        "for name in [name for name in sys.modules if name.partition('.')[0] == 'mlfs_dask']:\n"
        "    del sys.modules[name]\n"
    )
    return preload


def data() -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 5))
    return X, (X[:, :2] > 0).astype(int)


def blocks() -> tuple[Any, Any]:
    X, Y = data()
    return da.from_array(X, chunks=(25, 5)), da.from_array(Y, chunks=(25, 2))


def fit() -> mlfs.ELC:
    return mlfs.ELC(n_features_to_select=2).fit(*blocks())


def test_a_worker_with_other_code_gets_no_task(
    scheduler_file: Path, start_worker: Callable[..., Any], other_code: Path, caplog: pytest.LogCaptureFixture
) -> None:
    start_worker()
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        start_worker(other_code)
        client.wait_for_workers(2, timeout=60)
        assert runtime.current_resources().workers == 1
        selector = fit()
    assert selector.scores_ == pytest.approx(mlfs.ELC(n_features_to_select=2).fit(*data()).scores_)
    (refused,) = selector.report_.extra["refused_workers"]
    assert refused["host"] == "127.0.0.1"
    assert "has code of mlfs-dask" in refused["cause"]
    assert f"worker {refused['worker']} on 127.0.0.1 has code of mlfs-dask" in caplog.text


def test_no_worker_is_left(scheduler_file: Path, start_worker: Callable[..., Any], other_code: Path) -> None:
    start_worker(other_code)
    with pytest.raises(ClusterLostError) as caught, connect(scheduler_file=str(scheduler_file)):
        pytest.fail("connected")
    message = str(caught.value)
    assert "no worker of the cluster can take part" in message
    assert "install the same mlfs-dask" in message
    assert caught.value.exit_code == 5


WITHOUT_PACKAGE = "import sys\nsys.modules['mlfs_dask'] = sys.modules['mlfs_dask.admission'] = None\n"
WITHOUT_LIBRARY = """
import sys

class Finder:
    @staticmethod
    def find_spec(name, *_):
        if name.partition(".")[0] in ("zarr", "numcodecs"):
            raise OSError("libblosc.so: cannot open shared object file")

sys.meta_path.insert(0, Finder)
"""


@pytest.mark.parametrize(
    ("preload", "cause"),
    [(WITHOUT_PACKAGE, "ModuleNotFoundError"), (WITHOUT_LIBRARY, "OSError('libblosc.so: cannot open")],
    ids=["package", "library"],
)
def test_a_worker_without_what_it_needs(
    scheduler_file: Path,
    start_worker: Callable[..., Any],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    preload: str,
    cause: str,
) -> None:
    block = tmp_path / "block.py"
    block.write_text(preload)
    start_worker()
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        start_worker(block)
        client.wait_for_workers(2, timeout=60)
        assert fit().ranking_[:2].tolist() in ([0, 1], [1, 0])
    assert f"cannot load what it needs: {cause}" in caplog.text


def test_a_frozen_worker_is_left_out(
    scheduler_file: Path,
    start_worker: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(admission, "ANSWER_SECONDS", 2.0)
    start_worker()
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        frozen = start_worker()
        client.wait_for_workers(2, timeout=60)
        os.kill(frozen.pid, signal.SIGSTOP)
        assert fit().ranking_[:2].tolist() in ([0, 1], [1, 0])
        os.kill(frozen.pid, signal.SIGCONT)
    assert "did not answer within 2 s; it is left out" in caplog.text


def test_a_worker_with_other_code_that_joins_during_a_pass(
    scheduler_file: Path, start_worker: Callable[..., Any], other_code: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The worker of the beginning is frozen until the late one has run some of its tasks."""
    worker = start_worker()
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        started: list[str] = []

        def wake() -> None:
            os.kill(worker.pid, signal.SIGCONT)

        def event(fields: dict[str, Any]) -> None:
            if fields["kind"] == "pass" and not started:
                started.append(fields["label"])
                os.kill(worker.pid, signal.SIGSTOP)
                start_worker(other_code)
                threading.Timer(12.0, wake).start()

        with runtime.progress_to(event):
            selector = fit()
    assert started
    assert "the pass is repeated without" in caplog.text
    assert selector.scores_ == pytest.approx(mlfs.ELC(n_features_to_select=2).fit(*data()).scores_)
    assert len(selector.report_.extra["refused_workers"]) == 1
