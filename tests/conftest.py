"""Fixtures that every part of the suite may use."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from mlfs_dask.blocks import gates

REPOSITORY = Path(__file__).parent.parent
STARTED = time.monotonic()

# How long an example takes depends on what else the machine does. In continuous integration the examples are those of
# the week, so that a change is judged by what it changes; elsewhere each run draws others.
settings.register_profile("suite", deadline=None)
settings.register_profile("ci", deadline=None, database=None)
settings.load_profile("suite")

#: Reasons for which a test may be skipped under `--known-skips`, as patterns.
KNOWN_SKIPS = (
    r"make nightly",
    r"real data not found: ",
    r"published results not found: ",
    r"(plink2|azurite|zsh|fish|dask-kubernetes|SLURM) is not installed",
    r"needs Chromium and its driver",
    r"SLURM itself runs it",
    r"SCIPY_ARRAY_API is not set",  # of scikit-learn's checks, as is the next
    r"does not have a decision_function method",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    text = "a test that is skipped for a reason that tests/conftest.py does not list (KNOWN_SKIPS) fails"
    parser.addoption("--known-skips", action="store_true", help=text)
    parser.addoption("--record", type=Path, help="file for the numbers of tests, minutes and versions, as JSON")


def pytest_terminal_summary(terminalreporter: Any, exitstatus: int, config: pytest.Config) -> None:
    if (file := config.getoption("record")) is None:
        return
    from benchmarks.measuring import environment

    reports = {kind: terminalreporter.stats.get(kind, []) for kind in ("passed", "failed", "error", "skipped")}
    counts = {kind: len({report.nodeid for report in found}) for kind, found in reports.items()}
    facts = {
        "description": "What `make nightly` last found",
        "command": " ".join(["pytest", *config.invocation_params.args]),
        "date": dt.datetime.now(dt.UTC).date().isoformat(),
        **environment(),
        "complete": exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED),
        **counts,
        "minutes": round((time.monotonic() - STARTED) / 60, 1),
        "not passed": sorted({report.nodeid for kind in ("failed", "error") for report in reports[kind]}),
    }
    file.write_text(json.dumps(facts, indent=1) + "\n")


def unless_known(report: Any, config: pytest.Config) -> Any:
    """The report of a skip, or of a failure where nobody has allowed the skip."""
    if config.getoption("known_skips") and report.skipped and not hasattr(report, "wasxfail"):
        reason = report.longrepr[2].removeprefix("Skipped: ")
        if not any(re.search(pattern, reason) for pattern in KNOWN_SKIPS):
            report.outcome = "failed"
            report.longrepr = (
                f"skipped: {reason}\n"
                "It is a reason that KNOWN_SKIPS in tests/conftest.py does not list.\n"
                "cure: install what is missing, or run with `make test SKIPS=`, which allows any skip"
            )
    return report


#: Files that take longest, the longest first: two processes have the short ones to share in the end.
LONG = (
    "blackbox/test_failing_calls.py",
    "blackbox/test_golden.py",
    "selectors/test_matrix.py",
    "cli/test_limits.py",
    "selectors/test_anchored.py",
    "engine/test_readings.py",
    "selectors/test_peaks.py",
    "cluster/test_connect.py",
    "cluster/test_workers.py",
    "evaluation/test_auto.py",
    "selectors/test_scratch.py",
    "cli/test_local.py",
    "selectors/test_estimators.py",
    "test_deploy.py",
    "storage/test_convert.py",
    "cli/test_commands.py",
    "blackbox/test_state_machine.py",
)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    place = {REPOSITORY / "tests" / name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path, len(LONG)))
    if not os.environ.get("MLFS_NIGHTLY"):
        for item in items:
            if item.get_closest_marker("nightly"):
                item.add_marker(pytest.mark.skip(reason="minutes; make nightly"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Any:
    return unless_known((yield), item.config)


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Any:
    return unless_known((yield), collector.config)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Seed of the profile `ci`, before Hypothesis looks for one, and a thread a process for BLAS.

    The latter where pytest itself has several processes, whose threads would wait for cores.
    """
    if config.getoption("--hypothesis-profile") == "ci" and config.getoption("--hypothesis-seed") is None:
        year, week, _ = dt.datetime.now(dt.UTC).isocalendar()
        config.option.hypothesis_seed = os.environ.get("MLFS_SEED") or f"{year}{week:02}"
    if hasattr(config, "workerinput"):
        import scipy.linalg  # noqa: F401 - it has a BLAS of its own
        from threadpoolctl import threadpool_limits

        threadpool_limits(1, user_api="blas")


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = config.getoption("--hypothesis-seed")
    return seed and f"seed of Hypothesis: {seed}; MLFS_SEED={seed} and --hypothesis-profile=ci draw the same examples"


def data_folder() -> Path:
    """Folder of the real data sets: $MLFS_DATA, by default beside the repository."""
    return Path(os.environ.get("MLFS_DATA") or REPOSITORY.parent / "shared" / "data")


