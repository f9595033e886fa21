"""Every call to the file system fails once, for every command: exit code, what lies there, and the run after it.

`failing_calls.py` runs the commands, `failing_calls.c` makes the calls fail. Here in each run one call fails, with the
error that is likeliest for its kind, and of the same calls on one file the first and the last; `make nightly` takes
each error for each kind, for every call and from one on, and further forms of the commands.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

LIKELY = {
    "open": errno.EACCES,
    "create": errno.ENOSPC,
    "read": errno.EIO,
    "write": errno.ENOSPC,
    "sync": errno.EIO,
    "rename": errno.ENOSPC,
    "unlink": errno.EACCES,
    "mkdir": errno.ENOSPC,
}
READING = ("open", "read")

# What errors are assigned to kinds of calls, and whether all calls after the first one fail, too.
ASSIGNMENTS: dict[str, tuple[dict[str, int], bool]] = {"likely": (LIKELY, False)}
if os.environ.get("MLFS_NIGHTLY"):
    for number in (errno.ENOSPC, errno.EIO, errno.EACCES):
        for persist in (False, True):
            errors = {kind: number for kind in LIKELY if number != errno.ENOSPC or kind not in READING}
            name = f"{errno.errorcode[number]} {'from one call on' if persist else 'once'}"
            ASSIGNMENTS[name] = (errors, persist)

EVALUATE = "evaluate s.zarr chi2 -o out --folds 2 --k-grid 1,2 --classifier mlknn --n-neighbors 3 --seed 1"

# Command, what is written, what is there before, and what the second run has beside the words of the first.
COMMANDS: dict[str, tuple[str, str | None, list[str], str]] = {
    "convert": ("convert rows.npz out", "out", ["rows.npz"], "--resume"),
    "append": ("append s.zarr more.npz", "s.zarr", ["s.zarr", "more.npz"], "--resume"),
    "select": ("select chi2 s.zarr -k 2 -o out --cache s.cache", "out", ["s.zarr"], "--resume"),
    "select with a loop": (
        "select smfs s.zarr -k 2 -o out --max-iter 2 --checkpoint-every 0",
        "out",
        ["s.zarr"],
        "--resume",
    ),
    "transform to a file": ("transform s.zarr run out.csv", "out.csv", ["s.zarr", "run"], "--force"),
    "inspect": ("inspect s.zarr --verify", None, ["s.zarr"], ""),
    "plan": ("plan chi2 s.zarr", None, ["s.zarr"], ""),
    "evaluate": (EVALUATE, "out", ["s.zarr"], "--resume"),
    "report": ("report run eval -o out.html", "out.html", ["s.zarr", "run", "eval"], "--force"),
    "batch": ("batch plan.yaml -o out", "out", ["plan.yaml", "s.zarr"], "--resume"),
    "annotate": ("annotate cells.h5ad all.run", "cells.h5ad", ["cells.h5ad", "all.run"], "--force"),
}
# What goes the way of another command, but for its last steps.
VARIANTS: dict[str, tuple[str, str | None, list[str], str]] = {
    "convert --force": ("convert rows.npz all.zarr --force", "all.zarr", ["rows.npz", "all.zarr"], "--resume"),
    "select --force": ("select chi2 s.zarr -k 2 -o run --force", "run", ["s.zarr", "run"], "--resume"),
    "transform": ("transform s.zarr run out", "out", ["s.zarr", "run"], "--resume"),
    "transform to .h5ad": ("transform s.zarr run out.h5ad", "out.h5ad", ["s.zarr", "run"], "--force"),
    "compare": ("compare eval -o out", "out", ["eval"], "--force"),
}
if os.environ.get("MLFS_NIGHTLY"):
    COMMANDS |= VARIANTS


@pytest.fixture(scope="module")
def sweep(failing_library: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Any]]:
    """A process that sweeps a case; it has everything imported, and forks for each call."""
    environment = {**os.environ, "LD_PRELOAD": str(failing_library), "OPENBLAS_NUM_THREADS": "1"}
    # Some thousand runs make, read and remove small files: in memory that takes half the time.
    memory = Path("/dev/shm")
    place = memory if os.access(memory, os.W_OK) else tmp_path_factory.getbasetemp()
    pipe = subprocess.PIPE
    with (
        TemporaryDirectory(dir=place) as folder,
        subprocess.Popen(
            [sys.executable, "-m", "tests.blackbox.failing_calls", folder],
            cwd=Path(__file__).parents[2],
            env=environment,
            stdin=pipe,
            stdout=pipe,
            text=True,
        ) as process,
    ):

        def ask(**case: Any) -> Any:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(case) + "\n")
            process.stdin.flush()
            return json.loads(process.stdout.readline())

        yield ask
        process.kill()


@pytest.mark.longer
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("assignment", ASSIGNMENTS)
@pytest.mark.parametrize("name", COMMANDS)
def test_each_call_of_a_command_fails(sweep, name, assignment):
    command, output, inputs, again = COMMANDS[name]
    errors, persist = ASSIGNMENTS[assignment]
    words = command.split()
    second = [*words, *again.split()]
    case = {"words": words, "again": second, "output": output, "inputs": inputs, "grows": words[0] == "batch"}
    answer = sweep(**case, errors=errors, persist=persist, every="MLFS_NIGHTLY" in os.environ)
    assert answer["calls"] > 5
    assert answer["wrong"] == [], f"of {answer['calls']} calls:\n" + "\n".join(answer["wrong"])
