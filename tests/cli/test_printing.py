"""Sizes, tables, results and progress, as they are printed."""

from __future__ import annotations

import contextlib
import fcntl
import io
import itertools
import json
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from mlfs_dask import runtime
from mlfs_dask.errors import size
from mlfs_dask.storage import dataset
from mlfs_dask_cli import progress
from mlfs_dask_cli.options import Bytes, KeepCount
from mlfs_dask_cli.output import Output, table
from mlfs_dask_cli.progress import Lines, Status, show_progress
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("1024", 1024),
        ("500MB", 500_000_000),
        ("1.5GiB", 3 * 2**29),
        ("2 g", 2_000_000_000),
        ("3ki", 3072),
        ("1TiB", 2**40),
        ("7b", 7),
    ],
)
def test_sizes_are_read(text: str, count: int) -> None:
    assert Bytes().convert(text, None, None) == count


@pytest.mark.parametrize("text", ["", "GB", "1XB", "1e400", "0", "1 2", "-5"])
def test_no_sizes(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is no size"):
        Bytes().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("20", 20),
        ("0.1", 0.1),
        ("1.0", 1.0),
        ("1", 1),
        ("1e-1", 0.1),
        ("10%", 0.1),
        ("1/6", 1 / 6),
        ("12.5 %", 0.125),
        ("100%", 1.0),
    ],
)
def test_counts_and_fractions(text: str, value: float) -> None:
    found = KeepCount().convert(text, None, None)
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (2**30, "1 GiB"), (5 * 2**40, "5 TiB")]
)
def test_sizes_are_written(count: int, text: str) -> None:
    assert size(count) == text


def test_tables_are_aligned() -> None:
    rows = [("alpha", "1,000"), ("b", "7")]
    assert table(rows) == "alpha  1,000\nb          7"
    assert table(rows, header=("name", "count")) == "name   count\nalpha  1,000\nb          7"
    assert table([("a", "text"), ("bb", "t")]) == "a   text\nbb  t"
    assert table([]) == ""


def test_what_json_does_not_have(
    capsys: pytest.CaptureFixture[str], run: Any, run_json: Any, tiny_store: Path, tmp_path: Path
) -> None:
    def strict(text: str) -> Any:
        return json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))

    values = {"n": np.int64(3), "a": np.arange(2), "p": Path("x"), "s": {2, 1}}
    Output(as_json=True).result({**values, "C": np.float64("inf"), "mean": [float("nan"), 1.0]}, "")
    plain = {"n": 3, "a": [0, 1], "p": "x", "s": [1, 2]}
    assert strict(capsys.readouterr().out) == {**plain, "C": None, "mean": [None, 1.0]}
    stream = io.StringIO()
    Lines(stream, as_json=True)({"kind": "iteration", "objective": float("inf")})
    assert strict(stream.getvalue())["objective"] is None
    (tmp_path / "inf.csv").write_text("x,y,a\n1,2,0\ninf,3,1\n")
    refused = run("convert", tmp_path / "inf.csv", tmp_path / "inf.zarr", "--n-labels", "1", "--json")
    assert refused.exit_code == 3
    assert strict(refused.stdout)["error"]["value"] == "inf"
    words = ("evaluate", tiny_store, "random", "--folds", "2", "--in-process")
    found = run(*words, "-o", tmp_path / "e", "-C", "inf", "--classifier", "logistic", "--json")
    assert found.exit_code == 0, found.stderr
    assert strict(found.stdout)["settings"]["C"] is None
    refused = run(*words, "-o", tmp_path / "s", "--smoothing", "inf", "--json")
    assert "--smoothing must be a positive number; got inf" in strict(refused.stdout)["error"]["message"]