#: Groups of 7 rows, tiles of a few features, and compiled loops for whatever there is.
SMALL_GATES = {
    "GROUP_ROWS": 7,
    "TILE_VALUES": 40,
    "VALUES_AT_ONCE": 50,
    "RANK_BYTES": 2000,
    "GRAM_ROWS": 2,
    "LAPLACIAN_VALUES": 60,
    "QUERY_ROWS": 5,
    "CANDIDATE_ROWS": 11,
    "SPARSE_ROWS": 13,
    "SPARSE_PAIRS": 100,
    "MASS_ROWS": 6,
    "SCORE_BYTES": 2 * 3 * 8,
    "SCORE_FEATURES": 3,
    "TEST_PAIRS": 6,
    "TEST_FEATURES": 2,
    "FINALIZE_BYTES": 2**10,
    "LOG_ROWS": 10,
    "COMPILED_TEXT": 0,
    "COMPILED_VALUES": 0,
    "COMPILED_PRODUCTS": 0,
    "CACHED_VALUES": 0,
    "COMPILED_ADDITIONS": 0,
    "COMPILED_TABLES": 0,
    "COMPILED_ITEMS": 0,
    "COMPILED_PAIRS": 0,
    "COMPILED_LOOKUPS": 0,
    "COMPILED_ROWS": 0,
}


@pytest.fixture
def small_gates(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels of which a few rows take every path that millions take."""
    assert set(SMALL_GATES) == {name for name in vars(gates) if name.isupper()}
    for name, value in SMALL_GATES.items():
        monkeypatch.setattr(gates, name, value)


def published(name: str) -> dict[str, Any]:
    """Arrays that the program of other authors has given (`published/README.md`)."""
    with np.load(Path(__file__).parent / "published" / f"{name}.npz") as file:
        return dict(file)


@pytest.fixture(autouse=True)
def _restored_logging() -> Iterator[None]:
    """Commands set the log up for a process of their own."""
    names = ("mlfs_dask", "mlfs_dask_cli", "mlfs_dask.cluster.connect")
    before = {name: (logging.getLogger(name).level, logging.getLogger(name).handlers[:]) for name in names}
    yield
    for name, (level, handlers) in before.items():
        logging.getLogger(name).setLevel(level)
        logging.getLogger(name).handlers[:] = handlers


@pytest.fixture(scope="session")
def data_set() -> Callable[[str], Path]:
    """Folder of a real data set by name; the test is skipped where the data is absent."""

    def folder(name: str) -> Path:
        path = data_folder() / name
        if not path.is_dir():
            pytest.skip(f"real data not found: {path} (set MLFS_DATA)")
        return path

    return folder


@pytest.fixture
def small_disk() -> Iterator[Callable[[str], Path]]:
    """Mount a disk of a size such as "3m"; the test is skipped where that is not allowed.

    It lies outside `tmp_path`: pytest cannot remove a folder with a mount that a killed run left in it, and fails.
    """
    mount = Path(tempfile.mkdtemp(prefix="mlfs-disk-"))

    def make(size: str) -> Path:
        words = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(mount)]
        made = subprocess.run(words, capture_output=True, check=False)
        if made.returncode:
            pytest.skip(f"a small disk cannot be mounted here: {made.stderr.decode().strip()}")
        return mount

    yield make
    if mount.is_mount():
        subprocess.run(["umount", str(mount)], check=True)
    mount.rmdir()


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Processes started in the test hear Ctrl-C and SIGHUP, also where the tests run in the background and do not.

    What is ignored stays so in a process that is started; what is handled does not.
    """
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.default_int_handler),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    }
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.fixture
def free_port() -> int:
    """A port of the loopback interface where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextlib.contextmanager
def dask_processes(folder: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """Start `dask scheduler` and `dask worker` processes in a folder, and end them afterwards, the last one first.

    `prefix` are the words of a command that starts them; with `nanny` a worker that dies is started again.
    """
    started: list[subprocess.Popen[bytes]] = []

    def start(
        program: str, *arguments: object, prefix: Sequence[str] = (), nanny: bool = False
    ) -> subprocess.Popen[bytes]:
        options = ["--no-dashboard", *(["--no-nanny"] if program == "worker" and not nanny else [])]
        with (folder / f"dask-{len(started)}.log").open("wb") as log:
            process = subprocess.Popen(
                [*prefix, sys.executable, "-m", "dask", program, *map(str, arguments), *options],
                stdout=log,
                stderr=log,
                cwd=folder,
            )
        started.append(process)
        return process

    try:
        yield start
    finally:
        for process in reversed(started):
            process.terminate()
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


@pytest.fixture
def start_dask(tmp_path: Path) -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    """`dask_processes` of a test."""
    with dask_processes(tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def two_workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Scheduler file of two workers for all tests that neither end a worker nor ask for a fresh one."""
    folder = tmp_path_factory.mktemp("two-workers")
    address = folder / "scheduler.json"
    with dask_processes(folder) as start:
        start("scheduler", "--scheduler-file", address, "--port", 0, "--host", "127.0.0.1")
        for _ in range(2):
            words = ("--nthreads", 1, "--memory-limit", "1GiB", "--host", "127.0.0.1")
            start("worker", "--scheduler-file", address, *words)
        yield address


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Headless Chromium; the tests that ask for it are skipped where there is none."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed")
    program, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if program is None or driver is None:
        pytest.skip("needs Chromium and its driver (Debian: apt-get install chromium chromium-driver)")
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = program
    for switch in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    opened = webdriver.Chrome(options=options, service=Service(driver))
    yield opened
    opened.quit()
