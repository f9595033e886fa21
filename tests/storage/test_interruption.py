"""Conversions that are killed, interrupted or run out of disk, as real processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import psutil
import pytest

from mlfs_dask.errors import DoesNotFitError
from mlfs_dask.storage.convert import convert_reader
from mlfs_dask.storage.dataset import open_dataset
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
    module._plan = lambda *args: ConversionPlan(workers, 1 << 20, 1, 1)
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


@pytest.mark.parametrize(("workers", "kind"), [(1, "threads"), (2, "threads"), (2, "processes")])
def test_killed_while_reading(tmp_path: Path, workers: int, kind: str) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    process = start(folder, workers, resume=False, kind=kind)
    wait_for(lambda: len(batches_read(folder)) > 20, process)
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.communicate()
    # Workers end with their parent: otherwise they would go on writing beside a resumed conversion.
    _, alive = psutil.wait_procs(children, timeout=10)
    assert alive == []
    assert [path.name for path in folder.iterdir()] == [".out.zarr.wip"]
    before = batches_read(folder)
    assert len(before) < 64

    process = start(folder, workers, resume=True, kind=kind)
    _, problems = process.communicate(timeout=100)
    assert process.returncode == 0, problems
    check_finished(folder)
    # At most the batch that each worker was at is read twice.
    again = len(batches_read(folder)) - 64
    assert 0 <= again <= workers


def test_killed_while_writing(tmp_path: Path) -> None:
    folder = tmp_path / "place"
    folder.mkdir()
    process = start(folder, 1, resume=False)
    done = folder / ".out.zarr.wip" / "done"
    wait_for(lambda: done.is_dir() and len(list(done.iterdir())) >= 2, process)
    process.kill()
    process.communicate()
    process = start(folder, 1, resume=True)
    _, problems = process.communicate(timeout=100)
    assert process.returncode == 0, problems
    check_finished(folder)
    assert len(batches_read(folder)) == 64


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


def test_disk_full_while_reading(small_disk: Callable[[str], Path], caplog: pytest.LogCaptureFixture) -> None:
    disk = small_disk("3m")
    X = np.random.default_rng(0).normal(size=(1000, 500))  # 4 MB
    reader = make_reader(X, np.ones((1000, 1), np.int8), cuts=tuple(range(0, 1000, 50)))
    caplog.set_level("WARNING")
    full = r"the disk is full, and more has to be written: projected .*\n  cure: make room and pass --resume"
    with pytest.raises(DoesNotFitError, match=full) as raised:
        convert_reader(lambda: reader, disk / "out.zarr", workers=1)
    assert str(disk / ".out.zarr.wip") in str(raised.value)
    assert raised.value.available < 2**20
    assert raised.value.projected > 0
    assert (str(raised.value) + caplog.text).count("--resume") == 1, "the advice is given once"
    subprocess.run(["mount", "-o", "remount,size=20m", str(disk)], check=True)
    convert_reader(lambda: reader, disk / "out.zarr", workers=1, resume=True)
    np.testing.assert_array_equal(open_dataset(disk / "out.zarr").X.compute(), X)
    assert [path.name for path in disk.iterdir()] == ["out.zarr"]


def test_disk_too_small_for_the_store(small_disk: Callable[[str], Path]) -> None:
    disk = small_disk("3m")
    X = np.random.default_rng(0).normal(size=(1000, 250))  # 2 MB, which fit once but not twice
    with pytest.raises(DoesNotFitError, match="writing the store beside its staged rows"):
        convert_reader(lambda: make_reader(X, np.ones((1000, 1), np.int8)), disk / "out.zarr", workers=1)
    assert not (disk / "out.zarr").exists()
