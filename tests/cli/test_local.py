"""Commands without a cluster, in processes of their own: what they load, where they listen, how they end by Ctrl-C."""

from __future__ import annotations

import csv
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mlfs_dask.engine.checkpoints import checkpoint_place
from mlfs_dask.selection.runs import read_run
from mlfs_dask.storage.opening import open_dataset
from tests.cli.conftest import Run
from tests.storage.stores import make_store

LOADED = """
import json, sys

bound = []
sys.addaudithook(lambda event, args: bound.append(str(args[1])) if event == "socket.bind" else None)
from mlfs_dask_cli.main import main

heavy = set(sys.argv.pop(1).split(","))
try:
    main()
except SystemExit as end:
    assert not end.code, end.code
print(json.dumps({"loaded": sorted(heavy & set(sys.modules)), "bound": bound}))
"""

NEVER = "dask,distributed,tornado,matplotlib,h5py"
#: What comes with scikit-learn as well, and scikit-learn with the trees and decompositions of some methods.
NOT_WITHOUT_NEED = f"{NEVER},pandas,pyarrow,numba,llvmlite,sklearn,scipy.stats,zarr,fsspec,rich,yaml,jinja2"


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """80 rows in more than one partition, for a reading that has more than one run."""
    rng = np.random.default_rng(0)
    Y = (rng.random((80, 3)) < 0.4).astype(np.int8)
    X = rng.normal(size=(80, 9))
    X[:, :3] += Y
    path = make_store(tmp_path_factory.mktemp("local") / "known.zarr", X, Y, partition_bytes=20 * 72)
    assert open_dataset(path).rows.profile.partitions >= 4
    return path


