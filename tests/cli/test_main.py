"""The group: lazy, quick, with helpful refusals, one exit code a kind of error."""

from __future__ import annotations

import functools
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import time
import tomllib
import warnings
from pathlib import Path
from typing import Any

import pytest

# Imported before tests replace what they take from other modules by name: later they would keep the replacements.
import mlfs_dask.batch.running
import mlfs_dask.selection.transform  # noqa: F401
from mlfs_dask.engine import checkpoints
from mlfs_dask.engine.checkpoints import Folder, keep_checkpoints
from mlfs_dask.errors import ClusterLostError, DataError, DoesNotFitError, MlfsError, UsageError
from mlfs_dask.selection.estimator import get_estimator
from mlfs_dask_cli import main
from mlfs_dask_cli.main import COMMANDS, plain_warnings
from tests.cli.conftest import Run
from tests.cli.stand_ins import run_with_module


def test_every_command_has_help(run: Run) -> None:
    listed = run("--help").stdout
    for command in COMMANDS:
        assert f"\n  {command} " in listed
        result = run(command, "--help")
        assert (result.exit_code, result.stdout.startswith(f"Usage: mlfs {command}")) == (0, True)


@pytest.mark.parametrize("words", [["--help"], ["convert", "--help"], ["select", "--help"], ["report", "--help"]])
def test_help_imports_nothing_heavy(words: list[str]) -> None:
    """What makes it quick: measured, it is 0.07 s; a clock in a test would only measure the machine."""
    program = (
        "import sys\n"
        "from mlfs_dask_cli.main import mlfs\n"
        f"mlfs({words!r}, standalone_mode=False)\n"
        "heavy = {'dask', 'distributed', 'jinja2', 'matplotlib', 'numpy', 'numba', 'pandas', 'pyarrow', 'rich', "
        "'scipy', 'sklearn', 'zarr'}\n"
        "sys.exit(f'imported {sorted(heavy & set(sys.modules))}' if heavy & set(sys.modules) else 0)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("method", "loads"), [("access-mfs", False), ("smfs", True)])
def test_what_the_exact_forms_load_is_in_their_plans(
    tiny_store: Path, tmp_path: Path, method: str, loads: bool
) -> None:
    """Also where a loop does not converge, of which the warning is scikit-learn's in Python."""
    words = ["select", method, str(tiny_store), "-k", "2", "--max-iter", "1", "-o", str(tmp_path / "run")]
    program = (
        "import atexit, sys\n"
        "from mlfs_dask_cli import start\n"
        "atexit.register(lambda: print('sklearn' in sys.modules, 'numba' in sys.modules))\n"
        f"sys.argv[1:] = {words!r}\n"
        "start()\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "did not converge" in done.stderr
    assert done.stdout.splitlines()[-1] == f"{loads} False"
    assert get_estimator(method).plain.exact_loads_sklearn is loads
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    peak, planned = record["peak_driver_bytes"], record["plan"]["peak_driver_bytes"]
    # Tiles of distances are planned whole, and the libraries of trees with all their pages.
    assert peak <= planned <= peak + (160 if loads else 80) * 2**20


@pytest.mark.parametrize(
    "program",
    [[sys.executable, "-m", "mlfs_dask"], [sys.executable, "-m", "dask", "mlfs"]],
    ids=["module", "dask"],
)
def test_other_ways_to_start(program: list[str], tmp_path: Path) -> None:
    shown = subprocess.run([*program, "--version"], capture_output=True, text=True, check=False)
    assert (shown.returncode, shown.stdout.split()[0]) == (0, "mlfs")
    absent = [*program, "inspect", str(tmp_path / "absent.zarr")]
    failed = subprocess.run(absent, capture_output=True, text=True, check=False)
    assert failed.returncode == 3
    assert failed.stderr.startswith("mlfs: ")


def test_console_script_and_dask_entry_point() -> None:
    points = {
        (point.group, point.name): point.value for point in importlib.metadata.distribution("mlfs-dask").entry_points
    }
    assert points["console_scripts", "mlfs"] == "mlfs_dask_cli:start"
    assert points["dask_cli", "mlfs"] == "mlfs_dask_cli.main:mlfs"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["slect"], "no such command: 'slect'. Did you mean select"),
        (["select"], "give a METHOD and a STORE; `mlfs methods` lists the methods."),
        (["nonsense"], "no such command: 'nonsense'. Known: convert, append, inspect"),
        (["select", "elk"], "no such method: 'elk'. Did you mean elc"),
        (["select", "elc,gm", "x.zarr"], "no such method: 'gm'. Did you mean gmm"),
        (["select", "elc,ELC", "x.zarr"], "'elc,ELC' names elc twice"),
        (["plan", "elc,gmm", "x.zarr"], "plan takes one method; got 'elc,gmm'"),
        (["select", "elc,gmm", "x.zarr", "-o", "x", "-k", "3", "--n-anchors", "9"], "No such option '--n-anchors'"),
        (["select", "elc", "x.zarr", "-o", "x", "-k", "1/0"], "neither a count (20) nor a share"),
        (["select", "elc", "x.zarr", "-o", "x", "-k", "110%"], "lies between 0 and 100%"),
        (["select", "-k", "3", "elc"], "the method comes before its options, and '-k' came first"),
        (["select", "elc", "x.zarr", "-o", "x", "-k", "3", "--bta", "1"], "--beta"),
        (["select", "elc", "x.zarr", "-o", "x"], "Missing option '-k'"),
        (["select", "elc", "x.zarr", "-o", "x", "-k", "3", "--variant", "new"], "--variant must be one of corrected"),
        (
            ["select", "elc", "x.zarr", "-o", "x", "-k", "3", "--max-iter", "few"],
            "--max-iter must be a whole number of",
        ),
        (["plan", "elc", "x.zarr", "--memory-limit", "lots"], "'lots' is no size; write bytes or a unit"),
        (["plan", "elc", "x.zarr", "--memory-limit", "-1GB"], "'-1GB' is no size; it must be positive"),
        (
            ["plan", "elc", "x.zarr", "--memory-limit", "20"],
            "'20' are bytes, in which no process runs; give a unit, as",
        ),
        (["convert"], "Missing argument 'SOURCE...'"),
        (["convert", "x.csv"], "Missing argument 'STORE'"),
    ],
)
def test_wrong_usage(run: Run, words: list[str], message: str) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr
    assert "--help" in result.stderr


