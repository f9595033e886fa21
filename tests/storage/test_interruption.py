"""Conversions that are killed, interrupted or run out of disk, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import psutil
import pytest

from mlfs_dask.storage.opening import open_dataset
from mlfs_dask.storage.verify import verify
from tests.storage.memory_reader import MemoryReader, make_reader

ROOT = Path(__file__).parent.parent.parent

# A conversion of 16 parts of 4 batches, each of which takes a while, as does each shard.
SCRIPT = """
import sys, time
from mlfs_dask.storage import convert as module
from mlfs_dask.storage.chunking import ConversionPlan
from mlfs_dask.storage.conversion_options import Options
from tests.storage.test_interruption import slow_reader

if __name__ == "__main__":
    folder, workers = sys.argv[1], int(sys.argv[2])
    resume, in_threads = sys.argv[3] == "resume", sys.argv[4] == "threads"
    module._plan = lambda *args: ConversionPlan(workers, 1 << 20, 1)
    options = Options(partition_bytes=3000)
    write = module.write_one_shard
    module.write_one_shard = lambda *arguments: (time.sleep(0.05), write(*arguments))[1]
    print("ready", flush=True)
    module.convert_reader(lambda: slow_reader(folder, in_threads), folder + "/out.zarr", workers=workers,
                          options=options, resume=resume)
"""


def slow_reader(folder: str, in_threads: bool) -> MemoryReader:
    X, Y = rows()
    return make_reader(
        X,
        Y,
        cuts=tuple(range(0, 320, 5)),
        part_cuts=tuple(range(0, 320, 20)),
        sleep=0.03,
        log=f"{folder}/../log-{Path(folder).name}",
        in_threads=in_threads,
    )


def rows() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(3)
    return generator.normal(size=(320, 10)), generator.choice([0, 1, -1], (320, 3)).astype(np.int8)


def start(folder: Path, workers: int, *, resume: bool, kind: str = "processes") -> subprocess.Popen[bytes]:
    script = folder.parent / f"{folder.name}.py"
    script.write_text(SCRIPT)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(script), str(folder), str(workers), "resume" if resume else "new", kind]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def batches_read(folder: Path) -> list[str]:
    log = folder.parent / f"log-{folder.name}"
    return [" ".join(line.split()[:2]) for line in log.read_text().splitlines()] if log.exists() else []


def wait_for(condition: object, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.01)


def check_finished(folder: Path) -> None:
    X, Y = rows()
    dataset = open_dataset(folder / "out.zarr")
    np.testing.assert_array_equal(dataset.X.compute(), X)
    np.testing.assert_array_equal(dataset.Y.compute(), Y)
    assert verify(folder / "out.zarr").intact
    assert [path.name for path in folder.iterdir()] == ["out.zarr"]


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("kind", ["threads", "processes"])
def test_interrupt_key(tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    process = start(folder, 2, resume=False, kind=kind)
    wait_for(lambda: len(batches_read(folder)) > 10, process)
    children = psutil.Process(process.pid).children(recursive=True)
    for each in (psutil.Process(process.pid), *children):  # as a terminal does
        each.send_signal(signal.SIGINT)
    _, problems = process.communicate(timeout=30)
    assert process.returncode != 0
    assert problems.count(b"Traceback") == 1, problems
    assert b"KeyboardInterrupt" in problems
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert [path.name for path in folder.iterdir()] == [".out.zarr.wip"]
    process = start(folder, 2, resume=True, kind=kind)
    process.communicate(timeout=100)
    check_finished(folder)