@pytest.mark.parametrize(
    ("words", "heavy"),
    [
        ("methods", NOT_WITHOUT_NEED),
        ("plan elc {store}", NOT_WITHOUT_NEED),
        ("inspect {store}", NOT_WITHOUT_NEED),
        ("select elc {store} -k 2 -o {out}", NOT_WITHOUT_NEED),
        ("select br-cc {store} -k 2 -o {out} --pairs all", f"{NEVER},pandas,scipy.stats,numba"),
        ("select enm {store} -k 2 -o {out}", NOT_WITHOUT_NEED),
        ("select smfs {store} -k 2 -o {out} --max-iter 2 --write-labels", NEVER),
        ("evaluate {store} elc -o {out} --folds 2 --k-grid 2", "distributed,tornado,matplotlib"),
    ],
)
def test_a_command_loads_what_it_uses_alone_and_listens_nowhere(
    words: str, heavy: str, store: Path, tmp_path: Path
) -> None:
    command = words.format(store=store, out=tmp_path / "out").split()
    done = subprocess.run([sys.executable, "-c", LOADED, heavy, *command], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == {"loaded": [], "bound": []}
    assert (tmp_path / "out").exists() == ("{out}" in words)


SLOW = """
import dataclasses, os, sys, time
from mlfs_dask.storage import dataset, store_reader
from mlfs_dask_cli.main import main

from_when_it_exists = sys.argv.pop(1)
whole, blocks = dataset.Store.rows.func, store_reader._Run.blocks

def slowly(run, first, last):
    for block in blocks(run, first, last):
        if os.path.exists(from_when_it_exists):
            os.write(1, b"block\\n")  # in one piece, whatever other threads write
            time.sleep(0.1)
        yield block

store_reader._Run.blocks = slowly
dataset.Store.rows = property(lambda self: dataclasses.replace(whole(self), block_bytes=1))  # a row a block
main()
"""


def slowly(from_when_it_exists: str | Path, *words: object) -> list[str]:
    return [sys.executable, "-c", SLOW, *map(str, (from_when_it_exists, *words))]


def scores(run: Path) -> list[tuple[str, str]]:
    with (run / "ranking.csv").open(newline="") as stream:
        return [(row["feature_index"], row["score"]) for row in csv.DictReader(stream)]


@pytest.mark.usefixtures("interruptible")
def test_ctrl_c_ends_a_pass_at_its_next_blocks_and_can_be_resumed(store: Path, tmp_path: Path, run: Run) -> None:
    """Runs of 20 blocks, some at a time, which would otherwise be read to their ends."""
    out = tmp_path / "run"
    words = ("select", "mfsir", store, "-k", "2", "--graph", "anchors", "--tol", "0", "--max-iter", "3")
    words += ("--checkpoint-every", "0", "--quiet", "--cache", "none")
    resumable = Path(checkpoint_place(str(out))) / "state.npz"
    process = subprocess.Popen(
        slowly(resumable, *words, "-o", out), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "block\n"
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stderr
    assert "mlfs: interrupted.\n  To go on where it stopped: mlfs select" in stderr
    assert "Traceback" not in stderr
    # Those that were on their way, and one that the reader of every thread had begun.
    assert stdout.count("block") <= 8
    assert not out.exists()
    subprocess.run(slowly("", *words, "-o", out, "--resume"), check=True, timeout=120, stdout=subprocess.DEVNULL)
    assert run(*words, "-o", tmp_path / "whole").exit_code == 0
    assert scores(out) == scores(tmp_path / "whole")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run", "whole"]


@pytest.mark.cluster
@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("send", "signum", "delay"),
    [
        (os.killpg, signal.SIGINT, 0.7),
        (os.kill, signal.SIGTERM, 0.2),
    ],
    ids=["Ctrl-C", "SIGTERM of the process"],
)
def test_a_signal_while_local_workers_start_is_answered_once(
    store: Path, tmp_path: Path, send: Callable[[int, int], None], signum: signal.Signals, delay: float
) -> None:
    """A cluster that is interrupted half-made cannot be closed, and workers that load Dask print where they were."""
    command = [sys.executable, "-m", "mlfs_dask", "select", "elc", str(store), "-k", "2", "--workers", "2"]
    process = subprocess.Popen(
        [*command, "-o", str(tmp_path / "run"), "--cache", "none"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stderr is not None
    assert process.stderr.readline().startswith("mlfs: starting 2 local workers")
    time.sleep(delay)
    send(process.pid, signum)
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (130, "")
    assert re.fullmatch(r"mlfs: interrupted\.\n  To go on where it stopped: .* --resume\n", stderr)
    assert not (tmp_path / "run").exists()


@pytest.mark.cluster
def test_workers_are_started_where_they_are_asked_for(store: Path, tmp_path: Path) -> None:
    """Two beside the client, and, where nothing is asked for, threads of one process.

    Processes share the descriptor of standard output, where a result as JSON stands alone.
    """
    words = ("select", "elc", store, "-k", "2", "--cache", "none", "--progress", "json", "--json", "-v")
    shown = {}
    for name, where in (("asked", ["--workers", "2", "--memory-limit", "1GiB"]), ("default", [])):
        done = subprocess.run(
            [sys.executable, "-m", "mlfs_dask", *map(str, words), "-o", str(tmp_path / name), *where],
            capture_output=True,
            text=True,
            check=True,
        )
        shown[name] = done.stderr
        assert json.loads(done.stdout)["selected"] == read_run(str(tmp_path / name)).feature_names[:2]
        events = [json.loads(line) for line in done.stderr.splitlines() if line.startswith("{")]
        assert {"fit", "pass", "partitions", "pass-done"} <= {event["kind"] for event in events}
        partitions = open_dataset(store).rows.profile.partitions
        assert sum(event["done"] for event in events if event["kind"] == "partitions") == partitions
    assert "starting 2 local workers with 1.0 GiB and 1 thread each" in shown["asked"]
    assert "worker" not in shown["default"]
    asked, default = (read_run(str(tmp_path / name)) for name in ("asked", "default"))
    assert asked.feature_names[:2] == default.feature_names[:2]