def test_an_option_before_the_command_that_does_not_exist(run: Run) -> None:
    for words in (["--nosuch", "--json"], ["--json", "inspect", "x.zarr"]):
        result = run(*words)
        error = json.loads(result.stdout)["error"]
        assert (result.exit_code, error["kind"], error["exit_code"]) == (2, "usage", 2)
        assert f"No such option '{words[0]}'" in error["message"]
        assert result.stderr == f"mlfs: {error['message']}\n"


ERRORS: list[tuple[BaseException, int, str, str, dict[str, Any]]] = [
    (UsageError("k is 0"), 2, "usage", "k is 0", {}),
    (
        DataError("expected 0 or 1", file="a.arff", line=7, column="sky", value="2", cure="correct it"),
        3,
        "data",
        "a.arff, line 7, column 'sky', value '2': expected 0 or 1\n  cure: correct it",
        {"file": "a.arff", "line": 7, "column": "sky", "value": "2", "cure": "correct it"},
    ),
    (
        DoesNotFitError("a reading", projected=2**31, available=2**30, cure="more memory"),
        4,
        "does_not_fit",
        "projected 2,048.0 MiB (2,147,483,648 bytes), available 1,024.0 MiB",
        {"projected": 2**31, "available": 2**30, "cure": "more memory"},
    ),
    (ClusterLostError("gone"), 5, "cluster_lost", "gone", {}),
    (MlfsError("no"), 1, "error", "no", {}),
    (KeyboardInterrupt(), 130, "interrupted", "interrupted.", {}),
    (PermissionError(13, "Permission denied", "x.zarr"), 1, "system", "Permission denied: x.zarr", {"errno": 13}),
    (
        OSError(30, "Read-only file system", "x"),
        1,
        "system",
        "Read-only file system: x\n  cure: give another place, or change owner, mode or mount",
        {"errno": 30},
    ),
    (OSError(20, "Not a directory", "x"), 1, "system", "Not a directory: x\n  cure: check the path", {"errno": 20}),
    (OSError(28, "No space left on device", "x"), 4, "does_not_fit", "No space left on device: x", {}),
    (ZeroDivisionError("by zero"), 1, "unexpected", "unexpected ZeroDivisionError: by zero", {}),
    (ImportError("DLL"), 1, "system", "a library does not load: ImportError: DLL\n  cure: install mlfs-dask again", {}),
    (
        OSError("libllvm.so: cannot open shared object file"),
        1,
        "system",
        "a library does not load: OSError: libllvm",
        {},
    ),
]