@pytest.mark.parametrize("mark", ["\x1b[31m", "\r", "\x9b2J", "\u202e"])
def test_marks_that_control_a_terminal_are_shown_escaped(
    tmp_path: Path, run: Run, mark: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(click._compat, "should_strip_ansi", lambda *_: False)  # as at a terminal
    pandas = pytest.importorskip("pandas")
    rows = np.arange(40)
    frame = pandas.DataFrame({f"f{mark}": rows % 2, "g": rows % 3, "y": rows % 2})
    frame.to_parquet(tmp_path / f"{mark}t.parquet")
    store, run_folder = tmp_path / "s.zarr", tmp_path / "run"
    printed = [
        run("convert", tmp_path / f"{mark}t.parquet", store, "--n-labels", 1, "-v"),
        run("select", "chi2", store, "-k", 1, "-o", run_folder),
        run("select", "chi2", store, "-k", 1, "--keep", "absent", "-o", tmp_path / "other"),
        run("inspect", tmp_path / f"{mark}absent.csv"),
    ]
    shown = "".join(result.stdout + result.stderr for result in printed)
    assert mark not in shown
    assert shown.count(mark.encode("unicode_escape").decode()) >= 4


# Progress

FIT = {"kind": "fit", "method": "mfsir", "readings": 102, "max_iterations": 100, "typical_iterations": (10, 46)}
PASS = {"kind": "pass", "label": "X'SX P", "partitions": 4}


class Clock:
    """Seconds that a test sets."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def lines_after(*events: tuple[float, dict[str, Any]], width: int | None = None) -> list[str]:
    """The status line after each event at its second."""
    clock = Clock()
    status, lines = Status(clock), []
    for second, event in events:
        clock.now = second
        status(event)
        lines.append(status.line(width))
    return lines


def steps(first: int, last: int, seconds: float) -> list[tuple[float, dict[str, Any]]]:
    """Iterations of so many seconds each, from second 10 on."""
    return [
        (10 + seconds * (number - first), {"kind": "step", "number": number, "objective": 2.9e-28, "residual": 0.04})
        for number in range(first, last + 1)
    ]


def test_a_reading_says_how_far_it_is_and_what_is_left() -> None:
    elc = {"kind": "fit", "method": "enm", "readings": 2, "max_iterations": None, "typical_iterations": None}
    assert lines_after(
        (0, elc),
        (2, PASS),
        (10, {"kind": "partitions", "done": 2}),
        (18, {"kind": "partitions", "done": 2}),
        (20, {"kind": "pass-done", "label": "X'SX P", "seconds": 18.0}),
        (4000, PASS),
    ) == [
        "enm; 0:00 elapsed",
        "enm: pass 1 of 2, 0%; 0:02 elapsed",
        "enm: pass 1 of 2, 50%; 0:10 elapsed, about 0:30 left",
        "enm: pass 1 of 2, 100%; 0:18 elapsed, about 0:18 left",
        "enm; 0:20 elapsed, about 0:20 left",
        "enm: pass 2 of 2, 0%; 1:06:40 elapsed, about 1:06:40 left",
    ]


SHARED = {"kind": "fit", "method": "auto", "readings": 1, "max_iterations": None, "typical_iterations": None}


@pytest.mark.parametrize(
    ("events", "line"),
    [
        (
            [(0, {**FIT, "max_iterations": 20}), *steps(1, 3, 10.0)],
            "mfsir: iteration 3 of at most 20 (typically 10 to 46); 0:30 elapsed, up to 2:50 left",
        ),
        (
            [(0, {**FIT, "max_iterations": 8}), *steps(1, 3, 10.0)],
            "mfsir: iteration 3 of at most 8; 0:30 elapsed, up to 0:50 left",
        ),
        (
            [(0, FIT), *steps(1, 46, 1.0)],
            "mfsir: iteration 46 of at most 100 (typically 10 to 46); 0:55 elapsed, up to 0:55 left",
        ),
        (
            [(0, FIT), *steps(40, 42, 10.0)],
            "mfsir: iteration 42 of at most 100 (typically 10 to 46); 0:30 elapsed, up to 0:40 left",
        ),
        (
            [(0, SHARED), (2, PASS | {"compiling": True})],
            "auto: compiling kernels, once; pass 0%; 0:02 elapsed",
        ),
        (
            [(0, SHARED), (2, PASS | {"compiling": True}), (20, {"kind": "partitions", "done": 2})],
            "auto: pass 50%; 0:20 elapsed, about 0:20 left",
        ),
        (
            [
                *[(0, SHARED), (2, PASS), (10, {"kind": "pass-done", "label": "rows", "seconds": 8.0})],
                *[(10, {"kind": "stage", "label": "judging methods", "parts": 8, "unit": "fits"})],
                *[(20, {"kind": "parts", "done": 2})],
            ],
            "auto: judging methods 25%; 0:20 elapsed, about 0:30 left",
        ),
    ],
    ids=["allowed", "fewer", "longer than usual", "resumed", "compiling", "compiled", "after the last reading"],
)
def test_the_line_after_the_last_event(events: list[tuple[float, dict[str, Any]]], line: str) -> None:
    assert lines_after(*events)[-1] == line


def test_a_loop_says_its_iteration_how_many_there_may_be_and_what_is_left_at_most() -> None:
    lines = lines_after((0, FIT), (1, PASS), (9, {"kind": "partitions", "done": 2}), *steps(1, 7, 10.0), (70, PASS))
    assert lines[2] == "mfsir: pass 50%; 0:09 elapsed"  # nobody knows yet how long an iteration takes
    assert lines[3].startswith("mfsir: iteration 1 of at most 100 (typically 10 to 46), pass 50%; 0:10 elapsed")
    assert "left" not in lines[3]
    assert lines[-1] == (
        "mfsir: iteration 7 of at most 100 (typically 10 to 46), pass 0%; 1:10 elapsed, up to 6:30 left"
    )


@pytest.mark.parametrize(
    ("width", "line"),
    [
        (120, "mfsir: iteration 7 of at most 100 (typically 10 to 46), pass 0%; 1:10 elapsed, up to 6:30 left"),
        (85, "mfsir: iteration 7 of at most 100 (typically 10 to 46); 1:10 elapsed, up to 6:30 left"),
        (80, "mfsir: iteration 7 of at most 100 (typically 10 to 46); 1:10, up to 6:30 left"),
        (75, "iteration 7 of at most 100 (typically 10 to 46); 1:10, up to 6:30 left"),
        (50, "iteration 7 of at most 100; 1:10, up to 6:30 left"),
        (40, "iteration 7 of at most 100; 1:10"),
    ],
)
def test_what_matters_less_gives_way_on_a_narrow_terminal(width: int, line: str) -> None:
    assert lines_after((0, FIT), *steps(1, 7, 10.0), (70, PASS), width=width)[-1] == line


def test_jobs_and_rankings_are_counted_and_timed_together() -> None:
    job = {"kind": "job", "total": 5, "name": "yeast.mfsir.k10"}
    ranking = {"kind": "ranking", "total": 4, "candidate": "elc", "repeat": 0, "fold": 1}
    lines = lines_after(
        (10, {**job, "number": 3}),  # two were done by an earlier command
        (20, {**job, "number": 4}),
        (20, FIT),
        (30, {**job, "number": 5}),
        (34, {**ranking, "number": 1}),
        (40, {**ranking, "number": 3}),
    )
    assert lines == [
        "job 3 of 5; 0:10 elapsed",
        "job 4 of 5; 0:20 elapsed, about 0:20 left",
        "job 4 of 5, mfsir; 0:20 elapsed, about 0:20 left",
        "job 5 of 5; 0:30 elapsed, about 0:10 left",
        "job 5 of 5, ranking 1 of 4; 0:34 elapsed, about 0:12 left",
        "job 5 of 5, ranking 3 of 4; 0:40 elapsed, about 0:06 left",
    ]


def test_stages_are_named_with_their_share_where_it_is_known() -> None:
    assert lines_after(
        (0, {"kind": "stage", "label": "comparing rows", "parts": 8, "unit": "parts"}),
        (4, {"kind": "parts", "done": 2}),
        (5, {"kind": "stage-done", "label": "comparing rows", "seconds": 5.0}),
        (5, {"kind": "pass", "label": "rows", "partitions": 1}),
        (5, {"kind": "stage", "label": "growing a forest", "parts": None, "unit": "parts"}),
        (6, {"kind": "convert", "stage": "read", "rows": 100}),
        (6, {"kind": "convert", "stage": "write", "parts_done": 2, "parts": 5}),
    ) == [
        "comparing rows 0%; 0:00 elapsed",
        "comparing rows 25%; 0:04 elapsed, about 0:12 left",
        "working; 0:05 elapsed",
        "pass; 0:05 elapsed",
        "growing a forest; 0:05 elapsed",
        "growing a forest; 0:06 elapsed",
        "writing the store 40%; 0:06 elapsed",
    ]


def test_the_share_of_all_that_is_known() -> None:
    status = Status()
    assert status.fraction is None
    for event in ({**FIT, "kind": "job", "number": 2, "total": 4}, FIT, PASS, {"kind": "partitions", "done": 4}):
        status(event)
    assert status.fraction == 1 / 4  # a loop has not begun with its first reading
    for event in ({**FIT, "kind": "job", "number": 2, "total": 4}, FIT, {"kind": "step", "number": 23}):
        status(event)
    assert status.fraction == (1 + 23 / 46) / 4


EVENTS = [FIT, PASS, {"kind": "partitions", "done": 1}, {"kind": "step", "number": 3, "objective": 0.125}]


def test_plain_lines_come_rarer_the_longer_it_takes() -> None:
    stream, clock = io.StringIO(), Clock()
    sink = Lines(stream, clock=clock)
    sink(FIT)
    printed = []
    for second in range(2000):
        clock.now = float(second)
        sink({"kind": "step", "number": 1 + second // 60, "objective": 0.125})
        if stream.getvalue():
            printed.append(second)
            assert stream.getvalue().startswith(f"mlfs: mfsir: iteration {1 + second // 60} of at most 100 (typically")
            assert stream.getvalue().count("\n") == 1
            stream.seek(0)
            stream.truncate()
    assert printed[:4] == [5, 10, 15, 20]
    assert max(b - a for a, b in itertools.pairwise(printed)) == 25
    assert len(printed) < 100


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("inspect",), "mlfs: working; 0:0"),
        (("select", "label-entropy", "-k", "2", "-o", "run", "--progress", "plain"), "mlfs: working; 0:0"),
        (("select", "label-entropy", "-k", "2", "-o", "run", "--progress", "json"), '"kind": "waiting"'),
        (("select", "label-entropy", "-k", "2", "-o", "run", "--quiet"), None),
    ],
)
def test_whatever_is_waited_for_there_are_lines(
    words: tuple[str, ...],
    line: str | None,
    run: Run,
    tiny_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Here for a store that is slow to open, for which there are no events."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(progress, "LONGEST_PAUSE", 0.1)
    monkeypatch.setattr(progress, "TICK_SECONDS", 0.02)
    read_schema = dataset.read_schema

    def slowly(*arguments: Any) -> Any:
        time.sleep(0.5)
        return read_schema(*arguments)

    monkeypatch.setattr(dataset, "read_schema", slowly)
    done = run(*words, tiny_store)
    assert done.exit_code == 0, done.stderr
    assert (done.stderr.count(line) >= 2) if line else (done.stderr == "")


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_a_terminal_gets_one_line_that_is_not_cut(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", str(columns))
    with show_progress(Output(progress="auto")):
        for event in EVENTS:
            runtime.emit(**event)  # type: ignore[arg-type]
    shown = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", stream.getvalue()).replace("\r", "\n").splitlines()
    assert max(map(len, shown)) <= columns
    assert not [line for line in shown if "…" in line]
    assert [line for line in shown if "iteration 3 of at most 100" in line and ("typically" in line) == (columns > 50)]


def test_lines_for_people_stand_above_the_bar() -> None:
    """On a terminal: a note, a warning, a log line and the result, none of them on the line of the bar."""
    program = (
        "import logging, warnings\n"
        "from mlfs_dask import runtime\n"
        "from mlfs_dask_cli.options import set_logging\n"
        "from mlfs_dask_cli.output import Output\n"
        "from mlfs_dask_cli.progress import show_progress\n"
        "set_logging(1, quiet=False)\n"
        "output = Output()\n"
        "with show_progress(output):\n"
        "    runtime.emit('pass', label='counts', partitions=2)\n"
        "    output.note('a note')\n"
        "    logging.getLogger('mlfs_dask').info('a log line')\n"
        "output.result({}, 'the result')\n"
    )
    shown = on_a_terminal([sys.executable, "-c", program])
    # What a line shows in the end: after the last return to its beginning.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in shown.split("\n")]
    assert [line for line in lines if line in ("a note", "mlfs: a log line", "the result")] == [
        "a note",
        "mlfs: a log line",
        "the result",
    ]


def on_a_terminal(words: list[str], columns: int = 80) -> str:
    """What a program writes to a terminal, without the codes that set colours."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    process = subprocess.Popen(words, stdin=child, stdout=child, stderr=child, env={**os.environ, "TERM": "xterm"})
    os.close(child)
    written = b""
    with contextlib.suppress(OSError):  # the terminal is closed: the end
        while piece := os.read(parent, 65536):
            written += piece
    os.close(parent)
    assert process.wait() == 0, written
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", written.decode())
