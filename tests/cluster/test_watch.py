"""Workers that fall silent, die, or do not see the data: real schedulers and worker processes."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import mlfs_dask as mlfs
from mlfs_dask import runtime
from mlfs_dask.cluster import watch as worker_watch
from mlfs_dask.cluster.connect import connect
from mlfs_dask.cluster.watch import partitions_of, read_key
from mlfs_dask.errors import DataError
from tests.storage.stores import make_store, sample

StartDask = Callable[..., "subprocess.Popen[bytes]"]


def test_names_of_tasks() -> None:
    assert partitions_of(read_key(3, 7, "0f0f")) == (3, 7)
    assert partitions_of("_merge-0f0f") is None


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    X, Y = sample(n=1600, sparse=False)
    return make_store(tmp_path / "store" / "t.zarr", X[:, 1:], abs(Y), partition_bytes=2000)


@pytest.fixture
def scheduler_file(tmp_path: Path, start_dask: StartDask) -> Path:
    file = tmp_path / "scheduler.json"
    start_dask("scheduler", "--host", "127.0.0.1", "--port", 0, "--scheduler-file", file)
    return file


def rank(store: Path) -> tuple[mlfs.LabelEntropy, list[int]]:
    with mlfs.cache(None):
        selector = mlfs.LabelEntropy(n_features_to_select=2).fit(mlfs.open_dataset(store))
    return selector, selector.ranking_.tolist()


@pytest.mark.cluster
def test_a_worker_that_is_frozen_in_a_pass(
    store: Path,
    scheduler_file: Path,
    start_dask: StartDask,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Only heartbeats count then: it is named after four that were missed, and given up after ten."""
    monkeypatch.setattr(worker_watch, "NAMED_SECONDS", 0.0)
    monkeypatch.setattr(worker_watch, "GIVEN_UP_SECONDS", 0.0)
    monkeypatch.setattr(worker_watch, "LOOK_SECONDS", 0.25)
    _, expected = rank(store)
    workers = [start_dask("worker", "--scheduler-file", scheduler_file, "--nthreads", 1) for _ in range(2)]
    frozen: list[int] = []

    def freeze(event: dict[str, Any]) -> None:
        if event["kind"] == "partitions" and not frozen:
            frozen.append(workers[1].pid)
            os.kill(workers[1].pid, signal.SIGSTOP)

    with connect(scheduler_file=str(scheduler_file)) as client, runtime.progress_to(freeze):
        assert client is not None
        client.wait_for_workers(2, timeout=60)
        found = rank(store)[1]
        os.kill(workers[1].pid, signal.SIGKILL)
    assert found == expected
    named, given_up = [r.getMessage() for r in caplog.records if r.name == worker_watch.__name__]
    assert "on 127.0.0.1 has not answered for " in named
    assert re.search(r"its \d+ partitions go to others after 5 s", named)
    assert "is given up: it has not answered for " in given_up


@pytest.mark.cluster
def test_a_worker_that_does_not_see_the_store(
    store: Path, scheduler_file: Path, start_dask: StartDask, caplog: pytest.LogCaptureFixture
) -> None:
    """Its mounts are its own, and an empty disk lies over the folder of the store."""
    mount = f'mount -t tmpfs tmpfs {store.parent} && exec "$@"'
    hidden = ("unshare", "--mount", "sh", "-c", mount, "sh")
    made = subprocess.run([*hidden, "true"], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"no process can have mounts of its own here: {made.stderr.decode().strip()}")
    _, expected = rank(store)
    options = ("--scheduler-file", scheduler_file, "--nthreads", 1)
    start_dask("worker", *options, prefix=hidden)
    with pytest.raises(DataError) as caught, connect(scheduler_file=str(scheduler_file)):
        rank(store)
    assert str(caught.value).startswith(f"{store}: there is no such store on the hosts of the workers (127.0.0.1)")
    assert "cure: workers read the store themselves: give them the same file system" in str(caught.value)
    start_dask("worker", *options)
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        client.wait_for_workers(2, timeout=60)
        selector, found = rank(store)
    assert found == expected
    (refused,) = selector.report_.extra["refused_workers"]
    assert refused["cause"] == f"does not see the data: {store}: there is no such store"
    assert "it is left out" in caplog.text
    assert "the reading is repeated without the workers that are left out" in caplog.text


@pytest.mark.cluster
def test_a_worker_frozen_before_the_start_does_not_hold_up_the_others(
    store: Path, scheduler_file: Path, start_dask: StartDask, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was admitted, and is frozen between two selections."""
    workers = [start_dask("worker", "--scheduler-file", scheduler_file, "--nthreads", 1) for _ in range(2)]
    with connect(scheduler_file=str(scheduler_file)) as client:
        assert client is not None
        client.wait_for_workers(2, timeout=60)
        assert runtime.current_resources().workers == 2
        os.kill(workers[1].pid, signal.SIGSTOP)
        monkeypatch.setattr("mlfs_dask.cluster.admission.ANSWER_SECONDS", 2.0)
        resources = runtime.current_resources()
        os.kill(workers[1].pid, signal.SIGKILL)
    assert resources.workers == 2
    assert resources.process_bytes >= runtime.PROCESS_BYTES