@pytest.mark.parametrize(("error", "code", "kind", "message", "details"), ERRORS)
def test_every_kind_of_error_has_its_code(
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    kind: str,
    message: str,
    details: dict[str, Any],
) -> None:
    def fails(store: str) -> None:
        raise error

    monkeypatch.setattr("mlfs_dask.storage.opening.open_dataset", fails)
    plain = run("plan", "elc", "x.zarr")
    assert plain.exit_code == code
    assert plain.stdout == ""
    assert plain.stderr.startswith(f"mlfs: {message}" if not isinstance(error, DoesNotFitError) else "mlfs: a reading")
    assert message in plain.stderr
    assert "Traceback" not in plain.stderr

    machine = run("plan", "elc", "x.zarr", "--json")
    assert machine.exit_code == code
    found = json.loads(machine.stdout)["error"]
    assert (found["kind"], found["exit_code"]) == (kind, code)
    assert message in found["message"]
    assert details.items() <= found.items()


def test_a_traceback_is_shown_on_request_only(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(store: str) -> None:
        raise ZeroDivisionError("by zero")

    monkeypatch.setattr("mlfs_dask.storage.opening.open_dataset", fails)
    result = run("plan", "elc", "x.zarr", "-v")
    assert result.exit_code == 1
    assert "Traceback (most recent call last)" in result.stderr


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ClusterLostError("gone")])
def test_resumable_commands_say_how_to_go_on(run: Run, monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    def fails(*args: object, **kwargs: object) -> None:
        raise error

    monkeypatch.setattr("mlfs_dask.storage.opening.open_dataset", fails)
    monkeypatch.setattr("mlfs_dask.storage.convert.convert", fails)
    monkeypatch.setattr("mlfs_dask.selection.transform.write_selected", fails)
    monkeypatch.setattr("mlfs_dask.batch.spec.read_spec", fails)
    result = run("select", "elc", "my store.zarr", "-k", "3", "-o", "run")
    assert "To go on where it stopped: mlfs select elc 'my store.zarr' -k 3 -o run --resume" in result.stderr
    result = run("convert", "a.csv", "a.zarr", "--resume")
    assert "To go on where it stopped: mlfs convert a.csv a.zarr --resume\n" in result.stderr
    result = run("transform", "a.zarr", "run", "b.zarr")
    assert "To go on where it stopped: mlfs transform a.zarr run b.zarr --resume\n" in result.stderr
    result = run("evaluate", "a.zarr", "elc", "-o", "a.eval")
    assert "To go on where it stopped: mlfs evaluate a.zarr elc -o a.eval --resume\n" in result.stderr
    result = run("batch", "plan.yaml", "--resume")
    assert "To go on where it stopped: mlfs batch plan.yaml --resume\n" in result.stderr
    result = run("plan", "elc", "x.zarr")
    assert "--resume" not in result.stderr


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_signals_end_a_command_with_130_and_leave_nothing(
    tiny_store: Path, tmp_path: Path, free_port: int, signum: signal.Signals
) -> None:
    """While it waits for a scheduler that never comes."""
    words = ["select", "elc", str(tiny_store), "-k", "2", "-o", "run", "--scheduler", f"127.0.0.1:{free_port}"]
    process = subprocess.Popen(
        [sys.executable, "-m", "mlfs_dask", *words, "--json"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    line = process.stderr.readline()
    assert "connecting to the scheduler" in line
    time.sleep(0.3)
    process.send_signal(signum)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert json.loads(stdout)["error"]["kind"] == "interrupted"
    assert f"mlfs {' '.join(words)} --json --resume" in stderr
    assert list(tmp_path.iterdir()) == []


SIGNAL_IN_AN_EXEC = 'import os, time\nexec("os.kill(os.getpid(), {signum:d}); time.sleep(60)")\n'
SIGNAL_IN_A_CALLBACK = """
import os, weakref
def gone(): pass
weakref.finalize(gone, os.kill, os.getpid(), {signum:d})
del gone
"""


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize(
    ("module", "text", "signum"),
    [
        ("numpy", SIGNAL_IN_AN_EXEC, signal.SIGTERM),
        ("numpy", SIGNAL_IN_AN_EXEC, signal.SIGINT),
        ("distributed", SIGNAL_IN_A_CALLBACK, signal.SIGINT),
        ("distributed", SIGNAL_IN_A_CALLBACK, signal.SIGTERM),
    ],
    ids=["SIGTERM in an exec", "SIGINT in an exec", "SIGINT in a callback", "SIGTERM in a callback"],
)
def test_a_signal_in_the_midst_of_an_import_ends_with_130(
    tiny_store: Path, tmp_path: Path, module: str, text: str, signum: signal.Signals
) -> None:
    """Python ends by the signal where it left an `exec` of a string, and forgets it where it leaves a callback."""
    words = ["select", "elc", str(tiny_store), "-k", "2", "-o", "run", "--workers", "1"]
    command = [sys.executable, "-m", "mlfs_dask", *words]
    done = run_with_module(tmp_path, module, text.format(signum=signum), command)
    assert (done.returncode, done.stdout) == (130, "")
    assert "mlfs: interrupted.\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("again", [True, False], ids=["a second signal", "an iteration that takes long"])
def test_a_loop_that_saves_its_state_at_sigterm_is_not_waited_for_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *, again: bool
) -> None:
    monkeypatch.setattr(main, "GRACE_SECONDS", 3600 if again else 0.05)
    monkeypatch.setattr(main, "ECHO_SECONDS", 0.0 if again else 3600)
    job = checkpoints.job(method="mfsir", params={}, digest="d")
    with keep_checkpoints(Folder(str(tmp_path))), job as checkpoint, main._ended_by_signals():
        assert not checkpoint.due()
        signal.raise_signal(signal.SIGTERM)
        assert checkpoint.due()
        wait = functools.partial(signal.raise_signal, signal.SIGTERM) if again else functools.partial(time.sleep, 30)
        with pytest.raises(KeyboardInterrupt):
            wait()
    assert "ends with this iteration" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


WARNS = ["select", "elc", "{store}", "-k", "2", "-o", "{run}", "--max-iter", "3"]


@pytest.mark.parametrize("switches", [[], ["-W", "error"]], ids=["plain", "as errors"])
def test_a_warning_is_one_plain_line(tiny_store: Path, tmp_path: Path, switches: list[str]) -> None:
    words = [word.format(store=tiny_store, run=tmp_path / "run") for word in WARNS]
    done = subprocess.run(
        [sys.executable, *switches, "-m", "mlfs_dask", *words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("mlfs: ELC did not converge in 3 iterations")
    assert "did not converge after 3 iterations" in done.stdout


def test_quiet_has_no_warnings(run: Run, tiny_store: Path, tmp_path: Path) -> None:
    words = [word.format(store=tiny_store, run=tmp_path / "run") for word in WARNS]
    assert run(*words, "--quiet").stderr == ""


@pytest.mark.parametrize("category", [UserWarning, RuntimeWarning])
def test_warnings_of_other_packages_stay_as_they_are(category: type[Warning]) -> None:
    with pytest.warns(category, match="of theirs"), plain_warnings(quiet=True):
        warnings.warn_explicit("of theirs", category, "theirs.py", 1, module="theirs")


def test_a_closed_pipe_is_no_fault_of_ours(tiny_store: Path) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-m", "mlfs_dask", "inspect", str(tiny_store)],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert process.returncode != 0
    assert "unexpected" not in process.stderr


def test_sigterm_is_handled_as_before_afterwards(run: Run, tiny_store: Path) -> None:
    before = signal.getsignal(signal.SIGTERM)
    assert run("inspect", tiny_store).exit_code == 0
    assert signal.getsignal(signal.SIGTERM) is before


def test_every_package_is_installed() -> None:
    root = Path(__file__).parent.parent.parent
    settings = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["setuptools"]
    found = {".".join(path.parent.relative_to(root).parts) for path in (root / "mlfs_dask").rglob("__init__.py")}
    assert set(settings["packages"]) == found | {"mlfs_dask_cli"}
